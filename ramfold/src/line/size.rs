//! Sizes as people write and read them: `64M`, `1G`. Suffixes are binary, as the kernel's are.
//!
//! Invariant: no size wraps around. One that does not fit 64 bits is refused. Locks: none.

const KIB_SHIFT: u32 = 10;
const SUFFIXES: [char; 4] = ['K', 'M', 'G', 'T'];
/// The most digits behind the point.
const FRACTION_MAX: usize = 9;
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Bytes of the largest disk.
const DISK_MAX: u64 = 8 << 40; // 8 TiB

const _: () = assert!(1 << KIB_SHIFT == 1024, "each suffix is 1024 of the one before");

/// Bytes of a size, which must be more than 0.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    match parse_or_zero(text)? {
        0 => Err(format!("a size of {text} is too small; give at least one page, 4K")),
        bytes => Ok(bytes),
    }
}

/// Bytes of a disk: more than 0, and at most `DISK_MAX`.
pub(crate) fn parse_disk(text: &str) -> Result<u64, String> {
    let too_large = || format!("a disk of {text} is too large: at most 8T");
    match sized(text)? {
        Some(0) => parse(text),
        Some(bytes) if bytes <= DISK_MAX => Ok(bytes),
        _ => Err(too_large()),
    }
}

/// Bytes of a size of memory, which may be a part of what is available now: `50%`.
pub(crate) fn parse_memory(text: &str) -> Result<u64, String> {
    let Some(part) = text.strip_suffix('%') else { return parse(text) };
    let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
    let percent = part.parse::<u64>().ok().filter(|percent| (1..=100).contains(percent));
    let percent = percent.filter(|_| is_number);
    let percent = percent.ok_or_else(|| format!("{text:?} is no part; it is 1% to 100%"))?;
    let available = host::limits::memory_available().to_be_had();
    let available = available.ok_or("the system does not say how much memory is available")?;
    Ok(available / 100 * percent)
}

/// The same, or 0 for none.
pub(crate) fn parse_memory_or_none(text: &str) -> Result<u64, String> {
    if text.ends_with('%') { parse_memory(text) } else { parse_or_zero(text) }
}

/// Bytes of a size, which may be 0.
pub(crate) fn parse_or_zero(text: &str) -> Result<u64, String> {
    let too_large = || format!("{text} is too large: a size is less than 2^64 bytes");
    sized(text)?.ok_or_else(too_large)
}

/// Bytes of a size. `None` if they do not fit 64 bits.
fn sized(text: &str) -> Result<Option<u64>, String> {
    let wrong = || format!("{text:?} is not a size; give a number with K, M, G or T: 64M, 1.5G");
    let (number, shift) = split(text).ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // A fraction is one of a unit, and a byte has none.
    let is_fit = fraction.len() <= FRACTION_MAX && (shift > 0 || !number.contains('.'));
    if !digits(whole) || !digits(fraction) || !is_fit {
        return Err(wrong());
    }
    let parts = fraction.parse::<u64>().map_err(|_| wrong())?;
    let below = (u128::from(parts) << shift) / 10_u128.pow(fraction.len() as u32);
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(1 << shift));
    Ok(whole.and_then(|whole| whole.checked_add(below as u64)))
}

/// The digits, and by how many bits to shift the number. It reads `64`, `64K`, `64k`, `64KiB` and
/// `64KB`.
fn split(text: &str) -> Option<(&str, u32)> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text[number.len()..].to_ascii_uppercase();
    let mut letters = suffix.chars();
    let Some(letter) = letters.next().filter(|&letter| letter != 'B') else {
        return matches!(&*suffix, "" | "B").then_some((number, 0));
    };
    let power = SUFFIXES.iter().position(|&known| known == letter)?;
    let plain = matches!(letters.as_str(), "" | "B" | "IB");
    plain.then_some((number, (power as u32 + 1) * KIB_SHIFT))
}

/// A number with its noun: `1 page`, `2 pages`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", plural(number))
}

