//! Something of the kernel's that is ours for a while, and is given back however the program ends.
//!
//! ```text
//!   claim --> with, with, with ... --drop, signal or panic--> give_back
//! ```
//!
//! Lock: one mutex around the claim, held for one request at a time, so that a signal can take the
//! claim away between two requests; later ones fail.

use crate::ground::{Cleanup, Deferred, LabError};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What can be given back as it was found.
pub(super) trait GiveBack: Send + 'static {
    fn give_back(self) -> Result<(), String>;
}

/// See the module documentation.
pub(super) struct Claimed<C> {
    name: String,
    claim: Arc<Mutex<Option<C>>>,
    _deferred: Deferred,
}

impl<C: GiveBack> Claimed<C> {
    /// Has `claim` given back; messages call it `name`.
    pub(super) fn new(cleanup: &Cleanup, name: String, claim: C) -> Claimed<C> {
        let claim = Arc::new(Mutex::new(Some(claim)));
        let (doomed, what) = (Arc::clone(&claim), name.clone());
        let deferred = cleanup.defer(move || {
            let claim = lock(&doomed).take();
            if let Some(why) = claim.and_then(|claim| claim.give_back().err()) {
                eprintln!("lab: {what} is not as it was found: {why}");
            }
        });
        Claimed { name, claim, _deferred: deferred }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Does one thing to it.
    pub(super) fn with<R>(
        &self,
        what: &str,
        work: impl FnOnce(&mut C) -> io::Result<R>,
    ) -> Result<R, LabError> {
        let given_back = || io::Error::other("already given back");
        let result = lock(&self.claim).as_mut().ok_or_else(given_back).and_then(work);
        result.map_err(LabError::io(format!("{}: {what}", self.name)))
    }
}

fn lock<C>(claim: &Mutex<Option<C>>) -> MutexGuard<'_, Option<C>> {
    claim.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims as soon as no other test has it.
#[cfg(test)]
pub(crate) fn patiently<T>(claim: impl Fn() -> Result<T, LabError>) -> Result<T, LabError> {
    let another = |error: &LabError| error.to_string().contains("another lab is measuring");
    for _ in 0..1000 {
        match claim() {
            Err(error) if another(&error) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            claimed => return claimed,
        }
    }
    claim()
}
