//! One compaction of one store, from the first write to the last page read back.
//!
//! Invariant: no figure counts unless every page that is left was read back equal, every other one
//! as zeros, and the store counts as many pages as there are left.

use super::busy::{self, Latencies, Load};
use super::plan::Plan;
use crate::apparatus::store::{Ours, Store};
use crate::ground::{LabError, stats};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::Row;
use std::time::{Duration, Instant};

/// Compaction with nobody else there.
pub(super) fn alone(
    store: &mut impl Store,
    plan: &Plan,
    corpus: &Corpus,
    row: &mut Row,
) -> Result<(), LabError> {
    punch(store, plan, corpus)?;
    let before = store.count()?;
    let start = Instant::now();
    store.compact()?;
    let elapsed = start.elapsed();
    let returned = wait_returned(store, start);
    let after = store.count()?;
    verify(store, plan, &plan.live, corpus)?;
    report(row, &before, &after, elapsed);
    report_returned(row, &before, &after, returned);
    Ok(())
}

/// Compaction beside threads that read and write.
pub(super) fn beside(
    store: &mut Ours,
    plan: &Plan,
    corpus: &Corpus,
    load: Load,
    row: &mut Row,
) -> Result<(), LabError> {
    punch(store, plan, corpus)?;
    let shared: &Ours = store;
    let timed = || {
        let before = shared.count()?;
        let start = Instant::now();
        shared.disk.compact();
        let (elapsed, after) = (start.elapsed(), shared.count()?);
        let returned = wait_returned(shared, start);
        Ok((before, elapsed, after, returned, shared.count()?))
    };
    let (timed, threads) = busy::beside(&shared.disk, plan, corpus, load, timed)?;
    let (before, elapsed, after, returned, at_last) = timed;
    let mut holds = plan.live.clone();
    for thread in &threads {
        for &(position, page) in &thread.holds {
            holds[position] = page;
        }
    }
    verify(store, plan, &holds, corpus)?;
    report(row, &before, &after, elapsed);
    report_returned(row, &before, &at_last, returned);
    let all = |which: fn(&Latencies) -> &[u32]| threads.iter().flat_map(which).copied().collect();
    percentiles(row, "", all(|latencies| &latencies.without));
    percentiles(row, "compacting_", all(|latencies| &latencies.compacting));
    Ok(())
}

/// How long after `start` the system had the memory back; nothing if it did not get it.
fn wait_returned(store: &impl Store, start: Instant) -> Option<Duration> {
    const PATIENCE: Duration = Duration::from_secs(2);
    while !store.is_returned() {
        if start.elapsed() > PATIENCE {
            return None;
        }
        std::thread::yield_now();
    }
    Some(start.elapsed())
}

/// Writes everything, then discards what is to go.
fn punch(store: &mut impl Store, plan: &Plan, corpus: &Corpus) -> Result<(), LabError> {
    for slot in 0..plan.pages {
        store.write(slot, corpus.page(slot))?;
    }
    plan.ranges().try_for_each(|(first, pages)| store.discard(first, pages))
}

/// Reads everything back; page `plan.live[i]` holds page `holds[i]` of the corpus.
fn verify(
    store: &mut impl Store,
    plan: &Plan,
    holds: &[u32],
    corpus: &Corpus,
) -> Result<(), LabError> {
    for (&slot, &page) in plan.live.iter().zip(holds) {
        if store.read(slot as usize)? != corpus.page(page as usize) {
            return Err(LabError::Wrong(format!("slot {slot} does not hold page {page}")));
        }
    }
    for &slot in &plan.gone {
        if store.read(slot as usize)?.iter().any(|&byte| byte != 0) {
            return Err(LabError::Wrong(format!("slot {slot} was discarded and holds something")));
        }
    }
    let (stored, left) = (store.count()?, plan.live.len() * PAGE_SIZE);
    let stored = stored.get("orig_data_size");
    let wrong = || LabError::Wrong(format!("{left} bytes are left, {stored} are counted"));
    (*stored == left).then_some(()).ok_or_else(wrong)
}

fn report(row: &mut Row, before: &Row, after: &Row, elapsed: Duration) {
    let ms = elapsed.as_secs_f64() * 1e3;
    let over = |counted: &Row, field| {
        Some(counted.number(field)? / counted.number("compr_data_size")? - 1.0)
    };
    let less = |field| Some(before.number(field)? - after.number(field)?);
    let freed = less("mem_used_total");
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let more = |counter| less(counter).map(|less| -less);
    for (field, from, counter) in [
        ("compr_data_size", after, "compr_data_size"),
        ("mem_used_before", before, "mem_used_total"),
        ("mem_used_after", after, "mem_used_total"),
        ("resident_before", before, "object_bytes_resident"),
        ("resident_after", after, "object_bytes_resident"),
        ("accounted_after", after, "accounted_bytes"),
    ] {
        row.set(field, from.get(counter).clone());
    }
    row.set("freed_bytes", freed)
        .set("pages_compacted", more("pages_compacted"))
        .set("compaction_yields", more("compaction_yields"))
        .set("compact_ms", ms)
        .set("compact_ms_per_mib", freed.filter(|&freed| freed > 0.0).map(|freed| ms / mib(freed)))
        .set("used_over_before", over(before, "object_bytes_resident"))
        .set("used_over", over(after, "object_bytes_resident"))
        .set("overhead_all_in", over(after, "accounted_bytes"));
}

