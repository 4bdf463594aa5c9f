//! The board: a small file in shared memory where each process of a run says what it holds, and
//! where it finds the limit.
//!
//! ```text
//!   ramfold run                       board                     library in each process
//!     writes: limit, outside    | head | slot | slot | ... |     claims a slot, and writes it
//!     reads all slots                                            reads head and other slots
//! ```
//!
//! Invariant: a slot is written by the process whose number it has; after its end by `ramfold run`.
//! All are words that stand alone: no reader concludes from one of them to another.
//!
//! `ramfold stat` looks at a board in a private copy of its pages, so that it cannot change it.
//!
//! Lock: none.

mod counts;
mod owner;
mod packing;
pub mod refusals;
mod reserve;
mod shares;
mod state;
mod texts;
mod words;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub use counts::RunCounts;
use counts::{COUNTS, counts};
pub use owner::Owner;
pub use packing::Packing;
pub use reserve::{SLEEP_MAX, limit_for};
pub use state::{State, Way};
use words::put_text;

/// Processes of a run that can have a slot at the same time.
pub const SLOTS: usize = 1000;
/// The environment variable by which the library finds the board.
pub const VARIABLE: &str = "RAMFOLD_BOARD";

const MAGIC: u64 = u64::from_le_bytes(*b"ramfold6");
/// Bytes of the text that names the algorithm.
const ALGORITHM_LEN: usize = 32;
/// Bytes of the path of a directory on the disk behind the stores.
pub const BACKING_LEN: usize = 1024;

/// Of the whole run.
#[repr(C)]
pub struct Head {
    magic: AtomicU64,
    /// Bytes that the tree may have in memory.
    pub limit: AtomicU64,
    /// Bytes of processes of the tree that do not fold.
    pub outside: AtomicU64,
    /// Bytes that programs touch in a millisecond.
    speed: AtomicU64,
    algorithm: [AtomicU64; ALGORITHM_LEN / 8],
    backing: [AtomicU64; BACKING_LEN / 8],
    /// Why the disk refused pages last: the system's number, or 0.
    pub disk_error: AtomicU64,
    /// What was counted in slots that are free again.
    past: [AtomicU64; COUNTS],
    /// The most that was in memory: of all processes at one look, or of one of them.
    pub peak: AtomicU64,
    /// The most that would have been in memory without folding, in the same way.
    pub unfolded_peak: AtomicU64,
    /// The PID namespace in which the owners of slots are numbered.
    namespace: AtomicU64,
    /// Slots from the first on that have had an owner. The others are free.
    reached: AtomicU64,
}

/// Of one process. Bytes, unless the name says otherwise.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// The process, if the slot is not free.
    pub owner: Owner,
    /// [`State`] as a number, and an error of the system above it.
    state: AtomicU64,
    /// [`Way`] as a number.
    way: AtomicU64,
    /// Anonymous memory, the store included.
    pub resident: AtomicU64,
    /// What forks share, as far as it is the part of other processes. It is not in `resident`.
    pub shared: AtomicU64,
    /// Of `resident`: what threads were let copy of that since it was asked, which may be less.
    pub guessed: AtomicU64,
    /// [`Board::members`] when that was asked; 0 if it never is.
    pub members: AtomicU64,
    /// The most that `resident` was.
    pub peak: AtomicU64,
    /// Pages in the store, times 4096.
    pub orig_data_size: AtomicU64,
    /// The most that anonymous memory and the store's pages would have been together.
    pub unfolded_peak: AtomicU64,
    /// Bytes that the store's pages take compressed.
    pub compr_data_size: AtomicU64,
    /// Of `orig_data_size`: pages on the disk.
    pub disk: AtomicU64,
    /// Pages that went to the store.
    pub pages_out: AtomicU64,
    /// Pages that came from the store.
    pub pages_in: AtomicU64,
    /// Faults on pages of the store.
    pub stored_faults: AtomicU64,
    /// Faults on pages that were on their way out.
    pub staged_faults: AtomicU64,
    /// First touches, and first writes to what forks share, that were faults.
    pub first_touches: AtomicU64,
    /// Nanoseconds for which faults waited until there was room.
    pub stall_ns: AtomicU64,
    /// Pages that went to the disk.
    pub disk_out: AtomicU64,
    /// Pages that were read from the disk.
    pub disk_in: AtomicU64,
    /// Pages that the disk refused, and that stayed in memory.
    pub disk_refused: AtomicU64,
    /// Pages that could not be moved.
    pub busy: AtomicU64,
    /// How often the process has said what it holds. It does so every 50 ms as long as its pager
    /// lives.
    pub looks: AtomicU64,
}

