//! The types that a table may hold: all-zero bytes are a value of them, and they change only
//! through `&T`.
//!
//! Invariant: those of [`Zeroed`], which its implementations promise. Lock: none.

use crate::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A type whose values freshly reserved memory already holds, and that may turn zero at any moment.
///
/// # Safety
///
/// - All-zero bytes are a valid value.
/// - Every byte is accessed atomically and through `&self` only. If the system zeroes the page
///   behind a live reference, that is no more than a store of another thread.
/// - It has no destructor, and its size is [`Zeroed::BYTES`] outside loom.
pub unsafe trait Zeroed: Sync + Sized {
    /// Bytes that an entry takes. Loom's stand-ins are larger than what they stand for.
    const BYTES: usize;

    /// A value like fresh memory. It is used under loom, where there is no mapping.
    #[doc(hidden)]
    fn zero() -> Self;

    /// Turns zero, like a discarded page. It is used under loom and Miri, where there is no
    /// mapping.
    #[doc(hidden)]
    fn clear(&self);
}

macro_rules! zeroed_atomic {
    ($atomic:ty, $plain:ty) => {
        // SAFETY: it is an integer atomic. Zero is a value, access is atomic through `&self`, there
        // is nothing to drop, and it has the size of the integer.
        unsafe impl Zeroed for $atomic {
            const BYTES: usize = size_of::<$plain>();

            fn zero() -> Self {
                <$atomic>::new(0)
            }

            fn clear(&self) {
                // relaxed: stands for a page that the system zeroes, which orders nothing either.
                self.store(0, Ordering::Relaxed);
            }
        }
    };
}

zeroed_atomic!(AtomicU8, u8);
zeroed_atomic!(AtomicU16, u16);
zeroed_atomic!(AtomicU32, u32);
zeroed_atomic!(AtomicU64, u64);

// SAFETY: an array is its elements without padding, and each of them keeps the contract.
unsafe impl<Z: Zeroed, const N: usize> Zeroed for [Z; N] {
    const BYTES: usize = Z::BYTES * N;

    fn zero() -> Self {
        std::array::from_fn(|_| Z::zero())
    }

    fn clear(&self) {
        self.iter().for_each(Z::clear);
    }
}
