//! A server and an engine over memory of the test itself.
//!
//! ```text
//!   here   pages that leave and come back
//!   news   memory that moves or goes meanwhile
//! ```
//!
//! Invariant: a test has its own descriptor and its own memory, so tests may run at the same time.
//! Locks: the engine's.

mod news;

use super::server::Server;
use crate::board::{Board, Slot};
use crate::kernel::{Mapping, Resident, Uffd};
use crate::places::{GROUP, PAGE, bits, is_watched};
use crate::ways::{Engine, Staged, Store, Trays};
use std::sync::atomic::{AtomicU64, Ordering};
use zram::{Algorithm, Codec};

const PAGES: usize = 256;
/// The end of a registered range stays.
const KEPT: usize = 4;

/// An engine, a slot, and memory that may leave.
struct Rig {
    engine: &'static Engine,
    slot: &'static Slot,
    base: usize,
}

/// Memory whose pages may leave, and a thread that serves it as long as the process lives. `None`
/// if the system refuses.
fn rig() -> Option<Rig> {
    let (engine, slot) = engine()?;
    engine.room.store(i64::MAX / 2, Ordering::Relaxed);
    std::thread::spawn(move || Server::new(engine, slot).run());
    let base = map(PAGES);
    for page in 0..PAGES {
        write(base, page, 1);
    }
    engine.adopt(|| vec![base..base + PAGES * PAGE; 1]);
    Some(Rig { engine, slot, base })
}

fn engine() -> Option<(&'static Engine, &'static Slot)> {
    // SAFETY: the engine is leaked, and nothing else refers to it.
    raw_engine().map(|(engine, slot)| (unsafe { &*engine }, slot))
}

fn raw_engine() -> Option<(*mut Engine, &'static Slot)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let uffd = match Uffd::open() {
        Ok(uffd) => uffd,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI may fold: {error}");
            eprintln!("skipped: needs a userfaultfd for system calls: {error}");
            return None;
        }
    };
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("board-{}-{number}", std::process::id()));
    let board = Box::leak(Box::new(Board::create(&path, 1 << 30, "lz4").expect("a board")));
    std::fs::remove_file(path).expect("it is there");
    let slot = board.claim(number + 1).expect("free");
    let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 30).expect("a store");
    let trays = Trays::new(8, &uffd).expect("trays");
    let resident = Resident::open().expect("a process has these files");
    Some((Box::into_raw(Box::new(Engine::new(uffd, store, resident, trays))), slot))
}

fn map(pages: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let len = pages * PAGE;
    // SAFETY: a new mapping.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len + GROUP, access, flags, -1, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    // Tests count what is in a group.
    let aligned = (base as usize).next_multiple_of(GROUP);
    // SAFETY: the mapping is ours; huge pages would leave as one.
    unsafe { libc::madvise(aligned as *mut libc::c_void, len, libc::MADV_NOHUGEPAGE) };
    aligned
}

fn words(base: usize, page: usize) -> *mut [u64; 2] {
    (base + page * PAGE + 1000) as *mut [u64; 2]
}

fn write(base: usize, page: usize, turn: u64) {
    // SAFETY: the page is of a mapping of the test, which alone refers to it.
    unsafe { words(base, page).write_volatile([page as u64, turn]) };
}

fn read(base: usize, page: usize) -> [u64; 2] {
    // SAFETY: as above.
    unsafe { words(base, page).read_volatile() }
}

/// Makes a page a guard without a mapping of its own. False if the kernel has none.
fn guard(base: usize, page: usize) -> bool {
    const GUARD_INSTALL: i32 = 102; // Linux 6.13
    let at = (base + page * PAGE) as *mut libc::c_void;
    // SAFETY: the page is of a mapping of the test, which does not touch it any more.
    unsafe { libc::madvise(at, PAGE, GUARD_INSTALL) == 0 }
}

