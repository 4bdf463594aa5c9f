//! The table of handles: numbers by which a C program names what it has.
//!
//! ```text
//!   63        62      41 40   25 24          0
//!  +---+--------------+-------+-------------+
//!  | 1 |   process    | slot  | generation  |     it looks like a pointer, and is no address
//!  +---+--------------+-------+-------------+
//! ```
//!
//! A handle is checked at each use, so that one that was freed, is of another kind, or was made up
//! gets a code. A pointer to the thing itself could not be checked, because its address is used
//! again.
//!
//! A forked child has none of its parent's handles: memory that they lead to is not there. Another
//! thread of the parent may have held the lock of a slot during the fork. So the child looks at the
//! process in a number first, and at the lock only of what it made itself. Processes are counted
//! from parent to child, because a child in a new namespace may have its parent's system number.
//!
//! Invariants
//! - I1 a slot has a thing exactly from the call that makes its handle to the call that frees it.
//!   Each time it is freed, its generation becomes another.
//! - I2 if the home is here, its number is this process's. No ancestor that has made a handle has
//!   the same, unless there are 2^22 - 1 of them.
//!
//! Lock: a slot's, of rank `Leaf`, for as long as it takes to count another owner.

use crate::code::{Code, Failure};
use crate::regions::{Folding, Mapped};
use host::{Home, Lock, Rank};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use values::{Dictionary, ValuePool};
use zsmalloc::Memory;

/// Handles at a time.
pub(crate) const HANDLES_MAX: usize = 1 << SLOT_BITS; // 65536

const GENERATION_BITS: u32 = 25;
const SLOT_BITS: u32 = 16;
const PROCESS_BITS: u32 = 22;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1; // 2^25 - 1
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1; // 65535
const PROCESS_MASK: u64 = (1 << PROCESS_BITS) - 1; // 2^22 - 1
const SLOT_SHIFT: u32 = GENERATION_BITS;
const PROCESS_SHIFT: u32 = SLOT_SHIFT + SLOT_BITS; // 41
const MARK: u64 = 1 << (PROCESS_SHIFT + PROCESS_BITS); // 2^63

const _: () = assert!(MARK.leading_zeros() == 0, "the parts fill the number");
const _: () = assert!(SLOT_MASK as usize + 1 == HANDLES_MAX, "each slot has a number");
const _: () = assert!(PROCESS_MASK < u32::MAX as u64, "a process has a u32");
const _: () = assert!(GENERATION_MASK < u32::MAX as u64, "a generation is a u32");

/// The parts of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    process: u32,
    slot: usize,
    generation: u32,
}

impl Name {
    fn number(self) -> u64 {
        MARK | u64::from(self.process) << PROCESS_SHIFT
            | (self.slot as u64) << SLOT_SHIFT
            | u64::from(self.generation)
    }

    fn of(number: u64) -> Result<Name, Failure> {
        if number == 0 {
            return Err(Code::Argument.because("the handle is NULL"));
        }
        if number & MARK == 0 {
            return Err(Code::Handle.because("this is no handle: none was ever made that looks so"));
        }
        Ok(Name {
            process: (number >> PROCESS_SHIFT & PROCESS_MASK) as u32,
            slot: (number >> SLOT_SHIFT & SLOT_MASK) as usize,
            generation: (number & GENERATION_MASK) as u32,
        })
    }
}

/// What a handle may name.
#[derive(Clone)]
pub(crate) enum Thing {
    Memory(Arc<Memory>),
    Dictionary(Arc<Dictionary>),
    Pool(Arc<ValuePool>),
    Pager(Arc<Folding>),
    Region(Arc<Mapped>),
}

/// One kind of them.
pub(crate) trait Kind: Sized {
    /// Its name in messages.
    const NAME: &'static str;
    fn into_thing(this: Arc<Self>) -> Thing;
    fn of(thing: &Thing) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($kind:ident: $type:ty, $name:literal;)*) => {$(
        impl Kind for $type {
            const NAME: &'static str = $name;

            fn into_thing(this: Arc<Self>) -> Thing {
                Thing::$kind(this)
            }

            fn of(thing: &Thing) -> Option<&Arc<Self>> {
                if let Thing::$kind(this) = thing { Some(this) } else { None }
            }
        }
    )*};
}

