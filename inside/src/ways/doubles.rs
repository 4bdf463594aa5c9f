//! Doubles: slots that the store keeps although their pages came back.
//!
//! ```text
//!   while a fork shares the store:
//!     a page comes back    its slot stays here, under the page's address
//!     the page leaves      the same bytes as in the slot: the slot is the page's again
//!                          others: the slot is free, and the page gets a new one
//!   afterwards: all of them are free, some at a time
//! ```
//!
//! A forked child has a copy of the store, which takes no memory until one of the two changes it.
//! To free a slot gives no memory back then, because the other process has it too. And a page that
//! was only read would be compressed into new memory when it leaves. So a child that reads all of
//! its memory would come to a second store. Linux leaves a page's copy in the swap until the page
//! is written to (its swap cache). Here nobody tells of writes, so the bytes are compared.
//!
//! Invariants
//! - D1: a double names its slot, as a book does. It gives the slot back when it goes.
//! - D2: a double is used only for bytes that are those of its slot. So it may be of a page that
//!   was given up, or that has moved.
//!
//! Lock: the caller's.

use std::collections::{HashMap, HashSet};

/// Doubles that go at once when the store is shared no more. Threads of the program may wait.
const AT_ONCE: usize = 512;
/// Bytes were compared in vain so often that most pages are likely to have changed.
const VAIN: u32 = 32;
/// Then one page in so many is compared.
const NOW_AND_THEN: u32 = 8;

/// The doubles of a store.
#[derive(Debug, Default)]
pub(super) struct Doubles {
    /// The forks by which the store is shared.
    shared_by: Option<u32>,
    /// Slots since the last of these forks, which are this process's alone.
    own: HashSet<u32>,
    /// Slots by the addresses of their pages.
    slots: HashMap<usize, u32>,
    /// Slots of doubles that go, some at a time.
    leaving: Vec<u32>,
    /// Comparisons in vain, one after the other.
    vain: u32,
}

impl Doubles {
    /// Says whether another process shares the store, and after how many forks.
    pub(super) fn set_shared_by(&mut self, forks: Option<u32>) {
        if self.shared_by != forks {
            self.shared_by = forks;
            // With its table, which may be long.
            self.own = HashSet::new();
            self.vain = 0;
        }
        if forks.is_none() {
            self.leave();
        }
    }

    /// Whether another process shares the store.
    pub(super) fn is_shared(&self) -> bool {
        self.shared_by.is_some()
    }

    /// All doubles are to go.
    fn leave(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        self.leaving.extend(slots.into_values());
    }

    /// A slot has got content.
    pub(super) fn filled(&mut self, slot: u32) {
        if self.shared_by.is_some() {
            self.own.insert(slot);
        }
    }

    /// A slot is free.
    pub(super) fn freed(&mut self, slot: u32) {
        if !self.own.is_empty() {
            self.own.remove(&slot);
        }
    }

    /// The page of a slot came back to an address. Returns the slot that is named no more: that of
    /// an older double, or this one if it is no double.
    pub(super) fn came(&mut self, address: usize, slot: u32) -> Option<u32> {
        if self.shared_by.is_none() || self.own.contains(&slot) {
            return Some(slot);
        }
        self.slots.insert(address, slot)
    }

    /// The page of an address leaves. Returns its double, which is the caller's from now on, and
    /// whether to compare it.
    pub(super) fn take(&mut self, address: usize) -> Option<(u32, bool)> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slots.remove(&address)?;
        let compares = self.vain < VAIN || self.vain.is_multiple_of(NOW_AND_THEN);
        self.vain = self.vain.saturating_add(1);
        Some((slot, compares))
    }

    /// A comparison has found the same bytes.
    pub(super) fn was_same(&mut self) {
        self.vain = 0;
    }

    /// Some of the doubles that go.
    pub(super) fn leaving(&mut self) -> Vec<u32> {
        let stay = self.leaving.len().saturating_sub(AT_ONCE);
        let some = self.leaving.split_off(stay);
        if self.leaving.is_empty() {
            self.leaving = Vec::new();
        }
        some
    }

    /// All doubles, which go at once because the store is full.
    pub(super) fn take_all(&mut self) -> Vec<u32> {
        self.leave();
        std::mem::take(&mut self.leaving)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.slots.len() + self.leaving.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_both_processes_are_doubles_while_they_are_shared() {
        let mut doubles = Doubles::default();
        doubles.filled(1);
        assert_eq!(doubles.came(0, 1), Some(1), "no fork");
        doubles.set_shared_by(Some(1));
        doubles.filled(2);
        assert_eq!(doubles.came(0, 2), Some(2), "it is this process's alone");
        assert_eq!((doubles.came(0, 3), doubles.came(0, 4)), (None, Some(3)));
        assert!(doubles.leaving().is_empty());
        assert_eq!((doubles.take(0), doubles.take(0)), (Some((4, true)), None));
        doubles.set_shared_by(Some(2));
        assert_eq!(doubles.came(0, 2), None, "the second child has it too");
        doubles.filled(5);
        doubles.freed(5);
        assert_eq!((doubles.came(1, 5), doubles.count()), (None, 2));
        doubles.set_shared_by(None);
        assert_eq!(doubles.came(2, 6), Some(6));
        let mut leaving = doubles.leaving();
        leaving.sort_unstable();
        assert_eq!((leaving, doubles.count()), (vec![2, 5], 0));
    }

    #[test]
    fn doubles_go_some_at_a_time() {
        let mut doubles = Doubles::default();
        doubles.set_shared_by(Some(1));
        (0..AT_ONCE + 1).for_each(|at| assert_eq!(doubles.came(at, at as u32), None));
        doubles.set_shared_by(None);
        assert_eq!([doubles.leaving().len(), doubles.leaving().len()], [AT_ONCE, 1]);
    }

    /// Of so many pages that come and leave, those that are compared.
    fn compared(doubles: &mut Doubles, pages: usize) -> usize {
        let each = (0..pages).filter(|&at| {
            doubles.came(at, at as u32);
            doubles.take(at).is_some_and(|(_, compares)| compares)
        });
        each.count()
    }

    #[test]
    fn pages_that_change_are_compared_now_and_then() {
        let mut doubles = Doubles::default();
        doubles.set_shared_by(Some(1));
        assert_eq!(compared(&mut doubles, VAIN as usize), VAIN as usize);
        assert_eq!(compared(&mut doubles, 16), 2);
        doubles.was_same();
        assert_eq!(compared(&mut doubles, 3), 3);
    }
}
