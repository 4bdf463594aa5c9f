//! What forks share with this process, and how often to ask.
//!
//! A page that parent and child share counts by parts, and does not leave. When one of them writes
//! to it, each has a page of its own. The system tells nobody of that, so the pager asks: a
//! program can copy all that it shares in a moment.
//!
//! When a process ends, the others have its parts. They do not know how much that is until they
//! have asked, so what it had does not count as room before that.
//!
//! If all would fit even when each has all of it for itself, nothing depends on the answer but the
//! report at the end. Then the pager asks seldom, except if page faults say that much may have been
//! copied. A new process does not ask before it has lived for a moment: many end before, or execute
//! another program.
//!
//! Invariant: asking takes at most a sixteenth of the pager's time, or a quarter if processes come
//! and end meanwhile, or threads may copy much. If all would fit, it takes a 64th, or a sixteenth
//! if much may have been copied. There is one exception: while much is shared that would not fit,
//! the pager asks every `LATEST`, however long an answer takes. Lock: none; the pager's thread
//! alone is here.

use super::figures::Used;
use crate::places::PAGE;
use std::time::{Duration, Instant};

/// Asking takes at most this part of the time, while something is shared.
const PART: u32 = 16;
/// And this part if processes have come or ended since the answer, or if so many bytes may have
/// been copied: a thread that only reads is let copy, too.
const CHANGED_PART: u32 = 4;
const COPIED_MAX: u64 = 16 << 20; // 16 MiB
/// And this part if all would fit.
const AMPLE_PART: u32 = 64;
/// When a process asks first, if all would fit.
const FIRST: Duration = Duration::from_millis(50);
/// The number of the processes before the first answer: it is that of none.
const UNASKED: u64 = u64::MAX;
const SOONEST: Duration = Duration::from_millis(4);
const LATEST: Duration = Duration::from_millis(250);
/// Groups are tried again when so much has become this process's own.
const GROWTH: u64 = 1 << 20; // 1 MiB

/// What is shared.
#[derive(Debug)]
pub(super) struct Sharing {
    /// Since when the process has others beside it.
    since: Instant,
    /// Whether all would fit if each had for itself what is shared.
    is_ample: bool,
    /// Bytes that are the part of other processes.
    bytes: u64,
    /// When that was asked, and how long the answer took.
    asked: Option<(Instant, Duration)>,
    /// Bytes of copies until then.
    copied: u64,
    /// Page faults and bytes in memory at the last look, and bytes that the faults since then
    /// brought otherwise than as new memory: most of them were copies.
    seen: (u64, u64),
    faulted: u64,
    /// Of `bytes`: what threads were let copy since then.
    guessed: u64,
    /// The forks before that.
    forks: u32,
    /// The processes of the run at that time, as the board's number.
    members: u64,
    /// What the process may have: of that time, or of a later one. `None` if it shared nothing yet.
    quota: Option<u64>,
    /// The most that was shared since groups were tried again.
    most: u64,
}

impl Default for Sharing {
    fn default() -> Sharing {
        Sharing {
            since: Instant::now(),
            is_ample: false,
            bytes: 0,
            asked: None,
            copied: 0,
            seen: (0, 0),
            faulted: 0,
            guessed: 0,
            forks: 0,
            members: UNASKED,
            quota: None,
            most: 0,
        }
    }
}

impl Sharing {
    /// Nothing is shared: there is no other process than these.
    pub(super) fn none(&mut self, members: u64) -> u64 {
        *self = Sharing { members, ..Sharing::default() };
        0
    }

    /// Says whether all would fit if each process had for itself what is shared. This one has had
    /// so many page faults, and has so many bytes in memory.
    pub(super) fn look(&mut self, is_ample: bool, faults: u64, counted: u64) {
        self.is_ample = is_ample;
        let brought = faults.saturating_sub(self.seen.0) * PAGE as u64;
        self.faulted += brought.saturating_sub(counted.saturating_sub(self.seen.1));
        self.seen = (faults, counted);
    }

    /// Bytes that are the part of other processes, after so many forks and among these processes.
    /// `copied` is how many bytes threads were let copy, as far as that is known: they have become
    /// this process's own since the system was asked.
    pub(super) fn bytes(
        &mut self,
        (forks, members): (u32, u64),
        copied: u64,
        ask: impl FnOnce() -> Option<u64>,
    ) -> u64 {
        let is_other = forks != self.forks || members != self.members;
        let has_changed = is_other || copied - self.copied >= COPIED_MAX;
        let is_due = match self.asked {
            Some((at, took)) => at.elapsed() > self.pause(took, has_changed),
            None => !self.is_ample || self.since.elapsed() > FIRST,
        };
        if is_due {
            let began = Instant::now();
            (self.forks, self.members, self.copied) = (forks, members, copied);
            self.faulted = 0;
            self.bytes = ask().unwrap_or(0);
            self.asked = Some((Instant::now(), began.elapsed()));
            self.most = self.most.max(self.bytes);
        }
        self.guessed = (copied - self.copied).min(self.bytes);
        self.bytes - self.guessed
    }

