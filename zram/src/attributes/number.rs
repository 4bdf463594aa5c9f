//! Numbers as the kernel reads them.
//!
//! ```text
//!   decimal     [+-]digits[newline]             nothing else before or after; EINVAL, ERANGE
//!   automatic   as decimal, or 0x.. or 0..      hexadecimal, octal
//!   size        0x.., 0.., digits [KMGTPE].*    the rest is ignored
//! ```
//!
//! Source: `kstrtoull`, `kstrtobool` and `memparse` of the kernel. There is one difference: a size
//! that does not fit 64 bits is refused, and the kernel takes its low bits.
//!
//! Invariant: a function returns the number that the text says, or an error. No sum wraps, and no
//! part of a wrong text is used.

use super::errno::{AttributeError, Errno};

/// Why a number was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberError {
    /// The text is not a number.
    NotANumber,
    /// The number does not fit.
    TooLarge,
}

impl NumberError {
    /// The attribute's error. `right` says what would be a valid text.
    pub(crate) fn with(self, text: &str, right: &str) -> AttributeError {
        let errno = match self {
            NumberError::NotANumber => Errno::Invalid,
            NumberError::TooLarge => Errno::Range,
        };
        AttributeError::new(errno, self.told(text, right))
    }

    /// As `with`, where the kernel returns EINVAL in either case.
    pub(crate) fn invalid(self, text: &str, right: &str) -> AttributeError {
        AttributeError::invalid(self.told(text, right))
    }

    /// The message. A number that does not fit is still called a number.
    fn told(self, text: &str, right: &str) -> String {
        let text = text.trim_end_matches('\n');
        match self {
            NumberError::NotANumber => format!("{text:?} is not {right}"),
            NumberError::TooLarge => format!("{text} is too large for {right}"),
        }
    }
}

const DECIMAL: u32 = 10;
const SUFFIXES: &[u8; 6] = b"KMGTPE";
const SUFFIX_SHIFT: u32 = 10;

/// A decimal number without a sign, or with a plus.
pub(crate) fn decimal(text: &str) -> Result<u64, NumberError> {
    digits(line(text), DECIMAL)
}

/// As `decimal`, in base 8, 10 or 16 by its prefix.
pub(crate) fn automatic(text: &str) -> Result<u64, NumberError> {
    let (base, rest) = base_of(line(text));
    digits(rest, base)
}

/// A decimal number with any sign that fits 32 bits.
pub(crate) fn signed(text: &str) -> Result<i32, NumberError> {
    let too_large = |_| NumberError::TooLarge;
    match text.strip_prefix('-') {
        // A second sign is not allowed.
        Some(digits) if digits.starts_with('+') => Err(NumberError::NotANumber),
        Some(digits) => i32::try_from(-i128::from(decimal(digits)?)).map_err(too_large),
        None => i32::try_from(decimal(text)?).map_err(too_large),
    }
}

