//! The suite's own test: it passes the disks of this crate and catches broken ones.
//!
//! Each mutation is one mistake that an implementation could make. The suite must fail, and its
//! message must say where.
//!
//! ```text
//!   conformance::run --> Broken { mistake } --> RamDisk
//!        '-- panics with a message that names the check and the request
//! ```

use ramfold_disk::{
    Allocation, Disk, DiskError, Extent, ExtentKind, Fault, FaultPlan, FaultSpan, FaultyDisk,
    RamDisk, ReadOnly, Verbs, check_range, conformance,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn ram(size: u64) -> RamDisk {
    RamDisk::new(size).expect("memory for a test disk")
}

#[test]
fn the_ram_disk_conforms() {
    conformance::run("RamDisk", &|size| Arc::new(ram(size)));
    conformance::run_sparse("RamDisk", &|size| Arc::new(ram(size)));
}

#[test]
fn the_ram_disk_conforms_at_odd_sizes() {
    for size in [0, 1, 511, 4095, 4097, 9 * 4096 + 513] {
        conformance::run_sized("RamDisk", size, &|size| Arc::new(ram(size)));
    }
}

#[test]
fn wrappers_conform() {
    let size = 24 * 4096;
    conformance::run_sized("FaultyDisk", size, &|size| Arc::new(FaultyDisk::new(ram(size))));
    conformance::run_sized("Arc<Arc>", size, &|size| Arc::new(Arc::new(ram(size))));
    conformance::run_sparse_sized("Arc<Arc>", size, &|size| Arc::new(Arc::new(ram(size))));
}

#[test]
fn a_read_only_disk_refuses_and_answers() {
    let inner = ram(3 * 4096);
    inner.write(4000, b"kept").unwrap();
    conformance::run_read_only("ReadOnly", &ReadOnly::new(inner));
}

#[test]
fn a_disk_that_is_not_read_only_fails_the_read_only_suite() {
    let complaint = complaint_of(|| conformance::run_read_only("RamDisk", &ram(4096)));
    assert!(complaint.contains("does not say that it is read-only"), "{complaint}");
}

/// One mistake each.
#[derive(Clone, Copy, Debug)]
enum Mistake {
    OneByteTooMany,
    SumOverflows,
    DiscardForgetsTail,
    DiscardSkipsPartialPages,
    ZeroesTakeTheWholePage,
    KeepIsIgnored,
    ReadLeavesHolesAlone,
    ExtentsLie,
    ExtentsStall,
    NeverAHole,
    DiscardLeavesZeros,
    EmptyAtEndFails,
    WrongError,
    TornPages,
}

/// A RAM disk with a [`Mistake`].
struct Broken {
    inner: RamDisk,
    mistake: Mistake,
}

impl Broken {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake as u8 == mistake as u8
    }

    /// The range check, with the mistakes one can make there. If the inner disk would refuse, it
    /// reports success without doing anything.
    fn check(&self, offset: u64, len: u64) -> Result<bool, DiskError> {
        let size = self.inner.size_bytes();
        if self.has(Mistake::EmptyAtEndFails) && len == 0 && offset == size {
            return Err(DiskError::OutOfRange { offset, len, size });
        }
        let lenient = self.has(Mistake::OneByteTooMany)
            && offset.checked_add(len) == Some(size + 1)
            || self.has(Mistake::SumOverflows) && offset.wrapping_add(len) <= size;
        match check_range(size, offset, len) {
            Ok(()) => Ok(true),
            Err(_) if lenient => Ok(false),
            Err(_) if self.has(Mistake::WrongError) => Err(DiskError::NoSpace),
            Err(error) => Err(error),
        }
    }
}

