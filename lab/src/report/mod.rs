//! `lab report`: the studies as charts, from records.
//!
//! ```text
//!   records --newest row of each case--> rows of a study on a machine --picks--> curves
//!   published.csv --------------------------------------------------------------> curves
//!   curves --> chart --> section with its table --> DIR/report.html
//! ```
//!
//! A chart is drawn for each machine that has rows for it, on the page and as a file of its own.
//! Nothing is measured here.

mod beside;
mod columns;
pub(crate) mod compare;
mod drawing;
mod exact;
mod kept;
mod markdown;
mod plots;
mod programs;
mod published;
mod student;
pub(crate) mod studies;
mod tables;

use crate::ground::LabError;
use crate::rows::Row;
use drawing::alone;
use drawing::chart::{Curve, Origin, Point};
use drawing::page::{self, Section};
use kept::Record;
use plots::{PLOTS, Pick, Plot, Shown};
use published::Published;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Options of `lab report`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Records to draw; without any, the newest figures of the lab's own records
    #[arg(value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Directory for report.html and a file for each chart; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Draws the report; says what it drew and where it is.
pub(crate) fn run(options: &Options) -> Result<String, LabError> {
    let records = match &*options.records {
        [] => kept::own()?,
        paths => paths.iter().map(|path| Record::read(path)).collect::<Result<_, _>>()?,
    };
    let sections = sections(&records, &Published::read()?);
    if sections.is_empty() {
        let studies: Vec<&str> = PLOTS.iter().map(|plot| plot.study).collect();
        return Err(LabError::Usage(format!(
            "no chart has figures from these records; charts are of {}",
            studies.join(", ")
        )));
    }
    let html = page::page(&sections)?;
    fs::create_dir_all(&options.out).map_err(LabError::io(options.out.display()))?;
    let path = options.out.join("report.html");
    fs::write(&path, &html).map_err(LabError::io(path.display()))?;
    for section in &sections {
        let path = options.out.join(&section.id).with_extension("svg");
        fs::write(&path, alone::file(section)?).map_err(LabError::io(path.display()))?;
    }
    let (charts, kib) = (sections.len(), html.len() / 1024);
    Ok(format!("{charts} charts, {kib} KiB: {}", path.display()))
}

/// The sections of all charts, one for each machine.
fn sections(records: &[Record], published: &Published) -> Vec<Section> {
    let mut sections = Vec::new();
    for plot in PLOTS {
        let mut machines: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.is_of(plot)) {
            machines.entry(record.processor()).or_default().push(record);
        }
        let of_machines = machines.into_iter().enumerate();
        sections.extend(of_machines.filter_map(|(number, (machine, records))| {
            section(plot, number, machine, &records, published)
        }));
    }
    sections
}

fn section(
    plot: &Plot,
    number: usize,
    machine: &str,
    records: &[&Record],
    published: &Published,
) -> Option<Section> {
    let rows = kept::newest(records);
    let measured: Vec<Curve> =
        plot.picks.iter().filter_map(|pick| measured(plot, pick, &rows)).collect();
    let ours = measured.iter().filter(|curve| curve.origin == Origin::Ours);
    ours.map(|curve| curve.points.len()).max().filter(|&most| most > 1)?;
    let shown = plot.published.iter().map(|shown| from_table(plot, shown, published));
    Some(Section {
        id: format!("{}-{}", plot.id, number + 1),
        title: plot.title,
        machine: dated(machine, &measured, records),
        places: plot.places.iter().map(|&place| place.to_owned()).collect(),
        x: plot.x,
        y: plot.y,
        logarithmic: plot.logarithmic,
        curves: shown.chain(measured).collect(),
        note: plot.note,
    })
}

/// The machine, with the kernels and the days of the records that are drawn.
fn dated(machine: &str, curves: &[Curve], records: &[&Record]) -> String {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let sources: Vec<&str> = points.map(|point| &*point.source).collect();
    let drawn = records.iter().filter(|record| sources.contains(&&*record.name));
    let mut days: Vec<&str> = drawn.map(|record| &*record.date).collect();
    days.sort_unstable();
    days.dedup();
    format!("{machine}; records of {}", days.join(", "))
}

/// The rows that a pick takes, by place.
fn measured(plot: &Plot, pick: &Pick, rows: &[(&Row, &Record)]) -> Option<Curve> {
    let mut points: Vec<Point> = Vec::new();
    for (row, record) in rows.iter().filter(|(row, _)| pick.takes(row)) {
        let place = (plot.place)(row);
        let Some(at) = plot.places.iter().position(|name| Some(*name) == place.as_deref()) else {
            continue;
        };
        let end = |end: &str| row.number(&format!("{}{end}", plot.field)).map(plot.turn);
        let Some(value) = row.number(plot.field).map(plot.turn) else { continue };
        let point =
            Point { at, value, spread: end("_min").zip(end("_max")), source: record.name.clone() };
        match points.iter_mut().find(|point| point.at == at) {
            // Rows differ in something that the pick does not name: the newer record's is drawn.
            Some(there) if there.source <= point.source => *there = point,
            Some(_) => {}
            None => points.push(point),
        }
    }
    points.sort_by_key(|point| point.at);
    let curve = Curve { name: pick.name.to_owned(), origin: pick.origin, points };
    (!curve.points.is_empty()).then_some(curve)
}

