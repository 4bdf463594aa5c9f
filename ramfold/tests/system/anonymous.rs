//! All memory of a server as the system counts it, compared with what the server reports.
//!
//! ```text
//!   /proc/PID/smaps, every mapping: Anonymous   <=   resident_bytes + 2 % + 2 MiB
//! ```
//!
//! Claims: after work through the mount or over NBD, by any number of threads, only the program's
//! own stacks, heap and static data are outside of every counter. While nothing is asked for,
//! buffers give their memory back.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{
    Loop, Mount, Server, Tree, by_io_uring_too, needs_device, needs_tree, noise, ramfold, succeed,
    tool,
};

const MIB: u64 = 1 << 20;
/// What a program has beside its data.
const OWN_BYTES: u64 = 2 * MIB;
const FILES: u64 = 13;
const FILE_BYTES: usize = 10 << 20;

/// Anonymous memory of a process, from outside.
fn anonymous(pid: u32) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("it lives");
    let fields = smaps.lines().filter_map(|line| line.strip_prefix("Anonymous:"));
    let kib = fields.filter_map(|field| field.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.sum::<u64>() << 10
}

/// Waits until everything that a server holds is in its counters, and its buffers are given back.
#[track_caller]
fn expect_counted(pid: u32, stat: impl Fn() -> Value) {
    let told = || {
        let (stat, held) = (stat(), anonymous(pid));
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{stat}"));
        let counted = number(&stat["resident_bytes"]);
        let own = number(&stat["anonymous_bytes"]);
        let buffers = number(&stat["metadata"]["buffers"]);
        let is_counted = held <= counted + counted / 50 + OWN_BYTES;
        let is_told = own.abs_diff(held) <= MIB && buffers <= 512 << 10;
        let told = format!("{held} held, {own} told, {counted} counted, {buffers} in buffers");
        (is_counted && is_told, told)
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (fine, told) = told();
        if fine {
            return;
        }
        assert!(Instant::now() < deadline, "{told}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn fill(directory: &Path, number: u64) {
    let path = directory.join(format!("file{number}"));
    let mut file = File::create(path).expect("room");
    file.write_all(&noise(number + 1, FILE_BYTES)).expect("room");
    file.sync_all().expect("it is written");
}

/// 41.8 MB were held and 7.5 counted, because buffers of requests were from the C library's heap.
/// It keeps freed memory in an arena for each thread.
#[test]
fn a_mounted_disk_counts_all_that_it_holds() {
    let tools = ["losetup", "mkfs.ext4", "mount", "fstrim"];
    if !needs_tree(&tools) || !needs_device("/dev/loop-control") {
        return;
    }
    for algorithm in ["lz4", "zstd"] {
        let tree = Tree::with(&["--size", "512M", "--algorithm", algorithm]);
        let control = tree.scratch.path("run/ramfold/zram0.ctl");
        let stat = || {
            let text = succeed(ramfold(&["stat", "--json"]).arg(&control));
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
        };
        expect_counted(tree.process.pid(), stat);
        let disk = Loop::direct(&tree.disk());
        succeed(tool("mkfs.ext4").args(["-q", &disk.device]));
        let mount = Mount::of(&disk.device, tree.scratch.path("mnt"));
        thread::scope(|scope| {
            for number in 0..FILES {
                let directory = &mount.directory;
                scope.spawn(move || fill(directory, number));
            }
        });
        expect_counted(tree.process.pid(), stat);
        for number in 0..FILES {
            let path = mount.directory.join(format!("file{number}"));
            std::fs::remove_file(path).expect("it is there");
        }
        succeed(tool("fstrim").arg(&mount.directory));
        expect_counted(tree.process.pid(), stat);
    }
}

#[test]
fn an_nbd_server_counts_all_that_it_holds() {
    const CLIENTS: u64 = 24;
    for algorithm in ["lz4", "zstd"] {
        let server = Server::with(&["--size", "512M", "--algorithm", algorithm]);
        expect_counted(server.pid(), || server.stat());
        let work = |number: u64| {
            let mut client = server.connect();
            let data = noise(number + 1, MIB as usize);
            for step in 0..4 {
                let offset = (number * 4 + step) * MIB;
                assert_eq!(client.write(offset, &data), Ok(()));
                assert!(client.read(offset, data.len()).expect("it is there") == data);
            }
            client
        };
        let clients: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..CLIENTS).map(|number| scope.spawn(move || work(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        expect_counted(server.pid(), || server.stat());
        let mut clients = clients;
        clients.truncate(CLIENTS as usize / 2);
        expect_counted(server.pid(), || server.stat());
        assert_eq!(clients[0].trim(0, 512 << 20), Ok(()));
        drop(clients);
        expect_counted(server.pid(), || server.stat());
    }
}

by_io_uring_too!(a_mounted_disk_counts_all_that_it_holds);
