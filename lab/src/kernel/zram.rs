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
//! - K3. The next lab gives back what a lab that was killed outright has left. It leaves alone a
//!   device that has another size meanwhile, because another program uses it.
//!
//! Lock: that of `Claimed`, and the lock file.

use super::aligned::Aligned;
use super::claimed::{Claimed, GiveBack};
use super::lock::Lock;
use super::settings::{CLUSTER, Settings, ZSWAP};
use super::swap::{self, tool};
use super::text::{Facts, MmStat, slab_objects_bytes};
use crate::ground::{Cleanup, LabError};
use crate::pages::PAGE_SIZE;
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name rows and messages use.
pub(crate) const NAME: &str = "kernel-zram";
const HOT_ADD: &str = "/sys/class/zram-control/hot_add";
const HOT_REMOVE: &str = "/sys/class/zram-control/hot_remove";
/// Names in the lock file's note.
const NOTE: [&str; 4] = ["zram", "disksize", "added", "settings"];

/// A claimed zram device; dropping it gives it back.
pub(crate) struct KernelZram(Claimed<Claim>);

pub(super) struct Claim {
    sys: PathBuf,
    device: PathBuf,
    /// Open while the device holds data; exclusive, so nobody mounts it meanwhile.
    file: Option<File>,
    added: Option<String>,
    slab_bytes_empty: Option<u64>,
    found: Settings,
    lock: Lock,
}

