//! Study `breakdown`: where the work of giving pages up goes, step by step (S3).
//!
//! ```text
//!   valgrind: instructions by source file     with the path - without it = the path's own
//!   the same child without valgrind           nanoseconds a page, of all steps together
//!                    share of a step x nanoseconds a page = ns_per_page of the step
//! ```
//!
//! Paths: `slots` discards one page after the other, as unmapping swapped memory does in the
//! kernel, and is study S3's base. `entries` is its callback form and `handles` its allocator-only
//! form: there the caller's part alone is counted and timed, with room in the queue for all pages
//! and a worker that is kept away meanwhile. `range` discards all pages at once, and `drop` drops
//! the disk. In those there is no worker: the caller does what would be deferred to it, and all of
//! that is counted.
//!
//! `leaves_out` is what a path does not do of the step in the path `slots`, as a share of all
//! instructions of that path.
//!
//! A step is a set of modules, see `steps`; code that is inlined counts where it was written. A
//! share is one of instructions, not of time: a step that waits for memory takes more of the time
//! than this says. What the system does on its side (page faults, `madvise`) is no instruction
//! here; it is part of the time, which is that of all steps together and dealt out by share.
//!
//! These figures do not show more than one thread, and no waiting for locks.

use crate::apparatus::ours::Backend;
use crate::apparatus::spoken;
use crate::apparatus::valgrind::{self, Spent};
use crate::frame::{Lab, Report, Study, present};
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use path::Path;
use std::process::Command;
use steps::STEPS;

mod child;
mod held;
mod path;
mod steps;

pub(super) use child::INSIDE;

