//! `ramfold stat`: what a server or a run of `ramfold run` holds, or which of them there are.
//!
//! ```text
//!   no TARGET       list    servers, and under them runs
//!   TARGET          a server of that name or socket, or else a run
//! ```
//!
//! Invariant: a server with one device is shown as an object, and one with several as an array. So
//! programs that expect one device keep working. A run is an object with `"kind": "run"`.
//!
//! Locks: none.

pub(super) mod list;
pub(super) mod run_table;
pub(super) mod runs;
mod table;
mod tiers;
mod title;
mod width;

use std::io::IsTerminal;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use serve::control::{self, ControlError, Request};

use crate::line::Failure;
use crate::line::args;
use crate::line::output::{one_line, print, print_json, redraw};

/// Prints once, or with `--watch` again and again. Then JSON is one line each time.
pub(super) fn run(args: &args::Stat) -> Result<(), Failure> {
    match args.watch {
        Some(interval) => watch(args, interval),
        None => show(args),
    }
}

fn watch(args: &args::Stat, interval: Duration) -> Result<(), Failure> {
    let redraws = std::io::stdout().is_terminal() && !args.json;
    loop {
        if redraws {
            redraw()?;
        }
        show(args)?;
        thread::sleep(interval);
    }
}

fn show(args: &args::Stat) -> Result<(), Failure> {
    if let Some(format) = args.format {
        return list::expose(args.target.as_deref(), args.device.clone(), format);
    }
    let Some(target) = &args.target else { return list::show(args) };
    let path = match control::locate(target) {
        Ok(path) => path,
        Err(no_server) => return show_run(args, target, no_server),
    };
    if args.classes {
        return classes(&path, args);
    }
    if args.pagetypeinfo {
        return page_types(&path, args);
    }
    let mut stat = control::call(&path, &Request::Stat { device: args.device.clone() })?;
    if !of_devices(&stat) {
        return Err(ControlError::Garbled(path).into());
    }
    if args.json {
        list::reduce(&mut stat);
        return print_json(&stat, args.watch.is_some());
    }
    match stat.as_array() {
        Some(none) if none.is_empty() => print(&format!("{}: no device\n", one_line(target))),
        Some(several) => {
            let tables: Vec<String> = several.iter().map(table::render).collect();
            print(&tables.join("\n"))
        }
        None => print(&table::render(&stat)),
    }
}

/// Shows the run that a target means which is no server.
fn show_run(args: &args::Stat, target: &str, no_server: ControlError) -> Result<(), Failure> {
    let run = match no_server {
        ControlError::NoSuchTarget { .. } => runs::chosen(target)?,
        _ => None,
    };
    let Some(run) = run else { return Err(no_server.into()) };
    let of_servers = [
        ("--classes", args.classes),
        ("--pagetypeinfo", args.pagetypeinfo),
        ("a device", args.device.is_some()),
    ];
    if let Some((option, _)) = of_servers.into_iter().find(|(_, is_given)| *is_given) {
        let why = "is of servers, and this is a run of ramfold run";
        return Err(Failure::Usage(format!("{target}: {option} {why}")));
    }
    match args.json {
        true => print_json(&run.json(), args.watch.is_some()),
        false => print(&run_table::one(&run)),
    }
}

/// Whether an answer is about devices: each has a name and a state. Any other answer would be shown
/// as a device of zeros.
fn of_devices(stat: &Value) -> bool {
    let of_one = |stat: &Value| stat["name"].is_string() && stat["initstate"].is_u64();
    stat.as_array().map_or_else(|| of_one(stat), |several| several.iter().all(of_one))
}

fn classes(path: &Path, args: &args::Stat) -> Result<(), Failure> {
    let table = control::call(path, &Request::Classes { device: args.device.clone() })?;
    if args.json {
        return print_json(&table["rows"], args.watch.is_some());
    }
    print(table["text"].as_str().unwrap_or_default())
}

fn page_types(path: &Path, args: &args::Stat) -> Result<(), Failure> {
    let found = control::call(path, &Request::Pagetypeinfo)?;
    let (Some(text), Some(_)) = (found["text"].as_str(), found["zone"].as_object()) else {
        return Err(ControlError::Garbled(path.to_owned()).into());
    };
    if args.json {
        return print_json(&found["zone"], args.watch.is_some());
    }
    print(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_of_no_device_is_not_shown_as_one() {
        assert!(of_devices(&json!({"name": "zram0", "initstate": 0})));
        assert!(of_devices(&json!([{"name": "zram0", "initstate": 1}])) && of_devices(&json!([])));
        for other in [json!({}), json!(null), json!([{"name": "zram0"}]), json!({"initstate": 1})] {
            assert!(!of_devices(&other), "{other}");
        }
    }
}