/// Whether a page cannot be read.
fn is_guard(base: usize, page: usize) -> bool {
    let (_end, pipe) = std::io::pipe().expect("descriptors");
    let at = (base + page * PAGE) as *const libc::c_void;
    // SAFETY: the system reads the byte, or says that it cannot.
    let len = unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(&pipe), at, 1) };
    len == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

impl Rig {
    fn stage_all(&self) -> usize {
        let mut pages = 0;
        while let Staged::Pages(count) = self.engine.stage(self.slot) {
            pages += count;
        }
        pages
    }

    fn page_out(&self) -> usize {
        let staged = self.stage_all();
        while self.engine.compress_oldest(self.slot).is_some() {}
        staged
    }

    /// The server gives slots back a moment after the page is there.
    fn expect_stored(&self, pages: usize) {
        let begun = std::time::Instant::now();
        while self.stored() != pages {
            assert!(begun.elapsed().as_secs() < 20, "{} pages are stored", self.stored());
            std::thread::yield_now();
        }
    }

    /// Pages that are in trays or in the store.
    fn out(&self) -> usize {
        self.engine.urgent().book.out(&(0..usize::MAX)).count()
    }

    fn stored(&self) -> usize {
        self.engine.store.held().orig_data_size as usize / PAGE
    }
}

/// A fault once left the slot of its page in use, and all tests of programs passed.
#[test]
fn what_comes_back_is_the_same_and_leaves_the_store() {
    let Some(rig) = rig() else { return };
    for turn in 1..4 {
        assert_eq!(rig.page_out(), PAGES - KEPT);
        assert_eq!(rig.stored(), PAGES - KEPT);
        for page in 0..PAGES {
            assert_eq!(read(rig.base, page), [page as u64, turn]);
            write(rig.base, page, turn + 1);
        }
        rig.expect_stored(0);
    }
    let slot = rig.slot;
    assert_eq!(slot.pages_in.load(Ordering::Relaxed), slot.pages_out.load(Ordering::Relaxed));
}

#[test]
fn a_touch_takes_pages_from_their_tray_and_the_tray_keeps_the_others() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.stage_all(), PAGES - KEPT);
    for page in (0..PAGES - KEPT).step_by(48) {
        assert_eq!(read(rig.base, page), [page as u64, 1]);
        write(rig.base, page, 2);
    }
    let out = rig.out();
    assert!((1..PAGES - KEPT - (PAGES - KEPT).div_ceil(48) - 15).contains(&out), "{out} are out");
    while rig.engine.compress_oldest(rig.slot).is_some() {}
    assert_eq!(rig.stored(), out);
    for page in 0..PAGES - KEPT {
        assert_eq!(read(rig.base, page), [page as u64, 1 + u64::from(page % 48 == 0)]);
    }
}

/// A page cannot be moved to memory that the program has closed for writing, so it is copied.
#[test]
fn a_tray_gives_pages_back_to_memory_that_was_closed() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.stage_all(), PAGES - KEPT);
    let base = rig.base as *mut libc::c_void;
    // SAFETY: the mapping is the test's, and is only read from now on.
    assert_eq!(unsafe { libc::mprotect(base, PAGES * PAGE, libc::PROT_READ) }, 0);
    for page in 0..PAGES {
        assert_eq!(read(rig.base, page), [page as u64, 1]);
    }
    while rig.engine.compress_oldest(rig.slot).is_some() {}
    assert_eq!((rig.stored(), rig.out()), (0, 0));
}

#[test]
fn what_is_given_up_is_zeros_wherever_it_was() {
    let Some(rig) = rig() else { return };
    assert_eq!(rig.stage_all(), PAGES - KEPT);
    rig.engine.compress_oldest(rig.slot);
    let base = rig.base as *mut libc::c_void;
    // SAFETY: the mapping is the test's.
    assert_eq!(unsafe { libc::madvise(base, PAGES * PAGE, libc::MADV_DONTNEED) }, 0);
    while rig.engine.compress_oldest(rig.slot).is_some() {}
    rig.expect_stored(0);
    assert!((0..PAGES).all(|page| read(rig.base, page) == [0, 0]));
}

