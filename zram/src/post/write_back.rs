//! Writing pages back: their memory is freed, and the cell names a block of the backing disk.
//!
//! ```text
//!   chosen, largest first --> unit of the limit, lowest free block --> copied under its slot's
//!                                                                      lock |
//!   PP gone: the block is free again <-- slot locked again <-- landed <-- in flight
//!   PP there: object freed, cell := block                      failed: unit and block put back
//! ```
//!
//! Neighbouring blocks go in one request. A page that fails stays in memory, and the others are
//! tried. The limit and a full disk end the run. A page of a unit is taken out before it is copied.
//! A disk on another machine may do a write that had no reply after it has failed, or do it twice.
//! The block of such a write serves no other page after this one.
//!
//! Invariants
//! - I1 a block that was taken is in the request, in flight, in a cell, or `spare`.
//! - I2 no lock is held while a request is submitted or waited for.
//! - I3 at most `writeback_batch_size` pages, and at most `COPIED_MAX`, are copied and not yet
//!   landed.
//!
//! Locks: `Settings::run`; then a stream and a cell to copy, and a cell to complete. Source: the
//! kernel's driver, for the order, the limit and the PP mark.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use disk::{DiskError, Flights, Landed};
use host::PAGE_SIZE;

use super::candidates::{Candidate, Candidates, Kinds};
use crate::backing::{Backing, Place, offset_of};
use crate::cells::flags::{INCOMPRESSIBLE, priority};
use crate::cells::{Stored, stored};
use crate::device::{Unit, Zram};
use crate::terms::{PostError, Selection, WriteBack, WriteBackReport, backing_error, post_error};

/// The most requests that a batch is divided into.
const REQUESTS: usize = 4;

/// The most pages that are copied at once, whatever `writeback_batch_size` is: 16 MiB.
const COPIED_MAX: usize = 4096;

impl Zram {
    /// Writes pages back to the backing disk, and frees their memory. Waits for a write-back or
    /// recompression that runs.
    ///
    /// # Errors
    ///
    /// [`PostError`]. Pages that were written back before stay so. If the error is
    /// [`PostError::Backing`], [`PostError::Corrupt`] or [`PostError::NoMemory`] for a copy, all
    /// other pages were tried.
    pub fn write_back(&self, what: &WriteBack) -> Result<WriteBackReport, PostError> {
        let backing = self.values.backing.as_ref().ok_or(PostError::NoBacking)?;
        let ranges = self.ranges_of(&what.pages)?;
        let _one = self.settings.run();
        let wanted = |candidate: &Candidate| is_wanted(&what.pages, candidate);
        let kinds = Kinds::ObjectsAndUnits;
        let candidates = Candidates::choose_of(self, kinds, &ranges, wanted)?;
        self.write_chosen(backing, candidates, what.max_pages.unwrap_or(u64::MAX), || true)
    }

    /// Writes back the chosen pages as long as it `goes_on`, while nothing else is post-processed.
    pub(crate) fn write_chosen(
        &self,
        backing: &Backing,
        candidates: Candidates<'_>,
        max_pages: u64,
        goes_on: impl Fn() -> bool,
    ) -> Result<WriteBackReport, PostError> {
        let mut run = Run::new(self, backing, candidates);
        let stopped = run.submit_all(max_pages, goes_on);
        run.finish();
        let ended = stopped.and_then(|()| run.failed.take().map_or(Ok(()), Err));
        ended.inspect_err(|error| self.counters.troubles.note_post(error))?;
        Ok(run.report)
    }

    fn ranges_of(&self, pages: &Selection) -> Result<Vec<RangeInclusive<u64>>, PostError> {
        let Selection::Pages(ranges) = pages else { return Ok(self.all_pages().to_vec()) };
        for range in ranges {
            if *range.end() >= self.pages() {
                return Err(PostError::OutOfRange { page: *range.end(), pages: self.pages() });
            }
            if range.is_empty() {
                return Err(PostError::Invalid("a range of pages ends before it starts"));
            }
        }
        Ok(ranges.clone())
    }

