//! The protocol's numbers, in the order of its specification.
//!
//! Invariant: every number here is in `doc/proto.md` under the same name with the prefix `NBD_`.
//! Locks: none.

/// First bytes from the server.
pub(crate) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
/// Second bytes from the server, and first bytes of an option.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
/// First bytes of the reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First bytes of a request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First bytes of a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First bytes of a chunk of a structured reply.
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag of both sides: options are answered, and errors do not end the connection.
pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag of both sides: no 124 zeros follow the answer to `OPT_EXPORT_NAME`.
pub(crate) const NO_ZEROES: u16 = 1 << 1;

pub(crate) const HAS_FLAGS: u16 = 1 << 0;
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const SEND_TRIM: u16 = 1 << 5;
pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const SEND_DF: u16 = 1 << 7;
pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
pub(crate) const SEND_CACHE: u16 = 1 << 10;
pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;

pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(crate) const OPT_SET_META_CONTEXT: u32 = 10;

pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_META_CONTEXT: u32 = 4;

/// This bit marks a refusal among the replies to an option.
const REP_ERR: u32 = 1 << 31;
pub(crate) const REP_ERR_UNSUP: u32 = REP_ERR | 1;
pub(crate) const REP_ERR_POLICY: u32 = REP_ERR | 2;
pub(crate) const REP_ERR_INVALID: u32 = REP_ERR | 3;
pub(crate) const REP_ERR_TLS_REQD: u32 = REP_ERR | 5;
pub(crate) const REP_ERR_UNKNOWN: u32 = REP_ERR | 6;
pub(crate) const REP_ERR_TOO_BIG: u32 = REP_ERR | 9;

pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_NAME: u16 = 1;
pub(crate) const INFO_DESCRIPTION: u16 = 2;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

pub(crate) const CMD_READ: u16 = 0;
pub(crate) const CMD_WRITE: u16 = 1;
pub(crate) const CMD_DISC: u16 = 2;
pub(crate) const CMD_FLUSH: u16 = 3;
pub(crate) const CMD_TRIM: u16 = 4;
pub(crate) const CMD_CACHE: u16 = 5;
pub(crate) const CMD_WRITE_ZEROES: u16 = 6;
pub(crate) const CMD_BLOCK_STATUS: u16 = 7;

/// The answer comes only after the data is durable. Allowed with every command.
pub(crate) const FLAG_FUA: u16 = 1 << 0;
/// Zeroing must keep space allocated.
pub(crate) const FLAG_NO_HOLE: u16 = 1 << 1;
/// A read must be answered with one chunk of data.
pub(crate) const FLAG_DF: u16 = 1 << 2;
/// One extent is enough.
pub(crate) const FLAG_REQ_ONE: u16 = 1 << 3;
/// Zeroing must fail if it would be as slow as writing.
pub(crate) const FLAG_FAST_ZERO: u16 = 1 << 4;

/// The last chunk of a reply.
pub(crate) const CHUNK_DONE: u16 = 1 << 0;
pub(crate) const CHUNK_NONE: u16 = 0;
pub(crate) const CHUNK_OFFSET_DATA: u16 = 1;
pub(crate) const CHUNK_OFFSET_HOLE: u16 = 2;
pub(crate) const CHUNK_BLOCK_STATUS: u16 = 5;
/// This bit marks an error among the chunks.
const CHUNK_ERR: u16 = 1 << 15;
pub(crate) const CHUNK_ERROR: u16 = CHUNK_ERR | 1;
pub(crate) const CHUNK_ERROR_OFFSET: u16 = CHUNK_ERR | 2;

/// Extent flag of `base:allocation`: occupies nothing.
pub(crate) const STATE_HOLE: u32 = 1 << 0;
/// Extent flag of `base:allocation`: reads as zeros.
pub(crate) const STATE_ZERO: u32 = 1 << 1;

pub(crate) const EPERM: u32 = 1;
pub(crate) const EIO: u32 = 5;
pub(crate) const ENOMEM: u32 = 12;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const EOVERFLOW: u32 = 75;

const _: () = assert!(
    FLAG_FUA | FLAG_NO_HOLE | FLAG_DF | FLAG_REQ_ONE | FLAG_FAST_ZERO == 0b1_1111,
    "command flags are distinct bits, and these are all that are known"
);
const _: () = assert!(STATE_HOLE & STATE_ZERO == 0, "a hole and zeros are said separately");
