//! What an operator is told about a running server, and what to do.
//!
//! Invariant: a notice is one line, "what is the matter; what helps". docs/serve.md has the table.
//! Locks: none.

use std::fmt;
use std::time::Duration;

use disk::NbdDisk;
use serve::{Peer, Purpose, Refused, Stall};

use crate::line::size::{count, human};

/// How commands to paste name a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The server, as TARGET of `ramfold set`.
    pub(super) target: String,
    pub(super) device: String,
    /// Whether it is the only device of its server.
    pub(super) alone: bool,
}

impl Place {
    fn set(&self, change: &str) -> String {
        let device = if self.alone { String::new() } else { format!("{}/", self.device) };
        format!("ramfold set {} {device}{change}", self.target)
    }
}

/// Something that is the matter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Notice {
    /// Writes are refused, because the memory limit is reached.
    LimitReached { place: Place, limit: u64 },
    /// The machine has no memory for requests.
    NoMemory { place: Place },
    /// Stored pages do not decode.
    Damaged { place: Place },
    /// Memory is not held at its target.
    TargetUnreached { place: Place, target: u64, why: String },
    /// No block of the backing device is free.
    BackingFull { place: Place, path: String },
    /// The file system of the backing file is full.
    BackingNoSpace { place: Place, path: String },
    /// The backing device fails.
    BackingFailed { place: Place, path: String },
    /// A client was not let in.
    ClientRefused { purpose: Purpose, why: Refused, peer: Peer, busiest: Option<(Peer, usize)> },
    /// A connection that asked for nothing made way for another.
    ClientDisplaced { purpose: Purpose, peer: Peer },
    /// A client keeps its connection waiting in the middle of something.
    ClientStalled { peer: Peer, stall: Stall, silent: Duration },
    /// There was no memory for a client's buffers.
    ClientNoMemory { peer: Peer },
    /// A virtual machine wants to go on with the disk of another server.
    MachineForeign { peer: Peer },
    /// A virtual machine's queue is served no more.
    QueueBroken { peer: Peer, why: &'static str },
    /// A queue of a block device is served no more.
    QueueLost { device: String, why: String },
}

/// What notices of one episode have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    kind: &'static str,
    of: String,
}

impl Notice {
    /// What the notice is about. While that goes on, it is said once.
    pub(super) fn subject(&self) -> Subject {
        let (kind, of) = match self {
            Notice::LimitReached { place, .. } => ("limit", place.device.clone()),
            Notice::NoMemory { place } => ("memory", place.device.clone()),
            Notice::Damaged { place } => ("damage", place.device.clone()),
            Notice::TargetUnreached { place, .. } => ("target", place.device.clone()),
            Notice::BackingFull { place, .. } => ("backing full", place.device.clone()),
            Notice::BackingNoSpace { place, .. } => ("backing space", place.device.clone()),
            Notice::BackingFailed { place, .. } => ("backing", place.device.clone()),
            Notice::ClientRefused { purpose, .. } => ("refused", format!("{purpose:?}")),
            Notice::ClientDisplaced { purpose, .. } => ("displaced", format!("{purpose:?}")),
            Notice::ClientStalled { peer, .. } => return Subject::stall_of(*peer),
            Notice::ClientNoMemory { .. } => ("client memory", String::new()),
            Notice::MachineForeign { peer } => ("foreign", peer.to_string()),
            Notice::QueueBroken { peer, .. } => ("queue", peer.to_string()),
            Notice::QueueLost { device, .. } => ("block device", device.clone()),
        };
        Subject { kind, of }
    }

