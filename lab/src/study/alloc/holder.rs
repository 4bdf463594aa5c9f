//! The holder of the objects: the process's malloc, or a pool. Both are driven alike.
//!
//! Invariant: a holder adds nothing of its own: one call of it is one call of what is measured.

use super::parts::Parts;
use super::plan::{Plan, ZSMALLOC};
use crate::apparatus::objects::Objects;
use crate::ground::LabError;
use crate::pages::PAGE_SIZE;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zsmalloc::{ChainSize, Handle, Memory, MemoryConfig, Pool, PoolConfig};

/// An allocator of objects, used by all threads at once.
pub(super) trait Holder: Sync {
    type Held: Send;

    fn alloc(&self, object: &[u8]) -> Result<Self::Held, LabError>;
    fn free(&self, held: Self::Held) -> Result<(), LabError>;
    fn equals(&self, held: &Self::Held, object: &[u8]) -> Result<bool, LabError>;
    /// Gives back what can be given back without freeing anything. Every thread calls it; true for
    /// those whose time counts.
    fn compact(&self, thread: usize, plan: &Plan, objects: &Objects) -> Result<bool, LabError>;
    /// Bytes held by its own count.
    fn accounted(&self) -> Option<Parts>;
    /// Recounts, where it can.
    fn check(&self, objects: u64) -> Result<(), LabError>;
}

/// The allocator behind `malloc`, whichever library that is.
pub(super) struct Heap;

impl Holder for Heap {
    type Held = Box<[u8]>;

    fn alloc(&self, object: &[u8]) -> Result<Box<[u8]>, LabError> {
        Ok(Box::from(object))
    }

    fn free(&self, held: Box<[u8]>) -> Result<(), LabError> {
        drop(held);
        Ok(())
    }

    fn equals(&self, held: &Box<[u8]>, object: &[u8]) -> Result<bool, LabError> {
        Ok(**held == *object)
    }

    /// Waits, works a little so that what was put off is done, waits for a background thread, and
    /// asks for what is free by the library's own call.
    fn compact(&self, _thread: usize, plan: &Plan, objects: &Objects) -> Result<bool, LabError> {
        const NUDGES: u32 = 256;
        std::thread::sleep(plan.rest);
        for index in 0..NUDGES.min(objects.count() as u32) {
            std::hint::black_box(Box::<[u8]>::from(objects.get(index)));
        }
        std::thread::sleep(plan.rest / 4);
        host::give_back_heap();
        Ok(false)
    }

    fn accounted(&self) -> Option<Parts> {
        None
    }

    fn check(&self, _objects: u64) -> Result<(), LabError> {
        Ok(())
    }
}

/// A pool, otherwise with the defaults, on a memory of its own.
pub(super) struct Pooled(Arc<Pool>);

impl Pooled {
    pub(super) fn new(objects: usize, plan: &Plan) -> Result<Pooled, LabError> {
        let chain = ChainSize::from_order(plan.chain_order).ok_or("no such chain order");
        let chain = chain.map_err(failed("pool"))?;
        let config = MemoryConfig::for_disk((objects * PAGE_SIZE) as u64);
        let memory = Memory::new(config).map_err(failed("memory"))?;
        let config = PoolConfig { chain, rule: plan.rule, ..PoolConfig::default() };
        Ok(Pooled(Pool::new(memory, config).map_err(failed("pool"))?))
    }
}

impl Holder for Pooled {
    type Held = Handle;

    fn alloc(&self, object: &[u8]) -> Result<Handle, LabError> {
        // Said when it fails: a message made in advance would be part of every allocation's time.
        self.0.alloc(object).map_err(|error| failed("alloc")(error))
    }

    fn free(&self, held: Handle) -> Result<(), LabError> {
        self.0.free_handle(held).map_err(|_| foreign())
    }

    fn equals(&self, held: &Handle, object: &[u8]) -> Result<bool, LabError> {
        Ok(*self.0.read(held).map_err(|_| foreign())? == *object)
    }

    /// The frames go back to the system by the worker, while the others rest.
    fn compact(&self, thread: usize, plan: &Plan, _objects: &Objects) -> Result<bool, LabError> {
        if thread == 0 {
            self.0.compact();
        }
        wait_until(plan.rest, || self.0.memory().free_bytes_held() == 0);
        Ok(thread == 0)
    }

    fn accounted(&self) -> Option<Parts> {
        Some(Parts::of(&self.0))
    }

    fn check(&self, objects: u64) -> Result<(), LabError> {
        let found = self.0.check().map_err(failed("check"))?;
        let wrong = || LabError::Wrong(format!("{objects} objects, the pool counts {found:?}"));
        (found.objects == objects).then_some(()).ok_or_else(wrong)
    }
}

/// Looks every millisecond, for as long as `rest` at most.
fn wait_until(rest: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < rest {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn failed<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> LabError {
    LabError::store(format!("{}: {what}", ZSMALLOC))
}

fn foreign() -> LabError {
    LabError::Wrong("the pool does not know its own handle".into())
}
