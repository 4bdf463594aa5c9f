//! Requests and replies, fact by fact, on a plain RAM disk.
//!
//! Invariant of every test here: a refused request leaves the connection usable.

use crate::client::*;
use crate::fixture::{Fixture, SIZE, pattern};
use disk::{Disk, Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, ReadOnly, Verbs};
use std::sync::Arc;

const EPERM: Answer = Answer::Error(1);
const EIO: Answer = Answer::Error(5);
const EINVAL: Answer = Answer::Error(22);
const ENOSPC: Answer = Answer::Error(28);
const EOVERFLOW: Answer = Answer::Error(75);
const MAX: u32 = 32 << 20;

fn done() -> Answer {
    Answer::Data(Vec::new())
}

fn ask(kind: u16, flags: u16, offset: u64, len: u32) -> Ask {
    let payload = if kind == WRITE { vec![1; len as usize] } else { Vec::new() };
    Ask { kind, flags, offset, len, payload, cookie: 0x0123_4567_89ab_cdef }
}

#[test]
fn what_is_written_is_read_in_both_forms_and_at_any_alignment() {
    let fixture = Fixture::ram();
    let mut plain = fixture.open(false);
    let mut chunked = fixture.open(true);
    for (offset, len) in [(0, 4096), (1, 1), (4095, 2), (777, 300_001), (SIZE - 9, 9), (5, 70_000)]
    {
        let data = pattern(len, offset as usize);
        assert_eq!(plain.write(offset, &data).unwrap(), done());
        assert_eq!(chunked.read(offset, len as u32).unwrap(), Answer::Data(data.clone()));
        assert_eq!(plain.read(offset, len as u32).unwrap(), Answer::Data(data));
    }
}

#[test]
fn the_longest_request_is_served_and_a_longer_one_refused() {
    let disk = Arc::new(RamDisk::new(u64::from(MAX) + 4096).unwrap());
    let fixture = Fixture::of(disk);
    let data = pattern(MAX as usize, 3);
    for structured in [false, true] {
        let mut client = fixture.open(structured);
        assert_eq!(client.write(1, &data).unwrap(), done());
        let read = client.read(1, MAX).unwrap();
        assert!(read == Answer::Data(data.clone()), "32 MiB came back different");
        assert_eq!(client.read(0, MAX + 1).unwrap(), EINVAL);
        assert_eq!(client.write(0, &[data.clone(), vec![0]].concat()).unwrap(), EINVAL);
        let after = client.read(1, 4096).unwrap();
        assert!(after == Answer::Data(data[..4096].to_vec()), "a refused write wrote");
    }
    fixture.assert_well();
}

#[test]
fn a_payload_beyond_all_limits_cuts_the_line() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    client.send(&Ask { payload: Vec::new(), ..ask(WRITE, 0, 0, 0) }).unwrap();
    let huge = Ask { kind: WRITE, len: u32::MAX, ..Ask::default() };
    client.send(&huge).unwrap();
    assert!(client.is_closed());
    fixture.assert_well();
}

