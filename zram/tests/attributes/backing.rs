//! `backing_dev`, `writeback`, the effect of `writeback_limit`, `bd_stat`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use disk::Disk;
use ramfold_zram::{Device, DeviceDefaults, Errno};

use crate::rig::{
    MIB, PAGE, Scratch, Stop, Use, added, devices, devices_at_work, devices_with, fresh,
    initialised, page,
};

const PAGES: u64 = 256;

/// A device with a backing file whose pages are all stored. Every fourth is huge.
fn backed(name: &str) -> (Arc<Device>, Scratch) {
    let file = Scratch::sized(name, 2 * MIB);
    let device = fresh();
    device.write("backing_dev", file.text());
    device.write("disksize", "1M");
    fill(&device);
    (device, file)
}

fn fill(device: &Device) {
    (0..PAGES).for_each(|number| device.put(number, &content(number)));
}

fn content(number: u64) -> Vec<u8> {
    page(number, if number.is_multiple_of(4) { 1 } else { 16 })
}

#[track_caller]
fn intact(device: &Device) {
    let disk = device.disk().expect("it is initialised");
    let mut back = vec![0; PAGE];
    for number in 0..PAGES {
        disk.read(number * PAGE as u64, &mut back).expect("it can be read");
        assert!(back == content(number), "page {number}");
    }
}

#[test]
fn backing_dev_is_none_or_a_path() {
    let device = fresh();
    assert_eq!(device.read("backing_dev"), "none\n");
    let file = Scratch::sized("shown", MIB);
    device.write("backing_dev", &format!("{}\n", file.text()));
    assert_eq!(device.read("backing_dev"), format!("{}\n", file.text()));
    device.write("disksize", "1M");
    assert_eq!(device.read("backing_dev"), format!("{}\n", file.text()));
    device.write("reset", "1");
    assert_eq!(device.read("backing_dev"), "none\n");
    device.write("backing_dev", file.text());
}

/// The same path was once opened anew. The kernel's driver says that it is in use.
#[test]
fn backing_dev_refuses_what_it_has_already() {
    let device = fresh();
    let file = Scratch::sized("twice", MIB);
    device.write("backing_dev", file.text());
    let line = device.refuses("backing_dev", file.text(), Errno::Busy);
    assert!(line.contains("reset"), "{line}");
    let other_path = file.text().replacen('/', "//", 1);
    device.refuses("backing_dev", &other_path, Errno::Busy);
    assert_eq!(device.read("backing_dev"), format!("{}\n", file.text()), "it stays");
    device.write("reset", "1");
    device.write("backing_dev", file.text());
}

/// One block of the backing device was once never used, and the kernel's driver uses it.
#[test]
fn every_block_of_the_backing_device_is_used() {
    let file = Scratch::sized("every-block", 16 * PAGE as u64);
    let device = fresh();
    device.write("backing_dev", file.text());
    device.write("disksize", "1M");
    fill(&device);
    device.refuses("writeback", "huge", Errno::NoSpace);
    assert_eq!(device.column("bd_stat", 0), 16, "blocks in use of 16");
    intact(&device);
}

#[test]
fn backing_dev_refuses_what_cannot_hold_blocks() {
    let device = fresh();
    let file = Scratch::sized("first", MIB);
    device.write("backing_dev", file.text());
    device.refuses("backing_dev", "/nonexistent/file", Errno::Os(2));
    device.refuses("backing_dev", "", Errno::Os(2));
    device.refuses("backing_dev", "/dev/null", Errno::NotBlock);
    device.refuses("backing_dev", "/tmp", Errno::IsDirectory);
    let empty = Scratch::file("empty", b"");
    device.refuses("backing_dev", empty.text(), Errno::Invalid);
    let small = Scratch::sized("small", 4095);
    device.refuses("backing_dev", small.text(), Errno::Invalid);
    assert_eq!(device.read("backing_dev"), format!("{}\n", file.text()), "the first one stays");
}

#[test]
fn backing_dev_is_one_devices_alone_and_fixed_with_the_size() {
    let devices = devices();
    let [first, second] = [(); 2].map(|()| added(&devices));
    let file = Scratch::sized("shared", MIB);
    first.write("backing_dev", file.text());
    second.refuses("backing_dev", file.text(), Errno::Busy);
    first.write("disksize", "1M");
    first.refuses("backing_dev", "/nonexistent/file", Errno::Busy);
    devices.hot_remove(first.id()).unwrap();
    second.write("backing_dev", file.text());
}

