//! A handler that puts the same page wherever one is missing: no store, no lock, no look-up.

use super::touching::Memory;
use crate::ground::LabError;
use host::fault::{FaultThread, Filled};
use host::{FaultError, FaultPath};
use region::FaultMode;

/// What every page holds.
const BYTE: u8 = 0xA5;

pub(super) struct Copying {
    filled: Filled,
    pages: usize,
    _thread: Option<FaultThread>,
}

impl Copying {
    pub(super) fn new(mode: FaultMode, pages: usize) -> Result<Copying, LabError> {
        let path = FaultPath::open(mode).map_err(missing)?;
        let filled = Filled::map(&path, pages, BYTE).map_err(missing)?;
        let thread = match mode {
            FaultMode::Signal | FaultMode::Protection | FaultMode::Guards => None,
            FaultMode::Thread => Some(FaultThread::start(path)),
        };
        let thread = thread.transpose().map_err(LabError::io("thread"))?;
        Ok(Copying { filled, pages, _thread: thread })
    }
}

impl Memory for Copying {
    fn put_out(&mut self) -> Result<(), LabError> {
        self.filled.put_out(0..self.pages).map_err(LabError::store("discard"))
    }

    fn bytes(&self) -> &[u8] {
        let memory = self.filled.memory();
        memory.bytes(0..memory.len()).expect("nothing of it was given back")
    }

    fn verify(&self) -> Result<(), LabError> {
        let wrong = self.bytes().iter().position(|&byte| byte != BYTE);
        let what = |at| LabError::Wrong(format!("byte {at} is not the one that was put there"));
        wrong.map_or(Ok(()), |at| Err(what(at)))
    }
}

fn missing(why: FaultError) -> LabError {
    LabError::missing("userfaultfd", why)
}
