//! Right-aligned columns, as the kernel's tables have them.
//!
//! Written by hand because a monitor reads these tables often, and the general formatting of the
//! standard library costs several times what there is to do.

/// As many spaces as the widest column has.
const SPACES: &str = "                                           "; // 43

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;
// Ten to the nineteenth is below 2^64, ten to the twentieth is not.
const _: () = assert!(u64::MAX.ilog10() as usize + 1 == DIGITS_MAX);

/// The kernel's `%{width}lu `, a space after it.
pub(crate) fn number(out: &mut String, value: u64, width: usize) {
    let mut digits = [0; DIGITS_MAX];
    word(out, decimal(value, &mut digits), width);
    out.push(' ');
}

/// The kernel's `%{width}s`.
pub(crate) fn word(out: &mut String, word: &str, width: usize) {
    out.push_str(&SPACES[..width.saturating_sub(word.len()).min(SPACES.len())]);
    out.push_str(word);
}

/// The kernel's `%-{width}s`.
pub(crate) fn left_word(out: &mut String, word: &str, width: usize) {
    out.push_str(word);
    out.push_str(&SPACES[..width.saturating_sub(word.len()).min(SPACES.len())]);
}

/// The kernel's `%{width}d`, or `%0{width}d` with zeros for `pad`: these go behind the sign.
pub(crate) fn signed(out: &mut String, value: i64, width: usize, pad: char) {
    let mut digits = [0; DIGITS_MAX];
    let digits = decimal(value.unsigned_abs(), &mut digits);
    let sign = if value < 0 { "-" } else { "" };
    let padding = width.saturating_sub(sign.len() + digits.len());
    let (before, behind) = if pad == '0' { (0, padding) } else { (padding, 0) };
    out.extend(std::iter::repeat_n(pad, before));
    out.push_str(sign);
    out.extend(std::iter::repeat_n(pad, behind));
    out.push_str(digits);
}

/// A number in decimal.
pub(crate) fn decimal(value: u64, digits: &mut [u8; DIGITS_MAX]) -> &str {
    let (mut at, mut rest) = (DIGITS_MAX, value);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return std::str::from_utf8(&digits[at..]).expect("decimal digits are ASCII");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn writes(write: impl FnOnce(&mut String), expected: &str) {
        let mut out = String::new();
        write(&mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn columns_are_what_the_formatting_of_the_library_makes_them() {
        for value in [0, 7, 10, 99_999, 100_000, 1_234_567, u64::MAX] {
            writes(|out| number(out, value, 6), &format!("{value:6} "));
            writes(|out| number(out, value, 12), &format!("{value:12} "));
        }
        for value in [0, 7, -7, 62, -62, -500, 12_345, i64::MIN] {
            writes(|out| signed(out, value, 2, ' '), &format!("{value:2}"));
            writes(|out| signed(out, value, 3, '0'), &format!("{value:03}"));
        }
        for name in ["", "DMA", "a name of more than eight"] {
            writes(|out| word(out, name, 8), &format!("{name:>8}"));
            writes(|out| left_word(out, name, 43), &format!("{name:<43}"));
        }
    }
}
