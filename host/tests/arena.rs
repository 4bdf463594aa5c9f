//! Claims
//! - After every step of any sequence of claims, releases, touches, splits and purges, the arena
//!   agrees with a twin that keeps one `bool` per frame.
//! - A frame that is handed out twice is an error, and racing claims never both win.
//! - Memory is what the bits say: `/proc/self/smaps` counts the same frames.
//!
//! Lock: none; the arena has no locks, only claim bits.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "the helpers of tests may")]

use proptest::prelude::*;
use ramfold_host::{Arena, ClaimError, FRAMES_MAX, HostError, PAGE_SIZE, Pfn, Run};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

/// Small enough to collide often, large enough for runs across three words.
const FRAMES: u32 = 200;

#[derive(Debug, Clone)]
enum Step {
    Claim { pfn: Pfn, frames: u32 },
    Unclaim { pick: usize },
    Touch { pick: usize, at: u32 },
    Write { pick: usize, offset: usize, len: usize },
    Split { pick: usize, at: u32 },
    Raw { pick: usize },
    Purge { pick: usize, first: u32 },
}

fn claim((number, frames): (u32, u32)) -> Step {
    Step::Claim { pfn: Pfn::new(number), frames }
}

fn step() -> impl Strategy<Value = Step> {
    let pick = 0_usize..64;
    prop_oneof![
        4 => (0..FRAMES + 8, 0_u32..140).prop_map(claim),
        4 => (0..FRAMES, 1_u32..6).prop_map(claim),
        2 => pick.clone().prop_map(|pick| Step::Unclaim { pick }),
        4 => (pick.clone(), 0_u32..140).prop_map(|(pick, at)| Step::Touch { pick, at }),
        2 => (pick.clone(), 0_usize..20_000, 0_usize..9000)
            .prop_map(|(pick, offset, len)| Step::Write { pick, offset, len }),
        2 => (pick.clone(), 1_u32..140).prop_map(|(pick, at)| Step::Split { pick, at }),
        1 => pick.clone().prop_map(|pick| Step::Raw { pick }),
        3 => (pick, 0_u32..9).prop_map(|(pick, first)| Step::Purge { pick, first }),
    ]
}

/// The arena, the tokens it gave, and what they ought to mean.
struct Twins {
    arena: Arena,
    runs: Vec<Run>,
    claimed: Vec<bool>,
    resident: Vec<bool>,
    bytes: Vec<u8>,
}

fn frames_of(run: &Run) -> std::ops::Range<usize> {
    run.pfn().index()..run.pfn().plus(run.frames()).index()
}

fn count(bits: &[bool]) -> u32 {
    bits.iter().filter(|bit| **bit).count() as u32
}

impl Twins {
    fn new() -> Twins {
        Twins {
            arena: Arena::reserve(FRAMES).unwrap(),
            runs: Vec::new(),
            claimed: vec![false; FRAMES as usize],
            resident: vec![false; FRAMES as usize],
            bytes: vec![0; FRAMES as usize * PAGE_SIZE],
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Claim { pfn, frames } => self.claim(pfn, frames),
            Step::Unclaim { pick } => self.with(pick, Twins::unclaim),
            Step::Touch { pick, at } => self.with(pick, |twins, run| twins.touch(run, at)),
            Step::Write { pick, offset, len } => {
                self.with(pick, |twins, run| twins.write(run, offset, len));
            }
            Step::Split { pick, at } => self.with(pick, |twins, run| twins.split(run, at)),
            Step::Raw { pick } => self.with(pick, |twins, run| {
                let raw = run.into_raw();
                // SAFETY: this very token was just turned into numbers.
                twins.runs.push(unsafe { twins.arena.run_from_raw(raw) });
            }),
            Step::Purge { pick, first } => self.with(pick, |twins, run| twins.purge(run, first)),
        }
    }

