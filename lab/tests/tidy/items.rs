//! Where functions and test items begin and end, found by matching brackets in scanned code.
//!
//! Invariant: offsets refer to the code view of a scan, where every bracket is a real one.

use crate::scan::is_word;

/// One function with a body; lines count from its `fn` to its closing brace.
#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// Every function with a body, nested ones included.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    word_offsets(code, "fn").filter_map(|at| function(code, at)).collect()
}

fn function(code: &str, at: usize) -> Option<Function> {
    let name = code[at + 2..].trim_start();
    let name_len = name.bytes().take_while(|&b| is_word(b) || b == b'$').count();
    if name_len == 0 {
        return None; // a function pointer type
    }
    let end = item_end(code, at)?;
    if code.as_bytes()[end - 1] != b'}' {
        return None; // a declaration
    }
    let lines = 1 + newlines(&code[at..end]);
    Some(Function { name: name[..name_len].to_string(), line: line_of(code, at), lines })
}

/// The end of the item that starts at `at`: past its closing brace, or past its semicolon.
pub(crate) fn item_end(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return Some(offset + 1),
            b'{' if depth == 0 => return closing(code, offset),
            _ => {}
        }
    }
    None
}

/// The offset past the bracket that closes the one at `open`.
pub(crate) fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(offset + 1);
        }
    }
    None
}

/// Offsets of `word` where it is not part of a longer word.
pub(crate) fn word_offsets<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at > 0 && is_word(bytes[at - 1]);
        let after = bytes.get(at + word.len()).is_some_and(|&b| is_word(b));
        !before && !after
    })
}

/// One-based line number of an offset.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + newlines(&text[..at])
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|&b| b == b'\n').count()
}

const TEST_ATTRIBUTES: [&str; 4] = ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(any(test", "#[test]"];

/// The byte ranges of items that exist only in test builds.
pub(crate) fn test_items(code: &str) -> Vec<std::ops::Range<usize>> {
    let starts = TEST_ATTRIBUTES.iter().flat_map(|attribute| code.match_indices(attribute));
    starts.filter_map(|(at, _)| Some(at..item_end(code, after_attributes(code, at))?)).collect()
}

/// Modules in files of their own that exist only in test builds.
pub(crate) fn test_modules(code: &str) -> Vec<&str> {
    let declarations = test_items(code).into_iter().map(|range| &code[range]);
    declarations
        .filter_map(|item| item.strip_suffix(';')?.rsplit_once("mod "))
        .map(|m| m.1)
        .collect()
}

fn after_attributes(code: &str, at: usize) -> usize {
    let rest = code[at..].trim_start();
    let start = code.len() - rest.len();
    match rest.starts_with("#[") {
        true => closing(code, start + 1).map_or(start, |end| after_attributes(code, end)),
        false => start,
    }
}

#[test]
fn functions_are_measured_from_fn_to_brace() {
    let code =
        "const fn a() -> [u8; 4] {\n  { 1 }\n}\ntrait T { fn b(&self); }\ntype F = fn(u8);\n";
    let found = functions(code);
    assert_eq!(found, [Function { name: "a".into(), line: 1, lines: 3 }]);
}

#[test]
fn nested_functions_are_found() {
    let names: Vec<_> = functions("fn a() {\nfn b() {}\n}").into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn test_items_end_with_their_body() {
    let code = "fn a() {}\n#[cfg(test)]\n#[path = x]\nmod tests { fn b() {} }\nfn c() {}";
    let ranges = test_items(code);
    assert_eq!(ranges.len(), 1);
    assert!(code[ranges[0].clone()].ends_with("fn b() {} }"));
}

#[test]
fn test_modules_are_named() {
    assert_eq!(test_modules("#[cfg(test)]\nmod naive;\nmod real;"), ["naive"]);
}
