//! The steps of existing test suites with a zram device, as far as they need no mount.
//!
//! Claims: the steps of the kernel's selftests (zram01, zram02) and of LTP's zram01, zram02 and
//! zram03 pass, in their order and with their sizes. Pages of a file stand for a file system, and a
//! header stands for swap. Other tests do the same with real file systems through the mount.

use disk::Disk;
use ramfold_zram::Algorithm;

use crate::rig::{MIB, PAGE, Use, added, devices, page};

/// LTP zram01: one device for each kind of file system, each with the sizes of its kind.
#[test]
fn ltp_zram01_sets_algorithms_sizes_and_limits_and_fills() {
    let devices = devices();
    let sizes = [26_214_400, 402_653_184, 314_572_800, 26_214_400];
    for (number, size) in sizes.into_iter().enumerate() {
        assert_eq!(devices.show_hot_add().unwrap(), format!("{number}\n"));
        let device = devices.get(number as u32).unwrap();
        for algorithm in Algorithm::ALL {
            device.write("comp_algorithm", &format!("{algorithm}\n"));
            let listed = device.read("comp_algorithm");
            assert!(listed.contains(&format!("[{algorithm}]")), "{listed}");
        }
        device.write("disksize", &format!("{size}\n"));
        assert_eq!(device.read("disksize"), format!("{size}\n"));
        device.write("mem_limit", &format!("{}M\n", size >> 20));
        assert_eq!(device.column("mm_stat", 3), size);
        let disk = device.disk().unwrap();
        for at in (0..25 * MIB).step_by(64 * PAGE) {
            disk.write(at, &[0; 1024]).unwrap();
            disk.write(at + PAGE as u64, &page(at, 8)).unwrap();
        }
        let used = device.column("mm_stat", 2);
        assert!(used > 0, "mem_used_total is not 0");
        assert!(100 * 1024 * 25 / (used >> 10) >= 100, "a ratio of 1 at least");
    }
    for number in 0..sizes.len() {
        devices.get(number as u32).unwrap().write("reset", "1\n");
        devices.store_hot_remove(format!("{number}\n").as_bytes()).unwrap();
    }
}

/// LTP zram02: 100 GiB and a limit of 1 MiB. mkswap writes the first page and reads it.
#[test]
fn ltp_zram02_has_100_gib_under_a_limit_of_1m() {
    let devices = devices();
    let device = added(&devices);
    device.write("disksize", "107374182400\n");
    assert_eq!(device.read("disksize"), "107374182400\n");
    device.write("mem_limit", "1M\n");
    assert_eq!(device.column("mm_stat", 3), MIB);
    let table = device.disk().unwrap().stat().metadata.slot_table;
    assert!(table < MIB, "{table} bytes of table; the kernel takes 400 MiB");
    let disk = device.disk().unwrap();
    let mut header = vec![0; PAGE];
    header[4086..].copy_from_slice(b"SWAPSPACE2");
    disk.write(0, &header).unwrap();
    disk.write((100 << 30) - PAGE as u64, &header).unwrap();
    for at in [0, (100 << 30) - PAGE as u64] {
        let mut back = vec![1; PAGE];
        disk.read(at, &mut back).unwrap();
        assert!(back == header, "the page at {at}");
    }
    drop(disk);
    device.write("reset", "1\n");
    devices.store_hot_remove(b"0\n").unwrap();
}

/// LTP zram03: 512 MiB are filled with one letter, and the last byte with another. Then come
/// statistics, a reset and the removal.
#[test]
fn ltp_zram03_reads_back_what_it_filled() {
    let devices = devices();
    let device = added(&devices);
    device.write("disksize", "536870912\n");
    let opened = device.open().unwrap();
    let disk = opened.disk().unwrap();
    let letters = vec![b'a'; MIB as usize];
    (0..512).for_each(|number| disk.write(number * MIB, &letters).unwrap());
    disk.write(512 * MIB - 1, &[0]).unwrap();
    let mut back = vec![0; MIB as usize];
    for number in 0..512 {
        disk.read(number * MIB, &mut back).unwrap();
        let whole = if number == 511 { back.len() - 1 } else { back.len() };
        assert!(back[..whole] == letters[..whole], "MiB {number}");
    }
    assert_eq!(back.last(), Some(&0));
    drop(disk);
    let (orig, compressed) = (device.column("mm_stat", 0), device.column("mm_stat", 1));
    assert_eq!((orig, device.column("mm_stat", 5)), (512 * MIB, 131_071), "all but one are equal");
    assert!(compressed > 0 && device.column("mm_stat", 2) > 0, "one page is compressed");
    drop(opened);
    device.write("reset", "1\n");
    assert_eq!(device.read("initstate"), "0\n");
    assert_eq!(device.column("mm_stat", 0), 0);
    devices.store_hot_remove(b"0\n").unwrap();
}

/// Selftest zram01: 2 MiB, lzo, a limit of 2M, filled with zeros. The ratio is at least 1.
#[test]
fn selftest_zram01_fills_a_small_device() {
    let devices = devices();
    let device = added(&devices);
    device.write("comp_algorithm", "lzo");
    device.write("disksize", "2097152");
    device.write("mem_limit", "2M");
    let disk = device.disk().unwrap();
    (0..512).for_each(|number| disk.write(number << 12, &[0; PAGE]).unwrap());
    let held = disk.stat().accounted_bytes();
    assert!(held <= 2 * MIB, "2 MiB of zeros take {held} bytes, everything counted");
    drop(disk);
    device.write("reset", "1");
}

/// Selftest zram02: 1 MiB for swap. mkswap writes a header, and swapon reads it.
#[test]
fn selftest_zram02_is_swap_of_1_mib() {
    let devices = devices();
    let device = added(&devices);
    device.write("disksize", "1048576");
    device.write("mem_limit", "1M");
    let disk = device.disk().unwrap();
    let mut header = [0; PAGE];
    header[4086..].copy_from_slice(b"SWAPSPACE2");
    disk.write(0, &header).unwrap();
    let mut back = [0; PAGE];
    disk.read(0, &mut back).unwrap();
    assert_eq!(back, header);
    drop(disk);
    device.write("reset", "1");
    devices.store_hot_remove(b"0").unwrap();
}
