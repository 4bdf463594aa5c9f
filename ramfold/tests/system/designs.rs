//! Servers with a lock design or a way to free that only studies compare.
//!
//! Claims: a page reads as it was written last, or as zeros once it was discarded, whatever the
//! server was started with. `stat` says with what, and `check` finds nothing.

use crate::rig::{PAGE_SIZE, Server, eventually, noise, ramfold, succeed};

const PAGES: u64 = 600;

/// Writes pages, discards most of them, and writes some again.
#[track_caller]
fn serves(design: &str, free: &str) {
    let server = Server::with(&["--size", "64M", "--design", design, "--free", free]);
    let mut client = server.connect();
    let (data, page) = (noise(7, (PAGES * PAGE_SIZE) as usize), PAGE_SIZE as usize);
    client.write(0, &data).expect("room");
    client.trim(PAGE_SIZE, ((PAGES - 1) * PAGE_SIZE) as u32).expect("in range");
    let zeros = vec![0; data.len() - page];
    assert!(client.read(PAGE_SIZE, zeros.len()).expect("in range") == zeros, "discarded");
    client.write(9 * PAGE_SIZE, &data[..page]).expect("room");
    for at in [0, 9 * PAGE_SIZE] {
        assert!(client.read(at, page).expect("in range") == data[..page], "byte {at}");
    }
    eventually("what was discarded is freed", || server.figure("pending_bytes") == 0);
    assert_eq!(server.figure("orig_data_size"), 2 * PAGE_SIZE, "{design}, {free}");
    let stat = server.stat();
    assert_eq!((&stat["design"], &stat["free"]), (&design.into(), &free.into()), "{stat}");
    server.check();
    let title = succeed(&mut ramfold(&["stat", server.target()]));
    let title = title.lines().next().unwrap_or_default();
    for (word, default) in [(design, "class"), (free, "range")] {
        assert_eq!(title.contains(word), word != default, "{word}: {title}");
    }
}

#[test]
fn a_disk_is_served_in_every_lock_design() {
    for design in ["hierarchical", "pool", "class"] {
        serves(design, "range");
    }
}

#[test]
fn discarded_pages_are_freed_in_every_way() {
    for free in ["sync", "entries", "handles"] {
        serves("class", free);
    }
}
