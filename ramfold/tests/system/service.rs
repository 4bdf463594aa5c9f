//! ramfold as a service: options from a file, and what a service manager is told.
//!
//! Claims: a file has the options of the command line, and what is typed wins. A wrong line is
//! named by its number. A manager hears when the server serves, how it is, that it goes on, and
//! that it ends, and programs that the server starts cannot tell it anything. The units are right.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::mounting::{SYS_RESOURCE, assert_flushes, needs_capability};
use crate::rig::{
    BINARY, Nbd, Process, Scratch, Tree, eventually, needs, needs_device, needs_root, needs_tree,
    noise, ramfold, refusal, succeed, tool,
};

/// A disk that is served by a file has what the file says, and a typed option replaces its lines.
#[test]
fn a_file_has_the_options_and_what_is_typed_wins() {
    let scratch = Scratch::new();
    let (config, socket) = (scratch.path("disk.conf"), scratch.path("disk.sock"));
    let text = "# a disk\nsize = 4M\n\nname = filed\nexport = a=1M\nexport = b=1M\ntrack-ages\n\
                read-only = no\nalgorithm = zstd:3\n";
    fs::write(&config, format!("{text}unix = {}\n", socket.display())).unwrap();
    let serve = |typed: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(&config).args(typed);
        command.env("XDG_RUNTIME_DIR", scratch.path("run"));
        Process::start(&mut command, "filed:")
    };
    let stat = || {
        let text = succeed(&mut ramfold(&["stat", socket.to_str().unwrap(), "--json"]));
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    for (typed, size, algorithm, devices) in [
        (&[][..], 4 << 20, "zstd", 3),
        (&["--size", "8M", "--export=c=1M", "--algorithm=lz4"], 8 << 20, "lz4", 2),
    ] {
        let mut server = serve(typed);
        let mut found = Default::default();
        eventually("all devices", || {
            found = stat();
            found.as_array().is_some_and(|all| all.len() == devices)
        });
        assert_eq!((&found[0]["disksize"], &found[0]["name"]), (&size.into(), &"filed".into()));
        assert!(found[0]["algorithm"].as_str().unwrap().starts_with(algorithm), "{found}");
        Nbd::connect(&socket).write(0, &noise(1, 4096)).expect("read-only = no");
        server.signal("TERM");
        assert!(server.wait().success(), "{}", server.said());
    }
}

#[test]
fn a_wrong_line_is_named_and_nothing_is_served() {
    let scratch = Scratch::new();
    let config = scratch.path("x.conf");
    let at = config.to_str().unwrap();
    for (verb, text, expected) in [
        (&["serve"][..], "size = 1M\nsise = 2M\n", ":2: --sise is not expected here; did you mean"),
        (&["serve"], "size = much\n", ":1: --size <SIZE>: \"much\" is not a size"),
        (&["serve"], "quiet\n", ": --size <SIZE> is missing; see ramfold serve --help"),
        (&["serve"], "size = 1M\nfs = xfs\n", ":2: --fs is not expected here"),
        (&["mount", "/nonexistent/x"], "size = 1M\nfs = zfs\n", ":2: "),
        (&["mount", "/nonexistent/x"], "zram-size = 4096\n", ":1: zram-size is a key of zram-gen"),
    ] {
        fs::write(&config, text).unwrap();
        let line = refusal(&mut ramfold(&[verb, &["--config", at]].concat()));
        assert!(line.contains(&format!("{at}{expected}")), "{text:?}: {line}");
    }
    for (path, expected) in [("/nonexistent.conf", "No such file"), ("/dev/zero", "more than")] {
        let line = refusal(&mut ramfold(&["serve", "--config", path]));
        assert!(line.contains(&format!("--config {path}: ")) && line.contains(expected), "{line}");
    }
}

/// The socket of a service manager, which is this test.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn new(socket: UnixDatagram) -> Manager {
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a duration");
        Manager { socket, heard: Vec::new() }
    }

    /// Waits for a message with this line, or one that begins so, and returns the line.
    #[track_caller]
    fn wait_for(&mut self, begin: &str) -> String {
        loop {
            let mut buffer = [0; 4096];
            let len = self.socket.recv(&mut buffer).unwrap_or_else(|error| {
                panic!("no {begin} was heard, but {:?}: {error}", self.heard)
            });
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            let line = text.lines().find(|line| line.starts_with(begin)).map(str::to_owned);
            self.heard.push(text);
            if let Some(line) = line {
                return line;
            }
        }
    }
}

