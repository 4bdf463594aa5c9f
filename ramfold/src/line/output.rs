//! The ways out: standard output, whose reader may leave, and one line of complaint.
//!
//! Invariant: names and values come from outside, so no text for people has control characters in
//! it that a terminal would obey; JSON is for programs, and exact.

use std::borrow::Cow;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::Value;

use super::failure::Failure;

/// What is done sooner needs no sign of life.
pub(crate) const SHORT_WAIT: Duration = Duration::from_secs(1);
/// Between two such signs.
const TICK: Duration = Duration::from_millis(100);

/// Begins a screen anew: the cursor goes home, and the rest is cleared.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Prints lines for people.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_exactly(&escaped(text, |c| c == '\n' || c == '\t'))
}

/// Makes a terminal show what is printed next, and nothing else.
pub(crate) fn redraw() -> Result<(), Failure> {
    print_exactly(REDRAW)
}

fn print_exactly(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// A name or a value from outside, on one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// What a terminal would obey is written as `\u{1b}`, but for what is fit to be there.
fn escaped(text: &str, is_fit: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_raw = |c: char| (c.is_control() || turns(c)) && !is_fit(c);
    if !text.contains(is_raw) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_raw(c) {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether a mark changes the direction or the line in which what follows is shown.
fn turns(c: char) -> bool {
    let marks = ['\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
    marks.contains(&c) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a JSON value: indented, or as one line of several.
pub(crate) fn print_json(value: &Value, one_line: bool) -> Result<(), Failure> {
    print_exactly(&if one_line { format!("{value}\n") } else { format!("{value:#}\n") })
}

/// Says something that nobody needs to hear: on a closed stream it is lost, and all goes on.
pub(crate) fn mention(line: &str) {
    let _ = writeln!(stdout().lock(), "{}", self::one_line(line));
}

/// Does something of unknown length; if it takes long, a terminal shows that it goes on.
pub(crate) fn patiently<T>(work: impl FnOnce() -> T) -> T {
    let (done, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // Without a thread nothing is shown; the work is done all the same.
        let _ = host::thread::spawn_scoped(scope, "progress", move || tick_until_closed(&wait));
        let result = work();
        drop(done);
        result
    })
}

fn tick_until_closed(wait: &mpsc::Receiver<()>) {
    let is_closed = |limit| wait.recv_timeout(limit) != Err(mpsc::RecvTimeoutError::Timeout);
    if is_closed(SHORT_WAIT) || !stderr().is_terminal() {
        return;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_message("the server is at work");
    while !is_closed(TICK) {
        bar.tick();
    }
    bar.finish_and_clear();
}

/// Says on one line what is wrong.
pub(crate) fn complain(what: &str) {
    // There is no further stream to complain on.
    let _ = writeln!(stderr().lock(), "ramfold: {}", one_line(what.trim_end()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_what_is_shown() {
        let rows = [
            ("plain \"quoted\" caf\u{e9}", "plain \"quoted\" caf\u{e9}"),
            ("red \x1b[31m", "red \\u{1b}[31m"),
            ("two\nlines\r", "two\\nlines\\r"),
            ("c1 \u{9b}2J", "c1 \\u{9b}2J"),
            ("txt.\u{202e}exe", "txt.\\u{202e}exe"),
        ];
        for (text, shown) in rows {
            assert_eq!(one_line(text), shown);
        }
        assert_eq!(escaped("a\tb\n\x07", |c| c == '\n' || c == '\t'), "a\tb\n\\u{7}");
    }
}
