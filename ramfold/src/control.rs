//! What a running server answers on its control socket.
//!
//! ```text
//!   stat              {"name", .., "server": {"pid", "connections", "uris"}}
//!   classes           {"text": the kernel's table, "rows": [{..}, ..]}
//!   pagetypeinfo      {"text": the kernel's text, "zone": {..}}
//!   set               "what was done"
//!   check             {"zspages", "objects", .., "moved"}, or the defect as an error
//! ```
//!
//! Lock: none here; each answer is made of exact numbers that were true one after the other.

use std::sync::Arc;

use serde_json::{Value, json};
use serve::Server;
use serve::control::{Request, Response};
use zram::Zram;

use crate::attribute::Change;
use crate::document;
use crate::page_types;

/// The disk and the server in front of it.
pub(crate) struct Answers {
    device: Arc<Zram>,
    server: Arc<Server>,
}

impl Answers {
    pub(crate) fn new(device: Arc<Zram>, server: Arc<Server>) -> Answers {
        Answers { device, server }
    }

    pub(crate) fn answer(&self, request: Request) -> Response {
        let answer = match request {
            Request::Stat => Ok(self.stat()),
            Request::Classes => Ok(document::classes(&self.device.classes())),
            Request::Pagetypeinfo => Ok(page_types::answer(self.device.memory())),
            Request::Set { attribute, value } => {
                Change::parse(&attribute, &value).map(|change| change.apply(&self.device).into())
            }
            Request::Check => self.check(),
            _ => Err("this server is older than the question".to_owned()),
        };
        answer.map_or_else(Response::Error, Response::Ok)
    }

    fn stat(&self) -> Value {
        // The LZ4 library keeps state for every thread that compresses: one per connection here.
        let threads = self.server.connections() * self.device.config().algorithm.thread_bytes();
        let buffers = self.server.buffer_bytes();
        let stat = self.device.stat().with_server(buffers as u64, threads as u64);
        let mut answer = document::stat(&stat);
        answer["server"] = json!({
            "pid": std::process::id(),
            "connections": self.server.connections(),
            "uris": self.server.uris(),
        });
        answer
    }

    fn check(&self) -> Result<Value, String> {
        let report = self.device.check().map_err(|defect| format!("defect: {defect}"))?;
        Ok(document::check(&report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::Disk;
    use serve::ServerConfig;
    use zram::ZramConfig;
    use zsmalloc::{Memory, MemoryConfig};

    const DISK_BYTES: u64 = 1 << 20;

    fn answers() -> Answers {
        let memory = Memory::new(MemoryConfig::for_disk(DISK_BYTES)).unwrap();
        let device = Arc::new(Zram::new(memory, ZramConfig::new("test", DISK_BYTES)).unwrap());
        let mut config = ServerConfig::new("test");
        config.tcp.push("127.0.0.1:0".into());
        let server = Arc::new(Server::start(Arc::clone(&device) as _, config).unwrap());
        Answers::new(device, server)
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
    fn figures_are_those_of_the_device() {
        let answers = answers();
        answers.device.write(0, &[1; 8192]).unwrap();
        let stat = accepted(&answers, Request::Stat);
        assert_eq!((&stat["same_pages"], &stat["disksize"]), (&2.into(), &DISK_BYTES.into()));
        assert_eq!(stat["server"]["pid"], std::process::id());
        assert_eq!(stat["server"]["uris"].as_array().map(Vec::len), Some(1), "{stat}");
        let check = accepted(&answers, Request::Check);
        assert_eq!((&check["pages_stored"], &check["moved"]), (&2.into(), &false.into()));
    }

    #[test]
    fn attributes_reach_the_device_or_are_refused() {
        let answers = answers();
        accepted(&answers, set("mem_limit", "64K"));
        assert_eq!(answers.device.stat().mem_limit, 64 << 10);
        accepted(&answers, set("compact", "1"));
        for request in [set("colour", "red"), set("mem_limit", "much")] {
            let said = format!("{request:?}");
            let answer = answers.answer(request);
            assert!(matches!(answer, Response::Error(_)), "{said} was done");
        }
    }

    #[test]
    fn page_types_are_text_and_the_numbers_of_the_device() {
        let answers = answers();
        answers.device.write(0, &std::array::from_fn::<u8, 4096, _>(|at| (at / 9) as u8)).unwrap();
        let found = accepted(&answers, Request::Pagetypeinfo);
        assert!(found["text"].as_str().is_some_and(|text| text.starts_with("Page block order: 9")));
        let used = answers.device.stat().mem_used_total / zsmalloc::PAGE_SIZE as u64;
        assert_eq!(found["zone"]["allocated_frames"], used, "frames of zspages: {found}");
        assert_eq!(found["zone"]["pageblocks_by_type"]["Movable"], 1, "{found}");
    }

    #[test]
    fn classes_are_text_and_rows() {
        let answers = answers();
        answers.device.write(0, &std::array::from_fn::<u8, 4096, _>(|at| (at / 9) as u8)).unwrap();
        let classes = accepted(&answers, Request::Classes);
        let rows = classes["rows"].as_array().unwrap();
        let used: u64 = rows.iter().filter_map(|row| row["obj_used"].as_u64()).sum();
        assert_eq!(used, 1, "one page is one object: {classes}");
        assert!(classes["text"].as_str().is_some_and(|text| text.contains("obj_allocated")));
    }
}
