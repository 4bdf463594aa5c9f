//! Mounts an empty tree until it is unmounted: `cargo run --example tree DIR`.
#![forbid(unsafe_code)]

use ramfold_serve::fuse::{Fuse, FuseConfig};
use std::error::Error;
use std::sync::Arc;
use zram::{DeviceDefaults, Devices, Memory, MemoryConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).ok_or("give a directory")?;
    let threads = std::env::args().nth(2).map_or(Ok(5), |text| text.parse())?;
    let memory = Memory::new(MemoryConfig::for_disk(1 << 36))?;
    let devices = Arc::new(Devices::new(memory, DeviceDefaults::default()));
    devices.hot_add()?;
    let complain = Arc::new(|line: &str| eprintln!("{line}"));
    let directory = directory.into();
    let config = FuseConfig { directory, threads, io_uring: true, texts: Vec::new(), complain };
    let tree = Fuse::mount(devices, config)?;
    println!("mounted at {}", tree.directory().display());
    tree.wait();
    Ok(())
}
