//! A running `ramfold serve --fuse`, which is unmounted at the end of a test.
//!
//! Invariant: a Tree that `with` returns is mounted on its own directory, and its control socket
//! lies beside it. When it is dropped, the server is killed and the mount is removed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{
    BINARY, Process, Scratch, is_by_io_uring, needs, needs_device, needs_root, ramfold, succeed,
    tool,
};

pub(crate) struct Tree {
    pub(crate) process: Process,
    pub(crate) scratch: Scratch,
    directory: PathBuf,
}

/// Can a tree be mounted here?
pub(crate) fn needs_tree(tools: &[&str]) -> bool {
    needs(tools) && needs_root() && needs_device("/dev/fuse")
}

impl Tree {
    /// One device, without a size.
    pub(crate) fn new() -> Tree {
        Tree::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Tree {
        let scratch = Scratch::new();
        let directory = scratch.path("tree");
        let process = Tree::serve(&scratch, &directory, arguments);
        Tree { process, scratch, directory }
    }

    /// Starts the server once more, at the same place.
    pub(crate) fn serve_again(&mut self, arguments: &[&str]) {
        self.process = Tree::serve(&self.scratch, &self.directory, arguments);
    }

    fn serve(scratch: &Scratch, directory: &Path, arguments: &[&str]) -> Process {
        let process =
            Process::start(&mut Tree::command(scratch, directory, arguments), "mounted at");
        if is_by_io_uring() {
            let mut stat = ramfold(&["stat", "zram0"]);
            let said = succeed(stat.env("XDG_RUNTIME_DIR", scratch.path("run")));
            assert!(said.contains("requests by io_uring"), "{said}");
        }
        process
    }

    /// What starts a server there. Requests come the test's way, see `way`.
    pub(crate) fn command(scratch: &Scratch, directory: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.env("XDG_RUNTIME_DIR", scratch.path("run"));
        command.args(["serve", "--fuse"]).arg(directory).args(arguments);
        let is_chosen = arguments.contains(&"--fuse-io-uring") || is_by_io_uring();
        if !is_chosen {
            command.args(["--fuse-io-uring", "off"]);
        }
        command
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.path("zram0/disk")
    }

    /// The text of a file.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        self.try_read(name).unwrap_or_else(|error| panic!("reading {name}: {error}"))
    }

    pub(crate) fn try_read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path(name))
    }

    /// Writes a command to a file, as `echo` does.
    #[track_caller]
    pub(crate) fn write(&self, name: &str, text: &str) {
        self.try_write(name, text).unwrap_or_else(|error| panic!("{text} to {name}: {error}"));
    }

    pub(crate) fn try_write(&self, name: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(name))?;
        file.write_all(format!("{text}\n").as_bytes())
    }

    /// A column of `mm_stat`, the first being 1.
    pub(crate) fn mm_stat(&self, device: &str, column: usize) -> u64 {
        let text = self.read(&format!("{device}/mm_stat"));
        let number = text.split_ascii_whitespace().nth(column - 1).and_then(|n| n.parse().ok());
        number.unwrap_or_else(|| panic!("mm_stat has no column {column}: {text}"))
    }

    #[track_caller]
    pub(crate) fn check(&self) {
        let control = self.scratch.path("run/ramfold/zram0.ctl");
        succeed(ramfold(&["check"]).arg(control));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.process.kill();
        // A server that was killed leaves its mount, one that ended does not.
        let _ = tool("umount").args(["--quiet", "--lazy"]).arg(&self.directory).output();
    }
}

/// The error number of what must fail.
#[track_caller]
pub(crate) fn errno<T>(outcome: io::Result<T>) -> i32 {
    match outcome {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error.raw_os_error().unwrap_or_else(|| panic!("no number: {error}")),
    }
}
