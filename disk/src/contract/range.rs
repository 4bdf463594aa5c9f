//! The range check that every request passes first.

use super::error::DiskError;

/// Succeeds if `len` bytes at `offset` lie within a disk of `size` bytes, so that
/// `offset + len` can neither overflow nor exceed `size` afterwards.
///
/// An empty range is within the disk anywhere up to and including its end.
///
/// ```
/// assert!(ramfold_disk::check_range(8192, 4096, 4096).is_ok());
/// assert!(ramfold_disk::check_range(8192, 8192, 0).is_ok());
/// assert!(ramfold_disk::check_range(8192, 8191, 2).is_err());
/// assert!(ramfold_disk::check_range(8192, u64::MAX, 2).is_err());
/// ```
pub fn check_range(size: u64, offset: u64, len: u64) -> Result<(), DiskError> {
    // Subtract rather than add: `offset + len` may overflow, `size - offset` cannot here.
    if offset <= size && len <= size - offset {
        Ok(())
    } else {
        Err(DiskError::OutOfRange { offset, len, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values near zero, near a small disk's end, near `u64::MAX`, and anything.
    fn awkward() -> impl Strategy<Value = u64> {
        prop_oneof![0..20_u64, (u64::MAX - 20)..=u64::MAX, Just(1 << 63), any::<u64>()]
    }

    proptest! {
        #[test]
        fn agrees_with_wide_arithmetic(size in awkward(), offset in awkward(), len in awkward()) {
            let fits = u128::from(offset) + u128::from(len) <= u128::from(size);
            prop_assert_eq!(check_range(size, offset, len).is_ok(), fits);
        }
    }

    #[test]
    fn a_range_may_end_where_the_disk_does() {
        for (offset, len) in [(0, 8192), (4096, 4096), (8191, 1), (8192, 0)] {
            assert!(check_range(8192, offset, len).is_ok(), "{len} bytes at {offset}");
            assert!(check_range(8192, offset, len + 1).is_err(), "one more at {offset}");
        }
    }

    #[test]
    fn the_error_repeats_the_request() {
        let error = check_range(4096, 4000, 97).expect_err("one byte past the end");
        assert!(matches!(error, DiskError::OutOfRange { offset: 4000, len: 97, size: 4096 }));
    }
}
