//! The counters of a device, and how a slot's content is counted.
//!
//! ```text
//!   stripe 0   | begun | ended | blobs | same | huge | on disk | bytes | discarded | huge since |
//!   stripe 1   | ...                                                     a thread's own, as a rule
//!   stripe n   | ...                              sums mean something, a stripe alone does not
//! ```
//!
//! Every request changes some of these words. If there was one word for each count, threads that
//! empty slots side by side would wait for its cache line at every page, whatever slots they empty.
//!
//! Invariant: each counter is the sum over the slots of what [`Stored::tally`] says about them. A
//! slot's change is entered under its lock, or together with others before the request ends. So
//! `check` can recount them while no request is under way. Pages in detached leaves are pending
//! instead. A sum may lack what threads are about to enter, and stripes are read one after the
//! other. So for a moment it may be negative.
//!
//! Locks: none.
//!
//! [`Stored::tally`]: super::stored::Stored::tally

use host::cpu;
use zsmalloc::LeafTally;

use super::stored::kind;
use super::totals::{AtomicU64, Ordering, bump, change, fence, not_negative, read, total};
use super::troubles::Troubles;

/// Kinds of slots that are counted: the constants of [`kind`].
const KINDS: usize = kind::DISK + 1;

/// Stripes for each CPU: so many that two threads that run at once seldom share one.
const STRIPES_PER_CPU: usize = 4;
/// Stripes of a device at most.
const STRIPES_MAX: usize = 16; // 2 KiB
const _: () = assert!(STRIPES_MAX.is_power_of_two(), "a thread's number is masked");

/// Objects of detached leaves that are yet to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pending {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Pending {
    /// The objects of slots.
    pub(crate) fn of(tally: LeafTally) -> Pending {
        Pending { objects: tally.counts[kind::BLOB], bytes: tally.bytes }
    }
}

/// What some threads counted. It begins on a pair of cache lines of its own, because neighbouring
/// lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    /// Requests that change slots: how many ever began, and how many ended.
    begun: AtomicU64,
    ended: AtomicU64,
    counts: [AtomicU64; KINDS],
    /// Bytes of objects; a huge page counts 4096.
    bytes: AtomicU64,
    /// Pages that were discarded, whether or not they held anything.
    discarded: AtomicU64,
    /// Huge pages that were ever stored.
    huge_since: AtomicU64,
}
const _: () = assert!(cfg!(loom) || size_of::<Stripe>() == 128, "a pair of cache lines");

impl Stripe {
    /// A slot's content changed.
    fn replace(&self, old: LeafTally, new: LeafTally) {
        for (kind, count) in self.counts.iter().enumerate() {
            change(count, old.counts[kind], new.counts[kind]);
        }
        change(&self.bytes, old.bytes, new.bytes);
        if new.counts[kind::HUGE] > 0 {
            bump(&self.huge_since, 1);
        }
    }
}

/// The counters of a device.
#[derive(Debug)]
pub(crate) struct Counters {
    /// A power of two.
    stripes: Box<[Stripe]>,
    pending_objects: AtomicU64,
    pending_bytes: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
    pub(crate) troubles: Troubles,
}

impl Counters {
    /// With as many stripes as so many CPUs have use for.
    pub(crate) fn for_cpus(cpus: usize) -> Counters {
        let stripes = if cpus > 1 { STRIPES_PER_CPU * cpus } else { 1 };
        Counters::of(stripes.next_power_of_two().min(STRIPES_MAX))
    }

    fn of(stripes: usize) -> Counters {
        Counters {
            stripes: (0..stripes).map(|_| Stripe::default()).collect(),
            pending_objects: AtomicU64::new(0),
            pending_bytes: AtomicU64::new(0),
            failed_reads: AtomicU64::new(0),
            failed_writes: AtomicU64::new(0),
            troubles: Troubles::default(),
        }
    }

    /// The stripe of this thread, by its number. That is at hand. Its CPU would have to be asked
    /// for, in every request.
    #[inline]
    fn here(&self) -> &Stripe {
        &self.stripes[cpu::thread_hint() & (self.stripes.len() - 1)]
    }