    /// Copies a chosen page in the form in which it will be written. Returns its length as an
    /// object, or `None` if it was used meanwhile.
    fn copy_out(&self, page: u64, block: &mut [u8]) -> Result<Option<usize>, DiskError> {
        self.with_stream(|stream| {
            self.take_out_chosen(page, stream, block)?;
            let Some((slot, len)) = self.lock_chosen(page) else { return Ok(None) };
            if self.config.compressed_writeback {
                block[..len].copy_from_slice(slot.bytes().unwrap_or(&[]));
                block[len..].fill(0);
            } else {
                self.decode_object(page, &slot, stream, block)?;
            }
            Ok(Some(len))
        })
    }
}

fn is_wanted(pages: &Selection, candidate: &Candidate) -> bool {
    match pages {
        Selection::Idle => candidate.is_idle(),
        Selection::Huge => candidate.is_huge(),
        Selection::HugeIdle => candidate.is_huge() && candidate.is_idle(),
        Selection::Incompressible => candidate.bits & INCOMPRESSIBLE != 0,
        Selection::Pages(_) => true,
    }
}

/// A block for a page, and the unit of the limit that was taken for it, if one was.
#[derive(Clone, Copy)]
struct Ticket {
    block: u32,
    unit: Option<Unit>,
}

/// A page on its way to its block.
struct Piece {
    page: u64,
    ticket: Ticket,
}

/// One write-back.
struct Run<'z> {
    zram: &'z Zram,
    backing: &'z Backing,
    candidates: Candidates<'z>,
    flights: Flights<Vec<Piece>>,
    /// The request being filled: neighbouring blocks. The buffer may be longer than they are.
    pieces: Vec<Piece>,
    buffer: Vec<u8>,
    /// Buffers of requests that have landed. Their bytes are written over, and need not be zeros.
    buffers: Vec<Vec<u8>>,
    /// The number of pages in `pieces` and in flight, and the most that there may be.
    copied: usize,
    copied_max: usize,
    /// A ticket that was taken for a page that turned out to be in use.
    spare: Option<Ticket>,
    /// The last failure of a page.
    failed: Option<PostError>,
    report: WriteBackReport,
}

