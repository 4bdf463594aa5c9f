//! What `set` can change: zram's attributes, under the kernel's names, and which devices there are.
//!
//! ```text
//!   ramfold set TARGET mem_limit 64M              the server's only device
//!   ramfold set TARGET zram1/mem_limit 64M        one of several
//!   ramfold set TARGET zram-control/hot_remove 1
//! ```
//!
//! Invariant: an unknown name, or a value that no device takes, is refused before a server is
//! asked. The device judges the rest. Two kinds of value are changed before they are sent. A size
//! becomes a number of bytes. A path becomes absolute, because the server has another working
//! directory.
//!
//! Locks: those of the devices.

use std::path::Path;
use std::sync::Arc;

use host::PAGE_SIZE;
use zram::{Attribute, AttributeError, Device, Devices};

use super::size;

const CONTROL: &str = "zram-control";

/// A well-formed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    what: What,
    /// The value in the form in which the device takes it.
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Attribute { device: Option<String>, attribute: Attribute },
    HotAdd,
    HotRemove,
}

impl Change {
    /// Reads a path in the tree of devices and a value. The error says what would be right.
    pub(crate) fn parse(path: &str, value: &str) -> Result<Change, String> {
        let (device, name) = match path.rsplit_once('/') {
            Some((device, name)) => (Some(device), name),
            None => (None, path),
        };
        if device == Some(CONTROL) {
            return Change::of_devices(name, value);
        }
        let known = Attribute::from_name(name);
        let attribute = known
            .ok_or_else(|| format!("there is no attribute {name:?}; it is {}", names(writable)))?;
        if !writable(attribute) {
            return Err(format!("{name} can only be read, by ramfold stat"));
        }
        let value = prepared(attribute, value)?;
        attribute.judge(&value).map_err(|error| error.to_string())?;
        let device = device.map(str::to_owned);
        Ok(Change { what: What::Attribute { device, attribute }, value })
    }

    fn of_devices(name: &str, value: &str) -> Result<Change, String> {
        let what = match name {
            "hot_add" => What::HotAdd,
            "hot_remove" => {
                Devices::judge_hot_remove(value).map_err(|error| error.to_string())?;
                What::HotRemove
            }
            _ => return Err(format!("{CONTROL} has hot_add and hot_remove, and no {name:?}")),
        };
        Ok(Change { what, value: value.to_owned() })
    }

    /// Reads `ATTRIBUTE=VALUE`, for a device that is about to be made.
    pub(crate) fn setting(text: &str) -> Result<Change, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} has no value"))?;
        let attribute = Attribute::from_name(name).filter(|&attribute| writable(attribute));
        let unknown = || format!("there is no attribute {name:?} that can be set");
        Change::parse(attribute.ok_or_else(unknown)?.name(), value)
    }

    /// The value that is sent.
    pub(crate) fn into_value(self) -> String {
        self.value
    }

    /// Makes the change, and gives one line that says what was done.
    pub(crate) fn apply(&self, devices: &Devices) -> Result<String, String> {
        match &self.what {
            What::Attribute { device, attribute } => {
                let device = find(devices, device.as_deref())?;
                self.set(&device, *attribute)
            }
            What::HotAdd => {
                let added = devices.hot_add().map_err(|error| error.to_string())?;
                let name = devices.get(added).map(|device| device.name().to_owned());
                Ok(format!("{} was added", name.unwrap_or_default()))
            }
            What::HotRemove => {
                let removed = devices.store_hot_remove(self.value.as_bytes());
                removed.map_err(|error| error.to_string())?;
                Ok(format!("device {} was removed", self.value))
            }
        }
    }

    fn set(&self, device: &Device, attribute: Attribute) -> Result<String, String> {
        let before = Counts::of(device);
        let stored = device.store(attribute, self.value.as_bytes());
        let done = || done(device, attribute, &before);
        // Blocks that were written back before a failure stay there.
        let in_part = attribute == Attribute::Writeback
            && Counts::of(device).written_blocks > before.written_blocks;
        let failed = |error: AttributeError| match in_part {
            true => format!("{error}; {} by then", done()),
            false => error.to_string(),
        };
        stored.map(|()| done()).map_err(failed)
    }
}

/// Checks the path of an attribute that can be read. The error says what would be right.
pub(crate) fn check_readable(path: &str) -> Result<(), String> {
    readable(path).map(drop)
}

/// The text of an attribute, as the kernel would show it.
pub(crate) fn text(devices: &Devices, path: &str) -> Result<String, String> {
    let (device, attribute) = readable(path)?;
    find(devices, device)?.show(attribute).map_err(|error| error.to_string())
}

