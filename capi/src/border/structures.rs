//! The structures of `ramfold.h`, member for member.
//!
//! Invariant: a member never moves and never changes its meaning. New members are added at the end,
//! and zero stands for what was before there was the member.

use super::pointers::Structure;
use std::ffi::{c_char, c_void};

/// Each structure: its members after the size, and the bytes that the header asserts too.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident($bytes:literal) { $($member:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            pub(super) size: usize,
            $(pub(super) $member: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $bytes, "as the header has it");

        // SAFETY: it is `repr(C)`, all members have 8 bytes and any value, and `size` is the first.
        unsafe impl Structure for $name {
            fn set_size(&mut self, size: usize) {
                self.size = size;
            }
        }
    )*};
}

structures! {
    /// `ramfold_memory_config`.
    MemorySettings(48) {
        region_bytes: u64,
        values_max: u64,
        arena_bytes: u64,
        expected_bytes: u64,
        no_worker: u64,
    }
    /// `ramfold_memory_stats`.
    MemoryFigures(40) {
        mapped_bytes: u64,
        free_bytes: u64,
        metadata_bytes: u64,
        pending_bytes: u64,
    }
    /// `ramfold_pool_config`.
    PoolSettings(40) {
        codec: *const c_char,
        dictionary: *mut c_void,
        limit_bytes: u64,
        chain_frames: u64,
    }
    /// `ramfold_pool_stats`.
    PoolFigures(64) {
        values: u64,
        value_bytes: u64,
        objects: u64,
        object_bytes: u64,
        resident_bytes: u64,
        overhead_bytes: u64,
        pages_compacted: u64,
    }
    /// `ramfold_pager_config`.
    PagerSettings(24) {
        fault_mode: u64,
        staging_bytes: u64,
    }
    /// `ramfold_region_config`.
    RegionSettings(56) {
        name: *const c_char,
        codec: *const c_char,
        resident_limit: u64,
        store_limit: u64,
        element_bytes: u64,
        density: u64,
    }
    /// `ramfold_region_stats`.
    RegionFigures(112) {
        bytes: u64,
        resident_bytes: u64,
        staged_bytes: u64,
        stored_bytes: u64,
        unwatched_bytes: u64,
        compressed_bytes: u64,
        metadata_bytes: u64,
        limit_bytes: u64,
        faults: u64,
        refaults: u64,
        pages_in: u64,
        pages_out: u64,
        pages_refused: u64,
    }
}
