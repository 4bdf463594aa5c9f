//! The order in which locks are taken, and the assertion that they are.
//!
//! ```text
//!    Ending -> Text                                                            a server
//!       -> DeviceTurn -> DeviceState                                           a device
//!       -> Turnstile -> Gate -> Registering -> ReadBuffer -> Group -> FaultBuffer      a region
//!       -> PostProcessing -> Switching                                         a store
//!       -> Compacting -> Isolating                                             its memory's turns
//!       -> Stream -> Twins -> Draining -> Cell -> Unit -> SharedCell           its slots
//!       -> Pool -> Class -> Stock -> Zone -> Leaf                              its memory
//!       -> Frames -> Entries -> Mappings -> Injection                          its mappings
//! ```
//!
//! Invariant R1: a thread that waits for a lock holds only locks of lower rank, so waiting threads
//! can form no cycle. Taking a lock without waiting (`try_lock`) cannot close a cycle and is
//! exempt. What it takes is recorded like the rest.
//!
//! Debug builds keep the locks that a thread holds in one thread-local word. The word is
//! initialised by a constant and has no destructor, so a signal handler may take locks. What the
//! handler adds to the word it has taken back when it ends. Release builds keep nothing.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::marker::PhantomData;

// Shuttle runs all threads of a model on one thread of the system.
#[cfg(all(debug_assertions, shuttle))]
use shuttle::thread_local;

/// The place of a lock in the order. A later variant is taken inside an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rank {
    /// The end of a server: its last work, and the threads that are joined.
    Ending,
    /// The text that an open file of the tree shows.
    Text,
    /// The turn for work that one thread at a time does on a device.
    DeviceTurn,
    /// The settings of a device, and which disk it has.
    DeviceState,
    /// The turnstile of a region, which keeps threads from overtaking one that waits to be alone
    /// there.
    Turnstile,
    /// The gate of a region: the right to work on its pages, shared or alone.
    Gate,
    /// The registering of one chunk of a region.
    Registering,
    /// One buffer to which pages of a region are read from a disk.
    ReadBuffer,
    /// One group of a region: 64 pages.
    Group,
    /// One buffer to which pages of a region are decoded.
    FaultBuffer,
    /// The write-back or recompression of a device, of which there is one at a time.
    PostProcessing,
    /// The switch of a cache to another algorithm.
    Switching,
    /// The turn to compact a pool.
    Compacting,
    /// The turn to isolate pageblocks, or to see all that is free.
    Isolating,
    /// A codec's stream.
    Stream,
    /// The turn to write pages that may be equal.
    Twins,
    /// The turn to drain a queue, or what lags in a pool.
    Draining,
    /// One cell of a client's table (a bit lock).
    Cell,
    /// What is known of a unit of several pages. The cell of one of them may be locked.
    Unit,
    /// A cell whose object several cells name. One of these cells is locked.
    SharedCell,
    /// The lock of a pool before its classes, which only the hierarchical design has.
    Pool,
    /// One shard of a size class.
    Class,
    /// One part of a pool's stock of handles' entries.
    Stock,
    /// One zone of the page allocator, and a CPU's lists before it.
    Zone,
    /// Locks under which no other lock is taken, except those below.
    Leaf,
    /// The open part of an arena.
    Frames,
    /// The open part of a table.
    Entries,
    /// The list of mappings that a forked child may get.
    Mappings,
    /// The name of the last failure that was injected.
    Injection,
}

/// Bits of the word that count the locks held of one rank.
#[cfg(debug_assertions)]
const COUNT_BITS: u32 = 4; // up to 15 of one rank
/// The largest such count.
#[cfg(debug_assertions)]
const COUNT_MAX: u128 = (1 << COUNT_BITS) - 1; // 15

#[cfg(debug_assertions)]
const _: () =
    assert!((Rank::Injection as u32 + 1) * COUNT_BITS <= u128::BITS, "a count for every rank");

#[cfg(debug_assertions)]
thread_local! {
    /// Locks held by this thread: four bits a rank, lowest rank lowest.
    static HELD: Cell<u128> = const { Cell::new(0) };
}

