//! Frontends come, go, come again, and want too much; and the server ends.

use crate::guest::{BASE, Guest, MEMORY, OK, PATIENCE, is_told, rings};
use crate::rig::{Rig, SIZE, pattern, wait_until};
use ramfold_serve::{Event, Peer, Purpose, Refused, ServeError, VhostUser, VhostUserConfig};
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vhost::VhostBackend;
use vhost::VhostUserMemoryRegionInfo;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vm_memory::{Bytes, GuestAddress};
use zram::{Attribute, DeviceDefaults, Devices, Memory, MemoryConfig};

#[test]
fn a_guest_that_comes_again_finds_what_it_wrote() {
    let (rig, _disk) = Rig::compressed();
    for round in 0..5 {
        let mut guest = rig.guest(2);
        if round > 0 {
            assert!(guest.read(1, 64, 8192).data == pattern(8192, round - 1));
        }
        assert_eq!(guest.write(0, 64, &pattern(8192, round)), OK);
    }
    wait_until("the last one is gone", || rig.server.frontend().is_none());
    assert_eq!((rig.server.queues(), rig.server.buffer_bytes()), (0, 0));
}

#[test]
fn a_ring_goes_on_where_it_was_stopped() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    for round in 0..10 {
        assert_eq!(guest.write(0, round * 8, &pattern(4096, round as usize)), OK);
    }
    assert_eq!(guest.frontend.get_vring_base(0).unwrap(), 10);
    assert_eq!(rig.server.queues(), 0, "it is stopped");
    guest.queues.clear();
    guest.start(0, 10).unwrap();
    assert!(guest.read(0, 72, 4096).data == pattern(4096, 9));
    // Without a word of farewell, as after a crash of the frontend.
    drop(guest);
    let mut guest = Guest::greet(&rig.path, 1).unwrap();
    guest.share().unwrap();
    guest.start(0, 11).unwrap();
    assert!(guest.read(0, 0, 4096).data == pattern(4096, 0));
}

#[test]
fn a_guest_of_another_server_is_refused_because_its_disk_is_gone() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = Guest::greet(&rig.path, 1).unwrap();
    guest.share().unwrap();
    guest.start(0, 10).expect_err("it was served elsewhere");
    let own = std::process::id();
    rig.wait_for(
        "the reason",
        |event| matches!(event, Event::Foreign { peer: Peer::Process(pid) } if *pid == own),
    );
    drop(guest);
    rig.assert_well();
}

#[test]
fn a_second_frontend_waits_a_moment_and_is_refused() {
    let (rig, _disk) = Rig::compressed();
    let mut first = rig.guest(1);
    let second = Frontend::connect(&rig.path, 1).unwrap();
    let _ = second.set_owner();
    second.get_features().expect_err("the disk has one guest");
    rig.wait_for("a refusal", |event| {
        let full = Refused::Full { most: 1 };
        matches!(event, Event::Refused { purpose: Purpose::VhostUser, why, .. } if *why == full)
    });
    assert_eq!(first.write(0, 0, &[1; 4096]), OK, "the first does not notice");
    let third = thread::scope(|scope| {
        let third = scope.spawn(|| rig.guest(1));
        drop(first);
        third.join().unwrap()
    });
    drop(third);
    rig.assert_well();
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let (rig, _disk) = Rig::compressed();
    let connect = || std::os::unix::net::UnixStream::connect(&rig.path).unwrap();
    let silent: Vec<_> = (0..4).map(|_| connect()).collect();
    rig.assert_well();
    drop(silent);
}

#[test]
fn memory_comes_and_goes_region_by_region() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = Guest::greet(&rig.path, 1).unwrap();
    let half = |number: u64| VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE + number * MEMORY / 2,
        memory_size: MEMORY / 2,
        userspace_addr: guest.region().userspace_addr + number * MEMORY / 2,
        mmap_offset: number * MEMORY / 2,
        mmap_handle: guest.region().mmap_handle,
    };
    let halves = [half(0), half(1)];
    for region in &halves {
        guest.frontend.add_mem_region(region).unwrap();
    }
    guest.start(0, 0).unwrap();
    let data = pattern(4096, 1);
    assert_eq!(guest.write(0, 0, &data), OK);
    // A buffer that lies in both regions.
    let middle = BASE + MEMORY / 2 - 2048;
    let read = |guest: &mut Guest| {
        let at = Guest::data(0);
        guest.put(at, &crate::guest::header_of(crate::guest::IN, 0));
        guest.put(at + 64, &[9]);
        let write = crate::guest::WRITE;
        guest.chain(0, &[(at, 16, 0), (middle, 4096, write), (at + 64, 1, write)]);
        guest.offer(0, 0);
        guest.kick(0);
        guest.answered(0, PATIENCE).expect("an answer");
        guest.get(at + 64, 1)[0]
    };
    assert_eq!(read(&mut guest), OK);
    assert!(guest.get(middle, 4096) == data);
    guest.frontend.remove_mem_region(&halves[1]).unwrap();
    assert_eq!(read(&mut guest), crate::guest::IOERR, "half of it is not shared");
    guest.frontend.add_mem_region(&halves[1]).unwrap();
    assert_eq!(read(&mut guest), OK);
    // Without the memory of its rings a queue stands still, and goes on when it is back.
    guest.frontend.remove_mem_region(&halves[0]).unwrap();
    assert_eq!(rig.server.queues(), 0);
    guest.frontend.add_mem_region(&halves[0]).unwrap();
    assert_eq!(read(&mut guest), OK);
}

