//! A store: keys, and values of a pool.
//!
//! ```text
//!   set   value --compress--> pool;  key --> entry: number, which pool       old value deleted
//!   get   key --> entry;  number --> value                                   again, if it went
//!   pop   key out of the table;  number --> value                            deleted
//!   full  the oldest that was not read since: out, given to the caller, deleted
//! ```
//!
//! The first values have no dictionary. Once there are enough, one is trained of them, and they
//! move to a second pool, whose values share it.
//!
//! A forked child has no memory of its parent's, so it drops nothing of a store but the name.
//!
//! Invariants
//! - I1 an entry's number is of a value that nobody else deletes: the thread that takes it out of
//!   the table does.
//! - I2 no lock is held while a pool works or Python runs.
//!
//! Lock: the table's, of rank `Leaf`, for a few words.

use crate::index::{Entry, Frames, Index, Pools, home};
use crate::refusal::{Key, Value, of_values};
use codec::Algorithm;
use host::unmodelled::RankedMutex;
use host::{Home, Rank};
use pyo3::exceptions::{PyKeyError, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use values::{Dictionary, ValuePool, ValuesError};
use zsmalloc::AllocError;

/// Bytes of a dictionary.
const DICTIONARY_BYTES: usize = 16 << 10; // 16 KiB
/// Bytes of a value that are looked at for a dictionary.
const SAMPLE_BYTES: usize = 2 << 10; // 2 KiB

/// Other threads run while a value of more bytes than this is compressed or decompressed. A smaller
/// one takes a few microseconds, of which letting go of the interpreter would be a part.
const DETACHED_MIN: usize = 4096;
/// The same for the algorithms that take longer.
const DETACHED_MIN_SLOW: usize = 1024;
/// Values after which a dictionary is trained.
const SAMPLES: usize = 1000;
/// Bytes of samples, about. More make it no better, and take their time.
const TRAINED_BYTES: usize = 128 << 10; // 128 KiB
/// Values that leave at a time when the store is full, and nobody is told of them.
const EVICTED: usize = 8;

/// A key and its value.
type Item<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// See the head of this file.
#[pyclass(frozen, subclass, module = "ramfold._ramfold", name = "Store")]
pub(crate) struct Keyed {
    home: Home,
    pools: Arc<Pools>,
    index: RankedMutex<Index>,
    /// What is told of each key and value that leaves because of the limit.
    on_evict: Option<Py<PyAny>>,
    limit: AtomicU64,
    given: Option<Vec<u8>>,
    evicted: AtomicU64,
    /// A dictionary is to be trained of the first values, and no thread does it yet.
    untrained: AtomicBool,
    /// Other threads run while a value of more bytes is compressed or decompressed.
    detached_min: usize,
}

#[pymethods]
impl Keyed {
    #[new]
    #[pyo3(signature = (frames, codec, dictionary, train, limit, on_evict))]
    fn new(
        frames: &Frames,
        codec: Option<&str>,
        dictionary: Option<&[u8]>,
        train: bool,
        limit: u64,
        on_evict: Option<Py<PyAny>>,
    ) -> PyResult<Keyed> {
        let codec = codec.map(str::parse::<codec::Codec>).transpose();
        let mut codec = codec.map_err(|error| PyValueError::new_err(error.to_string()))?;
        if let (Some(plain), Some(content)) = (&codec, dictionary) {
            codec = Some(Dictionary::new(content.to_vec()).codec(plain).map_err(of_values)?);
        }
        let is_quick = |codec: &codec::Codec| {
            matches!(codec.algorithm(), Algorithm::Lz4 | Algorithm::Lzo | Algorithm::LzoRle)
        };
        let detached_min =
            if codec.as_ref().is_none_or(is_quick) { DETACHED_MIN } else { DETACHED_MIN_SLOW };
        let store = Keyed {
            detached_min,
            home: home()?,
            untrained: AtomicBool::new(train && dictionary.is_none() && codec.is_some()),
            pools: Arc::new(Pools::new(frames.memory(), codec).map_err(of_values)?),
            index: RankedMutex::new(Rank::Leaf, Index::new()),
            on_evict,
            limit: AtomicU64::new(0),
            given: dictionary.map(<[u8]>::to_vec),
            evicted: AtomicU64::new(0),
        };
        store.set_limit(limit);
        Ok(store)
    }

    /// A method as `on_evict` leads back to the object that has the store.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.on_evict)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.at_home()?;
        Ok(self.index.lock().len())
    }

    fn __contains__(&self, key: Key<'_>) -> PyResult<bool> {
        self.at_home()?;
        Ok(self.index.lock().contains(key.0))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Key<'_>) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.read(py, key.0)?;
        found.ok_or_else(|| PyKeyError::new_err(PyBytes::new(py, key.0).unbind()))
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Key<'_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.read(py, key.0)?.map(Bound::into_any).or(default))
    }

    fn __setitem__(&self, py: Python<'_>, key: Key<'_>, value: Value<'_>) -> PyResult<()> {
        self.at_home()?;
        let entry = self.put(py, value.0)?;
        let old = self.index.lock().insert(key.0, entry);
        if let Some(old) = old {
            self.pools.delete(old);
        }
        self.train_once(py)
    }

    /// Gives a key a value if it has none. Returns the value that it has then.
    fn _set_if_absent<'py>(
        &self,
        py: Python<'py>,
        key: Key<'_>,
        value: Value<'_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        loop {
            if let Some(found) = self.read(py, key.0)? {
                return Ok(found);
            }
            let entry = self.put(py, value.0)?;
            if self.index.lock().insert_new(key.0, entry) {
                self.train_once(py)?;
                return Ok(PyBytes::new(py, value.0));
            }
            // Another thread was faster.
            self.pools.delete(entry);
        }
    }

    /// Deletes a key. Returns the value that it had.
    fn _take<'py>(&self, py: Python<'py>, key: Key<'_>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.at_home()?;
        let Some(entry) = self.index.lock().remove(key.0) else { return Ok(None) };
        self.taken(py, key.0.into(), entry).map(Some)
    }

    /// Deletes any key. Returns it with the value that it had.
    fn _take_any<'py>(&self, py: Python<'py>) -> PyResult<Option<Item<'py>>> {
        self.at_home()?;
        let Some((key, entry)) = self.index.lock().take_any() else { return Ok(None) };
        let name = PyBytes::new(py, &key);
        Ok(Some((name, self.taken(py, key, entry)?)))
    }

    /// Deletes every key that there is now.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.at_home()?;
        py.detach(|| {
            let all = self.index.lock().take_all();
            all.into_iter().for_each(|entry| self.pools.delete(entry));
        });
        Ok(())
    }

    fn __delitem__(&self, py: Python<'_>, key: Key<'_>) -> PyResult<()> {
        self.at_home()?;
        let old = self.index.lock().remove(key.0);
        let old = old.ok_or_else(|| PyKeyError::new_err(PyBytes::new(py, key.0).unbind()))?;
        self.pools.delete(old);
        Ok(())
    }

    /// The keys that there are now.
    fn _keys<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        self.at_home()?;
        // Python may run while an object of it is made, so the lock is given up before.
        let keys: Vec<Box<[u8]>> = self.index.lock().keys().cloned().collect();
        Ok(keys.iter().map(|key| PyBytes::new(py, key)).collect())
    }

    /// Bytes of memory that compressed values may take; 0 is no limit.
    fn _set_limit(&self, bytes: u64) -> PyResult<()> {
        self.at_home()?;
        self.set_limit(bytes);
        Ok(())
    }

    fn _limit(&self) -> u64 {
        // relaxed: an independent value.
        self.limit.load(Ordering::Relaxed)
    }

    /// Moves values together. Returns the bytes that this gave back.
    fn compact(&self, py: Python<'_>) -> PyResult<u64> {
        self.at_home()?;
        Ok(py.detach(|| self.pools.each().map(ValuePool::compact).sum()))
    }

    /// What there is, in bytes unless the name says otherwise.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.at_home()?;
        let dict = PyDict::new(py);
        let sum = |of: fn(&values::ValueStats) -> u64| -> u64 {
            self.pools.each().map(|pool| of(&pool.stats())).sum()
        };
        dict.set_item("values", self.index.lock().len())?;
        dict.set_item("value_bytes", sum(|stats| stats.value_bytes))?;
        dict.set_item("object_bytes", sum(|stats| stats.slot_bytes))?;
        dict.set_item("resident_bytes", sum(|stats| stats.resident_bytes))?;
        dict.set_item("overhead_bytes", sum(|stats| stats.overhead_bytes))?;
        dict.set_item("index_bytes", self.index.lock().bytes())?;
        // relaxed: a total.
        dict.set_item("evicted", self.evicted.load(Ordering::Relaxed))?;
        dict.set_item("dictionary_bytes", self.dictionary().map_or(0, <[u8]>::len))?;
        Ok(dict)
    }

    /// The dictionary that values share; `None` if there is none.
    fn _dictionary<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.dictionary().map(|content| PyBytes::new(py, content))
    }

    /// Recounts the pools.
    fn _check(&self, py: Python<'_>) -> PyResult<()> {
        self.at_home()?;
        py.detach(|| self.pools.each().try_for_each(ValuePool::check)).map_err(of_values)
    }
}

