//! Entries for a class that has none: a block of the stock, or the chain of another class.
//!
//! Locks: one class at a time, and under it one part of the stock.

use host::LockGuard;

use crate::class::{Class, State};
use crate::leaves::LeafUse;
use crate::numbers::{AllocError, CellNumber};
use crate::pool::Pool;

impl Pool {
    /// Takes an entry for a class that has none: of the stock, or of another class.
    #[cold]
    pub(crate) fn fetch_entry<'p>(
        &'p self,
        class: &'p Class,
        mut state: LockGuard<'p, State>,
        kind: LeafUse,
    ) -> Result<(LockGuard<'p, State>, CellNumber), AllocError> {
        let leaves = &self.memory.leaves;
        if let Err(error) = state.restock(kind, leaves, &self.stocks) {
            drop(state);
            state = self.fetch_entries(class, kind).ok_or(error)?;
        }
        let entry = state.take_entry(kind, leaves);
        Ok((state, entry))
    }

    /// Brings free entries of the given kind to a class that has none, and locks the class. `None`
    /// if no class has any. It waits for each class that is in use, one at a time, with no lock
    /// held.
    fn fetch_entries<'p>(
        &'p self,
        class: &'p Class,
        kind: LeafUse,
    ) -> Option<LockGuard<'p, State>> {
        let take = |mut state: LockGuard<'_, State>| state.take_chain(kind);
        let mut busy = Vec::new();
        let idle = self.classes.iter().find_map(|other| match other.try_lock() {
            Some(state) => take(state),
            None => {
                busy.push(other);
                None
            }
        });
        let found = idle.or_else(|| busy.into_iter().find_map(|other| take(other.lock())));
        let chain = found?;
        let mut state = class.lock();
        state.adopt_entries(chain, kind, &self.memory.leaves, &self.stocks);
        // They do not arrive here, where they did not depart, because a recount could see this
        // class before that one.
        self.arrived(1);
        Some(state)
    }
}
