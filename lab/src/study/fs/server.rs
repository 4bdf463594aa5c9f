//! The serving process: a tree with one disk, until standard input ends.
//!
//! ```text
//!   mounts -> "ready" -> waits -> standard input ends -> unmounts -> ends
//! ```

use crate::frame::Inside;
use crate::ground::LabError;
use crate::kernel::Requests;
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use serve::fuse::{Fuse, FuseConfig, FuseWay};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use zram::{Attribute, DeviceDefaults, Devices};
use zsmalloc::study::LockDesign;
use zsmalloc::{Memory, MemoryConfig, Rule};

/// Said once the tree is mounted; anything else is why it is not.
pub(super) const READY: &str = "ready";
/// What an error is about.
const DISK: &str = "a served disk";
/// As many as `ramfold serve` has.
const THREADS: usize = 4;

/// Options of the server.
#[derive(Args, Debug)]
struct Options {
    /// Where to mount
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of the disk
    #[arg(long)]
    size: u64,
    #[arg(long)]
    algorithm: Codec,
    #[arg(long)]
    chain_order: u32,
    #[arg(long)]
    rule: Rule,
    #[arg(long)]
    design: LockDesign,
    #[arg(long)]
    requests: Requests,
}

/// The server, in a process of its own.
pub(crate) const INSIDE: Inside = Inside { name: "fs-inside", options: Options::augment_args, run };

/// The server's `main`. What goes wrong is said in place of `READY`.
fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    match mount(&options) {
        Ok(fuse) => {
            println!("{READY}");
            // What comes is of no interest; that it ends is.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            drop(fuse);
            Ok(())
        }
        Err(error) => {
            println!("{error}");
            Err(error)
        }
    }
}

fn mount(options: &Options) -> Result<Fuse, LabError> {
    // Room for a disk none of whose pages can be compressed, which is not held before it is used.
    let room =
        MemoryConfig { expected_bytes: options.size, ..MemoryConfig::for_disk(options.size) };
    let memory = Memory::new(room).map_err(LabError::store("memory"))?;
    let defaults = DeviceDefaults {
        algorithm: options.algorithm.clone(),
        chain_order: options.chain_order,
        rule: options.rule,
        study: options.design.into(),
        ..DeviceDefaults::default()
    };
    let devices = Arc::new(Devices::new(memory, defaults));
    let number = devices.hot_add().map_err(LabError::store(DISK))?;
    let device = devices.get(number).ok_or_else(|| LabError::store(DISK)("it is gone"))?;
    let size = options.size.to_string();
    device.store(Attribute::Disksize, size.as_bytes()).map_err(LabError::store(DISK))?;
    let config = FuseConfig {
        directory: options.dir.clone(),
        threads: THREADS,
        io_uring: options.requests == Requests::IoUring,
        texts: Vec::new(),
        complain: Arc::new(|line| eprintln!("lab: {line}")),
    };
    let fuse = Fuse::mount(devices, config).map_err(LabError::store("a FUSE mount"))?;
    match (options.requests, fuse.way()) {
        (Requests::IoUring, FuseWay::Device(why)) => Err(LabError::missing("io_uring", why)),
        _ => Ok(fuse),
    }
}
