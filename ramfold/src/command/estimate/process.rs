//! The memory of a live process, copied within a short time.
//!
//! ```text
//!   /proc/PID/maps     which ranges are private and readable
//!   /proc/PID/pagemap  which of their pages are present and anonymous
//!   /proc/PID/mem      what those hold  ->  our own device, with lz4
//! ```
//!
//! The process goes on, so its pages are copied once, and all trials work on the copy. A page that
//! is freed between the second step and the third is counted and left out. If the process ends
//! meanwhile, there is no copy.
//!
//! Invariant: the copy stays within its limit. If not all pages fit, every n-th is taken.
//!
//! Locks: none.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use codec::{Algorithm, Codec};
use disk::{Disk, DiskError};
use host::PAGE_SIZE;
use zram::Zram;

use super::device::{Page, Setting, Stop, device};
use super::sample::thinner;
use crate::line::Failure;

/// How the copy is stored. lz4 is fast to read, and the copy is read often.
const KEPT: Setting = Setting { codec: Codec::new(Algorithm::Lz4), chain_order: 3 };

/// Room in the copy for new pages of the process, in addition to a quarter of its pages.
const GROWTH_PAGES_MIN: u64 = 1024; // 4 MiB of addresses

/// The error of `/proc` for a process that has no memory of its own.
const ESRCH: i32 = 3;

/// How many words of the page map are read at once. A range may have terabytes, mostly absent.
const CHUNK_PAGES: usize = 512;

/// `pagemap` word: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// `pagemap` word: the page belongs to a file, or is shared.
const FILE_OR_SHARED: u64 = 1 << 61;
/// `pagemap` word: no other process maps it.
const EXCLUSIVE: u64 = 1 << 56;
const _: () =
    assert!(PRESENT & FILE_OR_SHARED & EXCLUSIVE == 0, "two bits of one word, see pagemap.rst");

/// Pages of a process, copied.
pub(crate) struct Snapshot {
    copy: Zram,
    pages: u64,
    stride: u64,
    unread: u64,
}

impl Snapshot {
    /// Copies the resident anonymous pages of a process into at most `limit` bytes.
    pub(super) fn take(pid: u32, limit: u64) -> Result<Snapshot, Failure> {
        let process = Process::open(pid)?;
        let mut stride = 1;
        loop {
            let resident = process.wanted().count() as u64;
            if resident == 0 {
                process.check_there()?;
                return Err(process.failure("none of its memory is anonymous and resident"));
            }
            match process.copy(resident, stride, limit) {
                Ok(snapshot) if snapshot.pages == 0 => {
                    return Err(process.failure("none of its pages can be read"));
                }
                Ok(snapshot) => return Ok(snapshot),
                Err(Stop::Failed(failure)) => return Err(failure),
                Err(Stop::Full { stored }) => {
                    stride = thinner(stride, resident.div_ceil(stride), stored)
                        .filter(|&stride| stride < resident)
                        .ok_or_else(|| process.failure("not enough memory for a copy of it"))?;
                }
            }
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn stride(&self) -> u64 {
        self.stride
    }

    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    pub(super) fn read(&self, number: u64, page: &mut Page) -> Result<(), Failure> {
        let read = self.copy.read(number * PAGE_SIZE as u64, page);
        read.map_err(|error| Failure::about(format!("page {number} of the copy"), error))
    }
}

struct Process {
    pid: u32,
    ranges: Vec<Range<u64>>,
    memory: File,
    page_map: File,
}

impl Process {
    fn open(pid: u32) -> Result<Process, Failure> {
        let failed = |error: std::io::Error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "there is no such process".to_owned(),
                ErrorKind::PermissionDenied => {
                    "its memory may not be read; that takes the rights of a debugger".to_owned()
                }
                _ if error.raw_os_error() == Some(ESRCH) => {
                    "it has no memory of its own: a kernel thread, or it has ended".to_owned()
                }
                _ => error.to_string(),
            };
            Failure::about(format!("process {pid}"), why)
        };
        let path = |name: &str| format!("/proc/{pid}/{name}");
        let maps = fs::read_to_string(path("maps")).map_err(failed)?;
        let ranges: Vec<_> = maps.lines().filter_map(parse_mapping).collect();
        let memory = File::open(path("mem")).map_err(failed)?;
        let page_map = File::open(path("pagemap")).map_err(failed)?;
        Ok(Process { pid, ranges, memory, page_map })
    }

