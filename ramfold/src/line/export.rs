//! A device that is an export from the start: its name and its size, as `NAME=SIZE`.
//!
//! Invariant: the name can be that of a file, and a part of an address. Locks: those of the
//! devices.

use std::sync::Arc;

use zram::{Attribute, Device, Devices};

use super::size;

/// A device that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) name: String,
    /// Bytes, before they are rounded up to whole pages.
    pub(crate) size: u64,
}

impl Export {
    /// Reads `NAME=SIZE`.
    pub(crate) fn parse(text: &str) -> Result<Export, String> {
        let (name, size) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=SIZE"))?;
        Ok(Export { name: device_name(name)?, size: size::parse_disk(size)? })
    }

    /// Adds the device, or leaves the devices as they are.
    pub(crate) fn add_to(&self, devices: &Devices) -> Result<Arc<Device>, String> {
        let told = |error: zram::AttributeError| error.to_string();
        let id = devices.add_named(&self.name).map_err(told)?;
        let device = devices.get(id).ok_or_else(|| format!("{} is gone", self.name))?;
        if let Err(error) = device.store(Attribute::Disksize, self.size.to_string().as_bytes()) {
            // It stays if somebody has given it a size meanwhile.
            devices.give_up(&device);
            return Err(format!("{}: {error}", self.name));
        }
        Ok(device)
    }
}

/// Checks a device's name, which becomes a file name and a part of addresses.
pub(crate) fn device_name(text: &str) -> Result<String, String> {
    const LEN_MAX: usize = 64;
    let plain = |c: char| c.is_alphanumeric() || "-_.+@:".contains(c);
    // A device called `x.sock` would answer instead of the device `x`, whose sockets are x.sock and
    // x.ctl. The tree has files of its own with the other names.
    let taken = text.ends_with(".sock")
        || text.ends_with(".ctl")
        || ["zram-control", "buddyinfo", "pagetypeinfo"].contains(&text);
    let sized = !text.is_empty() && text.len() <= LEN_MAX && !taken;
    if !sized || text.starts_with(['.', '-']) || !text.chars().all(plain) {
        return Err(format!(
            "{text:?} is not a name for a device; use up to {LEN_MAX} letters and digits, and \
             after the first also - _ . + @ :, but no .sock or .ctl at the end, and no name that \
             the tree has for its own files"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zram::{DeviceDefaults, Memory, MemoryConfig};

    #[test]
    fn names_that_would_surprise_a_file_system_are_refused() {
        for name in ["", ".", "..", "a/b", ".hidden", "a b", "a\n", "a?b", &"x".repeat(65)] {
            assert!(device_name(name).is_err(), "{name:?}");
        }
        for name in ["zram-control", "buddyinfo", "pagetypeinfo"] {
            assert!(device_name(name).is_err(), "{name}: the tree has a file of that name");
        }
        for name in ["zram0", "scratch-1", "a.b"] {
            assert_eq!(device_name(name).as_deref(), Ok(name));
        }
    }

    #[test]
    fn a_device_is_its_name_and_its_size() {
        let export = Export { name: "a.b".to_owned(), size: 1 << 30 };
        assert_eq!(Export::parse("a.b=1G"), Ok(export));
        for (text, expected) in [
            ("data", "NAME=SIZE"),
            ("=1G", "\"\" is not a name"),
            ("a/b=1G", "not a name"),
            ("data=", "not a size"),
            ("data=much", "\"much\" is not a size"),
            ("data=1G=2G", "not a size"),
            ("data=9T", "at most 8T"),
        ] {
            let error = Export::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_device_that_cannot_be_added_is_not_there() {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).unwrap();
        let devices = Devices::new(memory, DeviceDefaults::default());
        Export::parse("data=1M").unwrap().add_to(&devices).unwrap();
        let twice = Export::parse("data=2M").unwrap().add_to(&devices).unwrap_err();
        assert!(twice.contains("data"), "{twice}");
        let large = Export { name: "large".to_owned(), size: u64::MAX };
        let refused = large.add_to(&devices).unwrap_err();
        assert!(refused.starts_with("large: "), "{refused}");
        let names: Vec<_> = devices.list().iter().map(|one| one.name().to_owned()).collect();
        assert_eq!(names, ["data"]);
    }
}
