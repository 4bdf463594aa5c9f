//! Which pages leave: tokens are taken from the old ends of a group's rings.
//!
//! ```text
//!   S3-FIFO   small, used twice or more   -> main, unused
//!             small                       -> victim, then a ghost
//!             main, used n > 0 times      -> main, used n - 1 times
//!             main                        -> victim
//!   kernel    referenced                  -> main, not referenced
//!             not                         -> victim
//!   both      stale                       -> dropped
//!
//!   victims --> in the hand --- cell locked, in_hand? --+--> evicted   its page is on the disk
//!                                                       +--> keep      it is not: back, as new
//! ```
//!
//! The small queue's turn is when it has a tenth of the group's pages or more; a ghost is known as
//! long as no more pages left the small queue than nine tenths of the pages there are (S3-FIFO's
//! sizes). A page in a hand can be loaded, removed and stored over meanwhile: whoever has it looks
//! whether it still is in the hand, with the cell locked, and whether it is what it was.

use zsmalloc::CellNumber;
use zsmalloc::sync::atomic::Ordering;

use super::blocks::Want;
use super::word::{STAMPS, State, Which, Word};
use super::{GroupNumber, Order, Orders, Rings, is_hand, one};

/// Tokens looked at under one hold of the order's lock.
const VISITS_AT_ONCE: usize = 128;
/// Tokens looked at for each victim wanted, before the caller is given what was found: enough for
/// every page of a small cache to be passed as often as it was used.
const VISITS_EACH: usize = 4096;
/// Pages that one group gives up before it is another's turn.
const GROUP_TURN: usize = 32;
/// S3-FIFO's small queue is one of so many parts of the cache.
const SMALL_PARTS: u64 = 10;
/// S3-FIFO: a page that was used more often than this leaves the small queue for the main one.
const USED_ONCE: u32 = 1;

/// A page in the hand of who writes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "its page stays in memory until evicted or keep is told of it"]
pub(crate) struct Victim {
    /// Where it is.
    pub(crate) cell: CellNumber,
    /// Whose it is.
    pub(crate) group: GroupNumber,
}

/// What a look at a ring's oldest token led to.
enum Visit {
    Victim(Victim),
    Passed,
    /// There is no token.
    Nothing,
}

impl Orders {
    /// Takes up to `count` pages in hand, of the groups that `allows` says: one group after the
    /// other gives up to 32, as in the kernel's `shrink_worker`.
    pub(crate) fn next_victims(
        &self,
        count: usize,
        allows: impl Fn(GroupNumber) -> bool,
        victims: &mut Vec<Victim>,
    ) {
        let wanted = victims.len() + count;
        let mut rings = self.rings.lock();
        let (groups, first) = (rings.of_group.len(), rings.turn);
        rings.turn = (first + 1) % groups.max(1);
        drop(rings);
        let turn = (0..groups).map(|turn| GroupNumber(((first + turn) % groups) as u8));
        let allowed = || turn.clone().filter(|&group| allows(group));
        let each = if allowed().nth(1).is_some() { GROUP_TURN } else { count };
        let mut before = usize::MAX;
        while victims.len() < wanted && victims.len() != before {
            before = victims.len();
            for group in allowed() {
                self.victims(group, each.min(wanted - victims.len()), victims);
            }
        }
    }

    /// Takes up to `count` pages of a group in hand, in the order in which they are to leave, and
    /// adds them to `victims`; fewer when there are no more, or no memory for the list, or after
    /// looking at 4096 tokens for each.
    pub(crate) fn victims(&self, group: GroupNumber, count: usize, victims: &mut Vec<Victim>) {
        let known = group.index() < self.rings.lock().of_group.len();
        if !known || victims.try_reserve(count).is_err() {
            return;
        }
        let (mut left, wanted) = (count.saturating_mul(VISITS_EACH), victims.len() + count);
        while left > 0 && victims.len() < wanted {
            let visits = left.min(VISITS_AT_ONCE);
            left -= visits;
            if !self.visit_some(group, visits, wanted, victims) {
                return;
            }
        }
    }

    /// Whether a victim still is in the hand it was taken into. With its cell locked the answer
    /// holds; what is in the cell may have been stored over.
    pub(crate) fn in_hand(&self, victim: &Victim) -> bool {
        self.is_in_hand(victim, self.word(victim.cell))
    }

    /// A victim's page was written, and leaves memory; its cell is locked. False if it had left
    /// the hand, or its leaf its table.
    pub(crate) fn evicted(&self, victim: &Victim) -> bool {
        let Victim { cell, group } = *victim;
        let from_small = self.word(cell).which() == Which::Small;
        let next = match self.kind {
            Order::S3Fifo if from_small => Word::evicted(self.groups.evictions(group), 0),
            _ => Word::default(),
        };
        let changed = self.change(cell, |word| self.is_in_hand(victim, word).then_some(next));
        let Some(word) = changed else { return false };
        if from_small {
            self.groups.evict(group);
        }
        self.count(cell, word, group, one(word.which(), -1))
    }

