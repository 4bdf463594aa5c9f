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
//! Lock: one mutex around the claim, held for one request at a time, so that a signal can take
//! the claim away between two requests; later ones fail. A lock file keeps two labs apart and
//! goes with the process, however that ends.

use crate::cleanup::{Cleanup, Deferred};
use crate::corpus::PAGE_SIZE;
use crate::error::LabError;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

mod swap;
mod text;
pub(crate) use swap::SPARE_BYTES;
pub(crate) use text::MmStat;
use text::{Facts, selected, slab_objects_bytes, swapped_on};

/// The name rows and messages use.
pub(crate) const NAME: &str = "kernel-zram";
const LOCK_FILE: &str = "/run/lock/ramfold-lab-zram.lock";
const HOT_ADD: &str = "/sys/class/zram-control/hot_add";
const HOT_REMOVE: &str = "/sys/class/zram-control/hot_remove";
const SWAPS: &str = "/proc/swaps";
/// System-wide settings a study of swapping may change.
const SETTINGS: [&str; 8] = [
    "/proc/sys/vm/page-cluster",
    "/sys/module/zswap/parameters/enabled",
    "/sys/module/zswap/parameters/compressor",
    "/sys/module/zswap/parameters/max_pool_percent",
    "/sys/module/zswap/parameters/accept_threshold_percent",
    "/sys/module/zswap/parameters/shrinker_enabled",
    "/sys/module/zswap/parameters/non_same_filled_pages_enabled",
    "/sys/module/zswap/parameters/same_filled_pages_enabled",
];

/// A claimed zram device; dropping it gives it back.
pub(crate) struct KernelZram {
    name: String,
    claim: Arc<Mutex<Option<Claim>>>,
    _deferred: Deferred,
}

struct Claim {
    sys: PathBuf,
    device: PathBuf,
    /// Open while the device holds data; exclusive, so nobody mounts it meanwhile.
    file: Option<File>,
    added: Option<String>,
    slab_bytes_empty: Option<u64>,
    found: Vec<(PathBuf, String)>,
    _lock: File,
}

impl KernelZram {
    /// Claims zram0, or a device added for this when there is none.
    pub(crate) fn claim(cleanup: &Cleanup) -> Result<KernelZram, LabError> {
        let claim = Claim::new().map_err(|why| LabError::missing(NAME, why))?;
        let name = claim.name();
        let claim = Arc::new(Mutex::new(Some(claim)));
        let doomed = Arc::clone(&claim);
        let deferred = cleanup.defer(move || {
            let claim = doomed.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(why) = claim.and_then(|claim| claim.give_back().err()) {
                eprintln!("lab: {NAME} is not as it was found: {why}");
            }
        });
        Ok(KernelZram { name, claim, _deferred: deferred })
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
            what: format!("{}: mm_stat", self.name),
            why: format!("not understood: {line}"),
        })
    }

    /// What the kernel spends besides the zspages: 16 bytes a slot of its table, and what the
    /// slabs of handles and zspage descriptors hold more than when the device was set up. Nothing
    /// where this kernel does not show its slabs.
    pub(crate) fn metadata_bytes(&self, slots: usize) -> Option<u64> {
        const SLOT_BYTES: u64 = 16;
        let claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        let empty = claim.as_ref()?.slab_bytes_empty?;
        let slabs = slab_bytes(&self.name)?.saturating_sub(empty);
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
        Path::new("/dev").join(&self.name)
    }

    fn with<R>(
        &self,
        what: &str,
        work: impl FnOnce(&mut Claim) -> io::Result<R>,
    ) -> Result<R, LabError> {
        let mut claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        let given_back = || io::Error::other("already given back");
        let result = claim.as_mut().ok_or_else(given_back).and_then(work);
        result.map_err(LabError::io(format!("{}: {what}", self.name)))
    }
}

