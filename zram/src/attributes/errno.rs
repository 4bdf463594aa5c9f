//! Why an attribute could not be read or written: the system's error number, and a message.
//!
//! ```text
//!   "disksize: the device is initialised; reset it first"        EBUSY
//!        what is wrong --'              '-- what would be right
//! ```
//!
//! Invariant: the number is the one that the kernel's driver returns in the same case.

use std::{fmt, io};

/// The system's error numbers with which attributes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Errno {
    /// `EACCES`: the attribute can only be read, or only be written.
    Access,
    /// `EBUSY`: it is too late for this, or the thing is in use.
    Busy,
    /// `EEXIST`: a device has that name already.
    Exists,
    /// `EFBIG`: the file is too large for its purpose.
    FileTooBig,
    /// `EINVAL`: the value is not understood, or has no meaning here.
    Invalid,
    /// `EIO`: the limit of write-back is used up, or the backing device failed.
    Io,
    /// `EISDIR`: the path names a directory instead of a file.
    IsDirectory,
    /// `ENODEV`: the device does not exist, or has no backing device.
    NoDevice,
    /// `ENOMEM`: there is no memory, or no room for a table of that size.
    NoMemory,
    /// `ENOSPC`: the backing device is full.
    NoSpace,
    /// `ENOTBLK`: the path names neither a block device nor a file.
    NotBlock,
    /// `EOPNOTSUPP`: the algorithm has no such parameter.
    NotSupported,
    /// `ERANGE`: the number is too large.
    Range,
    /// `E2BIG`: the name is too long.
    TooLong,
    /// The system's own error number for a file.
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
    /// An error with this number and message. The message becomes one line, whatever the user
    /// typed.
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> AttributeError {
        let mut message = message.into();
        if message.contains(char::is_control) {
            message = message.escape_debug().to_string();
        }
        AttributeError { errno, message }
    }

    /// The error for a value that is not understood.
    pub(crate) fn invalid(message: impl Into<String>) -> AttributeError {
        AttributeError::new(Errno::Invalid, message)
    }

    /// The error for a request that comes too late, or for a thing that is in use.
    pub(crate) fn busy(message: impl Into<String>) -> AttributeError {
        AttributeError::new(Errno::Busy, message)
    }

    /// The system's error for `what`.
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

    /// The same error, about `what`.
    pub(crate) fn of(self, what: impl fmt::Display) -> AttributeError {
        AttributeError { message: format!("{what}: {}", self.message), ..self }
    }

    /// The system's number, for a caller that passes the failure on.
    pub fn errno(&self) -> i32 {
        self.errno.get()
    }

    /// Which of the numbers it is.
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
