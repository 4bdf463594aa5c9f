//! `ramfold top`: all servers and running programs, again and again on one screen.
//!
//! ```text
//!   a thread for each server that is asked --.
//!   a thread that looks for runs ------------+--> Wake --> Model --> lines --> Screen
//!   signals, keys ---------------------------'
//! ```
//!
//! Invariants
//! - The thread that draws waits for nothing but the next `Wake`. So a server that does not answer
//!   keeps its row, and the others go on.
//! - A server that has not answered is not asked again. So there is one thread for each at most.
//! - The terminal is as it was when this ends, whichever way, except by SIGKILL.
//!
//! Locks: none.

mod model;
mod screen;
mod table;

use std::io::{IsTerminal, Read, stdin, stdout};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::line::Failure;
use crate::line::args;
use crate::line::output::print;
use model::{Model, Wake};
use screen::Screen;

/// Columns of a look that goes to no terminal.
const BATCH_COLUMNS: usize = 80;

/// After so long, keys that could not be read are tried again.
const KEYS_AGAIN: Duration = Duration::from_millis(200);

/// Shows what runs until it is told to end.
pub(super) fn run(args: &args::Top) -> Result<(), Failure> {
    let is_dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    match args.batch || is_dumb || !stdout().is_terminal() {
        true => batch(args),
        false => live(args),
    }
}

/// Prints one look after the other.
fn batch(args: &args::Top) -> Result<(), Failure> {
    let (sender, wakes) = channel();
    let mut model = Model::new(sender);
    for look in 1_u64.. {
        let end = Instant::now() + args.delay;
        model.ask()?;
        // Each of them answers in bounded time, or it is told that it does not.
        while model.is_waiting() {
            match wakes.recv() {
                Ok(Wake::Answer(name, outcome)) => model.answered(&name, outcome),
                Ok(Wake::Runs(runs, notes)) => model.found(runs, notes),
                _ => break,
            }
        }
        let lines = table::render(&model, BATCH_COLUMNS, usize::MAX);
        let lines: Vec<String> = lines.iter().map(|line| line.plain() + "\n").collect();
        let gap = if look > 1 { "\n" } else { "" };
        print(&(gap.to_owned() + &lines.concat()))?;
        if args.count == Some(look) {
            break;
        }
        thread::sleep(end.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Draws on the terminal.
fn live(args: &args::Top) -> Result<(), Failure> {
    let (sender, wakes) = channel();
    watch_signals(&sender)?;
    let mut model = Model::new(sender.clone());
    let mut screen = Screen::open()?;
    model.quits = if watch_keys(sender)? { "; q quits" } else { "; Ctrl-C quits" };
    for look in 1_u64.. {
        let end = Instant::now() + args.delay;
        model.ask()?;
        loop {
            let (columns, rows) = screen.size();
            screen.draw(&table::render(&model, columns, rows))?;
            if args.count == Some(look) && !model.is_waiting() {
                return Ok(());
            }
            match next(&wakes, end) {
                Some(Wake::Answer(name, outcome)) => model.answered(&name, outcome),
                Some(Wake::Runs(runs, notes)) => model.found(runs, notes),
                Some(Wake::Key(b'q' | b'Q' | 3)) => return Ok(()),
                Some(Wake::Key(12)) => screen.forget(), // Ctrl-L
                Some(Wake::Key(_)) => {}
                Some(Wake::Signal(signal)) => obey(signal, &mut screen)?,
                None => break,
            }
        }
    }
    Ok(())
}

/// What comes before the time is up.
fn next(wakes: &Receiver<Wake>, end: Instant) -> Option<Wake> {
    // The model has a sender, so they are never all gone, and only the time can be up.
    wakes.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
}

/// Ends, stops or draws anew.
fn obey(signal: i32, screen: &mut Screen) -> Result<(), Failure> {
    match signal {
        SIGINT => Err(Failure::Ended(0)),
        SIGTERM | SIGHUP | SIGQUIT => Err(Failure::Ended(128 + signal)),
        SIGTSTP => {
            screen.leave();
            // A process may always stop itself. It goes on with SIGCONT.
            let _ = kill_process(getpid(), Signal::STOP);
            Ok(())
        }
        SIGCONT => screen.enter(),
        SIGWINCH => {
            screen.forget();
            Ok(())
        }
        _ => Ok(()),
    }
}

fn watch_signals(sender: &Sender<Wake>) -> Result<(), Failure> {
    let watched = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH];
    let failed = |error| Failure::about("cannot watch signals", error);
    let mut signals = Signals::new(watched).map_err(failed)?;
    let sender = sender.clone();
    let watch = move || {
        for signal in signals.forever() {
            if sender.send(Wake::Signal(signal)).is_err() {
                return;
            }
        }
    };
    host::thread::spawn("signals", watch).map(drop).map_err(failed)
}

/// Keys come only from a terminal, and only in front of other jobs of a shell. Behind them, reading
/// is an error. Gives whether they may come.
fn watch_keys(sender: Sender<Wake>) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Ok(false);
    }
    let watch = move || {
        for key in stdin().lock().bytes() {
            match key.map(|key| sender.send(Wake::Key(key))) {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => thread::sleep(KEYS_AGAIN),
            }
        }
    };
    let failed = |error| Failure::about("cannot start a thread", error);
    host::thread::spawn("keys", watch).map(|_| true).map_err(failed)
}
