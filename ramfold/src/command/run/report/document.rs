//! A report as JSON: what ran, what it took at most, and a sample in each line.
//!
//! Invariant: bytes are integers. Names of figures are those of `ramfold stat --json`. Locks: none.

use std::time::Duration;

use serde_json::{Value, json};

use super::series::Sample;
use crate::command::run::tally::Tally;

/// What is said of the whole run.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) command: Vec<String>,
    pub(super) pid: u32,
    /// Seconds since 1970.
    pub(super) began: f64,
    pub(super) algorithm: String,
    pub(super) limit: u64,
    /// The time of the run until now.
    pub(super) at: Duration,
    pub(super) tally: Tally,
    /// How the program ended; `None` while it runs.
    pub(super) end: Option<String>,
}

/// The text of a report.
pub(super) fn text(facts: &Facts, samples: &[Sample]) -> String {
    let head = head(facts).to_string();
    let lines: Vec<String> = samples.iter().map(|sample| line(sample).to_string()).collect();
    let head = head.trim_end_matches('}');
    format!("{head},\n\"samples\":[\n{}\n]}}\n", lines.join(",\n"))
}

fn head(facts: &Facts) -> Value {
    json!({
        "command": facts.command,
        "pid": facts.pid,
        "began": facts.began,
        "seconds": facts.at.as_secs_f64(),
        "end": facts.end,
        "algorithm": facts.algorithm,
        "limit": facts.limit,
        "peak": facts.tally.peak,
        "unfolded_peak": facts.tally.unfolded,
    })
}

fn line(sample: &Sample) -> Value {
    let mut value = json!({"seconds": sample.at.as_secs_f64()});
    for (name, figure) in sample.moment.fields() {
        value[name] = figure.into();
    }
    value
}

/// A run of so many looks, of which the last is over the limit and waits.
#[cfg(test)]
pub(super) fn example(looks: u64) -> (Facts, Vec<Sample>) {
    use inside::board::RunCounts;

    use crate::command::run::moment::Moment;

    let facts = Facts {
        command: vec!["sort".into(), "a<b>&\"c\"".into()],
        pid: 7,
        began: 1.5,
        algorithm: "lz4".into(),
        limit: 64 << 20,
        at: Duration::from_millis(looks * 100),
        tally: Tally { peak: 60 << 20, unfolded: 100 << 20, ..Tally::default() },
        end: Some("exit 0".into()),
    };
    let sample = |number: u64| {
        let counts = RunCounts {
            pages_out: number * 1000,
            stored_faults: number * 100,
            stall_ns: number * 50_000_000,
            ..RunCounts::default()
        };
        let (limit, resident) = (64 << 20, (40 + number * 4) << 20);
        let (held, unfolded) = (number << 20, resident + ((number * 9) << 20));
        let moment = Moment { limit, resident, held, unfolded, counts, ..Moment::default() };
        Sample { at: Duration::from_millis(number * 100), moment }
    };
    (facts, (1..=looks).map(sample).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_document_with_a_sample_in_each_line() {
        let (facts, samples) = example(3);
        let text = text(&facts, &samples);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!(text.lines().count(), 3 + 3, "{text}");
        assert_eq!(value["command"], json!(["sort", "a<b>&\"c\""]));
        assert_eq!((&value["end"], &value["limit"]), (&json!("exit 0"), &json!(64 << 20)));
        let last = &value["samples"][2];
        assert_eq!(last["seconds"], json!(0.3));
        assert_eq!((&last["resident"], &last["stall_ns"]), (&json!(52 << 20), &json!(150_000_000)));
    }

    #[test]
    fn a_report_without_samples_is_a_document_too() {
        let (facts, _) = example(0);
        let value: Value = serde_json::from_str(&text(&facts, &[])).expect("JSON");
        assert_eq!(value["samples"], json!([]));
    }
}
