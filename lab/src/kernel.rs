//! The kernel's zram, borrowed for a measurement and given back as it was.
//!
//! ```text
//!   free --claim--> claimed --set_up--> holding data --drop, signal or panic--> free
//!     |                                      |
//!     +-- in use: refused, with the reason   +-- set_up again: reset first
//! ```
//!
//! Invariants
//! - K1. A device that holds anything, is mounted, swapped on or open is never touched.
//! - K2. Giving back means: swap off, our file closed, reset, and every setting read at the
//!   claim written back where it differs; a device added here is removed again.
//!
//! Lock: that of `Claimed`. A lock file keeps two labs apart and goes with the process, however
//! that ends.

use crate::cleanup::Cleanup;
use crate::corpus::PAGE_SIZE;
use crate::error::LabError;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod claimed;
mod settings;
mod swap;
mod text;
pub(crate) mod zswap;
#[cfg(test)]
pub(crate) use claimed::patiently;
use claimed::{Claimed, GiveBack};
pub(crate) use settings::page_cluster;
use settings::{Settings, lock_file, needs_root};
pub(crate) use swap::{SPARE_BYTES, pages_swapped_out};
pub(crate) use text::MmStat;
use text::{Facts, slab_objects_bytes};

/// The name rows and messages use.
pub(crate) const NAME: &str = "kernel-zram";
const HOT_ADD: &str = "/sys/class/zram-control/hot_add";
const HOT_REMOVE: &str = "/sys/class/zram-control/hot_remove";

/// A claimed zram device; dropping it gives it back.
pub(crate) struct KernelZram(Claimed<Claim>);

struct Claim {
    sys: PathBuf,
    device: PathBuf,
    /// Open while the device holds data; exclusive, so nobody mounts it meanwhile.
    file: Option<File>,
    added: Option<String>,
    slab_bytes_empty: Option<u64>,
    found: Settings,
    _lock: File,
}

impl KernelZram {
    /// Claims zram0, or a device added for this when there is none.
    pub(crate) fn claim(cleanup: &Cleanup) -> Result<KernelZram, LabError> {
        let claim = Claim::new().map_err(|why| LabError::missing(NAME, why))?;
        let name = claim.name();
        Ok(KernelZram(Claimed::new(cleanup, name, claim)))
    }

    /// Empties the device and makes it `bytes` large with `algorithm`.
    pub(crate) fn set_up(&self, algorithm: &str, bytes: u64) -> Result<(), LabError> {
        self.with("set up", |claim| claim.set_up(algorithm, bytes))
    }

    /// Writes pages from page `slot` on.
    pub(crate) fn write(&self, slot: usize, aligned: &mut Aligned) -> Result<(), LabError> {
        self.with("write", |claim| claim.open()?.write_all_at(aligned.bytes(), offset(slot)))
    }

    /// Reads pages from page `slot` on into `aligned`.
    pub(crate) fn read(&self, slot: usize, aligned: &mut Aligned) -> Result<(), LabError> {
        self.with("read", |claim| claim.open()?.read_exact_at(aligned.bytes(), offset(slot)))
    }

