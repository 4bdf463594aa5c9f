//! `ramfold serve --share-equal-pages`: equal pages of a disk are stored once.
//!
//! Claims: copies of a tree take little more than one, whichever client writes them. Every byte
//! comes back, a recount finds no defect, and what is discarded is free again.

use std::fs;

use crate::rig::{
    PAGE_SIZE, Server, eventually, from_env, needs, ramfold, real_files, succeed, tool,
};

const COPIES: usize = 8;

fn shared(server: &Server, name: &str) -> u64 {
    server.stat()["shared"][name].as_u64().unwrap_or_else(|| panic!("no {name}"))
}

/// `RAMFOLD_TREE_MIB` makes the tree larger.
#[test]
fn eight_copies_of_a_tree_take_little_more_than_one() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let mib = from_env("RAMFOLD_TREE_MIB", 8);
    let size = format!("{}M", mib * COPIES as u64);
    let serve = || Server::with(&["--size", &size, "--share-equal-pages"]);
    let (one, all) = (serve(), serve());
    let (tree, copies) = (one.scratch.large("tree"), all.scratch.large("copies"));
    real_files(&tree, mib);
    let bytes = fs::read(&tree).expect("it was written");
    fs::write(&copies, bytes.repeat(COPIES)).expect("room");
    succeed(tool("nbdcopy").arg(&tree).arg(one.uri()));
    succeed(tool("nbdcopy").arg(&copies).arg(all.uri()));
    let held =
        |server: &Server| (server.figure("compr_data_size"), server.figure("mem_used_total"));
    let (one_held, all_held) = (held(&one), held(&all));
    println!("one copy: {one_held:?} bytes; {COPIES} copies: {all_held:?}");
    assert!(all_held.0 * 10 <= one_held.0 * 12, "{all_held:?} for {COPIES} of {one_held:?}");
    assert!(all_held.1 * 10 <= one_held.1 * 12, "{all_held:?} for {COPIES} of {one_held:?}");
    assert!(shared(&all, "saved_bytes") > 6 * one_held.0, "{}", all.stat()["shared"]);
    let back = all.scratch.large("back");
    succeed(tool("nbdcopy").arg(all.uri()).arg(&back));
    assert!(fs::read(&back).expect("it was written") == fs::read(&copies).expect("as written"));
    all.check();
    let text = succeed(&mut ramfold(&["stat", all.target()]));
    assert!(text.contains("of it shared") && text.contains(" saves "), "{text}");
    all.connect().trim(0, (mib << 20) as u32 * COPIES as u32).expect("in range");
    succeed(&mut ramfold(&["check", all.target()]));
    // A worker frees what was discarded.
    eventually("all to be free", || all.figure("compr_data_size") == 0);
    assert_eq!((shared(&all, "objects"), shared(&all, "pages")), (0, 0));
    all.check();
}

#[test]
fn a_server_shares_only_if_it_is_asked_to() {
    let server = Server::of_size("1M");
    let text = b"sixteen letters.".repeat(PAGE_SIZE as usize / 16);
    for page in 0..3 {
        server.connect().write(page * PAGE_SIZE, &text).expect("room");
    }
    assert!(server.stat()["shared"].is_null(), "{}", server.stat());
    let stat = succeed(&mut ramfold(&["stat", server.target()]));
    assert!(!stat.contains("of it shared"), "{stat}");
    server.check();
}
