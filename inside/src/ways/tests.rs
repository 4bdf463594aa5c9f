//! Stores, with a disk behind them and without one, compared with tables of what was kept.
//!
//! Invariant: each test has a store, a writer and files of its own. Locks: the store's.

use super::windows::BLOCKS;
use super::written::BATCH;
use super::{Pick, Store, Writer};
use crate::floor::yard;
use crate::kernel::nameless;
use crate::places::PAGE;
use proptest::prelude::*;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use zram::{Algorithm, Codec};

fn store() -> (Store, Writer) {
    yard::reserve_for_tests();
    let store = Store::backed(Codec::new(Algorithm::Lz4), 1 << 26).expect("a store");
    (store, Writer::new(std::env::temp_dir()))
}

/// Whether files without a name can be made here.
fn has_disk() -> bool {
    match nameless::create(&std::env::temp_dir()) {
        Ok(_) => true,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI has such files: {error}");
            println!("skipped: needs O_TMPFILE: {error}");
            false
        }
    }
}

/// A page that depends on a number: 0 one word, 1 text, 2 noise.
fn page(kind: usize, number: u64) -> Vec<u8> {
    let mut chance = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance as u8
    };
    match kind {
        0 => vec![number as u8; PAGE],
        1 => (0..PAGE).map(|at| if at % 4 == 0 { next() & 31 } else { b' ' }).collect(),
        _ => (0..PAGE).map(|_| next()).collect(),
    }
}

fn read(store: &Store, slot: u32) -> Result<Vec<u8>, &'static str> {
    let mut read = vec![0; PAGE];
    store.read(slot, &mut read).map(|()| read)
}

/// What a store is to have: slots, their pages, and how often books name them.
#[derive(Default)]
struct Twin {
    slots: Vec<(u32, Vec<u8>, u32)>,
    /// Pages that came back, by their addresses.
    back: Vec<(usize, Vec<u8>)>,
}

impl Twin {
    /// A page leaves. It may get a slot that it has still.
    fn keep(&mut self, store: &Store, address: usize, page: Vec<u8>) {
        let slot = store.keep(address, &page).expect("room");
        match self.slots.iter_mut().find(|(known, ..)| *known == slot) {
            Some((_, known, times)) => {
                assert_eq!(*known, page, "slot {slot} has another page");
                *times += 1;
            }
            None => self.slots.push((slot, page, 1)),
        }
    }

    /// A fork begins or ends to share the store, a page comes back, or one leaves again.
    fn fork_step(&mut self, store: &Store, step: usize, which: (usize, usize), forks: usize) {
        let (kind, which) = which;
        match step {
            13 => store.set_shared_by((kind > 0).then_some(forks as u32)),
            14..=16 if !self.slots.is_empty() => {
                let (at, address) = (which % self.slots.len(), which % 16);
                self.back.push((address, self.slots[at].1.clone()));
                store.came(address, self.slots[at].0);
                self.let_go(at);
            }
            // Changed or not, and perhaps after another page came to its address.
            17 | 18 if !self.back.is_empty() => {
                let (address, mut page) = self.back.swap_remove(which % self.back.len());
                page[7] ^= u8::from(kind == 2);
                self.keep(store, address, page);
            }
            _ => {}
        }
    }

