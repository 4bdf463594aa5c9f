//! Settings that keep the heap of the C library close to what is in use.
//!
//! The GNU library asks the system for each large block by itself, and gives it back when it is
//! freed. But each such free raises the size that counts as large, up to 32 MiB. From then on
//! blocks come from arenas, of which there are eight for each processor, and an arena keeps what is
//! freed. A server that once had large buffers then holds memory that nobody counts.
//!
//! Invariant: only settings change, never a block. Lock: that of the allocator. Source:
//! `mallopt(3)`.

/// Fixes the size of a large block (128 KiB), what an arena keeps (128 KiB), and the number of
/// arenas (4). A program calls it before it starts threads; a library should not, because the heap
/// is the program's. False means that the C library has no such settings, or refuses them.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
pub fn bound_heap() -> bool {
    /// From this size on a block is the system's, and goes back to it.
    const BLOCK_BYTES: libc::c_int = 128 << 10; // 128 KiB
    /// An arena keeps no more than this at its end.
    const KEPT_BYTES: libc::c_int = 128 << 10; // 128 KiB
    /// Arenas that threads share: more are for allocating in parallel, which servers hardly do.
    const ARENAS: libc::c_int = 4;
    let settings = [
        (libc::M_MMAP_THRESHOLD, BLOCK_BYTES),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        (libc::M_ARENA_MAX, ARENAS),
    ];
    settings.iter().all(|&(name, value)| {
        // SAFETY: changes numbers of the allocator, under its own lock.
        unsafe { libc::mallopt(name, value) == 1 }
    })
}

/// The same where there is nothing to set.
#[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
pub fn bound_heap() -> bool {
    false
}
