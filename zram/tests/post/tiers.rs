//! Tiers: where pages go, and the tables that a device trains for them.
//!
//! Claims
//! - Tables come into use if they gain more than 3 % on pages that they were not trained on, and
//!   only then. They are trained on pages from everywhere.
//! - If balanced, the first algorithm searches longer where pagelz saves too little.
//! - An algorithm that learns gets one dictionary, if that gains as much, and more than it takes.
//! - Tables stay until the last page that needs them is gone, also one on the backing disk, and all
//!   of them are counted.
//! - Whatever the tiers do meanwhile, a page reads as it was written.
//! - A device has tiers once, and says why they were turned off.
//!
//! Covered elsewhere: when a page goes where (`rule`), any order of operations (`twin`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::devices::{PAGE, blocks, data, memory, read, write};
use disk::Disk;
use ramfold_zram::{
    Codec, Density, Selection, TierStat, Tiers, TiersConfig, Verdict, WriteBack, Zram, ZramConfig,
};

/// Enough pages to train on.
const MANY: u64 = 2000;

/// Every page is as old as can be.
fn now(density: Density) -> TiersConfig {
    TiersConfig { age: Duration::ZERO, ..TiersConfig::new(density) }
}

fn config() -> ZramConfig {
    ZramConfig { track_ages: true, ..ZramConfig::new("zram0", 4 * MANY * PAGE as u64) }
}

fn device(config: ZramConfig) -> Zram {
    Zram::new(memory(false), config).expect("a device")
}

/// A page of 16 letters in no order, and a part of it again. Only a code for just these letters
/// makes the letters smaller.
fn letters(page: u64, first: u8) -> Vec<u8> {
    let mut state = page * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(page | 1);
        (state >> 60) as u8
    };
    let mut letters: Vec<u8> = (0..2 * PAGE / 3).map(|_| first + next()).collect();
    letters.extend_from_within(..PAGE - letters.len());
    letters
}

fn fill(zram: &Zram, first: u8) {
    (0..MANY).for_each(|page| write(zram, page, &letters(page, first)));
}

#[track_caller]
fn holds(zram: &Zram, first: u8) {
    assert!((0..MANY).all(|page| read(zram, page) == letters(page, first)), "as it was written");
    zram.check().expect("no defect");
}

/// A device that had tiers, so that it shows what it has.
fn with_tiers(config: ZramConfig, density: Density) -> Arc<Zram> {
    let zram = Arc::new(device(config));
    drop(Tiers::start(&zram, TiersConfig::new(density)).expect("tiers"));
    zram
}

/// The generations of tables that it has.
fn generations(zram: &Zram) -> Vec<u32> {
    zram.tier_stat().expect("tiers").tiers.iter().filter_map(|tier| tier.generation).collect()
}

#[test]
fn tables_of_the_devices_own_pages_come_into_use_and_go_with_the_last_page() {
    let zram = with_tiers(config(), Density::Balanced);
    fill(&zram, 0x80);
    let raw = zram.compr_data_size();
    let without = zram.stat().metadata.codec_contexts;
    zram.tend(&now(Density::Balanced)).expect("room");
    let with = zram.stat().metadata.codec_contexts;
    assert!(with > without + 30_000, "{without}, and {with} with the tables");
    assert_eq!(generations(&zram), [1], "the shipped tables were not needed");
    holds(&zram, 0x80);
    let stored = zram.compr_data_size();
    assert!(stored < raw * 7 / 10, "{stored} of {raw} bytes: four bits for a letter");
    // The second generation is for other pages. The first is needed until those are rewritten.
    (0..MANY).for_each(|page| write(&zram, page + MANY, &letters(page, 0xc0)));
    let training = zram.train_tables().expect("memory");
    assert_eq!(training.verdict, Verdict::Adopted(2), "{training:?}");
    assert!(training.gain() > 0.03, "{training:?}");
    assert_eq!(generations(&zram), [1, 2], "pages need the first");
    zram.check().expect("no defect");
    zram.tend(&now(Density::Balanced)).expect("room");
    assert!(zram.compr_data_size() < 2 * stored * 11 / 10, "all pages have fitting tables");
    holds(&zram, 0x80);
    assert_eq!(generations(&zram), [2], "nothing needs the first any more");
}

