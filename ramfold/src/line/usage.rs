//! Turns words into a command, or into one line that says what is wrong with them.
//!
//! ```text
//!   --sise 1G                 --sise is not expected here; did you mean --size?
//!   --size banana             --size <SIZE>: "banana" is not a size; give ..
//!      what is wrong ---'                            '--- what would be right
//! ```
//!
//! Invariant: a wrong command line gets one line. Nothing is done before the whole line is read.
//! Locks: none.

use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error, Parser};

use super::args::{Command, Line};
use super::failure::Failure;

/// What the words ask for.
pub(crate) enum Wanted {
    /// Help or the version, which is printed.
    Text(String),
    /// A command, with all its options.
    Command(Box<Command>),
}

/// Reads a command line, or says what is wrong with it.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Wanted, Failure> {
    try_parse(words).map_err(|error| Failure::Usage(explain(&error)))
}

/// The same, with an error that [`explain`] puts into words.
pub(crate) fn try_parse(words: impl IntoIterator<Item = OsString>) -> Result<Wanted, Error> {
    match Line::try_parse_from(words) {
        Ok(line) => Ok(Wanted::Command(Box::new(line.command))),
        Err(error) if !error.use_stderr() => Ok(Wanted::Text(error.render().to_string())),
        Err(error) => Err(error),
    }
}

/// One line that says what is wrong and what would be right.
pub(crate) fn explain(error: &Error) -> String {
    let word = |kind| error.get(kind).map(plain).unwrap_or_default();
    let (argument, value) = (word(ContextKind::InvalidArg), word(ContextKind::InvalidValue));
    match error.kind() {
        ErrorKind::MissingSubcommand => format!("a command is missing; it is {}", verbs()),
        ErrorKind::InvalidSubcommand => {
            let verb = word(ContextKind::InvalidSubcommand);
            format!("there is no command {verb:?}; it is {}", verbs())
        }
        ErrorKind::UnknownArgument => {
            format!("{argument} is not expected here; {}", hint(error))
        }
        ErrorKind::MissingRequiredArgument => format!("{argument} is missing; {}", hint(error)),
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("{argument} needs a value; {}", hint(error))
        }
        ErrorKind::InvalidValue => {
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => known.join(", "),
                _ => return first_line(error),
            };
            format!("{argument}: there is no {value:?}; it is one of {known}")
        }
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(error);
            let why = source.map_or_else(|| value.clone(), |source| reason(&value, source));
            format!("{argument}: {why}")
        }
        ErrorKind::ArgumentConflict => {
            let other = word(ContextKind::PriorArg);
            // The option was given twice, and it is unknown which value was meant.
            if other == argument {
                return format!("{argument} is given more than once; {}", hint(error));
            }
            format!("{argument} and {other} do not go together; {}", hint(error))
        }
        _ => first_line(error),
    }
}

/// Why a value is none. What a number is not has plain words here.
fn reason(value: &str, source: &(dyn std::error::Error + 'static)) -> String {
    match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => format!("{value:?} is too large"),
        Some(_) => format!("{value:?} is not a whole number from 0 on"),
        None => source.to_string(),
    }
}

fn plain(value: &ContextValue) -> String {
    match value {
        ContextValue::Strings(words) => words.join(" "),
        other => other.to_string(),
    }
}

