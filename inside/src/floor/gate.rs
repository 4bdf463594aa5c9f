//! The gate that a fork passes: parent and child go on when the child's memory is safe.
//!
//! ```text
//!   pages    | gate | plea | threshold | note |     the first three are registered
//!
//!   before   closes the three; asks our strands to be still; waits for the pager; touches the
//!            threshold, which the server fills when it is in order
//!   fork     the kernel tells our server, which has a descriptor for the child from now on
//!   after    parent: touches the gate, which opens when the child needs its parent no more
//!            child: touches the gate if it can go on with its copy of our memory: it is the heir
//!                   touches the plea if it cannot: the server brings in all that it misses
//! ```
//!
//! What a child finds in the page that it touched is the answer: it is the heir, or it has all of
//! its memory. If it finds another page it has lost its parent, and ends.
//!
//! The handlers run on threads of the program and on their stacks, between functions of its C
//! library. They use nothing but system calls and words of their own.
//!
//! A handler of a signal may fork in the middle of a fork. Its fork passes the gate like any other,
//! and leaves the gate closed for the one around it, in the parent and in the heir.
//!
//! A program that forks without its C library's `fork` passes no gate. Its child is served all the
//! same, as long as the parent lives.
//!
//! Invariant: `ARMED` changes only under `TURN`. A fork has `TURN` from its first handler to its
//! last.
//!
//! Lock: `TURN`. In a child it is free, or that of the fork around this one.

use super::call::call;
use super::still::{STILL, Who};
use super::turn::{Taken, Turn};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use host::PAGE_SIZE as PAGE;

/// The first byte of the open page, which a child finds that has all of its memory.
const OPEN: u8 = 0xa5;
/// The first byte of the page that an heir finds.
const HEIR: u8 = 0x5a;

/// Words of an heir's page: the first byte, a number, and so many addresses.
const WORDS: usize = PAGE / size_of::<usize>(); // 512
/// Addresses that an heir's page has room for.
pub(crate) const EARLY_MAX: usize = WORDS - 2; // 510

/// Bytes of the pages that are closed while a fork goes on.
const CLOSED: usize = 3 * PAGE; // 12 KiB

static TURN: Turn = Turn::new();
/// Memory of this process is registered.
static ARMED: AtomicU32 = AtomicU32::new(0);
/// The process that folds with these words. A child that was made without `fork` is another.
static HOME: AtomicU32 = AtomicU32::new(0);
/// The fork that is under way is of a process whose memory is registered.
static PASSING: AtomicU32 = AtomicU32::new(0);
/// Forks by handlers of signals, in the middle of a fork of the thread that has the turn.
static INNER: AtomicU32 = AtomicU32::new(0);
/// The gate, and the pages after it.
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

/// The pages that are closed while a fork goes on.
pub(crate) fn closed() -> Option<core::ops::Range<usize>> {
    address().map(|address| address..address + CLOSED)
}

/// All pages of ours that are not in the yard.
pub(crate) fn pages() -> core::ops::Range<usize> {
    address().map_or(0..0, |address| address..address + CLOSED + PAGE)
}

/// Whether the page at an address is the gate.
pub(crate) fn is(address: usize) -> bool {
    self::address() == Some(address)
}

/// Whether the page at an address is the plea.
pub(crate) fn is_plea(address: usize) -> bool {
    plea() == Some(address)
}

/// Whether the page at an address is the threshold.
pub(crate) fn is_threshold(address: usize) -> bool {
    self::address().map(|gate| gate + 2 * PAGE) == Some(address)
}

/// The address of the page by which a child asks for all of its memory.
pub(crate) fn plea() -> Option<usize> {
    address().map(|gate| gate + PAGE)
}

/// What the gate has for an heir: the pages that it got before it touched the gate, at most
/// `EARLY_MAX`.
pub(crate) fn heirs_page(early: &[usize]) -> [usize; WORDS] {
    let mut page = [0; WORDS];
    page[0] = usize::from(HEIR);
    page[1] = early.len();
    page[2..2 + early.len()].copy_from_slice(early);
    page
}

/// The addresses in the page that this heir has found.
pub(crate) fn early() -> &'static [usize] {
    let Some(address) = address() else { return &[] };
    // SAFETY: the heir has read the page, which stays until its next fork.
    let words = unsafe { &*(address as *const [usize; WORDS]) };
    &words[2..2 + words[1].min(EARLY_MAX)]
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
    let gate = unsafe { call(libc::SYS_mmap, [0, CLOSED + PAGE, access, flags, usize::MAX, 0]) };
    // relaxed: as above.
    ADDRESS.store(gate.max(0) as usize, Ordering::Relaxed);
    gate > 0
}