impl Disk for Broken {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        if !self.check(offset, buf.len() as u64)? {
            return Ok(());
        }
        let extent = self.inner.next_extent(offset, buf.len() as u64)?;
        if self.has(Mistake::ReadLeavesHolesAlone) && extent.kind == ExtentKind::Hole {
            return Ok(());
        }
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        if !self.check(offset, data.len() as u64)? {
            return Ok(());
        }
        let end = offset + data.len() as u64;
        let within_page = !data.is_empty() && offset / 4096 == (end - 1) / 4096;
        if self.has(Mistake::TornPages) && within_page && data.len() < 4096 {
            let base = offset & !4095;
            let mut page = vec![0; 4096.min(self.size_bytes() - base) as usize];
            self.inner.read(base, &mut page)?;
            std::thread::yield_now();
            page[(offset - base) as usize..][..data.len()].copy_from_slice(data);
            return self.inner.write(base, &page);
        }
        self.inner.write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if !self.check(offset, len)? {
            return Ok(());
        }
        let end = offset + len;
        if self.has(Mistake::DiscardLeavesZeros) {
            return self.inner.write(offset, &vec![0; len as usize]);
        }
        if self.has(Mistake::DiscardSkipsPartialPages) {
            let (first, last) = (offset.next_multiple_of(4096), end & !4095);
            return self.inner.discard(first.min(last), last.saturating_sub(first));
        }
        let tail = if self.has(Mistake::DiscardForgetsTail) { end % 4096 } else { 0 };
        self.inner.discard(offset, len.saturating_sub(tail))
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        if !self.check(offset, len)? || self.has(Mistake::KeepIsIgnored) && keep == Allocation::Keep
        {
            return Ok(());
        }
        if self.has(Mistake::ZeroesTakeTheWholePage) && len > 0 {
            let end = (offset + len).next_multiple_of(4096).min(self.size_bytes());
            return self.inner.write_zeroes(offset, end - offset, keep);
        }
        self.inner.write_zeroes(offset, len, keep)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.inner.flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        if !self.check(offset, len)? {
            return Ok(Extent { len, kind: ExtentKind::Hole });
        }
        let extent = self.inner.next_extent(offset, len)?;
        Ok(match self.mistake {
            Mistake::ExtentsLie => Extent { len, ..extent },
            Mistake::ExtentsStall => Extent { len: 0, ..extent },
            Mistake::NeverAHole => Extent { kind: ExtentKind::Data, ..extent },
            _ => extent,
        })
    }
}

/// The message with which `body` panics.
fn complaint_of(body: impl FnOnce()) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(body)) else { return "nothing".to_owned() };
    payload.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[track_caller]
fn catches(mistake: Mistake, part_of_message: &str) {
    let make = |size| Arc::new(Broken { inner: ram(size), mistake }) as Arc<dyn Disk>;
    let complaint = complaint_of(|| conformance::run("Broken", &make));
    let caught = complaint.contains(part_of_message);
    assert!(caught, "{mistake:?}: expected {part_of_message:?}, the suite said: {complaint}");
}

#[test]
fn catches_range_mistakes() {
    catches(Mistake::OneByteTooMany, "bounds: Op { verb: Read, offset: 4096, len: 1 } must end in");
    catches(Mistake::SumOverflows, "must end in OutOfRange, not Ok");
    catches(Mistake::EmptyAtEndFails, "must end in success, not Err(OutOfRange");
    catches(Mistake::WrongError, "must end in OutOfRange, not Err(NoSpace");
}

#[test]
fn catches_content_mistakes() {
    catches(Mistake::DiscardForgetsTail, "must read as zero");
    catches(Mistake::DiscardSkipsPartialPages, "must read as zero");
    catches(Mistake::ZeroesTakeTheWholePage, "lost what was written");
    catches(Mistake::KeepIsIgnored, "must read as zero");
    catches(Mistake::ReadLeavesHolesAlone, "fresh: byte 0 must read as zero: 0xa5");
}

#[test]
fn catches_extent_mistakes() {
    catches(Mistake::ExtentsLie, "over bytes that are not zero");
    catches(Mistake::ExtentsStall, "no progress");
}

/// The suite once failed a disk whose fresh pages are `Data`, which the contract allows. A disk
/// that keeps no account of its holes conforms. Another suite says that it is not sparse.
#[test]
fn a_disk_without_holes_conforms_and_is_not_sparse() {
    for (mistake, complaint) in [
        (Mistake::NeverAHole, "never written must be a hole"),
        (Mistake::DiscardLeavesZeros, "page 0: Zero, not Hole"),
    ] {
        let make = |size| Arc::new(Broken { inner: ram(size), mistake }) as Arc<dyn Disk>;
        conformance::run("Broken", &make);
        let said = complaint_of(|| conformance::run_sparse("Broken", &make));
        assert!(said.contains(complaint), "{mistake:?}: expected {complaint:?}, said: {said}");
    }
}