/// Groups whose pages the system holds were once never tried again.
#[test]
fn what_could_not_leave_leaves_later() {
    let Some(rig) = rig() else { return };
    let base = rig.base as *mut libc::c_void;
    rig.engine.urgent().leaving.add(rig.base..rig.base + PAGES * PAGE);
    assert_eq!(rig.engine.stage(rig.slot), Staged::Nothing, "the kernel may take it away");
    assert_eq!((0..9).map(|_| rig.engine.stage(rig.slot)).last(), Some(Staged::NoGroup));
    rig.engine.urgent().leaving.came(&(rig.base..rig.base + PAGES * PAGE));
    rig.engine.clear_shelf();
    assert_eq!(rig.page_out(), PAGES - KEPT);
    // SAFETY: the mapping is the test's.
    unsafe { libc::munmap(base, PAGES * PAGE) };
    rig.expect_stored(0);
}

/// Neighbours come with a page as long as watched groups teach that they are wanted.
#[test]
fn neighbours_stay_away_if_nobody_wanted_them() {
    let Some(rig) = rig() else { return };
    const STEP: usize = 20;
    let touched = (0..PAGES - KEPT).step_by(STEP).count();
    // No walk: pages are touched from the last to the first.
    let came = || {
        (0..touched).rev().for_each(|at| {
            assert_eq!(read(rig.base, at * STEP), [(at * STEP) as u64, 1]);
        });
        PAGES - KEPT - rig.out()
    };
    let learn = |pages: u64| {
        let state = &mut *rig.engine.urgent();
        (0..1000).for_each(|_| state.learn(u64::MAX, pages));
    };
    learn(1);
    rig.stage_all();
    assert_eq!(came(), touched, "from trays");
    learn(u64::MAX);
    rig.page_out();
    assert!(came() > touched, "all neighbours were wanted");
    learn(1);
    rig.page_out();
    assert_eq!(came(), touched, "from the store");
}

/// Memory that is new comes with its neighbours, as long as watched groups teach that they are
/// wanted. What is not registered, or there, is left alone.
#[test]
fn new_pages_come_with_their_neighbours() {
    let Some(rig) = rig() else { return };
    let base = map(PAGES);
    let groups = (base..base + PAGES * PAGE).step_by(GROUP).filter(|&group| !is_watched(group));
    let groups: Vec<usize> = groups.take(2).collect();
    write(groups[0], 17, 1);
    // SAFETY: the mapping is the test's.
    unsafe { libc::mprotect((groups[0] + 24 * PAGE) as *mut _, PAGE, libc::PROT_READ) };
    let guarded = guard(groups[0], 16);
    let registered = |group: usize| group..group + (20 + KEPT) * PAGE;
    rig.engine.adopt(|| groups.iter().map(|&group| registered(group)).collect());
    let missing = |group: usize| rig.engine.resident.empty(group);
    let (before, wanted) = (missing(groups[0]), bits(16, 4));
    assert_eq!(before, !(bits(17, 1) | bits(16, usize::from(guarded))));
    write(groups[0], 18, 2);
    assert_eq!(missing(groups[0]), !wanted, "a stretch of 16, as far as it is registered");
    assert_eq!([17, 18].map(|page| read(groups[0], page)), [[17, 1], [18, 2]]);
    assert_eq!(is_guard(groups[0], 16), guarded);
    (0..1000).for_each(|_| rig.engine.urgent().learn(u64::MAX, 1));
    write(groups[1], 9, 3);
    assert_eq!(missing(groups[1]), !bits(9, 1), "nobody wanted neighbours");
}

