//! The installed library, and a program that calls every function of it.

use crate::rig::{
    build, describe, flags_of, installed, needs, output, run, scratch, source, succeed,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The numbers of enum ramfold_fault_mode.
const MODES: [&str; 5] = ["0", "1", "2", "3", "4"];
/// The end of a program that the system has no such mode for.
const NO_SUCH_MODE: i32 = 77;

fn everything(words: &[&str], name: &str) -> PathBuf {
    build("cc", &source("tests/programs/everything.c"), words, name)
}

/// Runs the program, unless the system has no such fault mode.
#[track_caller]
fn run_in_mode(command: &mut Command, part: &str, mode: &str) {
    let output = output(command.args([part, mode]));
    match output.status.code() {
        Some(0) => {}
        Some(NO_SUCH_MODE) => println!("skipped: needs fault mode {mode}"),
        _ => panic!("{}", describe(command, &output)),
    }
}

#[test]
fn the_header_is_clean_as_c99_and_as_cpp17() {
    if !needs(&["cc", "c++", "pkg-config"]) {
        return;
    }
    let plain = source("tests/programs/plain.c");
    let languages = [("cc", ["-xc", "-std=c99"]), ("c++", ["-xc++", "-std=c++17"])];
    for (compiler, language) in languages {
        let words = [&language[..], &["-pedantic"]].concat();
        let program = build(compiler, &plain, &words, &format!("plain-{compiler}"));
        succeed(&mut run(program));
    }
}

#[test]
fn the_library_hands_out_the_functions_of_the_header_and_no_more() {
    if !needs(&["cc", "pkg-config", "nm", "readelf"]) {
        return;
    }
    let library = installed().join("lib/libramfold.so");
    let names = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let handed_out: BTreeSet<&str> =
        names.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = std::fs::read_to_string(source("include/ramfold.h")).expect("it is there");
    let is_prototype = |line: &&str| line.contains(" ramfold_") || line.contains("*ramfold_");
    let code = header.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let declared: BTreeSet<&str> = code
        .filter(|line| !line.starts_with("typedef") && !line.starts_with("enum"))
        .filter(is_prototype)
        .filter_map(|line| line.split(['(', ' ', '*']).find(|word| word.starts_with("ramfold_")))
        .collect();
    assert_eq!(handed_out, declared);
    assert!(declared.len() > 30, "{declared:?}");
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libramfold.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn what_is_installed_is_found() {
    if !needs(&["cc", "pkg-config"]) {
        return;
    }
    let place = scratch("staged");
    let script = source("install");
    let words = ["--profile", "dev", "--prefix", "/usr", "--libdir", "/usr/lib64", "--destdir"];
    succeed(Command::new(&script).args(words).arg(&place));
    let version = env!("CARGO_PKG_VERSION");
    let files = [
        "include/ramfold.h".to_owned(),
        "lib64/libramfold.a".to_owned(),
        format!("lib64/libramfold.so.{version}"),
        "lib64/pkgconfig/ramfold.pc".to_owned(),
    ];
    for file in files {
        assert!(place.join("usr").join(&file).is_file(), "{file}");
    }
    let link = |name: &str| std::fs::read_link(place.join("usr/lib64").join(name)).expect("a link");
    assert_eq!(link("libramfold.so"), Path::new("libramfold.so.0"));
    assert_eq!(link("libramfold.so.0"), Path::new(&format!("libramfold.so.{version}")));
    let mut tool = Command::new("pkg-config");
    tool.env("PKG_CONFIG_PATH", place.join("usr/lib64/pkgconfig"));
    let said = succeed(tool.args(["--modversion", "--variable=libdir", "ramfold"]));
    assert!(said.contains(version) || said.contains("/usr/lib64"), "{said}");
    let refused = output(Command::new(&script).arg("--prefix"));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--destdir DIR"));
}

#[test]
fn everything_answers_as_the_header_says() {
    if !needs(&["cc", "pkg-config"]) {
        return;
    }
    let program = everything(&["-std=c99", "-pedantic"], "everything");
    succeed(run(&program).arg("store"));
    succeed(run(&program).arg("little"));
    for mode in MODES {
        run_in_mode(&mut run(&program), "region", mode);
    }
}

#[test]
fn a_forked_child_is_told_and_makes_its_own() {
    if !needs(&["cc", "pkg-config"]) {
        return;
    }
    let program = everything(&["-std=c99"], "everything-forked");
    for mode in MODES {
        run_in_mode(&mut run(&program), "fork", mode);
    }
    // A child has its parent's number then.
    let mut first = run(&program);
    let output = output(first.arg("first"));
    match output.status.code() {
        Some(0) => {}
        Some(NO_SUCH_MODE) => println!("skipped: needs a namespace of processes"),
        _ => panic!("{}", describe(&first, &output)),
    }
}

#[test]
fn the_static_library_does_as_well() {
    if !needs(&["cc", "pkg-config"]) {
        return;
    }
    let program = scratch("programs").join("everything-static");
    let mut command = Command::new("cc");
    command.arg("-o").arg(&program).arg(source("tests/programs/everything.c"));
    command.arg("-I").arg(installed().join("include")).arg(installed().join("lib/libramfold.a"));
    succeed(command.args(["-lpthread", "-ldl", "-lm"]));
    succeed(Command::new(&program).arg("store"));
    run_in_mode(&mut Command::new(&program), "region", "0");
}

#[test]
fn a_static_program_is_linked_as_pkg_config_says() {
    if !needs(&["cc", "pkg-config"]) {
        return;
    }
    let program = scratch("programs").join("everything-whole");
    let mut command = Command::new("cc");
    command.args(["-static", "-o"]).arg(&program).arg(source("tests/programs/everything.c"));
    succeed(command.args(flags_of(&["--static", "--cflags", "--libs"])));
    succeed(Command::new(&program).arg("store"));
}

/// The sanitizer sees each access of the program, and each block that either side leaves behind or
/// uses after it was freed.
#[test]
fn everything_is_clean_under_address_sanitizer() {
    if !needs(&["cc", "pkg-config"]) || !has_sanitizer() {
        return;
    }
    let words = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"];
    let program = everything(&words, "everything-asan");
    succeed(run(&program).arg("store"));
    for mode in MODES {
        run_in_mode(&mut run(&program), "region", mode);
    }
}

fn has_sanitizer() -> bool {
    let empty = scratch("programs").join("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }\n").expect("the directory is ours");
    let program = empty.with_extension("out");
    let mut command = Command::new("cc");
    command.arg("-fsanitize=address,undefined").arg("-o").arg(program).arg(empty);
    let built = output(&mut command);
    if !built.status.success() {
        println!("skipped: needs a C compiler with AddressSanitizer");
    }
    built.status.success()
}

#[test]
fn the_store_is_clean_under_valgrind() {
    if !needs(&["cc", "pkg-config", "valgrind"]) {
        return;
    }
    let program = everything(&["-std=c99", "-O1"], "everything-valgrind");
    let words = ["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];
    let mut command = run("timeout");
    // Valgrind runs one thread at a time. Without fair turns, three threads that use a pool keep
    // the thread that frees it from its turn for minutes.
    command.args(["600", "valgrind", "--quiet", "--fair-sched=yes"]).args(words);
    succeed(command.arg(program).arg("store"));
}
