//! The house style, as far as a machine can check it.
//!
//! ```text
//!   tree    reads every source of the workspace into a Source
//!             |        scan: which byte is code, comment or literal
//!             v        items: where functions and test items begin and end
//!   rules   fn(&Source) -> Vec<Finding>, one file per concern
//! ```
//!
//! Invariant: every rule has a unit test beside it with a sample that it must refuse, so no rule
//! can rot into one that passes everything.

mod arrows;
mod attributes;
mod claims;
mod decisions;
mod fence;
mod geometry;
mod guest;
mod heads;
mod items;
mod length;
mod lists;
mod mutations;
mod names;
mod numbers;
mod orderings;
mod partners;
mod passages;
mod paths;
mod prose;
mod ranks;
mod rooms;
mod scan;
mod snippets;
mod spans;
mod tables;
mod threads;
mod tree;
mod words;

use tree::{Finding, Source};

/// Applies one rule to every source and fails with all its findings at once.
fn every_source(rule: fn(&Source) -> Vec<Finding>) {
    let sources = tree::sources(&tree::root());
    report(sources.iter().flat_map(rule).collect());
}

fn report(findings: Vec<Finding>) {
    let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(list.is_empty(), "{} findings:\n{}\n", list.len(), list.join("\n"));
}

#[test]
fn the_whole_workspace_is_looked_at() {
    let root = tree::root();
    let sources = tree::sources(&root);
    for member in tree::members(&root) {
        let prefix = format!("{member}/src/");
        assert!(sources.iter().any(|s| s.path.starts_with(&prefix)), "no source in {prefix}");
    }
    assert!(sources.iter().any(|s| s.path == "lab/tests/tidy/main.rs"), "tests are sources too");
}

#[test]
fn files_and_functions_are_short() {
    every_source(length::files);
    every_source(length::functions);
}

#[test]
fn documents_are_short() {
    report(tree::documents(&tree::root()).iter().flat_map(length::documents).collect());
}

#[test]
fn most_functions_are_very_short() {
    let totals = length::Totals::of(&tree::sources(&tree::root()));
    println!("{totals}");
    report(totals.findings());
}

#[test]
fn crates_depend_only_downwards() {
    report(arrows::findings(&arrows::cargo_metadata(&tree::root())));
}

#[test]
fn tables_of_the_architecture_are_those_of_the_code() {
    let root = tree::root();
    let documents = tree::documents(&root);
    let document = documents.iter().find(|document| document.path == "ARCHITECTURE.md");
    let document = document.expect("it is there");
    report(tables::crates(document));
    let sources = tree::sources(&root);
    report(tables::ranks(document, &sources));
    report(tables::picture(document));
    let ranks = sources.iter().find(|source| source.path == tables::RANKS);
    report(tables::rank_picture(ranks.expect("it is there")));
}

#[test]
fn rooms_use_only_those_below_them() {
    let root = tree::root();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("it is there");
    let architecture = tree::Document { path: "ARCHITECTURE.md".into(), text };
    report(rooms::of_workspace(&architecture, &tree::members(&root), &tree::sources(&root)));
}

#[test]
fn every_file_opens_with_a_contract() {
    every_source(heads::opens_with_doc);
    every_source(heads::long_files_say_more);
    every_source(heads::studies_say_what_they_do_not_show);
    every_source(heads::named_by_what_it_holds);
}

#[test]
fn geometry_is_asserted() {
    every_source(geometry::shifts_and_masks);
    every_source(geometry::asserts_have_reasons);
    every_source(geometry::derived_sizes_are_told);
}

#[test]
fn lists_of_all_are_complete() {
    every_source(lists::complete);
}

#[test]
fn public_types_have_names_of_their_own() {
    report(names::shared(&tree::sources(&tree::root())));
}

#[test]
fn every_ordering_names_its_partner() {
    every_source(orderings::partners);
    every_source(partners::without_guarantee);
    report(partners::that_are_nowhere(&tree::sources(&tree::root())));
}

#[test]
fn every_protocol_is_modelled() {
    report(orderings::unmodelled(&tree::sources(&tree::root())));
}

#[test]
fn unsafe_stays_behind_the_fence() {
    every_source(fence::roots);
    every_source(fence::uses);
}

#[test]
fn threads_start_in_one_place() {
    every_source(threads::starts);
}

#[test]
fn every_lock_has_a_rank() {
    every_source(ranks::unranked);
    report(ranks::idle_exceptions(&tree::sources(&tree::root())));
}

