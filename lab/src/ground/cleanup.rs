//! What must be undone however the program ends: by returning, by a panic, by a signal.
//!
//! ```text
//!   defer ----> [ action, action, action ] <---- signal thread: runs all, newest first,
//!   drop  <---- runs its own                     then dies of the signal
//! ```
//!
//! Lock: one mutex around the list. It is held while actions run, and the signal thread never
//! gives it back, so nobody starts a child or leaves `main` while things are being undone.
//! Actions must not defer anything.

use super::LabError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Action = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct List {
    next: u64,
    actions: Vec<(u64, Action)>,
}

impl List {
    fn run_all(&mut self) {
        while let Some((_, action)) = self.actions.pop() {
            action();
        }
    }
}

/// The list of things to undo; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Cleanup(Arc<Mutex<List>>);

impl Cleanup {
    /// Starts the thread that undoes everything on SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn watch_signals(&self) -> Result<(), LabError> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(LabError::io("cannot watch for signals"))?;
        let cleanup = self.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let mut list = cleanup.list();
                list.run_all();
                // Fails only for signals that cannot be handled, which these three are not.
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(())
    }

    /// Has `action` run when the result is dropped, or before that on a signal.
    pub(crate) fn defer(&self, action: impl FnOnce() + Send + 'static) -> Deferred {
        let mut list = self.list();
        self.push(&mut list, Box::new(action))
    }

    /// Starts a child that is killed when the result is dropped, or before that on a signal.
    pub(crate) fn spawn(&self, command: &mut Command) -> Result<GuardedChild, LabError> {
        let name = command.get_program().to_string_lossy().into_owned();
        // Held across the start: no signal can come between a child's birth and its entry here.
        let mut list = self.list();
        let child = command.spawn().map_err(LabError::io(format!("cannot run {name}")))?;
        let pid = child.id();
        let child = Arc::new(Mutex::new(child));
        let doomed = Arc::clone(&child);
        let deferred = self.push(&mut list, Box::new(move || end(&doomed)));
        Ok(GuardedChild { name, pid, child, _deferred: deferred })
    }

    /// Waits for a signal's work to end; call it last in `main`.
    pub(crate) fn finish(&self) {
        self.list().run_all();
    }

    fn push(&self, list: &mut List, action: Action) -> Deferred {
        let id = list.next;
        list.next += 1;
        list.actions.push((id, action));
        Deferred { id, cleanup: self.clone() }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One entry of the list; dropping it undoes.
#[must_use = "dropping it undoes at once"]
pub(crate) struct Deferred {
    id: u64,
    cleanup: Cleanup,
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let mut list = self.cleanup.list();
        let found = list.actions.iter().position(|(id, _)| *id == self.id);
        if let Some(at) = found {
            let (_, action) = list.actions.remove(at);
            action();
        }
    }
}

/// A child process that does not outlive its owner.
pub(crate) struct GuardedChild {
    name: String,
    pid: u32,
    child: Arc<Mutex<Child>>,
    _deferred: Deferred,
}

impl GuardedChild {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The writing end of its standard input, once, when it was piped.
    pub(crate) fn stdin(&self) -> Option<ChildStdin> {
        lock(&self.child).stdin.take()
    }

    /// The reading end of its standard output, once, when it was piped.
    pub(crate) fn stdout(&self) -> Option<ChildStdout> {
        lock(&self.child).stdout.take()
    }

    /// Its exit status, when it has ended.
    pub(crate) fn exited(&self) -> Option<ExitStatus> {
        lock(&self.child).try_wait().ok().flatten()
    }

    /// Waits until it exits by itself. It is looked at now and then rather than waited for: a
    /// blocked wait would keep a signal from killing it.
    pub(crate) fn wait(&self, limit: Duration) -> Result<ExitStatus, LabError> {
        const PAUSE: Duration = Duration::from_millis(5);
        let start = Instant::now();
        loop {
            if let Some(status) = self.exited() {
                return Ok(status);
            }
            if start.elapsed() > limit {
                let why = format!("still running after {} s", limit.as_secs());
                return Err(LabError::Store { what: self.name.clone(), why });
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn end(child: &Mutex<Child>) {
    let mut child = lock(child);
    // Both fail only when it is gone already, which is what is wanted.
    let _ = child.kill();
    let _ = child.wait();
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn actions_run_once_at_drop_or_at_the_end_newest_first() {
        let (sender, ran) = mpsc::channel();
        let cleanup = Cleanup::default();
        let note = |what: &'static str| {
            let sender = sender.clone();
            cleanup.defer(move || sender.send(what).unwrap())
        };
        let (_first, second, _third) = (note("first"), note("second"), note("third"));
        drop(second);
        cleanup.finish();
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), ["second", "third", "first"]);
    }

    #[test]
    fn a_panic_undoes() {
        let (sender, ran) = mpsc::channel();
        let cleanup = Cleanup::default();
        let result = std::thread::spawn(move || {
            let _deferred = cleanup.defer(move || sender.send(()).unwrap());
            panic!("on purpose");
        })
        .join();
        assert!(result.is_err());
        assert_eq!(ran.try_iter().count(), 1, "the action did not run");
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let cleanup = Cleanup::default();
        let child = cleanup.spawn(Command::new("sleep").arg("1000")).unwrap();
        let proc = format!("/proc/{}", child.pid());
        assert!(std::path::Path::new(&proc).exists());
        assert!(child.wait(Duration::ZERO).is_err(), "sleep 1000 ended at once");
        drop(child);
        assert!(!std::path::Path::new(&proc).exists(), "{proc} is still there");
    }
}
