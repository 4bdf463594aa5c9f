//! The contract of [`Disk`] as a suite, for the tests of every implementation.
//!
//! ```no_run
//! # use std::sync::Arc;
//! use ramfold_disk::{RamDisk, conformance};
//! conformance::run("RamDisk", &|size| Arc::new(RamDisk::new(size).unwrap()));
//! ```
//!
//! Every check drives the disk and a `Vec<u8>` through the same operations (the module `twin`). The
//! oracle is exact. A request within the disk must succeed, and do to the disk what it does to the
//! vector. Any other must fail with [`DiskError::OutOfRange`] and do nothing. Contents are compared
//! byte by byte, and extents are compared with contents.
//!
//! Invariant: between two requests the disk and the vector hold the same bytes. Each check has a
//! disk of its own, so no check depends on what another one left.
//!
//! | claim of the contract | checked in |
//! |---|---|
//! | D1 | `fresh` |
//! | D2 | `ranges`, `content`, `random` |
//! | D3 | `bounds`, and every other check |
//! | D4 | [`run_read_only`] |
//! | D5 | `stripes`, `collisions` |
//! | D6 | [`run_failing`], because it needs a disk that fails |
//! | D7 | wherever an extent is asked for |
//! | a disk is sparse, which the contract leaves open | [`run_sparse`] |
//!
//! A check that fails panics with the name of the disk, the name of the check, its seed if it has
//! one, and the request. The suite is complete only in a build with overflow checks.

mod bounds;
mod content;
mod extents;
mod failing;
mod pattern;
mod random;
mod threads;
mod twin;

use crate::contract::{Allocation, Disk, DiskError};
use std::sync::Arc;
use twin::{Make, Twin};

/// Sizes the suite runs at: one page, a few pages, and enough pages to cross every table boundary
/// of an implementation with two-level tables of 512 pages.
const SIZES: [u64; 3] = [4096, 24 * 4096, (3 * 512 + 7) * 4096];

/// A claim, checked on a fresh disk.
type Check = fn(&mut Twin);

/// Claims about any disk, one without bytes too.
const ANY_CHECKS: [(&str, Check); 3] =
    [("fresh", content::fresh), ("bounds", bounds::beyond_the_end), ("empty", bounds::empty)];

/// Claims about bytes.
const CHECKS: [(&str, Check); 6] = [
    ("ranges", bounds::ranges),
    ("content", content::patterns),
    ("extents", extents::agree),
    ("random", random::operations),
    ("stripes", threads::stripes),
    ("collisions", threads::collisions),
];

const SPARSE_CHECKS: [(&str, Check); 2] =
    [("fresh holes", extents::fresh_holes), ("discarded holes", extents::discarded_holes)];

/// Runs the suite over disks from `make`.
///
/// `make` is called often, always with a multiple of 4096. It returns an empty disk of that many
/// bytes that can be written and has room for any content.
///
/// # Panics
///
/// If the disk breaks the contract. The message names the disk `name` and says what was wrong.
pub fn run(name: &str, make: &dyn Fn(u64) -> Arc<dyn Disk>) {
    SIZES.into_iter().for_each(|size| run_sized(name, size, make));
}

/// Runs the suite at one size in bytes, any that `make` can make. For a disk of no bytes these are
/// the checks of bounds, because it has no content.
///
/// # Panics
///
/// For the same reasons as [`run`].
pub fn run_sized(name: &str, size: u64, make: &dyn Fn(u64) -> Arc<dyn Disk>) {
    run_checks(&ANY_CHECKS, name, size, make);
    if size > 0 {
        run_checks(&CHECKS, name, size, make);
    }
}

/// Checks that a disk is sparse: a page that was never written, or lay wholly within a discard, is
/// a hole. A page with data is data. `make` is that of [`run`].
///
/// The contract does not ask for this. It is for a disk that keeps an account of its holes.
///
/// # Panics
///
/// For the same reasons as [`run`].
///
/// ```
/// use ramfold_disk::{RamDisk, conformance};
/// conformance::run_sparse("a disk in memory", &|size| {
///     std::sync::Arc::new(RamDisk::new(size).expect("a few pages"))
/// });
/// ```
pub fn run_sparse(name: &str, make: &dyn Fn(u64) -> Arc<dyn Disk>) {
    SIZES.into_iter().for_each(|size| run_sparse_sized(name, size, make));
}

