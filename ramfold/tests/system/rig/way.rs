//! The two ways that requests of a mounted tree come: by `/dev/fuse`, and by io_uring.
//!
//! A tree of a test takes its requests by `/dev/fuse`, unless the test runs within `by_io_uring`.
//! `by_io_uring_too!` makes such a test of each test that it names.
//!
//! The kernel offers io_uring while a parameter is Y. A test that needs it holds an [`Offer`].
//!
//! Invariant: the parameter is N again when the last offer is dropped, also if a test fails.

use std::cell::Cell;
use std::fs;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::needs_root;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
const DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

thread_local! {
    static BY_IO_URING: Cell<bool> = const { Cell::new(false) };
}

/// Held to read while the kernel offers io_uring, and to write by a test that needs it refused.
static OFFERED: RwLock<()> = RwLock::new(());
/// Offers that are held.
static OFFERS: Mutex<usize> = Mutex::new(0);

/// While it is held, the kernel offers io_uring to new mounts.
pub(crate) struct Offer {
    _held: Option<RwLockReadGuard<'static, ()>>,
}

impl Offer {
    pub(crate) fn new() -> Offer {
        let held = OFFERED.read().unwrap_or_else(PoisonError::into_inner);
        Offer::count(Some(held))
    }

    /// While no other test has an offer or gets one.
    pub(crate) fn alone(_alone: &Alone) -> Offer {
        Offer::count(None)
    }

    fn count(held: Option<RwLockReadGuard<'static, ()>>) -> Offer {
        let mut offers = OFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        if *offers == 0 {
            fs::write(PARAMETER, "Y").expect("root may");
        }
        *offers += 1;
        Offer { _held: held }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let mut offers = OFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        *offers -= 1;
        if *offers == 0 {
            let _ = fs::write(PARAMETER, "N");
        }
    }
}

/// While it is held, no other test has an offer.
pub(crate) struct Alone {
    _held: RwLockWriteGuard<'static, ()>,
}

impl Alone {
    pub(crate) fn new() -> Alone {
        Alone { _held: OFFERED.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// While it is held, the system lets no process make a ring.
pub(crate) struct Disabled<'a> {
    before: String,
    _alone: &'a Alone,
}

impl<'a> Disabled<'a> {
    pub(crate) fn new(alone: &'a Alone) -> Disabled<'a> {
        let before = fs::read_to_string(DISABLED).expect("Linux 6.6");
        fs::write(DISABLED, "2").expect("root may");
        Disabled { before, _alone: alone }
    }
}

impl Drop for Disabled<'_> {
    fn drop(&mut self) {
        let _ = fs::write(DISABLED, &self.before);
    }
}

/// Can the kernel offer io_uring here? CI may not skip what it has and may set.
pub(crate) fn needs_io_uring() -> bool {
    let has = fs::exists(PARAMETER).unwrap_or(false);
    if !has {
        println!("skipped: needs {PARAMETER} (Linux 6.14 with FUSE over io_uring)");
        return false;
    }
    if !needs_root() {
        return false;
    }
    let may = fs::OpenOptions::new().write(true).open(PARAMETER).is_ok()
        && fs::read_to_string(DISABLED).is_ok_and(|text| text.trim() == "0");
    if !may {
        println!("skipped: needs to set {PARAMETER}, and {DISABLED} to be 0");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "this is CI");
    }
    may
}

/// Runs a test whose trees take their requests by io_uring.
pub(crate) fn by_io_uring(test: fn()) {
    if needs_io_uring() {
        let _offer = Offer::new();
        BY_IO_URING.set(true);
        test();
    }
}

/// Whether a tree takes its requests by io_uring in this test.
pub(crate) fn is_by_io_uring() -> bool {
    BY_IO_URING.get()
}

/// Makes a test of each of these tests whose trees take their requests by io_uring.
macro_rules! by_io_uring_too {
    ($($name:ident),+ $(,)?) => {
        mod by_io_uring {
            $(#[test]
            fn $name() {
                crate::rig::by_io_uring(super::$name);
            })+
        }
    };
}
pub(crate) use by_io_uring_too;
