//! How our threads behave in a program: they have descriptors and a name of their own, and run soon
//! when they wake.
//!
//! Lock: none.

use crate::arena;
use crate::floor::call;

/// A table of descriptors of our own. The program's are closed in it, so that a pipe ends when the
/// program closes its end, and the program cannot close ours. Files of the arena stay.
pub(super) fn leave_descriptors() {
    const UNSHARE: usize = 1 << 1;
    for (first, last) in arena::without_ours(0, u32::MAX) {
        // SAFETY: the table that is changed is this thread's own from now on, and what is closed in
        // it nobody uses.
        unsafe {
            call::call(libc::SYS_close_range, [first as usize, last as usize, UNSHARE, 0, 0, 0])
        };
    }
    // Nor do we share root and working directory, which `setns` of the program would mind.
    let shared = [libc::CLONE_FS as usize, 0, 0, 0, 0, 0];
    // SAFETY: as above.
    unsafe { call::call(libc::SYS_unshare, shared) };
}

/// Has the system let this thread run soon when it wakes, and not for long (Linux 6.12). It is late
/// if threads of the program use all CPUs, and they fill memory meanwhile.
pub(super) fn be_prompt() {
    const SLICE: u64 = 100_000; // 100 us, the least that the system takes
    /// `struct sched_attr` of sched_setattr(2), in its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let mut attributes = Attributes::default();
    let (at, len) = ((&raw mut attributes).expose_provenance(), size_of::<Attributes>());
    // SAFETY: the structure is as long as the call is told, and lives as long as it runs.
    let got = unsafe { call::call(libc::SYS_sched_getattr, [0, at, len, 0, 0, 0]) };
    if got < 0 || attributes.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    // Volatile, because the system reads it by an address that the compiler does not follow.
    // SAFETY: it is the structure's own field.
    unsafe { (&raw mut attributes.runtime).write_volatile(SLICE) };
    // SAFETY: as above. A system that refuses changes nothing.
    unsafe { call::call(libc::SYS_sched_setattr, [0, at, 0, 0, 0, 0]) };
}

pub(super) fn name(name: &str) {
    let mut text = [0u8; 16];
    text[..name.len()].copy_from_slice(name.as_bytes());
    let arguments = [libc::PR_SET_NAME as usize, text.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the name lives as long as the call runs.
    unsafe { call::call(libc::SYS_prctl, arguments) };
}
