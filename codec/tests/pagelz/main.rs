//! pagelz: a naive decoder that was written from `docs/codec-format.md`, and what both make of any
//! bytes.
//!
//! Claims
//! - The twin reads what the codec writes, at every level and with any tables.
//! - For any bytes the decoder gives the same page as the twin, or both refuse them.
//! - No blob is more than two bytes longer than its page.
//! - The blobs of the format's document are read as it says.

mod example;
mod fuzz;
mod naive;
mod pages;

use ramfold_codec::{Algorithm, Codec, Stream, shipped_tables};

fn shipped() -> Codec {
    Codec::new(Algorithm::Pagelz)
}

/// The codec that leaves literals as they are.
fn raw() -> Codec {
    Codec::with_level(Algorithm::Pagelz, 1).expect("a level of pagelz")
}

fn compress(codec: &Codec, page: &[u8]) -> Vec<u8> {
    codec.compress(&mut Stream::new(), page).expect("every page compresses").to_vec()
}

/// The page of `len` bytes that a blob makes, if it makes one. The page lies between bytes that
/// must not change.
fn decompress(codec: &Codec, blob: &[u8], len: usize) -> Option<Vec<u8>> {
    const BESIDE: usize = 64;
    let mut room = vec![0xa5; len + 2 * BESIDE];
    let exact: Box<[u8]> = blob.into();
    let outcome = codec.decompress_stateless(&exact, &mut room[BESIDE..BESIDE + len]);
    let (before, after) = (&room[..BESIDE], &room[BESIDE + len..]);
    assert!(before.iter().chain(after).all(|&byte| byte == 0xa5), "wrote beside the page");
    outcome.ok().map(|()| room[BESIDE..BESIDE + len].to_vec())
}

fn twin() -> naive::Tables {
    naive::Tables::parse(&shipped_tables())
}
