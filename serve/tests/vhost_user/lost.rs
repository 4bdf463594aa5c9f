//! Frontends that take their memory away while it is in use: each costs itself its queues. The
//! server and what it stores stay, and zeros that were never written are not stored.

use crate::guest::{BASE, Guest, MEMORY, OK, OUT, UNTOUCHED, WRITE, header_of};
use crate::rig::{Rig, pattern};
use ramfold_serve::Event;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use vhost::vhost_user::VhostUserFrontend;

/// Where data is in the guest's memory, and in its file.
const AT: u64 = BASE + DATA;
const DATA: u64 = 8 << 20;

fn wait_for_the_loss(rig: &Rig) {
    rig.wait_for(
        "the loss",
        |event| matches!(event, Event::Broken { why, .. } if why.contains("its memory is gone")),
    );
}

/// A guest that has written a page.
fn guest_with_a_page(rig: &Rig) -> Guest {
    let mut guest = rig.guest(2);
    assert_eq!(guest.write(0, 0, &pattern(4096, 1)), OK);
    guest
}

/// Whether the page is there for the next guest.
fn assert_page_is_there(rig: &Rig) {
    assert!(rig.guest(1).read(0, 0, 4096).data == pattern(4096, 1), "it is as it was written");
    rig.assert_well();
}

#[test]
fn memory_that_is_cut_off_under_the_rings_costs_the_queues() {
    let (rig, disk) = Rig::compressed();
    let guest = guest_with_a_page(&rig);
    guest.file.set_len(0).unwrap();
    // From here on this test must not touch the memory, either.
    (0..2).for_each(|queue| guest.kick(queue));
    wait_for_the_loss(&rig);
    drop(guest);
    assert_page_is_there(&rig);
    disk.check().unwrap();
}

#[test]
fn data_that_is_cut_off_is_not_stored_as_zeros() {
    let (rig, disk) = Rig::compressed();
    let mut guest = guest_with_a_page(&rig);
    let cut = AT + (1 << 20);
    // The first page of the request is there. The second one, over the page of the disk, is not.
    guest.put(AT, &header_of(OUT, 0));
    guest.put(AT + 64, &[UNTOUCHED]);
    guest.chain(0, &[(AT, 16, 0), (cut, 4096, 0), (AT + 64, 1, WRITE)]);
    guest.offer(0, 0);
    guest.file.set_len(DATA + (1 << 20)).unwrap();
    guest.kick(0);
    wait_for_the_loss(&rig);
    assert_eq!(guest.get(AT + 64, 1), [UNTOUCHED], "nothing was answered");
    drop(guest);
    assert_page_is_there(&rig);
    disk.check().unwrap();
}

#[test]
fn a_frontend_may_share_memory_anew_after_a_loss() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = guest_with_a_page(&rig);
    guest.file.set_len(0).unwrap();
    (0..2).for_each(|queue| guest.kick(queue));
    wait_for_the_loss(&rig);
    guest.file.set_len(MEMORY).unwrap();
    for queue in 0..2 {
        guest.frontend.set_vring_enable(queue, false).unwrap();
    }
    guest.share().unwrap();
    guest.queues.clear();
    // Whatever number the queues had was in the memory that is gone.
    guest.start(0, 0).unwrap();
    assert!(guest.read(0, 0, 4096).data == pattern(4096, 1));
}

#[test]
fn memory_that_is_taken_back_in_order_is_unmapped_and_can_shrink() {
    let (rig, _disk) = Rig::compressed();
    let mut guest = guest_with_a_page(&rig);
    let spare = File::from(memfd_create("spare", MemfdFlags::CLOEXEC).unwrap());
    spare.set_len(1 << 20).unwrap();
    let mut region = guest.region();
    region.guest_phys_addr += MEMORY;
    region.userspace_addr += MEMORY;
    region.memory_size = 1 << 20;
    region.mmap_handle = spare.as_raw_fd();
    let is_mapped = || fs::read_to_string("/proc/self/maps").unwrap().contains("memfd:spare");
    guest.frontend.add_mem_region(&region).unwrap();
    assert!(is_mapped());
    guest.frontend.remove_mem_region(&region).unwrap();
    assert!(!is_mapped(), "nothing watches it any more");
    spare.set_len(0).unwrap();
    assert!(guest.read(0, 0, 4096).data == pattern(4096, 1), "the queue goes on");
}
