//! Failure injection: the Nth guarded operation from now fails, once or from then on.
//!
//! ```text
//!    arm(n)         . . . . F . . . . .        one refusal at every point, in turn
//!    arm_from(n)    . . . . F F F F F F        a system that has nothing more to give
//! ```
//!
//! An injector belongs to the test that builds an arena, a table or a client of them. Nothing is
//! global. A test repeats its scenario with N = 1, 2, 3 and so on until the injector does not fire.
//! It has then seen every refusal that the system could give, at every point where one is possible.
//!
//! Invariant: armed by `arm`, an injector fires exactly once, however many threads race to it. The
//! operation whose decrement reaches zero fails, and no other.
//!
//! Lock: one around the name of the last failure, of rank Injection, which is the last.

use super::error::HostError;
pub use super::error::Operation;
use crate::locks::Rank;
use crate::locks::unmodelled::RankedMutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// This bit is set in the countdown if the failure lasts.
const LASTING: u64 = 1 << 63;

const _: () = assert!(LASTING.is_power_of_two(), "one bit, above any count");

/// Counts guarded operations down and fails the one that reaches zero.
#[derive(Debug)]
pub struct FailureInjector {
    /// 0 is disarmed. With n the nth operation from now fails, and with LASTING those after it too.
    countdown: AtomicU64,
    /// The operation that failed last.
    fired: RankedMutex<Option<Operation>>,
}

impl FailureInjector {
    /// A disarmed injector, to be shared with the arenas and tables whose operations it makes fail.
    pub fn new() -> Arc<FailureInjector> {
        let fired = RankedMutex::new(Rank::Injection, None);
        Arc::new(FailureInjector { countdown: AtomicU64::new(0), fired })
    }

    /// Makes the `nth` guarded operation from now fail; 1 is the next one, and 0 disarms.
    pub fn arm(&self, nth: u64) {
        *self.fired.lock() = None;
        // relaxed: one independent value; a test arms before it starts what is to fail.
        self.countdown.store(nth, Ordering::Relaxed);
    }

    /// Makes the `nth` guarded operation from now fail, and all after it until the next arming; 0
    /// disarms.
    pub fn arm_from(&self, nth: u64) {
        self.arm(if nth == 0 { 0 } else { nth | LASTING });
    }

    /// Whether a failure is still to come. It is false once the injector has fired, unless the
    /// failure lasts.
    pub fn is_armed(&self) -> bool {
        // relaxed: one independent value, read when the operations have returned.
        self.countdown.load(Ordering::Relaxed) != 0
    }

    /// The operation that failed last since the injector was armed.
    pub fn fired(&self) -> Option<Operation> {
        *self.fired.lock()
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

/// Asks whether `operation` has to fail now. Code that has an operation of these kinds calls it
/// first.
///
/// # Errors
///
/// [`HostError::Injected`] if `faults` makes this operation fail.
pub fn guard(faults: Option<&FailureInjector>, operation: Operation) -> Result<(), HostError> {
    match faults {
        Some(injector) if injector.fires() => {
            *injector.fired.lock() = Some(operation);
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
