//! Finds out whether a fault still reaches our handler, because a program may install another one
//! later.
//!
//! ```text
//!   sigaction shows   ours        -> nothing to do
//!                     none        -> at a second look: the process ends with a word
//!                     another one -> a thread of ours touches a page that is missing
//!                                      there within a second: it calls ours, and is accepted
//!                                      else: the process ends with a word
//! ```
//!
//! A handler that does not call the one before it would end the program without a word. Or it would
//! return, and the page would be touched for ever. The touch is made by a thread that is started
//! for it, because a handler may keep that thread. The thread that looks waits for it and ends the
//! process.
//!
//! "None" may show for a moment if a handler resets itself and is put back, as that of Rust's own
//! library does. So it takes two looks with a second between them.
//!
//! Invariant: a handler that was accepted is not tried again while it stays. Lock: none.

use super::filled::Filled;
use super::previous::current;
use super::signal::handler;
use crate::folding::{FaultPath, Signal};
use crate::machine::die;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// A second is waited for in parts. If the whole process is stopped, only one of them passes
/// meanwhile.
const WAITS: u32 = 10;
const WAIT: Duration = Duration::from_millis(100);

/// After this many looks without a handler the process ends.
const GONE_LOOKS: u32 = 2;

/// What earlier looks have seen of the handlers of SIGBUS or SIGSEGV.
#[derive(Debug, Default)]
pub struct HandlerLooks {
    /// The handler that was seen to call ours.
    accepted: Option<usize>,
    /// Looks in a row at which there was no handler.
    gone: u32,
}

impl HandlerLooks {
    /// Looks once more, with a page of `path`, whose faults must be signals. Call it once a
    /// second while pages are out, in a thread that no other waits for.
    ///
    /// It ends the process if a touch of such a page would not be served.
    pub fn look(&mut self, path: &Arc<FaultPath>) {
        let signal = path.mode().signal();
        let Ok(now) = current(signal) else { return };
        let function = now.sa_sigaction;
        let gone = matches!(function, libc::SIG_DFL | libc::SIG_IGN);
        self.gone = if gone { self.gone + 1 } else { 0 };
        if self.gone >= GONE_LOOKS {
            die(words(signal, REMOVED));
        }
        if function == handler() {
            self.accepted = None;
        } else if !gone && self.accepted != Some(function) && calls_ours(path) == Some(true) {
            self.accepted = Some(function);
        }
    }
}

/// The last words, for SIGBUS and SIGSEGV: the handler may be anywhere, so nothing is put together.
type Words = [&'static str; 2];

fn words(signal: Signal, [bus, segv]: Words) -> &'static str {
    match signal {
        Signal::Bus => bus,
        Signal::Segv => segv,
    }
}

macro_rules! removed {
    ($signal:literal) => {
        concat!(
            "the program has removed the ",
            $signal,
            " handler that brings pages of regions in: those that are out could not come back"
        )
    };
}

macro_rules! not_called {
    ($signal:literal) => {
        concat!(
            "the program has installed a ",
            $signal,
            " handler that does not call the one before it, which brings pages of regions in: \
             those that are out could not come back. A handler has to call what sigaction gave as \
             the old one, or to be installed before the first region"
        )
    };
}

const REMOVED: Words = [removed!("SIGBUS"), removed!("SIGSEGV")];
const NOT_CALLED: Words = [not_called!("SIGBUS"), not_called!("SIGSEGV")];

/// Whether a missing page comes in when it is touched. `None` if that could not be tried. If the
/// page does not come, the process ends.
fn calls_ours(path: &Arc<FaultPath>) -> Option<bool> {
    let probe = Filled::map(path, 1, 0).ok()?;
    let (tell, told) = sync_channel(1);
    let thread = crate::machine::thread::spawn("ramfold-probe", move || {
        probe.memory().bytes(0..1).map(|byte| black_box(byte[0]));
        // It is dropped before the message, because the receiver may look again at once.
        drop(probe);
        let _ = tell.send(());
    });
    let thread = thread.ok()?;
    if !comes(&told) {
        die(words(path.mode().signal(), NOT_CALLED));
    }
    Some(thread.join().is_ok())
}

fn comes(told: &Receiver<()>) -> bool {
    (0..WAITS).find_map(|_| match told.recv_timeout(WAIT) {
        Ok(()) => Some(true),
        // The handler has ended the thread.
        Err(RecvTimeoutError::Disconnected) => Some(false),
        Err(RecvTimeoutError::Timeout) => None,
    }) == Some(true)
}
