//! Paths in commands that are printed for people to paste.
//!
//! Invariant: a shell reads the word as the path that was given, byte for byte. The word has no
//! control characters that a terminal would act on. Locks: none.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as one word of a shell's command. It is quoted only if that is needed. A byte that cannot
/// be shown has the form `$'\033'`, which bash, zsh and ksh know.
pub fn word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    // Without it a command would read the path as an option.
    let here = if bytes.starts_with(b"-") { "./" } else { "" };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && bytes.iter().all(|&byte| is_plain(byte)) => {
            format!("{here}{text}")
        }
        Ok(text) if !text.contains(char::is_control) => {
            format!("'{here}{}'", text.replace('\'', r"'\''"))
        }
        _ => format!("$'{here}{}'", escaped(bytes)),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._/:@%+,=".contains(&byte)
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(text, "\\{byte:03o}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;
    use std::process::Command;

    #[test]
    fn a_path_is_quoted_where_it_must_be() {
        let rows = [
            ("/run/fold", "/run/fold"),
            ("/a b/c", "'/a b/c'"),
            ("/it's", r"'/it'\''s'"),
            ("/a$(b)", "'/a$(b)'"),
            ("~", "'~'"),
            ("-o", "./-o"),
            ("- o", "'./- o'"),
            ("/caf\u{e9}", "'/caf\u{e9}'"),
            ("/a\nb\u{1b}'", r"$'/a\012b\033\''"),
        ];
        for (path, expected) in rows {
            assert_eq!(word(Path::new(path)), expected, "{path:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_reads_the_path_that_was_meant(bytes in prop::collection::vec(1_u8.., 1..40)) {
            let path = Path::new(OsStr::from_bytes(&bytes));
            let mut bash = Command::new("bash");
            bash.arg("-c").arg(format!("printf %s {}", word(path)));
            let said = bash.output().unwrap().stdout;
            let told = said.strip_prefix(b"./").filter(|_| bytes[0] == b'-').unwrap_or(&said);
            prop_assert_eq!(told, &bytes[..]);
            prop_assert!(!word(path).contains(char::is_control));
        }
    }
}