impl Keyed {
    /// Refuses a forked child: the memory is not there, and another thread of the parent may have
    /// held a lock.
    fn at_home(&self) -> PyResult<()> {
        if self.home.is_here() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "the store is of the process that forked this one, whose memory is not here: make \
             another one, or start the process by 'spawn' or 'forkserver'",
        ))
    }

    fn dictionary(&self) -> Option<&[u8]> {
        self.given.as_deref().or_else(|| self.pools.dictionary())
    }

    fn set_limit(&self, bytes: u64) {
        let mut index = self.index.lock();
        // relaxed: written under the lock of the table, and read alone.
        self.limit.store(bytes, Ordering::Relaxed);
        if bytes > 0 {
            index.keep_order();
        }
        self.limit_pools();
    }

    /// Gives the pools the limit, which they store. The caller has the lock of the table, so that
    /// the last limit is the one that stays.
    fn limit_pools(&self) {
        let bytes = self._limit();
        self.pools.each().for_each(|pool| pool.set_limit(bytes));
    }

    fn set_limit_again(&self) {
        let _index = self.index.lock();
        self.limit_pools();
    }

    /// Compresses a value, and makes room for it.
    fn put(&self, py: Python<'_>, value: &[u8]) -> PyResult<Entry> {
        loop {
            let full = match self.detached(py, value.len(), || self.pools.put(value)) {
                Ok(entry) => return Ok(entry),
                Err(ValuesError::Alloc(full)) => full,
                Err(error) => return Err(of_values(error)),
            };
            let has_room = match full {
                AllocError::OverLimit { .. } => true,
                // All stores of the process share these, and only one with a limit lets values go.
                AllocError::OutOfCells | AllocError::OutOfFrames => self._limit() > 0,
                _ => false,
            };
            if !has_room {
                return Err(of_values(full.into()));
            }
            self.make_room(py)?;
        }
    }

    /// The value of a key that was taken out, which is deleted. If it cannot be read, it is put
    /// back, unless the key has another one by now.
    fn taken<'py>(
        &self,
        py: Python<'py>,
        key: Box<[u8]>,
        entry: Entry,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut value = Vec::new();
        let len = self.pools.len(entry).unwrap_or(0);
        let read = self.detached(py, len, || self.pools.get(entry, usize::MAX, &mut value));
        if read.is_ok() || !self.index.lock().restore(key, entry) {
            self.pools.delete(entry);
        }
        read.map_err(of_values)?;
        Ok(PyBytes::new(py, &value))
    }

    fn read<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.at_home()?;
        let (mut value, mut last) = (Vec::new(), None);
        loop {
            let Some(entry) = self.index.lock().read(key) else { return Ok(None) };
            let read = match self.read_small(py, entry) {
                Ok(Some(value)) => return Ok(Some(value)),
                Ok(None) => py.detach(|| self.pools.get(entry, usize::MAX, &mut value)),
                Err(error) => Err(error),
            };
            match read {
                Ok(_) => return Ok(Some(PyBytes::new(py, &value))),
                // Another thread has deleted or moved it since, so the key has another value.
                Err(ValuesError::NoValue) if last != Some(entry) => last = Some(entry),
                Err(error) => return Err(of_values(error)),
            }
        }
    }

    /// A value of at most `detached_min` bytes in one piece, without a copy between; `None` if it
    /// is another one. A pool shows it while the thread's scratch is in use. So no Python may run
    /// then, and none runs when bytes are made.
    fn read_small<'py>(
        &self,
        py: Python<'py>,
        entry: Entry,
    ) -> Result<Option<Bound<'py, PyBytes>>, ValuesError> {
        let mut made: Option<Bound<'py, PyBytes>> = None;
        let mut make = |piece: &[u8]| made = Some(PyBytes::new(py, piece));
        let len = self.pools.show(entry, self.detached_min, &mut make)?;
        Ok(made.filter(|value| value.as_bytes().len() == len))
    }

    /// Does something with a value of so many bytes; other threads run meanwhile, if that pays.
    fn detached<T: Send>(&self, py: Python<'_>, len: usize, work: impl FnOnce() -> T + Send) -> T {
        if len > self.detached_min { py.detach(work) } else { work() }
    }

    /// Lets the oldest values go.
    fn make_room(&self, py: Python<'_>) -> PyResult<()> {
        let gone: Vec<_> = {
            let at_a_time = if self.on_evict.is_some() { 1 } else { EVICTED };
            let mut index = self.index.lock();
            (0..at_a_time).map_while(|_| index.evict()).collect()
        };
        if gone.is_empty() {
            return Err(PyMemoryError::new_err(
                "the value does not fit in the store, and nothing else is in it: raise `limit`",
            ));
        }
        gone.into_iter().try_for_each(|(key, entry)| self.evict(py, key, entry))
    }

    /// Deletes a value that was taken out, once the program was told. If its function fails, the
    /// value is put back, unless the key has another one by now.
    fn evict(&self, py: Python<'_>, key: Box<[u8]>, entry: Entry) -> PyResult<()> {
        let told = self.tell(py, &key, entry);
        if told.is_err() && self.index.lock().restore(key, entry) {
            return told;
        }
        self.pools.delete(entry);
        // relaxed: a total.
        self.evicted.fetch_add(1, Ordering::Relaxed);
        told
    }

    fn tell(&self, py: Python<'_>, key: &[u8], entry: Entry) -> PyResult<()> {
        let Some(tell) = &self.on_evict else { return Ok(()) };
        let mut value = Vec::new();
        let len = self.pools.len(entry).unwrap_or(0);
        let read = self.detached(py, len, || self.pools.get(entry, usize::MAX, &mut value));
        read.map_err(of_values)?;
        tell.call1(py, (PyBytes::new(py, key), PyBytes::new(py, &value)))?;
        Ok(())
    }

    /// Trains a dictionary, once there are enough values for that.
    fn train_once(&self, py: Python<'_>) -> PyResult<()> {
        // relaxed: a hint, and then a turn that one thread gets; it publishes nothing.
        if self.untrained.load(Ordering::Relaxed)
            && self.index.lock().len() >= SAMPLES
            // relaxed: as above.
            && self.untrained.swap(false, Ordering::Relaxed)
        {
            return py.detach(|| self.train()).map_err(of_values);
        }
        Ok(())
    }

    /// Trains a dictionary of what there is, and makes that share it.
    fn train(&self) -> Result<(), ValuesError> {
        let all: Vec<(Box<[u8]>, Entry)> = {
            let index = self.index.lock();
            index.all().map(|(key, entry)| (key.clone(), entry)).collect()
        };
        let (mut samples, mut lens, mut value) = (Vec::new(), Vec::new(), Vec::new());
        let step = self.step_of_samples(&all);
        for (_, entry) in all.iter().step_by(step) {
            // What was deleted since is no sample.
            if self.pools.get(*entry, usize::MAX, &mut value).is_ok() && !value.is_empty() {
                let len = value.len().min(SAMPLE_BYTES);
                samples.extend_from_slice(&value[..len]);
                lens.push(len);
            }
        }
        if self.pools.train(&samples, &lens, DICTIONARY_BYTES) {
            // Another thread may have set the limit before it could know the new pool.
            self.set_limit_again();
            for (key, old) in all {
                self.share(&key, old, &mut value)?;
            }
        }
        Ok(())
    }

    /// Of how many values one is a sample.
    fn step_of_samples(&self, all: &[(Box<[u8]>, Entry)]) -> usize {
        let sampled = |entry| self.pools.len(entry).map_or(0, |len| len.min(SAMPLE_BYTES));
        let bytes: usize = all.iter().map(|&(_, entry)| sampled(entry)).sum();
        (bytes / TRAINED_BYTES).max(1)
    }

    /// Stores a value once more, with the dictionary. If there is no room, it stays where it is.
    fn share(&self, key: &[u8], old: Entry, value: &mut Vec<u8>) -> Result<(), ValuesError> {
        match self.pools.get(old, usize::MAX, value) {
            Ok(_) => {}
            Err(ValuesError::NoValue) => return Ok(()),
            Err(error) => return Err(error),
        }
        let Ok(new) = self.pools.put(value) else { return Ok(()) };
        let exchanged = self.index.lock().exchange(key, old, new);
        self.pools.delete(if exchanged { old } else { new });
        Ok(())
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        if !self.home.is_here() {
            std::mem::forget(Arc::clone(&self.pools));
        }
    }
}
