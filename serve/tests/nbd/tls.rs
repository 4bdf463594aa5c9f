//! NBD over TLS, fact by fact. How programs see it is in the tests of the command.
//!
//! Invariant of every test here: a client that breaks a rule ends its own connection only.

use crate::certificates::Certificates;
use crate::client::{
    Answer, Ask, Client, DISC, IHAVEOPT, OPT_SET_META, OPT_STARTTLS, OPT_STRUCTURED, REP_ACK,
    encode,
};
use crate::fixture::{Fixture, SIZE, pattern, wait_until};
use disk::RamDisk;
use ramfold_serve::ServerConfig;
use rustls::version::{TLS12, TLS13};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const ERR_INVALID: u32 = 1 << 31 | 3;
const ERR_TLS_REQD: u32 = 1 << 31 | 5;

/// A server of plain memory, and its certificates.
fn server(
    required: bool,
    adjust: impl FnOnce(&mut ServerConfig),
) -> Option<(Certificates, Fixture)> {
    let certificates = Certificates::make()?;
    let disk = Arc::new(RamDisk::new(SIZE).unwrap());
    let fixture = certificates.serve(disk, required, adjust);
    Some((certificates, fixture))
}

fn greeted(fixture: &Fixture) -> Client {
    Client::greeted(fixture.path(), 3).expect("the server greets")
}

/// The type of the only reply to an option.
fn only(client: &mut Client, option: u32, data: &[u8]) -> u32 {
    let replies = client.option(option, data).expect("the option is answered");
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies[0].0
}

/// Everything that comes until the server closes.
fn rest(client: &mut Client) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match client.line.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(n) => bytes.extend(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("the server does not close: {error}"),
        }
    }
}

#[test]
fn a_server_that_requires_tls_says_so_to_every_other_option() {
    let Some((certificates, fixture)) = server(true, |_| {}) else { return };
    let mut client = greeted(&fixture);
    for option in [3, 4, 6, 7, 8, 9, 10, 11, u32::MAX] {
        assert_eq!(only(&mut client, option, &[]), ERR_TLS_REQD, "option {option}");
    }
    assert_eq!(only(&mut client, 7, &[0; 20_000]), ERR_TLS_REQD, "even one that is too long");
    assert_eq!(only(&mut client, OPT_STARTTLS, &[0]), ERR_INVALID, "it has no data");
    client = certificates.secure(client, &[&TLS13]).unwrap();
    client.go("").unwrap();
    client.read(0, 4096).expect("the connection is as good as any");
    let mut client = greeted(&fixture);
    assert_eq!(only(&mut client, 2, &[]), REP_ACK, "ABORT");
    assert!(client.is_closed());
    let mut client = greeted(&fixture);
    client.send_option(1, b"ram").unwrap();
    assert!(client.is_closed(), "the old way has no words for a refusal");
}

#[test]
fn bytes_before_tls_are_never_options_inside_it() {
    let Some((_, fixture)) = server(false, |_| {}) else { return };
    let list = [&IHAVEOPT.to_be_bytes()[..], &[0, 0, 0, 3, 0, 0, 0, 0]].concat();
    let start = [&IHAVEOPT.to_be_bytes()[..], &[0, 0, 0, 5, 0, 0, 0, 0]].concat();
    // In one write with STARTTLS.
    let mut client = greeted(&fixture);
    client.line.write_all(&[start, list.clone()].concat()).unwrap();
    assert_eq!(rest(&mut client), b"", "not even an ACK");
    // After the server has agreed.
    let mut client = greeted(&fixture);
    assert_eq!(only(&mut client, OPT_STARTTLS, &[]), REP_ACK);
    client.line.write_all(&list).unwrap();
    let said = rest(&mut client);
    assert!(said.is_empty() || said[0] == 21, "an alert at most: {said:x?}");
    fixture.assert_well();
}

#[test]
fn what_was_agreed_before_tls_is_forgotten() {
    let Some((certificates, fixture)) = server(false, |_| {}) else { return };
    let mut client = greeted(&fixture);
    client.ask_structured().unwrap();
    let meta = [&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15][..], b"base:allocation"].concat();
    assert_eq!(client.option(OPT_SET_META, &meta).unwrap().len(), 2, "chosen in the clear");
    client = certificates.secure(client, &[&TLS13]).unwrap();
    assert_eq!(only(&mut client, OPT_SET_META, &meta), ERR_INVALID, "no structured replies yet");
    assert_eq!(only(&mut client, OPT_STARTTLS, &[]), ERR_INVALID, "TLS within TLS");
    assert_eq!(only(&mut client, OPT_STRUCTURED, &[]), REP_ACK);
    client.structured = true;
    client.go("").unwrap();
    let status = Ask { kind: crate::client::STATUS, len: 4096, ..Ask::default() };
    assert_eq!(client.call(&status).unwrap(), Answer::Error(22), "no context is chosen");
}

#[test]
fn large_payloads_go_both_ways_and_the_end_is_told() {
    let Some((certificates, fixture)) = server(true, |_| {}) else { return };
    for version in [&TLS12, &TLS13] {
        let mut client = certificates.secure(greeted(&fixture), &[version]).unwrap();
        client.go("").unwrap();
        let data = pattern(5 << 20, 3);
        client.write(4097, &data).unwrap();
        assert!(client.read(4097, 5 << 20).unwrap() == Answer::Data(data), "{version:?}");
        client.send(&Ask { kind: DISC, ..Ask::default() }).unwrap();
        let end = client.line.read(&mut [0; 10]);
        assert!(matches!(end, Ok(0)), "the end is not told: {end:?}");
    }
    wait_until("every connection is over", || fixture.server.connections() == 0);
    wait_until("every buffer is given back", || fixture.server.buffer_bytes() == 0);
}

#[test]
fn a_quiet_client_gives_its_records_back() {
    let quick = |config: &mut ServerConfig| config.idle_after = Duration::from_millis(5);
    let Some((certificates, fixture)) = server(true, quick) else { return };
    let mut client = certificates.secure(greeted(&fixture), &[&TLS13]).unwrap();
    client.go("").unwrap();
    for _ in 0..2 {
        client.write(0, &pattern(1 << 20, 0)).unwrap();
        wait_until("big buffers are given back", || fixture.server.buffer_bytes() <= 2 * 4096);
    }
    let ask = Ask { kind: crate::client::READ, len: 100_000, ..Ask::default() };
    client.line.write_all(&[encode(&ask), encode(&ask)].concat()).unwrap();
    assert!(client.answer(&ask).unwrap() == Answer::Data(pattern(100_000, 0)));
    assert!(client.answer(&ask).unwrap() == Answer::Data(pattern(100_000, 0)));
}

#[test]
fn a_handshake_of_tls_may_not_take_for_ever() {
    let short = |config: &mut ServerConfig| config.handshake_timeout = Duration::from_millis(200);
    let Some((_, fixture)) = server(true, short) else { return };
    let mut silent = greeted(&fixture);
    assert_eq!(only(&mut silent, OPT_STARTTLS, &[]), REP_ACK);
    assert!(silent.is_closed(), "a client that never begins");
    let mut slow = greeted(&fixture);
    assert_eq!(only(&mut slow, OPT_STARTTLS, &[]), REP_ACK);
    slow.line.write_all(&[22, 3, 1, 0x3f, 0xff]).unwrap();
    let endless = (0..4000).find(|_| {
        thread::sleep(Duration::from_millis(5));
        slow.line.write_all(&[0]).is_err()
    });
    assert!(endless.is_some(), "the server listens for ever");
    wait_until("every connection is over", || fixture.server.connections() == 0);
}
