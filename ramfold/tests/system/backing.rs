//! A backing file that turns bad while pages are written to it and read from it.
//!
//! ```text
//!   load: writes and reads pages of its own --.
//!                                              zram0/disk -> ramfold -> backing file
//!   this test: pages that are written back ---'              full, gone, cut off, stalled
//! ```
//!
//! Claims: an error is counted, and the caller is told. Pages in memory stay right, and so do pages
//! in the file until it is gone. Only requests that need the file wait for it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::rig::{
    Mount, PAGE_SIZE, Stopped, Tree, by_io_uring_too, errno, eventually, needs_tree, noise,
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Pages that are written back; nothing compresses them.
const PAGES: u64 = 512;
/// Pages of the load, behind them.
const BUSY: u64 = 256;

/// The disk as a file.
struct Disk(File);

impl Disk {
    fn open(tree: &Tree) -> Disk {
        Disk(OpenOptions::new().read(true).write(true).open(tree.disk()).expect("it is there"))
    }

    fn write(&self, page: u64, seed: u64) {
        let data = noise(seed, PAGE_SIZE as usize);
        self.0.write_all_at(&data, page * PAGE_SIZE).expect("memory takes it");
    }

    fn read(&self, page: u64) -> std::io::Result<Vec<u8>> {
        let mut data = vec![0; PAGE_SIZE as usize];
        self.0.read_exact_at(&mut data, page * PAGE_SIZE).map(|()| data)
    }

    #[track_caller]
    fn expect(&self, page: u64, seed: u64) {
        let data = self.read(page).unwrap_or_else(|error| panic!("page {page}: {error}"));
        assert!(data == noise(seed, PAGE_SIZE as usize), "page {page} is not what was written");
    }

    fn fill(&self) {
        (0..PAGES).for_each(|page| self.write(page, page + 1));
    }

    #[track_caller]
    fn expect_all(&self) {
        (0..PAGES).for_each(|page| self.expect(page, page + 1));
    }
}

/// Runs `body` beside a thread that writes pages of its own and reads them back; it counts them.
fn under_load(tree: &Tree, body: impl FnOnce(&AtomicU64)) {
    let (done, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let disk = Disk::open(tree);
            let mut round = 0;
            // relaxed: a flag, and a count for the test to look at.
            while !done.load(Ordering::Relaxed) {
                let (page, seed) = (PAGES + round % BUSY, round + 1_000_000);
                disk.write(page, seed);
                disk.expect(page, seed);
                round += 1;
                served.store(round, Ordering::Relaxed);
            }
        });
        // A body that fails ends the load too, or the scope would wait for it.
        let body = std::panic::AssertUnwindSafe(|| body(&served));
        let outcome = std::panic::catch_unwind(body);
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A file of 16 MiB without a byte in it.
fn sparse(path: PathBuf) -> String {
    let file = File::create(&path).expect("a file can be made");
    file.set_len(16 << 20).expect("of any length");
    path.to_str().expect("scratch paths are text").to_owned()
}

fn column(tree: &Tree, name: &str, column: usize) -> u64 {
    let text = tree.read(name);
    text.split_ascii_whitespace().nth(column).and_then(|n| n.parse().ok()).expect("a number")
}

fn written_back(tree: &Tree) -> u64 {
    column(tree, "zram0/bd_stat", 0)
}

/// Takes all free space.
fn fill_up(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let mut file = File::create(&path).expect("an empty file takes no space");
    while file.write_all(&[1; PAGE_SIZE as usize]).is_ok() {}
    path
}

#[test]
fn a_file_whose_space_is_taken_gets_the_rest_when_there_is_space_again() {
    if !needs_tree(&["mount", "umount"]) {
        return;
    }
    // Declared first: it is unmounted after the server has let the file go.
    let place = crate::rig::Scratch::new();
    let small = Mount::memory(place.path("small"), 4 << 20);
    let path = sparse(small.directory.join("backing"));
    let tree = Tree::with(&["--size", "16M", "--backing", &path]);
    let disk = Disk::open(&tree);
    disk.fill();
    under_load(&tree, |_| {
        tree.write("zram0/writeback", "page_indexes=0-99");
        let filler = fill_up(&small.directory);
        assert_eq!(errno(tree.try_write("zram0/writeback", "huge")), ENOSPC);
        let before = written_back(&tree);
        assert!((100..PAGES).contains(&before), "{before} pages found space");
        disk.expect_all();
        fs::remove_file(filler).expect("it is ours");
        tree.write("zram0/writeback", "page_indexes=0-511");
        assert_eq!(written_back(&tree), PAGES.max(before), "all of them, and what the load lost");
        disk.expect_all();
        fs::remove_file(&path).expect("whoever has it open keeps it");
        disk.expect_all();
        (0..PAGES).for_each(|page| disk.write(page, page + 1));
        tree.write("zram0/writeback", "page_indexes=0-511");
        disk.expect_all();
    });
    tree.check();
}