/// A monitor that looks at the disk does not keep the device from being set up anew. When a reset
/// returns, it has let go of everything.
#[test]
fn a_look_at_the_disk_does_not_keep_its_backing_file_busy() {
    let (device, stop) = (fresh(), AtomicBool::new(false));
    let file = Scratch::sized("watched", MIB);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            // relaxed: a flag of its own.
            while !stop.load(Ordering::Relaxed) {
                if let Some(disk) = device.disk() {
                    std::hint::black_box(disk.stat());
                }
            }
        });
        for _ in 0..100 {
            device.write("backing_dev", file.text());
            device.write("disksize", "1M");
            std::thread::sleep(std::time::Duration::from_micros(100));
            device.write("reset", "1");
        }
    });
}

/// The job that drains discarded pages has the backing file, too. Here it has not begun when the
/// device is reset, because the worker is busy until a reset waits for it.
#[test]
fn a_discard_under_way_does_not_keep_the_backing_file_busy() {
    let (devices, over) = (devices_at_work(), AtomicBool::new(false));
    let (memory, device) = (devices.memory(), added(&devices));
    let file = Scratch::sized("discarded", 2 * MIB);
    device.write("backing_dev", file.text());
    device.write("disksize", "4M");
    device.put(0, &content(1));
    let (started, running) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    memory.defer(0, move || {
        started.send(()).expect("the test waits");
        let _ = blocked.recv();
    });
    running.recv().expect("the worker runs it");
    device.disk().expect("a size").discard(0, 2 * MIB).expect("in range");
    assert_eq!(memory.deferred().jobs, 2);
    std::thread::scope(|scope| {
        let _stop = Stop(&over);
        scope.spawn(|| {
            // relaxed: a flag of its own.
            while memory.deferred().jobs > 1 && !over.load(Ordering::Relaxed) {
                std::thread::yield_now(); // a reset runs all jobs except the running one
            }
            drop(unblock);
        });
        device.write("reset", "1");
        device.write("backing_dev", file.text());
        assert_eq!(memory.pending_bytes(), 0);
    });
}

#[test]
fn a_guard_judges_paths_before_they_are_opened() {
    let devices = devices();
    devices.guard_paths(Box::new(|path| match path.starts_with("/our/mount") {
        true => Err("it lies in the mount itself".into()),
        false => Ok(()),
    }));
    let device = added(&devices);
    let line = device.refuses("backing_dev", "/our/mount/zram0/disk", Errno::Invalid);
    assert!(line.contains("the mount itself"), "{line}");
    device.refuses("algorithm_params", "dict=/our/mount/dict", Errno::Invalid);
    device.refuses("algorithm_params", "dict=/nonexistent/dict", Errno::Os(2));
}

#[test]
fn writeback_needs_a_size_a_backing_device_and_a_kind() {
    fresh().refuses("writeback", "idle", Errno::Invalid);
    let device = initialised();
    let line = device.refuses("writeback", "idle", Errno::NoDevice);
    assert!(line.contains("backing_dev"), "{line}");
    let (device, _file) = backed("kinds");
    for text in [
        "cold",
        "type=cold",
        "type",
        "type=",
        "page_index",
        "page_index=x",
        "page_index=-1",
        "page_indexes=1",
        "page_indexes=1-x",
        "page_index=1 page_index",
    ] {
        device.refuses("writeback", text, Errno::Invalid);
    }
    for text in ["page_index=256", "page_indexes=0-256", "page_indexes=9-8"] {
        device.refuses("writeback", text, Errno::Range);
    }
    device.refuses("writeback", "page_index=99999999999999999999", Errno::Range);
    device.refuses("writeback", "page_index=0 page_index=999", Errno::Range);
    assert_eq!(device.column("bd_stat", 0), 0, "what is refused does nothing");
    device.write("writeback", "\n");
    device.write("writeback", "colour=red");
    assert_eq!(device.column("bd_stat", 0), 0);
}

#[test]
fn writeback_of_huge_pages_by_a_bare_word_or_a_type() {
    for text in ["huge\n", "type=huge"] {
        let (device, _file) = backed("huge");
        let (before, huge) = (device.column("mm_stat", 1), device.column("mm_stat", 7));
        assert_eq!(huge, PAGES / 4);
        device.write("writeback", text);
        assert_eq!(device.read("bd_stat"), "      64        0       64\n");
        assert_eq!(device.column("mm_stat", 7), 0);
        assert_eq!(device.column("mm_stat", 1), before - 64 * 4096);
        assert_eq!(device.column("mm_stat", 0), MIB, "they are stored still");
        intact(&device);
        assert_eq!(device.column("bd_stat", 1), 64);
        device.disk().unwrap().discard(0, MIB).unwrap();
        assert_eq!(device.column("bd_stat", 0), 0);
    }
}