#[test]
fn every_wrong_request_has_its_error() {
    let fixture = Fixture::ram();
    let (end, far) = (SIZE, u64::MAX - 5);
    let rows = [
        (ask(READ, 0, end - 1, 2), EINVAL, "read past the end"),
        (ask(READ, 0, far, 10), EINVAL, "read that would wrap"),
        (ask(WRITE, 0, end, 1), ENOSPC, "write past the end"),
        (ask(WRITE, 0, far, 10), ENOSPC, "write that would wrap"),
        (ask(TRIM, 0, end - 1, 2), EINVAL, "trim past the end"),
        (ask(ZEROES, 0, end - 1, 2), ENOSPC, "zeroing past the end"),
        (ask(CACHE, 0, end, 1), EINVAL, "cache past the end"),
        (ask(STATUS, 0, end, 1), EINVAL, "status past the end"),
        (ask(STATUS, 0, 0, 0), EINVAL, "status of nothing"),
        (ask(FLUSH, 0, 0, 1), EINVAL, "flush with a length"),
        (ask(FLUSH, 0, 1, 0), EINVAL, "flush with an offset"),
        (ask(8, 0, 0, 0), EINVAL, "an unknown command"),
        (ask(0xffff, 0xffff, 0, u32::MAX), EINVAL, "a very unknown command"),
        (ask(READ, NO_HOLE, 0, 1), EINVAL, "NO_HOLE on a read"),
        (ask(WRITE, DF, 0, 1), EINVAL, "DF on a write"),
        (ask(TRIM, FAST_ZERO, 0, 1), EINVAL, "FAST_ZERO on a trim"),
        (ask(ZEROES, REQ_ONE, 0, 1), EINVAL, "REQ_ONE on zeroing"),
        (ask(STATUS, 32, 0, 1), EINVAL, "an unknown flag"),
    ];
    for structured in [true, false] {
        let mut client = fixture.open(structured);
        for (ask, expected, what) in &rows {
            assert_eq!(&client.call(ask).unwrap(), expected, "{what}, structured {structured}");
        }
        let zeros = Answer::Data(vec![0; 4096]);
        assert_eq!(client.read(0, 4096).unwrap(), zeros, "a refused request changed something");
    }
}

#[test]
fn unfragmented_reads_need_structured_replies_and_come_in_one_chunk() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    let data = client.call(&ask(READ, DF, 100, 128 << 10)).unwrap();
    assert_eq!((data, client.chunks), (Answer::Data(vec![0; 128 << 10]), 1));
    assert_eq!(client.call(&ask(READ, DF, 0, (128 << 10) + 1)).unwrap(), EOVERFLOW);
    assert_eq!(fixture.open(false).call(&ask(READ, DF, 0, 1)).unwrap(), EINVAL);
}

#[test]
fn a_long_read_sends_holes_as_holes() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    assert_eq!(client.read(0, 8 << 20).unwrap(), Answer::Data(vec![0; 8 << 20]));
    assert_eq!(client.chunks, 1, "an empty disk is one hole");
    client.write(4 << 20, &[7; 4096]).unwrap();
    let Answer::Data(data) = client.read(0, 8 << 20).unwrap() else { panic!("no data") };
    assert_eq!(client.chunks, 3, "hole, page, hole");
    assert_eq!(data.iter().filter(|&&byte| byte == 7).count(), 4096);
}

#[test]
fn requests_without_effect_succeed() {
    let fixture = Fixture::ram();
    for structured in [true, false] {
        let mut client = fixture.open(structured);
        for kind in [READ, WRITE, TRIM, ZEROES, CACHE] {
            let offset = SIZE;
            assert_eq!(client.call(&ask(kind, FUA, offset, 0)).unwrap(), done(), "{kind}");
        }
        assert_eq!(client.call(&ask(FLUSH, FUA, 0, 0)).unwrap(), done());
        assert_eq!(client.call(&ask(CACHE, 0, 0, SIZE as u32)).unwrap(), done());
    }
}

#[test]
fn trimmed_and_zeroed_ranges_read_as_zeros_and_nothing_else_does() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    for (kind, flags) in [(TRIM, 0), (TRIM, FUA), (ZEROES, NO_HOLE), (ZEROES, FAST_ZERO | FUA)] {
        let mut twin = vec![9; 50_000];
        client.write(0, &twin).unwrap();
        assert_eq!(client.call(&ask(kind, flags, 1000, 20_000)).unwrap(), done());
        twin[1000..21_000].fill(0);
        assert_eq!(client.read(0, 50_000).unwrap(), Answer::Data(twin), "{kind} {flags}");
    }
}

#[test]
fn block_status_tells_runs_and_stops_after_one_if_asked() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    client.write(8192, &[1; 8192]).unwrap();
    let all = client.simple_call(STATUS, 4096, 65_536).unwrap();
    assert_eq!(all, Answer::Extents(vec![(4096, 3), (8192, 0), (53_248, 3)]));
    let one = client.call(&ask(STATUS, REQ_ONE, 10_000, 65_536)).unwrap();
    assert_eq!(one, Answer::Extents(vec![(16_384 - 10_000, 0)]));
    let mut plain = fixture.open(false);
    assert_eq!(plain.simple_call(STATUS, 0, 4096).unwrap(), EINVAL, "no context was chosen");
}

