//! Seeded fuzzing of a live server, in four ways:
//!
//! - noise: random bytes, before and after a good handshake;
//! - damage: a good conversation with bytes changed, dropped, repeated or cut off;
//! - flaws: the same inside TLS, damaged inside it or on the wire;
//! - twin: valid and invalid requests in random batches, to plain memory and to a compressed
//!   device; each answer, with its error number, is compared with what a `Vec<u8>` says it must be.
//!   Between batches the device writes pages back and compacts. One client in three uses TLS.
//!
//! Invariants checked after every case: a new good client is served as if nothing had happened.
//! Once the others are gone, no connection is listed and no buffer is held. A recount of the device
//! finds nothing.
//!
//! `RAMFOLD_FUZZ_SECONDS` (5) is for all four together. `RAMFOLD_FUZZ_SEED` repeats a run. The
//! control socket (see `nbd::control`) and several clients that write one range are not covered.

#[cfg(test)]
#[path = "nbd/certificates.rs"]
mod certificates;
#[cfg(test)]
#[path = "nbd/client.rs"]
#[expect(dead_code, reason = "the protocol tests use the rest")]
mod client;
#[cfg(test)]
#[path = "nbd/fixture.rs"]
#[expect(dead_code, reason = "the protocol tests use the rest")]
mod fixture;

use certificates::Certificates;
use client::*;
use disk::{Disk, RamDisk, ReadOnly};
use fixture::Fixture;
use ramfold_serve::ServerConfig;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use zram::{Memory, MemoryConfig, Selection, Zram, ZramConfig};

const SIZE: u64 = (1 << 20) + 100;
/// A multiple of a page, because a device has whole pages.
const DEVICE_SIZE: u64 = 257 * 4096;

/// A small generator of random numbers, Steele and others' SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs cases for a quarter of the time, at least one, each with a seed that is printed.
fn run(what: &str, case: impl Fn(&mut Random)) {
    let seconds = number("RAMFOLD_FUZZ_SECONDS").unwrap_or(5);
    let start = number("RAMFOLD_FUZZ_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock is set");
        now.as_nanos() as u64
    });
    let end = Instant::now() + Duration::from_millis(seconds * 1000 / 4);
    let mut seed = start;
    loop {
        println!("{what}: RAMFOLD_FUZZ_SEED={seed}");
        case(&mut Random(seed));
        seed = seed.wrapping_add(1);
        if Instant::now() >= end {
            break;
        }
    }
    println!("{what}: {} cases", seed.wrapping_sub(start));
}

/// A server that offers TLS if there are certificates.
fn server(certificates: Option<&Certificates>) -> Fixture {
    let disk = Arc::new(RamDisk::new(SIZE).expect("a small disk"));
    let adjust = |config: &mut ServerConfig| {
        config.idle_after = Duration::from_millis(5);
        config.stop_grace = Duration::from_millis(100);
    };
    match certificates {
        Some(certificates) => certificates.serve(disk, false, adjust),
        None => Fixture::with(disk, adjust),
    }
}

/// Sends bytes in random portions while another thread discards the answers.
fn pour(fixture: &Fixture, bytes: &[u8], random: &mut Random) {
    let stream = UnixStream::connect(fixture.path()).expect("the server listens");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 65_536];
            while matches!((&stream).read(&mut buffer), Ok(n) if n > 0) {}
        });
        let mut rest = bytes;
        while !rest.is_empty() {
            let portion = rest.len().min(1 + random.below(5000));
            // A server that has hung up is within its rights.
            if (&stream).write_all(&rest[..portion]).is_err() {
                break;
            }
            rest = &rest[portion..];
        }
        let _ = stream.shutdown(if random.one_in(2) { Shutdown::Write } else { Shutdown::Both });
    });
}

/// A good handshake and the beginning of a good conversation, as bytes.
fn conversation(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    let mut option = |number: u32, data: &[u8]| {
        bytes.extend(IHAVEOPT.to_be_bytes());
        bytes.extend(number.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    };
    if random.one_in(4) {
        option(OPT_STARTTLS, &[]);
    }
    option(3, &[]);
    option(OPT_STRUCTURED, &[]);
    let context = [&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15][..], b"base:allocation"].concat();
    option(OPT_SET_META, &context);
    option(6, &[0, 0, 0, 3, b'r', b'a', b'm', 0, 1, 0, 3]);
    option(OPT_GO, &[0, 0, 0, 0, 0, 0]);
    for _ in 0..random.below(20) {
        bytes.extend(encode(&any_request(random, SIZE)));
    }
    bytes
}