/// What the system has back, when and how fast; and what it has not.
fn report_returned(row: &mut Row, before: &Row, at_last: &Row, returned: Option<Duration>) {
    let held = |counted: &Row| {
        Some(counted.number("object_bytes_resident")? + counted.number("free_bytes_held")?)
    };
    let bytes = held(before).zip(held(at_last)).map(|(before, after)| before - after);
    let seconds = returned.map(|returned| returned.as_secs_f64());
    let rate = bytes.zip(seconds).map(|(bytes, seconds)| bytes / seconds / 1e9);
    let over = held(at_last).zip(at_last.number("compr_data_size"));
    row.set("returned_ms", seconds.map(|seconds| seconds * 1e3))
        .set("returned_bytes", bytes)
        .set("returned_gb_per_s", rate)
        .set("held_over", over.map(|(held, compressed)| held / compressed - 1.0));
}

fn percentiles(row: &mut Row, prefix: &str, mut ns: Vec<u32>) {
    ns.sort_unstable();
    let us = |percent| stats::percentile(&ns, percent).map(|ns| f64::from(ns) / 1e3);
    row.set(&format!("{prefix}ops"), ns.len());
    row.set(&format!("{prefix}op_us_p50"), us(50));
    row.set(&format!("{prefix}op_us_p99"), us(99));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps pages as they are, and may lose one when it compacts or keep one that is discarded.
    struct Plain {
        pages: Vec<Option<Vec<u8>>>,
        loses: Option<usize>,
        keeps: Option<usize>,
        compacted: u64,
    }

    impl Store for Plain {
        fn write(&mut self, slot: usize, page: &[u8]) -> Result<(), LabError> {
            self.pages[slot] = Some(page.to_vec());
            Ok(())
        }
        fn read(&mut self, slot: usize) -> Result<&[u8], LabError> {
            Ok(self.pages[slot].as_deref().unwrap_or(&[0; PAGE_SIZE]))
        }
        fn discard(&mut self, first: usize, pages: usize) -> Result<(), LabError> {
            for slot in (first..first + pages).filter(|&slot| Some(slot) != self.keeps) {
                self.pages[slot] = None;
            }
            Ok(())
        }
        fn settle(&mut self) -> Result<(), LabError> {
            Ok(())
        }
        fn compact(&mut self) -> Result<(), LabError> {
            self.compacted += 3;
            if let Some(slot) = self.loses {
                self.pages[slot] = None;
            }
            Ok(())
        }
        fn count(&self) -> Result<Row, LabError> {
            let stored = self.pages.iter().flatten().count() * PAGE_SIZE;
            let mut row = Row::default();
            row.set("orig_data_size", stored).set("compr_data_size", 1000);
            row.set("pages_compacted", self.compacted);
            row.set("compaction_yields", 2 * self.compacted);
            row.set("mem_used_total", (4 << 20) - (self.compacted << 20));
            row.set("object_bytes_resident", 1100 - 10 * self.compacted);
            Ok(row)
        }
    }

    fn measured(loses: Option<usize>, keeps: Option<usize>) -> Result<Row, LabError> {
        let corpus = Corpus::open(None, 40 * PAGE_SIZE as u64)?;
        let plan = Plan { pages: 4, percent: 50, live: vec![0, 3], gone: vec![1, 2] };
        let mut store = Plain { pages: vec![None; 4], loses, keeps, compacted: 0 };
        let mut row = Row::default();
        alone(&mut store, &plan, &corpus, &mut row)?;
        Ok(row)
    }

    #[test]
    fn figures_are_of_the_compaction() {
        let row = measured(None, None).unwrap();
        assert_eq!(row.number("freed_bytes"), Some(f64::from(3 << 20)));
        assert_eq!(row.number("pages_compacted"), Some(3.0));
        assert_eq!(row.number("compaction_yields"), Some(6.0));
        assert!((row.number("used_over_before").unwrap() - 0.1).abs() < 1e-9);
        assert!((row.number("used_over").unwrap() - 0.07).abs() < 1e-9);
        let (ms, each) = (row.number("compact_ms"), row.number("compact_ms_per_mib"));
        assert!((ms.unwrap() / 3.0 - each.unwrap()).abs() < 1e-9);
        assert_eq!(row.number("overhead_all_in"), None, "not counted is null");
    }

    #[test]
    fn a_page_lost_and_a_page_kept_are_found_out() {
        let lost = measured(Some(3), None).expect_err("a loss must not go unseen").to_string();
        assert_eq!(lost, "wrong answer: slot 3 does not hold page 3");
        let kept = measured(None, Some(2)).expect_err("a discard must discard").to_string();
        assert_eq!(kept, "wrong answer: slot 2 was discarded and holds something");
    }
}