#[test]
fn writeback_of_idle_and_huge_idle_pages() {
    let (device, _file) = backed("idle");
    device.write("idle", "all");
    fill_some(&device, 128..256);
    device.write("writeback", "huge_idle");
    assert_eq!(device.column("bd_stat", 0), 32);
    device.write("writeback", "type=idle page_index");
    assert_eq!(device.column("bd_stat", 0), 128, "and a type ends the list");
    intact(&device);
}

fn fill_some(device: &Device, pages: std::ops::Range<u64>) {
    pages.for_each(|number| device.put(number, &content(number)));
}

#[test]
fn writeback_of_pages_by_number_and_range_mixed() {
    let (device, _file) = backed("numbers");
    device.write("writeback", "page_index=3 page_indexes=10-19 page_index=5\n");
    assert_eq!(device.column("bd_stat", 0), 12);
    device.write("writeback", "page_indexes=255-255 type=huge");
    assert_eq!(device.column("bd_stat", 0), 12 + 1 + 64 - 2, "12 and 16 were there already");
    intact(&device);
}

#[test]
fn writeback_of_incompressible_pages_is_those_that_recompression_gave_up() {
    let file = Scratch::sized("incompressible", 2 * MIB);
    let device = fresh();
    device.write("backing_dev", file.text());
    device.write("recomp_algorithm", "algo=zstd");
    device.write("disksize", "1M");
    fill(&device);
    device.write("writeback", "incompressible");
    assert_eq!(device.column("bd_stat", 0), 0);
    device.write("recompress", "type=huge");
    device.write("writeback", "incompressible");
    assert_eq!(device.column("bd_stat", 0), 64);
    intact(&device);
}

#[test]
fn writeback_stops_at_the_limit_which_counts_down() {
    let (device, _file) = backed("limit");
    device.write("writeback_limit", "10");
    device.write("writeback_limit_enable", "1");
    let line = device.refuses("writeback", "huge", Errno::Io);
    assert!(line.contains("writeback_limit"), "{line}");
    assert_eq!(device.column("bd_stat", 0), 10);
    assert_eq!(device.read("writeback_limit"), "0\n");
    device.write("writeback_limit_enable", "0");
    device.write("writeback", "huge");
    assert_eq!(device.column("bd_stat", 0), 64);
    device.write("writeback_limit", "5");
    device.write("writeback_limit_enable", "1");
    device.write("writeback", "page_index=1");
    assert_eq!(device.read("writeback_limit"), "4\n");
    device.write("reset", "1");
    assert_eq!(device.read("writeback_limit"), "4\n", "what is left outlives a reset");
}

#[test]
fn writeback_without_a_free_block_says_so() {
    let file = Scratch::sized("full", 16 * PAGE as u64);
    let device = fresh();
    device.write("backing_dev", file.text());
    device.write("disksize", "1M");
    fill(&device);
    device.refuses("writeback", "huge", Errno::NoSpace);
    let written = device.column("bd_stat", 0);
    assert!((1..=16).contains(&written), "{written}");
    intact(&device);
}

#[test]
fn compressed_writeback_reads_back() {
    let file = Scratch::sized("compressed", 2 * MIB);
    let device = fresh();
    device.write("backing_dev", file.text());
    device.write("compressed_writeback", "1");
    device.write("writeback_batch_size", "3");
    device.write("disksize", "1M");
    fill(&device);
    device.write("writeback", "page_indexes=0-255");
    assert_eq!(device.column("bd_stat", 0), PAGES);
    assert_eq!(device.column("mm_stat", 1), 0, "nothing is left in memory");
    intact(&device);
}

#[test]
fn a_memory_target_is_held_and_ends_with_the_size() {
    let devices =
        devices_with(DeviceDefaults { memory_target: Some(MIB), ..DeviceDefaults::default() });
    let device = added(&devices);
    let file = Scratch::sized("target", 16 * MIB);
    for _ in 0..3 {
        device.write("backing_dev", file.text());
        device.write("disksize", "16M");
        (0..1024).for_each(|number| device.put(number, &page(number, 1)));
        let used = device.disk().unwrap().object_bytes_resident();
        assert!(used <= MIB + MIB / 20, "{used} bytes are held, of 4 MiB that were written");
        assert!(device.column("bd_stat", 0) > 700, "the rest is on the backing device");
        device.write("idle", "3600");
        device.write("reset", "1");
    }
}
