//! A block device from its start to its end.
//!
//! ```text
//!   add --> threads fetch --> start --> serves --> try_stop: refused while something has it open
//!    |                                     '-----> stop: what has it open gets errors
//!    '--- anything fails: deleted          then threads end --> deleted
//! ```
//!
//! Invariants
//! - B1. The disk is held from the start of the device until its threads have ended.
//! - B2. Threads serve while the device is stopped, because the kernel writes what is not written
//!   yet before it takes the device away.
//!
//! Locks: `threads`, of rank Ending, while threads are joined.

use super::worker::{Service, Worker};
use super::{holders, leftovers, parameters};
use crate::doors::{Event, Meter, Observer, open_sized};
use crate::terms::{ServeError, limits};
use disk::Disk;
use host::unmodelled::RankedMutex;
use host::{Rank, UBLK_USER_COPY, UblkControl, UblkDevice, UblkInfo, cpu};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use std::{error, fmt, io};
use zram::{Device, Opened};

/// Who has a device open at a stop is looked at again for so long, because udev opens each new
/// device for a moment.
const OPEN_MAX: Duration = Duration::from_secs(1);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Which disk to serve as a block device, and how.
#[derive(Clone, Debug)]
pub struct UblkConfig {
    /// The name of the disk, for people.
    pub name: String,
    /// The number of the block device, as in `/dev/ublkbN`. `None`: any that is free.
    pub id: Option<u32>,
    /// How many queues. Each has a thread.
    pub queues: u16,
    /// After so long without a request, a queue gives back its memory for data.
    pub idle_after: Duration,
    /// It is told if a queue ends by itself.
    pub observer: Observer,
}

impl UblkConfig {
    /// A configuration with a queue for each CPU, within the usual limits ([`limits`]).
    pub fn new(name: impl Into<String>) -> Self {
        let cpus = u16::try_from(cpu::allowed().len()).unwrap_or(u16::MAX);
        Self {
            name: name.into(),
            id: None,
            queues: cpus.clamp(1, limits::UBLK_QUEUES_MAX),
            idle_after: limits::IDLE_AFTER,
            observer: Observer::default(),
        }
    }
}

/// Why a block device is not stopped.
#[derive(Debug)]
pub enum StopError {
    /// Something has it open. A phrase for each that is known.
    InUse(Vec<String>),
    /// The system refuses.
    System(io::Error),
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(holders) if holders.is_empty() => {
                f.write_str("something that cannot be seen from here has it open")
            }
            Self::InUse(holders) => f.write_str(&holders.join(", ")),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl error::Error for StopError {}

/// A disk that is a block device of this machine. Dropping it stops it.
pub struct Ublk {
    name: String,
    id: u32,
    path: PathBuf,
    meter: Arc<Meter>,
    life: Arc<Life>,
    threads: RankedMutex<Vec<JoinHandle<()>>>,
    _opened: Option<Opened>,
}

/// What a device and its threads tell each other.
#[derive(Default)]
struct Life {
    /// Queues that are served.
    running: AtomicUsize,
    /// Whether they are to end.
    is_ending: AtomicBool,
}

impl fmt::Debug for Ublk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ublk").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Ublk {
    /// Makes a disk a block device. It needs root, and Linux 6.5 with the module `ublk_drv`.
    ///
    /// # Errors
    ///
    /// [`ServeError`]: there is no ublk, or the system refuses a device, memory or a thread.
    pub fn start(disk: Arc<dyn Disk>, config: UblkConfig) -> Result<Self, ServeError> {
        Self::start_with(disk, None, config)
    }

    /// The same with a device that has a size. It is neither reset nor removed meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start), and [`ServeError::NoDisk`] if the device has no size or
    /// cannot be opened.
    pub fn start_device(device: &Arc<Device>, config: UblkConfig) -> Result<Self, ServeError> {
        let (opened, disk) = open_sized(device, "its block device")?;
        Self::start_with(disk, Some(opened), config)
    }