    /// What is in memory, if so many bytes are counted, of which some are the part of others.
    pub(super) fn used(&self, counted: u64, others: u64) -> Used {
        let (guessed, members) = (self.guessed, self.members);
        Used { bytes: counted.saturating_sub(others), others, guessed, members }
    }

    /// What the process may have, if it is `quota` among these processes. It does not grow between
    /// the end of another process and the next answer.
    pub(super) fn quota(&mut self, members: u64, quota: u64) -> u64 {
        let is_known = self.is_ample || !self.is_much() || members == self.members;
        let known = self.quota.filter(|_| !is_known);
        let quota = known.map_or(quota, |known| quota.min(known));
        self.quota = Some(quota);
        quota
    }

    /// Whether copies of what is shared would be felt.
    pub(super) fn is_much(&self) -> bool {
        self.bytes >= GROWTH
    }

    /// The forks after which much is shared still; `None` if little is.
    pub(super) fn shared_by(&self) -> Option<u32> {
        self.is_much().then_some(self.forks)
    }

    /// Whether pages have become this process's own since it last said so. They may leave now.
    pub(super) fn has_shrunk(&mut self) -> bool {
        let has_shrunk = self.bytes + GROWTH <= self.most;
        if has_shrunk {
            self.most = self.bytes;
        }
        has_shrunk
    }

