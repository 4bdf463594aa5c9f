//! `idle`, `recompress`, `block_state`.

use std::sync::Arc;

use ramfold_zram::{Device, DeviceDefaults, Errno};

use crate::rig::{PAGE, Use, added, devices_with, fresh, initialised, page};

/// A device of 16 MiB with two algorithms behind the first, and 64 pages stored.
fn recompressible() -> Arc<Device> {
    let device = fresh();
    device.write("recomp_algorithm", "algo=zstd priority=1");
    device.write("algorithm_params", "priority=1 level=1");
    device.write("recomp_algorithm", "algo=lz4 priority=2");
    device.write("disksize", "16M");
    (0..64).for_each(|number| device.put(number, &page(number, if number < 8 { 1 } else { 6 })));
    device
}

fn tracking() -> Arc<Device> {
    let devices = devices_with(DeviceDefaults { track_ages: true, ..DeviceDefaults::default() });
    added(&devices)
}

/// The flags of every page that is stored.
fn flags(device: &Device) -> Vec<String> {
    let states = device.block_states(0, 1 << 20).expect("it is initialised");
    assert_eq!(states.next, None);
    states.text.lines().filter_map(|line| Some(line.split_whitespace().last()?.into())).collect()
}

fn idle_pages(device: &Device) -> usize {
    flags(device).iter().filter(|flags| flags.contains('i')).count()
}

#[test]
fn idle_all_marks_what_is_stored_until_it_is_used() {
    let device = initialised();
    (0..8).for_each(|number| device.put(number, &page(number, 4)));
    device.put(8, &[7; PAGE]);
    assert_eq!(idle_pages(&device), 0);
    device.write("idle", "all\n");
    assert_eq!(idle_pages(&device), 8, "a same-filled page has nothing to move");
    disk::Disk::read(&*device.disk().unwrap(), 0, &mut [0; PAGE]).unwrap();
    device.put(1, &page(1, 4));
    assert_eq!(idle_pages(&device), 6);
}

#[test]
fn idle_takes_seconds_where_ages_are_noted() {
    let device = tracking();
    device.write("disksize", "16M");
    device.put(0, &page(0, 4));
    device.write("idle", "3600\n");
    assert_eq!(idle_pages(&device), 0, "it was written just now");
    device.write("idle", "0x0");
    assert_eq!(idle_pages(&device), 1, "0 seconds ago is now");
}

#[test]
fn idle_refuses_other_words_ages_without_notes_and_devices_without_a_size() {
    let device = fresh();
    device.refuses("idle", "all", Errno::Invalid);
    device.write("disksize", "1M");
    for text in ["", "some", "All", "-1", "1s", "1"] {
        device.refuses("idle", text, Errno::Invalid);
    }
    let device = tracking();
    device.refuses("idle", "1", Errno::Invalid);
    device.refuses("idle", "1s", Errno::Invalid);
}

/// Marked pages once stayed marked when a later call named an age that they had not reached. Then a
/// write-back of idle pages evicted hot ones.
#[test]
fn idle_of_an_age_clears_the_mark_of_younger_pages() {
    let device = tracking();
    device.write("disksize", "1M");
    (0..8).for_each(|number| device.put(number, &page(number, 4)));
    device.write("idle", "all");
    assert_eq!(idle_pages(&device), 8, "idle pages after all");
    device.write("idle", "4");
    assert_eq!(idle_pages(&device), 0, "idle pages of 4 seconds, all written just now");
}

#[test]
fn idle_of_an_age_beyond_the_systems_is_no_pages() {
    let device = tracking();
    device.refuses("idle", "4294967295", Errno::Invalid);
    device.write("disksize", "1M");
    device.put(0, &page(0, 4));
    device.write("idle", "all");
    device.write("idle", "4294967295");
    assert_eq!(idle_pages(&device), 0, "idle pages of an age that nothing has");
}

/// They were once taken for ages that no page has. The kernel reads 32 bits.
#[test]
fn idle_refuses_ages_of_more_than_32_bits() {
    let device = tracking();
    device.write("disksize", "1M");
    for text in ["4294967296", "18446744073709551615", "0x100000000"] {
        let line = device.refuses("idle", text, Errno::Invalid);
        assert!(line.contains(text), "{line}");
    }
}

#[test]
fn recompress_makes_pages_smaller_and_gives_up_on_some() {
    let device = recompressible();
    let before = device.column("mm_stat", 1);
    device.write("recompress", "type=huge\n");
    assert_eq!(device.column("mm_stat", 1), before, "noise stays noise");
    device.write("recompress", "priority=1");
    assert!(device.column("mm_stat", 1) < before);
    let flags = flags(&device);
    assert!(flags[8..].iter().all(|flags| flags.contains('r')), "{flags:?}");
    assert!(!flags[0].contains('n'), "a higher priority may do better yet: {flags:?}");
    device.write("recompress", "priority=2");
    assert!(self::flags(&device)[0].contains('n'), "the highest gave up");
}

#[test]
fn recompress_chooses_by_type_algorithm_threshold_and_number() {
    let recompressed = |texts: &[&str]| {
        let device = recompressible();
        device.write("idle", "all");
        device.put(8, &page(8, 6));
        texts.iter().for_each(|text| device.write("recompress", text));
        flags(&device).iter().filter(|flags| flags.contains('r')).count()
    };
    assert_eq!(recompressed(&["type=idle"]), 55);
    assert_eq!(recompressed(&["type=huge_idle"]), 0);
    assert_eq!(recompressed(&["algo=zstd"]), 56);
    assert_eq!(recompressed(&["algo=zstd priority=1 colour=red"]), 56);
    assert_eq!(recompressed(&["max_pages=9 type=idle"]), 1, "the 8 largest are noise");
    assert_eq!(recompressed(&["max_pages=0"]), 0);
    assert_eq!(recompressed(&["threshold=3000"]), 0, "nothing compressed is so large");
}

#[test]
fn recompress_refuses_what_makes_no_sense() {
    fresh().refuses("recompress", "type=idle", Errno::Invalid);
    initialised().refuses("recompress", "priority=1", Errno::Invalid);
    let device = recompressible();
    for text in [
        "idle",
        "type",
        "type=cold",
        "priority=0",
        "priority=3",
        "priority=4",
        "priority=x",
        "algo=best",
        "priority=1 algo=lz4",
        "threshold=4096",
        "threshold=x",
        "max_pages=-1",
    ] {
        device.refuses("recompress", text, Errno::Invalid);
    }
    device.refuses("recompress", "threshold=4294967296", Errno::Range);
    device.refuses("recompress", "max_pages=18446744073709551616", Errno::Range);
}

#[test]
fn block_state_has_a_line_for_each_stored_page() {
    assert_eq!(fresh().block_states(0, 4096).unwrap_err().kind(), Errno::Invalid);
    let device = initialised();
    device.put(3, &[7; PAGE]);
    device.put(300, &page(1, 1));
    device.put(4095, &page(2, 16));
    let whole = device.block_states(0, 1 << 20).unwrap();
    assert_eq!(
        whole.text,
        concat!(
            "           3            0.000000 s.....\n",
            "         300            0.000000 ..h...\n",
            "        4095            0.000000 ......\n",
        )
    );
    let (mut text, mut next, mut parts) = (String::new(), Some(0), 0);
    while let Some(page) = next {
        let part = device.block_states(page, 50).unwrap();
        assert!(part.text.len() <= 50, "{}", part.text);
        (text, next, parts) = (text + &part.text, part.next, parts + 1);
    }
    assert_eq!((text, parts), (whole.text, 3), "piece by piece it is the same");
}
