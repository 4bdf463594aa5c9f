//! The kernel's zswap, borrowed for a measurement: a swap file that it stands before.
//!
//! ```text
//!   free --claim--> claimed --set_up--> a file, swapped on; zswap before it
//!     |                                   |  looked at: nothing went to the file
//!     +-- swap is in use: refused         +-- drop, signal, panic, or set_up again:
//!                                             swap off, file removed, settings as found
//! ```
//!
//! Invariants
//! - K1. Nothing is touched while anything is swapped on, or in the kernel's zswap.
//! - K2. Giving back means: swap off, the file removed, every setting read at the claim written
//!   back where it differs. What a lab that was killed outright left, the next lab gives back.
//! - K3. The file takes at most a quarter of what its file system has free.
//!
//! Lock: that of `Claimed`, and the lock file.

use super::claimed::{Claimed, GiveBack};
use super::lock::Lock;
use super::settings::{CLUSTER, Settings, ZSWAP};
use super::swap::{self, SWAPS};
use super::text::{field_of, kib_of};
use crate::ground::{Cleanup, LabError};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name rows and messages use.
pub(crate) const NAME: &str = "kernel-zswap";
/// Where the swap file is: a directory whose files are on a disk.
const DIRECTORY: &str = "/var/tmp";
/// Of the file system's free bytes, the part the file may take: 1/this.
const FREE_DIVISOR: u64 = 4;
/// So that no page is refused because there is no room.
const POOL_PERCENT: &str = "50";
/// Names in the lock file's note.
const FILE: &str = "swap_file";
const SETTINGS: &str = "settings";

/// The kernel's zswap, claimed; dropping it gives it back.
pub(crate) struct KernelZswap(Claimed<Claim>);

pub(super) struct Claim {
    file: PathBuf,
    found: Settings,
    lock: Lock,
}

/// What the kernel has counted since it started, and holds now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Bytes of the pages in it, uncompressed.
    pub(crate) stored_bytes: u64,
    /// Bytes of its pool.
    pub(crate) used_bytes: u64,
    /// Pages written to the swap file: refused by zswap, or written back by it.
    pub(crate) pages_to_file: u64,
}

impl KernelZswap {
    /// Claims it; nothing is changed yet.
    pub(super) fn claim(cleanup: &Cleanup, lock: Lock) -> Result<KernelZswap, String> {
        Ok(KernelZswap(Claimed::new(cleanup, NAME.to_owned(), Claim::new(lock)?)))
    }

    /// Swaps on a file of `bytes` bytes with zswap before it; the algorithm it has: `algorithm`
    /// where this kernel's zswap knows it, or else what it was found with.
    pub(crate) fn set_up(&self, algorithm: &str, bytes: u64) -> Result<String, LabError> {
        self.0.with("set up", |claim| claim.set_up(algorithm, bytes))
    }

    /// Ends that; whatever is still swapped out comes back into memory.
    pub(crate) fn swap_off(&self) -> Result<(), LabError> {
        self.0.with("swap off", |claim| claim.swap_off())
    }

    pub(crate) fn counts(&self) -> Result<Counts, LabError> {
        self.0.with("counts", |_| Counts::read())
    }
}

impl Counts {
    fn read() -> io::Result<Counts> {
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let vmstat = fs::read_to_string("/proc/vmstat")?;
        let missing = || io::Error::other("this kernel does not count its zswap");
        Ok(Counts {
            stored_bytes: kib_of(&meminfo, "Zswapped").ok_or_else(missing)? << 10,
            used_bytes: kib_of(&meminfo, "Zswap").ok_or_else(missing)? << 10,
            pages_to_file: field_of(&vmstat, "pswpout").ok_or_else(missing)?,
        })
    }
}

impl Claim {
    fn new(lock: Lock) -> Result<Claim, String> {
        if !Path::new(ZSWAP).exists() {
            return Err("this kernel has no zswap".into());
        }
        if let Some(why) = swap::in_the_way() {
            return Err(why);
        }
        let counts = Counts::read().map_err(|error| error.to_string())?;
        if counts.used_bytes > 0 {
            return Err(format!("it holds {} bytes", counts.used_bytes));
        }
        let file = format!("{DIRECTORY}/ramfold-lab-{}.swap", std::process::id());
        let claim = Claim { file: file.into(), found: Settings::of_system(), lock };
        let note = json!({ FILE: claim.file.to_string_lossy(), SETTINGS: claim.found.note() });
        claim.lock.note(&note).map_err(|error| error.to_string())?;
        Ok(claim)
    }

