//! The content of a core file of a program with a region.
//!
//! The program is this test in a child, which ends by abort in a directory of its own.

use host::PAGE_SIZE;
use ramfold_region::{FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CHILD: &str = "RAMFOLD_CORE_CHILD";
const TEST: &str = "a_core_file_holds_what_is_the_programs";
const BYTES: usize = 64 << 20;
/// Of the first half of the region, which is paged out, and of the rest.
const MARKS: [[u8; 16]; 2] = [*b"paged out, left ", *b"resident, stays "];
const CORE_MAX: u64 = 200 << 20;

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The beginning of each page of a half. It is computed, so that the program's own constants do not
/// contain it.
fn mark(half: usize) -> [u8; 16] {
    MARKS[half].map(|byte| byte.rotate_left(3))
}

/// Maps a region, pages half of it out, says how large a core file would be, and aborts.
fn child() {
    let memory = Memory::new(MemoryConfig::for_disk(BYTES as u64)).expect("a memory");
    let pager = match Pager::new(memory, &PagerConfig::default()) {
        Ok(pager) => pager,
        Err(error) => return eprintln!("skipped: needs {error}"),
    };
    let mut region = Region::map(&pager, BYTES, &RegionConfig::default()).expect("a region");
    let pages = region.as_mut_slice().chunks_mut(PAGE_SIZE).enumerate();
    pages.for_each(|(page, bytes)| {
        bytes[..16].copy_from_slice(&mark(2 * page * PAGE_SIZE / BYTES));
    });
    let out = region.control().page_out(0..BYTES / 2).expect("registered");
    assert_eq!(out.stored as usize, BYTES / 2 / PAGE_SIZE, "all of the half leaves");
    // Closed pages have no permission. The others of the region are counted.
    let closed = if pager.fault_mode() == FaultMode::Protection { BYTES / 2 } else { 0 };
    eprintln!("dumped {}", dumped() + closed as u64);
    std::process::abort();
}

/// Bytes of the mappings that the system is not told to leave out. Mappings without any permission
/// are not counted: nothing was written there, and the system leaves them out anyway.
fn dumped() -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("smaps");
    let (mut sum, mut size) = (0, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("VmFlags:"), first) => {
                sum += if first == Some("dd") || words.any(|flag| flag == "dd") { 0 } else { size };
            }
            (Some(range), Some(rights)) if range.contains('-') => {
                let mut ends = range.split('-').filter_map(|end| u64::from_str_radix(end, 16).ok());
                let (start, end) = (ends.next().unwrap_or(0), ends.next().unwrap_or(0));
                size = if rights.starts_with("---") { 0 } else { end - start };
            }
            _ => {}
        }
    }
    sum
}

fn run(directory: &Path) -> Output {
    let this = std::env::current_exe().expect("this test's path");
    let script = "ulimit -c unlimited || exit 3; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(this).args([TEST, "--exact", "--nocapture"]);
    command.env(CHILD, "1").current_dir(directory).output().expect("a child")
}

/// The arena is reserved for more than the machine has. The core file of a program with a region of
/// 64 MiB was once 31 GiB long.
#[test]
fn a_core_file_holds_what_is_the_programs() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let name = format!("ramfold-core-{}", std::process::id());
    let scratch = Scratch(std::env::temp_dir().join(name));
    fs::create_dir(&scratch.0).expect("a directory");
    let output = run(&scratch.0);
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("skipped: ") {
        return eprintln!("{words}");
    }
    let told = words.lines().find_map(|line| line.strip_prefix("dumped ")?.parse::<u64>().ok());
    let told = told.unwrap_or_else(|| panic!("no word of its mappings: {words}"));
    assert!(told < CORE_MAX, "{told} bytes of mappings are to be dumped");
    assert!(told > BYTES as u64, "the region is one of them");
    assert_eq!(output.status.signal(), Some(6), "{words}");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with("core") || !output.status.core_dumped() {
        return println!("no file to look at: core_pattern is {}", pattern.trim());
    }
    let core = fs::read_dir(&scratch.0).expect("ours").filter_map(Result::ok).next();
    let core = core.expect("a file was written").path();
    let len = fs::metadata(&core).expect("its length").len();
    assert!(len < CORE_MAX, "{len} bytes");
    let content = fs::read(&core).expect("not too long");
    let pages =
        |half| content.chunks(PAGE_SIZE).filter(|page| page.starts_with(&mark(half))).count();
    let half = BYTES / 2 / PAGE_SIZE;
    assert_eq!([pages(0), pages(1)], [0, half], "what is resident of the region, and no more");
}