/// A page of phrases that begin alike. A short search finds how the last one began, and a longer
/// search finds the one that is the same.
fn phrases(page: u64) -> Vec<u8> {
    let mut state = page * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(page | 1);
        (state >> 56) as u8
    };
    let ends: Vec<u8> = (0..16 * 12).map(|_| next()).collect();
    let mut bytes = Vec::new();
    while bytes.len() < PAGE {
        bytes.push(next());
        bytes.extend_from_slice(b"begin");
        let end = usize::from(next() >> 4) * 12;
        bytes.extend_from_slice(&ends[end..end + 12]);
    }
    bytes.truncate(PAGE);
    bytes
}

#[test]
fn balanced_searches_longer_where_pagelz_saves_too_little() {
    let zram = device(config());
    (0..MANY).for_each(|page| write(&zram, page, &phrases(page)));
    let (before, contexts) = (zram.compr_data_size(), zram.stat().metadata.codec_contexts);
    zram.tend(&now(Density::Balanced)).expect("room");
    let after = zram.compr_data_size();
    assert!(after < before * 9 / 10, "{after} of {before} bytes");
    let states: Vec<_> = zram.block_states(0..MANY).collect();
    let first = states.iter().filter(|it| it.idle && !it.recompressed && !it.incompressible);
    assert!(first.count() as u64 > MANY * 9 / 10, "they are blobs of the first algorithm");
    let more = zram.stat().metadata.codec_contexts - contexts;
    assert!(more < 120_000, "{more} bytes: the context of the search is gone");
    zram.tend(&now(Density::Balanced)).expect("room");
    assert_eq!(zram.compr_data_size(), after, "a second pass finds nothing to do");
    assert!((0..MANY).all(|page| read(&zram, page) == phrases(page)), "as it was written");
    zram.check().expect("no defect");
}

#[test]
fn tables_stay_for_a_page_on_the_backing_disk() {
    let backing: Arc<dyn Disk> = blocks(16);
    let backing = Some(backing);
    let config = ZramConfig { backing, compressed_writeback: true, ..config() };
    let zram = with_tiers(config, Density::Balanced);
    fill(&zram, 0x80);
    zram.tend(&now(Density::Balanced)).expect("room");
    let page = WriteBack::from(Selection::Pages(vec![7..=7]));
    assert_eq!(zram.write_back(&page).expect("room").pages, 1);
    assert_eq!(generations(&zram), [1]);
    let next = zram.use_tables(&codec::shipped_tables()).expect("tables");
    assert_eq!(next, Verdict::Adopted(2));
    zram.tend(&now(Density::Balanced)).expect("room");
    assert_eq!(generations(&zram), [1, 2], "page 7 needs the first");
    assert_eq!(zram.use_tables(&codec::shipped_tables()).expect("tables"), Verdict::NoPlace);
    holds(&zram, 0x80);
    write(&zram, 7, &letters(7, 0x80));
    zram.tend(&now(Density::Balanced)).expect("room");
    // The shipped tables do not fit, so the third generation is trained.
    assert_eq!(generations(&zram), [3], "nothing needs the others any more");
    holds(&zram, 0x80);
}

#[test]
fn tables_that_gain_too_little_are_forgotten() {
    let zram = device(config());
    assert_eq!(zram.train_tables().expect("memory").verdict, Verdict::TooFewPages);
    // Nothing makes these smaller.
    (0..MANY).for_each(|page| write(&zram, page, &data(page, 1)));
    let training = zram.train_tables().expect("memory");
    assert_eq!(training.verdict, Verdict::TooLittle, "{training:?}");
    assert_eq!((training.pages, training.judged), (512, 128));
}