kinds! {
    Memory: Memory, "memory";
    Dictionary: Dictionary, "dictionary";
    Pool: ValuePool, "pool";
    Pager: Folding, "pager";
    Region: Mapped, "region";
}

struct Slot {
    generation: u32,
    thing: Option<Thing>,
}

/// A table of `N` handles at a time.
pub(crate) struct Handles<const N: usize> {
    slots: [Lock<Slot>; N],
    /// Where to look for a free slot first.
    next: AtomicUsize,
    home: OnceLock<Home>,
    /// The number of this process, or of the nearest ancestor that made handles.
    last: AtomicU32,
}

/// The handles of this process. C passes a number and nothing else, so the table is a static.
pub(crate) static HANDLES: Handles<HANDLES_MAX> = Handles::new();

impl<const N: usize> Handles<N> {
    const fn new() -> Handles<N> {
        Handles {
            slots: [const { Lock::new(Rank::Leaf, Slot { generation: 1, thing: None }) }; N],
            next: AtomicUsize::new(0),
            home: OnceLock::new(),
            last: AtomicU32::new(0),
        }
    }

    /// Makes a handle.
    pub(crate) fn insert<T: Kind>(&self, thing: Arc<T>) -> Result<u64, Failure> {
        let process = self.settle()?;
        // relaxed: a hint.
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for slot in (0..N).map(|step| first.wrapping_add(step) % N) {
            // In a child, the lock of a slot may be taken for ever.
            let Some(mut state) = self.slots[slot].try_lock() else { continue };
            if state.thing.is_none() {
                state.thing = Some(T::into_thing(thing));
                return Ok(Name { process, slot, generation: state.generation }.number());
            }
        }
        Err(Code::Limit.because(format_args!("there are {N} handles, the most: free some")))
    }

    /// What a handle names.
    pub(crate) fn get<T: Kind>(&self, number: u64) -> Result<Arc<T>, Failure> {
        let (name, slot) = self.slot(number)?;
        let thing = {
            let state = slot.lock();
            let is_current = state.generation == name.generation;
            state.thing.as_ref().filter(|_| is_current).map(|thing| T::of(thing).cloned())
        };
        found(thing)
    }

    /// Frees a handle. The thing lives on as long as other things, or calls, have it.
    pub(crate) fn remove<T: Kind>(&self, number: u64) -> Result<Arc<T>, Failure> {
        let (name, slot) = self.slot(number)?;
        let mut state = slot.lock();
        let is_current = state.generation == name.generation;
        let thing = state.thing.as_ref().filter(|_| is_current).map(|thing| T::of(thing).cloned());
        let thing = match thing {
            Some(Some(thing)) => thing,
            other => {
                drop(state);
                return found(other);
            }
        };
        // The caller has an owner of its own, so nothing ends while the lock is held.
        state.thing = None;
        state.generation = next(state.generation);
        Ok(thing)
    }

    /// The slot of a handle of this process.
    fn slot(&self, number: u64) -> Result<(Name, &Lock<Slot>), Failure> {
        let name = Name::of(number)?;
        let here = self.home.get().and_then(Home::number);
        if here.is_none_or(|process| process.get() != name.process) {
            return Err(Code::Forked.because(
                "the handle is of the process that forked this one, whose memory is not here: make \
                 new ones; or no handle was ever made that looks so",
            ));
        }
        let slot = self.slots.get(name.slot).ok_or_else(stale)?;
        Ok((name, slot))
    }

    /// Makes the table this process's. Returns the number of the process.
    fn settle(&self) -> Result<u32, Failure> {
        if self.home.get().is_none() {
            let home = Home::new().map_err(|error| Code::Refused.because(error))?;
            // Another thread may have been first, with one that does as well.
            drop(self.home.set(home));
        }
        let home = self.home.get().ok_or_else(stale)?;
        let process = match home.number() {
            Some(process) => process,
            // relaxed: an ancestor's thread stored it, or one of this process that has settled.
            None => home.settle_as(after(self.last.load(Ordering::Relaxed))),
        };
        // relaxed: a child has a copy of it. Each call that makes a handle stores the same before
        // it returns one.
        self.last.store(process.get(), Ordering::Relaxed);
        Ok(process.get())
    }
}

