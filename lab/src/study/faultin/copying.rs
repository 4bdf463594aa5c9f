//! A handler that puts the same page wherever one is missing: no store, no lock, no look-up.

use super::touching::Memory;
use crate::corpus::PAGE_SIZE;
use crate::error::LabError;
use host::fault::{Asker, FaultThread, Served, Server, Watch};
use host::{Span, SpanMemory, Userfault, UserfaultError};
use region::FaultMode;
use std::sync::Arc;

/// What every page holds.
const BYTE: u8 = 0xA5;

pub(super) struct Copying {
    memory: SpanMemory,
    pages: usize,
    _watch: Watch,
    _thread: Option<FaultThread>,
}

struct Handler {
    span: Arc<Span>,
    page: Vec<u8>,
}

impl Server for Handler {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        self.span.fill(page, &self.page);
        Served::Filled
    }
}

impl Copying {
    pub(super) fn new(mode: FaultMode, pages: usize) -> Result<Copying, LabError> {
        let userfault = Userfault::open(mode).map_err(missing)?;
        let (span, memory) =
            Span::reserve(&userfault, pages).map_err(LabError::store("address space"))?;
        span.register(0..pages).map_err(missing)?;
        let thread = match mode {
            FaultMode::Signal => None,
            FaultMode::Thread => Some(FaultThread::start(Arc::clone(&userfault))),
        };
        let thread = thread.transpose().map_err(LabError::io("thread"))?;
        let range = span.range();
        let handler = Handler { span, page: vec![BYTE; PAGE_SIZE] };
        let watch = host::fault::watch(range, Arc::new(handler)).map_err(missing)?;
        Ok(Copying { memory, pages, _watch: watch, _thread: thread })
    }
}

impl Memory for Copying {
    fn put_out(&mut self) -> Result<(), LabError> {
        let all = 0..self.pages;
        self.memory.discard(all).map_err(|error| LabError::store("discard")(error))
    }

    fn bytes(&self) -> &[u8] {
        let bytes = self.memory.bytes(0..self.memory.len());
        bytes.expect("nothing of it was given back")
    }

    fn verify(&self) -> Result<(), LabError> {
        let wrong = self.bytes().iter().position(|&byte| byte != BYTE);
        let what = |at| LabError::Wrong(format!("byte {at} is not the one that was put there"));
        wrong.map_or(Ok(()), |at| Err(what(at)))
    }
}

fn missing(why: UserfaultError) -> LabError {
    LabError::missing("userfaultfd", why)
}
