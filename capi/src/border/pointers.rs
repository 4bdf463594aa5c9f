//! Pointers of C, read and written.
//!
//! ```text
//!   structure of the program   | size | known to both | newer |     read as far as it is known,
//!   structure of this library  | size | known to both | zeros |     and zeros stand for defaults
//! ```
//!
//! A structure begins with its size, so that a program that was compiled with an older header is
//! understood. A newer one is too, unless it sets what this library does not know.
//!
//! Invariant: no more bytes are read or written than the caller of these functions was promised.
//! Nothing is assumed of alignment.

use crate::code::{Code, Failure};
use std::mem::MaybeUninit;

/// Bytes of the largest structure that is believed. A larger size was never set.
const STRUCTURE_MAX: usize = 4096;
/// Bytes of a structure's first member, its size.
const SIZE_BYTES: usize = size_of::<usize>(); // 8

/// A structure of the header.
///
/// # Safety
///
/// It is `repr(C)`, without padding, and begins with its size as a `usize`. Any bytes are a value
/// of it.
pub(super) unsafe trait Structure: Copy {
    /// Sets its first member.
    fn set_size(&mut self, size: usize);
}

/// Reads a structure. NULL and what an older program does not have are zeros.
///
/// # Safety
///
/// `from` is NULL, or leads to as many readable bytes as its first member says.
pub(super) unsafe fn settings<T: Structure>(from: *const T) -> Result<T, Failure> {
    let mut value = MaybeUninit::<T>::zeroed();
    if !from.is_null() {
        // SAFETY: the caller's contract.
        let size = unsafe { believed_size(from)? };
        let known = size.min(size_of::<T>());
        // SAFETY: both have as many bytes, and do not overlap.
        unsafe {
            from.cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr().cast(), known);
        }
        for at in known..size {
            // SAFETY: the structure has as many bytes.
            if unsafe { from.cast::<u8>().add(at).read() } != 0 {
                return Err(Code::Unsupported.because(
                    "the structure is newer than this library, and a member is set that it does \
                     not know",
                ));
            }
        }
    }
    // SAFETY: by the contract of `Structure`, any bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// Writes a structure, as far as the program's has room. Its size stays as the program set it, and
/// members that this library does not know become zero.
///
/// # Safety
///
/// `to` is NULL, or leads to as many bytes that may be written as its first member says.
pub(super) unsafe fn report<T: Structure>(to: *mut T, mut value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(null());
    }
    // SAFETY: the caller's contract.
    let size = unsafe { believed_size(to)? };
    value.set_size(size);
    let known = size.min(size_of::<T>());
    // SAFETY: both have as many bytes, and do not overlap; the rest is the structure's too.
    unsafe {
        (&raw const value).cast::<u8>().copy_to_nonoverlapping(to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
    Ok(())
}

/// The size that a structure says it has.
///
/// # Safety
///
/// `from` leads to a readable size.
unsafe fn believed_size<T: Structure>(from: *const T) -> Result<usize, Failure> {
    // SAFETY: the caller's contract.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if (SIZE_BYTES..=STRUCTURE_MAX).contains(&size) {
        return Ok(size);
    }
    Err(Code::Argument.because(format_args!(
        "a structure begins with its size: set its member to sizeof, not {size}"
    )))
}

/// The bytes at a pointer, which may be NULL if there are none.
///
/// # Safety
///
/// `from` is NULL, or `len` bytes can be read there that nobody changes during the call.
pub(super) unsafe fn bytes<'call>(from: *const u8, len: usize) -> Result<&'call [u8], Failure> {
    // SAFETY: the caller's contract, and any bytes are a value of `u8`.
    unsafe { items(from, len) }
}

/// The items at a pointer, which may be NULL if there are none.
///
/// # Safety
///
/// `from` is NULL, or `len` items can be read there that nobody changes during the call. Any bytes
/// are a value of `T`.
pub(super) unsafe fn items<'call, T: Copy>(
    from: *const T,
    len: usize,
) -> Result<&'call [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        return Err(null());
    }
    if !from.is_aligned() || len > isize::MAX as usize / size_of::<T>() {
        return Err(Code::Argument.because("the array is not aligned, or longer than memory"));
    }
    // SAFETY: it is neither NULL nor unaligned, nor too long; the rest is the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(from, len) })
}

/// An error if a result has no place. A call looks before it does anything, and writes afterwards:
/// after an error nothing was done, and what it reads may lie where the result goes.
pub(super) fn expect<T>(to: *mut T) -> Result<(), Failure> {
    if to.is_null() { Err(null()) } else { Ok(()) }
}

/// Writes a result.
///
/// # Safety
///
/// `to` is NULL, or a `T` may be written there.
pub(super) unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Failure> {
    expect(to)?;
    // SAFETY: the caller's contract.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Reads a number that is a result too.
///
/// # Safety
///
/// `from` is NULL, or a number can be read there.
pub(super) unsafe fn taken(from: *const usize) -> Result<usize, Failure> {
    if from.is_null() {
        return Err(null());
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { from.read_unaligned() })
}

/// Copies bytes out.
///
/// # Safety
///
/// As many bytes may be written at `to`, and `bytes` are not among them.
pub(super) unsafe fn copy_out(to: *mut u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        // SAFETY: the caller's contract.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

/// NULL where something is needed.
pub(super) fn null() -> Failure {
    Code::Argument.because("a pointer is NULL that has to lead somewhere")
}

/// Tells a program that wants to know for how many items something was done. Each function that
/// does so begins with none, so that an early error, or a panic, leaves a number that is right.
///
/// # Safety
///
/// `done` is NULL, or a number may be written there.
pub(super) unsafe fn tell_done(done: *mut usize, number: usize) -> Result<(), Failure> {
    if done.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { give(done, number) }
}

/// An element of an array of results, which may be NULL.
pub(super) fn element<T>(array: *mut T, at: usize) -> *mut T {
    if array.is_null() { array } else { array.wrapping_add(at) }
}
