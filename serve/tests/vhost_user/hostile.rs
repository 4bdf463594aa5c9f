//! Guests and frontends that do wrong: each costs itself its queue or its connection, and nothing
//! else.

use crate::guest::{
    BASE, Data, Descriptor, Guest, IN, INDIRECT, IOERR, MEMORY, NEXT, OK, OUT, PATIENCE, SIZE,
    UNTOUCHED, WRITE, header_of, rings,
};
use crate::rig::{Random, Rig, pattern, wait_until};
use ramfold_serve::Event;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vhost::vhost_user::VhostUserFrontend;
use vhost::{VhostBackend, VringConfigData};

const AT: u64 = BASE + (8 << 20);

/// A chain of header, one page and status, to begin with.
fn prepare(guest: &Guest) {
    guest.put(AT, &header_of(IN, 0));
    guest.put(AT + 64, &[UNTOUCHED]);
}

/// Offers what is in the table from place 0 on, and waits for what comes back.
fn send(guest: &mut Guest) -> (u32, u8) {
    guest.offer(0, 0);
    guest.kick(0);
    let (_, written) = guest.answered(0, PATIENCE).expect("the buffers come back");
    (written, guest.get(AT + 64, 1)[0])
}

#[test]
fn a_chain_that_breaks_the_rules_comes_back_unanswered() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let (page, status) = ((AT + 4096, 4096, WRITE), (AT + 64, 1, WRITE));
    let outside = (BASE + MEMORY, 4096, WRITE);
    prepare(&guest);
    // A loop.
    guest.chain(0, &[(AT, 16, 0), page, (AT + 64, 1, WRITE | NEXT)]);
    guest.describe(0, 2, Descriptor { at: AT + 64, len: 1, flags: WRITE | NEXT, next: 1 });
    assert_eq!(send(&mut guest), (0, UNTOUCHED), "a loop");
    // A next that is not in the table.
    guest.describe(0, 2, Descriptor { at: AT + 64, len: 1, flags: WRITE | NEXT, next: SIZE });
    assert_eq!(send(&mut guest), (0, UNTOUCHED), "out of the table");
    // Readable after writable.
    guest.chain(0, &[(AT, 16, 0), page, (AT, 16, 0), status]);
    assert_eq!(send(&mut guest), (0, UNTOUCHED), "readable after writable");
    // Nothing to write the status to, and a status outside of the memory.
    guest.chain(0, &[(AT, 16, 0)]);
    assert_eq!(send(&mut guest), (0, UNTOUCHED), "no status");
    guest.chain(0, &[(AT, 16, 0), page, outside]);
    assert_eq!(send(&mut guest), (0, UNTOUCHED), "a status outside");
    guest.chain(0, &[(AT, 16, 0), (u64::MAX - 1, 4096, WRITE)]);
    assert_eq!(send(&mut guest), (0, UNTOUCHED), "an address at the end of all");
    // More than 4 GiB in one chain.
    guest.chain(0, &[(AT, u32::MAX, 0), (AT, u32::MAX, 0), status]);
    assert_eq!(send(&mut guest), (0, UNTOUCHED), "longer than a chain may be");
    assert_eq!(guest.read(0, 0, 4096).status, OK, "the queue goes on");
}

#[test]
fn a_request_that_cannot_be_done_is_an_error() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let status = (AT + 64, 1, WRITE);
    for (what, chain) in [
        ("no header", vec![status]),
        ("half a header", vec![(AT, 15, 0), status]),
        ("data outside", vec![(AT, 16, 0), (BASE + MEMORY - 512, 1024, WRITE), status]),
        ("data beyond all", vec![(AT, 16, 0), (u64::MAX - 511, 512, WRITE), status]),
        ("a header outside", vec![(BASE - 8, 16, 0), status]),
        ("32 MiB and more", {
            let piece = (AT + 4096, 1 << 20, WRITE);
            let mut chain = vec![(AT, 16, 0)];
            chain.extend([piece; 33]);
            chain.push(status);
            chain
        }),
        ("4 GiB", vec![(AT, 16, 0), (AT + 4096, u32::MAX - 511 - 16, WRITE), status]),
    ] {
        prepare(&guest);
        guest.chain(0, &chain);
        assert_eq!(send(&mut guest).1, IOERR, "{what}");
    }
    assert_eq!(guest.read(0, 0, 4096).status, OK, "the queue goes on");
}