#[test]
fn noise_harms_nobody() {
    let certificates = Certificates::make();
    let fixture = server(certificates.as_ref());
    run("noise", |random| {
        let noise = random.pick(&[10, 100, 1000, 100_000]);
        let mut bytes = if random.one_in(2) { conversation(random) } else { Vec::new() };
        let noise = random.bytes(noise);
        bytes.extend(noise);
        pour(&fixture, &bytes, random);
        fixture.assert_well();
    });
}

#[test]
fn damaged_conversations_harm_nobody() {
    let certificates = Certificates::make();
    let fixture = server(certificates.as_ref());
    run("damage", |random| {
        let mut bytes = conversation(random);
        for _ in 0..1 + random.below(4) {
            damage(&mut bytes, random);
        }
        pour(&fixture, &bytes, random);
        fixture.assert_well();
    });
}

/// A stream on which one byte is wrong, or that ends, after so many bytes were written.
struct Flawed {
    stream: UnixStream,
    left: usize,
    ends: bool,
}

impl Read for Flawed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Flawed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.left);
        if n > 0 {
            self.left -= n;
            return self.stream.write(&bytes[..n]);
        }
        if self.ends {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.left = usize::MAX;
        self.stream.write(&[bytes.first().map_or(0, |byte| byte ^ 1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn flaws_inside_tls_and_on_the_wire_harm_nobody() {
    let Some(certificates) = Certificates::make() else { return };
    let fixture = server(Some(&certificates));
    run("flaws", |random| {
        let mut bytes = conversation(random);
        if random.one_in(2) {
            damage(&mut bytes, random);
        }
        let stream = UnixStream::connect(fixture.path()).expect("the server listens");
        // Of greeting, STARTTLS and the reply to it.
        (&stream).read_exact(&mut [0; 18]).expect("a greeting");
        let start = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 5, 0, 0, 0, 0]].concat();
        (&stream).write_all(&start).expect("the server listens");
        (&stream).read_exact(&mut [0; 20]).expect("an ACK");
        let left = if random.one_in(3) { usize::MAX } else { random.below(9000) };
        let session = certificates.session(random.pick(&[&[&TLS12], &[&TLS13]]));
        // The first four bytes are the reply to the greeting, which went out in clear text. What
        // damage has left may be shorter than that.
        let rest = bytes.get(4..).unwrap_or_default();
        talk(session, Flawed { stream, left, ends: random.one_in(2) }, rest);
        fixture.assert_well();
    });
}

/// Sends everything, while another thread discards what comes back. The server may hang up.
fn talk(session: ClientConnection, flawed: Flawed, bytes: &[u8]) {
    let answers = flawed.stream.try_clone().expect("there are descriptors");
    let mut tls = StreamOwned::new(session, flawed);
    while tls.conn.is_handshaking() {
        if tls.conn.complete_io(&mut tls.sock).is_err() {
            return;
        }
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 65_536];
            while matches!((&answers).read(&mut buffer), Ok(n) if n > 0) {}
        });
        let _ = tls.write_all(bytes).and_then(|()| tls.flush());
        let _ = tls.sock.stream.shutdown(Shutdown::Both);
    });
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    let end = (at + 1 + random.below(40)).min(bytes.len());
    match random.below(5) {
        0 => bytes.truncate(at.max(1)),
        1 => drop(bytes.drain(at..end).count().min(bytes.len())),
        2 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
        3 => bytes[at] ^= 1 << random.below(8),
        _ => bytes[at..end].fill(random.pick(&[0, 0xff, 0x80])),
    }
    if bytes.is_empty() {
        bytes.push(0);
    }
}