/// A server whose watchdog has this many microseconds.
fn watched(scratch: &Scratch, address: &str, arguments: &[&str], ready: &str) -> Process {
    let mut command = Command::new(BINARY);
    command.arg("serve").args(arguments).arg("--unix").arg(scratch.path("disk.sock"));
    command.env("XDG_RUNTIME_DIR", scratch.path("run"));
    command.env("NOTIFY_SOCKET", address).env("WATCHDOG_USEC", "300000");
    Process::start(&mut command, ready)
}

#[test]
fn a_manager_hears_that_it_serves_how_it_is_and_that_it_ends() {
    let scratch = Scratch::new();
    let path = scratch.path("notify");
    let mut manager = Manager::new(UnixDatagram::bind(&path).unwrap());
    let mut server = watched(&scratch, path.to_str().unwrap(), &["--size", "1M"], "of memory");
    manager.wait_for("READY=1");
    let socket = scratch.path("disk.sock");
    let mut client = Nbd::connect(&socket);
    assert_eq!(manager.heard, ["READY=1"], "nothing comes before it");
    let line = manager.wait_for("STATUS=");
    assert!(line.starts_with("STATUS=1 device, "), "{line}");
    client.write(0, &noise(1, 65536)).unwrap();
    while !manager.wait_for("STATUS=").contains("1 client; 64.0 KiB stored in ") {}
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    drop(client);
    server.signal("TERM");
    manager.wait_for("STOPPING=1");
    assert!(server.wait().success(), "{}", server.said());
    manager.socket.set_nonblocking(true).unwrap();
    assert!(manager.socket.recv(&mut [0; 64]).is_err(), "that was the last word");
}

/// An abstract name, and a watchdog that is another process's.
#[test]
fn a_watchdog_of_another_process_hears_nothing() {
    let scratch = Scratch::new();
    let name = format!("ramfold-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut manager = Manager::new(UnixDatagram::bind_addr(&address).unwrap());
    let mut command = Command::new(BINARY);
    command.args(["serve", "--size", "1M", "--unix"]).arg(scratch.path("disk.sock"));
    command.env("XDG_RUNTIME_DIR", scratch.path("run")).env("NOTIFY_SOCKET", format!("@{name}"));
    command.env("WATCHDOG_USEC", "30000").env("WATCHDOG_PID", "1");
    let mut server = Process::start(&mut command, "of memory");
    manager.wait_for("STATUS=");
    server.signal("TERM");
    manager.wait_for("STOPPING=1");
    assert!(server.wait().success(), "{}", server.said());
    assert!(!manager.heard.iter().any(|text| text.contains("WATCHDOG")), "{:?}", manager.heard);
}

#[test]
fn what_the_server_starts_cannot_tell_the_manager() {
    let scratch = Scratch::new();
    let path = scratch.path("notify");
    let mut manager = Manager::new(UnixDatagram::bind(&path).unwrap());
    let mut command = tool(BINARY);
    let told = "env | grep -E '^(NOTIFY_|WATCHDOG_)'; exit 7";
    command.args(["serve", "--size", "1M", "--run", told]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b""[..]), "{output:?}");
    manager.wait_for("READY=1");
    manager.wait_for("STOPPING=1");
}

/// What the variables say wrong is told before anything is served.
#[test]
fn a_watchdog_that_is_no_number_is_refused() {
    let mut command = ramfold(&["serve", "--size", "1M"]);
    command.env("NOTIFY_SOCKET", "/nonexistent").env("WATCHDOG_USEC", "soon");
    let line = refusal(&mut command);
    assert!(line.contains("WATCHDOG_USEC: \"soon\" is not a number"), "{line}");
}

/// Unmounts what a test that failed has left.
struct Unmounted(std::path::PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        if self.0.exists() {
            // It may be gone already, or its server runs and ends by this.
            let _ = ramfold(&["umount"]).arg(&self.0).output();
        }
    }
}

