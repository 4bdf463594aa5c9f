//! The runs of `ramfold run` that this user has: found, chosen, and as JSON.
//!
//! Invariant: a run is looked at and not changed, except that what a killed one left is removed.
//! Locks: none.

use std::path::PathBuf;

use inside::board::{Board, Slot, State};
use serde_json::{Map, Value, json};

use crate::command::run::about::About;
use crate::command::run::moment::{Moment, load};
use crate::command::run::{found, process, tree, unfolded};
use crate::line::Failure;
use crate::line::output::complain;

/// A run a moment ago.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) about: About,
    pub(super) algorithm: String,
    pub(crate) moment: Moment,
    pub(super) peak: u64,
    pub(super) unfolded_peak: u64,
    /// `ramfold run` looks after it.
    pub(super) is_looked_after: bool,
    pub(super) members: Vec<Member>,
}

/// A process of a run.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) state: &'static str,
    /// How it folds; `None` if it cannot.
    pub(super) way: Option<&'static str>,
    /// Why it does not fold.
    pub(super) why: Option<String>,
    pub(super) moment: Moment,
}

/// The runs that go on. Removes what killed ones have left, and tells of each run of which nothing
/// can be said.
pub(super) fn list() -> Vec<Run> {
    let (runs, notes) = look();
    notes.iter().for_each(|note| complain(note));
    runs
}

/// The same, with what is to be told.
pub(crate) fn look() -> (Vec<Run>, Vec<String>) {
    let found = found::found();
    let mut notes: Vec<String> = found.iter().filter_map(found::Found::clear).collect();
    let shown = found.into_iter().filter_map(|found| {
        let about = found.about.clone()?;
        let (pid, name) = (about.pid, about.name().to_owned());
        if about.is_elsewhere() {
            let why = "its processes are in another namespace, and are seen only from there";
            notes.push(format!("run {pid} of {name}: {why}"));
            return None;
        }
        match found.board() {
            Ok(board) => Some(Run::of(about, &board, found.library())),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                notes.push(format!("run {pid} of {name} is of another version of ramfold"));
                None
            }
            // It begins or ends at this moment.
            Err(_) => None,
        }
    });
    let runs = shown.collect();
    (runs, notes)
}

/// The run that a target means: by the number of `ramfold run` or of a process in it, or by the
/// name of the program. `None` if there is none.
pub(super) fn chosen(target: &str) -> Result<Option<Run>, Failure> {
    let number = target.parse::<u32>().ok();
    let is_meant = |run: &Run| match number {
        Some(pid) => run.about.pid == pid || run.members.iter().any(|it| it.pid == pid),
        None => run.about.name() == target,
    };
    let mut meant: Vec<Run> = list().into_iter().filter(is_meant).collect();
    if meant.len() > 1 {
        let pids: Vec<String> = meant.iter().map(|run| run.about.pid.to_string()).collect();
        let pids = pids.join(", ");
        return Err(Failure::Failed(format!("{target}: several runs; give one number of {pids}")));
    }
    Ok(meant.pop())
}

impl Run {
    fn of(about: About, board: &Board, library: PathBuf) -> Run {
        let all = process::all();
        let own = about.pid;
        // After its end its number may be another's.
        let is_looked_after = about.is_looked_after();
        let root = is_looked_after.then_some(own);
        let members = tree::members(board, root, &all).into_iter();
        let members = members.filter(|(process, _)| root != Some(process.pid));
        let members = members.map(|(process, slot)| {
            let (pid, name) = (process.pid, process.name.clone());
            // One that has executed a program without the library has left its slot.
            let slot = slot.filter(|_| process::has_pager(pid));
            let (state, why) = standing(slot, || {
                let why = unfolded::not_loaded(pid, &library, tree::is_full(board));
                why.unwrap_or(unfolded::UNKNOWN).to_owned()
            });
            let outside = || {
                let bytes = process::anonymous(pid);
                Moment { resident: bytes, unfolded: bytes, outside: bytes, ..Moment::default() }
            };
            let way = slot.filter(|_| why.is_none()).map(|slot| slot.way().name());
            Member {
                pid,
                name,
                state,
                way,
                why,
                moment: slot.map_or_else(outside, Moment::of_slot),
            }
        });
        Run {
            members: members.collect(),
            algorithm: board.algorithm(),
            moment: Moment::of(board),
            peak: load(&board.head().peak),
            unfolded_peak: load(&board.head().unfolded_peak),
            is_looked_after,
            about,
        }
    }

    /// All figures, and those of each process.
    pub(super) fn json(&self) -> Value {
        let mut value = json!({
            "kind": "run",
            "pid": self.about.pid,
            "name": self.about.name(),
            "command": self.about.command,
            "looked_after": self.is_looked_after,
            "algorithm": self.algorithm,
        });
        put_figures(&mut value, &self.moment);
        value["peak"] = self.peak.into();
        value["unfolded_peak"] = self.unfolded_peak.into();
        value["tree"] = self.members.iter().map(Member::json).collect();
        value
    }
}

impl Member {
    fn json(&self) -> Value {
        let mut value = json!({
            "pid": self.pid,
            "name": self.name,
            "state": self.state,
            "way": self.way,
            "why": self.why,
        });
        put_figures(&mut value, &self.moment);
        // These are of a whole run.
        let fields = value
            .as_object_mut()
            .map(|fields| ["processes", "limit", "outside"].map(|name| fields.shift_remove(name)));
        drop(fields);
        value
    }
}

fn put_figures(value: &mut Value, moment: &Moment) {
    let figures = moment.fields().into_iter();
    let figures: Map<String, Value> =
        figures.map(|(name, figure)| (name.to_owned(), figure.into())).collect();
    if let Some(fields) = value.as_object_mut() {
        fields.extend(figures);
    }
}

/// What a process does about its memory, and why it does not fold.
fn standing(
    slot: Option<&Slot>,
    not_loaded: impl FnOnce() -> String,
) -> (&'static str, Option<String>) {
    match slot.map(Slot::state) {
        Some(State::Watching) => ("watching", None),
        Some(State::Folding) => ("folding", None),
        Some(State::Unfolded(errno)) => ("unfolded", Some(unfolded::refused(errno))),
        None => ("unfolded", Some(not_loaded())),
    }
}
