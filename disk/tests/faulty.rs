//! The countdown of a `FaultyDisk`, request by request.

use ramfold_disk::{
    Allocation, Disk, DiskError, Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, Verbs,
};

fn armed(after: u64, verbs: Verbs, span: FaultSpan) -> FaultyDisk<RamDisk> {
    let disk = FaultyDisk::new(RamDisk::new(8192).expect("memory for a test disk"));
    disk.arm(FaultPlan { after, verbs, span, fault: Fault::Backing });
    disk
}

/// Outcomes of `count` writes.
fn writes(disk: &dyn Disk, count: usize) -> Vec<bool> {
    (0..count).map(|_| disk.write(0, b"x").is_ok()).collect()
}

#[test]
fn fails_once_after_the_countdown() {
    assert_eq!(writes(&armed(2, Verbs::All, FaultSpan::Once), 5), [true, true, false, true, true]);
}

#[test]
fn fails_forever_after_the_countdown_until_disarmed() {
    let disk = armed(1, Verbs::All, FaultSpan::Forever);
    assert_eq!(writes(&disk, 4), [true, false, false, false]);
    disk.disarm();
    assert_eq!(writes(&disk, 2), [true, true]);
    assert_eq!(disk.requests(), 6, "failed requests count as well");
}

#[test]
fn counts_and_fails_only_the_verbs_it_was_told() {
    let disk = armed(0, Verbs::Writes, FaultSpan::Forever);
    let mut buf = [0; 4];
    assert!(disk.read(0, &mut buf).is_ok() && disk.prefetch(0, 1).is_ok());
    assert!(disk.next_extent(0, 1).is_ok(), "reads are not in the plan");
    let changes = [
        disk.write(0, b"x"),
        disk.discard(0, 1),
        disk.write_zeroes(0, 1, Allocation::Keep),
        disk.flush(),
    ];
    assert!(changes.iter().all(Result::is_err), "every change is in the plan: {changes:?}");

    let disk = armed(0, Verbs::Reads, FaultSpan::Forever);
    assert!(disk.write(0, b"x").is_ok() && disk.flush().is_ok());
    assert!(disk.read(0, &mut buf).is_err() && disk.next_extent(0, 1).is_err());
}

#[test]
fn a_failed_write_does_not_reach_the_inner_disk() {
    let disk = armed(0, Verbs::All, FaultSpan::Once);
    assert!(disk.write(0, b"lost").is_err());
    let mut found = [0xA5; 4];
    disk.inner().read(0, &mut found).unwrap();
    assert_eq!(found, [0; 4]);
}

#[test]
fn fails_with_the_fault_it_was_told() {
    let disk = armed(0, Verbs::All, FaultSpan::Once);
    let outcome_of = |fault| {
        disk.arm(FaultPlan { after: 0, verbs: Verbs::All, span: FaultSpan::Once, fault });
        disk.write(4096, b"x")
    };
    assert!(matches!(outcome_of(Fault::Backing), Err(DiskError::Backing(_))));
    assert!(matches!(outcome_of(Fault::NoSpace), Err(DiskError::NoSpace)));
    assert!(matches!(outcome_of(Fault::NoMemory), Err(DiskError::NoMemory)));
    assert!(matches!(outcome_of(Fault::Corrupt), Err(DiskError::Corrupt { offset: 4096 })));
    let panics = std::panic::AssertUnwindSafe(|| outcome_of(Fault::Panic));
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(disk.write(0, b"x").is_ok(), "and goes on");
}
