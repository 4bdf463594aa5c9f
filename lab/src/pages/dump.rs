//! `lab corpus`: the resident anonymous pages of a live process, as a file.
//!
//! ```text
//!   /proc/PID/maps     which ranges are private
//!   /proc/PID/pagemap  which pages of them are present and anonymous
//!   /proc/PID/mem      what they hold
//! ```
//!
//! The process runs on meanwhile: a page that goes away between the second step and the third is
//! left out and counted. Without permission for the page map every readable page of anonymous
//! mappings is taken, those never touched included.

use super::{PAGE_SIZE, is_same_filled};
use crate::ground::{LabError, size};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Options of `lab corpus`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// The process whose memory is taken
    #[arg(long)]
    pid: u32,
    /// Where to put the pages; the file is readable by its owner only
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Stop after this many MiB
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Option<u64>,
}

/// What was written.
#[derive(Default)]
struct Tally {
    pages: u64,
    same_filled: u64,
    gone: u64,
    mappings: u64,
}

/// Dumps as asked and returns the sentence that says what was written.
pub(crate) fn run(options: &Options) -> Result<String, LabError> {
    let process = Process::open(options.pid)?;
    let limit = options.mib.map_or(u64::MAX, |mib| (mib << 20) / PAGE_SIZE as u64);
    let mut out = BufWriter::new(create(&options.out)?);
    let failed = || LabError::io(options.out.display());
    let mut tally = Tally::default();
    for range in &process.ranges {
        let before = tally.pages;
        process.copy(range, limit, &mut tally, &mut out).map_err(failed())?;
        tally.mappings += u64::from(tally.pages > before);
    }
    out.flush().map_err(failed())?;
    if tally.pages == 0 {
        let why = "none of its private pages is resident and readable".to_owned();
        return Err(LabError::Store { what: format!("process {}", options.pid), why });
    }
    Ok(process.report(&tally, &options.out))
}

fn create(path: &Path) -> Result<File, LabError> {
    const OWNER_ONLY: u32 = 0o600;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(OWNER_ONLY);
    options.open(path).map_err(LabError::io(path.display()))
}

/// A readable private range of an address space.
#[derive(Debug, PartialEq)]
struct Range {
    start: u64,
    end: u64,
}

struct Process {
    pid: u32,
    name: String,
    ranges: Vec<Range>,
    memory: File,
    page_map: Option<File>,
}

impl Process {
    fn open(pid: u32) -> Result<Process, LabError> {
        let file = |name: &str| format!("/proc/{pid}/{name}");
        let status =
            std::fs::read_to_string(file("status")).map_err(|source| match source.kind() {
                ErrorKind::NotFound => LabError::Usage(format!("--pid {pid}: no such process")),
                _ => LabError::Io { what: file("status"), source },
            })?;
        let name = status_field(&status, "Name").unwrap_or("?").to_owned();
        if status_field(&status, "VmSize").is_none() {
            return Err(LabError::Usage(format!(
                "--pid {pid}: {name} has no memory of its own (a kernel thread, or it has ended)"
            )));
        }
        let maps = std::fs::read_to_string(file("maps")).map_err(LabError::io(file("maps")))?;
        let memory = File::open(file("mem")).map_err(LabError::io(file("mem")))?;
        let page_map = File::open(file("pagemap")).ok();
        let ranges =
            maps.lines().filter_map(|line| parse_mapping(line, page_map.is_some())).collect();
        Ok(Process { pid, name, ranges, memory, page_map })
    }

    /// Appends the wanted pages of `range` until `limit` pages are written in all.
    fn copy(
        &self,
        range: &Range,
        limit: u64,
        tally: &mut Tally,
        out: &mut impl Write,
    ) -> std::io::Result<()> {
        let mut page = [0; PAGE_SIZE];
        for address in self.wanted(range) {
            if tally.pages == limit {
                break;
            }
            if self.memory.read_exact_at(&mut page, address).is_err() {
                tally.gone += 1;
                continue;
            }
            out.write_all(&page)?;
            tally.pages += 1;
            tally.same_filled += u64::from(is_same_filled(&page));
        }
        Ok(())
    }

