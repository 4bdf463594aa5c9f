//! A disk over NBD against servers that misbehave.

use std::io::Write;
use std::sync::mpsc::channel;
use std::time::Instant;

use ramfold_disk::{Disk, DiskError, NbdDisk};

use crate::server::{
    Answer, DISCONNECT, FLAGS, GO, PATIENCE, Place, READ, SIZE, converse, greet, option, page_of,
    reply, request, right, same, serve,
};

#[track_caller]
fn reads_right(disk: &NbdDisk, page: u64) {
    let mut bytes = [0xff; 4096];
    disk.read(page * 4096, &mut bytes).expect("it is read");
    assert!(bytes.iter().all(|&byte| byte == page as u8), "page {page}");
}

#[test]
fn replies_may_come_in_any_order() {
    let place = Place::new();
    serve(place.listen(), same, |_, at, _| if at % 2 == 0 { Answer::Later } else { Answer::Right });
    let disk = place.open().expect("a socket");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let disk = &disk;
            scope.spawn(move || (0..50).for_each(|page| reads_right(disk, 2 * page + thread)));
        }
    });
    assert_eq!(disk.report().repeated, 0);
}

#[test]
fn a_disk_that_is_dropped_says_good_bye() {
    let place = Place::new();
    let (sender, commands) = channel();
    serve(place.listen(), same, move |_, _, asked| {
        sender.send(asked.command).expect("the test listens");
        if asked.command == DISCONNECT { Answer::Close } else { Answer::Right }
    });
    let disk = place.open().expect("it is served");
    reads_right(&disk, 0);
    drop(disk);
    assert_eq!((commands.recv(), commands.recv()), (Ok(READ), Ok(DISCONNECT)));
}

/// A server that sends a byte now and then.
#[test]
fn a_server_that_drips_is_refused_in_time() {
    let place = Place::new();
    let listener = place.listen();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        for byte in b"NBDMAGICIHAVEOPT".iter().cycle() {
            std::thread::sleep(PATIENCE / 5);
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
        }
    });
    assert_eq!(place.open().expect_err("it never ends").kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn a_long_request_goes_in_pieces_that_the_server_takes() {
    let place = Place::new();
    let (sender, lengths) = channel();
    serve(place.listen(), same, move |_, _, asked| {
        sender.send(asked.len).expect("a socket");
        Answer::Right
    });
    let disk = place.open().expect("a socket");
    let mut bytes = vec![0; 150_000];
    disk.read(0, &mut bytes).expect("a socket");
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == page_of(at as u64)));
    let lengths: Vec<u32> = lengths.try_iter().collect();
    assert_eq!(lengths, [65536, 65536, 18928]);
}

#[test]
fn a_lost_connection_is_made_again_and_the_request_repeated() {
    let place = Place::new();
    serve(place.listen(), same, |connection, at, _| match (connection, at) {
        (0, 2) | (1, 0) => Answer::Close,
        _ => Answer::Right,
    });
    let disk = place.open().expect("a socket");
    (0..10).for_each(|page| reads_right(&disk, page));
    let report = disk.report();
    assert!(report.connected);
    assert_eq!((report.repeated, report.reconnects, report.late), (2, 2, 0), "{report:?}");
}

#[test]
fn a_server_that_is_gone_for_a_moment_is_waited_for() {
    let place = Place::new();
    let (listener, (sender, gone)) = (place.listen(), channel());
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a socket");
        drop(listener);
        let _ = converse(
            stream,
            SIZE,
            FLAGS,
            |at, _| if at == 0 { Answer::Right } else { Answer::Close },
        );
        sender.send(()).expect("a socket");
    });
    let disk = place.open().expect("a socket");
    reads_right(&disk, 1);
    let place = &place;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            gone.recv().expect("a socket");
            std::thread::sleep(PATIENCE / 6);
            serve(place.listen(), same, |_, _, _| Answer::Right);
        });
        reads_right(&disk, 2);
    });
    server.join().expect("a socket");
    assert_eq!(disk.report().reconnects, 1);
}