    fn what(&self) -> String {
        match self {
            Notice::LimitReached { place, limit } => format!(
                "{}: the memory limit of {} is reached, and writes are refused",
                place.device,
                human(*limit)
            ),
            Notice::NoMemory { place } => {
                format!("{}: the machine has no memory for requests, which fail", place.device)
            }
            Notice::Damaged { place } => {
                format!("{}: stored pages are damaged, and reading them fails", place.device)
            }
            Notice::TargetUnreached { place, target, .. } => format!(
                "{}: the memory target of {} cannot be reached",
                place.device,
                human(*target)
            ),
            Notice::BackingFull { place, path } => format!(
                "{}: the backing device {path} is full, and pages that it has no block for stay in \
                 memory",
                place.device
            ),
            Notice::BackingNoSpace { place, path } => format!(
                "{}: the file system of {path} has no space left for pages that are written back; \
                 they stay in memory",
                place.device
            ),
            Notice::BackingFailed { place, path } => {
                format!("{}: the backing device {path} fails", place.device)
            }
            Notice::ClientRefused { purpose, why, peer, .. } => {
                format!("{} ({peer}) was refused: {}", client(*purpose), refusal(*why))
            }
            Notice::ClientDisplaced { purpose, peer } => format!(
                "{} ({peer}) was disconnected: it had asked for nothing, and another needed its \
                 place",
                client(*purpose)
            ),
            Notice::ClientStalled { peer, stall, silent } => {
                let what = match stall {
                    Stall::Answers => "has not taken its answers",
                    Stall::Request => "has not sent the rest of a request",
                };
                format!("an NBD client ({peer}) {what} for {} s", silent.as_secs_f64().round())
            }
            Notice::ClientNoMemory { peer } => {
                format!("an NBD client ({peer}) was given up: there is no memory for its buffers")
            }
            Notice::MachineForeign { peer } => format!(
                "a virtual machine ({peer}) was refused: its disk was that of another server, and \
                 what it stored there is gone"
            ),
            Notice::QueueBroken { peer, why } => {
                format!("a virtual machine ({peer}) has a queue that is served no more: {why}")
            }
            Notice::QueueLost { device, why } => {
                format!("{device}: its block device gives errors: {why}")
            }
        }
    }

    fn remedy(&self) -> String {
        match self {
            Notice::LimitReached { place, .. } => format!(
                "raise it ({}), or discard what is not needed (fstrim, blkdiscard)",
                place.set("mem_limit SIZE")
            ),
            Notice::NoMemory { place } => {
                format!("end other programs, or lower the limit ({})", place.set("mem_limit SIZE"))
            }
            Notice::Damaged { place } => {
                format!("ramfold check {} names one; write those pages again", place.target)
            }
            Notice::TargetUnreached { why, .. } => why.clone(),
            Notice::BackingFull { .. } => {
                "discard what is not needed, or start with a larger one".to_owned()
            }
            Notice::BackingNoSpace { .. } => "make space there".to_owned(),
            Notice::BackingFailed { path, .. } if NbdDisk::is_address(path) => {
                "see that its server runs and can be reached".to_owned()
            }
            Notice::BackingFailed { .. } => {
                "look at the system's log (dmesg), and copy what is needed elsewhere".to_owned()
            }
            Notice::ClientRefused { why: Refused::Full { .. }, busiest, .. } => match busiest {
                Some((peer, connections)) => format!(
                    "{} of these {} {peer}: end that client, or those that are not needed",
                    connections,
                    if *connections == 1 { "is of" } else { "are of" }
                ),
                None => "end clients that are not needed".to_owned(),
            },
            Notice::ClientRefused { why: Refused::NoDescriptor, .. } => {
                "start the server with more of them (ulimit -n), or end other clients".to_owned()
            }
            Notice::ClientRefused { why: Refused::NoThread, .. } => {
                "see ulimit -u and the cgroup's pids.max, or end other clients".to_owned()
            }
            Notice::ClientDisplaced { .. } => {
                "it may connect again when it has a question".to_owned()
            }
            Notice::ClientStalled { peer, .. } => format!(
                "others are served meanwhile; {} to free what it holds",
                match peer {
                    Peer::Process(pid) => format!("kill {pid}"),
                    _ => "end it".to_owned(),
                }
            ),
            Notice::ClientNoMemory { .. } => "end other programs, or other clients".to_owned(),
            Notice::MachineForeign { .. } => {
                "restart the machine; it gets an empty disk".to_owned()
            }
            Notice::QueueBroken { .. } => {
                "its driver or its program is at fault; restart the machine".to_owned()
            }
            Notice::QueueLost { .. } => "end what has it open, and restart the server".to_owned(),
        }
    }
}

impl Subject {
    /// What a client that stalls is about, until it goes on.
    pub(super) fn stall_of(peer: Peer) -> Subject {
        Subject { kind: "stall", of: peer.to_string() }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.remedy())
    }
}

pub(super) fn client(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Nbd => "an NBD client",
        Purpose::VhostUser => "a virtual machine",
        Purpose::Control => "a caller of the control socket",
        Purpose::Metrics => "a reader of metrics",
    }
}

