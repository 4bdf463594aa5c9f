//! A server stops promptly, whatever clients do, and leaves nothing behind.

use crate::client::*;
use crate::fixture::{Fixture, SIZE, pattern};
use disk::{Disk, DiskError, RamDisk};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Far more than stopping takes, far less than waiting for a stalled client would.
const PROMPT: Duration = Duration::from_secs(10);

fn stop(fixture: &Fixture) {
    let start = Instant::now();
    fixture.server.stop();
    assert!(start.elapsed() < PROMPT, "stopping took {:?}", start.elapsed());
    assert_eq!(fixture.server.connections(), 0);
    assert_eq!(fixture.server.buffer_bytes(), 0);
    assert!(!fixture.path().exists(), "the socket is left");
    assert!(Client::raw(fixture.path()).is_err(), "somebody still listens");
}

#[test]
fn a_server_without_clients_stops_and_may_be_stopped_again() {
    let fixture = Fixture::ram();
    stop(&fixture);
    stop(&fixture);
}

#[test]
fn clients_that_stall_in_every_place_do_not_hold_it_up() {
    let disk = Arc::new(RamDisk::new(SIZE).unwrap());
    let fixture = Fixture::with(disk, |config| config.stop_grace = Duration::from_millis(100));
    let _silent = Client::raw(fixture.path()).unwrap();
    let _quiet = fixture.open(true);
    let mut half = fixture.open(true);
    half.line.write_all(&encode(&writing(0, &[1; 4096]))[..2000]).unwrap();
    let mut deaf = fixture.open(true);
    deaf.write(0, &pattern(8 << 20, 1)).unwrap();
    for _ in 0..4 {
        deaf.send(&Ask { len: 8 << 20, ..Ask::default() }).unwrap();
    }
    stop(&fixture);
}

#[test]
fn traffic_is_cut_between_requests() {
    let fixture = Fixture::ram();
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        for i in 0..4_u64 {
            let (fixture, stopped) = (&fixture, &stopped);
            scope.spawn(move || {
                let mut client = fixture.open(true);
                while let Ok(answer) = client.write(i << 20, &pattern(20_000, 0)) {
                    assert_eq!(answer, Answer::Data(Vec::new()));
                }
                assert!(stopped.load(Ordering::SeqCst), "a client was cut before the stop");
            });
        }
        thread::sleep(Duration::from_millis(100));
        stopped.store(true, Ordering::SeqCst);
        stop(&fixture);
    });
}

#[test]
fn dropping_a_server_stops_it() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    drop(fixture);
    assert!(client.is_closed());
}

/// A disk that takes its time to flush.
struct Slow(RamDisk);

impl Disk for Slow {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.0.write(offset, data)
    }

    fn flush(&self) -> Result<(), DiskError> {
        thread::sleep(Duration::from_millis(20));
        self.0.flush()
    }
}

/// Requests that a client sent ahead were all served before the stop was noticed: thousands fit
/// an inbox, and each may be slow.
#[test]
fn what_was_sent_ahead_does_not_hold_it_up() {
    let disk = Arc::new(Slow(RamDisk::new(SIZE).unwrap()));
    let fixture = Fixture::with(disk, |config| config.stop_grace = Duration::from_millis(100));
    let mut eager = fixture.open(true);
    eager.write(0, &pattern(1 << 20, 1)).unwrap(); // a large inbox
    let flush = encode(&Ask { kind: FLUSH, ..Ask::default() });
    eager.line.write_all(&flush.repeat(3000)).unwrap(); // a minute of work
    stop(&fixture);
}
