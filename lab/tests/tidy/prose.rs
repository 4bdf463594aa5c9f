//! Documents and help texts are read once: short sentences, plain constructions, short lines.
//!
//! ```text
//!   document  --passages-->  passage  --cut-->  sentences      lengths in words
//!                               '-------------> constructions  words that have to be read twice
//! ```
//!
//! A sentence ends at a word whose last character is `.`, `?` or `!`, closing quotes and brackets
//! aside, or with its passage. So file names, versions and numbers with a dot inside end none, and
//! neither do the abbreviations below and an ellipsis. Colons and semicolons do not end one either.
//! A list item is a passage, so it ends what stands before it. A word is what stands between
//! blanks and has a letter or a digit; a code span is one word.
//!
//! Invariant: every construction that is refused stands in CONTRIBUTING.md with what to write.

use crate::items::line_of;
use crate::passages::{self, Passage};
use crate::tree::{Document, Finding, Source};

const MEDIAN_MAX: usize = 20;
/// At most one sentence in `LONG_SHARE` may have more words than this.
const LONG: usize = 30;
const LONG_SHARE: usize = 20;
const WORDS_MAX: usize = 40;
const COLUMNS_MAX: usize = 100;

const ABBREVIATIONS: [&str; 4] = ["e.g.", "i.e.", "cf.", "vs."];

/// What has to be read twice, in small letters and with blanks as they stand in a sentence.
/// CONTRIBUTING.md has them with what to write instead.
const CONSTRUCTIONS: [&str; 32] = [
    "but for",
    "save for",
    "for want of",
    "lest",
    "whoever",
    "whatever of",
    "somebody",
    "those who",
    "by who",
    "of who",
    "for who",
    "to who",
    "from who",
    "since who",
    "then who",
    "thread who",
    "process who",
    "client who",
    "program who",
    "caller who",
    "reader who",
    "writer who",
    ", as it",
    ", as they",
    ", as what",
    ", as there",
    ", as this",
    ", as no",
    ", as nobody",
    "be had",
    "wrong if",
    "the price:",
];

/// A sentence that begins so hides its subject in a clause. Questions and labels, which end without
/// a full stop, may begin so.
const OPENINGS: [(&str, &str); 2] = [("what", "What ... ."), ("who", "Who ... .")];

/// Some words in a row, and how many of them count.
struct Sentence<'a> {
    line: usize,
    text: &'a str,
    words: usize,
}

/// The lengths of a text's sentences.
pub(crate) struct Lengths(Vec<usize>);

impl Lengths {
    pub(crate) fn of(passages: &[Passage]) -> Lengths {
        let counted = passages.iter().filter(|passage| passage.counted);
        let mut lengths: Vec<usize> = counted.flat_map(sentences).map(|s| s.words).collect();
        lengths.sort_unstable();
        Lengths(lengths)
    }

    pub(crate) fn median(&self) -> usize {
        self.0.get(self.0.len() / 2).copied().unwrap_or(0)
    }

    fn longer_than(&self, words: usize) -> usize {
        self.0.iter().filter(|&&length| length > words).count()
    }
}

impl std::fmt::Display for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sentences, longest) = (self.0.len(), self.0.last().copied().unwrap_or(0));
        let (median, long) = (self.median(), self.longer_than(LONG));
        write!(f, "{sentences} sentences, median {median}, {long} over {LONG}, longest {longest}")
    }
}

/// What is wrong with the prose of a document.
pub(crate) fn findings(document: &Document) -> Vec<Finding> {
    let passages = passages::passages(document);
    let mut findings = hard_to_read(document, &passages);
    findings.extend(wide_lines(document));
    findings
}

/// What is wrong with the help texts of a source.
pub(crate) fn help(source: &Source) -> Vec<Finding> {
    let document = Document { path: source.path.clone(), text: String::new() };
    hard_to_read(&document, &passages::help(source))
}

/// What has to be read twice in the doc comments of a source. A summary of an item may begin with
/// "What": "What a pool is made of."
pub(crate) fn comments(source: &Source) -> Vec<Finding> {
    let document = passages::doc_comments(source);
    let mut findings = Vec::new();
    let fences = document.text.lines().filter(|line| line.starts_with("```")).count();
    if fences % 2 == 1 {
        findings.push(document.finding(1, "a fence of a doc comment that is not closed"));
    }
    for passage in passages::passages(&document) {
        for sentence in sentences(&passage) {
            if passage.counted && sentence.words > WORDS_MAX {
                let what = format!("{} words: {}", sentence.words, opening(sentence.text));
                findings.push(document.finding(sentence.line, what));
            }
            let twice = phrases(&small(sentence.text)).into_iter();
            findings.extend(twice.map(|found| {
                let what = format!("\"{found}\": see CONTRIBUTING.md for what to write");
                document.finding(sentence.line, what)
            }));
        }
    }
    findings
}

