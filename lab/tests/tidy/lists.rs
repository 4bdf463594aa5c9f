//! The list of all variants of an enumeration has every one of them.
//!
//! ```text
//!   pub enum Rule { LeastWaste, Fitted }
//!   const ALL: [Rule; 2] = [Rule::LeastWaste, Rule::Fitted];      in the same file
//! ```
//!
//! Invariant: a list is found by its name, `ALL`, and its type by what it lists. One that a macro
//! makes out of the variants cannot leave any out, and is not looked at.

use crate::items;
use crate::scan::is_word;
use crate::tree::{Finding, Source};

pub(crate) fn complete(source: &Source) -> Vec<Finding> {
    let code = &source.code;
    let lists = code.match_indices("const ALL:");
    lists.filter_map(|(at, _)| missing(source, at, list(&code[at..])?)).collect()
}

/// The elements of a list that begins with `const ALL`; none if a macro writes them.
fn list(code: &str) -> Option<Vec<(&str, &str)>> {
    let (_, elements) = code.split_once('=')?;
    let elements = elements.split(';').next()?;
    let paths = elements.trim_matches(|c: char| "&[] \n".contains(c)).split(',');
    let paths = paths.map(str::trim).filter(|path| !path.is_empty());
    paths.map(|path| path.split_once("::")).collect()
}

fn missing(source: &Source, at: usize, list: Vec<(&str, &str)>) -> Option<Finding> {
    let name = match list.first()?.0 {
        "Self" => implemented(&source.code[..at])?,
        name => name,
    };
    let variants = variants(&source.code, name)?;
    let left_out: Vec<&str> =
        variants.into_iter().filter(|variant| !list.iter().any(|e| e.1 == *variant)).collect();
    let what = format!("ALL leaves out {}", left_out.join(", "));
    (!left_out.is_empty()).then(|| source.finding_at(at, what))
}

/// The type of the `impl` that a text ends in.
fn implemented(before: &str) -> Option<&str> {
    let name = before.rsplit_once("impl ")?.1;
    name.split(|c: char| !is_word(c as u8)).next()
}

/// The names of an enumeration's variants; none if it is not in this file.
fn variants<'a>(code: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let head = format!("enum {name} {{");
    let open = code.find(&head)? + head.len() - 1;
    let body = &code[open + 1..items::closing(code, open)? - 1];
    let mut variants = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, byte) in body.bytes().chain([b',']).enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                variants.extend(variant(&body[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    Some(variants)
}

/// The name in `#[attribute] Name(Field)`.
fn variant(text: &str) -> Option<&str> {
    let mut text = text.trim();
    while text.starts_with('#') {
        text = text[items::closing(text, 1)?..].trim_start();
    }
    text.split(|c: char| !is_word(c as u8)).next().filter(|name| !name.is_empty())
}

#[test]
fn a_list_that_leaves_a_variant_out_is_refused() {
    let count = |list: &str| {
        let text = format!("enum A {{ #[b(c)] B, C(u8, D), E = 3 }}\nimpl A {{\n{list}\n}}\n");
        complete(&Source::new("a/src/x.rs", &text)).len()
    };
    assert_eq!(count("const ALL: [A; 3] = [A::B, A::C, A::E];"), 0);
    assert_eq!(count("const ALL: &[Self] = &[Self::B, Self::C, Self::E];"), 0);
    assert_eq!(count("const ALL: [A; 2] = [A::B, A::E];"), 1);
    assert_eq!(count("const ALL: &[Self] = &[Self::B, Self::C];"), 1);
    assert_eq!(count("const SOME: [A; 1] = [A::B];"), 0, "another list");
}
