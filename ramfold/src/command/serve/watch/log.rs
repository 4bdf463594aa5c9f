//! The lines that a running server writes to standard output and standard error.
//!
//! ```text
//!   any thread -- try --> queue of LINES_MAX --> one thread --> standard output, standard error
//!                   '-- full: counted, and told later
//! ```
//!
//! The reader of these streams may stop reading. Then only the writing thread waits. A line that
//! finds no room in the queue is left out and counted. The count is written when the reader goes
//! on.
//!
//! Invariant: no call waits, except `finish`, which waits for at most `LAST`.
//! Locks: none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::line::Failure;
use crate::line::args;
use crate::line::output::{complain, mention};

/// The most lines that wait to be written.
const LINES_MAX: usize = 256;
/// How long the end of the server waits for the last lines.
const LAST: Duration = Duration::from_secs(1);
/// The pause between two tries of `finish` to find room.
const PAUSE: Duration = Duration::from_millis(10);

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Voice {
    /// Only what is wrong.
    Quiet,
    /// Also where it serves, and how it ends.
    Usual,
    /// Also which clients come and go.
    Verbose,
}

impl Voice {
    /// What was asked for. A `guest` is a server that another program started for itself, and says
    /// nothing that is not wrong unless it is asked to.
    pub(crate) fn of(args: &args::Serve, is_guest: bool) -> Voice {
        match (args.quiet || is_guest, args.verbose) {
            (_, true) => Voice::Verbose,
            (true, false) => Voice::Quiet,
            (false, false) => Voice::Usual,
        }
    }
}

/// The log of a server. A clone writes to the same streams.
#[derive(Clone)]
pub(crate) struct Log {
    voice: Voice,
    /// Standard output belongs to the program that started this server for itself.
    is_guest: bool,
    queue: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

enum Entry {
    Mention(String),
    Complain(String),
    /// Everything before it has been written.
    Flush(SyncSender<()>),
}

impl Log {
    /// Starts the thread that writes.
    pub(crate) fn start(args: &args::Serve, is_guest: bool) -> Result<Log, Failure> {
        let (queue, entries) = sync_channel(LINES_MAX);
        let lost = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&lost);
        let spawned = host::thread::spawn("log", move || write_all(&entries, &counted));
        spawned.map_err(|error| Failure::about("cannot start a thread", error))?;
        Ok(Log { voice: Voice::of(args, is_guest), is_guest, queue, lost })
    }

    /// Writes a line that is not needed to standard output, unless it is quiet. A guest writes it
    /// to standard error.
    pub(crate) fn mention(&self, line: impl Into<String>) {
        let entry = if self.is_guest { Entry::Complain } else { Entry::Mention };
        if self.voice >= Voice::Usual {
            self.put(entry(line.into()));
        }
    }

    /// Writes what is wrong to standard error.
    pub(crate) fn complain(&self, line: impl Into<String>) {
        self.put(Entry::Complain(line.into()));
    }

    /// Writes a detail to standard error, if details were asked for.
    pub(crate) fn detail(&self, line: impl FnOnce() -> String) {
        if self.voice >= Voice::Verbose {
            self.put(Entry::Complain(line()));
        }
    }

    /// Waits until everything is written, but at most for `LAST`.
    pub(crate) fn finish(&self) {
        let deadline = Instant::now() + LAST;
        let (done, written) = sync_channel(1);
        let mut entry = Entry::Flush(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(entry) {
            if Instant::now() >= deadline {
                return;
            }
            entry = back;
            thread::sleep(PAUSE);
        }
        // If the time is up, the reader does not read, and the server ends.
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    fn put(&self, entry: Entry) {
        if self.queue.try_send(entry).is_err() {
            // relaxed: one number for people, which orders nothing.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(entries: &Receiver<Entry>, lost: &AtomicU64) {
    for entry in entries {
        match entry {
            Entry::Mention(line) => mention(&line),
            Entry::Complain(line) => complain(&line),
            // If `finish` has given up, this fails.
            Entry::Flush(done) => drop(done.try_send(())),
        }
        // relaxed: as above.
        let left_out = lost.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            complain(&format!("{left_out} lines were left out, because nobody read the output"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer that does nothing stands for a pipe that is not read.
    #[test]
    fn a_stream_that_nobody_reads_holds_up_nobody() {
        let (queue, entries) = sync_channel(2);
        let log = Log { voice: Voice::Quiet, is_guest: false, queue, lost: Arc::default() };
        for _ in 0..5 {
            log.complain("something is wrong");
        }
        log.mention("where it serves");
        assert_eq!(log.lost.load(Ordering::Relaxed), 3, "two found room, and one was not said");
        log.finish();
        assert_eq!(entries.try_iter().count(), 2);
    }

    #[test]
    fn each_voice_says_what_it_should() {
        for (voice, expected) in [(Voice::Quiet, 1), (Voice::Usual, 2), (Voice::Verbose, 3)] {
            let (queue, entries) = sync_channel(9);
            let log = Log { voice, is_guest: false, queue, lost: Arc::default() };
            log.complain("wrong");
            log.mention("usual");
            log.detail(|| "verbose".to_owned());
            assert_eq!(entries.try_iter().count(), expected, "{voice:?}");
        }
    }
}
