//! A server that shuffles pages of numbers.
//!
//! Claims
//! - With `--shuffle auto`, numbers take much less room, text takes what it took, and both read as
//!   they were written, also after pages were compressed again and written back.
//! - `stat` says so, in the table and in JSON.

use crate::rig::{PAGE_SIZE, Scratch, Server, ramfold, succeed};

const PAGES: u64 = 2048;

/// Half of the disk are numbers that grow, the other half is text.
fn page(number: u64) -> Vec<u8> {
    if number < PAGES / 2 {
        return (0..512).flat_map(|n| ((number * 512 + n) * 1_000_003).to_le_bytes()).collect();
    }
    let line = |n: u64| format!("{:x} pages of text, line {n}\n", number.wrapping_mul(n | 1) << 7);
    let text: String = (0..200).map(line).collect();
    text.into_bytes()[..PAGE_SIZE as usize].to_vec()
}

fn fill(server: &Server) {
    let mut client = server.connect();
    (0..PAGES).for_each(|at| client.write(at * PAGE_SIZE, &page(at)).expect("room"));
}

fn assert_intact(server: &Server) {
    let mut client = server.connect();
    for at in 0..PAGES {
        assert!(client.read(at * PAGE_SIZE, 4096).as_ref() == Ok(&page(at)), "page {at}");
    }
    server.check();
}

#[test]
fn pages_of_numbers_take_less_room_and_are_intact() {
    let scratch = Scratch::new();
    let backing = scratch.path("backing");
    std::fs::File::create(&backing).unwrap().set_len(16 << 20).unwrap();
    let backing = backing.to_str().unwrap();
    let plain = Server::with(&["--size", "8M"]);
    let options = ["--size", "8M", "--shuffle", "auto", "--backing", backing];
    let server = Server::with(&[&options[..], &["--set", "recomp_algorithm=algo=zstd"]].concat());
    fill(&plain);
    fill(&server);
    let (before, after) = (plain.figure("compr_data_size"), server.figure("compr_data_size"));
    assert!(after * 100 < before * 60, "{before} bytes without, {after} with it");
    assert_eq!(
        (&plain.stat()["shuffle"], &server.stat()["shuffle"]),
        (&"off".into(), &"auto".into())
    );
    let table = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(table.contains("zram0: lz4, shuffled where it pays, chain order 3"), "{table}");
    assert!(!succeed(&mut ramfold(&["stat", plain.target()])).contains("shuffled"));
    assert_intact(&server);

    let set = |attribute, value| succeed(&mut ramfold(&["set", server.target(), attribute, value]));
    set("idle", "all");
    set("recompress", "type=idle");
    let denser = server.figure("compr_data_size");
    assert!(denser < after, "{denser} bytes after {after}");
    assert_intact(&server);
    set("idle", "all");
    set("writeback", "idle");
    assert!(server.stat()["bd_stat"]["bd_count"].as_u64() > Some(0), "{}", server.stat());
    assert_intact(&server);
}
