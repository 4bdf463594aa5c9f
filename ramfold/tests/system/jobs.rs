//! `ramfold run`: whole programs in about 70 % of the memory that they take.
//!
//! ```text
//!   lab/jobs/NAME.sh   plain          its last line
//!                      under a limit  the same line, after pages left
//! ```
//!
//! With `RAMFOLD_CONFINED=PATH`, both are in a strict container: that program is `confined`, an
//! example of `host`; `./test confined` asks for it. With `RAMFOLD_JOBS_WHOLE=1`, all jobs run
//! whole, which takes minutes; `./test jobs` does this each way.

use std::os::unix::fs::chown;
use std::process::Command;

use crate::programs::{folds, texts};
use crate::rig::{BINARY, Scratch, needs, tool};

const JOBS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/jobs");
/// The user that `confined` becomes.
const NOBODY: u32 = 65534;

/// A job, the rows of its table if that makes it short, and the programs that it needs.
struct Job {
    name: &'static str,
    rows: Option<u32>,
    programs: &'static [&'static str],
}

impl Job {
    #[track_caller]
    fn is_right_in(&self, limit: &str) {
        if !needs(self.programs) || !folds(&Scratch::new()) {
            return;
        }
        let plain = self.run("").0;
        let wrap = format!("{BINARY} run --limit {limit} --");
        let (folded, said) = self.run(&wrap);
        assert_eq!(folded, plain, "{said}");
        assert!(said.contains("pages left"), "{said}");
    }

    /// The last line that it printed, and what was said of it.
    #[track_caller]
    fn run(&self, wrap: &str) -> (String, String) {
        let scratch = Scratch::new();
        let place = scratch.path(".");
        // Only root can, and only a job of root's is confined as another user.
        let _ = chown(&place, Some(NOBODY), Some(NOBODY));
        let mut bash = bash();
        bash.arg(format!("{JOBS}/{}.sh", self.name)).env("JOB_WRAP", wrap);
        bash.env("JOB_ROWS", self.rows.map_or_else(String::new, |rows| rows.to_string()));
        for name in ["XDG_RUNTIME_DIR", "TMPDIR", "HOME"] {
            bash.env(name, &place);
        }
        let output = bash.output().expect("it starts");
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{}: {}\n{out}{err}", self.name, output.status);
        let line =
            out.lines().last().unwrap_or_else(|| panic!("{} said nothing\n{err}", self.name));
        (line.to_string(), err)
    }
}

fn bash() -> Command {
    let Ok(confined) = std::env::var("RAMFOLD_CONFINED") else { return tool("bash") };
    let mut command = tool(&confined);
    command.arg("bash");
    command
}

/// Short forms of two jobs, each with its limit.
const SHORT: &[(Job, &str)] = &[
    (Job { name: "pyfork", rows: Some(150_000), programs: &["python3"] }, "32M"),
    (Job { name: "sort", rows: Some(500_000), programs: &["python3", "sort"] }, "40M"),
];

/// Jobs as `lab run` measures them, in 70 % of their peak.
const WHOLE: &[(Job, &str)] = &[
    (whole("gxx", &["g++", "python3"]), "330M"),
    (whole("java", &["java"]), "255M"),
    (whole("node", &["node"]), "210M"),
    (whole("numpy", &["python3"]), "315M"),
    (whole("pyfork", &["python3"]), "440M"),
    (whole("pytest", &["python3"]), "48M"),
    (whole("redis", &["redis-server", "redis-cli", "python3"]), "170M"),
    (whole("sort", &["python3", "sort"]), "158M"),
    (whole("sqlite", &["sqlite3"]), "140M"),
];

const fn whole(name: &'static str, programs: &'static [&'static str]) -> Job {
    Job { name, rows: None, programs }
}

#[test]
fn jobs_end_as_without_us() {
    let jobs = if std::env::var_os("RAMFOLD_JOBS_WHOLE").is_some() { WHOLE } else { SHORT };
    for (job, limit) in jobs {
        println!("{} in {limit}", job.name);
        job.is_right_in(limit);
    }
}
