//! What a class does with entries under its lock: it takes one with each slot for a handle, and
//! gets it back with the slot.

use host::sync::atomic::AtomicU64;

use super::State;
use super::entries::{Chain, Entries};
use super::stock::Stocks;
use crate::leaves::{LeafUse, Leaves};
use crate::numbers::{AllocError, CellNumber};

impl State {
    /// Takes an entry for a handle of the given kind; `NONE` if the class has none.
    #[inline]
    pub(crate) fn take_entry(&mut self, kind: LeafUse, leaves: &Leaves) -> CellNumber {
        let entry = self.entries_of(kind).take(leaves);
        let handles = u32::from(entry != CellNumber::NONE && kind == LeafUse::Handles);
        self.handles = self.handles.wrapping_add(handles);
        entry
    }

    /// Gives an entry back.
    pub(crate) fn give_entry(&mut self, entry: CellNumber, leaves: &Leaves, stocks: &Stocks) {
        let cell = leaves.handle_cell(entry);
        if leaves.use_of(entry) == LeafUse::Raw {
            return self.raw_entries.give(entry, cell, &stocks.raw);
        }
        self.give_handle(entry, cell, stocks);
    }

    /// Gets a block from the stock for entries of the given kind, of which there are none here.
    pub(crate) fn restock(
        &mut self,
        kind: LeafUse,
        leaves: &Leaves,
        stocks: &Stocks,
    ) -> Result<(), AllocError> {
        self.entries_of(kind).restock(stocks.of(kind), leaves)
    }

    /// Takes all free entries of the given kind as one chain. Nothing, if there are none. From here
    /// on they are in no chain, and the class counts them as departed.
    pub(crate) fn take_chain(&mut self, kind: LeafUse) -> Option<Chain> {
        let chain = self.entries_of(kind).take_chain();
        if chain.is_some() {
            self.departs();
            self.operated(1);
        }
        chain
    }

    /// The free entries for handles of the given kind.
    #[inline]
    fn entries_of(&mut self, kind: LeafUse) -> &mut Entries {
        if kind == LeafUse::Raw { &mut self.raw_entries } else { &mut self.entries }
    }

    /// Enters the entries of another class.
    pub(crate) fn adopt_entries(
        &mut self,
        chain: Chain,
        kind: LeafUse,
        leaves: &Leaves,
        stocks: &Stocks,
    ) {
        self.entries_of(kind).adopt(chain, leaves, stocks.of(kind));
    }

    /// Gives the entry of an owned handle back.
    #[inline(always)]
    pub(crate) fn give_handle(&mut self, entry: CellNumber, cell: &AtomicU64, stocks: &Stocks) {
        self.entries.give(entry, cell, &stocks.handles);
        self.handles = self.handles.wrapping_sub(1);
    }
}