#[test]
fn every_package_has_the_lints() {
    report(tree::manifests(&tree::root()).iter().flat_map(fence::inherits_lints).collect());
}

#[test]
fn exceptions_carry_reasons() {
    every_source(attributes::allows);
    every_source(attributes::expectations);
    every_source(attributes::expect_messages);
}

#[test]
fn lines_are_plain() {
    every_source(words::columns);
    every_source(words::ascii);
    every_source(words::markers);
    every_source(words::history);
}

#[test]
fn documents_tell_no_history() {
    let root = tree::root();
    report(tree::documents(&root).iter().flat_map(words::document_history).collect());
}

#[test]
fn measured_numbers_name_their_record() {
    let root = tree::root();
    let mut documents = tree::documents(&root);
    documents.retain(|document| document.path.ends_with(".md"));
    report(documents.iter().flat_map(|d| numbers::unrecorded(d, &root)).collect());
}

#[test]
fn claims_of_documents_name_tests_that_exist() {
    let root = tree::root();
    let sources = tree::sources(&root);
    let known = claims::functions(&sources);
    report(tree::documents(&root).iter().flat_map(|d| claims::unchecked(d, &known)).collect());
}

#[test]
fn names_in_documents_are_in_the_sources() {
    let root = tree::root();
    let sources = tree::sources(&root);
    report(tree::documents(&root).iter().flat_map(|d| spans::of_nothing(d, &sources)).collect());
}

#[test]
fn examples_of_documents_are_compiled() {
    let root = tree::root();
    let sources = tree::sources(&root);
    let documents = tree::documents(&root);
    let markdown = documents.iter().filter(|document| document.path.ends_with(".md"));
    report(markdown.flat_map(|document| snippets::findings(document, &sources)).collect());
}

#[test]
fn mutations_are_of_the_code_that_there_is() {
    let path = "scripts/mutations";
    let text = std::fs::read_to_string(tree::root().join(path)).expect("it is there");
    let table = tree::Document { path: path.into(), text };
    report(mutations::stale(&table, &tree::sources(&tree::root())));
}

#[test]
fn what_a_newer_kernel_does_otherwise_is_told() {
    let read = |path: &str| {
        let text = std::fs::read_to_string(tree::root().join(path)).expect("it is there");
        tree::Document { path: path.into(), text }
    };
    let (allowed, document) = (read("lab/guest/zram-attributes.allow"), read("docs/zram.md"));
    report(guest::undocumented(&allowed, &document));
}

/// Documents, heads of crates and sources with help texts, each by itself. `--nocapture` shows the
/// lengths of their sentences.
#[test]
fn documents_are_read_once() {
    let root = tree::root();
    let mut documents = tree::documents(&root);
    documents.retain(|document| document.path.ends_with(".md"));
    documents.extend(tree::manuals(&root));
    let sources = tree::sources(&root);
    let heads = sources.iter().filter(|source| source.is_crate_root()).map(passages::head);
    documents.extend(heads);
    let helps = sources.iter().filter(|source| !source.is_test_file()).map(|source| {
        (&source.path, prose::help(source), prose::Lengths::of(&passages::help(source)))
    });
    let texts = documents.iter().map(|document| {
        let lengths = prose::Lengths::of(&passages::passages(document));
        (&document.path, prose::findings(document), lengths)
    });
    let mut refused = Vec::new();
    for (path, findings, lengths) in texts.chain(helps) {
        if lengths.median() > 0 {
            println!("{path}: {lengths}");
        }
        refused.extend(findings);
    }
    report(refused);
}

#[test]
fn doc_comments_are_read_once() {
    let sources = tree::sources(&tree::root());
    let held = sources.iter().filter(|source| !source.is_test_file());
    report(held.flat_map(prose::comments).collect());
}

#[test]
fn refused_constructions_are_explained() {
    let documents = tree::documents(&tree::root());
    let contributing = documents.iter().filter(|document| document.path == "CONTRIBUTING.md");
    let findings: Vec<Vec<Finding>> = contributing.map(prose::unexplained).collect();
    assert_eq!(findings.len(), 1, "there is one CONTRIBUTING.md");
    report(findings.into_iter().flatten().collect());
}

#[test]
fn decisions_have_one_form() {
    report(decisions::findings(&tree::documents(&tree::root())));
}

#[test]
fn links_between_documents_resolve() {
    let root = tree::root();
    report(tree::documents(&root).iter().flat_map(|d| numbers::dead_links(d, &root)).collect());
    report(tree::documents(&root).iter().flat_map(|d| numbers::dead_paths(d, &root)).collect());
}