#[test]
fn tables_of_descriptors_are_followed_once() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    assert_eq!(guest.write(0, 0, &pattern(4096, 8)), OK);
    let table = AT + 0x10_0000;
    let entry = |place: u64, at: u64, len: u32, flags: u16| {
        let next = place as u16 + 1;
        let words =
            [&at.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        (table + place * 16, words.concat())
    };
    let fill = |guest: &Guest, entries: &[(u64, Vec<u8>)]| {
        entries.iter().for_each(|(at, bytes)| guest.put(*at, bytes));
    };
    let page = AT + 4096;
    let good =
        [entry(0, AT, 16, NEXT), entry(1, page, 4096, WRITE | NEXT), entry(2, AT + 64, 1, WRITE)];
    prepare(&guest);
    fill(&guest, &good);
    guest.describe(0, 0, Descriptor { at: table, len: 48, flags: INDIRECT, next: 0 });
    assert_eq!(send(&mut guest), (4097, OK), "as a good driver does");
    assert!(guest.get(page, 4096) == pattern(4096, 8));
    prepare(&guest);
    guest.chain(0, &[(AT, 16, 0)]);
    guest.describe(0, 0, Descriptor { at: AT, len: 16, flags: NEXT, next: 1 });
    fill(&guest, &[entry(0, page, 4096, WRITE | NEXT), entry(1, AT + 64, 1, WRITE)]);
    guest.describe(0, 1, Descriptor { at: table, len: 32, flags: INDIRECT, next: 0 });
    assert_eq!(send(&mut guest), (4097, OK), "a table after a descriptor");
    let bad = |at, len| Descriptor { at, len, flags: INDIRECT, next: 0 };
    for (what, descriptor, entries) in [
        ("a table in a table", bad(table, 48), vec![entry(0, table, 48, INDIRECT)]),
        ("a part of an entry", bad(table, 47), good.to_vec()),
        ("an empty table", bad(table, 0), good.to_vec()),
        ("a table outside", bad(BASE + MEMORY, 48), good.to_vec()),
        ("a table beyond all", bad(u64::MAX - 15, 48), good.to_vec()),
        ("cut off", bad(table, 32), good.to_vec()),
    ] {
        prepare(&guest);
        fill(&guest, &entries);
        guest.describe(0, 0, descriptor);
        assert_eq!(send(&mut guest), (0, UNTOUCHED), "{what}");
    }
    // More buffers than the queue has places, by one and by many.
    for readable in [SIZE, 300] {
        let many: Vec<_> = (0..readable.into()).map(|at| entry(at, AT, 16, NEXT)).collect();
        prepare(&guest);
        fill(&guest, &many);
        fill(&guest, &[entry(readable.into(), AT + 64, 1, WRITE)]);
        guest.describe(0, 0, bad(table, (u32::from(readable) + 1) * 16));
        assert_eq!(send(&mut guest), (0, UNTOUCHED), "{readable} buffers and a status");
    }
    assert_eq!(guest.read(0, 0, 4096).status, OK, "the queue goes on");
}

#[test]
fn a_broken_ring_costs_its_own_queue() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(3);
    guest.claim(0, SIZE + 1);
    guest.kick(0);
    guest.offer(1, SIZE);
    guest.kick(1);
    for why in ["more requests than", "outside of the table"] {
        rig.wait_for(
            why,
            |event| matches!(event, Event::Broken { why: said, .. } if said.contains(why)),
        );
    }
    assert_eq!(guest.write(2, 0, &[3; 4096]), OK, "the third queue goes on");
    drop(guest);
    rig.assert_well();
}

#[test]
fn a_page_that_changes_while_it_is_written_is_one_that_decodes() {
    let (rig, disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let stop = AtomicBool::new(false);
    let page = AT + 4096;
    let writer = guest.memory.clone();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(5);
            while !stop.load(Ordering::Relaxed) {
                use vm_memory::{Bytes, GuestAddress};
                let (at, byte) = (page + random.below(4096), random.next() as u8);
                writer.write_obj(byte, GuestAddress(at)).unwrap();
            }
        });
        for round in 0..2000 {
            prepare(&guest);
            guest.put(AT, &header_of(OUT, round % 64 * 8));
            guest.chain(0, &[(AT, 16, 0), (page, 4096, 0), (AT + 64, 1, WRITE)]);
            assert_eq!(send(&mut guest), (1, OK));
        }
        stop.store(true, Ordering::Relaxed);
    });
    for page in 0..64 {
        assert_eq!(guest.read(0, page * 8, 4096).status, OK, "page {page} decodes");
    }
    disk.check().unwrap();
}

#[test]
fn queues_that_cannot_be_are_refused() {
    type Attempt<'a> = (&'a str, &'a dyn Fn(&mut Guest) -> bool);
    let (rig, _disk) = Rig::compressed();
    let places = |at: u64| VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: at,
        avail_ring_addr: at + 4096,
        used_ring_addr: at + 8192,
        log_addr: None,
    };
    let frontend = rings(0) + 0x7000_0000_0000;
    let attempts: [Attempt<'_>; 8] = [
        ("no size", &|guest| guest.frontend.set_vring_num(0, 0).is_ok()),
        ("an odd size", &|guest| guest.frontend.set_vring_num(0, 100).is_ok()),
        ("a huge size", &|guest| guest.frontend.set_vring_num(0, 2048).is_ok()),
        ("a number too many", &|guest| guest.frontend.set_vring_num(64, 128).is_ok()),
        ("no memory", &|guest| guest.frontend.set_vring_addr(0, &places(0)).is_ok()),
        ("at an odd place", &|guest| {
            guest.frontend.set_vring_addr(0, &places(frontend + 8)).is_ok()
        }),
        ("beyond the end", &|guest| {
            guest.frontend.set_vring_addr(0, &places(frontend + MEMORY - 8200)).is_ok()
        }),
        ("features that are not there", &|guest| guest.frontend.set_features(1 << 50).is_ok()),
    ];
    for (what, attempt) in attempts {
        let mut guest = Guest::greet(&rig.path, 65).unwrap();
        guest.share().unwrap();
        assert!(!attempt(&mut guest), "{what} was taken");
        drop(guest);
    }
    rig.assert_well();
}

