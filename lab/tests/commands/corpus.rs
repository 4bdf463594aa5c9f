//! `lab corpus`: a child that holds known pages is dumped, and the pages are found in the file.

use crate::support::{Scratch, lab, succeed};
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PAGE: usize = 4096;
const PAGES: usize = 300;

/// Page `index` of what the child, `examples/hold_pages.rs`, holds.
fn pattern(index: usize) -> Vec<u8> {
    let word = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = (0..PAGE as u64 / 8).map(|at| word ^ (at / 5));
    words.flat_map(u64::to_le_bytes).collect()
}

struct Holder(Child);

impl Holder {
    fn start() -> Holder {
        // Cargo builds examples with the tests, next to the program.
        let program = Path::new(env!("CARGO_BIN_EXE_lab")).with_file_name("examples/hold_pages");
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap() == "holding"), "the child did not start");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It ends by itself when its input does; this is for failures.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_page_a_process_holds_is_dumped_once() {
    let holder = Holder::start();
    let out = Scratch::new("dump");
    let pid = holder.0.id().to_string();
    let output = succeed(&["corpus", "--pid", &pid, "--out", out.0.to_str().unwrap()]);
    let bytes = std::fs::read(&out.0).unwrap();
    assert_eq!(bytes.len() % PAGE, 0);
    let pages: Vec<&[u8]> = bytes.chunks_exact(PAGE).collect();
    let held: HashSet<Vec<u8>> = (0..PAGES).map(pattern).collect();
    let found: Vec<&&[u8]> = pages.iter().filter(|&&page| held.contains(page)).collect();
    let distinct: HashSet<&&[u8]> = found.iter().copied().collect();
    assert_eq!(distinct.len(), PAGES, "patterns of the child that are in the dump");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!(": {} ", pages.len())), "{said}");
    assert!(said.contains(&format!("(process {pid})")), "{said}");
}

#[test]
fn a_limit_is_kept_and_the_file_is_private() {
    use std::os::unix::fs::MetadataExt;
    let holder = Holder::start();
    let out = Scratch::new("limited");
    let path = out.0.to_str().unwrap();
    succeed(&["corpus", "--pid", &holder.0.id().to_string(), "--out", path, "--mib", "1"]);
    let meta = std::fs::metadata(&out.0).unwrap();
    assert_eq!(meta.len(), 1 << 20);
    assert_eq!(meta.mode() & 0o777, 0o600, "a dump may hold secrets");
}

#[test]
fn a_process_without_memory_is_refused() {
    let kernel_thread = std::fs::read_to_string("/proc/2/status").unwrap_or_default();
    if !kernel_thread.contains("kthreadd") {
        assert!(std::env::var("CI").is_err(), "CI is to show kernel threads");
        println!("skipped: needs to see kernel threads");
        return;
    }
    let output = lab().args(["corpus", "--pid", "2", "--out", "/dev/null"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("kthreadd has no memory of its own"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_dump_is_a_corpus() {
    let holder = Holder::start();
    let out = Scratch::new("as-corpus");
    let path = out.0.to_str().unwrap();
    succeed(&["corpus", "--pid", &holder.0.id().to_string(), "--out", path]);
    let output = succeed(&["chain", "--quick", "--corpus", path, "--chain-order", "3"]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("store"));
}
