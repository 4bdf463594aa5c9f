//! `disksize`, `initstate`, `reset`, and which attributes can be read and written.

use std::sync::Mutex;

use ramfold_zram::{Attribute, Errno};

use crate::rig::{PAGE, Use, fresh, initialised, page};

#[test]
fn modes_are_the_kernels_and_hold_for_everybody() {
    let rows = [
        ("disksize", 0o644),
        ("initstate", 0o444),
        ("reset", 0o200),
        ("comp_algorithm", 0o644),
        ("recomp_algorithm", 0o644),
        ("algorithm_params", 0o200),
        ("mem_limit", 0o200),
        ("memory_target", 0o644),
        ("mem_used_max", 0o200),
        ("compact", 0o200),
        ("idle", 0o200),
        ("writeback", 0o200),
        ("backing_dev", 0o644),
        ("writeback_limit", 0o644),
        ("writeback_limit_enable", 0o644),
        ("writeback_batch_size", 0o644),
        ("compressed_writeback", 0o644),
        ("pages_per_pool_page", 0o644),
        ("recompress", 0o200),
        ("io_stat", 0o444),
        ("mm_stat", 0o444),
        ("bd_stat", 0o444),
        ("debug_stat", 0o444),
    ];
    let names: Vec<&str> = Attribute::ALL.iter().map(|attribute| attribute.name()).collect();
    assert_eq!(names, rows.map(|row| row.0), "every attribute, and no other");
    let device = initialised();
    for (name, mode) in rows {
        let attribute = crate::rig::attribute(name);
        assert_eq!(attribute.mode(), mode, "{name}");
        if mode & 0o444 == 0 {
            let error = device.show(attribute).expect_err("it can only be written");
            assert_eq!((error.errno(), error.kind()), (13, Errno::Access), "{error}");
        } else {
            assert!(device.read(name).ends_with('\n') || name == "recomp_algorithm", "{name}");
        }
        if mode & 0o200 == 0 {
            device.refuses(name, "1", Errno::Access);
        }
    }
    assert_eq!(Attribute::from_name("max_comp_streams"), None, "gone from the kernel, too");
}

#[test]
fn disksize_rounds_up_to_pages_and_prints_bytes() {
    for (text, bytes) in [
        ("1", 4096),
        ("4097\n", 8192),
        ("25M", 26_214_400),
        ("0x100000", 1 << 20),
        ("1g", 1 << 30),
        ("2MiB of it", 2 << 20),
    ] {
        let device = fresh();
        assert_eq!(device.read("disksize"), "0\n");
        device.write("disksize", text);
        assert_eq!(device.read("disksize"), format!("{bytes}\n"), "{text:?}");
        assert_eq!(device.size_bytes(), bytes);
    }
}

#[test]
fn disksize_refuses_what_is_no_size() {
    let device = fresh();
    for text in ["", "\n", "0", "0K", "much", "-1", "18446744073709551615", "99999999999999999999"]
    {
        device.refuses("disksize", text, Errno::Invalid);
    }
    device.refuses("disksize", "8E", Errno::NoMemory);
    assert_eq!((device.read("disksize"), device.read("initstate")), ("0\n".into(), "0\n".into()));
    device.write("disksize", "1M");
}

#[test]
fn disksize_is_set_once() {
    let device = initialised();
    let line = device.refuses("disksize", "32M", Errno::Busy);
    assert!(line.contains("reset"), "{line}");
    assert_eq!(device.refuses("disksize", "0", Errno::Invalid).lines().count(), 1);
    assert_eq!(device.read("disksize"), "16777216\n");
}

#[test]
fn initstate_is_0_or_1() {
    let device = fresh();
    assert_eq!(device.read("initstate"), "0\n");
    device.write("disksize", "1M");
    assert_eq!(device.read("initstate"), "1\n");
    device.write("reset", "1");
    assert_eq!(device.read("initstate"), "0\n");
}

