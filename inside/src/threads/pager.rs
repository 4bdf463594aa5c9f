//! The pager: it looks how much memory there is, and makes cold pages leave.
//!
//! ```text
//!   while much is left of the limit           nothing is registered; it looks now and then
//!   then                                      all memory that folds is registered, once and for
//!                                             all, and new mappings soon after they appear
//!   little room left                          groups go to trays, trays to the store
//! ```
//!
//! Invariant: the pager holds no lock while it waits. Lock: the engine's state, for one step.

use super::disk::{count_written, store};
use super::figures::{Used, publish};
use super::manners::{be_prompt, leave_descriptors, name};
use super::server::Server;
use super::sharing::Sharing;
use super::tending::Tending;
use crate::board::{Board, SLEEP_MAX, Slot, State};
use crate::closed;
use crate::floor::still::{STILL, Who};
use crate::floor::{call, gate, strand, yard};
use crate::kernel::{Resident, Uffd, faults, folding, lost, refuse_guards};
use crate::places::{GROUP, PAGE};
use crate::ways::{Engine, Pick, Staged, Trays, Writer};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// New mappings are looked for this often.
const SCAN_EVERY: Duration = Duration::from_millis(200);
/// And this often when memory has grown by `GROWTH` without a fault. It takes an eighth of the time
/// at most, or half of it when memory has grown by a part of the limit: it grows by a GiB a second
/// where it is not registered.
const SCAN_GROWN: Duration = Duration::from_millis(1);
const SCAN_PART: u32 = 8;
const GROWTH: u64 = 1 << 20;
const GROWTH_PART: u64 = 64;
/// Trays take this part of the limit, in bounds.
const TRAYS_PART: u64 = 8;
const TRAYS_MIN: u64 = 8;
const TRAYS_MAX: u64 = 1 << 8; // 64 MiB of trays
/// Groups that go to trays, while there are free ones, until another one goes to the store. Memory
/// is won from the beginning, and trays fill while it is.
const AHEAD: u32 = 2;
/// Groups with nothing that can move which are tried one after the other.
const TRIES: u32 = 4096;
/// Pages that may come above the limit when nothing can leave, until the pager has looked again.
/// What came by then may leave itself. Without a bound, a pager that waits for a CPU lets a thread
/// bring all of its memory.
const GRACE: i64 = 512; // 2 MiB
/// For so long pages leave until the pager looks again. Memory that was mapped meanwhile is not
/// registered yet, and grows without a fault.
const HOLD_TIME: Duration = Duration::from_millis(4);
/// How long a fork waits for pages in trays to go to the store.
const BEFORE_FORK: Duration = Duration::from_millis(50);
/// Groups that the system held are tried again after this time, or when less is shared.
const SHELF_TIME: Duration = Duration::from_millis(500);
/// How often to look whether the store holds what it does not need.
const TIDY_EVERY: Duration = Duration::from_millis(100);
/// Compaction looks after so many pages have left or come.
const COMPACT_AFTER: u64 = 1 << 14;

/// What the process folds with; null before it begins to fold. An heir has its parent's.
static ENGINE: AtomicPtr<Engine> = AtomicPtr::new(std::ptr::null_mut());
/// The board, once it was opened. An heir has its parent's.
static BOARD: AtomicPtr<Board> = AtomicPtr::new(std::ptr::null_mut());
/// What the server's thread works with.
static SERVER: AtomicPtr<Server<'static>> = AtomicPtr::new(std::ptr::null_mut());

/// What the process folds with, if it does.
fn engine() -> Option<&'static Engine> {
    // Acquire pairs with the Release in `build`, so that the engine is seen whole.
    // SAFETY: what is there was leaked by this process, or by the one whose heir it is.
    unsafe { ENGINE.load(Ordering::Acquire).as_ref() }
}

