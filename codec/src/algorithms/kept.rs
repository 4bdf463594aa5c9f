//! A few contexts of one algorithm, the one used last in front.
//!
//! ```text
//!   get(B):   A C B D  -->  B A C D          B moves to the front
//!   get(E):   A C B D  -->  E A C B          D is freed, then E is built
//! ```
//!
//! A page store has up to four codecs (the kernel: `ZRAM_MAX_COMPS`). Four contexts are kept, so
//! that reading pages of all four codecs rebuilds nothing.
//!
//! Invariant: a key is there at most once, and there are at most [`KEPT_MAX`] keys. Locks: none.

use crate::terms::CodecError;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many dictionaries there have been.
static DICTIONARIES: AtomicU64 = AtomicU64::new(0);

/// A number that no other dictionary of this process has. An address would not do: that of one that
/// is gone may be another one's.
pub(super) fn number_of_dictionary() -> u64 {
    // relaxed: a number that is given once.
    DICTIONARIES.fetch_add(1, Ordering::Relaxed)
}

/// Contexts of one algorithm that a stream keeps.
pub(crate) const KEPT_MAX: usize = 4;

/// Contexts by what they were built for.
pub(crate) struct Kept<K, C>(Vec<(K, C)>);

impl<K, C> Default for Kept<K, C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq, C> Kept<K, C> {
    /// The context for `key`, built by `build` if it is not there. The context that makes way for
    /// it is freed first, so that there are never more than [`KEPT_MAX`] in memory.
    #[inline]
    pub(crate) fn get(
        &mut self,
        key: K,
        build: impl FnOnce() -> Result<C, CodecError>,
    ) -> Result<&mut C, CodecError> {
        match self.0.iter().position(|(kept, _)| *kept == key) {
            Some(0) => {}
            Some(at) => self.0[..=at].rotate_right(1),
            None => self.add(key, build)?,
        }
        Ok(&mut self.0[0].1)
    }

    #[cold]
    fn add(
        &mut self,
        key: K,
        build: impl FnOnce() -> Result<C, CodecError>,
    ) -> Result<(), CodecError> {
        self.0.truncate(KEPT_MAX - 1);
        if self.0.capacity() == 0 {
            self.0.try_reserve_exact(KEPT_MAX).map_err(|_| CodecError::NoMemory)?;
        }
        self.0.insert(0, (key, build()?));
        Ok(())
    }

    /// Bytes of the list itself, and of the contexts as `bytes` counts each.
    pub(crate) fn heap_bytes(&self, bytes: impl Fn(&K, &C) -> usize) -> usize {
        let contexts: usize = self.0.iter().map(|(key, context)| bytes(key, context)).sum();
        self.0.capacity() * size_of::<(K, C)>() + contexts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_four_are_kept() {
        let mut kept = Kept::default();
        let mut built = Vec::new();
        for key in [1, 2, 3, 4, 1, 2, 5, 3, 1, 4] {
            let context = kept.get(key, || {
                built.push(key);
                Ok(key * 10)
            });
            assert_eq!(context, Ok(&mut (key * 10)));
        }
        assert_eq!(built, [1, 2, 3, 4, 5, 3, 4], "5 replaced 3, and 3 replaced 4");
    }

    #[test]
    fn what_cannot_be_built_leaves_the_others() {
        let mut kept = Kept::default();
        assert_eq!(kept.get(1, || Ok(10)), Ok(&mut 10));
        assert_eq!(kept.get(2, || Err(CodecError::NoMemory)), Err(CodecError::NoMemory));
        assert_eq!(kept.get(1, || unreachable!("it is there")), Ok(&mut 10));
    }

    #[test]
    fn bytes_are_those_of_the_list_and_of_the_contexts() {
        let mut kept = Kept::default();
        assert_eq!(kept.heap_bytes(|_, _| 100), 0);
        for key in 0..9_u32 {
            kept.get(key, || Ok(key)).expect("it can be built");
        }
        assert_eq!(kept.heap_bytes(|_, _| 100), KEPT_MAX * (size_of::<(u32, u32)>() + 100));
    }
}
