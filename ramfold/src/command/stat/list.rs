//! The running servers of this user, one line each, and the runs of `ramfold run`.
//!
//! Invariant: a server that does not answer delays the list by at most `PATIENCE`. Locks: none.

use std::time::Duration;

use serde_json::Value;
use serve::control::{self, ControlError, Request, Running};
use serve::metrics::MetricsFormat;

use crate::line::Failure;
use crate::line::args;
use crate::line::exposition;
use crate::line::monitoring::Format;
use crate::line::output::{complain, one_line, print, print_json};
use crate::line::size::human;

use super::{run_table, runs};

/// Prints the tables, or the devices and then the runs as an array.
pub(super) fn show(args: &args::Stat) -> Result<(), Failure> {
    for name in control::clear_killed() {
        complain(&format!("{name} was killed; what it stored is gone, and so is its socket now"));
    }
    let servers = control::list();
    let (rows, silent) = rows(&servers);
    let runs = runs::list();
    if args.json {
        let stats = rows.into_iter().map(|mut row| {
            reduce(&mut row.stat);
            row.stat
        });
        let stats = stats.chain(runs.iter().map(runs::Run::json));
        print_json(&Value::Array(stats.collect()), args.watch.is_some())?;
    } else {
        print(&tables(&rows, servers.len(), !silent.is_empty(), &runs))?;
    }
    if silent.is_empty() { Ok(()) } else { Err(Failure::Failed(silent.join("; "))) }
}

/// Prints figures for monitoring, of one server, perhaps of one device, or of all servers.
pub(super) fn expose(
    target: Option<&str>,
    device: Option<String>,
    format: Format,
) -> Result<(), Failure> {
    let request = Request::Stat { device };
    let (mut stats, mut silent) = (Vec::new(), Vec::new());
    let servers = match target {
        Some(name) => vec![Running { name: name.to_owned(), control: control::locate(name)? }],
        None => control::list(),
    };
    for server in servers {
        match control::call_within(&server.control, &request, PATIENCE) {
            Ok(stat) => stats.push((server.name, stat)),
            Err(error) => silent.push(error.to_string()),
        }
    }
    let stats: Vec<_> = stats.iter().map(|(name, stat)| (Some(name.as_str()), stat)).collect();
    let format = match format {
        Format::Prometheus => MetricsFormat::Prometheus,
        Format::Openmetrics => MetricsFormat::OpenMetrics,
    };
    print(&exposition::render(&stats, format))?;
    if silent.is_empty() { Ok(()) } else { Err(Failure::Failed(silent.join("; "))) }
}

/// Removes what the server says about itself, because it is not about the device.
pub(super) fn reduce(stat: &mut Value) {
    let several = stat.as_array_mut().into_iter().flatten();
    several.for_each(reduce);
    if let Some(fields) = stat.as_object_mut() {
        fields.shift_remove("server");
    }
}

struct Row {
    name: String,
    stat: Value,
}

impl Row {
    /// The row of a device whose server has several.
    fn of_several(stat: Value) -> Row {
        Row { name: stat["name"].as_str().unwrap_or_default().to_owned(), stat }
    }
}

/// How long one server may delay the list.
const PATIENCE: Duration = Duration::from_secs(2);

/// The devices of all servers that answer, and a message for each that does not. A server that ends
/// between being listed and being asked is left out.
fn rows(servers: &[Running]) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut silent) = (Vec::new(), Vec::new());
    for server in servers {
        match control::call_within(&server.control, &Request::STAT, PATIENCE) {
            Ok(Value::Array(several)) => rows.extend(several.into_iter().map(Row::of_several)),
            Ok(stat) => rows.push(Row { name: server.name.clone(), stat }),
            Err(ControlError::NotRunning(_) | ControlError::Killed(_)) => {}
            Err(ControlError::Timeout(_)) => {
                silent.push(format!("{} does not answer", server.name))
            }
            Err(ControlError::Stopped { pid, .. }) => silent.push(format!(
                "{} does not answer: its process is stopped; kill -CONT {pid} lets it go on",
                server.name
            )),
            Err(error) => silent.push(format!("{} does not answer: {error}", server.name)),
        }
    }
    (rows, silent)
}

