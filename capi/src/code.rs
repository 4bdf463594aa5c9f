//! The answer of a call: a code, and a message that says what to do.
//!
//! ```text
//!   Err(Failure { code, text }) --tell--> the thread's last message --copied--> caller's buffer
//!                  `--> the function's result
//! ```
//!
//! The message is kept by thread, because a C function has one result. It is copied out, because a
//! pointer to it would dangle after the next failure.
//!
//! Invariant: a code never changes its number, which programs are compiled with.

use codec::{CodecError, ParameterError, ParseCodecError, TrainError};
use host::FaultError;
use region::{RegionError, ZramError};
use std::cell::RefCell;
use std::ffi::CStr;
use std::fmt::Display;
use values::ValuesError;
use zsmalloc::{AllocError, MemoryError};

/// Bytes of the longest message that is kept.
pub(crate) const MESSAGE_MAX: usize = 511;

/// What went wrong. The header has the words for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Ok = 0,
    Argument = -1,
    Handle = -2,
    Forked = -3,
    NoMemory = -4,
    Limit = -5,
    ShortBuffer = -6,
    NoValue = -7,
    Corrupt = -8,
    Refused = -9,
    Unsupported = -10,
    Panicked = -11,
    NothingCommon = -12,
}

impl Code {
    pub(crate) const ALL: [Code; 13] = [
        Code::Ok,
        Code::Argument,
        Code::Handle,
        Code::Forked,
        Code::NoMemory,
        Code::Limit,
        Code::ShortBuffer,
        Code::NoValue,
        Code::Corrupt,
        Code::Refused,
        Code::Unsupported,
        Code::Panicked,
        Code::NothingCommon,
    ];

    /// The name that the header has for it.
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Code::Ok => c"RAMFOLD_OK",
            Code::Argument => c"RAMFOLD_ERROR_ARGUMENT",
            Code::Handle => c"RAMFOLD_ERROR_HANDLE",
            Code::Forked => c"RAMFOLD_ERROR_FORKED",
            Code::NoMemory => c"RAMFOLD_ERROR_NO_MEMORY",
            Code::Limit => c"RAMFOLD_ERROR_LIMIT",
            Code::ShortBuffer => c"RAMFOLD_ERROR_SHORT_BUFFER",
            Code::NoValue => c"RAMFOLD_ERROR_NO_VALUE",
            Code::Corrupt => c"RAMFOLD_ERROR_CORRUPT",
            Code::Refused => c"RAMFOLD_ERROR_REFUSED",
            Code::Unsupported => c"RAMFOLD_ERROR_UNSUPPORTED",
            Code::Panicked => c"RAMFOLD_ERROR_PANICKED",
            Code::NothingCommon => c"RAMFOLD_ERROR_NOTHING_COMMON",
        }
    }

    /// A failure with these words.
    pub(crate) fn because(self, text: impl Display) -> Failure {
        Failure { code: self, text: text.to_string() }
    }
}

/// Why a call failed. Nothing was done then, unless the header says otherwise.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

/// The last message of a thread. It is an array, so that a thread that ends frees nothing.
struct Last {
    bytes: [u8; MESSAGE_MAX],
    len: usize,
}

thread_local! {
    static LAST: RefCell<Last> =
        const { RefCell::new(Last { bytes: [0; MESSAGE_MAX], len: 0 }) };
}

impl Failure {
    /// Makes it the thread's last message. Returns its code.
    pub(crate) fn tell(&self) -> Code {
        let most = self.text.len().min(MESSAGE_MAX);
        let len = (0..=most).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0);
        LAST.with_borrow_mut(|last| {
            last.bytes[..len].copy_from_slice(&self.text.as_bytes()[..len]);
            last.len = len;
        });
        self.code
    }
}

/// Shows the thread's last message to `look`; it is empty if no call has failed.
pub(crate) fn with_last_message<R>(look: impl FnOnce(&[u8]) -> R) -> R {
    LAST.with_borrow(|last| look(&last.bytes[..last.len]))
}

impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Failure {
        let code = match error {
            MemoryError::BadConfig { .. } => Code::Argument,
            _ => Code::NoMemory,
        };
        code.because(error)
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Failure {
        let code = match error {
            AllocError::BadLength { .. } => Code::Argument,
            AllocError::OverLimit { .. } => Code::Limit,
            AllocError::FrameInUse { .. } => Code::Corrupt,
            _ => Code::NoMemory,
        };
        code.because(error)
    }
}

impl From<ValuesError> for Failure {
    fn from(error: ValuesError) -> Failure {
        let code = match error {
            ValuesError::Alloc(error) => return error.into(),
            ValuesError::Memory(error) => return error.into(),
            ValuesError::Codec(error) => return error.into(),
            ValuesError::Parameter(error) => return error.into(),
            ValuesError::Train(error) => return error.into(),
            ValuesError::NoValue => Code::NoValue,
            ValuesError::Damaged(_) => Code::Corrupt,
            _ => Code::Argument,
        };
        code.because(error)
    }
}

