//! What is known of the tiers of one device: whether they work, and what they did.
//!
//! Invariant: tiers have one owner at a time. `off` says why they were turned off, until they are
//! taken again.
//!
//! Lock: one, a leaf.

use host::Rank;
use host::unmodelled::RankedMutex;

use crate::cells::totals::AtomicU64;
use crate::cells::{bump, read};
use crate::terms::{Density, TierStat, Training, Verdict};

/// The tiers of one device.
pub(crate) struct Tiering {
    state: RankedMutex<State>,
    /// Pages that became denser, that came back to the first algorithm, and that got later tables.
    pub(crate) denser: AtomicU64,
    pub(crate) faster: AtomicU64,
    pub(crate) renewed: AtomicU64,
    /// Microseconds of CPU time.
    pub(crate) cpu_us: AtomicU64,
    /// How many pages had become denser when a pass compacted the pool last.
    pub(crate) compacted_at: AtomicU64,
    /// Bytes of what makes units, while it works.
    pub(crate) packing_bytes: AtomicU64,
    trainings: AtomicU64,
}

#[derive(Default)]
struct State {
    density: Density,
    has_owner: bool,
    off: Option<String>,
    training: Option<Training>,
    dictionary: Option<Training>,
}

impl Tiering {
    /// No tiers.
    pub(crate) fn new() -> Tiering {
        Tiering {
            state: RankedMutex::new(Rank::Leaf, State::default()),
            denser: AtomicU64::new(0),
            faster: AtomicU64::new(0),
            renewed: AtomicU64::new(0),
            cpu_us: AtomicU64::new(0),
            compacted_at: AtomicU64::new(0),
            packing_bytes: AtomicU64::new(0),
            trainings: AtomicU64::new(0),
        }
    }

    /// Takes the tiers. False if they have an owner.
    pub(crate) fn take(&self, density: Density) -> bool {
        let mut state = self.state.lock();
        let is_free = !state.has_owner;
        if is_free {
            (state.density, state.has_owner, state.off) = (density, true, None);
        }
        is_free
    }

    /// The density that was asked for.
    pub(crate) fn density(&self) -> Density {
        self.state.lock().density
    }

    /// Whether a thread of tiers works on the device.
    pub(crate) fn has_owner(&self) -> bool {
        self.state.lock().has_owner
    }

    /// Gives the tiers up.
    pub(crate) fn give_up(&self) {
        self.state.lock().has_owner = false;
    }

    /// Says why tiers are turned off, if there are some.
    pub(crate) fn turned_off(&self, why: String) {
        let mut state = self.state.lock();
        if state.density != Density::Fast {
            state.off = Some(why);
        }
    }

    /// Notes a training that was judged.
    pub(crate) fn note(&self, training: Training) {
        if training.verdict != Verdict::TooFewPages {
            bump(&self.trainings, 1);
            self.state.lock().training = Some(training);
        }
    }

    /// Notes a training of a dictionary that was judged.
    pub(crate) fn note_dictionary(&self, training: Training) {
        if training.verdict != Verdict::TooFewPages {
            self.state.lock().dictionary = Some(training);
        }
    }

    /// The figures, without the pages of each tier.
    pub(crate) fn stat(&self) -> TierStat {
        let (density, off, training, dictionary) = {
            let state = self.state.lock();
            (state.density, state.off.clone(), state.training, state.dictionary)
        };
        TierStat {
            density,
            off,
            training,
            dictionary,
            denser: read(&self.denser),
            faster: read(&self.faster),
            renewed: read(&self.renewed),
            cpu_us: read(&self.cpu_us),
            trainings: read(&self.trainings),
            ..TierStat::default()
        }
    }
}
