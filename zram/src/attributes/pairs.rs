//! Words of the form `key=value`, as several attributes take them.
//!
//! ```text
//!   algo=zstd  priority=1   dict="/a b"      blanks between, quotes around a value with blanks
//!      |   |                                 a key that is not known is ignored
//!     key  value
//! ```
//!
//! Source: the kernel's `next_arg`, and the use that its driver makes of the words.

use super::errno::AttributeError;

/// A word: its key, and the text behind its `=`, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: Option<&'a str>,
}

impl<'a> Pair<'a> {
    /// The value of a key that needs one.
    pub(crate) fn required(&self) -> Result<&'a str, AttributeError> {
        let key = self.key;
        let missing = || AttributeError::invalid(format!("{key:?} has no value; write {key}=.."));
        self.value.ok_or_else(missing)
    }
}

/// The words of a text.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = Pair<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(is_blank);
        if rest.is_empty() {
            return None;
        }
        let (word, after) = rest.split_at(word_len(rest));
        rest = after;
        Some(pair(word))
    })
}

fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace()
}

/// Bytes to the first blank outside of quotes.
fn word_len(text: &str) -> usize {
    let mut quoted = false;
    let end = text.find(|c: char| {
        quoted ^= c == '"';
        !quoted && is_blank(c)
    });
    end.unwrap_or(text.len())
}

fn pair(word: &str) -> Pair<'_> {
    let word = unquoted(word);
    let Some((key, value)) = word.split_once('=') else { return Pair { key: word, value: None } };
    let value = unquoted(value);
    Pair { key, value: (!value.is_empty()).then_some(value) }
}

fn unquoted(text: &str) -> &str {
    let inner = text.strip_prefix('"').map(|inner| inner.strip_suffix('"').unwrap_or(inner));
    inner.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<(&str, Option<&str>)> {
        pairs(text).map(|pair| (pair.key, pair.value)).collect()
    }

    #[test]
    fn words_are_keys_and_values() {
        assert_eq!(words("\n"), []);
        assert_eq!(words("huge\n"), [("huge", None)]);
        assert_eq!(
            words("  algo=zstd\tpriority=1\n"),
            [("algo", Some("zstd")), ("priority", Some("1"))]
        );
        assert_eq!(words("algo="), [("algo", None)]);
        assert_eq!(words("a=b=c"), [("a", Some("b=c"))]);
        assert_eq!(words("dict=\"/a b\" x"), [("dict", Some("/a b")), ("x", None)]);
        assert_eq!(words("\"dict=/a b\""), [("dict", Some("/a b"))]);
    }

    proptest! {
        #[test]
        fn no_text_confuses_the_words(text in "[a \"=\n\u{e9}]{0,16}") {
            prop_assert!(pairs(&text).count() <= text.len());
        }
    }
}
