//! The only file of this crate with `unsafe` in it: the fence at both ends of the way in.
//!
//! ```text
//!   touch --> handler --> [ serve ] --> group, store --> buffer, segment --> [ put ] --> the page
//!                            P1                                                 P2
//! ```
//!
//! Invariants
//! - P1 a fault runs nothing that allocates, logs or panics. It runs the room `way_in`, the
//!   fetchers, and what these call of the store. Of a thread it uses two plain cells: whether it is
//!   a fetcher, and in debug builds the ranks that it holds. The rest is the region's own: locks,
//!   atomics, buffers made beforehand. Of a disk it runs no code, except a file's `pread`
//!   ([`Store::reads_in_handler`]).
//! - P2 the place of a page says which bytes are its own (G1 to G6 of `group`). These are zeros,
//!   those at its place in its group's segment, or those under its number in the store. They are
//!   put in place under its group's lock. Only pages that leave write to a store, because the
//!   device belongs to the region, and so does the area of the cache. A store gives what it was
//!   given, or an error, because bytes from a disk have a checksum.
//!
//! No type says "async-signal-safe", and no function can check where bytes come from. So both are
//! promises of the whole crate, which its tests attack. Code that allocates in a fault, or puts
//! other bytes in a page's place, is unsound wherever in this crate it stands.
//!
//! [`Store::reads_in_handler`]: crate::resources::Store::reads_in_handler

use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use host::fault::{Asker, Served, Server};
use host::{Segment, Transfer};

// SAFETY: P1.
unsafe impl Server for Folded {
    fn serve(&self, address: usize, asker: Asker) -> Served {
        self.answer(address, asker)
    }

    fn outlives_fork(&self) -> bool {
        self.span.outlives_fork()
    }

    fn let_go(&self) {
        self.span.let_go();
    }
}

impl Folded {
    /// Puts pages in place, from `page` on: the bytes that their place has for them (P2).
    pub(super) fn put(&self, page: usize, bytes: &[u8]) -> Transfer {
        // SAFETY: P2.
        unsafe { self.span.fill(page, bytes) }
    }

    /// As `put`, for pages that no thread has touched since they were registered or discarded.
    /// Their bytes are `zeros` (P2).
    pub(super) fn put_untouched(&self, page: usize, zeros: &[u8]) -> Transfer {
        // SAFETY: P2.
        unsafe { self.span.fill_untouched(page, zeros) }
    }

    /// As `put`, for staged pages, which are at their places in their group's segment (P2).
    pub(crate) fn put_staged(&self, page: usize, count: usize, segment: &Segment) -> Transfer {
        // SAFETY: P2: `move_out` puts a page at its number in its group.
        unsafe { self.span.fill_from(page, count, segment, page % GROUP_PAGES) }
    }
}
