//! Study `run`: whole programs, plain, under `ramfold run`, and in the kernel's groups.
//!
//! ```text
//!   peak      the job, plain, once for every run                the median of their peaks
//!   estimate  with --estimate: what its pages would take in a dense store, near the peak
//!   probe     the job in a group with swap on zram, until group and store have our limit together
//!   for every run and job, one after the other:
//!     plain         the job
//!     ramfold       under `ramfold run --limit`, for every share of the peak and density
//!     kernel-zram   in the group that the probes found
//!     in-bound      with --bounds: `ramfold run` in a group that may have no more than its bound
//!     plain-bound   the job in the same group
//! ```
//!
//! Memory is what a memory cgroup of version 1 around the program is charged without the cache of
//! files, looked at every 20 ms; with `ramfold run`, its store, tables and stacks are in it. The
//! bound is limit + 1/16 + 16 MiB. A group of that size has no swap, and room for the page tables
//! that were measured.
//!
//! Time is the program's, without what prepares its input. `same` says whether the job's line is
//! that of the plain job; it is null where the job did not end by itself. Rows are medians over the
//! runs, with minimum and maximum. Ratios are taken within each run.
//!
//! These figures do not show programs that run for hours, or more than two CPUs.

use crate::frame::{Lab, Report, Study, note, tell_if_long};
use crate::ground::LabError;
use crate::rows::{Field, Format, fields};
use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args, FromArgMatches};
use std::path::PathBuf;
use std::time::Instant;

mod balance;
mod bench;
mod cases;
mod compare;
mod density;
mod jobs;
mod kernels;
mod line;
mod program;
pub(crate) mod swapped;
mod trial;

pub(super) use program::INSIDE;

use bench::{Bench, Density};
use cases::{Asked, Case};
use jobs::{JOBS, Job};

pub(super) const STUDY: Study = Study {
    name: "run",
    about: "Programs as they are in less memory, beside the kernel's swap on zram",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: true,
    run,
};

/// Options of `lab run`.
#[derive(Args, Debug)]
struct Options {
    /// The jobs [default: all]
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(JOBS.map(|job| job.name)))]
    job: Vec<String>,
    /// Limits, as shares of a job's peak [default: 1.25,1.05,0.7,0.5; with --quick 0.7]
    #[arg(long, value_name = "SHARE[,SHARE]", value_delimiter = ',', value_parser = cases::percent)]
    limit: Vec<u32>,
    /// How densely cold pages are compressed: fast takes lz4, dense takes zstd, and balanced takes
    /// lz4 first and pagelz for pages that stay out
    #[arg(long, value_name = "HOW[,HOW]", value_delimiter = ',', default_value = "fast")]
    density: Vec<Density>,
    /// Also run each job in a group that may have no more than limit + 1/16 + 16 MiB
    #[arg(long)]
    bounds: bool,
    /// Also stop each job near its peak, and estimate how many times less its pages would take
    #[arg(long)]
    estimate: bool,
    /// The command that is measured [default: ramfold, in the directory of this program]
    #[arg(long, value_name = "FILE")]
    ramfold: Option<PathBuf>,
}

const PERCENTS: [u32; 4] = [125, 105, 70, 50];
const QUICK_PERCENTS: [u32; 1] = [70];

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let mut notes = Vec::new();
    lab.no_pages(&mut notes);
    let jobs = options.jobs(lab.quick(), &mut notes)?;
    let asked = options.asked(lab.quick());
    let bench = Bench::new(options.ramfold.clone(), lab)?;
    let (bases, mut runs) = bench.bases(&jobs)?;
    for base in bases.iter().filter(|_| options.estimate) {
        let begun = Instant::now();
        runs.extend(density::row(&bench, base, &mut notes)?);
        tell_if_long(&format!("{}, to estimate R", base.job.name), begun.elapsed());
    }
    let peer = lab.kernel_peer(&mut notes);
    let (cases, probes) = cases::of_all(&bases, &asked, peer.as_ref(), &bench, &mut notes)?;
    runs.extend(probes);
    let measure = |case: &Case<'_>, run| case.measure(&bench, run, &mut notes);
    runs.extend(lab.interleaved(&cases, Case::name, measure)?);
    compare::ratios(&mut runs);
    let rows = fields::medians(&FIELDS, &runs);
    compare::remarks(&rows, &mut notes);
    Ok(Report { corpus: None, rows, runs, notes })
}

impl Options {
    /// The jobs that are asked for, with a note for each whose programs are not there. Those that
    /// have a short form, where a short form is wanted.
    fn jobs(&self, quick: bool, notes: &mut Vec<String>) -> Result<Vec<&'static Job>, LabError> {
        let wanted = |job: &&Job| match &self.job[..] {
            [] => !quick || job.quick_rows.is_some(),
            names => names.iter().any(|name| name == job.name),
        };
        let (mut there, mut missing) = (Vec::new(), None);
        for job in JOBS.iter().filter(wanted) {
            match job.is_there() {
                Ok(()) => there.push(job),
                Err(error) => {
                    note(notes, error.to_string());
                    missing = Some(error);
                }
            }
        }
        missing.filter(|_| there.is_empty()).map_or(Ok(there), Err)
    }

    fn asked(&self, quick: bool) -> Asked {
        let default = if quick { &QUICK_PERCENTS[..] } else { &PERCENTS };
        let percents = if self.limit.is_empty() { default } else { &self.limit };
        let (densities, bounds) = (self.density.clone(), self.bounds);
        Asked { percents: percents.to_vec(), densities, bounds }
    }
}

const FIELDS: [Field; 26] = [
    Field::key("job").shown("job", Format::Plain),
    Field::key("form").shown("form", Format::Plain),
    Field::key("limit_percent").shown("limit %", Format::Plain),
    Field::key("density"),
    Field::key("algorithm").shown("algorithm", Format::Plain),
    Field::key("probe"),
    Field::measured("ratio").shown("R", Format::Fixed(2)),
    Field::measured("wall_s").shown("s", Format::Fixed(2)),
    Field::measured("time_vs_plain").shown("x plain", Format::Fixed(2)),
    Field::measured("time_vs_kernel").shown("x kernel", Format::Fixed(2)),
    Field::measured("cpu_s").shown("CPU s", Format::Fixed(2)),
    Field::measured("peak_bytes").shown("MiB", Format::Mib),
    Field::measured("limit_bytes").shown("limit MiB", Format::Mib),
    Field::measured("peak_of_limit").shown("of limit %", Format::Percent),
    Field::measured("over_bound_bytes").shown("over MiB", Format::Mib),
    Field::measured("kernel_bytes"),
    Field::measured("looks"),
    Field::measured("group_limit_bytes").shown("group MiB", Format::Mib),
    Field::measured("store_bytes"),
    Field::measured("pages_out").shown("pages out", Format::Plain),
    Field::measured("pages_in").shown("in", Format::Plain),
    Field::measured("faults"),
    Field::measured("stall_s").shown("stall s", Format::Fixed(1)),
    Field::measured("killed").shown("killed", Format::Plain),
    Field::measured("late").shown("late", Format::Plain),
    Field::measured("same").always(1.0),
];
