//! The figures of a cache. They are the kernel's counters, with its names and meanings, and some
//! that the kernel does not have.
//!
//! ```text
//!   pool_limit_hit 0            debugfs zswap/           one "name value" per line
//!   reject_compress_poor 0
//!   zswpin 0                    /proc/vmstat
//!
//!   {"pool_limit_hit":0, ..., "zswpin":0, ...}         the same as JSON
//! ```
//!
//! Two counters differ in meaning. `pool_total_size` is compared with no limit, because untouched
//! frames of zspages cost nothing. The limit is compared with `object_bytes_resident`.
//! `stored_pages` also counts same-filled pages, which today's kernel keeps elsewhere. It counts no
//! page that is on the disk.
//!
//! Invariant: `named` has each field once, in the order of the structure, so text and JSON show the
//! same figures. Nothing here writes a counter.
//!
//! Locks: none. Each number is exact. Together they are not a snapshot while pages are stored and
//! loaded.

use std::fmt;

use super::zswap::Zswap;
use crate::backing::Backing;
use crate::cells::{Event, kind};

/// The counters of a cache. They count pages or times, unless the name says bytes or size.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ZswapStat {
    /// Times that the limit was reached.
    pub pool_limit_hit: u64,
    /// Pages refused at a limit because nothing could be written back, or not at once.
    pub reject_reclaim_fail: u64,
    /// Pages refused because there was no memory for their objects.
    pub reject_alloc_fail: u64,
    /// Pages refused because there was no memory for what describes them.
    pub reject_kmemcache_fail: u64,
    /// Pages refused because the codec failed.
    pub reject_compress_fail: u64,
    /// Pages refused because they do not compress.
    pub reject_compress_poor: u64,
    /// Loads that failed because what was stored did not decode.
    pub decompress_fail: u64,
    /// Pages that left memory because they were written to the disk.
    pub written_back_pages: u64,
    /// Bytes of all frames of zspages.
    pub pool_total_size: u64,
    /// Pages in memory, same-filled ones included.
    pub stored_pages: u64,
    /// Pages in memory that did not compress.
    pub stored_incompressible_pages: u64,
    /// Pages loaded from memory.
    pub zswpin: u64,
    /// Pages stored.
    pub zswpout: u64,
    /// Pages written back: `written_back_pages`, as `/proc/vmstat` calls it.
    pub zswpwb: u64,
    /// Same-filled pages.
    pub same_filled_pages: u64,
    /// Pages on the disk.
    pub disk_pages: u64,
    /// Pages loaded from the disk, including those that had been read ahead.
    pub disk_loads: u64,
    /// Pages loaded from the disk that had been read ahead with a neighbour.
    pub read_ahead_hits: u64,
    /// Loads that failed because the disk did.
    pub disk_load_fail: u64,
    /// Pages that stayed in memory because writing them failed.
    pub write_back_fail: u64,
    /// Pages that stayed in memory because the disk was full.
    pub disk_full: u64,
    /// Bytes of the disk that no page gets again, because a write that was given up may still
    /// change them.
    pub disk_quarantined_bytes: u64,
    /// Bytes of compressed and raw objects.
    pub compr_data_size: u64,
    /// Bytes of objects that were invalidated and that the memory's worker has yet to free.
    pub pending_bytes: u64,
    /// Touched frames of zspages, in bytes: what the limit is compared with.
    pub object_bytes_resident: u64,
    /// The limit, in bytes; `u64::MAX` = none.
    pub limit_bytes: u64,
}

impl ZswapStat {
    /// Every counter by its name, in the order of the structure: for a table or for JSON.
    pub fn named(&self) -> [(&'static str, u64); 26] {
        [
            ("pool_limit_hit", self.pool_limit_hit),
            ("reject_reclaim_fail", self.reject_reclaim_fail),
            ("reject_alloc_fail", self.reject_alloc_fail),
            ("reject_kmemcache_fail", self.reject_kmemcache_fail),
            ("reject_compress_fail", self.reject_compress_fail),
            ("reject_compress_poor", self.reject_compress_poor),
            ("decompress_fail", self.decompress_fail),
            ("written_back_pages", self.written_back_pages),
            ("pool_total_size", self.pool_total_size),
            ("stored_pages", self.stored_pages),
            ("stored_incompressible_pages", self.stored_incompressible_pages),
            ("zswpin", self.zswpin),
            ("zswpout", self.zswpout),
            ("zswpwb", self.zswpwb),
            ("same_filled_pages", self.same_filled_pages),
            ("disk_pages", self.disk_pages),
            ("disk_loads", self.disk_loads),
            ("read_ahead_hits", self.read_ahead_hits),
            ("disk_load_fail", self.disk_load_fail),
            ("write_back_fail", self.write_back_fail),
            ("disk_full", self.disk_full),
            ("disk_quarantined_bytes", self.disk_quarantined_bytes),
            ("compr_data_size", self.compr_data_size),
            ("pending_bytes", self.pending_bytes),
            ("object_bytes_resident", self.object_bytes_resident),
            ("limit_bytes", self.limit_bytes),
        ]
    }
}

impl ZswapStat {
    /// The counters as one JSON object, without spaces. `limit_bytes` is null if there is no limit.
    pub fn json(&self) -> String {
        let value = |(name, value): (&str, u64)| match (name, value) {
            ("limit_bytes", u64::MAX) => format!("\"{name}\":null"),
            _ => format!("\"{name}\":{value}"), // a name needs no escapes
        };
        format!("{{{}}}", self.named().map(value).join(","))
    }
}

/// One `name value` per line, as the files of the kernel's debugfs directory would read together.
impl fmt::Display for ZswapStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named().iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))
    }
}