/// The board of a run, in memory.
#[derive(Debug)]
pub struct Board {
    base: *const Head,
}

// SAFETY: all of it is atomic words in memory that stays mapped.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

const LEN: usize = size_of::<Head>() + SLOTS * size_of::<Slot>();

impl Board {
    /// Makes a board at `path`. It comes there when it is complete, so that nobody finds a part of
    /// it.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn create(path: &Path, limit: u64, algorithm: &str) -> io::Result<Board> {
        let mut options = OpenOptions::new();
        let new = path.with_extension("new");
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&new)?;
        file.set_len(LEN as u64)?;
        let board = Board::map(&file, libc::MAP_SHARED)?;
        let head = board.head();
        // relaxed: no process of the run has been started.
        head.limit.store(limit, Ordering::Relaxed);
        // relaxed: as above.
        head.speed.store(reserve::speed(host::cpu::count()), Ordering::Relaxed);
        put_text(&head.algorithm, algorithm.as_bytes());
        // relaxed: as above.
        head.namespace.store(namespace().unwrap_or(0), Ordering::Relaxed);
        // relaxed: as above.
        head.magic.store(MAGIC, Ordering::Relaxed);
        fs::rename(&new, path)?;
        Ok(board)
    }

    /// Opens the board at `path`.
    ///
    /// # Errors
    ///
    /// What the system answers, and `InvalidData` if it is no board of this version.
    pub fn open(path: &Path) -> io::Result<Board> {
        Board::known(&OpenOptions::new().read(true).write(true).open(path)?, libc::MAP_SHARED)
    }

    /// Opens the board at `path` to look at it. It shows what the processes say from now on. What
    /// is written to it reaches nobody, and the words of that page stay as they are then.
    ///
    /// # Errors
    ///
    /// As for `open`.
    pub fn look_at(path: &Path) -> io::Result<Board> {
        Board::known(&File::open(path)?, libc::MAP_PRIVATE)
    }

    /// The board in a file, if it is one.
    fn known(file: &File, sharing: i32) -> io::Result<Board> {
        if file.metadata()?.len() != LEN as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let board = Board::map(file, sharing)?;
        // relaxed: it was written before this process was started.
        let known = board.head().magic.load(Ordering::Relaxed) == MAGIC;
        if known { Ok(board) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn map(file: &File, flags: i32) -> io::Result<Board> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping of a file that is as long.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), LEN, access, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Board { base: base.cast_const().cast() })
    }

    /// What is said of the whole run.
    pub fn head(&self) -> &Head {
        // SAFETY: the mapping is as long as a board and stays; zeroed words are valid.
        unsafe { &*self.base }
    }

    /// The slots of all processes.
    pub fn slots(&self) -> &[Slot] {
        // SAFETY: as above; the slots begin after the head.
        unsafe { std::slice::from_raw_parts(self.base.add(1).cast(), SLOTS) }
    }

    /// Claims a free slot for process `pid`, whose words are all 0; `None` if there is none. A slot
    /// that the process had before it executed this program is retired first. A process in another
    /// PID namespace than the board's maker gets none: its number is another there, and the slot
    /// would be taken for that of another process.
    pub fn claim(&self, pid: u64) -> Option<&Slot> {
        // relaxed: written before this process was started.
        if namespace().unwrap_or(0) != self.head().namespace.load(Ordering::Relaxed) {
            return None;
        }
        self.living().filter(|slot| slot.owner.pid() == pid).for_each(|slot| self.retire(slot));
        self.slots().iter().zip(1..).find_map(|(slot, number)| {
            // First, so that a process that is killed here leaves no slot that nobody looks at.
            // relaxed: who sees the old number sees this one a moment later.
            self.head().reached.fetch_max(number, Ordering::Relaxed);
            slot.owner.claim(pid).then_some(slot)
        })
    }

    /// Makes a slot free, and keeps what was counted in it.
    pub fn retire(&self, slot: &Slot) {
        for (past, word) in self.head().past.iter().zip(slot.counted()) {
            // relaxed: figures that stand alone. Nobody writes those of the slot any more.
            past.fetch_add(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // relaxed: as above.
        let most = |word: &AtomicU64| word.load(Ordering::Relaxed);
        self.raise(most(&slot.peak), most(&slot.unfolded_peak));
        slot.release();
    }

    /// Says that so much was in memory, or would have been without folding.
    pub fn raise(&self, peak: u64, unfolded_peak: u64) {
        let head = self.head();
        // relaxed: figures that stand alone.
        head.peak.fetch_max(peak, Ordering::Relaxed);
        // relaxed: as above.
        head.unfolded_peak.fetch_max(unfolded_peak, Ordering::Relaxed);
    }
}

/// The PID namespace of this process.
fn namespace() -> Option<u64> {
    Some(std::fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Slot {
    /// Says what the process holds, in bytes: what is in memory, the pages in the store, what they
    /// take there, and what would be in memory without the store.
    pub fn publish(&self, resident: u64, orig_data_size: u64, compr_data_size: u64, unfolded: u64) {
        let stored = [
            (&self.resident, resident),
            (&self.orig_data_size, orig_data_size),
            (&self.compr_data_size, compr_data_size),
        ];
        stored.iter().for_each(|(word, value)| {
            // relaxed: figures that stand alone.
            word.store(*value, Ordering::Relaxed);
        });
        // relaxed: as above.
        let guessed = self.guessed.load(Ordering::Relaxed);
        let most = [(&self.peak, resident), (&self.unfolded_peak, unfolded)];
        most.iter().for_each(|(word, value)| {
            // relaxed: as above.
            word.fetch_max(value.saturating_sub(guessed), Ordering::Relaxed);
        });
        // relaxed: as above.
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// What the process has counted.
    pub fn counts(&self) -> RunCounts {
        counts(self.counted())
    }

    /// The words that only grow, in the order of [`RunCounts`].
    fn counted(&self) -> [&AtomicU64; COUNTS] {
        [
            &self.pages_out,
            &self.pages_in,
            &self.stored_faults,
            &self.staged_faults,
            &self.first_touches,
            &self.stall_ns,
            &self.disk_out,
            &self.disk_in,
            &self.disk_refused,
        ]
    }

    /// Makes the slot free, once its process has ended.
    fn release(&self) {
        let words = [
            &self.state,
            &self.way,
            &self.resident,
            &self.shared,
            &self.guessed,
            &self.members,
            &self.peak,
            &self.orig_data_size,
            &self.unfolded_peak,
            &self.compr_data_size,
            &self.disk,
            &self.busy,
            &self.looks,
        ];
        // relaxed: nobody writes them any more.
        words.iter().chain(&self.counted()).for_each(|word| word.store(0, Ordering::Relaxed));
        self.owner.release();
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; slots are borrowed of the board, so none is in use.
        unsafe { libc::munmap(self.base.cast_mut().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("board-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn processes_share_the_limit() {
        let path = path("share");
        let board = Board::create(&path, 1000, "zstd:7").expect("a board");
        let other = Board::open(&path).expect("the same");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!((other.algorithm().as_str(), other.backing()), ("zstd:7", None));
        let (first, second) = (board.claim(10).expect("free"), other.claim(11).expect("free"));
        first.resident.store(300, Ordering::Relaxed);
        second.resident.store(200, Ordering::Relaxed);
        board.head().outside.store(50, Ordering::Relaxed);
        assert_eq!((other.quota(second), board.quota(first)), (650, 750));
        first.set_state(State::Unfolded(libc::EPERM));
        assert_eq!(other.slots()[0].state(), State::Unfolded(libc::EPERM));
        board.retire(first);
        assert_eq!((other.quota(second), other.slots()[0].state()), (950, State::Watching));
    }

    #[test]
    fn what_was_counted_stays_when_a_process_ends_or_executes_another_program() {
        let path = path("past");
        let board = Board::create(&path, 1000, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        let each = |slot: &Slot, first: u64| {
            slot.counted().iter().zip(first..).for_each(|(word, value)| {
                word.store(value, Ordering::Relaxed);
            });
        };
        let first = board.claim(10).expect("free");
        each(first, 1);
        first.publish(700, 0, 0, 900);
        first.shared.store(9, Ordering::Relaxed);
        let second = board.claim(11).expect("free");
        each(second, 100);
        second.publish(500, 0, 0, 950);
        let sum = RunCounts::from([101, 103, 105, 107, 109, 111, 113, 115, 117]);
        assert_eq!(board.counts(), sum);
        board.retire(first);
        assert_eq!((board.counts(), board.processes()), (sum, 1));
        let again = board.claim(11).expect("its own");
        assert_eq!((board.counts(), again.counts()), (sum, RunCounts::default()));
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        assert_eq!((word(&again.looks), word(&again.shared)), (0, 0));
        let head = board.head();
        assert_eq!((word(&head.peak), word(&head.unfolded_peak)), (700, 950));
    }

    #[test]
    fn a_look_sees_what_is_said_and_changes_nothing() {
        let path = path("look");
        let board = Board::create(&path, 1000, "lz4").expect("a board");
        let seen = Board::look_at(&path).expect("the same");
        std::fs::remove_file(&path).expect("it is there");
        let slot = board.claim(10).expect("free");
        slot.publish(300, 0, 0, 300);
        let resident = |board: &Board| board.slots()[0].resident.load(Ordering::Relaxed);
        assert_eq!((seen.processes(), resident(&seen)), (1, 300));
        seen.slots()[0].resident.store(7, Ordering::Relaxed);
        seen.retire(&seen.slots()[0]);
        assert_eq!((board.processes(), resident(&board)), (1, 300));
    }

    /// `ramfold stat` once called a run that had just begun one of another version.
    #[test]
    fn a_board_that_is_found_is_complete() {
        let path = path("complete");
        std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                for _ in 0..2000 {
                    Board::create(&path, 1000, "lz4").expect("a board");
                    std::fs::remove_file(&path).expect("it is there");
                }
            });
            while !made.is_finished() {
                let seen = Board::look_at(&path).map_err(|error| error.kind());
                assert!(matches!(seen, Ok(_) | Err(io::ErrorKind::NotFound)), "{seen:?}");
            }
        });
    }

    #[test]
    fn a_file_that_is_no_board_is_refused() {
        let path = path("refused");
        std::fs::write(&path, vec![0; LEN]).expect("written");
        assert_eq!(Board::open(&path).expect_err("zeros").kind(), io::ErrorKind::InvalidData);
        assert_eq!(Board::look_at(&path).expect_err("zeros").kind(), io::ErrorKind::InvalidData);
        std::fs::write(&path, b"ramfold3").expect("written");
        assert_eq!(Board::open(&path).expect_err("short").kind(), io::ErrorKind::InvalidData);
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn the_next_owner_of_a_slot_says_anew_what_it_does() {
        let path = path("state");
        let board = Board::create(&path, 1000, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        let slot = board.claim(3).expect("free");
        slot.set_state(State::Folding);
        slot.set_way(Way::Closed);
        assert_eq!((slot.state(), slot.way()), (State::Folding, Way::Closed));
        board.retire(slot);
        assert_eq!((slot.state(), slot.way()), (State::Watching, Way::Faults));
    }

    #[test]
    fn slots_run_out() {
        let path = path("full");
        let board = Board::create(&path, 1000, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        let claimed = (1..2 * SLOTS as u64).map_while(|pid| board.claim(pid)).count();
        assert_eq!(claimed, SLOTS);
        assert!(board.claim(7).is_some(), "its own");
        assert_eq!(board.processes(), SLOTS);
    }
}
