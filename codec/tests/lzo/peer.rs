//! lzokay and our LZO read each other's blobs. Runs of zeros are left out, because lzokay has none.

use super::pages::Random;
use super::{compress, decompress, lzo};

#[test]
fn lzokay_reads_what_we_write() {
    let mut random = Random(3);
    for _ in 0..1000 {
        let page = random.page();
        let mut back = vec![0; page.len()];
        let outcome = lzokay::decompress::decompress(&compress(&lzo(), &page), &mut back);
        assert_eq!(outcome.expect("a stream of LZO1X"), page.len());
        assert!(back == page, "lzokay makes another page of it");
    }
}

#[test]
fn we_read_what_lzokay_writes() {
    let mut random = Random(4);
    for _ in 0..300 {
        let page = random.page();
        let blob = lzokay::compress::compress(&page).expect("it has room");
        assert!(decompress(&blob, page.len()) == Some(page), "{blob:02x?}");
    }
}