    /// A victim's page could not be written, or is not to be: it goes to the new end of its queue.
    /// Its cell is locked. False if it had left the hand.
    pub(crate) fn keep(&self, victim: &Victim) -> bool {
        let mut rings = self.rings.lock();
        let word = self.word(victim.cell);
        self.is_in_hand(victim, word)
            && self.move_to(&mut rings, *victim, word, word.which(), word.frequency())
    }

    fn is_in_hand(&self, victim: &Victim, word: Word) -> bool {
        word.block() == victim.group.hand() && self.is_live(victim.cell, word)
    }

    /// Looks at some tokens; false when there are none left.
    fn visit_some(
        &self,
        group: GroupNumber,
        visits: usize,
        wanted: usize,
        victims: &mut Vec<Victim>,
    ) -> bool {
        let mut rings = self.rings.lock();
        let mut found = true;
        for _ in 0..visits {
            match self.visit(&mut rings, group) {
                Visit::Victim(victim) => victims.push(victim),
                Visit::Passed => {}
                Visit::Nothing => found = false,
            }
            if !found || victims.len() == wanted {
                break;
            }
        }
        for which in Which::BOTH {
            self.tend_now(&mut rings, group, which);
        }
        found
    }

    /// Looks at the token whose turn it is.
    fn visit(&self, rings: &mut Rings, group: GroupNumber) -> Visit {
        let which = self.turn(rings, group);
        let (ring, blocks) = rings.ring((group, which));
        let Some((token, block)) = ring.pop(blocks) else { return Visit::Nothing };
        let cell = CellNumber::new(token);
        loop {
            let word = self.word(cell);
            if word.block() != block || is_hand(word) {
                return Visit::Passed;
            }
            let victim = Victim { cell, group };
            if !self.is_live(cell, word) {
                if self.exchange(cell, word, self.dropped(cell, word, group)) {
                    return Visit::Passed;
                }
            } else if let Some((to, frequency)) = self.second_chance(word)
                && self.move_to(rings, victim, word, to, frequency)
            {
                return Visit::Passed;
            } else if self.second_chance(word).is_none()
                && self.exchange(cell, word, word.with_block(group.hand()))
            {
                return Visit::Victim(victim);
            }
        }
    }

    /// Which queue has to give a page up.
    fn turn(&self, rings: &Rings, group: GroupNumber) -> Which {
        let [small, main] = rings.of_group[group.index()].map(|ring| ring.tokens);
        let pages = self.groups.pages(group);
        let full = pages[0] * SMALL_PARTS >= pages[0] + pages[1];
        match (small, main) {
            (0, _) => Which::Main,
            (_, 0) => Which::Small,
            _ if full => Which::Small,
            _ => Which::Main,
        }
    }

    /// Where a page goes instead of leaving, and how often it counts as used there.
    fn second_chance(&self, word: Word) -> Option<(Which, u32)> {
        let used = word.frequency();
        match (self.kind, word.which()) {
            (Order::S3Fifo, Which::Small) => (used > USED_ONCE).then_some((Which::Main, 0)),
            (Order::S3Fifo, Which::Main) => Some((Which::Main, used.checked_sub(1)?)),
            (Order::Kernel, _) => (used > 0).then_some((Which::Main, 0)),
        }
    }

    /// Gives a page whose token was popped one at the end of another ring, or of the same; false
    /// if the word changed.
    fn move_to(
        &self,
        rings: &mut Rings,
        victim: Victim,
        word: Word,
        to: Which,
        frequency: u32,
    ) -> bool {
        let (cell, owner) = (victim.cell, (victim.group, to));
        let (ring, blocks) = rings.ring(owner);
        let block = ring.room(blocks, Want::Moved, owner);
        let block = block.expect("B4: there is a block for a token that moves");
        if !self.exchange(cell, word, Word::live(block, to, word.generation(), frequency)) {
            return false;
        }
        ring.append(blocks, cell.get());
        if word.which() != to {
            let (less, more) = (one(word.which(), -1), one(to, 1));
            self.count(cell, word, victim.group, [less[0] + more[0], less[1] + more[1]]);
        }
        true
    }

    /// What becomes of a word whose page is not in memory when its token is dropped. A page that
    /// was loaded meanwhile would have stayed: it is remembered like one that left just now, and
    /// in the main queue it would have been used once less.
    pub(super) fn dropped(&self, cell: CellNumber, word: Word, group: GroupNumber) -> Word {
        let known = word.generation() == self.leaf(cell).generation;
        let used = match word.which() {
            Which::Small => 0,
            Which::Main => word.frequency().saturating_sub(1),
        };
        match word.state() {
            State::Loaded if known => Word::evicted(self.groups.evictions(group), used),
            _ => Word::default(),
        }
    }

    /// Whether a page that left after `stamp` evictions is still among the ghosts.
    pub(super) fn is_recent(&self, stamp: u32, group: GroupNumber) -> bool {
        let since = self.groups.evictions(group).wrapping_sub(stamp) % STAMPS;
        let pages: u64 = self.groups.pages(group).iter().sum();
        u64::from(since) <= pages - pages / SMALL_PARTS
    }

    pub(super) fn exchange(&self, cell: CellNumber, word: Word, next: Word) -> bool {
        let entry = &self.words[cell.get() as usize];
        // AcqRel pairs with the exchange in `Orders::change` and the load in `Orders::word`.
        entry.compare_exchange(word.0, next.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