#[test]
fn a_server_that_stays_away_is_an_error_in_time() {
    let place = Place::new();
    let listener = place.listen();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a socket");
        drop(listener);
        let _ = converse(stream, SIZE, FLAGS, |_, _| Answer::Close);
    });
    let disk = place.open().expect("a socket");
    let start = Instant::now();
    let error = disk.write(0, &[1; 4096]).unwrap_err();
    assert!(start.elapsed() >= PATIENCE, "it was tried as long as it may take");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(matches!(error, DiskError::Backing(_)) && source.contains("was tried"), "{source}");
    let report = disk.report();
    assert!(!report.connected && report.late == 1, "{report:?}");
    server.join().expect("a socket");
}

#[test]
fn a_request_without_an_answer_ends_and_the_next_one_is_answered() {
    let place = Place::new();
    serve(place.listen(), same, |connection, _, _| match connection {
        0 => Answer::Nothing,
        _ => Answer::Right,
    });
    let disk = place.open().expect("a socket");
    let error = disk.read(0, &mut [0; 4096]).unwrap_err();
    assert!(matches!(error, DiskError::Backing(_)), "{error}");
    reads_right(&disk, 3);
    assert_eq!((disk.report().late, disk.report().reconnects), (1, 1));
}

/// A write that was given up may still be done. What is written next must come after it.
#[test]
fn the_next_connection_waits_until_the_server_has_closed_the_last_one() {
    let place = Place::new();
    let listener = place.listen();
    let (events, told) = channel();
    let (release, released) = channel::<()>();
    std::thread::spawn(move || {
        let mut released = Some(released);
        for (number, stream) in listener.incoming().enumerate() {
            let (events, hold) = (events.clone(), released.take());
            std::thread::spawn(move || {
                events.send(format!("begins {number}")).expect("the test listens");
                let mut stream = stream.expect("a client");
                let _ = converse(stream.try_clone().expect("a copy"), SIZE, FLAGS, |_, asked| {
                    if let Some(hold) = &hold {
                        let _ = hold.recv();
                        events.send(format!("writes {}", asked.offset)).expect("the test listens");
                    }
                    Answer::Right
                });
                let _ = stream.flush();
            });
        }
    });
    let disk = place.open().expect("it is served");
    disk.write(4096, &[1; 4096]).unwrap_err();
    // As often as it is tried, no other connection is made.
    let start = Instant::now();
    while start.elapsed() < 2 * PATIENCE {
        disk.write(4096, &[2; 4096]).unwrap_err();
        std::thread::sleep(PATIENCE / 10);
    }
    release.send(()).expect("the server waits");
    drop(release);
    let written = || disk.write(4096, &[3; 4096]).is_ok();
    while !written() {
        assert!(start.elapsed() < 60 * PATIENCE, "the server can be reached again");
        std::thread::sleep(PATIENCE / 10);
    }
    let told: Vec<String> = told.try_iter().collect();
    assert_eq!(told, ["begins 0", "writes 4096", "begins 1"]);
}

/// qemu-nbd closes its connection while it still writes what it read before.
#[test]
fn a_write_that_had_no_reply_may_still_be_done() {
    const ESHUTDOWN: u32 = 108;
    let place = Place::new();
    serve(place.listen(), same, |connection, at, _| match (connection, at) {
        (0, 0) => Answer::Error(5),
        (0, 1) => Answer::Error(ESHUTDOWN),
        (0, 3) | (1, 1) => Answer::Close,
        (2, 1) => Answer::Nothing,
        _ => Answer::Right,
    });
    let disk = place.open().expect("it is served");
    let write = |page: u64| disk.write(page * 4096, &[1; 4096]);
    write(0).expect_err("it is refused");
    write(1).expect("it is repeated after the refusal");
    write(2).expect("it is repeated on the next connection");
    reads_right(&disk, 3);
    write(4).expect_err("it is not answered");
    let told = [0, 1, 2, 3, 4, 5].map(|page| disk.may_still_change(page * 4096, 4096));
    assert_eq!(told, [false, false, true, false, true, false]);
}

#[test]
fn an_answer_that_nobody_waits_for_ends_the_connection() {
    let place = Place::new();
    serve(place.listen(), same, |connection, at, _| match (connection, at) {
        (0, 0) => Answer::Stray,
        _ => Answer::Right,
    });
    let disk = place.open().expect("a socket");
    reads_right(&disk, 4);
    assert_eq!(disk.report().reconnects, 1);
}

