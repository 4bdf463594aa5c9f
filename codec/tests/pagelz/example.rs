//! The example of `docs/codec-format.md`, and blobs that it refuses.

use super::{compress, decompress, naive, raw, shipped, twin};

/// The page of the example.
const PAGE: &[u8] = b"abcabcabcabcabcX";

/// The bytes of the example, as the document has them.
fn documented() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/codec-format.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let start = text.find("  001 0011 01000 = 616").expect("the example");
    let lines = text[start..].lines().skip(2).take(3);
    let digits = lines.flat_map(|line| line.split_whitespace().take_while(|word| word.len() == 2));
    digits.map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect()
}

#[test]
fn the_example_is_read_and_written() {
    let blob = documented();
    assert_eq!(blob, compress(&raw(), PAGE), "written: {:02x?}", compress(&raw(), PAGE));
    assert_eq!(decompress(&shipped(), &blob, PAGE.len()).as_deref(), Some(PAGE));
    assert_eq!(naive::decompress(&twin(), &blob, PAGE.len()).as_deref(), Some(PAGE));
}

#[test]
fn what_the_document_refuses_is_refused() {
    let blob = documented();
    let literals: &[u8] = &[2, 0, 7, 7];
    assert!(decompress(&shipped(), literals, 2).is_some());
    let header = |bit: u8| [&[2, bit], &literals[2..]].concat();
    let refused: [(&str, &[u8], usize); 8] = [
        ("nothing", &[], 2),
        ("half a header", &[2], 2),
        ("bit 14", &header(0x40), 2),
        ("bit 15", &header(0x80), 2),
        ("more literals than the page has bytes", literals, 1),
        ("fewer bytes than literals", &literals[..3], 2),
        ("a byte too many", &[2, 0, 7, 7, 0], 2),
        ("no end", &blob[..blob.len() - 1], PAGE.len()),
    ];
    for (what, blob, len) in refused {
        assert_eq!(decompress(&shipped(), blob, len), None, "{what}");
        assert_eq!(naive::decompress(&twin(), blob, len), None, "{what}, twin");
    }
}
