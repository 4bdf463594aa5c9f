//! Processes, as `/proc` shows them.
//!
//! Invariant: what cannot be read is taken for a process that has ended. Locks: none.

use std::collections::HashSet;
use std::fs;

/// The name of the thread of ours that looks after a process.
const PAGER: &str = "ramfold-pager";
const PAGE: u64 = 4096;

/// A process as `/proc/PID/stat` shows it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(super) parent: u32,
    pub(crate) name: String,
    pub(super) is_zombie: bool,
    /// It wants a processor, and has had one for less than 20 ms so far.
    pub(super) is_waiting: bool,
    /// When it was started, in the system's ticks. With its number this is one process for ever.
    pub(super) started: u64,
}

/// All processes that can be seen.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(of).collect()
}

/// The process of this number, if there is one.
pub(super) fn of(pid: u32) -> Option<Process> {
    stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name is in parentheses, and may have some itself.
fn stat(pid: u32, text: &str) -> Option<Process> {
    /// Of the fields after the name. Times are in hundredths of a second.
    const USER: usize = 11;
    const SYSTEM: usize = 12;
    const STARTED: usize = 19;
    let (start, end) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text.get(end + 1..)?.split_ascii_whitespace().collect();
    let time = |field: usize| fields.get(field)?.parse::<u64>().ok();
    let (state, used) = (*fields.first()?, time(USER)? + time(SYSTEM)?);
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        name: text.get(start + 1..end)?.to_owned(),
        is_zombie: matches!(state, "Z" | "X"),
        is_waiting: state == "R" && used < 2,
        started: fields.get(STARTED)?.parse().ok()?,
    })
}

/// Whether a process has ended, or is about to.
pub(super) fn has_ended(pid: u32) -> bool {
    of(pid).is_none_or(|process| process.is_zombie)
}

/// Whether our threads are in a process. They are not in one that has executed a program into which
/// the library was not loaded.
pub(crate) fn has_pager(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).ok();
    threads.flatten().filter_map(name).any(|name| name.trim_end() == PAGER)
}

/// Bytes of anonymous memory of a process; 0 if it has ended.
pub(crate) fn anonymous(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().filter_map(|number| number.parse::<u64>().ok());
    let (_, resident, shared) = (numbers.next(), numbers.next(), numbers.next());
    resident.unwrap_or(0).saturating_sub(shared.unwrap_or(0)) * PAGE
}

/// The processes of `roots`, and all under them.
pub(super) fn descendants(roots: impl IntoIterator<Item = u32>, all: &[Process]) -> HashSet<u32> {
    let mut ours: HashSet<u32> = roots.into_iter().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_anything() {
        let text = "7 (a) (b) Z 3 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 123456 0 0";
        let process = stat(7, text).expect("a process");
        assert_eq!((process.name.as_str(), process.parent), ("a) (b", 3));
        assert_eq!((process.is_zombie, process.started), (true, 123_456));
        let busy = |state, used| {
            let text = format!("7 (a) {state} 3 7 7 0 -1 0 1 2 3 4 {used} 1 0 0 20 0 1 0 9 0 0");
            stat(7, &text).expect("a process").is_waiting
        };
        assert!(busy("R", 0) && !busy("R", 1) && !busy("S", 0));
        assert!(stat(7, "7 (a").is_none() && stat(7, "7 (a) Z 3").is_none());
    }

    #[test]
    fn a_tree_has_children_of_children_and_orphans_that_fold() {
        let process = |pid, parent| Process {
            pid,
            parent,
            name: String::new(),
            is_zombie: false,
            is_waiting: false,
            started: 0,
        };
        let all = [process(5, 1), process(6, 5), process(7, 6), process(8, 1), process(9, 8)];
        assert_eq!(descendants([5, 8], &all), HashSet::from([5, 6, 7, 8, 9]));
    }

    #[test]
    fn this_process_lives_and_has_no_pager() {
        let own = std::process::id();
        assert!(!has_ended(own) && !has_pager(own));
        assert!(of(own).expect("it runs").started > 0 && anonymous(own) > 0);
    }
}
