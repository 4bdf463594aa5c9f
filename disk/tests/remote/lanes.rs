//! Several connections to a server that allows them.
//!
//! Claims
//! - Places of the disk have different connections, and each place has the same one always.
//! - A connection that is lost, or that is not answered, holds up its own places only.
//! - A server that allows fewer has fewer.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ramfold_disk::{Allocation, Disk, NbdDisk};

use crate::server::{Answer, Asked, DISCONNECT, FLAGS, PATIENCE, Place, converse, page_of};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;
/// It allows several connections.
const SEVERAL: u16 = 1 << 8;

/// Serves connections at the same time, and tells of each request.
fn serve(
    place: &Place,
    flags: u16,
    answer: fn(usize, usize) -> Answer,
) -> Receiver<(usize, Asked)> {
    let (listener, (sender, told)) = (place.listen(), channel());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, sender) = (stream.expect("a client"), sender.clone());
            std::thread::spawn(move || {
                // The client may leave at any time.
                let _ = converse(stream, SIZE, flags, |at, asked| {
                    // The test may have ended.
                    let _ = sender.send((number, asked));
                    answer(number, at)
                });
            });
        }
    });
    told
}

fn right(_: usize, _: usize) -> Answer {
    Answer::Right
}

fn reads_right(disk: &NbdDisk, offset: u64, len: usize) {
    let mut bytes = vec![0xff; len];
    disk.read(offset, &mut bytes).expect("it is read");
    assert!(bytes.iter().zip(offset..).all(|(&byte, at)| byte == page_of(at)), "at {offset}");
}

/// The connection of each MiB that was asked for.
fn connections(told: &Receiver<(usize, Asked)>) -> HashMap<u64, usize> {
    let mut of = HashMap::new();
    for (number, asked) in told.try_iter().filter(|(_, asked)| asked.command != DISCONNECT) {
        let (first, last) = (asked.offset / MIB, (asked.offset + u64::from(asked.len) - 1) / MIB);
        assert_eq!(first, last, "a request is of one place: {}+{}", asked.offset, asked.len);
        assert_eq!(*of.entry(first).or_insert(number), number, "MiB {first}");
    }
    of
}

#[test]
fn places_have_connections_of_their_own() {
    let place = Place::new();
    let told = serve(&place, FLAGS | SEVERAL, right);
    let disk = place.open().expect("it is served");
    for _ in 0..3 {
        for mib in 0..8 {
            disk.write(mib * MIB + 8192, &[7; 4096]).expect("it is written");
            reads_right(&disk, mib * MIB, 4096);
        }
    }
    reads_right(&disk, MIB - 4096, 3 << 20);
    disk.write(2 * MIB - 8192, &[7; 3 << 20]).expect("it is written");
    disk.write_zeroes(3 * MIB - 4096, 2 * MIB, Allocation::MayUnmap).expect("they are written");
    let of = connections(&told);
    assert_eq!((0..4).map(|mib| of[&mib]).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!((0..8).all(|mib| of[&mib] == of[&(mib % 4)]), "{of:?}");
    let report = disk.report();
    assert_eq!((report.connected, report.reconnects, report.repeated), (true, 0, 0), "{report:?}");
}

#[test]
fn a_server_that_does_not_allow_several_gets_one() {
    let place = Place::new();
    let told = serve(&place, FLAGS, right);
    let disk = place.open().expect("it is served");
    (0..8).for_each(|mib| reads_right(&disk, mib * MIB, 4096));
    assert!(told.try_iter().all(|(number, _)| number == 0));
}

/// The second connection ends at its first request. The fifth, which is made instead, is asked
/// again.
#[test]
fn a_connection_that_is_lost_is_made_anew_for_its_places() {
    let place = Place::new();
    let told = serve(&place, FLAGS | SEVERAL, |number, _| match number {
        1 => Answer::Close,
        _ => Answer::Right,
    });
    let disk = place.open().expect("it is served");
    (0..8).for_each(|mib| reads_right(&disk, mib * MIB, 4096));
    let numbers = told.try_iter().map(|(number, asked)| (asked.offset / MIB, number));
    assert_eq!(
        numbers.collect::<Vec<_>>(),
        [(0, 0), (1, 1), (1, 4), (2, 2), (3, 3), (4, 0), (5, 4), (6, 2), (7, 3)]
    );
    let report = disk.report();
    assert_eq!((report.connected, report.reconnects, report.repeated), (true, 1, 1), "{report:?}");
}

#[test]
fn a_server_that_allows_two_has_two() {
    let place = Place::new();
    let (listener, (sender, told)) = (place.listen(), channel());
    std::thread::spawn(move || {
        let mut clients = listener.incoming();
        for number in 0..2 {
            let (stream, sender) = (clients.next().expect("a client"), sender.clone());
            std::thread::spawn(move || {
                let _ = converse(stream.expect("a client"), SIZE, FLAGS | SEVERAL, |_, asked| {
                    // The test may have ended.
                    let _ = sender.send((number, asked));
                    Answer::Right
                });
            });
        }
        // What comes then is not accepted, and waits.
        std::thread::sleep(Duration::from_secs(30));
    });
    let disk = place.open().expect("it is served");
    (0..8).for_each(|mib| reads_right(&disk, mib * MIB, 4096));
    let of = connections(&told);
    assert!((0..8).all(|mib| of[&mib] == mib as usize % 2), "{of:?}");
    assert_eq!(disk.report().late, 0);
}

/// The second connection is never answered. Its places are errors in time, then at once, and come
/// back; the others are read as ever.
#[test]
fn a_connection_that_is_not_answered_holds_up_its_own_places_only() {
    let place = Place::new();
    let _told = serve(&place, FLAGS | SEVERAL, |number, _| match number {
        1 => Answer::Nothing,
        _ => Answer::Right,
    });
    let disk = place.open().expect("it is served");
    let fails = |mib: u64| {
        let start = Instant::now();
        disk.read(mib * MIB, &mut [0; 4096]).expect_err("nobody answers");
        start.elapsed()
    };
    std::thread::scope(|scope| {
        let held_up = scope.spawn(|| fails(1));
        std::thread::sleep(PATIENCE / 4);
        for mib in [0, 2, 3, 4] {
            reads_right(&disk, mib * MIB, 4096);
        }
        assert!(!held_up.is_finished(), "they did not wait for it");
        assert!(held_up.join().expect("no panic") >= PATIENCE);
    });
    let start = Instant::now();
    while disk.read(MIB, &mut [0; 4096]).is_err() {
        reads_right(&disk, 2 * MIB, 4096);
        assert!(start.elapsed() < Duration::from_secs(20), "it is tried again");
        std::thread::sleep(PATIENCE / 20);
    }
    reads_right(&disk, 5 * MIB, 4096);
}

/// After one request in its time and one more, the others on that connection fail at once.
#[test]
fn a_connection_that_is_never_answered_is_not_waited_for_each_time() {
    let place = Place::new();
    let _told = serve(&place, FLAGS | SEVERAL, |number, _| match number {
        0 | 2 | 3 => Answer::Right,
        _ => Answer::Nothing,
    });
    let disk = place.open().expect("it is served");
    let fails = || {
        let start = Instant::now();
        disk.read(MIB, &mut [0; 4096]).expect_err("nobody answers");
        start.elapsed()
    };
    assert!(fails() >= PATIENCE);
    fails();
    assert!(fails() < PATIENCE / 2, "it is not tried");
    reads_right(&disk, 0, 4096);
}
