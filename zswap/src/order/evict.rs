//! Which pages leave: tokens are taken from the old ends of a group's rings.
//!
//! ```text
//!   victims --> in the hand --- cell locked, in_hand? --+--> evicted   its page is on the disk
//!                                                       +--> keep      it is not: back in a ring
//! ```
//!
//! `rules` says for each token whether its page leaves. While a page is in a hand, other threads
//! may load it, remove it or store over it. So the thread that has it in hand locks its cell. It
//! then asks whether the page is still in the hand, and whether its content is still the same.
//!
//! Invariant: a victim stays in the hand until `evicted` or `keep` is called for it (O1). Each step
//! exchanges the word and fails if a load was faster. So a page is either loaded or in the hand.
//!
//! Lock: the order's, for at most 128 tokens at a time.

use zsmalloc::CellNumber;

use super::blocks::{Want, hand_of};
use super::orders::{Orders, Rings, is_hand, one};
use super::word::{Which, Word};
use crate::terms::{EvictionOrder, GroupId};

/// Tokens looked at under one hold of the order's lock.
const VISITS_AT_ONCE: usize = 128;
/// Tokens looked at for each wanted victim before the caller gets what was found. That is enough to
/// pass every page of a small cache as often as it was used.
const VISITS_EACH: usize = 4096;
/// Pages that one group gives up before the turn passes to another group.
const GROUP_TURN: usize = 32;

/// A page in the hand of the thread that writes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "its page stays in memory until evicted or keep is told of it"]
pub(crate) struct Victim {
    /// The cell that holds it.
    pub(crate) cell: CellNumber,
    /// Its group.
    pub(crate) group: GroupId,
}

/// The outcome of a look at a ring's oldest token.
enum Visit {
    Victim(Victim),
    Passed,
    /// There is no token.
    Nothing,
}

impl Orders {
    /// Takes up to `count` pages in hand, of the groups for which `allows` is true. One group after
    /// the other gives up to 32 pages, as in the kernel's `shrink_worker`.
    pub(crate) fn next_victims(
        &self,
        count: usize,
        allows: impl Fn(GroupId) -> bool,
        victims: &mut Vec<Victim>,
    ) {
        let wanted = victims.len() + count;
        let mut rings = self.rings.lock();
        let (groups, first) = (rings.of_group.len(), rings.turn);
        rings.turn = (first + 1) % groups.max(1);
        drop(rings);
        let turn = (0..groups).map(|turn| GroupId(((first + turn) % groups) as u8));
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
    /// adds them to `victims`. It takes fewer in three cases: there are no more, there is no memory
    /// for the list, or it has looked at 4096 tokens for each page.
    pub(crate) fn victims(&self, group: GroupId, count: usize, victims: &mut Vec<Victim>) {
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

    /// Whether a victim still is in the hand it was taken into. The answer holds while its cell is
    /// locked, but another page may have been stored in the cell.
    pub(crate) fn in_hand(&self, victim: &Victim) -> bool {
        self.is_in_hand(victim, self.word(victim.cell))
    }

    /// A victim's page was written, and leaves memory. Its cell is locked. False if it had already
    /// left the hand, or if its leaf had left its table.
    pub(crate) fn evicted(&self, victim: &Victim) -> bool {
        let Victim { cell, group } = *victim;
        let from_small = self.word(cell).which() == Which::Small;
        let next = match self.kind {
            EvictionOrder::S3Fifo if from_small => Word::evicted(self.counts.evictions(group), 0),
            _ => Word::default(),
        };
        let changed = self.change(cell, |word| self.is_in_hand(victim, word).then_some(next));
        let Some(word) = changed else { return false };
        if from_small {
            self.counts.evict(group);
        }
        self.count(cell, word, group, one(word.which(), -1))
    }

    /// A victim's page could not be written, or is not to be. It goes to the new end of its ring.
    /// Its cell is locked. False if it had already left the hand.
    pub(crate) fn keep(&self, victim: &Victim) -> bool {
        let mut rings = self.rings.lock();
        let word = self.word(victim.cell);
        self.is_in_hand(victim, word)
            && self.move_to(&mut rings, *victim, word, word.which(), word.frequency())
    }

    fn is_in_hand(&self, victim: &Victim, word: Word) -> bool {
        word.block() == hand_of(victim.group) && self.is_live(victim.cell, word)
    }

    /// Looks at some tokens. False if none is left.
    fn visit_some(
        &self,
        group: GroupId,
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
    fn visit(&self, rings: &mut Rings, group: GroupId) -> Visit {
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
                && self.exchange(cell, word, word.with_block(hand_of(group)))
            {
                return Visit::Victim(victim);
            }
        }
    }

    /// A page whose token was popped gets a new one at the end of a ring, which may be the same
    /// ring. False if the word changed.
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
}
