//! Tells the service manager how the server is: a line of status, and that the server goes on.
//!
//! ```text
//!   doors open --> READY=1 --> every beat: the line is made anew --> STATUS=.. (if it is another)
//!                                '- a lock that is never given back     WATCHDOG=1
//!                                   makes no line, and no WATCHDOG=1
//!   before it ends --> STOPPING=1
//! ```
//!
//! Progress is that the line was made. It asks every device and every door for its figures, and
//! takes the locks for it that a new client and a change of a device take. A request that waits for
//! a disk, or a client that hangs, is no lack of progress: ending the server would lose all that is
//! stored.
//!
//! Invariant: `WATCHDOG=1` is sent by the thread that made the line, and after it was made.
//!
//! Locks: none here.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use serve::Server;
use serve::notify::Manager;
use zram::Devices;

use super::log::Log;
use super::watch::Board;
use crate::line::Failure;
use crate::line::size::{count, human};

/// The time between two lines of status, unless the watchdog wants them sooner.
const BEAT: Duration = Duration::from_secs(5);
/// Messages for each interval of the watchdog. One of them may come late.
const BEATS: u32 = 3;
/// A watchdog that wants more is not served in time, and no CPU is used up for it.
const BEAT_MIN: Duration = Duration::from_millis(10);

/// The manager that is told. `None` without one.
pub(super) struct Told {
    manager: Option<Manager>,
    /// Ends the thread that tells, when it is dropped.
    beats: Option<SyncSender<()>>,
}

/// What the line of status is made of.
pub(super) struct Subject {
    pub(super) devices: Arc<Devices>,
    pub(super) server: Option<Arc<Server>>,
    pub(super) board: Board,
}

impl Told {
    /// Takes the manager from the environment, before there are threads.
    pub(super) fn take() -> Result<Told, Failure> {
        let failed = |error| Failure::about("the service manager cannot be told", error);
        Ok(Told { manager: Manager::take().map_err(failed)?, beats: None })
    }

    /// Says that the server serves, and from now on how it is.
    pub(super) fn ready(&mut self, subject: Subject, log: &Log) {
        let Some(manager) = self.manager.clone() else { return };
        let told = manager.tell("READY=1");
        let (beats, ended) = sync_channel(0);
        let spawned = host::thread::spawn("manager", move || go_on(&manager, &subject, &ended));
        if let Some(error) = told.err().or(spawned.err()) {
            log.complain(format!("the service manager cannot be told: {error}"));
        }
        self.beats = Some(beats);
    }

    /// Says that the server is about to end.
    pub(super) fn stopping(&mut self) {
        self.beats = None;
        if let Some(manager) = &self.manager {
            // The server ends whether the manager listens or not.
            let _ = manager.tell("STOPPING=1");
        }
    }
}

/// Tells the manager until the server is about to end.
fn go_on(manager: &Manager, subject: &Subject, ended: &Receiver<()>) {
    let watchdog = manager.watchdog();
    let beat = watchdog.map_or(BEAT, |interval| (interval / BEATS).clamp(BEAT_MIN, BEAT));
    let mut told = String::new();
    loop {
        let line = subject.line();
        let mut message = String::new();
        if line != told {
            message += &format!("STATUS={line}\n");
        }
        if watchdog.is_some() {
            message += "WATCHDOG=1\n";
        }
        // What did not arrive is said again at the next beat.
        if message.is_empty() || manager.tell(&message).is_ok() {
            told = line;
        }
        if !matches!(ended.recv_timeout(beat), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

impl Subject {
    /// What is served and what it takes, and the first thing that is the matter.
    fn line(&self) -> String {
        let disks: Vec<_> = self.devices.list().iter().filter_map(|it| it.disk()).collect();
        let figures = disks.iter().map(|disk| disk.mm_stat().0);
        let (stored, held) =
            figures.fold((0, 0), |sum, figures| (sum.0 + figures[0], sum.1 + figures[2]));
        let clients = self.server.as_ref().map(|server| server.connections() as u64);
        let clients = clients.map_or(String::new(), |them| format!(", {}", count(them, "client")));
        let devices = count(disks.len() as u64, "device");
        let (stored, held) = (human(stored), human(held));
        let matter = self.board.lines().into_iter().next();
        let matter = matter.map_or(String::new(), |matter| format!("; {matter}"));
        let line = format!("{devices}{clients}; {stored} stored in {held}{matter}");
        // A message ends where its line does.
        line.replace('\n', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zram::{Attribute, DeviceDefaults};
    use zsmalloc::{Memory, MemoryConfig};

    #[test]
    fn the_line_counts_what_all_devices_store() {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).unwrap();
        let devices = Arc::new(Devices::new(memory, DeviceDefaults::default()));
        for name in ["a", "b"] {
            let device = devices.get(devices.add_named(name).unwrap()).unwrap();
            device.store(Attribute::Disksize, b"1M").unwrap();
            device.disk().unwrap().write_page(0, &[7; 4096]).unwrap();
        }
        let subject = Subject { devices, server: None, board: Board::new() };
        assert_eq!(subject.line(), "2 devices; 8.0 KiB stored in 0 B", "same-filled pages");
    }
}
