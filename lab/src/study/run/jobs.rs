//! The jobs, by name, and what each needs of this machine.
//!
//! ```text
//!   lab/jobs/NAME.sh   one fixed job; its last line depends on every byte that it kept in memory
//! ```
//!
//! Invariant: a job whose programs are there can be run, and one whose are not is named with the
//! package that has them.

use crate::ground::LabError;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the jobs are.
const JOBS_DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/jobs");
/// The interpreter that jobs in Python run in, whatever else is in the path.
const PYTHON: &str = "/usr/bin/python3";

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: &'static str,
    /// For `JOB_ROWS` in a short form; `None` if there is none.
    pub(super) quick_rows: Option<u32>,
    needs: &'static [Need],
}

/// Something that a job needs, and the package that has it.
#[derive(Clone, Copy, Debug)]
enum Need {
    Program(&'static str, &'static str),
    Module(&'static str, &'static str),
}

const fn program(name: &'static str, package: &'static str) -> Need {
    Need::Program(name, package)
}

const PYTHON_3: Need = program(PYTHON, "python3");
/// What prepares input may be any Python.
const ANY_PYTHON: Need = program("python3", "python3");

/// Every job, the short ones first.
pub(super) const JOBS: [Job; 9] = [
    Job {
        name: "sort",
        quick_rows: Some(400_000),
        needs: &[ANY_PYTHON, program("sort", "coreutils")],
    },
    Job { name: "pyfork", quick_rows: Some(200_000), needs: &[PYTHON_3] },
    Job { name: "sqlite", quick_rows: None, needs: &[program("sqlite3", "sqlite3")] },
    Job { name: "numpy", quick_rows: None, needs: &[PYTHON_3, Need::Module("numpy", NUMPY)] },
    Job { name: "node", quick_rows: None, needs: &[program("node", "nodejs")] },
    Job { name: "java", quick_rows: None, needs: &[program("java", "default-jre-headless")] },
    Job { name: "gxx", quick_rows: None, needs: &[ANY_PYTHON, program("g++", "g++")] },
    Job {
        name: "redis",
        quick_rows: None,
        needs: &[
            PYTHON_3,
            program("redis-server", "redis-server"),
            program("redis-cli", "redis-tools"),
        ],
    },
    Job {
        name: "pytest",
        quick_rows: None,
        needs: &[PYTHON_3, Need::Module("test.test_fork1", TESTSUITE)],
    },
];

const NUMPY: &str = "python3-numpy";
const TESTSUITE: &str = "libpython3-testsuite";

impl Job {
    pub(super) fn script(&self) -> PathBuf {
        Path::new(JOBS_DIRECTORY).join(self.name).with_extension("sh")
    }

    /// Whether this machine has what it needs.
    pub(super) fn is_there(&self) -> Result<(), LabError> {
        self.needs.iter().try_for_each(|need| need.is_there())
    }
}

impl Need {
    fn is_there(self) -> Result<(), LabError> {
        match self {
            Need::Program(name, package) if !in_path(name) => {
                Err(LabError::missing(package, format!("no {name}")))
            }
            Need::Module(name, package) if !imports(name) => {
                Err(LabError::missing(package, format!("{PYTHON} has no {name}")))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a program can be started by this name.
fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

fn imports(module: &str) -> bool {
    let mut python = Command::new(PYTHON);
    python.arg("-c").arg(format!("import {module}"));
    let status = python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_a_job_and_every_job_has_a_script() {
        let entries = std::fs::read_dir(JOBS_DIRECTORY).expect("it is part of the repository");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        let mut scripts: Vec<String> = names.filter(|name| name.ends_with(".sh")).collect();
        scripts.sort();
        let mut jobs: Vec<String> = JOBS.iter().map(|job| format!("{}.sh", job.name)).collect();
        jobs.sort();
        assert_eq!(scripts, jobs);
    }

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let lacks = |need: Need| need.is_there().err().map(|error| error.to_string());
        let said = lacks(program("no-such-program", "a-package"));
        assert_eq!(said.as_deref(), Some("a-package: missing (no no-such-program)"));
        assert_eq!(lacks(program("sh", "dash")), None);
        assert_eq!(lacks(program("/bin/sh", "dash")), None);
        let said = lacks(Need::Module("no_such_module", "a-package"));
        assert!(said.is_some_and(|said| said.starts_with("a-package: missing (")));
    }
}
