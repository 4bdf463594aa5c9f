//! A thread that reads pagetypeinfo every 10 ms.
//!
//! ```text
//!   gate | read, wait for the next 10 ms | read .. as long as `work` takes
//! ```
//!
//! Lock: none but the gate, which is passed once.

use crate::apparatus::reader::{Mode, Reader};
use crate::ground::LabError;
use buddy::SharedZone;
use std::sync::Barrier;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The name of a watched zone in rows: its lock is taken for each operation.
pub(super) const SHARED: &str = "shared";
/// From the start of one reading to that of the next, if it does not take longer itself.
pub(super) const PERIOD: Duration = Duration::from_millis(10);

/// The reader that watches the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Monitor {
    None,
    Counts,
    ListWalk,
}

impl Monitor {
    pub(super) fn name(self) -> &'static str {
        self.mode().map_or("none", Mode::name)
    }

    fn mode(self) -> Option<Mode> {
        match self {
            Monitor::None => None,
            Monitor::Counts => Some(Mode::Counts),
            Monitor::ListWalk => Some(Mode::ListWalk),
        }
    }

    /// Runs `work` beside the monitor; gives its result and what each reading took.
    pub(super) fn beside<R>(
        self,
        zone: &SharedZone,
        work: impl FnOnce() -> R,
    ) -> Result<(R, Vec<Duration>), LabError> {
        let Some(mode) = self.mode() else { return Ok((work(), Vec::new())) };
        let (stop, stopped) = mpsc::channel::<()>();
        let gate = Barrier::new(2);
        thread::scope(|scope| {
            let gate = &gate;
            let thread = scope.spawn(move || {
                let reader = Reader::new(zone, mode);
                gate.wait();
                until(reader, &stopped)
            });
            gate.wait();
            let done = work();
            drop(stop);
            let readings = thread.join();
            let panicked = |_| Err(LabError::Wrong("the monitor panicked".into()));
            Ok((done, readings.unwrap_or_else(panicked)?))
        })
    }
}

fn until(mut reader: Reader<'_>, stopped: &Receiver<()>) -> Result<Vec<Duration>, LabError> {
    let mut readings = Vec::new();
    loop {
        let start = Instant::now();
        reader.read();
        let took = start.elapsed();
        readings.push(took);
        reader.is_readable()?;
        match stopped.recv_timeout(PERIOD.saturating_sub(start.elapsed())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(readings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_while_work_goes_on_and_none_does_not() {
        let zone = SharedZone::new(1024);
        for (monitor, at_least) in [(Monitor::Counts, 1), (Monitor::ListWalk, 1)] {
            let (answer, readings) = monitor.beside(&zone, || 42).unwrap();
            assert_eq!(answer, 42);
            assert!(readings.len() >= at_least, "{monitor:?}");
        }
        let (_, readings) = Monitor::None.beside(&zone, || ()).unwrap();
        assert!(readings.is_empty());
    }
}
