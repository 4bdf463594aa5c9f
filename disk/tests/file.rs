//! A file as a disk: it passes the suite, and it notices what happens to the file.

use ramfold_disk::{
    Allocation, Disk, DiskError, ExtentKind, FileDisk, RamDisk, ReadOnly, conformance,
};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(size: u64) -> Scratch {
        let mut names = (0..).map(|number| format!("ramfold-disk-{}-{number}", std::process::id()));
        let made = |name: String| {
            let path = std::env::temp_dir().join(name);
            File::create_new(&path).ok().map(|file| (file, path))
        };
        let (file, path) = names.find_map(made).expect("some name is free");
        file.set_len(size).expect("a sparse file takes no room");
        Scratch(path)
    }

    fn disk(&self) -> FileDisk {
        FileDisk::open(&self.0, false).expect("it opens")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_conforms() {
    // The path may be removed, because the file stays while it is open.
    conformance::run("FileDisk", &|size| Arc::new(Scratch::new(size).disk()));
    conformance::run_sparse("FileDisk", &|size| Arc::new(Scratch::new(size).disk()));
    // Odd sizes are left out: a file system keeps the last block of a file, zeroed, where the suite
    // asks for a hole.
}

#[test]
fn a_file_opened_to_read_refuses_changes() {
    let scratch = Scratch::new(3 * 4096);
    scratch.disk().write(4000, b"kept").expect("room");
    let disk = FileDisk::open(&scratch.0, true).expect("it opens");
    conformance::run_read_only("FileDisk", &disk);
}

#[test]
fn what_is_no_disk_is_refused() {
    let error = |path: &str| FileDisk::open(path.as_ref(), false).expect_err(path).kind();
    assert_eq!(error("/nonexistent/file"), ErrorKind::NotFound);
    assert_eq!(error("/"), ErrorKind::InvalidInput);
    assert_eq!(error("/dev/null"), ErrorKind::InvalidInput);
    let empty = Scratch::new(0);
    let refused = FileDisk::open(&empty.0, false).expect_err("no bytes, no disk");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_file_has_one_writer_or_readers() {
    let scratch = Scratch::new(4096);
    let busy = |read_only| match FileDisk::open(&scratch.0, read_only) {
        Ok(_) => None,
        Err(error) => Some(error.kind()),
    };
    let writer = scratch.disk();
    let in_use = Some(ErrorKind::ResourceBusy);
    assert_eq!((busy(false), busy(true)), (in_use, in_use));
    drop(writer);
    let _reader = FileDisk::open(&scratch.0, true).expect("it opens");
    assert_eq!((busy(false), busy(true)), (in_use, None));
}

#[test]
fn a_discard_gives_the_space_back() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new(1 << 20);
    let disk = scratch.disk();
    disk.write(0, &[7; 1 << 20]).expect("room");
    disk.flush().expect("a file can be flushed");
    let blocks = || fs::metadata(&scratch.0).expect("it is there").blocks();
    let full = blocks();
    disk.discard(0, 1 << 20).expect("in range");
    assert!(blocks() < full / 2, "{} of {full} blocks are left", blocks());
    assert_eq!(disk.next_extent(0, 1 << 20).expect("in range").kind, ExtentKind::Hole);
    disk.write_zeroes(0, 1 << 20, Allocation::Keep).expect("room");
    assert!(blocks() >= full / 2, "space was asked for");
}

#[test]
fn a_file_that_was_shortened_is_an_error_and_no_zeros() {
    let scratch = Scratch::new(2 * 4096);
    let disk = scratch.disk();
    disk.write(4096, &[7; 4096]).expect("room");
    File::options().write(true).open(&scratch.0).and_then(|file| file.set_len(4096)).expect("ours");
    let failed = |result| matches!(result, Err(DiskError::Backing(_)));
    assert!(failed(disk.read(4096, &mut [0; 4096])));
    assert!(failed(disk.next_extent(4096, 4096).map(|_| ())));
    disk.read(0, &mut [0; 4096]).expect("still there");
}

/// Code that must not run a disk's code reads the disk's file instead.
#[test]
fn a_file_says_that_it_is_one_and_so_does_what_passes_its_bytes_on() {
    let scratch = Scratch::new(2 * 4096);
    let disk: Arc<dyn Disk> = Arc::new(ReadOnly::new(Arc::new(scratch.disk())));
    let file = disk.file().expect("it is a file");
    drop(disk);
    file.write(4000, b"past it").expect("room");
    let mut read = [0; 7];
    file.read(4000, &mut read).expect("there");
    assert_eq!(&read, b"past it");
    let refused = FileDisk::open(&scratch.0, false).expect_err("a clone has it open");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    drop(file);
    assert!(FileDisk::open(&scratch.0, false).is_ok());
    assert!(RamDisk::new(4096).expect("a disk").file().is_none());
}
