//! Turns: of groups, and of a page that came back.

use super::*;

pub(super) const GROUP: GroupId = GroupId(0);

pub(super) fn cell(page: usize) -> CellNumber {
    CellNumber::new((LEAF_CELLS + page) as u32)
}

fn s3_fifo() -> Orders {
    Orders::new(EvictionOrder::S3Fifo, CELLS).expect("small")
}

pub(super) fn next(orders: &Orders, count: usize) -> Vec<Victim> {
    let mut victims = Vec::new();
    orders.next_victims(count, |_| true, &mut victims);
    victims
}

pub(super) fn push(orders: &Orders, page: usize, group: GroupId) {
    orders.push(cell(page), group).expect("room");
}

/// The turn once stayed with group 0. It gave up all its pages before another group gave up any.
#[test]
fn each_call_begins_with_the_next_group() {
    let orders = s3_fifo();
    (0..60).for_each(|page| push(&orders, page, GroupId((page % 3) as u8)));
    let groups: Vec<usize> = (0..7).map(|_| next(&orders, 1)[0].group.index()).collect();
    assert_eq!(groups, [0, 1, 2, 0, 1, 2, 0], "the groups of one victim after the other");
}

#[test]
fn a_group_gives_up_32_pages_before_it_is_anothers_turn() {
    let orders = s3_fifo();
    (0..120).for_each(|page| push(&orders, page, GroupId((page % 2) as u8)));
    let groups: Vec<usize> = next(&orders, 70).iter().map(|it| it.group.index()).collect();
    let runs: Vec<usize> = groups.chunk_by(|a, b| a == b).map(<[usize]>::len).collect();
    assert_eq!((groups[0], runs), (0, vec![32, 32, 6]), "the first group; victims of each in turn");
}

/// A page of the main ring was loaded and its token's turn came. Had it not been loaded, it would
/// have stayed, used once less. If that is not counted down, the page outlives pages that are used
/// as much when it is stored again.
#[test]
fn a_dropped_token_counts_as_used_once_less() {
    let orders = s3_fifo();
    let [a, e] = [0, 1];
    (0..7).for_each(|page| push(&orders, page, GROUP));
    let ghosts = next(&orders, 2);
    assert_eq!(cells(&ghosts), [cell(a).get(), cell(e).get()], "those that were stored first");
    ghosts.iter().for_each(|victim| assert!(orders.evicted(victim), "it is in the hand"));
    [a, e].into_iter().for_each(|page| push(&orders, page, GROUP));
    assert_eq!(orders.pages(GROUP), [5, 2], "those that come back soon are in the main ring");
    (2..7).for_each(|page| _ = orders.remove(cell(page)));
    orders.load(cell(a)); // used once
    let victims = next(&orders, 1);
    assert_eq!(cells(&victims), [cell(e).get()], "the loaded page's token is dropped on the way");
    assert!(orders.keep(&victims[0]), "it is in the hand");
    push(&orders, a, GROUP); // used once less: never
    orders.touch(cell(e)); // used once
    assert_eq!(orders.pages(GROUP), [0, 2], "both are in the main ring: e, a");
    assert_eq!(cells(&next(&orders, 1)), [cell(a).get()], "the page that was used less");
}
