//! The block devices of `serve --ublk`, each with one device of ours.
//!
//! ```text
//!   signal --> open: refused, users are named --> another signal --> stopped, users get errors
//!       '----> not open: stopped
//! ```
//!
//! Invariant: a device has at most one block device, because a file system is mounted once. Either
//! all block devices are stopped by a signal or none, as far as can be seen before. Locks: none.

use std::sync::Arc;

use serde_json::{Value, json};
use serve::{Observer, Ublk, UblkConfig};
use zram::Devices;

use super::watch::Log;
use crate::line::Failure;
use crate::line::args;

const OPTION: &str = "--ublk";
/// Instead of a number: any that is free.
const ANY: &str = "auto";

/// The block devices.
#[derive(Clone, Default)]
pub(super) struct Blocks(Vec<Arc<Ublk>>);

impl Blocks {
    /// Starts all that were asked for.
    pub(super) fn start(
        args: &args::Serve,
        devices: &Devices,
        observer: &Observer,
    ) -> Result<Blocks, Failure> {
        let mut blocks = Blocks::default();
        for text in &args.ublk {
            let names = std::iter::once(&args.name).chain(args.export.iter().map(|one| &one.name));
            let (name, id) = split(text, &args.name, names.map(String::as_str))?;
            if blocks.0.iter().any(|one| one.name() == name) {
                return Err(Failure::Usage(format!("{OPTION}: {name} is a block device already")));
            }
            let missing = || Failure::about(OPTION, format!("{name} is gone"));
            let device = devices.find(name).ok_or_else(missing)?;
            let config = UblkConfig { id, observer: observer.clone(), ..UblkConfig::new(name) };
            let block = Ublk::start_device(&device, config);
            blocks.0.push(Arc::new(block.map_err(|error| Failure::about(OPTION, error))?));
        }
        Ok(blocks)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells people where each is, and what to do with it.
    pub(super) fn announce(&self, log: &Log) {
        for block in &self.0 {
            let (name, path) = (block.name(), at(block));
            log.mention(format!("{name}: a block device at {path}; try: mkfs.ext4 {path}"));
        }
    }

    /// Stops all, unless something has one open. The error says who.
    pub(super) fn try_stop(&self) -> Result<(), String> {
        let in_use = |block: &Ublk, who: &str| format!("{} is in use: {who}", at(block));
        for block in &self.0 {
            let holders = block.holders();
            // udev has each new device open for a moment, and the kernel's own look below waits.
            if self.0.len() > 1 && !holders.is_empty() {
                return Err(in_use(block, &holders.join(", ")));
            }
        }
        let stop =
            |block: &Arc<Ublk>| block.try_stop().map_err(|error| in_use(block, &error.to_string()));
        self.0.iter().try_for_each(stop)
    }

    /// Stops all. What still has one open gets errors, which is said.
    pub(super) fn stop(&self, log: &Log) {
        for block in &self.0 {
            if let Err(error) = block.try_stop() {
                let path = at(block);
                log.complain(format!("{path}: {error}; reads and writes are errors from now on"));
                block.stop();
            }
        }
    }

    /// Queues that are served. Each has a thread.
    pub(super) fn queues(&self) -> usize {
        self.0.iter().map(|block| block.queues()).sum()
    }

    /// Bytes that their buffers hold.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.0.iter().map(|block| block.buffer_bytes()).sum()
    }

    /// The block device of a device, for `stat`.
    pub(super) fn stat_of(&self, device: &str) -> Value {
        let of_device = self.0.iter().filter(|block| block.name() == device);
        let stat = |block: &Arc<Ublk>| json!({"path": at(block), "queues": block.queues()});
        of_device.map(stat).collect()
    }
}

/// The path of a block device.
fn at(block: &Ublk) -> String {
    block.path().display().to_string()
}

/// The device and the number of `NAME=ID` or of `ID`.
fn split<'a>(
    text: &'a str,
    first: &'a str,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(&'a str, Option<u32>), Failure> {
    let refused = |why: String| Err(Failure::Usage(format!("{OPTION}: {why}")));
    let (name, id) = text.rsplit_once('=').unwrap_or((first, text));
    if !names.any(|known| known == name) {
        return refused(format!("there is no device {name:?}; add it by --export"));
    }
    match id.parse() {
        Ok(id) => Ok((name, Some(id))),
        Err(_) if id == ANY => Ok((name, None)),
        Err(_) => refused(format!("{id:?} is neither the number of a block device nor {ANY}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_device_is_of_the_device_that_is_named_or_of_the_first() {
        let names = || ["zram0", "data"].into_iter();
        for (text, name, id) in [
            ("auto", "zram0", None),
            ("7", "zram0", Some(7)),
            ("data=auto", "data", None),
            ("data=0", "data", Some(0)),
        ] {
            assert_eq!(split(text, "zram0", names()).unwrap(), (name, id), "{text}");
        }
        for (text, expected) in [
            ("logs=auto", "no device \"logs\""),
            ("data", "\"data\" is neither the number of a block device nor auto"),
            ("data=-1", "\"-1\" is neither"),
            ("=1", "no device \"\""),
        ] {
            let Err(Failure::Usage(why)) = split(text, "zram0", names()) else { panic!("{text}") };
            assert!(why.contains(expected), "{why}");
        }
    }
}
