//! One run of one store: write, verify, overwrite, verify, count, compact, verify, count.
//!
//! Invariant: no counter is read before every page was read back equal.

use super::fields::FIELDS;
use super::plan::Plan;
use crate::apparatus::ours;
use crate::apparatus::store::{Kernel, Ours, Store};
use crate::ground::LabError;
use crate::kernel::KernelZram;
use crate::pages::Corpus;
use crate::rows::{Row, fields};
use zsmalloc::{ChainSize, Geometry};

/// What the fields that are measured right after the last write, and after compaction, begin with.
const UNSETTLED: &str = "unsettled_";
const COMPACTED: &str = "compacted_";

/// Our zram: adds the measured fields to `row`.
pub(super) fn ours(
    shape: &ours::Shape,
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
    let mut store = Ours::new(ours::disk(shape)?);
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
    measure(&mut Kernel::new(peer, plan.slots()), plan, corpus, row)
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
    set_all(row, UNSETTLED, &with_overheads(store.count()?));
    store.settle()?;
    let last = plan.last();
    verify(store, &last, corpus)?;
    let counted = with_overheads(store.count()?);
    set_all(row, "", &counted);
    store.compact()?;
    verify(store, &last, corpus)?;
    set_all(row, COMPACTED, &with_overheads(store.count()?));
    Ok(())
}

/// Sets the fields of the table that begin so.
fn set_all(row: &mut Row, prefix: &str, counted: &Row) {
    for field in fields::measured(&FIELDS) {
        let of = [UNSETTLED, COMPACTED].into_iter().find(|of| field.starts_with(of));
        if of.unwrap_or_default() == prefix {
            row.set(field, counted.get(&field[prefix.len()..]).clone());
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::PAGE_SIZE;

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
        fn discard(&mut self, _first: usize, _pages: usize) -> Result<(), LabError> {
            Ok(())
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
