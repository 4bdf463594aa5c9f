//! The buffers of write-back: the bytes on their way to the disk, and the requests that take them
//! there.
//!
//! ```text
//!   picks    | a | b | c | d |          entries, with their places on the disk
//!   runs     |   0   | 1 | 2 |          sectors in a row: one write each
//!   buffer   | a b   | c | d |          the bytes of all runs
//!   bridges      ^^ sectors between two blobs that are written over, to make one run of two
//! ```
//!
//! Invariant: the thread that has these buffers has the turn to write (`turn`). So the entries in
//! `picks` were claimed in this turn.
//!
//! Locks: none. None is held while the disk is called.

use std::sync::Arc;

use disk::{DiskError, Flights};
use host::PAGE_SIZE;
use zsmalloc::CellNumber;

use crate::backing::{Backing, Bridge, Next, OnDisk, SECTOR};
use crate::order::Victim;

/// Writes of a batch that are under way at the same time.
const IN_FLIGHT: usize = 4;

/// An entry on its way to the disk.
#[derive(Clone, Copy)]
pub(crate) struct Pick {
    pub(crate) victim: Victim,
    pub(crate) algorithm: usize,
    pub(crate) at: OnDisk,
    pub(crate) run: usize,
}

/// Consecutive sectors, and their bytes in the buffer.
pub(crate) struct Run {
    sector: u32,
    start: usize,
    end: usize,
    pub(crate) failed: bool,
}

/// The buffers of write-back. Its owner has the turn.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) next: Next,
    pub(crate) victims: Vec<Victim>,
    pub(crate) picks: Vec<Pick>,
    pub(crate) runs: Vec<Run>,
    pub(crate) bridges: Vec<Bridge>,
    buffer: Vec<u8>,
    /// Present once a batch has had several runs.
    flights: Option<Flights<usize>>,
}

impl Writer {
    pub(crate) fn heap_bytes(&self) -> u64 {
        let lists = self.victims.capacity() * size_of::<Victim>()
            + self.picks.capacity() * size_of::<Pick>()
            + self.runs.capacity() * size_of::<Run>()
            + self.bridges.capacity() * size_of::<Bridge>();
        (lists + self.buffer.capacity()) as u64
    }

    /// Empties the lists, and makes room for a batch. False if there is no memory for that.
    pub(crate) fn begin(&mut self, most: usize) -> bool {
        self.victims.clear();
        self.picks.clear();
        self.runs.clear();
        self.bridges.clear();
        self.buffer.clear();
        self.victims.try_reserve(most).is_ok()
            && self.picks.try_reserve(most).is_ok()
            && self.runs.try_reserve(most).is_ok()
            && self.bridges.try_reserve(most).is_ok()
            && self.buffer.try_reserve(most * (PAGE_SIZE + SECTOR)).is_ok()
    }

    /// Whether the content of this cell was chosen.
    pub(crate) fn has(&self, cell: CellNumber) -> bool {
        self.picks.iter().any(|pick| pick.victim.cell == cell)
    }

    /// Adds a blob whose sectors were claimed. It extends the last run if it lies right behind it.
    pub(crate) fn append(&mut self, backing: &Backing, pick: Pick, blob: &[u8]) {
        let (sector, filled) = (pick.at.sector, self.buffer.len());
        let end = |run: &Run| run.sector + ((filled - run.start) / SECTOR) as u32;
        match self.runs.last().and_then(|run| backing.bridge(end(run), sector)) {
            Some(bridge) => {
                self.buffer.resize(filled + bridge.sectors as usize * SECTOR, 0);
                self.bridges.push(bridge);
            }
            None => self.runs.push(Run { sector, start: filled, end: filled, failed: false }),
        }
        self.buffer.extend_from_slice(blob);
        self.buffer.resize(self.buffer.len().next_multiple_of(SECTOR), 0);
        let run = self.runs.len() - 1;
        self.runs[run].end = self.buffer.len();
        self.picks.push(Pick { run, ..pick });
    }

    /// Writes the runs. True if the disk said of one that it is full.
    pub(crate) fn write(&mut self, backing: &Backing) -> bool {
        if self.runs.len() > 1 && !cfg!(loom) {
            return self.write_together(backing);
        }
        let mut full = false;
        for run in &mut self.runs {
            let written = backing.write(run.sector, &self.buffer[run.start..run.end]);
            full |= run.failed_with(written);
        }
        full
    }

    /// As `write`, with several writes under way at once, because the free sectors were not
    /// consecutive.
    fn write_together(&mut self, backing: &Backing) -> bool {
        let mut full = false;
        let new = || Flights::new(Arc::clone(backing.disk()), IN_FLIGHT);
        let flights = self.flights.get_or_insert_with(new);
        for (index, run) in self.runs.iter_mut().enumerate() {
            let (bytes, mut copy) = (&self.buffer[run.start..run.end], Vec::new());
            if copy.try_reserve_exact(bytes.len()).is_err() {
                full |= run.failed_with(backing.write(run.sector, bytes));
                continue;
            }
            copy.extend_from_slice(bytes);
            flights.write(u64::from(run.sector) * SECTOR as u64, copy, index);
        }
        while let Some(landed) = flights.landed() {
            let run = &mut self.runs[landed.tag];
            backing.written(run.sector, landed.buffer.len());
            full |= run.failed_with(landed.result);
        }
        full
    }
}

impl Run {
    /// Notes the result of a run's write. True if the disk is full.
    fn failed_with(&mut self, written: Result<(), DiskError>) -> bool {
        self.failed = written.is_err();
        matches!(written, Err(DiskError::NoSpace))
    }
}
