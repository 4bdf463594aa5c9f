//! Golden streams, written by hand from the description.

use super::{compress, decompress, lzo, lzo_rle, naive};

const END: [u8; 3] = [0x11, 0, 0];

fn stream(parts: &[&[u8]]) -> Vec<u8> {
    [&parts.concat()[..], &END].concat()
}

/// The bytes 0, 1, 2 and so on, which make literals easy to tell apart.
fn counting(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

/// What follows `page` when `len` bytes from `distance` back are repeated.
fn repeated(page: &[u8], distance: usize, len: usize) -> Vec<u8> {
    let mut page = page.to_vec();
    (0..len).for_each(|_| page.push(page[page.len() - distance]));
    page
}

#[track_caller]
fn reads(blob: &[u8], page: &[u8]) {
    assert_eq!(decompress(blob, page.len()).as_deref(), Some(page), "{blob:02x?}");
    assert_eq!(naive::decompress(blob, page.len()).as_deref(), Some(page), "the twin");
}

#[track_caller]
fn refuses(blob: &[u8], len: usize) {
    assert_eq!(decompress(blob, len), None, "{blob:02x?}");
    assert_eq!(naive::decompress(blob, len), None, "the twin");
}

#[test]
fn the_first_byte_counts_literals() {
    for count in 1..=238 {
        reads(&stream(&[&[17 + count as u8], &counting(count)]), &counting(count));
    }
    for count in 4..=18 {
        reads(&stream(&[&[count as u8 - 3], &counting(count)]), &counting(count));
    }
    let long = |extension: &[u8], count| stream(&[&[0], extension, &counting(count)]);
    reads(&long(&[1], 19), &counting(19));
    reads(&long(&[255], 273), &counting(273));
    reads(&long(&[0, 1], 274), &counting(274));
    reads(&long(&[0, 0, 7], 18 + 510 + 7), &counting(535));
}

#[test]
fn near_copies_of_three_to_eight_bytes() {
    let start = counting(238);
    let first: &[u8] = &[&[255], &start[..]].concat();
    for len in 3..=8 {
        for distance in [1, 2, 7, 8, 9, 100, 238] {
            let (code, back) = ((len - 1) << 5, distance - 1);
            let copy = [(code | (back & 7) << 2) as u8, (back >> 3) as u8];
            reads(&stream(&[first, &copy]), &repeated(&start, distance, len));
        }
    }
    refuses(&stream(&[first, &[0x40 | (238 & 7) << 2, (238 >> 3) as u8]]), 241);
}

#[test]
fn far_and_long_copies() {
    let start = counting(3000);
    let literals = [&[0][..], &[0; 11], &[(3000 - 18 - 11 * 255) as u8], &start].concat();
    for (len, code) in [
        (3, vec![0x21]),
        (33, vec![0x3f]),
        (34, vec![0x20, 1]),
        (288, vec![0x20, 255]),
        (289, vec![0x20, 0, 1]),
    ] {
        for distance in [1_usize, 3, 8, 16, 2048, 2049, 3000] {
            let pair = ((distance - 1) << 2) as u16;
            let blob = stream(&[&literals, &code, &pair.to_le_bytes()]);
            reads(&blob, &repeated(&start, distance, len));
        }
    }
    refuses(&stream(&[&literals, &[0x21], &(3000_u16 << 2).to_le_bytes()]), 3003);
    refuses(&[&literals[..], &[0x20, 0, 0, 0]].concat(), 3003);
}

/// Below 16 a byte is long literals, a copy of two bytes or a copy of three, by the state before.
#[test]
fn short_copies_by_state() {
    // State 0 after a copy: literals. State 1 after one literal: two bytes from one back.
    let page = [1, 1, 1, 1, 9, 8, 7, 6, 5];
    reads(&stream(&[&[18, 1], &[0x40, 0], &[2, 9, 8, 7, 6, 5]]), &page);
    reads(&stream(&[&[18, 1], &[0x00, 0]]), &[1, 1, 1]);
    reads(&stream(&[&[19, 1, 2], &[0x04 | 1, 0, 3]]), &[1, 2, 1, 2, 3]);
    // State 4 after literals of their own: three bytes from beyond 2048.
    let start = counting(2500);
    let literals = [&[0][..], &[0; 9], &[(2500 - 18 - 9 * 255) as u8], &start].concat();
    reads(&stream(&[&literals, &[0x00, 0]]), &repeated(&start, 2049, 3));
    reads(&stream(&[&literals, &[0x0c, 100]]), &repeated(&start, 2049 + 403, 3));
    refuses(&stream(&[&literals, &[0x00, 255]]), 2503);
    refuses(&stream(&[&[22, 1, 2, 3, 4, 5], &[0x00, 0]]), 8);
}

/// Literals that an instruction has in its last two bits.
#[test]
fn literals_of_the_state() {
    for count in 0..=3_u8 {
        let extra = &[7, 8, 9][..usize::from(count)];
        let page = |len| [&repeated(&[5], 1, len), extra].concat();
        reads(&stream(&[&[18, 5], &[0x40 | count, 0], extra]), &page(3));
        reads(&stream(&[&[18, 5], &[0x22, count, 0], extra]), &page(4));
        let zeros = [&[5, 0, 0, 0, 0, 0][..], extra].concat();
        reads(&stream(&[&[17, 1, 18, 5], &[0x19, 0xfc | count, 0xff, 0], extra]), &zeros);
    }
}

#[test]
fn runs_of_zeros() {
    for len in [4, 5, 11, 12, 100, 2050, 2051] {
        let over = len - 4;
        let run = [0x18 | (over & 7) as u8, 0xfc, 0xff, (over >> 3) as u8];
        let page = [&[5][..], &vec![0; len]].concat();
        reads(&stream(&[&[17, 1, 18, 5], &run]), &page);
        refuses(&stream(&[&[17, 0, 18, 5], &run]), page.len());
        refuses(&stream(&[&[18, 5], &run]), page.len());
        refuses(&stream(&[&[17, 1, 18, 5], &run]), page.len() - 1);
    }
    // In the first place of a blob, a run is read as literals.
    refuses(&stream(&[&[17, 1], &[0x18, 0xfc, 0xff, 0]]), 4);
}

#[test]
fn versions_are_read_and_others_refused() {
    reads(&stream(&[&[18, 5]]), &[5]);
    reads(&stream(&[&[17, 0, 18, 5]]), &[5]);
    reads(&stream(&[&[17, 1, 18, 5]]), &[5]);
    refuses(&stream(&[&[17, 2, 18, 5]]), 1);
    refuses(&END, 1);
    refuses(&[], 1);
    refuses(&[18, 5, 0x12, 0, 0], 1);
    refuses(&[18, 5, 0x11, 1, 0], 1);
    refuses(&[18, 5, 0x11, 0, 0, 0], 1);
}

/// What the compressor makes of pages simple enough to do it by hand.
#[test]
fn simple_pages_become_what_they_should() {
    let zeros = [0; 4096];
    let runs = [0x1f, 0xfc, 0xff, 255, 0x18, 0xfc, 0xff, 255];
    assert_eq!(compress(&lzo_rle(), &zeros), stream(&[&[17, 1, 18, 0], &runs]));
    let copy = [&[0x20][..], &[0; 15], &[(4095 - 33 - 15 * 255) as u8], &[0, 0]].concat();
    assert_eq!(compress(&lzo(), &zeros), stream(&[&[18, 0], &copy]));
    let words = [[1, 2, 3, 4]; 4].concat();
    assert_eq!(compress(&lzo(), &words), stream(&[&[21, 1, 2, 3, 4], &[0x2a, 3 << 2, 0]]));
    assert_eq!(compress(&lzo(), &[5]), stream(&[&[18, 5]]));
    assert_eq!(compress(&lzo_rle(), &[5]), stream(&[&[17, 1, 18, 5]]));
}
