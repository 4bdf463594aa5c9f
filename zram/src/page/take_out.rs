//! Taking a page out of its unit: it gets an object of its own, of the first algorithm.
//!
//! ```text
//!   unit    | 0 | 1 | 2 | 3 |          read of page 2           | 0 | 1 |   | 3 |     2 is dead
//!   slot 2    in the unit     --decode, compress, store-->   slot 2    object
//! ```
//!
//! Its neighbours stay. The frame keeps the bytes of the page until the unit is made anew, or ends.
//!
//! Invariant: a page is taken out in one step under the lock of its slot. If there is no room for
//! the object, the page stays in the unit, and reads as before.
//!
//! Locks: a stream and the cell, which the caller has; then class, and unit.

use codec::Stream;
use disk::DiskError;
use zsmalloc::{AllocError, CellGuard, Object};

use crate::cells::flags::{self, IDLE, PP};
use crate::cells::{Stored, stored};
use crate::device::Zram;
use crate::terms::disk_error;

impl Zram {
    /// A page that was just read from its unit into `data` is taken out, if there is room.
    #[cold]
    pub(super) fn take_out_read<'p>(
        &'p self,
        page: u64,
        slot: &mut CellGuard<'p>,
        stream: &mut Stream,
        data: &[u8],
    ) {
        let _change = self.counters.change();
        stream.set_place(Zram::place_of(page));
        if let Ok(object) = self.store_first(stream, data) {
            self.put_out(slot, object);
        }
    }

    /// A page that was chosen by a post-processing, and is in a unit, is taken out past the limit.
    /// It keeps its marks. A page that is in none, or was used meanwhile, is left as it is.
    pub(crate) fn take_out_chosen(
        &self,
        page: u64,
        stream: &mut Stream,
        data: &mut [u8],
    ) -> Result<(), DiskError> {
        if !matches!(self.peek(page), Stored::Unit { .. }) {
            return Ok(());
        }
        let Some(mut slot) = self.slots.lock(page) else { return Ok(()) };
        let marks = slot.client() & (PP | IDLE);
        if !matches!(Stored::in_cell(&slot), Stored::Unit { .. }) || marks & PP == 0 {
            return Ok(());
        }
        self.decode_object(page, &slot, stream, data)?;
        stream.set_place(Zram::place_of(page));
        let object = self.slots.pool.store_past_limit(self.first_blob(stream, data));
        self.put_out(&mut slot, object.map_err(disk_error)?);
        flags::set(&mut slot, marks);
        Ok(())
    }

    fn put_out<'p>(&'p self, slot: &mut CellGuard<'p>, object: Object<'p>) {
        let old = Stored::in_cell(slot);
        stored::put_blob(slot, 0, object);
        self.replaced(slot, old);
    }

    /// Stores a page as a write does: compressed by the first algorithm, or raw.
    pub(crate) fn store_first(
        &self,
        stream: &mut Stream,
        data: &[u8],
    ) -> Result<Object<'_>, AllocError> {
        self.slots.pool.store(self.first_blob(stream, data))
    }

    /// The blob of a page by the first algorithm, or the page itself if it is huge.
    fn first_blob<'s>(&self, stream: &'s mut Stream, data: &'s [u8]) -> &'s [u8] {
        match self.config.algorithm.compress(stream, data) {
            Ok(blob) if blob.len() <= self.watermark => blob,
            // The result is too long, or the codec failed. Neither is an error.
            _ => data,
        }
    }
}
