//! What a guest reads and writes, and what it is told.

use crate::guest::{
    DISCARD, Data, FLUSH, GET_ID, Guest, IN, IOERR, OK, OUT, RO, UNSUPP, WRITE, WRITE_ZEROES,
    header_of,
};
use crate::rig::{Random, Rig, SIZE, pattern};
use disk::{Disk, Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, ReadOnly, Verbs};
use std::sync::Arc;

const SECTORS: u64 = SIZE / 512;

#[test]
fn what_is_written_is_read_back_through_any_queue() {
    let (rig, disk) = Rig::compressed();
    let mut guest = rig.guest(3);
    for (queue, sector) in [(0, 0), (1, 8), (2, SECTORS - 256)] {
        let data = pattern(128 << 10, queue);
        assert_eq!(guest.write(queue, sector, &data), OK);
        let read = guest.read((queue + 1) % 3, sector, data.len());
        assert_eq!((read.status, read.written), (OK, data.len() as u32 + 1));
        assert!(read.data == data, "queue {queue}");
        let mut below = vec![0; data.len()];
        disk.read(sector * 512, &mut below).unwrap();
        assert!(below == data, "the disk itself");
    }
    assert_eq!(rig.server.queues(), 3);
}

#[test]
fn parts_of_pages_are_changed_and_nothing_beside_them() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let mut twin = pattern(64 << 10, 5);
    assert_eq!(guest.write(0, 0, &twin), OK);
    for (sector, sectors) in [(1, 1), (7, 2), (9, 30), (120, 8)] {
        let data = pattern(sectors * 512, sector * 7);
        twin[sector * 512..][..data.len()].copy_from_slice(&data);
        assert_eq!(guest.write(0, sector as u64, &data), OK);
    }
    assert!(guest.read(0, 0, twin.len()).data == twin);
}

#[test]
fn data_may_lie_in_any_pieces_and_beside_its_header() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let data = pattern(6 << 10, 3);
    for piece in [1 << 16, 4096, 512, 300, 97] {
        let wrote = guest.request_in(0, OUT, 2, Data::To(&data), piece);
        assert_eq!(wrote.status, OK, "in pieces of {piece}");
        let read = guest.request_in(0, IN, 2, Data::From(data.len()), piece);
        assert!(read.data == data, "in pieces of {piece}");
    }
    // Header and data in one buffer, and then the header in two.
    let at = Guest::data(0);
    let whole = [header_of(OUT, 40), pattern(512, 9)].concat();
    guest.put(at, &whole);
    let status = at + 8192;
    for chain in [
        vec![(at, 528, 0), (status, 1, WRITE)],
        vec![(at, 7, 0), (at + 7, 0, 0), (at + 7, 521, 0), (status, 1, WRITE)],
    ] {
        guest.put(status, &[9]);
        guest.chain(0, &chain);
        guest.offer(0, 0);
        guest.kick(0);
        guest.answered(0, crate::guest::PATIENCE).unwrap();
        assert_eq!(guest.get(status, 1), [OK], "{chain:?}");
    }
    assert!(guest.read(0, 40, 512).data == pattern(512, 9));
}

#[test]
fn many_requests_are_under_way_at_once_and_each_is_answered_once() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(2);
    let data = Guest::data(0);
    for round in 0..40_u64 {
        for queue in 0..2_usize {
            let at = data + queue as u64 * 0x4_0000;
            for one in 0..16_u16 {
                let slot = at + u64::from(one) * 8192;
                let sector = (round * 16 + u64::from(one)) * 8 + queue as u64 * 8192;
                guest.put(slot, &header_of(OUT, sector % SECTORS));
                guest.put(slot + 64, &[9]);
                guest.put(slot + 4096, &pattern(4096, sector as usize));
                let place = one * 3;
                let buffers = [(slot, 16, 0), (slot + 4096, 4096, 0), (slot + 64, 1, WRITE)];
                guest.chain_at(queue, place, &buffers);
                guest.offer(queue, place);
            }
            guest.kick(queue);
        }
        for queue in 0..2 {
            let answered =
                (0..16).map(|_| guest.answered(queue, crate::guest::PATIENCE).unwrap().0);
            let mut heads: Vec<u32> = answered.collect();
            heads.sort_unstable();
            assert_eq!(heads, (0..16).map(|one| one * 3).collect::<Vec<_>>());
            let at = data + queue as u64 * 0x4_0000 + 64;
            assert!((0..16).all(|one| guest.get(at + one * 8192, 1) == [OK]));
        }
    }
    let sector = 39 * 16 * 8;
    assert!(guest.read(1, sector, 4096).data == pattern(4096, sector as usize));
}

