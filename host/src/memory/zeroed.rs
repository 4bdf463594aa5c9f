//! What a table may hold: types for which all-zero bytes are a value, changed only through `&T`.

use crate::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A type that freshly reserved memory already holds, and that may turn zero at any moment.
///
/// # Safety
///
/// - All-zero bytes are a valid value.
/// - Every byte is accessed atomically and through `&self` only, so that the system zeroing the
///   page behind a live reference is no more than another thread's store.
/// - It has no destructor, and its size is [`Zeroed::BYTES`] outside loom.
pub unsafe trait Zeroed: Sync + Sized {
    /// Bytes an entry takes (loom's stand-ins are larger than what they stand for).
    const BYTES: usize;

    /// A value like fresh memory, where there is no mapping: under loom.
    #[doc(hidden)]
    fn zero() -> Self;

    /// Turns zero as a discarded page does, where there is no mapping: under loom and Miri.
    #[doc(hidden)]
    fn clear(&self);
}

macro_rules! zeroed_atomic {
    ($atomic:ty, $plain:ty) => {
        // SAFETY: an integer atomic: zero is a value, access is atomic through `&self`, nothing
        // to drop, and it has the size of the integer.
        unsafe impl Zeroed for $atomic {
            const BYTES: usize = size_of::<$plain>();

            fn zero() -> Self {
                <$atomic>::new(0)
            }

            fn clear(&self) {
                // relaxed: stands in for a page the system zeroes, which orders nothing either.
                self.store(0, Ordering::Relaxed);
            }
        }
    };
}

zeroed_atomic!(AtomicU8, u8);
zeroed_atomic!(AtomicU16, u16);
zeroed_atomic!(AtomicU32, u32);
zeroed_atomic!(AtomicU64, u64);

// SAFETY: an array is its elements, each of which keeps the contract, and has no padding.
unsafe impl<Z: Zeroed, const N: usize> Zeroed for [Z; N] {
    const BYTES: usize = Z::BYTES * N;

    fn zero() -> Self {
        std::array::from_fn(|_| Z::zero())
    }

    fn clear(&self) {
        self.iter().for_each(Z::clear);
    }
}