    /// The claim of a lab that was killed.
    pub(super) fn left(note: &Value, lock: &Lock) -> Option<Claim> {
        let file = PathBuf::from(note[FILE].as_str()?);
        Some(Claim { file, found: Settings::of_note(&note[SETTINGS])?, lock: lock.clone() })
    }

    fn set_up(&mut self, algorithm: &str, bytes: u64) -> io::Result<String> {
        self.swap_off()?;
        let parameter = |name: &str| Path::new(ZSWAP).join(name);
        let algorithm = choose(&parameter("compressor"), algorithm)?;
        fs::write(parameter("max_pool_percent"), POOL_PERCENT)?;
        // Nothing is to leave memory but by the study.
        fs::write(parameter("shrinker_enabled"), "N")?;
        fs::write(parameter("enabled"), "Y")?;
        fs::write(CLUSTER, "0")?;
        self.make_file(bytes)?;
        swap::tool("mkswap", &self.file)?;
        swap::tool("swapon", &self.file)?;
        Ok(algorithm)
    }

    /// The file, with all its blocks: swap takes none with holes.
    fn make_file(&self, bytes: u64) -> io::Result<()> {
        let there = statvfs(DIRECTORY)?;
        let most = there.f_bavail * there.f_frsize / FREE_DIVISOR;
        if bytes > most {
            let why = format!("a swap file of {bytes} bytes in {DIRECTORY}, at most {most}");
            return Err(io::Error::other(why));
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&self.file)?;
        Ok(fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
    }

    fn swap_off(&mut self) -> io::Result<()> {
        let swaps = fs::read_to_string(SWAPS)?;
        if swap::is_on(&swaps, &self.file.display().to_string()) {
            swap::tool("swapoff", &self.file)?;
        }
        if self.file.exists() { fs::remove_file(&self.file) } else { Ok(()) }
    }
}

impl GiveBack for Claim {
    fn give_back(mut self) -> Result<(), String> {
        let off = self.swap_off().map_err(|error| error.to_string());
        off.and(self.found.put_back())?;
        self.lock.clear()
    }
}

/// Selects an algorithm, or keeps the one there is where this kernel has not built it for zswap.
fn choose(parameter: &Path, wanted: &str) -> io::Result<String> {
    match fs::write(parameter, wanted) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(fs::read_to_string(parameter)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::claimed::patiently;
    use super::*;
    use crate::kernel::claim_zswap;

    /// Needs root, zswap and no swap. CI insists where the kernel has zswap.
    #[test]
    fn everything_is_given_back_as_found() {
        let cleanup = Cleanup::default();
        let peer = match patiently(|| claim_zswap(&cleanup)) {
            Ok(peer) => peer,
            Err(error) => {
                let absent = !Path::new(ZSWAP).exists();
                assert!(absent || std::env::var("CI").is_err(), "zswap is to be free: {error}");
                println!("skipped: needs {error}");
                return;
            }
        };
        let settings = ["enabled", "compressor", "max_pool_percent"];
        let read = || settings.map(|name| fs::read_to_string(Path::new(ZSWAP).join(name)).unwrap());
        let found = read();
        peer.set_up("lzo-rle", 64 << 20).unwrap();
        let file = format!("{DIRECTORY}/ramfold-lab-{}.swap", std::process::id());
        assert!(swap::is_on(&fs::read_to_string(SWAPS).unwrap(), &file));
        assert!(claim_zswap(&cleanup).is_err(), "it is in use");
        drop(peer);
        assert!(!swap::is_on(&fs::read_to_string(SWAPS).unwrap(), &file));
        assert!(!Path::new(&file).exists());
        assert_eq!(read(), found);
        patiently(|| claim_zswap(&cleanup)).expect("free again");
    }
}
