//! What of a process's memory is there: how much in all, which mappings, which pages.
//!
//! Invariant: the files are this process's, also after it has changed its root or its user. Lock:
//! none.

use super::end::lost;
use super::maps::range;
use crate::places::{GROUP_PAGES, PAGE};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// The files of `/proc/self` that are asked again and again.
pub(crate) struct Resident {
    statm: File,
    maps: File,
    pagemap: File,
    rollup: File,
    smaps: File,
}

/// A mapping of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) range: Range<usize>,
    /// It is empty in a forked child (`MADV_WIPEONFORK`).
    pub(crate) wiped: bool,
    /// A userfaultfd is told of pages that are missing in it.
    pub(crate) served: bool,
}

/// The page is mapped by this process alone, and once: a bit of `pagemap`.
const EXCLUSIVE: u64 = 1 << 56;
/// The page is in memory: a bit of `pagemap`.
const PRESENT_ENTRY: u64 = 1 << 63;

const _: () = assert!(EXCLUSIVE & PRESENT == 0, "bits of two interfaces");

/// `PAGE_IS_PRESENT` and `PAGE_IS_SWAPPED` of `linux/fs.h`.
const PRESENT: u64 = 1 << 3;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
pub(crate) const PAGEMAP_SCAN: libc::Ioctl =
    (3_u64 << 30 | 96 << 16 | (b'f' as u64) << 8 | 16) as libc::Ioctl;
/// Ranges of one look.
const RANGES: usize = 64;
/// `struct page_region`: start, end, and what is known of it.
pub(crate) type Run = [u64; 3];
/// Bytes of a page's entry in `pagemap`.
const ENTRY: usize = 8;
/// Soft-dirty and the kernel's note that a page is written through one mapping only: neither says
/// that there is content.
const NO_CONTENT: u64 = 1 << 55 | 1 << 56;

impl Resident {
    /// Opens the files.
    ///
    /// # Errors
    ///
    /// If there is no `/proc`.
    pub(crate) fn open() -> io::Result<Resident> {
        let open = |name: &str| File::open(format!("/proc/self/{name}"));
        Ok(Resident {
            statm: open("statm")?,
            maps: open("maps")?,
            pagemap: open("pagemap")?,
            rollup: open("smaps_rollup")?,
            smaps: open("smaps")?,
        })
    }

    /// Pages of anonymous memory, ours among them.
    pub(crate) fn anonymous(&self) -> Option<u64> {
        let mut text = [0; 128];
        let len = self.statm.read_at(&mut text, 0).ok()?;
        anonymous(std::str::from_utf8(&text[..len]).ok()?)
    }

    /// Bytes of anonymous memory that forks share with other processes, less this process's part of
    /// them. This takes 10 ms for each GiB.
    pub(crate) fn shared(&self) -> Option<u64> {
        let mut text = [0; 2048];
        let len = self.rollup.read_at(&mut text, 0).ok()?;
        shared(std::str::from_utf8(&text[..len]).ok()?)
    }

    /// Whether a page is mapped by this process alone.
    pub(crate) fn is_exclusive(&self, address: usize) -> bool {
        self.entry(address).is_ok_and(|entry| entry & EXCLUSIVE != 0)
    }

    /// Whether a page holds nothing at all. If the system does not tell, the process ends.
    pub(crate) fn is_empty(&self, address: usize) -> bool {
        let entry = self.entry(address);
        is_empty(entry.unwrap_or_else(|_| lost("the system does not say where its pages are")))
    }

    /// A page's entry in `pagemap`.
    fn entry(&self, address: usize) -> io::Result<u64> {
        let mut entry = [0; ENTRY];
        self.pagemap.read_exact_at(&mut entry, (address / PAGE * ENTRY) as u64)?;
        Ok(u64::from_ne_bytes(entry))
    }

    /// The text of `maps`.
    pub(crate) fn maps(&self) -> io::Result<String> {
        whole(&self.maps)
    }

    /// All mappings. This takes as long as `shared`.
    pub(crate) fn mappings(&self) -> io::Result<Vec<Mapping>> {
        Ok(mappings(&whole(&self.smaps)?))
    }

    /// Mappings that are empty in a forked child.
    pub(crate) fn wiped(&self) -> io::Result<Vec<Range<usize>>> {
        let wiped = self.mappings()?.into_iter().filter(|mapping| mapping.wiped);
        Ok(wiped.map(|mapping| mapping.range).collect())
    }

    /// The mappings, in order, of whose missing pages a userfaultfd is told; all addresses if the
    /// system does not say. This takes as long as `shared`.
    pub(crate) fn served(&self) -> Vec<Range<usize>> {
        let Ok(all) = self.mappings() else { return vec![0..usize::MAX; 1] };
        all.into_iter().filter(|it| it.served).map(|it| it.range).collect()
    }

    /// The pages of a group that other processes have too, as bits.
    pub(crate) fn shared_pages(&self, group: usize) -> u64 {
        let is_shared = |entry: u64| entry & (PRESENT_ENTRY | EXCLUSIVE) == PRESENT_ENTRY;
        self.pages(group, is_shared)
    }

    /// Tells which pages of a range are in memory, in runs. Stops early if `tell` says false.
    pub(crate) fn present(&self, range: &Range<usize>, mut tell: impl FnMut(Range<usize>) -> bool) {
        let mut start = range.start;
        while start < range.end {
            let mut runs: [Run; RANGES] = [[0; 3]; RANGES];
            let Ok((count, end)) = self.scan(start..range.end, &mut runs) else { return };
            for run in &runs[..count] {
                if !tell(run[0] as usize..run[1] as usize) {
                    return;
                }
            }
            if end <= start {
                return;
            }
            start = end;
        }
    }

