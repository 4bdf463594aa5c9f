//! `ramfold serve --metrics`, `ramfold stat --format`: figures for monitoring.
//!
//! Claims: other programs read both formats. The figures are those of `stat`, and parts add up.
//! Counters do not go down. A client that sends nonsense, or nothing, gets a status and holds up
//! no other. The dashboard asks for metrics that exist.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::Value;

use crate::rig::{Nbd, Scratch, Server, eventually, needs, noise, ramfold, refusal, succeed, tool};

const DASHBOARD: &str = include_str!("../../../packaging/grafana.json");
const SOCKET: &str = "metrics";
/// How many clients are answered at a time.
const SCRAPES_MAX: usize = 8;

/// A server with metrics on a Unix socket, which is in a directory of its own.
fn served() -> (Server, Scratch) {
    let scratch = Scratch::new();
    let place = format!("--metrics=unix:{}", scratch.path(SOCKET).display());
    (Server::with(&["--size", "64M", "--memory-limit", "8M", &place]), scratch)
}

fn connect(scratch: &Scratch) -> UnixStream {
    UnixStream::connect(scratch.path(SOCKET)).expect("it listens")
}

/// The whole answer to some bytes.
fn ask(mut stream: impl Read + Write, request: &[u8]) -> String {
    // A client that finds no place is answered before it has asked.
    let _ = stream.write_all(request);
    let mut answer = String::new();
    // What the server has not read is answered by a reset after its answer.
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn scrape(place: &Scratch, accept: &str) -> String {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
    let answer = ask(connect(place), request.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: close"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    let version = if accept.contains("openmetrics") { "1.0.0" } else { "0.0.4" };
    assert!(head.contains(&format!("version={version}; charset=utf-8")), "{head}");
    body.to_owned()
}

/// The sum of the lines of a metric.
fn sum(text: &str, name: &str) -> u64 {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let number = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
    lines.map(|line| number(line).expect("a number")).sum()
}

#[test]
fn figures_are_those_of_stat_and_add_up() {
    let (server, place) = served();
    let mut client = Nbd::connect(server.socket());
    client.write(0, &noise(1, 1 << 20)).expect("room");
    client.write(1 << 20, &vec![0; 1 << 20]).expect("room");
    client.write(2 << 20, &b"text that compresses ".repeat(50_000)[..1 << 20]).expect("room");
    let (text, stat) = (scrape(&place, "text/plain"), server.stat());
    assert_eq!(sum(&text, "ramfold_stored_bytes"), stat["orig_data_size"].as_u64().unwrap());
    assert_eq!(sum(&text, "ramfold_stored_bytes"), 3 << 20, "{text}");
    assert_eq!(sum(&text, "ramfold_compressed_bytes"), stat["compr_data_size"].as_u64().unwrap());
    assert!(sum(&text, "ramfold_held_bytes") > 1 << 20, "{text}");
    assert!(text.contains("kind=\"huge\"} 1048576\n"), "{text}");
    assert!(text.contains("kind=\"same_filled\"} 1048576\n"), "{text}");
    assert_eq!(sum(&text, "ramfold_connections"), 1, "{text}");
    // The limit is 8 MiB, and noise does not compress.
    let (mut before, failed) = (0, "ramfold_failed_requests_total");
    for round in 0..3 {
        let _ = client.write(16 << 20, &noise(9 + round, 9 << 20));
        let text = scrape(&place, "text/plain");
        let now = sum(&text, failed);
        assert!(now > before, "{failed} counts: {before}, then {now}");
        assert!(sum(&text, "ramfold_troubles_total") > 0, "{text}");
        before = now;
    }
    drop(client);
    drop(server);
}

#[test]
fn both_formats_pass_the_checks_of_prometheus() {
    if !needs(&["promtool"]) {
        return;
    }
    let (server, place) = served();
    for text in [scrape(&place, "text/plain"), server_text(&server, "prometheus")] {
        let mut check = tool("promtool");
        check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = check.stdout(Stdio::piped()).spawn().expect("it is installed");
        child.stdin.take().unwrap().write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{said}{text}");
    }
}

fn server_text(server: &Server, format: &str) -> String {
    succeed(ramfold(&["stat", "--format", format]).arg(server.socket()))
}

/// A reader of OpenMetrics as the specification has it: what a line may be, and in which order.
#[test]
fn openmetrics_is_read_by_its_grammar() {
    if !needs(&["python3"]) {
        return;
    }
    let (server, place) = served();
    let accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5";
    let script = r##"
import re, sys
text = sys.stdin.read()
try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
    families = list(read(text))
    print(len(families), "families, by prometheus_client")
except ImportError:
    pass
assert text.endswith("# EOF\n") and text.count("# EOF") == 1, "the end"
label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
sample = re.compile(r'([a-z_]+)\{(%s(?:,%s)*)\} ([0-9]+)' % (label, label))
suffixes = {"gauge": "", "counter": "_total", "info": "_info"}
seen, name, kind, lines = set(), None, None, set()
for line in text.splitlines()[:-1]:
    if line.startswith("# HELP "):
        name = line.split(" ")[2]
        assert name not in seen, f"{name} is in one place"
        assert not name.endswith(("_total", "_info")), name
        seen.add(name)
        kind = None
    elif line.startswith("# TYPE "):
        _, _, typed, kind = line.split(" ")
        assert typed == name and kind in suffixes, line
    else:
        found = sample.fullmatch(line)
        assert found and found[1] == name + suffixes[kind], line
        key = (found[1], found[2])
        assert key not in lines, f"twice: {line}"
        lines.add(key)
assert len(seen) > 10 and len(lines) > 20, (seen, lines)
"##;
    for text in [scrape(&place, accept), server_text(&server, "openmetrics")] {
        let mut python = tool("python3");
        python.args(["-c", script]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = python.stdout(Stdio::piped()).spawn().expect("it is installed");
        child.stdin.take().unwrap().write_all(text.as_bytes()).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}{text}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_no_scrape_gets_a_status() {
    let (server, place) = served();
    let connect = || connect(&place);
    let rows: [(&[u8], &str); 7] = [
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "400 Bad Request"),
        (b"\xff\xfe\r\n\r\n", "400 Bad Request"),
        (b"GET /metrics\r\n\r\n", "400 Bad Request"),
        (&[b'a'; 9000], "431 Request Header Fields Too Large"),
        (b"GET /metrics HTTP/1.1\r\n", "408 Request Timeout"),
    ];
    for (request, status) in rows {
        let answer = ask(connect(), request);
        let said = String::from_utf8_lossy(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{said:.60}: {answer}");
    }
    // Clients that say nothing leave a place to the next when their second is over.
    let silent: Vec<UnixStream> = (0..SCRAPES_MAX).map(|_| connect()).collect();
    let answers = || ask(connect(), b"GET /metrics HTTP/1.1\r\n\r\n");
    let busy = answers();
    assert!(busy.contains("503 Service") || busy.contains("200 OK"), "{busy}");
    eventually("a place", || answers().contains("200 OK"));
    drop(silent);
    assert!(scrape(&place, "*/*").contains("ramfold_build_info"));
    drop(server);
}

#[test]
fn beyond_the_loopback_only_if_it_is_meant() {
    let words = ["serve", "--size", "1M", "--metrics", "0.0.0.0:0"];
    let said = refusal(&mut ramfold(&words));
    assert!(said.contains("--metrics-anywhere") && !said.contains("--tcp"), "{said}");
    let server = Server::with(&["--size", "1M", "--metrics", "127.0.0.1:0"]);
    eventually("its address", || server.said().contains("metrics at http://127.0.0.1:"));
    let said = server.said();
    let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let stream = TcpStream::connect(address).expect("it listens");
    let answer = ask(stream, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.contains("200 OK") && answer.contains("ramfold_disk_bytes{"), "{answer}");
    let taken = format!("--metrics={address}");
    let said = refusal(&mut ramfold(&["serve", "--size", "1M", "--name", "other", &taken]));
    assert!(said.contains("--metrics: "), "{said}");
}

/// Each expression of the dashboard names metrics that a server has, with labels that they have.
#[test]
fn the_dashboard_asks_for_what_is_there() {
    let (server, place) = served();
    let text = scrape(&place, "text/plain");
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let mut count = 0;
    for target in targets {
        let expression = target["expr"].as_str().expect("a query");
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = expression.split(|c| !is_name(c)).filter(|word| word.starts_with("ramfold_"));
        for name in names {
            assert!(text.contains(&format!("# TYPE {name} ")), "{name} of {expression}");
            count += 1;
        }
    }
    assert!(count >= 10, "{count} names");
    drop(server);
}
