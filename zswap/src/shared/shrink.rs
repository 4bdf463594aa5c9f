//! Making room: at the limit, for a group, and in the background.
//!
//! ```text
//!   limit   |.............................|     a store that meets it writes back, compacts, and
//!   accept  |........................|          tries once more
//!                                    ^ the worker writes back down to here
//! ```
//!
//! Invariants
//! - I1 a thread that makes room holds no lock of the cache's, and no lock that a deferred job
//!   might want.
//! - I2 the worker gives up when the cache ends, even if there is no room yet, because other
//!   threads may store all the time.
//!
//! Locks: none here. Those of `write_back` are taken for one page after the other.

use std::sync::{Arc, Weak};

use super::core::Core;
use super::write_back::{Whose, WroteBack};
use crate::terms::GroupId;

/// The most pages that a store at the limit writes back before it tries again. The worker writes
/// back as many before it looks whether it has to end.
const STORE_PAGES_MAX: u64 = 1024; // 4 MiB of pages
/// Pages of its group that a store at the group's limit writes back at once, 32 as in the kernel.
const GROUP_PAGES: u64 = 32;
/// Pages written back between two looks at how much is used.
const STEP: u64 = 64;

impl Core {
    /// Makes room at the limit, for at least one store. The caller holds no lock.
    pub(crate) fn make_room(&self) {
        self.pool.memory().flush_deferred();
        let target = self.accept_bytes();
        if self.shrink_to(target, STORE_PAGES_MAX).pages == 0 {
            self.pool.make_room();
        }
    }

    /// Makes room for a group at its limit, by writing back its own pages. False if that made none.
    /// The kernel writes back 32 and admits the page even if the group is still over its limit.
    pub(crate) fn make_group_room(&self, group: GroupId) -> bool {
        self.pool.memory().flush_deferred();
        let mut left = STORE_PAGES_MAX;
        while self.groups.is_full(group) && left > 0 {
            if self.write_back(GROUP_PAGES, Whose::Of(group)).pages == 0 {
                return false;
            }
            left = left.saturating_sub(GROUP_PAGES);
        }
        !self.groups.is_full(group)
    }

    /// Writes back until touched frames are down to `bytes`, `most` pages at most. Pages that are
    /// written back leave holes. The holes count as gone, and are compacted in the end.
    pub(crate) fn shrink_to(&self, bytes: u64, most: u64) -> WroteBack {
        let mut total = WroteBack::default();
        loop {
            let used = self.pool.object_bytes_resident();
            let mut to_free = used.saturating_sub(bytes);
            if to_free == 0 {
                return total;
            }
            let before = total;
            while to_free > 0 && total.pages < most {
                let step = self.write_back(STEP.min(most - total.pages), Whose::Everybodys);
                total.pages += step.pages;
                total.bytes += step.bytes;
                total.failed += step.failed;
                to_free = to_free.saturating_sub(step.bytes);
                if step.pages == 0 {
                    break;
                }
            }
            if total == before {
                return total;
            }
            self.pool.make_room();
            if total.pages >= most || total.failed > before.failed {
                return total;
            }
        }
    }

    /// Shrinks until the cache takes pages again, or until the worker has to end.
    fn shrink_in_background(&self) {
        while !self.worker.is_stopped() {
            let done = self.shrink_to(self.accept_bytes(), STORE_PAGES_MAX);
            if done.pages == 0 || done.failed > 0 {
                return;
            }
        }
    }

    /// A store that cannot wait met the limit, so the worker has to shrink the cache.
    pub(crate) fn ask_worker(self: &Arc<Core>) {
        if self.config.worker && self.backing.is_some() {
            let core = Arc::downgrade(self);
            self.worker.ask(move || work(&core));
        }
    }
}

fn work(core: &Weak<Core>) {
    loop {
        let Some(core) = core.upgrade() else { return };
        if !core.worker.wait() {
            return;
        }
        // A fork waits for the work, so that no lock stays locked in the child.
        let _inside = host::fork::begin_round();
        core.shrink_in_background();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::OnceLock;

    use super::*;
    use crate::{Limit, Memory, MemoryConfig, Zswap, ZswapConfig};
    use disk::{Disk, DiskError, RamDisk};
    use host::PAGE_SIZE;

    const PAGES: u64 = 4 * STORE_PAGES_MAX;

    /// A disk that ends the worker of a cache at the first write.
    struct EndingDisk {
        inner: RamDisk,
        of: OnceLock<Weak<Core>>,
    }

    impl Disk for EndingDisk {
        fn size_bytes(&self) -> u64 {
            self.inner.size_bytes()
        }

        fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
            self.inner.read(offset, buf)
        }

        fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
            self.of.get().and_then(Weak::upgrade).into_iter().for_each(|core| core.worker.stop());
            self.inner.write(offset, data)
        }
    }

    /// A full cache that is to have a limit of a few pages.
    fn cache() -> (Zswap, Arc<EndingDisk>) {
        let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
        let inner = RamDisk::new(64 << 20).expect("a size");
        let disk = Arc::new(EndingDisk { inner, of: OnceLock::new() });
        let backing = Some(Arc::clone(&disk) as Arc<dyn Disk>);
        let config = ZswapConfig { backing, limit: Limit::None, ..ZswapConfig::new("ending") };
        let zswap = Zswap::new(memory, config).expect("a cache");
        (zswap, disk)
    }

    #[test]
    fn the_worker_ends_with_pages_left_to_write() {
        let (zswap, disk) = cache();
        let area = zswap.add_area(PAGES).expect("room");
        for at in 0..PAGES {
            let page: Vec<u8> = (0..PAGE_SIZE as u64).map(|byte| (at ^ (byte % 7)) as u8).collect();
            area.store(at, &page, GroupId::ROOT).expect("room");
        }
        zswap.set_limit(Limit::Bytes(PAGE_SIZE as u64)).expect("a limit");
        disk.of.get_or_init(|| Arc::downgrade(&zswap.core));
        zswap.core.shrink_in_background();
        let written = zswap.stat().written_back_pages;
        assert!((1..=STORE_PAGES_MAX).contains(&written), "{written} pages");
        zswap.core.shrink_in_background();
        assert_eq!(zswap.stat().written_back_pages, written, "it has ended");
        zswap.shrink_to(0);
        assert_eq!(zswap.stat().written_back_pages, PAGES, "who asks for it goes on");
    }
}
