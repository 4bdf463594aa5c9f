//! A terminal on which a program runs, and what it shows.
//!
//! It knows the few sequences that `ramfold top` sends, and refuses others.
//!
//! Invariant: a line that is longer than the terminal is an error. Locks: the screen's.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::{eventually, signal};

/// A program on a terminal. It is killed at the end.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    own: File,
    shown: Arc<Mutex<Shown>>,
}

#[derive(Default)]
struct Shown {
    columns: usize,
    lines: Vec<Vec<char>>,
    at: (usize, usize),
    pending: String,
    bytes: String,
    wrong: Vec<String>,
}

impl Terminal {
    /// Starts a command on a terminal of this size.
    pub(crate) fn start(command: &mut Command, (columns, rows): (u16, u16)) -> Terminal {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&main).and_then(|()| unlockpt(&main)).expect("ours");
        let path = ptsname(&main, Vec::new()).expect("it has a name");
        let path = path.into_string().expect("a path");
        let own = OpenOptions::new().read(true).write(true).open(path).expect("the other end");
        let shown = Arc::new(Mutex::new(Shown::default()));
        let mut keyboard = File::from(main);
        let terminal = |file: &File| {
            Stdio::from(OwnedFd::from(file.try_clone().expect("there are descriptors")))
        };
        set_size(&own, &shown, (columns, rows));
        command.stdin(terminal(&own)).stdout(terminal(&own)).stderr(terminal(&own));
        let child = command.spawn().expect("the built binary can be started");
        let (mut output, screen) =
            (keyboard.try_clone().expect("there are descriptors"), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                screen
                    .lock()
                    .expect("no listener panics")
                    .take(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        keyboard.flush().expect("the terminal is open");
        Terminal { child, keyboard, own, shown }
    }

    /// Changes the size, and tells the program.
    pub(crate) fn resize(&self, size: (u16, u16)) {
        set_size(&self.own, &self.shown, size);
        signal(self.child.id(), "WINCH");
    }

    /// The lines that are shown.
    pub(crate) fn lines(&self) -> Vec<String> {
        let shown = self.shown.lock().expect("no listener panics");
        assert_eq!(shown.wrong, Vec::<String>::new(), "{}", shown.text().join("\n"));
        shown.text()
    }

    /// Waits until the screen shows something.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        eventually(what, || {
            lines = self.lines();
            is_there(&lines)
        });
        lines
    }

    /// Every byte that was sent.
    pub(crate) fn bytes(&self) -> String {
        self.shown.lock().expect("no listener panics").bytes.clone()
    }

    pub(crate) fn press(&mut self, key: &[u8]) {
        self.keyboard.write_all(key).expect("the terminal is open");
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for the program to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the program to end", || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Whether keys are collected into lines and shown, as a shell expects it.
    pub(crate) fn is_usual(&self) -> bool {
        let modes = tcgetattr(&self.own).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(own: &File, shown: &Mutex<Shown>, (columns, rows): (u16, u16)) {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    let mut shown = shown.lock().expect("no listener panics");
    tcsetwinsize(own, size).expect("a terminal");
    shown.columns = usize::from(columns);
    shown.lines = vec![Vec::new(); usize::from(rows)];
}

impl Shown {
    fn text(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.iter().collect::<String>().trim_end().into()).collect()
    }

    fn take(&mut self, text: &str) {
        self.bytes += text;
        let text = std::mem::take(&mut self.pending) + text;
        let mut rest = text.as_str();
        while let Some(letter) = rest.chars().next() {
            if letter != '\x1b' {
                self.put(letter);
                rest = &rest[letter.len_utf8()..];
                continue;
            }
            let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) else {
                self.pending = rest.to_owned();
                return;
            };
            self.obey(&rest[1..=end]);
            rest = &rest[end + 1..];
        }
    }

    fn put(&mut self, letter: char) {
        let (row, column) = self.at;
        if row >= self.lines.len() || column >= self.columns {
            // What was sent for the size before is drawn anew.
            self.wrong.push(format!("{letter:?} at {row}, {column}"));
            return;
        }
        let line = &mut self.lines[row];
        line.resize(line.len().max(column + 1), ' ');
        line[column] = letter;
        self.at.1 += 1;
    }

    fn obey(&mut self, order: &str) {
        match order {
            "[H" => self.at = (0, 0),
            "[2J" => {
                self.lines.iter_mut().for_each(Vec::clear);
                self.wrong.clear();
            }
            "[K" => {
                let (row, column) = self.at;
                self.lines.get_mut(row).into_iter().for_each(|line| line.truncate(column));
            }
            _ if order.starts_with("[?") || order.ends_with('m') => {}
            _ => {
                let numbers = order.trim_matches(|c: char| !c.is_ascii_digit()).split_once(';');
                let place = numbers.and_then(|(row, column)| {
                    Some((row.parse::<usize>().ok()? - 1, column.parse::<usize>().ok()? - 1))
                });
                match place.filter(|_| order.ends_with('H')) {
                    Some(place) => self.at = place,
                    None => self.wrong.push(format!("an unknown order {order:?}")),
                }
            }
        }
    }
}