/// A table for each kind of which there is one.
fn tables(rows: &[Row], servers: usize, is_silent: bool, runs: &[runs::Run]) -> String {
    let nothing = rows.is_empty() && (is_silent || servers == 0 && !runs.is_empty());
    let of_servers = (!nothing).then(|| table(rows, servers));
    let of_runs = (!runs.is_empty()).then(|| run_table::list(runs));
    let tables: Vec<String> = of_servers.into_iter().chain(of_runs).collect();
    tables.join("\n")
}

fn table(rows: &[Row], servers: usize) -> String {
    if rows.is_empty() && servers > 0 {
        return "No device has a size yet\n".to_owned();
    }
    if rows.is_empty() {
        return "No server and no run of this user goes on; a server of another user, started \
                with --unix PATH, answers root to: ramfold stat PATH\n"
            .to_owned();
    }
    let header = ["NAME", "PID", "SIZE", "STORED", "HELD", "LIMIT", "RATIO", "ADDRESS"];
    let mut lines = vec![header.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    lines.iter().map(line).collect()
}

fn cells(row: &Row) -> [String; 8] {
    let bytes = |name: &str| row.stat[name].as_u64().unwrap_or(0);
    let server = &row.stat["server"];
    [
        row.name.clone(),
        server["pid"].to_string(),
        human(bytes("disksize")),
        human(bytes("orig_data_size")),
        human(bytes("accounted_bytes")),
        limit(bytes("mem_limit")),
        super::table::ratio(bytes("orig_data_size"), bytes("accounted_bytes")),
        address(server),
    ]
}

/// The first address at which the device is served.
fn address(server: &Value) -> String {
    let machines = || Some(format!("vhost-user:{}", server["vhost_user"][0]["path"].as_str()?));
    let uri = server["uris"][0].as_str().map(str::to_owned);
    uri.or_else(machines).unwrap_or_else(|| "-".to_owned())
}

fn limit(bytes: u64) -> String {
    if bytes == 0 { "none".to_owned() } else { human(bytes) }
}

fn line([name, pid, size, stored, held, limit, ratio, address]: &[String; 8]) -> String {
    let line = format!(
        "{name:<12} {pid:>8} {size:>11} {stored:>11} {held:>11} {limit:>11} {ratio:>7}  {address}"
    );
    format!("{}\n", one_line(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_server_has_a_line_with_size_and_limit() {
        let stat = json!({
            "disksize": 1 << 30, "orig_data_size": 3 << 20, "accounted_bytes": 1 << 20,
            "mem_limit": 0, "server": {"pid": 77, "uris": ["nbd+unix:///zram0?socket=/s"]},
        });
        let text = table(&[Row { name: "zram0".into(), stat }], 1);
        let last = text.lines().last().unwrap();
        for word in ["zram0", "77", "1.0 GiB", "3.0 MiB", "none", "3.00", "socket=/s"] {
            assert!(last.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn each_kind_has_a_table_if_there_is_one_of_it() {
        let row = || Row { name: "zram0".into(), stat: json!({"server": {"pid": 77}}) };
        let run = || run_table::example(&["sort"]);
        let kinds = |text: String| [text.contains("SIZE"), text.contains("PROCS")];
        assert_eq!(kinds(tables(&[row()], 1, false, &[])), [true, false]);
        assert_eq!(kinds(tables(&[], 0, false, &[run()])), [false, true]);
        let both = tables(&[row()], 1, true, &[run()]);
        assert!(both.contains("\n\n") && kinds(both.clone()) == [true, true], "{both}");
        assert_eq!(tables(&[], 1, true, &[]), "", "the server is told of elsewhere");
        assert!(tables(&[], 1, false, &[run()]).contains("No device"));
        assert!(!tables(&[], 0, false, &[run()]).contains("No "));
    }

    #[test]
    fn an_empty_list_says_where_others_are() {
        assert!(table(&[], 0).contains("ramfold stat PATH"));
        assert!(table(&[], 1).contains("No device"), "a server runs");
    }

    #[test]
    fn programs_get_the_device_alone() {
        let mut stat = json!({"name": "zram0", "server": {"pid": 1}, "disksize": 4096});
        reduce(&mut stat);
        assert_eq!(stat.to_string(), r#"{"name":"zram0","disksize":4096}"#, "order and all");
        let mut several = json!([{"name": "zram0", "server": {}}, {"name": "zram1", "server": {}}]);
        reduce(&mut several);
        assert_eq!(several.to_string(), r#"[{"name":"zram0"},{"name":"zram1"}]"#);
    }
}
