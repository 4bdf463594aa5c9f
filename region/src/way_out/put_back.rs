//! Put back: pages that the store refuses are memory of the region again.

use crate::places::{Group, bits, runs};
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::GROUP_PAGES;
use host::Stop;

impl Folded {
    /// Copies staged pages back that the store refuses. Returns how many.
    pub(super) fn put_back(&self, index: usize, group: &mut Group, pages: u64) -> u64 {
        let mut refused = 0;
        for (at, count) in runs(group.staged() & pages) {
            refused += self.put_back_run(index, group, at, count);
        }
        self.counters.add(Count::Refused, refused);
        self.list(index, group);
        refused
    }

    fn put_back_run(&self, index: usize, group: &mut Group, at: usize, count: usize) -> u64 {
        let mut done = 0;
        while done < count {
            let Some(segment) = group.segment() else { break };
            let page = index * GROUP_PAGES + at + done;
            let transfer = self.put_staged(page, count - done, segment);
            done += transfer.pages;
            match transfer.stop {
                None => {}
                Some(Stop::Present) => done += 1,
                Some(Stop::NoMemory | Stop::NoMapping) => break,
                Some(_) => self.end("a page cannot be put back", page),
            }
        }
        let before = group.resident();
        group.arrive(bits(at, done));
        self.chunks.changed(index, before, group.resident());
        self.counters.sub(Count::Staged, done as u64);
        self.counters.add(Count::Resident, done as u64);
        done as u64
    }
}