    fn with(&mut self, pick: usize, action: impl FnOnce(&mut Twins, Run)) {
        if !self.runs.is_empty() {
            let run = self.runs.swap_remove(pick % self.runs.len());
            action(self, run);
        }
    }

    fn claim(&mut self, pfn: Pfn, frames: u32) {
        let outcome = self.arena.claim(pfn, frames);
        if frames == 0 || pfn.get() + frames > FRAMES {
            assert_eq!(outcome, Err(ClaimError::OutOfRange { pfn, frames }));
            return;
        }
        let taken = pfn.run(frames).find(|frame| self.claimed[frame.index()]);
        match (outcome, taken) {
            (Ok(run), None) => {
                self.claimed[frames_of(&run)].fill(true);
                self.runs.push(run);
            }
            (outcome, taken) => {
                let expected = taken.map(|pfn| ClaimError::InUse { pfn });
                assert_eq!(outcome.err(), expected, "claim of {frames} from {pfn} on");
            }
        }
    }

    fn unclaim(&mut self, run: Run) {
        let frames = frames_of(&run);
        let resident = self.arena.unclaim(run).expect("the run is this arena's");
        self.claimed[frames.clone()].fill(false);
        assert_eq!(resident, count(&self.resident[frames]), "resident frames of a released run");
    }

    fn touch(&mut self, run: Run, at: u32) {
        let pfn = run.pfn().plus(at % run.frames());
        let news = self.arena.mark_resident(pfn);
        assert_eq!(news, !self.resident[pfn.index()], "news of {pfn}");
        self.resident[pfn.index()] = true;
        self.runs.push(run);
    }

    fn write(&mut self, mut run: Run, offset: usize, len: usize) {
        let data: Vec<u8> = (0..len).map(|byte| (byte % 251) as u8 + 1).collect();
        let fits = offset + len <= run.frames() as usize * PAGE_SIZE;
        assert_eq!(self.arena.write(&mut run, offset, &data), fits, "{len} bytes at {offset}");
        if fits && len > 0 {
            let start = run.pfn().index() * PAGE_SIZE + offset;
            self.bytes[start..start + len].copy_from_slice(&data);
            self.resident[start / PAGE_SIZE..(start + len).div_ceil(PAGE_SIZE)].fill(true);
        }
        self.runs.push(run);
    }

    fn split(&mut self, run: Run, at: u32) {
        if run.frames() == 1 {
            self.runs.push(run);
            return;
        }
        let whole = frames_of(&run);
        let (first, second) = run.split(1 + at % (whole.len() as u32 - 1));
        assert_eq!(frames_of(&first).start, whole.start);
        assert_eq!(frames_of(&first).end, frames_of(&second).start, "the halves meet");
        assert_eq!(frames_of(&second).end, whole.end);
        self.runs.extend([first, second]);
    }

    fn purge(&mut self, mut run: Run, first: u32) {
        let mut frames = frames_of(&run);
        frames.start = frames.end.min(frames.start + first as usize);
        let purged = self.arena.purge_from(&mut run, first);
        let purged = purged.expect("nothing injects failures here");
        assert_eq!(purged, count(&self.resident[frames.clone()]), "frames purged of {run:?}");
        self.resident[frames.clone()].fill(false);
        self.bytes[frames.start * PAGE_SIZE..frames.end * PAGE_SIZE].fill(0);
        self.runs.push(run);
    }