fn hard_to_read(document: &Document, passages: &[Passage]) -> Vec<Finding> {
    let lengths = Lengths::of(passages);
    let too_many = lengths.longer_than(LONG) * LONG_SHARE > lengths.0.len();
    let limit = if too_many { LONG } else { WORDS_MAX };
    let mut findings = Vec::new();
    if lengths.median() > MEDIAN_MAX {
        findings.push(document.finding(1, format!("{lengths}; the median is over {MEDIAN_MAX}")));
    }
    for passage in passages {
        for sentence in sentences(passage) {
            if passage.counted && sentence.words > limit {
                let what = format!("{} words: {}", sentence.words, opening(sentence.text));
                findings.push(document.finding(sentence.line, what));
            }
            let twice = constructions(sentence.text).into_iter();
            findings.extend(twice.map(|found| {
                let what = format!("\"{found}\": see CONTRIBUTING.md for what to write");
                document.finding(sentence.line, what)
            }));
        }
    }
    findings
}

/// Constructions for which CONTRIBUTING.md has no other words.
pub(crate) fn unexplained(contributing: &Document) -> Vec<Finding> {
    let all = CONSTRUCTIONS.into_iter().chain(OPENINGS.map(|opening| opening.1));
    let missing = all.filter(|phrase| !contributing.text.contains(&format!("`{phrase}`")));
    missing.map(|phrase| contributing.finding(1, format!("does not list `{phrase}`"))).collect()
}

fn opening(sentence: &str) -> String {
    let words = sentence.split_whitespace().take(8);
    words.collect::<Vec<_>>().join(" ") + " ..."
}

/// The constructions of a sentence that have to be read twice.
fn constructions(sentence: &str) -> Vec<&'static str> {
    let text = small(sentence);
    let mut found = phrases(&text);
    let first = text.split(' ').next().map(|word| word.trim_start_matches(['*', '(', '"', '|']));
    let opening = OPENINGS.into_iter().find(|opening| first == Some(opening.0));
    found.extend(opening.filter(|_| text.ends_with('.')).map(|opening| opening.1));
    found
}

/// Small letters, with one blank between words.
fn small(sentence: &str) -> String {
    let words: Vec<String> = sentence.split_whitespace().map(str::to_lowercase).collect();
    words.join(" ")
}

fn phrases(text: &str) -> Vec<&'static str> {
    CONSTRUCTIONS.into_iter().filter(|phrase| stands_in(text, phrase)).collect()
}

/// Does a phrase stand in a text as whole words?
fn stands_in(text: &str, phrase: &str) -> bool {
    let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        let joined = phrase.starts_with(char::is_alphanumeric) && word(before.chars().next_back());
        let goes_on = phrase.ends_with(char::is_alphanumeric) && word(after.chars().next());
        !joined && !goes_on
    })
}

fn sentences(passage: &Passage) -> impl Iterator<Item = Sentence<'_>> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let text = passage.text.get(rest..).filter(|text| !text.trim().is_empty())?;
        let start = rest + (text.len() - text.trim_start().len());
        rest += sentence_len(text);
        let text = &passage.text[start..rest];
        let line = passage.line + line_of(&passage.text, start) - 1;
        let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
        let words = text.split_whitespace().filter(is_word).count();
        Some(Sentence { line, text, words })
    })
}

/// The bytes up to the end of the first sentence.
fn sentence_len(text: &str) -> usize {
    let mut at = 0;
    while at < text.len() {
        let word_at = at + (text[at..].len() - text[at..].trim_start().len());
        let word = text[word_at..].split_whitespace().next().unwrap_or_default();
        at = word_at + word.len();
        if ends_sentence(word) {
            return at;
        }
    }
    text.len()
}

fn ends_sentence(word: &str) -> bool {
    let bare = word.trim_end_matches([')', ']', '"', '\'', '*', '_']);
    let open = bare.trim_start_matches(['(', '[', '"']);
    bare.ends_with(['.', '?', '!']) && !bare.ends_with("..") && !ABBREVIATIONS.contains(&open)
}

/// Lines that are too long to read beside something else; those that a link makes so are not.
fn wide_lines(document: &Document) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (number, line) in document.text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        let table = line.trim_start().starts_with('|');
        let columns = without_links(line).chars().count();
        if columns > COLUMNS_MAX && !fenced && !table {
            let what = format!("{columns} columns; the limit is {COLUMNS_MAX}");
            findings.push(document.finding(number + 1, what));
        }
    }
    findings
}