    /// A slot's content changed.
    pub(crate) fn replace(&self, old: LeafTally, new: LeafTally) {
        self.here().replace(old, new);
    }

    /// The content of a slot in a detached leaf changed, because a thread was late.
    pub(crate) fn replace_pending(&self, old: LeafTally, new: LeafTally) {
        let (old, new) = (Pending::of(old), Pending::of(new));
        change(&self.pending_objects, old.objects, new.objects);
        change(&self.pending_bytes, old.bytes, new.bytes);
    }

    /// Slots were emptied together because their leaf was detached. The leaf is yet to be drained.
    pub(crate) fn detach(&self, gone: LeafTally) {
        self.replace_pending(LeafTally::default(), gone);
        self.replace(gone, LeafTally::default());
    }

    /// Objects of a detached leaf were freed.
    pub(crate) fn drained(&self, freed: Pending) {
        change(&self.pending_objects, freed.objects, 0);
        change(&self.pending_bytes, freed.bytes, 0);
    }

    /// What is yet to be freed of detached leaves.
    pub(crate) fn pending(&self) -> Pending {
        Pending { objects: total(&self.pending_objects), bytes: total(&self.pending_bytes) }
    }

    /// Enters a request that changes slots. It ends when the guard is dropped.
    #[inline]
    pub(crate) fn change(&self) -> Change<'_> {
        Change::begin(self, self.here())
    }

    /// Requests that changed slots, so far; `None` while one is under way.
    pub(crate) fn changes(&self) -> Option<u64> {
        // Acquire pairs with the Release in `bump`, so that a thread that has read what a request
        // added to any counter sees below that the request began.
        fence(Ordering::Acquire);
        // Acquire pairs with the Release in `bump`, so that a thread that sees that a request ended
        // reads all that the request added, and sees below that it began. If as many ended as
        // began, none of those that are seen here is under way.
        let ended = self.sum(|stripe| stripe.ended.load(Ordering::Acquire));
        let begun = self.sum(|stripe| read(&stripe.begun));
        (begun == ended).then_some(begun)
    }

    /// The totals over all slots.
    pub(crate) fn tally(&self) -> LeafTally {
        let count = |kind: usize| self.shown(|stripe| &stripe.counts[kind]);
        LeafTally { counts: std::array::from_fn(count), bytes: self.shown(|stripe| &stripe.bytes) }
    }

    /// Pages that were discarded, whether or not they held anything.
    pub(crate) fn discarded(&self) -> u64 {
        self.shown(|stripe| &stripe.discarded)
    }

    /// Huge pages that were ever stored.
    pub(crate) fn huge_since(&self) -> u64 {
        self.shown(|stripe| &stripe.huge_since)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        size_of_val(&*self.stripes) as u64
    }

    /// A sum of the stripes, 0 if it is below 0 for a moment.
    fn shown(&self, word: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        not_negative(self.sum(|stripe| read(word(stripe))))
    }

    fn sum(&self, read: impl Fn(&Stripe) -> u64) -> u64 {
        self.stripes.iter().map(read).fold(0, u64::wrapping_add)
    }
}

/// A request that changes slots, and what it counts. It asks once which stripe is its own.
pub(crate) struct Change<'a> {
    counters: &'a Counters,
    stripe: &'a Stripe,
}

