//! Splits Rust source into code, comments and literals, byte by byte.
//!
//! ```text
//!   let s = "a // b"; // c      source
//!   let s =         ;           code       literals and comments blanked
//!                     // c      comments   everything else blanked
//! ```
//!
//! Invariant: all three texts have the same length and the same line breaks, so an offset or a line
//! number in one is valid in the others.

/// The two blanked views of one source text.
pub(crate) struct Scan {
    pub(crate) code: String,
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Comment,
    Literal,
}

/// Scans a whole file; source that does not close a comment or literal ends in it.
pub(crate) fn scan(text: &str) -> Scan {
    let bytes = text.as_bytes();
    let mut code = blank(bytes);
    let mut comments = code.clone();
    let mut at = 0;
    while at < bytes.len() {
        match token(bytes, at) {
            Some((kind, len)) => {
                if kind == Kind::Comment {
                    keep(&mut comments, bytes, at..at + len);
                }
                at += len;
            }
            None => {
                keep(&mut code, bytes, at..at + 1);
                at += 1;
            }
        }
    }
    Scan { code: ascii(code), comments: ascii(comments) }
}

fn blank(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|&b| if b == b'\n' { b } else { b' ' }).collect()
}

fn keep(view: &mut [u8], bytes: &[u8], range: std::ops::Range<usize>) {
    for at in range {
        if bytes[at].is_ascii() {
            view[at] = bytes[at];
        }
    }
}

fn ascii(view: Vec<u8>) -> String {
    String::from_utf8(view).expect("only ASCII bytes are kept")
}

/// The comment or literal that begins at `at`, and its length.
fn token(bytes: &[u8], at: usize) -> Option<(Kind, usize)> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some((Kind::Comment, line_len(rest)));
    }
    if rest.starts_with(b"/*") {
        return Some((Kind::Comment, block_comment_len(rest)));
    }
    let inside_word = at > 0 && is_word(bytes[at - 1]);
    let literal = match rest[0] {
        b'"' => Some(string_len(rest)),
        b'\'' => char_len(rest),
        b'r' | b'b' | b'c' if !inside_word => raw_string_len(rest),
        _ => None,
    };
    literal.map(|len| (Kind::Literal, len))
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_len(rest: &[u8]) -> usize {
    rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())
}

fn block_comment_len(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_len(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime or a loop label.
fn char_len(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|&b| b == b'\'')?;
        return Some(close + 4);
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)]);
    let width = match text {
        Ok(text) => text.chars().next()?.len_utf8(),
        Err(cut) if cut.valid_up_to() > 0 => leading_width(rest[1]),
        Err(_) => return None,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

fn leading_width(first: u8) -> usize {
    (first.leading_ones() as usize).max(1)
}

fn raw_string_len(rest: &[u8]) -> Option<usize> {
    let prefix = if rest[0] == b'r' { 1 } else { 2 };
    if rest.get(prefix - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|w| w == close).unwrap_or(body.len());
    Some((open + 1 + end + close.len()).min(rest.len()))
}

#[test]
fn comments_and_literals_leave_the_code() {
    let samples = [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        (r#"f("// no", x)"#, r#"f(       , x)"#),
        (r#"f("\"", x)"#, r#"f(    , x)"#),
        ("f('\"', '\\'', x)", "f(   ,     , x)"),
        ("&'a str", "&'a str"),
        ("r#\"a\"b\"# + c", "         + c"),
        ("br\"a\\\" + c", "       + c"),
        ("r#type", "r#type"),
    ];
    for (text, code) in samples {
        assert_eq!(scan(text).code, code, "code of {text:?}");
    }
}

#[test]
fn only_comments_are_comments() {
    let text = "a(\"// no\"); // yes";
    assert_eq!(scan(text).comments.trim_start(), "// yes");
}

#[test]
fn wide_characters_keep_offsets() {
    let text = "'\u{e9}' + \"\u{20ac}\" + x // \u{e9}";
    let scan = scan(text);
    assert_eq!(scan.code.len(), text.len());
    assert_eq!(scan.code.find('x'), text.find('x'));
}
