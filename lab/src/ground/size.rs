//! Sizes as people write them: `64M`, `1G`, binary suffixes.

const KIB_SHIFT: u32 = 10;
const _: () = assert!(1 << KIB_SHIFT == 1024, "suffixes are binary, as the kernel's are");

/// Parses a byte count with an optional K, M, G or T.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let suffix = upper.chars().last().and_then(|c| "KMGT".find(c));
    let digits = if suffix.is_some() { &upper[..upper.len() - 1] } else { &upper[..] };
    let number: u64 =
        digits.parse().map_err(|_| "a number with K, M, G or T is wanted, as in 64M".to_owned())?;
    let shift = suffix.map_or(0, |i| (i as u32 + 1) * KIB_SHIFT);
    number.checked_mul(1 << shift).ok_or_else(|| "more than 2^64 bytes".to_owned())
}

/// Bytes as MiB, for tables and messages.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << (2 * KIB_SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_binary() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("4k", 4096), ("3M", 3 << 20)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse("2G"), Ok(2 << 30));
        assert_eq!(parse("1T"), Ok(1 << 40));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "M", "-1", "1X", "1.5G", "18446744073709551615K"] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
