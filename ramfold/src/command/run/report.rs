//! A report of a run over time: figures as JSON, and a picture of them.
//!
//! ```text
//!   FILE.html          one page with the picture, and the figures inside
//!   FILE.svg           the picture, and the figures inside
//!   any other FILE     the figures; the picture is beside it, with the ending .svg
//! ```
//!
//! It is written again while the run goes on, the longer the rarer. So a run that is killed has
//! one.
//!
//! Invariant: a file of a report is whole at any time. Locks: none.

mod document;
mod picture;
mod series;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::moment::Moment;
use super::tally::Tally;
use crate::line::Failure;
use crate::line::whole;
use document::Facts;
use series::{Sample, Series};

/// A report is written again after this part of the time of the run, within these bounds.
const AGAIN_PART: u32 = 4;
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A report that is being made.
pub(super) struct Report {
    parts: Vec<Part>,
    facts: Facts,
    series: Series,
    written: Duration,
}

/// A file of a report.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    path: PathBuf,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Figures,
    Picture,
    Page,
}

impl Report {
    /// A report at `path`, of the program and its arguments. Nothing is written yet, but it is seen
    /// that all of it can be.
    pub(super) fn prepare(
        path: &Path,
        command: Vec<String>,
        algorithm: String,
        limit: u64,
    ) -> Result<Report, Failure> {
        let parts = parts(path);
        parts.iter().try_for_each(|part| whole::check(&part.path))?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let facts = Facts {
            command,
            pid: std::process::id(),
            began: since.as_millis() as f64 / 1000.0,
            algorithm,
            limit,
            at: Duration::ZERO,
            tally: Tally::default(),
            end: None,
        };
        Ok(Report { parts, facts, series: Series::new(), written: Duration::ZERO })
    }

    /// Adds a look, and writes the report if that is due.
    pub(super) fn add(&mut self, at: Duration, moment: Moment, tally: &Tally) {
        self.series.add(Sample { at, moment });
        (self.facts.at, self.facts.tally) = (at, *tally);
        if is_due(at, self.written) {
            self.written = at;
            // What is wrong is told at the end, if it is wrong then.
            let files = self.parts.iter().filter(|part| !whole::is_stream(&part.path));
            let _ = files.map(|part| self.write(part)).find(Result::is_err);
        }
    }

    /// Writes the report of a program that ended so.
    pub(super) fn finish(mut self, end: String) -> Result<(), Failure> {
        self.facts.end = Some(end);
        self.parts.iter().try_for_each(|part| self.write(part))
    }

    fn write(&self, part: &Part) -> Result<(), Failure> {
        whole::write(&part.path, part.form.text(&self.facts, self.series.samples()).as_bytes())
    }
}

impl Form {
    fn text(self, facts: &Facts, samples: &[Sample]) -> String {
        let figures = document::text(facts, samples);
        match self {
            Form::Figures => figures,
            Form::Picture => picture::alone(facts, samples, &figures),
            Form::Page => picture::page(facts, samples, &figures),
        }
    }
}

fn is_due(at: Duration, written: Duration) -> bool {
    at.saturating_sub(written) >= (at / AGAIN_PART).clamp(AGAIN_MIN, AGAIN_MAX)
}

/// The files of a report.
fn parts(path: &Path) -> Vec<Part> {
    let part = |path: PathBuf, form| Part { path, form };
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending {
        "html" | "htm" => vec![part(path.to_owned(), Form::Page)],
        "svg" => vec![part(path.to_owned(), Form::Picture)],
        _ if whole::is_stream(path) => vec![part(path.to_owned(), Form::Figures)],
        _ => vec![part(path.to_owned(), Form::Figures), part(beside(path), Form::Picture)],
    }
}

/// Where the picture of a file of figures is: `run.svg` of `run.json`, and `run.1.svg` of `run.1`.
fn beside(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|ending| ending == "json") {
        return path.with_extension("svg");
    }
    let mut longer = path.as_os_str().to_owned();
    longer.push(".svg");
    PathBuf::from(longer)
}

#[cfg(test)]
mod tests {
    use super::document::example;
    use super::*;

    #[test]
    fn the_ending_of_a_file_says_what_it_is() {
        let rows: [(&str, &[(&str, Form)]); 6] = [
            ("a/run.html", &[("a/run.html", Form::Page)]),
            ("run.htm", &[("run.htm", Form::Page)]),
            ("run.svg", &[("run.svg", Form::Picture)]),
            ("a/run.json", &[("a/run.json", Form::Figures), ("a/run.svg", Form::Picture)]),
            ("run.1", &[("run.1", Form::Figures), ("run.1.svg", Form::Picture)]),
            ("/dev/null", &[("/dev/null", Form::Figures)]),
        ];
        for (path, expected) in rows {
            let expected = expected.iter().map(|&(path, form)| Part { path: path.into(), form });
            assert_eq!(parts(Path::new(path)), expected.collect::<Vec<Part>>(), "{path}");
        }
    }

    #[test]
    fn a_long_run_is_written_more_rarely() {
        let seconds =
            |at: u64, written: u64| is_due(Duration::from_secs(at), Duration::from_secs(written));
        assert!(seconds(1, 0) && !seconds(1, 1) && seconds(2, 1));
        assert!(!seconds(120, 91) && seconds(120, 90));
        assert!(!seconds(10_000, 9_941) && seconds(10_000, 9_940), "at least every minute");
    }

    #[test]
    fn a_report_is_written_while_the_run_goes_on_and_at_its_end() {
        let directory = std::env::temp_dir().join(format!("ramfold-report-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("run.json");
        let prepare =
            |path: &Path| Report::prepare(path, vec!["sort".into()], "lz4".into(), 64 << 20);
        let mut report = prepare(&path).expect("it can be written");
        assert!(!path.exists(), "nothing is written yet");
        let (_, samples) = example(20);
        let read = || std::fs::read_to_string(&path).expect("it is there");
        samples[..10].iter().for_each(|it| report.add(it.at, it.moment, &Tally::default()));
        assert!(read().contains("\"end\":null"), "{}", read());
        samples[10..].iter().for_each(|it| report.add(it.at, it.moment, &Tally::default()));
        report.finish("signal 9".into()).expect("room");
        assert!(read().contains("\"end\":\"signal 9\"") && read().lines().count() == 23);
        let picture = std::fs::read_to_string(directory.join("run.svg")).expect("it is there");
        assert!(picture.starts_with("<svg"), "{picture}");
        let names = std::fs::read_dir(&directory).expect("there").count();
        assert_eq!(names, 2, "nothing is left over");
        assert!(prepare(&directory).is_err() && prepare(&directory.join("no/x")).is_err());
        std::fs::create_dir(directory.join("other.svg")).expect("room");
        assert!(prepare(&directory.join("other.json")).is_err(), "nor its picture");
        std::fs::remove_dir_all(&directory).expect("ours");
    }
}