/// A copy to a guard page would remove the guard. So only what is missing comes with a neighbour.
#[test]
fn a_guard_beside_a_page_that_comes_back_stays() {
    let Some(rig) = rig() else { return };
    let groups = (rig.base..rig.base + PAGES * PAGE).step_by(GROUP);
    let group = groups.clone().find(|&group| !is_watched(group)).expect("most are not");
    let first = (group - rig.base) / PAGE;
    assert_eq!(rig.page_out(), PAGES - KEPT);
    if !guard(rig.base, first + 5) {
        return eprintln!("skipped: needs Linux 6.13");
    }
    (0..1000).for_each(|_| rig.engine.urgent().learn(u64::MAX, u64::MAX));
    assert_eq!(read(rig.base, first + 4), [first as u64 + 4, 1]);
    let missing = rig.engine.resident.empty(group);
    assert_eq!(missing & bits(6, 1), 0, "its neighbours came with it");
    assert!(is_guard(rig.base, first + 5));
}

/// A group that is watched teaches how densely new memory is touched, when it leaves.
#[test]
fn new_pages_that_nobody_wanted_teach_it() {
    let Some(rig) = rig() else { return };
    const GROUPS: usize = 400;
    let base = map(GROUPS * GROUP / PAGE);
    rig.engine.adopt(|| vec![base..base + GROUPS * GROUP; 1]);
    for group in 0..GROUPS {
        write(base + group * GROUP, 5, 1);
        rig.page_out();
    }
    let missing = rig.engine.resident.empty(base);
    write(base, 40, 1);
    assert_eq!(missing & !rig.engine.resident.empty(base), bits(40, 1));
}

/// A program that locks its memory (`mlockall`) brings zeros into free trays. Nothing left any more
/// then.
#[test]
fn a_free_tray_with_a_page_in_it_is_emptied() {
    let Some(rig) = rig() else { return };
    for (tray, place) in (0..8).zip([0, 5, 0, 63, 0, 17, 0, 1]) {
        let start = rig.engine.urgent().trays.range(tray).start;
        // SAFETY: the tray is registered, and free; its server brings a page of zeros.
        unsafe { ((start + place * PAGE) as *mut u8).write_volatile(1) };
    }
    for _ in 0..16 {
        rig.page_out();
        rig.engine.clear_shelf();
    }
    assert_eq!((rig.out(), rig.stored()), (PAGES - KEPT, PAGES - KEPT));
    assert!((0..PAGES).all(|page| read(rig.base, page) == [page as u64, 1]));
}

/// A child has a copy of the engine. Nothing of its memory is registered, some was left out by the
/// kernel, and some came before it took the engine over.
#[test]
fn an_heir_finds_what_was_out() {
    let Some((raw, slot)) = raw_engine() else { return };
    // SAFETY: the engine is leaked; nobody uses this reference when it is inherited.
    let engine = unsafe { &*raw };
    let base = map(PAGES);
    (0..PAGES).for_each(|page| write(base, page, 1));
    engine.adopt(|| vec![base..base + PAGES * PAGE; 1]);
    let rig = Rig { engine, slot, base };
    assert_eq!(rig.stage_all(), PAGES - KEPT);
    assert!((0..2).all(|_| engine.compress_oldest(slot).is_some()));
    assert_eq!((rig.out(), rig.stored()), (PAGES - KEPT, PAGES / 2));
    // The parent's descriptor is closed, and then the child's thread writes to a page.
    // SAFETY: nobody uses the descriptor any more; `inherit` does not close its number.
    unsafe { libc::close(engine.uffd.fd()) };
    write(base, 5, 2);
    let uffd = Uffd::open().expect("it was opened before");
    let resident = Resident::open().expect("a process has these files");
    const LEFT_OUT: usize = 64;
    let kept = |range, wiped| Mapping { range, wiped, served: false };
    let at = |page: usize| base + page * PAGE;
    let mappings = [
        kept(at(0)..at(20), false),
        kept(at(20)..at(30), true),
        kept(at(30)..at(PAGES - LEFT_OUT), false),
    ];
    // SAFETY: no other thread uses the engine.
    unsafe { Engine::inherit(raw, (uffd, resident), &mappings, &[at(5)]) };
    // SAFETY: as above; nobody refers to the engine but by this from now on.
    let engine = unsafe { &*raw };
    engine.room.store(i64::MAX / 2, Ordering::Relaxed);
    std::thread::spawn(move || Server::new(engine, slot).run());
    let rig = Rig { engine, slot, base };
    let known = [at(0)..at(20), at(30)..at(PAGES - LEFT_OUT)];
    assert_eq!(engine.urgent().book.all_registered().collect::<Vec<_>>(), known);
    assert_eq!((rig.out(), rig.stored()), (PAGES - LEFT_OUT - 10 - 1, PAGES / 2 - 10 - 1));
    for page in 0..PAGES {
        let expected = match page {
            5 => [5, 2],
            20..30 => [0, 0],
            _ if (PAGES - LEFT_OUT..PAGES - KEPT).contains(&page) => [0, 0],
            _ => [page as u64, 1],
        };
        assert_eq!(read(base, page), expected);
    }
    rig.expect_stored(0);
    assert_eq!(rig.page_out(), PAGES - LEFT_OUT - 10 - 2 * KEPT, "the memory folds on");
    assert!((30..PAGES - LEFT_OUT).all(|page| read(base, page) == [page as u64, 1]));
}