/// A disk of three methods, with every default.
struct Minimal(RamDisk);

impl Disk for Minimal {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.0.write(offset, data)
    }
}

#[test]
fn a_disk_of_three_methods_conforms() {
    conformance::run("Minimal", &|size| Arc::new(Minimal(ram(size))));
    let odd = 9 * 4096 + 513;
    conformance::run_sized("Minimal", odd, &|size| Arc::new(Minimal(ram(size))));
}

/// If a minimal disk is read-only, its defaults refuse changes too.
#[test]
fn the_defaults_refuse_changes_of_a_read_only_disk() {
    struct Fixed(Minimal);
    impl Disk for Fixed {
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }
        fn read_only(&self) -> bool {
            true
        }
        fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
            self.0.read(offset, buf)
        }
        fn write(&self, _offset: u64, _data: &[u8]) -> Result<(), DiskError> {
            Err(DiskError::ReadOnly)
        }
    }
    conformance::run_read_only("Fixed", &Fixed(Minimal(ram(3 * 4096))));
}

#[test]
fn catches_lost_updates_within_a_page() {
    catches(Mistake::TornPages, "stripes: thread");
}

#[test]
fn a_failing_disk_fails_the_suite() {
    let (verbs, span, fault) = (Verbs::All, FaultSpan::Once, Fault::Corrupt);
    let complaint = complaint_of(|| {
        conformance::run("FaultyDisk", &|size| {
            let disk = FaultyDisk::new(ram(size));
            disk.arm(FaultPlan { after: 5, verbs, span, fault });
            Arc::new(disk)
        });
    });
    assert!(complaint.contains("Corrupt"), "{complaint}");
}

/// A disk that does its requests page by page, and may fail after some of the pages.
struct Halting {
    inner: Arc<FaultyDisk<RamDisk>>,
    /// Whether a request that fails changes the byte after its range too.
    spills: bool,
}

impl Halting {
    fn by_page(
        &self,
        offset: u64,
        len: u64,
        act: impl Fn(u64, u64) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let next = (at / 4096 + 1) * 4096;
            act(at, next.min(end) - at).inspect_err(|_| self.spill(end))?;
            at = next;
        }
        Ok(())
    }

    fn spill(&self, end: u64) {
        if self.spills && end < self.size_bytes() {
            self.inner.inner().write(end, b"!").expect("the byte is there");
        }
    }
}

impl Disk for Halting {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        let piece = |at: u64, len: u64| {
            let first = (at - offset) as usize;
            self.inner.write(at, &data[first..first + len as usize])
        };
        self.by_page(offset, data.len() as u64, piece)
    }
}

/// Every second write of a page fails.
fn run_halting(spills: bool) {
    let size = 24 * 4096;
    let inner = Arc::new(FaultyDisk::new(ram(size)));
    let plan = FaultPlan {
        after: 1,
        verbs: Verbs::Writes,
        span: FaultSpan::Forever,
        fault: Fault::NoSpace,
    };
    let fail = |on| if on { inner.arm(plan) } else { inner.disarm() };
    let make = |_| Arc::new(Halting { inner: Arc::clone(&inner), spills }) as Arc<dyn Disk>;
    conformance::run_failing("Halting", size, &make, &fail);
}

#[test]
fn a_disk_that_fails_halfway_conforms_unless_it_changes_other_bytes() {
    run_halting(false);
    let complaint = complaint_of(|| run_halting(true));
    assert!(complaint.contains("failed and changed byte"), "{complaint}");
}

#[test]
fn a_disk_that_never_fails_is_not_checked_for_it() {
    let make = |size| Arc::new(ram(size)) as Arc<dyn Disk>;
    let complaint = complaint_of(|| conformance::run_failing("RamDisk", 4096, &make, &|_| ()));
    assert!(complaint.contains("nothing was checked"), "{complaint}");
}
