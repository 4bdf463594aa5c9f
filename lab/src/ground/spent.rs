//! CPU time of the children of this process.
//!
//! ```text
//!   /proc/self/stat   pid (name) state .. utime stime cutime cstime ..    in 1/100 s
//! ```
//!
//! Invariant: only children that have ended are in it, with theirs.

use super::LabError;
use std::fs;

/// Seconds of CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spent {
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
}

impl Spent {
    /// Of all children that have ended, and of theirs. A server that still runs is not in it.
    pub(crate) fn of_children() -> Result<Spent, LabError> {
        let what = "/proc/self/stat";
        let text = fs::read_to_string(what).map_err(LabError::io(what))?;
        let wrong = || LabError::Wrong(format!("{what} is not understood: {text}"));
        Spent::parse(&text).ok_or_else(wrong)
    }

    /// The fields `cutime` and `cstime`; the name before them may have any character.
    fn parse(stat: &str) -> Option<Spent> {
        /// What Linux counts for programs, whatever its own clock does.
        const TICKS_PER_S: f64 = 100.0;
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(13);
        let mut next = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_S);
        Some(Spent { user_s: next()?, sys_s: next()? })
    }

    pub(crate) fn since(self, before: Spent) -> Spent {
        Spent { user_s: self.user_s - before.user_s, sys_s: self.sys_s - before.sys_s }
    }

    pub(crate) fn seconds(self) -> f64 {
        self.user_s + self.sys_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_children_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 200 0 0 3 4 150 25 20 0 1 0 9 0 0";
        let spent = Spent::parse(stat).unwrap();
        assert_eq!(spent, Spent { user_s: 1.5, sys_s: 0.25 });
        let later = Spent { user_s: 2.0, sys_s: 1.25 };
        assert_eq!(later.since(spent), Spent { user_s: 0.5, sys_s: 1.0 });
        assert_eq!(later.seconds(), 3.25);
        assert_eq!(Spent::parse("7 (a) S 1 7"), None);
    }
}