/// The ending of a noun after this number.
pub(crate) fn plural(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

/// Bytes with three or four digits and a unit: `12.5 MiB`.
pub(crate) fn human(bytes: u64) -> String {
    let power = (u64::BITS - 1).saturating_sub(bytes.leading_zeros()) / KIB_SHIFT;
    let power = power.min(UNITS.len() as u32 - 1);
    let unit = UNITS[power as usize];
    match power {
        0 => format!("{bytes} {unit}"),
        _ => format!("{:.1} {unit}", bytes as f64 / (1_u64 << (power * KIB_SHIFT)) as f64),
    }
}

/// Bytes with at most three digits, or four, and a letter that `parse` takes: `12.5M`. For columns.
pub(crate) fn short(bytes: u64) -> String {
    let power = (u64::BITS - 1).saturating_sub(bytes.leading_zeros()) / KIB_SHIFT;
    let power = power.min(SUFFIXES.len() as u32);
    let Some(letter) = power.checked_sub(1).map(|at| SUFFIXES[at as usize]) else {
        return bytes.to_string();
    };
    let value = bytes as f64 / (1_u64 << (power * KIB_SHIFT)) as f64;
    // A value that would be shown as 100.0 has its three digits already.
    if value < 99.95 { format!("{value:.1}{letter}") } else { format!("{value:.0}{letter}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_are_binary_and_forgiving() {
        let rows = [
            ("4096", 4096),
            ("4k", 4 << 10),
            ("4KiB", 4 << 10),
            ("3M", 3 << 20),
            ("3mb", 3 << 20),
            ("2G", 2 << 30),
            ("1T", 1 << 40),
            ("512B", 512),
            ("1.5G", 3 << 29),
            ("0.25k", 256),
            ("1.000000001K", 1024),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in rows {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_in_its_own_words() {
        let nothing_else = [
            "",
            "M",
            "-1",
            "+1",
            "1X",
            "1.5",
            "1.G",
            ".5G",
            "1.5.5G",
            "1.-5G",
            "1.0000000001G",
            "1KK",
            "1iB",
            "G1",
            "1 G G",
        ];
        // A blank in a script is a value that was lost, or two that ran into each other.
        let blanks = [" 5", "5 ", " 5M ", "5 M", "\t5", "5\n", " ", "\u{1F4BE}"];
        for text in nothing_else.into_iter().chain(blanks) {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{text:?}: {error}");
            assert!(error.contains("K, M, G or T"), "{text:?}: {error}");
        }
        assert!(parse("0").unwrap_err().contains("too small"));
        assert!(parse("99999999999T").unwrap_err().contains("99999999999T"));
        assert!(parse("18446744073709551616").is_err(), "one more than fits");
        // The message used to name the largest disk, whatever the size was for.
        for text in ["99999999999999999999999", "16777216T"] {
            let error = parse_or_zero(text).unwrap_err();
            assert_eq!(error, format!("{text} is too large: a size is less than 2^64 bytes"));
            let error = parse_disk(text).unwrap_err();
            assert_eq!(error, format!("a disk of {text} is too large: at most 8T"));
        }
        assert!(parse_disk("0").unwrap_err().contains("too small"));
        assert_eq!(parse_disk("8T"), Ok(DISK_MAX));
        assert!(parse_disk("8796093022209").unwrap_err().contains("at most 8T"));
        assert_eq!(parse_or_zero("0"), Ok(0));
    }

    #[test]
    fn a_part_of_memory_is_one_to_a_hundred_percent() {
        let (half, whole) = (parse_memory("50%"), parse_memory("100%"));
        if let (Ok(half), Ok(whole)) = (half, whole) {
            assert!(half > 0 && half < whole, "{half} of {whole}");
        }
        assert_eq!(parse_memory("64M"), Ok(64 << 20));
        for text in ["0%", "101%", "%", "+5%", "5.5%", "-1%", "5 %"] {
            assert!(parse_memory(text).unwrap_err().contains("1% to 100%"), "{text}");
        }
    }

    proptest! {
        /// The twin counts in 128 bits, where nothing overflows.
        #[test]
        fn any_number_is_exact_or_refused(number: u64, shift in 0..5_u32) {
            let text = format!("{number}{}", ["", "K", "M", "G", "T"][shift as usize]);
            let twin = u128::from(number) << (10 * shift);
            prop_assert_eq!(parse_or_zero(&text).ok(), u64::try_from(twin).ok(), "{}", text);
        }

        #[test]
        fn no_text_confuses_the_parser(text in ".{0,12}") {
            if let Ok(bytes) = parse(&text) {
                prop_assert!(bytes > 0 && text.starts_with(|c: char| c.is_ascii_digit()));
            }
        }
    }

    #[test]
    fn a_column_has_few_digits_and_a_letter() {
        let rows = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (512 << 20, "512M"),
            ((12 << 20) + (1 << 19), "12.5M"),
            ((100 << 20) - 1, "100M"),
            ((1 << 30) - 1, "1024M"),
            (1 << 30, "1.0G"),
            (u64::MAX, "16777216T"),
        ];
        for (bytes, text) in rows {
            assert_eq!(short(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn one_is_not_many() {
        let counts = [0, 1, 2].map(|number| count(number, "page"));
        assert_eq!(counts, ["0 pages", "1 page", "2 pages"]);
    }

    #[test]
    fn people_get_a_few_digits_and_a_unit() {
        let rows = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 30) + (1 << 29), "1.5 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ];
        for (bytes, text) in rows {
            assert_eq!(human(bytes), text);
        }
    }
}
