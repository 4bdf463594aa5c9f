//! `serve --ublk`: what an operator sees who asks for a block device that cannot be made.
//!
//! Claims: without the kernel's driver the command says what to do, and leaves nothing behind. A
//! wrong name, number or combination is refused in words.
//!
//! Block devices are in `lab/guest/ublk.sh`, because they need a kernel that has the driver.

use std::path::Path;

use crate::rig::{Scratch, ramfold, refusal};

#[test]
fn a_machine_without_the_driver_is_told_what_to_load_and_nothing_is_left() {
    if Path::new("/dev/ublk-control").exists() {
        println!("this machine has ublk; lab/guest/ublk.sh asks one that has not");
        return;
    }
    let scratch = Scratch::new();
    let socket = scratch.path("disk.sock");
    let unix = ["serve", "--size", "1M", "--unix", socket.to_str().unwrap(), "--ublk", "auto"];
    let said = refusal(&mut ramfold(&unix));
    let expected = "--ublk: there is no /dev/ublk-control: load the module ublk_drv (modprobe";
    assert!(said.contains(expected), "{said}");
    assert!(!socket.exists(), "nothing is left");
}

#[test]
fn wrong_block_devices_are_refused_in_words() {
    let serve = |arguments: &[&str]| {
        refusal(&mut ramfold(&[&["serve", "--size", "1M"], arguments].concat()))
    };
    for (arguments, expected) in [
        (&["--ublk", "logs=auto"][..], "there is no device \"logs\"; add it by --export"),
        (&["--ublk", "first"], "\"first\" is neither the number of a block device nor auto"),
        (&["--ublk", "4294967296"], "\"4294967296\" is neither"),
        (&["--ublk", "auto", "--fuse", "/nowhere"], "--fuse"),
        (&["--ublk", "auto", "--tls", "on"], "with --ublk alone there is no NBD"),
    ] {
        let said = serve(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    let said = refusal(&mut ramfold(&["serve", "--ublk", "auto"]));
    assert!(said.contains("--size"), "{said}");
}
