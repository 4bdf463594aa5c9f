//! A disk and its naive twin, driven together.
//!
//! Invariant: `bytes` is the content that the disk must have. [`Twin::apply`] is the only way to
//! change either.

use super::pattern::Pattern;
use crate::contract::{Allocation, Disk, DiskError, ExtentKind};
use std::sync::Arc;

/// Makes an empty disk of the given size.
pub(super) type Make<'a> = &'a dyn Fn(u64) -> Arc<dyn Disk>;

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Read,
    Write(Pattern),
    Discard,
    Zeroes(Allocation),
    Prefetch,
    Extent,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) verb: Verb,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Op {
    pub(super) fn new(verb: Verb, offset: u64, len: u64) -> Self {
        Self { verb, offset, len }
    }

    /// Whether the request carries a buffer of its length. Such a request cannot have every length.
    pub(super) fn has_buffer(&self) -> bool {
        matches!(self.verb, Verb::Read | Verb::Write(_))
    }
}

/// A disk and the bytes it should have.
pub(super) struct Twin {
    label: String,
    note: String,
    pub(super) disk: Arc<dyn Disk>,
    bytes: Vec<u8>,
}

impl Twin {
    /// A new disk, and as many zeros.
    pub(super) fn new(label: String, size: u64, make: Make<'_>) -> Self {
        let bytes = vec![0; size as usize];
        let twin = Self { label, note: String::new(), disk: make(size), bytes };
        let actual = twin.disk.size_bytes();
        twin.require(actual == size, || format!("asked for {size} bytes, got {actual}"));
        twin
    }

    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Sets what a failure's message says after the label, such as a seed.
    pub(super) fn note(&mut self, text: String) {
        self.note = text;
    }

    /// Panics with the label and what `complaint` says, unless `fine` is true.
    #[track_caller]
    pub(super) fn require(&self, fine: bool, complaint: impl FnOnce() -> String) {
        assert!(fine, "{}{}: {}", self.label, self.note, complaint());
    }

    /// Does `op` to both and compares the outcomes.
    pub(super) fn apply(&mut self, op: Op) {
        let inside = u128::from(op.offset) + u128::from(op.len) <= self.bytes.len() as u128;
        let outcome = self.perform(op, inside);
        let right = match outcome {
            Ok(()) => inside,
            Err(DiskError::OutOfRange { .. }) => !inside,
            Err(_) => false,
        };
        let expected = if inside { "success" } else { "OutOfRange" };
        self.require(right, || format!("{op:?} must end in {expected}, not {outcome:?}"));
        if inside {
            self.update(op);
        }
    }

    /// Does `op`, which lies within the disk and may fail, to the disk. Returns whether it failed.
    /// Then no byte outside of its range has changed, and each byte of the range is the old or the
    /// new one. The same holds for a discard, because the contract lets it keep parts of pages.
    pub(super) fn attempt(&mut self, op: Op, fail: &dyn Fn(bool)) -> bool {
        fail(true);
        let outcome = self.perform(op, true);
        fail(false);
        let strange = matches!(outcome, Err(DiskError::OutOfRange { .. }));
        self.require(!strange, || format!("{op:?} lies within the disk: {outcome:?}"));
        let before = self.bytes.clone();
        self.update(op);
        if outcome.is_err() || matches!(op.verb, Verb::Discard) {
            self.follow(op, &before);
        }
        self.verify();
        outcome.is_err()
    }

    /// Takes the bytes of the disk, if each is one of `before` or one that `op` makes.
    fn follow(&mut self, op: Op, before: &[u8]) {
        let mut found = vec![0xA5; before.len()];
        let outcome = self.disk.read(0, &mut found);
        self.require(outcome.is_ok(), || format!("reading back failed: {outcome:?}"));
        let made = |at: usize| found[at] == before[at] || found[at] == self.bytes[at];
        let wrong = (0..found.len()).find(|&at| !made(at));
        let wrong = wrong.unwrap_or_default();
        self.require(made(wrong), || format!("{op:?} failed and changed byte {wrong}"));
        self.bytes = found;
    }

