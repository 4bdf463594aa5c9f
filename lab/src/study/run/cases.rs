//! The cases of a run: each job plain, under `ramfold run`, and in the kernel's groups.
//!
//! Invariant: a case has the keys that its rows are told apart by. What a job's plain run took is
//! never a case's own.

use super::balance::Probe;
use super::bench::{Base, Bench, Density, LIMIT_MIN};
use super::kernels::Kernel;
use crate::frame::note;
use crate::ground::{LabError, size};
use crate::kernel::KernelZram;
use crate::rows::Row;

/// The limit may be exceeded by so much: a part of it, and a little.
const OVER_DIVISOR: u64 = 16;
const OVER_BYTES: u64 = 16 << 20; // 16 MiB
/// From this part of the peak on nothing has to leave.
const WHOLE: u32 = 100;

/// What is to be measured of every job.
pub(super) struct Asked {
    pub(super) percents: Vec<u32>,
    pub(super) densities: Vec<Density>,
    /// Whether jobs also run in groups of the size of the bound.
    pub(super) bounds: bool,
}

/// One thing to be measured, again in every run.
pub(super) struct Case<'a> {
    base: &'a Base,
    form: Form<'a>,
}

enum Form<'a> {
    Plain,
    Ours { percent: u32, density: Density, bounds: bool },
    Kernel { percent: u32, kernel: Kernel<'a>, probe: Probe },
}

/// A share of the peak, as hundredths.
pub(super) fn percent(text: &str) -> Result<u32, String> {
    let share: f64 = text.parse().map_err(|_| "a number is wanted, as in 0.7".to_owned())?;
    let percent = (share * 100.0).round();
    let is_exact = (share * 100.0 - percent).abs() < 1e-6;
    let right = is_exact && (1.0..=1000.0).contains(&percent);
    right.then_some(percent as u32).ok_or_else(|| "0.01 to 10, in hundredths".to_owned())
}

/// The most that a program with a limit may take.
fn bound(limit: u64) -> u64 {
    limit + limit / OVER_DIVISOR + OVER_BYTES
}

/// All cases, job after job; and the rows of the runs that found the kernel's groups.
pub(super) fn of_all<'a>(
    bases: &'a [Base],
    asked: &Asked,
    peer: Option<&'a KernelZram>,
    bench: &Bench<'_>,
    notes: &mut Vec<String>,
) -> Result<(Vec<Case<'a>>, Vec<Row>), LabError> {
    let kernels = kernels(asked, peer, notes)?;
    let (mut cases, mut probes) = (Vec::new(), Vec::new());
    for base in bases {
        cases.push(Case { base, form: Form::Plain });
        for &percent in &asked.percents {
            if base.limit(percent) < LIMIT_MIN {
                let (job, least) = (base.job.name, size::mib(LIMIT_MIN));
                note(notes, format!("{job} at {percent} %: less than {least} MiB is no limit"));
                continue;
            }
            let bounds = asked.bounds && percent < WHOLE;
            let ours = |&density: &Density| Form::Ours { percent, density, bounds };
            cases.extend(asked.densities.iter().map(ours).map(|form| Case { base, form }));
            for &kernel in kernels.iter().filter(|_| percent < WHOLE) {
                let (probe, rows) = kernel.probe(bench, base, percent)?;
                probes.extend(rows);
                cases.push(Case { base, form: Form::Kernel { percent, kernel, probe } });
            }
        }
    }
    Ok((cases, probes))
}

/// The kernel's store with the algorithm of each density, as far as it has them.
fn kernels<'a>(
    asked: &Asked,
    peer: Option<&'a KernelZram>,
    notes: &mut Vec<String>,
) -> Result<Vec<Kernel<'a>>, LabError> {
    let mut kernels: Vec<Kernel<'a>> = Vec::new();
    for density in &asked.densities {
        let Some(peer) = peer else { continue };
        let kernel = Kernel::with(peer, density.first_algorithm(), notes)?;
        if !kernels.iter().any(|known| known.algorithm == kernel.algorithm) {
            kernels.push(kernel);
        }
    }
    Ok(kernels)
}

impl Case<'_> {
    pub(super) fn name(&self) -> String {
        let job = self.base.job.name;
        match self.form {
            Form::Plain => format!("{job}, plain"),
            Form::Ours { percent, density, .. } => {
                format!("{job} at {percent} %, {}", density.name())
            }
            Form::Kernel { percent, .. } => format!("{job} at {percent} %, the kernel"),
        }
    }

    /// The rows of one run.
    pub(super) fn measure(
        &self,
        bench: &Bench<'_>,
        run: u32,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Row>, LabError> {
        let base = self.base;
        match self.form {
            Form::Plain => {
                let mut row = base.row("plain", None, run);
                base.fill(&mut row, &bench.run(base, &[], None)?);
                Ok(vec![row])
            }
            Form::Ours { percent, density, bounds } => {
                let ours = Ours { base, percent, density, run };
                ours.measure(bench, bounds, notes)
            }
            Form::Kernel { percent, kernel, probe } => {
                Ok(vec![kernel.measure(bench, base, percent, probe.group_bytes, run)?])
            }
        }
    }
}

/// A job under `ramfold run`.
struct Ours<'a> {
    base: &'a Base,
    percent: u32,
    density: Density,
    run: u32,
}

impl Ours<'_> {
    /// By itself; and with `bounds` in a group that has its bound, where the plain job runs next.
    fn measure(
        &self,
        bench: &Bench<'_>,
        bounds: bool,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Row>, LabError> {
        let limit = self.base.limit(self.percent);
        let words = bench.words(limit, self.density);
        let trial = bench.run(self.base, &words, None)?;
        let mut row = self.row("ramfold");
        self.base.fill(&mut row, &trial);
        row.set("over_bound_bytes", trial.peak.bytes.saturating_sub(bound(limit)));
        row.set("peak_of_limit", trial.peak.bytes as f64 / limit as f64);
        if row.number("same") == Some(0.0) {
            let (name, said) = (self.base.job.name, &trial.said);
            let wrong = format!("{name} at {} % said \"{said}\"", self.percent);
            note(notes, format!("{wrong}: {}", trial.complaints));
        }
        let mut rows = vec![row];
        if bounds {
            // Page tables are the kernel's, and as many as they were a moment ago.
            let group = bound(limit) + trial.peak.kernel_bytes;
            for (form, words) in [("in-bound", &words[..]), ("plain-bound", &[])] {
                let mut row = self.row(form);
                self.base.fill(&mut row, &bench.run(self.base, words, Some(group))?);
                row.set("group_limit_bytes", group);
                rows.push(row);
            }
        }
        Ok(rows)
    }

    fn row(&self, form: &str) -> Row {
        let mut row = self.base.row(form, Some(self.percent), self.run);
        row.set("density", self.density.name())
            .set("algorithm", self.density.algorithms())
            .set("limit_bytes", self.base.limit(self.percent));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_hundredths() {
        let all = ["1.25", "1.05", "0.7", ".5", "1"].map(percent);
        assert_eq!(all, [125, 105, 70, 50, 100].map(Ok));
        for text in ["", "x", "0", "-0.5", "0.705", "11", "nan", "inf"] {
            assert!(percent(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn the_bound_is_a_sixteenth_and_16_mib_above_the_limit() {
        assert_eq!(bound(160 << 20), 186 << 20);
    }
}
