//! What a thread works with: the object that it reads, its value, and the object that it makes.
//!
//! They are not made anew each time, because a small value would take less time than that. What is
//! read is in arrays, so that a thread that ends frees nothing, and may read to its very end.
//!
//! Lock: none; they are the thread's own.

use crate::form::OBJECT_MAX;
use std::cell::RefCell;

/// For reading.
pub(crate) struct Scratch {
    pub(crate) object: [u8; OBJECT_MAX],
    pub(crate) page: [u8; OBJECT_MAX],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch { object: [0; OBJECT_MAX], page: [0; OBJECT_MAX] })
    };
    static DRAFT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Does something with what the thread reads with.
pub(crate) fn with<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with_borrow_mut(work)
}

/// Does something with the thread's empty draft, or with another one if the thread ends and has
/// given it up.
pub(crate) fn with_draft<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut draft = DRAFT.try_with(RefCell::take).unwrap_or_default();
    draft.clear();
    let done = work(&mut draft);
    let _ = DRAFT.try_with(|place| place.replace(draft));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Last;

    impl Drop for Last {
        fn drop(&mut self) {
            with_draft(|draft| draft.push(1));
            with(|scratch| scratch.object[0] = 1);
        }
    }

    thread_local! {
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    }

    #[test]
    fn a_thread_works_to_its_very_end() {
        let thread = std::thread::spawn(|| {
            // What was used last goes first, so the draft has gone when `Last` goes.
            LAST.set(Some(Last));
            with_draft(|draft| draft.push(1));
        });
        assert!(thread.join().is_ok());
    }
}
