//! A client of a cache that forgets pages later: the callback form of study S3 before our zswap.
//!
//! ```text
//!   thread   number of area and page -> queue        no room: forgotten in the call
//!   worker   queue -> area.invalidate(page)          when a buffer is full, and at the end
//! ```
//!
//! Our queue knows nothing of caches, and a cache nothing of this one: the client pushes, and its
//! drain function does what it would have done itself. The study's form takes the entry out of the
//! kernel's tree first. Here nobody looks a page up that was pushed, so that is left out, and a
//! push is less work than the study's.
//!
//! Invariant: a page that was pushed, or handed back, is forgotten once.

use crate::ground::LabError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use zsmalloc::Memory;
use zsmalloc::deferred::{Meters, Queue, QueueConfig, Values};
use zswap::Area;

/// See the module documentation.
pub(super) struct Late {
    queue: Queue<(u32, u32)>,
    full: Arc<AtomicBool>,
    memory: Arc<Memory>,
}

/// The areas, by the number of their thread.
pub(super) type Areas = Arc<[OnceLock<Area>]>;

impl Late {
    pub(super) fn new(
        config: QueueConfig,
        areas: &Areas,
        memory: &Arc<Memory>,
    ) -> Result<Arc<Late>, LabError> {
        let (areas, full) = (Arc::clone(areas), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&full);
        let drain = move |values: &mut Values<'_, (u32, u32)>| {
            for (thread, page) in values {
                if let Some(area) = areas[thread as usize].get() {
                    area.invalidate(page.into());
                }
            }
        };
        // relaxed: a hint to the thread that pushed.
        let tell = move || told.store(true, Ordering::Relaxed);
        let queue = Queue::new(config, drain, tell).map_err(LabError::store("a queue"))?;
        Ok(Arc::new(Late { queue, full, memory: Arc::clone(memory) }))
    }

    /// Forgets all pages of a thread's area, or has them forgotten.
    pub(super) fn forget(self: &Arc<Late>, area: &Area, thread: u32) {
        for page in 0..area.pages() {
            if self.queue.push((thread, page as u32), 0).is_err() {
                area.invalidate(page);
            }
            // relaxed: a hint.
            if self.full.load(Ordering::Relaxed) {
                self.ask();
            }
        }
        self.ask();
    }

    /// Has the memory's worker drain what was pushed.
    fn ask(self: &Arc<Late>) {
        // relaxed: a hint.
        self.full.store(false, Ordering::Relaxed);
        let late = Arc::downgrade(self);
        self.memory.defer(0, move || {
            if let Some(late) = late.upgrade() {
                late.queue.flush();
            }
        });
    }

    pub(super) fn meters(&self) -> Meters {
        self.queue.meters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zswap::{GroupId, Limit, Zswap, ZswapConfig};

    fn forgotten(buffer_bytes: usize) -> (u64, Meters) {
        const PAGES: u64 = 2000;
        let memory = Memory::new(zsmalloc::MemoryConfig::for_disk(64 << 20)).unwrap();
        let config = ZswapConfig { limit: Limit::None, ..ZswapConfig::new("late") };
        let cache = Zswap::new(Arc::clone(&memory), config).unwrap();
        let areas: Areas = [OnceLock::new()].into();
        let area = areas[0].get_or_init(|| cache.add_area(PAGES).unwrap());
        for page in 0..PAGES {
            let content = [[page as u8; 1000].as_slice(), &[1; 3096]].concat();
            area.store(page, &content, GroupId::ROOT).unwrap();
        }
        let config = QueueConfig { buffer_bytes, ..QueueConfig::default() };
        let late = Late::new(config, &areas, &memory).unwrap();
        late.forget(area, 0);
        memory.flush_deferred();
        (area.stat().stored_pages, late.meters())
    }

    #[test]
    fn all_pages_are_forgotten_whether_or_not_there_was_room() {
        for buffer_bytes in [0, 1 << 20] {
            let (left, meters) = forgotten(buffer_bytes);
            assert_eq!((left, meters.pending_values), (0, 0), "{buffer_bytes} bytes of buffers");
            assert_eq!(meters.drained_values + meters.fallbacks, 2000);
        }
    }
}
