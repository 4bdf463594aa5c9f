//! Pages that have been out for long become denser, a few at a time.
//!
//! ```text
//!   pager   looks at memory, makes room, .., a turn if one is due, waits
//!   turn    16 slots: those that were out for two ages are compressed by pagelz, or longer by lz4
//! ```
//!
//! Invariant: a turn is short, because a fork waits for it, and without userfaultfd a touch too.
//! Only the training of tables takes longer, and is seldom.
//!
//! Lock: none. The pager alone has it.

use crate::board::{Board, Packing};
use crate::ways::Store;
use std::time::Instant;
use zram::TierPass;

/// Slots that a turn looks at: less than a millisecond of work.
const SLOTS: u64 = 16;

/// What the pager knows of its turns.
#[derive(Debug, Default)]
pub(super) enum Tending {
    /// Nothing yet.
    #[default]
    Unknown,
    /// Pages stay as they left.
    Never,
    /// A turn is due at this moment.
    Due { pass: TierPass, at: Instant },
}

impl Tending {
    /// Does a turn on the store of a process of this run, if one is due. While forks share the
    /// store, denser pages would take new memory, and free none.
    pub(super) fn turn(&mut self, board: &Board, store: &Store) {
        if store.is_shared() {
            return;
        }
        match self {
            Tending::Unknown => *self = Tending::of(board, store),
            Tending::Due { pass, at } if *at <= Instant::now() => {
                let pause = pass.turn(store.device());
                *at = Instant::now() + pause;
            }
            Tending::Never | Tending::Due { .. } => {}
        }
    }

    fn of(board: &Board, store: &Store) -> Tending {
        let tiers = Packing::named(&board.algorithm()).and_then(|packing| packing.tiers);
        let Some(tiers) = tiers else { return Tending::Never };
        // An heir has its parent's device, whose passes were the parent's.
        match TierPass::begin_anew(store.device(), tiers, SLOTS) {
            Ok(pass) => Tending::Due { pass, at: Instant::now() },
            Err(_) => Tending::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::PAGE;
    use std::time::Duration;
    use zram::{Density, TiersConfig};

    const PAGES: usize = 2000;

    /// 16 letters in no order, which a code for letters shrinks and a search for repeats does not,
    /// and a part of them again.
    fn letters(number: usize) -> Vec<u8> {
        let mut state = number as u64 * 2 + 1;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number as u64 | 1);
            0x80 + (state >> 60) as u8
        };
        let mut letters: Vec<u8> = (0..PAGE / 3 * 2).map(|_| next()).collect();
        letters.extend_from_within(..PAGE - PAGE / 3 * 2);
        letters
    }

    /// Does turns until a tenth of the bytes is gone.
    fn shrink(store: &Store, tending: &mut Tending, board: &Board) {
        let (before, late) = (store.compressed(), Instant::now() + Duration::from_secs(60));
        while store.compressed() > before / 10 * 9 {
            tending.turn(board, store);
            assert!(Instant::now() < late, "{} of {before} bytes", store.compressed());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn pages_that_are_out_for_long_become_denser_and_read_as_they_left() {
        let path = std::env::temp_dir().join(format!("ramfold-tending-{}", std::process::id()));
        // The file of an earlier run with this number.
        let _ = std::fs::remove_file(&path);
        let board = Board::create(&path, 1 << 30, "balanced").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        let packing = Packing::named("balanced").expect("a packing");
        let store = Store::new(packing, 1 << 26).expect("a store");
        let slots: Vec<u32> =
            (0..PAGES).map(|at| store.keep(at * PAGE, &letters(at)).expect("room")).collect();
        let mut tending = Tending::default();
        store.set_shared_by(Some(1));
        tending.turn(&board, &store);
        assert!(matches!(tending, Tending::Unknown), "a fork shares the store");
        store.set_shared_by(None);
        tending.turn(&board, &store);
        assert!(matches!(tending, Tending::Due { .. }), "{tending:?}");
        let short =
            TiersConfig { age: Duration::from_secs(1), ..TiersConfig::new(Density::Balanced) };
        let pass = TierPass::begin_anew(store.device(), short, SLOTS).expect("tiers");
        shrink(&store, &mut Tending::Due { pass, at: Instant::now() }, &board);
        let mut read = vec![0; PAGE];
        for (at, &slot) in slots.iter().enumerate() {
            assert!(store.read(slot, &mut read).is_ok() && read == letters(at), "page {at}");
            store.give_back(slot);
        }
        assert_eq!(store.held().orig_data_size, 0);
    }

    #[test]
    fn a_run_with_one_algorithm_has_no_turns() {
        let path = std::env::temp_dir().join(format!("ramfold-still-{}", std::process::id()));
        // As above.
        let _ = std::fs::remove_file(&path);
        let board = Board::create(&path, 1 << 30, "lz4").expect("a board");
        std::fs::remove_file(&path).expect("it is there");
        let store =
            Store::new(Packing::named("lz4").expect("a packing"), 1 << 20).expect("a store");
        let mut tending = Tending::default();
        tending.turn(&board, &store);
        assert!(matches!(tending, Tending::Never), "{tending:?}");
    }
}
