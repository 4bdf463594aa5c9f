//! The limits of this crate, by name.
//!
//! ```text
//! one connection            idle        busy, at most
//!   inbox                   4 KiB       128 KiB     of 128 KiB of addresses
//!   outbox                  0           132 KiB     of 132 KiB of addresses
//!   records of TLS          4 KiB       128 KiB     the same again, and what rustls holds
//!   thread stack            (2 MiB of address space, touched as needed)
//! ```
//!
//! Invariant: for each of its connections, a client makes the server hold at most `INBOX_MAX` +
//! `OUTBOX_MAX` bytes, whatever it sends and however slowly. With TLS these are `INBOX_MAX` and
//! `TLS_QUEUED_MAX` more, and two records. Locks: none.

use std::time::Duration;

/// Bytes in a page.
pub(crate) const PAGE: usize = 4096;

/// How many connections a server takes at a time. One more is refused in its handshake.
pub const CONNECTIONS_MAX: usize = 256;
/// How long a handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests under way may go on after the server is stopped.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// A connection that has been quiet for so long gives back most of its buffers.
pub const IDLE_AFTER: Duration = Duration::from_secs(1);
/// A client that does nothing for so long, in the middle of a request or an answer, is reported.
pub const STALL_AFTER: Duration = Duration::from_secs(5);
/// How long it may take to tell a client that it is not served.
pub(crate) const REFUSAL_MAX: Duration = Duration::from_secs(2);

/// Descriptors in reserve to accept NBD clients, so that they can be told why they are not served.
pub(crate) const NBD_RESERVE: usize = 2;
/// Descriptors in reserve to serve callers of a control socket if there are no others.
pub(crate) const CONTROL_RESERVE: usize = 4;

/// How many descriptors the process may have.
pub(crate) fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The most bytes of a socket's path. The system's `sun_path` has 108, and the last is a zero,
/// which the system does not need but clients do.
pub const SOCKET_PATH_MAX: usize = 107;

/// The most bytes of an export's name, as the protocol says.
pub const NAME_MAX: usize = 4096;
/// The most bytes of data with one option. An option with more is skipped and refused.
pub(crate) const OPTION_DATA_MAX: usize = 16 << 10; // 16 KiB: a name and a few queries
/// The most options in one handshake. Real clients send fewer than ten.
pub(crate) const OPTIONS_MAX: usize = 128;

/// The most bytes in one read or write request. The client is told this number.
pub const PAYLOAD_MAX: u32 = 32 << 20; // 32 MiB
/// A refused write's payload of up to so many bytes is skipped. With more the connection ends.
pub(crate) const SKIP_MAX: u32 = 2 * PAYLOAD_MAX; // 64 MiB

/// Reads are decoded and sent in pieces of at most so many bytes.
pub(crate) const PIECE: usize = 128 << 10; // 128 KiB
/// A read of at least so many bytes looks for holes before it decodes.
pub(crate) const HOLE_PROBE_MIN: u32 = 64 << 10; // 64 KiB
/// Bytes that a quiet client's inbox keeps.
pub(crate) const INBOX_MIN: usize = PAGE; // 4 KiB
/// The most received bytes that are not handled yet.
pub(crate) const INBOX_MAX: usize = 128 << 10; // 128 KiB
/// The most bytes of replies that are not sent yet.
pub(crate) const OUTBOX_MAX: usize = PIECE + PAGE; // 132 KiB
/// Gathered replies are sent as soon as they reach so many bytes.
pub(crate) const SEND_AT: usize = 64 << 10; // 64 KiB

/// The most bytes of encrypted records that wait to be sent, on the heap.
pub(crate) const TLS_QUEUED_MAX: usize = SEND_AT; // 64 KiB: four records

/// The most extents in one block status reply.
pub(crate) const EXTENTS_MAX: usize = 1024; // 8 KiB of reply
/// The most questions to the disk for one block status reply.
pub(crate) const EXTENT_PROBES_MAX: usize = 8192;

/// How many queues a virtual machine may have for a disk. Each that it uses has a thread.
pub const VHOST_QUEUES_MAX: u16 = 64;
/// The most requests on a queue.
pub(crate) const VHOST_QUEUE_SIZE_MAX: u16 = 1024;
/// The most regions of a virtual machine's memory.
pub(crate) const MEMORY_REGIONS_MAX: usize = 64;
/// How many connections a vhost-user server has at a time: one that it serves, and some that wait.
pub(crate) const FRONTENDS_MAX: usize = 8;
/// How long a frontend waits for the one before it to leave.
pub(crate) const SEAT_MAX: Duration = Duration::from_secs(1);
/// The most buffers of data in one request of a guest. The smallest usual queue has 128 places, and
/// header and status take two.
pub(crate) const CHAIN_SEGMENTS_MAX: u32 = 126;
/// The most bytes of one such buffer.
pub(crate) const SEGMENT_MAX: u32 = 64 << 10; // 64 KiB
/// The most ranges of one discard or zeroing.
pub(crate) const ZEROED_SEGMENTS_MAX: u32 = 32;
/// The most sectors of one such range: whole pages, and less than 4 GiB, as with NBD.
pub(crate) const ZEROED_SECTORS_MAX: u32 = (u32::MAX - (PAGE as u32 - 1)) / 512; // 8 388 600
/// How many queues a block device has at most. Each has a thread.
pub const UBLK_QUEUES_MAX: u16 = 16;
/// The most requests on a queue of a block device.
pub(crate) const UBLK_DEPTH: u16 = 128;
/// The most bytes of data in a request to a block device. They are handled in pieces.
pub(crate) const UBLK_REQUEST_MAX: u32 = 1 << 20; // 1 MiB
/// Answers to a guest are told as soon as they are about so many bytes. A guest that waits for them
/// then works on these while the next ones are made.
pub(crate) const TELL_AT: usize = 2 * PAGE; // 8 KiB
/// Bytes of the configuration space of a block device.
pub(crate) const CONFIG_BYTES: usize = 60;

const _: () = assert!(INBOX_MAX >= OPTION_DATA_MAX, "an option's data must fit the inbox");
const _: () = assert!(INBOX_MAX >= 2 * PAGE, "an inbox must take a page to write in one go");
const _: () =
    assert!(INBOX_MAX.is_multiple_of(PAGE) && OUTBOX_MAX.is_multiple_of(PAGE), "whole pages");
const _: () = assert!(OUTBOX_MAX - PIECE >= 64, "a piece and its headers must fit the outbox");
const _: () = assert!(OUTBOX_MAX >= 8 * EXTENTS_MAX + 64, "a full status reply must fit");
const _: () = assert!(PIECE.is_multiple_of(PAGE), "pieces of an aligned read end on pages");
const _: () = assert!(SEND_AT <= OUTBOX_MAX, "else nothing would be sent before it is full");
const _: () = assert!(PIECE >= 64 << 10, "an unfragmented read of 64 KiB must be served");
const _: () =
    assert!(CHAIN_SEGMENTS_MAX * SEGMENT_MAX <= PAYLOAD_MAX, "a guest may ask for so much");
const _: () = assert!(ZEROED_SECTORS_MAX.is_multiple_of(PAGE as u32 / 512), "whole pages");
