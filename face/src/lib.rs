//! Compressed memory as a library: regions whose cold pages are kept compressed, compressed disks
//! in memory, and a dense store of small objects.
//!
//! It is the compressed-memory stack of the Linux kernel (zsmalloc, the page allocator under it,
//! zram and zswap) inside a program. It needs no module, no swap and no privilege.
//!
//! ```text
//!   a program's data                 module      type
//!   ------------------------------   ---------   ------------------------
//!   a large vector or array          region      RegionVec, Region
//!   sectors of a block device        zram        Zram, which is a Disk
//!   pages in front of a slow disk    zswap       Zswap
//!   many small objects               zsmalloc    Pool, PoolBox
//! ```
//!
//! Invariant: this crate defines no type and no function. Every item is one of the crate that its
//! module is named after, and that crate keeps the item's invariants.
//!
//! # Memory that folds
//!
//! A [`RegionVec`](region::RegionVec) is used as a slice. At most `resident_limit` bytes of it stay
//! in memory as they are; the rest is compressed until it is touched. This needs no privilege. It
//! is fastest with userfaultfd of Linux 6.8, and works without it.
//!
//! ```no_run
//! use ramfold::prelude::*;
//!
//! let memory = Memory::new(MemoryConfig::for_disk(1 << 30))?;
//! let pager = Pager::new(memory, &PagerConfig::default())?;
//! let config = RegionConfig { resident_limit: Some(256 << 20), ..RegionConfig::default() };
//! let mut words = RegionVec::<u64>::with_room(&pager, 128 << 20, &config)?;
//! words.push(7)?;
//! assert_eq!(words[0], 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A compressed disk
//!
//! A [`Zram`](zram::Zram) is a [`Disk`](disk::Disk): byte ranges are read, written and discarded.
//! It has the figures of the kernel's zram. [`Devices`](zram::Devices) have its attributes, too.
//!
//! ```
//! use ramfold::prelude::*;
//!
//! let size = 64 << 20;
//! let memory = Memory::new(MemoryConfig::for_disk(size))?;
//! let disk = Zram::new(memory, ZramConfig::new("scratch", size))?;
//! let mut page = [7; 4096];
//! disk.write(0, &page)?;
//! disk.read(0, &mut page)?;
//! assert_eq!(page, [7; 4096]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A store of small objects
//!
//! A [`Pool`](zsmalloc::Pool) packs objects of up to 4096 bytes densely, and
//! [compacts](zsmalloc::Pool::compact) what is left after frees. It does not compress: a
//! [`Codec`](codec::Codec) does.
//!
//! ```
//! use ramfold::prelude::*;
//!
//! let memory = Memory::new(MemoryConfig::for_disk(64 << 20))?;
//! let pool = Pool::new(memory, PoolConfig::default())?;
//! let handle = pool.alloc(b"some bytes")?;
//! assert_eq!(*pool.read(&handle)?, b"some bytes"[..]);
//! pool.free_handle(handle)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `serve` | the module `serve`: an NBD server, a mounted tree (FUSE) and a control socket |
//! | `study` | modules `study` in `buddy`, `zsmalloc` and `zram`: designs for studies |

#![forbid(unsafe_code)]

/// The page allocator: frames as numbers, and the kernel's tables of them.
pub use buddy;
/// Compression of pages.
pub use codec;
/// What a block device is, with a suite that every disk passes.
pub use disk;
/// Memory whose cold pages are kept compressed.
pub use region;
/// The doors of a disk: NBD, a mounted tree, a control socket.
#[cfg(feature = "serve")]
pub use serve;
/// A compressed disk in memory.
pub use zram;
/// A dense allocator of small objects.
pub use zsmalloc;
/// A compressed cache of pages in front of a disk.
pub use zswap;

/// What most programs use: `use ramfold::prelude::*;`.
pub mod prelude {
    pub use codec::{Algorithm, Codec};
    pub use disk::{Disk, DiskError};
    pub use region::{Pager, PagerConfig, Region, RegionConfig, RegionVec};
    pub use zram::{Zram, ZramConfig};
    pub use zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
}

/// The examples of the documents, which `cargo test --doc` compiles and runs.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/region.md")]
    struct RegionDocument;
}
