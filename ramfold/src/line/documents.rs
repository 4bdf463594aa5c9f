//! Tests that the help texts, the manual and the documents have the same names.
//!
//! Invariant: a name that the command line takes is in each text that lists its like. Locks: none.

use std::collections::BTreeSet;

use clap::CommandFactory;
use zram::study::{FreeDesign, LockDesign};

use super::args::Line;

/// The manual writes the option `--size` as `.Fl -size` or `.It Fl -size`.
#[test]
fn the_manual_has_every_option_and_no_other() {
    let mut options = BTreeSet::from(["help", "version"]);
    let (manual, line) = (include_str!("../../man/ramfold.1"), Line::command());
    for verb in line.get_subcommands() {
        let heading = format!(".Ss ramfold {}\n", verb.get_name());
        assert!(manual.contains(&heading), "no {heading}");
        options.extend(verb.get_arguments().filter_map(clap::Arg::get_long));
    }
    let words: Vec<&str> = manual.split_ascii_whitespace().collect();
    let flags = words.windows(2).filter(|pair| pair[0].trim_start_matches('.') == "Fl");
    let told: BTreeSet<&str> = flags.filter_map(|pair| pair[1].strip_prefix('-')).collect();
    assert_eq!(told, options, "in the manual, and on the command line");
}

/// The words of a text that could be names of algorithms.
fn names(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect()
}

#[test]
fn help_manual_and_document_name_every_algorithm() {
    let line = Line::command();
    let manual = include_str!("../../man/ramfold.1");
    let of_option = |part: &'static str| part.split(".It Fl ").next().unwrap_or_default();
    let mut told = manual.split(".It Fl -algorithm Ar ").skip(1).map(of_option);
    for (verb, dictionary) in [("run", false), ("serve", false), ("mount", false), ("train", true)]
    {
        let option = line.find_subcommand(verb).unwrap().get_arguments();
        let option = option.into_iter().find(|option| option.get_id() == "algorithm").unwrap();
        let help = option.get_help().unwrap().to_string();
        let manual = told.next().unwrap();
        for algorithm in codec::Algorithm::ALL {
            let expected = !dictionary || algorithm.takes_dictionary();
            let name = algorithm.name();
            assert_eq!(names(&help).contains(name), expected, "--help of {verb}: {name}");
            assert_eq!(names(manual).contains(name), expected, "manual of {verb}: {name}");
        }
    }
    let document = include_str!("../../../docs/zram.md");
    for algorithm in codec::Algorithm::ALL {
        assert!(document.contains(&format!("\n| `{algorithm}` | ")), "docs/zram.md: {algorithm}");
    }
}

#[test]
fn help_and_manual_name_every_rule_of_size_classes() {
    help_and_manual_name("rule", &zsmalloc::Rule::ALL.map(zsmalloc::Rule::name));
}

#[test]
fn help_and_manual_name_every_design_and_way_to_free() {
    help_and_manual_name("design", &LockDesign::ALL.map(LockDesign::name));
    help_and_manual_name("free", &FreeDesign::ALL.map(FreeDesign::name));
}

/// The help and the manual of an option of `serve` have these names.
#[track_caller]
fn help_and_manual_name(option: &str, expected: &[&str]) {
    let line = Line::command();
    let serve = line.find_subcommand("serve").unwrap();
    let argument = serve.get_arguments().find(|argument| argument.get_id() == option).unwrap();
    let help = argument.get_help().unwrap().to_string();
    let manual = include_str!("../../man/ramfold.1");
    let manual = manual.split(&format!(".It Fl -{option} Ar ")).nth(1).unwrap();
    let manual = manual.split(".It Fl ").next().unwrap();
    for name in expected {
        assert!(names(&help).contains(name), "--help of serve --{option}: {name}");
        assert!(names(manual).contains(name), "manual of serve --{option}: {name}");
    }
}

#[test]
fn the_document_names_every_attribute() {
    let document = include_str!("../../../docs/zram.md");
    for attribute in zram::Attribute::ALL {
        assert!(document.contains(&format!("\n| `{attribute}` | ")), "docs/zram.md: {attribute}");
    }
}