    /// Fills `runs` with start, end and kind of what is present, and gives their number and where
    /// the look ended.
    fn scan(&self, range: Range<usize>, runs: &mut [Run]) -> io::Result<(usize, usize)> {
        let mut asked = scan_of(range, runs, PRESENT);
        // SAFETY: the structure and the vector are as long as they say.
        let count = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut asked) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok((count, asked[4] as usize))
    }

    /// The pages of a group that hold nothing at all, as bits.
    pub(crate) fn empty(&self, group: usize) -> u64 {
        self.pages(group, is_empty)
    }

    /// The pages of a group whose entries in `pagemap` are as `is` says, as bits; none if the
    /// system does not tell.
    fn pages(&self, group: usize, is: impl Fn(u64) -> bool) -> u64 {
        let mut entries = [0; GROUP_PAGES * ENTRY];
        let at = (group / PAGE * ENTRY) as u64;
        if self.pagemap.read_exact_at(&mut entries, at).is_err() {
            return 0;
        }
        let pages = entries.chunks_exact(ENTRY).enumerate().filter(|(_, bytes)| is(word(bytes)));
        pages.fold(0, |all, (page, _)| all | 1 << page)
    }
}

/// How many page faults the threads of this process had for which nothing was read from a disk.
/// The system counts them anyway, so an answer costs little beside that of `shared`.
pub(crate) fn faults() -> u64 {
    // SAFETY: zeros are a valid structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid for the call, and stays as it is if the call fails.
    unsafe { libc::syscall(libc::SYS_getrusage, libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_minflt as u64
}

/// `struct pm_scan_arg`: the pages of a range that are of a kind. The system fills `runs`.
pub(crate) fn scan_of(range: Range<usize>, runs: &mut [Run], kind: u64) -> [u64; 12] {
    let (at, len) = (runs.as_mut_ptr().addr() as u64, runs.len() as u64);
    // Size, flags, start, end, where the look ended, the vector, its length, most pages, and the
    // masks: inverted, all of, any of, returned.
    [96, 0, range.start as u64, range.end as u64, 0, at, len, 0, 0, kind, 0, kind]
}

/// A page's entry in `pagemap`.
fn word(entry: &[u8]) -> u64 {
    u64::from_ne_bytes(entry.try_into().unwrap_or([u8::MAX; ENTRY]))
}

/// Whether a page's entry says that it holds nothing.
fn is_empty(entry: u64) -> bool {
    entry & !NO_CONTENT == 0
}

/// Resident pages less those of files and shared memory, by the text of `statm`.
fn anonymous(text: &str) -> Option<u64> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (_, resident, shared) =
        (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(resident.saturating_sub(shared))
}

fn whole(mut file: &File) -> io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // The names of files may be anything.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The mappings of the text of `smaps`, and which of them have the flags `wf` and `um`.
fn mappings(text: &str) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |name| flags.split_ascii_whitespace().any(|flag| flag == name);
            if let Some(last) = all.last_mut() {
                (last.wiped, last.served) = (has("wf"), has("um"));
            }
        } else if let Some(range) = range(line) {
            all.push(Mapping { range, wiped: false, served: false });
        }
    }
    all
}

/// What `smaps_rollup` counts in full and by parts differs by so many bytes.
fn shared(text: &str) -> Option<u64> {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some(field("Anonymous")?.saturating_sub(field("Pss_Anon")?) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::{GROUP, bits};

    #[test]
    fn mappings_have_flags() {
        let text = "1000-2000 rw-p 0 00:00 0\nSize: 4 kB\nVmFlags: rd wr mr wf ac\n\
                    2000-9000 rw-p 0 00:00 0 [anon:wf]\nVmFlags: rd wr mr um ac\n";
        let mapping = |range, wiped| Mapping { range, wiped, served: !wiped };
        assert_eq!(mappings(text), [mapping(0x1000..0x2000, true), mapping(0x2000..0x9000, false)]);
    }

    #[test]
    fn shared_memory_is_what_is_counted_twice() {
        let text = "0-1 ---p 0 00:00 0 [rollup]\nPss_Anon:  60 kB\nAnonymous:  100 kB\n";
        assert_eq!(shared(text), Some(40 << 10));
        assert_eq!(shared("Anonymous: 1 kB\n"), None);
    }

    #[test]
    fn statm_is_read() {
        assert_eq!(anonymous("100 40 15 1 0 20 0\n"), Some(25));
        assert_eq!(anonymous("100 x"), None);
    }

    #[test]
    fn pages_are_known_when_they_are_touched() {
        let resident = Resident::open().expect("a process has these files");
        let len = 8 << 20;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping is ours.
        unsafe { libc::madvise(start, len, libc::MADV_NOHUGEPAGE) };
        let base = (start as usize).next_multiple_of(GROUP);
        let len = len - GROUP;
        assert_eq!(resident.empty(base), u64::MAX);
        let mut runs = Vec::new();
        resident.present(&(base..base + len), |run| {
            runs.push(run);
            true
        });
        assert_eq!(runs, []);
        for page in [3, 4, 1000] {
            // SAFETY: the page is part of the mapping.
            unsafe { ((base + page * PAGE) as *mut u8).write(1) };
        }
        resident.present(&(base..base + len), |run| {
            runs.push(run);
            true
        });
        let bytes = |pages: Range<usize>| base + pages.start * PAGE..base + pages.end * PAGE;
        assert_eq!(runs, [bytes(3..5), bytes(1000..1001)]);
        assert_eq!(resident.empty(base), !bits(3, 2));
        // SAFETY: the mapping is ours.
        unsafe { libc::munmap(start, len + GROUP) };
    }
}
