//! Threads that no C library knows, which we call strands: their stacks, and what is theirs alone.
//!
//! ```text
//!   512 KiB, aligned   | Strand | thread-local storage | guard | ........ stack |
//! ```
//!
//! A strand finds its block by its stack pointer. So nothing of ours asks for the thread-local
//! storage of the C library that the program has, and a strand works in any program.
//!
//! Invariant: our code runs on blocks of this kind, except what threads of the program run:
//! `start`, `gate`, and what these use.
//!
//! Lock: none.

use super::call::call;
use super::{pristine, yard};
use core::arch::{asm, naked_asm};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use host::PAGE_SIZE as PAGE;

/// Bytes of a block; a power of two, because the stack pointer is rounded down to it.
const BLOCK: usize = 512 << 10;
/// Bytes below the guard page: the strand's own and its thread-local storage.
const LOWER: usize = 64 << 10;
const LOCAL_ALIGN: usize = 64;

const _: () = assert!(BLOCK.is_power_of_two() && LOWER + PAGE < BLOCK, "a stack above the guard");

/// What a strand has to itself.
#[repr(C)]
pub(crate) struct Strand {
    pub(crate) errno: i32,
    /// Where its copy of our thread-local storage begins.
    pub(crate) local: usize,
}

/// The strand that runs.
pub(crate) fn current() -> *mut Strand {
    let stack: usize;
    // SAFETY: it reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) stack, options(nomem, nostack, preserves_flags)) };
    (stack & !(BLOCK - 1)) as *mut Strand
}

/// A new block. Returns the top of its stack; `None` if the system has no memory.
pub(crate) fn new() -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let mapped = unsafe { yard::map(0, 2 * BLOCK, access, flags, -1, 0) };
    if mapped <= 0 {
        return None;
    }
    let base = (mapped as usize).next_multiple_of(BLOCK);
    // SAFETY: a page of the new mapping that nothing uses.
    unsafe { call(libc::SYS_mprotect, [base + LOWER, PAGE, 0, 0, 0, 0]) };
    let local = base + size_of::<Strand>().next_multiple_of(LOCAL_ALIGN);
    // SAFETY: the block is new, zeroed and ours, and has room for both.
    unsafe {
        (base as *mut Strand).write(Strand { errno: 0, local });
        copy_local(local, base + LOWER - local)?;
    }
    Some(base + BLOCK)
}

/// The blocks of the strands of this process, and those of its parent's in an heir.
static BLOCKS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static OLD: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Starts a strand that runs `work`. False if the system has no thread.
pub(crate) fn spawn(work: extern "C" fn()) -> bool {
    spawn_watched(work, core::ptr::null(), 0)
}

/// The same. At the end of the strand the kernel makes `word` 0 and wakes those that wait there.
pub(crate) fn spawn_until(work: extern "C" fn(), word: &'static AtomicU32) -> bool {
    // relaxed: the strand is made after this.
    word.store(1, Ordering::Relaxed);
    let started = spawn_watched(work, word.as_ptr(), libc::CLONE_CHILD_CLEARTID);
    if !started {
        // relaxed: nobody else looks at it.
        word.store(0, Ordering::Relaxed);
    }
    started
}

/// In a child: the strands of the parent, of which it has the blocks, are none of its own.
pub(crate) fn disown() {
    for (old, block) in OLD.iter().zip(&BLOCKS) {
        // relaxed: there is one thread.
        old.store(block.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Gives back the memory of blocks of strands that are not ours.
pub(crate) fn drop_old() {
    for old in &OLD {
        // relaxed: one strand does this, which the thread has made that wrote the words.
        let block = old.swap(0, Ordering::Relaxed);
        if block != 0 {
            // SAFETY: no strand of this process runs on the block, and nothing refers to it.
            unsafe { yard::unmap(block, BLOCK) };
        }
    }
}

fn spawn_watched(work: extern "C" fn(), word: *const u32, more: i32) -> bool {
    let Some(top) = new() else { return false };
    for block in &BLOCKS {
        let (free, mine) = (0, top - BLOCK);
        // relaxed: the word stands alone.
        if block.compare_exchange(free, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | more;
    // SAFETY: the block is new, and is the strand's alone; the word lives as long as the process.
    unsafe { start(flags as usize, top, work, word) > 0 }
}

/// # Safety
///
/// `top` is the end of a new block.
#[unsafe(naked)]
unsafe extern "C" fn start(
    flags: usize,
    top: usize,
    work: extern "C" fn(),
    word: *const u32,
) -> isize {
    naked_asm!(
        "push r12",
        "mov r12, rdx",
        "xor edx, edx",
        "mov r10, rcx",
        "xor r8d, r8d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "pop r12",
        "ret",
        "2:",
        "xor ebp, ebp",
        "call r12",
        "xor edi, edi",
        "mov eax, {exit}",
        "syscall",
        clone = const libc::SYS_clone,
        exit = const libc::SYS_exit,
    )
}

/// Copies the first state of our thread-local storage, which the linker has put in our file, to
/// `at`, which has `room` zeroed bytes. `None` if they are too few.
///
/// # Safety
///
/// Nothing else uses the bytes from `at` on.
unsafe fn copy_local(at: usize, room: usize) -> Option<()> {
    let (base, headers) = pristine::headers();
    let Some(local) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else {
        return Some(());
    };
    if local.p_memsz as usize > room || local.p_align > LOCAL_ALIGN as u64 {
        return None;
    }
    let from = (base + local.p_vaddr as usize) as *const u8;
    // SAFETY: the segment is mapped; the caller gives the room.
    unsafe { core::ptr::copy_nonoverlapping(from, at as *mut u8, local.p_filesz as usize) };
    Some(())
}
