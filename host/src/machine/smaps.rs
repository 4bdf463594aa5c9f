//! The cost of our mappings as the kernel counts it: `/proc/self/smaps` and `/proc/self/status`.
//!
//! ```text
//!    7f10c0001000-7f10c8001000 rw-p 00000000 00:00 0      <- a VMA: its addresses
//!    Size:             131072 kB
//!    Rss:                   4 kB                          <- what of it is in memory
//!    VmFlags: rd wr mr mw me nr dc nh
//! ```
//!
//! Invariant: arenas and tables lie between guard pages, so no VMA reaches across their ends. The
//! sum over the VMAs inside an address range is therefore exactly the cost of that range. Lock:
//! none.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// Bytes in the unit of these files.
const KIB: u64 = 1024;

/// Resident bytes of this process's VMAs that lie inside one of `ranges`, which are addresses.
///
/// The kernel walks the page tables of the whole process, so this is a call for reports and not for
/// a data path.
///
/// # Errors
///
/// If `/proc/self/smaps` cannot be read.
pub fn rss_of(ranges: &[Range<usize>]) -> io::Result<u64> {
    sum_in(BufReader::new(File::open("/proc/self/smaps")?), "Rss", ranges)
}

/// Bytes that the system's swap holds of this process's VMAs inside one of `ranges`. It costs as
/// much as [`rss_of`].
///
/// # Errors
///
/// If `/proc/self/smaps` cannot be read.
pub fn swap_of(ranges: &[Range<usize>]) -> io::Result<u64> {
    sum_in(BufReader::new(File::open("/proc/self/smaps")?), "Swap", ranges)
}

/// Bytes of all anonymous memory of this process: everything that it wrote and that belongs to no
/// file. Stacks and the heap of the C library are included. It costs as much as [`rss_of`].
///
/// # Errors
///
/// If `/proc/self/smaps` cannot be read.
pub fn anonymous_bytes() -> io::Result<u64> {
    let everywhere = 0..usize::MAX;
    sum_in(BufReader::new(File::open("/proc/self/smaps")?), "Anonymous", &[everywhere])
}

/// Bytes of this process's page tables, which mapped memory costs beside its frames.
///
/// # Errors
///
/// If `/proc/self/status` cannot be read, or has no `VmPTE`.
pub fn page_table_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let found = status.lines().find_map(|line| field(line, "VmPTE"));
    found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no VmPTE in /proc/self/status"))
}

/// The sum of the field `name` over the VMAs of `smaps` inside one of `ranges`.
fn sum_in(smaps: impl BufRead, name: &str, ranges: &[Range<usize>]) -> io::Result<u64> {
    let mut inside = false;
    let mut total = 0_u64;
    for line in smaps.lines() {
        let line = line?;
        if let Some(vma) = vma(&line) {
            inside = ranges.iter().any(|range| range.start <= vma.start && vma.end <= range.end);
        } else if inside {
            total = total.saturating_add(field(&line, name).unwrap_or(0));
        }
    }
    Ok(total)
}

/// The addresses of a VMA, if `line` opens one.
fn vma(line: &str) -> Option<Range<usize>> {
    let (addresses, _) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// The bytes of a line `NAME: N kB`, if `line` is one.
pub(crate) fn field(line: &str, name: &str) -> Option<u64> {
    let number = line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix("kB")?;
    number.trim().parse::<u64>().ok()?.checked_mul(KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00001000-00003000 rw-p 00000000 00:00 0 \n\
Size:                  8 kB\n\
Rss:                   8 kB\n\
Pss:                   8 kB\n\
Swap:                 12 kB\n\
SwapPss:               4 kB\n\
VmFlags: rd wr mr mw me nr dc nh\n\
00003000-00004000 ---p 00000000 00:00 0 \n\
Rss:                   0 kB\n\
7f0000000000-7f0000100000 r-xp 00000000 08:01 42    /usr/lib/dash-and space.so\n\
Rss:                  64 kB\n";

    #[track_caller]
    fn assert_rss(ranges: &[(usize, usize)], expected: u64) {
        let ranges: Vec<_> = ranges.iter().map(|&(start, end)| start..end).collect();
        let rss = sum_in(SMAPS.as_bytes(), "Rss", &ranges).expect("a slice is readable");
        assert_eq!(rss, expected, "resident bytes inside {ranges:x?}");
    }

    #[test]
    fn a_vma_counts_when_it_lies_inside_a_range() {
        assert_rss(&[], 0);
        assert_rss(&[(0x1000, 0x3000)], 8192);
        assert_rss(&[(0x0, 0x10000)], 8192);
        assert_rss(&[(0x1000, 0x2fff)], 0);
        assert_rss(&[(0x1001, 0x3000)], 0);
        assert_rss(&[(0x1000, 0x3000), (0x7f00_0000_0000, 0x7f00_0010_0000)], 8192 + 65536);
    }

    #[test]
    fn what_is_swapped_is_a_field_of_its_own() {
        let swapped = |range| sum_in(SMAPS.as_bytes(), "Swap", &[range]).expect("readable");
        assert_eq!(swapped(0x1000..0x3000), 12 * 1024);
        assert_eq!(swapped(0x3000..0x4000), 0);
    }

    #[test]
    fn ranges_that_overlap_count_a_vma_once() {
        assert_rss(&[(0x1000, 0x3000), (0x0, 0x10000)], 8192);
    }

    #[test]
    fn a_field_is_its_whole_name_and_kib() {
        assert_eq!(field("VmPTE:\t      84 kB", "VmPTE"), Some(84 * 1024));
        for line in ["VmPTE: 84", "VmPTEx: 84 kB", "VmPTE: -1 kB", "VmPTE: kB", "", "VmPTE"] {
            assert_eq!(field(line, "VmPTE"), None, "of {line:?}");
        }
        assert_eq!(field("Rss: 18446744073709551615 kB", "Rss"), None, "overflow is no number");
    }

    #[test]
    fn garbage_opens_no_vma() {
        for line in ["", "-", "x-y z", "1000- rw-p", "Rss: 4 kB", "1000-2000"] {
            assert_eq!(vma(line), None, "of {line:?}");
        }
    }

    #[test]
    fn this_process_has_page_tables() {
        let bytes = page_table_bytes().expect("/proc is mounted");
        assert!(bytes >= 4096, "a running process has a page table, not {bytes} bytes of them");
    }
}