    /// A book does not name a slot any more.
    fn let_go(&mut self, at: usize) {
        self.slots[at].2 -= 1;
        if self.slots[at].2 == 0 {
            self.slots.swap_remove(at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Steps of the program, of the writer, and of a fork, in any order.
    #[test]
    fn what_is_kept_is_read_wherever_it_is(
        steps in prop::collection::vec((0..19usize, 0..3usize, 0..200usize), 1..400),
    ) {
        if !has_disk() {
            return Ok(());
        }
        let (store, mut writer) = store();
        let mut sum = Twin::default();
        let mut begun = false;
        for (number, (step, kind, which)) in steps.into_iter().enumerate() {
            let twin = &mut sum.slots;
            match step {
                0..=3 => (0..which / 4).for_each(|more| {
                    let page = page(kind, (number * 1000 + more) as u64);
                    sum.keep(&store, 0, page);
                }),
                4..=6 if !twin.is_empty() => {
                    let at = which % twin.len();
                    store.give_back(twin[at].0);
                    sum.let_go(at);
                }
                7 if !twin.is_empty() => {
                    let at = which % twin.len();
                    store.share(twin[at].0);
                    twin[at].2 += 1;
                }
                13..=18 => sum.fork_step(&store, step, (kind, which), number),
                8 if !begun => begun = store.begin_batch(&mut writer, Pick::All),
                9 if begun => {
                    writer.write();
                    store.end_batch(&mut writer);
                    begun = false;
                }
                10 if !begun => {
                    store.write_some(&mut writer, [Pick::Stubborn, Pick::All, Pick::Sparse][kind]);
                }
                11 => store.tidy(),
                // The child of a fork, also in the middle of a batch.
                12 if kind == 0 => {
                    store.begin_anew();
                    writer = Writer::new(std::env::temp_dir());
                    begun = false;
                }
                _ => {}
            }
            store.check();
            let twin = &sum.slots;
            if let Some((slot, page, _)) = twin.get(which % twin.len().max(1)) {
                prop_assert!(read(&store, *slot).as_ref() == Ok(page));
            }
        }
        let twin = &sum.slots;
        for (slot, page, _) in twin {
            prop_assert!(read(&store, *slot).as_ref() == Ok(page));
        }
        let slots: HashMap<u32, ()> = twin.iter().map(|(slot, ..)| (*slot, ())).collect();
        prop_assert_eq!(slots.len(), twin.len(), "no slot has two pages");
        if begun {
            store.end_batch(&mut writer);
        }
        // Doubles go some at a time.
        (0..100).for_each(|_| store.set_shared_by(None));
        prop_assert_eq!(store.held().orig_data_size, (twin.len() * PAGE) as u64);
        twin.iter().for_each(|(slot, _, times)| (0..*times).for_each(|_| store.give_back(*slot)));
        store.check();
        let held = store.held();
        prop_assert_eq!((held.orig_data_size, held.compr_data_size, held.disk), (0, 0, 0));
    }
}

#[test]
fn pages_that_do_not_compress_leave_at_once_and_the_others_when_they_are_many() {
    if !has_disk() {
        return;
    }
    let (store, mut writer) = store();
    let keep = |kind, count| {
        (0..count).for_each(|it| {
            store.keep(0, &page(kind, it)).expect("room");
        })
    };
    keep(0, 500);
    keep(1, 40);
    assert_eq!(store.overflow(1 << 30), None, "they take little");
    assert_eq!(store.overflow(1 << 10), Some(Pick::All));
    keep(2, 15);
    assert_eq!(store.overflow(1 << 30), None, "a few");
    keep(2, 1);
    assert_eq!(store.overflow(1 << 30), Some(Pick::Stubborn));
    assert_eq!(store.write_some(&mut writer, Pick::Stubborn), 16);
    assert_eq!(store.overflow(1 << 30), None);
    assert_eq!(store.write_some(&mut writer, Pick::All), 40, "a page of one word takes no memory");
    assert_eq!(store.held().disk, 56 * PAGE as u64);
    assert_eq!((store.compressed(), writer.failed()), (0, (0, 0)));
}

#[test]
fn a_page_may_be_read_while_it_moves() {
    if !has_disk() {
        return;
    }
    static OVER: AtomicBool = AtomicBool::new(false);
    let (store, mut writer) = store();
    let pages: Vec<Vec<u8>> =
        (0..4 * BLOCKS as u64).map(|it| page(1 + it as usize % 2, it)).collect();
    let slots: Vec<u32> = pages.iter().map(|page| store.keep(0, page).expect("room")).collect();
    std::thread::scope(|scope| {
        for first in 0..2 {
            let (store, slots, pages) = (&store, &slots, &pages);
            scope.spawn(move || {
                let mut at = first;
                while !OVER.load(Ordering::Relaxed) {
                    // The pages that stay: one in eight.
                    let it = at * 8 % slots.len();
                    assert!(read(store, slots[it]).as_ref() == Ok(&pages[it]), "page {it}");
                    at += 7;
                }
            });
        }
        while store.write_some(&mut writer, Pick::All) > 0 {}
        let windows = store.held().disk / PAGE as u64 / u64::from(BLOCKS);
        assert_eq!(windows, 4);
        slots.iter().enumerate().filter(|(it, _)| it % 8 != 0).for_each(|(_, slot)| {
            store.give_back(*slot);
        });
        // Windows with few pages are emptied, and given up.
        for _ in 0..8 * BLOCKS as usize / BATCH {
            store.write_some(&mut writer, Pick::Sparse);
            store.tidy();
        }
        OVER.store(true, Ordering::Relaxed);
    });
    assert_eq!(store.held().disk, u64::from(BLOCKS) / 2 * PAGE as u64);
    assert!(store.windows() <= 3, "{} windows", store.windows());
    store.check();
}

/// A reader may have looked for a page in memory in the moment in which it went from there.
#[test]
fn a_page_that_goes_while_it_is_read_is_read_again() {
    if !has_disk() {
        return;
    }
    let (store, mut writer) = store();
    let pages: Vec<Vec<u8>> = (0..BATCH as u64).map(|it| page(1, it)).collect();
    for _ in 0..200 {
        let slots: Vec<u32> = pages.iter().map(|page| store.keep(0, page).expect("room")).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for (slot, page) in slots.iter().zip(&pages) {
                        assert!(read(&store, *slot).as_ref() == Ok(page));
                    }
                }
            });
            store.write_some(&mut writer, Pick::All);
            over.store(true, Ordering::Relaxed);
        });
        slots.into_iter().for_each(|slot| store.give_back(slot));
        store.tidy();
    }
}