    fn failure(&self, why: &str) -> Failure {
        Failure::about(format!("process {}", self.pid), why)
    }

    /// Fails if the memory of the process is gone. Then the page map cannot be read at any address.
    fn check_there(&self) -> Result<(), Failure> {
        let mut word = [0; size_of::<u64>()];
        let why = "it ended, or became another program, while its memory was read";
        self.page_map.read_exact_at(&mut word, 0).map_err(|_| self.failure(why))
    }

    /// Addresses of the pages that are present and anonymous, and whether only this process maps
    /// each.
    fn wanted(&self) -> impl Iterator<Item = (u64, bool)> {
        let chunk_bytes = (CHUNK_PAGES * PAGE_SIZE) as u64;
        let chunks = self.ranges.iter().flat_map(move |range| {
            let starts = range.clone().step_by(CHUNK_PAGES * PAGE_SIZE);
            starts.map(move |start| start..range.end.min(start + chunk_bytes))
        });
        chunks.flat_map(|chunk| {
            let words = self.page_map_of(&chunk);
            let pages = chunk.step_by(PAGE_SIZE).zip(words);
            let wanted = pages.filter(|&(_, word)| is_anonymous(word));
            wanted.map(|(address, word)| (address, word & EXCLUSIVE != 0))
        })
    }

