//! Programs that speak NBD find what they expect.
//!
//! Invariant: what a client wrote is compared byte by byte. Either another project's program
//! compares it, or it is read back in another way than it was written.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde_json::Value;

use crate::rig::{PAGE_SIZE, Server, from_env, needs, noise, real_files, succeed, tool};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {error}\n{text}"))
}

#[test]
fn nbdinfo_sees_size_and_abilities() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let server = Server::of_size("64M");
    let info = json(&succeed(tool("nbdinfo").args(["--json", &server.uri()])));
    assert_eq!(info["protocol"], "newstyle-fixed", "{info}");
    assert_eq!(info["structured"], true, "{info}");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], 64 << 20, "{info}");
    assert_eq!(export["is_read_only"], false, "{info}");
    let abilities = ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"];
    for ability in abilities {
        assert_eq!(export[format!("can_{ability}")], true, "can_{ability}: {info}");
    }
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]), "{info}");
}

#[test]
fn nbdinfo_lists_the_export_by_name() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let server = Server::with(&["--size", "1M", "--name", "scratch7"]);
    let list = json(&succeed(tool("nbdinfo").args(["--list", "--json", &server.uri()])));
    let names: Vec<_> = list["exports"].as_array().into_iter().flatten().collect();
    assert_eq!(names.len(), 1, "{list}");
    assert_eq!(names[0]["export-name"], "scratch7", "{list}");
}

#[test]
fn a_read_only_disk_says_so() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let server = Server::with(&["--size", "1M", "--read-only"]);
    let info = json(&succeed(tool("nbdinfo").args(["--json", &server.uri()])));
    assert_eq!(info["exports"][0]["is_read_only"], true, "{info}");
    let eperm = 1;
    assert_eq!(server.connect().write(0, b"x"), Err(eperm));
}

#[test]
fn the_map_tells_data_from_holes() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    let server = Server::of_size("8M");
    server.connect().write(1 << 20, &noise(1, 1 << 20)).unwrap();
    let map = json(&succeed(tool("nbdinfo").args(["--map", "--json", &server.uri()])));
    let extents: Vec<(u64, u64, bool)> = map.as_array().unwrap().iter().map(extent).collect();
    let expected = [(0, 1 << 20, false), (1 << 20, 1 << 20, true), (2 << 20, 6 << 20, false)];
    assert_eq!(merged(&extents), expected, "{map}");
}

fn extent(entry: &Value) -> (u64, u64, bool) {
    let number = |name: &str| entry[name].as_u64().unwrap_or_else(|| panic!("{name} in {entry}"));
    (number("offset"), number("length"), number("type") == 0)
}

/// Neighbours of one kind as one extent; a server may cut them anywhere.
fn merged(extents: &[(u64, u64, bool)]) -> Vec<(u64, u64, bool)> {
    let mut merged: Vec<(u64, u64, bool)> = Vec::new();
    for &(offset, len, data) in extents {
        match merged.last_mut() {
            Some(last) if last.2 == data => last.1 += len,
            _ => merged.push((offset, len, data)),
        }
    }
    merged
}

#[test]
fn nbdcopy_brings_real_files_there_and_back() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let mib = from_env("RAMFOLD_COPY_MIB", 64);
    let server = Server::of_size(&format!("{mib}M"));
    let (image, back) = (server.scratch.large("image"), server.scratch.large("back"));
    real_files(&image, mib);
    succeed(tool("nbdcopy").arg(&image).arg(server.uri()));
    succeed(tool("nbdcopy").arg(server.uri()).arg(&back));
    assert_same(&image, &back);
    server.check();
    let stored = (server.figure("orig_data_size"), server.figure("compr_data_size"));
    assert!(stored.1 < stored.0, "files of /usr compress: {stored:?}");
}

fn assert_same(left: &Path, right: &Path) {
    let open = |path: &Path| BufReader::new(File::open(path).expect("the file was written"));
    let (mut left, mut right) = (open(left), open(right));
    let (mut one, mut other) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for chunk in 0_u64.. {
        let (read, others) = (fill(&mut left, &mut one), fill(&mut right, &mut other));
        assert_eq!(read, others, "lengths differ in MiB {chunk}");
        assert!(one[..read] == other[..read], "contents differ in MiB {chunk}");
        if read == 0 {
            return;
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]).expect("the file can be read") {
            0 => break,
            read => filled += read,
        }
    }
    filled
}

#[test]
fn qemu_img_converts_and_compares() {
    if !needs(&["qemu-img"]) {
        return;
    }
    let server = Server::of_size("48M");
    let (image, copy) = (server.scratch.large("image"), server.scratch.large("copy.qcow2"));
    real_files(&image, 48);
    let uri = server.uri();
    let qemu_img = |arguments: &[&str]| succeed(tool("qemu-img").args(arguments));
    let (image, copy) = (image.to_str().unwrap(), copy.to_str().unwrap());
    qemu_img(&["convert", "-n", "-f", "raw", "-O", "raw", image, &uri]);
    qemu_img(&["compare", "-f", "raw", "-F", "raw", image, &uri]);
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &uri, copy]);
    qemu_img(&["compare", "-f", "qcow2", "-F", "raw", copy, image]);
}

#[test]
fn fio_verifies_over_four_connections() {
    if !needs(&["fio"]) {
        return;
    }
    let server = Server::of_size("256M");
    let seconds = from_env("RAMFOLD_FIO_SECONDS", 3);
    let mut fio = tool("fio");
    fio.args(["--name=verify", "--ioengine=nbd", "--numjobs=4", "--iodepth=16"]);
    fio.args(["--size=64M", "--offset_increment=64M", "--rw=randrw", "--bsrange=4k-64k"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256"]);
    fio.args(["--buffer_compress_percentage=50", "--time_based", "--output-format=json"]);
    fio.arg(format!("--runtime={seconds}")).arg(format!("--uri={}", server.uri()));
    let report = server.scratch.path("fio.json");
    succeed(fio.arg("--output").arg(&report));
    let report = json(&std::fs::read_to_string(report).unwrap());
    let jobs = report["jobs"].as_array().expect("fio reports its jobs");
    assert_eq!(jobs.len(), 4, "one job for each connection");
    for job in jobs {
        assert_eq!(job["error"], 0, "{job}");
        assert!(job["read"]["total_ios"].as_u64() > Some(0), "nothing was verified: {job}");
    }
    server.check();
}

#[test]
fn qemu_io_reads_full_memory_as_no_space() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let server = Server::with(&["--size", "64M", "--memory-limit", "4M"]);
    let file = server.scratch.large("noise");
    std::fs::write(&file, noise(1, 16 << 20)).unwrap();
    let write = format!("write -s {} 0 16M", file.display());
    let output = tool("qemu-io").args(["-f", "raw", "-c", &write, &server.uri()]).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("No space left on device"), "{said}");
    let limit = 4 << 20;
    assert!(server.figure("object_bytes_resident") <= limit + PAGE_SIZE, "{}", server.stat());
    server.check();
}
