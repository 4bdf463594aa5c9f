//! The border: the functions that C calls.
//!
//! ```text
//!   C --> guard( pointers --> slices, numbers, texts   --> safe code )  --> code
//!           |                                                ^
//!           '-- a panic becomes a code too                   handles are looked up there
//! ```
//!
//! Nothing is decided here. A function reads what the pointers lead to, looks its handles up, calls
//! safe code, and writes the results.
//!
//! Invariants
//! - B1 no panic leaves a function: its body is an argument of [`guard`].
//! - B2 a pointer is read or written only in the call that got it, and only as far as the header
//!   says. No reference to memory of the program outlives the call.
//! - B3 a handle is a number, and never read through.

mod folding;
mod pointers;
mod store;
mod structures;

use crate::code::{Code, Failure, MESSAGE_MAX, with_last_message};
use crate::handles::{HANDLES, Kind};
use pointers::{copy_out, expect, give};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handle, as C has it.
type Handle = *mut c_void;

/// Answers a call of C: with 0, or with the code of what went wrong. The thread is not cancelled in
/// it.
fn guard(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // What was half done by a panic is what other threads may see of it as well: locks are given
    // up, and their values are whole.
    let worked = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        tests::panic_if_asked();
        host::thread::uncancelled(work)
    }));
    let answer = worked.unwrap_or_else(|panic| {
        let text = panic_text(&*panic);
        // Its drop might panic once more.
        std::mem::forget(panic);
        Err(Code::Panicked.because(text))
    });
    answer.map_or_else(|failure| failure.tell(), |()| Code::Ok) as c_int
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a defect of this library, please report it: {}", text.unwrap_or("it panicked"))
}

fn lookup<T: Kind>(handle: Handle) -> Result<Arc<T>, Failure> {
    HANDLES.get(handle.addr() as u64)
}

/// Frees a handle. The thing ends with the result, after the table's lock was given up.
fn free<T: Kind>(handle: Handle) -> Result<(), Failure> {
    // NULL is freed as `free` does it.
    if handle.is_null() {
        return Ok(());
    }
    HANDLES.remove::<T>(handle.addr() as u64).map(drop)
}

/// Writes the handle of a new thing.
///
/// # Safety
///
/// `to` is NULL, or a handle may be written there.
unsafe fn hand_over<T: Kind>(
    to: *mut Handle,
    make: impl FnOnce() -> Result<Arc<T>, Failure>,
) -> Result<(), Failure> {
    expect(to)?;
    let number = HANDLES.insert(make()?)?;
    // SAFETY: the caller's contract.
    unsafe { give(to, std::ptr::without_provenance_mut(number as usize)) }
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_version() -> u32 {
    const PARTS: [&str; 3] = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ];
    PARTS.iter().fold(0, |version, part| version * 1000 + part.parse().unwrap_or(0))
}

/// See `ramfold.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ramfold_status_name(status: c_int) -> *const c_char {
    let code = Code::ALL.into_iter().find(|&code| code as c_int == status);
    code.map_or(c"RAMFOLD_UNKNOWN", Code::name).as_ptr()
}

/// See `ramfold.h`.
///
/// # Safety
///
/// `buffer` is NULL, or `size` bytes may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ramfold_last_message(buffer: *mut c_char, size: usize) -> usize {
    let mut text = [0; MESSAGE_MAX + 1];
    let len = with_last_message(|last| {
        text[..last.len()].copy_from_slice(last);
        last.len()
    });
    if !buffer.is_null() && size > 0 {
        let shown = len.min(size - 1);
        text[shown] = 0;
        // SAFETY: it is no longer than the buffer.
        unsafe { copy_out(buffer.cast(), &text[..=shown]) };
    }
    len
}

/// The text of a pointer to an algorithm, and so on.
///
/// # Safety
///
/// `text` is NULL, or a string that ends with a zero and lives as long as the call.
unsafe fn text<'call>(text: *const c_char) -> Result<Option<&'call str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Code::Argument.because("the text is not UTF-8"))
}

#[cfg(test)]
mod tests;
