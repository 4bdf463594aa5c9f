//! Rows for more threads than the machine has cores: the model, calibrated with the measured rates
//! of one and two threads.
//!
//! ```text
//!   one thread            work + hold (+ two lines) = ns per operation; half of it is held
//!   two threads, class    apart                     how much longer that takes beside another
//!                         of the split ceiling      the hand-over of the common line
//!                         of the mix                the hand-over of a class lock
//!   two threads, pool                               the hand-over of the pool's lock
//!   two threads, hierarchical                       the hand-over of its line
//! ```
//!
//! Each is the number that makes the model's rate at two threads the measured one, those above it
//! given. That half of an operation is under the lock is assumed, not measured. A line's own time
//! is half of what the hierarchical design takes longer than the class design at one thread. What
//! two threads apart cost each other (caches, memory) is taken to be the same for any number. Where
//! even free hand-overs leave the model too slow, or none are dear enough, the error at two threads
//! says so: it is in a note for every mix.
//!
//! Invariant: a simulated row says so, has no minimum and maximum, and is compared with simulated
//! rows alone.

use super::model::{Costs, Model};
use super::trial::Mix;
use super::{compare, note};
use crate::row::{Row, grouped};
use serde_json::Value;
use zsmalloc::LockDesign;

/// The part of an operation that is under the lock.
const HELD: f64 = 0.5;
const HAND_OVER_MAX_NS: f64 = 2000.0;
/// Halvings of that: to a tenth of a nanosecond.
const HALVINGS: u32 = 15;
const NS_PER_S: f64 = 1e9;

/// Adds a row for every measured one of more than `cores` threads, and a note for every mix.
pub(super) fn beyond(cores: u32, weights: &[f64], rows: &mut Vec<Row>, notes: &mut Vec<String>) {
    let too_many = |row: &&Row| row.number("threads").is_some_and(|n| n > f64::from(cores));
    let wanted: Vec<Row> = rows.iter().filter(too_many).cloned().collect();
    let mut simulated = Vec::new();
    for alike in grouped(&wanted, &["mix", "release"]) {
        let calibrated = Calibration::new(rows, &alike[0], weights).filter(|_| cores > 1);
        let Some(calibration) = calibrated else {
            let needs =
                "simulated rows need two cores, and the class design at one and two threads";
            note(notes, needs.to_owned());
            continue;
        };
        note(notes, calibration.describe(&alike[0]));
        simulated.extend(alike.iter().filter_map(|like| calibration.row(like)));
    }
    compare::speedups(&mut simulated);
    rows.extend(simulated);
}

/// A design's model, and how far it is off at two threads, as a fraction.
struct Fitted<'a> {
    model: Model<'a>,
    error: f64,
}

/// The models of the designs under one mix, fitted to this run.
struct Calibration<'a> {
    designs: Vec<Fitted<'a>>,
    /// How much longer an operation takes beside another thread that shares nothing with it.
    stretch: f64,
}

impl<'a> Calibration<'a> {
    /// Fits what was measured like `like`; the class design must be.
    fn new(rows: &[Row], like: &Row, weights: &'a [f64]) -> Option<Calibration<'a>> {
        let mix = *Mix::ALL.iter().find(|mix| like.is("mix", mix.name()))?;
        let measured = |design, threads, field| measured(rows, design, like, threads, field);
        let rate = |design, threads| measured(design, threads, "ops_per_s");
        let apart = measured(LockDesign::Class, 2.0, "apart_ops_per_s")?;
        let stretch = (2.0 * rate(LockDesign::Class, 1.0)? / apart).max(1.0);
        let ns = |rate: f64| stretch * NS_PER_S / rate;
        let alone = ns(rate(LockDesign::Class, 1.0)?);
        let model = |design, alone: f64, costs| {
            let costs = Costs { work: alone * (1.0 - HELD), hold: alone * HELD, ..costs };
            Model { design, mix, weights, costs, split: false }
        };
        let split = Model { split: true, ..model(LockDesign::Class, alone, Costs::default()) };
        let ceiling = measured(LockDesign::Class, 2.0, "split_ceiling_ops_per_s")?;
        let common = fit(split, ceiling, |costs| &mut costs.common_hand_over);
        let class = Model { split: false, ..common.model };
        let class = fit(class, rate(LockDesign::Class, 2.0)?, |costs| &mut costs.lock_hand_over);
        let costs = class.model.costs;
        let mut designs = vec![class];
        if let Some((one, two)) = rate(LockDesign::Pool, 1.0).zip(rate(LockDesign::Pool, 2.0)) {
            let pool = model(LockDesign::Pool, ns(one), costs);
            designs.push(fit(pool, two, |costs| &mut costs.lock_hand_over));
        }
        let hierarchical = LockDesign::Hierarchical;
        if let Some((one, two)) = rate(hierarchical, 1.0).zip(rate(hierarchical, 2.0)) {
            let line = (ns(one) - alone).max(0.0) / 2.0;
            let alone = ns(one) - 2.0 * line;
            let hierarchical = model(hierarchical, alone, Costs { line, ..costs });
            designs.push(fit(hierarchical, two, |costs| &mut costs.line_hand_over));
        }
        Some(Calibration { designs, stretch })
    }

    fn row(&self, like: &Row) -> Option<Row> {
        let of = |fitted: &&Fitted| like.is("design", fitted.model.design.name());
        let model = &self.designs.iter().find(of)?.model;
        let threads = like.number("threads")?;
        let rate = model.ops_per_s(threads as usize);
        let mut row = Row::default();
        for field in super::KEY {
            row.set(field, like.get(field).clone());
        }
        row.set("simulated", true)
            .set("runs", Value::Null)
            .set("ops_per_s", rate)
            .set("ns_per_op", threads * NS_PER_S / rate)
            .set("speedup_vs_hierarchical", Value::Null)
            .set("split_ceiling_ops_per_s", Value::Null)
            .set("apart_ops_per_s", Value::Null)
            .set("instructions_per_op", Value::Null);
        Some(row)
    }

    fn describe(&self, like: &Row) -> String {
        let text = |field| like.get(field).as_str().unwrap_or("").to_owned();
        let one = |fitted: &Fitted| {
            let Costs { common_hand_over, lock_hand_over, line_hand_over, .. } = fitted.model.costs;
            let (design, percent) = (fitted.model.design.name(), fitted.error * 100.0);
            format!(
                "; {design} {common_hand_over:.0}, {lock_hand_over:.0}, {line_hand_over:.0} ns, \
                 {percent:+.1} %"
            )
        };
        let each: String = self.designs.iter().map(one).collect();
        let (mix, release) = (text("mix"), text("release"));
        format!(
            "simulated {mix}, release {release}: stretched {:.2} times; hand-over of common line, \
             lock, line, and how far the model is off at two threads{each}",
            self.stretch
        )
    }
}

/// Sets one hand-over so that two cores do `target` operations a second. More of it never makes
/// them faster, so halving an interval finds it.
fn fit<'a>(
    mut model: Model<'a>,
    target: f64,
    hand_over: impl Fn(&mut Costs) -> &mut f64,
) -> Fitted<'a> {
    let (mut low, mut high) = (0.0, HAND_OVER_MAX_NS);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        *hand_over(&mut model.costs) = middle;
        if model.ops_per_s(2) > target { low = middle } else { high = middle }
    }
    *hand_over(&mut model.costs) = low;
    let error = model.ops_per_s(2) / target - 1.0;
    Fitted { model, error }
}