    fn perform(&self, op: Op, inside: bool) -> Result<(), DiskError> {
        let Op { verb, offset, len } = op;
        match verb {
            Verb::Read => self.read(offset, len, inside),
            Verb::Write(pattern) => self.disk.write(offset, &pattern.bytes(len)),
            Verb::Discard => self.disk.discard(offset, len),
            Verb::Zeroes(keep) => self.disk.write_zeroes(offset, len, keep),
            Verb::Prefetch => self.disk.prefetch(offset, len),
            Verb::Extent => self.extent(offset, len).map(|_| ()),
        }
    }

    /// Reads into a buffer that holds other bytes, and compares.
    fn read(&self, offset: u64, len: u64, inside: bool) -> Result<(), DiskError> {
        let mut buf = vec![0xA5; len as usize];
        self.disk.read(offset, &mut buf)?;
        if inside {
            self.compare(offset, &buf);
        }
        Ok(())
    }

    fn compare(&self, offset: u64, found: &[u8]) {
        let expected = &self.bytes[offset as usize..][..found.len()];
        if found == expected {
            return;
        }
        let wrong = expected.iter().zip(found).position(|(one, other)| one != other);
        let wrong = wrong.unwrap_or_default();
        let (want, got) = (expected[wrong], found[wrong]);
        let at = offset + wrong as u64;
        let what = if want == 0 { "must read as zero" } else { "lost what was written" };
        self.require(false, || format!("byte {at} {what}: {got:#04x} instead of {want:#04x}"));
    }

    /// Asks for one extent, and compares it with the bytes.
    pub(super) fn extent(&self, offset: u64, len: u64) -> Result<(u64, ExtentKind), DiskError> {
        let extent = self.disk.next_extent(offset, len)?;
        let place = || format!("next_extent({offset}, {len}) says {extent:?}");
        self.require(extent.len <= len, || format!("{}, longer than asked", place()));
        self.require(extent.len > 0 || len == 0, || format!("{}, no progress", place()));
        if extent.kind.reads_as_zeros() && offset + extent.len <= self.size() {
            let run = &self.bytes[offset as usize..][..extent.len as usize];
            let zeros = run.iter().all(|&byte| byte == 0);
            self.require(zeros, || format!("{} over bytes that are not zero", place()));
        }
        Ok((extent.len, extent.kind))
    }

    fn update(&mut self, op: Op) {
        let range = &mut self.bytes[op.offset as usize..][..op.len as usize];
        match op.verb {
            Verb::Write(pattern) => range.copy_from_slice(&pattern.bytes(op.len)),
            Verb::Discard | Verb::Zeroes(_) => range.fill(0),
            Verb::Read | Verb::Prefetch | Verb::Extent => {}
        }
    }

    /// Asks for every extent of a range, and compares each with the bytes.
    pub(super) fn extents(&self, offset: u64, len: u64) -> Vec<(u64, ExtentKind)> {
        let mut found = Vec::new();
        let mut at = offset;
        while at < offset + len {
            let outcome = self.extent(at, offset + len - at);
            self.require(outcome.is_ok(), || format!("next_extent at {at} failed: {outcome:?}"));
            let Ok((run, kind)) = outcome else { break };
            found.push((run, kind));
            at += run;
        }
        found
    }

    /// Compares everything: all bytes and all extents.
    pub(super) fn verify(&mut self) {
        let size = self.size();
        self.apply(Op::new(Verb::Read, 0, size));
        self.extents(0, size);
    }

    /// Fills the disk with bytes none of which is zero.
    pub(super) fn fill(&mut self) {
        self.refill(0, self.size());
    }

    /// Fills a range with bytes none of which is zero.
    pub(super) fn refill(&mut self, offset: u64, len: u64) {
        self.apply(Op::new(Verb::Write(Pattern::NonZero(offset)), offset, len));
    }
}
