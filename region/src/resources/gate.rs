//! Which threads may work on a region: many at a time, one alone, or none at all.
//!
//! ```text
//!   enter   turnstile passed --> gate, shared        work on pages, a group at a time
//!   alone   turnstile held   --> gate, exclusive     threads inside come out, no thread goes in
//!   close   as alone, for good                       teardown
//! ```
//!
//! A thread that waits to be alone holds the turnstile. Threads that enter must pass it, so they
//! cannot keep the waiting thread out by entering again and again.
//!
//! A region has two of these: one for work on its pages, and one for what makes stored pages
//! denser, which may take long. The second is entered and closed, and no thread is alone there.
//!
//! Invariant: a thread works on a region only while it holds a `Gate` or is alone. Once `close` has
//! set the flag to false, it stays false, so no thread begins work on a region that is torn down.
//!
//! Locks: turnstile, then gate, of those ranks. A thread that is inside one region only tries those
//! of another.

use host::Rank;
use host::unmodelled::{RankedMutex, RankedReadGuard, RankedRwLock, RankedWriteGuard};

/// Turnstile and gate of a region.
pub(crate) struct Gates {
    turnstile: RankedMutex<()>,
    /// False: the region is being torn down. The flag is valid even after a panic.
    gate: RankedRwLock<bool>,
}

/// The right to work on a region.
pub(crate) struct Gate<'f> {
    open: RankedReadGuard<'f, bool>,
}

impl Gates {
    /// Gates that are open.
    pub(crate) fn new() -> Gates {
        let turnstile = RankedMutex::new(Rank::Turnstile, ());
        Gates { turnstile, gate: RankedRwLock::new(Rank::Gate, true) }
    }

    /// The right to work on the region, unless it is being torn down.
    pub(crate) fn enter(&self) -> Option<Gate<'_>> {
        drop(self.turnstile.lock());
        Some(Gate { open: self.gate.read() }).filter(|gate| *gate.open)
    }

    /// As [`Gates::enter`], except that it fails if a thread is about to be alone or is just
    /// entering. It is for a thread that is inside another region.
    pub(crate) fn try_enter(&self) -> Option<Gate<'_>> {
        drop(self.turnstile.try_lock()?);
        Some(Gate { open: self.gate.try_read()? }).filter(|gate| *gate.open)
    }

    /// Whether a thread has entered.
    #[cfg(test)]
    pub(crate) fn is_entered(&self) -> bool {
        self.gate.try_write().is_none()
    }

    /// Does something while no other thread works on the region. `None` if the region is being torn
    /// down.
    pub(crate) fn alone<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let alone = self.be_alone();
        alone.then(work)
    }

    /// Whether a thread is alone with the region, or waits to be. It only tries the gate.
    pub(crate) fn is_alone(&self) -> bool {
        self.gate.try_read().is_none()
    }

    /// Waits until no thread works on the region, and lets none begin.
    pub(crate) fn close(&self) {
        *self.be_alone() = false;
    }

    /// The gate, once the threads that are inside have come out.
    fn be_alone(&self) -> RankedWriteGuard<'_, bool> {
        let _first = self.turnstile.lock();
        self.gate.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::HeldRank;

    #[test]
    fn a_closed_gate_lets_nobody_in() {
        let gates = Gates::new();
        assert!(gates.enter().is_some() && gates.try_enter().is_some());
        assert_eq!(gates.alone(|| 7), Some(7));
        gates.close();
        assert!(gates.enter().is_none() && gates.try_enter().is_none());
        assert_eq!(gates.alone(|| 7), None);
    }

    #[test]
    fn another_region_is_tried_from_inside_one() {
        let [one, other] = [Gates::new(), Gates::new()];
        let _inside = one.enter().expect("open");
        assert!(other.try_enter().is_some());
    }

    /// Two threads that are each inside one region and wait for the other's would wait for ever.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Turnstile")]
    fn waiting_for_another_region_from_inside_one_is_caught() {
        let [one, other] = [Gates::new(), Gates::new()];
        let _inside = one.enter().expect("open");
        drop(other.enter());
    }

    /// A thread that waits to be alone while it is inside would wait for itself.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Turnstile")]
    fn being_alone_from_inside_is_caught() {
        let gates = Gates::new();
        let _inside = gates.enter().expect("open");
        gates.close();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Turnstile")]
    fn entering_with_a_group_locked_is_caught() {
        let gates = Gates::new();
        let _group = HeldRank::enter(Rank::Group);
        drop(gates.enter());
    }
}
