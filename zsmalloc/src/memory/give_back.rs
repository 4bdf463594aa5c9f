//! How free memory goes back to the system.
//!
//! ```text
//!   zone   --take_warm-->   claimed   --purge-->   put back, untouched
//!                              |
//!                              `--refused (locked)-->   kept aside to the end, then put back, warm
//! ```
//!
//! If a program has locked its memory, the system does not take back what was open then. Those
//! frames stay resident and counted, and do not keep others from going back.
//!
//! Lock: none. What is taken out of a zone is this thread's while the system clears it.

use buddy::Order;
use host::sync::atomic::Ordering;
use host::{Pfn, Run};

use super::Memory;
use super::zones::Unclaimed;

/// Free blocks that a release takes out of the zone at once.
const BLOCKS_AT_ONCE: usize = 512;
/// And frames, without the last block: frames that are being returned cannot be allocated.
const FRAMES_AT_ONCE: u64 = 1 << 10; // 4 MiB

impl Memory {
    /// Returns free frames and free leaves to the system, until at most `keep` bytes of resident
    /// free frames are held. With 0, the zone's metadata of wholly free pageblocks goes too. The
    /// result is the bytes that went back.
    pub fn release(&self, keep: u64) -> u64 {
        self.flush_lagging();
        self.leaves.release();
        self.descriptors.release();
        // What a CPU keeps is free, and may be resident.
        self.zones.drain();
        let returned = self.release_frames(keep, u64::MAX);
        if keep == 0 {
            self.zones.offline_untouched();
        }
        returned * host::PAGE_SIZE as u64
    }

    /// Returns free frames of the zones while more than `keep` bytes of resident ones are held, and
    /// at most `most`, because what others free meanwhile is not chased. The result is how many it
    /// returned. That is more than `most` if the last block is larger.
    pub(crate) fn release_frames(&self, keep: u64, most: u64) -> u64 {
        let _turn = self.turn_to_isolate();
        // What the system refuses is kept out of the zone, or it would be taken again at once.
        let (mut returned, mut refused) = (0, Vec::new());
        loop {
            let excess = self.free_bytes_held().saturating_sub(keep);
            let frames = excess.div_ceil(host::PAGE_SIZE as u64).min(most.saturating_sub(returned));
            // The frames are out of the zone's lists and claimed. So they are this thread's while
            // the system clears them, and allocation goes on meanwhile.
            let blocks = self.zones.take_warm(frames.min(FRAMES_AT_ONCE), BLOCKS_AT_ONCE);
            let claim = |&(pfn, order): &(Pfn, Order)| self.claim(pfn, order.frames()).ok();
            let runs: Vec<Run> = blocks.iter().filter_map(claim).collect();
            if runs.is_empty() {
                break;
            }
            let (purged, kept) = self.purge(runs);
            returned += purged;
            refused.extend(kept);
        }
        self.put_back(refused);
        returned
    }

    /// Returns the memory of blocks that the zone gave up, and puts them back. The result is how
    /// many frames that were, and the blocks that the system refuses. Those stay resident, and
    /// counted.
    fn purge(&self, mut runs: Vec<Run>) -> (u64, Vec<Run>) {
        let purged = self.arena.purge_all(&mut runs);
        // relaxed: the frames counted are this thread's.
        self.free_held.0.fetch_sub(purged.frames.into(), Ordering::Relaxed);
        let refused = |run: &Run| self.arena.resident_in(run.pfn(), run.frames()) > 0;
        let (refused, clear) = runs.into_iter().partition(refused);
        self.put_back(clear);
        (purged.frames.into(), refused)
    }

    /// Puts blocks back that the zone gave up.
    fn put_back(&self, runs: Vec<Run>) {
        let unclaimed: Vec<Unclaimed> = runs.into_iter().map(|run| self.free_run(run).0).collect();
        self.zones.put_back(&unclaimed);
    }
}