/// A request, mostly a good one.
fn any_request(random: &mut Random, size: u64) -> Ask {
    let kind = random.pick(&[READ, READ, WRITE, WRITE, WRITE, TRIM, ZEROES, CACHE, FLUSH, STATUS]);
    let kind = if random.one_in(40) { random.next() as u16 | 8 } else { kind };
    let flags = match kind {
        READ => random.pick(&[0, 0, DF]),
        ZEROES => random.pick(&[0, NO_HOLE, FAST_ZERO, NO_HOLE | FAST_ZERO]),
        STATUS => random.pick(&[0, REQ_ONE]),
        _ => 0,
    } | random.pick(&[0, 0, FUA]);
    let flags = if random.one_in(30) { random.next() as u16 } else { flags };
    let page = random.next() % size / 4096 * 4096;
    let offset = match random.below(12) {
        0 => size - random.next() % 5000,
        1 => random.next(),
        2..5 => random.next() % size,
        _ => page,
    };
    let most = random.pick(&[1, 4096, 4096, 9000, if kind == WRITE { 20_000 } else { 300_000 }]);
    let len = if random.one_in(3) { random.below(most + 1) } else { most } as u32;
    let len = if kind == READ && random.one_in(30) { 33 << 20 } else { len };
    let (offset, len) = if kind == FLUSH && !random.one_in(9) { (0, 0) } else { (offset, len) };
    let payload = if kind == WRITE { content(random, len as usize) } else { Vec::new() };
    Ask { kind, flags, cookie: random.next(), offset, len, payload }
}

/// Bytes of a kind: noise, one that repeats, or noise in one of eight, which compresses.
fn content(random: &mut Random, len: usize) -> Vec<u8> {
    match random.below(3) {
        0 => random.bytes(len),
        1 => vec![random.next() as u8; len],
        _ => (0..len).map(|at| if at % 8 == 0 { random.next() as u8 } else { 0x61 }).collect(),
    }
}

/// What a disk in a vector would do.
struct Twin {
    bytes: Vec<u8>,
    read_only: bool,
    structured: bool,
}

impl Twin {
    /// The answer the server must give; for block status, `None` if it is not a refusal.
    fn answer(&mut self, ask: &Ask) -> Option<Answer> {
        if let Some(number) = self.refusal(ask) {
            return Some(Answer::Error(number));
        }
        let range = ask.offset as usize..ask.offset as usize + ask.len as usize;
        match ask.kind {
            READ => return Some(Answer::Data(self.bytes[range].to_vec())),
            WRITE => self.bytes[range].copy_from_slice(&ask.payload),
            TRIM | ZEROES => self.bytes[range].fill(0),
            STATUS => return None,
            _ => {}
        }
        Some(Answer::Data(Vec::new()))
    }

    fn refusal(&self, ask: &Ask) -> Option<u32> {
        let own = match ask.kind {
            READ if self.structured => DF,
            ZEROES => NO_HOLE | FAST_ZERO,
            STATUS if self.structured => REQ_ONE,
            STATUS => return Some(22),
            READ | WRITE | TRIM | CACHE | FLUSH => 0,
            _ => return Some(22),
        };
        let size = self.bytes.len() as u64;
        let outside = ask.offset.checked_add(ask.len.into()).is_none_or(|end| end > size);
        let changes = matches!(ask.kind, WRITE | TRIM | ZEROES);
        let too_long = matches!(ask.kind, READ | WRITE) && ask.len > 32 << 20;
        if ask.flags & !(own | FUA) != 0 || too_long {
            Some(22)
        } else if ask.flags & DF != 0 && ask.len > 128 << 10 {
            Some(75)
        } else if ask.kind == FLUSH {
            (ask.offset != 0 || ask.len != 0).then_some(22)
        } else if ask.kind == STATUS && ask.len == 0 {
            Some(22)
        } else if changes && self.read_only {
            Some(1)
        } else {
            outside.then_some(if matches!(ask.kind, WRITE | ZEROES) { 28 } else { 22 })
        }
    }

    /// Extents may split what is zero and what is not as they like, but must not call zero what
    /// is not, must begin at the beginning and must not go beyond the end.
    fn check_extents(&self, ask: &Ask, extents: &[(u32, u32)]) {
        let mut at = ask.offset as usize;
        for &(len, flags) in extents {
            let run = &self.bytes[at..at + len as usize];
            assert!(len > 0 && [0, 2, 3].contains(&flags), "{ask:?}: {extents:?}");
            assert!(flags == 0 || run.iter().all(|&byte| byte == 0), "{ask:?}: data called zeros");
            at += len as usize;
        }
        assert!(at <= ask.offset as usize + ask.len as usize, "{ask:?}: {extents:?}");
        assert!(!extents.is_empty() && (ask.flags & REQ_ONE == 0 || extents.len() == 1));
    }
}

