//! The programs of `docs/c.md` are built and run as a reader would.

use crate::rig::{build, needs, output, run, scratch, source};

/// The code between fences of a language.
fn snippets<'d>(document: &'d str, language: &str) -> Vec<&'d str> {
    let open = format!("```{language}\n");
    let parts = document.split(&open).skip(1);
    parts.map(|part| part.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn every_program_of_the_document_prints_what_it_says() {
    if !needs(&["cc", "pkg-config"]) {
        return;
    }
    let Ok(document) = std::fs::read_to_string(source("../docs/c.md")) else {
        return println!("skipped: needs the repository, which a package is not");
    };
    let (programs, prints) = (snippets(&document, "c"), snippets(&document, "text output"));
    assert!(programs.len() >= 3 && programs.len() == prints.len());
    for (number, (program, printed)) in programs.into_iter().zip(prints).enumerate() {
        let path = scratch("document").join(format!("{number}.c"));
        std::fs::write(&path, program).expect("the directory is ours");
        let program = build("cc", &path, &["-std=gnu99"], &format!("document-{number}"));
        let output = output(&mut run(program));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(said, printed, "program {number}");
    }
}
