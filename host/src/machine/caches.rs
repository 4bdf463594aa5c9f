//! Memory and the caches: copying past them, and asking for lines before they are needed.
//!
//! ```text
//!   to     .....|--- line ---|--- line ---|--- line ---|...      lines of 64 bytes
//!           head  streamed: written as a whole, never read   tail
//! ```
//!
//! An ordinary store to a line that is in no cache reads the line from memory first. It also leaves
//! the line in the cache, where it pushes something else out. Compressed pages are written once and
//! read much later, if at all, so they need neither. A streaming store (`vmovntdq`) that writes a
//! whole line sends it to memory as it is. Two stores of half a line are a tenth faster than four
//! of a quarter, so a processor without AVX copies in the ordinary way. Source: "Caching of
//! Temporal vs. Non-Temporal Data", Intel's Software Developer's Manual, volume 1, 10.4.6.2.
//!
//! Invariants
//! - A prefetch changes nothing but the cache.
//! - A fence stands between the last streaming store and the caller's next store, because streaming
//!   stores are in no order with others. A thread that sees the caller announce the bytes therefore
//!   sees the bytes.
//!
//! Lock: none.

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes from which on streaming pays. Below, the ends and the fence take longer than reading the
/// lines does.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PAST_MIN: usize = 512;

/// Copies `from` to `to`, for bytes that are not expected to be read soon.
///
/// # Panics
///
/// If the two slices differ in length.
#[inline]
pub fn copy_past_caches(to: &mut [u8], from: &[u8]) {
    assert!(to.len() == from.len(), "{} bytes are copied to {}", from.len(), to.len());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if to.len() >= PAST_MIN && std::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        return unsafe { copy_lines(to, from) };
    }
    to.copy_from_slice(from);
}

/// # Safety
///
/// The processor has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn copy_lines(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    let head = to.as_ptr().align_offset(LINE).min(to.len());
    let (head_to, to) = to.split_at_mut(head);
    let (head_from, from) = from.split_at(head);
    head_to.copy_from_slice(head_from);
    let (mut lines_to, mut lines_from) = (to.chunks_exact_mut(LINE), from.chunks_exact(LINE));
    for (to, from) in (&mut lines_to).zip(&mut lines_from) {
        let (to, from) = (to.as_mut_ptr().cast::<__m256i>(), from.as_ptr().cast::<__m256i>());
        // SAFETY: each chunk is the two halves of a line. The chunk that is written is borrowed
        // mutably, and it is aligned because the chunks begin where `align_offset` said.
        unsafe {
            let halves = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, halves.0);
            _mm256_stream_si256(to.add(1), halves.1);
        }
    }
    lines_to.into_remainder().copy_from_slice(lines_from.remainder());
    // Through a pointer, because the intrinsic is an unsafe function up to Rust 1.92 and a safe one
    // since.
    let fence: unsafe fn() = _mm_sfence;
    // SAFETY: SSE is part of every x86-64.
    unsafe { fence() };
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the ends, and nothing beside them.
        #[test]
        fn all_of_it_is_copied_and_no_more(
            start in 0..200_usize,
            offset in 0..200_usize,
            len in 0..5000_usize,
        ) {
            let from: Vec<u8> = (0..offset + len).map(|at| (at * 7 + at / 256) as u8).collect();
            let mut to = vec![0xA5; start + len + 100];
            copy_past_caches(&mut to[start..start + len], &from[offset..]);
            prop_assert_eq!(&to[start..start + len], &from[offset..]);
            prop_assert!(to[..start].iter().chain(&to[start + len..]).all(|&byte| byte == 0xA5));
        }
    }

    #[test]
    #[should_panic(expected = "1 bytes are copied to 2")]
    fn lengths_that_differ_are_refused() {
        copy_past_caches(&mut [0; 2], &[0; 1]);
    }
}
