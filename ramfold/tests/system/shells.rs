//! Manual pages and completions, under the programs that read them.
//!
//! Claims: every page is formatted without a warning, and every shell completes commands, options
//! and values.

use std::fs;
use std::path::Path;

use crate::rig::{BINARY, Scratch, needs, ramfold, refusal, succeed, tool, within};

/// All pages, in a directory.
fn pages(scratch: &Scratch) -> Vec<std::path::PathBuf> {
    let directory = scratch.path("pages");
    fs::create_dir(&directory).expect("a directory of the test");
    succeed(ramfold(&["manual", "--into"]).arg(&directory));
    let mut pages: Vec<_> = fs::read_dir(&directory)
        .expect("a directory of the test")
        .flatten()
        .map(|it| it.path())
        .collect();
    pages.sort();
    pages
}

#[test]
fn every_page_is_formatted_without_a_warning() {
    let scratch = Scratch::new();
    let pages = pages(&scratch);
    assert!(pages.len() > 14, "{pages:?}");
    for page in &pages {
        if needs(&["groff"]) {
            let output =
                tool("groff").args(["-ww", "-mdoc", "-Tutf8", "-z"]).arg(page).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{}: {said}", page.display());
        }
        if needs(&["mandoc"]) {
            let lint = tool("mandoc").args(["-T", "lint", "-W", "warning"]).arg(page).output();
            let lint = lint.unwrap();
            let said = String::from_utf8_lossy(&lint.stdout);
            assert!(lint.status.success() && said.is_empty(), "{}: {said}", page.display());
        }
    }
}

#[test]
fn a_page_is_what_man_shows() {
    if !needs(&["man"]) {
        return;
    }
    let shown = |page: &str| {
        let text = format!("{BINARY} manual {page} | MANWIDTH=80 man -l - | col -b");
        succeed(tool("sh").args(["-c", &text]))
    };
    let serve = shown("serve");
    for expected in ["ramfold-serve", "--size SIZE", "Seconds of an age", "The default is 30."] {
        assert!(serve.contains(expected), "{expected}: {serve}");
    }
    assert!(shown("ramfold.conf").contains("track-ages [= yes | no]"), "{}", shown("ramfold.conf"));
    assert!(shown("").contains("THE TREE"), "the page of all commands");
    let wrong = refusal(&mut ramfold(&["manual", "frob"]));
    assert!(wrong.contains("no page \"frob\"; there are ramfold, "), "{wrong}");
    let missing = refusal(&mut ramfold(&["manual", "--into", "/nonexistent"]));
    assert!(missing.contains("/nonexistent/ramfold.1: No such file"), "{missing}");
}

/// The script of a shell, in a file.
fn script(scratch: &Scratch, shell: &str) -> String {
    let path = scratch.path(if shell == "zsh" { "_ramfold" } else { "ramfold" });
    fs::write(&path, succeed(&mut ramfold(&["completions", shell])))
        .expect("a directory of the test");
    path.to_str().expect("scratch paths are text").to_owned()
}

/// What is typed, and what it could become.
const ROWS: [(&str, &str); 4] = [
    ("ramfold ser", "serve"),
    ("ramfold serve --conf", "--config"),
    ("ramfold mount /mnt --fs x", "xfs"),
    ("ramfold stat zram0 --page", "--pagetypeinfo"),
];
/// A value without an option, which the script for fish does not complete.
const BARE: (&str, &str) = ("ramfold completions f", "fish");

#[test]
fn bash_completes_commands_options_and_values() {
    if !needs(&["bash"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = script(&scratch, "bash");
    succeed(tool("bash").args(["-n", &script]));
    for (typed, expected) in ROWS.into_iter().chain([BARE]) {
        let text = format!(
            "source {script}; COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMP_LINE={typed:?}; \
             _ramfold ramfold \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let found = succeed(tool("bash").args(["--norc", "-c", &text]));
        assert_eq!(found.lines().collect::<Vec<_>>(), [expected], "{typed}");
    }
}

#[test]
fn fish_completes_commands_options_and_values() {
    if !needs(&["fish"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = script(&scratch, "fish");
    for (typed, expected) in ROWS {
        let text = format!("source {script}; complete --do-complete '{typed}'");
        let found = succeed(tool("fish").args(["--no-config", "-c", &text]).env("HOME", "/tmp"));
        let words: Vec<&str> = found.lines().filter_map(|line| line.split('\t').next()).collect();
        assert!(words.contains(&expected), "{typed}: {words:?}");
    }
}

/// zsh completes on a terminal only, so a terminal of its own is made for it.
#[test]
fn zsh_completes_commands_options_and_values() {
    if !needs(&["zsh"]) {
        return;
    }
    let scratch = Scratch::new();
    let script = script(&scratch, "zsh");
    succeed(tool("zsh").args(["-n", &script]));
    let directory = Path::new(&script).parent().unwrap().to_str().unwrap();
    for (typed, expected) in ROWS.into_iter().chain([BARE]) {
        // It shows what the line has become when Ctrl-T is typed, which comes after the tab.
        let text = format!(
            "zmodload zsh/zpty; zpty z zsh -f -i; \
             zpty -w z 'fpath=({directory} $fpath); autoload -U compinit; compinit -u -D; \
             show() {{ print -r -- \"<$BUFFER>\" }}; zle -N show; bindkey \"^T\" show; \
             PS1=go\"\"go:'; \
             zpty -r z line '*gogo:*'; \
             zpty -w -n z {typed:?}$'\\t\\x14'; zpty -r z line '*<*>*'; print -r -- $line; \
             zpty -d z"
        );
        let found = succeed(within(60, "zsh").args(["-f", "-c", &text]).env("TERM", "dumb"));
        let line = found.rsplit_once('<').map_or("", |(_, line)| line);
        assert!(line.contains(expected), "{typed}: {found}");
    }
}
