//! Clients that stall, die or come in crowds. Other clients do not notice, and nothing of them
//! stays.
//!
//! Invariant checked at the end of every test: `Fixture::assert_well`.

use crate::client::*;
use crate::fixture::{Fixture, SIZE, pattern, wait_until};
use disk::RamDisk;
use ramfold_serve::{Event, Observer, Peer, Purpose, Refused, Stall};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

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
    let short = |config: &mut ramfold_serve::ServerConfig| {
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
    let patient =
        |config: &mut ramfold_serve::ServerConfig| config.handshake_timeout = Duration::MAX;
    let fixture = Fixture::with(ram(), patient);
    drop(Client::greeted(fixture.path(), 3).unwrap());
    fixture.assert_well();
}

#[test]
fn a_handshake_byte_by_byte_does_not_prolong_its_time() {
    let short = |config: &mut ramfold_serve::ServerConfig| {
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
    let quick = |config: &mut ramfold_serve::ServerConfig| {
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

/// 256 idle connections shut everybody else out with a bare end of file: neither the client nor
/// the owner of the server learned why.
#[test]
fn one_client_too_many_is_told_why_and_the_others_are_served() {
    let (observer, events) = watched();
    let fixture = Fixture::with(ram(), |config| {
        config.connections_max = 2;
        config.observer = observer;
    });
    let mut first = fixture.open(true);
    let second = fixture.open(true);
    let mut third = Client::greeted(fixture.path(), 3).expect("it is greeted");
    for option in [OPT_STRUCTURED, OPT_GO] {
        let replies = third.option(option, &[0; 6]).expect("every option is answered");
        let words = String::from_utf8_lossy(&replies[0].1).into_owned();
        assert_eq!(replies[0].0, 1 << 31 | 2, "a matter of policy");
        assert!(words.contains("all the 2 connections"), "{words}");
    }
    let (me, why) = (Peer::Process(std::process::id()), Refused::Full { most: 2 });
    let refused = Event::Refused { purpose: Purpose::Nbd, why, peer: me, busiest: Some((me, 2)) };
    assert!(events.lock().unwrap().contains(&refused), "{events:?}");
    first.read(0, 1).unwrap();
    drop((second, third));
    wait_until("there is room again", || fixture.server.connections() == 1);
    fixture.open(true).read(0, 1).unwrap();
    drop(first);
    // A client that has just closed counts until the server sees it. One more would be too many.
    wait_until("there is room for another", || fixture.server.connections() == 0);
    fixture.assert_well();
}

/// Connections that never said a word held the last places for ten seconds at a time.
#[test]
fn who_says_nothing_makes_way() {
    let fixture = Fixture::with(ram(), |config| {
        config.connections_max = 3;
        config.handshake_timeout = Duration::MAX;
    });
    let mut served = fixture.open(true);
    let mut silent = [(); 2].map(|()| Client::raw(fixture.path()).unwrap());
    wait_until("all places are taken", || fixture.server.connections() == 3);
    wait_until("one makes way", || Client::open(fixture.path(), true).is_ok());
    assert!(silent[0].is_closed(), "the first of them");
    served.read(0, 1).expect("a client that is served stays");
    drop((served, silent));
    fixture.assert_well();
}

/// What a server told of its connections.
type Events = Arc<Mutex<Vec<Event>>>;

fn watched() -> (Observer, Events) {
    let events = Events::default();
    let told = Arc::clone(&events);
    (Observer::new(move |event| told.lock().unwrap().push(event)), events)
}

/// A client that hung in the middle of a request used to be reported to no one.
#[test]
fn a_client_that_stalls_is_told_of_once_and_again_when_it_goes_on() {
    let (observer, events) = watched();
    let fixture = Fixture::with(ram(), |config| {
        config.idle_after = Duration::from_millis(10);
        config.stall_after = Duration::from_millis(100);
        config.observer = observer;
    });
    let stalls = |wanted: Stall| {
        let events = events.lock().unwrap();
        let is_one =
            |event: &&Event| matches!(event, Event::Stalled { stall, .. } if *stall == wanted);
        events.iter().filter(is_one).count()
    };
    let recovered = || {
        let events = events.lock().unwrap();
        events.iter().filter(|event| matches!(event, Event::Recovered { .. })).count()
    };
    let mut slow = fixture.open(false);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(stalls(Stall::Request), 0, "between two requests it may take its time");
    let whole = encode(&writing(0, &[7; 4096]));
    slow.line.write_all(&whole[..1000]).unwrap();
    wait_until("half a request is told of", || stalls(Stall::Request) == 1);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(stalls(Stall::Request), 1, "once");
    slow.line.write_all(&whole[1000..]).unwrap();
    wait_until("it goes on", || recovered() == 1);
    let mut deaf = fixture.open(false);
    deaf.write(0, &pattern(8 << 20, 1)).unwrap();
    let asks = Ask { len: 8 << 20, ..Ask::default() };
    deaf.send(&asks).unwrap();
    wait_until("answers that nobody takes are told of", || stalls(Stall::Answers) == 1);
    deaf.answer(&asks).expect("they wait for it");
    wait_until("it goes on, too", || recovered() == 2);
    drop((slow, deaf));
    fixture.assert_well();
}

/// It is quiet for longer than a wait lasts, again and again, but never for as long as is told of.
#[test]
fn a_client_that_takes_its_answers_slowly_is_not_told_of() {
    const PART: usize = 64 << 10;
    const ALL: usize = 8 << 20;
    let (observer, events) = watched();
    let fixture = Fixture::with(ram(), |config| {
        config.idle_after = Duration::from_millis(1);
        config.stall_after = Duration::from_secs(1);
        config.observer = observer;
    });
    let mut slow = fixture.open(false);
    slow.write(0, &pattern(ALL, 1)).unwrap();
    slow.send(&Ask { len: ALL as u32, ..Ask::default() }).unwrap();
    let (mut part, mut longest, mut before) = (vec![0; PART], Duration::ZERO, Instant::now());
    for _ in 0..ALL / PART {
        thread::sleep(Duration::from_millis(15));
        slow.line.read_exact(&mut part).unwrap();
        longest = longest.max(before.elapsed());
        before = Instant::now();
    }
    let told = events.lock().unwrap().iter().any(|it| matches!(it, Event::Stalled { .. }));
    // On a machine that stood still it was quiet for long enough.
    assert!(!told || longest > Duration::from_millis(500), "at most {longest:?} of silence");
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
