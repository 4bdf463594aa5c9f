//! Bad input is refused with exit code 1 or 2 and one line.
//!
//! Claims: the line names what was wrong. If the right answer is short, the line has it too.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::rig::{BINARY, Process, Scratch, Server, ramfold, refusal, succeed, tool};

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
    refuses(&["serve", "--size", " 5M"], &["\" 5M\"", "K, M, G"]);
    let large = "99999999999999999999999";
    refuses(&["serve", "--size", "1G", "--memory-limit", large], &[large, "less than 2^64"]);
}

#[test]
fn settings_that_do_not_exist_are_refused() {
    refuses(&["serve", "--size", "1G", "--algorithm", "best"], &["best", "lz4", "zstd"]);
    refuses(&["serve", "--size", "1G", "--algorithm", "zstd:99"], &["99"]);
    refuses(&["serve", "--size", "1G", "--chain-order", "9"], &["9", "4"]);
    refuses(&["serve", "--size", "1G", "--rule", "best"], &["best", "least-waste"]);
    refuses(&["serve", "--size", "1G", "--design", "rcu"], &["rcu", "hierarchical, pool or class"]);
    refuses(&["serve", "--size", "1G", "--free", "later"], &["later", "range, sync, entries"]);
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
    refuses(&["serve", "--size", "1M", "--tcp", ":10999"], &["127.0.0.1:10999", "--tcp-anywhere"]);
}

/// The second socket, for control, has a longer path than the one that is typed.
#[test]
fn a_path_is_too_long_for_either_socket_with_its_limit() {
    let scratch = Scratch::new();
    let base = scratch.path("").to_str().unwrap().to_owned();
    let of_len = |len: usize| format!("{base}{}", "x".repeat(len - base.len()));
    for len in [104, 107, 108, 4000] {
        refuses(&["serve", "--size", "1M", "--unix", &of_len(len)], &["103", &len.to_string()]);
    }
    let path = of_len(103);
    let mut serve = Command::new(BINARY);
    serve.env("XDG_RUNTIME_DIR", scratch.path("run"));
    let server =
        Process::start(serve.args(["serve", "--size", "1M", "--unix", &path]), "nbd+unix://");
    succeed(&mut ramfold(&["check", &path]));
    drop(server);
    // DIR/ramfold/zram0.sock: a path of 108 bytes fits the system's structure, without its end.
    let mut serve = ramfold(&["serve", "--size", "1M"]);
    let line = refusal(serve.env("XDG_RUNTIME_DIR", of_len(108 - 19)));
    assert!(line.contains("too long for a socket: 108 bytes, and 107"), "{line}");
}

/// What is wrong on every machine and at any time is a matter of usage; what the system or a server
/// refuses is a failure.
#[test]
fn mistakes_of_a_kind_have_one_exit_code() {
    let server = Server::of_size("1M");
    let at = server.target();
    let usage: [&[&str]; 17] = [
        &["serve", "--size", "1M", "--size", "2M"],
        &["serve", "--size", "1M", "--set", "idle=some"],
        &["serve", "--size", "1M", "--set", "mem_limit=some"],
        &["serve", "--size", "1M", "--set", "comp_algorithm=best"],
        &["serve", "--size", "1M", "--tcp", ":10999"],
        &["serve", "--size", "1M", "--tcp", "0.0.0.0:0"],
        &["serve", "--size", "1M", "--algorithm", "lzo", "--dictionary", "/nonexistent"],
        &["train", "/nonexistent", "-o", "/nonexistent", "--algorithm", "lzo"],
        &["set", at, "colour", "red"],
        &["set", at, "mm_stat", "0"],
        &["set", at, "idle", "some"],
        &["set", at, "mem_limit", "some"],
        &["set", at, "mem_limit", "18446744073709551615"],
        &["set", at, "recompress", "type=some"],
        &["set", at, "zram-control/hot_remove", "some"],
        &["set", "nbd://localhost", "compact", "1"],
        &["stat", "nbd+unix:///zram0"],
    ];
    let failed: [&[&str]; 8] = [
        &["serve", "--size", "1M", "--unix", at],
        &["serve", "--size", "1M", "--set", "backing_dev=/nonexistent"],
        &["train", "/nonexistent", "-o", "/nonexistent"],
        &["set", at, "disksize", "1M"],
        &["set", at, "idle", "60"],
        &["set", at, "zram7/mem_limit", "1M"],
        &["set", at, "zram-control/hot_remove", "7"],
        &["stat", "no-such-server"],
    ];
    for (code, lines) in [(2, &usage[..]), (1, &failed[..])] {
        for arguments in lines {
            let status = ramfold(arguments).stderr(Stdio::null()).status().unwrap();
            assert_eq!(status.code(), Some(code), "ramfold {arguments:?}");
        }
    }
}