#[test]
fn memory_that_is_not_there_is_refused() {
    let (rig, _disk) = Rig::compressed();
    let guest = || Guest::greet(&rig.path, 1).unwrap();
    let longer = guest();
    let mut region = longer.region();
    region.memory_size += 4096;
    longer.frontend.set_mem_table(&[region]).expect_err("the file is shorter");
    drop(longer);
    let mut overlapping = guest();
    let region = overlapping.region();
    overlapping.frontend.add_mem_region(&region).unwrap();
    overlapping.frontend.add_mem_region(&region).expect_err("it is there already");
    drop(overlapping);
    let nothing = guest();
    let mut region = nothing.region();
    let null = File::open("/dev/null").unwrap();
    region.mmap_handle = null.as_raw_fd();
    nothing.frontend.set_mem_table(&[region]).expect_err("no file to map");
    drop(nothing);
    rig.assert_well();
}

#[test]
fn noise_on_the_socket_ends_its_connection() {
    let (rig, _disk) = Rig::compressed();
    let mut random = Random(3);
    for _ in 0..200 {
        let mut stream = UnixStream::connect(&rig.path).unwrap();
        let code = (random.below(44) as u32).to_le_bytes();
        let flags = [1_u32, 9, 5, random.next() as u32][random.below(4) as usize].to_le_bytes();
        let len = random.below(80) as u32;
        let body: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let said = [&code[..], &flags, &len.to_le_bytes(), &body].concat();
        // The server may have closed already.
        let _ = stream.write_all(&said[..random.below(said.len() as u64 + 1) as usize]);
    }
    // So many at once fill the places of the socket for a moment.
    wait_until("a good guest is served", || Guest::connect(&rig.path, 1).is_ok());
    rig.assert_well();
}

/// A bounded fuzz: descriptors of random fields over rings that a good driver set up.
#[test]
fn random_chains_do_no_harm() {
    let (rig, disk) = Rig::compressed();
    let seconds = std::env::var("RAMFOLD_FUZZ_SECONDS").ok().and_then(|it| it.parse().ok());
    let (begun, long) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(5)));
    let mut random = Random(begun.elapsed().as_nanos() as u64 ^ u64::from(std::process::id()));
    println!("seed {}", random.0);
    while begun.elapsed() < long {
        let mut guest = rig.guest(1);
        for _ in 0..200 {
            if !mangle(&mut guest, &mut random) {
                break;
            }
        }
        drop(guest);
        let mut guest = rig.guest(1);
        let data = pattern(4096, random.below(200) as usize);
        assert_eq!(guest.request(0, OUT, 8, Data::To(&data)).status, OK);
        assert!(guest.read(0, 8, 4096).data == data);
    }
    disk.check().unwrap();
    rig.assert_well();
}

/// Offers one damaged chain. False if the ring broke.
fn mangle(guest: &mut Guest, random: &mut Random) -> bool {
    let kinds = [0, 1, 4, 8, 11, 13, random.next() as u32];
    let sectors = [0, 8, 16383, 16384, random.next()];
    let kind = kinds[random.below(7) as usize];
    guest.put(AT, &header_of(kind, sectors[random.below(5) as usize]));
    let places = [AT, AT + 64, AT + 4096, BASE, BASE + MEMORY - 1, rings(0), random.next()];
    let lens = [0, 1, 16, 511, 512, 4096, 1 << 20, random.next() as u32];
    for place in 0..8 {
        let descriptor = Descriptor {
            at: places[random.below(7) as usize],
            len: lens[random.below(8) as usize],
            flags: [0, NEXT, WRITE, NEXT | WRITE, INDIRECT, random.next() as u16]
                [random.below(6) as usize],
            next: [place + 1, random.below(8) as u16, random.next() as u16]
                [random.below(3) as usize],
        };
        guest.describe(0, place, descriptor);
    }
    guest.describe(0, 0, Descriptor { at: AT, len: 16, flags: NEXT, next: 1 });
    let head = if random.below(20) == 0 { random.next() as u16 } else { 0 };
    guest.offer(0, head);
    guest.kick(0);
    guest.answered(0, Duration::from_millis(20)).is_some()
}
