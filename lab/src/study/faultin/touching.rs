//! Threads that touch every page of a memory whose pages are out.
//!
//! ```text
//!   random       a permutation of all pages, dealt out      | 7 2 9 | 4 0 5 | 1 8 ..
//!   sequential   each thread a part of its own              | 0 1 2 | 3 4 5 | 6 7 ..
//! ```
//!
//! Invariant: every page is touched once, by one thread, and was out before; a time counts only if
//! the memory held what it should afterwards.

use crate::apparatus::gate::Gate;
use crate::ground::{LabError, Rng};
use crate::pages::PAGE_SIZE;
use region::FaultCosts;
use std::hint;
use std::thread;
use std::time::Instant;

const SEED: u64 = 0x6661_756C;

/// Memory whose pages can be out.
pub(super) trait Memory {
    /// Has all pages out.
    fn put_out(&mut self) -> Result<(), LabError>;
    fn bytes(&self) -> &[u8];
    /// Sees that every page holds what it should.
    fn verify(&self) -> Result<(), LabError>;
    /// What it takes faults to cost, if it has an opinion.
    fn costs(&self) -> Option<FaultCosts> {
        None
    }
}

/// In which order a thread touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Order {
    Random,
    Sequential,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Random => "random",
            Order::Sequential => "sequential",
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) pages: usize,
    pub(super) threads: u32,
    pub(super) order: Order,
    pub(super) run: u32,
}

impl Case {
    /// The pages of all threads, each thread's after the other's.
    fn pages(self) -> Vec<u32> {
        match self.order {
            Order::Random => Rng::new(SEED, u64::from(self.run)).permutation(self.pages),
            Order::Sequential => (0..self.pages as u32).collect(),
        }
    }
}

/// Nanoseconds from the first thread's start to the last one's end.
pub(super) fn measure(memory: &mut dyn Memory, case: Case) -> Result<f64, LabError> {
    memory.put_out()?;
    let order = case.pages();
    let ns = touch_all(memory.bytes(), &order, case.threads);
    memory.verify()?;
    Ok(ns)
}

fn touch_all(bytes: &[u8], order: &[u32], threads: u32) -> f64 {
    let gate = &Gate::new(threads);
    let share = order.len().div_ceil(threads as usize).max(1);
    let mut shares = order.chunks(share);
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let start = |pages| scope.spawn(move || touch(bytes, pages, gate));
        // A thread without pages passes the gate all the same.
        let threads: Vec<_> =
            (0..threads).map(|_| start(shares.next().unwrap_or_default())).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let start = spans.iter().map(|(start, _)| *start).min();
    let end = spans.iter().map(|(_, end)| *end).max();
    start.zip(end).map_or(f64::NAN, |(start, end)| (end - start).as_nanos() as f64)
}

fn touch(bytes: &[u8], pages: &[u32], gate: &Gate) -> (Instant, Instant) {
    gate.pass();
    let start = Instant::now();
    for &page in pages {
        hint::black_box(bytes[page as usize * PAGE_SIZE]);
    }
    (start, Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain(Vec<u8>);

    impl Memory for Plain {
        fn put_out(&mut self) -> Result<(), LabError> {
            self.0.fill(1);
            Ok(())
        }
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn verify(&self) -> Result<(), LabError> {
            Err(LabError::Wrong("looked at".into()))
        }
    }

    #[test]
    fn a_memory_that_came_back_wrong_has_no_time() {
        let case = Case { pages: 5, threads: 3, order: Order::Random, run: 0 };
        let error = measure(&mut Plain(vec![0; 5 * PAGE_SIZE]), case).unwrap_err();
        assert_eq!(error.to_string(), "wrong answer: looked at");
    }

    #[test]
    fn every_page_is_touched_whatever_the_order() {
        for order in [Order::Random, Order::Sequential] {
            let case = Case { pages: 100, threads: 3, order, run: 1 };
            let mut pages = case.pages();
            assert_eq!(pages.windows(2).all(|pair| pair[0] < pair[1]), order == Order::Sequential);
            pages.sort_unstable();
            assert_eq!(pages, (0..100).collect::<Vec<u32>>());
        }
        assert!(touch_all(&[0; 3 * PAGE_SIZE], &[2, 0, 1], 8).is_finite());
    }
}
