//! `ramfold check`: has a server recount everything it holds.

use std::time::Duration;

use serde_json::Value;
use serve::control::{self, Request};

use crate::args;
use crate::failure::Failure;
use crate::output::{patiently, print};

/// Recounting decodes every page of a large disk.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Prints what was recounted; a defect is a failure, in the server's words.
pub(super) fn run(args: &args::Check) -> Result<(), Failure> {
    let path = control::locate(&args.target)?;
    let report = patiently(|| control::call_within(&path, &Request::Check, PATIENCE))?;
    match report.as_array().map(Vec::as_slice) {
        Some([]) => print(&format!("{}: no device has a size; nothing to check\n", args.target)),
        Some(reports) => reports.iter().try_for_each(|report| {
            let name = report["name"].as_str().unwrap_or(&args.target);
            print(&sentence(name, report))
        }),
        None => print(&sentence(&args.target, &report)),
    }
}

fn sentence(target: &str, report: &Value) -> String {
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    let moved = match report["moved"].as_bool() {
        Some(false) => "every counter agrees",
        _ => "things moved meanwhile, so sums were not compared",
    };
    let back = match number("pages_read_back") {
        0 => String::new(),
        pages => format!(", {pages} read from the backing disk"),
    };
    format!(
        "{target}: no defect; {} pages stored, {} decoded{back}, {} objects in {} zspages; \
         {moved}\n",
        number("pages_stored"),
        number("pages_decoded"),
        number("objects"),
        number("zspages"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn motion_is_told_from_agreement() {
        let report = |moved| json!({"pages_stored": 7, "pages_decoded": 5, "moved": moved});
        let still = sentence("zram0", &report(false));
        assert!(still.contains("7 pages stored, 5 decoded") && still.contains("agrees"), "{still}");
        let busy = sentence("zram0", &report(true));
        assert!(busy.contains("not compared"), "{busy}");
    }
}
