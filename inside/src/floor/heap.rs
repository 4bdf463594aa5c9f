//! Our own heap: blocks of powers of two, with a list of free ones for each.
//!
//! ```text
//!   block   | base, class | ....... what the caller uses ....... |
//!                          ^ aligned as asked
//! ```
//!
//! The program's `malloc` cannot be ours, because its memory folds, and because its locks may be
//! held by a thread that waits for us. Little is allocated here: contexts of the codecs, tables of
//! the store.
//!
//! Invariant: a block is in one list, or in use. A large block in a list has no memory.
//!
//! Lock: one for all lists. Nothing is called under it but the system.

use super::call::call;
use super::yard;
use core::ptr;
use host::PAGE_SIZE as PAGE;
use std::sync::Mutex;

/// Bytes before what the caller uses.
const HEAD: usize = 16;
const CLASS_MIN: u32 = 5;
const CLASSES: usize = 40;

const _: () = assert!(1 << CLASS_MIN >= 2 * HEAD, "the smallest block has room behind its head");
const _: () = assert!(1 << CLASS_LARGE >= PAGE, "a large block is whole pages");

/// Blocks of this class and larger ones are mapped alone, and give their memory back when they
/// are freed.
const CLASS_LARGE: u32 = 16;
/// Small blocks are cut from pieces of this size.
const PIECE: usize = 256 << 10;

struct Heap {
    /// Addresses of the first free block of each class; 0 means none.
    free: [usize; CLASSES],
    piece: usize,
    piece_left: usize,
}

static HEAP: Mutex<Heap> = Mutex::new(EMPTY);

const EMPTY: Heap = Heap { free: [0; CLASSES], piece: 0, piece_left: 0 };

fn lock() -> std::sync::MutexGuard<'static, Heap> {
    HEAP.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// `len` bytes at a multiple of `align`, a power of two; null if there is no memory.
pub(crate) fn take(len: usize, align: usize) -> *mut u8 {
    let Some(whole) = len.checked_add(HEAD + align.max(HEAD)) else { return ptr::null_mut() };
    let class = whole.max(1 << CLASS_MIN).next_power_of_two().trailing_zeros();
    if class as usize >= CLASSES {
        return ptr::null_mut();
    }
    let base = lock().take(class);
    if base == 0 {
        return ptr::null_mut();
    }
    let place = (base + HEAD).next_multiple_of(align.max(HEAD));
    // SAFETY: the block is the caller's alone, and has the room by the sum above.
    unsafe { ((place - HEAD) as *mut [usize; 2]).write([base, class as usize]) };
    place as *mut u8
}

/// Bytes that the block at `place` has for its user.
///
/// # Safety
///
/// `place` came from [`take`], and is in use.
pub(crate) unsafe fn len(place: *mut u8) -> usize {
    // SAFETY: `take` has written both words.
    let [base, class] = unsafe { place.sub(HEAD).cast::<[usize; 2]>().read() };
    base + (1 << class) - place as usize
}

/// Takes a block back.
///
/// # Safety
///
/// `place` came from [`take`], and nothing uses it any more.
pub(crate) unsafe fn give(place: *mut u8) {
    // SAFETY: `take` has written both words.
    let [base, class] = unsafe { place.sub(HEAD).cast::<[usize; 2]>().read() };
    if class as u32 >= CLASS_LARGE {
        let arguments = [base, 1 << class, libc::MADV_DONTNEED as usize, 0, 0, 0];
        // SAFETY: the block is whole pages, and nothing uses it.
        unsafe { call(libc::SYS_madvise, arguments) };
    }
    let mut heap = lock();
    // SAFETY: the block is ours again.
    unsafe { (base as *mut usize).write(heap.free[class]) };
    heap.free[class] = base;
}

impl Heap {
    /// The address of a block; 0 if there is no memory.
    fn take(&mut self, class: u32) -> usize {
        let first = self.free[class as usize];
        if first == 0 {
            return self.cut(1 << class);
        }
        // SAFETY: a free block begins with the address of the next.
        self.free[class as usize] = unsafe { (first as *const usize).read() };
        first
    }

    fn cut(&mut self, len: usize) -> usize {
        if len >= 1 << CLASS_LARGE {
            return map(len);
        }
        if self.piece_left < len {
            self.piece = map(PIECE);
            self.piece_left = if self.piece == 0 { 0 } else { PIECE };
        }
        if self.piece_left < len {
            return 0;
        }
        let block = self.piece;
        self.piece += len;
        self.piece_left -= len;
        block
    }
}

fn map(len: usize) -> usize {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let mapped = unsafe { yard::map(0, len, access, flags, -1, 0) };
    if mapped > 0 { mapped as usize } else { 0 }
}