#[test]
fn errors_of_the_server_are_told_as_what_they_are() {
    let place = Place::new();
    serve(place.listen(), same, |_, at, _| Answer::Error([1, 12, 28, 5, 22][at]));
    let disk = place.open().expect("a socket");
    let errors: Vec<DiskError> = (0..5).map(|_| disk.write(0, &[1; 512]).unwrap_err()).collect();
    assert!(matches!(errors[0], DiskError::ReadOnly), "{errors:?}");
    assert!(matches!(errors[1], DiskError::NoMemory), "{errors:?}");
    assert!(matches!(errors[2], DiskError::NoSpace), "{errors:?}");
    assert!(matches!(errors[3], DiskError::Backing(_)), "{errors:?}");
    assert!(matches!(errors[4], DiskError::Backing(_)), "{errors:?}");
    assert_eq!(disk.report().refused, 5);
}

/// What was written to the first disk is not on the second one.
#[test]
fn another_disk_of_the_same_name_is_not_taken_for_the_first() {
    let place = Place::new();
    let size = |connection| if connection == 0 { SIZE } else { 2 * SIZE };
    serve(place.listen(), size, |connection, at, _| match (connection, at) {
        (0, 1) => Answer::Close,
        _ => Answer::Right,
    });
    let disk = place.open().expect("a socket");
    reads_right(&disk, 1);
    let error = disk.read(0, &mut [0; 4096]).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("another disk"), "{source}");
    assert_eq!(disk.size_bytes(), SIZE);
}

#[test]
fn a_server_that_knows_no_go_is_asked_the_old_way() {
    let place = Place::new();
    let listener = place.listen();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a socket");
        greet(&mut stream).expect("a socket");
        option(&mut stream).expect("a socket");
        reply(&mut stream, 1 << 31 | 1, b"what?").expect("a socket");
        let (number, name) = option(&mut stream).expect("a socket");
        assert_eq!((number, name.as_slice()), (1, &b"x"[..]));
        stream.write_all(&SIZE.to_be_bytes()).expect("a socket");
        stream.write_all(&3_u16.to_be_bytes()).expect("a socket");
        while let Ok(asked) = request(&mut stream) {
            let _ = right(&mut stream, asked);
        }
    });
    let disk = place.open().expect("a socket");
    assert!(disk.read_only() && disk.size_bytes() == SIZE);
    reads_right(&disk, 9);
    assert!(matches!(disk.write(0, &[0]), Err(DiskError::ReadOnly)));
    disk.flush().expect("a socket");
}

#[test]
fn a_refusal_is_told_in_the_words_of_the_server() {
    let place = Place::new();
    let listener = place.listen();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a socket");
        greet(&mut stream).expect("a socket");
        option(&mut stream).expect("a socket");
        reply(&mut stream, 1 << 31 | 6, b"no x here\x1b[2J").expect("a socket");
    });
    let error = place.open().unwrap_err().to_string();
    assert!(error.contains("no export of that name (no x here[2J)"), "{error}");
}

/// Whatever a server sends first: an error, in time.
#[test]
fn a_server_that_speaks_nonsense_is_refused() {
    let place = Place::new();
    let listener = place.listen();
    let begun = b"NBDMAGICIHAVEOPT\x00\x03";
    std::thread::spawn(move || {
        let mut chance = 0x9e37_79b9_7f4a_7c15_u64;
        for (number, stream) in listener.incoming().enumerate() {
            let mut bytes = if number % 2 == 0 { begun.to_vec() } else { Vec::new() };
            if number % 4 == 0 {
                bytes.extend_from_slice(&0x0003_e889_0455_65a9_u64.to_be_bytes());
                bytes.extend_from_slice(&GO.to_be_bytes());
            }
            bytes.extend((0..number * 3).map(|_| {
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                chance as u8
            }));
            // The client may have left already.
            let _ = stream.unwrap().write_all(&bytes);
        }
    });
    for _ in 0..60 {
        place.open().unwrap_err();
    }
}
