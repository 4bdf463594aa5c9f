//! Operations in any order against a twin, and any text against every attribute.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ramfold_zram::{Attribute, Device, Devices, Opened};

use crate::rig::{Scratch, Use, added, attribute, devices, fresh};

/// An operation on devices.
#[derive(Clone, Debug)]
enum Step {
    Add,
    Remove(u32),
    Open(u32),
    Close(u32),
    Size(u32, u64),
    Reset(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..4_u32;
    prop_oneof![
        2 => Just(Step::Add),
        1 => id.clone().prop_map(Step::Remove),
        2 => id.clone().prop_map(Step::Open),
        2 => id.clone().prop_map(Step::Close),
        2 => (id.clone(), 1..9_u64).prop_map(|(id, pages)| Step::Size(id, pages)),
        2 => id.prop_map(Step::Reset),
    ]
}

/// A device, as far as the twin knows it.
#[derive(Clone, Copy, Default)]
struct Twin {
    pages: u64,
    opens: usize,
}

const EBUSY: i32 = 16;
const ENODEV: i32 = 19;

/// The devices, their twins, and the handles that have them open.
struct Pair {
    devices: Devices,
    twins: BTreeMap<u32, Twin>,
    opened: BTreeMap<u32, Vec<Opened>>,
}

impl Pair {
    /// Does a step. Returns its result, and the result that the twin expects.
    fn do_step(&mut self, step: &Step) -> (Result<u64, i32>, Result<u64, i32>) {
        match *step {
            Step::Add => {
                let lowest = (0..).find(|id| !self.twins.contains_key(id)).unwrap_or(0);
                self.twins.insert(lowest, Twin::default());
                let added = self.devices.hot_add().map_err(|error| error.errno());
                (added.map(u64::from), Ok(u64::from(lowest)))
            }
            Step::Remove(id) => {
                let expected = match self.twins.get(&id) {
                    None => Err(ENODEV),
                    Some(twin) if twin.opens > 0 => Err(EBUSY),
                    Some(_) => Ok(0),
                };
                if expected.is_ok() {
                    self.twins.remove(&id);
                }
                let removed = self.devices.hot_remove(id).map_err(|error| error.errno());
                (removed.map(|()| 0), expected)
            }
            Step::Close(id) => {
                let closed = self.opened.entry(id).or_default().pop().is_some();
                let twin = self.twins.get_mut(&id).filter(|twin| twin.opens > 0);
                let expected = twin.map(|twin| twin.opens -= 1).is_some();
                (Ok(u64::from(closed)), Ok(u64::from(expected)))
            }
            Step::Open(id) | Step::Size(id, _) | Step::Reset(id) => {
                let (Some(device), Some(twin)) = (self.devices.get(id), self.twins.get_mut(&id))
                else {
                    return (Err(ENODEV), Err(ENODEV));
                };
                match *step {
                    Step::Open(_) => {
                        twin.opens += 1;
                        let opened = device.open().map_err(|error| error.errno());
                        let opens = self.opened.entry(id).or_default();
                        (opened.map(|opened| opens.push(opened)).map(|()| 0), Ok(0))
                    }
                    Step::Size(_, pages) => {
                        let text = format!("{}", pages * 4096);
                        (store(&device, "disksize", &text), size_twin(twin, pages))
                    }
                    _ => (store(&device, "reset", "1"), reset_twin(twin)),
                }
            }
        }
    }
}

fn store(device: &Device, name: &str, text: &str) -> Result<u64, i32> {
    device.store(attribute(name), text.as_bytes()).map(|()| 0).map_err(|error| error.errno())
}

fn size_twin(twin: &mut Twin, pages: u64) -> Result<u64, i32> {
    if twin.pages > 0 {
        return Err(EBUSY);
    }
    twin.pages = pages;
    Ok(0)
}

fn reset_twin(twin: &mut Twin) -> Result<u64, i32> {
    if twin.opens > 0 {
        return Err(EBUSY);
    }
    twin.pages = 0;
    Ok(0)
}

/// The pieces of which texts are made.
const PIECES: [&str; 44] = [
    "algo=",
    "zstd",
    "lz4",
    "lzo",
    "priority=",
    "level=",
    "dict=",
    "deflate.winbits=",
    "type=",
    "idle",
    "huge",
    "huge_idle",
    "incompressible",
    "page_index=",
    "page_indexes=",
    "threshold=",
    "max_pages=",
    "all",
    "/nonexistent",
    "/tmp",
    "0",
    "1",
    "2",
    "3",
    "7",
    "100",
    "4096",
    "65536",
    "4294967296",
    "99999999999999999999",
    "-",
    "+",
    "0x",
    "K",
    "M",
    "=",
    " ",
    "\n",
    "\t",
    "\"",
    "\0",
    "\u{e9}",
    "on",
    "off",
];

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..6)
        .prop_map(|pieces| pieces.concat())
}

fn any_attribute() -> impl Strategy<Value = Attribute> {
    prop::sample::select(Attribute::ALL.to_vec())
}

fn readable(device: &Device) -> Vec<String> {
    let readable = Attribute::ALL.into_iter().filter(|attribute| attribute.is_readable());
    readable.map(|attribute| device.read(attribute.name())).collect()
}

/// Attributes whose refusal may change something: a size forgets the algorithms it was refused for,
/// and pages that were done stay done.
const HALF_DONE: [Attribute; 3] =
    [Attribute::Disksize, Attribute::Writeback, Attribute::Recompress];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn devices_live_as_their_twins_do(steps in prop::collection::vec(step(), 1..60)) {
        let (twins, opened) = (BTreeMap::new(), BTreeMap::new());
        let mut pair = Pair { devices: devices(), twins, opened };
        for step in &steps {
            let (found, expected) = pair.do_step(step);
            prop_assert_eq!(found, expected, "{:?} of {:?}", step, steps);
            let ids: Vec<u32> = pair.devices.list().iter().map(|device| device.id()).collect();
            prop_assert_eq!(ids, pair.twins.keys().copied().collect::<Vec<u32>>());
            for (device, twin) in pair.devices.list().iter().zip(pair.twins.values()) {
                prop_assert_eq!(device.size_bytes(), twin.pages * 4096);
                prop_assert_eq!(device.is_open(), twin.opens > 0);
            }
        }
    }

    #[test]
    fn no_text_does_harm(
        writes in prop::collection::vec((any_attribute(), text()), 1..40),
        sized: bool,
    ) {
        let file = Scratch::sized("words", 1 << 20);
        let devices = devices();
        let device = added(&devices);
        device.write("backing_dev", file.text());
        device.write("recomp_algorithm", "algo=zstd");
        if sized {
            device.write("disksize", "64K");
            (0..16).for_each(|number| device.put(number, &crate::rig::page(number, 5)));
        }
        for (attribute, text) in writes {
            let before = readable(&device);
            let Err(error) = device.store(attribute, text.as_bytes()) else {
                // A thread that holds a target changes figures at any time.
                device.write("memory_target", "0");
                continue;
            };
            prop_assert!(error.errno() > 0 && error.to_string().lines().count() == 1, "{}", error);
            if !HALF_DONE.contains(&attribute) {
                prop_assert_eq!(before, readable(&device), "{} {:?}: {}", attribute, text, error);
            }
        }
    }

    #[test]
    fn no_bytes_confuse_an_attribute(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        let device = fresh();
        for attribute in Attribute::ALL {
            // Whatever its result is, it must not panic.
            let _ = device.store(attribute, &bytes);
            let _ = device.show(attribute);
        }
    }
}