fn from_table(plot: &Plot, shown: &Shown, published: &Published) -> Curve {
    let points = shown.rows.iter().filter_map(|(row, place)| {
        let at = plot.places.iter().position(|name| name == place)?;
        let value = (shown.turn)(published.get(shown.table, row, shown.column)?);
        Some(Point { at, value, spread: None, source: format!("table {}", shown.table) })
    });
    let points = points.collect();
    Curve { name: shown.name.to_owned(), origin: Origin::Published, points }
}

/// The fields of the rows of the newest record of each study that has one, by the study's name.
#[cfg(test)]
pub(crate) fn newest_fields() -> std::collections::BTreeMap<String, Vec<String>> {
    let mut studies = std::collections::BTreeMap::<_, Vec<Record>>::new();
    for record in kept::own().expect("they are part of the repository") {
        studies.entry(record.study.clone()).or_default().push(record);
    }
    let fields = |records: Vec<Record>| {
        let records: Vec<&Record> = records.iter().collect();
        let newest = kept::newest(&records).into_iter().max_by_key(|(_, record)| &record.date);
        newest.map_or_else(Vec::new, |(row, _)| {
            row.fields().map(|(name, _)| name.to_owned()).collect()
        })
    };
    studies.into_iter().map(|(study, records)| (study, fields(records))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a record has the share of the peak that a curve is about, if it is about one.
    fn is_recorded(records: &[Record], plot: &Plot, pick: &plots::Pick) -> bool {
        let mut rows =
            records.iter().filter(|record| record.is_of(plot)).flat_map(|record| &record.rows);
        let share = pick.wants.iter().find(|(field, _)| *field == "limit_percent");
        share.is_none_or(|&(field, share)| {
            rows.any(|row| row.get(field).as_u64() == share.parse().ok())
        })
    }

    /// A pick that no record answers to, or a table that is not in the file, is a curve that nobody
    /// would miss.
    #[test]
    fn every_curve_of_every_chart_has_points() {
        let records = kept::own().unwrap();
        let published = Published::read().unwrap();
        let sections = sections(&records, &published);
        // A study that was never recorded has no chart yet.
        let recorded = |plot: &&Plot| records.iter().any(|record| record.is_of(plot));
        for plot in PLOTS.iter().filter(recorded) {
            let mine = sections.iter().filter(|section| section.title == plot.title);
            let drawn: Vec<&str> =
                mine.flat_map(|section| &section.curves).map(|curve| &*curve.name).collect();
            for pick in plot.picks.iter().filter(|pick| is_recorded(&records, plot, pick)) {
                assert!(drawn.contains(&pick.name), "{}: {} is empty", plot.id, pick.name);
            }
            for shown in plot.published {
                let curve = from_table(plot, shown, &published);
                assert!(!curve.points.is_empty(), "{}: {} is empty", plot.id, shown.name);
            }
        }
    }

    /// Rows of programs say nothing of the way. Those of one must not take the place of others.
    #[test]
    fn programs_are_drawn_apart_by_their_way() {
        let records = kept::own().unwrap();
        let closed = |record: &&Record| record.command.starts_with("RAMFOLD_PATH=closed");
        let (closed, others): (Vec<&Record>, Vec<&Record>) =
            records.iter().filter(|record| record.study == "run").partition(closed);
        assert!(!closed.is_empty() && !others.is_empty());
        assert!(closed.iter().all(|record| record.charted() == "run, closed"));
        assert!(others.iter().all(|record| record.charted() == "run"));
    }

    /// The chart in the README is drawn from the records that it names, and from nothing else.
    #[test]
    fn the_chart_of_the_readme_can_be_drawn_again() {
        const CHART: &str = include_str!("../../../docs/teardown.svg");
        let mut records = kept::own().unwrap();
        records.retain(|record| CHART.contains(&record.name));
        assert!(!records.is_empty(), "it names its records");
        let sections = sections(&records, &Published::read().unwrap());
        let drawn = sections.iter().find(|section| section.id == "teardown-size-1").unwrap();
        let drawn = alone::file(drawn).unwrap();
        assert!(drawn == CHART, "lab report draws another; copy teardown-size-1.svg to docs");
    }

    #[test]
    fn the_page_is_small_and_has_a_mark_for_each_row() {
        let sections = sections(&kept::own().unwrap(), &Published::read().unwrap());
        let html = page::page(&sections).unwrap();
        assert!(html.len() < 2 << 20, "{} bytes", html.len());
        for part in html.split("<section").skip(1) {
            let (marks, rows) = (part.matches("<circle").count(), part.matches("<tr><td>").count());
            assert!(marks == rows && marks > 0, "{marks} marks, {rows} rows: {}", &part[..80]);
        }
    }
}