/// Runs [`run_sparse`] at one size in bytes, any that `make` can make.
///
/// # Panics
///
/// For the same reasons as [`run`].
pub fn run_sparse_sized(name: &str, size: u64, make: &dyn Fn(u64) -> Arc<dyn Disk>) {
    run_checks(&SPARSE_CHECKS, name, size, make);
}

fn run_checks(checks: &[(&str, Check)], name: &str, size: u64, make: Make<'_>) {
    for (check, body) in checks {
        let label = format!("{name}, {size} bytes: {check}");
        body(&mut Twin::new(label, size, make));
    }
}

/// Checks that a request that fails changes only bytes of its range, and each of those only to what
/// it was to be. `make` is that of [`run_sized`].
///
/// `fail(true)` is called before each request, and `fail(false)` after it. A disk that fails
/// without being told, because it is full, needs neither.
///
/// # Panics
///
/// For the same reasons as [`run`], and if no request failed.
///
/// ```
/// use ramfold_disk::{Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, Verbs, conformance};
/// use std::sync::Arc;
///
/// let disk = Arc::new(FaultyDisk::new(RamDisk::new(24 * 4096)?));
/// let (verbs, span, fault) = (Verbs::Writes, FaultSpan::Once, Fault::NoSpace);
/// let fail = |on| match on {
///     true => disk.arm(FaultPlan { after: 0, verbs, span, fault }),
///     false => disk.disarm(),
/// };
/// conformance::run_failing("FaultyDisk", 24 * 4096, &|_| disk.clone(), &fail);
/// # Ok::<(), ramfold_disk::DiskError>(())
/// ```
pub fn run_failing(
    name: &str,
    size: u64,
    make: &dyn Fn(u64) -> Arc<dyn Disk>,
    fail: &dyn Fn(bool),
) {
    let label = format!("{name}, {size} bytes: failing");
    failing::operations(&mut Twin::new(label, size, make), fail);
}

/// Checks that `disk`, with any content, refuses every change and still answers all other requests.
///
/// # Panics
///
/// For the same reasons as [`run`].
///
/// ```
/// use ramfold_disk::{RamDisk, ReadOnly, conformance};
/// let disk = ReadOnly::new(RamDisk::new(1 << 20)?);
/// conformance::run_read_only("a disk that refuses writes", &disk);
/// # Ok::<(), ramfold_disk::DiskError>(())
/// ```
pub fn run_read_only(name: &str, disk: &dyn Disk) {
    assert!(disk.read_only(), "{name}: does not say that it is read-only");
    let size = disk.size_bytes();
    let before = read_all(name, disk);
    for (offset, data) in [(0, &b"x"[..]), (0, b""), (size, b"x")] {
        let len = data.len() as u64;
        let refusals = [
            ("write", disk.write(offset, data)),
            ("discard", disk.discard(offset, len)),
            ("write_zeroes", disk.write_zeroes(offset, len, Allocation::MayUnmap)),
        ];
        for (verb, outcome) in refusals {
            let refused = matches!(outcome, Err(DiskError::ReadOnly));
            assert!(refused, "{name}: {verb} of {len} at {offset} must be refused: {outcome:?}");
        }
    }
    assert!(read_all(name, disk) == before, "{name}: a refused change changed the content");
    let others = [disk.prefetch(0, size), disk.flush(), disk.next_extent(0, size).map(|_| ())];
    for outcome in others {
        assert!(outcome.is_ok(), "{name}: a request that changes nothing failed: {outcome:?}");
    }
}

fn read_all(name: &str, disk: &dyn Disk) -> Vec<u8> {
    let mut bytes = vec![0xA5; disk.size_bytes() as usize];
    let outcome = disk.read(0, &mut bytes);
    assert!(outcome.is_ok(), "{name}: reading the whole disk failed: {outcome:?}");
    bytes
}
