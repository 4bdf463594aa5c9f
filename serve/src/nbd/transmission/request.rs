//! A request as it is on the wire.
//!
//! ```text
//!   0      4       6      8         16        24       28
//!   | magic | flags | kind |  cookie |  offset |  length |  then a write's payload
//! ```
//!
//! Invariant: a header with the right magic number is read, whatever its fields say. `validate`
//! judges them. Locks: none.

use super::wire;

/// Bytes in the header of a request.
pub(super) const REQUEST_BYTES: usize = 28;

/// The header of a request as it was sent. Only its magic number was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) flags: u16,
    pub(super) kind: u16,
    /// A number of the client's, which the reply returns.
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Request {
    /// Reads a header. `None` if the bytes are none.
    pub(super) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (len, _) = rest.split_first_chunk()?;
        (u32::from_be_bytes(*magic) == wire::REQUEST_MAGIC).then_some(Self {
            flags: u16::from_be_bytes(*flags),
            kind: u16::from_be_bytes(*kind),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            len: u32::from_be_bytes(*len),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_where_the_specification_puts_it() {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&[0x25, 0x60, 0x95, 0x13]);
        for (at, byte) in bytes[4..].iter_mut().enumerate() {
            *byte = at as u8 + 1;
        }
        let request = Request::parse(&bytes).expect("the magic is right");
        assert_eq!(request.flags, 0x0102);
        assert_eq!(request.kind, 0x0304);
        assert_eq!(request.cookie, 0x0506_0708_090a_0b0c);
        assert_eq!(request.offset, 0x0d0e_0f10_1112_1314);
        assert_eq!(request.len, 0x1516_1718);
        bytes[3] ^= 1;
        assert_eq!(Request::parse(&bytes), None, "a wrong magic");
    }
}
