//! `ramfold manual`: a manual page for each command, and one for the file of `--config`.
//!
//! ```text
//!   man/ramfold.1         written by hand: what the commands do     --> ramfold(1)
//!     '- .Ss ramfold serve, its first paragraphs --.
//!   table, with the texts of --help ----------------+-------------> ramfold-serve(1)
//!      '-- keys                                     |
//!   man/ramfold.conf.5    written by hand  ---------+-------------> ramfold.conf(5)
//! ```
//!
//! Invariant: a page has every option of its command, with the text of `--help`. Locks: none.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::config;
use crate::line::args::{Line, Manual};
use crate::line::{Failure, output};

/// The page of all commands.
const WHOLE: &str = include_str!("../../man/ramfold.1");
/// The page of the file, with a line for each list of keys.
const FILE: &str = include_str!("../../man/ramfold.conf.5");
const FILE_NAME: &str = "ramfold.conf";
const PROGRAM: &str = "ramfold";

/// Prints a page, or writes all of them into a directory.
pub(crate) fn run(args: &Manual) -> Result<(), Failure> {
    match (&args.into, &args.page) {
        (Some(directory), _) => write_all(directory),
        (None, Some(name)) => output::print(&page(name)?.text),
        (None, None) => output::print(WHOLE),
    }
}

/// A manual page.
struct Page {
    /// The name of its file: `ramfold-serve.1`.
    file: String,
    text: String,
}

fn page(name: &str) -> Result<Page, Failure> {
    let all = pages();
    let known = all.iter().map(|page| stem(&page.file)).collect::<Vec<_>>().join(", ");
    let wrong = || Failure::Usage(format!("there is no page {name:?}; there are {known}"));
    let is_it = |page: &Page| [name, &format!("{PROGRAM}-{name}")].contains(&stem(&page.file));
    all.into_iter().find(is_it).ok_or_else(wrong)
}

/// The name of a file without its section.
fn stem(file: &str) -> &str {
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}

fn write_all(directory: &Path) -> Result<(), Failure> {
    for page in pages() {
        let path = directory.join(&page.file);
        fs::write(&path, page.text).map_err(|error| Failure::about(path.display(), error))?;
    }
    Ok(())
}

fn pages() -> Vec<Page> {
    let mut line = Line::command();
    // Gives every command the options that all have.
    line.build();
    let whole = Page { file: format!("{PROGRAM}.1"), text: WHOLE.to_owned() };
    let file = Page { file: format!("{FILE_NAME}.5"), text: page_of_file(&line) };
    let commands = line.get_subcommands().filter(|verb| verb.get_name() != "help");
    [whole, file].into_iter().chain(commands.map(page_of_command)).collect()
}

fn page_of_command(verb: &Command) -> Page {
    let name = verb.get_name();
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    let (dashed, title) = (format!("{PROGRAM}-{name}"), name.to_uppercase());
    let mut text = format!("{}\n.Dt RAMFOLD-{title} 1\n.Os Linux\n", date());
    let _ = write!(text, ".Sh NAME\n.Nm {dashed}\n.Nd {}\n", lower_first(&plain(&about)));
    let _ = write!(text, ".Sh SYNOPSIS\n.Nm {PROGRAM}\n.Cm {name}\n");
    for argument in verb.get_arguments().filter(|it| it.get_id() != "help") {
        text += &synopsis(argument);
    }
    let _ = write!(text, ".Sh DESCRIPTION\n{}", paragraphs(name));
    let (options, words): (Vec<_>, Vec<_>) =
        verb.get_arguments().partition(|it| it.get_long().is_some());
    let items = words.into_iter().chain(options).map(item).collect::<String>();
    let _ = write!(text, ".Bl -tag -width Ds\n{items}.El\n");
    let _ = write!(text, ".Sh SEE ALSO\n.Xr {PROGRAM} 1 ,\n.Xr {FILE_NAME} 5\n");
    Page { file: format!("{dashed}.1"), text }
}

/// The line of the date, which is that of the manual.
fn date() -> &'static str {
    WHOLE.lines().next().unwrap_or_default()
}

/// The paragraphs before the options, from the manual. What they refer to is there.
fn paragraphs(verb: &str) -> String {
    let heading = format!(".Ss {PROGRAM} {verb}\n");
    let section = WHOLE.split(&heading).nth(1).unwrap_or_default();
    let end = |line: &&str| !line.starts_with(".Ss") && !line.starts_with(".Bl");
    let is_pointer = |line: &str| line.starts_with(".Sx ");
    let lines = section.lines().take_while(end);
    lines
        .map(|line| match is_pointer(line) {
            true if line.ends_with(" .") => format!(".Xr {PROGRAM} 1 .\n"),
            true if line.ends_with(" ;") => format!(".Xr {PROGRAM} 1 ;\n"),
            true => format!(".Xr {PROGRAM} 1\n"),
            false => format!("{line}\n"),
        })
        .collect()
}

/// An option or a word of the synopsis.
fn synopsis(argument: &Arg) -> String {
    let inner = usage(argument);
    let more = if repeats(argument) { " ..." } else { "" };
    let before = if argument.is_last_set() { ".Li --\n" } else { "" };
    match argument.is_required_set() {
        true => format!("{before}.{inner}{more}\n"),
        false if argument.is_last_set() => format!(".Op Li -- {inner}{more}\n"),
        false => format!(".Op {inner}{more}\n"),
    }
}