#[test]
fn a_queue_that_is_disabled_answers_when_it_is_enabled() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    assert_eq!(guest.read(0, 0, 512).status, OK);
    guest.frontend.set_vring_enable(0, false).unwrap();
    guest.offer(0, 0);
    guest.kick(0);
    assert_eq!(guest.answered(0, Duration::from_millis(50)), None, "it is disabled");
    guest.frontend.set_vring_enable(0, true).unwrap();
    assert!(guest.answered(0, PATIENCE).is_some());
}

#[test]
fn the_guest_sees_the_end_of_the_server() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(2);
    assert_eq!(guest.write(1, 0, &[1; 4096]), OK);
    rig.server.stop();
    assert!(!rig.path.exists(), "its path is gone");
    guest.frontend.get_features().expect_err("the connection is over");
    guest.offer(1, 0);
    guest.kick(1);
    assert_eq!(guest.answered(1, Duration::from_millis(50)), None, "nothing serves it");
    assert_eq!((rig.server.queues(), rig.server.buffer_bytes()), (0, 0));
    rig.wait_for(
        "its end",
        |event| matches!(event, Event::Ended { why, .. } if *why == "the server stops"),
    );
}

#[test]
fn a_device_that_has_a_guest_is_neither_reset_nor_removed() {
    let memory = Memory::new(MemoryConfig::for_disk(SIZE)).unwrap();
    let devices = Arc::new(Devices::new(memory, DeviceDefaults::default()));
    let device = devices.get(devices.add_named("data").unwrap()).unwrap();
    let sizeless = VhostUser::start_device(&device, VhostUserConfig::new("data", "/nowhere/x"));
    assert!(matches!(sizeless, Err(ServeError::NoDisk(why)) if why == "data has no size"));
    device.store(Attribute::Disksize, SIZE.to_string().as_bytes()).unwrap();
    let rig = Rig::start(|config| VhostUser::start_device(&device, config).unwrap());
    let guest = rig.guest(1);
    let busy = devices.remove_named("data").unwrap_err().to_string();
    let own = std::process::id();
    assert!(busy.contains(&format!("a virtual machine (pid {own})")), "{busy}");
    drop(guest);
    wait_until("it is gone", || rig.server.frontend().is_none());
    let busy = devices.remove_named("data").unwrap_err().to_string();
    assert!(busy.contains("the vhost-user server"), "{busy}");
    drop(rig);
    devices.remove_named("data").unwrap();
}

#[test]
fn a_path_in_use_or_of_a_file_is_refused() {
    let (rig, disk) = Rig::compressed();
    let start = |path| VhostUser::start(disk.clone(), VhostUserConfig::new("again", path));
    assert!(matches!(start(rig.path.clone()), Err(ServeError::InUse(_))));
    let file = rig.path.with_extension("file");
    fs::write(&file, "mine").unwrap();
    assert!(matches!(start(file.clone()), Err(ServeError::NotASocket(_))));
    assert_eq!(fs::read(file).unwrap(), b"mine");
    rig.assert_well();
}

#[test]
fn a_quiet_queue_gives_its_memory_back() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    assert_eq!(guest.write(0, 0, &pattern(128 << 10, 1)), OK);
    assert_eq!(rig.server.buffer_bytes(), 128 << 10);
    wait_until("it is given back", || rig.server.buffer_bytes() == 4096);
    assert_eq!(guest.read(0, 0, 4096).status, OK);
}

#[test]
fn an_event_of_the_ring_s_error_is_written_to() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = rig.guest(1);
    guest.claim(0, 1000);
    guest.kick(0);
    assert!(is_told(&guest.queues[0].error, PATIENCE));
    rig.wait_for(
        "the reason",
        |event| matches!(event, Event::Broken { why, .. } if why.contains("more requests than")),
    );
    // It is set up anew, as a driver does after a reset.
    guest.frontend.get_vring_base(0).unwrap();
    guest.memory.write_obj(0_u16, GuestAddress(rings(0) + 4096 + 2)).unwrap();
    guest.queues.clear();
    guest.start(0, 0).unwrap();
    assert_eq!(guest.read(0, 0, 4096).status, OK);
}
