//! The table of a store, the pools that its values are in, and the memory of these.
//!
//! ```text
//!   key --> Entry { number, pool, turn, used }     order: keys by turn, where there is a limit
//!   pools: the first values | from the training on: values that share a dictionary
//! ```
//!
//! Invariant: each key of the table is in `order` once with its turn, where there is an order. A
//! place whose turn is not its key's is of a value that is gone. There are no more of these than
//! keys, and a few.
//!
//! Lock: none; the store has one around the table.

use crate::refusal::of_values;
use codec::Codec;
use host::Home;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use values::{Dictionary, Room, ValuePool, ValuesError};
use zsmalloc::Memory;

/// Places of values that are gone may stay in `order` in this number, so that a small one is not
/// cleaned often.
const GONE_MAX: usize = 1024;
/// Values of all stores of a process. They have addresses from the start, and memory once they are
/// there.
const VALUES_MAX: u64 = 64 << 20; // 64 Mi
/// Keys that are looked up at a time to be taken one by one.
const NEXT: usize = 1024;

/// Where the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    number: u64,
    trained: bool,
    /// When the key got this value; 0 where there is no order.
    turn: u64,
    used: bool,
}

impl Entry {
    /// Whether both are of one value.
    pub(crate) fn is(self, other: Entry) -> bool {
        (self.number, self.trained) == (other.number, other.trained)
    }
}

/// See the head of this file.
pub(crate) struct Index {
    entries: HashMap<Box<[u8]>, Entry>,
    order: Option<Order>,
    /// Keys that `take_any` takes next, if they are still there.
    next: Vec<Box<[u8]>>,
    key_bytes: usize,
}

/// Keys in the order in which they got their values.
#[derive(Default)]
struct Order {
    places: VecDeque<(Box<[u8]>, u64)>,
    key_bytes: usize,
    turns: u64,
}

impl Order {
    /// Makes a key the last one. Returns its turn.
    fn append(&mut self, key: &[u8]) -> u64 {
        self.turns += 1;
        self.put_back(key.into(), self.turns);
        self.turns
    }

    /// Makes a key the first one. Returns its turn.
    fn prepend(&mut self, key: &[u8]) -> u64 {
        self.turns += 1;
        self.key_bytes += key.len();
        self.places.push_front((key.into(), self.turns));
        self.turns
    }

    fn pop(&mut self) -> Option<(Box<[u8]>, u64)> {
        let place = self.places.pop_front()?;
        self.key_bytes -= place.0.len();
        Some(place)
    }

    /// Puts a place at the end.
    fn put_back(&mut self, key: Box<[u8]>, turn: u64) {
        self.key_bytes += key.len();
        self.places.push_back((key, turn));
    }

    /// Forgets places of values that are gone, once they are many.
    fn clean(&mut self, entries: &HashMap<Box<[u8]>, Entry>) {
        if self.places.len() > 2 * entries.len() + GONE_MAX {
            let is_there = |key: &[u8], turn| entries.get(key).is_some_and(|it| it.turn == turn);
            self.places.retain(|(key, turn)| is_there(key, *turn));
            self.key_bytes = self.places.iter().map(|(key, _)| key.len()).sum();
        }
    }

    fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<(Box<[u8]>, u64)>() + self.key_bytes
    }
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { entries: HashMap::new(), order: None, next: Vec::new(), key_bytes: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Box<[u8]>> {
        self.entries.keys()
    }

    /// Keys with their values.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Box<[u8]>, Entry)> {
        self.entries.iter().map(|(key, &entry)| (key, entry))
    }

    /// Bytes that the table takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let ordered = self.order.as_ref().map_or(0, Order::bytes);
        let entry = size_of::<(Box<[u8]>, Entry)>() + 1;
        self.entries.capacity() * entry + self.key_bytes + ordered
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.entries.contains_key(key)
    }

    /// The value of a key that is read.
    pub(crate) fn read(&mut self, key: &[u8]) -> Option<Entry> {
        let entry = self.entries.get_mut(key)?;
        entry.used = true;
        Some(*entry)
    }

    /// Gives a key a value, which is the youngest. Returns the one that it had.
    pub(crate) fn insert(&mut self, key: &[u8], new: Entry) -> Option<Entry> {
        let turn = self.order.as_mut().map_or(0, |order| order.append(key));
        let new = Entry { turn, ..new };
        let old = match self.entries.get_mut(key) {
            Some(entry) => Some(std::mem::replace(entry, new)),
            None => {
                self.key_bytes += key.len();
                self.entries.insert(key.into(), new)
            }
        };
        self.clean();
        old
    }

    /// Gives a key a value if it has none. False if it has one.
    pub(crate) fn insert_new(&mut self, key: &[u8], new: Entry) -> bool {
        let is_new = !self.contains(key);
        if is_new {
            self.insert(key, new);
        }
        is_new
    }

    /// Gives a key another value, if it still has `old`.
    pub(crate) fn exchange(&mut self, key: &[u8], old: Entry, new: Entry) -> bool {
        let entry = self.entries.get_mut(key).filter(|entry| entry.is(old));
        entry.map(|entry| *entry = Entry { used: entry.used, turn: entry.turn, ..new }).is_some()
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let old = self.entries.remove(key)?;
        self.key_bytes -= key.len();
        self.clean();
        Some(old)
    }

    /// Takes any key out.
    pub(crate) fn take_any(&mut self) -> Option<(Box<[u8]>, Entry)> {
        loop {
            while let Some(key) = self.next.pop() {
                if let Some(entry) = self.remove(&key) {
                    return Some((key, entry));
                }
            }
            self.next.extend(self.entries.keys().take(NEXT).cloned());
            if self.next.is_empty() {
                return None;
            }
        }
    }

    /// Takes all values out.
    pub(crate) fn take_all(&mut self) -> Vec<Entry> {
        self.key_bytes = 0;
        self.next = Vec::new();
        let all = std::mem::take(&mut self.entries).into_values().collect();
        self.clean();
        all
    }

    /// Keeps the order in which keys come from now on. Those that are there come first.
    pub(crate) fn keep_order(&mut self) {
        let mut order = Order::default();
        if self.order.is_none() {
            self.entries.iter_mut().for_each(|(key, entry)| entry.turn = order.append(key));
            self.order = Some(order);
        }
    }

    /// Takes the key out whose value is the oldest that was not read since it was looked at last.
    pub(crate) fn evict(&mut self) -> Option<(Box<[u8]>, Entry)> {
        let order = self.order.as_mut()?;
        loop {
            let (key, turn) = order.pop()?;
            let entry = self.entries.get_mut(&key).filter(|entry| entry.turn == turn);
            let Some(entry) = entry else { continue };
            if !std::mem::take(&mut entry.used) {
                let entry = self.entries.remove(&key)?;
                self.key_bytes -= key.len();
                return Some((key, entry));
            }
            order.put_back(key, turn);
        }
    }

    /// Puts back what was taken out, as the oldest. False if the key has another value by now.
    pub(crate) fn restore(&mut self, key: Box<[u8]>, entry: Entry) -> bool {
        if self.contains(&key) {
            return false;
        }
        self.key_bytes += key.len();
        let turn = self.order.as_mut().map_or(0, |order| order.prepend(&key));
        self.entries.insert(key, Entry { turn, ..entry });
        true
    }

    fn clean(&mut self) {
        if let Some(order) = &mut self.order {
            order.clean(&self.entries);
        }
    }
}