    /// The pages of `range` that are present and no file's, as far as one may know. The page map
    /// is read in chunks: ranges may be terabytes, most of it absent.
    fn wanted(&self, range: &Range) -> impl Iterator<Item = u64> {
        const CHUNK: usize = 512 * PAGE_SIZE;
        (range.start..range.end).step_by(CHUNK).flat_map(move |start| {
            let end = range.end.min(start + CHUNK as u64);
            let entries = self.entries(start, end);
            let pages = (start..end).step_by(PAGE_SIZE).zip(entries);
            pages.filter(|(_, entry)| is_anonymous(*entry)).map(|(address, _)| address)
        })
    }

    /// The page map of `start..end`; without permission, one that claims everything.
    fn entries(&self, start: u64, end: u64) -> Vec<u64> {
        let pages = (end - start) as usize / PAGE_SIZE;
        let Some(page_map) = &self.page_map else { return vec![PRESENT; pages] };
        let mut bytes = vec![0; pages * 8];
        match page_map.read_exact_at(&mut bytes, start / PAGE_SIZE as u64 * 8) {
            Ok(()) => bytes.as_chunks().0.iter().map(|entry| u64::from_le_bytes(*entry)).collect(),
            Err(_) => vec![0; pages],
        }
    }

    fn report(&self, tally: &Tally, out: &Path) -> String {
        let kind = match self.page_map {
            Some(_) => "resident anonymous pages",
            None => "pages of anonymous mappings, touched or not (no permission for pagemap),",
        };
        let mib = size::mib(tally.pages * PAGE_SIZE as u64);
        let wrote = format!("{}: {} {kind} ({mib:.1} MiB)", out.display(), tally.pages);
        let of = format!("of {} (process {})", self.name, self.pid);
        let Tally { mappings, same_filled, gone, .. } = tally;
        let rest = format!("from {mappings} mappings; {same_filled} same-filled; {gone} went away");
        format!("{wrote} {of} {rest}")
    }
}

/// `pagemap` bits: 63 present, 61 file page or shared anonymous.
const fn is_anonymous(entry: u64) -> bool {
    entry & PRESENT != 0 && entry & FILE_OR_SHARED == 0
}

const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;
const _: () = assert!(PRESENT & FILE_OR_SHARED == 0, "two bits of one pagemap word");

fn status_field<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
}

/// The range of a line of `maps` when its pages may be private and anonymous. A private file
/// mapping has such pages where it was written to; only the page map tells them apart.
fn parse_mapping(line: &str, with_page_map: bool) -> Option<Range> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let inode = fields.nth(2)?;
    let path = fields.next().unwrap_or("");
    let special = path.starts_with("[v");
    let anonymous = inode == "0" || with_page_map;
    (rights.starts_with('r') && rights.ends_with('p') && anonymous && !special).then_some(())?;
    Some(Range {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_readable_mappings_are_taken() {
        let heap = "55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0          [heap]";
        let range = Range { start: 0x55d0_c0a0_0000, end: 0x55d0_c0a2_1000 };
        assert_eq!(parse_mapping(heap, false), Some(range));
        let data = "7f10-7f20 rw-p 00001000 fe:00 1234 /usr/lib/libc.so.6";
        assert!(parse_mapping(data, true).is_some(), "written pages of .data are anonymous");
        assert!(parse_mapping(data, false).is_none(), "without pagemap they cannot be told apart");
    }

    #[test]
    fn shared_unreadable_and_kernel_mappings_are_not() {
        for line in [
            "7f10-7f20 rw-s 00000000 00:01 99 /dev/zero (deleted)",
            "7f10-7f20 ---p 00000000 00:00 0",
            "7ffc-7ffd r-xp 00000000 00:00 0 [vdso]",
            "ffff-fffff --xp 00000000 00:00 0 [vsyscall]",
            "garbage",
        ] {
            assert_eq!(parse_mapping(line, true), None, "{line}");
        }
    }

    #[test]
    fn only_present_anonymous_pages_are_wanted() {
        assert!(is_anonymous(PRESENT));
        assert!(!is_anonymous(PRESENT | FILE_OR_SHARED));
        assert!(!is_anonymous(1 << 62), "swapped out, so there is nothing to read");
    }
}
