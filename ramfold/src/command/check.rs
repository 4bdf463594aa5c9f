//! `ramfold check`: has a server recount everything that it holds.
//!
//! Invariant: success means that every figure was in the answer. Locks: none.

use std::time::Duration;

use serde_json::Value;
use serve::control::{self, Request};

use crate::line::Failure;
use crate::line::args;
use crate::line::output::{one_line, patiently, print};
use crate::line::size::count;

/// How long to wait for the answer. Recounting decodes every page, and a disk may be large.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Prints what was recounted. A defect is a failure in the server's words.
pub(super) fn run(args: &args::Check) -> Result<(), Failure> {
    let path = control::locate(&args.target)?;
    let request = Request::Check { device: args.device.clone() };
    let report = patiently(|| control::call_within(&path, &request, PATIENCE))?;
    match report.as_array().map(Vec::as_slice) {
        Some([]) => {
            print(&format!("{}: no device has a size; nothing to check\n", one_line(&args.target)))
        }
        Some(reports) => reports.iter().try_for_each(|report| {
            let name = report["name"].as_str().unwrap_or(&args.target);
            print(&sentence(name, report)?)
        }),
        None => print(&sentence(args.device.as_ref().unwrap_or(&args.target), &report)?),
    }
}

/// One line for a report. A report that lacks a figure is a failure, because nobody knows what was
/// recounted.
fn sentence(target: &str, report: &Value) -> Result<String, Failure> {
    let missing = |name: &str| {
        let why =
            format!("the answer has no \"{name}\"; the program that answered may not be ramfold");
        Failure::about(target, why)
    };
    let number = |name: &str| report[name].as_u64().ok_or_else(|| missing(name));
    let moved = match report["moved"].as_bool().ok_or_else(|| missing("moved"))? {
        false => "every counter agrees",
        true => "objects moved meanwhile, so sums were not compared",
    };
    let back = match number("pages_read_back")? {
        0 => String::new(),
        pages => format!(", {pages} read from the backing disk"),
    };
    Ok(format!(
        "{}: no defect; {} stored, {} decoded{back}, {} in {}; {moved}\n",
        one_line(target),
        count(number("pages_stored")?, "page"),
        number("pages_decoded")?,
        count(number("objects")?, "object"),
        count(number("zspages")?, "zspage"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(moved: bool) -> Value {
        json!({
            "pages_stored": 7, "pages_decoded": 5, "pages_read_back": 0, "objects": 5,
            "zspages": 2, "moved": moved,
        })
    }

    #[test]
    fn motion_is_told_from_agreement() {
        let still = sentence("zram0", &report(false)).unwrap();
        assert!(still.contains("7 pages stored, 5 decoded") && still.contains("agrees"), "{still}");
        let mut one = report(false);
        one.as_object_mut()
            .unwrap()
            .values_mut()
            .filter(|v| v.is_u64())
            .for_each(|v| *v = 1.into());
        let one = sentence("zram0", &one).unwrap();
        assert!(one.contains("1 page stored") && one.contains("1 object in 1 zspage;"), "{one}");
        let busy = sentence("zram0", &report(true)).unwrap();
        assert!(busy.contains("not compared"), "{busy}");
    }

    #[test]
    fn an_answer_without_a_part_is_no_good_report() {
        for part in report(false).as_object().unwrap().keys() {
            let mut less = report(false);
            less.as_object_mut().unwrap().remove(part);
            let refusal = sentence("zram0", &less).unwrap_err().to_string();
            assert!(refusal.contains(part.as_str()), "{refusal}");
        }
        assert!(sentence("zram0", &Value::Null).is_err());
    }
}