/// A name may have any character in it, and a terminal would obey some.
#[test]
fn what_is_refused_is_shown_without_its_control_characters() {
    let name = "/nonexistent\x1b[31m/a\nb\x7f";
    let lines: [&[&str]; 9] = [
        &[name],
        &["serve", "--size", "1M", name],
        &["serve", "--size", "1M", "--unix", name],
        &["serve", "--size", "1M", "--backing", name],
        &["serve", "--size", "1M", "--dictionary", name],
        &["serve", "--size", "1M", "--fuse", name],
        &["stat", name],
        &["estimate", name],
        &["train", name, "-o", name],
    ];
    for arguments in lines {
        let line = refusal(&mut ramfold(arguments));
        assert!(!line.contains(char::is_control) && line.contains("\\u{1b}[31m"), "{line:?}");
    }
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
    let (pipe, socket) = (scratch.path("pipe"), scratch.path("socket"));
    succeed(tool("mkfifo").arg(&pipe));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, words) in [
        (pipe.to_str().unwrap(), "neither a file"),
        (socket.to_str().unwrap(), "neither a file"),
        ("/dev/zero", "neither a file"),
        ("/proc/kmsg", "give a copy"),
        ("/proc/self/maps", "give a copy"),
    ] {
        refuses(&["estimate", path], &[path, words]);
        let output = scratch.path("dict");
        refuses(&["train", path, "-o", output.to_str().unwrap()], &[path, words]);
    }
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
    let left: Vec<_> = std::fs::read_dir(scratch.path("")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "nor anything beside it: {left:?}");
    // Whether it can be written is found out before pages are looked at.
    for nowhere in ["/nonexistent/dict", "/usr", "/proc/dict"] {
        refuses(&["train", "/nonexistent/pages", "-o", nowhere], &[&format!("{nowhere}: ")]);
    }
    refuses(&["train", pages, "-o", pages], &["one of the files to learn from"]);
    assert_eq!(
        std::fs::read(pages).unwrap(),
        [7; 64 << 10],
        "the file that was to be learnt from stays"
    );
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
    // Opening a pipe would wait for its other end.
    let pipe = scratch.path("pipe");
    succeed(tool("mkfifo").arg(&pipe));
    serve(&[pipe.to_str().unwrap()], &["not a file"]);
    serve(&["/dev/zero"], &["/dev/zero", "not a file"]);
    // Reading the kernel's messages takes them away, and waits for the next.
    serve(&["/proc/kmsg"], &["/proc/kmsg", "empty"]);
    refuses(&["serve", "--size", "1M", "--backing", "/proc/kmsg"], &["--backing", "/proc/kmsg"]);
    serve(&[pages, "--algorithm", "deflate"], &["deflate", "no dictionary"]);
}

#[test]
fn output_that_nobody_reads_is_no_crash() {
    let pipe = format!("{BINARY} --help | true");
    succeed(tool("bash").args(["-o", "pipefail", "-c", &pipe]));
}
