//! The gate that a fork passes: parent and child go on when the child has all of its memory.
//!
//! ```text
//!   before the fork   the gate page is taken away                    so a touch of it is a fault
//!   the fork          the kernel tells our server, which brings in what the child misses
//!   after it          both touch the gate; the server puts the open page there when it is done
//!                     a child that finds another page there has lost its parent, and ends
//! ```
//!
//! The handlers run on threads of the program and on their stacks, between functions of its C
//! library. They use nothing but system calls and words of their own.
//!
//! A handler of a signal may fork in the middle of a fork. Its fork passes the gate like any other,
//! and leaves the gate closed for the one around it.
//!
//! A program that forks without its C library's `fork` passes no gate. Its child is served all the
//! same, as long as the parent lives.
//!
//! Invariant: `ARMED` changes only under `TURN`. A fork has `TURN` from its first handler to its
//! last.
//!
//! Lock: `TURN`. In a child it is free, because all our variables are put back there.

use super::call::call;
use super::turn::{Taken, Turn};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use host::PAGE_SIZE as PAGE;

/// The first byte of the open page.
const OPEN: u8 = 0xa5;

static TURN: Turn = Turn::new();
/// Memory of this process is registered.
static ARMED: AtomicU32 = AtomicU32::new(0);
/// The process that folds with these words. A child that was made without `fork` is another.
static HOME: AtomicU32 = AtomicU32::new(0);
/// The fork that is under way is of a process whose memory is registered.
static PASSING: AtomicU32 = AtomicU32::new(0);
/// Forks by handlers of signals, in the middle of a fork of the thread that has the turn.
static INNER: AtomicU32 = AtomicU32::new(0);
/// The gate, and the page after it.
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

static OPEN_PAGE: [u8; PAGE] = [OPEN; PAGE];

/// The content of the gate when it is open.
pub(crate) fn open_page() -> &'static [u8] {
    &OPEN_PAGE
}

/// The address of the gate page, if there is one.
pub(crate) fn address() -> Option<usize> {
    // relaxed: it is written before there are threads of ours.
    Some(ADDRESS.load(Ordering::Relaxed)).filter(|&address| address != 0)
}

/// Whether the page at an address is the gate.
pub(crate) fn is(address: usize) -> bool {
    self::address() == Some(address)
}

/// Makes the gate of this process. False if the system has no memory. A forked child keeps the page
/// of its parent.
pub(crate) fn make(inherited: Option<usize>) -> bool {
    // relaxed: there is one thread.
    HOME.store(pid(), Ordering::Relaxed);
    if let Some(address) = inherited {
        // relaxed: as above.
        ADDRESS.store(address, Ordering::Relaxed);
        return true;
    }
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // It is not in the yard, because a child has it.
    // SAFETY: a new mapping at an address that the kernel chooses.
    let gate = unsafe { call(libc::SYS_mmap, [0, 2 * PAGE, access, flags, usize::MAX, 0]) };
    // relaxed: as above.
    ADDRESS.store(gate.max(0) as usize, Ordering::Relaxed);
    gate > 0
}

/// A page beside the gate, for a note that children find. It has zeros at first. It is lent once.
pub(crate) fn note() -> Option<&'static mut [u8]> {
    static LENT: AtomicU32 = AtomicU32::new(0);
    // relaxed: only the first one gets it.
    let address = address().filter(|_| LENT.swap(1, Ordering::Relaxed) == 0)? + PAGE;
    // SAFETY: the page is mapped as long as the process lives, and lent once.
    Some(unsafe { core::slice::from_raw_parts_mut(address as *mut u8, PAGE) })
}

/// Does `arm`, after which forks pass the gate, unless a fork is under way or `arm` fails.
pub(crate) fn arm(arm: impl FnOnce() -> bool) -> bool {
    if !TURN.try_take(thread()) {
        return false;
    }
    let armed = arm();
    // relaxed: under the lock.
    ARMED.fetch_or(u32::from(armed), Ordering::Relaxed);
    TURN.give();
    armed
}

/// Called before a fork, by the thread that forks.
pub(crate) extern "C" fn before() {
    if !is_home() {
        // Our words are a copy of another process's, taken at any moment.
        // relaxed: of this process alone, which does not fold.
        PASSING.store(0, Ordering::Relaxed);
        return;
    }
    if TURN.take(thread()) == Taken::Before {
        // A signal's handler forks in the middle of a fork.
        // relaxed: this thread alone changes it while it has the turn.
        INNER.fetch_add(1, Ordering::Relaxed);
    }
    // relaxed, both: under the lock.
    PASSING.store(ARMED.load(Ordering::Relaxed), Ordering::Relaxed);
    close();
}

/// Called after a fork, in the parent.
pub(crate) extern "C" fn after() {
    if !is_home() {
        return;
    }
    pass();
    // relaxed: this thread has the turn.
    if INNER.load(Ordering::Relaxed) > 0 {
        // The fork around this one may be to come, and its child must find the gate closed.
        close();
        // relaxed: as above.
        INNER.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    TURN.give();
}

/// Takes the gate page away, if the fork passes the gate.
fn close() {
    // relaxed: under the lock.
    let passing = PASSING.load(Ordering::Relaxed) == 1;
    if let Some(address) = address().filter(|_| passing) {
        let arguments = [address, PAGE, libc::MADV_DONTNEED as usize, 0, 0, 0];
        // SAFETY: the page is the gate, whose content nobody needs.
        unsafe { call(libc::SYS_madvise, arguments) };
    }
}

/// Whether this is the process that folds with these words.
fn is_home() -> bool {
    // relaxed: it is written before there are threads.
    HOME.load(Ordering::Relaxed) == pid()
}

/// Called after a fork, in the child, whose only thread it is. False if the child's memory is lost.
pub(crate) fn is_whole() -> bool {
    pass()
}

/// Waits until the server opens the gate. False if there is no server any more.
fn pass() -> bool {
    // relaxed: under the lock, or in the child's only thread.
    let passing = PASSING.load(Ordering::Relaxed) == 1;
    let Some(address) = address().filter(|_| passing) else { return true };
    // SAFETY: the page is mapped; the kernel puts what the server gives there, or zeros.
    unsafe { (address as *const u8).read_volatile() == OPEN }
}

fn thread() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

fn pid() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}
