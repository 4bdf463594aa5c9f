//! Bad input is refused with exit code 1 or 2 and one line.
//!
//! Claims: the line names what was wrong, and where the right answer is short, gives it.

use std::net::TcpListener;

use crate::rig::{BINARY, Scratch, Server, ramfold, refusal, succeed, tool};

/// Runs a refused command; its one line must contain these words.
#[track_caller]
fn refuses(arguments: &[&str], words: &[&str]) {
    let line = refusal(&mut ramfold(arguments));
    for word in words {
        let found = line.to_lowercase().contains(&word.to_lowercase());
        assert!(found, "ramfold {arguments:?}: the line names {word:?}: {line}");
    }
}

#[test]
fn help_shows_the_verbs_that_work() {
    let help = succeed(&mut ramfold(&["--help"]));
    for verb in ["serve", "stat", "set", "estimate", "train", "check"] {
        assert!(help.contains(verb), "{verb} in {help}");
    }
    succeed(&mut ramfold(&["--version"]));
}

#[test]
fn commands_that_cannot_be_meant_are_refused() {
    refuses(&[], &["serve"]);
    refuses(&["frobnicate"], &["frobnicate"]);
    refuses(&["serve"], &["--size"]);
    refuses(&["serve", "--size", "1G", "--frob"], &["--frob"]);
    refuses(&["set"], &["target"]);
    refuses(&["stat", "--pagetypeinfo"], &["target", "stat --help"]);
    refuses(&["stat", "zram0", "--pagetypeinfo", "--classes"], &["--pagetypeinfo", "--classes"]);
    refuses(&["check"], &["target"]);
    refuses(&["estimate"], &["file", "--pid"]);
}

#[test]
fn sizes_that_are_none_are_refused() {
    refuses(&["serve", "--size", "0"], &["size", "0"]);
    refuses(&["serve", "--size", "banana"], &["banana", "K, M, G"]);
    refuses(&["serve", "--size", "-1"], &["size"]);
    refuses(&["serve", "--size", "1Q"], &["1Q"]);
    refuses(&["serve", "--size", "99999999999T"], &["99999999999T"]);
    refuses(&["serve", "--size", "1G", "--memory-limit", "much"], &["much"]);
}

#[test]
fn settings_that_do_not_exist_are_refused() {
    refuses(&["serve", "--size", "1G", "--algorithm", "best"], &["best", "lz4", "zstd"]);
    refuses(&["serve", "--size", "1G", "--algorithm", "zstd:99"], &["99"]);
    refuses(&["serve", "--size", "1G", "--chain-order", "9"], &["9", "4"]);
    refuses(&["serve", "--size", "1G", "--rule", "best"], &["best", "least-waste"]);
    refuses(&["serve", "--size", "1G", "--name", "a/b"], &["a/b"]);
}

#[test]
fn addresses_that_cannot_be_served_are_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refuses(&["serve", "--size", "1M", "--tcp", &address], &[&address, "in use"]);
    refuses(&["serve", "--size", "1M", "--tcp", "nowhere"], &["nowhere"]);
    refuses(&["serve", "--size", "1M", "--tcp", "127.0.0.1:99999"], &["99999"]);
    let missing = "/nonexistent/dir/disk.sock";
    if succeed(tool("id").arg("-u")).trim() != "0" {
        refuses(&["serve", "--size", "1M", "--unix", missing], &[missing]);
    }
    let long = format!("/tmp/{}", "x".repeat(200));
    refuses(&["serve", "--size", "1M", "--unix", &long], &["long"]);
}