fn refusal(why: Refused) -> String {
    match why {
        Refused::Full { most } => format!("all {} are taken", count(most as u64, "connection")),
        Refused::NoDescriptor => "the server has no descriptor left".to_owned(),
        Refused::NoThread => "the system gives the server no more threads".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(alone: bool) -> Place {
        Place { target: "zram0-7".into(), device: "zram1".into(), alone }
    }

    #[track_caller]
    fn says(notice: &Notice, expected: &str) {
        let line = notice.to_string();
        assert!(line.contains(expected), "{line}\n  does not say\n{expected}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }

    #[test]
    fn a_device_s_trouble_is_told_with_what_helps() {
        let (place, path) = (place(true), || "/swap/file".to_owned());
        let rows = [
            (
                Notice::LimitReached { place: place.clone(), limit: 8 << 20 },
                "zram1: the memory limit of 8.0 MiB is reached, and writes are refused; raise it \
                 (ramfold set zram0-7 mem_limit SIZE), or discard what is not needed",
            ),
            (
                Notice::NoMemory { place: self::place(false) },
                "no memory for requests, which fail; end other programs, or lower the limit \
                 (ramfold set zram0-7 zram1/mem_limit SIZE)",
            ),
            (
                Notice::Damaged { place: place.clone() },
                "reading them fails; ramfold check zram0-7 names one",
            ),
            (
                Notice::TargetUnreached { place: place.clone(), target: 4096, why: "do it".into() },
                "zram1: the memory target of 4.0 KiB cannot be reached; do it",
            ),
            (
                Notice::BackingFull { place: place.clone(), path: path() },
                "the backing device /swap/file is full, and pages that it has no block for stay in \
                 memory; discard what is not needed, or start with a larger one",
            ),
            (
                Notice::BackingNoSpace { place: place.clone(), path: path() },
                "the file system of /swap/file has no space left for pages that are written back; \
                 they stay in memory; make space there",
            ),
            (
                Notice::BackingFailed { place: place.clone(), path: "nbd://far/x".into() },
                "the backing device nbd://far/x fails; see that its server runs and can be reached",
            ),
            (
                Notice::BackingFailed { place, path: path() },
                "the backing device /swap/file fails; look at the system's log",
            ),
        ];
        rows.iter().for_each(|(notice, expected)| says(notice, expected));
    }

    #[test]
    fn a_client_s_trouble_is_told_with_who_it_is() {
        let (peer, silent) = (Peer::Process(7), Duration::from_millis(5300));
        let refused = |why, busiest| {
            let purpose = Purpose::Nbd;
            Notice::ClientRefused { purpose, why, peer, busiest }
        };
        let stalled = |stall| Notice::ClientStalled { peer, stall, silent };
        let most = Some((Peer::Process(9), 250));
        let rows = [
            (
                refused(Refused::Full { most: 256 }, most),
                "an NBD client (pid 7) was refused: all 256 connections are taken; 250 of these \
                 are of pid 9: end that client",
            ),
            (
                refused(Refused::NoDescriptor, None),
                "no descriptor left; start the server with more",
            ),
            (refused(Refused::NoThread, None), "no more threads; see ulimit -u"),
            (
                Notice::ClientDisplaced { purpose: Purpose::Control, peer },
                "a caller of the control socket (pid 7) was disconnected: it had asked for nothing",
            ),
            (
                stalled(Stall::Answers),
                "an NBD client (pid 7) has not taken its answers for 5 s; others are served \
                 meanwhile; kill 7 to free what it holds",
            ),
            (stalled(Stall::Request), "has not sent the rest of a request for 5 s"),
            (Notice::ClientNoMemory { peer }, "no memory for its buffers; end other programs"),
            (
                Notice::MachineForeign { peer },
                "a virtual machine (pid 7) was refused: its disk was that of another server, and \
                 what it stored there is gone; restart the machine",
            ),
            (
                Notice::QueueBroken { peer, why: "it is odd" },
                "a virtual machine (pid 7) has a queue that is served no more: it is odd; its \
                 driver or its program is at fault",
            ),
            (
                Notice::QueueLost { device: "zram1".into(), why: "it was stopped".into() },
                "zram1: its block device gives errors: it was stopped; end what has it open",
            ),
        ];
        rows.iter().for_each(|(notice, expected)| says(notice, expected));
    }
}
