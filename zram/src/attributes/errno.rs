//! Why an attribute could not be read or written: the system's number for it, and a line.
//!
//! ```text
//!   "disksize: the device is initialised; reset it first"        EBUSY
//!        what is wrong --'              '-- what would be right
//! ```
//!
//! Invariant: the number is the one that the kernel's driver gives in the same place.

use std::{fmt, io};

/// The system's numbers that attributes fail with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Errno {
    /// `EACCES`: it can only be read, or only be written.
    Access,
    /// `EBUSY`: it is too late, or it is in use.
    Busy,
    /// `EEXIST`: there is a device of that name.
    Exists,
    /// `EFBIG`: a file that is too large to be what it should be.
    FileTooBig,
    /// `EINVAL`: the value is not understood, or makes no sense here.
    Invalid,
    /// `EIO`: the limit of write-back is used up, or the backing device failed.
    Io,
    /// `EISDIR`: a directory where a file should be.
    IsDirectory,
    /// `ENODEV`: no such device, or none to write back to.
    NoDevice,
    /// `ENOMEM`: no memory, or no room for a table that large.
    NoMemory,
    /// `ENOSPC`: the backing device is full.
    NoSpace,
    /// `ENOTBLK`: neither a block device nor a file.
    NotBlock,
    /// `EOPNOTSUPP`: the algorithm has no such parameter.
    NotSupported,
    /// `ERANGE`: a number that is too large.
    Range,
    /// `E2BIG`: a name that is too long.
    TooLong,
    /// What the system said about a file.
    Os(i32),
}

impl Errno {
    /// The number.
    pub const fn get(self) -> i32 {
        match self {
            Errno::Io => 5,
            Errno::TooLong => 7,
            Errno::NoMemory => 12,
            Errno::Access => 13,
            Errno::NotBlock => 15,
            Errno::Busy => 16,
            Errno::Exists => 17,
            Errno::NoDevice => 19,
            Errno::IsDirectory => 21,
            Errno::Invalid => 22,
            Errno::FileTooBig => 27,
            Errno::NoSpace => 28,
            Errno::Range => 34,
            Errno::NotSupported => 95,
            Errno::Os(number) => number,
        }
    }
}

/// Why an attribute could not be read or written, or a device not added, removed or opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeError {
    errno: Errno,
    message: String,
}

impl AttributeError {
    /// An error of this number and message: one line, whatever was typed.
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> AttributeError {
        let mut message = message.into();
        if message.contains(char::is_control) {
            message = message.escape_debug().to_string();
        }
        AttributeError { errno, message }
    }

    /// A value that is not understood.
    pub(crate) fn invalid(message: impl Into<String>) -> AttributeError {
        AttributeError::new(Errno::Invalid, message)
    }

    /// It is too late, or it is in use.
    pub(crate) fn busy(message: impl Into<String>) -> AttributeError {
        AttributeError::new(Errno::Busy, message)
    }

    /// What the system said about `what`.
    pub(crate) fn from_io(what: impl fmt::Display, error: &io::Error) -> AttributeError {
        let errno = match (error.raw_os_error(), error.kind()) {
            (Some(number), _) => Errno::Os(number),
            (None, io::ErrorKind::ResourceBusy) => Errno::Busy,
            (None, io::ErrorKind::InvalidInput) => Errno::Invalid,
            (None, io::ErrorKind::OutOfMemory) => Errno::NoMemory,
            (None, _) => Errno::Io,
        };
        AttributeError::new(errno, format!("{what}: {error}"))
    }

    /// The same about something.
    pub(crate) fn of(self, what: impl fmt::Display) -> AttributeError {
        AttributeError { message: format!("{what}: {}", self.message), ..self }
    }

    /// The system's number, for a caller that passes the failure on.
    pub fn errno(&self) -> i32 {
        self.errno.get()
    }

    /// Which it is.
    pub fn kind(&self) -> Errno {
        self.errno
    }
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AttributeError {}