impl Claim {
    fn new() -> Result<Claim, String> {
        if fs::metadata("/proc/self").map(|meta| meta.uid()).unwrap_or(1) != 0 {
            return Err("needs root".into());
        }
        let lock = lock_file()?;
        let added = add_if_none()?;
        let name = added.as_ref().map_or("zram0".to_owned(), |id| format!("zram{id}"));
        let sys = Path::new("/sys/block").join(&name);
        let mut claim = Claim {
            device: Path::new("/dev").join(&name),
            file: None,
            added,
            slab_bytes_empty: None,
            found: Vec::new(),
            _lock: lock,
            sys,
        };
        if let Some(why) = claim.in_use() {
            claim.remove_if_added();
            return Err(why);
        }
        claim.remember();
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
            swaps: &read(Path::new(SWAPS)),
            mounts: &read(Path::new("/proc/self/mountinfo")),
            device: &self.device.display().to_string(),
        };
        facts.in_use().or_else(|| opener(&self.device))
    }

    /// Reads every setting that is given back (K2).
    fn remember(&mut self) {
        let algorithm = self.sys.join("comp_algorithm");
        if let Some(name) = fs::read_to_string(&algorithm).ok().as_deref().and_then(selected) {
            self.found.push((algorithm, name.to_owned()));
        }
        for path in SETTINGS.map(PathBuf::from) {
            if let Ok(value) = fs::read_to_string(&path) {
                self.found.push((path, value.trim().to_owned()));
            }
        }
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

    fn give_back(mut self) -> Result<(), String> {
        let device = self.device.display().to_string();
        let swaps = fs::read_to_string(SWAPS).unwrap_or_default();
        if swapped_on(&swaps, &device)
            && !Command::new("swapoff").arg(&device).status().is_ok_and(|s| s.success())
        {
            return Err(format!("swapoff {device} failed"));
        }
        self.empty().map_err(|error| format!("reset of {device}: {error}"))?;
        for (path, value) in &self.found {
            put_back(path, value).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        self.remove_if_added();
        Ok(())
    }

    fn remove_if_added(&self) {
        if let Some(id) = &self.added
            && let Err(error) = fs::write(HOT_REMOVE, id)
        {
            eprintln!("lab: cannot remove zram{id} again: {error}");
        }
    }
}

/// Held as long as the file is open.
fn lock_file() -> Result<File, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("{LOCK_FILE}: {error}");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = options.open(LOCK_FILE).map_err(|error| cannot(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err("another lab is measuring it".into()),
        Err(error) => Err(cannot(&error)),
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

fn put_back(path: &Path, value: &str) -> io::Result<()> {
    let now = fs::read_to_string(path)?;
    let now = selected(&now).unwrap_or(now.trim());
    if now == value { Ok(()) } else { fs::write(path, value) }
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
        let peer = match KernelZram::claim(&cleanup) {
            Ok(peer) => peer,
            Err(error) => {
                let absent = !Path::new("/sys/class/zram-control").exists();
                assert!(absent || std::env::var("CI").is_err(), "zram is to be free: {error}");
                println!("skipped: needs {error}");
                return;
            }
        };
        let cluster = fs::read_to_string(SETTINGS[0]).unwrap();
        let algorithm = fs::read_to_string("/sys/block/zram0/comp_algorithm").unwrap();
        peer.set_up("lz4", 16 << 20).unwrap();
        let mut page = Aligned::new(PAGE_SIZE);
        page.bytes().fill(b'x');
        peer.write(7, &mut page).unwrap();
        assert_eq!(peer.mm_stat().unwrap().same_pages, 1);
        peer.swap_on().unwrap();
        assert!(swapped_on(&fs::read_to_string(SWAPS).unwrap(), "/dev/zram0"));
        drop(peer);
        let swaps = fs::read_to_string(SWAPS).unwrap();
        assert!(!swapped_on(&swaps, "/dev/zram0"), "still swapped on: {swaps}");
        assert_eq!(fs::read_to_string("/sys/block/zram0/disksize").unwrap(), "0\n");
        assert_eq!(fs::read_to_string("/sys/block/zram0/comp_algorithm").unwrap(), algorithm);
        assert_eq!(fs::read_to_string(SETTINGS[0]).unwrap(), cluster);
        KernelZram::claim(&cleanup).expect("free again");
    }

    #[test]
    fn aligned_memory_is_aligned() {
        let mut aligned = Aligned::new(3 * PAGE_SIZE);
        assert_eq!(aligned.bytes().len(), 3 * PAGE_SIZE);
        assert_eq!(aligned.bytes().as_ptr().align_offset(PAGE_SIZE), 0);
    }
}
