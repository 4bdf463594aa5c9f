//! The answers of a running server on its control socket.
//!
//! ```text
//!   stat              {"name", .., "server": {"pid", "connections", "uris", .., "notices"}}
//!   classes           {"text": the kernel's table, "rows": [{..}, ..]}
//!   pagetypeinfo      {"text": the kernel's text, "zone": {..}}
//!   set               "what was done"
//!   check             {"zspages", "objects", .., "moved"}, or the defect as an error
//!   add, remove       "what was done"
//! ```
//!
//! If a server has several devices and none is named, `stat` and `check` are arrays, and `classes`
//! has the tables of all.
//!
//! Invariant: every number of an answer was exact at some moment, but not all at the same moment.
//!
//! Locks: none here.

use std::sync::Arc;

use serde_json::{Value, json};
use serve::Server;
use serve::control::{Request, Response};
use serve::fuse::Fuse;
use zram::{Device, Devices, ZramStat};
use zsmalloc::ClassTable;

use super::blocks::Blocks;
use super::document;
use super::machines::Machines;
use super::page_types;
use super::watch::{Board, Relieved};
use crate::line::attribute::{self, Change, find};
use crate::line::export::{Export, device_name};
use crate::line::size::{count, human};

/// The number of the device that is the default export.
const SERVED: u32 = 0;

/// What is asked: the devices, their doors, and the notices.
pub(crate) struct Answers {
    devices: Arc<Devices>,
    open: Open,
    seen: Seen,
}

/// The doors of the server.
#[derive(Clone, Default)]
pub(crate) struct Open {
    pub(crate) server: Option<Arc<Server>>,
    pub(crate) tree: Option<Arc<Fuse>>,
    pub(crate) machines: Machines,
    pub(crate) blocks: Blocks,
}

/// What the thread that watches has to say.
pub(crate) struct Seen {
    pub(crate) board: Board,
    pub(crate) relieved: Relieved,
}

impl Answers {
    pub(crate) fn new(devices: Arc<Devices>, open: Open, seen: Seen) -> Answers {
        Answers { devices, open, seen }
    }

    pub(crate) fn answer(&self, request: Request) -> Response {
        let answer = match request {
            Request::Stat { device } => self.chosen(device).map(|devices| self.stat(&devices)),
            Request::Classes { device } => {
                self.chosen(device).and_then(|devices| classes(&devices))
            }
            Request::Pagetypeinfo => Ok(page_types::answer(self.devices.memory())),
            Request::Get { attribute } => {
                attribute::text(&self.devices, &attribute).map(Value::from)
            }
            Request::Set { attribute, value } => Change::parse(&attribute, &value)
                .and_then(|change| change.apply(&self.devices))
                .map(Value::from),
            Request::Check { device } => self.chosen(device).and_then(|devices| check(&devices)),
            Request::Add { name, size } => self.add(name, size),
            Request::Remove { name } => self.remove(&name),
            _ => Err("this server is too old to know the request".to_owned()),
        };
        answer.map_or_else(Response::Error, Response::Ok)
    }

    /// The line of status for a service manager: what is served, what it takes, and the first thing
    /// that is the matter. It takes the locks of every device and of the doors.
    pub(crate) fn line(&self) -> String {
        let disks: Vec<_> = self.devices.list().iter().filter_map(|it| it.disk()).collect();
        let figures = disks.iter().map(|disk| disk.mm_stat().0);
        let sum = |sum: (u64, u64), figures: [u64; 9]| (sum.0 + figures[0], sum.1 + figures[2]);
        let (stored, held) = figures.fold((0, 0), sum);
        let clients = self.open.server.as_ref().map(|server| server.connections() as u64);
        let clients = clients.map_or(String::new(), |them| format!(", {}", count(them, "client")));
        let machines = self.open.machines.connected();
        let machines =
            machines.map_or(String::new(), |them| format!(", {}", count(them, "machine")));
        let devices = count(disks.len() as u64, "device");
        let (stored, held) = (human(stored), human(held));
        let matter = self.seen.board.lines().into_iter().next();
        let matter = matter.map_or(String::new(), |matter| format!("; {matter}"));
        format!("{devices}{clients}{machines}; {stored} stored in {held}{matter}")
    }

