//! A terminal that shows lines, and is afterwards as it was before.
//!
//! ```text
//!   open: the other screen, no cursor, keys at once      drop: all of it undone
//!   draw: only lines that differ from those that are shown
//! ```
//!
//! A shell gives the terminal to one of its jobs, the one in front. A job behind it that set the
//! keyboard would be stopped by the system, even at its end. So nothing is shown there, and nothing
//! is set. Being in front again is noticed at the next `draw`.
//!
//! Invariant: every way out passes `leave`, also that of a panic. Locks: none.

use std::io::{Write, stdout};

use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::stdio;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr,
};

use super::table::Line;
use crate::line::Failure;

/// The other screen, no cursor, and no second line for one that is too long.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
/// All of it undone.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// What a terminal has that does not say.
const SIZE: (usize, usize) = (80, 24);

/// The terminal on standard output.
pub(super) struct Screen {
    /// How the keyboard was set, if there is one.
    before: Option<Termios>,
    /// The terminal was taken over, and not given back.
    is_ours: bool,
    shown: Vec<String>,
    /// The screen has to be cleared first.
    anew: bool,
    has_colours: bool,
    has_blocks: bool,
}

impl Screen {
    pub(super) fn open() -> Result<Screen, Failure> {
        // NO_COLOR counts if it is not empty: no-color.org.
        let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let has_blocks = speaks_utf8();
        let (before, shown) = (None, Vec::new());
        let mut screen =
            Screen { before, is_ours: false, shown, anew: true, has_colours, has_blocks };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal over, if this program is in front.
    pub(super) fn enter(&mut self) -> Result<(), Failure> {
        if !is_in_front() {
            self.leave();
            return Ok(());
        }
        self.is_ours = true;
        self.before = self.before.take().or_else(|| tcgetattr(stdio::stdin()).ok());
        if let Some(before) = &self.before {
            let mut keys = before.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            keys.special_codes[SpecialCodeIndex::VMIN] = 1;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            set_keys(&keys);
        }
        self.forget();
        Ok(send(ENTER)?)
    }

    /// Gives the terminal back.
    pub(super) fn leave(&mut self) {
        if !std::mem::take(&mut self.is_ours) {
            return;
        }
        // If the terminal is gone, there is nothing to give back.
        let _ = send(LEAVE);
        // Behind another job, the shell has set the keyboard as it wants it.
        if let (Some(before), true) = (&self.before, is_in_front()) {
            set_keys(before);
        }
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(stdio::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        size.filter(|&(columns, rows)| columns > 0 && rows > 0).unwrap_or(SIZE)
    }

    /// Draws everything the next time, because the terminal may show something else.
    pub(super) fn forget(&mut self) {
        self.anew = true;
    }

    /// Shows the lines. It sends those that have changed.
    pub(super) fn draw(&mut self, lines: &[Line]) -> Result<(), Failure> {
        if !self.is_ours {
            self.enter()?;
        }
        if !self.is_ours {
            return Ok(());
        }
        let lines = lines.iter().map(|line| line.shown(self.has_colours, self.has_blocks));
        let lines: Vec<String> = lines.collect();
        let mut text = String::new();
        if std::mem::take(&mut self.anew) {
            text.push_str("\x1b[H\x1b[2J");
            self.shown.clear();
        }
        changes(&self.shown, &lines, &mut text);
        self.shown = lines;
        if text.is_empty() { Ok(()) } else { Ok(send(&text)?) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether the terminal is given to this program. One that no shell gives away is.
fn is_in_front() -> bool {
    tcgetpgrp(stdio::stdout()).map_or(true, |front| front == getpgrp())
}

/// Sets how keys are read. If that fails, they need the Enter key, and nothing else is lost.
fn set_keys(keys: &Termios) {
    while tcsetattr(stdio::stdin(), OptionalActions::Now, keys) == Err(Errno::INTR) {}
}

/// What turns a screen with some lines into one with others.
fn changes(old: &[String], new: &[String], text: &mut String) {
    for at in 0..old.len().max(new.len()) {
        let (before, line) = (old.get(at), new.get(at));
        if before != line {
            let line = line.map_or("", String::as_str);
            text.push_str(&format!("\x1b[{};1H{line}\x1b[K", at + 1));
        }
    }
}

fn send(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whether the terminal shows letters beyond ASCII, by the first of these variables that is set.
fn speaks_utf8() -> bool {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_changed_are_sent() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let sent = |old: &str, new: &str| {
            let mut text = String::new();
            changes(&lines(old), &lines(new), &mut text);
            text
        };
        assert_eq!(sent("a\nb", "a\nb"), "");
        assert_eq!(sent("a\nb", "a\nc"), "\x1b[2;1Hc\x1b[K");
        assert_eq!(sent("a\nb", "a"), "\x1b[2;1H\x1b[K", "a line that is gone");
        assert_eq!(sent("", "a"), "\x1b[1;1Ha\x1b[K");
    }
}
