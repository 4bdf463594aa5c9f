//! `--config FILE`: options of `serve` and `mount` from a file.
//!
//! ```text
//!   # a comment                    FILE                        command line
//!   size = 4G                      --size=4G
//!   track-ages = yes               --track-ages                --size=2G
//!        |                              |                           |
//!        '-- table of the options ------'--> ramfold serve --track-ages --size=2G
//! ```
//!
//! The lines become words of the command line, so a value means the same in both places. An option
//! that is typed replaces all lines of that key.
//!
//! Invariant: a line that is wrong is named with its number. Nothing is done then. Locks: none.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, CommandFactory, Error};

use crate::line::args::Line;
use crate::line::{Failure, usage};

/// The most bytes of a file. A device without an end is none.
const BYTES_MAX: u64 = 1 << 20; // 1 MiB
/// The option that names the file.
const CONFIG: &str = "config";
/// Options that a file cannot have.
const TYPED_ONLY: [&str; 2] = [CONFIG, "help"];

/// Keys that people know from zram-generator, and what to write instead.
const GENERATOR: [(&str, &str); 6] = [
    ("zram-size", "size = SIZE, which is no expression"),
    ("zram-resident-limit", "memory-limit = SIZE"),
    ("compression-algorithm", "algorithm = NAME:LEVEL"),
    ("writeback-device", "backing = PATH"),
    ("fs-type", "fs = NAME, for ramfold mount"),
    ("mount-point", "DIR on the command line of ramfold mount"),
];

/// Whether a file may have the option of this name.
pub(super) fn is_key(long: &str) -> bool {
    !TYPED_ONLY.contains(&long)
}

/// Reads a command line, and the file that it names.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<usage::Wanted, Failure> {
    let words: Vec<OsString> = words.into_iter().collect();
    let Some(path) = named_in(&words) else { return usage::parse(words) };
    let verb = words[1].to_string_lossy().into_owned();
    let lines = Lines::read(&path, &verb)?;
    let outcome = usage::try_parse(lines.before(&words));
    outcome.map_err(|error| Failure::Usage(lines.explain(&error)))
}

/// The file of a command line that has one and asks for no help. What is wrong with the option
/// itself, the table says.
fn named_in(words: &[OsString]) -> Option<PathBuf> {
    let verb = words.get(1)?.to_str()?;
    let line = Line::command();
    option(line.find_subcommand(verb)?, CONFIG)?;
    let (mut found, mut typed) = (None, typed(words).peekable());
    while let Some(word) = typed.next() {
        match word.as_bytes() {
            b"--help" | b"-h" => return None,
            b"--config" if found.is_none() => found = typed.peek().map(PathBuf::from),
            [b'-', b'-', b'c', b'o', b'n', b'f', b'i', b'g', b'=', path @ ..]
                if found.is_none() =>
            {
                found = Some(PathBuf::from(OsStr::from_bytes(path)));
            }
            _ => {}
        }
    }
    found.filter(|path| !path.as_os_str().is_empty())
}

/// The words after the verb, up to those of a command that is to be run.
fn typed(words: &[OsString]) -> impl Iterator<Item = &OsString> {
    words.iter().skip(2).take_while(|word| *word != "--")
}

fn option<'a>(verb: &'a clap::Command, key: &str) -> Option<&'a Arg> {
    verb.get_arguments().find(|argument| argument.get_long() == Some(key))
}

/// The lines of a file that say something.
struct Lines {
    path: PathBuf,
    lines: Vec<Setting>,
}

struct Setting {
    number: usize,
    key: String,
    value: Option<String>,
    /// A switch that is off is no word.
    word: Option<String>,
}

