//! Several exports of one server: listed, added, removed, and asked by name.
//!
//! Claims: a client finds each export by its name, and nothing of another one. A device that is
//! added is an export at once, and one that is in use is not removed.

use serde_json::Value;

use crate::rig::{Server, needs, noise, ramfold, refusal, succeed, tool};

const THREE: [&str; 8] =
    ["--size", "1M", "--export", "data=8M", "--export", "logs=2M", "--default-export", "data"];

fn uri(server: &Server, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", server.target())
}

/// Names and sizes, in the server's order.
fn listed(server: &Server) -> Vec<(String, u64)> {
    let list = succeed(tool("nbdinfo").args(["--list", "--json", &server.uri()]));
    let list: Value = serde_json::from_str(&list).expect("nbdinfo prints JSON");
    let exports = list["exports"].as_array().expect("it lists exports");
    let pair = |export: &Value| {
        let name = export["export-name"].as_str().expect("a name").to_owned();
        (name, export["export-size"].as_u64().expect("a size"))
    };
    exports.iter().map(pair).collect()
}

fn is_list(server: &Server, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
    assert_eq!(listed(server), expected);
}

#[test]
fn every_export_is_listed_the_default_first() {
    if !needs(&["nbdinfo", "qemu-nbd", "nbd-client"]) {
        return;
    }
    let server = Server::with(&THREE);
    is_list(&server, &[("data", 8 << 20), ("zram0", 1 << 20), ("logs", 2 << 20)]);
    let size = |uri: &str| succeed(tool("nbdinfo").args(["--size", uri])).trim().to_owned();
    assert_eq!(size(&server.uri()), "8388608", "the empty name is the default");
    assert_eq!(size(&uri(&server, "zram0")), "1048576");
    assert_eq!(size(&uri(&server, "logs")), "2097152");
    let qemu = succeed(tool("qemu-nbd").args(["--list", "--socket", server.target()]));
    let kernel = succeed(tool("nbd-client").args(["-l", "-unix", server.target()]));
    for name in ["data", "zram0", "logs"] {
        assert!(qemu.contains(&format!("export: '{name}'")), "{qemu}");
        assert!(kernel.lines().any(|line| line.contains(name)), "{kernel}");
    }
}

#[test]
fn each_export_has_its_own_bytes() {
    if !needs(&["nbdcopy", "qemu-img", "nbdkit", "nbdinfo"]) {
        return;
    }
    let server = Server::with(&THREE);
    let files = ["data", "logs"].map(|name| (name, server.scratch.large(name)));
    for (seed, (name, file)) in files.iter().enumerate() {
        std::fs::write(file, noise(seed as u64 + 1, 2 << 20)).unwrap();
        succeed(tool("nbdcopy").arg(file).arg(uri(&server, name)));
    }
    let back = server.scratch.large("back");
    succeed(tool("nbdcopy").arg(uri(&server, "logs")).arg(&back));
    assert!(std::fs::read(&back).unwrap() == noise(2, 2 << 20), "logs came back");
    let logs = files[1].1.to_str().unwrap();
    let at = uri(&server, "logs");
    succeed(tool("qemu-img").args(["compare", "-f", "raw", "-F", "raw", logs, &at]));
    // Another server is the client, by its plugin.
    let through = format!("nbdkit -U - nbd uri='{at}' --run 'nbdcopy \"$uri\" -' | cmp - {logs}");
    succeed(tool("bash").args(["-o", "pipefail", "-c", &through]));
    assert_eq!(figure(&server, "zram0", "orig_data_size"), 0);
    assert_eq!(figure(&server, "data", "orig_data_size"), 2 << 20);
}

/// A figure of one device.
fn figure(server: &Server, device: &str, name: &str) -> u64 {
    let stat = succeed(&mut ramfold(&["stat", server.target(), device, "--json"]));
    let stat: Value = serde_json::from_str(&stat).expect("it is JSON");
    assert_eq!(stat["name"], device, "{stat}");
    stat[name].as_u64().expect("an integer")
}

#[test]
fn an_unknown_name_is_refused_and_the_client_may_ask_again() {
    if !needs(&["nbdsh", "nbdinfo"]) {
        return;
    }
    let server = Server::with(&THREE);
    let script = format!(
        "
h.set_opt_mode(True)
h.add_meta_context('base:allocation')
h.connect_unix('{}')
h.set_export_name('nobody')
for ask in (h.opt_info, h.opt_go):
    try:
        ask()
        assert False, 'there is no such export'
    except nbd.Error as error:
        assert 'no such export' in str(error) or error.errno == 'ENOENT', error
h.set_export_name('logs')
h.opt_go()
print(h.get_size(), h.can_meta_context('base:allocation'))",
        server.target()
    );
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    let said = succeed(tool("nbdsh").args(["-c", &script]).env("PATH", path));
    assert_eq!(said.trim(), "2097152 True");
    let mut unknown = tool("nbdinfo");
    let unknown = unknown.arg(uri(&server, "nobody")).output().unwrap();
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && said.contains("for export: nobody"), "{said}");
}