pub(super) const STUDY: Study = Study {
    name: "breakdown",
    about: "Where the work of giving up stored pages goes, by instructions",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab breakdown`.
#[derive(Args, Debug)]
struct Options {
    /// The store
    #[arg(long, default_value = "zram")]
    backend: Backend,
    /// Ways to free pages [default: all ways that the store has]
    #[arg(long, value_name = "PATH[,PATH]", value_delimiter = ',')]
    path: Vec<Path>,
}

impl Options {
    /// With the paths that there are.
    fn checked(mut self) -> Result<Options, LabError> {
        let all = Path::of(self.backend);
        if self.path.is_empty() {
            self.path = all.to_vec();
        }
        let name = self.backend.name();
        match self.path.iter().find(|path| !all.contains(path)) {
            Some(path) => Err(LabError::Usage(format!("--path {}: not with {name}", path.name()))),
            None => Ok(self),
        }
    }
}

const DEFAULT_BYTES: u64 = 16 << 20;
const QUICK_BYTES: u64 = 2 << 20;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?.checked()?;
    let bytes = if lab.quick() { QUICK_BYTES } else { DEFAULT_BYTES };
    let corpus = Corpus::open(lab.corpus_file(), bytes)?;
    let pages = corpus.pages().min(bytes as usize / PAGE_SIZE);
    let input = &corpus.bytes()[..pages * PAGE_SIZE];
    let subject = Subject { backend: options.backend, input, pages, lab };
    let mut notes = Vec::new();
    let mut runs = Vec::new();
    // The paths do not take turns, because the instructions of one are counted once for all its
    // runs, and nothing compares the time of two.
    let bar = lab.progress(options.path.len());
    for &path in &options.path {
        bar.set_message(path.name());
        let counts = subject.counts(path, &mut notes)?;
        for run in 0..lab.runs() {
            let ns = subject.ns_per_page(path)?;
            runs.extend(rows_of(path, run, ns, counts.as_ref(), pages));
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    for row in &mut runs {
        row.set("backend", options.backend.name())
            .set("corpus", corpus.name.as_str())
            .set("corpus_bytes", pages * PAGE_SIZE);
    }
    let mut rows = fields::medians(&FIELDS, &runs);
    leave_out(&mut rows);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

/// What is stored and given up.
struct Subject<'a> {
    backend: Backend,
    input: &'a [u8],
    pages: usize,
    lab: &'a Lab,
}

impl Subject<'_> {
    /// Instructions of each step; nothing but a note where there is no valgrind.
    fn counts(
        &self,
        form: Path,
        notes: &mut Vec<String>,
    ) -> Result<Option<[f64; STEPS.len()]>, LabError> {
        let counted = |path| {
            let arguments = self.arguments(form, path);
            valgrind::instructions_by_place(INSIDE.name, &arguments, self.input, self.lab)
        };
        let both = counted(Some(form)).and_then(|with| Ok(difference(&with, &counted(None)?)));
        present(both, notes)
    }

    /// The time of the path alone, in a child of its own.
    fn ns_per_page(&self, path: Path) -> Result<f64, LabError> {
        let program = std::env::current_exe().map_err(LabError::io("this program"))?;
        let mut command = Command::new(program);
        command.arg(INSIDE.name).arg("--verify").args(self.arguments(path, Some(path)));
        let said = spoken::said(&mut command, self.input, self.lab)?;
        let ns: f64 = said.trim().parse().map_err(LabError::store("child"))?;
        Ok(ns / self.pages as f64)
    }

    /// Of a child whose store is made for a path, and that goes it or does not.
    fn arguments(&self, form: Path, path: Option<Path>) -> Vec<String> {
        let mut arguments = vec!["--pages".to_owned(), self.pages.to_string()];
        arguments.extend(["--backend".to_owned(), self.backend.name().to_owned()]);
        arguments.extend(["--form".to_owned(), form.name().to_owned()]);
        if let Some(path) = path {
            arguments.extend(["--path".to_owned(), path.name().to_owned()]);
        }
        arguments
    }
}

/// What the first took more than the second, by step. A child differs from another by a few
/// instructions that have nothing to do with the path: no step is below none.
fn difference(with: &[Spent], without: &[Spent]) -> [f64; STEPS.len()] {
    let sums = |places: &[Spent]| {
        let mut sums = [0.0; STEPS.len()];
        for place in places {
            sums[steps::of(place)] += place.instructions as f64;
        }
        sums
    };
    let (with, without) = (sums(with), sums(without));
    std::array::from_fn(|step| (with[step] - without[step]).max(0.0))
}

/// A row for each step, and one for all of them.
fn rows_of(
    path: Path,
    run: u32,
    ns: f64,
    counts: Option<&[f64; STEPS.len()]>,
    pages: usize,
) -> Vec<Row> {
    let total: Option<f64> = counts.map(|counts| counts.iter().sum());
    let row = |step: &str, count: Option<f64>, published: Option<f64>| {
        let share = count.zip(total).map(|(count, total)| count / total);
        let mut row = Row::default();
        row.set("path", path.name())
            .set("step", step)
            .set("share", share)
            .set("instructions_per_page", count.map(|count| count / pages as f64))
            .set("published_share", published.filter(|_| path == Path::Slots))
            .set("run", run)
            .set("ns_per_page", share.map(|share| share * ns));
        row
    };
    let mut rows: Vec<Row> = counts
        .into_iter()
        .flatten()
        .zip(&STEPS)
        .map(|(&count, step)| row(step.name, Some(count), step.published))
        .collect();
    let mut all = row("all", total, None);
    all.set("ns_per_page", ns);
    rows.push(all);
    rows
}

/// Sets `leaves_out` of every row whose step is in the path `slots` too.
fn leave_out(rows: &mut [Row]) {
    const COUNT: &str = "instructions_per_page";
    let slots: Vec<Row> = rows.iter().filter(|row| row.is("path", "slots")).cloned().collect();
    let of =
        |step: &serde_json::Value| slots.iter().find(|row| row.get("step") == step)?.number(COUNT);
    for row in rows {
        let less = of(row.get("step")).zip(row.number(COUNT)).map(|(all, some)| all - some);
        let share = less.zip(of(&"all".into())).map(|(less, all)| less / all);
        row.set("leaves_out", share.filter(|_| !row.is("path", "slots")));
    }
}

const FIELDS: [Field; 10] = [
    Field::key("backend"),
    Field::key("path").shown("path", Format::Plain),
    Field::key("step").shown("step", Format::Plain),
    Field::key("share").shown("share %", Format::Percent),
    Field::key("published_share").shown("S3's share %", Format::Percent),
    Field::key("instructions_per_page").shown("instructions/page", Format::Fixed(1)),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("ns_per_page").shown("ns/page", Format::Fixed(1)),
    Field::added("leaves_out").shown("leaves out %", Format::Percent),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(file: &str, instructions: u64) -> Spent {
        Spent { file: file.into(), function: String::new(), instructions }
    }

    #[test]
    fn shares_are_of_what_the_path_adds() {
        let with = [spent("/x/zram/src/slots.rs", 130), spent("/x/buddy/src/zone.rs", 75)];
        let without = [spent("/x/zram/src/slots.rs", 100), spent("/x/host/src/locks/lock.rs", 5)];
        let counts = difference(&with, &without);
        let rows = rows_of(Path::Slots, 0, 40.0, Some(&counts), 15);
        let of = |step: &str| rows.iter().find(|row| row.is("step", step)).unwrap();
        let shares = ["slot", "page allocator", "locks", "all"]
            .map(|step| of(step).number("share").unwrap());
        assert_eq!(shares.map(|share| (share * 1000.0).round()), [286.0, 714.0, 0.0, 1000.0]);
        assert_eq!(of("all").number("instructions_per_page"), Some(7.0));
        assert_eq!(of("all").number("ns_per_page"), Some(40.0));
    }

    #[test]
    fn what_a_path_leaves_out_is_a_share_of_the_whole_base() {
        let mut rows = rows_of(Path::Slots, 0, 40.0, Some(&[10.0; STEPS.len()]), 1);
        let mut less = [10.0; STEPS.len()];
        (less[0], less[1]) = (4.0, 16.0);
        rows.extend(rows_of(Path::Handles, 0, 9.0, Some(&less), 1));
        leave_out(&mut rows);
        let of = |at: usize| rows[STEPS.len() + 1 + at].number("leaves_out").unwrap();
        let share = 6.0 / (10.0 * STEPS.len() as f64);
        assert_eq!((of(0), of(1), of(2), of(STEPS.len())), (share, -share, 0.0, 0.0));
        assert!(rows[0].get("leaves_out").is_null(), "the base itself");
    }

    #[test]
    fn without_counts_there_is_a_time() {
        let rows = rows_of(Path::Drop, 0, 40.0, None, 15);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].number("share"), rows[0].number("ns_per_page")), (None, Some(40.0)));
    }
}