#[test]
fn reset_makes_it_as_it_was_added() {
    let device = fresh();
    device.write("comp_algorithm", "zstd");
    device.write("recomp_algorithm", "algo=zstd");
    device.write("mem_limit", "1M");
    device.write("disksize", "1M");
    (0..8).for_each(|number| device.put(number, &page(number, 3)));
    device.write("reset", "1\n");
    let added = fresh();
    for attribute in Attribute::ALL.into_iter().filter(|attribute| attribute.is_readable()) {
        let name = attribute.name();
        assert_eq!(device.read(name), added.read(name), "{name}");
    }
    device.write("disksize", "2M");
    let mut back = [7; PAGE];
    disk::Disk::read(&*device.disk().unwrap(), 0, &mut back).unwrap();
    assert_eq!(back, [0; PAGE], "what was stored is gone");
}

#[test]
fn reset_keeps_the_settings_of_write_back() {
    let device = fresh();
    device.write("writeback_limit", "7");
    device.write("writeback_limit_enable", "1");
    device.write("writeback_batch_size", "3");
    device.write("compressed_writeback", "1");
    device.write("pages_per_pool_page", "2");
    device.write("disksize", "1M");
    device.write("reset", "1");
    assert_eq!(device.read("writeback_limit"), "7\n");
    assert_eq!(device.read("writeback_limit_enable"), "1\n");
    assert_eq!(device.read("writeback_batch_size"), "3\n");
    assert_eq!(device.read("compressed_writeback"), "1\n");
    assert_eq!(device.read("pages_per_pool_page"), "2\n", "so does study S1");
}

#[test]
fn reset_takes_a_number_from_1_on() {
    let device = initialised();
    for text in ["0", "", "x", "1x", "-1", "0x1"] {
        device.refuses("reset", text, Errno::Invalid);
    }
    device.refuses("reset", "65536", Errno::Range);
    device.refuses("reset", "99999999999999999999", Errno::Range);
    assert_eq!(device.read("initstate"), "1\n");
    device.write("reset", "65535");
    device.write("reset", "+1\n");
}

#[test]
fn reset_of_an_open_device_is_refused_and_says_by_whom() {
    let device = initialised();
    let opened = device.open().unwrap().held_by("mkfs.ext4 (pid 17)");
    let other = device.open().unwrap();
    let line = device.refuses("reset", "1", Errno::Busy);
    assert!(line.contains("mkfs.ext4 (pid 17) and 1 more"), "{line}");
    assert_eq!(device.holders(), ["mkfs.ext4 (pid 17)"]);
    drop(other);
    let line = device.refuses("reset", "1", Errno::Busy);
    assert!(line.contains("mkfs.ext4 (pid 17);"), "{line}");
    let names = Mutex::new(["losetup", "loop0"].into_iter());
    let next = move || names.lock().unwrap().next().unwrap_or("nobody").to_owned();
    let other = device.open().unwrap().held_by_whom(next);
    for name in ["losetup", "loop0"] {
        let line = device.refuses("reset", "1", Errno::Busy);
        assert!(line.contains(&format!(", {name};")), "as it is now: {line}");
    }
    drop(other);
    assert!(device.is_open() && opened.disk().is_some());
    drop(opened);
    device.write("reset", "1");
    assert!(!device.is_open());
}

#[test]
fn a_device_without_a_size_can_be_open_and_get_one() {
    let device = fresh();
    let opened = device.open().unwrap();
    assert!(opened.disk().is_none());
    device.write("disksize", "1M");
    assert!(opened.disk().is_some());
    device.refuses("reset", "1", Errno::Busy);
}

#[test]
fn a_value_ends_at_a_zero_byte_and_is_not_endless() {
    let device = fresh();
    device.write("disksize", "1M\0x");
    assert_eq!(device.size_bytes(), 1 << 20);
    device.refuses("compact", &"x".repeat(4097), Errno::TooLong);
    let not_text = device.store(Attribute::MemLimit, b"\xff1").unwrap_err();
    assert_eq!(not_text.errno(), 22);
}
