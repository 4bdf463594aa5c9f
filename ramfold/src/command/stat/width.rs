//! Lines that fit a terminal of 80 columns.
//!
//! Invariant: a line is broken at blanks alone. A word that is longer than a line stays whole.
//! Locks: none.

/// The columns of a terminal that every table fits.
pub(super) const COLUMNS: usize = 80;
/// Where the rest of a line goes on: below the figures of a table.
const REST_AT: usize = 17;
/// The same for a notice, which begins with this mark.
const NOTICE: char = '!';
const NOTICE_REST_AT: usize = 2;

/// The text with its long lines broken.
pub(super) fn fitted(text: &str) -> String {
    let mut fitted = String::with_capacity(text.len());
    for line in text.lines() {
        let rest_at = if line.starts_with(NOTICE) { NOTICE_REST_AT } else { REST_AT };
        let mut left = line.to_owned();
        while let Some(at) = breaks_at(&left, rest_at) {
            fitted.push_str(left[..at].trim_end());
            fitted.push('\n');
            left = format!("{}{}", " ".repeat(rest_at), left[at..].trim_start());
        }
        fitted.push_str(&left);
        fitted.push('\n');
    }
    fitted
}

/// Where a line is broken, if it is too long: at the last blank that fits, or at the first one.
fn breaks_at(line: &str, rest_at: usize) -> Option<usize> {
    let (beyond, _) = line.char_indices().nth(COLUMNS)?;
    let begins = line.len() - line.trim_start().len();
    // What is before is the beginning of a row, and a break there would gain nothing.
    let blanks = line.match_indices(' ').map(|(at, _)| at);
    let mut blanks = blanks.filter(|&at| at > begins.max(rest_at));
    let first = blanks.clone().next()?;
    Some(blanks.rfind(|&at| at <= beyond).unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks() {
        let short = "held              1.0 MiB\n\nx\n";
        assert_eq!(fitted(short), short);
        let word = "w".repeat(30);
        let line = format!("backing server   {word} {word} {word}");
        let rest = format!("backing server   {word} {word}\n                 {word}\n");
        assert_eq!(fitted(&line), rest);
        let notice = format!("! zram0: {word} {word} {word}");
        assert_eq!(fitted(&notice), format!("! zram0: {word} {word}\n  {word}\n"));
    }

    #[test]
    fn a_long_word_stays_whole() {
        let word = "w".repeat(100);
        assert_eq!(fitted(&word), format!("{word}\n"));
        assert_eq!(fitted(&format!("  {word}")), format!("  {word}\n"));
        let line = format!("{word} {word} end");
        let rest = " ".repeat(17);
        assert_eq!(fitted(&line), format!("{word}\n{rest}{word}\n{rest}end\n"));
    }

    #[test]
    fn a_line_of_eighty_columns_fits() {
        let line = format!("{} {}\n", "a".repeat(40), "\u{e9}".repeat(39));
        assert_eq!(fitted(&line), line);
        let line = format!("{} {}\n", "a".repeat(40), "\u{e9}".repeat(40));
        assert_eq!(fitted(&line).lines().count(), 2);
    }
}