impl<'z> Run<'z> {
    fn new(zram: &'z Zram, backing: &'z Backing, candidates: Candidates<'z>) -> Run<'z> {
        Run {
            zram,
            backing,
            candidates,
            flights: Flights::new(Arc::clone(&backing.disk), REQUESTS),
            pieces: Vec::new(),
            buffer: Vec::new(),
            buffers: Vec::new(),
            copied: 0,
            copied_max: (zram.writeback_batch_size() as usize).min(COPIED_MAX),
            spare: None,
            failed: None,
            report: WriteBackReport::default(),
        }
    }

    /// Submits the chosen pages, until something ends the run.
    fn submit_all(&mut self, max: u64, goes_on: impl Fn() -> bool) -> Result<(), PostError> {
        for _ in 0..max {
            if !goes_on() {
                break;
            }
            let Some(page) = self.candidates.pop() else { break };
            let ticket = self.ticket().inspect_err(|_| self.zram.unmark_post(page))?;
            self.submit(page, ticket);
        }
        Ok(())
    }

    /// The ticket that a page needs. Requests in flight may still give back what they took.
    fn ticket(&mut self) -> Result<Ticket, PostError> {
        if let Some(spare) = self.spare.take() {
            return Ok(spare);
        }
        self.take_ticket().or_else(|_| {
            self.land_all();
            self.take_ticket()
        })
    }

    /// The limit is asked before the disk.
    fn take_ticket(&self) -> Result<Ticket, PostError> {
        let unit = self.zram.settings.take_unit()?;
        match self.take_block() {
            Some(block) => Ok(Ticket { block, unit }),
            None => {
                self.put_back_unit(unit);
                Err(PostError::NoSpace)
            }
        }
    }

    /// Takes a block. If none is free, blocks of discarded pages may be waiting for their leaves to
    /// be drained.
    fn take_block(&self) -> Option<u32> {
        self.backing.blocks.take().or_else(|| {
            self.zram.memory().flush_deferred();
            self.backing.blocks.take()
        })
    }

    fn submit(&mut self, page: u64, ticket: Ticket) {
        let follows = self.pieces.last().is_none_or(|last| last.ticket.block + 1 == ticket.block);
        if !follows || self.pieces.len() >= self.copied_max.div_ceil(REQUESTS) {
            self.send();
        }
        while self.copied >= self.copied_max {
            self.send();
            self.land_next();
        }
        let Some(at) = self.room() else {
            self.zram.unmark_post(page);
            self.failed = Some(PostError::NoMemory);
            self.spare = Some(ticket);
            return;
        };
        match self.zram.copy_out(page, &mut self.buffer[at.clone()]) {
            Ok(Some(_)) => {
                let sum = self.backing.sum(ticket.block, page, &self.buffer[at]);
                self.backing.blocks.set_sum(ticket.block, sum);
                self.pieces.push(Piece { page, ticket });
                self.copied += 1;
                return;
            }
            Ok(None) => self.report.used += 1,
            Err(error) => {
                self.zram.unmark_post(page);
                self.failed = Some(post_error(page, &error));
            }
        }
        self.spare = Some(ticket);
    }

    /// Where the next page of the request goes. `None` if there is no memory.
    fn room(&mut self) -> Option<Range<usize>> {
        let at = self.pieces.len() * PAGE_SIZE..(self.pieces.len() + 1) * PAGE_SIZE;
        if self.buffer.len() < at.end {
            self.buffer.try_reserve(PAGE_SIZE).ok()?;
            self.buffer.resize(at.end, 0);
        }
        self.pieces.try_reserve(1).ok()?;
        Some(at)
    }

    /// Submits the request that was filled, and completes what has landed.
    fn send(&mut self) {
        let Some(first) = self.pieces.first() else { return };
        let (offset, pieces) = (offset_of(first.ticket.block), std::mem::take(&mut self.pieces));
        let next = self.buffers.pop().unwrap_or_default();
        let mut buffer = std::mem::replace(&mut self.buffer, next);
        buffer.truncate(pieces.len() * PAGE_SIZE);
        self.flights.write(offset, buffer, pieces);
        while let Some(landed) = self.flights.landed_already() {
            self.land(landed);
        }
    }

    /// Waits for all requests in flight.
    fn land_all(&mut self) {
        self.send();
        while self.land_next() {}
    }

    /// Waits for the next request that lands. False if none is in flight.
    fn land_next(&mut self) -> bool {
        let landed = self.flights.landed();
        landed.map(|landed| self.land(landed)).is_some()
    }

    fn land(&mut self, landed: Landed<Vec<Piece>>) {
        self.copied -= landed.tag.len();
        landed.tag.iter().for_each(|piece| self.backing.returned(piece.ticket.block));
        match landed.result {
            Ok(()) => landed.tag.iter().for_each(|piece| self.complete(piece)),
            Err(error) => {
                landed.tag.iter().for_each(|piece| self.fail(piece));
                self.failed = Some(PostError::Backing(backing_error(error)));
            }
        }
        if self.buffers.try_reserve(1).is_ok() {
            self.buffers.push(landed.buffer);
        }
    }

    /// A page was written. If it was not used meanwhile, its cell now names the block.
    fn complete(&mut self, piece: &Piece) {
        self.backing.wrote();
        let Some((mut slot, len)) = self.zram.lock_chosen(piece.page) else {
            self.backing.blocks.give(piece.ticket.block);
            self.report.used += 1;
            return;
        };
        let (old, priority) = (Stored::in_cell(&slot), priority(slot.client()));
        stored::put_disk(&mut slot, priority, Place { block: piece.ticket.block, len });
        self.zram.replaced(&slot, old);
        self.report.pages += 1;
        self.report.bytes += len as u64;
    }

    fn fail(&mut self, piece: &Piece) {
        self.put_back(piece.ticket);
        self.zram.unmark_post(piece.page);
    }

    fn put_back(&self, ticket: Ticket) {
        self.backing.blocks.give(ticket.block);
        self.put_back_unit(ticket.unit);
    }

    fn put_back_unit(&self, unit: Option<Unit>) {
        unit.into_iter().for_each(|unit| self.zram.settings.put_back_unit(unit));
    }

    fn finish(&mut self) {
        self.land_all();
        if let Some(spare) = self.spare.take() {
            self.put_back(spare);
        }
    }
}
