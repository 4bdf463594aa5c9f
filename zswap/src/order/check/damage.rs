//! Each rule of the order's recount, against an order that was damaged on purpose.
//!
//! Claim: the recount names the invariant that the damage breaks.

use zsmalloc::{CellNumber, LEAF_CELLS};

use super::super::blocks::{Ring, Want, hand_of};
use super::super::orders::{Orders, leaf_of, one};
use super::super::word::{Which, Word};
use crate::terms::{EvictionOrder, GroupId};

/// Cells of the memory. Leaf 0 is never used.
const CELLS: u64 = 4 * LEAF_CELLS as u64; // 2048
const GROUP: GroupId = GroupId(0);
const OTHER: GroupId = GroupId(1);

/// Three pages of one leaf, all of one group. A page of another leaf is the other group's.
fn pages() -> [(CellNumber, GroupId); 4] {
    let first = LEAF_CELLS as u32;
    [(first, GROUP), (first + 1, GROUP), (first + 2, GROUP), (2 * first, OTHER)]
        .map(|(cell, group)| (CellNumber::new(cell), group))
}

#[track_caller]
fn shows(damage: impl FnOnce(&Orders, CellNumber), finding: &str) {
    let orders = Orders::new(EvictionOrder::S3Fifo, CELLS).expect("small tables");
    pages().into_iter().for_each(|(cell, group)| assert!(orders.push(cell, group).is_ok()));
    orders.check(pages().into_iter()).expect("sound before the damage");
    damage(&orders, pages()[0].0);
    let defect = orders.check(pages().into_iter()).expect_err("damaged");
    assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
}

fn set(orders: &Orders, cell: CellNumber, change: impl FnOnce(Word) -> Word) {
    let word = orders.word(cell);
    assert!(orders.exchange(cell, word, change(word)));
}

#[test]
fn a_live_word_without_a_token_breaks_o1() {
    let elsewhere = |orders: &Orders, cell| set(orders, cell, |word| word.with_block(0));
    shows(elsewhere, "O1: 4 live words, 3 places");
    let unknown = |orders: &Orders, cell| {
        orders.remove(cell);
    };
    shows(unknown, "in memory, None");
}

#[test]
fn two_tokens_of_a_cell_or_one_in_the_wrong_ring_break_w1() {
    let twice = |orders: &Orders, cell: CellNumber| {
        let mut rings = orders.rings.lock();
        let (ring, blocks) = rings.ring((GROUP, Which::Small));
        ring.append(blocks, cell.get());
    };
    shows(twice, "W1: ");
    let which = |orders: &Orders, cell| {
        set(orders, cell, |word| {
            Word::live(word.block(), Which::Main, word.generation(), word.frequency())
        });
    };
    shows(which, "W1: ");
}

#[test]
fn a_wrong_count_of_a_leaf_breaks_l3_and_a_groups_o2() {
    for which in Which::BOTH {
        let leaf = |orders: &Orders, cell| {
            let generation = orders.word(cell).generation();
            let by = one(which, 1);
            assert!(orders.leaves.change(leaf_of(cell), generation, GROUP, by));
        };
        shows(leaf, "L3: ");
        shows(|orders, _| orders.counts.change(OTHER, one(which, 1)), "O2: ");
    }
}

#[test]
fn a_page_of_another_group_than_its_leaf_breaks_l2() {
    let hand = |orders: &Orders, cell| {
        set(orders, cell, |word| word.with_block(hand_of(OTHER)));
    };
    shows(hand, "L2: ");
}

#[test]
fn a_block_in_another_ring_or_in_none_breaks_b1_and_a_lost_token_b2() {
    let swapped = |orders: &Orders, _| orders.rings.lock().of_group[GROUP.index()].swap(0, 1);
    shows(swapped, "B1: ");
    let lost = |orders: &Orders, _| {
        let mut rings = orders.rings.lock();
        let owner = (GROUP, Which::Main);
        let (_, blocks) = rings.ring((GROUP, Which::Small));
        let mut nobodys = Ring::default();
        assert!(nobodys.room(blocks, Want::New, owner).is_some());
    };
    shows(lost, "B1: ");
    let counted = |orders: &Orders, _| {
        let mut rings = orders.rings.lock();
        rings.ring((GROUP, Which::Small)).0.tokens += 1;
    };
    shows(counted, "B2: ");
}