#[test]
fn a_device_is_an_export_as_soon_as_it_is_added() {
    if !needs(&["nbdinfo", "nbdsh"]) {
        return;
    }
    let server = Server::with(&["--size", "1M"]);
    let at = server.target();
    let ramfold = |arguments: &[&str]| succeed(&mut ramfold(arguments));
    let said = ramfold(&["add", at, "more=5000"]);
    let expected = format!("more of 8.0 KiB was added: {}\n", uri(&server, "more"));
    assert_eq!(said, expected);
    is_list(&server, &[("zram0", 1 << 20), ("more", 8192)]);
    // A device of the kernel's way becomes one when it gets its size.
    ramfold(&["set", at, "zram-control/hot_add", "1"]);
    ramfold(&["set", at, "zram2/disksize", "4M"]);
    is_list(&server, &[("zram0", 1 << 20), ("more", 8192), ("zram2", 4 << 20)]);
    ramfold(&["set", at, "more/mem_limit", "64K"]);
    assert_eq!(figure(&server, "more", "mem_limit"), 64 << 10);
    assert!(ramfold(&["check", at, "more"]).starts_with("more: no defect; 0 pages"));
    assert!(ramfold(&["stat", at, "more", "--classes"]).contains("obj_allocated"));
    let all = ramfold(&["check", at]);
    assert_eq!(all.lines().count(), 3, "each has its line: {all}");
    // While a client has it, it stays, and the refusal says who that is.
    let script = format!(
        "
import os, subprocess
h.connect_uri('{0}')
h.pwrite(b'held', 0)
refused = subprocess.run(['{1}', 'remove', '{2}', 'more'], capture_output=True, text=True)
assert refused.returncode == 1, refused
assert 'more is in use by an NBD client (pid %d)' % os.getpid() in refused.stderr, refused
assert h.pread(4, 0) == b'held'",
        uri(&server, "more"),
        crate::rig::BINARY,
        at
    );
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    succeed(tool("nbdsh").args(["-c", &script]).env("PATH", path));
    crate::rig::eventually("the client to be gone", || {
        let removed = crate::rig::ramfold(&["remove", at, "more"]).output().unwrap();
        removed.status.success()
    });
    is_list(&server, &[("zram0", 1 << 20), ("zram2", 4 << 20)]);
    server.connect().write(0, b"the first goes on").unwrap();
}

#[test]
fn what_cannot_be_added_or_removed_is_refused() {
    let server = Server::with(&THREE);
    let at = server.target();
    let rows: [(&[&str], &[&str]); 13] = [
        (&["add", at, "data=1M"], &["data", "there is a device"]),
        (&["add", at, "data"], &["NAME=SIZE"]),
        (&["add", at, "a/b=1M"], &["a/b", "not a name"]),
        (&["add", at, "new=much"], &["much", "not a size"]),
        (&["add", "no-such-server", "new=1M"], &["no-such-server"]),
        (&["remove", at, "nobody"], &["nobody", "zram0, data, logs"]),
        (&["remove", at, "zram0"], &["zram0 is in use by the NBD server"]),
        (&["remove", at, "data"], &["data is in use by the NBD server"]),
        (&["stat", at, "nobody"], &["nobody", "zram0, data, logs"]),
        (&["check", at, "nobody"], &["nobody", "zram0, data, logs"]),
        (&["serve", "--size", "1M", "--export", "zram0=1M"], &["--export", "zram0"]),
        (&["serve", "--size", "1M", "--export", "x"], &["NAME=SIZE"]),
        (&["serve", "--size", "1M", "--default-export", "x"], &["\"x\" is not one", "zram0"]),
    ];
    for (arguments, words) in rows {
        let line = refusal(&mut ramfold(arguments));
        for word in words {
            assert!(line.contains(word), "ramfold {arguments:?}: {word:?} is not in {line}");
        }
    }
    succeed(&mut ramfold(&["remove", at, "logs"]));
    let left = succeed(&mut ramfold(&["check", at]));
    assert_eq!(left.lines().count(), 2, "{left}");
}

/// Each device has the limit that was asked for, or a part of the default.
#[test]
fn a_limit_is_that_of_each_device() {
    let asked = Server::with(&["--size", "1M", "--export", "b=1M", "--memory-limit", "8M"]);
    assert_eq!(figure(&asked, "b", "mem_limit"), 8 << 20);
    let one = Server::of_size("1M").figure("mem_limit");
    let two = Server::with(&["--size", "1M", "--export", "b=1M"]);
    let half = figure(&two, "b", "mem_limit");
    assert_eq!(half, figure(&two, "zram0", "mem_limit"));
    assert!(half < one / 4 * 3, "{half} each, and {one} alone");
}
