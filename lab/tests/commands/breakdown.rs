//! `lab breakdown`: shares of the steps of giving pages up.

use crate::support::{json, measured, number, rows};
use serde_json::Value;

#[test]
fn shares_are_of_the_whole_path() {
    for backend in ["zram", "zswap"] {
        shares(backend);
    }
}

fn shares(backend: &str) {
    let arguments = ["breakdown", "--quick", "--path", "slots,handles,drop", "--backend", backend];
    let document = json(&format!("breakdown-{backend}"), &arguments);
    for path in ["slots", "drop"] {
        let of_path = rows(&document).iter().filter(|row| row["path"] == path);
        let (all, steps): (Vec<&Value>, Vec<&Value>) =
            of_path.partition(|row| row["step"] == "all");
        let [all] = all[..] else { panic!("one row for all steps of {path}") };
        measured(all, &["ns_per_page"]);
        if steps.is_empty() {
            assert!(std::env::var("CI").is_err(), "CI is to have valgrind");
            println!("skipped: needs valgrind");
            return;
        }
        for row in &steps {
            assert_eq!(row["backend"], backend);
            measured(row, &["ns_per_page"]);
        }
        let share: f64 = steps.iter().map(|row| number(row, "share")).sum();
        assert!((share - 1.0).abs() < 1e-9, "{path} adds up to {share}");
        for step in ["class", "release", "page allocator"] {
            let row = steps.iter().find(|row| row["step"] == step).expect(step);
            assert!(number(row, "share") > 0.0, "{path}: nothing in {step}");
        }
    }
    let of = |path: &str, step: &str| {
        let row = rows(&document).iter().find(|row| row["path"] == path && row["step"] == step);
        number(row.expect("a step of its own"), "instructions_per_page")
    };
    for row in rows(&document).iter().filter(|row| row["path"] == "handles") {
        let left = ["fullness", "page allocator"].contains(&row["step"].as_str().unwrap());
        assert!(!left || number(row, "instructions_per_page") < 1.0, "it is done later: {row}");
        assert!(!left || number(row, "leaves_out") > 0.0, "{row}");
    }
    assert!(of("slots", "slot") > of("drop", "slot"), "a drop does not go from slot to slot");
    assert_eq!(of("slots", "order") > 0.0, backend == "zswap", "a zram has no order");
}
