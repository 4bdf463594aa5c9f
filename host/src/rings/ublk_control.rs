//! Commands about ublk devices: added, described, started, stopped, deleted.
//!
//! ```text
//!   add --> ublkcN --> set --> queues fetch --> start --> ublkbN --> stop --> delete
//!
//!   command   device.4 queue.2 length.2 address.8 data.8 -.8     in a submission of 128 bytes
//!   info      queues.2 depth.2 state.2 -.2 most bytes.4 id.4 process.4 -.4 flags.8 mark.8 ..
//! ```
//!
//! Each command waits until the kernel has done it. A start waits until every tag was fetched, and
//! then reads the disk to look for partitions. So the queues are served by other threads.
//!
//! Invariant C1: the memory that a command names is a buffer of its own. It lives until the command
//! is complete, or for ever if that is never seen. Commands have numbers, so none takes the
//! completion of another one for its own. Lock: none.

use super::ring::Ring;
use super::ublk::command;
use io_uring::{opcode, types};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The node of the driver.
const CONTROL: &str = "/dev/ublk-control";
/// Bytes of a command.
const COMMAND: u32 = 32;
/// Bytes of the description of a device.
const INFO: usize = 64;
/// Instead of a queue's number.
const NO_QUEUE: u16 = u16::MAX;
/// Instead of a device's number: any that is free.
const ANY: u32 = u32::MAX;

/// The feature of a data path without addresses: `UBLK_F_USER_COPY`.
pub const UBLK_USER_COPY: u64 = 1 << 7;
/// The feature of commands that are encoded as those of `ioctl`: `UBLK_F_CMD_IOCTL_ENCODE`.
const IOCTL_ENCODED: u64 = 1 << 6;

const GET_INFO: u32 = command(false, COMMAND, 0x02);
const ADD: u32 = command(true, COMMAND, 0x04);
const DELETE: u32 = command(true, COMMAND, 0x05);
const START: u32 = command(true, COMMAND, 0x06);
const STOP: u32 = command(true, COMMAND, 0x07);
const SET_PARAMETERS: u32 = command(true, COMMAND, 0x08);
const GET_FEATURES: u32 = command(false, COMMAND, 0x13);
const DELETE_LATER: u32 = command(false, COMMAND, 0x14);
const TRY_STOP: u32 = command(true, COMMAND, 0x17);

/// What a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UblkInfo {
    /// Its number, as in `/dev/ublkbN`. `None` when it is added: any that is free.
    pub id: Option<u32>,
    /// How many queues it has.
    pub queues: u16,
    /// How many requests each of them can have.
    pub depth: u16,
    /// The most bytes of data in a request.
    pub most_bytes: u32,
    /// Features.
    pub flags: u64,
    /// A number of its owner's choice, which the kernel keeps.
    pub mark: u64,
    /// Whether it is neither started nor waiting for another server.
    pub is_dead: bool,
}

/// The way to the driver, for the thread that opened it.
pub struct UblkControl {
    ring: Ring,
    device: OwnedFd,
    /// The number of the last command.
    last: u64,
}

impl UblkControl {
    /// Opens the driver.
    ///
    /// # Errors
    ///
    /// The system's: `NotFound` if the kernel has no ublk, `PermissionDenied` for users other than
    /// root, and what io_uring is refused with.
    pub fn open() -> io::Result<UblkControl> {
        let device = open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let ring = Ring::new()?;
        ring.enable()?;
        Ok(UblkControl { ring, device, last: 0 })
    }

    /// The features of the driver, as bits of `UBLK_F_`.
    ///
    /// # Errors
    ///
    /// The system's; `EOPNOTSUPP` or `EINVAL` before Linux 6.5.
    pub fn features(&mut self) -> io::Result<u64> {
        let mut features = [0; 8];
        self.call(GET_FEATURES, ANY, 0, &mut features)?;
        Ok(u64::from_ne_bytes(features))
    }

    /// Adds a device, and gives it as the kernel made it.
    ///
    /// # Errors
    ///
    /// The system's; `EEXIST` if there is one of this number.
    pub fn add(&mut self, asked: &UblkInfo) -> io::Result<UblkInfo> {
        let mut info = asked.to_bytes();
        self.call(ADD, asked.id.unwrap_or(ANY), 0, &mut info)?;
        Ok(UblkInfo::parse(&info))
    }

    /// A device that there is.
    ///
    /// # Errors
    ///
    /// The system's; `ENODEV` if there is none of this number.
    pub fn info(&mut self, id: u32) -> io::Result<UblkInfo> {
        let mut info = [0; INFO];
        self.call(GET_INFO, id, 0, &mut info)?;
        Ok(UblkInfo::parse(&info))
    }

    /// Says how large a device is and what it can do: the bytes of `ublk_params`.
    ///
    /// # Errors
    ///
    /// The system's; `EINVAL` if they make no sense.
    pub fn set_parameters(&mut self, id: u32, parameters: &[u8]) -> io::Result<()> {
        self.call(SET_PARAMETERS, id, 0, &mut parameters.to_vec())
    }