/// The first 600 pages are of other letters. Tables that are trained on them would not fit the
/// others.
#[test]
fn tables_are_trained_on_pages_from_everywhere() {
    let zram = device(config());
    for page in 0..MANY {
        write(&zram, page, &letters(page, if page < 600 { 0x20 } else { 0xb0 }));
    }
    let training = zram.train_tables().expect("memory");
    assert_eq!(training.verdict, Verdict::Adopted(1), "{training:?}");
    assert!(training.gain() > 0.3, "most pages gain nearly half: {training:?}");
}

#[test]
fn what_is_no_tables_is_refused() {
    let zram = device(config());
    let error = zram.use_tables(b"pagelz\0\x09").expect_err("another version");
    assert!(error.to_string().contains("no tables of pagelz"), "{error}");
    let error = device(ZramConfig { track_ages: false, ..config() });
    let error = error.tend(&now(Density::Dense)).expect_err("no ages").to_string();
    assert!(error.contains("does not note when pages are used"), "{error}");
}

/// zstd is denser for the letters. pagelz is for pages with little in them.
#[test]
fn a_cold_page_goes_to_the_densest_algorithm() {
    let mut config = config();
    config.recompression[2] = Some("zstd".parse::<Codec>().expect("a codec"));
    config.disksize = 8 * (MANY + 100) * PAGE as u64;
    let zram = with_tiers(config, Density::Dense);
    // Their neighbours hold nothing, so that they are in no units.
    let apart = |page: u64| 8 * page;
    (0..MANY).for_each(|page| write(&zram, apart(page), &letters(page, 0x80)));
    let sparse = |page: u64| -> Vec<u8> {
        let word = |at: u64| if at.is_multiple_of(40) { (at * 8 + page) as u32 } else { 0 };
        (0..PAGE as u64 / 4).flat_map(|at| word(at).to_le_bytes()).collect()
    };
    (0..100).for_each(|page| write(&zram, apart(MANY + page), &sparse(page)));
    zram.tend(&now(Density::Dense)).expect("room");
    let TierStat { tiers, denser, training, .. } = zram.tier_stat().expect("tiers");
    assert_eq!(tiers.iter().map(|tier| tier.pages).sum::<u64>(), MANY + 100);
    let pages = |algorithm: &str| -> u64 {
        tiers.iter().filter(|tier| tier.algorithm == algorithm).map(|tier| tier.pages).sum()
    };
    assert!(pages("pagelz") >= 90, "{tiers:?} {training:?}");
    assert!(pages("zstd") >= MANY * 9 / 10, "{tiers:?}");
    assert!(denser >= MANY * 9 / 10, "{denser} pages became denser");
    let bytes: u64 = tiers.iter().map(|tier| tier.bytes).sum();
    assert_eq!(bytes, zram.compr_data_size());
    (0..100).for_each(|page| assert!(read(&zram, apart(MANY + page)) == sparse(page)));
    (0..MANY).for_each(|page| assert!(read(&zram, apart(page)) == letters(page, 0x80)));
    zram.check().expect("no defect");
    // A second pass finds nothing to do.
    let before = (zram.compr_data_size(), zram.tier_stat().expect("tiers").denser);
    zram.tend(&now(Density::Dense)).expect("room");
    assert_eq!((zram.compr_data_size(), zram.tier_stat().expect("tiers").denser), before);
}

/// A page of phrases, none of them twice. Other pages have the same ones.
fn phrase_book(page: u64) -> Vec<u8> {
    const PHRASES: u64 = 300;
    let phrase = |number: u64| {
        let mut state = number * 2 + 1;
        (0..64).map(move |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number | 1);
            (state >> 56) as u8
        })
    };
    (0..PAGE as u64 / 64).flat_map(|at| phrase((page * 7 + at * 4) % PHRASES)).collect()
}

