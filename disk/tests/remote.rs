//! A disk over NBD against servers that misbehave: a small server whose answers a test decides.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ramfold_disk::{Disk, DiskError, NbdDisk};

const PATIENCE: Duration = Duration::from_secs(1);
const SIZE: u64 = 1 << 20;

const GO: u32 = 7;
const READ: u16 = 0;
const DISCONNECT: u16 = 2;

/// What the server is asked.
#[derive(Clone, Copy)]
struct Asked {
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

/// What it does about a request.
enum Answer {
    Right,
    Error(u32),
    /// It closes the connection.
    Close,
    /// It says nothing.
    Nothing,
    /// It keeps the request, and answers it after the next one.
    Later,
    /// It answers a request that nobody made.
    Stray,
}

/// Where a server listens. The file is removed with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ramfold-remote-{}-{number}.sock", std::process::id());
        Place(std::env::temp_dir().join(name))
    }

    fn address(&self) -> String {
        format!("nbd+unix:///x?socket={}&timeout={}", self.0.display(), PATIENCE.as_secs())
    }

    fn open(&self) -> std::io::Result<NbdDisk> {
        NbdDisk::open(&self.address())
    }

    fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(&self.0);
        UnixListener::bind(&self.0).expect("a socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves connection after connection. `answer` gets the number of the connection, from 0, and the
/// number of the request in it. The size is that of the connection's number.
fn serve(
    listener: UnixListener,
    size: fn(usize) -> u64,
    mut answer: impl FnMut(usize, usize, Asked) -> Answer + Send + 'static,
) {
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            // The client may leave at any time.
            let _ = converse(stream.expect("a client"), size(number), |at, asked| {
                answer(number, at, asked)
            });
        }
    });
}

fn converse(
    mut stream: UnixStream,
    size: u64,
    mut answer: impl FnMut(usize, Asked) -> Answer,
) -> std::io::Result<()> {
    greet(&mut stream)?;
    let (option, _) = option(&mut stream)?;
    assert_eq!(option, GO);
    let flags = 1_u16 | 1 << 2 | 1 << 6;
    let info = [&0_u16.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
    reply(&mut stream, 3, &info)?;
    let sizes = [1_u32, 4096, 1 << 16].map(u32::to_be_bytes).concat();
    reply(&mut stream, 3, &[&3_u16.to_be_bytes()[..], &sizes].concat())?;
    reply(&mut stream, 1, &[])?;
    let mut kept = None;
    for at in 0.. {
        let asked = request(&mut stream)?;
        match answer(at, asked) {
            Answer::Right => right(&mut stream, asked)?,
            Answer::Error(error) => head(&mut stream, error, asked.cookie)?,
            Answer::Close => return Ok(()),
            Answer::Nothing => {}
            Answer::Later => kept = Some(asked),
            Answer::Stray => head(&mut stream, 0, asked.cookie + 1000)?,
        }
        if let Some(asked) = kept.take_if(|kept| kept.cookie != asked.cookie) {
            right(&mut stream, asked)?;
        }
    }
    Ok(())
}

fn greet(stream: &mut UnixStream) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
    stream.read_exact(&mut [0; 4])
}

fn option(stream: &mut UnixStream) -> std::io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let mut data = vec![0; word(&head[12..]) as usize];
    stream.read_exact(&mut data)?;
    Ok((word(&head[8..12]), data))
}

fn reply(stream: &mut UnixStream, kind: u32, data: &[u8]) -> std::io::Result<()> {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    let words = [GO, kind, data.len() as u32].map(u32::to_be_bytes).concat();
    stream.write_all(&[&magic[..], &words, data].concat())
}

fn request(stream: &mut UnixStream) -> std::io::Result<Asked> {
    let mut head = [0; 28];
    stream.read_exact(&mut head)?;
    let long = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let command = u16::from_be_bytes([head[6], head[7]]);
    let asked = Asked { command, cookie: long(8), offset: long(16), len: word(&head[24..]) };
    if command == 1 {
        stream.read_exact(&mut vec![0; asked.len as usize])?;
    }
    Ok(asked)
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("eight or four bytes"))
}

fn head(stream: &mut UnixStream, error: u32, cookie: u64) -> std::io::Result<()> {
    let words = [0x6744_6698, error].map(u32::to_be_bytes).concat();
    stream.write_all(&[&words[..], &cookie.to_be_bytes()].concat())
}

/// Each byte of the server's disk says at which page it is.
fn right(stream: &mut UnixStream, asked: Asked) -> std::io::Result<()> {
    head(stream, 0, asked.cookie)?;
    if asked.command != READ {
        return Ok(());
    }
    let bytes: Vec<u8> = (0..u64::from(asked.len)).map(|at| page_of(asked.offset + at)).collect();
    stream.write_all(&bytes)
}

fn page_of(offset: u64) -> u8 {
    (offset / 4096) as u8
}

#[track_caller]
fn reads_right(disk: &NbdDisk, page: u64) {
    let mut bytes = [0xff; 4096];
    disk.read(page * 4096, &mut bytes).expect("it is read");
    assert!(bytes.iter().all(|&byte| byte == page as u8), "page {page}");
}

fn same(_: usize) -> u64 {
    SIZE
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
        let _ = converse(stream, SIZE, |at, _| if at == 0 { Answer::Right } else { Answer::Close });
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
        let _ = converse(stream, SIZE, |_, _| Answer::Close);
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
                let _ = converse(stream.try_clone().expect("a copy"), SIZE, |_, asked| {
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
