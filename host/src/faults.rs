//! Failure injection: the Nth guarded operation from now fails, once.
//!
//! An injector belongs to whoever builds an arena or a table with it; nothing is global. A test
//! sweeps N upwards until its scenario runs through without the injector firing, and so has
//! seen every refusal the system could give at every point where one is possible.
//!
//! Invariant: an armed injector fires exactly once, however many threads race to it: the
//! operation whose decrement reaches zero fails, and no other.

use crate::error::HostError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An operation that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reserving address space for an arena or a table.
    Reserve,
    /// Claiming a run of frames.
    Claim,
    /// Returning the memory of a run.
    Purge,
    /// Returning the memory of table pages.
    Discard,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Reserve => "a reservation",
            Operation::Claim => "a claim",
            Operation::Purge => "a purge",
            Operation::Discard => "a discard",
        })
    }
}

/// Counts guarded operations down and fails the one that reaches zero.
#[derive(Debug, Default)]
pub struct FailureInjector {
    /// 0: disarmed; n: the nth operation from now fails.
    countdown: AtomicU64,
}

impl FailureInjector {
    /// A disarmed injector, ready to be shared with what it will trouble.
    pub fn new() -> Arc<FailureInjector> {
        Arc::new(FailureInjector::default())
    }

    /// Makes the `nth` guarded operation from now fail (1: the next one; 0 disarms).
    pub fn arm(&self, nth: u64) {
        // relaxed: one independent value; a test arms before it starts what is to fail.
        self.countdown.store(nth, Ordering::Relaxed);
    }

    /// Whether a failure is still to come: false once it has fired.
    pub fn is_armed(&self) -> bool {
        // relaxed: one independent value, read when the operations have returned.
        self.countdown.load(Ordering::Relaxed) != 0
    }

    fn fires(&self) -> bool {
        // relaxed: the decrement alone decides who fires; it publishes nothing else.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.countdown.fetch_update(set, fetch, |left| left.checked_sub(1)) == Ok(1)
    }
}

/// Whether `operation` has to fail now.
pub(crate) fn guard(
    faults: Option<&FailureInjector>,
    operation: Operation,
) -> Result<(), HostError> {
    match faults {
        Some(injector) if injector.fires() => Err(HostError::Injected(operation)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_nth_operation_fails() {
        let injector = FailureInjector::new();
        injector.arm(3);
        let failed: Vec<bool> =
            (0..6).map(|_| guard(Some(&injector), Operation::Claim).is_err()).collect();
        assert_eq!(failed, [false, false, true, false, false, false]);
        assert!(!injector.is_armed(), "a fired injector is disarmed");
    }

    #[test]
    fn a_disarmed_or_absent_injector_lets_everything_pass() {
        let injector = FailureInjector::new();
        injector.arm(1);
        injector.arm(0);
        assert!(guard(Some(&injector), Operation::Purge).is_ok(), "arm(0) disarms");
        assert!(guard(None, Operation::Reserve).is_ok(), "no injector, no failure");
    }
}
