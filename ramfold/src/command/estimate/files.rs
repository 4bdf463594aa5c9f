//! Files as one run of pages. The last page of each file is filled up with zeros.
//!
//! ```text
//!   file        a       b    (empty)   c
//!   pages     0 1 2    3 4             5
//! ```
//!
//! Invariants: `first` grows with every file that has pages. Only one file is open at a time, so
//! there may be more files than descriptors.
//!
//! Locks: none.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use host::PAGE_SIZE;

use super::device::Page;
use crate::line::Failure;

/// What to do about a file whose length does not say how much it holds.
const MADE: &str =
    "give a copy of a file that is made as it is read, such as those of /proc and /sys";

/// The error that seeking in such a file may give.
const EINVAL: i32 = 22;

/// Files, cut into pages that are numbered through.
pub(crate) struct Files {
    files: Vec<Paged>,
    /// The file that was read last, by index.
    open: RefCell<Option<(usize, File)>>,
}

struct Paged {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
    /// The number of its first page.
    first: u64,
}

impl Files {
    /// Checks that each file can be read, and measures it.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Files, Failure> {
        let mut files = Vec::with_capacity(paths.len());
        let mut first = 0;
        for path in paths {
            let paged = Paged::measure(path, first)?;
            first += paged.pages();
            files.push(paged);
        }
        match (first, paths) {
            (0, [path]) => Err(Failure::about(path.display(), format!("it is empty; {MADE}"))),
            (0, _) => Err(Failure::Failed(format!("all files are empty; {MADE}"))),
            _ => Ok(Files { files, open: RefCell::new(None) }),
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.files.last().map_or(0, |last| last.first + last.pages())
    }

    /// Reads a page. Its number must be less than `pages`.
    pub(super) fn read(&self, number: u64, page: &mut Page) -> Result<(), Failure> {
        let index = self.index_of(number);
        let paged = &self.files[index];
        self.read_from(index, paged, number, page).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Failure::about(paged.path.display(), paged.why_it_ended())
            }
            _ => Failure::about(paged.path.display(), error),
        })
    }

    /// A message if the file of this page was written to after it was measured.
    pub(super) fn suspect(&self, number: u64) -> Option<String> {
        let paged = &self.files[self.index_of(number)];
        let now = fs::metadata(&paged.path).and_then(|status| status.modified()).ok();
        (now != paged.modified).then(|| {
            format!("{} was written to meanwhile; estimate a copy of it", paged.path.display())
        })
    }

    /// The last file that starts at or before this page. Empty files start where the next file
    /// starts, and come before it.
    fn index_of(&self, number: u64) -> usize {
        self.files.partition_point(|paged| paged.first <= number).saturating_sub(1)
    }

    fn read_from(
        &self,
        index: usize,
        paged: &Paged,
        number: u64,
        page: &mut Page,
    ) -> io::Result<()> {
        let mut open = self.open.borrow_mut();
        let file = match &mut *open {
            Some((at, file)) if *at == index => file,
            other => &mut other.insert((index, File::open(&paged.path)?)).1,
        };
        let offset = (number - paged.first) * PAGE_SIZE as u64;
        let len = paged.bytes.saturating_sub(offset).min(PAGE_SIZE as u64) as usize;
        let (data, rest) = page.split_at_mut(len);
        rest.fill(0);
        file.read_exact_at(data, offset)
    }
}