    fn start_with(
        disk: Arc<dyn Disk>,
        opened: Option<Opened>,
        config: UblkConfig,
    ) -> Result<Self, ServeError> {
        if parameters::sectors(&*disk) == 0 {
            return Err(ServeError::NoDisk(format!("{}: it has no whole block", config.name)));
        }
        let mut control = UblkControl::open().map_err(unopened)?;
        // A driver without the question has no `USER_COPY` either.
        if control.features().unwrap_or(0) & UBLK_USER_COPY == 0 {
            return Err(ServeError::OldUblk);
        }
        leftovers::delete(&mut control);
        let asked = UblkInfo {
            id: config.id,
            queues: config.queues,
            depth: limits::UBLK_DEPTH,
            most_bytes: limits::UBLK_REQUEST_MAX,
            flags: UBLK_USER_COPY,
            mark: leftovers::mark(),
            is_dead: false,
        };
        let numbered = config.id.map_or("a device".to_owned(), |id| format!("device {id}"));
        let info = control.add(&asked).map_err(failed(format!("add {numbered}")))?;
        let id = info.id.ok_or_else(|| failed("add a device")(Errno::INVAL.into()))?;
        // From here on, dropping it deletes the device.
        let ublk = Self {
            name: config.name,
            id,
            path: format!("/dev/ublkb{id}").into(),
            meter: Arc::default(),
            life: Arc::default(),
            threads: RankedMutex::new(Rank::Ending, Vec::new()),
            _opened: opened,
        };
        let service = Service { disk, meter: ublk.meter.clone(), idle_after: config.idle_after };
        ublk.begin(&mut control, &info, service, &config.observer)?;
        Ok(ublk)
    }

    /// Describes the device, starts its threads, and then the device.
    fn begin(
        &self,
        control: &mut UblkControl,
        info: &UblkInfo,
        service: Service,
        observer: &Observer,
    ) -> Result<(), ServeError> {
        let sizes = parameters::of(&*service.disk);
        control.set_parameters(self.id, &sizes).map_err(failed("describe the device"))?;
        let device = UblkDevice::open(self.id).map_err(failed("open its end of the device"))?;
        let service = Arc::new(service);
        let mut go = Vec::new();
        for queue in 0..info.queues {
            let (ready, is_ready) = channel();
            let (sender, told) = channel();
            let (device, depth, service) = (device.clone(), info.depth, Arc::clone(&service));
            let (life, observer, name) = (self.life.clone(), observer.clone(), self.name.clone());
            let work = move || {
                let begun = Worker::begin(device, queue, depth, service);
                if let Some(worker) = settle(begun, &ready, &told) {
                    serve(worker, &life, &observer, name);
                }
            };
            let thread = host::thread::spawn("ublk", work).map_err(ServeError::Thread)?;
            self.threads.lock().push(thread);
            go.push(sender);
            let ended = |_| io::Error::other("a thread has ended");
            let begun = is_ready.recv().map_err(ended).flatten();
            begun.map_err(failed("fetch requests"))?;
        }
        // relaxed: one independent number, for people to look at.
        self.life.running.store(go.len(), Ordering::Relaxed);
        // A thread that has ended has dropped its end. The start would fail then.
        for go in &go {
            let _ = go.send(());
        }
        control.start(self.id).map_err(failed("start the device"))
    }

    /// The name of the disk.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many queues are served right now. Each has a thread.
    pub fn queues(&self) -> usize {
        // relaxed: one independent number, for people to look at.
        self.life.running.load(Ordering::Relaxed)
    }

    /// Bytes that the buffers of all queues hold right now.
    pub fn buffer_bytes(&self) -> usize {
        self.meter.bytes()
    }

    /// A phrase for each thing that has the block device open, as far as it can be seen.
    pub fn holders(&self) -> Vec<String> {
        holders::of(&self.path)
    }

