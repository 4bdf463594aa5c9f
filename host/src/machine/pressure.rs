//! Whether the system is short of memory, as far as it tells.
//!
//! ```text
//!   <group>/memory.pressure   this process's control group (version 2): time that threads stalled
//!   /proc/pressure/memory     the machine: the same
//!   <group>/memory.events     how often the group met its limits
//!
//!   the first that can be read is looked at; each only counts up, so two looks are compared
//! ```
//!
//! Reading needs no right, and a look is one short read. A trigger (`poll` on the same files) would
//! need a thread, and on many systems a right.
//!
//! Invariant: memory is short if the count grew enough since the last look, and at no other time. A
//! file that cannot be read any more tells nothing.
//!
//! Lock: none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cgroup;

const MACHINE: &str = "/proc/pressure/memory";
const STALLS: &str = "memory.pressure";
const EVENTS: &str = "memory.events";
/// Events of a group that is short of memory: it was throttled, it met its limit.
const EVENTS_COUNTED: [&str; 4] = ["high", "max", "oom", "oom_kill"];
/// Microseconds that threads stall between two looks from which on memory is short: a tenth, where
/// the looks are a second apart.
const STALLED_MIN: u64 = 100_000;

/// See the module documentation.
#[derive(Debug)]
pub struct Pressure {
    path: PathBuf,
    counts: Counts,
    last: u64,
}

/// The meaning of a file's numbers, and how much of them is a lot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Stalls,
    Events,
}

impl Counts {
    fn of(path: &Path) -> Counts {
        if path.ends_with(EVENTS) { Counts::Events } else { Counts::Stalls }
    }

    /// The count in the text of a file.
    fn read(self, text: &str) -> Option<u64> {
        match self {
            Counts::Stalls => stalled(text),
            Counts::Events => events(text),
        }
    }

    const fn least(self) -> u64 {
        match self {
            Counts::Stalls => STALLED_MIN,
            Counts::Events => 1,
        }
    }
}

impl Pressure {
    /// What this system tells; `None` where it tells nothing.
    pub fn find() -> Option<Pressure> {
        let groups = cgroup::own_directories();
        let in_groups = |name: &'static str| groups.iter().map(move |group| group.join(name));
        let paths = in_groups(STALLS).chain([MACHINE.into()]).chain(in_groups(EVENTS));
        paths.map(Pressure::in_file).find_map(Result::ok)
    }

    /// What a file tells that is like one of these.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or holds something else.
    pub fn in_file(path: PathBuf) -> io::Result<Pressure> {
        let counts = Counts::of(&path);
        let last = counts.read(&fs::read_to_string(&path)?);
        let last = last.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Pressure { path, counts, last })
    }

    /// The file that is looked at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether memory was short since the last look.
    pub fn was_short(&mut self) -> bool {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let Some(now) = self.counts.read(&text) else { return false };
        let before = std::mem::replace(&mut self.last, now);
        now.saturating_sub(before) >= self.counts.least()
    }
}

/// Microseconds for which some thread stalled: the end of the first line,
/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=2064772`.
fn stalled(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Events of all kinds that count, a line each: `high 3`.
fn events(text: &str) -> Option<u64> {
    let counted = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        EVENTS_COUNTED.contains(&name).then(|| count.trim().parse::<u64>().ok())?
    };
    let mut counts = text.lines().filter_map(counted).peekable();
    counts.peek()?;
    Some(counts.sum())
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;

    /// A file of the given name that tells something, and what is found in it; `of` is the test's
    /// own word.
    fn told(of: &str, name: &str, text: &str) -> (PathBuf, io::Result<Pressure>) {
        let unique = format!("ramfold-pressure-{}-{of}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(unique);
        fs::create_dir_all(&directory).expect("a directory of the test's own");
        let path = directory.join(name);
        fs::write(&path, text).expect("a file of the test's own");
        (path.clone(), Pressure::in_file(path))
    }

    fn forget(path: &Path) {
        fs::remove_dir_all(path.parent().expect("it is in a directory")).expect("it is there");
    }

    #[test]
    fn stalls_of_a_tenth_of_a_second_are_pressure() {
        let text = |total: u64| {
            format!(
                "some avg10=0.10 avg60=0.00 avg300=0.00 total={total}\n\
                 full avg10=9.00 avg60=0.00 avg300=0.00 total=99999999\n"
            )
        };
        let (path, pressure) = told("stalls", STALLS, &text(1000));
        let mut pressure = pressure.expect("it can be read");
        let mut look = |total| {
            fs::write(&path, text(total)).expect("ours");
            pressure.was_short()
        };
        let looks = [1000, 100_999, 200_999, 200_999, 5, 100_005].map(&mut look);
        assert_eq!(looks, [false, false, true, false, false, true], "a count that fell is no news");
        forget(&path);
        assert!(!pressure.was_short(), "a file that is gone tells nothing");
    }

    #[test]
    fn a_group_that_meets_its_limit_is_short() {
        let text = |high, max| format!("low 7\nhigh {high}\nmax {max}\noom 0\noom_kill 0\n");
        let (path, pressure) = told("events", EVENTS, &text(2, 0));
        let mut pressure = pressure.expect("it can be read");
        assert_eq!(pressure.path(), path);
        let mut look = |high, max| {
            fs::write(&path, text(high, max)).expect("ours");
            pressure.was_short()
        };
        assert_eq!([look(2, 0), look(3, 0), look(3, 1), look(3, 1)], [false, true, true, false]);
        forget(&path);
    }

    #[test]
    fn another_file_is_refused() {
        for (name, text) in [(STALLS, "total=5\n"), (EVENTS, "low 5\n"), ("other", "")] {
            let (path, pressure) = told("other", name, text);
            assert!(pressure.is_err(), "{name}");
            forget(&path);
        }
    }

    /// Where the machine has the file, something is found.
    #[test]
    fn what_the_system_tells_is_found() {
        assert!(Pressure::find().is_some() || !Path::new(MACHINE).exists());
    }
}