/// A yes or no, by its first character, or by the first two for `on` and `off`.
pub(crate) fn truth(text: &str) -> Option<bool> {
    let mut bytes = text.bytes().map(|byte| byte.to_ascii_lowercase());
    match bytes.next()? {
        b'y' | b't' | b'1' => Some(true),
        b'n' | b'f' | b'0' => Some(false),
        b'o' => match bytes.next()? {
            b'n' => Some(true),
            b'f' => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes: digits in base 8, 10 or 16, then one of `KMGTPE` in either case, or anything else. All
/// that follows the digits and that letter is ignored.
pub(crate) fn size(text: &str) -> Result<u64, NumberError> {
    let (base, rest) = base_of(text);
    let len = rest.bytes().take_while(|byte| char::from(*byte).is_digit(base)).count();
    let number = digits(&rest[..len], base)?;
    let suffix = rest.as_bytes().get(len).map(u8::to_ascii_uppercase);
    let power = SUFFIXES.iter().position(|&known| Some(known) == suffix);
    let shift = power.map_or(0, |power| (power as u32 + 1) * SUFFIX_SHIFT);
    number.checked_mul(1 << shift).ok_or(NumberError::TooLarge)
}

/// The base that a prefix names, and the text behind it. A zero by itself is a number.
fn base_of(text: &str) -> (u32, &str) {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, digits),
        _ if text.starts_with('0') => (8, text),
        _ => (DECIMAL, text),
    }
}

/// The text without the newline that may end it, and the plus that may begin it.
fn line(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_prefix('+').unwrap_or(text)
}

fn digits(text: &str, base: u32) -> Result<u64, NumberError> {
    if text.is_empty() || !text.chars().all(|digit| digit.is_digit(base)) {
        return Err(NumberError::NotANumber);
    }
    u64::from_str_radix(text, base).map_err(|_| NumberError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOT: NumberError = NumberError::NotANumber;
    const LARGE: NumberError = NumberError::TooLarge;

    #[test]
    fn sizes_are_the_kernels() {
        let rows = [
            ("4096", Ok(4096)),
            ("25M\n", Ok(25 << 20)),
            ("1k", Ok(1 << 10)),
            ("3G", Ok(3 << 30)),
            ("2t", Ok(2 << 40)),
            ("1P", Ok(1 << 50)),
            ("1e", Ok(1 << 60)),
            ("0x10", Ok(16)),
            ("0x10K", Ok(16 << 10)),
            ("010", Ok(8)),
            ("0", Ok(0)),
            ("64MiB", Ok(64 << 20)),
            ("1.5G", Ok(1)),
            ("7 of them", Ok(7)),
            ("", Err(NOT)),
            ("\n", Err(NOT)),
            ("K", Err(NOT)),
            ("-1", Err(NOT)),
            (" 1", Err(NOT)),
            ("much", Err(NOT)),
            ("16E", Err(LARGE)),
            ("18446744073709551616", Err(LARGE)),
        ];
        for (text, expected) in rows {
            assert_eq!(size(text), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_the_kernels() {
        let rows = [
            ("0", Ok(0)),
            ("+7\n", Ok(7)),
            ("007", Ok(7)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err(LARGE)),
            ("", Err(NOT)),
            ("+", Err(NOT)),
            ("-0", Err(NOT)),
            ("++1", Err(NOT)),
            ("1\n\n", Err(NOT)),
            ("1 ", Err(NOT)),
            (" 1", Err(NOT)),
            ("0x1", Err(NOT)),
        ];
        for (text, expected) in rows {
            assert_eq!(decimal(text), expected, "{text:?}");
        }
        let automatics = [
            ("0x1f", Ok(31)),
            ("017", Ok(15)),
            ("+0x2\n", Ok(2)),
            ("09", Err(NOT)),
            ("0x", Err(NOT)),
        ];
        for (text, expected) in automatics {
            assert_eq!(automatic(text), expected, "{text:?}");
        }
    }

    #[test]
    fn signs_and_truths_are_the_kernels() {
        let signs = [
            ("-1", Ok(-1)),
            ("+1\n", Ok(1)),
            ("-2147483648", Ok(i32::MIN)),
            ("2147483648", Err(LARGE)),
            ("-2147483649", Err(LARGE)),
            ("-+1", Err(NOT)),
            ("--1", Err(NOT)),
        ];
        for (text, expected) in signs {
            assert_eq!(signed(text), expected, "{text:?}");
        }
        let truths = [
            ("1\n", Some(true)),
            ("Yes", Some(true)),
            ("on", Some(true)),
            ("true", Some(true)),
            ("0", Some(false)),
            ("no", Some(false)),
            ("OFF", Some(false)),
            ("", None),
            ("2", None),
            ("o", None),
        ];
        for (text, expected) in truths {
            assert_eq!(truth(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_number_is_read_back(number: u64) {
            prop_assert_eq!(decimal(&number.to_string()), Ok(number));
            prop_assert_eq!(automatic(&format!("{number:#x}")), Ok(number));
            prop_assert_eq!(automatic(&format!("0{number:o}")), Ok(number));
            prop_assert_eq!(size(&number.to_string()), Ok(number));
        }

        #[test]
        fn no_text_confuses_the_parsers(text in ".{0,12}") {
            let _ = (decimal(&text), automatic(&text), signed(&text), size(&text), truth(&text));
        }
    }
}
