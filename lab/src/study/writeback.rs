//! Study `writeback`: which pages a compressed cache in front of a disk should let go, by hit
//! rate.
//!
//! ```text
//!   for every run (a seed of its own), --trace and --in-use:
//!     ours:        every access through a zswap with each --order, pages verified, a disk in RAM
//!     simulated:   fifo, lru, s3-fifo (pages stay when hit), kernel-order, optimum
//! ```
//!
//! The cache has a quarter of the trace's pages. A hit is a load served from memory; a load takes
//! the page out, and the caller stores it again: at once, or when it has loaded `in_use_pages`
//! others since. A simulated cache keeps what is in use, and has room for so many pages more:
//! together they hold as many pages as ours and its caller. `accesses` are those that reach the
//! cache.
//!
//! `vs_reference_points` is the hit rate less that of the simulated S3-FIFO, in percentage points.
//! `scan_loss` is the part of its hits that the hot set loses while all pages, four times the
//! cache, are scanned, and for as many accesses of its own again; 0 when it loses none.
//!
//! Rows are medians over the runs, with minimum and maximum. Hit rates do not depend on the
//! machine: the same seed gives the same ones.
//!
//! These figures do not show other patterns of access than those it replays.

use crate::frame::{Lab, Report, Study, note};
use crate::ground::LabError;
use crate::pages::Corpus;
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};
use policies::Policy;
use real::{Measured, Size};
use trace::{Access, PAGES_PER_CACHED, Trace, Window};
use zswap::EvictionOrder;

mod policies;
mod real;
mod trace;

