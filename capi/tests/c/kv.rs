//! The example in C: a key-value server, as its clients see it.

use crate::rig::{build, needs, run, scratch, source};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn of(socket: &Path) -> Client {
        Client(BufReader::new(UnixStream::connect(socket).expect("it listens")))
    }

    /// Sends a request. Returns the first line of the answer.
    fn ask(&mut self, request: &[u8]) -> String {
        self.0.get_mut().write_all(request).expect("it reads");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it answers");
        line
    }

    fn set(&mut self, key: &str, value: &[u8]) -> String {
        let head = format!("SET {key} {}\n", value.len());
        self.ask(&[head.as_bytes(), value].concat())
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let line = self.ask(format!("GET {key}\n").as_bytes());
        if line == "NONE\n" {
            return None;
        }
        let len = line.trim().strip_prefix("VALUE ").and_then(|len| len.parse().ok());
        let mut value = vec![0; len.unwrap_or_else(|| panic!("not a value: {line}"))];
        self.0.read_exact(&mut value).expect("the value follows");
        Some(value)
    }

    fn stats(&mut self) -> [u64; 3] {
        let line = self.ask(b"STATS\n");
        let words = line.split_whitespace().skip(1).map(|word| word.parse().expect("a number"));
        words.collect::<Vec<u64>>().try_into().expect("three numbers")
    }
}

fn value(client: usize, round: usize) -> Vec<u8> {
    let len = round * 37 % 9000;
    (0..len).map(|at| (at / 11 + client * 7 + round) as u8).collect()
}

#[test]
fn a_key_value_server_keeps_what_its_clients_set() {
    if !needs(&["cc", "pkg-config"]) {
        return;
    }
    let program = build("cc", &source("examples/kv.c"), &["-O1"], "kv");
    let socket = scratch("kv").join("sock");
    drop(std::fs::remove_file(&socket));
    let mut child = run(program).arg(&socket).arg("8").stdout(Stdio::piped()).spawn();
    let said = child.as_mut().expect("it starts").stdout.take().expect("it is piped");
    let mut server = Server(child.expect("it starts"));
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line).expect("it says that it listens");
    assert!(line.starts_with("listening"), "{line}");

    std::thread::scope(|scope| {
        for number in 0..3 {
            let socket = &socket;
            scope.spawn(move || {
                let mut client = Client::of(socket);
                for round in 0..300 {
                    let key = format!("key-{number}-{}", round % 100);
                    assert_eq!(client.set(&key, &value(number, round)), "OK\n");
                    assert_eq!(client.get(&key), Some(value(number, round)));
                    let shared = client.set("shared", &vec![number as u8; 5000]);
                    assert_eq!(shared, "OK\n");
                    let shared = client.get("shared").expect("it was set");
                    assert!(shared.len() == 5000 && shared.iter().all(|byte| *byte == shared[0]));
                }
            });
        }
    });
    let mut client = Client::of(&socket);
    for number in 0..3 {
        for round in 200..300 {
            let key = format!("key-{number}-{}", round % 100);
            assert_eq!(client.get(&key), Some(value(number, round)));
        }
    }
    let [values, bytes, memory] = client.stats();
    assert_eq!(values, 301);
    assert!(memory < bytes, "{memory} for {bytes}");
    assert_eq!(client.ask(b"DELETE shared\n"), "OK\n");
    assert_eq!(client.ask(b"DELETE shared\n"), "NONE\n");
    assert_eq!(client.get("shared"), None);
    assert_bad_requests_are_told(&socket);
    assert_full_is_told(&mut client);
    assert_eq!(client.ask(b"STOP\n"), "OK\n");
    assert!(server.0.wait().expect("it ends").success());
}

/// Each line that is no request gets an error. A connection on which a value may follow ends.
fn assert_bad_requests_are_told(socket: &Path) {
    let (key, line) = ("k".repeat(251), "x".repeat(5000));
    let mut client = Client::of(socket);
    for request in ["FROB", "", "GET", "GET a b", "DELETE", "STATS a", "STOP now", "get a"] {
        let answer = client.ask(format!("{request}\n").as_bytes());
        assert!(answer.starts_with("ERROR it is"), "{request}: {answer}");
    }
    assert_eq!(client.get(&key[1..]), None, "250 bytes are a key");
    let told = [
        (format!("GET {key}"), "a key"),
        (format!("SET {key} 1"), "a key"),
        ("SET".into(), "it is SET"),
        ("SET a".into(), "it is SET"),
        ("SET a 1 b".into(), "it is SET"),
        ("SET a -1".into(), "a value"),
        ("SET a 1x".into(), "a value"),
        ("SET a 1048577".into(), "a value"),
        ("SET a 18446744073709551617".into(), "a value"),
        (format!("GET {line}"), "a line"),
        ("GET a\0b".into(), "a line"),
    ];
    for (request, words) in told {
        let mut client = Client::of(socket);
        let answer = client.ask(format!("{request}\n").as_bytes());
        assert!(answer.starts_with(&format!("ERROR {words}")), "{request}: {answer}");
        let mut rest = Vec::new();
        // A connection that ends with bytes unread is reset.
        drop(client.0.read_to_end(&mut rest));
        assert_eq!(rest, b"", "{request}: it goes on");
    }
    let mut client = Client::of(socket);
    client.0.get_mut().write_all(b"SET a 5\nbyte").expect("it reads");
    client.0.get_mut().shutdown(std::net::Shutdown::Write).expect("it is connected");
    assert!(client.ask(b"").starts_with("ERROR the value ends early"));
    assert_eq!(Client::of(socket).get("a"), None);
}

/// Values that do not compress use up the limit.
fn assert_full_is_told(client: &mut Client) {
    let mut word = 1_u64;
    let mut noise = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 56) as u8
    };
    let told = (0..100).map(|round| {
        let bytes: Vec<u8> = (0..200_000).map(|_| noise()).collect();
        client.set(&format!("noise-{round}"), &bytes)
    });
    let refused = told.into_iter().find(|line| line != "OK\n").expect("the limit is 8 MiB");
    assert!(refused.contains("limit"), "{refused}");
}
