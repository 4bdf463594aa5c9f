//! What a pool's bytes are for, part by part, as the pool counts them.
//!
//! ```text
//!   accounted = payload + slack + unused         touched frames of zspages
//!               + free frames + frame table + cells + descriptors + classes
//! ```
//!
//! Invariant: the parts add up to what is accounted.

use crate::rows::Row;
use zsmalloc::Pool;

/// Field, and the word for it in a note.
const PARTS: [(&str, &str); 7] = [
    ("slack_bytes", "slack"),
    ("unused_bytes", "touched and in no slot in use"),
    ("free_bytes_held", "free frames"),
    ("frame_table_bytes", "frame table"),
    ("cell_table_bytes", "cells"),
    ("descriptor_bytes", "descriptors"),
    ("class_bytes", "classes"),
];

/// Bytes of each part besides the payload, and the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    payload: u64,
    others: [u64; PARTS.len()],
}

impl Parts {
    /// Those of a pool that has its memory to itself.
    pub(super) fn of(pool: &Pool) -> Parts {
        let (stats, memory, payload) = (pool.stats(), pool.memory(), pool.stored_bytes());
        let others = [
            stats.slot_bytes - payload,
            stats.object_bytes_resident.saturating_sub(stats.slot_bytes),
            memory.free_bytes_held(),
            memory.frame_table_bytes(),
            memory.cell_table_bytes(),
            memory.descriptor_bytes(),
            stats.class_bytes,
        ];
        Parts { payload, others }
    }

    /// All of them.
    pub(super) fn accounted(&self) -> u64 {
        self.payload + self.others.iter().sum::<u64>()
    }

    /// Sets a field for each.
    pub(super) fn set(&self, row: &mut Row) {
        for ((field, _), bytes) in PARTS.iter().zip(self.others) {
            row.set(field, bytes);
        }
    }
}

/// The parts of a row in hundredths of its payload; nothing of a row without them.
pub(super) fn in_words(row: &Row) -> Option<String> {
    let payload = row.number("payload_bytes")?;
    let part = |(field, word): &(&str, &str)| {
        Some(format!("{word} {:.2}", row.number(field)? / payload * 100.0))
    };
    let parts: Option<Vec<String>> = PARTS.iter().map(part).collect();
    Some(format!("for 100 bytes stored: {}", parts?.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zsmalloc::{Memory, MemoryConfig, PoolConfig};

    #[test]
    fn the_parts_are_the_whole() {
        let memory = Memory::new(MemoryConfig::for_disk(16 << 20)).unwrap();
        let pool = Pool::new(memory, PoolConfig::default()).unwrap();
        let handles: Vec<_> = (1..2000).map(|len| pool.alloc(&vec![7; len]).unwrap()).collect();
        let (parts, stats, memory) = (Parts::of(&pool), pool.stats(), pool.memory());
        assert_eq!(parts.payload, (1..2000).sum::<u64>());
        let metadata = memory.frame_table_bytes()
            + memory.cell_table_bytes()
            + memory.descriptor_bytes()
            + stats.class_bytes;
        let held = stats.object_bytes_resident + memory.free_bytes_held() + metadata;
        assert_eq!(parts.accounted(), held);
        pool.free_batch(handles).unwrap();
    }

    #[test]
    fn a_note_is_in_hundredths_of_what_is_stored() {
        let mut row = Row::default();
        row.set("payload_bytes", 200);
        assert_eq!(in_words(&row), None, "another allocator's");
        Parts { payload: 200, others: [1, 2, 3, 4, 5, 6, 7] }.set(&mut row);
        let expected = "for 100 bytes stored: slack 0.50, touched and in no slot in use 1.00, \
             free frames 1.50, frame table 2.00, cells 2.50, descriptors 3.00, classes 3.50";
        assert_eq!(in_words(&row).as_deref(), Some(expected));
    }
}
