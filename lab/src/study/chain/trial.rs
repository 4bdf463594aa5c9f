//! One run of one store: write, verify, overwrite, verify, count, compact, verify, count.
//!
//! Invariant: no counter is read before every page was read back equal.

use super::plan::Plan;
use crate::corpus::{Corpus, PAGE_SIZE};
use crate::error::LabError;
use crate::kernel::{Aligned, KernelZram};
use crate::row::Row;
use crate::study::ours;
use std::time::{Duration, Instant};
use zram::Zram;
use zsmalloc::{ChainSize, Geometry};

/// Fields measured once the writes are done; those of `COMPACTED` also after compaction.
pub(super) const MEASURED: [&str; 13] = [
    "orig_data_size",
    "compr_data_size",
    "mem_used_total",
    "mem_used_max",
    "object_bytes_resident",
    "same_pages",
    "huge_pages",
    "metadata_bytes",
    "free_bytes_held",
    "accounted_bytes",
    "resident_bytes",
    "overhead_mem_used",
    "overhead_all_in",
];

/// Fields measured before that, right after the last write, with the prefix `unsettled_`.
pub(super) const UNSETTLED: [&str; 3] =
    ["object_bytes_resident", "accounted_bytes", "overhead_all_in"];

/// Fields measured again after compaction, there with the prefix `compacted_`.
pub(super) const COMPACTED: [&str; 5] = [
    "mem_used_total",
    "object_bytes_resident",
    "accounted_bytes",
    "overhead_mem_used",
    "overhead_all_in",
];

/// How long a pool may take to come to rest, and how often it is asked.
const SETTLE_MAX: Duration = Duration::from_secs(60);
const SETTLE_LOOK: Duration = Duration::from_millis(20);

/// Something that holds pages and can be counted.
trait Store {
    fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError>;
    fn read(&mut self, slot: usize) -> Result<&[u8], LabError>;
    /// Waits until the store has done what it does by itself when it is left alone.
    fn settle(&mut self) -> Result<(), LabError>;
    fn compact(&mut self) -> Result<(), LabError>;
    /// The counters, by the names of `MEASURED`; what the store cannot tell is left out.
    fn count(&self) -> Result<Row, LabError>;
}

/// Our zram: adds the measured fields to `row`.
pub(super) fn ours(
    shape: ours::Shape,
    plan: &Plan,
    corpus: &Corpus,
    row: &mut Row,
) -> Result<(), LabError> {
    let chain = ChainSize::from_order(shape.chain_order)
        .ok_or_else(|| LabError::Usage(format!("--chain-order {}", shape.chain_order)))?;
    let geometry = Geometry::new(shape.rule, chain);
    row.set("chain_order", shape.chain_order)
        .set("rule", shape.rule.name())
        .set("classes", geometry.classes().count())
        .set("huge_watermark", geometry.huge_watermark());
    let mut store = Ours { disk: ours::disk(shape)?, page: vec![0; PAGE_SIZE] };
    measure(&mut store, plan, corpus, row)?;
    store.disk.check().map_err(LabError::store("check"))?;
    Ok(())
}

/// The kernel's zram, set up already. Its chain is what it was built with; nothing tells which.
pub(super) fn kernel(
    peer: &KernelZram,
    plan: &Plan,
    corpus: &Corpus,
    row: &mut Row,
) -> Result<(), LabError> {
    for field in ["chain_order", "rule", "classes", "huge_watermark"] {
        row.set(field, serde_json::Value::Null);
    }
    let slots = plan.slots();
    measure(&mut Kernel { peer, slots, page: Aligned::new(PAGE_SIZE) }, plan, corpus, row)
}

fn measure(
    store: &mut impl Store,
    plan: &Plan,
    corpus: &Corpus,
    row: &mut Row,
) -> Result<(), LabError> {
    for (slot, &page) in plan.first.iter().enumerate() {
        store.write(slot, corpus.page(page as usize))?;
    }
    verify(store, &plan.first, corpus)?;
    for &(slot, page) in &plan.again {
        store.write(slot as usize, corpus.page(page as usize))?;
    }
    set_all(row, "unsettled_", &UNSETTLED, &with_overheads(store.count()?));
    store.settle()?;
    let last = plan.last();
    verify(store, &last, corpus)?;
    let counted = with_overheads(store.count()?);
    set_all(row, "", &MEASURED, &counted);
    store.compact()?;
    verify(store, &last, corpus)?;
    set_all(row, "compacted_", &COMPACTED, &with_overheads(store.count()?));
    Ok(())
}

fn set_all(row: &mut Row, prefix: &str, fields: &[&str], counted: &Row) {
    for field in fields {
        row.set(&format!("{prefix}{field}"), counted.get(field).clone());
    }
}

fn verify(store: &mut impl Store, pages: &[u32], corpus: &Corpus) -> Result<(), LabError> {
    for (slot, &page) in pages.iter().enumerate() {
        if store.read(slot)? != corpus.page(page as usize) {
            return Err(LabError::Wrong(format!("slot {slot} does not hold page {page}")));
        }
    }
    Ok(())
}

/// `overhead_all_in` is over everything accounted; `overhead_mem_used` is what the kernel's
/// figure allows to say, without metadata.
fn with_overheads(mut counted: Row) -> Row {
    let over = |row: &Row, field| Some(row.number(field)? / row.number("compr_data_size")? - 1.0);
    let all_in = over(&counted, "accounted_bytes");
    let used = over(&counted, "mem_used_total");
    counted.set("overhead_all_in", all_in).set("overhead_mem_used", used);
    counted
}

