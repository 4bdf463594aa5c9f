//! Atomics under `cfg(shuttle)`: those of the standard library, with a scheduling point before
//! every operation.
//!
//! Shuttle's own atomics are larger than the integers and cannot lie in a table. These have the
//! size of the integer, so the mappings and tables that ship are the ones under test.
//!
//! Shuttle runs one thread at a time and orders everything that it runs. Nothing here depends on an
//! ordering, and an ordering that is too weak is not found. Finding those is loom's part.
//!
//! Invariant: each type has the size and the alignment of its integer. Locks: none.

use std::time::Duration;

pub use std::sync::atomic::Ordering;

/// Lets the scheduler choose which thread goes on. Shuttle has no time, so its sleep does just
/// that. Its `yield_now` would also lower the priority of the thread.
fn choose() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// A scheduling point. It orders nothing, because shuttle orders everything already.
pub fn fence(_order: Ordering) {
    choose();
}

/// Each method does what the method of the same name in `std` does.
macro_rules! shared {
    ($name:ident, $value:ty) => {
        #[doc = concat!("`std`'s `", stringify!($name), "`, where threads may change places.")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        #[expect(missing_docs, reason = "the standard library has them")]
        impl $name {
            pub const fn new(value: $value) -> $name {
                $name(std::sync::atomic::$name::new(value))
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            pub fn load(&self, order: Ordering) -> $value {
                choose();
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                choose();
                self.0.store(value, order);
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                choose();
                self.0.compare_exchange(current, new, done, failed)
            }

            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, done, failed)
            }

            pub fn fetch_update(
                &self,
                done: Ordering,
                fetched: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut value = self.load(fetched);
                while let Some(next) = change(value) {
                    match self.compare_exchange(value, next, done, fetched) {
                        Ok(value) => return Ok(value),
                        Err(found) => value = found,
                    }
                }
                Err(value)
            }

            shared!(modify $value: swap fetch_and fetch_or fetch_xor);
        }
    };
    (modify $value:ty: $($method:ident)*) => {
        $(pub fn $method(&self, value: $value, order: Ordering) -> $value {
            choose();
            self.0.$method(value, order)
        })*
    };
}

macro_rules! integers {
    ($($name:ident: $value:ty),*) => {
        $(
            shared!($name, $value);

            #[expect(missing_docs, reason = "the standard library has them")]
            impl $name {
                shared!(modify $value: fetch_add fetch_sub fetch_max fetch_min);
            }
        )*
    };
}

shared!(AtomicBool, bool);
integers!(AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);