    /// The device of this name, or all.
    fn chosen(&self, device: Option<String>) -> Result<Vec<Arc<Device>>, String> {
        match device {
            None => Ok(self.devices.list()),
            Some(name) => Ok(vec![find(&self.devices, Some(&name))?]),
        }
    }

    fn add(&self, name: String, size: u64) -> Result<Value, String> {
        // Any program may ask, so the name is judged here as well.
        let device = Export { name: device_name(&name)?, size }.add_to(&self.devices)?;
        let size = device.disk().map_or(0, |disk| disk.config().disksize);
        let uris = self.open.server.as_ref().map_or_else(Vec::new, |server| server.uris_of(&name));
        let at = uris.first().map_or_else(String::new, |uri| format!(": {uri}"));
        Ok(format!("{name} of {} was added{at}", human(size)).into())
    }

    fn remove(&self, name: &str) -> Result<Value, String> {
        let device = find(&self.devices, Some(name))?;
        let stored = device.stat().orig_data_size;
        self.devices.remove_named(name).map_err(|error| error.to_string())?;
        Ok(format!("{name} was removed, with {}", count(stored, "stored byte")).into())
    }

    /// An object, or an array unless there is exactly one device.
    fn stat(&self, devices: &[Arc<Device>]) -> Value {
        one_or_array(devices.iter().map(|device| self.stat_of(device)).collect())
    }

    /// Figures of one device. If it has a size, it is an export. The first device also has what the
    /// server holds.
    fn stat_of(&self, device: &Device) -> Value {
        let served = device.id() == SERVED;
        let server = self.open.server.as_ref().filter(|_| device.disk().is_some());
        let connections = |server: &Arc<Server>| match served {
            true => server.connections(),
            false => server.connections_to(device.name()),
        };
        let uris = server.map_or_else(Vec::new, |server| server.uris_of(device.name()));
        let stat = if served { self.with_server(device) } else { device.stat() };
        let mut answer = document::device(device, &stat);
        answer["server"] = json!({
            "pid": std::process::id(),
            "connections": server.map_or(0, connections),
            "connections_to_device": server.map_or(0, |it| it.connections_to(device.name())),
            "uris": uris,
            "vhost_user": self.open.machines.stat_of(device.name()),
            "ublk": self.open.blocks.stat_of(device.name()),
            "notices": if served { self.seen.board.lines() } else { Vec::new() },
        });
        answer["server"]["tree"] = self.open.tree.as_deref().map_or(Value::Null, document::tree);
        // These are of the whole process, so they are beside every device's figures.
        answer["anonymous_bytes"] = json!(host::smaps::anonymous_bytes().ok());
        answer["pressure"] = self.seen.relieved.value();
        answer
    }

    fn with_server(&self, device: &Device) -> ZramStat {
        let (stat, Some(disk)) = (device.stat(), device.disk()) else { return device.stat() };
        let Open { server, tree, machines, blocks } = &self.open;
        let nbd = server.as_ref().map_or((0, 0), |s| (s.connections(), s.buffer_bytes()));
        let tree = tree.as_ref().map_or((0, 0), |tree| (tree.threads(), tree.buffer_bytes()));
        let machines = (machines.queues(), machines.buffer_bytes());
        // The LZ4 library keeps a state for every thread that compresses. Those are the threads of
        // connections, of the mount, and of the queues of virtual machines and block devices.
        let blocks = (blocks.queues(), blocks.buffer_bytes());
        let threads =
            (nbd.0 + tree.0 + machines.0 + blocks.0) * disk.config().algorithm.thread_bytes();
        stat.with_server((nbd.1 + tree.1 + machines.1 + blocks.1) as u64, threads as u64)
    }
}

fn classes(devices: &[Arc<Device>]) -> Result<Value, String> {
    let tables: Vec<(String, ClassTable)> = devices
        .iter()
        .filter_map(|device| Some((device.name().to_owned(), device.disk()?.classes())))
        .collect();
    match &*tables {
        [] => Err("no device is initialised".to_owned()),
        [(_, only)] => Ok(document::classes(only)),
        several => Ok(document::several_classes(several)),
    }
}

