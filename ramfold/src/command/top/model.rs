//! What is known of servers and runs, and what they took a while ago.
//!
//! Invariant: a server is asked once at a time. A history has at most `LOOKS_MAX` looks.
//!
//! Locks: none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::Sender;
use std::time::Instant;

use serde_json::Value;
use serve::control::{self, ControlError, Request};

use crate::command::stat::list::{PATIENCE, Row, why_silent};
use crate::command::stat::runs::{self, Run};
use crate::line::Failure;

/// Looks that are remembered: the columns of a wide screen.
const LOOKS_MAX: usize = 400;
/// Notes of things that are over, such as a server that was killed.
const NOTES_MAX: usize = 3;

/// Figures of the looks before, the last one at the end.
pub(super) type History = VecDeque<u64>;

/// Why the drawing thread goes on.
pub(super) enum Wake {
    /// A server has answered, or has not.
    Answer(String, Result<Value, ControlError>),
    /// The runs, and what is to be told of them.
    Runs(Vec<Run>, Vec<String>),
    Signal(i32),
    Key(u8),
}

/// A server that was found.
#[derive(Default)]
pub(super) struct Known {
    /// Its devices when it answered last.
    pub(super) rows: Vec<Row>,
    /// Why there is no newer answer.
    pub(super) silent: Option<String>,
    /// What each device held, by its name.
    pub(super) held: BTreeMap<String, History>,
    asked: Option<Instant>,
}

/// A run, and how many faults it had between two looks.
pub(super) struct Program {
    pub(super) run: Run,
    pub(super) faults: History,
}

/// Everything that is shown.
pub(super) struct Model {
    sender: Sender<Wake>,
    pub(super) servers: BTreeMap<String, Known>,
    pub(super) programs: Vec<Program>,
    /// What is wrong with runs now.
    pub(super) notes: Vec<String>,
    /// What has happened.
    pub(super) past: VecDeque<String>,
    looking: bool,
    /// How to end what is drawn, after everything else in the title.
    pub(super) quits: &'static str,
}

impl Model {
    pub(super) fn new(sender: Sender<Wake>) -> Model {
        Model {
            sender,
            servers: BTreeMap::new(),
            programs: Vec::new(),
            notes: Vec::new(),
            past: VecDeque::new(),
            looking: false,
            quits: "",
        }
    }

    /// Asks everything that is not being asked.
    pub(super) fn ask(&mut self) -> Result<(), Failure> {
        for name in control::clear_killed() {
            self.past.push_back(format!("{name} was killed; what it stored is gone"));
        }
        while self.past.len() > NOTES_MAX {
            self.past.pop_front();
        }
        let running = control::list();
        let names: BTreeSet<&str> = running.iter().map(|server| &*server.name).collect();
        self.servers.retain(|name, known| known.asked.is_some() || names.contains(&**name));
        for server in running {
            let known = self.servers.entry(server.name.clone()).or_default();
            if known.asked.is_none() {
                known.asked = Some(Instant::now());
                let sender = self.sender.clone();
                start(move || {
                    let stat = control::call_within(&server.control, &Request::STAT, PATIENCE);
                    // If nobody waits for it, the program is at its end.
                    let _ = sender.send(Wake::Answer(server.name, stat));
                })?;
            }
        }
        if !self.looking {
            self.looking = true;
            let sender = self.sender.clone();
            start(move || {
                let (runs, notes) = runs::look();
                let _ = sender.send(Wake::Runs(runs, notes));
            })?;
        }
        Ok(())
    }

    /// Whether an answer is still to come.
    pub(super) fn is_waiting(&self) -> bool {
        self.looking || self.servers.values().any(|known| known.asked.is_some())
    }

    /// Takes the answer of a server.
    pub(super) fn answered(&mut self, name: &str, outcome: Result<Value, ControlError>) {
        let Some(known) = self.servers.get_mut(name) else { return };
        known.asked = None;
        match outcome {
            Ok(stat) => {
                known.silent = None;
                known.rows = Row::of(name, stat);
                let Known { rows, held, .. } = known;
                held.retain(|name, _| rows.iter().any(|row| row.name() == name));
                for row in rows {
                    let [_, _, bytes, _] = row.figures();
                    remember(held.entry(row.name().to_owned()).or_default(), bytes);
                }
            }
            Err(error) => match why_silent(name, &error) {
                Some(why) => known.silent = Some(why),
                None => _ = self.servers.remove(name),
            },
        }
    }

    /// Takes the runs that were found.
    pub(super) fn found(&mut self, runs: Vec<Run>, notes: Vec<String>) {
        self.looking = false;
        self.notes = notes;
        let mut before: Vec<Program> = std::mem::take(&mut self.programs);
        for run in runs {
            let pid = run.about.pid;
            let same = before.iter().position(|program| program.run.about.pid == pid);
            let same = same.map(|at| before.swap_remove(at));
            let (mut faults, last) =
                same.map_or((History::new(), None), |it| (it.faults, Some(faults_of(&it.run))));
            if let Some(last) = last {
                remember(&mut faults, faults_of(&run).saturating_sub(last));
            }
            self.programs.push(Program { run, faults });
        }
    }
}

fn faults_of(run: &Run) -> u64 {
    let counts = &run.moment.counts;
    counts.stored_faults + counts.staged_faults + counts.first_touches
}

fn remember(history: &mut History, figure: u64) {
    history.push_back(figure);
    if history.len() > LOOKS_MAX {
        history.pop_front();
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let failed = |error| Failure::about("cannot start a thread", error);
    host::thread::spawn("look", work).map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::mpsc::channel;

    fn model() -> Model {
        let mut model = Model::new(channel().0);
        model.servers.insert("zram0".into(), Known::default());
        model
    }

    #[test]
    fn a_server_that_falls_silent_keeps_its_row_and_one_that_ended_does_not() {
        let mut model = model();
        model.answered("zram0", Ok(json!({"name": "zram0", "accounted_bytes": 7})));
        model.answered("zram0", Err(ControlError::Timeout("/x".into())));
        let known = &model.servers["zram0"];
        assert_eq!((known.rows.len(), known.silent.is_some()), (1, true));
        assert_eq!(known.held["zram0"], [7]);
        model.answered("zram0", Err(ControlError::NotRunning("/x".into())));
        assert!(model.servers.is_empty());
        model.answered("zram0", Ok(json!({})));
        assert!(model.servers.is_empty(), "an answer that comes too late");
    }

    #[test]
    fn a_history_is_of_the_last_looks() {
        let mut history = History::new();
        (0..LOOKS_MAX as u64 + 5).for_each(|figure| remember(&mut history, figure));
        assert_eq!((history.len(), history[0]), (LOOKS_MAX, 5));
    }
}
