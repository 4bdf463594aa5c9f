//! Every limit of this crate, by name.
//!
//! ```text
//! one connection            idle        busy, at most
//!   inbox                   4 KiB       128 KiB     of 128 KiB of addresses
//!   outbox                  0           132 KiB     of 132 KiB of addresses
//!   thread stack            (2 MiB of address space, touched as needed)
//! ```
//!
//! Invariant: a client can make the server hold `INBOX_MAX` + `OUTBOX_MAX` bytes for each of
//! its connections and no more, whatever it sends and however slowly.

use std::time::Duration;

/// Bytes in a page.
pub(crate) const PAGE: usize = 4096;

/// Connections to one server at a time; one more is told so in its handshake.
pub const CONNECTIONS_MAX: usize = 256;
/// A handshake must be over by then.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests under way when the server stops have this long to end by themselves.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// A connection that has been quiet this long gives its big buffers back.
pub const IDLE_AFTER: Duration = Duration::from_secs(1);
/// A client that does nothing for so long in the middle of a request or an answer is told of.
pub const STALL_AFTER: Duration = Duration::from_secs(5);
/// Telling a client that it is not served is over by then.
pub(crate) const REFUSAL_MAX: Duration = Duration::from_secs(2);

/// Descriptors kept to accept NBD clients on, so that they are told why they are not served.
pub(crate) const NBD_RESERVE: usize = 2;
/// Descriptors kept to serve control on where there are no others.
pub(crate) const CONTROL_RESERVE: usize = 4;

/// Descriptors that the process may have.
pub(crate) fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Bytes in an export's name, as the protocol says.
pub const NAME_MAX: usize = 4096;
/// Bytes of data with one option; one with more is skipped and refused.
pub(crate) const OPTION_DATA_MAX: usize = 16 << 10; // 16 KiB: a name and a few queries
/// Options in one handshake; real clients send fewer than ten.
pub(crate) const OPTIONS_MAX: usize = 128;

/// Bytes in one read or write request, as told to the client.
pub const PAYLOAD_MAX: u32 = 32 << 20; // 32 MiB
/// Payload of a refused write is read and thrown away up to here; beyond, the line is cut.
pub(crate) const SKIP_MAX: u32 = 2 * PAYLOAD_MAX; // 64 MiB

/// Reads are decoded, and sent, in pieces of at most this size.
pub(crate) const PIECE: usize = 128 << 10; // 128 KiB
/// A read of at least this length looks for holes before it decodes.
pub(crate) const HOLE_PROBE_MIN: u32 = 64 << 10; // 64 KiB
/// What a quiet client's inbox keeps.
pub(crate) const INBOX_MIN: usize = PAGE; // 4 KiB
/// Received bytes not yet handled.
pub(crate) const INBOX_MAX: usize = 128 << 10; // 128 KiB
/// Replies not yet sent.
pub(crate) const OUTBOX_MAX: usize = PIECE + PAGE; // 132 KiB
/// Gathered replies are sent at the latest when they reach this size.
pub(crate) const SEND_AT: usize = 64 << 10; // 64 KiB

/// Extents in one block status reply.
pub(crate) const EXTENTS_MAX: usize = 1024; // 8 KiB of reply
/// Questions put to the disk for one block status reply.
pub(crate) const EXTENT_PROBES_MAX: usize = 8192;

const _: () = assert!(INBOX_MAX >= OPTION_DATA_MAX, "an option's data must fit the inbox");
const _: () = assert!(INBOX_MAX >= 2 * PAGE, "an inbox must take a page to write in one go");
const _: () =
    assert!(INBOX_MAX.is_multiple_of(PAGE) && OUTBOX_MAX.is_multiple_of(PAGE), "whole pages");
const _: () = assert!(OUTBOX_MAX - PIECE >= 64, "a piece and its headers must fit the outbox");
const _: () = assert!(OUTBOX_MAX >= 8 * EXTENTS_MAX + 64, "a full status reply must fit");
const _: () = assert!(PIECE.is_multiple_of(PAGE), "pieces of an aligned read end on pages");
const _: () = assert!(SEND_AT <= OUTBOX_MAX, "else nothing would be sent before it is full");
const _: () = assert!(PIECE >= 64 << 10, "an unfragmented read of 64 KiB must be served");
