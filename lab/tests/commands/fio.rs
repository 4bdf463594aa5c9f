//! The client fio against nbdkit: servers are started, filled, verified, measured and gone again.

use crate::support::{json, lab, rows, succeed};
use std::process::{Command, Stdio};

fn has_tools() -> bool {
    let runs = |tool: &str| {
        let mut command = Command::new(tool);
        command.arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    let tools = ["fio", "nbdkit", "nbdcopy"];
    let has = tools.iter().all(|tool| runs(tool));
    assert!(has || std::env::var("CI").is_err(), "CI is to have {tools:?}");
    if !has {
        println!("skipped: needs {tools:?}");
    }
    has
}

const NO_RAMFOLD: [&str; 2] = ["--ramfold", "/nonexistent/ramfold"];

#[test]
fn nbdkit_is_filled_verified_and_measured() {
    if !has_tools() {
        return;
    }
    let mut arguments = vec!["device", "--quick", "--runs", "1", "--client", "fio"];
    arguments.extend(NO_RAMFOLD);
    let document = json("fio", &arguments);
    let of = |row: &serde_json::Value| format!("{} {}", row["algorithm"], row["rw"]);
    let measured: Vec<String> = rows(&document).iter().map(of).collect();
    let expected = [
        r#""malloc" "randread""#,
        r#""malloc" "randwrite""#,
        r#""malloc" "randwrite-pages""#,
        r#""zstd" "randread""#,
        r#""zstd" "randwrite""#,
        r#""zstd" "randwrite-pages""#,
    ];
    assert_eq!(measured, expected);
    for row in rows(&document) {
        assert_eq!(
            (&row["device"], &row["bs"], &row["qd"]),
            (&"nbdkit".into(), &4096.into(), &16.into())
        );
        for field in ["iops", "lat_us_p50", "lat_us_p99", "mib_per_s", "stored_bytes"] {
            assert!(row[field].is_number(), "{field} is missing in {row}");
        }
    }
}

#[test]
fn our_server_missing_is_said_with_what_to_do() {
    let mut arguments = vec!["device", "--quick", "--runs", "1", "--client", "in-process,fio"];
    arguments.extend(NO_RAMFOLD);
    let mut command = lab();
    // No program at all can be found.
    let output = command.args(&arguments).env("PATH", "/nonexistent").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("fio: missing"), "{said}");
    if has_tools() {
        let said = String::from_utf8(succeed(&arguments).stdout).unwrap();
        assert!(said.contains("ramfold: missing (no /nonexistent/ramfold; cargo build"), "{said}");
    }
}

#[test]
fn a_killed_lab_takes_its_servers_along() {
    if !has_tools() {
        return;
    }
    let mut command = lab();
    command.args(["device", "--client", "fio", "--runs", "1000"]).args(NO_RAMFOLD);
    let mut child = command.args(["--mib", "4"]).stdout(Stdio::null()).spawn().unwrap();
    let directory = std::env::temp_dir().join(format!("lab-{}-0", child.id()));
    let start = std::time::Instant::now();
    while !directory.join("fio.json").exists() {
        assert!(start.elapsed().as_secs() < 60, "fio's turn never came");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let servers = children_of(child.id());
    assert!(servers.len() >= 2, "two servers at least, not {servers:?}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    child.wait().unwrap();
    assert!(!directory.exists(), "{} is left", directory.display());
    for server in servers {
        let path = format!("/proc/{server}");
        assert!(!std::path::Path::new(&path).exists(), "process {server} is left");
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let list = std::fs::read_to_string(path).unwrap();
    list.split_ascii_whitespace().map(|child| child.parse().unwrap()).collect()
}
