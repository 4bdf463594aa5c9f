//! The state byte of a frame.
//!
//! ```text
//!     7   6   5 4   3 2 1 0
//!    [0][warm][role][order  ]
//!
//!    role 0  inner      part of a block or run whose head is at a lower number; other bits 0
//!    role 1  free       head of a free block of `order`; `warm` says some frame may be resident
//!    role 2  allocated  head of a run; `order` is the number of the migratetype it was asked for
//!                       (Isolate: taken, on its way back); its length is in the links of its two
//!                       first frames; `warm` is 0
//!    role 3  single     the same, of a run of one frame
//! ```
//!
//! Invariant: every byte comes from `INNER`, `free` or `allocated`, and `role` reads each of them
//! back. Any other byte has no role, and a recount reports it. The directory keeps the bytes. They
//! change only through a `&mut Zone`.

use super::migratetype::Migratetype;
use super::order::{MAX_ORDER, Order};

const ORDER_BITS: u32 = 4;
const ROLE_BITS: u32 = 2;
const ORDER_MASK: u8 = (1 << ORDER_BITS) - 1; // 0x0f
const ROLE_SHIFT: u32 = ORDER_BITS; // 4
const ROLE_MASK: u8 = (1 << ROLE_BITS) - 1; // 0x03
const WARM: u8 = 1 << (ROLE_SHIFT + ROLE_BITS); // 0x40

// Every order and every migratetype fits the field, and the fields fit the byte.
const _: () = assert!(MAX_ORDER <= ORDER_MASK && Migratetype::COUNT <= ORDER_MASK as usize);
const _: () = assert!(ROLE_SHIFT + ROLE_BITS < u8::BITS);

const ROLE_FREE: u8 = 1 << ROLE_SHIFT;
const ROLE_ALLOCATED: u8 = 2 << ROLE_SHIFT;
const ROLE_SINGLE: u8 = 3 << ROLE_SHIFT;

/// Whether a block's memory is worth having again.
///
/// A hint, kept per free block and never per frame: `Resident` means that some frame of the block
/// was freed as resident since the block was last put back as `Untouched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Warm {
    /// Some of it may still be backed by memory: using it again is cheap.
    Resident,
    /// None of it is backed by memory: its first use faults.
    Untouched,
}

impl Warm {
    /// Both, in the order in which a request looks for them.
    pub(crate) const ALL: [Warm; 2] = [Warm::Resident, Warm::Untouched];

    /// The warmth of the block that two blocks make.
    pub(crate) fn or(self, other: Warm) -> Warm {
        if self == Warm::Resident { self } else { other }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// What one frame is, in a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(u8);

/// What a state byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Inner,
    Free { order: Order, warm: Warm },
    Allocated(Migratetype),
}

impl State {
    pub(crate) const INNER: State = State(0);

    pub(crate) fn free(order: Order, warm: Warm) -> State {
        let warm = if warm == Warm::Resident { WARM } else { 0 };
        State(warm | ROLE_FREE | order.get())
    }

    /// The head of a run of `frames` that was asked for as `migratetype`.
    pub(crate) fn allocated(migratetype: Migratetype, frames: u32) -> State {
        let role = if frames == 1 { ROLE_SINGLE } else { ROLE_ALLOCATED };
        State(role | migratetype as u8)
    }

    /// How warm it is, if it is the head of a free block of this order: what its role would say,
    /// asked for one answer.
    pub(crate) fn free_of(self, order: Order) -> Option<Warm> {
        match self.0 ^ (ROLE_FREE | order.get()) {
            0 => Some(Warm::Untouched),
            WARM => Some(Warm::Resident),
            _ => None,
        }
    }

    /// Whether it is the head of a run of one frame, if it is the head of a run.
    pub(crate) fn is_single(self) -> bool {
        self.0 & ROLE_SINGLE == ROLE_SINGLE
    }

    /// What the byte says; a byte that no constructor makes says nothing.
    pub(crate) fn role(self) -> Option<Role> {
        match self {
            State::INNER => Some(Role::Inner),
            State(byte) if byte & (ROLE_MASK << ROLE_SHIFT) == ROLE_FREE => {
                let order = Order::new(byte & ORDER_MASK)?;
                let warm = if byte & WARM != 0 { Warm::Resident } else { Warm::Untouched };
                (State::free(order, warm) == self).then_some(Role::Free { order, warm })
            }
            State(byte) => {
                let role = if self.is_single() { ROLE_SINGLE } else { ROLE_ALLOCATED };
                let number = usize::from(byte.checked_sub(role)?);
                Migratetype::ALL.get(number).map(|migratetype| Role::Allocated(*migratetype))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_reads_back() {
        assert_eq!(State::INNER.role(), Some(Role::Inner));
        for migratetype in Migratetype::ALL {
            for frames in [1, 2, 1024] {
                let state = State::allocated(migratetype, frames);
                assert_eq!(state.role(), Some(Role::Allocated(migratetype)));
                assert_eq!(state.is_single(), frames == 1);
            }
        }
        for order in Order::all() {
            for warm in Warm::ALL {
                assert_eq!(State::free(order, warm).role(), Some(Role::Free { order, warm }));
            }
        }
    }

    #[test]
    fn every_byte_is_a_free_block_of_the_order_that_its_role_says() {
        for (byte, order) in (0..=u8::MAX).flat_map(|byte| Order::all().map(move |of| (byte, of))) {
            let warm = match State(byte).role() {
                Some(Role::Free { order: of, warm }) => (of == order).then_some(warm),
                _ => None,
            };
            assert_eq!(State(byte).free_of(order), warm, "{byte:#x} of order {}", order.get());
        }
    }

    #[test]
    fn no_other_byte_has_a_meaning() {
        let meant = (0..=u8::MAX).filter(|byte| State(*byte).role().is_some()).count();
        let free = 2 * Order::all().count();
        let runs = 2 * Migratetype::COUNT;
        assert_eq!(meant, 1 + runs + free, "inner, allocated x type x both, free x both");
    }

    #[test]
    fn one_resident_half_makes_a_warm_whole() {
        assert_eq!(Warm::Resident.or(Warm::Untouched), Warm::Resident);
        assert_eq!(Warm::Untouched.or(Warm::Resident), Warm::Resident);
        assert_eq!(Warm::Untouched.or(Warm::Untouched), Warm::Untouched);
    }
}
