//! The word of a group: system calls that use it now, and whether it has closed pages.
//!
//! ```text
//!   bit 31          30 .. 0
//!   has closed      pins
//! ```
//!
//! A thread pins before its call and looks at the bit. The pager sets the bit and looks at the
//! pins. Both are one operation on one word, so one of them sees the other.
//!
//! Invariant: no page closes in a group that is pinned. Lock: none; the bit changes under the lock
//! of the state.

use host::sync::atomic::{AtomicU32, Ordering};

const CLOSED: u32 = 1 << 31;

const _: () = assert!(CLOSED > 1 << 22, "more pins than threads");

/// The word of a group.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(transparent))]
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
pub struct PinWord(AtomicU32);

#[cfg_attr(not(loom), expect(unreachable_pub, reason = "a model uses it from outside"))]
impl PinWord {
    /// Pins the group. True if it has no closed page; then none closes before `unpin`.
    pub fn pin(&self) -> bool {
        // Acquire pairs with the Release in `open`, so that the pages are seen open.
        self.0.fetch_add(1, Ordering::Acquire) & CLOSED == 0
    }

    /// Takes a pin back.
    pub fn unpin(&self) {
        // In a child that was forked within the call, the pin is gone.
        let less = |word: u32| (word & !CLOSED != 0).then(|| word - 1);
        // Release pairs with the Acquire in `close`, so that the call's work is seen. relaxed: a
        // failure reads nothing.
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }

    /// Notes that the group is about to have closed pages. False if it is pinned.
    pub fn close(&self) -> bool {
        // Acquire pairs with the Release in `unpin`, so that the work of earlier calls is seen.
        let before = self.0.fetch_or(CLOSED, Ordering::Acquire);
        if before & !CLOSED != 0 && before & CLOSED == 0 {
            // relaxed: nothing was closed.
            self.0.fetch_and(!CLOSED, Ordering::Relaxed);
        }
        before & !CLOSED == 0
    }

    /// Notes that the group has no closed pages any more.
    pub fn open(&self) {
        // Release pairs with the Acquire in `pin`, so that the pages are seen open.
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }

    /// In a forked child: no other thread is in a call.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    pub(crate) fn settle(&self) {
        // relaxed: there is one thread.
        if self.0.load(Ordering::Relaxed) & !CLOSED != 0 {
            // relaxed: as above.
            self.0.fetch_and(CLOSED, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_group_closes_only_while_nobody_uses_it() {
        let word = PinWord::default();
        assert!(word.pin() && word.pin(), "open");
        assert!(!word.close());
        assert!(word.pin(), "it stayed open");
        (0..3).for_each(|_| word.unpin());
        assert!(word.close() && !word.pin(), "closed");
        assert!(!word.close(), "a group that is closed in part does not close further");
        word.open();
        assert!(word.pin(), "open again");
    }

    #[test]
    fn a_pin_that_is_gone_is_not_taken_back() {
        let word = PinWord::default();
        assert!(word.close() && !word.pin());
        word.settle();
        word.unpin();
        assert!(!word.pin(), "it has closed pages still");
        word.unpin();
        assert!(word.close(), "nobody uses it");
    }
}