/// What an heir has of its parent: the engine, the board and the server.
pub(super) fn inherited() -> (*mut Engine, Option<&'static Board>, *mut Server<'static>) {
    // relaxed: the strand that looks was made after the fork.
    let board = BOARD.load(Ordering::Relaxed);
    // relaxed: as above.
    let (engine, server) = (ENGINE.load(Ordering::Relaxed), SERVER.load(Ordering::Relaxed));
    // SAFETY: what is there was leaked.
    (engine, unsafe { board.as_ref() }, server)
}

/// The pager's thread.
pub(crate) extern "C" fn run() {
    leave_descriptors();
    name("ramfold-pager");
    be_prompt();
    let Some(board) = open_board() else { return };
    let board: &'static Board = Box::leak(Box::new(board));
    // relaxed: a child looks at it, after a fork.
    BOARD.store(std::ptr::from_ref(board).cast_mut(), Ordering::Relaxed);
    let Some(slot) = board.claim(u64::from(std::process::id())) else { return };
    if closed::refusal() != 0 {
        slot.set_state(State::Unfolded(closed::refusal()));
        watch_only(slot);
    }
    slot.set_state(State::Watching);
    if let Err(errno) = Pager::new(board, slot).and_then(|mut pager| pager.look_after()) {
        slot.set_state(State::Unfolded(errno));
        watch_only(slot);
    }
}

/// The board that the environment named when the first process was started.
pub(super) fn open_board() -> Option<Board> {
    Board::open(Path::new(OsStr::from_bytes(gate::note()?))).ok()
}

/// Says what the process holds, and no more.
fn watch_only(slot: &Slot) {
    let Ok(resident) = Resident::open() else { return };
    loop {
        let bytes = resident.anonymous().unwrap_or(0) * PAGE as u64;
        publish(slot, Used { bytes, others: 0, guessed: 0, members: 0 }, None);
        std::thread::sleep(Duration::from_millis(SLEEP_MAX));
    }
}

struct Pager {
    board: &'static Board,
    slot: &'static Slot,
    /// Taken by the engine when the process begins to fold.
    uffd: Option<Uffd>,
    resident: Option<Resident>,
    scanned: Option<Instant>,
    /// How long that took.
    scan_took: Duration,
    /// Bytes in memory when mappings were last looked for, less what the two strands did to them.
    known: i64,
    compacted_at: u64,
    shelved: Instant,
    tidied: Instant,
    sharing: Sharing,
    /// If there is a disk.
    writer: Option<Writer>,
    tending: Tending,
}

/// The pager of an heir.
pub(super) fn go_on(board: &'static Board, slot: &'static Slot) {
    let _ = Pager::with(board, slot, None, None).look_after();
}

impl Pager {
    /// The error is the system's number.
    fn new(board: &'static Board, slot: &'static Slot) -> Result<Pager, i32> {
        let number = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let uffd = Some(Uffd::open().map_err(number)?);
        let resident = Some(Resident::open().map_err(number)?);
        Ok(Pager::with(board, slot, uffd, resident))
    }

    fn with(
        board: &'static Board,
        slot: &'static Slot,
        uffd: Option<Uffd>,
        resident: Option<Resident>,
    ) -> Pager {
        Pager {
            board,
            slot,
            uffd,
            resident,
            scanned: None,
            scan_took: Duration::ZERO,
            known: 0,
            compacted_at: 0,
            shelved: Instant::now(),
            tidied: Instant::now(),
            sharing: Sharing::default(),
            writer: board.backing().map(Writer::new),
            tending: Tending::default(),
        }
    }

    /// Looks after the process as long as it lives.
    fn look_after(&mut self) -> Result<(), i32> {
        loop {
            let said = self.used();
            let used = said.bytes;
            publish(self.slot, said, engine().map(|engine| &engine.store));
            let quota = self.board.quota(self.slot);
            // Who ended before that was asked is not among the members any more.
            let quota = self.sharing.quota(self.board.members(), quota);
            match engine() {
                Some(engine) => self.hold(engine, used, quota),
                None => match self.board.until_folding(used, quota, self.sharing.is_much()) {
                    0 => self.begin(quota)?,
                    left => {
                        let millis = self.board.millis_until(left, 1);
                        std::thread::sleep(Duration::from_millis(millis));
                    }
                },
            }
        }
    }