/// Serves `disk`, and compares every answer with the twin's. `between` is called after each batch.
fn compare(disk: Arc<dyn Disk>, random: &mut Random, between: impl Fn(&mut Random)) {
    let structured = !random.one_in(3);
    let certificates = if random.one_in(3) { Certificates::make() } else { None };
    let bytes = vec![0; disk.size_bytes() as usize];
    let mut twin = Twin { bytes, read_only: disk.read_only(), structured };
    let (fixture, mut client) = connected(disk, structured, certificates.as_ref());
    for _ in 0..40 {
        batch(&mut client, &mut twin, random);
        between(random);
    }
    let all = client.read(0, twin.bytes.len() as u32).expect("the server answers");
    assert!(all == Answer::Data(twin.bytes), "the whole disk differs from the twin");
    drop(client);
    fixture.assert_well();
}

/// A server of a disk and its client, over TLS if there are certificates.
fn connected(
    disk: Arc<dyn Disk>,
    structured: bool,
    certificates: Option<&Certificates>,
) -> (Fixture, Client) {
    let Some(certificates) = certificates else {
        let fixture = Fixture::of(disk);
        let client = fixture.open(structured);
        return (fixture, client);
    };
    let fixture = certificates.serve(disk, false, |_| {});
    let client = Client::greeted(fixture.path(), 3).expect("the server greets");
    let mut client = certificates.secure(client, &[&TLS13]).expect("the server has TLS");
    client.haggle(structured).expect("a good client is served");
    (fixture, client)
}

/// A compressed device with a backing disk.
fn device() -> Zram {
    let memory = Memory::new(MemoryConfig::for_disk(DEVICE_SIZE)).expect("address space");
    let backing = RamDisk::new(DEVICE_SIZE).expect("a small disk");
    let config = ZramConfig::new("zram0", DEVICE_SIZE);
    Zram::new(memory, ZramConfig { backing: Some(Arc::new(backing)), ..config }).expect("a device")
}

/// Work of the device's owner: no client may notice.
fn upkeep(zram: &Zram, random: &mut Random) {
    let first = random.below(DEVICE_SIZE as usize / 4096) as u64;
    let last = (first + 20).min(DEVICE_SIZE / 4096 - 1);
    match random.below(4) {
        0 => _ = zram.compact(),
        1 => {
            let pages = Selection::Pages(vec![first..=last]);
            zram.write_back(&pages.into()).expect("the backing disk has room for every page");
        }
        _ => {}
    }
}

#[test]
fn every_answer_is_the_twins() {
    run("twin", |random| match random.below(5) {
        0 => {
            let ram = RamDisk::new(SIZE).expect("a small disk");
            compare(Arc::new(ReadOnly::new(ram)), random, |_| ());
        }
        1 => compare(Arc::new(RamDisk::new(SIZE).expect("a small disk")), random, |_| ()),
        _ => {
            let zram = Arc::new(device());
            compare(zram.clone(), random, |random| upkeep(&zram, random));
            zram.check().expect("a recount finds nothing");
            zram.check_backing().expect("what was written back is there");
        }
    });
}

/// Sends several requests at once, then checks the answers. Payloads are bounded, so that all
/// requests fit the socket while nobody reads.
fn batch(client: &mut Client, twin: &mut Twin, random: &mut Random) {
    let size = twin.bytes.len() as u64;
    let mut asks: Vec<Ask> = (0..1 + random.below(12)).map(|_| any_request(random, size)).collect();
    let mut budget = 100_000_i64;
    asks.retain(|ask| {
        budget -= ask.payload.len() as i64;
        budget > 0
    });
    let bytes: Vec<u8> = asks.iter().flat_map(encode).collect();
    client.line.write_all(&bytes).expect("the server reads");
    for ask in &asks {
        let answer = client.answer(ask).unwrap_or_else(|error| panic!("{}: {error}", brief(ask)));
        match (twin.answer(ask), answer) {
            (Some(expected), found) => assert_eq!(found, expected, "{}", brief(ask)),
            (None, Answer::Extents(extents)) => twin.check_extents(ask, &extents),
            (None, found) => panic!("{}: {found:?} instead of extents", brief(ask)),
        }
    }
}

fn brief(ask: &Ask) -> String {
    format!("command {} flags {} offset {} length {}", ask.kind, ask.flags, ask.offset, ask.len)
}
