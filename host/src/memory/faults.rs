//! Failure injection: the Nth guarded operation from now fails, once or from then on.
//!
//! ```text
//!    arm(n)         . . . . F . . . . .        one refusal at every point, in turn
//!    arm_from(n)    . . . . F F F F F F        a system that has nothing more to give
//! ```
//!
//! An injector belongs to whoever builds an arena, a table or what is made of them; nothing is
//! global. A test sweeps N upwards until its scenario runs through without the injector firing, and
//! so has seen every refusal the system could give at every point where one is possible.
//!
//! Invariant: armed by `arm`, an injector fires exactly once, however many threads race to it: the
//! operation whose decrement reaches zero fails, and no other.

use super::error::HostError;
pub use super::operation::Operation;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Set in the countdown when the failure is to last.
const LASTING: u64 = 1 << 63;

const _: () = assert!(LASTING.is_power_of_two(), "one bit, above any count");

/// Counts guarded operations down and fails the one that reaches zero.
#[derive(Debug, Default)]
pub struct FailureInjector {
    /// 0: disarmed; n: the nth operation from now fails; with LASTING, those after it too.
    countdown: AtomicU64,
    /// What failed last.
    fired: Mutex<Option<Operation>>,
}

impl FailureInjector {
    /// A disarmed injector, ready to be shared with what it will trouble.
    pub fn new() -> Arc<FailureInjector> {
        Arc::new(FailureInjector::default())
    }

    /// Makes the `nth` guarded operation from now fail (1: the next one; 0 disarms).
    pub fn arm(&self, nth: u64) {
        *self.last() = None;
        // relaxed: one independent value; a test arms before it starts what is to fail.
        self.countdown.store(nth, Ordering::Relaxed);
    }

    /// Makes the `nth` guarded operation from now fail, and all after it until the next arming (0
    /// disarms).
    pub fn arm_from(&self, nth: u64) {
        self.arm(if nth == 0 { 0 } else { nth | LASTING });
    }

    /// Whether a failure is still to come: false once it has fired, but for a lasting one.
    pub fn is_armed(&self) -> bool {
        // relaxed: one independent value, read when the operations have returned.
        self.countdown.load(Ordering::Relaxed) != 0
    }

    /// What failed last since the injector was armed.
    pub fn fired(&self) -> Option<Operation> {
        *self.last()
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Operation>> {
        // One value, whole whoever panicked.
        self.fired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fires(&self) -> bool {
        let next = |left: u64| match left {
            0 => None,
            left if left == LASTING | 1 => Some(left),
            left => Some(left - 1),
        };
        // relaxed: the decrement alone decides who fires; it publishes nothing else.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.countdown.fetch_update(set, fetch, next);
        before.is_ok_and(|before| before & !LASTING == 1)
    }
}

/// Whether `operation` has to fail now: for whoever has an operation of these kinds to guard.
///
/// # Errors
///
/// [`HostError::Injected`], when it is this one's turn.
pub fn guard(faults: Option<&FailureInjector>, operation: Operation) -> Result<(), HostError> {
    match faults {
        Some(injector) if injector.fires() => {
            *injector.last() = Some(operation);
            Err(HostError::Injected(operation))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(injector: &FailureInjector) -> Vec<bool> {
        (0..6).map(|_| guard(Some(injector), Operation::Claim).is_err()).collect()
    }

    #[test]
    fn exactly_the_nth_operation_fails() {
        let injector = FailureInjector::new();
        injector.arm(3);
        assert_eq!(failures(&injector), [false, false, true, false, false, false]);
        assert!(!injector.is_armed(), "a fired injector is disarmed");
        assert_eq!(injector.fired(), Some(Operation::Claim));
    }

    #[test]
    fn a_lasting_failure_lasts_until_the_next_arming() {
        let injector = FailureInjector::new();
        injector.arm_from(3);
        assert_eq!(failures(&injector), [false, false, true, true, true, true]);
        assert!(injector.is_armed(), "more is to come");
        injector.arm(0);
        assert_eq!((failures(&injector), injector.fired()), (vec![false; 6], None));
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
