//! Hands: how a page leaves one without the thread that has it in hand.

use super::turns::{GROUP, cell, next, push};
use super::*;

/// The order with a page in a hand.
fn with_a_page_in_hand(kind: EvictionOrder) -> (Orders, Victim) {
    let orders = Orders::new(kind, CELLS).expect("small");
    push(&orders, 0, GROUP);
    let victim = next(&orders, 1).pop().expect("the one page");
    assert!(orders.in_hand(&victim), "until anything happens to it");
    (orders, victim)
}

/// Detaching a leaf changes no word of its cells, and they are cleared only later. If a page were
/// in hand for as long as its word says so, it would be written and counted after it was gone.
#[test]
fn a_page_leaves_the_hand_with_its_leaf() {
    for kind in EvictionOrder::ALL {
        let (orders, victim) = with_a_page_in_hand(kind);
        orders.detach(LeafId::new(1).expect("not 0"));
        assert!(!orders.in_hand(&victim), "{kind:?}: its leaf is another generation's");
        assert!(!orders.evicted(&victim), "{kind:?}");
        assert!(!orders.keep(&victim), "{kind:?}: it has no place to go back to");
        assert_eq!(orders.pages(GROUP), [0, 0], "{kind:?}: counted once, when its leaf went");
    }
}

#[test]
fn a_page_that_another_thread_loads_or_removes_leaves_the_hand() {
    let ways: [fn(&Orders, CellNumber) -> Option<GroupId>; 2] = [Orders::load, Orders::remove];
    for kind in EvictionOrder::ALL {
        for way in ways {
            let (orders, victim) = with_a_page_in_hand(kind);
            assert_eq!(way(&orders, cell(0)), Some(GROUP), "{kind:?}: it was in memory");
            assert!(!orders.in_hand(&victim) && !orders.evicted(&victim) && !orders.keep(&victim));
            assert_eq!(orders.pages(GROUP), [0, 0], "{kind:?}");
        }
    }
}
