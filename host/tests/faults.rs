//! Claims
//! - Every operation of an arena and of a table that the system may refuse can be made to fail.
//! - The failure is reported as injected, and nothing has changed then.
//! - A refusal of the system itself is reported in the system's words.
#![cfg(not(loom))]

use ramfold_host::faults::Operation;
use ramfold_host::{Arena, ClaimError, FailureInjector, HostError, PAGE_SIZE, Pfn, Table};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Everything guarded, once; stops at the first refusal and says which it was.
fn scenario(faults: &Arc<FailureInjector>) -> Result<(), Operation> {
    let injected = |error| match error {
        HostError::Injected(operation) => operation,
        other => panic!("a failure that nobody injected: {other}"),
    };
    let arena = Arena::with_faults(16, faults.clone()).map_err(injected)?;
    let table: Table<AtomicU64> = Table::with_faults(512, faults.clone()).map_err(injected)?;
    table.extend().map_err(injected)?;
    table.touch(0..1);
    let outcome = table.discard(0..512).map_err(injected);
    let held = if outcome.is_err() { PAGE_SIZE as u64 } else { 0 };
    assert_eq!(table.held_bytes(), held, "held after a discard: {outcome:?}");
    outcome?;
    purge(&arena, injected)
}

fn purge(arena: &Arena, injected: impl Fn(HostError) -> Operation) -> Result<(), Operation> {
    let mut run = match arena.claim(Pfn::new(0), 16) {
        Ok(run) => run,
        Err(error) => {
            assert_eq!(error, ClaimError::Injected);
            assert_eq!(arena.claimed_in(Pfn::new(0), 16), 0, "a failed claim claims nothing");
            return Err(Operation::Claim);
        }
    };
    assert!(arena.write(&mut run, 0, b"content"));
    let outcome = arena.purge(&mut run).map_err(injected);
    let resident = u64::from(outcome.is_err());
    assert_eq!(arena.resident_frames(), resident, "resident after a purge: {outcome:?}");
    outcome.map(drop)
}

#[test]
fn a_sweep_meets_every_guarded_operation() {
    let faults = FailureInjector::new();
    let mut met = Vec::new();
    for nth in 1.. {
        faults.arm(nth);
        match scenario(&faults) {
            Err(operation) => met.push(operation),
            Ok(()) => break,
        }
    }
    let expected = [
        Operation::Reserve, // the frames
        Operation::Reserve, // their claim bits
        Operation::Reserve, // their resident bits
        Operation::Reserve, // the table
        Operation::Extend,
        Operation::Discard,
        Operation::Claim,
        Operation::Purge,
    ];
    assert_eq!(
        met, expected,
        "one failure for each guarded operation, in the order of the scenario"
    );
}

#[cfg(not(miri))]
#[test]
fn a_refused_reservation_says_what_to_look_at() {
    // 2^47 bytes are all that user space has.
    let refused = Table::<AtomicU64>::reserve(1 << 45).expect_err("no room for 2^48 bytes");
    let text = refused.to_string();
    assert!(matches!(refused, HostError::Reserve { .. }), "{text}");
    assert!(text.contains("ulimit -v") && text.contains("overcommit_memory"), "{text}");
}

/// Linux does not discard locked pages: the second of two runs is refused after the first was done.
#[cfg(not(miri))]
#[test]
fn what_the_system_does_not_take_back_stays_resident_until_it_does() {
    let arena = Arena::reserve(16).expect("address space");
    let mut runs = [0, 8].map(|number| arena.claim(Pfn::new(number), 2).expect("nobody has it"));
    runs.iter_mut().for_each(|run| assert!(arena.write(run, 0, b"content")));
    let locked = arena.base().as_ptr().wrapping_add(8 * PAGE_SIZE).cast();
    // SAFETY: the frame is the arena's, mapped until the end of this function.
    unsafe { rustix::mm::mlock(locked, PAGE_SIZE) }.expect("a page may be locked");
    let purged = arena.purge_all(&mut runs);
    assert!(matches!(purged.refused, Some(HostError::Advise { .. })), "{purged:?}");
    assert_eq!((purged.frames, arena.resident_frames()), (1, 1), "the other one is returned");
    assert!(arena.bytes(&runs[1]).expect("ours").starts_with(b"content"), "it was not returned");
    // SAFETY: as above.
    unsafe { rustix::mm::munlock(locked, PAGE_SIZE) }.expect("it was locked");
    let purged = arena.purge_all(&mut runs);
    assert!(purged.frames == 1 && purged.refused.is_none(), "nothing is locked: {purged:?}");
    assert_eq!((arena.resident_frames(), arena.bytes(&runs[1]).expect("ours")[0]), (0, 0));
}
