//! The ways out: standard output, whose reader may leave, and standard error.
//!
//! Invariant: text for people has no control characters that a terminal would obey, because names
//! and values come from outside. JSON is for programs, and exact.
//!
//! Locks: those of the two streams, each for one line.

use std::borrow::Cow;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::Value;

use super::failure::Failure;

/// Work that takes longer shows on a terminal that it goes on.
pub(crate) const SHORT_WAIT: Duration = Duration::from_secs(1);
/// The time between two steps of that sign.
const TICK: Duration = Duration::from_millis(100);

/// Moves the cursor to the first place of the screen, and clears the screen.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Prints lines for people.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_exactly(&escaped(text, |c| c == '\n' || c == '\t'))
}

/// Clears a terminal, so that it shows only what is printed next.
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

/// The text with control characters in the form `\u{1b}`, except those that `is_fit` accepts.
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

/// Whether a character changes the direction or the line in which the next ones are shown.
fn turns(c: char) -> bool {
    let marks = ['\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
    marks.contains(&c) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a JSON value, indented or on one line.
pub(crate) fn print_json(value: &Value, one_line: bool) -> Result<(), Failure> {
    print_exactly(&if one_line { format!("{value}\n") } else { format!("{value:#}\n") })
}

/// Prints a line that is not needed. It is lost if the stream is closed.
pub(crate) fn mention(line: &str) {
    let _ = writeln!(stdout().lock(), "{}", self::one_line(line));
}

/// Does work of unknown length. If it takes long, a terminal shows that it goes on.
pub(crate) fn patiently<T>(work: impl FnOnce() -> T) -> T {
    let (done, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // If there is no thread, nothing is shown, but the work is done.
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

/// Prints one line to standard error that says what is wrong.
pub(crate) fn complain(what: &str) {
    // If standard error is closed too, there is no other stream.
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
