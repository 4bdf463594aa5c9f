//! LZO: streams written by hand, the same streams read and written by another implementation, and
//! random ones read by a naive twin.
//!
//! Claims
//! - every instruction of the description is read as it says, in every state;
//! - what lzokay writes is read, and it reads what we write for `lzo`;
//! - on any bytes the decoder gives what the twin gives, or both refuse them;
//! - no page becomes longer than nine eighths of itself and a few bytes.

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