/// As the unit does it: in the foreground, with a file, and told when the directory can be used.
#[test]
fn a_mount_is_ready_when_its_directory_can_be_used() {
    if !(needs_root() && needs(&["mkfs.ext4"]) && needs_device("/dev/fuse")) {
        return;
    }
    let scratch = Scratch::new();
    let name = format!("service-{}", std::process::id());
    let (path, directory) = (scratch.path("notify"), scratch.path(&name));
    let _unmounted = Unmounted(directory.clone());
    let mut manager = Manager::new(UnixDatagram::bind(&path).unwrap());
    let config = scratch.path("files.conf");
    fs::write(&config, "size = 32M\nfs = ext4\noptions = noatime\n").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["mount", "--foreground", "--config"]).arg(&config).arg(&directory);
    command.env("NOTIFY_SOCKET", &path).env("XDG_RUNTIME_DIR", scratch.path("run"));
    // Only the manager is waited for.
    let mut server = Process::start(&mut command, "");
    manager.wait_for("READY=1");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let of_ours = mounts.lines().find(|line| line.contains(directory.to_str().unwrap()));
    assert!(of_ours.is_some_and(|line| line.contains("noatime")), "{mounts}");
    fs::write(directory.join("file"), "kept").unwrap();
    server.signal("TERM");
    manager.wait_for("STOPPING=1");
    assert!(server.wait().success(), "{}", server.said());
    assert!(!directory.exists(), "it was made for the mount");
}

/// systemd reads the units as they are installed, beside the program and its manual pages.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if !needs(&["systemd-analyze", "man"]) {
        return;
    }
    let scratch = Scratch::new();
    let pages = scratch.path("man");
    for section in ["man1", "man5"] {
        fs::create_dir_all(pages.join(section)).unwrap();
    }
    let flat = scratch.path("pages");
    fs::create_dir(&flat).unwrap();
    succeed(ramfold(&["manual", "--into"]).arg(&flat));
    for page in fs::read_dir(&flat).unwrap().flatten() {
        let name = page.file_name().into_string().unwrap();
        let section = pages.join(format!("man{}", &name[name.len() - 1..]));
        fs::rename(page.path(), section.join(name)).unwrap();
    }
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd");
    let mut names = Vec::new();
    for unit in fs::read_dir(units).expect("the units").flatten() {
        let text = fs::read_to_string(unit.path()).unwrap();
        let name = unit.file_name().into_string().unwrap().replace('@', "@mnt-disk");
        let copy = scratch.path(&name);
        fs::write(&copy, text.replace("/usr/bin/ramfold", BINARY)).unwrap();
        names.push(copy);
    }
    assert_eq!(names.len(), 3);
    let mut analyze = tool("systemd-analyze");
    analyze.args(["verify"]).args(&names).env("MANPATH", &pages);
    let output = analyze.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

/// The units left CAP_SYS_RESOURCE out, so threads that serve waited for memory which only they
/// could free. The kernel refuses without a word.
#[test]
fn the_units_keep_what_threads_that_serve_need() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd");
    for name in ["ramfold@.service", "ramfold-mount@.service"] {
        let text = fs::read_to_string(units.join(name)).expect("a unit");
        let kept = text.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let kept: Vec<&str> = kept.expect("a bounding set").split(' ').collect();
        assert!(kept.contains(&"CAP_SYS_RESOURCE"), "{name}: {kept:?}");
        let sets = kept.iter().map(|name| format!("+{}", name["CAP_".len()..].to_lowercase()));
        flushes_within(&["-all".to_owned()].into_iter().chain(sets).collect::<Vec<_>>().join(","));
    }
}

/// A server with these capabilities has threads that never wait for memory to be written out.
fn flushes_within(capabilities: &str) {
    if !(needs_tree(&["setpriv"]) && needs_capability(SYS_RESOURCE)) {
        return;
    }
    let scratch = Scratch::new();
    let directory = scratch.path("tree");
    let serve = Tree::command(&scratch, &directory, &["--size", "1M"]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", capabilities]).arg(serve.get_program()).args(serve.get_args());
    command.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut process = Process::start(&mut command, "mounted at");
    assert_flushes(process.pid());
    process.signal("TERM");
    assert!(process.wait().success(), "{}", process.said());
}

#[test]
fn commands_of_the_service_document_work() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let document = include_str!("../../../docs/service.md");
    let blocks = document.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let binaries = Path::new(BINARY).parent().expect("a file is in a directory").display();
    let mut said = Vec::new();
    for block in blocks {
        let scratch = Scratch::new();
        let mut shell = tool("sh");
        shell.args(["-e", "-c", &format!("PATH={binaries}:$PATH; {block}")]);
        shell.env("XDG_RUNTIME_DIR", scratch.path("run")).current_dir(scratch.path(""));
        said.push(succeed(&mut shell));
    }
    assert_eq!(said, ["67108864\n33554432\n", ""], "the disk of the file, and the one typed");
}
