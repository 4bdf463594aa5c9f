//! The ways out: standard output, whose reader may leave, and one line of complaint.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::Value;

use crate::failure::Failure;

/// What is done sooner needs no sign of life.
pub(crate) const SHORT_WAIT: Duration = Duration::from_secs(1);
/// Between two such signs.
const TICK: Duration = Duration::from_millis(100);

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a JSON value: indented, or as one line of several.
pub(crate) fn print_json(value: &Value, one_line: bool) -> Result<(), Failure> {
    if one_line { print(&format!("{value}\n")) } else { print(&format!("{value:#}\n")) }
}

/// Says something that nobody needs to hear: on a closed stream it is lost, and all goes on.
pub(crate) fn mention(line: &str) {
    let _ = writeln!(stdout().lock(), "{line}");
}

/// Does something of unknown length; if it takes long, a terminal shows that it goes on.
pub(crate) fn patiently<T>(work: impl FnOnce() -> T) -> T {
    let (done, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || tick_until_closed(&wait));
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
    let line: Vec<&str> = what.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // There is no further stream to complain on.
    let _ = writeln!(stderr().lock(), "ramfold: {}", line.join(" "));
}
