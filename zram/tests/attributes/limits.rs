//! `mem_limit`, `memory_target`, `mem_used_max`, `compact`, and the settings of write-back.

use std::time::{Duration, Instant};

use disk::{Disk, DiskError};
use ramfold_zram::{Attribute, Device, DeviceDefaults, Errno};

use crate::rig::{
    MIB, PAGE, Scratch, Use, added, devices_at_work, devices_with, fresh, initialised, page,
};

#[test]
fn mem_limit_is_a_size_at_any_time() {
    let device = fresh();
    assert_eq!(device.column("mm_stat", 3), 0);
    device.write("mem_limit", "25M\n");
    assert_eq!(device.column("mm_stat", 3), 26_214_400, "before there is a size");
    device.write("disksize", "1M");
    assert_eq!(device.column("mm_stat", 3), 26_214_400, "the device starts with it");
    device.write("mem_limit", "1");
    assert_eq!(device.column("mm_stat", 3), 4096, "whole pages");
    device.write("mem_limit", "0");
    assert_eq!(device.column("mm_stat", 3), 0);
    for text in ["", "K", "much", "-1"] {
        let line = device.refuses("mem_limit", text, Errno::Invalid);
        assert!(line.contains("is not a size"), "{line}");
    }
    for text in ["99999999999999999999", "18446744073709551615"] {
        let line = device.refuses("mem_limit", text, Errno::Invalid);
        assert!(line.contains("too large"), "it is a size: {line}");
    }
}

#[test]
fn mem_limit_refuses_writes_beyond_it() {
    let device = initialised();
    device.write("mem_limit", "64K");
    let disk = device.disk().unwrap();
    let refused = (0..64).find_map(|number| disk.write(number << 12, &page(number, 1)).err());
    assert!(matches!(refused, Some(DiskError::NoSpace)), "{refused:?}");
}

#[test]
fn a_reset_goes_back_to_the_limit_that_devices_are_added_with() {
    let devices = devices_with(DeviceDefaults { mem_limit: 1 << 20, ..DeviceDefaults::default() });
    let device = added(&devices);
    assert_eq!(device.column("mm_stat", 3), 1 << 20);
    device.write("mem_limit", "2M");
    device.write("reset", "1");
    assert_eq!(device.column("mm_stat", 3), 1 << 20);
}

#[test]
fn memory_target_is_a_size_at_any_time() {
    let device = fresh();
    assert_eq!(device.read("memory_target"), "0\n");
    device.write("memory_target", "25M\n");
    assert_eq!(device.read("memory_target"), "26214400\n", "before there is a size");
    let held_at = |device: &Device| device.disk().expect("it has a size").hold_stat().target_bytes;
    device.write("disksize", "16M");
    assert_eq!(held_at(&device), 26_214_400, "the device starts with it");
    for (text, bytes) in [("1", 4096), ("1M", MIB), ("0", 0), ("2M", 2 * MIB)] {
        device.write("memory_target", text);
        assert_eq!(device.read("memory_target"), format!("{bytes}\n"), "whole pages");
        assert_eq!((held_at(&device), device.memory_target()), (bytes, bytes));
    }
    for text in ["", "K", "much", "-1", "18446744073709551615"] {
        let line = device.refuses("memory_target", text, Errno::Invalid);
        assert!(line.contains("write 0 for no target"), "{line}");
    }
    assert_eq!(held_at(&device), 2 * MIB, "what is refused changes nothing");
    device.write("reset", "1");
    assert_eq!(device.read("memory_target"), "0\n");
}

