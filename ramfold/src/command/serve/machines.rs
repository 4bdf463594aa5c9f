//! The sockets of `serve --vhost-user`, each with one device for one virtual machine.
//!
//! Invariant: a device has at most one socket, because a file system is for one machine. Locks:
//! none.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use serve::{Observer, VhostUser, VhostUserConfig, shell};
use zram::Devices;

use super::doors::own_socket;
use super::ending::Ending;
use super::watch::Log;
use crate::line::Failure;
use crate::line::args;

const OPTION: &str = "--vhost-user";

/// The servers of virtual machines.
#[derive(Clone, Default)]
pub(super) struct Machines(Vec<Arc<VhostUser>>);

impl Machines {
    /// Starts all that were asked for.
    pub(super) fn start(
        args: &args::Serve,
        devices: &Devices,
        observer: &Observer,
    ) -> Result<Machines, Failure> {
        let mut machines = Machines::default();
        for text in &args.vhost_user {
            let names = std::iter::once(&args.name).chain(args.export.iter().map(|one| &one.name));
            let (name, path) = split(text, &args.name, names.map(String::as_str))?;
            if machines.0.iter().any(|one| one.name() == name) {
                let why = format!("{OPTION}: {name} has a socket already; one machine has a disk");
                return Err(Failure::Usage(why));
            }
            let missing = || Failure::about(OPTION, format!("{name} is gone"));
            let device = devices.find(name).ok_or_else(missing)?;
            let mut config = VhostUserConfig::new(name, own_socket(Path::new(path), OPTION)?);
            config.observer = observer.clone();
            let server = VhostUser::start_device(&device, config);
            machines.0.push(Arc::new(server.map_err(|error| Failure::about(OPTION, error))?));
        }
        Ok(machines)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Virtual machines that have their disk, if there are sockets for them.
    pub(super) fn connected(&self) -> Option<u64> {
        let connected = self.0.iter().filter(|server| server.frontend().is_some());
        (!self.is_empty()).then(|| connected.count() as u64)
    }

    /// Has the sockets removed in whichever way the process ends.
    pub(super) fn shut_at_last(&self, ending: &Ending) {
        for server in self.0.iter().map(Arc::clone) {
            ending.at_last(move || server.shut());
        }
    }

    /// Tells people where each is, and what to give to QEMU.
    pub(super) fn announce(&self, log: &Log) {
        self.0.iter().for_each(|server| log.mention(announcement(server.name(), server.path())));
    }

    /// Stops all. A machine that still has its disk loses it, which is said.
    pub(super) fn stop(&self, log: &Log) {
        for server in &self.0 {
            if let Some(peer) = server.frontend() {
                log.complain(format!(
                    "{}: a virtual machine ({peer}) has it, and loses it now; its requests are \
                     answered no more",
                    server.name()
                ));
            }
            server.stop();
        }
    }

    /// Queues that are served. Each has a thread.
    pub(super) fn queues(&self) -> usize {
        self.0.iter().map(|server| server.queues()).sum()
    }

    /// Bytes that their buffers hold.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.0.iter().map(|server| server.buffer_bytes()).sum()
    }

    /// The sockets of a device, for `stat`.
    pub(super) fn stat_of(&self, device: &str) -> Value {
        let of_device = self.0.iter().filter(|server| server.name() == device);
        let stat = |server: &Arc<VhostUser>| {
            json!({
                "path": server.path().to_string_lossy(),
                "machine": server.frontend().map(|peer| peer.to_string()),
                "queues": server.queues(),
            })
        };
        of_device.map(stat).collect()
    }
}

/// The device and the path of `NAME=PATH` or of `PATH`. What looks like a path is one, although it
/// may have the sign.
fn split<'a>(
    text: &'a OsString,
    first: &'a str,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(&'a str, &'a OsStr), Failure> {
    let bytes = text.as_bytes();
    let Some(at) = bytes.iter().position(|&byte| byte == b'=') else { return Ok((first, text)) };
    let (name, path) = (&bytes[..at], OsStr::from_bytes(&bytes[at + 1..]));
    if name.contains(&b'/') {
        return Ok((first, text));
    }
    let known = names.find(|known| known.as_bytes() == name);
    let unknown = || {
        let name = String::from_utf8_lossy(name);
        let hint = format!("or write ./{} if it is a path", text.to_string_lossy());
        Failure::Usage(format!("{OPTION}: there is no device {name:?}; add it by --export, {hint}"))
    };
    known.map(|name| (name, path)).ok_or_else(unknown)
}

/// Where a machine finds its disk, and what to paste.
fn announcement(name: &str, path: &Path) -> String {
    format!(
        "{name}: for a virtual machine at {}; QEMU, with shared memory: -chardev \
         socket,id={name},path={} -device vhost-user-blk-pci,chardev={name}",
        path.display(),
        shell::word(path)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_of_the_device_that_is_named_or_of_the_first() {
        let names = || ["zram0", "data"].into_iter();
        for (text, name, path) in [
            ("/run/a", "zram0", "/run/a"),
            ("data=/run/a", "data", "/run/a"),
            ("zram0=a=b", "zram0", "a=b"),
            ("/run/a=b", "zram0", "/run/a=b"),
            ("./data=b", "zram0", "./data=b"),
        ] {
            let text = OsString::from(text);
            let split = split(&text, "zram0", names()).unwrap();
            assert_eq!(split, (name, OsStr::new(path)), "{text:?}");
        }
        let wrong = OsString::from("logs=/run/a");
        let Err(Failure::Usage(why)) = split(&wrong, "zram0", names()) else { panic!("no logs") };
        assert!(why.contains("no device \"logs\"") && why.contains("./logs=/run/a"), "{why}");
    }

    #[test]
    fn what_is_to_be_pasted_is_there() {
        let line = announcement("a", Path::new("/run/a b"));
        let expected = "-chardev socket,id=a,path='/run/a b' -device vhost-user-blk-pci,chardev=a";
        assert!(line.ends_with(expected), "{line}");
    }
}
