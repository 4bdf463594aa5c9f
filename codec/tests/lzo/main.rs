//! LZO: streams written by hand, the same streams read and written by another implementation, and
//! random ones read by a naive twin.
//!
//! Claims
//! - The decoder reads every instruction as the description says, in every state.
//! - The decoder reads what lzokay writes, and lzokay reads what we write for `lzo`.
//! - For any bytes the decoder gives the same page as the twin, or both refuse them.
//! - No blob is longer than nine eighths of its page and a few bytes.

mod fuzz;
mod instructions;
mod naive;
mod pages;
mod peer;

use ramfold_codec::{Algorithm, Codec, Stream};

fn lzo() -> Codec {
    Codec::new(Algorithm::Lzo)
}

fn lzo_rle() -> Codec {
    Codec::new(Algorithm::LzoRle)
}

fn compress(codec: &Codec, page: &[u8]) -> Vec<u8> {
    codec.compress(&mut Stream::new(), page).expect("every page compresses").to_vec()
}

/// The page of `len` bytes that a blob makes, if it makes one.
fn decompress(blob: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut page = vec![0xa5; len];
    let exact: Box<[u8]> = blob.into();
    lzo_rle().decompress_stateless(&exact, &mut page).ok().map(|()| page)
}
