//! Whether a forked child gets the mappings of its parent.
//!
//! ```text
//!   no (MADV_DONTFORK)   until a region or a store may be used by a child: a fork costs nothing
//!   yes                  from then on, also those that exist already
//! ```
//!
//! A child that has a region needs all that leads to its pages: arena, tables, staging. These were
//! made before anybody knew of the region, and by rooms that know no region. A fork copies all of
//! the process, so one answer holds for all of it, and this is a static.
//!
//! Invariant: the list has the mappings that are left to this answer. Lock: the list's, of rank
//! `Mappings`.

use super::system;
use crate::locks::{Lock, LockGuard, Rank};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

struct Forked {
    inherits: bool,
    /// Start and length in bytes.
    mappings: BTreeMap<usize, usize>,
}

static FORKED: Lock<Forked> =
    Lock::new(Rank::Mappings, Forked { inherits: false, mappings: BTreeMap::new() });

/// In a child: another thread of its parent's was changing the list when the child was made.
static LOST: AtomicBool = AtomicBool::new(false);

/// The list, unless it is lost.
fn list() -> Option<LockGuard<'static, Forked>> {
    // relaxed: it is set by the only thread of a child, before there is another one.
    (!LOST.load(Ordering::Relaxed)).then(|| FORKED.lock())
}

/// Called in a forked child, whose only thread this is. If the list is locked, it stays so. The
/// child then does without it, and its own children have all mappings.
pub(crate) fn settle_in_child() {
    if FORKED.try_lock().is_none() {
        // relaxed: as above.
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Makes a forked child have all arenas, tables and staging of this process, those that come later
/// too.
pub fn inherit_all() {
    let Some(mut forked) = list() else { return };
    forked.inherits = true;
    for (&start, &len) in &forked.mappings {
        if let Some(start) = NonNull::new(std::ptr::without_provenance_mut(start)) {
            // SAFETY: the list has live mappings only.
            unsafe { system::inherit(start, len) };
        }
    }
}

/// Leaves a new mapping to the answer.
pub(super) fn enter(start: NonNull<u8>, len: usize) {
    let mut list = list();
    if let Some(forked) = &mut list {
        forked.mappings.insert(start.addr().get(), len);
    }
    if list.is_none_or(|forked| forked.inherits) {
        // SAFETY: the caller has just made it.
        unsafe { system::inherit(start, len) };
    }
}

/// Takes a mapping off the list. True if a child would get it.
pub(super) fn leave(start: NonNull<u8>) -> bool {
    list().is_none_or(|mut forked| {
        forked.mappings.remove(&start.addr().get());
        forked.inherits
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Core, Mapping};
    use super::*;
    use std::sync::mpsc;

    /// It waited for a thread that only its parent has.
    #[test]
    fn a_child_that_is_made_while_the_list_changes_goes_on_without_it() {
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let holder = std::thread::spawn(move || {
            let _held = FORKED.lock();
            tell.send(()).expect("heard");
            ended.recv().expect_err("until the test ends it");
        });
        told.recv().expect("it holds the list");
        // SAFETY: the child makes system calls, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            settle_in_child();
            let mapped = Mapping::reserve(1, Access::Open, Core::LeftOut).map(drop).is_ok();
            // SAFETY: without what a test's end would do.
            unsafe { libc::_exit(i32::from(!mapped)) };
        }
        drop(end);
        holder.join().expect("it holds only");
        let mut status = 1;
        for _ in 0..500 {
            // SAFETY: waits for a child of this process.
            if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
                return assert_eq!(status, 0);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // SAFETY: ends that child.
        unsafe { libc::kill(child, libc::SIGKILL) };
        panic!("it hangs");
    }
}
