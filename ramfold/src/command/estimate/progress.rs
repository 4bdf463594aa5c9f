//! A bar on the terminal, for work that takes more than a second.
//!
//! Invariant: nothing is shown if standard error is not a terminal. Locks: none.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::line::output::SHORT_WAIT;

/// The clock is read once for so many steps.
const STRIDE: u64 = 256;

/// Steps done out of a known number.
pub(super) struct Progress {
    bar: ProgressBar,
    start: Instant,
    done: u64,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(steps: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        // The template is fixed and well formed. Without it the bar would look plainer.
        if let Ok(style) = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} % {eta}")
        {
            bar.set_style(style);
        }
        Progress { bar, start: Instant::now(), done: 0, is_shown: false }
    }

    /// Shows what is being done.
    pub(super) fn name(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// Counts one step that is done.
    pub(super) fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(STRIDE) {
            self.show_when_due();
            self.bar.set_position(self.done);
        }
    }

    fn show_when_due(&mut self) {
        let due = !self.is_shown && self.start.elapsed() > SHORT_WAIT;
        if due && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.is_shown |= due;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