fn without_links(line: &str) -> String {
    let plain = passages::without_targets(line);
    plain.split(' ').filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
fn found(text: &str) -> Vec<String> {
    let document = Document { path: "a.md".into(), text: text.into() };
    findings(&document).iter().map(Finding::to_string).collect()
}

#[cfg(test)]
fn lengths(text: &str) -> Vec<usize> {
    let document = Document { path: "a.md".into(), text: text.into() };
    let passages = passages::passages(&document);
    passages.iter().flat_map(sentences).map(|sentence| sentence.words).collect()
}

#[test]
fn sentences_end_where_a_reader_stops() {
    assert_eq!(lengths("One two. Three (four five.) Is it six?\nyes\n"), [2, 3, 3, 1]);
    assert_eq!(lengths("See a.rs, e.g. b.rs, and 2.5 of 3. - So?"), [8, 1]);
    assert_eq!(lengths("zram stores it. zswap does ... too: here; there."), [3, 5]);
    assert_eq!(lengths("- one\n- two three\n\n**Four.** Five **six.** Seven"), [1, 2, 1, 2, 1]);
    assert_eq!(lengths("`a b. c` is one [of two](x.md). A."), [5, 1]);
}

#[test]
fn a_long_sentence_is_refused() {
    let sentence = |words: usize| "w ".repeat(words - 1) + "w.\n\n";
    let count = |text: &str| found(text).len();
    let short = sentence(10).repeat(39);
    assert_eq!(count(&(short.clone() + &sentence(WORDS_MAX))), 0, "one in forty may be long");
    assert_eq!(count(&(short + &sentence(WORDS_MAX + 1))), 1, "none this long");
    assert_eq!(count(&(sentence(10).repeat(18) + &sentence(LONG + 1))), 1, "one in nineteen");
    assert_eq!(count(&(sentence(10).repeat(19) + &sentence(LONG + 1))), 0, "one in twenty");
    let median = sentence(10).repeat(9) + &sentence(MEDIAN_MAX + 1).repeat(10);
    assert_eq!(count(&median), 1, "the median");
    assert_eq!(count(&(sentence(10).repeat(11) + &sentence(MEDIAN_MAX + 1).repeat(10))), 0);
}

#[test]
fn a_construction_that_is_read_twice_is_refused() {
    for phrase in CONSTRUCTIONS {
        assert_eq!(found(&format!("a{}{phrase} b.", gap(phrase))).len(), 1, "{phrase}");
    }
    for text in ["What is free is short.", "Who waits\ndoes so.", "| b | a but\tfor c |"] {
        assert_eq!(found(text).len(), 1, "{text}");
    }
    for text in
        ["What is free?", "A bestlest butter forest.", "He, as item `but for`.", "What to keep"]
    {
        assert_eq!(found(text), [""; 0], "{text}");
    }
}

#[cfg(test)]
fn gap(phrase: &str) -> &str {
    if phrase.starts_with(',') { "" } else { " " }
}

#[test]
fn a_construction_without_other_words_is_refused() {
    let count =
        |text: String| unexplained(&Document { path: "CONTRIBUTING.md".into(), text }).len();
    let all = CONSTRUCTIONS.iter().chain(OPENINGS.iter().map(|opening| &opening.1));
    let rows: Vec<String> = all.map(|phrase| format!("| `{phrase}` | b |\n")).collect();
    assert_eq!((count(rows.concat()), count(rows[1..].concat())), (0, 1));
}

#[test]
fn help_texts_are_held_to_the_same() {
    let source = |text: &str| {
        let text = format!("#[derive(Args)]\nstruct A {{\n    /// {text}\n    a: u8,\n}}\n");
        help(&Source::new("a/src/args.rs", &text)).len()
    };
    let long = "w ".repeat(WORDS_MAX + 1);
    assert_eq!((source("All but for one"), source(&format!("A. B. {long}"))), (1, 1));
    assert_eq!((source("All except one"), source("What to keep")), (0, 0));
}

#[test]
fn doc_comments_are_held_to_nearly_the_same() {
    let count = |text: &str| {
        let text = format!("/// {text}\nstruct A;\n// but for {text}\n");
        comments(&Source::new("a/src/b.rs", &text)).len()
    };
    assert_eq!((count("All but for one."), count(&"w ".repeat(WORDS_MAX + 1))), (1, 1));
    assert_eq!((count("All except one."), count("What a pool is made of.")), (0, 0));
    let fenced = |end: &str| {
        comments(&Source::new("a/src/b.rs", &format!("//! ```text\n//! a\n{end}struct A;\n"))).len()
    };
    assert_eq!((fenced("//! ```\n"), fenced("")), (0, 1));
}

#[test]
fn a_wide_line_of_a_document_is_refused() {
    let wide = "w".repeat(COLUMNS_MAX + 1);
    assert_eq!(found(&wide).len(), 1);
    for text in [format!("| {wide} |"), format!("```text\n{wide}\n```\n")] {
        assert_eq!(found(&text), [""; 0], "{text}");
    }
    assert_eq!(found(&format!("see [a]({wide}) and https://{wide}")), [""; 0]);
}