struct Ours {
    disk: Zram,
    page: Vec<u8>,
}

impl Store for Ours {
    fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError> {
        ours::write(&self.disk, slot, page)
    }

    fn read(&mut self, slot: usize) -> Result<&[u8], LabError> {
        ours::read(&self.disk, slot, &mut self.page)?;
        Ok(&self.page)
    }

    fn settle(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + SETTLE_MAX;
        while !self.disk.is_settled() {
            if Instant::now() > deadline {
                return Err(LabError::Wrong("the pool never came to rest".into()));
            }
            std::thread::sleep(SETTLE_LOOK);
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), LabError> {
        self.disk.compact();
        Ok(())
    }

    fn count(&self) -> Result<Row, LabError> {
        let stat = self.disk.stat();
        let mut row = Row::default();
        row.set("orig_data_size", stat.orig_data_size)
            .set("compr_data_size", stat.compr_data_size)
            .set("mem_used_total", stat.mem_used_total)
            .set("mem_used_max", stat.mem_used_max)
            .set("object_bytes_resident", stat.object_bytes_resident)
            .set("same_pages", stat.same_pages)
            .set("huge_pages", stat.huge_pages)
            .set("metadata_bytes", stat.metadata_bytes())
            .set("free_bytes_held", stat.free_bytes_held)
            .set("accounted_bytes", stat.accounted_bytes())
            .set("resident_bytes", stat.resident_bytes);
        Ok(row)
    }
}

struct Kernel<'a> {
    peer: &'a KernelZram,
    slots: usize,
    page: Aligned,
}

impl Store for Kernel<'_> {
    fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError> {
        self.page.bytes().copy_from_slice(page);
        self.peer.write(slot, &mut self.page)
    }

    fn read(&mut self, slot: usize) -> Result<&[u8], LabError> {
        self.peer.read(slot, &mut self.page)?;
        Ok(self.page.bytes())
    }

    /// The kernel compacts under memory pressure only.
    fn settle(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn compact(&mut self) -> Result<(), LabError> {
        self.peer.compact()
    }

    /// Every frame of the kernel's zspages is resident, and it holds nothing else back.
    fn count(&self) -> Result<Row, LabError> {
        let stat = self.peer.mm_stat()?;
        let metadata = self.peer.metadata_bytes(self.slots);
        let mut row = Row::default();
        row.set("orig_data_size", stat.orig_data_size)
            .set("compr_data_size", stat.compr_data_size)
            .set("mem_used_total", stat.mem_used_total)
            .set("mem_used_max", stat.mem_used_max)
            .set("object_bytes_resident", stat.mem_used_total)
            .set("same_pages", stat.same_pages)
            .set("huge_pages", stat.huge_pages)
            .set("metadata_bytes", metadata)
            .set("accounted_bytes", metadata.map(|bytes| bytes + stat.mem_used_total));
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq)]
    enum Loses {
        Nothing,
        Slot(usize),
        Overwrites,
        AllWhenCompacted,
    }

    /// Keeps pages as they are, except for what it loses.
    struct Plain {
        pages: Vec<Option<Vec<u8>>>,
        loses: Loses,
    }

    impl Store for Plain {
        fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError> {
            let overwrites = self.pages[slot].is_some();
            let lost = match self.loses {
                Loses::Slot(lost) => lost == slot,
                Loses::Overwrites => overwrites,
                _ => false,
            };
            if !lost {
                self.pages[slot] = Some(page.to_vec());
            }
            Ok(())
        }
        fn read(&mut self, slot: usize) -> Result<&[u8], LabError> {
            Ok(self.pages[slot].as_deref().unwrap_or(&[]))
        }
        fn settle(&mut self) -> Result<(), LabError> {
            Ok(())
        }

        fn compact(&mut self) -> Result<(), LabError> {
            if self.loses == Loses::AllWhenCompacted {
                self.pages.fill(None);
            }
            Ok(())
        }
        fn count(&self) -> Result<Row, LabError> {
            let mut row = Row::default();
            row.set("compr_data_size", 200).set("accounted_bytes", 250).set("mem_used_total", 210);
            Ok(row)
        }
    }

    fn measured(loses: Loses) -> Result<Row, LabError> {
        let corpus = Corpus::open(None, 40 * PAGE_SIZE as u64)?;
        let plan = Plan::new(super::super::plan::Fill::Half, 40, 0);
        let mut row = Row::default();
        let mut store = Plain { pages: vec![None; plan.slots()], loses };
        measure(&mut store, &plan, &corpus, &mut row)?;
        Ok(row)
    }

    #[test]
    fn overheads_are_over_the_compressed_bytes() {
        let row = measured(Loses::Nothing).unwrap();
        assert!((row.number("overhead_all_in").unwrap() - 0.25).abs() < 1e-12);
        assert!((row.number("compacted_overhead_mem_used").unwrap() - 0.05).abs() < 1e-12);
        assert_eq!(row.number("metadata_bytes"), None, "not counted is null");
    }

    #[test]
    fn a_store_that_loses_pages_is_found_out_at_every_step() {
        for loses in [Loses::Slot(7), Loses::Overwrites, Loses::AllWhenCompacted] {
            let error = measured(loses).expect_err("a loss must not go unseen").to_string();
            assert!(error.starts_with("wrong answer: slot "), "{error}");
        }
    }
}