    /// Bytes in memory, and those that are the part of other processes. What forks share is counted
    /// by parts, if there is more than one process.
    fn used(&mut self) -> Used {
        // relaxed: a fork that comes now is seen at the next look.
        let forks = engine().map_or(0, |engine| engine.forks.load(Ordering::Relaxed));
        // relaxed: a figure.
        let copied = engine().map_or(0, |engine| engine.copied.load(Ordering::Relaxed));
        let mut sharing = std::mem::take(&mut self.sharing);
        let members = self.board.members();
        let others = if self.board.processes() < 2 {
            sharing.none(members)
        } else {
            let counted = self.counted();
            sharing.look(self.board.is_ample(self.slot, counted), faults(), counted);
            let copied = copied * PAGE as u64;
            sharing.bytes((forks, members), copied, || self.resident().shared())
        };
        self.sharing = sharing;
        self.sharing.used(self.counted(), others)
    }

    /// Bytes in memory, with all that forks share.
    fn counted(&self) -> u64 {
        self.resident().anonymous().unwrap_or(0) * PAGE as u64
    }

    fn resident(&self) -> &Resident {
        match engine() {
            Some(engine) => &engine.resident,
            None => self.resident.as_ref().unwrap_or_else(|| lost("no files")),
        }
    }

    /// Begins to fold: builds the engine, and starts the server.
    fn begin(&mut self, quota: u64) -> Result<(), i32> {
        let mut built = None;
        gate::arm(|| built.insert(self.build(quota)).is_ok());
        match built {
            // A fork is under way, or the server of this process's parent has not closed the
            // descriptor yet by which it gave this child its memory.
            None | Some(Err(libc::EBUSY)) => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            }
            Some(result) => result,
        }
    }

    /// `EBUSY` if it may be tried again.
    fn build(&mut self, quota: u64) -> Result<(), i32> {
        let gate = gate::closed().ok_or(libc::ENOMEM)?;
        refuse_guards();
        let registered = self.uffd.as_ref().map(|uffd| uffd.register(&gate));
        registered.ok_or(libc::EIO)?.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => libc::EBUSY,
            _ => libc::ENOMEM,
        })?;
        // If something fails from here on, the descriptor is closed, and the gate is free again.
        let (Some(uffd), Some(resident)) = (self.uffd.take(), self.resident.take()) else {
            return Err(libc::EIO);
        };
        // An heir has the store.
        host::inherit_all();
        let store = store(self.board).ok_or(libc::ENOMEM)?;
        let trays = (quota / TRAYS_PART / GROUP as u64).clamp(TRAYS_MIN, TRAYS_MAX) as u32;
        let trays = Trays::new(trays, &uffd).map_err(|_| libc::ENOMEM)?;
        let engine = Box::new(Engine::new(uffd, store, resident, trays));
        // Release pairs with the Acquire in `engine`, so that the engine is seen whole.
        ENGINE.store(Box::leak(engine), Ordering::Release);
        tell_server(self.slot);
        if !strand::spawn(serve) {
            // Nothing of the program is registered yet.
            // relaxed: this thread alone looks at it.
            ENGINE.store(std::ptr::null_mut(), Ordering::Relaxed);
            return Err(libc::EAGAIN);
        }
        self.slot.set_state(State::Folding);
        Ok(())
    }

    /// Keeps the process within `quota`.
    fn hold(&mut self, engine: &Engine, used: u64, quota: u64) {
        self.before_fork(engine);
        STILL.pause();
        engine.store.set_refuses(self.writer.as_ref().is_some_and(Writer::waits));
        let margin = (quota / 64).max(1 << 20);
        let room = quota as i64 - used as i64;
        // Processes that copy what they share do not all take the same room.
        let takers = if self.sharing.is_much() { self.board.processes().max(1) } else { 1 };
        // relaxed: the server reads it as a figure of a moment ago.
        engine.room.store(room / (takers * PAGE) as i64, Ordering::Relaxed);
        // relaxed: as above.
        engine.spare_cpus.store(self.board.spare_cpus(), Ordering::Relaxed);
        let own = used as i64 - self.ours(engine);
        let every = scan_every(own - self.known, quota, self.scan_took);
        if self.scanned.is_none_or(|at| at.elapsed() > every) {
            let is_first = self.scanned.is_none();
            self.scan(engine);
            self.known = own;
            if is_first && self.sharing.is_much() {
                engine.guard();
            }
        }
        engine.store.set_shared_by(self.sharing.shared_by());
        if self.sharing.has_shrunk() || self.shelved.elapsed() > SHELF_TIME {
            self.shelved = Instant::now();
            engine.clear_shelf();
        }
        if self.tidied.elapsed() > TIDY_EVERY {
            self.tidied = Instant::now();
            engine.store.tidy();
        }
        self.tending.turn(self.board, &engine.store);
        if room < margin as i64 {
            let lack = margin as i64 + margin as i64 / 2 - room;
            let want = self.board.part(self.slot, lack as u64) as usize / PAGE + 1;
            let mut left = self.page_out(engine, want, quota);
            if STILL.asked() != 0 {
                return;
            }
            if left == 0 {
                left = self.write_some(engine, Pick::All);
            }
            if left > 0 {
                return;
            }
            // relaxed: the server looks again soon.
            engine.room.fetch_max(GRACE, Ordering::Relaxed);
        }
        // relaxed: the server changes it to wake us.
        let bell = engine.bell.load(Ordering::Relaxed);
        let millis = self.board.millis_until(room.max(0) as u64, 2);
        STILL.rest(Who::Pager);
        call::wait(&engine.bell, bell, millis);
        STILL.stay();
    }

    /// If a thread waits to fork, what stands in trays goes to the store first, as far as there is
    /// time. Parent and child would share the trays, and each would compress the same pages. A fork
    /// does not wait for a pager that is at rest, so then the trays are shared.
    fn before_fork(&self, engine: &Engine) {
        let began = Instant::now();
        while STILL.asked() != 0
            && began.elapsed() < BEFORE_FORK
            && engine.compress_oldest(self.slot).is_some()
        {}
    }

    /// By how many bytes the two strands have made memory grow: the pages that were put in place
    /// and the store, less the pages that left. What else grows is new to them.
    fn ours(&self, engine: &Engine) -> i64 {
        // relaxed: figures.
        let put = engine.put.load(Ordering::Relaxed);
        // relaxed: as above.
        let out = self.slot.pages_out.load(Ordering::Relaxed);
        growth(put, out, engine.store.held().compr_data_size)
    }

    /// Registers what folds and is not registered.
    fn scan(&mut self, engine: &Engine) {
        let began = Instant::now();
        self.scanned = Some(began);
        let ours = [yard::range(), gate::pages(), image()];
        engine.prune();
        engine.adopt(|| {
            let text = engine.resident.maps().unwrap_or_default();
            folding(&text, &ours)
        });
        self.scan_took = began.elapsed();
    }

    /// Makes about `want` pages leave, as far as there is time. Returns how many did.
    fn page_out(&mut self, engine: &Engine, want: usize, quota: u64) -> usize {
        let began = Instant::now();
        let (mut left, mut tries, mut ahead) = (0, 0, 0);
        while left < want && STILL.asked() == 0 && (left == 0 || began.elapsed() < HOLD_TIME) {
            match engine.stage(self.slot) {
                Staged::Nothing if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                Staged::Pages(_) if ahead < AHEAD => {
                    (tries, ahead) = (0, ahead + 1);
                    continue;
                }
                Staged::Pages(_) | Staged::NoTray | Staged::NoGroup | Staged::Nothing => {}
            }
            let Some(pages) = engine.compress_oldest(self.slot) else { break };
            left += pages;
            (tries, ahead) = (0, 0);
            // relaxed: the server sees what is won when it comes.
            engine.room.fetch_add(pages as i64 / 2, Ordering::Relaxed);
            self.write_back(engine, quota);
        }
        // relaxed: a figure.
        let moved = self.slot.pages_out.load(Ordering::Relaxed);
        if moved - self.compacted_at > COMPACT_AFTER {
            self.compacted_at = moved;
            engine.store.compact();
        }
        left
    }

    /// Pages go to the disk while the store has too many.
    fn write_back(&mut self, engine: &Engine, quota: u64) {
        while STILL.asked() == 0
            && let Some(pick) = engine.store.overflow(quota)
            && self.write_some(engine, pick) > 0
        {
            // For each batch, one of a window that has few pages left.
            self.write_some(engine, Pick::Sparse);
        }
    }

    /// Writes a batch. Returns how many pages left memory.
    fn write_some(&mut self, engine: &Engine, pick: Pick) -> usize {
        let Some(writer) = &mut self.writer else { return 0 };
        let pages = engine.store.write_some(writer, pick);
        engine.store.set_refuses(writer.waits());
        count_written(self.board, self.slot, writer, pages);
        pages
    }
}