/// The option with its value, or the word, as macros.
fn usage(argument: &Arg) -> String {
    let value = format!("Ar {}", value_of(argument));
    let equals = if argument.is_require_equals_set() { " Ns Op = Ns" } else { "" };
    match (argument.get_long(), takes_value(argument)) {
        (None, _) => value,
        (Some(long), true) => format!("Fl -{long}{equals} {value}"),
        (Some(long), false) => format!("Fl -{long}"),
    }
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

/// Whether it may be given several times.
fn repeats(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append)
        || argument.get_num_args().is_some_and(|count| count.max_values() > 1)
}

fn value_of(argument: &Arg) -> String {
    let id = argument.get_id().as_str().to_uppercase();
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    if names.is_empty() { id.replace('_', "-") } else { names.join(" ") }
}

/// An entry of the list: the option, and the text of `--help`.
fn item(argument: &Arg) -> String {
    format!(".It {}\n{}", usage(argument), help(argument))
}

fn help(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let help = plain(&help.map(ToString::to_string).unwrap_or_default());
    // Each sentence begins a line, as manuals have it.
    let mut text = format!("{}.\n", help.replace(". ", ".\n"));
    let hidden = argument.is_hide_possible_values_set() || !takes_value(argument);
    let values = argument.get_possible_values();
    let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
    if !names.is_empty() && !hidden {
        let _ = writeln!(text, "Its values are {}.", names.join(", "));
    }
    let defaults = argument.get_default_values();
    let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && takes_value(argument) {
        let _ = writeln!(text, "The default is {}.", plain(&defaults.join(" ")));
    }
    text
}

/// Text that has no meaning for the program that formats it.
fn plain(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('\n', " ");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// The page of the file. Comments in it say where the lists of keys go.
fn page_of_file(line: &Command) -> String {
    let of = |verb| line.find_subcommand(verb).map_or_else(Vec::new, settings);
    let (serve, mount) = (of("serve"), of("mount"));
    let is_shared = |key: &&Arg| serve.iter().any(|it| it.get_long() == key.get_long());
    let (shared, own): (Vec<&Arg>, Vec<&Arg>) = mount.iter().copied().partition(is_shared);
    let shared: Vec<&str> = shared.iter().filter_map(|key| key.get_long()).collect();
    FILE.replacen(".Dd DATE", date(), 1)
        .replace(".\\\" KEYS OF serve\n", &keys(&serve))
        .replace(".\\\" SHARED KEYS\n", &format!(".Li {} .\n", shared.join(" , ")))
        .replace(".\\\" KEYS OF mount\n", &keys(&own))
}

/// The options of a command that a file can have.
fn settings(verb: &Command) -> Vec<&Arg> {
    let options = verb.get_arguments();
    options.filter(|option| option.get_long().is_some_and(config::is_key)).collect()
}

/// A list of keys.
fn keys(options: &[&Arg]) -> String {
    let mut text = ".Bl -tag -width Ds\n".to_owned();
    for option in options {
        let value = match takes_value(option) {
            true => format!(" Li = Ar {}", value_of(option)),
            false => " Op Li = Ar yes | no".to_owned(),
        };
        let key = option.get_long().unwrap_or_default();
        let _ = write!(text, ".It Li {key}{value}\n{}", help(option));
    }
    text + ".El\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The options that a page lists, without their dashes.
    fn listed<'a>(text: &'a str, item: &str) -> BTreeSet<&'a str> {
        let items = text.lines().filter_map(|line| line.strip_prefix(item));
        items.filter_map(|rest| rest.split(' ').next()).collect()
    }

    #[test]
    fn every_command_has_a_page_with_its_options_and_no_others() {
        let pages = pages();
        for verb in Line::command().get_subcommands() {
            let file = format!("ramfold-{}.1", verb.get_name());
            let page = pages.iter().find(|page| page.file == file);
            let page = page.unwrap_or_else(|| panic!("no {file}"));
            let mut options: BTreeSet<&str> =
                verb.get_arguments().filter_map(Arg::get_long).collect();
            options.insert("help");
            assert_eq!(listed(&page.text, ".It Fl -"), options, "{file}");
            assert!(!paragraphs(verb.get_name()).trim().is_empty(), "{file} says what it does");
        }
        assert_eq!(pages.len(), Line::command().get_subcommands().count() + 2);
    }

    #[test]
    fn the_page_of_the_file_has_every_key_and_no_other() {
        let line = Line::command();
        let options = ["serve", "mount"].map(|verb| line.find_subcommand(verb).unwrap());
        let options = options.iter().flat_map(|verb| verb.get_arguments());
        let keys = options.filter_map(Arg::get_long).filter(|key| config::is_key(key)).collect();
        let page = page_of_file(&line);
        assert_eq!(listed(&page, ".It Li "), keys);
        assert!(!page.contains("\\\" "), "each comment became a list: {page}");
    }

    #[test]
    fn a_page_has_a_name_with_or_without_the_program() {
        for name in ["serve", "ramfold-serve", "ramfold.conf", "ramfold"] {
            assert!(page(name).unwrap().text.starts_with(".Dd "), "{name}");
        }
        let said = page("frob").err().unwrap().to_string();
        assert!(said.contains("no page \"frob\"; there are ramfold, ramfold.conf, "), "{said}");
        assert_eq!(plain(".a\\b"), "\\&.a\\eb");
    }
}