/// The device in the path of an attribute, if one is named, and the attribute.
fn readable(path: &str) -> Result<(Option<&str>, Attribute), String> {
    let (device, name) = match path.rsplit_once('/') {
        Some((device, name)) => (Some(device), name),
        None => (None, path),
    };
    let known = Attribute::from_name(name);
    let attribute = known.ok_or_else(|| {
        format!("there is no attribute {name:?}; it is {}", names(Attribute::is_readable))
    })?;
    match attribute.is_readable() {
        true => Ok((device, attribute)),
        false => Err(format!("{name} can only be written; ramfold stat shows figures")),
    }
}

fn writable(attribute: Attribute) -> bool {
    attribute.is_writable()
}

fn names(which: fn(Attribute) -> bool) -> String {
    let names: Vec<&str> =
        Attribute::ALL.into_iter().filter(|&a| which(a)).map(Attribute::name).collect();
    match names.split_last() {
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The value in the form in which it is sent.
fn prepared(attribute: Attribute, value: &str) -> Result<String, String> {
    let bytes = match attribute {
        Attribute::MemLimit | Attribute::MemoryTarget => size::parse_memory_or_none(value),
        Attribute::Disksize => size::parse_disk(value),
        Attribute::BackingDev => return absolute(value),
        Attribute::AlgorithmParams => return with_absolute_dictionary(value),
        _ => return Ok(value.to_owned()),
    };
    let bytes = bytes.map_err(|error| format!("{attribute}: {error}"))?;
    Ok(bytes.to_string())
}

fn absolute(path: &str) -> Result<String, String> {
    let whole =
        std::path::absolute(Path::new(path)).map_err(|error| format!("{path:?}: {error}"))?;
    Ok(whole.to_string_lossy().into_owned())
}

/// Makes the path in `dict=FILE` absolute, because it is relative to where it was typed.
fn with_absolute_dictionary(value: &str) -> Result<String, String> {
    let Some((before, rest)) = value.split_once("dict=") else { return Ok(value.to_owned()) };
    if rest.starts_with('"') {
        return Ok(value.to_owned());
    }
    let (path, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
    Ok(format!("{before}dict={}{after}", absolute(path)?))
}

/// The device of this name, or the only device if there is no name.
pub(crate) fn find(devices: &Devices, name: Option<&str>) -> Result<Arc<Device>, String> {
    let list = devices.list();
    let known = || list.iter().map(|device| device.name()).collect::<Vec<_>>().join(", ");
    match (name, &*list) {
        (Some(name), _) => devices
            .find(name)
            .ok_or_else(|| format!("there is no device {name:?}; the devices are {}", known())),
        (None, [only]) => Ok(Arc::clone(only)),
        (None, []) => Err(format!("there is no device; {CONTROL}/hot_add adds one")),
        (None, [first, ..]) => {
            let example = format!("{}/mem_limit", first.name());
            Err(format!("there are several devices ({}); name one, as in {example}", known()))
        }
    }
}

/// Counts from before a change, to tell what it did.
#[derive(Default)]
struct Counts {
    compressed_bytes: u64,
    compacted_frames: u64,
    written_blocks: u64,
}

impl Counts {
    fn of(device: &Device) -> Counts {
        let Some(disk) = device.disk() else { return Counts::default() };
        let mm_stat = disk.mm_stat().0;
        Counts {
            compressed_bytes: mm_stat[1],
            compacted_frames: mm_stat[6],
            written_blocks: disk.bd_stat().writes,
        }
    }
}

/// One line that says what was done.
fn done(device: &Device, attribute: Attribute, before: &Counts) -> String {
    let now = Counts::of(device);
    match attribute {
        Attribute::MemLimit => match device.stat().mem_limit {
            0 => "no memory limit".to_owned(),
            bytes => format!("memory limit {} ({bytes} bytes)", size::human(bytes)),
        },
        Attribute::MemoryTarget => match device.memory_target() {
            0 => "no memory target".to_owned(),
            bytes => format!("memory target {} ({bytes} bytes)", size::human(bytes)),
        },
        Attribute::MemUsedMax => "the highest use starts anew".to_owned(),
        Attribute::Compact => {
            let frames = now.compacted_frames.saturating_sub(before.compacted_frames);
            format!("compaction freed {}", size::human(frames * PAGE_SIZE as u64))
        }
        Attribute::Writeback => {
            let blocks = now.written_blocks.saturating_sub(before.written_blocks);
            format!("{} written back", size::count(blocks, "block"))
        }
        Attribute::Recompress => {
            let bytes = before.compressed_bytes.saturating_sub(now.compressed_bytes);
            format!("the data is {} smaller", size::human(bytes))
        }
        Attribute::Reset => "the device is as it was when it was added".to_owned(),
        Attribute::AlgorithmParams => device.objection().map_or_else(
            || "noted for when disksize is set".to_owned(),
            |why| format!("noted, but disksize will be refused: {why}"),
        ),
        readable => match device.show(readable) {
            Ok(text) => format!("{readable} is {}", text.trim_end().replace('\n', "; ")),
            Err(_) => "done".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::Disk;
    use zram::{DeviceDefaults, Memory, MemoryConfig};

    fn devices() -> Devices {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).unwrap();
        Devices::new(memory, DeviceDefaults::default())
    }

    fn set(devices: &Devices, path: &str, value: &str) -> Result<String, String> {
        Change::parse(path, value)?.apply(devices)
    }

    #[test]
    fn every_readable_attribute_has_a_text() {
        let devices = devices();
        let id = devices.add_named("first").unwrap();
        set(&devices, "disksize", "1M").unwrap();
        assert_eq!(text(&devices, "disksize").as_deref(), Ok("1048576\n"));
        assert_eq!(text(&devices, "first/initstate").as_deref(), Ok("1\n"));
        for attribute in Attribute::ALL.into_iter().filter(|it| it.is_readable()) {
            text(&devices, attribute.name()).unwrap_or_else(|why| panic!("{attribute}: {why}"));
        }
        devices.hot_add().unwrap();
        for (path, expected) in [
            ("colour", "there is no attribute \"colour\"; it is "),
            ("reset", "can only be written"),
            ("disksize", "there are several devices"),
            ("second/disksize", "there is no device \"second\""),
        ] {
            let why = text(&devices, path).unwrap_err();
            assert!(why.contains(expected), "{path}: {why}");
        }
        assert!(devices.get(id).is_some());
    }

    #[test]
    fn every_writable_attribute_is_known() {
        for attribute in Attribute::ALL {
            let value = match attribute {
                Attribute::Disksize => "1M",
                Attribute::Reset | Attribute::WritebackBatchSize => "1",
                Attribute::PagesPerPoolPage => "8",
                Attribute::CompAlgorithm => "zstd",
                Attribute::RecompAlgorithm | Attribute::AlgorithmParams => "algo=zstd",
                Attribute::Recompress | Attribute::Writeback => "type=huge",
                _ => "0",
            };
            let parsed = Change::parse(attribute.name(), value);
            assert_eq!(parsed.is_ok(), attribute.is_writable(), "{attribute}: {parsed:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let rows = [
            ("colour", "red", "disksize, reset, comp_algorithm"),
            ("mm_stat", "0", "ramfold stat"),
            ("mem_limit", "much", "\"much\" is not a size"),
            ("mem_limit", "-1", "\"-1\" is not a size"),
            ("mem_limit", "18446744073709551615", "too large"),
            ("mem_limit", "99999999999999999999999", "too large: a size is less than 2^64"),
            ("mem_limit", " 5", "\" 5\" is not a size"),
            ("memory_target", "half", "\"half\" is not a size"),
            ("memory_target", "101%", "\"101%\" is no part"),
            ("memory_target", "18446744073709551615", "write 0 for no target"),
            ("disksize", "9T", "at most 8T"),
            ("writeback_limit", "99999999999999999999", "too large for a number of 4 KiB"),
            ("writeback_batch_size", "4294967296", "from 1 to 4294967295"),
            ("pages_per_pool_page", "5", "1, 2, 4, 8 or 16"),
            ("idle", "99999999999999999999", "too large"),
            ("disksize", "0", "too small"),
            ("comp_algorithm", "best", "lz4"),
            ("zram1/idle", "some", "not all or a number"),
            ("writeback", "some", "huge_idle"),
            ("zram-control/remove", "0", "hot_add and hot_remove"),
            ("zram-control/hot_remove", "x", "device's number"),
        ];
        for (attribute, value, expected) in rows {
            let error = Change::parse(attribute, value).unwrap_err();
            assert!(error.contains(expected), "{attribute} {value}: {error}");
        }
    }

    #[test]
    fn devices_are_added_named_and_removed() {
        let devices = devices();
        assert!(set(&devices, "mem_limit", "1M").unwrap_err().contains("hot_add"));
        assert_eq!(set(&devices, "zram-control/hot_add", "1").unwrap(), "zram0 was added");
        assert!(set(&devices, "mem_limit", "1M").unwrap().contains("1048576 bytes"));
        assert_eq!(set(&devices, "zram-control/hot_add", "1").unwrap(), "zram1 was added");
        let which = set(&devices, "mem_limit", "1M").unwrap_err();
        assert!(which.contains("zram0, zram1") && which.contains("zram0/mem_limit"), "{which}");
        assert_eq!(set(&devices, "zram1/disksize", "1M").unwrap(), "disksize is 1048576");
        assert!(set(&devices, "zram7/reset", "1").unwrap_err().contains("zram0, zram1"));
        set(&devices, "zram-control/hot_remove", "1").unwrap();
        assert!(set(&devices, "zram-control/hot_remove", "1").unwrap_err().contains("no device"));
    }

    #[test]
    fn what_was_done_is_told() {
        let devices = devices();
        set(&devices, "zram-control/hot_add", "1").unwrap();
        let said = |path, value| set(&devices, path, value).unwrap();
        assert_eq!(said("mem_limit", "0"), "no memory limit");
        assert_eq!(said("memory_target", "1.5M"), "memory target 1.5 MiB (1572864 bytes)");
        assert_eq!(said("memory_target", "0"), "no memory target");
        assert!(said("mem_limit", "50%").starts_with("memory limit "), "of what is available");
        assert_eq!(said("comp_algorithm", "zstd"), said("comp_algorithm", "zstd"));
        assert!(said("algorithm_params", "level=1").contains("noted for"));
        let late = said("algorithm_params", "level=1000");
        assert!(late.contains("will be refused") && late.contains("1000"), "{late}");
        said("comp_algorithm", "lz4");
        said("disksize", "1M");
        assert!(said("compact", "1").contains("compaction freed 0 B"));
        assert!(said("mem_used_max", "0").contains("starts anew"));
        let late = set(&devices, "comp_algorithm", "zstd").unwrap_err();
        assert!(late.contains("reset"), "{late}");
    }

    /// A range of pages used to be judged as if the device had 2^64 pages.
    #[test]
    fn pages_that_a_device_does_not_have_are_told_with_what_it_has() {
        let devices = devices();
        set(&devices, "zram-control/hot_add", "1").unwrap();
        let file = std::env::temp_dir().join(format!("ramfold-pages-{}", std::process::id()));
        std::fs::write(&file, vec![0; 1 << 20]).unwrap();
        set(&devices, "backing_dev", file.to_str().unwrap()).unwrap();
        set(&devices, "disksize", "1M").unwrap();
        std::fs::remove_file(&file).unwrap();
        for pages in ["page_indexes=0-18446744073709551615", "page_index=18446744073709551615"] {
            let error = set(&devices, "writeback", pages).unwrap_err();
            let expected = "there is no page 18446744073709551615: the device has 256";
            assert!(error.contains(expected), "{pages}: {error}");
        }
    }

    #[test]
    fn what_was_done_before_a_failure_is_told() {
        let devices = devices();
        set(&devices, "zram-control/hot_add", "1").unwrap();
        let file = std::env::temp_dir().join(format!("ramfold-backing-{}", std::process::id()));
        std::fs::write(&file, vec![0; 1 << 20]).unwrap();
        for (path, value) in [
            ("backing_dev", file.to_str().unwrap()),
            ("disksize", "1M"),
            ("writeback_limit_enable", "1"),
            ("writeback_limit", "2"),
        ] {
            set(&devices, path, value).unwrap();
        }
        let disk = devices.get(0).unwrap().disk().unwrap();
        let noise = std::iter::successors(Some(1_u64), |last| {
            Some(last.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407))
        });
        let pages: Vec<u8> = noise.map(|word| (word >> 56) as u8).take(5 * PAGE_SIZE).collect();
        disk.write(0, &pages).unwrap();
        let refused = set(&devices, "writeback", "hug").unwrap_err();
        assert!(!refused.contains("by then"), "nothing was done: {refused}");
        let error = set(&devices, "writeback", "huge").unwrap_err();
        std::fs::remove_file(&file).unwrap();
        let both = error.contains("used up") && error.ends_with("; 2 blocks written back by then");
        assert!(both, "{error}");
    }

    #[test]
    fn paths_are_absolute_before_they_are_sent() {
        let sent = |path, value| Change::parse(path, value).unwrap().into_value();
        let here = std::env::current_dir().unwrap();
        assert_eq!(sent("backing_dev", "file"), here.join("file").to_str().unwrap());
        assert_eq!(sent("backing_dev", "/dev/sdb"), "/dev/sdb");
        let params = sent("algorithm_params", "algo=zstd dict=a/dict level=7");
        assert_eq!(params, format!("algo=zstd dict={} level=7", here.join("a/dict").display()));
    }
}
