//! The costs of the order: tokens for each page, how long a lock is held, and what needs no lock.

use super::*;

/// Pages of three leaves.
const PAGES: usize = 3 * LEAF_CELLS - 8;

fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) as usize
}

fn cell(page: usize) -> CellNumber {
    CellNumber::new((LEAF_CELLS + page) as u32)
}

fn tokens(orders: &Orders) -> usize {
    orders.rings.lock().of_group.iter().flatten().map(|ring| ring.tokens).sum()
}

/// A token has 4 bytes and a word has 4. So a page costs 12 bytes, and its share of the heads.
#[test]
fn however_tokens_go_stale_there_are_two_for_each_page_at_most() {
    for kind in EvictionOrder::ALL {
        let orders = Orders::new(kind, CELLS).expect("small");
        (0..PAGES).for_each(|page| orders.push(cell(page), GroupId(0)).expect("room"));
        let mut state = 7;
        for round in 0..100_000 {
            let page = cell(random(&mut state) % PAGES);
            // The kernel order's tokens go stale by loads, S3-FIFO's only by removal.
            if round % 2 == 0 {
                orders.load(page)
            } else {
                orders.remove(page)
            };
            orders.push(page, GroupId(0)).expect("room");
            let most = 2 * PAGES + 4 * blocks::BLOCK_TOKENS;
            assert!(tokens(&orders) <= most, "{kind:?}: {} tokens", tokens(&orders));
        }
    }
}

#[test]
fn a_detached_leafs_tokens_go_when_the_order_is_compacted() {
    let orders = Orders::new(EvictionOrder::S3Fifo, CELLS).expect("small");
    (0..PAGES).for_each(|page| orders.push(cell(page), GroupId(0)).expect("room"));
    for leaf in 2..4 {
        let leaf = LeafId::new(leaf).expect("not 0");
        orders.detach(leaf);
        orders.forget(leaf);
    }
    assert_eq!((orders.pages(GroupId(0)), tokens(&orders)), ([LEAF_CELLS as u64, 0], PAGES));
    orders.compact();
    assert!(tokens(&orders) <= LEAF_CELLS + blocks::BLOCK_TOKENS, "{}", tokens(&orders));
    let pages = (0..LEAF_CELLS).map(|page| (cell(page), GroupId(0)));
    orders.check(pages).expect("the first leaf is untouched");
}

#[test]
fn hot_pages_come_and_go_without_the_lock() {
    let orders = Orders::new(EvictionOrder::S3Fifo, CELLS).expect("small");
    (0..64).for_each(|page| orders.push(cell(page), GroupId(0)).expect("room"));
    let _held = orders.rings.lock();
    for page in 0..64 {
        assert_eq!(orders.load(cell(page)), Some(GroupId(0)));
        orders.push(cell(page), GroupId(0)).expect("its token is there");
        orders.touch(cell(page));
        orders.load(cell(page));
        assert_eq!(orders.remove(cell(page)), None, "it was loaded");
    }
    orders.detach(LeafId::new(1).expect("not 0"));
}

#[test]
fn blocks_for_tokens_that_move_are_kept_from_new_ones() {
    let mut blocks = Blocks::reserve(1).expect("small");
    let (mut ring, owner) = (Ring::default(), (GroupId(0), Which::Main));
    while ring.room(&mut blocks, Want::New, owner).is_some() {
        (0..blocks::BLOCK_TOKENS).for_each(|_| ring.append(&blocks, 1));
    }
    assert!(ring.room(&mut blocks, Want::Moved, owner).is_some(), "B4");
}

/// All pages are referenced, and a search would clear every mark before it found a victim. A thread
/// that stores a page waits for the search.
#[test]
fn a_search_for_one_page_looks_at_4096_tokens_at_most() {
    const MANY: usize = 5000;
    let orders = Orders::new(EvictionOrder::Kernel, 16 * LEAF_CELLS as u64).expect("small");
    (0..MANY).for_each(|page| orders.push(cell(page), GroupId(0)).expect("room"));
    let mut victims = Vec::new();
    orders.victims(GroupId(0), 1, &mut victims);
    assert!(victims.is_empty(), "4096 marks are cleared, and the search ends: {victims:?}");
    orders.victims(GroupId(0), 1, &mut victims);
    assert_eq!(cells(&victims), [cell(0).get()], "the next search goes on where that one ended");
}
