//! The table of a store, and the pools that its values are in.
//!
//! ```text
//!   key --> Entry { number, pool, used }          order: keys by age, where there is a limit
//!   pools: the first values | from the training on: values that share a dictionary
//! ```
//!
//! Invariant: each key of the table is in `order` at least once, where there is one. It may also
//! have keys that are gone, but no more of them than there are keys.
//!
//! Lock: none; the store has one around the table.

use codec::Codec;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, OnceLock};
use values::{Dictionary, ValuePool, ValuesError};
use zsmalloc::Memory;

/// Keys that are gone may stay in `order` in this number, so that a small one is not cleaned often.
const GONE_MAX: usize = 1024;

/// Where the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    number: u64,
    trained: bool,
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
    order: Option<VecDeque<Box<[u8]>>>,
    key_bytes: usize,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { entries: HashMap::new(), order: None, key_bytes: 0 }
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
        let key = size_of::<Box<[u8]>>();
        let ordered = self.order.as_ref().map_or(0, |order| order.capacity() * key);
        self.entries.capacity() * (key + size_of::<Entry>() + 1) + self.key_bytes + ordered
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

    /// Gives a key a value. Returns the one that it had.
    pub(crate) fn insert(&mut self, key: &[u8], new: Entry) -> Option<Entry> {
        if let Some(entry) = self.entries.get_mut(key) {
            return Some(std::mem::replace(entry, new));
        }
        self.entries.insert(key.into(), new);
        self.key_bytes += key.len();
        if let Some(order) = &mut self.order {
            order.push_back(key.into());
            self.clean();
        }
        None
    }

    /// Gives a key another value, if it still has `old`.
    pub(crate) fn exchange(&mut self, key: &[u8], old: Entry, new: Entry) -> bool {
        let entry = self.entries.get_mut(key).filter(|entry| entry.is(old));
        entry.map(|entry| *entry = Entry { used: entry.used, ..new }).is_some()
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let old = self.entries.remove(key)?;
        self.key_bytes -= key.len();
        self.clean();
        Some(old)
    }

    /// Keeps the order in which keys came from now on. Those that are there come first.
    pub(crate) fn keep_order(&mut self) {
        if self.order.is_none() {
            self.order = Some(self.entries.keys().cloned().collect());
        }
    }

    /// Takes the oldest key out that was not read since it was looked at last.
    pub(crate) fn evict(&mut self) -> Option<(Box<[u8]>, Entry)> {
        loop {
            let key = self.order.as_mut()?.pop_front()?;
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if !std::mem::take(&mut entry.used) {
                let entry = self.entries.remove(&key)?;
                self.key_bytes -= key.len();
                return Some((key, entry));
            }
            self.order.as_mut()?.push_back(key);
        }
    }

    /// Puts back what `evict` took out, as the oldest. False if the key has another value by now.
    pub(crate) fn restore(&mut self, key: Box<[u8]>, entry: Entry) -> bool {
        if self.contains(&key) {
            return false;
        }
        self.key_bytes += key.len();
        if let Some(order) = &mut self.order {
            order.push_front(key.clone());
        }
        self.entries.insert(key, entry);
        true
    }

    /// Forgets keys that are gone, once they are many.
    fn clean(&mut self) {
        let Some(order) = &mut self.order else { return };
        if order.len() > 2 * self.entries.len() + GONE_MAX {
            let mut seen = HashSet::new();
            order.retain(|key| self.entries.contains_key(key) && seen.insert(key.clone()));
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
        let entry = Entry { number: 0, trained: self.trained.get().is_some(), used: false };
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
    pub(crate) fn train(&self, samples: &[u8], lens: &[usize], len_max: usize, limit: u64) -> bool {
        let make = || {
            let plain = self.codec.as_ref()?;
            let dictionary = Dictionary::train(samples, lens, len_max).ok()?;
            let codec = dictionary.codec(plain).ok()?;
            let pool = ValuePool::new(Arc::clone(&self.memory), Some(codec), None).ok()?;
            pool.set_limit(limit);
            Some((dictionary.content().to_vec(), pool))
        };
        make().is_some_and(|trained| self.trained.set(trained).is_ok())
    }

    /// The dictionary that was trained.
    pub(crate) fn dictionary(&self) -> Option<&[u8]> {
        self.trained.get().map(|(content, _)| &content[..])
    }
}