fn learning(density: Density) -> ZramConfig {
    let mut config = config();
    config.recompression[2] = density.learning_codec();
    config.disksize = 8 * (2 * MANY) * PAGE as u64;
    config
}

#[test]
fn a_dense_device_learns_a_dictionary_once_and_reads_what_it_had_before() {
    let zram = with_tiers(learning(Density::Dense), Density::Dense);
    let apart = |page: u64| 8 * page;
    let fill = |pages: std::ops::Range<u64>| {
        pages.for_each(|page| write(&zram, apart(page), &phrase_book(page)));
    };
    let stat = || zram.tier_stat().expect("tiers");
    fill(0..1000);
    zram.tend(&now(Density::Dense)).expect("room");
    assert_eq!(stat().dictionary, None, "there are too few pages");
    let (raw, without) = (zram.compr_data_size(), zram.stat().metadata.codec_contexts);
    assert!(raw > 1000 * 3000, "{raw}: alone they do not compress");
    fill(1000..MANY);
    zram.tend(&now(Density::Dense)).expect("room");
    let learned = stat().dictionary.expect("it was tried");
    assert_eq!(learned.verdict, Verdict::Adopted(1), "{learned:?}");
    assert!(learned.gain() > 0.5, "{learned:?}");
    let more = zram.stat().metadata.codec_contexts - without;
    assert!((48_000..160_000).contains(&more), "{more} bytes: the digest for compressing is gone");
    let now_takes = zram.compr_data_size();
    assert!(now_takes < raw + 1000 * 1500, "{now_takes} of {raw} and half as much");
    let all_read = || (0..MANY).all(|page| read(&zram, apart(page)) == phrase_book(page));
    assert!(all_read(), "with the dictionary and without");
    zram.check().expect("no defect");
    // What is written again gets it too, and there is no other one.
    fill(0..MANY);
    zram.tend(&now(Density::Dense)).expect("room");
    assert!(zram.compr_data_size() < MANY * 1500 && all_read(), "{}", zram.compr_data_size());
    assert_eq!(stat().dictionary, Some(learned));
    zram.check().expect("no defect");
}

/// A page of one text again and again, of which a part is in all pages.
fn greeting(page: u64) -> Vec<u8> {
    let (all, own) = (phrase_book(1), data(page, 1));
    let text = all[..40].iter().chain(&own[..460]).copied();
    text.cycle().take(PAGE).collect()
}

/// LZ4 with a dictionary is read nearly as fast, so its pages count as those of LZ4.
#[test]
fn a_balanced_device_searches_in_a_dictionary_of_its_own() {
    let zram = with_tiers(learning(Density::Balanced), Density::Balanced);
    let all_read = || (0..MANY).all(|page| read(&zram, page) == phrase_book(page));
    (0..MANY).for_each(|page| write(&zram, page, &phrase_book(page)));
    zram.tend(&now(Density::Balanced)).expect("room");
    let TierStat { tiers, dictionary, denser, .. } = zram.tier_stat().expect("tiers");
    let learned = dictionary.expect("it was tried");
    assert!(learned.verdict == Verdict::Adopted(1) && learned.gain() > 0.5, "{learned:?}");
    let searched = tiers.iter().find(|tier| tier.algorithm == "lz4hc").expect("a tier");
    assert!(searched.pages >= MANY * 9 / 10 && denser >= searched.pages, "{tiers:?}");
    let takes = zram.compr_data_size();
    assert!(takes < MANY * 1000, "{takes}");
    assert!(all_read(), "as it was written");
    zram.check().expect("no defect");
    for _ in 0..2 {
        // They were read, and nothing makes them smaller.
        zram.tend(&now(Density::Balanced)).expect("room");
        assert_eq!(zram.compr_data_size(), takes);
    }
    assert!(all_read(), "as it was written");
}

