//! The form in which a value lies in a pool.
//!
//! ```text
//!   object of 4096 bytes     | 4096 bytes of the value |                 it needs no head
//!   any other, 1 to 4095     | head 1 to 4 | body      |
//!
//!   head   length of the value * 4 + kind, seven bits a byte, the lowest first
//!   body   Raw: the value    Compressed: a blob of it    Pieces: 8 bytes for each value's number
//! ```
//!
//! A value is one object if it fits, and else a list of pieces, each of which is an object.
//!
//! Invariant: a piece is always one object, whether it compresses or not. So no piece has a length
//! that fits neither with a head nor without.

/// Bytes of the longest object.
pub(crate) const OBJECT_MAX: usize = zsmalloc::SIZE_MAX; // 4096
/// Bytes of the longest value.
pub(crate) const VALUE_MAX: usize = 1 << 20; // 1 MiB

/// Bytes of the longest object with a head. A longer one is a value of 4096 bytes.
const HEADED_MAX: usize = OBJECT_MAX - 1; // 4095
/// Bytes of the longest head.
pub(crate) const HEAD_MAX: usize = 4;
const KIND_BITS: u32 = 2;
const KIND_MASK: usize = (1 << KIND_BITS) - 1; // 3
/// Bits of a head in one of its bytes. The highest says that another byte follows.
const PART_BITS: u32 = 7;
const MORE: u8 = 1 << PART_BITS; // 128
/// Bytes of a piece's number.
pub(crate) const NUMBER_BYTES: usize = 8;

const _: () = assert!(
    (VALUE_MAX << KIND_BITS | KIND_MASK) >> (PART_BITS * HEAD_MAX as u32) == 0,
    "every length has a head"
);
const _: () = assert!(MORE as u32 == 1 << (u8::BITS - 1), "it is the highest bit of a byte");
const _: () = assert!(
    VALUE_MAX.div_ceil(OBJECT_MAX) * NUMBER_BYTES + HEAD_MAX + NUMBER_BYTES <= HEADED_MAX,
    "the numbers of all pieces fit in one object, with one more for an odd cut"
);

/// How the body of an object has the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Raw = 0,
    Compressed = 1,
    Pieces = 2,
}

/// What an object says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// Bytes of the value.
    pub(crate) len: usize,
}

impl Head {
    /// The object of this head and a body, if there is such an object.
    pub(crate) fn object(self, body: &[u8], object: &mut Vec<u8>) -> bool {
        object.clear();
        if self.kind == Kind::Raw && body.len() == OBJECT_MAX {
            object.extend_from_slice(body);
            return true;
        }
        let mut rest = self.len << KIND_BITS | self.kind as usize;
        while rest >= usize::from(MORE) {
            object.push(rest as u8 | MORE);
            rest >>= PART_BITS;
        }
        object.push(rest as u8);
        object.extend_from_slice(body);
        object.len() <= HEADED_MAX
    }

    /// The head and the body of an object. `None` if it is no value.
    pub(crate) fn of(object: &[u8]) -> Option<(Head, &[u8])> {
        if object.len() == OBJECT_MAX {
            return Some((Head { kind: Kind::Raw, len: OBJECT_MAX }, object));
        }
        let last = object.iter().take(HEAD_MAX).position(|byte| byte & MORE == 0)?;
        let (head, body) = object.split_at(last + 1);
        let whole = head
            .iter()
            .rev()
            .fold(0, |whole: usize, byte| whole << PART_BITS | usize::from(byte & !MORE));
        let kind = match whole & KIND_MASK {
            0 => Kind::Raw,
            1 => Kind::Compressed,
            2 => Kind::Pieces,
            _ => return None,
        };
        let head = Head { kind, len: whole >> KIND_BITS };
        head.fits(body).then_some((head, body))
    }

    /// Whether an object of ours can have this body.
    fn fits(self, body: &[u8]) -> bool {
        match self.kind {
            Kind::Raw => body.len() == self.len,
            Kind::Compressed => (1..=OBJECT_MAX).contains(&self.len),
            Kind::Pieces => self.len <= VALUE_MAX && body.len().is_multiple_of(NUMBER_BYTES),
        }
    }
}

/// Bytes of the next piece of a value of which `left` bytes are left.
pub(crate) fn piece(left: usize) -> usize {
    // A piece of 4094 or 4095 bytes has no room for a head, and is too short to do without.
    let is_odd = left < OBJECT_MAX && left + 2 > HEADED_MAX;
    if is_odd { OBJECT_MAX / 2 } else { left.min(OBJECT_MAX) }
}

/// The pieces of a value.
pub(crate) fn pieces(mut value: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (first, rest) = value.split_at(piece(value.len()));
        value = rest;
        (!first.is_empty()).then_some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back() {
        let mut object = Vec::new();
        for len in (0..5000).chain([VALUE_MAX - 1, VALUE_MAX]) {
            let body = vec![7; len.min(4000)];
            let head = |kind| Head { kind, len };
            if len <= 4000 {
                assert!(head(Kind::Raw).object(&body, &mut object));
                assert_eq!(Head::of(&object), Some((head(Kind::Raw), &body[..])));
            }
            if (1..=OBJECT_MAX).contains(&len) {
                assert!(head(Kind::Compressed).object(&[1, 2], &mut object));
                assert_eq!(Head::of(&object), Some((head(Kind::Compressed), &[1, 2][..])));
            }
            assert!(head(Kind::Pieces).object(&[1; 16], &mut object));
            assert_eq!(Head::of(&object), Some((head(Kind::Pieces), &[1; 16][..])));
        }
    }

    #[test]
    fn what_has_no_room_is_refused_and_a_whole_page_needs_no_head() {
        let (mut object, body) = (Vec::new(), [7; OBJECT_MAX]);
        let mut fits = |len: usize| {
            Head { kind: Kind::Raw, len }.object(&body[..len], &mut object).then_some(object.len())
        };
        assert_eq!([fits(4093), fits(4094), fits(4095)], [Some(4095), None, None]);
        assert_eq!(fits(4096), Some(4096));
    }

    #[test]
    fn an_object_that_is_no_value_is_refused() {
        let odd: [&[u8]; 7] =
            [&[], &[3], &[0x80], &[0x80; 8], &[5 << 2, 1], &[1, 1], &[8 << 2 | 2, 1]];
        odd.iter().for_each(|object| assert_eq!(Head::of(object), None, "{object:?}"));
    }

    #[test]
    fn every_value_is_cut_into_pieces_that_fit() {
        let value: Vec<u8> = (0..VALUE_MAX).map(|at| (at / 7) as u8).collect();
        for len in (0..20_000).chain(VALUE_MAX - 5000..=VALUE_MAX) {
            let (mut cut, mut count) = (0, 0);
            for piece in pieces(&value[..len]) {
                assert_eq!(piece, &value[cut..cut + piece.len()]);
                assert!(piece.len() == OBJECT_MAX || piece.len() <= 4093, "{}", piece.len());
                (cut, count) = (cut + piece.len(), count + 1);
            }
            assert_eq!(cut, len);
            assert!(count * NUMBER_BYTES + HEAD_MAX <= HEADED_MAX, "{count} pieces of {len}");
        }
    }
}
