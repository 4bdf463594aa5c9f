//! Runs of `ramfold run`, shown to people: one line for each, or one run with its processes.
//!
//! ```text
//!   PID PROCS LIMIT RESIDENT HELD UNFOLDED FAULTS STALL  COMMAND      what is left of 80 columns
//!   PID         WAY RESIDENT HELD UNFOLDED FAULTS STALL  STATE NAME   a process
//! ```
//!
//! Invariant: a line has at most 80 columns, unless its numbers alone take more. Locks: none.

use std::fmt::Write;

use super::runs::{Member, Run};
use crate::command::run::moment::Moment;
use crate::line::output::one_line;
use crate::line::size::{count, human, short};

const COLUMNS: usize = 80;

/// One line for each run, under a header.
pub(super) fn list(runs: &[Run]) -> String {
    let header = row("PID", "PROCS", Figures::header(), "COMMAND");
    let lines = runs.iter().map(|run| {
        let processes = run.members.len().to_string();
        let figures = Figures::of_run(run);
        row(&run.about.pid.to_string(), &processes, figures, &run.about.command.join(" "))
    });
    let notes = runs.iter().filter_map(left_alone);
    std::iter::once(header).chain(lines).chain(notes.map(|note| wrapped("! ", &note))).collect()
}

/// One run: its sums, its processes, and why some of them do not fold.
pub(super) fn one(run: &Run) -> String {
    let (moment, counts) = (&run.moment, &run.moment.counts);
    let mut text = cut(&format!("run {}: {}", run.about.pid, run.about.command.join(" ")));
    text.push('\n');
    let processes = match run.members.len() {
        1 => "1 process".to_owned(),
        several => format!("{several} processes"),
    };
    let outside = match moment.outside {
        0 => String::new(),
        bytes => format!("; {} of it does not fold", short(bytes)),
    };
    let (out, back) = (count(counts.pages_out, "page"), counts.pages_in);
    let faults = counts.stored_faults + counts.staged_faults + counts.first_touches;
    let kinds = format!(
        "{} of the store, {} of trays, {} first touches",
        counts.stored_faults, counts.staged_faults, counts.first_touches
    );
    let rows = [
        ("limit", human(moment.limit), format!("compressed with {}", run.algorithm)),
        ("resident", human(moment.resident), format!("in {processes}{outside}")),
        ("held", human(moment.held), format!("compressed, of {}", human(moment.stored))),
        ("unfolded", human(moment.unfolded), "what it would take now without folding".to_owned()),
        ("at most", human(run.peak), format!("instead of {}", human(run.unfolded_peak))),
        ("faults", faults.to_string(), kinds),
        ("left", out, format!("{back} came back")),
        ("stall", stall(counts.stall_ns), "for which threads waited for room".to_owned()),
    ];
    let disk = counts.disk_out + counts.disk_refused > 0;
    let disk = disk.then(|| ("disk", human(moment.disk), on_disk(moment)));
    for (name, figure, note) in rows.into_iter().chain(disk) {
        text.push_str(&cut(&format!("{name:<10} {figure:>14}   {note}")));
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&processes_of(run));
    text
}

/// What went to the disk.
fn on_disk(moment: &Moment) -> String {
    let counts = &moment.counts;
    let refused = match counts.disk_refused {
        0 => String::new(),
        pages => format!("; {pages} refused"),
    };
    format!("{} written, {} read{refused}", count(counts.disk_out, "page"), counts.disk_in)
}

/// The processes of a run, and notes about them.
fn processes_of(run: &Run) -> String {
    let header = Figures::header();
    let mut text = member_row("PID", "WAY", header, "STATE     NAME");
    for member in &run.members {
        let last = format!("{:<9} {}", member.state, member.name);
        let way = member.way.unwrap_or("-");
        text += &member_row(&member.pid.to_string(), way, Figures::of(&member.moment), &last);
    }
    let reasons = run.members.iter().filter_map(reason);
    let notes: Vec<String> = left_alone(run).into_iter().chain(reasons).collect();
    if !notes.is_empty() {
        text.push('\n');
    }
    text + &notes.iter().map(|note| wrapped("! ", note)).collect::<String>()
}

fn reason(member: &Member) -> Option<String> {
    let why = member.why.as_ref()?;
    Some(format!("{} (process {}) does not fold: {why}", member.name, member.pid))
}