/// By how many bytes memory grows by pages that were put in place, pages that left, and a store of
/// so many bytes.
fn growth(put: u64, out: u64, store: u64) -> i64 {
    (put as i64 - out as i64) * PAGE as i64 + store as i64
}

/// How long after mappings were looked for to look again, if memory has `grown` by so much without
/// a fault, and the look took so long.
fn scan_every(grown: i64, quota: u64, took: Duration) -> Duration {
    let part = match grown.max(0) as u64 {
        few if few <= GROWTH => return SCAN_EVERY,
        some if some <= quota / GROWTH_PART => SCAN_PART,
        _ => 2,
    };
    (took * part).clamp(SCAN_GROWN, SCAN_EVERY)
}

/// The slot of this process, for its server.
static SLOT: AtomicU64 = AtomicU64::new(0);

/// Before the server's thread begins.
pub(super) fn tell_server(slot: &'static Slot) {
    // relaxed: the thread that reads it is made or woken after this.
    SLOT.store(std::ptr::from_ref(slot) as u64, Ordering::Relaxed);
}

pub(super) extern "C" fn serve() {
    name("ramfold-fault");
    be_prompt();
    // SAFETY: the pager has written the address of a slot that stays mapped.
    // relaxed: this thread was made or woken after it.
    let slot = unsafe { &*(SLOT.load(Ordering::Relaxed) as *const Slot) };
    if let Some(engine) = engine() {
        let server = Box::leak(Box::new(Server::new(engine, slot)));
        // relaxed: a child looks at it, after a fork.
        SERVER.store(server, Ordering::Relaxed);
        server.run();
    }
}

/// The addresses of our own file in memory.
fn image() -> Range<usize> {
    unsafe extern "C" {
        #[link_name = "__ehdr_start"]
        static START: u8;
        #[link_name = "_end"]
        static END: u8;
    }
    &raw const START as usize..(&raw const END as usize).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_left_do_not_hide_what_is_new() {
        assert_eq!(growth(7, 0, 0), 7 * PAGE as i64);
        assert_eq!(growth(7, 9, 1000), 1000 - 2 * PAGE as i64);
    }

    #[test]
    fn mappings_are_looked_for_as_soon_as_memory_grows() {
        let (quota, took) = (640 << 20, Duration::from_millis(10));
        let every = |grown: i64| scan_every(grown, quota, took).as_millis();
        assert_eq!([-1, 0, 1 << 20].map(every), [200; 3]);
        assert_eq!([(1 << 20) + 1, 10 << 20].map(every), [80; 2]);
        assert_eq!(every((10 << 20) + 1), 20);
        assert_eq!(scan_every(i64::MAX, quota, Duration::ZERO), SCAN_GROWN);
        assert_eq!(scan_every(i64::MAX, quota, SCAN_EVERY), SCAN_EVERY);
    }
}