    /// Discards `pages` pages from page `first` on.
    pub(crate) fn discard(&self, first: usize, pages: usize) -> Result<(), LabError> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let length = offset(pages);
        self.with("discard", |claim| Ok(fallocate(claim.open()?, how, offset(first), length)?))
    }

    pub(crate) fn compact(&self) -> Result<(), LabError> {
        self.with("compact", |claim| fs::write(claim.sys.join("compact"), "1"))
    }

    pub(crate) fn mm_stat(&self) -> Result<MmStat, LabError> {
        let line = self.with("mm_stat", |claim| fs::read_to_string(claim.sys.join("mm_stat")))?;
        MmStat::parse(&line).ok_or_else(|| LabError::Store {
            what: format!("{}: mm_stat", self.0.name()),
            why: format!("not understood: {line}"),
        })
    }

    /// What the kernel spends besides the zspages: 16 bytes a slot of its table, and what the
    /// slabs of handles and zspage descriptors hold more than when the device was set up. Nothing
    /// where this kernel does not show its slabs.
    pub(crate) fn metadata_bytes(&self, slots: usize) -> Option<u64> {
        const SLOT_BYTES: u64 = 16;
        let empty = self.with("slabs", |claim| Ok(claim.slab_bytes_empty)).ok()??;
        let slabs = slab_bytes(self.0.name())?.saturating_sub(empty);
        Some(SLOT_BYTES * slots as u64 + slabs)
    }

    /// Closes our file, so that another client may have the device to itself.
    pub(crate) fn close(&self) -> Result<(), LabError> {
        self.with("close", |claim| {
            claim.file = None;
            Ok(())
        })
    }

    /// The block device, for a client that opens it itself.
    pub(crate) fn device(&self) -> PathBuf {
        Path::new("/dev").join(self.0.name())
    }

    fn with<R>(
        &self,
        what: &str,
        work: impl FnOnce(&mut Claim) -> io::Result<R>,
    ) -> Result<R, LabError> {
        self.0.with(what, work)
    }
}

impl Claim {
    fn new() -> Result<Claim, String> {
        needs_root()?;
        let lock = lock_file()?;
        let added = add_if_none()?;
        let name = added.as_ref().map_or("zram0".to_owned(), |id| format!("zram{id}"));
        let sys = Path::new("/sys/block").join(&name);
        let mut claim = Claim {
            device: Path::new("/dev").join(&name),
            file: None,
            added,
            slab_bytes_empty: None,
            found: Settings::of_system(),
            _lock: lock,
            sys,
        };
        if let Some(why) = claim.in_use() {
            claim.remove_if_added();
            return Err(why);
        }
        claim.found.remember(&claim.sys.join("comp_algorithm"));
        Ok(claim)
    }

    fn name(&self) -> String {
        self.device.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }

    /// Why the device must not be touched (K1), if so.
    fn in_use(&self) -> Option<String> {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let disksize = read(&self.sys.join("disksize"));
        let facts = Facts {
            disksize: disksize.trim(),
            swaps: &read(Path::new(swap::SWAPS)),
            mounts: &read(Path::new("/proc/self/mountinfo")),
            device: &self.device.display().to_string(),
        };
        facts.in_use().or_else(|| opener(&self.device))
    }

    fn set_up(&mut self, algorithm: &str, bytes: u64) -> io::Result<()> {
        self.empty()?;
        let offered = fs::read_to_string(self.sys.join("comp_algorithm"))?;
        if !offered.split_ascii_whitespace().any(|name| name.trim_matches(['[', ']']) == algorithm)
        {
            let why = format!("no algorithm {algorithm}; this kernel has {}", offered.trim());
            return Err(io::Error::other(why));
        }
        fs::write(self.sys.join("comp_algorithm"), algorithm)?;
        fs::write(self.sys.join("disksize"), bytes.to_string())?;
        self.slab_bytes_empty = slab_bytes(&self.name());
        Ok(())
    }

    /// The device opened past the page cache, so that what is read back was really stored.
    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_DIRECT | libc::O_EXCL);
            self.file = Some(options.open(&self.device)?);
        }
        self.file.as_ref().ok_or_else(|| io::Error::other("the device is closed"))
    }

    /// Closes and resets. Others (udev) may have the device open for a moment: that passes.
    fn empty(&mut self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(5);
        self.file = None;
        let start = Instant::now();
        loop {
            match fs::write(self.sys.join("reset"), "1") {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                result => return result,
            }
        }
    }

    fn remove_if_added(&self) {
        if let Some(id) = &self.added
            && let Err(error) = fs::write(HOT_REMOVE, id)
        {
            eprintln!("lab: cannot remove zram{id} again: {error}");
        }
    }
}

impl GiveBack for Claim {
    fn give_back(mut self) -> Result<(), String> {
        let device = self.device.display().to_string();
        let swaps = fs::read_to_string(swap::SWAPS).unwrap_or_default();
        if swap::is_on(&swaps, &device) {
            swap::tool("swapoff", &self.device).map_err(|error| error.to_string())?;
        }
        self.empty().map_err(|error| format!("reset of {device}: {error}"))?;
        self.found.put_back()?;
        self.remove_if_added();
        Ok(())
    }
}

