//! Asking for cache lines before they are needed.
//!
//! Invariant: a prefetch changes nothing but the cache. Lock: none.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Starts to load the cache line of `value`. It is only a hint: it reads nothing and waits for
/// nothing.
#[inline]
pub fn prefetch<T>(value: &T) {
    line(std::ptr::from_ref(value).cast());
}

/// Starts to load the cache lines of `len` bytes from `start` on. `start` may point anywhere.
#[inline]
pub fn prefetch_bytes(start: *const u8, len: usize) {
    (0..len).step_by(LINE).for_each(|offset| line(start.wrapping_add(offset)));
}

#[inline]
fn line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes only the cache, whatever the address is. SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
