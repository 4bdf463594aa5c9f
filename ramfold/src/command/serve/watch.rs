//! Watches a running server, and tells its operator what is the matter.
//!
//! ```text
//!   connections -- events, as they happen --> one thread --> episodes --> log
//!   devices     -- counters, once a second --'       '-------> board --> ramfold stat
//!   the system  -- pressure, once a second --> `relief`
//! ```
//!
//! A request only counts its failure. This thread looks at the counts and writes. An event that
//! finds no room is left out, because the `EVENTS_MAX` events before it already tell what is the
//! matter.
//!
//! Invariant: no connection and no request waits for this thread.
//!
//! Lock: that of the board, a leaf.

mod episodes;
mod log;
mod notice;
mod relief;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use host::Rank;
use host::unmodelled::RankedMutex;
use serve::{Event, Observer, Peer};
use zram::{Attribute, Device, Devices, TroubleStat, Zram};

use crate::line::Failure;
use crate::line::size::human;
use episodes::Episodes;
pub(crate) use log::Log;
use notice::{Notice, Place, Subject, client};
pub(crate) use relief::{Relief, Relieved};

/// The time between two looks at the devices.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most events that wait to be looked at.
const EVENTS_MAX: usize = 256;

/// What is the matter now, for answers to `ramfold stat`.
#[derive(Clone)]
pub(crate) struct Board(Arc<RankedMutex<Vec<String>>>);

impl Board {
    /// Nothing is the matter.
    pub(crate) fn new() -> Board {
        Board(Arc::new(RankedMutex::new(Rank::Leaf, Vec::new())))
    }

    /// One line for each thing.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    fn replace(&self, lines: Vec<String>) {
        *self.0.lock() = lines;
    }
}

/// The thread that watches.
pub(super) struct Watch {
    inputs: SyncSender<Input>,
    board: Board,
    relieved: Relieved,
}

enum Input {
    Event(Event),
    Devices(Arc<Devices>, String),
}

impl Watch {
    /// Starts to watch events. Devices are watched after `devices` was called.
    pub(super) fn start(log: &Log, relief: Relief) -> Result<Watch, Failure> {
        let (inputs, received) = sync_channel(EVENTS_MAX);
        let (board, relieved) = (Board::new(), relief.relieved());
        relief.objection().into_iter().for_each(|line| log.mention(line));
        let mut watcher = Watcher {
            log: log.clone(),
            board: board.clone(),
            episodes: Episodes::default(),
            devices: None,
            before: BTreeMap::new(),
            tiers_off: BTreeMap::new(),
            relief,
        };
        let spawned = host::thread::spawn("watch", move || watcher.run(&received));
        spawned.map_err(|error| Failure::about("cannot start a thread", error))?;
        Ok(Watch { inputs, board, relieved })
    }

    /// An observer that never waits.
    pub(super) fn observer(&self) -> Observer {
        let inputs = self.inputs.clone();
        // If there is no room, the event is left out, as the head says.
        Observer::new(move |event| drop(inputs.try_send(Input::Event(event))))
    }

    /// Starts to watch devices. `target` is the TARGET by which commands find the server.
    pub(super) fn devices(&self, devices: &Arc<Devices>, target: &str) {
        let devices = Input::Devices(Arc::clone(devices), target.to_owned());
        // It fails only if the thread has panicked.
        let _ = self.inputs.send(devices);
    }

    /// What was done when memory was short.
    pub(super) fn relieved(&self) -> Relieved {
        self.relieved.clone()
    }

    /// The board with what is the matter.
    pub(super) fn board(&self) -> Board {
        self.board.clone()
    }
}

struct Watcher {
    log: Log,
    board: Board,
    episodes: Episodes,
    devices: Option<(Arc<Devices>, String)>,
    /// What had gone wrong until the last look, by the device's number.
    before: BTreeMap<u32, TroubleStat>,
    /// Why tiers were off at the last look, by the device's number.
    tiers_off: BTreeMap<u32, String>,
    relief: Relief,
}

