//! The running servers of this user, and the runs of `ramfold run`.
//!
//! ```text
//!   NAME PID SIZE STORED HELD LIMIT RATIO      at most 80 columns
//!     nbd+unix:///NAME?socket=PATH             as long as it is
//! ```
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
use crate::line::size::short;

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
        None => first_of_each_name(control::list()),
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

/// The servers without those that another one hides: `stat NAME` finds the first of a name, and two
/// of them would have the same series.
fn first_of_each_name(mut servers: Vec<Running>) -> Vec<Running> {
    servers.dedup_by(|later, first| {
        let is_hidden = later.name == first.name;
        if is_hidden {
            let at = later.control.display();
            complain(&format!("{at}: left out, because another server is called {}", first.name));
        }
        is_hidden
    });
    servers
}

/// Removes what the server says about itself, because it is not about the device.
pub(super) fn reduce(stat: &mut Value) {
    let several = stat.as_array_mut().into_iter().flatten();
    several.for_each(reduce);
    if let Some(fields) = stat.as_object_mut() {
        fields.shift_remove("server");
    }
}

/// A device in the list.
pub(crate) struct Row {
    name: String,
    stat: Value,
}

impl Row {
    /// A row for each device of an answer. An only one has the name of its server.
    pub(crate) fn of(server: &str, stat: Value) -> Vec<Row> {
        match stat {
            Value::Array(several) => several.into_iter().map(Row::of_several).collect(),
            stat => vec![Row { name: server.to_owned(), stat }],
        }
    }

    /// The row of a device whose server has several.
    fn of_several(stat: Value) -> Row {
        Row { name: stat["name"].as_str().unwrap_or_default().to_owned(), stat }
    }

    /// The name by which commands find it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self, name: &str) -> u64 {
        self.stat[name].as_u64().unwrap_or(0)
    }

    /// Size, stored pages, memory that they take, and its limit; 0 is no limit.
    pub(crate) fn figures(&self) -> [u64; 4] {
        ["disksize", "orig_data_size", "accounted_bytes", "mem_limit"].map(|name| self.bytes(name))
    }

    /// Frames of the device's pages, which the limit bounds.
    pub(crate) fn used(&self) -> u64 {
        self.bytes("object_bytes_resident")
    }

    /// The figures as they are shown, and the ratio of the second and the third.
    pub(crate) fn cells(&self) -> [String; 5] {
        let [size, stored, held, limit] = self.figures();
        let limit = if limit == 0 { "none".to_owned() } else { short(limit) };
        [short(size), short(stored), short(held), limit, super::table::ratio(stored, held)]
    }
}

/// How long one server may delay the list.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The most columns of a line, except of an address that is longer.
const COLUMNS: usize = 80;
/// Columns of a name, unless one of the list is longer.
const NAME_MIN: usize = 12;
/// The most columns of a name.
const NAME_MAX: usize = COLUMNS - 46;

/// The devices of all servers that answer, and a message for each that does not. A server that ends
/// between being listed and being asked is left out.
fn rows(servers: &[Running]) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut silent) = (Vec::new(), Vec::new());
    for server in servers {
        match control::call_within(&server.control, &Request::STAT, PATIENCE) {
            Ok(stat) => rows.extend(Row::of(&server.name, stat)),
            Err(error) => silent.extend(why_silent(&server.name, &error)),
        }
    }
    (rows, silent)
}

/// What to say of a server that gave no answer. `None` if it has ended.
pub(crate) fn why_silent(name: &str, error: &ControlError) -> Option<String> {
    match error {
        ControlError::NotRunning(_) | ControlError::Killed(_) => None,
        ControlError::Timeout(_) => Some(format!("{name} does not answer")),
        ControlError::Stopped { pid, .. } => Some(format!(
            "{name} does not answer: its process is stopped; kill -CONT {pid} lets it go on"
        )),
        error => Some(format!("{name} does not answer: {error}")),
    }
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
    let longest = rows.iter().map(|row| one_line(&row.name).chars().count()).max();
    let width = longest.unwrap_or(0).clamp(NAME_MIN, NAME_MAX);
    let header = ["SIZE", "STORED", "HELD", "LIMIT", "RATIO"].map(str::to_owned);
    let lines = rows.iter().map(|row| {
        let server = &row.stat["server"];
        let line = line(&row.name, width, &server["pid"].to_string(), &row.cells());
        // It is whole, because people paste it.
        let address = address(server);
        address.map_or(line.clone(), |address| format!("{line}  {}\n", one_line(&address)))
    });
    std::iter::once(line("NAME", width, "PID", &header)).chain(lines).collect()
}

/// The first address at which the device is served.
fn address(server: &Value) -> Option<String> {
    let machines = || Some(format!("vhost-user:{}", server["vhost_user"][0]["path"].as_str()?));
    let block = || server["ublk"][0]["path"].as_str().map(str::to_owned);
    server["uris"][0].as_str().map(str::to_owned).or_else(block).or_else(machines)
}

fn line(name: &str, width: usize, pid: &str, cells: &[String; 5]) -> String {
    let [size, stored, held, limit, ratio] = cells;
    let name = shortened(name, width);
    format!("{name:<width$} {pid:>8} {size:>6} {stored:>6} {held:>6} {limit:>6} {ratio:>7}\n")
}

/// A name on one line, cut if it does not fit.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    let name = one_line(name);
    match name.chars().count() > width {
        true => {
            let cut = name.chars().take(width.saturating_sub(2)).chain("..".chars());
            cut.take(width).collect()
        }
        false => name.into_owned(),
    }
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
        let [_, line, address] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        for word in ["zram0", "77", "1.0G", "3.0M", "none", "3.00"] {
            assert!(line.contains(word), "{word}: {text}");
        }
        assert_eq!(address, "  nbd+unix:///zram0?socket=/s");
    }

    #[test]
    fn a_line_has_eighty_columns_at_most_whatever_is_in_it() {
        let stat = || {
            json!({
                "disksize": 8_u64 << 40, "orig_data_size": (1_u64 << 40) - 1,
                "accounted_bytes": (1 << 30) - 1, "mem_limit": (1 << 20) - 1,
                "server": {"pid": 4_194_303, "uris": []},
            })
        };
        for name in ["a", "database-primary", &"long".repeat(60), "x\x1b[2J"] {
            let text = table(&[Row { name: name.into(), stat: stat() }], 1);
            for line in text.lines() {
                assert!(line.chars().count() <= COLUMNS, "{line}");
            }
            let ends: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
            assert_eq!(ends[0], ends[1], "the columns stand under their names: {text}");
        }
        let both = [Row { name: "database-primary".into(), stat: stat() }];
        assert!(table(&both, 1).contains("database-primary "), "a name is whole if it fits");
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
    fn of_servers_with_one_name_the_first_has_the_series() {
        let at = |directory: &str, name: &str| Running {
            name: name.into(),
            control: format!("{directory}/{name}.ctl").into(),
        };
        let all = vec![at("/z", "a"), at("/a", "a"), at("/a", "b"), at("/z", "c"), at("/a", "c")];
        let kept = first_of_each_name(all);
        assert_eq!(kept, [at("/z", "a"), at("/a", "b"), at("/z", "c")]);
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