    /// Stops the block device, unless something has it open. After a stop, a call does nothing.
    ///
    /// # Errors
    ///
    /// [`StopError`]: it goes on, because something has it open or the system refuses.
    pub fn try_stop(&self) -> Result<(), StopError> {
        let mut control = UblkControl::open().map_err(StopError::System)?;
        let patience = Instant::now() + OPEN_MAX;
        while self.queues() > 0 {
            match self.stop_unless_open(&mut control) {
                Ok(()) => break,
                Err(error) if Errno::from_io_error(&error) != Some(Errno::BUSY) => {
                    return Err(StopError::System(error));
                }
                Err(_) if Instant::now() > patience => {
                    return Err(StopError::InUse(self.holders()));
                }
                Err(_) => sleep(PAUSE),
            }
        }
        self.end(&mut control);
        Ok(())
    }

    /// Stops the block device, whatever has it open: that gets errors. It waits for the requests
    /// under way and for every thread. A second call does nothing.
    pub fn stop(&self) {
        let Ok(mut control) = UblkControl::open() else { return };
        if !self.threads.lock().is_empty() {
            self.announce_end();
            // Somebody may have stopped or deleted it already.
            let _ = control.stop(self.id);
        }
        self.end(&mut control);
    }

    /// Stops it with the kernel's own look at who has it open, or with ours.
    fn stop_unless_open(&self, control: &mut UblkControl) -> io::Result<()> {
        self.announce_end();
        let outcome = match control.try_stop(self.id) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => Err(error),
            // The kernel does not know the command.
            Err(_) if self.is_open() => Err(Errno::BUSY.into()),
            Err(_) => control.stop(self.id),
            Ok(()) => Ok(()),
        };
        // relaxed: a thread that ends meanwhile is told of, or not.
        self.life.is_ending.store(outcome.is_ok(), Ordering::Relaxed);
        outcome
    }

    fn announce_end(&self) {
        // relaxed: threads end because of what the kernel does after this, which orders both.
        self.life.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether a mount, swap or another process has it, as far as it can be seen.
    fn is_open(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let alone = open(&self.path, flags, Mode::empty());
        alone.is_err_and(|errno| errno == Errno::BUSY) || !self.holders().is_empty()
    }

    /// Waits for the threads of a device that was stopped, and deletes it.
    fn end(&self, control: &mut UblkControl) {
        let mut threads = self.threads.lock();
        let was_there = !threads.is_empty();
        for thread in threads.drain(..) {
            // A thread that panicked has left its queue, which the kernel answers with errors.
            let _ = thread.join();
        }
        if was_there {
            // Somebody may have deleted it already.
            let _ = control.delete(self.id);
        }
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells how a thread has begun, and gives the worker once the device is about to be started.
fn settle(
    begun: io::Result<Worker>,
    ready: &Sender<io::Result<()>>,
    told: &Receiver<()>,
) -> Option<Worker> {
    let (worker, outcome) = match begun {
        Ok(worker) => (Some(worker), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // If nobody listens, nobody says go either.
    let _ = ready.send(outcome);
    worker.filter(|_| told.recv().is_ok())
}

/// Serves a queue, and tells if it ends by itself.
fn serve(worker: Worker, life: &Life, observer: &Observer, device: String) {
    let outcome = worker.run();
    // relaxed: one independent number, for people to look at.
    life.running.fetch_sub(1, Ordering::Relaxed);
    // relaxed: threads end because of what the kernel does after the store, which orders both.
    if !life.is_ending.load(Ordering::Relaxed) {
        let why = outcome.map_or_else(|error| error.to_string(), |()| "it was stopped".to_owned());
        observer.tell(Event::QueueLost { device, why });
    }
}

/// Why the driver cannot be opened.
fn unopened(error: io::Error) -> ServeError {
    match error.kind() {
        io::ErrorKind::NotFound => ServeError::NoUblk,
        _ => ServeError::Ublk { what: "open /dev/ublk-control".to_owned(), source: error },
    }
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let what = what.into();
    move |source| ServeError::Ublk { what, source }
}
