//! Memory that another process lends, and may take away while it is in use.
//!
//! ```text
//!   touch of a page that its file no longer has --> SIGBUS --> zeros over the whole mapping,
//!                                                              and the memory is lost
//! ```
//!
//! The memory of a virtual machine is a file that its process has open, too. A process that makes
//! the file shorter takes pages away, and so does a file system of memory that is full. A touch
//! of such a page is a SIGBUS, which ends a process that does not handle it. Here the touch goes
//! on, with zeros.
//!
//! Invariants
//! - L1. The range that is served is that of the mapping, which stays until the watch is over.
//! - L2. A memory that shows a zero in place of what it had is lost by then. So bytes are those of
//!   the other process if the memory is not lost after they were copied.
//!
//! Lock: none. Entering the table takes the table's.

use super::regions::{Asker, Served, Server, Watch};
use super::signal::watch;
use crate::folding::{FaultError, FaultMode};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use vm_memory::MmapRegion;

/// Memory of another process that is watched until this is dropped.
pub struct Lent {
    // It is dropped before the mapping can be (L1).
    _watch: Watch<'static>,
    mapping: Arc<Lending>,
}

/// What a touch finds.
struct Lending {
    mapping: Arc<MmapRegion>,
    is_lost: AtomicBool,
}

// SAFETY: `serve` stores a flag and calls `mmap`, which is a plain system call. It takes no lock,
// allocates nothing and does not panic.
unsafe impl Server for Lending {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let start = self.mapping.as_ptr();
        if !(start.addr()..start.addr() + self.mapping.size()).contains(&address) {
            return Served::Foreign;
        }
        // Release pairs with the Acquire in `is_lost`, so that a thread that copied a zero from
        // the mapping below sees the loss (L2).
        self.is_lost.store(true, Ordering::Release);
        let (access, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
        );
        // The whole range, because a file may have larger pages, which are replaced as a whole.
        // SAFETY: the range is that of a mapping which is ours (L1), and which is accessed as
        // memory that other processes change at any time. It stays readable and writable.
        match unsafe { mmap_anonymous(start.cast(), self.mapping.size(), access, flags) } {
            Ok(_) => Served::Filled,
            // The signal ends the process, as without us.
            Err(_) => Served::Foreign,
        }
    }
}

impl Lent {
    /// Watches a mapping of a file that another process has, too.
    ///
    /// # Errors
    ///
    /// If there are [`REGIONS_MAX`](super::REGIONS_MAX) regions already, or the system refuses the
    /// signal handler.
    pub fn watch(mapping: Arc<MmapRegion>) -> Result<Lent, FaultError> {
        let start = mapping.as_ptr().addr();
        let range = start..start + mapping.size();
        let mapping = Arc::new(Lending { mapping, is_lost: AtomicBool::new(false) });
        let _watch = watch(range, FaultMode::Signal, mapping.clone())?;
        Ok(Lent { _watch, mapping })
    }

    /// Whether some of it was taken away. What was copied from it before this says no is what the
    /// other process had there.
    pub fn is_lost(&self) -> bool {
        // Acquire pairs with the Release in `serve`, so that zeros are never taken for the other
        // process's bytes (L2). The fence keeps what was copied before the look at the flag.
        fence(Ordering::Acquire);
        // relaxed: the fence orders it.
        self.mapping.is_lost.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::File;
    use vm_memory::{Bytes, FileOffset, VolatileMemory};

    const LEN: usize = 1 << 20;

    fn file() -> File {
        let file = File::from(memfd_create("lent", MemfdFlags::CLOEXEC).expect("a memory file"));
        file.set_len(LEN as u64).expect("it grows");
        file
    }

    fn mapped(file: &File) -> Arc<MmapRegion> {
        let file = file.try_clone().expect("another descriptor");
        Arc::new(MmapRegion::from_file(FileOffset::new(file, 0), LEN).expect("a mapping"))
    }

    fn byte(mapping: &MmapRegion, at: usize) -> u8 {
        mapping.as_volatile_slice().read_obj(at).expect("it is in the mapping")
    }

    #[test]
    fn a_page_that_is_cut_off_is_zeros_and_the_memory_is_lost() {
        let (file, other) = (file(), file());
        let (mapping, kept) = (mapped(&file), mapped(&other));
        let (lent, unhurt) = (Lent::watch(mapping.clone()), Lent::watch(kept.clone()));
        let (lent, unhurt) = (lent.expect("a watch"), unhurt.expect("a watch"));
        for mapping in [&mapping, &kept] {
            mapping.as_volatile_slice().write_obj(7_u8, LEN - 1).expect("it is mapped");
        }
        assert_eq!((byte(&mapping, LEN - 1), lent.is_lost()), (7, false));
        file.set_len(4096).expect("it shrinks");
        assert_eq!((byte(&mapping, 0), lent.is_lost()), (0, false), "this page is still there");
        assert_eq!((byte(&mapping, LEN - 1), lent.is_lost()), (0, true));
        mapping.as_volatile_slice().write_obj(9_u8, 5000).expect("it is mapped");
        assert_eq!(byte(&mapping, 5000), 9, "it can be written");
        assert_eq!((byte(&kept, LEN - 1), unhurt.is_lost()), (7, false), "another one");
        other.set_len(4096).expect("it shrinks");
        assert_eq!(
            (byte(&kept, LEN - 1), unhurt.is_lost()),
            (0, true),
            "the handler is still there"
        );
    }

    #[test]
    fn a_watch_that_is_over_leaves_its_place() {
        let file = file();
        for _ in 0..2 * super::super::REGIONS_MAX {
            let mapping = mapped(&file);
            let lent = Lent::watch(mapping.clone()).expect("there is a place");
            drop(lent);
            assert_eq!(Arc::strong_count(&mapping), 1, "the mapping is let go");
        }
    }
}