    fn compare(&self) {
        for pfn in Pfn::new(0).run(FRAMES) {
            let frame = pfn.index();
            let claimed = self.arena.claimed_in(pfn, 1) == 1;
            assert_eq!(claimed, self.claimed[frame], "claim of {pfn}");
            assert_eq!(self.arena.is_resident(pfn), self.resident[frame], "touch of {pfn}");
        }
        assert_eq!(self.arena.resident_frames(), u64::from(count(&self.resident)));
        assert_eq!(self.arena.check(), Ok(()));
        for run in &self.runs {
            let frames = frames_of(run);
            let expected = &self.bytes[frames.start * PAGE_SIZE..frames.end * PAGE_SIZE];
            assert!(self.arena.bytes(run) == Some(expected), "content of {run:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn the_arena_agrees_with_its_naive_twin(steps in prop::collection::vec(step(), 1..60)) {
        let mut twins = Twins::new();
        for step in &steps {
            twins.run(step);
            twins.compare();
        }
    }
}

/// The story: a page allocator with a bug (a buddy merged twice, a PFN computed wrongly) hands out
/// a frame that is in use. Were the arena to believe it, two objects would share memory and
/// safe code would write through both. The second claim is refused instead, by name, and leaves
/// no bit behind.
#[test]
fn a_buggy_allocator_gets_an_error_and_never_aliasing() {
    let arena = Arena::reserve(256).unwrap();
    let run = arena.claim(Pfn::new(60), 10).unwrap();
    assert_eq!(arena.claim(Pfn::new(60), 10), Err(ClaimError::InUse { pfn: Pfn::new(60) }));
    assert_eq!(arena.claim(Pfn::new(66), 1), Err(ClaimError::InUse { pfn: Pfn::new(66) }));
    assert_eq!(arena.claim(Pfn::new(50), 11), Err(ClaimError::InUse { pfn: Pfn::new(60) }));
    assert_eq!(arena.claim(Pfn::new(0), 256), Err(ClaimError::InUse { pfn: Pfn::new(60) }));
    assert_eq!(arena.claimed_in(Pfn::new(0), 256), 10, "refused claims leave nothing claimed");
    assert_eq!(arena.unclaim(run).unwrap(), 0, "nobody touched these frames");
    let all = arena.claim(Pfn::new(0), 256).expect("every frame is free again");
    assert_eq!(all.frames(), 256);
}

#[test]
fn a_run_of_another_arena_is_refused_and_comes_back() {
    let (arena, other) = (Arena::reserve(8).unwrap(), Arena::reserve(8).unwrap());
    let run = arena.claim(Pfn::new(0), 4).unwrap();
    let mut run = other.unclaim(run).expect_err("a foreign run").run;
    assert!(matches!(other.purge(&mut run), Err(HostError::ForeignRun)));
    assert_eq!(other.bytes(&run), None, "no look into another arena");
    assert!(!other.write(&mut run, 0, b"x"), "no store into another arena");
    assert!(arena.unclaim(run).is_ok(), "the token is as good as before");
}

/// The story: arenas are often reserved at the address a dropped one had. A token is told by a
/// number that is never used again, not by that address.
#[test]
fn a_run_of_a_dropped_arena_is_not_its_successors() {
    let arena = Arena::reserve(8).unwrap();
    let stale = arena.claim(Pfn::new(0), 8).unwrap();
    drop(arena);
    let successor = Arena::reserve(8).unwrap();
    assert!(successor.unclaim(stale).is_err(), "the token is of the arena that is gone");
}

#[test]
fn writing_nothing_touches_nothing() {
    let arena = Arena::reserve(8).unwrap();
    let mut run = arena.claim(Pfn::new(0), 2).unwrap();
    for offset in [0, 1, PAGE_SIZE, 2 * PAGE_SIZE] {
        assert!(arena.write(&mut run, offset, &[]), "nothing fits at {offset}");
    }
    assert!(!arena.write(&mut run, 2 * PAGE_SIZE + 1, &[]), "not even nothing fits there");
    assert_eq!(arena.resident_frames(), 0);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for frames in [0, FRAMES_MAX + 1, u32::MAX] {
        let refused = Arena::reserve(frames).expect_err("no such arena");
        assert!(matches!(refused, HostError::Size { .. }), "{frames} frames: {refused}");
    }
    let arena = Arena::reserve(8).unwrap();
    for (pfn, frames) in [(0, 0), (8, 1), (7, 2), (u32::MAX, 1), (1, u32::MAX)] {
        let pfn = Pfn::new(pfn);
        assert_eq!(arena.claim(pfn, frames), Err(ClaimError::OutOfRange { pfn, frames }));
    }
    assert_eq!(arena.resident_in(Pfn::new(7), u32::MAX), 0, "frames past the arena count as clear");
}

#[test]
#[should_panic(expected = "leaves none behind")]
fn a_split_that_leaves_nothing_is_a_broken_caller() {
    let arena = Arena::reserve(8).unwrap();
    let _halves = arena.claim(Pfn::new(0), 4).unwrap().split(4);
}

/// Every thread claims random overlapping runs; a counter per frame, which only a winner moves,
/// would show two owners at once.
#[test]
fn racing_claims_never_both_win() {
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 20_000 };
    const ARENA: u32 = 192;
    let arena = Arena::reserve(ARENA).unwrap();
    let owners: Vec<AtomicU32> = (0..ARENA).map(|_| AtomicU32::new(0)).collect();
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for seed in 1..=4_u32 {
            let (arena, owners, start) = (&arena, &owners, &start);
            scope.spawn(move || {
                let mut random = seed.wrapping_mul(0x9E37_79B9);
                start.wait();
                for _ in 0..ROUNDS {
                    random ^= random << 13;
                    random ^= random >> 17;
                    random ^= random << 5;
                    let pfn = Pfn::new(random % (ARENA - 100));
                    let Ok(mut run) = arena.claim(pfn, 1 + (random >> 8) % 100) else { continue };
                    own(arena, owners, &mut run);
                    arena.unclaim(run).unwrap();
                }
            });
        }
    });
    assert_eq!(arena.claimed_in(Pfn::new(0), ARENA), 0, "every claim was given up");
    let resident = u64::from(arena.resident_in(Pfn::new(0), ARENA));
    assert_eq!(arena.resident_frames(), resident, "the sum agrees with the bits after the race");
}

