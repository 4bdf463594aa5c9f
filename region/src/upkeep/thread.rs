//! The thread that keeps limits, sweeps dead copies, and looks at the regions' memory.
//!
//! ```text
//!   raised by faults, or every 10 ms while a region has a limit; else every 100 ms
//!      for each region:   over its limit?  --> oldest groups to staging, from there to the store
//!                         dead copies?     --> discarded from the store
//!      the descriptor gone?               --> the process ends: missing pages would be zeros
//!   every second: memory not as the region left it (module `look`)?  --> the same
//! ```
//!
//! Locks: that of the list of regions, held to copy the list; a region's gate, while it is worked
//! on.

use super::look::Looks;
use crate::resources::{Count, Shared};
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use host::fault::{Vital, die};
use host::fork::begin_round;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const BUSY_TICK: Duration = Duration::from_millis(10);
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Pages of a region that leave in one round while mappings are scarce.
const RELIEF_PAGES: u64 = 16 * GROUP_PAGES as u64; // 1024 pages, 4 MiB

pub(super) fn start(shared: Arc<Shared<Folded>>) -> std::io::Result<JoinHandle<()>> {
    host::thread::spawn("ramfold-pager", move || {
        let vital = Vital::new("the thread that keeps limits has failed");
        let mut looks = Looks::begin();
        while !shared.is_over() {
            let seen = shared.work.seen();
            // A fork waits for the round, so that no lock stays locked in the child.
            let inside = begin_round();
            let busy = tick(&shared);
            if looks.are_due() {
                shared.alive().for_each(|folded| folded.look());
            }
            drop(inside);
            shared.work.wait(seen, if busy { BUSY_TICK } else { IDLE_TICK });
        }
        vital.end();
    })
}

/// One round. True if some region has a limit to be kept.
fn tick(shared: &Shared<Folded>) -> bool {
    if !shared.staging.is_watched() {
        die("the descriptor of folded memory was closed");
    }
    let mut busy = false;
    for folded in shared.alive() {
        if folded.counters.read(Count::DeadCopies) > 0
            && let Ok(_gate) = folded.enter()
        {
            folded.sweep();
        }
        if shared.mappings.are_scarce() {
            // Closed neighbours share a mapping. Any group that leaves as a whole may free two.
            let out = folded.page_out_coldest(RELIEF_PAGES);
            if out.is_ok_and(|out| out.stored > 0) {
                shared.mappings.note_relief();
            }
            busy = true;
        }
        if folded.limit.pages().is_some() {
            busy = true;
            folded.keep_limit();
            shared.room.raise();
        } else {
            // The limit was lifted while it was being kept, and left second chances in staging.
            folded.compress_staged();
        }
    }
    busy
}
