//! What `ramfold run` says of a program at its end.
//!
//! ```text
//!   ramfold: .. 7000 pages left and 6000 came back, by 500 faults; threads waited 1.5 of 9.0 s ..
//! ```
//!
//! Invariant: what is not understood was not measured.

/// Figures of that line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Line {
    pub(super) pages_out: Option<f64>,
    pub(super) pages_in: Option<f64>,
    pub(super) faults: Option<f64>,
    /// For which threads waited because there was no room.
    pub(super) stall_s: Option<f64>,
}

const SPEAKER: &str = "ramfold: ";
const NOTHING: &str = "nothing was folded";

impl Line {
    /// Of everything that was said on standard error.
    pub(super) fn of(said: &str) -> Line {
        let lines = said.lines().filter(|line| line.starts_with(SPEAKER));
        lines.rev().find_map(parsed).unwrap_or_default()
    }
}

fn parsed(line: &str) -> Option<Line> {
    if line.ends_with(NOTHING) {
        let zero = Some(0.0);
        return Some(Line { pages_out: zero, pages_in: zero, faults: zero, stall_s: zero });
    }
    let pages_out = before(line, " pages left");
    pages_out.map(|pages| Line {
        pages_out: Some(pages),
        pages_in: before(line, " came back"),
        faults: before(line, " faults"),
        stall_s: after(line, "threads waited "),
    })
}

/// The number that stands before some words.
fn before(line: &str, words: &str) -> Option<f64> {
    line.split_once(words)?.0.rsplit(' ').next()?.parse().ok()
}

/// The number that stands after some words.
fn after(line: &str, words: &str) -> Option<f64> {
    line.split_once(words)?.1.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_last_line() {
        let said = "a program's own words\nramfold: x (process 7) does not fold: no\nramfold: 90 \
                    MiB at most, with a limit of 88 MiB, instead of 200 MiB; 700 pages left and \
                    600 came back, by 50 faults; threads waited 1.5 of 9.0 s for room\n";
        let [pages_out, pages_in, faults, stall_s] = [700.0, 600.0, 50.0, 1.5].map(Some);
        assert_eq!(Line::of(said), Line { pages_out, pages_in, faults, stall_s });
        let none = "ramfold: 9 MiB at most, within the limit of 88 MiB; nothing was folded\n";
        assert_eq!(Line::of(none).pages_out, Some(0.0));
        assert_eq!(Line::of("600 came back\nramfold: a problem\n"), Line::default());
    }
}