/// A run whose `ramfold run` has gone.
fn left_alone(run: &Run) -> Option<String> {
    let pid = run.about.pid;
    let how = if run.about.ended { "has ended" } else { "was killed" };
    let text = format!("the ramfold run of {pid} {how}; its processes go on within the limit");
    (!run.is_looked_after).then_some(text)
}

/// The figures of a line.
pub(crate) struct Figures {
    pub(crate) limit: String,
    pub(crate) resident: String,
    pub(crate) held: String,
    unfolded: String,
    pub(crate) faults: String,
    pub(crate) stall: String,
}

impl Figures {
    fn header() -> Figures {
        let [limit, resident, held, unfolded, faults, stall] =
            ["LIMIT", "RESIDENT", "HELD", "UNFOLDED", "FAULTS", "STALL"].map(str::to_owned);
        Figures { limit, resident, held, unfolded, faults, stall }
    }

    /// With the limit, which a run has and a process has not.
    pub(crate) fn of_run(run: &Run) -> Figures {
        Figures { limit: short(run.moment.limit), ..Figures::of(&run.moment) }
    }

    fn of(moment: &Moment) -> Figures {
        let counts = &moment.counts;
        let faults = counts.stored_faults + counts.staged_faults + counts.first_touches;
        Figures {
            limit: String::new(),
            resident: short(moment.resident),
            held: short(moment.held),
            unfolded: short(moment.unfolded),
            faults: faults.to_string(),
            stall: stall(counts.stall_ns),
        }
    }
}

