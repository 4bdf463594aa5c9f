//! The beginning: everything is in place before the program's `main`.
//!
//! ```text
//!   the machine allows it --> arena, passage, tables --> handlers --> filter --> brk
//! ```
//!
//! The filter comes when all that it leads to is there. If the system refuses one of these, the
//! program stays as it is, and unfolded.
//!
//! Invariant: after a refusal no call of the program is trapped. Lock: none; there is one thread.

use super::code::{Code, Kind};
use super::{filter, handlers, masks, musl, origin, previous};
use crate::arena::{addresses, files, pins, stacks, state};
use crate::board::refusals;
use crate::floor::crossing::cross;
use crate::floor::{call, passage};
use core::ffi::{CStr, c_char};
use core::ops::Range;
use core::sync::atomic::{AtomicI32, Ordering};

/// `ADDR_NO_RANDOMIZE` of `personality(2)`.
const FIXED_ADDRESSES: isize = 0x004_0000;

const _: () = assert!(FIXED_ADDRESSES.count_ones() == 1, "a flag");
const ACTION_AVAILABLE: usize = 2;

static REFUSAL: AtomicI32 = AtomicI32::new(0);

/// What the C library of the program has, by address; 0 where it has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    /// A function of glibc.
    pub(crate) glibc: usize,
    /// A function of musl's loader, and the one that makes threads of C11.
    pub(crate) musl: [usize; 2],
    /// The variable with the end of what `brk` gave.
    pub(crate) brk: usize,
}

/// Why this process does not fold; 0 if it does, or was not asked.
pub(crate) fn refusal() -> i32 {
    // relaxed: it changes only before there is a second thread.
    REFUSAL.load(Ordering::Relaxed)
}

/// Says why this process does not fold, or 0.
pub(crate) fn refuse(number: i32) {
    // relaxed: as above.
    REFUSAL.store(number, Ordering::Relaxed);
}

/// Prepares this process. All signals are blocked, and the yard is reserved for children too. True
/// if the process can fold; then `child` is called in forked children.
pub(crate) fn begin(library: Library, child: fn()) -> bool {
    let mut setup = Setup { library, refusal: 0 };
    cross(prepare, &mut setup);
    refuse(setup.refusal);
    if setup.refusal != 0 {
        return false;
    }
    state::set_child(child);
    true
}

struct Setup {
    library: Library,
    refusal: i32,
}

extern "C" fn prepare(setup: &mut Setup) {
    if let Err(number) = try_prepare(&setup.library) {
        setup.refusal = number;
    }
}

fn try_prepare(library: &Library) -> Result<(), i32> {
    if origin::is_go() {
        return Err(refusals::GO);
    }
    let code = find(library).ok_or(refusals::LIBRARY)?;
    if !is_random() {
        return Err(refusals::ADDRESSES);
    }
    allows_traps()?;
    closes_ranges()?;
    passage::make()?;
    addresses::reserve()?;
    if !pins::make() {
        return Err(libc::ENOMEM);
    }
    state::make()?;
    files::open();
    previous::take_over(handlers::action);
    masks::provide(&stacks::current());
    if let Err(number) = filter::load(&code, files::numbers()) {
        previous::give_back();
        return Err(number);
    }
    if library.brk != 0 {
        move_break(library.brk as *mut usize);
    }
    Ok(())
}

/// Has the C library ask for more from the arena on. Where the constructors of other libraries have
/// begun a heap, its next call of `brk` fails, because it asks for more than there is for `brk`. So
/// `malloc` learns that its heap does not go on where it was. Otherwise it would take a break below
/// its heap for damaged memory, and end the program, at least one that lies above the arena.
fn move_break(end: *mut usize) {
    // SAFETY: the variable is a word of the C library, which has one thread. It is 0 before the
    // first call.
    let is_begun = unsafe { end.read_volatile() } != 0;
    let next = if is_begun { addresses::range().end } else { addresses::START };
    // SAFETY: as above.
    unsafe { end.write_volatile(next) };
}

/// Whether the system allows this way, as far as one process can tell of others.
pub(crate) fn is_allowed() -> bool {
    is_random() && allows_traps().is_ok() && closes_ranges().is_ok()
}

/// Whether the kernel chooses addresses by chance.
fn is_random() -> bool {
    // SAFETY: the call asks only.
    let persona = unsafe { call::call(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]) };
    let text = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space");
    let is_on = text.map_or(true, |text| text.trim() != "0");
    is_on && persona >= 0 && persona & FIXED_ADDRESSES == 0
}

/// The code of the program's C library, if it is one that is known. Another library may give musl
/// the names of glibc.
fn find(library: &Library) -> Option<Code> {
    let [loader, threads] = library.musl;
    if let Some(text) = text_of(loader) {
        return musl::learn(threads, &text).then_some(Code { text, kind: Kind::Musl });
    }
    let text = text_of(library.glibc)?;
    is_whole(library.glibc).then_some(Code { text, kind: Kind::Glibc })
}

/// Whether glibc is one file. Threads have another one before glibc 2.34, whose calls the
/// filter would not know.
fn is_whole(function: usize) -> bool {
    const WHOLE: (u32, u32) = (2, 34);
    // SAFETY: the loader has bound it: it is `gnu_get_libc_version`, whose text stays.
    let version = unsafe {
        let function = core::mem::transmute::<usize, extern "C" fn() -> *const c_char>(function);
        CStr::from_ptr(function())
    };
    parts(version.to_bytes()).is_some_and(|version| version >= WHOLE)
}

/// The two numbers of a version.
fn parts(version: &[u8]) -> Option<(u32, u32)> {
    let mut numbers = core::str::from_utf8(version).ok()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether the kernel closes ranges of descriptors. What the C library does without that does not
/// end while a descriptor cannot be closed.
fn closes_ranges() -> Result<(), i32> {
    const NONE: usize = u32::MAX as usize;
    // SAFETY: there is no descriptor with this number.
    let answer = unsafe { call::call(libc::SYS_close_range, [NONE, NONE, 0, 0, 0, 0]) };
    if answer == 0 { Ok(()) } else { Err(-answer as i32) }
}

/// Whether the kernel can trap system calls.
fn allows_traps() -> Result<(), i32> {
    let action = libc::SECCOMP_RET_TRAP;
    let arguments = [ACTION_AVAILABLE, 0, &raw const action as usize, 0, 0, 0];
    // SAFETY: the call asks only.
    let answer = unsafe { call::call(libc::SYS_seccomp, arguments) };
    if answer == 0 { Ok(()) } else { Err(-answer as i32) }
}

/// The executable mapping that has a function.
fn text_of(function: usize) -> Option<Range<usize>> {
    if function == 0 {
        return None;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let has = (start..end).contains(&function) && rest.starts_with("r-x");
        has.then_some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_two_numbers() {
        assert_eq!(parts(b"2.36"), Some((2, 36)));
        assert_eq!(parts(b"2.34.9000"), Some((2, 34)));
        assert!(parts(b"2.9") < parts(b"2.34") && parts(b"3.0") > parts(b"2.34"));
        assert_eq!((parts(b"2"), parts(b"x.1"), parts(b"")), (None, None, None));
    }
}
