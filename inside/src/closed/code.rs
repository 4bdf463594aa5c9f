//! The C library of the program: where its code is, and which one it is.
//!
//! Invariant: it is known before a call is trapped, and stays. Lock: none; it changes only before
//! there is a second thread.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The C libraries that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Glibc,
    Musl,
}

/// The code of a C library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) text: Range<usize>,
    pub(super) kind: Kind,
}

static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
static IS_MUSL: AtomicBool = AtomicBool::new(false);

impl Code {
    /// It is the program's.
    pub(super) fn note(&self) {
        // relaxed: there is one thread.
        START.store(self.text.start, Ordering::Relaxed);
        // relaxed: as above.
        END.store(self.text.end, Ordering::Relaxed);
        // relaxed: as above.
        IS_MUSL.store(self.kind == Kind::Musl, Ordering::Relaxed);
    }

    /// That of the program.
    pub(super) fn of_program() -> Code {
        // relaxed: it changes only before there is a second thread.
        let text = START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed);
        Code { text, kind: if is_musl() { Kind::Musl } else { Kind::Glibc } }
    }
}

/// Whether the program has musl.
pub(super) fn is_musl() -> bool {
    // relaxed: as above.
    IS_MUSL.load(Ordering::Relaxed)
}