/// Adds a device when there is no zram0; its number.
fn add_if_none() -> Result<Option<String>, String> {
    if Path::new("/sys/block/zram0").exists() {
        return Ok(None);
    }
    // Reading is what creates the device.
    let id = fs::read_to_string(HOT_ADD)
        .map_err(|error| format!("no zram0, and {HOT_ADD}: {error} (modprobe zram?)"))?;
    Ok(Some(id.trim().to_owned()))
}

/// Some process that has the device open.
fn opener(device: &Path) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    for process in processes {
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        if targets.any(|target| target == device) {
            let pid = process.file_name();
            return Some(format!("{} is open in process {}", device.display(), pid.display()));
        }
    }
    None
}

/// Bytes of the handles and zspage descriptors of the pool `pool`; caches of a size are merged,
/// so other users of that size are in it.
fn slab_bytes(pool: &str) -> Option<u64> {
    let one = |cache: &str| {
        // Per pool up to 7.2, one for all pools since.
        let names = [format!("{cache}-{pool}"), cache.to_owned()];
        let directories = names.map(|name| Path::new("/sys/kernel/slab").join(name));
        let directory = directories.into_iter().find(|directory| directory.exists())?;
        let read = |file| fs::read_to_string(directory.join(file)).ok();
        slab_objects_bytes(&read("objects")?, &read("objs_per_slab")?, &read("order")?)
    };
    Some(one("zs_handle")? + one("zspage")?)
}

const fn offset(slot: usize) -> u64 {
    (slot * PAGE_SIZE) as u64
}

/// A buffer that may be read and written past the page cache, which wants aligned memory.
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub(crate) fn new(length: usize) -> Aligned {
        let memory = vec![0; length + PAGE_SIZE];
        let start = memory.as_ptr().align_offset(PAGE_SIZE);
        Aligned { memory, start, length }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs root and a zram nobody uses. CI insists on the second where the kernel has one.
    #[test]
    fn everything_is_given_back_as_found() {
        let cleanup = Cleanup::default();
        let peer = match claimed::patiently(|| KernelZram::claim(&cleanup)) {
            Ok(peer) => peer,
            Err(error) => {
                let absent = !Path::new("/sys/class/zram-control").exists();
                assert!(absent || std::env::var("CI").is_err(), "zram is to be free: {error}");
                println!("skipped: needs {error}");
                return;
            }
        };
        let cluster = fs::read_to_string(settings::CLUSTER).unwrap();
        let algorithm = fs::read_to_string("/sys/block/zram0/comp_algorithm").unwrap();
        peer.set_up("lz4", 16 << 20).unwrap();
        let mut page = Aligned::new(PAGE_SIZE);
        page.bytes().fill(b'x');
        peer.write(7, &mut page).unwrap();
        assert_eq!(peer.mm_stat().unwrap().same_pages, 1);
        peer.swap_on().unwrap();
        assert!(swap::is_on(&fs::read_to_string(swap::SWAPS).unwrap(), "/dev/zram0"));
        drop(peer);
        let swaps = fs::read_to_string(swap::SWAPS).unwrap();
        assert!(!swap::is_on(&swaps, "/dev/zram0"), "still swapped on: {swaps}");
        assert_eq!(fs::read_to_string("/sys/block/zram0/disksize").unwrap(), "0\n");
        assert_eq!(fs::read_to_string("/sys/block/zram0/comp_algorithm").unwrap(), algorithm);
        assert_eq!(fs::read_to_string(settings::CLUSTER).unwrap(), cluster);
        claimed::patiently(|| KernelZram::claim(&cleanup)).expect("free again");
    }

    #[test]
    fn aligned_memory_is_aligned() {
        let mut aligned = Aligned::new(3 * PAGE_SIZE);
        assert_eq!(aligned.bytes().len(), 3 * PAGE_SIZE);
        assert_eq!(aligned.bytes().as_ptr().align_offset(PAGE_SIZE), 0);
    }
}