/// Writes a text to the page after the gate, where this process and its children find it. Called
/// once, before any strand. One that does not fit is none.
pub(crate) fn write_note(text: &[u8]) {
    if let Some(address) = address()
        && text.len() < PAGE
    {
        // SAFETY: the page was made with the gate, has zeros, and nobody reads it yet.
        unsafe {
            let page = (address + CLOSED) as *mut u8;
            core::ptr::copy_nonoverlapping(text.as_ptr(), page, text.len());
        }
    }
}

/// The text on the page after the gate; `None` if there is none.
pub(crate) fn note() -> Option<&'static [u8]> {
    let page = (address()? + CLOSED) as *const u8;
    // SAFETY: the page is mapped as long as the process lives, and nobody writes to it any more.
    let page = unsafe { core::slice::from_raw_parts(page, PAGE) };
    let len = page.iter().position(|&byte| byte == 0)?;
    (len > 0).then(|| &page[..len])
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
    // relaxed: under the lock.
    PASSING.store(ARMED.load(Ordering::Relaxed), Ordering::Relaxed);
    close();
    settle();
}

/// Waits until our strands have put everything in order.
fn settle() {
    // relaxed: under the lock.
    let passing = PASSING.load(Ordering::Relaxed) == 1;
    let Some(gate) = address().filter(|_| passing) else { return };
    STILL.ask(thread());
    STILL.wait_for(Who::Pager);
    // SAFETY: the page is mapped. The server fills it when it rests and no news is unread.
    unsafe { ((gate + 2 * PAGE) as *const u8).read_volatile() };
}

/// Called after a fork, in the parent.
pub(crate) extern "C" fn after() {
    if !is_home() {
        return;
    }
    pass();
    STILL.end();
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

/// Takes the closed pages away, if the fork passes the gate.
fn close() {
    // relaxed: under the lock.
    let passing = PASSING.load(Ordering::Relaxed) == 1;
    if let Some(address) = address().filter(|_| passing) {
        let arguments = [address, CLOSED, libc::MADV_DONTNEED as usize, 0, 0, 0];
        // SAFETY: the pages are the gate's, whose content nobody needs.
        let discard = || unsafe { call(libc::SYS_madvise, arguments) };
        // A program that locks its memory (`mlockall`) locks ours too.
        // SAFETY: as above.
        let unlock = || unsafe { call(libc::SYS_munlock, [address, CLOSED, 0, 0, 0, 0]) };
        if discard() != 0 {
            unlock();
            discard();
        }
    }
}

/// Whether this is the process that folds with these words.
fn is_home() -> bool {
    // relaxed: it is written before there are threads.
    HOME.load(Ordering::Relaxed) == pid()
}

/// What a child is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It goes on with its copy of our memory.
    Heir = 1,
    /// It has all of its memory.
    Whole = 2,
    /// Its parent has ended.
    Lost = 3,
}

/// Whether this child was made while its parent folded, and by way of the handlers.
pub(crate) fn is_passing() -> bool {
    // relaxed: in the child's only thread.
    PASSING.load(Ordering::Relaxed) == 1
}

/// Asks the parent of this child, which passes the gate, and waits for its answer.
pub(crate) fn ask(can_inherit: bool) -> Answer {
    let Some(gate) = address() else { return Answer::Lost };
    let page = if can_inherit { gate } else { gate + PAGE };
    // SAFETY: the page is mapped; the kernel puts what the server gives there, or zeros.
    match unsafe { (page as *const u8).read_volatile() } {
        HEIR => Answer::Heir,
        OPEN => Answer::Whole,
        _ => Answer::Lost,
    }
}

/// These words are this process's from now on: it is the heir, and this is its only thread.
pub(crate) fn take_over() {
    // relaxed: there is one thread of the program.
    HOME.store(pid(), Ordering::Relaxed);
    let inner = INNER.load(Ordering::Relaxed);
    if inner == 0 {
        TURN.renew(0);
        return;
    }
    // The fork around this one may be to come in this process too.
    // relaxed: as above.
    INNER.store(inner - 1, Ordering::Relaxed);
    TURN.renew(thread());
    close();
}

/// Waits until the server opens the gate.
fn pass() {
    // relaxed: under the lock.
    let passing = PASSING.load(Ordering::Relaxed) == 1;
    if let Some(address) = address().filter(|_| passing) {
        // SAFETY: the page is mapped; the kernel puts what the server gives there.
        unsafe { (address as *const u8).read_volatile() };
    }
}

fn thread() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

fn pid() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}