/// The pools of a store.
pub(crate) struct Pools {
    memory: Arc<Memory>,
    codec: Option<Codec>,
    first: ValuePool,
    trained: OnceLock<(Vec<u8>, ValuePool)>,
}

impl Pools {
    pub(crate) fn new(memory: Arc<Memory>, codec: Option<Codec>) -> Result<Pools, ValuesError> {
        let first = ValuePool::new(Arc::clone(&memory), codec.clone(), None)?;
        Ok(Pools { memory, codec, first, trained: OnceLock::new() })
    }

    /// All of them.
    pub(crate) fn each(&self) -> impl Iterator<Item = &ValuePool> {
        [Some(&self.first), self.trained.get().map(|(_, pool)| pool)].into_iter().flatten()
    }

    fn of(&self, entry: Entry) -> &ValuePool {
        match self.trained.get() {
            Some((_, pool)) if entry.trained => pool,
            _ => &self.first,
        }
    }

    /// Stores a value.
    pub(crate) fn put(&self, value: &[u8]) -> Result<Entry, ValuesError> {
        let trained = self.trained.get().is_some();
        let entry = Entry { number: 0, trained, turn: 0, used: false };
        Ok(Entry { number: self.of(entry).put(value)?, ..entry })
    }

    /// Reads a value, unless it is longer than `room`. Returns its length.
    pub(crate) fn get(
        &self,
        entry: Entry,
        room: usize,
        to: &mut Vec<u8>,
    ) -> Result<usize, ValuesError> {
        to.clear();
        self.show(entry, room, &mut |piece| to.extend_from_slice(piece))
    }

    /// Shows the pieces of a value to `give`, unless it is longer than `room`. Returns its length.
    pub(crate) fn show(
        &self,
        entry: Entry,
        room: usize,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, ValuesError> {
        self.of(entry).get(entry.number, room, &mut |_, piece| give(piece))
    }

    /// The length of a value.
    pub(crate) fn len(&self, entry: Entry) -> Result<usize, ValuesError> {
        self.of(entry).len(entry.number)
    }

    /// Deletes a value that no entry has any more.
    pub(crate) fn delete(&self, entry: Entry) {
        let deleted = self.of(entry).delete(entry.number);
        debug_assert!(deleted.is_ok(), "only the thread that took it out deletes it");
    }

    /// Has the values from now on share a dictionary that is made of samples. False if the samples
    /// have nothing in common, or the codec has no use for it.
    pub(crate) fn train(&self, samples: &[u8], lens: &[usize], len_max: usize) -> bool {
        let make = || {
            let plain = self.codec.as_ref()?;
            let dictionary = Dictionary::train(samples, lens, len_max).ok()?;
            let codec = dictionary.codec(plain).ok()?;
            let pool = ValuePool::new(Arc::clone(&self.memory), Some(codec), None).ok()?;
            Some((dictionary.content().to_vec(), pool))
        };
        make().is_some_and(|trained| self.trained.set(trained).is_ok())
    }

    /// The dictionary that was trained.
    pub(crate) fn dictionary(&self) -> Option<&[u8]> {
        self.trained.get().map(|(content, _)| &content[..])
    }
}

/// The memory that all stores of a process share.
#[pyclass(frozen, module = "ramfold._ramfold")]
pub(crate) struct Frames {
    home: Home,
    memory: Arc<Memory>,
}

impl Frames {
    /// The memory.
    pub(crate) fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }
}

#[pymethods]
impl Frames {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Frames> {
        let room = Room { values_max: VALUES_MAX, ..Room::default() };
        let memory = py.detach(|| values::memory(room));
        Ok(Frames { home: home()?, memory: memory.map_err(of_values)? })
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if !self.home.is_here() {
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// What tells a process from its forked children.
pub(crate) fn home() -> PyResult<Home> {
    Home::new().map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