/// The device was made without a target, and noted no ages.
#[test]
fn memory_target_holds_a_device_in_use() {
    let devices = devices_at_work();
    let device = added(&devices);
    let file = Scratch::sized("target", 64 * MIB);
    device.write("backing_dev", file.text());
    device.write("disksize", "64M");
    let pages = 4096;
    (0..pages).for_each(|number| device.put(number, &page(number, 2)));
    let disk = device.disk().expect("it has a size");
    assert!(disk.object_bytes_resident() > 4 * MIB);
    device.refuses("idle", "0", Errno::Invalid);
    device.write("memory_target", "1M");
    let deadline = Instant::now() + Duration::from_secs(60);
    while disk.object_bytes_resident() > MIB {
        assert!(Instant::now() < deadline, "never held: {:?}", disk.hold_stat());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(device.column("bd_stat", 0) > 0, "pages are on the backing device");
    device.write("idle", "0"); // ages are noted now
    let mut content = [0; PAGE];
    for number in 0..pages {
        disk.read(number * PAGE as u64, &mut content).expect("it is stored");
        assert!(content[..] == page(number, 2), "page {number}");
    }
}

#[test]
fn a_reset_goes_back_to_the_target_that_devices_are_added_with() {
    let defaults = DeviceDefaults { memory_target: Some(MIB), ..DeviceDefaults::default() };
    let device = added(&devices_with(defaults));
    assert_eq!(device.read("memory_target"), "1048576\n");
    device.write("memory_target", "2M");
    device.write("reset", "1");
    assert_eq!(device.read("memory_target"), "1048576\n");
}

#[test]
fn mem_used_max_takes_only_0() {
    let device = fresh();
    device.write("mem_used_max", "0");
    device.write("disksize", "16M");
    (0..64).for_each(|number| device.put(number, &page(number, 1)));
    let most = device.column("mm_stat", 4);
    device.disk().unwrap().discard(0, 16 << 20).unwrap();
    device.write("compact", "1");
    assert_eq!(device.column("mm_stat", 4), most, "it outlives what it counted");
    for text in ["1", "", "x", "0x0", "99999999999999999999"] {
        device.refuses("mem_used_max", text, Errno::Invalid);
    }
    device.write("mem_used_max", "0\n");
    assert_eq!(device.column("mm_stat", 4), 0);
}

#[test]
fn compact_takes_anything_once_there_is_a_size() {
    let device = fresh();
    let line = device.refuses("compact", "1", Errno::Invalid);
    assert!(line.contains("disksize"), "{line}");
    device.write("disksize", "16M");
    (0..512).for_each(|number| device.put(number, &page(number, 16)));
    let disk = device.disk().unwrap();
    (0..512).filter(|number| number % 4 > 0).for_each(|n| disk.discard(n << 12, 4096).unwrap());
    let before = device.column("mm_stat", 2);
    for text in ["1", "0", "please\n"] {
        device.write("compact", text);
    }
    assert!(device.column("mm_stat", 2) < before, "frames are freed");
    assert!(device.column("mm_stat", 6) > 0, "and counted");
}

#[test]
fn writeback_limit_counts_blocks() {
    let device = fresh();
    assert_eq!(device.read("writeback_limit"), "0\n");
    device.write("writeback_limit", "18446744073709551615\n");
    assert_eq!(device.read("writeback_limit"), "18446744073709551615\n");
    for text in ["", "x", "-1", "1K", "18446744073709551616"] {
        device.refuses("writeback_limit", text, Errno::Invalid);
    }
    device.write("disksize", "1M");
    device.write("writeback_limit", "7");
    assert_eq!(device.read("writeback_limit"), "7\n", "also of a device in use");
}

#[test]
fn writeback_limit_enable_is_any_number_and_reads_as_0_or_1() {
    let device = fresh();
    assert_eq!(device.read("writeback_limit_enable"), "0\n");
    device.write("writeback_limit_enable", "1\n");
    assert_eq!(device.read("writeback_limit_enable"), "1\n");
    for text in ["", "x", "y", "-1"] {
        device.refuses("writeback_limit_enable", text, Errno::Invalid);
    }
    for (text, shown) in [("2", "1\n"), ("0", "0\n"), ("100", "1\n")] {
        device.write("writeback_limit_enable", text);
        assert_eq!(device.read("writeback_limit_enable"), shown, "after writing {text}");
    }
    device.write("disksize", "1M");
    device.write("writeback_limit_enable", "0");
    assert_eq!(device.read("writeback_limit_enable"), "0\n", "also of a device in use");
}

#[test]
fn writeback_batch_size_is_32_at_first_and_never_0() {
    let device = fresh();
    assert_eq!(device.read("writeback_batch_size"), "32\n");
    device.write("writeback_batch_size", "4294967295");
    assert_eq!(device.read("writeback_batch_size"), "4294967295\n");
    for text in ["0", "", "x", "-1", "4294967296"] {
        device.refuses("writeback_batch_size", text, Errno::Invalid);
    }
    device.write("disksize", "1M");
    device.write("writeback_batch_size", "1\n");
    assert_eq!(device.read("writeback_batch_size"), "1\n", "also of a device in use");
}

#[test]
fn compressed_writeback_is_fixed_with_the_size() {
    let device = fresh();
    assert_eq!(device.read("compressed_writeback"), "0\n");
    for (text, shown) in [("1", "1\n"), ("n", "0\n"), ("on", "1\n"), ("off\n", "0\n")] {
        device.write("compressed_writeback", text);
        assert_eq!(device.read("compressed_writeback"), shown, "{text:?}");
    }
    for text in ["", "2", "maybe"] {
        device.refuses("compressed_writeback", text, Errno::Invalid);
    }
    device.write("disksize", "1M");
    device.refuses("compressed_writeback", "1", Errno::Busy);
}

/// Two devices of one memory have zspages of different lengths, and the statistics say so.
#[test]
fn pages_per_pool_page_is_a_devices_own_and_fixed_with_the_size() {
    let (short, long) = (fresh(), fresh());
    assert_eq!(short.read("pages_per_pool_page"), "8\n");
    for text in ["", "0", "3", "32", "-1", "x", "18446744073709551615"] {
        short.refuses("pages_per_pool_page", text, Errno::Invalid);
    }
    for (device, pages, order) in [(&short, "4\n", 2), (&long, "+16", 4)] {
        device.write("pages_per_pool_page", pages);
        device.write("disksize", "1M");
        let disk = device.disk().expect("it has a size");
        assert_eq!(disk.stat().chain_order, order);
        let longest = disk.classes().rows.iter().map(|row| row.pages_per_zspage).max();
        assert_eq!(longest, Some(1 << order), "{pages:?}");
        let line = device.refuses("pages_per_pool_page", "8", Errno::Invalid);
        assert!(line.contains("reset"), "{line}");
    }
}

/// If only the text is wrong, every device refuses it. A text that a device takes is not wrong.
#[test]
fn a_text_is_judged_as_devices_do() {
    let texts = ["", "0", "1", "1M", "-1", "all", "much", "huge", "type=idle", "type=all", "lz4"];
    let pairs = ["algo=zstd", "algo=best", "priority=9", "page_index=x", "threshold=x", "level="];
    let large = ["65536", "99999999999", "18446744073709551615", "99999999999999999999"];
    let mut refused = 0;
    for attribute in Attribute::ALL {
        for text in texts.iter().chain(&pairs).chain(&large) {
            let Err(wrong) = attribute.judge(text) else { continue };
            refused += 1;
            assert!(wrong.to_string().starts_with(attribute.name()), "{wrong}");
            for device in [fresh(), initialised()] {
                let stored = device.store(attribute, text.as_bytes());
                assert!(stored.is_err(), "{attribute} {text:?}: {wrong}");
            }
        }
    }
    assert!(refused > 100, "{refused} texts are wrong for some attribute");
    let right = [
        ("disksize", "1M"),
        ("reset", "1"),
        ("comp_algorithm", "zstd"),
        ("recomp_algorithm", "algo=zstd priority=2"),
        ("algorithm_params", "algo=zstd level=7 dict=/nonexistent"),
        ("mem_limit", "0"),
        ("mem_used_max", "0"),
        ("compact", "0"),
        ("idle", "60"),
        ("writeback", "page_indexes=0-99 huge"),
        ("backing_dev", "/nonexistent"),
        ("writeback_limit", "0"),
        ("writeback_limit_enable", "1"),
        ("writeback_batch_size", "1"),
        ("compressed_writeback", "off"),
        ("recompress", "type=idle algo=zstd threshold=100"),
    ];
    for (name, text) in right {
        assert_eq!(Attribute::from_name(name).unwrap().judge(text), Ok(()), "{name} {text}");
    }
}