#[test]
fn what_the_disk_refuses_stays_in_memory() {
    let (store, _) = store();
    let page = page(2, 7);
    let slot = store.keep(0, &page).expect("room");
    let mut writer = Writer::new("/proc".into());
    assert_eq!(store.write_some(&mut writer, Pick::All), 0);
    assert!(writer.waits() && writer.failed().0 == 1 && writer.failed().0 == 0);
    assert_eq!((read(&store, slot).as_ref(), store.held().disk), (Ok(&page), 0));
    let mut other = Writer::new(std::env::temp_dir());
    if has_disk() {
        assert!(store.begin_batch(&mut other, Pick::All));
        // A file that nobody may write to.
        other.file = std::fs::File::open("/proc/self/exe").ok();
        other.write();
        assert_eq!(store.end_batch(&mut other), 0);
        assert_eq!(other.failed(), (1, libc::EBADF));
        assert_eq!((read(&store, slot).as_ref(), store.held().disk), (Ok(&page), 0));
        let mut third = Writer::new(std::env::temp_dir());
        assert_eq!(store.write_some(&mut third, Pick::Stubborn), 1, "it is tried again");
    }
}

#[test]
fn bytes_that_the_disk_has_changed_or_lost_are_no_page() {
    if !has_disk() {
        return;
    }
    let (store, mut writer) = store();
    let pages = [page(2, 7), page(1, 8)];
    let slots = pages.each_ref().map(|page| store.keep(0, page).expect("room"));
    assert_eq!(store.write_some(&mut writer, Pick::All), 2);
    let file = writer.file.as_ref().expect("it is open");
    file.write_all_at(&pages[1][..1], 0).expect("room");
    let why = read(&store, slots[0]).expect_err("another byte");
    assert!(why.contains("damaged"), "{why}");
    file.write_all_at(&pages[0], PAGE as u64).expect("room");
    let why = read(&store, slots[1]).expect_err("another page's bytes");
    assert!(why.contains("damaged"), "{why}");
    file.set_len(0).expect("it can be cut");
    let why = read(&store, slots[1]).expect_err("no bytes");
    assert!(why.contains("cannot be read"), "{why}");
}

