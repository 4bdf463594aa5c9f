//! A disk that fails on purpose, for tests of the code above it.
//!
//! Invariant: a request that fails does not reach the inner disk, and is counted all the same. The
//! plan changes only under the lock: by `arm`, by `disarm`, and by a request that it counts.
//!
//! Lock: a leaf around the plan and the count. It is not held while the inner disk is called.

use crate::contract::{Allocation, Disk, DiskError, Extent};
use host::Rank;
use host::unmodelled::RankedMutex;
use std::io;

/// How a [`FaultyDisk`] fails: with an error, except for [`Panic`](Self::Panic).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// [`DiskError::Backing`], as from a device that is gone.
    Backing,
    /// [`DiskError::NoSpace`].
    NoSpace,
    /// [`DiskError::NoMemory`].
    NoMemory,
    /// [`DiskError::Corrupt`] at the offset of the request.
    Corrupt,
    /// A panic, as from a bug.
    Panic,
}

/// For how long a [`FaultyDisk`] fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSpan {
    /// One request.
    Once,
    /// Every request from the first failing one on.
    Forever,
}

/// Which requests a [`FaultPlan`] counts and fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// All of them.
    All,
    /// `read`, `prefetch` and `next_extent`.
    Reads,
    /// `write`, `discard`, `write_zeroes` and `flush`.
    Writes,
}

/// When and how a [`FaultyDisk`] fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Requests that succeed before the first failure.
    pub after: u64,
    /// Which requests are counted and may fail.
    pub verbs: Verbs,
    /// For how long.
    pub span: FaultSpan,
    /// How they fail.
    pub fault: Fault,
}

/// `D`, which fails as a [`FaultPlan`] says. A request that fails does not reach `D`.
///
/// ```
/// use ramfold_disk::{Disk, DiskError, Fault, FaultPlan, FaultyDisk, RamDisk, FaultSpan, Verbs};
/// let disk = FaultyDisk::new(RamDisk::new(1 << 20)?);
/// let (after, verbs) = (1, Verbs::Writes);
/// disk.arm(FaultPlan { after, verbs, span: FaultSpan::Once, fault: Fault::NoSpace });
/// assert!(disk.write(0, b"one").is_ok());
/// assert!(matches!(disk.write(0, b"two"), Err(DiskError::NoSpace)));
/// assert!(disk.write(0, b"three").is_ok());
/// disk.arm(FaultPlan { after: 0, verbs, span: FaultSpan::Forever, fault: Fault::Backing });
/// assert!(disk.write(0, b"four").is_err() && disk.write(0, b"five").is_err());
/// disk.disarm();
/// assert!(disk.write(0, b"six").is_ok());
/// # Ok::<(), DiskError>(())
/// ```
#[derive(Debug)]
pub struct FaultyDisk<D> {
    inner: D,
    state: RankedMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<FaultPlan>,
    requests: u64,
}

impl<D: Disk> FaultyDisk<D> {
    /// Wraps `inner`. Nothing fails before [`arm`](Self::arm).
    pub fn new(inner: D) -> Self {
        Self { inner, state: RankedMutex::new(Rank::Leaf, State::default()) }
    }

    /// Replaces the plan. Its count starts now.
    pub fn arm(&self, plan: FaultPlan) {
        self.state.lock().plan = Some(plan);
    }

    /// Nothing fails any more.
    pub fn disarm(&self) {
        self.state.lock().plan = None;
    }

    /// Requests seen so far, failed ones included: the range of a countdown that should hit
    /// every request of a scenario.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// The disk underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn pass(&self, verb: Verbs, offset: u64) -> Result<(), DiskError> {
        let fault = self.state.lock().step(verb);
        match fault {
            None => Ok(()),
            Some(Fault::Backing) => Err(DiskError::Backing(io::Error::other("injected fault"))),
            Some(Fault::NoSpace) => Err(DiskError::NoSpace),
            Some(Fault::NoMemory) => Err(DiskError::NoMemory),
            Some(Fault::Corrupt) => Err(DiskError::Corrupt { offset }),
            Some(Fault::Panic) => panic!("injected fault"),
        }
    }
}

impl State {
    /// Counts one request. Says whether and how it fails.
    fn step(&mut self, verb: Verbs) -> Option<Fault> {
        self.requests += 1;
        let plan = self.plan.as_mut()?;
        if plan.verbs != Verbs::All && plan.verbs != verb {
            return None;
        }
        if plan.after > 0 {
            plan.after -= 1;
            return None;
        }
        let fault = plan.fault;
        if plan.span == FaultSpan::Once {
            self.plan = None;
        }
        Some(fault)
    }
}

impl<D: Disk> Disk for FaultyDisk<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn block_size(&self) -> u32 {
        self.inner.block_size()
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.pass(Verbs::Reads, offset)?;
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.pass(Verbs::Writes, offset)?;
        self.inner.write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.pass(Verbs::Writes, offset)?;
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.pass(Verbs::Writes, offset)?;
        self.inner.write_zeroes(offset, len, keep)
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.pass(Verbs::Reads, offset)?;
        self.inner.prefetch(offset, len)
    }

    fn would_wait(&self, offset: u64, len: u64) -> bool {
        self.inner.would_wait(offset, len)
    }

    fn may_still_change(&self, offset: u64, len: u64) -> bool {
        self.inner.may_still_change(offset, len)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.pass(Verbs::Writes, 0)?;
        self.inner.flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        self.pass(Verbs::Reads, offset)?;
        self.inner.next_extent(offset, len)
    }
}