/// The record that this thread holds a lock. Dropping it records that the lock is given up.
///
/// [`Lock`](crate::Lock) keeps one by itself. A caller that takes a bit lock, or a lock of the
/// standard library or of a crate without ranks, enters one by hand before it waits.
#[derive(Debug)]
#[must_use = "the record ends when this is dropped"]
pub struct HeldRank {
    #[cfg(debug_assertions)]
    rank: Rank,
    /// A lock is given up by the thread that took it.
    thread_bound: PhantomData<*const ()>,
}

impl HeldRank {
    /// Records a lock that is about to be waited for.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread holds a lock of the same or a higher rank (R1).
    #[inline]
    pub fn enter(rank: Rank) -> HeldRank {
        #[cfg(debug_assertions)]
        assert_in_order(rank, HELD.with(Cell::get));
        HeldRank::enter_try(rank)
    }

    /// Records a lock that was taken without waiting.
    ///
    /// # Panics
    ///
    /// In debug builds, if this thread holds 15 locks of this rank.
    #[inline]
    pub fn enter_try(rank: Rank) -> HeldRank {
        #[cfg(debug_assertions)]
        {
            let held = HELD.with(Cell::get);
            assert!(count(held, rank) < COUNT_MAX, "too many locks of rank {rank:?}");
            HELD.with(|word| word.set(held + one(rank)));
        }
        #[cfg(not(debug_assertions))]
        let _ = rank;
        HeldRank {
            #[cfg(debug_assertions)]
            rank,
            thread_bound: PhantomData,
        }
    }
}

impl HeldRank {
    /// Checks that this is the highest rank that the thread holds. The thread is about to give the
    /// lock up and to wait for it again.
    ///
    /// # Panics
    ///
    /// In debug builds, if it is not (R1).
    #[inline]
    pub(super) fn assert_highest(&self) {
        #[cfg(debug_assertions)]
        assert!(
            HELD.with(Cell::get) >> ((self.rank as u32 + 1) * COUNT_BITS) == 0,
            "R1: sleeping with a lock of rank {:?} while holding a higher one",
            self.rank
        );
    }
}

#[cfg(debug_assertions)]
impl Drop for HeldRank {
    fn drop(&mut self) {
        HELD.with(|word| word.set(word.get() - one(self.rank)));
    }
}

/// One lock of `rank`, as the thread's word counts it.
#[cfg(debug_assertions)]
const fn one(rank: Rank) -> u128 {
    1 << (rank as u32 * COUNT_BITS)
}

#[cfg(debug_assertions)]
const fn count(held: u128, rank: Rank) -> u128 {
    (held >> (rank as u32 * COUNT_BITS)) & COUNT_MAX
}

#[cfg(debug_assertions)]
fn assert_in_order(rank: Rank, held: u128) {
    let highest = held.checked_ilog2().map(|bit| bit / COUNT_BITS);
    assert!(
        highest.is_none_or(|highest| highest < rank as u32),
        "R1: waiting for a lock of rank {rank:?} ({}) while holding one of rank number {}",
        rank as u32,
        highest.unwrap_or_default(),
    );
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn ascending_ranks_pass() {
        let _outer = HeldRank::enter(Rank::ReadBuffer);
        let _inner = HeldRank::enter(Rank::Class);
        let _leaf = HeldRank::enter(Rank::Leaf);
    }

    #[test]
    #[should_panic(expected = "R1: waiting for a lock of rank Class")]
    fn a_descending_rank_is_caught() {
        let _shard = HeldRank::enter(Rank::Stock);
        let _class = HeldRank::enter(Rank::Class);
    }

    #[test]
    #[should_panic(expected = "R1: waiting for a lock of rank Class")]
    fn an_equal_rank_is_caught() {
        let _one = HeldRank::enter(Rank::Class);
        let _other = HeldRank::enter(Rank::Class);
    }

    #[test]
    fn trying_is_exempt_and_given_up_in_any_order() {
        let shard = HeldRank::enter(Rank::Stock);
        let class = HeldRank::enter_try(Rank::Class);
        let other = HeldRank::enter_try(Rank::Class);
        drop(shard);
        drop(class);
        drop(other);
        assert_eq!(HELD.get(), 0, "every record was taken back");
    }

    #[test]
    #[should_panic(expected = "R1")]
    fn what_a_try_took_counts_for_later_waits() {
        let _shard = HeldRank::enter_try(Rank::Stock);
        let _class = HeldRank::enter(Rank::Class);
    }
}
