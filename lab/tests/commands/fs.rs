//! `lab fs`: a file system on a served disk, made, used, checked and taken apart.

use crate::support::{json, measured, number, rows};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Why there can be no such file system here; a tool that is missing fails in CI.
fn missing() -> Option<String> {
    let device = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|at| !Path::new(at).exists());
    if let Some(device) = device {
        return Some(device.to_owned());
    }
    let id = Command::new("id").arg("-u").output().expect("coreutils");
    if id.stdout != b"0\n" {
        return Some("root".to_owned());
    }
    let found = |tool: &&str| !Command::new(tool).arg("-V").output().is_ok_and(|_| true);
    let tool = ["losetup", "mkfs.ext4", "e2fsck", "fs_mark"].into_iter().find(found)?;
    assert!(std::env::var("CI").is_err(), "{tool} is to be there");
    Some(tool.to_owned())
}

#[test]
fn files_are_there_after_a_remount_and_nothing_is_left_behind() {
    if let Some(missing) = missing() {
        return println!("skipped: needs {missing}");
    }
    let arguments = ["fs", "--quick", "--runs", "1", "--threads", "4", "--chain-order", "2,3"];
    let arguments = [&arguments[..], &["--classes", "--rule", "used-percent"]].concat();
    let document = json("fs", &arguments);
    let (totals, classes): (Vec<&Value>, Vec<&Value>) =
        rows(&document).iter().partition(|row| row["class"].is_null());
    assert_eq!(totals.len(), 2, "two chain orders");
    for order in [2, 3] {
        let of = classes.iter().filter(|row| row["chain_order"] == order);
        let objects: f64 = of.map(|row| number(row, "obj_used")).sum();
        assert!(objects > 0.0, "the files are in classes of order {order}: {document}");
    }
    for row in classes {
        measured(row, &["obj_allocated", "obj_used", "pages_used", "freeable"]);
        assert!(number(row, "obj_used") <= number(row, "obj_allocated"), "{row}");
        assert!(row["wall_s"].is_null(), "that is of all of them: {row}");
    }
    for (row, order) in totals.iter().zip([2, 3]) {
        assert_eq!(row["rule"], "used-percent");
        assert_eq!((&row["store"], &row["fs"]), (&"zram".into(), &"ext4".into()));
        assert_eq!((&row["design"], &row["chain_order"]), (&"class".into(), &order.into()));
        measured(row, &["files_per_s", "wall_s", "user_s", "sys_s", "mem_used_max"]);
        assert!(number(row, "fsmark_files_per_s") > 0.0);
        assert!(number(row, "compr_data_size") < number(row, "orig_data_size"), "{row}");
    }
    let saved = number(&rows(&document)[0], "saves_mem_used_max");
    assert_eq!(saved, 0.0, "order 2 is what others save from");
    let mounts = std::fs::read_to_string("/proc/mounts").expect("there is a /proc");
    let left = mounts.lines().find(|line| line.contains("/lab-"));
    assert!(left.is_none(), "{left:?} is left");
}