fn verbs() -> String {
    let line = Line::command();
    let names: Vec<&str> = line.get_subcommands().map(clap::Command::get_name).collect();
    match names.split_last() {
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// What was probably meant, or where to read more.
fn hint(error: &Error) -> String {
    if let Some(meant) = error.get(ContextKind::SuggestedArg) {
        return format!("did you mean {}?", plain(meant));
    }
    let usage = error.get(ContextKind::Usage).map(plain).unwrap_or_default();
    let mut words = usage.split_whitespace().skip_while(|&word| word != "ramfold").skip(1);
    let verb = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
    match verb {
        Some(verb) => format!("see ramfold {verb} --help"),
        None => "see ramfold --help".to_owned(),
    }
}

/// The first line of clap's message, without its advice.
fn first_line(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    format!("{}; {}", line.trim_start_matches("error: "), hint(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refusal(words: &[&str]) -> String {
        let words = ["ramfold"].iter().chain(words).map(OsString::from);
        match parse(words) {
            Err(Failure::Usage(line)) => line,
            Err(other) => panic!("not a matter of usage: {other}"),
            Ok(_) => panic!("accepted"),
        }
    }

    #[test]
    fn each_mistake_is_named_on_one_line() {
        let rows: [(&[&str], &str); 19] = [
            (&[], "a command is missing; it is run, serve, mount, umount, stat"),
            (&["frob"], "there is no command \"frob\"; it is run, serve"),
            (&["serve"], "--size <SIZE> is missing; see ramfold serve --help"),
            (&["serve", "--size"], "--size <SIZE> needs a value; see ramfold"),
            (&["serve", "--size", "1G", "--frob"], "--frob is not expected here; see ramfold"),
            (&["serve", "--sise", "1G"], "--sise is not expected here; did you mean --size?"),
            (&["serve", "--size", "-1"], "--size <SIZE>: \"-1\" is not a size"),
            (&["set", "x", "mem_limit"], "<VALUE>... is missing; see ramfold set --help"),
            (&["stat", "--pagetypeinfo"], "<TARGET> is missing; see ramfold stat --help"),
            (&["stat", "x", "--classes", "--pagetypeinfo"], "do not go together"),
            (&["estimate"], "<FILE|--pid <PID>> is missing"),
            (&["mount", "a", "--size=1G", "--fs=zfs"], "no \"zfs\"; it is one of ext4, btrfs, xfs"),
            (&["completions", "foo"], "there is no \"foo\"; it is one of bash, "),
            (&["estimate", "a", "--pid", "1"], "do not go together"),
            (&["serve", "--size", "1M", "--size", "2M"], "--size <SIZE> is given more than once"),
            (&["stat", "x", "--json", "--json"], "--json is given more than once"),
            (&["top", "-n", "abc"], "--count <N>: \"abc\" is not a whole number"),
            (&["top", "-n", "99999999999999999999"], "\"99999999999999999999\" is too large"),
            (&["estimate", "--pid", "1", "--pid", "2"], "--pid <PID> is given more than once"),
        ];
        for (words, expected) in rows {
            let line = refusal(words);
            assert!(line.contains(expected), "{words:?}: {line}");
            assert_eq!(line.lines().count(), 1, "{words:?}: {line}");
        }
    }

    #[test]
    fn values_are_judged_by_those_who_know_them() {
        let rows = [
            (
                "--algorithm=best",
                "unknown algorithm \"best\"; known: lzo-rle lzo lz4 lz4hc zstd deflate pagelz",
            ),
            ("--algorithm=zstd:99", "not 99"),
            ("--chain-order=9", "there is no chain order \"9\"; it is 0 to 4"),
            ("--rule=best", "least-waste, used-percent or fitted"),
            ("--design=rcu", "unknown design \"rcu\": hierarchical, pool or class"),
            ("--free=later", "unknown way to free \"later\": range, sync, entries or handles"),
            ("--name=a/b", "\"a/b\" is not a name"),
            ("--tcp=:10999", "127.0.0.1:10999"),
            ("--set=idle=some", "--set <ATTRIBUTE=VALUE>: idle: \"some\" is not all"),
            ("--set=mem_limit=much", "--set <ATTRIBUTE=VALUE>: mem_limit: \"much\""),
            ("--set=mm_stat=0", "that can be set"),
        ];
        for (word, expected) in rows {
            let line = refusal(&["serve", "--size", "1G", word]);
            assert!(line.contains(expected), "{word}: {line}");
        }
    }

    #[test]
    fn help_and_version_are_text() {
        for words in [&["--help"][..], &["serve", "--help"], &["--version"]] {
            let words = ["ramfold"].iter().chain(words).map(OsString::from);
            let Ok(Wanted::Text(text)) = parse(words) else { panic!("not text") };
            assert!(text.contains("ramfold"), "{text}");
        }
    }
}
