//! Forgetting pages in the allocator-only form of study S3: what a cache says and gives is as
//! without it.
#![cfg(not(loom))]

mod setting;

use ramfold_zswap::study::{Free, QueueConfig, Study};
use ramfold_zswap::{GroupId, Loaded, Zswap, ZswapConfig};
use setting::{PAGE, cache, config, memory, page};

const PAGES: u64 = 400;

fn later(deferred: QueueConfig) -> Zswap {
    let study = Study { free: Free::Handles, deferred };
    Zswap::new(memory(), ZswapConfig { study, ..config(64 << 20, None) }).expect("room")
}

#[test]
fn a_forgotten_page_is_gone_at_once_and_its_object_later() {
    let zswap = later(QueueConfig::default());
    let area = zswap.add_area(PAGES).expect("room");
    for at in 0..PAGES {
        area.store(at, &page(at), GroupId::ROOT).expect("room");
    }
    (0..PAGES).for_each(|at| area.invalidate(at));
    assert_eq!(area.deferred().pending_values, PAGES, "nobody drains: there is no worker");
    let stat = zswap.stat();
    assert_eq!((stat.stored_pages, stat.compr_data_size), (0, 0));
    let mut read = vec![0; PAGE];
    assert_eq!(area.peek(7, &mut read).expect("no fault"), Loaded::Absent);
    zswap.check().expect("pending objects are accounted for");
    area.store(7, &page(1000), GroupId::ROOT).expect("room");
    zswap.memory().flush_deferred();
    assert_eq!(area.deferred().pending_values, 0);
    assert_eq!(area.load(7, &mut read).expect("stored"), Loaded::Memory);
    assert!(read == page(1000), "the new page is not freed with the old one");
    zswap.check().expect("no defect");
}

#[test]
fn without_room_in_the_queue_the_object_is_freed_in_the_call() {
    let none = QueueConfig { pending_bytes_max: 0, ..QueueConfig::default() };
    for (zswap, fallbacks) in [(later(none), PAGES), (cache(64 << 20, None), 0)] {
        let area = zswap.add_area(PAGES).expect("room");
        for at in 0..PAGES {
            area.store(at, &page(at), GroupId::ROOT).expect("room");
            area.invalidate(at);
        }
        let meters = area.deferred();
        assert_eq!((meters.pending_values, meters.fallbacks), (0, fallbacks));
        assert_eq!(zswap.stat().pool_total_size, 0);
    }
}
