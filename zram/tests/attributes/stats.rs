//! `io_stat`, `mm_stat`, `bd_stat`, `debug_stat`.

use disk::Disk;

use crate::rig::{PAGE, Use, fresh, initialised, page};

/// Columns of eight characters, right-aligned, with one blank between.
fn columns(values: &[u64]) -> String {
    let padded: Vec<String> = values.iter().map(|value| format!("{value:>8}")).collect();
    padded.join(" ") + "\n"
}

#[test]
fn io_stat_counts_failures_and_discards() {
    let device = fresh();
    assert_eq!(device.read("io_stat"), "       0        0 0        0\n");
    device.write("disksize", "16M");
    let disk = device.disk().unwrap();
    disk.discard(0, 3 * PAGE as u64).unwrap();
    device.write("mem_limit", "4096");
    assert!((0..9).any(|number| disk.write(number << 12, &page(number, 1)).is_err()));
    let failed = device.column("io_stat", 1);
    assert!(failed > 0);
    assert_eq!(device.read("io_stat"), format!("       0 {failed:>8} 0        3\n"));
}

#[test]
fn mm_stat_has_the_kernels_nine_columns() {
    let device = fresh();
    device.write("mem_limit", "8M");
    assert_eq!(device.read("mm_stat"), columns(&[0, 0, 0, 8 << 20, 0, 0, 0, 0, 0]));
    device.write("disksize", "16M");
    (0..4).for_each(|number| device.put(number, &page(number, 1)));
    device.put(4, &[7; PAGE]);
    let stat = device.disk().unwrap().stat();
    let expected = [
        5 * 4096,
        4 * 4096,
        stat.mem_used_total,
        8 << 20,
        stat.mem_used_max,
        1,
        stat.pages_compacted,
        4,
        4,
    ];
    assert_eq!(device.read("mm_stat"), columns(&expected));
}

#[test]
fn bd_stat_has_the_kernels_three_columns() {
    for device in [fresh(), initialised()] {
        assert_eq!(device.read("bd_stat"), columns(&[0, 0, 0]));
    }
}

#[test]
fn debug_stat_is_the_kernels() {
    for device in [fresh(), initialised()] {
        assert_eq!(device.read("debug_stat"), "version: 1\n0        0\n");
    }
}

#[test]
fn classes_are_the_kernels_table() {
    assert_eq!(fresh().classes_text(), "");
    let device = initialised();
    device.put(0, &page(1, 3));
    let text = device.classes_text();
    assert!(text.starts_with(" class  size       10%"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.contains("Total")), "{text}");
}
