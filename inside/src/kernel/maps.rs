//! Which of a process's mappings fold, by the text of `/proc/self/maps`.
//!
//! A mapping folds if it is private, anonymous, readable and writable, not executable, and not
//! small. The main thread's stack grows by itself and is left alone. The memory of the library
//! itself is left out by its caller, by address.
//!
//! Invariant: a line that is not understood folds nothing. Lock: none.

use crate::places::MAPPING_MIN;
use std::ops::Range;

/// The mappings of the text that fold, without what is in `ours`. The system may have made one
/// mapping of memory of ours and of the program's beside it.
pub(crate) fn folding(text: &str, ours: &[Range<usize>]) -> Vec<Range<usize>> {
    let mappings = text.lines().filter_map(line).collect();
    ours.iter()
        .fold(mappings, |left, ours| left.into_iter().flat_map(|it| without(it, ours)).collect())
}

/// The parts of a range that are outside another.
fn without(range: Range<usize>, other: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let before = range.start..range.end.min(other.start);
    let after = range.start.max(other.end)..range.end;
    [before, after].into_iter().filter(|part| part.start < part.end)
}

/// The range of one line, if it folds: addresses, access, offset, device, inode, name.
fn line(line: &str) -> Option<Range<usize>> {
    let range = range(line)?;
    let mut fields = line.split_ascii_whitespace().skip(1);
    let access = fields.next()?;
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or("");
    let anonymous = inode == "0" && (!name.starts_with('[') || name == "[heap]" || is_named(name));
    (access == "rw-p" && anonymous && range.len() >= MAPPING_MIN).then_some(range)
}

/// The addresses with which the line of a mapping begins.
pub(super) fn range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some(address(start)?..address(end)?)
}

/// Names that programs give to their anonymous memory (`PR_SET_VMA`).
fn is_named(name: &str) -> bool {
    name.starts_with("[anon:")
}

fn address(text: &str) -> Option<usize> {
    usize::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_folds_is_told_by_the_line() {
        let folds = [
            "00600000-00700000 rw-p 00000000 00:00 0                          [heap]",
            "7f0000000000-7f0000100000 rw-p 00000000 00:00 0 ",
            "7f0000000000-7f0000100000 rw-p 00000000 00:00 0                  [anon:v8]",
        ];
        for text in folds {
            assert!(line(text).is_some_and(|range| range.len() == 1 << 20), "{text}");
        }
        let stays = [
            "7f0000000000-7f0000100000 rw-s 00000000 00:01 1024               /dev/zero (deleted)",
            "7f0000000000-7f0000100000 rw-p 00000000 08:01 77                 /usr/lib/x.so",
            "7f0000000000-7f0000100000 ---p 00000000 00:00 0 ",
            "7f0000000000-7f0000100000 r--p 00000000 00:00 0 ",
            "7f0000000000-7f0000100000 rwxp 00000000 00:00 0 ",
            "7f0000000000-7f000001f000 rw-p 00000000 00:00 0 ",
            "7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0                  [stack]",
            "7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0                  [vvar]",
            "",
            "x-y rw-p 00000000 00:00 0",
            "7f0000000000",
        ];
        for text in stays {
            assert_eq!(line(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_ours_is_left_out() {
        let text = "100000-200000 rw-p 0 00:00 0\n300000-400000 rw-p 0 00:00 0\n";
        let ours = [0x180000..0x280000, 0..1, 0x3a0000..0x3a1000];
        let left = [0x100000..0x180000, 0x300000..0x3a0000, 0x3a1000..0x400000];
        assert_eq!(folding(text, &ours), left);
    }
}