#[test]
fn discards_and_zeroes_leave_zeros_and_give_memory_back() {
    let (rig, disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let fill = pattern(1 << 20, 1);
    assert_eq!(guest.write(0, 0, &fill), OK);
    assert_eq!(guest.zero(DISCARD, &[(0, 8, 0), (16, 9, 0)]), OK);
    assert_eq!(guest.zero(WRITE_ZEROES, &[(64, 8, 1), (80, 3, 0)]), OK);
    let mut twin = fill;
    for (from, sectors) in [(0, 8), (16, 9), (64, 8), (80, 3)] {
        twin[from * 512..][..sectors * 512].fill(0);
    }
    assert!(guest.read(0, 0, twin.len()).data == twin);
    assert_eq!(disk.stat().orig_data_size, (1 << 20) - 3 * 4096, "three whole pages are holes");
    assert_eq!(guest.zero(DISCARD, &[(0, SECTORS as u32, 0)]), OK);
    assert_eq!(disk.stat().orig_data_size, 0);
    assert_eq!(guest.zero(WRITE_ZEROES, &[(0, 16, 0)]), OK);
    assert_eq!(disk.stat().orig_data_size, 8192, "without the flag the pages stay");
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let fill = pattern(64 << 10, 2);
    assert_eq!(guest.write(0, 0, &fill), OK);
    let page = [7; 4096];
    for sector in [SECTORS, SECTORS - 7, u64::MAX, u64::MAX / 512, 1 << 54] {
        assert_eq!(guest.write(0, sector, &page), IOERR, "a write at {sector}");
        assert_eq!(guest.read(0, sector, 4096).status, IOERR, "a read at {sector}");
        assert_eq!(guest.zero(DISCARD, &[(sector, 8, 0)]), IOERR, "a discard at {sector}");
        assert_eq!(guest.zero(WRITE_ZEROES, &[(sector, 8, 1)]), IOERR, "zeroes at {sector}");
    }
    assert_eq!(guest.write(0, 0, &page[..511]), IOERR, "a part of a sector");
    assert_eq!(guest.read(0, 0, 513).status, IOERR, "a part of a sector");
    assert_eq!(guest.zero(DISCARD, &[(0, 8, 1)]), UNSUPP, "the flag is not for discards");
    assert_eq!(guest.zero(WRITE_ZEROES, &[(0, 8, 2)]), UNSUPP, "an unknown flag");
    assert_eq!(guest.zero(DISCARD, &[]), IOERR, "no range");
    assert_eq!(guest.zero(DISCARD, &[(0, 8, 0); 33]), IOERR, "too many ranges");
    assert_eq!(guest.request(0, DISCARD, 0, Data::To(&page[..17])).status, IOERR);
    for kind in [2, 3, 5, 7, 14, 0x8000_0000, u32::MAX] {
        let answer = guest.request(0, kind, 0, Data::To(&page));
        assert_eq!(answer.status, UNSUPP, "kind {kind}");
    }
    assert!(guest.read(0, 0, fill.len()).data == fill, "nothing has changed");
    assert_eq!(guest.read(0, 0, 0).status, OK, "nothing is read");
    assert_eq!(guest.request(0, FLUSH, u64::MAX, Data::None).status, OK);
}

#[test]
fn the_guest_sees_size_blocks_and_name() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    let space = guest.config(60);
    assert_eq!(space[..8], SECTORS.to_le_bytes());
    assert_eq!(space[20..24], 4096_u32.to_le_bytes());
    assert_eq!(guest.config(256)[60..], [0; 196], "a later version asks for more");
    let id = guest.request(0, GET_ID, 0, Data::From(20));
    assert_eq!((id.status, &id.data[..]), (OK, &b"zram0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..]));
    assert_eq!(guest.request(0, GET_ID, 0, Data::From(3)).data, b"zra");
    assert_eq!(guest.features & RO, 0);
}

#[test]
fn a_read_only_disk_says_so_and_takes_no_change() {
    let rig = Rig::of(Arc::new(ReadOnly::new(RamDisk::new(SIZE).unwrap())));
    let mut guest = rig.guest(1);
    assert_eq!(guest.features & RO, RO);
    assert_eq!(guest.write(0, 0, &[1; 4096]), IOERR);
    assert_eq!(guest.zero(DISCARD, &[(0, 8, 0)]), IOERR);
    let read = guest.read(0, 0, 4096);
    assert!(read.status == OK && read.data == [0; 4096]);
}

#[test]
fn a_disk_that_fails_is_an_error_and_not_other_bytes() {
    let disk = Arc::new(FaultyDisk::new(RamDisk::new(SIZE).unwrap()));
    let rig = Rig::of(disk.clone());
    let mut guest = rig.guest(1);
    let data = pattern(256 << 10, 4);
    assert_eq!(guest.write(0, 0, &data), OK);
    let faults = [Fault::Backing, Fault::NoSpace, Fault::NoMemory, Fault::Corrupt];
    for (after, fault) in (0..2).flat_map(|after| faults.map(|fault| (after, fault))) {
        // The second piece of a request fails as well as the first.
        let plan = |verbs| FaultPlan { after, verbs, span: FaultSpan::Once, fault };
        disk.arm(plan(Verbs::Reads));
        assert_eq!(guest.read(0, 0, data.len()).status, IOERR, "{fault:?}");
        disk.arm(plan(Verbs::Writes));
        assert_eq!(guest.write(0, 0, &data), IOERR, "{fault:?}");
    }
    let plan =
        FaultPlan { after: 0, verbs: Verbs::Writes, span: FaultSpan::Once, fault: faults[0] };
    disk.arm(plan);
    assert_eq!(guest.request(0, FLUSH, 0, Data::None).status, IOERR);
    assert!(guest.read(0, 0, data.len()).data == data, "it goes on");
}

#[test]
fn random_requests_have_the_answers_of_plain_memory() {
    let (rig, disk) = Rig::compressed();
    let mut guest = rig.guest(2);
    let mut twin = vec![0; SIZE as usize];
    let mut random = Random(11);
    for step in 0..1500 {
        let sector = random.below(SECTORS - 1);
        let sectors = 1 + random.below((SECTORS - sector).min(200));
        let range = sector as usize * 512..(sector + sectors) as usize * 512;
        let queue = random.below(2) as usize;
        let piece = [512, 4096, 5000, 1 << 16][random.below(4) as usize];
        match random.below(5) {
            0 | 1 => {
                let data = pattern(range.len(), step);
                let data = if step % 3 == 0 { vec![step as u8; range.len()] } else { data };
                let piece = piece.max(range.len() / 100);
                let done = guest.request_in(queue, OUT, sector, Data::To(&data), piece);
                assert_eq!(done.status, OK);
                twin[range].copy_from_slice(&data);
            }
            2 => {
                let kind = [DISCARD, WRITE_ZEROES][random.below(2) as usize];
                assert_eq!(guest.zero(kind, &[(sector, sectors as u32, 0)]), OK);
                twin[range].fill(0);
            }
            _ => {
                let piece = piece.max(range.len() / 100);
                let read = guest.request_in(queue, IN, sector, Data::From(range.len()), piece);
                assert!(read.status == OK && read.data == twin[range], "step {step}");
            }
        }
    }
    disk.check().unwrap();
    assert!(guest.read(0, 0, 1 << 20).data == twin[..1 << 20]);
}
