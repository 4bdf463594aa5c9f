//! What the directory of a run says of it: who started it, and what.
//!
//! ```text
//!   run-PID/about    {"pid": .., "started": .., "namespace": .., "command": [..], "ended": ..}
//! ```
//!
//! A number of a process says little by itself: it is given again, and each namespace of processes
//! has its own. So the file has the time at which the process began, and its namespace.
//!
//! Invariant: a run is taken to be over only by a reader in its own namespace. Locks: none.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::process;

const NAME: &str = "about";

/// A run, as its directory says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    /// The process of `ramfold run`.
    pub(crate) pid: u32,
    pub(super) started: u64,
    pub(super) namespace: String,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// `ramfold run` has ended, and processes of the run have not.
    pub(crate) ended: bool,
}

impl About {
    /// A run that this process starts.
    pub(crate) fn new(words: &[OsString]) -> About {
        let pid = std::process::id();
        About {
            pid,
            started: process::of(pid).map_or(0, |own| own.started),
            namespace: namespace(),
            command: words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            ended: false,
        }
    }

    /// What the file in a directory says; `None` if there is none.
    pub(super) fn read(directory: &Path) -> Option<About> {
        let text = fs::read_to_string(directory.join(NAME)).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let words = value["command"].as_array()?.iter();
        Some(About {
            pid: u32::try_from(value["pid"].as_u64()?).ok()?,
            started: value["started"].as_u64()?,
            namespace: value["namespace"].as_str()?.to_owned(),
            command: words.map(|word| word.as_str().unwrap_or_default().to_owned()).collect(),
            ended: value["ended"].as_bool()?,
        })
    }

    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let value = json!({
            "pid": self.pid,
            "started": self.started,
            "namespace": self.namespace,
            "command": self.command,
            "ended": self.ended,
        });
        fs::write(directory.join(NAME), value.to_string())
    }

    /// The name of the program: that of its file.
    pub(crate) fn name(&self) -> &str {
        let program = self.command.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or(program)
    }

    /// Whether `ramfold run` still looks after the run.
    pub(crate) fn is_looked_after(&self) -> bool {
        let process = process::of(self.pid).filter(|it| !it.is_zombie);
        !self.ended && process.is_some_and(|process| process.started == self.started)
    }

    /// Whether its processes have other numbers here, or none.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.namespace != namespace()
    }
}

/// The namespace in which processes have their numbers.
fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let directory = std::env::temp_dir().join(format!("ramfold-about-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        assert_eq!(About::read(&directory), None);
        let about = About::new(&["/usr/bin/sort".into(), "a \"b\"\n".into()]);
        about.write(&directory).expect("room");
        assert_eq!(About::read(&directory).as_ref(), Some(&about));
        fs::write(directory.join(NAME), "{}").expect("room");
        assert_eq!(About::read(&directory), None, "no text of ours");
        fs::remove_dir_all(&directory).expect("ours");
        assert_eq!(about.name(), "sort");
    }

    #[test]
    fn a_number_that_was_given_again_is_another_process() {
        let about = About::new(&["sort".into()]);
        assert!(about.is_looked_after() && !about.is_elsewhere());
        assert!(!About { started: about.started + 1, ..about.clone() }.is_looked_after());
        assert!(!About { ended: true, ..about.clone() }.is_looked_after());
        assert!(About { namespace: "pid:[1]".into(), ..about }.is_elsewhere());
    }
}