#[test]
fn a_dictionary_has_to_save_more_than_it_takes() {
    let zram = with_tiers(learning(Density::Dense), Density::Dense);
    let fill = |pages: std::ops::Range<u64>| {
        pages.for_each(|page| write(&zram, 8 * page, &greeting(page)));
    };
    let tried = || {
        zram.tend(&now(Density::Dense)).expect("room");
        zram.tier_stat().expect("tiers").dictionary.expect("it was tried")
    };
    fill(0..1300);
    let few = tried();
    assert!(few.verdict == Verdict::TooLittle && few.gain() > 0.05, "{few:?}");
    fill(1300..2 * MANY);
    let many = tried();
    assert!(many.verdict == Verdict::Adopted(1) && many.gain() < few.gain() * 2.0, "{many:?}");
}

#[test]
fn a_dictionary_that_gains_too_little_is_forgotten() {
    let zram = with_tiers(learning(Density::Dense), Density::Dense);
    (0..MANY).for_each(|page| write(&zram, 8 * page, &letters(page, 0x80)));
    zram.tend(&now(Density::Dense)).expect("room");
    let tried = zram.tier_stat().expect("tiers").dictionary.expect("it was tried");
    assert_eq!((tried.verdict, tried.judged), (Verdict::TooLittle, 128), "{tried:?}");
    let codec = zram.config().recompression[2].as_ref().expect("the densest");
    assert!(codec.is_learning(), "it may learn one later");
}

/// Two threads with pages of their own, while a third tends all pages and trains. Not a benchmark.
#[test]
fn threads_find_their_pages_whatever_the_tiers_do() {
    threads_find_their_pages(&device(config()), Density::Balanced);
    threads_find_their_pages(&device(learning(Density::Balanced)), Density::Balanced);
    threads_find_their_pages(&device(learning(Density::Dense)), Density::Dense);
}

fn threads_find_their_pages(zram: &Zram, density: Density) {
    fill(zram, 0x80);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let worker = |mine: u64| {
            move || {
                for round in 0..6 {
                    for page in (mine..MANY).step_by(2) {
                        assert!(read(zram, page) == letters(page, 0x80 + 2 * round));
                        write(zram, page, &letters(page, 0x82 + 2 * round));
                    }
                }
            }
        };
        let workers = [scope.spawn(worker(0)), scope.spawn(worker(1))];
        scope.spawn(|| {
            // relaxed: a flag of its own.
            while !over.load(Ordering::Relaxed) {
                zram.tend(&now(density)).expect("room");
                zram.train_tables().expect("memory");
            }
        });
        let ended = workers.map(|it| it.join());
        // relaxed: as above.
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a page was not what it was");
    });
    holds(zram, 0x8c);
}

#[test]
fn a_device_has_tiers_once_and_says_why_it_has_none() {
    let zram = Arc::new(device(config()));
    let start = |config| Tiers::start(&zram, config).map_err(|error| error.to_string());
    let balanced = TiersConfig::new(Density::Balanced);
    let refused = [
        (TiersConfig::new(Density::Fast), "fast has no tiers"),
        (TiersConfig { age: Duration::ZERO, ..balanced }, "at least a second"),
        (TiersConfig { cpu_percent: 0, ..balanced }, "1 to 100 percent"),
        (TiersConfig { cpu_percent: 101, ..balanced }, "1 to 100 percent"),
    ];
    for (config, why) in refused {
        let error = start(config).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
    let tiers = start(balanced).expect("the first");
    let error = start(balanced).expect_err("the second");
    assert!(error.contains("tiers already"), "{error}");
    assert_eq!(zram.tiers_off(), None);
    tiers.turn_off("idle was written");
    assert_eq!(zram.tiers_off().as_deref(), Some("idle was written"));
    assert_eq!(zram.tier_stat().expect("it had some").density, Density::Balanced);
    drop(start(balanced).expect("again"));
    assert_eq!(zram.tiers_off(), None);
}