/// What an owner does: nobody else may be doing it, and its store must be there to read.
fn own(arena: &Arena, owners: &[AtomicU32], run: &mut Run) {
    let frames = frames_of(run);
    for frame in frames.clone() {
        assert_eq!(owners[frame].fetch_add(1, Ordering::SeqCst), 0, "two owners of {frame}");
    }
    let mark = [run.frames() as u8; 16];
    assert!(arena.write(run, 0, &mark));
    assert_eq!(arena.bytes(run).unwrap()[..16], mark, "an owner reads what it wrote");
    if frames.len().is_multiple_of(3) {
        arena.purge(run).unwrap();
        assert_eq!(arena.bytes(run).unwrap()[..16], [0; 16], "purged frames read as zeros");
    }
    for frame in frames {
        owners[frame].fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(not(miri))]
mod memory {
    use super::*;
    use ramfold_host::smaps::rss_of;

    /// `MADV_POPULATE_WRITE`.
    const POPULATE: i32 = 23;

    fn rss(arena: &Arena) -> u64 {
        rss_of(&[arena.range()]).unwrap()
    }

    /// The story: with transparent huge pages one touch makes 512 frames resident, and every
    /// number about memory is wrong by that factor.
    #[test]
    fn touching_one_frame_makes_one_frame_resident() {
        let arena = Arena::reserve(4096).unwrap();
        assert_eq!(rss(&arena), 0, "reserving touches nothing");
        let mut run = arena.claim(Pfn::new(0), 4096).unwrap();
        assert!(arena.write(&mut run, 1024 * PAGE_SIZE + 5, b"one byte is enough"));
        assert_eq!(rss(&arena), PAGE_SIZE as u64, "one frame touched");
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("{:08x}-{:08x} ", arena.range().start, arena.range().end);
        let vma = smaps.split_once(&head).expect("the arena is one VMA").1;
        let flags = vma.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.split(' ').any(|flag| flag == "dc"), "MADV_DONTFORK in {flags}");
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            assert!(flags.split(' ').any(|flag| flag == "nh"), "MADV_NOHUGEPAGE in {flags}");
        }
    }

    #[test]
    fn resident_frames_are_what_the_kernel_counts() {
        let arena = Arena::reserve(2048).unwrap();
        let mut run = arena.claim(Pfn::new(100), 1500).unwrap();
        for frame in (0..1500).step_by(7) {
            assert!(arena.write(&mut run, frame * PAGE_SIZE, &[1]));
        }
        assert_eq!(rss(&arena), arena.resident_frames() * PAGE_SIZE as u64);
        let (mut first, second) = run.split(700);
        let purged = arena.purge(&mut first).unwrap();
        assert_eq!(purged, 100, "one in seven of 700 frames");
        assert_eq!(rss(&arena), arena.resident_frames() * PAGE_SIZE as u64);
        assert_eq!(arena.unclaim(second).unwrap(), 115, "one in seven of the other 800");
    }

    #[test]
    fn frames_are_populated_in_one_call_and_keep_what_they_hold() {
        let (arena, other) = (Arena::reserve(64).unwrap(), Arena::reserve(1).unwrap());
        // SAFETY: writes nothing to a page that is the other arena's.
        let done = unsafe { libc::madvise(other.base().as_ptr().cast(), PAGE_SIZE, POPULATE) };
        if done != 0 {
            return eprintln!("skipped: needs MADV_POPULATE_WRITE, Linux 5.14");
        }
        let mut run = arena.claim(Pfn::new(0), 64).unwrap();
        assert!(arena.write(&mut run, 20 * PAGE_SIZE, b"kept"));
        let news = Pfn::new(16).run(8).filter(|&pfn| arena.mark_resident(pfn)).count();
        assert_eq!((news, rss(&arena)), (7, PAGE_SIZE as u64), "one of 8 is there");
        arena.populate(Pfn::new(16), 8);
        assert_eq!(rss(&arena), 8 * PAGE_SIZE as u64);
        assert_eq!(arena.resident_frames(), 8);
        let bytes = arena.bytes(&run).unwrap();
        assert_eq!(&bytes[20 * PAGE_SIZE..20 * PAGE_SIZE + 4], b"kept");
    }

    #[test]
    #[should_panic(expected = "not all marked")]
    fn frames_that_are_not_marked_are_a_broken_caller() {
        let arena = Arena::reserve(64).unwrap();
        arena.mark_resident(Pfn::new(3));
        arena.populate(Pfn::new(3), 2);
    }

    #[test]
    fn the_bits_cost_what_they_say() {
        let arena = Arena::reserve(1 << 20).unwrap();
        for pfn in [0, 1 << 19, (1 << 20) - 1].map(Pfn::new) {
            let run = arena.claim(pfn, 1).unwrap();
            arena.mark_resident(pfn);
            arena.unclaim(run).unwrap();
        }
        let mapped = arena.metadata_bytes() - arena.heap_bytes();
        assert_eq!(mapped, 6 * PAGE_SIZE as u64, "three pages of each bit map");
        assert_eq!(rss_of(&arena.metadata_ranges()).unwrap(), mapped);
    }

    #[test]
    fn the_largest_arena_can_be_reserved() {
        let arena = match Arena::reserve(FRAMES_MAX) {
            Ok(arena) => arena,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "4 TiB of address space: {error}");
                println!("skipped: needs 4 TiB of address space ({error})");
                return;
            }
        };
        let mut run = arena.claim(Pfn::new(FRAMES_MAX - 1), 1).unwrap();
        assert!(arena.write(&mut run, PAGE_SIZE - 1, b"!"), "the last byte");
        assert_eq!(rss(&arena), PAGE_SIZE as u64);
        assert_eq!(arena.purge(&mut run).unwrap(), 1);
        assert_eq!(rss(&arena), 0, "and back again");
    }
}