/// Seconds, with a digit behind the point as long as there is room.
fn stall(nanos: u64) -> String {
    let seconds = nanos as f64 / 1e9;
    if seconds < 999.95 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

fn row(pid: &str, processes: &str, figures: Figures, last: &str) -> String {
    let second = format!("{processes:>5} {:>5}", figures.limit);
    line(pid, &second, figures, last)
}

/// A row of one process, which has a way where a run has processes and a limit.
fn member_row(pid: &str, way: &str, figures: Figures, last: &str) -> String {
    line(pid, &format!("{way:>11}"), figures, last)
}

fn line(pid: &str, second: &str, figures: Figures, last: &str) -> String {
    let Figures { resident, held, unfolded, faults, stall, .. } = figures;
    let line = format!(
        "{pid:>7} {second} {resident:>8} {held:>5} {unfolded:>8} {faults:>8} {stall:>7}  {last}"
    );
    cut(&line) + "\n"
}

/// A line that fits.
fn cut(line: &str) -> String {
    let line = one_line(line.trim_end());
    match line.chars().count() > COLUMNS {
        true => line.chars().take(COLUMNS - 2).chain("..".chars()).collect(),
        false => line.into_owned(),
    }
}

/// Words in lines that fit. The lines after the first are indented.
fn wrapped(mark: &str, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), mark.trim_end().to_owned());
    for word in one_line(text).split(' ') {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{line}");
            line = " ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// A run with a process that folds and one that does not.
#[cfg(test)]
pub(crate) fn example(command: &[&str]) -> Run {
    let words: Vec<std::ffi::OsString> = command.iter().map(std::ffi::OsString::from).collect();
    let counts = inside::board::RunCounts {
        pages_out: 1,
        pages_in: 30_000,
        stored_faults: 4000,
        staged_faults: 300,
        first_touches: 20,
        stall_ns: 12_340_000_000,
        ..inside::board::RunCounts::default()
    };
    let [limit, resident, outside] = [256, 250, 12].map(|mib| mib << 20);
    let [stored, held, unfolded] = [120, 31, 339].map(|mib| mib << 20);
    let moment =
        Moment { processes: 2, limit, resident, outside, stored, held, unfolded, counts, disk: 0 };
    let member = |pid, state, why: Option<&str>| Member {
        pid,
        name: "sort".into(),
        state,
        way: why.is_none().then_some("userfaultfd"),
        why: why.map(str::to_owned),
        moment,
    };
    let why = "the system refuses what that needs: Operation not permitted; it gave up \
               CAP_SYS_PTRACE, or a filter of system calls refuses userfaultfd";
    Run {
        about: crate::command::run::about::About::new(&words),
        algorithm: "lz4".into(),
        moment,
        peak: 255 << 20,
        unfolded_peak: 340 << 20,
        is_looked_after: true,
        members: vec![member(4_194_303, "folding", None), member(7, "unfolded", Some(why))],
    }
}

#[cfg(test)]
mod tests {
    use super::example as run;
    use super::*;

    #[track_caller]
    fn fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS && line.trim_end() == line, "{line:?}\n{text}");
        }
    }

    #[test]
    fn a_run_is_a_line_of_eighty_columns() {
        let text = list(&[run(&["sort", &"long ".repeat(30), "a\nb"])]);
        fits(&text);
        let [header, line] = text.lines().collect::<Vec<&str>>()[..] else { panic!("{text}") };
        let names: Vec<&str> = header.split_ascii_whitespace().collect();
        let expected =
            ["PID", "PROCS", "LIMIT", "RESIDENT", "HELD", "UNFOLDED", "FAULTS", "STALL", "COMMAND"];
        assert_eq!(names, expected);
        let words: Vec<&str> = line.split_ascii_whitespace().skip(1).take(8).collect();
        assert_eq!(words, ["2", "256M", "250M", "31.0M", "339M", "4320", "12.3", "s"], "{text}");
        assert!(line.ends_with(".."), "{text}");
        let ends = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
        assert_eq!(ends(header, "UNFOLDED"), ends(line, "339M"), "{text}");
    }

    #[test]
    fn a_line_is_cut_only_if_it_does_not_fit() {
        let line = |len: usize| cut(&"x".repeat(len));
        assert_eq!((line(COLUMNS), line(1)), ("x".repeat(COLUMNS), "x".to_owned()));
        assert_eq!(line(COLUMNS + 1), "x".repeat(COLUMNS - 2) + "..");
        let text = wrapped("! ", &"word ".repeat(40));
        fits(text.trim_end());
        assert_eq!(text.matches("word").count(), 40, "{text}");
    }

    #[test]
    fn a_run_is_shown_with_its_processes_and_why_they_do_not_fold() {
        let text = one(&run(&["sort", "file"]));
        fits(&text);
        for words in [
            ": sort file\n",
            "250.0 MiB   in 2 processes; 12.0M of it does not fold\n",
            "31.0 MiB   compressed, of 120.0 MiB",
            "255.0 MiB   instead of 340.0 MiB",
            "4320   4000 of the store, 300 of trays, 20 first touches",
            "1 page   30000 came back",
            "12.3 s   for which threads waited for room",
            "    PID         WAY RESIDENT",
            "4194303 userfaultfd     250M",
            "      7           -     250M",
            "folding   sort\n",
            "unfolded  sort\n\n! sort (process 7) does not fold: the system refuses what that",
            "\n  not permitted; it gave up",
        ] {
            assert!(text.contains(words), "{words:?}: {text}");
        }
    }

    #[test]
    fn a_run_with_a_disk_says_what_is_there() {
        assert!(!one(&run(&["sort"])).contains("disk"));
        let mut backed = run(&["sort"]);
        backed.moment.disk = 3 << 20;
        (backed.moment.counts.disk_out, backed.moment.counts.disk_in) = (800, 7);
        let text = one(&backed);
        assert!(text.contains("3.0 MiB   800 pages written, 7 read\n"), "{text}");
        backed.moment.counts.disk_refused = 9;
        let text = one(&backed);
        assert!(text.contains("7 read; 9 refused\n"), "{text}");
        fits(&text);
    }

    #[test]
    fn a_run_that_is_left_alone_says_so() {
        let mut left = run(&["sort"]);
        assert!(!list(&[run(&["sort"])]).contains('!'));
        left.is_looked_after = false;
        for text in [list(std::slice::from_ref(&left)), one(&left)] {
            assert!(text.contains("! the ramfold run of") && text.contains("was killed"), "{text}");
            fits(&text);
        }
        left.about.ended = true;
        assert!(list(&[left]).contains("has ended"));
    }

    #[test]
    fn large_figures_keep_their_columns() {
        let mut large = run(&["sort"]);
        large.moment.limit = 999 << 30;
        large.moment.resident = (1 << 30) - 1;
        large.moment.counts.stored_faults = 99_995_000;
        large.moment.counts.stall_ns = 99_999_000_000_000;
        let text = list(&[large]);
        fits(&text);
        for words in [" 999G ", " 1024M ", " 99995320 ", " 99999 s "] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