/// What forks share is copied by writes, which no missing page tells of.
#[test]
fn a_write_to_a_guarded_page_waits_for_room_and_frees_its_group() {
    let Some(rig) = rig() else { return };
    let (engine, base) = (rig.engine, rig.base);
    engine.guard();
    engine.room.store(0, Ordering::Relaxed);
    assert_eq!(read(base, 3), [3, 1], "a read waits for nothing");
    let touched = || rig.slot.first_touches.load(Ordering::Relaxed);
    let writer = std::thread::spawn(move || write(base, 3, 2));
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!writer.is_finished() && touched() == 0, "there is no room");
    assert_eq!(read(base, 3), [3, 1]);
    engine.room.store(500, Ordering::Relaxed);
    writer.join().expect("it waits for room alone");
    (0..64).for_each(|page| write(base, page, 2));
    assert_eq!(touched(), 1, "the group was freed as a whole");
    let (mut pipe, mut end) = std::io::pipe().expect("descriptors");
    std::io::Write::write_all(&mut end, &[7; 16]).expect("room");
    let bytes = words(base, 70).cast::<[u8; 16]>();
    // SAFETY: the page is of the test's mapping, which alone refers to it.
    std::io::Read::read_exact(&mut pipe, unsafe { &mut *bytes }).expect("a system call waits too");
    assert_eq!((touched(), read(base, 70)), (2, [u64::from_ne_bytes([7; 8]); 2]));
}

/// The end of a range is not freed with others, because it never leaves.
#[test]
fn a_write_to_a_guarded_page_frees_several_groups_if_there_is_much_room() {
    let Some(rig) = rig() else { return };
    let touched = || rig.slot.first_touches.load(Ordering::Relaxed);
    let faults = |room: i64| {
        rig.engine.guard();
        rig.engine.room.store(room, Ordering::Relaxed);
        let before = touched();
        (0..PAGES - KEPT).for_each(|page| write(rig.base, page, 2));
        touched() - before
    };
    let ends = rig.base / GROUP..(rig.base + (PAGES - KEPT) * PAGE).div_ceil(GROUP);
    assert_eq!(faults(511), ends.len() as u64);
    let eights = ends.start / 8..ends.end.div_ceil(8);
    assert_eq!(faults(i64::MAX / 2), eights.len() as u64);
}

/// A guard stays on its place, and the page that left is a missing one.
#[test]
fn guarded_pages_leave_and_come_back() {
    let Some(rig) = rig() else { return };
    for turn in 1..4 {
        rig.engine.guard();
        assert_eq!(rig.page_out(), PAGES - KEPT);
        for page in 0..PAGES {
            assert_eq!(read(rig.base, page), [page as u64, turn]);
            write(rig.base, page, turn + 1);
        }
        rig.expect_stored(0);
    }
}
