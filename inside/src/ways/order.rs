//! The slots of pages in memory, in the order in which they are to leave for the disk.
//!
//! ```text
//!   stubborn   pages that do not compress      oldest ... newest
//!   others     pages that do                   oldest ... newest
//! ```
//!
//! Each slot knows its two neighbours, so that any slot can go in one step. The first nodes are the
//! ends of the lists: a list is a ring through its own. A slot in no list is a ring by itself.
//!
//! Invariant: a slot is in one list at most. Lock: the caller's.

/// Why a page leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It takes as much memory as before.
    Stubborn = 0,
    Other = 1,
}

/// Nodes that are ends of lists.
const ENDS: u32 = 2;

#[derive(Debug, Clone, Copy)]
struct Node {
    older: u32,
    newer: u32,
}

/// Two lists of slots.
#[derive(Debug, Default)]
pub(super) struct Order {
    nodes: Vec<Node>,
}

impl Order {
    /// A slot comes, as the newest of its kind.
    pub(super) fn push(&mut self, slot: u32, kind: Kind) {
        let node = self.alone(slot);
        let end = kind as u32;
        self.link(self.node(end).older, node, end);
    }

    /// A slot comes back, as the oldest of its kind.
    pub(super) fn push_oldest(&mut self, slot: u32, kind: Kind) {
        let node = self.alone(slot);
        let end = kind as u32;
        self.link(end, node, self.node(end).newer);
    }

    /// A slot goes, if it is in a list.
    pub(super) fn remove(&mut self, slot: u32) {
        if self.nodes.len() > (slot + ENDS) as usize {
            self.alone(slot);
        }
    }

    /// The oldest of a kind goes.
    pub(super) fn pop(&mut self, kind: Kind) -> Option<u32> {
        let slot = self.nodes.get(kind as usize)?.newer.checked_sub(ENDS)?;
        self.alone(slot);
        Some(slot)
    }

    /// Whether there are so many of a kind, which it counts.
    pub(super) fn has(&self, kind: Kind, count: usize) -> bool {
        let end = kind as u32;
        let newer = |node: u32| self.nodes.get(node as usize).map_or(end, |node| node.newer);
        let slots = std::iter::successors(Some(newer(end)), |&node| Some(newer(node)));
        slots.take_while(|&node| node != end).take(count).count() == count
    }

    /// The node of a slot, in no list.
    fn alone(&mut self, slot: u32) -> u32 {
        let node = slot + ENDS;
        let len = self.nodes.len() as u32;
        self.nodes.extend((len..=node).map(|at| Node { older: at, newer: at }));
        let Node { older, newer } = self.node(node);
        self.nodes[older as usize].newer = newer;
        self.nodes[newer as usize].older = older;
        self.nodes[node as usize] = Node { older: node, newer: node };
        node
    }

    /// Puts a node between two neighbours.
    fn link(&mut self, older: u32, node: u32, newer: u32) {
        self.nodes[node as usize] = Node { older, newer };
        self.nodes[older as usize].newer = node;
        self.nodes[newer as usize].older = node;
    }

    fn node(&self, at: u32) -> Node {
        self.nodes[at as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn kind(number: usize) -> Kind {
        if number == 0 { Kind::Stubborn } else { Kind::Other }
    }

    #[test]
    fn there_is_nothing_in_the_beginning() {
        let mut order = Order::default();
        order.remove(7);
        assert_eq!(order.pop(Kind::Stubborn), None);
        assert!(order.has(Kind::Other, 0) && !order.has(Kind::Other, 1));
    }

    proptest! {
        /// Compares with two queues that are searched.
        #[test]
        fn slots_go_in_the_order_in_which_they_came(
            steps in prop::collection::vec((0..6usize, 0..20u32, 0..2usize), 0..300),
        ) {
            let (mut order, mut twin) = (Order::default(), [VecDeque::new(), VecDeque::new()]);
            for (step, slot, which) in steps {
                match step {
                    0..3 => {
                        twin.iter_mut().for_each(|list| list.retain(|&it| it != slot));
                        match step {
                            0 => twin[which].push_back(slot),
                            1 => twin[which].push_front(slot),
                            _ => {}
                        }
                        match step {
                            0 => order.push(slot, kind(which)),
                            1 => order.push_oldest(slot, kind(which)),
                            _ => order.remove(slot),
                        }
                    }
                    3 => prop_assert_eq!(order.pop(kind(which)), twin[which].pop_front()),
                    _ => {
                        let count = slot as usize;
                        prop_assert_eq!(order.has(kind(which), count), twin[which].len() >= count);
                    }
                }
            }
            for (which, list) in twin.into_iter().enumerate() {
                let left: Vec<u32> = std::iter::from_fn(|| order.pop(kind(which))).collect();
                prop_assert_eq!(left, Vec::from(list));
            }
        }
    }
}