impl Watcher {
    /// Runs until all senders are gone.
    fn run(&mut self, inputs: &Receiver<Input>) {
        let mut next_look = Instant::now() + LOOK_EVERY;
        loop {
            let left = next_look.saturating_duration_since(Instant::now());
            match inputs.recv_timeout(left) {
                Ok(Input::Event(event)) => self.event(event),
                Ok(Input::Devices(devices, target)) => self.devices = Some((devices, target)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK_EVERY;
                self.look();
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Refused { purpose, why, peer, busiest } => {
                self.occurs(Notice::ClientRefused { purpose, why, peer, busiest });
            }
            Event::Displaced { purpose, peer } => {
                self.occurs(Notice::ClientDisplaced { purpose, peer });
            }
            Event::Stalled { peer, stall, silent } => {
                self.occurs(Notice::ClientStalled { peer, stall, silent });
            }
            Event::Recovered { peer } => self.recovered(peer),
            Event::Ended { peer, no_memory: true, .. } => {
                self.occurs(Notice::ClientNoMemory { peer });
            }
            Event::Foreign { peer } => self.occurs(Notice::MachineForeign { peer }),
            Event::Broken { peer, why } => self.occurs(Notice::QueueBroken { peer, why }),
            Event::QueueLost { device, why } => self.occurs(Notice::QueueLost { device, why }),
            Event::Connected { purpose, peer, export } => {
                self.log
                    .detail(|| format!("{} ({peer}) is connected to {export}", client(purpose)));
            }
            Event::Ended { purpose, peer, why, .. } => {
                self.log.detail(|| {
                    format!("the connection of {} ({peer}) ended: {why}", client(purpose))
                });
            }
            // Events that this program does not know yet.
            _ => {}
        }
        self.board.replace(self.episodes.lines());
    }

    fn recovered(&mut self, peer: Peer) {
        if self.episodes.ends(&Subject::stall_of(peer)) {
            self.log.complain(format!("the NBD client ({peer}) goes on, or is gone"));
        }
    }

    fn look(&mut self) {
        let (devices, target) = match &self.devices {
            Some((devices, target)) => {
                if let Some(bytes) = self.relief.look(devices.memory()) {
                    let bytes = human(bytes);
                    self.log.detail(|| format!("memory is short: compaction returned {bytes}"));
                }
                (devices.list(), target.clone())
            }
            None => return,
        };
        let alone = devices.len() == 1;
        let is_there = |id: &u32| devices.iter().any(|device| device.id() == *id);
        self.before.retain(|id, _| is_there(id));
        self.tiers_off.retain(|id, _| is_there(id));
        for device in &devices {
            let place = Place { target: target.clone(), device: device.name().to_owned(), alone };
            match device.disk() {
                Some(disk) => {
                    self.look_at(device, &disk, &place);
                    self.look_at_tiers(device, &disk);
                }
                None => {
                    self.before.remove(&device.id());
                    self.tiers_off.remove(&device.id());
                }
            }
        }
        let left_out = self.episodes.pass(Instant::now());
        left_out.into_iter().for_each(|line| self.log.complain(line));
        self.board.replace(self.episodes.lines());
    }

    fn look_at(&mut self, device: &Device, disk: &Zram, place: &Place) {
        let now = disk.trouble_stat();
        let before = self.before.insert(device.id(), now).unwrap_or_default();
        let path = || {
            let path = device.show(Attribute::BackingDev).unwrap_or_default();
            path.trim_end().to_owned()
        };
        let place = || place.clone();
        let mut occurred = |before: u64, now: u64, notice: &dyn Fn() -> Notice| {
            // The counts of a device that was reset begin at 0.
            if now != before && now > 0 {
                self.occurs(notice());
            }
        };
        occurred(before.over_limit, now.over_limit, &|| Notice::LimitReached {
            place: place(),
            limit: device.mem_limit(),
        });
        occurred(before.no_memory, now.no_memory, &|| Notice::NoMemory { place: place() });
        occurred(before.damaged, now.damaged, &|| Notice::Damaged { place: place() });
        occurred(before.backing_full, now.backing_full, &|| Notice::BackingFull {
            place: place(),
            path: path(),
        });
        occurred(before.backing_no_space, now.backing_no_space, &|| Notice::BackingNoSpace {
            place: place(),
            path: path(),
        });
        occurred(before.backing_failed, now.backing_failed, &|| Notice::BackingFailed {
            place: place(),
            path: path(),
        });
        let hold = disk.hold_stat();
        if let Some(why) = hold.unreached.filter(|_| hold.target_bytes > 0) {
            let (target, why) = (hold.target_bytes, why.to_string());
            self.occurs(Notice::TargetUnreached { place: place(), target, why });
        }
    }

    /// Says once why tiers are off. A user has asked for it, so it is no trouble.
    fn look_at_tiers(&mut self, device: &Device, disk: &Zram) {
        let before = match disk.tiers_off() {
            Some(why) => self.tiers_off.insert(device.id(), why),
            None => return drop(self.tiers_off.remove(&device.id())),
        };
        if let (None, Some(why)) = (before, self.tiers_off.get(&device.id())) {
            self.log.complain(format!(
                "{}: tiers are off, because {why}; pages stay as they are, and a reset turns them \
                 on",
                device.name()
            ));
        }
    }

    fn occurs(&mut self, notice: Notice) {
        let line = self.episodes.occurs(notice, Instant::now());
        line.into_iter().for_each(|line| self.log.complain(line));
    }
}