fn check(devices: &[Arc<Device>]) -> Result<Value, String> {
    let mut reports = Vec::new();
    for device in devices {
        // The device is held open, so that it is not reset or removed while it is recounted.
        let Some(opened) = device.open().ok() else { continue };
        let opened = opened.held_by("ramfold check");
        let Some(disk) = opened.disk() else { continue };
        let defect = |defect| format!("defect in {}: {defect}", device.name());
        let mut report = document::check(&disk.check().map_err(defect)?);
        report["pages_read_back"] = disk.check_backing().map_err(defect)?.into();
        report["name"] = device.name().into();
        reports.push(report);
    }
    Ok(one_or_array(reports))
}

fn one_or_array(mut values: Vec<Value>) -> Value {
    match values.len() {
        1 => values.remove(0),
        _ => Value::Array(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::Disk;
    use serve::ServerConfig;
    use zram::{Attribute, DeviceDefaults, Zram};
    use zsmalloc::{Memory, MemoryConfig};

    const DISK_BYTES: u64 = 1 << 20;

    fn answers() -> Answers {
        let memory = Memory::new(MemoryConfig::for_disk(DISK_BYTES)).unwrap();
        let devices = Arc::new(Devices::new(memory, DeviceDefaults::default()));
        let device = devices.get(devices.add_named("test").unwrap()).unwrap();
        device.store(Attribute::Disksize, DISK_BYTES.to_string().as_bytes()).unwrap();
        let mut config = ServerConfig::new("test");
        config.tcp.push("127.0.0.1:0".into());
        let server = Arc::new(Server::start_devices(Arc::clone(&devices), config).unwrap());
        let seen = Seen { board: Board::new(), relieved: Relieved::new() };
        Answers::new(devices, Open { server: Some(server), ..Open::default() }, seen)
    }

    impl Answers {
        fn disk(&self) -> Arc<Zram> {
            self.devices.get(SERVED).unwrap().disk().unwrap()
        }
    }

    #[track_caller]
    fn accepted(answers: &Answers, request: Request) -> Value {
        match answers.answer(request) {
            Response::Ok(value) => value,
            Response::Error(why) => panic!("refused: {why}"),
        }
    }

    fn set(attribute: &str, value: &str) -> Request {
        Request::Set { attribute: attribute.into(), value: value.into() }
    }

    #[test]
    fn the_line_counts_what_all_devices_store() {
        let answers = answers();
        answers.answer(Request::Add { name: "b".to_owned(), size: DISK_BYTES });
        for device in answers.devices.list() {
            device.disk().unwrap().write_page(0, &[7; 4096]).unwrap();
        }
        let expected = "2 devices, 0 clients; 8.0 KiB stored in 0 B";
        assert_eq!(answers.line(), expected, "pages that repeat one word");
    }

    #[test]
    fn figures_are_those_of_the_device() {
        let answers = answers();
        answers.disk().write(0, &[1; 8192]).unwrap();
        let stat = accepted(&answers, Request::STAT);
        assert_eq!((&stat["same_pages"], &stat["disksize"]), (&2.into(), &DISK_BYTES.into()));
        assert_eq!(stat["server"]["pid"], std::process::id());
        assert_eq!(stat["pressure"]["times"], 0, "{stat}");
        assert_eq!(stat["server"]["uris"].as_array().map(Vec::len), Some(1), "{stat}");
        let check = accepted(&answers, Request::CHECK);
        assert_eq!((&check["pages_stored"], &check["moved"]), (&2.into(), &false.into()));
    }

    #[test]
    fn attributes_reach_the_device_or_are_refused() {
        let answers = answers();
        accepted(&answers, set("mem_limit", "64K"));
        assert_eq!(answers.disk().stat().mem_limit, 64 << 10);
        accepted(&answers, set("compact", "1"));
        for request in [set("colour", "red"), set("mem_limit", "much"), set("idle", "some")] {
            let said = format!("{request:?}");
            let answer = answers.answer(request);
            assert!(matches!(answer, Response::Error(_)), "{said} was done");
        }
    }

    #[test]
    fn page_types_are_text_and_the_numbers_of_the_device() {
        let answers = answers();
        answers.disk().write(0, &std::array::from_fn::<u8, 4096, _>(|at| (at / 9) as u8)).unwrap();
        let found = accepted(&answers, Request::Pagetypeinfo);
        assert!(found["text"].as_str().is_some_and(|text| text.starts_with("Page block order: 9")));
        let used = answers.disk().stat().mem_used_total / host::PAGE_SIZE as u64;
        assert_eq!(found["zone"]["allocated_frames"], used, "frames of zspages: {found}");
        assert_eq!(found["zone"]["pageblocks_by_type"]["Movable"], 1, "{found}");
    }

    #[test]
    fn classes_are_text_and_rows() {
        let answers = answers();
        answers.disk().write(0, &std::array::from_fn::<u8, 4096, _>(|at| (at / 9) as u8)).unwrap();
        let classes = accepted(&answers, Request::CLASSES);
        let rows = classes["rows"].as_array().unwrap();
        let used: u64 = rows.iter().filter_map(|row| row["obj_used"].as_u64()).sum();
        assert_eq!(used, 1, "one page is one object: {classes}");
        assert!(classes["text"].as_str().is_some_and(|text| text.contains("obj_allocated")));
    }

    #[test]
    fn devices_are_added_asked_and_removed_by_name() {
        let answers = answers();
        let add = |name: &str, size| Request::Add { name: name.to_owned(), size };
        let device = || Some("data".to_owned());
        let added = accepted(&answers, add("data", 5000));
        let added = added.as_str().unwrap();
        assert!(added.starts_with("data of 8.0 KiB was added: nbd://127.0.0.1:"), "{added}");
        let stat = accepted(&answers, Request::Stat { device: device() });
        assert_eq!((&stat["name"], &stat["disksize"]), (&"data".into(), &8192.into()));
        assert_eq!(accepted(&answers, Request::Check { device: device() })["name"], "data");
        assert!(accepted(&answers, Request::Classes { device: device() })["rows"].is_array());
        let remove = |name: &str| answers.answer(Request::Remove { name: name.to_owned() });
        let held = answers.devices.find("data").unwrap().open().unwrap().held_by("a test");
        let Response::Error(busy) = remove("data") else { panic!("it is open") };
        assert!(busy.contains("in use by a test"), "{busy}");
        drop(held);
        assert!(matches!(remove("data"), Response::Ok(_)));
        for request in [
            add("test", 4096),
            add("a/b", 4096),
            add("zram-control", 4096),
            add("data", 0),
            add("data", u64::MAX),
            Request::Remove { name: "data".to_owned() },
            Request::Stat { device: device() },
            Request::Check { device: device() },
            Request::Classes { device: device() },
        ] {
            let said = format!("{request:?}");
            assert!(matches!(answers.answer(request), Response::Error(_)), "{said} was done");
        }
        assert_eq!(answers.devices.list().len(), 1, "what was refused changed nothing");
    }

    #[test]
    fn several_devices_are_an_array() {
        let answers = answers();
        accepted(&answers, set("zram-control/hot_add", "1"));
        let stat = accepted(&answers, Request::STAT);
        let names: Vec<&str> =
            stat.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["test", "zram1"]);
        assert_eq!((&stat[0]["initstate"], &stat[1]["initstate"]), (&1.into(), &0.into()));
        accepted(&answers, set("zram1/disksize", "1M"));
        let stat = accepted(&answers, Request::STAT);
        let uri = stat[1]["server"]["uris"][0].as_str().unwrap_or_default().to_owned();
        assert!(uri.ends_with("/zram1"), "it is an export of its own: {stat}");
        let classes = accepted(&answers, Request::CLASSES);
        assert!(classes["text"].as_str().is_some_and(|text| text.contains("zram1\n")), "{classes}");
        assert_eq!(accepted(&answers, Request::CHECK).as_array().map(Vec::len), Some(2));
        accepted(&answers, set("zram-control/hot_remove", "1"));
        assert!(accepted(&answers, Request::STAT).is_object());
    }
}