    /// How long to wait after an answer that took so long.
    fn pause(&self, took: Duration, has_changed: bool) -> Duration {
        let ample_part = if self.faulted < COPIED_MAX { AMPLE_PART } else { PART };
        match (self.is_much(), has_changed) {
            (false, false) => (took * PART).max(LATEST),
            _ if self.is_ample => (took * ample_part).max(SOONEST),
            (true, true) => (took * CHANGED_PART).clamp(SOONEST, LATEST),
            (true, false) | (false, true) => (took * PART).clamp(SOONEST, LATEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(sharing: &mut Sharing, forks: u32, answer: u64) -> bool {
        let mut is_asked = false;
        sharing.bytes((forks, 7), 0, || {
            is_asked = true;
            Some(answer)
        });
        is_asked
    }

    fn wait(sharing: &mut Sharing, time: Duration) {
        let (at, took) = sharing.asked.expect("it was asked");
        sharing.asked = Some((at - time, took));
    }

    #[test]
    fn it_is_asked_often_while_something_is_shared() {
        let mut sharing = Sharing::default();
        assert!(asked(&mut sharing, 0, 0));
        assert!(!asked(&mut sharing, 1, 0), "it was asked a moment ago");
        wait(&mut sharing, SOONEST);
        assert!(!asked(&mut sharing, 0, 0), "nothing is shared");
        assert!(asked(&mut sharing, 1, 1 << 30), "there was a fork");
        wait(&mut sharing, SOONEST);
        sharing.asked = sharing.asked.map(|(at, _)| (at, SOONEST));
        assert!(!asked(&mut sharing, 1, 0), "an answer takes long");
        wait(&mut sharing, SOONEST * PART);
        assert!(asked(&mut sharing, 1, 0));
        wait(&mut sharing, LATEST);
        assert!(asked(&mut sharing, 1, 0));
    }

    #[test]
    fn it_is_asked_soon_when_much_may_have_been_copied() {
        let mut sharing = Sharing::default();
        let mut asked = |copied, pause| {
            let mut is_asked = false;
            if let Some((at, _)) = sharing.asked {
                sharing.asked = Some((at - pause, SOONEST));
            }
            sharing.bytes((1, 7), copied, || {
                is_asked = true;
                Some(1 << 30)
            });
            is_asked
        };
        assert!(asked(0, Duration::ZERO));
        assert!(!asked(COPIED_MAX - 1, SOONEST * CHANGED_PART));
        assert!(asked(COPIED_MAX, SOONEST * CHANGED_PART));
        assert!(!asked(COPIED_MAX * 2 - 1, SOONEST * CHANGED_PART));
    }

    #[test]
    fn it_is_asked_seldom_while_all_would_fit() {
        let mut sharing = Sharing::default();
        let asked_after = |sharing: &mut Sharing, pause, members| {
            sharing.asked = sharing.asked.map(|_| (Instant::now() - pause, SOONEST / 4));
            let mut is_asked = false;
            sharing.bytes((1, members), 0, || {
                is_asked = true;
                Some(1 << 30)
            });
            is_asked
        };
        sharing.look(true, 500, 8 * GROWTH);
        assert!(!asked_after(&mut sharing, SOONEST, 7), "it may end soon");
        assert_ne!(sharing.used(9000, 0).members, 0, "it is not known to share nothing");
        sharing.since -= FIRST;
        assert!(asked_after(&mut sharing, SOONEST, 7));
        assert!(!asked_after(&mut sharing, SOONEST * PART / 4, 7));
        assert!(!asked_after(&mut sharing, SOONEST * PART / 4, 8), "another process came");
        assert!(asked_after(&mut sharing, SOONEST / 4 * (AMPLE_PART + 1), 8));
        // As much new memory, and nearly as many copies.
        let pages = COPIED_MAX / PAGE as u64;
        sharing.look(true, 500 + 2 * pages - 1, 8 * GROWTH + COPIED_MAX);
        assert!(!asked_after(&mut sharing, SOONEST * PART / 4, 8));
        sharing.look(true, 500 + 2 * pages, 8 * GROWTH + COPIED_MAX);
        assert!(asked_after(&mut sharing, SOONEST * PART / 4, 8), "much may have been copied");
        assert!(!asked_after(&mut sharing, SOONEST * PART / 4, 8), "not since");
        sharing.look(false, 500 + 2 * pages, 8 * GROWTH + COPIED_MAX);
        assert!(asked_after(&mut sharing, SOONEST * PART / 4, 8), "it would not fit");
    }

    #[test]
    fn a_large_process_does_not_ask_all_the_time() {
        let took = LATEST / 4; // some 6 GiB
        let mut sharing = Sharing::default();
        assert_eq!(sharing.pause(took, false), took * PART, "nothing is shared");
        sharing.bytes = 8 * GROWTH;
        assert_eq!([false, true].map(|changed| sharing.pause(took, changed)), [LATEST; 2]);
        sharing.is_ample = true;
        assert_eq!(sharing.pause(took, true), took * AMPLE_PART);
    }

    #[test]
    fn copies_are_its_own_before_the_system_says_so() {
        let mut sharing = Sharing::default();
        assert_eq!(sharing.bytes((1, 7), 500, || Some(8000)), 8000);
        assert_eq!(
            [500, 700, 9500].map(|copied| sharing.bytes((1, 7), copied, || None)),
            [8000, 7800, 0]
        );
        assert_eq!(sharing.used(9000, 0).guessed, 8000, "no more than is shared");
        sharing.asked = None;
        assert_eq!(sharing.bytes((1, 7), 9500, || Some(100)), 100);
        let used = sharing.used(9000, 100);
        assert_eq!((used.bytes, used.guessed, used.members), (8900, 0, 7));
    }

    #[test]
    fn what_an_ended_process_had_is_no_room_before_it_is_asked_who_has_it() {
        let mut sharing = Sharing::default();
        assert_eq!(sharing.quota(7, 500), 500, "nothing is shared");
        asked(&mut sharing, 1, 8 * GROWTH);
        assert_eq!([600, 400, 500].map(|quota| sharing.quota(7, quota)), [600, 400, 500]);
        assert_eq!([900, 450, 900].map(|quota| sharing.quota(8, quota)), [500, 450, 450]);
        wait(&mut sharing, SOONEST * CHANGED_PART);
        sharing.bytes((1, 8), 0, || Some(9 * GROWTH));
        assert_eq!(sharing.quota(8, 900), 900);
        let mut new = Sharing::default();
        asked(&mut new, 1, 8 * GROWTH);
        assert_eq!(new.quota(8, 600), 600, "a process came while the first answer was awaited");
        assert_eq!(new.quota(8, 900), 600);
        new.look(true, 0, 0);
        assert_eq!(new.quota(8, 900), 900, "all would fit");
    }

    #[test]
    fn what_became_its_own_is_told_once() {
        let mut sharing = Sharing::default();
        let mut after = |answer| {
            sharing.asked = None;
            asked(&mut sharing, 0, answer);
            sharing.has_shrunk()
        };
        assert!(!after(8 * GROWTH) && !after(8 * GROWTH - 1));
        assert!(after(7 * GROWTH) && !after(7 * GROWTH));
        assert!(!after(9 * GROWTH) && after(7 * GROWTH));
        assert_eq!((sharing.none(7), sharing.has_shrunk(), sharing.members), (0, false, 7));
    }
}
