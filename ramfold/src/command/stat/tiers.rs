//! The tiers of a device, shown to people.
//!
//! ```text
//!   tiers              balanced                   75200 pages denser, 12 faster again
//!     lz4              40.1 MiB       34110 pages 31.2 %
//!     pagelz, own 1    61.5 MiB       75200 pages 68.8 %
//!     tables         adopted: 11.6 % smaller on 128 pages
//! ```
//!
//! Invariant: the pages of all lines are those in memory that are not same-filled. Locks: none.

use std::fmt::Write;

use serde_json::Value;

use crate::line::size::{count, human};

/// Appends the tiers, if the device has or had some.
pub(super) fn put(text: &mut String, tiers: &Value) {
    let Some(density) = tiers["density"].as_str() else { return };
    let number = |name: &str| tiers[name].as_u64().unwrap_or(0);
    let done = format!(
        "{} denser, {} faster again, {:.1} s of CPU",
        count(number("denser_pages"), "page"),
        number("faster_pages"),
        number("cpu_us") as f64 / 1e6
    );
    line(text, format_args!("{:<16} {density:>10} {:17} {done}", "tiers", ""));
    if let Some(why) = tiers["off"].as_str() {
        line(text, format_args!("  off            {why}; pages stay as they are"));
    }
    for tier in tiers["tiers"].as_array().into_iter().flatten() {
        row(text, tier);
    }
    training(text, "tables", &tiers["training"]);
    training(text, "dictionary", &tiers["dictionary"]);
}

fn row(text: &mut String, tier: &Value) {
    let algorithm = tier["algorithm"].as_str().unwrap_or("?");
    let name = match tier["generation"].as_u64() {
        Some(0) => format!("{algorithm}, shipped"),
        Some(number) => format!("{algorithm}, own {number}"),
        None => algorithm.to_owned(),
    };
    let (pages, bytes) = (tier["pages"].as_u64().unwrap_or(0), tier["bytes"].as_u64().unwrap_or(0));
    let share = 100.0 * tier["share"].as_f64().unwrap_or(0.0);
    let name = format!("  {name}");
    line(text, format_args!("{name:<17} {:>9} {pages:>11} pages {share:.1} %", human(bytes)));
}

/// What the last training of tables or of a dictionary gained.
fn training(text: &mut String, name: &str, training: &Value) {
    let Some(verdict) = training["verdict"].as_str() else { return };
    let number = |field: &str| training[field].as_u64().unwrap_or(0);
    let gain = 1.0 - number("cost_after") as f64 / number("cost_before").max(1) as f64;
    let (pages, judged) = (number("pages"), number("judged"));
    line(
        text,
        format_args!(
            "  {name:<14} {verdict}: {:.1} % smaller on {judged} pages, trained on {pages} \
             others",
            100.0 * gain
        ),
    );
}

/// Appends a line. Writing to a string cannot fail.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_tier_has_a_line() {
        let mut text = String::new();
        put(&mut text, &Value::Null);
        assert_eq!(text, "", "a device without tiers");
        let tiers = json!({
            "density": "balanced", "off": "idle was written",
            "tiers": [
                {"algorithm": "lz4", "generation": null, "pages": 10, "bytes": 20480, "share": 0.1},
                {"algorithm": "pagelz", "generation": 0, "pages": 0, "bytes": 0, "share": 0.0},
                {"algorithm": "pagelz", "generation": 1, "pages": 90, "bytes": 92160, "share": 0.9},
            ],
            "denser_pages": 91, "faster_pages": 1, "cpu_us": 1_500_000,
            "training": {"verdict": "adopted", "generation": 1, "pages": 512, "judged": 128,
                         "cost_before": 1000, "cost_after": 925},
            "dictionary": {"verdict": "gained too little", "generation": null, "pages": 512,
                           "judged": 128, "cost_before": 1000, "cost_after": 990},
        });
        put(&mut text, &tiers);
        let expected = "\
tiers              balanced                   91 pages denser, 1 faster again, 1.5 s of CPU
  off            idle was written; pages stay as they are
  lz4              20.0 KiB          10 pages 10.0 %
  pagelz, shipped       0 B           0 pages 0.0 %
  pagelz, own 1    90.0 KiB          90 pages 90.0 %
  tables         adopted: 7.5 % smaller on 128 pages, trained on 512 others
  dictionary     gained too little: 1.0 % smaller on 128 pages, trained on 512 others
";
        assert_eq!(text, expected);
    }
}