impl From<CodecError> for Failure {
    fn from(error: CodecError) -> Failure {
        let code = match error {
            CodecError::Corrupt => Code::Corrupt,
            CodecError::NoMemory => Code::NoMemory,
            _ => Code::Refused,
        };
        code.because(error)
    }
}

impl From<ParameterError> for Failure {
    fn from(error: ParameterError) -> Failure {
        let code = match error {
            ParameterError::NoMemory => Code::NoMemory,
            _ if error.is_unsupported() => Code::Unsupported,
            _ => Code::Argument,
        };
        code.because(error)
    }
}

impl From<ParseCodecError> for Failure {
    fn from(error: ParseCodecError) -> Failure {
        match error {
            ParseCodecError::Level(error) => error.into(),
            _ => Code::Argument.because(error),
        }
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Failure {
        let code = match error {
            TrainError::NothingCommon => Code::NothingCommon,
            TrainError::NoMemory => Code::NoMemory,
            _ => Code::Argument,
        };
        code.because(error)
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Failure {
        let code = match error {
            RegionError::Empty
            | RegionError::Unaligned { .. }
            | RegionError::OutOfRange { .. }
            | RegionError::Unmapped { .. }
            | RegionError::LimitTooSmall { .. }
            | RegionError::NotPinned { .. }
            | RegionError::Pinned { .. } => Code::Argument,
            RegionError::Gone => Code::Handle,
            RegionError::Unreadable { .. } => Code::Corrupt,
            RegionError::Fault(FaultError::Inherited) => Code::Forked,
            RegionError::Store(ZramError::TooLarge { .. }) => Code::Argument,
            RegionError::Fault(FaultError::TooManyRegions { .. } | FaultError::Mappings { .. })
            | RegionError::TooManyMappings { .. } => Code::Limit,
            RegionError::Host(_)
            | RegionError::Store(_)
            | RegionError::Fault(FaultError::Exhausted { .. })
            | RegionError::Codec(_)
            | RegionError::Tending(_) => Code::NoMemory,
            RegionError::NoTiers => Code::Unsupported,
            _ => Code::Refused,
        };
        code.because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_is_the_last_one_and_of_this_thread() {
        let last = || with_last_message(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(last(), "");
        assert_eq!(Code::Limit.because("a longer one").tell(), Code::Limit);
        assert_eq!(Code::Argument.because("one").tell(), Code::Argument);
        assert_eq!(last(), "one");
        let other = std::thread::spawn(move || with_last_message(<[u8]>::len)).join();
        assert_eq!(other.expect("it looks only"), 0);
    }

    #[test]
    fn a_long_message_ends_with_a_whole_letter() {
        let long = "a".to_string() + &"\u{e4}".repeat(MESSAGE_MAX);
        Code::Argument.because(long).tell();
        with_last_message(|text| {
            assert_eq!(text.len(), MESSAGE_MAX);
            assert!(std::str::from_utf8(text).is_ok());
        });
        let odd = "\u{e4}".repeat(MESSAGE_MAX);
        Code::Argument.because(odd).tell();
        with_last_message(|text| assert_eq!(text.len(), MESSAGE_MAX - 1));
    }

    #[test]
    fn codes_have_the_numbers_that_programs_were_compiled_with() {
        let numbers = Code::ALL.map(|code| code as i32);
        assert_eq!(numbers, [0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12]);
    }

    #[test]
    fn each_error_has_the_code_that_says_what_to_do() {
        let code = |failure: Failure| failure.code;
        assert_eq!(code(AllocError::OverLimit { limit: 1 }.into()), Code::Limit);
        assert_eq!(code(AllocError::OutOfFrames.into()), Code::NoMemory);
        assert_eq!(code(MemoryError::BadConfig { what: "x" }.into()), Code::Argument);
        assert_eq!(code(CodecError::Corrupt.into()), Code::Corrupt);
        assert_eq!(code(TrainError::NothingCommon.into()), Code::NothingCommon);
        assert_eq!(code(TrainError::TooSmall.into()), Code::Argument);
        assert_eq!(code(RegionError::Gone.into()), Code::Handle);
        assert_eq!(code(RegionError::Fault(FaultError::Inherited).into()), Code::Forked);
        let parse = |text: &str| code(text.parse::<codec::Codec>().unwrap_err().into());
        assert_eq!([parse("gzip"), parse("lz4:x")], [Code::Argument; 2]);
        assert_eq!(parse("lzo:3"), Code::Unsupported);
    }
}