#[test]
fn a_path_that_is_taken_is_left_alone() {
    let server = Server::of_size("1M");
    refuses(&["serve", "--size", "1M", "--unix", server.target()], &[server.target(), "in use"]);
    assert_eq!(server.connect().size(), 1 << 20, "the first server goes on");
    let file = server.scratch.path("file");
    std::fs::write(&file, "precious").unwrap();
    let path = file.to_str().unwrap();
    refuses(&["serve", "--size", "1M", "--unix", path], &[path, "socket"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn targets_that_do_not_answer_are_refused() {
    let scratch = Scratch::new();
    let (missing, file) = (scratch.path("missing.sock"), scratch.path("file"));
    std::fs::write(&file, "").unwrap();
    for path in [missing.to_str().unwrap(), file.to_str().unwrap(), "no-such-device"] {
        refuses(&["stat", path], &[path]);
        refuses(&["stat", path, "--pagetypeinfo"], &[path]);
        refuses(&["check", path], &[path]);
        refuses(&["set", path, "mem_limit", "1M"], &[path]);
    }
}

#[test]
fn attributes_that_do_not_exist_are_refused() {
    let server = Server::of_size("1M");
    refuses(&["set", server.target(), "colour", "red"], &["colour", "mem_limit"]);
    refuses(&["set", server.target(), "mem_limit", "much"], &["much"]);
    server.check();
}

#[test]
fn pages_that_cannot_be_read_are_refused() {
    refuses(&["estimate", "/nonexistent/file"], &["/nonexistent/file"]);
    refuses(&["estimate", "/usr"], &["/usr"]);
    refuses(&["estimate", "--pid", "4194305"], &["4194305"]);
    refuses(&["estimate", "--pid", "me"], &["me"]);
    let scratch = Scratch::new();
    let empty = scratch.path("empty");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    refuses(&["estimate", empty], &[empty]);
}

#[test]
fn dictionaries_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    let (pages, output) = (scratch.path("pages"), scratch.path("dict"));
    std::fs::write(&pages, [7; 64 << 10]).unwrap();
    let (pages, output) = (pages.to_str().unwrap(), output.to_str().unwrap());
    refuses(&["train"], &["file", "--pid"]);
    refuses(&["train", pages], &["--output"]);
    refuses(&["train", pages, "-o", output], &["too few pages", "same-filled"]);
    refuses(&["train", "/nonexistent", "-o", output], &["/nonexistent"]);
    refuses(&["train", pages, "-o", output, "--algorithm", "lzo"], &["lzo", "lz4", "zstd"]);
    for size in ["100", "17M"] {
        refuses(&["train", pages, "-o", output, "--size", size], &["--size", "1K", "16M"]);
    }
    assert!(!std::fs::exists(output).unwrap(), "nothing is written where nothing was learnt");
    refuses(&["train", pages, "-o", pages], &["learnt from"]);
    assert_eq!(std::fs::read(pages).unwrap(), [7; 64 << 10], "what is learnt from stays");
    let serve = |arguments: &[&str], words: &[&str]| {
        refuses(&[&["serve", "--size", "1M", "--dictionary"], arguments].concat(), words);
    };
    serve(&["/nonexistent", "--algorithm", "zstd"], &["/nonexistent"]);
    let empty = scratch.path("empty");
    std::fs::write(&empty, []).unwrap();
    serve(&[empty.to_str().unwrap()], &["empty"]);
    let large = scratch.path("large");
    std::fs::File::create(&large).unwrap().set_len(17 << 20).unwrap();
    serve(&[large.to_str().unwrap()], &["16M"]);
    // Who opened a pipe would wait for its other end.
    let pipe = scratch.path("pipe");
    succeed(tool("mkfifo").arg(&pipe));
    serve(&[pipe.to_str().unwrap()], &["not a file"]);
    serve(&["/dev/zero"], &["/dev/zero", "not a file"]);
    serve(&[pages, "--algorithm", "deflate"], &["deflate", "no dictionary"]);
}

#[test]
fn output_that_nobody_reads_is_no_crash() {
    let pipe = format!("{BINARY} --help | true");
    succeed(tool("bash").args(["-o", "pipefail", "-c", &pipe]));
}