impl Lines {
    fn read(path: &Path, verb: &str) -> Result<Lines, Failure> {
        let about = |why: String| Failure::about(format!("--config {}", path.display()), why);
        let mut bytes = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|error| about(error.to_string()))?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(about(format!(
                "it has more than {BYTES_MAX} bytes, so it is no such file"
            )));
        }
        let lines = parse_lines(&bytes, verb);
        let at = |(number, why)| Failure::Usage(format!("{}:{number}: {why}", path.display()));
        Ok(Lines { path: path.to_owned(), lines: lines.map_err(at)? })
    }

    /// The command line with the words of the file before those that were typed.
    fn before(&self, words: &[OsString]) -> Vec<OsString> {
        let own: BTreeSet<String> =
            typed(words).filter_map(|word| key_of(word.to_str()?)).collect();
        let lines = self.lines.iter().filter(|line| !own.contains(&line.key));
        let of_file = lines.filter_map(|line| Some(OsString::from(line.word.as_ref()?)));
        let (verb, typed) = words.split_at(2);
        verb.iter().cloned().chain(of_file).chain(typed.iter().cloned()).collect()
    }

    /// The sentence about a wrong command line, with the line of the file that is wrong.
    fn explain(&self, error: &Error) -> String {
        let (line, path) = (usage::explain(error), self.path.display());
        let kinds = [ContextKind::InvalidArg, ContextKind::PriorArg];
        let value = context(error, ContextKind::InvalidValue);
        let named = kinds.iter().filter_map(|&kind| key_of(&context(error, kind)?));
        let found = named.flat_map(|key| {
            let of_key = move |line: &&Setting| line.key == key;
            let is_value = |line: &&Setting| value.is_some() && line.value == value;
            let exactly = self.lines.iter().filter(of_key.clone()).find(is_value);
            exactly.or_else(|| self.lines.iter().rev().find(of_key))
        });
        match found.into_iter().next() {
            Some(found) => format!("{path}:{}: {line}", found.number),
            None if error.kind() == ErrorKind::MissingRequiredArgument => format!("{path}: {line}"),
            None => line,
        }
    }
}

/// What clap says of an error, in one string.
fn context(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::Strings(words) => words.first().cloned(),
        other => Some(other.to_string()),
    }
}

/// The key of the option that a word begins with: `size` for `--size=1G` and `--size <SIZE>`.
fn key_of(word: &str) -> Option<String> {
    word.strip_prefix("--")?.split(['=', ' ']).next().map(str::to_owned)
}

type Wrong = (usize, String);

fn parse_lines(bytes: &[u8], verb: &str) -> Result<Vec<Setting>, Wrong> {
    let line = Line::command();
    let table = line.find_subcommand(verb).unwrap_or(&line);
    let mut settings = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let setting = parse_line(line, table).map_err(|why| (number, why))?;
        let of_line = |(key, value, word)| Setting { number, key, value, word };
        settings.extend(setting.map(of_line));
    }
    Ok(settings)
}

/// A key, its value, and the word that they are.
type Parsed = (String, Option<String>, Option<String>);

fn parse_line(line: &[u8], table: &clap::Command) -> Result<Option<Parsed>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "this is not text in UTF-8".to_owned())?;
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    if text.starts_with('[') {
        return Err(format!("{text:?}: a file is about one disk and has no sections"));
    }
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key.trim_end(), Some(value.trim_start())),
        None => (text, None),
    };
    check_key(key)?;
    if let Some(value) = value {
        check_value(key, value)?;
    }
    let word = word_of(key, value, table)?;
    Ok(Some((key.to_owned(), value.map(str::to_owned), word)))
}

fn check_key(key: &str) -> Result<(), String> {
    if let Some((theirs, ours)) = GENERATOR.iter().find(|(theirs, _)| *theirs == key) {
        return Err(format!("{theirs} is a key of zram-generator; here it is {ours}"));
    }
    if !is_key(key) {
        return Err(format!("{key} is for the command line only"));
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if key.is_empty() || key.starts_with('-') || !key.chars().all(plain) {
        return Err(format!(
            "{key:?} is no key; a line is KEY = VALUE, and KEY is an option without its --"
        ));
    }
    Ok(())
}

/// A comment after a value would become a part of it.
fn check_value(key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("{key} has no value after the ="));
    }
    if value.contains(" #") || value.contains("\t#") {
        return Err(format!("{key}: a comment has a line of its own, which begins with #"));
    }
    Ok(())
}