#[test]
fn a_full_store_refuses() {
    let store = Store::new(Codec::new(Algorithm::Lz4), 0).expect("a store");
    let mut chance = 88_172_645_463_325_252u64;
    let mut page = vec![0; PAGE];
    let mut kept = Vec::new();
    while let Some(slot) = store.keep(0, &page) {
        page.iter_mut().for_each(|byte| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            *byte = chance as u8;
        });
        kept.push(slot);
    }
    assert!(kept.len() as u64 > super::store::FRAMES_MIN / 2, "{}", kept.len());
    let freed = kept[kept.len() / 2];
    store.give_back(freed);
    assert_eq!(store.keep(0, &page), Some(freed), "there is room for one");
    page[0] ^= 1;
    assert_eq!(store.keep(0, &page), None);
    store.set_shared_by(Some(1));
    store.came(1 << 30, freed);
    assert_eq!(store.keep(0, &page), Some(freed), "a double gives its room");
    assert_eq!(read(&store, freed).as_ref(), Ok(&page));
}

#[test]
fn a_slot_lives_as_long_as_a_book_names_it() {
    let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 20).expect("a store");
    let page: Vec<u8> = (0..PAGE).map(|at| (at / 9) as u8).collect();
    let slot = store.keep(0, &page).expect("room");
    store.share(slot);
    store.give_back(slot);
    let mut read = vec![0; PAGE];
    assert!(store.read(slot, &mut read).is_ok() && read == page);
    assert_eq!(store.held().orig_data_size, PAGE as u64);
    store.give_back(slot);
    assert_eq!(store.held().orig_data_size, 0);
    assert_eq!(store.keep(0, &page), Some(slot), "it is free");
}

#[test]
fn what_pages_took_that_have_gone_is_given_back() {
    let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 26).expect("a store");
    let mut chance = 88_172_645_463_325_252u64;
    let mut page = vec![0; PAGE];
    let slots: Vec<u32> = (0..4000)
        .map(|_| {
            page[..PAGE / 2].iter_mut().for_each(|byte| {
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                *byte = chance as u8;
            });
            store.keep(0, &page).expect("room")
        })
        .collect();
    store.tidy();
    assert!(store.held().compr_data_size > 7 << 20, "{:?}", store.held());
    slots.into_iter().for_each(|slot| store.give_back(slot));
    assert!(store.waste() > 7 << 20, "it waits for the next pages");
    store.tidy();
    assert!(store.waste() < 2 << 20, "{} bytes", store.waste());
}

#[test]
fn numbers_take_less_than_text_beside_them_and_both_come_back() {
    let store = Store::new(Codec::new(Algorithm::Lz4), 1 << 26).expect("a store");
    let numbers = |at: usize| -> Vec<u8> {
        (0..512).flat_map(|n| ((at * 512 + n) * 1_000_003).to_le_bytes()).collect()
    };
    let text = |at: usize| -> Vec<u8> {
        (0..).flat_map(|n| format!("{at} and {n}; ").into_bytes()).take(PAGE).collect()
    };
    let mut held = [0; 2];
    let mut kept = Vec::new();
    for at in 0..1024 {
        let pages = [(at * PAGE, numbers(at)), ((1 << 30) + at * PAGE, text(at))];
        for (held, (address, page)) in held.iter_mut().zip(pages) {
            let before = store.held().compr_data_size;
            let slot = store.keep(address, &page).expect("room");
            *held += store.held().compr_data_size - before;
            kept.push((slot, page));
        }
    }
    assert!(held[0] < 1024 * 1500, "lz4 by itself takes 2.7 KiB: {held:?}");
    assert!(held[1] < 1024 * 1400, "text takes more if it is shuffled: {held:?}");
    let mut read = vec![0; PAGE];
    for (slot, page) in kept {
        assert!(store.read(slot, &mut read).is_ok() && read == page, "slot {slot}");
    }
}
