//! Clients that stall, die or crowd in: nobody else notices, and nothing of them stays.
//!
//! Invariant checked at the end of every test: `Fixture::assert_well`.

use crate::client::*;
use crate::fixture::{Fixture, SIZE, pattern, wait_until};
use disk::RamDisk;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// What one connection may cost: an inbox and an outbox.
const CONNECTION_BYTES_MAX: usize = (128 + 132) << 10;

fn ram() -> Arc<RamDisk> {
    Arc::new(RamDisk::new(SIZE).unwrap())
}

#[test]
fn a_client_that_dies_within_a_write_leaves_whole_pages_only() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    let whole = encode(&writing(4096, &[7; 1 << 20]));
    client.line.write_all(&whole[..28 + 100_000]).unwrap();
    drop(client);
    wait_until("the connection is over", || fixture.server.connections() == 0);
    let Answer::Data(data) = fixture.open(true).read(0, 1 << 20).unwrap() else {
        panic!("no data");
    };
    let written = data.iter().filter(|&&byte| byte == 7).count();
    assert!(written <= 100_000 && written.is_multiple_of(4096), "{written} bytes were written");
    fixture.assert_well();
}

#[test]
fn a_client_that_does_not_read_pins_its_own_buffers_only() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    fixture.open(true).write(0, &pattern(8 << 20, 1)).unwrap();
    for _ in 0..8 {
        client.send(&Ask { len: 8 << 20, ..Ask::default() }).unwrap();
    }
    let mut other = fixture.open(false);
    for i in 0..100 {
        assert_eq!(other.write(i, &[1]).unwrap(), Answer::Data(vec![]));
    }
    assert!(fixture.server.buffer_bytes() <= 2 * CONNECTION_BYTES_MAX);
    drop((client, other));
    fixture.assert_well();
}

#[test]
fn a_handshake_that_stalls_is_ended() {
    let short = |config: &mut serve::ServerConfig| {
        config.handshake_timeout = Duration::from_millis(50);
    };
    let fixture = Fixture::with(ram(), short);
    let mut silent = Client::raw(fixture.path()).unwrap();
    let mut slow = Client::greeted(fixture.path(), 3).unwrap();
    slow.line.write_all(b"IHAVE").unwrap();
    assert!(silent.is_closed(), "a client that says nothing");
    assert!(slow.is_closed(), "a client that stops within an option");
    fixture.assert_well();
}

#[test]
fn a_handshake_may_take_for_ever() {
    let patient = |config: &mut serve::ServerConfig| config.handshake_timeout = Duration::MAX;
    let fixture = Fixture::with(ram(), patient);
    drop(Client::greeted(fixture.path(), 3).unwrap());
    fixture.assert_well();
}

#[test]
fn a_handshake_byte_by_byte_does_not_prolong_its_time() {
    let short = |config: &mut serve::ServerConfig| {
        config.handshake_timeout = Duration::from_millis(200);
    };
    let fixture = Fixture::with(ram(), short);
    let mut client = Client::greeted(fixture.path(), 3).unwrap();
    let option = [&IHAVEOPT.to_be_bytes()[..], &[0, 0, 0, 99, 0xff, 0xff, 0xff, 0xff]].concat();
    client.line.write_all(&option).unwrap();
    let endless = (0..4000).find(|_| {
        thread::sleep(Duration::from_millis(5));
        client.line.write_all(&[0]).is_err()
    });
    assert!(endless.is_some(), "the server listens for ever");
    fixture.assert_well();
}

#[test]
fn a_served_client_may_be_quiet_for_long_and_costs_little_then() {
    let quick = |config: &mut serve::ServerConfig| {
        config.handshake_timeout = Duration::from_millis(100);
        config.idle_after = Duration::from_millis(10);
    };
    let fixture = Fixture::with(ram(), quick);
    let mut client = fixture.open(true);
    for _ in 0..3 {
        client.write(0, &pattern(1 << 20, 0)).unwrap();
        assert!(client.read(0, 1 << 20).unwrap() == Answer::Data(pattern(1 << 20, 0)));
        wait_until("big buffers are given back", || fixture.server.buffer_bytes() <= 4096);
        // Long past the handshake's limit and several times the idle limit.
        thread::sleep(Duration::from_millis(150));
        assert_eq!(fixture.server.connections(), 1, "a quiet client was cut off");
        // A small read, asleep: its outbox is given back, too.
        client.read(0, 4096).unwrap();
        wait_until("a small one as well", || fixture.server.buffer_bytes() <= 4096);
    }
    drop(client);
    fixture.assert_well();
}

#[test]
fn sixty_four_clients_at_once_are_all_served() {
    let fixture = Fixture::ram();
    thread::scope(|scope| {
        for i in 0..64_u64 {
            let fixture = &fixture;
            scope.spawn(move || {
                let mut client = fixture.open(i.is_multiple_of(2));
                for round in 0..20 {
                    let data = pattern(5000, (i + round) as usize);
                    client.write(i * 5000, &data).unwrap();
                    assert_eq!(client.read(i * 5000, 5000).unwrap(), Answer::Data(data));
                }
            });
        }
    });
    fixture.assert_well();
}

#[test]
fn one_client_too_many_is_closed_and_the_others_are_not() {
    let fixture = Fixture::with(ram(), |config| config.connections_max = 2);
    let mut first = fixture.open(true);
    let second = fixture.open(true);
    let mut third = Client::raw(fixture.path()).unwrap();
    assert!(third.greet(3).is_err(), "the third gets a handshake");
    first.read(0, 1).unwrap();
    drop(second);
    wait_until("there is room again", || fixture.server.connections() == 1);
    fixture.open(true).read(0, 1).unwrap();
    drop(first);
    // Who has just closed is counted until the server sees it; one more would be too many.
    wait_until("there is room for another", || fixture.server.connections() == 0);
    fixture.assert_well();
}

#[test]
fn a_wrong_magic_ends_the_connection_after_earlier_answers() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    let ask = Ask { len: 10, ..Ask::default() };
    client.line.write_all(&[encode(&ask), vec![0x42; 28]].concat()).unwrap();
    // The good request was complete, so it was done; its answer may or may not get through.
    let _ = client.answer(&ask);
    assert!(client.is_closed());
    fixture.assert_well();
}