impl Paged {
    fn measure(path: &Path, first: u64) -> Result<Paged, Failure> {
        let failed = |error| Failure::about(path.display(), error);
        let status = fs::metadata(path).map_err(failed)?;
        let kind = status.file_type();
        if kind.is_dir() {
            return Err(Failure::about(path.display(), "it is a directory; give files"));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Failure::about(path.display(), "it is neither a file nor a block device"));
        }
        let mut file = File::open(path).map_err(failed)?;
        // A file that is made as it is read has no end to seek to.
        let is_endless = |error: &io::Error| kind.is_file() && error.raw_os_error() == Some(EINVAL);
        let bytes = file.seek(SeekFrom::End(0)).map_err(|error| match is_endless(&error) {
            true => Failure::about(path.display(), format!("it has no length; {MADE}")),
            false => failed(error),
        })?;
        Ok(Paged { path: path.to_owned(), bytes, modified: status.modified().ok(), first })
    }

    /// Why the file had fewer bytes than its length said.
    fn why_it_ended(&self) -> String {
        let is_long = fs::metadata(&self.path).is_ok_and(|status| status.len() >= self.bytes);
        match is_long {
            true => format!("it ends before its length; {MADE}"),
            false => "it was made shorter meanwhile".to_owned(),
        }
    }

    fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE_SIZE as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, bytes: &[u8]) -> Scratch {
            let name = format!("ramfold-files-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, bytes).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    fn first_bytes(files: &Files) -> Vec<u8> {
        let mut page = [0xee; PAGE_SIZE];
        let read = |number| {
            files.read(number, &mut page).unwrap();
            page[0]
        };
        (0..files.pages()).map(read).collect()
    }

    #[test]
    fn pages_run_through_all_files() {
        let one = Scratch::new("one", &[1; PAGE_SIZE + 1]);
        let none = Scratch::new("none", &[]);
        let two = Scratch::new("two", &[2; PAGE_SIZE]);
        let files = Files::open(&[&one, &none, &two].map(|s| s.0.clone())).unwrap();
        assert_eq!(first_bytes(&files), [1, 1, 2]);
        let mut page = [0xee; PAGE_SIZE];
        files.read(1, &mut page).unwrap();
        assert!(page[1..].iter().all(|&byte| byte == 0), "the rest of the last page is zeros");
    }

    #[test]
    fn a_file_that_was_written_to_is_suspect() {
        let file = Scratch::new("changing", &[1; 10]);
        let files = Files::open(std::slice::from_ref(&file.0)).unwrap();
        assert_eq!(files.suspect(0), None);
        let later = SystemTime::now() + std::time::Duration::from_secs(10);
        File::options().write(true).open(&file.0).unwrap().set_modified(later).unwrap();
        assert!(files.suspect(0).is_some_and(|why| why.contains("estimate a copy")));
    }

    #[test]
    fn a_file_that_was_made_shorter_is_said_to_be() {
        let file = Scratch::new("shorter", &[1; 3 * PAGE_SIZE]);
        let files = Files::open(std::slice::from_ref(&file.0)).unwrap();
        File::options().write(true).open(&file.0).unwrap().set_len(PAGE_SIZE as u64 + 1).unwrap();
        let failure = files.read(1, &mut [0; PAGE_SIZE]).unwrap_err().to_string();
        assert!(failure.contains("made shorter meanwhile"), "{failure}");
    }

    /// The length of an attribute in sysfs is a page, whatever it holds.
    #[test]
    fn a_file_that_ends_before_its_length_is_said_to() {
        let attribute = PathBuf::from("/sys/kernel/mm/transparent_hugepage/enabled");
        if !attribute.exists() {
            println!("skipped: needs {}", attribute.display());
            return;
        }
        let files = Files::open(std::slice::from_ref(&attribute)).unwrap();
        let failure = files.read(0, &mut [0; PAGE_SIZE]).unwrap_err().to_string();
        assert!(
            failure.contains("ends before its length") && failure.contains("copy"),
            "{failure}"
        );
    }

    #[test]
    fn what_has_no_pages_is_refused() {
        let empty = Scratch::new("empty", &[]);
        let rows = [
            (empty.0.clone(), "empty"),
            (std::env::temp_dir(), "directory"),
            (PathBuf::from("/dev/null"), "neither"),
            (PathBuf::from("/dev/zero"), "neither"),
            // Seeking there is EINVAL, which tells a person nothing.
            (PathBuf::from("/proc/self/maps"), "no length; give a copy of a file that is made"),
            (PathBuf::from("/proc/self/pagemap"), "no length; give a copy of a file that is made"),
            // Reading it takes the kernel's messages away, and waits for the next.
            (PathBuf::from("/proc/kmsg"), "empty; give a copy of a file that is made"),
            (empty.0.with_extension("missing"), "No such file"),
        ];
        for (path, expected) in rows {
            let error = Files::open(std::slice::from_ref(&path)).err().expect("no pages");
            assert!(error.to_string().contains(expected), "{}: {error}", path.display());
        }
    }
}