    /// The page map of a range. It is empty if the range is gone.
    fn page_map_of(&self, range: &Range<u64>) -> Vec<u64> {
        let pages = (range.end - range.start) / PAGE_SIZE as u64;
        let mut bytes = vec![0; pages as usize * size_of::<u64>()];
        let offset = range.start / PAGE_SIZE as u64 * size_of::<u64>() as u64;
        match self.page_map.read_exact_at(&mut bytes, offset) {
            Ok(()) => bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Copies every `stride`-th page. If the process has grown since it was measured, there is room
    /// for some of the new pages, and the others are left out.
    fn copy(&self, resident: u64, stride: u64, limit: u64) -> Result<Snapshot, Stop> {
        let room = (resident + resident / 4 + GROWTH_PAGES_MIN).div_ceil(stride);
        let copy = device(room, &KEPT, limit)?;
        let (mut pages, mut unread) = (0, 0);
        let mut page = [0; PAGE_SIZE];
        for (address, alone) in self.wanted().step_by(stride as usize) {
            if pages == room {
                break;
            }
            if self.memory.read_exact_at(&mut page, address).is_err() {
                unread += 1;
                continue;
            }
            // Memory that was read but never written is the system's only page of zeros, and takes
            // none. The page map shows it like a page of the process.
            if !alone && page.iter().all(|&byte| byte == 0) {
                continue;
            }
            keep(&copy, pages, &page)?;
            pages += 1;
        }
        self.check_there()?;
        Ok(Snapshot { copy, pages, stride, unread })
    }
}

/// Stores a page, and reads it back to compare, because later the process may have changed.
fn keep(copy: &Zram, number: u64, page: &Page) -> Result<(), Stop> {
    let offset = number * PAGE_SIZE as u64;
    let failed = |error: DiskError| Failure::about("copying the process", error);
    match copy.write(offset, page) {
        Err(DiskError::NoSpace | DiskError::NoMemory) => Err(Stop::Full { stored: number }),
        written => {
            written.map_err(failed)?;
            let mut back = [0; PAGE_SIZE];
            copy.read(offset, &mut back).map_err(failed)?;
            let defect = "a page came back different: a defect of ramfold";
            if back == *page { Ok(()) } else { Err(Failure::Failed(defect.to_owned()).into()) }
        }
    }
}

const fn is_anonymous(word: u64) -> bool {
    word & PRESENT != 0 && word & FILE_OR_SHARED == 0
}

/// The range of a line of `maps`, if it is private and not the kernel's. A private mapping of a
/// file has anonymous pages at addresses that were written to. A range that may not be read can
/// have pages too, and a debugger's rights suffice to read them.
fn parse_mapping(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let is_kernels = fields.nth(3).is_some_and(|path| path.starts_with("[v"));
    (rights.ends_with('p') && !is_kernels).then_some(())?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_mappings_have_pages() {
        let heap = "55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0          [heap]";
        assert_eq!(parse_mapping(heap), Some(0x55d0_c0a0_0000..0x55d0_c0a2_1000));
        assert!(parse_mapping("7f10000-7f20000 rw-p 00001000 fe:00 12 /usr/lib/x.so").is_some());
        assert!(parse_mapping("7f10-7f20 ---p 00000000 00:00 0").is_some(), "it may hold pages");
        for line in [
            "7f10-7f20 rw-s 00000000 00:01 99 /dev/zero (deleted)",
            "7ffc-7ffd r--p 00000000 00:00 0 [vvar]",
            "ffff-fffff --xp 00000000 00:00 0 [vsyscall]",
            "2000-1000 rw-p 00000000 00:00 0",
            "garbage",
            "",
        ] {
            assert_eq!(parse_mapping(line), None, "{line}");
        }
    }

    #[test]
    fn only_present_anonymous_pages_are_wanted() {
        assert!(is_anonymous(PRESENT));
        assert!(!is_anonymous(PRESENT | FILE_OR_SHARED));
        assert!(!is_anonymous(1 << 62), "swapped out: there is nothing to read");
    }

    #[test]
    fn this_process_can_be_copied() {
        let marked = vec![0x5a_u8; 3 * PAGE_SIZE];
        let snapshot = Snapshot::take(std::process::id(), 1 << 30).unwrap();
        let mut page = [0; PAGE_SIZE];
        let is_marked = |number| {
            snapshot.read(number, &mut page).unwrap();
            page == marked[..PAGE_SIZE]
        };
        let found = (0..snapshot.pages()).map(is_marked).filter(|&found| found).count();
        assert!(found >= 2, "{found} pages like ours among {}", snapshot.pages());
        assert_eq!(marked[0], 0x5a, "still there when the copy was taken");
    }

    /// The part that was read before would look like all of it.
    #[test]
    fn of_a_process_that_ends_meanwhile_there_is_no_copy() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(process.check_there().is_ok());
        child.kill().and_then(|()| child.wait()).unwrap();
        let Err(Stop::Failed(failure)) = process.copy(1, 1, 1 << 30) else {
            panic!("a copy of nothing");
        };
        assert!(failure.to_string().contains("it ended"), "{failure}");
    }

    #[test]
    fn a_copy_that_does_not_fit_is_thinned() {
        let mut state = 1_u64;
        let noise: Vec<u64> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.rotate_left(32)
        })
        .take(64 * PAGE_SIZE / size_of::<u64>())
        .collect();
        let snapshot = Snapshot::take(std::process::id(), 16 * PAGE_SIZE as u64).unwrap();
        assert_ne!(noise.last(), Some(&0), "64 pages of noise are there while the copy is made");
        assert!(snapshot.stride() > 1 && snapshot.pages() > 0, "every {}", snapshot.stride());
    }

    #[test]
    fn processes_without_memory_are_refused() {
        let refused = |pid| Snapshot::take(pid, 1 << 30).err().map(|error| error.to_string());
        let none = refused(u32::MAX).unwrap();
        assert!(none.contains("no such process"), "{none}");
        assert!(refused(2).is_some(), "a kernel thread, or not ours, or not there");
    }
}