pub(super) const STUDY: Study = Study {
    name: "writeback",
    about: "Hit rates of eviction orders, ours through the real store, and the optimum",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab writeback`.
#[derive(Args, Debug)]
struct Options {
    /// The order of accesses
    #[arg(
        long,
        value_name = "TRACE[,TRACE]",
        value_delimiter = ',',
        default_value = "zipf,scan,shift,mixed"
    )]
    trace: Vec<Trace>,
    /// Eviction orders of ours to run
    #[arg(long, value_name = "ORDER[,ORDER]", value_delimiter = ',',
          default_value = "s3-fifo,kernel-order", value_parser = order)]
    order: Vec<EvictionOrder>,
    /// Pages of the cache; a trace has four times as many [default: 8192]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=1 << 22))]
    pages: Option<u32>,
    /// Pages that the caller has in use, in percent of the cache's pages: it stores a page again
    /// after it has loaded so many others
    #[arg(long, value_name = "PERCENT[,PERCENT]", value_delimiter = ',', default_value = "0,50",
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    in_use: Vec<u32>,
    /// Accesses for each page of the trace
    #[arg(long, value_name = "N", default_value = "16",
          value_parser = clap::value_parser!(u32).range(1..))]
    accesses: u32,
    /// Seed of the first run; the next ones count up from it
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

const PAGES: u32 = 8192;
const QUICK_PAGES: u32 = 1024;
/// Bytes of the synthetic mix. Pages of a trace that differ only in a stamp do no harm.
const SYNTHETIC_BYTES: u64 = 16 << 20;
/// Ours in rows.
const STORE: &str = "zswap";
const SIMULATED: &str = "simulated";

fn order(name: &str) -> Result<EvictionOrder, String> {
    let found = EvictionOrder::ALL.into_iter().find(|order| order.name() == name);
    found.ok_or_else(|| format!("no order {name}; there are s3-fifo and kernel-order"))
}

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let corpus = Corpus::open(lab.corpus_file(), SYNTHETIC_BYTES)?;
    let default = if lab.quick() { QUICK_PAGES } else { PAGES };
    let cached = options.pages.unwrap_or(default) as usize;
    let in_use = |percent: &u32| cached * *percent as usize / 100;
    let of_trace = |&trace| options.in_use.iter().map(move |percent| (trace, in_use(percent)));
    let cases: Vec<(Trace, usize)> = options.trace.iter().flat_map(of_trace).collect();
    let name =
        |(trace, in_use): &(Trace, usize)| format!("{}, {in_use} pages in use", trace.name());
    let runs = lab.interleaved(&cases, name, |&(trace, in_use), run| {
        Case::new(trace, Size::new(cached, in_use), &options, run).measure(&options, &corpus)
    })?;
    let mut notes = Vec::new();
    let rows = fields::medians(&FIELDS, &runs);
    judge(&rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

impl Size {
    fn new(cached: usize, in_use: usize) -> Size {
        Size { pages: cached * PAGES_PER_CACHED, cached, in_use }
    }

    /// Pages that ours and its caller hold together, and a simulated cache alone.
    fn held(self) -> usize {
        self.cached + self.in_use
    }
}

/// One trace of one run.
struct Case {
    trace: Trace,
    size: Size,
    run: u32,
    seed: u64,
    accesses: Vec<Access>,
}

impl Case {
    fn new(trace: Trace, size: Size, options: &Options, run: u32) -> Case {
        let (count, seed) = (options.accesses as usize * size.pages, options.seed + u64::from(run));
        let accesses = trace::loads(trace.accesses(size.cached, count, seed), size.in_use);
        Case { trace, size, run, seed, accesses }
    }

    fn measure(&self, options: &Options, corpus: &Corpus) -> Result<Vec<Row>, LabError> {
        let mut runs = Vec::new();
        let pages: Vec<u32> = self.accesses.iter().map(|access| access.page).collect();
        let simulated: Vec<(Policy, Vec<bool>)> = Policy::value_variants()
            .iter()
            .map(|&policy| (policy, policy.hits(self.size.held(), &pages)))
            .collect();
        let is_reference = |(policy, _): &&(Policy, Vec<bool>)| *policy == Policy::S3Fifo;
        let reference = simulated.iter().find(is_reference).map(|(_, hits)| rate(hits));
        // Turned by one from run to run, so that none is always the first.
        for turn in 0..options.order.len() {
            let order = options.order[(turn + self.run as usize) % options.order.len()];
            let ours = real::run(order, self.size, corpus, &self.accesses)?;
            let mut row = self.row(STORE, order.name(), &ours.hits, reference);
            add_costs(&mut row, &ours);
            runs.push(row);
        }
        for (policy, hits) in &simulated {
            let mut row = self.row(SIMULATED, policy.name(), hits, reference);
            let missed = hits.iter().filter(|&&hit| !hit).count();
            // A page that came in and is not there in the end went out.
            row.set("writes_back", missed.saturating_sub(self.size.held()));
            runs.push(row);
        }
        Ok(runs)
    }

    fn row(&self, store: &str, policy: &str, hits: &[bool], reference: Option<f64>) -> Row {
        let mut row = Row::default();
        row.set("trace", self.trace.name()).set("store", store).set("policy", policy);
        row.set("cache_pages", self.size.cached).set("in_use_pages", self.size.in_use);
        row.set("pages", self.size.pages);
        row.set("run", self.run).set("seed", self.seed).set("accesses", hits.len());
        let points = |reference| (rate(hits) - reference) * 100.0;
        row.set("hit_rate", rate(hits)).set("vs_reference_points", reference.map(points));
        row.set("scan_loss", scan_loss(&self.accesses, hits));
        row
    }
}

fn add_costs(row: &mut Row, ours: &Measured) {
    row.set("writes_back", ours.writes_back);
    row.set("load_ns", ours.load_ns).set("store_ns", ours.store_ns);
    row.set("write_back_ns", ours.write_back_ns);
    row.set("access_ns", ours.load_ns + ours.store_ns + ours.write_back_ns);
}

fn rate(hits: &[bool]) -> f64 {
    hits.iter().filter(|&&hit| hit).count() as f64 / hits.len().max(1) as f64
}

/// The part of its hits that the hot set loses by scans; `None` in a trace without them.
fn scan_loss(accesses: &[Access], hits: &[bool]) -> Option<f64> {
    let rate_in = |window: Window| {
        let of_window = accesses.iter().zip(hits).filter(|(access, _)| access.window == window);
        rate(&of_window.map(|(_, &hit)| hit).collect::<Vec<bool>>())
    };
    let before = rate_in(Window::Before);
    (before > 0.0).then(|| (1.0 - rate_in(Window::After) / before).max(0.0))
}

/// How far ours may be from the reference, in percentage points.
const POINTS_MAX: f64 = 2.0;
/// The most that a scan may cost the hot set.
const SCAN_LOSS_MAX: f64 = 0.10;

/// Says of ours what was promised: near the reference, and little lost by scans.
fn judge(rows: &[Row], notes: &mut Vec<String>) {
    let ours =
        |row: &&Row| row.is("store", STORE) && row.is("policy", EvictionOrder::S3Fifo.name());
    for row in rows.iter().filter(ours) {
        let in_use = row.get("in_use_pages");
        let trace = row.get("trace").as_str().unwrap_or_default();
        let trace = format!("{trace}, {in_use} pages in use");
        if let Some(points) = row.number("vs_reference_points") {
            let kept = if points >= -POINTS_MAX { "kept" } else { "NOT kept" };
            note(
                notes,
                format!(
                    "{trace}: ours less the S3-FIFO reference = {points:+.2} points (at least \
                     -{POINTS_MAX}: {kept})"
                ),
            );
        }
        if let Some(loss) = row.number("scan_loss") {
            let kept = if loss < SCAN_LOSS_MAX { "kept" } else { "NOT kept" };
            let (loss, most) = (loss * 100.0, SCAN_LOSS_MAX * 100.0);
            note(
                notes,
                format!(
                    "{trace}: the hot set loses {loss:.2} % of its hits (less than {most}: {kept})"
                ),
            );
        }
    }
}

const FIELDS: [Field; 16] = [
    Field::key("trace").shown("trace", Format::Plain),
    Field::key("in_use_pages").shown("in use", Format::Plain),
    Field::key("store").shown("store", Format::Plain),
    Field::key("policy").shown("policy", Format::Plain),
    Field::key("cache_pages"),
    Field::key("pages"),
    Field::measured("accesses"),
    Field::measured("hit_rate").shown("hits %", Format::Percent),
    Field::measured("vs_reference_points").shown("points", Format::Fixed(2)),
    Field::measured("scan_loss").shown("scan loss %", Format::Percent),
    Field::measured("writes_back").shown("writes back", Format::Fixed(0)),
    Field::measured("load_ns").shown("load ns", Format::Fixed(0)),
    Field::measured("store_ns").shown("store ns", Format::Fixed(0)),
    Field::measured("write_back_ns").shown("write-back ns", Format::Fixed(0)),
    Field::measured("access_ns").shown("ns per access", Format::Fixed(0)),
    Field::of_run("seed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scans_loss_is_the_part_of_the_hits_that_went() {
        let at = |window| Access { page: 0, window };
        let accesses = [Window::Before, Window::Before, Window::None, Window::After, Window::After];
        let accesses = accesses.map(at);
        assert_eq!(scan_loss(&accesses, &[true, true, false, true, false]), Some(0.5));
        assert_eq!(scan_loss(&accesses, &[true, false, true, true, true]), Some(0.0));
        assert_eq!(scan_loss(&accesses[2..3], &[true]), None, "no window before");
    }

    #[test]
    fn sentences_say_whether_what_was_promised_is_kept() {
        let mut row = Row::default();
        row.set("trace", "scan").set("store", STORE).set("policy", "s3-fifo");
        row.set("in_use_pages", 0).set("vs_reference_points", -2.5).set("scan_loss", 0.05);
        let mut notes = Vec::new();
        judge(&[row], &mut notes);
        assert_eq!(
            notes,
            [
                "scan, 0 pages in use: ours less the S3-FIFO reference = -2.50 points (at least \
                 -2: NOT kept)",
                "scan, 0 pages in use: the hot set loses 5.00 % of its hits (less than 10: kept)"
            ]
        );
    }
}