/// The process after another. After the last comes 1.
fn after(process: u32) -> NonZeroU32 {
    NonZeroU32::new((process + 1) & PROCESS_MASK as u32).unwrap_or(NonZeroU32::MIN)
}

/// The generation after another. After the last comes 0.
fn next(generation: u32) -> u32 {
    (generation + 1) & GENERATION_MASK as u32
}

fn stale() -> Failure {
    Code::Handle.because("the handle was freed, or never made")
}

/// What was found in a slot: nothing, a thing of another kind, or what was asked for.
fn found<T: Kind>(thing: Option<Option<Arc<T>>>) -> Result<Arc<T>, Failure> {
    let wrong = || Code::Handle.because(format_args!("the handle is of no {}", T::NAME));
    thing.ok_or_else(stale)?.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zsmalloc::MemoryConfig;

    fn memory() -> Arc<Memory> {
        let config =
            MemoryConfig { arena_frames: 512, entries_max: 512, expected_bytes: 0, worker: false };
        Memory::new(config).expect("address space")
    }

    fn code<T>(result: Result<T, Failure>) -> Code {
        result.map_or_else(|failure| failure.code, |_| Code::Ok)
    }

    #[test]
    fn a_name_is_read_back() {
        for name in [(1, 0, 1), (PROCESS_MASK as u32, HANDLES_MAX - 1, GENERATION_MASK as u32)] {
            let name = Name { process: name.0, slot: name.1, generation: name.2 };
            assert_eq!(Name::of(name.number()).expect("a name"), name);
            assert!(name.number().cast_signed() < 0, "no address of a program");
        }
    }

    #[test]
    fn a_freed_handle_is_refused_also_when_its_slot_lives_again() {
        let handles = Handles::<1>::new();
        let old = handles.insert(memory()).expect("room");
        assert_eq!(code(handles.get::<Memory>(old)), Code::Ok);
        assert_eq!(code(handles.insert(memory())), Code::Limit);
        assert_eq!(code(handles.remove::<Memory>(old)), Code::Ok);
        assert_eq!(code(handles.remove::<Memory>(old)), Code::Handle);
        let new = handles.insert(memory()).expect("room");
        assert_ne!(old, new);
        assert_eq!(code(handles.get::<Memory>(old)), Code::Handle);
        assert_eq!(code(handles.get::<Memory>(new)), Code::Ok);
    }

    #[test]
    fn what_is_no_handle_of_that_kind_is_refused() {
        let handles = Handles::<2>::new();
        let handle = handles.insert(memory()).expect("room");
        assert_eq!(code(handles.get::<Folding>(handle)), Code::Handle);
        assert_eq!(code(handles.remove::<Folding>(handle)), Code::Handle);
        assert_eq!(code(handles.get::<Memory>(0)), Code::Argument);
        assert_eq!(code(handles.get::<Memory>(0x7fff_1234_5678)), Code::Handle);
        for wrong in [handle + 1, handle + (1 << SLOT_SHIFT), handle + (9 << SLOT_SHIFT)] {
            assert_eq!(code(handles.get::<Memory>(wrong)), Code::Handle);
        }
        assert_eq!(code(handles.get::<Memory>(handle ^ 1 << PROCESS_SHIFT)), Code::Forked);
        assert_eq!(code(handles.get::<Memory>(handle)), Code::Ok);
    }

    #[test]
    fn a_thing_lives_as_long_as_a_call_has_it() {
        let handles = Handles::<2>::new();
        let shared = memory();
        let handle = handles.insert(Arc::clone(&shared)).expect("room");
        let call = handles.get::<Memory>(handle).expect("there");
        drop(handles.remove::<Memory>(handle).expect("there"));
        assert_eq!(Arc::strong_count(&shared), 2);
        drop(call);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
