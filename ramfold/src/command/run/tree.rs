//! The processes of a run, by `/proc`: which of them have ended, and which do not fold.
//!
//! A program that is statically linked, or that has other rights than its user, is loaded without
//! the library. It runs unfolded, and what it takes is taken off the limit.
//!
//! Invariant: a program that does not fold is named once. Locks: none.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use inside::board::{Board, State};

use crate::line::output::complain;

/// A process has so long to claim a slot.
const PATIENCE: Duration = Duration::from_millis(300);
const PAGE: u64 = 4096;
const NOT_LOADED: &str = "the library was not loaded into it, as into programs that are statically \
                          linked or have rights of their own; what it takes is taken off the limit";

/// The processes of a run.
pub(super) struct Tree {
    root: u32,
    quiet: bool,
    /// When each process without a slot was first seen.
    seen: HashMap<u32, Instant>,
    named: HashSet<String>,
    outside: u64,
}

/// A process as `/proc/PID/stat` and `statm` show it.
struct Process {
    pid: u32,
    parent: u32,
    name: String,
    is_zombie: bool,
}

impl Tree {
    pub(super) fn new(root: u32, quiet: bool) -> Tree {
        Tree { root, quiet, seen: HashMap::new(), named: HashSet::new(), outside: 0 }
    }

    /// Bytes of processes that do not fold, at the last look.
    pub(super) fn outside(&self) -> u64 {
        self.outside
    }

    /// Looks at all processes, and tells the board.
    pub(super) fn look(&mut self, board: &Board) {
        let all = processes();
        let slots: HashMap<u32, State> = board
            .slots()
            .iter()
            .map(|slot| (slot.owner.pid() as u32, slot.state()))
            .filter(|&(pid, _)| pid != 0)
            .collect();
        let ours = descendants(self.root, &slots, &all);
        self.seen.retain(|pid, _| ours.contains(pid));
        let mut outside = 0;
        for process in all.iter().filter(|process| ours.contains(&process.pid)) {
            match slots.get(&process.pid) {
                _ if process.is_zombie => continue,
                Some(State::Unfolded(errno)) => {
                    let why = std::io::Error::from_raw_os_error(*errno);
                    self.name(process, &format!("the system refuses what that needs: {why}"));
                    continue;
                }
                Some(_) => continue,
                None => {}
            }
            let since = *self.seen.entry(process.pid).or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE {
                outside += anonymous(process.pid);
                self.name(process, NOT_LOADED);
            }
        }
        self.outside = outside;
        // relaxed: a figure.
        board.head().outside.store(outside, Ordering::Relaxed);
    }

    fn name(&mut self, process: &Process, why: &str) {
        if self.named.insert(process.name.clone()) && !self.quiet {
            let (name, pid) = (&process.name, process.pid);
            complain(&format!("{name} (process {pid}) does not fold: {why}"));
        }
    }
}

/// The processes under `root`, and under each process that has a slot: these may have lost their
/// parents.
fn descendants(root: u32, slots: &HashMap<u32, State>, all: &[Process]) -> HashSet<u32> {
    let mut ours: HashSet<u32> = slots.keys().copied().chain([root]).collect();
    loop {
        let before = ours.len();
        let children = all.iter().filter(|process| ours.contains(&process.parent));
        let children: Vec<u32> = children.map(|process| process.pid).collect();
        ours.extend(children);
        if ours.len() == before {
            return ours;
        }
    }
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(process).collect()
}

fn process(pid: u32) -> Option<Process> {
    stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name is in parentheses, and may have some itself.
fn stat(pid: u32, text: &str) -> Option<Process> {
    let (start, end) = (text.find('(')?, text.rfind(')')?);
    let mut fields = text.get(end + 1..)?.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    Some(Process { pid, parent, name: text.get(start + 1..end)?.to_owned(), is_zombie })
}

/// Bytes of anonymous memory of a process; 0 if it has ended.
fn anonymous(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().filter_map(|number| number.parse::<u64>().ok());
    let (_, resident, shared) = (numbers.next(), numbers.next(), numbers.next());
    resident.unwrap_or(0).saturating_sub(shared.unwrap_or(0)) * PAGE
}

/// Whether a process has ended, or is about to.
pub(super) fn has_ended(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists() || process(pid).is_none_or(|it| it.is_zombie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_anything() {
        let process = stat(7, "7 (a) (b) Z 3 7 7 0").expect("a process");
        assert_eq!((process.name.as_str(), process.parent), ("a) (b", 3));
        assert!(process.is_zombie);
        assert!(stat(7, "7 (a").is_none());
    }

    #[test]
    fn a_tree_has_children_of_children_and_orphans_that_fold() {
        let process = |pid, parent| Process { pid, parent, name: String::new(), is_zombie: false };
        let all = [process(5, 1), process(6, 5), process(7, 6), process(8, 1), process(9, 8)];
        let slots = HashMap::from([(8, State::Watching)]);
        assert_eq!(descendants(5, &slots, &all), HashSet::from([5, 6, 7, 8, 9]));
    }
}