#[test]
fn a_long_list_of_extents_is_cut_short() {
    let fixture = Fixture::of(Arc::new(RamDisk::new(16 << 20).unwrap()));
    let mut client = fixture.open(true);
    for page in (0..4096).step_by(2) {
        client.write(page * 4096, &[1]).unwrap();
    }
    let Answer::Extents(extents) = client.simple_call(STATUS, 0, 16 << 20).unwrap() else {
        panic!("no extents");
    };
    assert_eq!(extents.len(), 1024);
    assert!(extents.iter().all(|&(len, _)| len == 4096));
}

#[test]
fn a_read_only_disk_refuses_changes_only() {
    let fixture = Fixture::of(Arc::new(ReadOnly::new(RamDisk::new(SIZE).unwrap())));
    let mut client = fixture.open(true);
    for kind in [WRITE, TRIM, ZEROES] {
        assert_eq!(client.call(&ask(kind, 0, 0, 4096)).unwrap(), EPERM, "{kind}");
        assert_eq!(client.call(&ask(kind, 0, SIZE, 1)).unwrap(), EPERM, "{kind} past the end");
    }
    assert_eq!(client.read(0, 10).unwrap(), Answer::Data(vec![0; 10]));
    assert_eq!(client.call(&ask(FLUSH, 0, 0, 0)).unwrap(), done());
    assert!(matches!(client.simple_call(STATUS, 0, 4096).unwrap(), Answer::Extents(_)));
}

fn faulty(verbs: Verbs, after: u64, fault: Fault, span: FaultSpan) -> Fixture {
    let disk = FaultyDisk::new(RamDisk::new(SIZE).unwrap());
    disk.write(0, &pattern(1 << 20, 0)).unwrap();
    disk.arm(FaultPlan { after, verbs, span, fault });
    Fixture::of(Arc::new(disk))
}

#[test]
fn a_failing_disk_is_reported_in_the_clients_terms() {
    let rows = [
        (Fault::Backing, EIO),
        (Fault::Corrupt, EIO),
        (Fault::NoSpace, ENOSPC),
        (Fault::NoMemory, Answer::Error(12)),
    ];
    for (fault, expected) in rows {
        let fixture = faulty(Verbs::All, 0, fault, FaultSpan::Forever);
        for structured in [true, false] {
            let mut client = fixture.open(structured);
            for kind in [READ, WRITE, TRIM, ZEROES, CACHE] {
                let answer = client.call(&ask(kind, 0, 0, 4096)).unwrap();
                assert_eq!(answer, expected, "{kind} {fault:?} structured {structured}");
            }
            assert_eq!(client.call(&ask(FLUSH, 0, 0, 0)).unwrap(), expected);
        }
        let status = fixture.open(true).simple_call(STATUS, 0, 4096).unwrap();
        assert_eq!(status, expected);
    }
}

/// ENOSPC was the answer to TRIM, which may always skip a page that it has a part of.
#[test]
fn a_trim_at_the_memory_limit_is_done_and_zeroing_is_refused() {
    const DISK: u64 = 1 << 20;
    let memory = zram::Memory::new(zram::MemoryConfig::for_disk(DISK)).unwrap();
    let zram = Arc::new(zram::Zram::new(memory, zram::ZramConfig::new("zram0", DISK)).unwrap());
    // A page of bytes that differ is not made shorter.
    let noise: Vec<u8> = (0..8192_u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8 ^ ((at * at) >> 3) as u8)
        .collect();
    zram.write(0, &noise).unwrap();
    zram.set_mem_limit(4096);
    let fixture = Fixture::of(Arc::clone(&zram) as Arc<dyn Disk>);
    let mut client = fixture.open(true);
    assert_eq!(client.call(&ask(TRIM, 0, 100, 5000)).unwrap(), done());
    assert_eq!(client.call(&ask(ZEROES, 0, 100, 5000)).unwrap(), ENOSPC);
    assert!(client.read(0, 8192).unwrap() == Answer::Data(noise), "what was skipped is whole");
    zram.set_mem_limit(0);
    assert_eq!(client.call(&ask(ZEROES, 0, 100, 5000)).unwrap(), done());
    let Answer::Data(read) = client.read(0, 8192).unwrap() else { panic!("it is readable") };
    assert!(read[100..5100].iter().all(|&byte| byte == 0), "zeros to the last byte");
    drop(client);
    fixture.assert_well();
}