#[test]
fn a_file_that_is_cut_off_costs_what_was_on_it_and_no_more() {
    if !needs_tree(&[]) {
        return;
    }
    let place = crate::rig::Scratch::new();
    let path = sparse(place.large("backing"));
    let tree = Tree::with(&["--size", "16M", "--backing", &path]);
    let disk = Disk::open(&tree);
    disk.fill();
    under_load(&tree, |_| {
        tree.write("zram0/writeback", "page_indexes=0-255");
        let file = OpenOptions::new().write(true).open(&path).expect("nobody forbids it");
        file.set_len(0).expect("nor this");
        let failed = column(&tree, "zram0/io_stat", 0);
        for page in 0..256 {
            assert_eq!(errno(disk.read(page)), EIO, "never zeros that nobody wrote");
        }
        assert!(column(&tree, "zram0/io_stat", 0) >= failed + 256, "counted");
        (256..PAGES).for_each(|page| disk.expect(page, page + 1));
        // Written again, a page is as good as any.
        (0..256).for_each(|page| disk.write(page, page + 1));
        disk.expect_all();
    });
}

/// The file is another server's disk, and that server is stopped.
#[test]
fn a_file_that_stalls_holds_up_nobody_but_who_needs_it() {
    if !needs_tree(&[]) {
        return;
    }
    let slow = Tree::with(&["--size", "16M"]);
    let path = slow.disk().display().to_string();
    let tree = Tree::with(&["--size", "16M", "--backing", &path]);
    let disk = Disk::open(&tree);
    disk.fill();
    let progress = |served: &AtomicU64| {
        // relaxed: a count.
        let before = served.load(Ordering::Relaxed);
        eventually("the load to go on", || served.load(Ordering::Relaxed) > before + 2 * BUSY);
    };
    under_load(&tree, |served| {
        tree.write("zram0/writeback", "page_indexes=0-99");
        let stopped = Stopped::new(slow.process.pid());
        std::thread::scope(|scope| {
            // It goes on before the scope waits for threads that need it, even if the test fails.
            let stopped = stopped;
            let writer = scope.spawn(|| tree.try_write("zram0/writeback", "page_indexes=0-399"));
            let reader = scope.spawn(|| Disk::open(&tree).read(5));
            let others = scope.spawn(|| {
                (400..PAGES).for_each(|page| disk.expect(page, page + 1));
                assert!(tree.mm_stat("zram0", 1) > 0, "attributes are read meanwhile");
            });
            progress(served);
            eventually("who needs no file", || others.is_finished());
            assert!(!writer.is_finished() && !reader.is_finished(), "these two need it");
            drop(stopped);
            writer.join().expect("no panic").expect("it was only late");
            let data = reader.join().expect("no panic").expect("it was only late");
            assert!(data == noise(6, PAGE_SIZE as usize));
            others.join().expect("no panic");
        });
        for _ in 0..5 {
            (0..PAGES).for_each(|page| disk.write(page, page + 1));
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| tree.write("zram0/writeback", "page_indexes=0-511"));
                while !writer.is_finished() {
                    let _stopped = Stopped::new(slow.process.pid());
                    (0..PAGES).step_by(101).for_each(|_| progress(served));
                }
            });
            disk.expect_all();
        }
    });
    drop(disk);
    tree.check();
}

by_io_uring_too!(
    a_file_whose_space_is_taken_gets_the_rest_when_there_is_space_again,
    a_file_that_is_cut_off_costs_what_was_on_it_and_no_more,
    a_file_that_stalls_holds_up_nobody_but_who_needs_it,
);
