//! A process that dies leaves a backing file that is known as stale. Its pages are not read.
//!
//! The test runs itself as a child. The child fills a cache over a file, writes back and waits to
//! be killed. Then the test takes the file in use itself.
#![cfg(not(loom))]

mod setting;

use disk::{Disk, FileDisk};
use ramfold_zswap::{Found, GroupId, Loaded, Zswap};
use setting::{PAGE, cache, noise, page};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Names the file to the child.
const CHILD: &str = "RAMFOLD_TEST_BACKING";
const PAGES: u64 = 500;
const DISK_BYTES: u64 = 8 << 20;

fn content(at: u64) -> Vec<u8> {
    if at % 10 == 3 { noise(at) } else { page(at) }
}

fn open(path: &Path) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(path, false).expect("nobody else has it open"))
}

/// A cache that has written back as many pages as it has stored.
fn written_back(path: &Path) -> (Zswap, ramfold_zswap::Area) {
    let zswap = cache(64 << 20, Some(open(path)));
    let area = zswap.add_area(PAGES).expect("room");
    (0..PAGES).for_each(|at| area.store(at, &content(at), GroupId::ROOT).expect("room"));
    assert_eq!(zswap.write_back(PAGES).pages, PAGES);
    (zswap, area)
}

/// The file, removed when dropped.
struct Backing(PathBuf);

impl Drop for Backing {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("it is ours");
    }
}

fn backing(name: &str) -> Backing {
    let path = std::env::temp_dir().join(format!("ramfold-{name}-{}", std::process::id()));
    let file = std::fs::File::create_new(&path).expect("a temporary directory");
    file.set_len(DISK_BYTES).expect("a sparse file");
    Backing(path)
}

/// Not a test by itself: what the child does.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let _cache = written_back(Path::new(&path));
    println!("\nwritten");
    std::io::stdout().flush().expect("the parent reads");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

#[test]
fn what_a_killed_process_leaves_is_stale() {
    let file = backing("crash");
    let this = std::env::current_exe().expect("a test");
    let mut child = Command::new(this)
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, &file.0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this very program");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let written = lines.map_while(Result::ok).any(|line| line == "written");
    child.kill().expect("it sleeps");
    child.wait().expect("a child of ours");
    assert!(written, "the child wrote its pages back");

    let bytes = std::fs::read(&file.0).expect("ours");
    let some = noise(3);
    assert!(bytes.windows(64).any(|it| it == &some[..64]), "its pages are there");
    let zswap = cache(64 << 20, Some(open(&file.0)));
    assert!(matches!(zswap.backing_found(), Some(Found::Stale { .. })));
    let area = zswap.add_area(PAGES).expect("room");
    let mut read = vec![0; PAGE];
    for at in 0..PAGES {
        assert_eq!(area.load(at, &mut read).expect("no fault"), Loaded::Absent);
    }
}

/// The sectors of an entry may have content from another use of the disk. It is not taken for the
/// entry's page, even if it is a blob of the same page at the same place.
#[test]
fn blobs_of_another_use_of_the_disk_are_not_taken_for_ours() {
    let file = backing("epoch");
    drop(written_back(&file.0));
    let old = std::fs::read(&file.0).expect("ours");
    let (zswap, area) = written_back(&file.0);
    assert_eq!(zswap.backing_found(), Some(Found::Left));
    let now = std::fs::read(&file.0).expect("ours");
    assert!(old[PAGE..] == now[PAGE..], "the same blobs at the same places");
    // Blobs as other versions of the pages have them.
    let mut other = now.clone();
    other[1 << 15..].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    std::fs::write(&file.0, other).expect("ours");
    let mut read = vec![0; PAGE];
    let failed = (0..PAGES).filter(|&at| area.load(at, &mut read).is_err()).count() as u64;
    assert_eq!((failed, zswap.stat().disk_load_fail), (PAGES, PAGES));
    std::fs::write(&file.0, now).expect("ours");
    for at in 0..PAGES {
        assert_eq!(area.load(at, &mut read).expect("as it was"), Loaded::Disk);
        assert!(read == content(at));
    }
}

/// A file becomes shorter under a cache. That gives errors, and pages in memory stay.
#[test]
fn a_file_that_is_cut_off_gives_errors_and_loses_nothing_else() {
    let file = backing("cut");
    let zswap = cache(64 << 20, Some(open(&file.0)));
    let area = zswap.add_area(PAGES).expect("room");
    (0..PAGES).for_each(|at| area.store(at, &content(at), GroupId::ROOT).expect("room"));
    zswap.write_back(100);
    let shortened = std::fs::OpenOptions::new().write(true).open(&file.0).expect("ours");
    shortened.set_len(4096).expect("ours");
    let mut read = vec![0; PAGE];
    let errors = (0..PAGES).filter(|&at| area.load(at, &mut read).is_err()).count();
    assert_eq!(errors, 100, "those on the disk");
    zswap.check().expect("no defect");
}