#[test]
fn a_read_that_fails_late_is_told_or_cut_but_never_made_up() {
    // Pieces of a plain read: the fourth fails after the header went out.
    let fixture = faulty(Verbs::Reads, 3, Fault::Corrupt, FaultSpan::Once);
    let mut client = fixture.open(false);
    client.send(&ask(READ, 0, 0, 1 << 20)).unwrap();
    assert!(client.answer(&ask(READ, 0, 0, 1 << 20)).is_err(), "the reply must not be completed");
    // In chunks there is always room for an error; the connection goes on.
    let fixture = faulty(Verbs::Reads, 5, Fault::Corrupt, FaultSpan::Once);
    let mut client = fixture.open(true);
    assert_eq!(client.read(0, 1 << 20).unwrap(), EIO);
    let again = client.read(0, 1 << 20).unwrap();
    assert!(again == Answer::Data(pattern(1 << 20, 0)), "the data is not what was written");
}

#[test]
fn a_write_that_fails_midway_takes_its_whole_payload() {
    let fixture = faulty(Verbs::Writes, 1, Fault::NoSpace, FaultSpan::Once);
    let mut client = fixture.open(true);
    let answer = client.write(0, &vec![5; 4 << 20]).unwrap();
    assert_eq!(answer, ENOSPC);
    assert_eq!(client.write(0, &[6; 10]).unwrap(), done(), "the next request was not found");
    assert_eq!(client.read(0, 10).unwrap(), Answer::Data(vec![6; 10]));
}

#[test]
fn a_change_that_must_be_durable_fails_with_its_flush() {
    for (kind, flags) in [(WRITE, FUA), (TRIM, FUA), (ZEROES, FUA)] {
        let fixture = faulty(Verbs::Writes, 1, Fault::Backing, FaultSpan::Once);
        let answer = fixture.open(true).call(&ask(kind, flags, 0, 4096)).unwrap();
        assert_eq!(answer, EIO, "{kind}: the flush after it failed");
        let fixture = faulty(Verbs::Writes, 1, Fault::Backing, FaultSpan::Once);
        let answer = fixture.open(true).call(&ask(kind, 0, 0, 4096)).unwrap();
        assert_eq!(answer, done(), "{kind}: nobody asked for a flush");
    }
}

#[test]
fn requests_sent_together_are_all_answered_in_order() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(true);
    let asks: Vec<Ask> = (0..24)
        .map(|i| Ask { cookie: i, ..writing(i * 4096, &pattern(4096, i as usize)) })
        .chain((0..24).map(|i| Ask { cookie: i, ..ask(READ, 0, i * 4096, 4096) }))
        .collect();
    let bytes: Vec<u8> = asks.iter().flat_map(encode).collect();
    client.line.write_all(&bytes).unwrap();
    for (i, ask) in asks.iter().enumerate() {
        let expected = if i < 24 { done() } else { Answer::Data(pattern(4096, i - 24)) };
        assert_eq!(client.answer(ask).unwrap(), expected, "request {i}");
    }
}

#[test]
fn disconnecting_answers_what_was_asked_before() {
    let fixture = Fixture::ram();
    let mut client = fixture.open(false);
    let read = ask(READ, 0, 0, 4096);
    client.line.write_all(&[encode(&read), encode(&ask(DISC, 0, 0, 0))].concat()).unwrap();
    assert_eq!(client.answer(&read).unwrap(), Answer::Data(vec![0; 4096]));
    assert!(client.is_closed());
    fixture.assert_well();
}
