//! Tables of pagelz that a device trained from its own pages, by generation.
//!
//! ```text
//!   priority      1            2            3
//!              shipped      tables 1        -            tables 2 come in a place that is free
//!              tables 0
//! ```
//!
//! A generation has a priority that no algorithm of the configuration has. So a page says in its
//! bits which tables it needs, at no cost. Later clusters of pages need nothing more than that.
//!
//! Invariants
//! - I1 pages get a generation only from the post-processing that runs. So the number of pages that
//!   need an older one only falls, and once a recount finds none there will be none.
//! - I2 a generation goes only after such a recount, and after the leaves are freed that were
//!   discarded before. The recount locked each cell, and who frees a leaf waits for those that have
//!   its cells. So no thread decodes with it.
//! - I3 `bytes` is the sum of the bytes of all generations.
//!
//! Lock: one, a leaf. A codec is cloned under it, which shares its tables.

use codec::Codec;
use host::Rank;
use host::unmodelled::RankedRwLock;

use crate::cells::totals::{AtomicU64, change, read};
use crate::terms::PRIORITIES;

/// Places for generations: all priorities but the first.
const PLACES: usize = PRIORITIES - 1; // 3

/// A generation of tables.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    /// The priority of pages that need it.
    pub(crate) priority: u8,
    /// 0 is that of the shipped tables.
    pub(crate) number: u32,
    pub(crate) codec: Codec,
}

/// The generations of one device.
pub(crate) struct Generations {
    places: RankedRwLock<[Option<Generation>; PLACES]>,
    bytes: AtomicU64,
}

impl Generations {
    /// None.
    pub(crate) fn new() -> Generations {
        let places = RankedRwLock::new(Rank::Leaf, [const { None }; PLACES]);
        Generations { places, bytes: AtomicU64::new(0) }
    }

    /// The codec of a priority.
    pub(crate) fn codec(&self, priority: u8) -> Option<Codec> {
        let places = self.places.read();
        places.get(index(priority)?)?.as_ref().map(|generation| generation.codec.clone())
    }

    /// All generations.
    pub(crate) fn all(&self) -> Vec<Generation> {
        self.places.read().iter().flatten().cloned().collect()
    }

    /// The latest generation.
    pub(crate) fn latest(&self) -> Option<Generation> {
        self.all().into_iter().max_by_key(|generation| generation.number)
    }

    /// Adds a generation. Its priority has none.
    pub(crate) fn add(&self, generation: Generation) {
        let mut places = self.places.write();
        let Some(place) = index(generation.priority).and_then(|at| places.get_mut(at)) else {
            return;
        };
        let old = place.replace(generation);
        change(&self.bytes, bytes_of(old.as_ref()), bytes_of(place.as_ref()));
    }

    /// Removes the generation of a priority, which no page needs any more.
    pub(crate) fn remove(&self, priority: u8) {
        let mut places = self.places.write();
        let Some(place) = index(priority).and_then(|at| places.get_mut(at)) else { return };
        let old = place.take();
        change(&self.bytes, bytes_of(old.as_ref()), 0);
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> u64 {
        read(&self.bytes)
    }

    /// Recounts the bytes.
    pub(crate) fn check(&self) -> Result<(), String> {
        let places = self.places.read();
        let found: u64 = places.iter().map(|place| bytes_of(place.as_ref())).sum();
        let counted = self.bytes();
        if found == counted {
            return Ok(());
        }
        Err(format!("tables of pagelz have {found} bytes, counted {counted}"))
    }

    /// Damages the count, for a test of the recount.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn miscount(&self) {
        crate::cells::bump(&self.bytes, 1);
    }
}

fn index(priority: u8) -> Option<usize> {
    usize::from(priority).checked_sub(1)
}

fn bytes_of(place: Option<&Generation>) -> u64 {
    place.map_or(0, |generation| generation.codec.dictionary_bytes() as u64)
}