/// The word of a command line that a line is. A key that no option has is left to the table.
fn word_of(
    key: &str,
    value: Option<&str>,
    table: &clap::Command,
) -> Result<Option<String>, String> {
    let (word, known) = (format!("--{key}"), option(table, key));
    let is_switch = known.is_some_and(|known| matches!(known.get_action(), ArgAction::SetTrue));
    match (value, is_switch) {
        (None | Some("yes"), true) => Ok(Some(word)),
        (Some("no"), true) => Ok(None),
        (Some(other), true) => {
            Err(format!("{key} is a switch: {key} = yes or {key} = no, not {other:?}"))
        }
        (Some(value), false) => Ok(Some(format!("{word}={value}"))),
        (None, false) => match known {
            Some(_) => Err(format!("{key} needs a value: {key} = VALUE")),
            None => Ok(Some(word)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::args::{Command, Serve};
    use clap::Parser;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn lines(text: &str) -> Lines {
        let lines = parse_lines(text.as_bytes(), "serve").unwrap_or_else(|why| panic!("{why:?}"));
        Lines { path: "x.conf".into(), lines }
    }

    fn merged(text: &str, typed: &[&str]) -> Serve {
        let typed = [&["ramfold", "serve", "--config", "x.conf"], typed].concat();
        let merged = lines(text).before(&words(&typed));
        match Line::try_parse_from(&merged).unwrap_or_else(|error| panic!("{merged:?}: {error}")) {
            Line { command: Command::Serve(serve) } => *serve,
            other => panic!("serve is not {other:?}"),
        }
    }

    #[test]
    fn every_option_is_a_key_and_means_the_same() {
        let values = [
            ("name", "a"),
            ("size", "1G"),
            ("export", "b=1G"),
            ("default-export", "b"),
            ("memory-limit", "50%"),
            ("algorithm", "zstd:7"),
            ("shuffle", "auto"),
            ("density", "dense"),
            ("tier-age", "7"),
            ("tier-cpu", "20"),
            ("writeback", "auto"),
            ("dictionary", "/d"),
            ("chain-order", "4"),
            ("rule", "fitted"),
            ("design", "pool"),
            ("free", "sync"),
            ("fuse", "/f"),
            ("fuse-io-uring", "off"),
            ("unix", "/u = v"),
            ("tcp", "127.0.0.1:0"),
            ("vhost-user", "/v"),
            ("ublk", "a=7"),
            ("tls-certificates", "/t"),
            ("tls", "on"),
            ("control", "/c.ctl"),
            ("run", "true"),
            ("pidfile", "/p"),
            ("backing", "nbd+unix:///a?socket=/s"),
            ("memory-target", "1M"),
            ("set", "recomp_algorithm=algo=zstd"),
            ("metrics", "127.0.0.1:0"),
        ];
        let mut seen = 0;
        for argument in Line::command().find_subcommand("serve").unwrap().get_arguments() {
            let key = argument.get_long().expect("serve has options only");
            if !is_key(key) {
                continue;
            }
            let switch = matches!(argument.get_action(), ArgAction::SetTrue);
            let value = values.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
            assert!(value.is_some() != switch, "{key} has a row here if it has a value");
            let line = value.map_or(key.to_owned(), |value| format!("{key} = {value}"));
            let expected = value.map_or(format!("--{key}"), |value| format!("--{key}={value}"));
            let words = lines(&line).before(&words(&["ramfold", "serve", "--quiet"]));
            let expected = (key != "quiet").then(|| OsString::from(expected));
            assert_eq!(words.get(2).filter(|word| *word != "--quiet"), expected.as_ref());
            seen += 1;
        }
        assert!(seen > values.len(), "{seen}");
    }

    #[test]
    fn what_is_typed_wins_over_the_file() {
        let text = "# a disk\r\n\n size=1G\nalgorithm = zstd\nexport = a=1M\nexport = b=1M\n\
                    quiet\ntrack-ages = no\nread-only = yes";
        let plain = merged(text, &[]);
        assert_eq!((plain.size, plain.export.len()), (Some(1 << 30), 2));
        assert!(plain.quiet && plain.read_only && !plain.track_ages);
        let typed = merged(text, &["--size", "2G", "--export=c=4K", "--track-ages"]);
        assert_eq!((typed.size, typed.export.len()), (Some(2 << 30), 1), "all lines are replaced");
        assert_eq!(typed.algorithm.map(|it| it.to_string()).as_deref(), Some("zstd"));
        assert!(typed.track_ages, "a switch that is off can be turned on");
    }

    #[test]
    fn a_line_that_is_wrong_says_what_would_be_right() {
        let rows: [(&[u8], &str); 14] = [
            (b"size", "size needs a value: size = VALUE"),
            (b"size =", "size has no value after the ="),
            (b"quiet = maybe", "quiet is a switch: quiet = yes or quiet = no, not \"maybe\""),
            (b"size = 1G # small", "size: a comment has a line of its own"),
            (b"--size = 1G", "\"--size\" is no key; a line is KEY = VALUE"),
            (b"memory_limit = 1G", "\"memory_limit\" is no key"),
            (b"= 1G", "\"\" is no key"),
            (b"[zram0]", "has no sections"),
            (b"zram-size = ram / 2", "zram-generator; here it is size = SIZE"),
            (b"compression-algorithm = zstd", "here it is algorithm = "),
            (b"fs-type = ext4", "here it is fs = NAME, for ramfold mount"),
            (b"mount-point = /mnt", "here it is DIR on the command line"),
            (b"config = other.conf", "config is for the command line only"),
            (b"unix = \xff", "not text in UTF-8"),
        ];
        for (line, expected) in rows {
            let text = [b"# first\n".as_slice(), line, b"\nquiet\n"].concat();
            let Err((number, why)) = parse_lines(&text, "serve") else {
                panic!("accepted: {}", String::from_utf8_lossy(line));
            };
            assert!(number == 2 && why.contains(expected), "{number}: {why}");
        }
    }

    #[test]
    fn what_the_table_refuses_is_told_with_its_line() {
        let typed = ["ramfold", "serve", "--config=x.conf"];
        let rows = [
            ("\nsize = banana", "x.conf:2: --size <SIZE>: \"banana\" is not a size"),
            ("sise = 1G", "x.conf:1: --sise is not expected here; did you mean --size?"),
            ("size = 1M\nsize = 2M", "x.conf:2: --size <SIZE> is given more than once"),
            ("size = 1M\nexport = a=1M\nexport = b\nexport = c=1M", "x.conf:3: --export"),
            ("size = 1M\nquiet\nverbose", "x.conf:2: --quiet and --verbose do not go together"),
            ("quiet", "x.conf: --size <SIZE> is missing; see ramfold serve --help"),
        ];
        for (text, expected) in rows {
            let lines = lines(text);
            let Err(error) = usage::try_parse(lines.before(&words(&typed))) else {
                panic!("accepted: {text}")
            };
            let said = lines.explain(&error);
            assert!(said.starts_with(expected), "{text:?}: {said}");
        }
        let lines = lines("quiet");
        let error = usage::try_parse(lines.before(&words(&["ramfold", "serve", "--size=x"])));
        let said = error.err().map(|error| lines.explain(&error)).unwrap();
        assert!(said.starts_with("--size <SIZE>: \"x\""), "what is typed has no line: {said}");
    }

    #[test]
    fn a_file_is_named_in_one_of_two_forms() {
        let named = |line: &[&str]| named_in(&words(&[&["ramfold"], line].concat()));
        assert_eq!(named(&["serve", "--config", "a"]), Some("a".into()));
        assert_eq!(named(&["mount", "/mnt", "--config=a"]), Some("a".into()));
        for line in [
            &["serve", "--size", "1G"][..],
            &["stat", "--config", "a"],
            &["mount", "/mnt", "--size=1G", "--", "make", "--config", "a"],
            &["serve", "--config", "a", "--help"],
            &["serve", "--config"],
            &["serve", "--config="],
        ] {
            assert_eq!(named(line), None, "{line:?}");
        }
    }
}