impl Zswap {
    /// The counters now.
    pub fn stat(&self) -> ZswapStat {
        let (core, pool) = (&*self.core, self.core.pool.stats());
        let (tally, times) = (core.counters.tally(), |event| core.counters.times(event));
        let written_back = times(Event::WrittenBackPages);
        ZswapStat {
            pool_limit_hit: times(Event::PoolLimitHit),
            reject_reclaim_fail: times(Event::RejectReclaimFail),
            reject_alloc_fail: times(Event::RejectAllocFail),
            reject_kmemcache_fail: times(Event::RejectMetadataFail),
            reject_compress_fail: times(Event::RejectCompressFail),
            reject_compress_poor: times(Event::RejectCompressPoor),
            decompress_fail: times(Event::DecompressFail),
            written_back_pages: written_back,
            pool_total_size: pool.mem_used_total,
            stored_pages: tally.counts[kind::BLOB] + tally.counts[kind::SAME],
            stored_incompressible_pages: tally.counts[kind::HUGE],
            zswpin: times(Event::In),
            zswpout: times(Event::Out),
            zswpwb: written_back,
            same_filled_pages: tally.counts[kind::SAME],
            disk_pages: tally.counts[kind::DISK],
            disk_loads: times(Event::DiskLoad),
            read_ahead_hits: times(Event::ReadAheadHit),
            disk_load_fail: times(Event::DiskLoadFail),
            write_back_fail: times(Event::WriteBackFail),
            disk_full: times(Event::DiskFull),
            disk_quarantined_bytes: core.backing.as_ref().map_or(0, Backing::quarantined_bytes),
            compr_data_size: tally.bytes,
            pending_bytes: core.counters.pending().bytes,
            object_bytes_resident: core.pool.object_bytes_resident(),
            limit_bytes: core.limit(),
        }
    }

    /// The algorithms of the stored entries, the current one first, each with the number of its
    /// entries. Entries on the disk count too. Raw pages have no algorithm.
    pub fn algorithms(&self) -> Vec<(codec::Codec, u64)> {
        self.core.algorithms.live(&self.core.counters)
    }

    /// Bytes of the cache's own structures. Those of its memory are not among them, so that the two
    /// can be added.
    pub fn metadata_bytes(&self) -> u64 {
        let core = &*self.core;
        let roots = self.all_areas().iter().map(|area| area.root_bytes()).sum::<u64>();
        let codecs = (core.streams.heap_bytes() + core.algorithms.dictionary_bytes()) as u64;
        let disk = core.backing.as_ref().map_or(0, |backing| backing.held_bytes());
        let tables = core.groups.held_bytes() + core.orders.bytes() + core.turn.heap_bytes();
        roots + codecs + disk + tables + core.words.heap_bytes() + core.counters.heap_bytes()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn json_has_every_counter_by_its_name() {
        let most = (1 << 53) - 1; // what a reader that knows doubles alone still has exactly
        let stat =
            ZswapStat { zswpin: 7, zswpout: most, limit_bytes: 4096, ..ZswapStat::default() };
        let json: Value = serde_json::from_str(&stat.json()).expect("JSON");
        let named = stat.named();
        assert_eq!(json.as_object().map(|fields| fields.len()), Some(named.len()));
        named.iter().for_each(|(name, value)| assert_eq!(json[name], *value, "{name}"));
        assert_eq!((&json["zswpin"], &json["zswpout"]), (&Value::from(7), &Value::from(most)));
    }

    #[test]
    fn no_limit_is_null_in_json() {
        let stat = ZswapStat { limit_bytes: u64::MAX, ..ZswapStat::default() };
        let json: Value = serde_json::from_str(&stat.json()).expect("JSON");
        assert_eq!(json["limit_bytes"], Value::Null);
    }
}