impl<'a> Change<'a> {
    fn begin(counters: &'a Counters, stripe: &'a Stripe) -> Change<'a> {
        bump(&stripe.begun, 1);
        Change { counters, stripe }
    }

    /// Pages were discarded.
    pub(crate) fn discarded(&self, pages: u64) {
        bump(&self.stripe.discarded, pages);
    }

    /// Slots were emptied: of leaves in the root, and of detached leaves.
    pub(super) fn emptied(&self, in_root: LeafTally, late: LeafTally) {
        self.stripe.replace(in_root, LeafTally::default());
        self.counters.replace_pending(late, LeafTally::default());
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        bump(&self.stripe.ended, 1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: LeafTally = LeafTally { counts: [0; KINDS], bytes: 0 };
    const ONE: LeafTally = LeafTally { counts: [1; KINDS], bytes: 100 };

    #[test]
    fn stripes_are_a_power_of_two_and_few() {
        let stripes = |cpus| Counters::for_cpus(cpus).stripes.len();
        assert_eq!([0, 1, 2, 3, 4, 5, 999].map(stripes), [1, 1, 8, 16, 16, 16, 16]);
    }

    /// A leaf is detached by another thread than the one that stored its pages, and before it.
    #[test]
    fn a_sum_below_0_is_shown_as_0() {
        let counters = Counters::for_cpus(2);
        counters.stripes[0].replace(ONE, NONE);
        assert_eq!(counters.tally(), NONE);
        counters.stripes[1].replace(NONE, ONE);
        assert_eq!(counters.tally(), NONE);
        counters.stripes[1].replace(NONE, ONE);
        assert_eq!((counters.tally(), counters.huge_since()), (ONE, 2));
    }

    fn tally() -> impl Strategy<Value = LeafTally> {
        let counts = prop::array::uniform4(0u64..3);
        (counts, 0u64..9000).prop_map(|(counts, bytes)| LeafTally { counts, bytes })
    }

    proptest! {
        /// Compares with a twin that has one word for each count, whichever stripe is used.
        #[test]
        fn sums_are_those_of_one_word_each(
            steps in prop::collection::vec((0usize..8, tally(), 0u64..600), 0..100),
        ) {
            let counters = Counters::for_cpus(2);
            let (mut twin, mut discarded, mut huge, mut held) = (NONE, 0, 0, Vec::new());
            for (at, came, pages) in steps {
                let stripe = &counters.stripes[at];
                let request = Change::begin(&counters, stripe);
                prop_assert_eq!(counters.changes(), None, "one is under way");
                if pages % 3 == 0 && let Some(gone) = held.pop() {
                    request.emptied(gone, NONE);
                    twin = twin.since(gone);
                } else {
                    stripe.replace(NONE, came);
                    twin.add(came);
                    huge += u64::from(came.counts[kind::HUGE] > 0);
                    held.push(came);
                }
                request.discarded(pages);
                discarded += pages;
                drop(request);
                prop_assert_eq!(counters.tally(), twin);
                prop_assert_eq!((counters.discarded(), counters.huge_since()), (discarded, huge));
            }
            let ended = counters.sum(|stripe| read(&stripe.ended));
            prop_assert_eq!(counters.changes(), Some(ended));
        }
    }
}

/// Under every interleaving that two preemptions allow: `--lib model` with `--cfg loom`.
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    const NONE: LeafTally = LeafTally { counts: [0; KINDS], bytes: 0 };
    const BYTE: LeafTally = LeafTally { counts: [0; KINDS], bytes: 1 };

    fn bytes(counters: &Counters) -> u64 {
        counters.sum(|stripe| read(&stripe.bytes))
    }

    /// A request of a thread that counts in several stripes.
    fn request(counters: &Counters, stripes: [usize; 2]) {
        let [own, other] = stripes.map(|stripe| &counters.stripes[stripe]);
        let _change = Change::begin(counters, own);
        own.replace(NONE, BYTE);
        other.replace(NONE, BYTE);
    }

    /// Claim: what is read between two equal answers is no part of a request, but all or nothing.
    #[test]
    fn a_look_between_two_equal_answers_sees_whole_requests() {
        loom::model(|| {
            let counters = Arc::new(Counters::of(2));
            let threads = [[0, 1], [1, 0]].map(|stripes| {
                let counters = Arc::clone(&counters);
                thread::spawn(move || request(&counters, stripes))
            });
            let before = counters.changes();
            let seen = bytes(&counters);
            if let Some(requests) = before.filter(|_| counters.changes() == before) {
                assert_eq!(seen, 2 * requests, "bytes that {requests} requests added");
            }
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert_eq!((counters.changes(), bytes(&counters)), (Some(2), 4));
        });
    }
}
