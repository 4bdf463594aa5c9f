//! The control socket, fact by fact.
//!
//! Invariant of every test here: whatever one caller sends, the next caller is answered.

use crate::fixture::{Scratch, wait_until};
use ramfold_serve::Observer;
use ramfold_serve::control::{Control, ControlError, Request, Response, call, call_within};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

struct Fixture {
    control: Control,
    path: PathBuf,
    _scratch: Scratch,
}

/// A handler that repeats the request, and refuses to set what it does not know.
fn start() -> Fixture {
    let scratch = Scratch::new();
    let path = scratch.path("ram.sock.ctl");
    let handler = |request: Request| match request {
        Request::Set { attribute, .. } if attribute == "nonsense" => {
            Response::Error("no such attribute: nonsense".into())
        }
        other => Response::Ok(serde_json::to_value(other).unwrap()),
    };
    let control =
        Control::start(std::slice::from_ref(&path), &[], Arc::new(handler), Observer::default())
            .unwrap();
    Fixture { control, path, _scratch: scratch }
}

#[test]
fn requests_reach_the_handler_and_answers_the_caller() {
    let fixture = start();
    let set = Request::Set { attribute: "mem_limit".into(), value: "64M".into() };
    for (request, name) in [
        (Request::STAT, "stat"),
        (Request::CLASSES, "classes"),
        (Request::Pagetypeinfo, "pagetypeinfo"),
        (Request::CHECK, "check"),
        (set, "set"),
    ] {
        let answer = call(&fixture.path, &request).unwrap();
        assert_eq!(answer["cmd"], json!(name));
    }
}

#[test]
fn a_refusal_reaches_the_caller_in_the_handlers_words() {
    let fixture = start();
    let request = Request::Set { attribute: "nonsense".into(), value: String::new() };
    let error = call(&fixture.path, &request).unwrap_err();
    assert!(matches!(error, ControlError::Refused(_)));
    assert_eq!(error.to_string(), "no such attribute: nonsense");
}

#[test]
fn lines_that_are_no_requests_are_answered_and_the_conversation_goes_on() {
    let fixture = start();
    let stream = UnixStream::connect(&fixture.path).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut exchange = |line: &str| -> Value {
        (&stream).write_all(format!("{line}\n").as_bytes()).unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    let odd = r#"{"cmd":"set","attribute":"mem_limit","valeu":"64M"}"#;
    let more = r#"{"cmd":"ping","x":1}"#;
    let explode = r#"{"cmd":"explode"}"#;
    for line in ["", "stat", "{}", "[1]", explode, r#"{"cmd":"set"}"#, odd, more, "\u{1}"] {
        let answer = exchange(line);
        let words = answer["error"].as_str().unwrap_or_else(|| panic!("{line:?}: {answer}"));
        assert!(words.starts_with("not a request"), "{line:?}: {words}");
    }
    assert_eq!(exchange(r#"{"cmd":"stat"}"#), json!({"ok": {"cmd": "stat"}}));
    let set = exchange(r#"{"cmd":"set","attribute":"compact"}"#);
    assert_eq!(set["ok"]["value"], json!(""), "an attribute without a value");
}

#[test]
fn a_line_without_end_is_cut() {
    let fixture = start();
    let stream = UnixStream::connect(&fixture.path).unwrap();
    let cut = (0..10_000).find(|_| (&stream).write_all(&[b'x'; 4096]).is_err());
    assert!(cut.is_some(), "the server takes in everything");
    drop(stream);
    wait_until("the connection is over", || fixture.control.connections() == 0);
    call(&fixture.path, &Request::STAT).unwrap();
}

#[test]
fn the_socket_is_the_owners_alone_and_gone_after_the_end() {
    let fixture = start();
    let mode = std::fs::metadata(&fixture.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let _quiet = UnixStream::connect(&fixture.path).unwrap();
    fixture.control.stop();
    assert!(!fixture.path.exists());
    let error = call(&fixture.path, &Request::STAT).unwrap_err();
    assert!(matches!(error, ControlError::NotRunning(_)), "{error}");
}

#[test]
fn a_caller_is_told_what_is_wrong_with_the_other_end() {
    let scratch = Scratch::new();
    let path = scratch.path("odd.ctl");
    let listener = UnixListener::bind(&path).unwrap();
    let limit = Duration::from_millis(50);
    let error = call_within(&path, &Request::STAT, limit).unwrap_err();
    assert!(matches!(error, ControlError::Timeout(_)), "a server that is silent: {error}");
    let answer = |text: &'static [u8]| {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            // The connection that timed out may still be in the queue: answer any caller.
            for mut stream in listener.incoming().flatten().take(2) {
                let _ = stream.write_all(text);
            }
        });
        call_within(&path, &Request::STAT, Duration::from_secs(20)).unwrap_err()
    };
    let error = answer(b"HTTP/1.1 400\n");
    assert!(matches!(error, ControlError::Garbled(_)), "{error}");
}

/// 128 callers that had sent half a request locked all others out of control for half a minute. The
/// next caller read "it may have too many callers".
#[test]
fn half_sent_requests_lock_nobody_out() {
    let fixture = start();
    let most = ramfold_serve::control::CONTROL_CONNECTIONS_MAX;
    let mut stuck: Vec<UnixStream> = (0..most)
        .map(|_| {
            let mut stream = UnixStream::connect(&fixture.path).unwrap();
            stream.write_all(b"{\"cmd\":").unwrap();
            stream
        })
        .collect();
    wait_until("all places are taken", || fixture.control.connections() == most);
    let refused = call(&fixture.path, &Request::STAT);
    if let Err(error) = refused {
        assert!(error.to_string().contains("too many callers"), "it is told: {error}");
    }
    wait_until("somebody makes way", || call(&fixture.path, &Request::STAT).is_ok());
    let mut told = String::new();
    BufReader::new(stuck.remove(0)).read_line(&mut told).unwrap();
    assert!(told.contains("too many callers"), "who makes way is told: {told:?}");
}