    /// Makes the block device. Returns when every queue has fetched its tags, and the disk was
    /// looked at.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn start(&mut self, id: u32) -> io::Result<()> {
        self.call(START, id, u64::from(std::process::id()), &mut [])
    }

    /// Takes the block device away. Requests that come from then on are errors. Those under way,
    /// and what the system has not written yet, still come to the queues. Then these are over.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn stop(&mut self, id: u32) -> io::Result<()> {
        self.call(STOP, id, 0, &mut [])
    }

    /// As [`UblkControl::stop`], if nothing has the device open.
    ///
    /// # Errors
    ///
    /// The system's: `EBUSY` if something has it open, `EOPNOTSUPP` or `EINVAL` if the kernel does
    /// not know the command.
    pub fn try_stop(&mut self, id: u32) -> io::Result<()> {
        self.call(TRY_STOP, id, 0, &mut [])
    }

    /// Deletes a device that is not started. If something still has its block device open, its
    /// number is free when that is closed. This does not wait for that.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn delete(&mut self, id: u32) -> io::Result<()> {
        match self.call(DELETE_LATER, id, 0, &mut []) {
            Err(error) if is_unknown(&error) => self.call(DELETE, id, 0, &mut []),
            outcome => outcome,
        }
    }

    /// Has the kernel do a command, with the bytes that it reads or fills.
    fn call(&mut self, operation: u32, id: u32, data: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut buffer = bytes.to_vec();
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        let len = u16::try_from(bytes.len()).map_err(|_| Errno::INVAL)?;
        let address = if bytes.is_empty() { 0 } else { address };
        let device = types::Fd(self.device.as_raw_fd());
        let entry = opcode::UringCmd80::new(device, operation);
        self.last += 1;
        let entry = entry.cmd(arguments(id, len, address, data)).build().user_data(self.last);
        // SAFETY: the buffer lives until the completion was reaped. If the ring fails before, it is
        // never freed (C1). Nobody else knows it.
        unsafe { self.ring.push(&entry) }?;
        let completion = loop {
            match self.ring.reap() {
                Some(completion) if completion.number == self.last => break completion,
                // That of a command whose outcome nobody waits for any more.
                Some(_) => continue,
                None => {}
            }
            if let Err(error) = self.ring.enter(1, None) {
                std::mem::forget(buffer);
                return Err(error);
            }
        };
        completion.result?;
        bytes.copy_from_slice(&buffer);
        Ok(())
    }
}

impl fmt::Debug for UblkControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UblkControl").finish_non_exhaustive()
    }
}

/// Whether the kernel does not know a command.
pub(crate) fn is_unknown(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY | Errno::NOSYS))
}

/// The bytes of a command.
fn arguments(id: u32, len: u16, address: u64, data: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[0..4].copy_from_slice(&id.to_ne_bytes());
    bytes[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    bytes[6..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..16].copy_from_slice(&address.to_ne_bytes());
    bytes[16..24].copy_from_slice(&data.to_ne_bytes());
    bytes
}

impl UblkInfo {
    fn to_bytes(self) -> [u8; INFO] {
        let mut bytes = [0; INFO];
        bytes[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.most_bytes.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.id.unwrap_or(ANY).to_ne_bytes());
        bytes[24..32].copy_from_slice(&(self.flags | IOCTL_ENCODED).to_ne_bytes());
        bytes[32..40].copy_from_slice(&self.mark.to_ne_bytes());
        bytes
    }

    fn parse(bytes: &[u8; INFO]) -> UblkInfo {
        let id = u32::from_ne_bytes(number(bytes, 12));
        UblkInfo {
            id: (id != ANY).then_some(id),
            queues: u16::from_ne_bytes(number(bytes, 0)),
            depth: u16::from_ne_bytes(number(bytes, 2)),
            most_bytes: u32::from_ne_bytes(number(bytes, 8)),
            flags: u64::from_ne_bytes(number(bytes, 24)),
            mark: u64::from_ne_bytes(number(bytes, 32)),
            is_dead: u16::from_ne_bytes(number(bytes, 4)) == 0,
        }
    }
}

/// The bytes of a number in the machine's own order.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_kernels() {
        // As linux/ublk_cmd.h has them: direction, 32 bytes, 'u', number.
        let rows = [
            (GET_INFO, 0x8020_7502),
            (ADD, 0xc020_7504),
            (DELETE, 0xc020_7505),
            (START, 0xc020_7506),
            (STOP, 0xc020_7507),
            (SET_PARAMETERS, 0xc020_7508),
            (GET_FEATURES, 0x8020_7513),
            (DELETE_LATER, 0x8020_7514),
            (TRY_STOP, 0xc020_7517),
        ];
        rows.iter().for_each(|(ours, kernels)| assert_eq!(ours, kernels, "{kernels:#x}"));
        let bytes = arguments(3, 64, 0x1000, 9);
        assert_eq!(u32::from_ne_bytes(number(&bytes, 0)), 3);
        assert_eq!(&bytes[4..6], [0xff, 0xff], "no queue");
        assert_eq!(u16::from_ne_bytes(number(&bytes, 6)), 64);
        assert_eq!(u64::from_ne_bytes(number(&bytes, 8)), 0x1000);
        assert_eq!(u64::from_ne_bytes(number(&bytes, 16)), 9);
        assert!(bytes[24..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_description_comes_back_as_it_went() {
        let flags = UBLK_USER_COPY | IOCTL_ENCODED;
        let info = UblkInfo {
            id: Some(5),
            queues: 2,
            depth: 128,
            most_bytes: 1 << 20,
            flags,
            mark: u64::MAX - 7,
            is_dead: true,
        };
        assert_eq!(UblkInfo::parse(&info.to_bytes()), info);
        assert_eq!(UblkInfo::parse(&UblkInfo { id: None, ..info }.to_bytes()).id, None);
        let mut live = info.to_bytes();
        live[4] = 1;
        assert!(!UblkInfo::parse(&live).is_dead);
    }

    #[test]
    fn a_kernel_that_does_not_know_a_command_is_told_from_one_that_refuses() {
        assert!(is_unknown(&Errno::OPNOTSUPP.into()) && !is_unknown(&Errno::BUSY.into()));
    }
}