impl KernelZram {
    /// Claims zram0, or a device added for this where there is none or it is in use.
    pub(super) fn claim(cleanup: &Cleanup, lock: Lock) -> Result<KernelZram, String> {
        let claim = Claim::new(lock)?;
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

    /// Makes the device, set up before, the swap of this machine: each page for itself, straight
    /// to the device.
    pub(crate) fn swap_on(&self) -> Result<(), LabError> {
        self.with("swap on", |claim| {
            // The tools open the device themselves.
            claim.file = None;
            fs::write(CLUSTER, "0")?;
            // A kernel without zswap has nothing to switch off.
            let _ = fs::write(Path::new(ZSWAP).join("enabled"), "N");
            tool("mkswap", &claim.device)?;
            tool("swapon", &claim.device)
        })
    }

    /// Ends that; whatever is still swapped out comes back into memory.
    pub(crate) fn swap_off(&self) -> Result<(), LabError> {
        self.with("swap off", |claim| tool("swapoff", &claim.device))
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
    fn new(lock: Lock) -> Result<Claim, String> {
        if let Some(why) = swap::in_the_way() {
            return Err(why);
        }
        let mut claim = Claim::of("zram0", None, Settings::of_system(), lock);
        if let Some(why) = claim.in_use() {
            let id = add().map_err(|cannot| format!("{why}; {cannot}"))?;
            claim = Claim::of(&format!("zram{id}"), Some(id), claim.found, claim.lock);
        }
        claim.found.remember(&claim.sys.join("comp_algorithm"));
        claim.note(0).map_err(|error| error.to_string())?;
        Ok(claim)
    }

    fn of(name: &str, added: Option<String>, found: Settings, lock: Lock) -> Claim {
        let device = Path::new("/dev").join(name);
        let sys = Path::new("/sys/block").join(name);
        Claim { sys, device, file: None, added, slab_bytes_empty: None, found, lock }
    }

    /// The claim of a lab that was killed, and the size that it gave the device.
    pub(super) fn left(note: &Value, lock: &Lock) -> Option<(Claim, String)> {
        let [name, bytes, added, settings] = NOTE.map(|name| &note[name]);
        let added = added.as_str().map(str::to_owned);
        let found = Settings::of_note(settings)?;
        let claim = Claim::of(name.as_str()?, added, found, lock.clone());
        Some((claim, bytes.as_u64()?.to_string()))
    }

    pub(super) fn give_back_for_another(mut self, bytes: &str) -> Result<(), String> {
        if ["0", bytes].contains(&self.disksize().as_str()) {
            return self.give_back();
        }
        eprintln!("lab: {} is not as it was left, and stays so", self.device.display());
        self.found.leave_alone(&self.sys);
        self.found.put_back()?;
        self.lock.clear()
    }

    /// Says in the lock file what is to be given back, the device `bytes` bytes large.
    fn note(&self, bytes: u64) -> io::Result<()> {
        let values = [json!(self.name()), json!(bytes), json!(self.added), self.found.note()];
        self.lock.note(&NOTE.iter().copied().zip(values).collect())
    }

    fn name(&self) -> String {
        self.device.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
    }

    fn disksize(&self) -> String {
        let read = fs::read_to_string(self.sys.join("disksize")).unwrap_or_default();
        read.trim().to_owned()
    }

    /// Why the device must not be touched (K1), if so.
    fn in_use(&self) -> Option<String> {
        if !self.sys.exists() {
            return Some("no zram0".into());
        }
        let facts = Facts {
            disksize: &self.disksize(),
            mounts: &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
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
        self.note(bytes)?;
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

    /// Closes and resets.
    fn empty(&mut self) -> io::Result<()> {
        self.file = None;
        write_when_closed(&self.sys.join("reset"), "1")
    }

    fn remove_if_added(&self) -> Result<(), String> {
        let Some(id) = &self.added else { return Ok(()) };
        write_when_closed(Path::new(HOT_REMOVE), id)
            .map_err(|error| format!("{HOT_REMOVE}: {error}"))
    }
}

impl GiveBack for Claim {
    fn give_back(mut self) -> Result<(), String> {
        let device = self.device.display().to_string();
        let swaps = fs::read_to_string(swap::SWAPS).unwrap_or_default();
        if swap::is_on(&swaps, &device) {
            tool("swapoff", &self.device).map_err(|error| error.to_string())?;
        }
        self.empty().map_err(|error| format!("reset of {device}: {error}"))?;
        self.found.put_back()?;
        self.remove_if_added()?;
        self.lock.clear()
    }
}

/// Writes to a file of a device that others (udev) may have open for a moment: that passes.
fn write_when_closed(path: &Path, value: &str) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let start = Instant::now();
    loop {
        match fs::write(path, value) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

/// Adds a device; its number.
fn add() -> Result<String, String> {
    // Reading is what creates the device.
    let id = fs::read_to_string(HOT_ADD).map_err(|error| format!("{HOT_ADD}: {error}"))?;
    Ok(id.trim().to_owned())
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

#[cfg(test)]
mod tests {
    use super::super::claimed::patiently;
    use super::*;
    use crate::kernel::claim_zram;

    /// Needs root, and no swap. CI insists where the kernel has zram.
    #[test]
    fn everything_is_given_back_as_found() {
        let cleanup = Cleanup::default();
        let peer = match patiently(|| claim_zram(&cleanup)) {
            Ok(peer) => peer,
            Err(error) => {
                let absent = !Path::new("/sys/class/zram-control").exists();
                assert!(absent || std::env::var("CI").is_err(), "zram is to be free: {error}");
                println!("skipped: needs {error}");
                return;
            }
        };
        let device = peer.device().display().to_string();
        let sys = Path::new("/sys/block").join(peer.0.name());
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let (cluster, algorithm) = (Path::new(CLUSTER), sys.join("comp_algorithm"));
        let found = (read(cluster), read(&algorithm));
        peer.set_up("lz4", 16 << 20).unwrap();
        let mut page = Aligned::new(PAGE_SIZE);
        page.bytes().fill(b'x');
        peer.write(7, &mut page).unwrap();
        assert_eq!(peer.mm_stat().unwrap().same_pages, 1);
        peer.swap_on().unwrap();
        assert!(swap::is_on(&read(Path::new(swap::SWAPS)), &device));
        drop(peer);
        let swaps = read(Path::new(swap::SWAPS));
        assert!(!swap::is_on(&swaps, &device), "still swapped on: {swaps}");
        assert_eq!(read(cluster), found.0);
        if device == "/dev/zram0" {
            assert_eq!(read(&sys.join("disksize")), "0\n");
            assert_eq!(read(&algorithm), found.1);
        } else {
            assert!(!sys.exists(), "{device} was added, and is there still");
        }
        patiently(|| claim_zram(&cleanup)).expect("free again");
    }
}