/// The measured median of `design`, all else as in `like`.
fn measured(
    rows: &[Row],
    design: LockDesign,
    like: &Row,
    threads: f64,
    field: &str,
) -> Option<f64> {
    let found = rows.iter().find(|row| {
        let same = ["mix", "release"].iter().all(|field| row.get(field) == like.get(field));
        same && row.is("design", design.name())
            && row.number("threads") == Some(threads)
            && *row.get("simulated") == false
    });
    found?.number(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured_row(design: &str, threads: u32, rate: f64) -> Row {
        let mut row = Row::default();
        row.set("design", design).set("mix", "free").set("release", "outside");
        row.set("threads", threads).set("simulated", false).set("ops_per_s", rate);
        row
    }

    fn rows() -> Vec<Row> {
        let mut rows = vec![
            measured_row("hierarchical", 1, 9e6),
            measured_row("class", 1, 10e6),
            measured_row("hierarchical", 2, 9.5e6),
            measured_row("class", 2, 17e6),
            measured_row("hierarchical", 8, 9e6),
            measured_row("class", 8, 16e6),
        ];
        rows[3].set("split_ceiling_ops_per_s", 18e6).set("apart_ops_per_s", 19e6);
        rows
    }

    #[test]
    fn what_is_beyond_the_cores_is_simulated_and_what_is_not_is_not() {
        let (mut all, mut notes) = (rows(), Vec::new());
        beyond(2, &[0.01; 100], &mut all, &mut notes);
        assert_eq!(all[..6], rows(), "measured rows stay as they were");
        let added = &all[6..];
        assert_eq!(added.len(), 2);
        assert!(added.iter().all(|row| *row.get("simulated") == true && *row.get("threads") == 8));
        assert!(added[1].number("ops_per_s") > Some(3.0 * 10e6), "{added:?}");
        assert!(added[1].number("speedup_vs_hierarchical") > Some(3.0), "{added:?}");
        assert_eq!(notes.len(), 1);
        let errors: Vec<f64> = notes[0]
            .split(" ns, ")
            .skip(1)
            .filter_map(|part| part.split(' ').next()?.parse().ok())
            .collect();
        assert!(errors.len() == 2 && errors.iter().all(|off| off.abs() < 1.0), "{notes:?}");
    }

    #[test]
    fn a_rate_no_hand_over_explains_shows_as_an_error() {
        let (mut all, mut notes) = (rows(), Vec::new());
        all[3].set("ops_per_s", 40e6);
        beyond(4, &[0.01; 100], &mut all, &mut notes);
        assert!(notes[0].contains(" ns, -5"), "two threads four times as fast as one: {notes:?}");
    }

    #[test]
    fn without_one_and_two_threads_there_is_no_model() {
        let (mut all, mut notes) = (rows().split_off(2), Vec::new());
        beyond(2, &[1.0], &mut all, &mut notes);
        assert_eq!((all.len(), notes.len()), (4, 1));
        assert!(notes[0].starts_with("simulated rows need"), "{notes:?}");
    }
}
