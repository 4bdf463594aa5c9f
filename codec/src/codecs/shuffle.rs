//! The shuffle: bytes of a page, so ordered that like stands beside like.
//!
//! ```text
//!   elements of 4 bytes    a0 a1 a2 a3  b0 b1 b2 b3  c0 c1 c2 c3 ..
//!   shuffled               a3 b3 c3 ..  a2 b2 c2 ..  a1 b1 c1 ..  a0 b0 c0 ..
//! ```
//!
//! Numbers of an array differ in their low bytes, and have their high bytes in common. Byte by byte
//! a compressor finds little in them that it has seen before. Shuffled, it finds long runs. blosc
//! made this known, and HDF5 has the same filter. The order of bytes says nothing of their values,
//! so any page comes back as it was.
//!
//! The high bytes come first, which is the other way round in those two. LZ4 takes larger steps
//! the longer it finds nothing. Behind low bytes, which are often noise, it would step over much
//! of what it could find.
//!
//! Sixteen elements are turned at a time. They are as many rows of 16 bytes as an element has
//! bytes. A round takes the even bytes of each pair of rows and the odd ones apart. After as many
//! rounds as the size has twos, each row is one byte of all elements. Compilers turn a round into
//! the vector instructions for this.
//!
//! Invariant: `spread` undoes `gather`. Bytes behind the last whole element stay where they are.

use crate::terms::ParameterError;

/// Elements that are turned at a time: bytes of a row.
const ROW: usize = 16;

/// The size of the elements that a page is taken for: 2, 4 or 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Two,
    Four,
    Eight,
}

impl Element {
    pub(super) const fn of_bytes(bytes: usize) -> Result<Element, ParameterError> {
        match bytes {
            2 => Ok(Element::Two),
            4 => Ok(Element::Four),
            8 => Ok(Element::Eight),
            other => Err(ParameterError::Element(other)),
        }
    }

    pub(super) const fn bytes(self) -> usize {
        match self {
            Element::Two => 2,
            Element::Four => 4,
            Element::Eight => 8,
        }
    }

    /// Fills `shuffled` from a page just as long.
    pub(super) fn shuffle(self, page: &[u8], shuffled: &mut [u8]) {
        match self {
            Element::Two => shuffle::<2>(page, shuffled),
            Element::Four => shuffle::<4>(page, shuffled),
            Element::Eight => shuffle::<8>(page, shuffled),
        }
    }

    /// Fills a page from what `shuffle` made of it.
    pub(super) fn unshuffle(self, shuffled: &[u8], page: &mut [u8]) {
        match self {
            Element::Two => unshuffle::<2>(shuffled, page),
            Element::Four => unshuffle::<4>(shuffled, page),
            Element::Eight => unshuffle::<8>(shuffled, page),
        }
    }
}

fn shuffle<const BYTES: usize>(page: &[u8], shuffled: &mut [u8]) {
    let (elements, tail) = page.as_chunks::<BYTES>();
    let count = elements.len();
    let (planes, end) = shuffled.split_at_mut(count * BYTES);
    end.copy_from_slice(tail);
    let (blocks, few) = elements.as_chunks::<ROW>();
    for (number, block) in blocks.iter().enumerate() {
        let mut rows = [[0; ROW]; BYTES];
        rows.as_flattened_mut().copy_from_slice(block.as_flattened());
        for _ in 0..BYTES.ilog2() {
            rows = gather(&rows);
        }
        for (plane, row) in rows.iter().rev().enumerate() {
            planes[plane * count + number * ROW..][..ROW].copy_from_slice(row);
        }
    }
    let first = count - few.len();
    for (number, element) in few.iter().enumerate() {
        for (plane, &value) in element.iter().rev().enumerate() {
            planes[plane * count + first + number] = value;
        }
    }
}

fn unshuffle<const BYTES: usize>(shuffled: &[u8], page: &mut [u8]) {
    let (elements, tail) = page.as_chunks_mut::<BYTES>();
    let count = elements.len();
    let (planes, end) = shuffled.split_at(count * BYTES);
    tail.copy_from_slice(end);
    let (blocks, few) = elements.as_chunks_mut::<ROW>();
    for (number, block) in blocks.iter_mut().enumerate() {
        let mut rows = [[0; ROW]; BYTES];
        for (plane, row) in rows.iter_mut().rev().enumerate() {
            row.copy_from_slice(&planes[plane * count + number * ROW..][..ROW]);
        }
        for _ in 0..BYTES.ilog2() {
            rows = spread(&rows);
        }
        block.as_flattened_mut().copy_from_slice(rows.as_flattened());
    }
    let first = count - few.len();
    for (number, element) in few.iter_mut().enumerate() {
        for (plane, value) in element.iter_mut().rev().enumerate() {
            *value = planes[plane * count + first + number];
        }
    }
}

/// All even bytes before all odd ones.
fn gather<const BYTES: usize>(rows: &[[u8; ROW]; BYTES]) -> [[u8; ROW]; BYTES] {
    let mut gathered = [[0; ROW]; BYTES];
    for pair in 0..BYTES / 2 {
        let (low, high) = (&rows[2 * pair], &rows[2 * pair + 1]);
        for at in 0..ROW / 2 {
            gathered[pair][at] = low[2 * at];
            gathered[pair][ROW / 2 + at] = high[2 * at];
            gathered[BYTES / 2 + pair][at] = low[2 * at + 1];
            gathered[BYTES / 2 + pair][ROW / 2 + at] = high[2 * at + 1];
        }
    }
    gathered
}

/// Bytes of the first half in the even places, and of the second half in the odd ones.
fn spread<const BYTES: usize>(rows: &[[u8; ROW]; BYTES]) -> [[u8; ROW]; BYTES] {
    let mut spread = [[0; ROW]; BYTES];
    for pair in 0..BYTES / 2 {
        let (even, odd) = (&rows[pair], &rows[BYTES / 2 + pair]);
        for at in 0..ROW / 2 {
            spread[2 * pair][2 * at] = even[at];
            spread[2 * pair][2 * at + 1] = odd[at];
            spread[2 * pair + 1][2 * at] = even[ROW / 2 + at];
            spread[2 * pair + 1][2 * at + 1] = odd[ROW / 2 + at];
        }
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition.
    fn naive(bytes: usize, page: &[u8]) -> Vec<u8> {
        let count = page.len() / bytes;
        let planes = (0..bytes).rev();
        let whole = planes.flat_map(|byte| (0..count).map(move |at| page[at * bytes + byte]));
        whole.chain(page[count * bytes..].iter().copied()).collect()
    }

    #[test]
    fn every_length_is_shuffled_as_defined_and_comes_back() {
        // No two bytes of an element are alike.
        let page: Vec<u8> = (0..4096_usize).map(|at| (at * 7 + at / 251) as u8).collect();
        for bytes in [2, 4, 8] {
            let element = Element::of_bytes(bytes).expect("a size");
            assert_eq!(element.bytes(), bytes);
            for len in (0..600).chain(4090..=4096) {
                let (mut shuffled, mut back) = (vec![0; len], vec![0; len]);
                element.shuffle(&page[..len], &mut shuffled);
                assert_eq!(shuffled, naive(bytes, &page[..len]), "{len} bytes by {bytes}");
                element.unshuffle(&shuffled, &mut back);
                assert_eq!(back, page[..len], "{len} bytes by {bytes}");
            }
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        for bytes in [0, 1, 3, 16] {
            assert_eq!(Element::of_bytes(bytes), Err(ParameterError::Element(bytes)));
        }
    }
}
