//! Where pages come from: files as they lie, or a process as it was at one moment.
//!
//! Invariant: a page reads the same each time, unless somebody writes to the file meanwhile;
//! `suspect` then says so.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use zsmalloc::PAGE_SIZE;

use super::process::Snapshot;
use crate::failure::Failure;

/// One page.
pub(super) type Page = [u8; PAGE_SIZE];

/// Pages by number.
pub(super) enum Source {
    Files(Vec<Paged>),
    Process(Box<Snapshot>),
}

/// A file, cut into pages.
pub(super) struct Paged {
    path: PathBuf,
    file: File,
    bytes: u64,
    modified: Option<SystemTime>,
    /// The number of its first page, counting through all files.
    first: u64,
}

impl Source {
    /// The files' pages, in the order given.
    pub(super) fn of_files(paths: &[PathBuf]) -> Result<Source, Failure> {
        let mut files = Vec::with_capacity(paths.len());
        let mut first = 0;
        for path in paths {
            let paged = Paged::open(path, first)?;
            first += paged.pages();
            files.push(paged);
        }
        match (first, paths) {
            (0, [path]) => Err(Failure::about(path.display(), "it is empty; there is no page")),
            (0, _) => Err(Failure::Failed("all files are empty; there is no page".to_owned())),
            _ => Ok(Source::Files(files)),
        }
    }

    /// The resident anonymous pages of a process, held compressed within `limit` bytes.
    pub(super) fn of_process(pid: u32, limit: u64) -> Result<Source, Failure> {
        Ok(Source::Process(Box::new(Snapshot::take(pid, limit)?)))
    }

    pub(super) fn pages(&self) -> u64 {
        match self {
            Source::Files(files) => files.last().map_or(0, |last| last.first + last.pages()),
            Source::Process(snapshot) => snapshot.pages(),
        }
    }

    /// Of the pages there were, the source has every so many.
    pub(super) fn stride(&self) -> u64 {
        match self {
            Source::Files(_) => 1,
            Source::Process(snapshot) => snapshot.stride(),
        }
    }

    /// Pages that could not be read.
    pub(super) fn unread(&self) -> u64 {
        match self {
            Source::Files(_) => 0,
            Source::Process(snapshot) => snapshot.unread(),
        }
    }

    pub(super) fn read(&self, number: u64, page: &mut Page) -> Result<(), Failure> {
        match self {
            Source::Files(files) => file_of(files, number).map_or(Ok(()), |f| f.read(number, page)),
            Source::Process(snapshot) => snapshot.read(number, page),
        }
    }

    /// Why this page may have come back different without a defect here; else `None`.
    pub(super) fn suspect(&self, number: u64) -> Option<String> {
        let Source::Files(files) = self else { return None };
        file_of(files, number).filter(|file| file.has_changed()).map(|file| {
            format!("{} was written to meanwhile; estimate a copy of it", file.path.display())
        })
    }
}

/// The file that has this page.
fn file_of(files: &[Paged], number: u64) -> Option<&Paged> {
    let after = files.partition_point(|file| file.first <= number);
    files[..after].last()
}

impl Paged {
    fn open(path: &Path, first: u64) -> Result<Paged, Failure> {
        let failed = |error| Failure::about(path.display(), error);
        let kind = fs::metadata(path).map_err(failed)?.file_type();
        if kind.is_dir() {
            return Err(Failure::about(path.display(), "it is a directory; give files"));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(Failure::about(path.display(), "it is neither a file nor a block device"));
        }
        let mut file = File::open(path).map_err(failed)?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let modified = modified(&file);
        Ok(Paged { path: path.to_owned(), file, bytes, modified, first })
    }

    fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE_SIZE as u64)
    }

    /// Reads a page; the last one is filled with zeros.
    fn read(&self, number: u64, page: &mut Page) -> Result<(), Failure> {
        let offset = (number - self.first) * PAGE_SIZE as u64;
        let len = self.bytes.saturating_sub(offset).min(PAGE_SIZE as u64) as usize;
        let (data, rest) = page.split_at_mut(len);
        rest.fill(0);
        self.file
            .read_exact_at(data, offset)
            .map_err(|error| Failure::about(self.path.display(), error))
    }

    fn has_changed(&self) -> bool {
        modified(&self.file) != self.modified
    }
}

fn modified(file: &File) -> Option<SystemTime> {
    file.metadata().and_then(|status| status.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, bytes: &[u8]) -> Scratch {
            let name = format!("ramfold-source-{name}-{}", std::process::id());
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

    fn first_bytes(source: &Source) -> Vec<u8> {
        let mut page = [0xee; PAGE_SIZE];
        let read = |number| {
            source.read(number, &mut page).unwrap();
            page[0]
        };
        (0..source.pages()).map(read).collect()
    }

    #[test]
    fn pages_run_through_all_files() {
        let one = Scratch::new("one", &[1; PAGE_SIZE + 1]);
        let none = Scratch::new("none", &[]);
        let two = Scratch::new("two", &[2; PAGE_SIZE]);
        let source = Source::of_files(&[&one, &none, &two].map(|s| s.0.clone())).unwrap();
        assert_eq!(first_bytes(&source), [1, 1, 2]);
        let mut page = [0xee; PAGE_SIZE];
        source.read(1, &mut page).unwrap();
        assert!(page[1..].iter().all(|&byte| byte == 0), "the rest of the last page is zeros");
    }

    #[test]
    fn a_file_that_was_written_to_is_suspect() {
        let file = Scratch::new("changing", &[1; 10]);
        let source = Source::of_files(std::slice::from_ref(&file.0)).unwrap();
        assert_eq!(source.suspect(0), None);
        let later = SystemTime::now() + std::time::Duration::from_secs(10);
        File::options().write(true).open(&file.0).unwrap().set_modified(later).unwrap();
        assert!(source.suspect(0).is_some_and(|why| why.contains("estimate a copy")));
    }

    #[test]
    fn what_has_no_pages_is_refused() {
        let empty = Scratch::new("empty", &[]);
        let rows = [
            (empty.0.clone(), "empty"),
            (std::env::temp_dir(), "directory"),
            (PathBuf::from("/dev/null"), "neither"),
            (PathBuf::from("/nonexistent"), "No such file"),
        ];
        for (path, expected) in rows {
            let error = Source::of_files(std::slice::from_ref(&path)).err().expect("no pages");
            assert!(error.to_string().contains(expected), "{}: {error}", path.display());
        }
    }
}
