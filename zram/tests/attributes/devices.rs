//! `hot_add`, `hot_remove`: devices that come and go, also while others work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::Disk;
use ramfold_zram::{Device, Devices, Errno};

use crate::rig::{PAGE, Stop, Use, added, attribute, devices, page};

#[test]
fn hot_add_gives_the_lowest_number_that_is_free() {
    let devices = devices();
    assert_eq!(devices.show_hot_add().unwrap(), "0\n");
    assert_eq!(devices.show_hot_add().unwrap(), "1\n");
    assert_eq!(devices.show_hot_add().unwrap(), "2\n");
    devices.hot_remove(1).unwrap();
    assert_eq!(devices.show_hot_add().unwrap(), "1\n");
    let names: Vec<String> = devices.list().iter().map(|device| device.name().into()).collect();
    assert_eq!(names, ["zram0", "zram1", "zram2"]);
}

#[test]
fn a_name_belongs_to_one_device() {
    let devices = devices();
    assert_eq!(devices.add_named("zram1").unwrap(), 0);
    assert_eq!(devices.add_named("zram1").unwrap_err().errno(), 17);
    assert_eq!(devices.hot_add().unwrap(), 2, "zram1 is taken");
    assert_eq!(devices.find("zram2").map(|device| device.id()), Some(2));
}

#[track_caller]
fn refuses_removal(devices: &Devices, text: &str, errno: Errno) -> String {
    let error = devices.store_hot_remove(text.as_bytes()).expect_err("it is refused");
    assert_eq!(error.kind(), errno, "{text:?}: {error}");
    error.to_string()
}

#[test]
fn hot_remove_takes_the_number_of_a_device_that_is_closed() {
    let devices = devices();
    let device = added(&devices);
    for text in ["", "x", "-1", "0x0", "0 "] {
        refuses_removal(&devices, text, Errno::Invalid);
    }
    refuses_removal(&devices, "9999999999", Errno::Range);
    refuses_removal(&devices, "1", Errno::NoDevice);
    device.write("disksize", "1M");
    let opened = device.open().unwrap().held_by("loop0");
    let line = refuses_removal(&devices, "0", Errno::Busy);
    assert!(line.contains("loop0"), "{line}");
    drop(opened);
    devices.store_hot_remove(b"0\n").unwrap();
    refuses_removal(&devices, "0", Errno::NoDevice);
}

#[test]
fn a_removed_device_is_gone_for_those_who_still_know_it() {
    let devices = devices();
    let device = added(&devices);
    device.write("disksize", "1M");
    devices.hot_remove(0).unwrap();
    assert_eq!(device.open().unwrap_err().kind(), Errno::NoDevice);
    assert_eq!(device.show(attribute("disksize")).unwrap_err().kind(), Errno::NoDevice);
    assert_eq!(device.store(attribute("disksize"), b"1M").unwrap_err().errno(), 19);
    assert!(device.disk().is_none());
}

fn initialised(devices: &Devices) -> Arc<Device> {
    let device = added(devices);
    device.write("disksize", "4M");
    device
}

/// All bytes that the memory holds, after its free frames were given back.
fn held(devices: &Devices) -> u64 {
    devices.memory().release(0);
    devices.memory().mapped_bytes()
}

/// 64 devices come, store and go, again and again, beside two that are in use all the time.
#[test]
fn devices_that_come_and_go_under_traffic_leave_nothing() {
    const ROUNDS: usize = 6;
    let devices = devices();
    let busy = [initialised(&devices), initialised(&devices)];
    let stop = AtomicBool::new(false);
    let (first, peak, last) = std::thread::scope(|scope| {
        let stopped = Stop(&stop);
        let traffic = busy.each_ref().map(|device| scope.spawn(|| keep_busy(device, &stop)));
        // Here the busy devices get all their pages for the first time, before figures are
        // compared.
        round(&devices);
        let mut figures = Vec::new();
        for _ in 0..ROUNDS {
            figures.push((held(&devices), round(&devices)));
        }
        let last = held(&devices);
        drop(stopped);
        for thread in traffic {
            thread.join().unwrap();
        }
        (figures[0].0, figures[0].1, last)
    });
    let (growth, left) = (peak.saturating_sub(first), last.saturating_sub(first));
    assert!(growth > 16 << 20, "the devices stored something: {first}, {peak}");
    assert!(left * 50 <= growth, "{left} of {growth} bytes are left: {first}, {peak}, {last}");
    assert_eq!(devices.list().len(), 2);
    for device in &busy {
        device.disk().unwrap().check().unwrap();
    }
}

/// 64 devices come, store and go. Returns what the memory held while they existed.
fn round(devices: &Devices) -> u64 {
    let added: Vec<Arc<Device>> = (0..64).map(|_| initialised(devices)).collect();
    let last = page(9, 1);
    added.iter().for_each(|device| (0..64).for_each(|number| device.put(number, &page(number, 1))));
    added.iter().for_each(|device| device.put(1023, &last));
    let held = devices.memory().mapped_bytes();
    added.iter().for_each(|device| devices.hot_remove(device.id()).expect("closed"));
    held
}

/// Writes, reads back and discards until told to stop.
fn keep_busy(device: &Arc<Device>, stop: &AtomicBool) {
    let opened = device.open().expect("it stays");
    let disk = opened.disk().expect("it has a size");
    let mut back = vec![0; PAGE];
    // relaxed: a flag of its own.
    for number in (0..1024).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
        let content = page(number, 3);
        disk.write(number << 12, &content).expect("there is room");
        disk.read(number << 12, &mut back).expect("it can be read");
        assert!(back == content, "page {number}");
        disk.discard((number * 7 % 1024) << 12, PAGE as u64).expect("in range");
    }
}

/// If a size waits while its device is removed, it is refused, or the device had it before. There
/// is no disk behind a device that is gone.
#[test]
fn a_size_that_waits_for_a_removal_is_refused() {
    let devices = devices();
    for _ in 0..2000 {
        let device = added(&devices);
        device.write("disksize", "1M");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let size = || device.store(attribute("disksize"), b"1M");
                    // It still has a size, or has one again.
                    while size().err().is_none_or(|error| error.kind() == Errno::Busy) {}
                });
            }
            devices.hot_remove(device.id()).expect("nobody has it open");
        });
        assert!(device.disk().is_none());
    }
}

/// Threads open, reset, remove, size and ask, all at once. None panics, and a disk that is open
/// stays.
#[test]
fn everything_at_once_keeps_its_promises() {
    let (devices, stop) = (devices(), AtomicBool::new(false));
    let device = added(&devices);
    let running = || !stop.load(Ordering::Relaxed); // relaxed: a flag of its own.
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while running() {
                devices.hot_remove(devices.hot_add().unwrap()).unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while running() {
                    // It is refused if the other thread was first, or while the device is open.
                    let _ = device.store(attribute("disksize"), b"1M");
                    let _ = device.store(attribute("reset"), b"1");
                    device.show(attribute("mm_stat")).unwrap();
                }
            });
        }
        let mut seen = 0;
        while seen < 2000 {
            let Ok(opened) = device.open() else { continue };
            let Some(disk) = opened.disk() else { continue };
            disk.write(0, &page(1, 3)).unwrap();
            let still = opened.disk().expect("a disk that is open stays");
            assert!(Arc::ptr_eq(&disk, &still), "and stays the same");
            seen += 1;
        }
    });
}
