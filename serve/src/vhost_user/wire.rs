//! Numbers of the protocol: the block device of VIRTIO 1.2, section 5.2.
//!
//! ```text
//!   a request, as a chain of the guest's buffers:
//!   readable:  kind.4 reserved.4 sector.8 | data of OUT, segments of DISCARD and WRITE_ZEROES
//!   writable:  data of IN, or the name for GET_ID | status.1
//!   a segment: sector.8 sectors.4 flags.4
//! ```
//!
//! Invariant: all numbers are little-endian, and a sector has 512 bytes, whatever the block size.

/// Bytes of a sector.
pub(super) const SECTOR: u64 = 512;
/// Bytes of a request's header.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of a segment.
pub(super) const SEGMENT_BYTES: usize = 16;
/// Bytes of the name that `GET_ID` asks for.
pub(super) const ID_BYTES: usize = 20;

pub(super) const KIND_IN: u32 = 0;
pub(super) const KIND_OUT: u32 = 1;
pub(super) const KIND_FLUSH: u32 = 4;
pub(super) const KIND_GET_ID: u32 = 8;
pub(super) const KIND_DISCARD: u32 = 11;
pub(super) const KIND_WRITE_ZEROES: u32 = 13;

pub(super) const STATUS_OK: u8 = 0;
pub(super) const STATUS_IOERR: u8 = 1;
pub(super) const STATUS_UNSUPP: u8 = 2;

/// The flag of a segment that lets zeros be a hole.
pub(super) const SEGMENT_UNMAP: u32 = 1;

pub(super) const F_SIZE_MAX: u64 = 1 << 1; // bit 1
pub(super) const F_SEG_MAX: u64 = 1 << 2; // bit 2
pub(super) const F_RO: u64 = 1 << 5;
pub(super) const F_BLK_SIZE: u64 = 1 << 6;
pub(super) const F_FLUSH: u64 = 1 << 9;
pub(super) const F_TOPOLOGY: u64 = 1 << 10;
pub(super) const F_MQ: u64 = 1 << 12;
pub(super) const F_DISCARD: u64 = 1 << 13;
pub(super) const F_WRITE_ZEROES: u64 = 1 << 14;
pub(super) const F_INDIRECT_DESC: u64 = 1 << 28;
pub(super) const F_EVENT_IDX: u64 = 1 << 29;
/// Bit 30 says that the frontend and the server agree on features of vhost-user, too.
pub(super) const F_PROTOCOL_FEATURES: u64 = 1 << 30;
pub(super) const F_VERSION_1: u64 = 1 << 32;
