//! Compaction when the system is short of memory, where the system tells of it.
//!
//! ```text
//!   once a second   memory short since the last look? -- yes --> every pool compacted, free frames
//!                                                               returned; counted for `stat`
//! ```
//!
//! Invariant: what is counted was seen by the thread that watches, and by no other.
//!
//! Lock: that of the counts, a leaf; not held while pools are compacted.

use std::sync::Arc;

use host::unmodelled::RankedMutex;
use host::{Pressure, Rank};
use serde_json::{Value, json};
use zsmalloc::Memory;

/// What there is to say of it in answers to `ramfold stat`.
#[derive(Clone)]
pub(crate) struct Relieved(Arc<RankedMutex<Counted>>);

#[derive(Default)]
struct Counted {
    /// The file that tells; none where the system tells nothing.
    source: Option<String>,
    times: u64,
    bytes: u64,
}

impl Relieved {
    /// Nothing was relieved, and nothing tells of pressure.
    pub(crate) fn new() -> Relieved {
        Relieved(Arc::new(RankedMutex::new(Rank::Leaf, Counted::default())))
    }

    /// In the form that `stat --json` prints.
    pub(crate) fn value(&self) -> Value {
        let Counted { source, times, bytes } = &*self.0.lock();
        json!({ "source": source, "times": times, "returned_bytes": bytes })
    }
}

/// What looks for pressure, and relieves it.
pub(crate) struct Relief {
    pressure: Option<Pressure>,
    relieved: Relieved,
}

impl Relief {
    /// Looks at what `pressure` tells from now on.
    pub(crate) fn new(pressure: Option<Pressure>) -> Relief {
        let relieved = Relieved::new();
        relieved.0.lock().source = pressure.as_ref().map(|it| it.path().display().to_string());
        Relief { pressure, relieved }
    }

    pub(crate) fn relieved(&self) -> Relieved {
        self.relieved.clone()
    }

    /// A line for the operator where nothing tells of pressure.
    pub(crate) fn objection(&self) -> Option<&'static str> {
        self.pressure.is_none().then_some(
            "this system does not say when memory is short: pools are compacted at rest, at the \
             limit and on request",
        )
    }

    /// Compacts, if memory was short since the last look; the bytes that the system got back then.
    pub(crate) fn look(&mut self, memory: &Arc<Memory>) -> Option<u64> {
        if !self.pressure.as_mut()?.was_short() {
            return None;
        }
        let bytes = memory.relieve();
        let mut counted = self.relieved.0.lock();
        counted.times += 1;
        counted.bytes += bytes;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use zram::{Zram, ZramConfig};
    use zsmalloc::MemoryConfig;

    const PAGES: u64 = 512;

    /// A disk of which three pages in four were discarded, so that its zspages are sparse.
    fn sparse() -> Zram {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(4 << 20) };
        let memory = Memory::new(config).unwrap();
        let disk = Zram::new(memory, ZramConfig::new("zram0", 4 << 20)).unwrap();
        let page: [u8; 4096] = std::array::from_fn(|at| (at * at / 7) as u8);
        (0..PAGES).for_each(|number| disk.write_page(number, &page).unwrap());
        (0..PAGES)
            .filter(|number| number % 4 > 0)
            .for_each(|number| disk.discard_pages(number..number + 1).unwrap());
        disk
    }

    #[test]
    fn pressure_makes_pools_compact() {
        let path = std::env::temp_dir().join(format!("ramfold-relief-{}", std::process::id()));
        let tell = |total: u64| fs::write(&path, format!("some total={total}\n")).unwrap();
        tell(0);
        let mut relief = Relief::new(Some(Pressure::in_file(path.clone()).unwrap()));
        let disk = sparse();
        assert_eq!((relief.objection(), relief.look(disk.memory())), (None, None), "no pressure");
        tell(1_000_000);
        let returned = relief.look(disk.memory()).expect("memory is short");
        assert!(returned > 0 && disk.stat().pages_compacted > 0, "{returned}");
        let value = relief.relieved().value();
        assert_eq!((&value["times"], &value["returned_bytes"]), (&1.into(), &returned.into()));
        assert_eq!(value["source"], path.display().to_string());
        assert_eq!(relief.look(disk.memory()), None, "that was it");
        fs::remove_file(&path).unwrap();
        disk.check().unwrap();
    }

    #[test]
    fn a_system_that_tells_nothing_is_said_to() {
        let mut relief = Relief::new(None);
        assert!(relief.objection().is_some_and(|line| line.contains("does not say")));
        assert_eq!(relief.look(sparse().memory()), None);
        assert_eq!(relief.relieved().value()["source"], Value::Null);
    }
}
