//! What a program was made by, as its file says.
//!
//! Go's threads of its own make system calls on stacks of a few KiB, which lie in its heap side by
//! side. The frame of a trapped call has no place there, and would be written over a neighbour.
//!
//! Source: the ELF headers of `elf(5)`, and the note that Go's linker writes (`cmd/link`,
//! `.note.go.buildid`: its owner is "Go").
//!
//! Invariant: a file that makes no sense is one of another program, and leads to no panic. Lock:
//! none.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// The beginning of a program file, in which its headers are.
const HEADERS: usize = 4096;
/// The most bytes of notes that are looked at.
const NOTES_MAX: usize = 4096;
/// Kinds of an entry of the program headers, and of a note.
const NOTE: u64 = 4;
const BUILD: u64 = 4;
const OWNER: [u8; 4] = *b"Go\0\0";

/// Whether this program is one of Go. One whose file cannot be read is taken for another.
pub(super) fn is_go() -> bool {
    let Ok(file) = File::open("/proc/self/exe") else { return false };
    let read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        let got = file.read_at(&mut bytes, at).unwrap_or(0);
        bytes.truncate(got);
        bytes
    };
    has_note(&read(0, HEADERS), |at, len| read(at, len.min(NOTES_MAX)))
}

/// Whether a program has a note of Go.
fn has_note(headers: &[u8], read: impl Fn(u64, usize) -> Vec<u8>) -> bool {
    let entries = || {
        let (table, size) = (number(headers, 32, 8)?, number(headers, 54, 2)?);
        let count = number(headers, 56, 2)?;
        Some((0..count).map_while(move |at| usize::try_from(table.checked_add(at * size)?).ok()))
    };
    let is_note = |entry: &usize| number(headers, *entry, 4) == Some(NOTE);
    let mut notes = entries().into_iter().flatten().filter(is_note).filter_map(|entry| {
        let len = usize::try_from(number(headers, entry.checked_add(32)?, 8)?).ok()?;
        Some(read(number(headers, entry.checked_add(8)?, 8)?, len))
    });
    notes.any(|notes| is_of_go(&notes))
}

/// Whether a note of Go is among these.
fn is_of_go(mut notes: &[u8]) -> bool {
    loop {
        let lengths = number(notes, 0, 4).zip(number(notes, 4, 4)).zip(number(notes, 8, 4));
        let Some(((name, content), kind)) = lengths else { return false };
        if kind == BUILD && notes.get(12..16) == Some(&OWNER) && name == OWNER.len() as u64 {
            return true;
        }
        let padded = |len: u64| (len as usize).next_multiple_of(4);
        let len = 12 + padded(name) + padded(content);
        let Some(rest) = notes.get(len..) else { return false };
        notes = rest;
    }
}

/// The number of `len` bytes at a place, the lowest byte first.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note with this owner, of four bytes, and this kind.
    fn note(owner: &[u8; 4], kind: u32, content: &[u8]) -> Vec<u8> {
        let lengths = [owner.len() as u32, content.len() as u32, kind].map(u32::to_le_bytes);
        let mut note = lengths.concat();
        note.extend_from_slice(owner);
        note.extend_from_slice(content);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    /// The headers of a program with one entry, of notes at a place.
    fn headers(kind: u32, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        (bytes[32], bytes[54], bytes[56]) = (64, 56, 1);
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(at.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(len.to_le_bytes());
        bytes.extend([0; 16]);
        bytes
    }

    #[test]
    fn a_note_of_go_is_found_among_others() {
        let other = note(b"GNU\0", 3, &[7; 20]);
        let go = note(b"Go\0\0", 4, b"abcdef");
        assert!(is_of_go(&go) && is_of_go(&[other.clone(), go.clone()].concat()));
        assert!(!is_of_go(&other) && !is_of_go(&[]) && !is_of_go(&note(b"Go\0\0", 3, &[])));
        for len in 0..go.len() {
            // What is cut off must not panic.
            let _ = is_of_go(&go[..len]);
        }
        assert!(!is_of_go(&[0xff; 64]), "lengths that lead nowhere");
        let read = |at, len| if (at, len) == (500, go.len()) { go.clone() } else { Vec::new() };
        assert!(has_note(&headers(4, 500, go.len() as u64), read));
        assert!(!has_note(&headers(1, 500, go.len() as u64), read));
        assert!(!has_note(&headers(4, 400, go.len() as u64), read));
        assert!(!has_note(b"#!/bin/sh", read) && !has_note(&[0xff; 64], read));
    }

    #[test]
    fn this_test_is_not_of_go() {
        assert!(!is_go());
    }
}
