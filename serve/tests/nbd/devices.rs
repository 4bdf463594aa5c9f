//! Devices that come and go while they are served.
//!
//! Invariant of every test here: the default export is the first device, whatever the others do.

use crate::client::Client;
use crate::fixture::{Scratch, wait_until};
use ramfold_serve::{Server, ServerConfig};
use std::path::PathBuf;
use std::sync::Arc;
use zram::{Attribute, DeviceDefaults, Devices};
use zsmalloc::{Memory, MemoryConfig};

struct Fixture {
    server: Server,
    devices: Arc<Devices>,
    socket: PathBuf,
    _scratch: Scratch,
}

/// Serves `ram`, of 1 MiB.
fn start() -> Fixture {
    let scratch = Scratch::new();
    let socket = scratch.path("nbd.sock");
    let memory = Memory::new(MemoryConfig::for_disk(1 << 30)).unwrap();
    let devices = Arc::new(Devices::new(memory, DeviceDefaults::default()));
    let first = devices.add_named("ram").unwrap();
    devices.get(first).unwrap().store(Attribute::Disksize, b"1M").unwrap();
    let mut config = ServerConfig::new("ram");
    config.unix.push(socket.clone());
    let server = Server::start_devices(Arc::clone(&devices), config).unwrap();
    Fixture { server, devices, socket, _scratch: scratch }
}

fn names(fixture: &Fixture) -> Vec<String> {
    let mut client = Client::greeted(&fixture.socket, 3).unwrap();
    let replies = client.option(3, &[]).unwrap();
    let name = |data: &[u8]| {
        let len = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        String::from_utf8(data[4..4 + len].to_vec()).unwrap()
    };
    replies.iter().filter(|(kind, _)| *kind == 2).map(|(_, data)| name(data)).collect()
}

/// A device that `hot_add` made was never exported, though the answer was "done".
#[test]
fn a_device_that_is_added_is_an_export_once_it_has_a_size() {
    let fixture = start();
    let id = fixture.devices.hot_add().unwrap();
    let device = fixture.devices.get(id).unwrap();
    assert_eq!(names(&fixture), ["ram"], "it has no size yet");
    let mut client = Client::greeted(&fixture.socket, 3).unwrap();
    let replies = client.go("zram1").unwrap();
    let words = String::from_utf8_lossy(&replies[0].1).into_owned();
    assert!(words.contains("zram1/disksize"), "it says what to do: {words}");
    device.store(Attribute::Disksize, b"2M").unwrap();
    assert_eq!(names(&fixture), ["ram", "zram1"], "the default first");
    client.go("zram1").unwrap();
    assert_eq!(client.size, 2 << 20);
    client.write(0, b"on the second").unwrap();
    let mut default = Client::open(&fixture.socket, true).unwrap();
    assert_eq!(default.size, 1 << 20);
    assert_eq!(format!("{:?}", default.read(0, 4).unwrap()), "4 bytes [0, 0, 0, 0]..");
    let counts = ["ram", "zram1"].map(|name| fixture.server.connections_to(name));
    assert_eq!(counts, [1, 1]);
}

#[test]
fn a_device_that_is_served_stays_and_one_that_is_not_may_go() {
    let fixture = start();
    let id = fixture.devices.hot_add().unwrap();
    fixture.devices.get(id).unwrap().store(Attribute::Disksize, b"2M").unwrap();
    let mut client = Client::greeted(&fixture.socket, 3).unwrap();
    client.go("zram1").unwrap();
    let refused = fixture.devices.hot_remove(id).unwrap_err().to_string();
    let holder = format!("an NBD client (pid {})", std::process::id());
    assert!(refused.contains(&holder), "{refused}");
    client.read(0, 1).expect("it is served still");
    drop(client);
    wait_until("nobody holds it", || fixture.devices.hot_remove(id).is_ok());
    assert_eq!(names(&fixture), ["ram"]);
    let mut client = Client::greeted(&fixture.socket, 3).unwrap();
    assert_eq!(client.go("zram1").unwrap()[0].0, 1 << 31 | 6, "unknown again");
}

/// The protocol: contexts that were chosen for one name are void with another.
#[test]
fn a_context_belongs_to_the_export_it_was_chosen_for() {
    let fixture = start();
    let id = fixture.devices.hot_add().unwrap();
    fixture.devices.get(id).unwrap().store(Attribute::Disksize, b"2M").unwrap();
    for (chosen, refused) in [("zram1", false), ("ram", true), ("", true)] {
        let mut client = Client::greeted(&fixture.socket, 3).unwrap();
        client.ask_structured().unwrap();
        let mut data = (chosen.len() as u32).to_be_bytes().to_vec();
        data.extend(chosen.as_bytes());
        data.extend([0, 0, 0, 1, 0, 0, 0, 15]);
        data.extend(b"base:allocation");
        assert_eq!(client.option(10, &data).unwrap().len(), 2);
        client.go("zram1").unwrap();
        let answer = client.simple_call(crate::client::STATUS, 0, 4096).unwrap();
        let is_error = matches!(answer, crate::client::Answer::Error(22));
        assert_eq!(is_error, refused, "chosen for {chosen:?}: {answer:?}");
    }
}

/// A list may be longer than the buffer that it goes through, and a client may ask for it as often
/// as it may ask for anything.
#[test]
fn a_list_of_many_exports_is_whole_and_holds_no_more_than_a_short_one() {
    const MANY: usize = 1000;
    let fixture = start();
    let name = |at: usize| format!("{at:04}-{}", "x".repeat(59));
    for at in 0..MANY {
        let id = fixture.devices.add_named(&name(at)).unwrap();
        fixture.devices.get(id).unwrap().store(Attribute::Disksize, b"4K").unwrap();
    }
    let expected: Vec<String> =
        std::iter::once("ram".to_owned()).chain((0..MANY).map(name)).collect();
    assert_eq!(names(&fixture), expected);
    let mut client = Client::greeted(&fixture.socket, 3).unwrap();
    for _ in 0..3 {
        assert_eq!(client.option(3, &[]).unwrap().len(), MANY + 2, "each of them, and an end");
        let held = fixture.server.buffer_bytes();
        assert!(held <= 260 << 10, "{held} bytes for one client");
    }
    let unknown = client.go(&name(MANY)).unwrap();
    assert_eq!(unknown[0].0, 1 << 31 | 6);
    client.go(&name(MANY - 1)).expect("it may ask again");
    assert_eq!(client.size, 4096);
    let removed = fixture.devices.remove_named(&name(0));
    removed.expect("nobody has it");
    assert!(fixture.devices.remove_named(&name(0)).is_err());
    let refused = fixture.devices.remove_named(&name(MANY - 1)).unwrap_err().to_string();
    assert!(refused.contains("an NBD client"), "{refused}");
}
