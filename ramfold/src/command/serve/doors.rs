//! Where a server listens: for NBD clients, for `stat`, `set` and `check`, and as a mounted tree.
//!
//! | given | NBD | control |
//! |---|---|---|
//! | nothing | `NAME.sock` in the runtime directory | `NAME.ctl` there |
//! | `--fuse`, `--vhost-user` or `--ublk` alone | none | `NAME.ctl` there |
//! | `--tcp` | the address | `NAME.ctl` there |
//! | `--unix PATH` | PATH | `PATH.ctl`, and `NAME.ctl` there |
//! | NBD sockets that were passed | these | none |
//! | `--run` | `nbd.sock` in a directory of its own | `nbd.sock.ctl` there |
//! | a control socket that was passed, `--control PATH` | as without | it as well |
//!
//! Invariants
//! - A server that was passed its NBD sockets, or runs for a command, touches the runtime directory
//!   neither for NBD nor for control, because it may be one of many that a script has.
//! - A server with `--unix` or `--tcp` serves even if it has no place in the runtime directory. If
//!   its name is taken there, it is listed as `NAME-PID`. If nothing can be made there, it warns.
//!
//! Locks: none.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serve::control::{Control, Handler};
use serve::fuse::{Complain, Fuse, FuseConfig, TextFile};
use serve::{Observer, PassedSockets, ServeError, ServerConfig, TlsConfig, runtime, shell};
use zram::Devices;

use super::page_types;
use super::watch::Log;
use crate::line::Failure;
use crate::line::args;
use crate::line::choices::IoUring;

/// Threads besides one for each CPU: one that always listens, and one that may wait for a disk
/// underneath.
const THREADS_BESIDES: usize = 2;
/// The most threads. More would only wait for each other.
const THREADS_MAX: usize = 16;

/// Where to listen.
pub(super) struct Doors {
    name: String,
    /// Whether there is an NBD server.
    pub(super) nbd: bool,
    unix: Option<PathBuf>,
    /// The control sockets beside `--unix PATH` and of `--control PATH`.
    beside: Vec<PathBuf>,
    /// Sockets that were passed to this process.
    passed: PassedSockets,
    /// The runtime directory. `None` if the server is not listed there: NBD sockets were passed, it
    /// runs for a command, or it is not available and `--unix` or `--tcp` is given.
    directory: Option<PathBuf>,
    /// Whether something says where NBD is.
    placed: bool,
}

impl Doors {
    /// The places that were typed or passed, or else the runtime directory.
    pub(super) fn choose(
        args: &args::Serve,
        passed: PassedSockets,
        private: Option<PathBuf>,
        log: &Log,
    ) -> Result<Doors, Failure> {
        if private.is_some() && !passed.nbd.is_empty() {
            let why = "--run: NBD sockets were passed to this server, and a command has its own";
            return Err(Failure::Usage(why.to_owned()));
        }
        let is_guest = private.is_some() || !passed.nbd.is_empty();
        let placed = args.unix.is_some() || args.tcp.is_some() || is_guest;
        let asked = private.as_deref().map(|path| (path, "--run"));
        let asked = asked.or(args.unix.as_deref().map(|path| (path, "--unix")));
        let own = asked.map(|(path, option)| own_socket(path, option)).transpose()?;
        let directory = if is_guest { None } else { listing(placed, log)? };
        let control = args.control.as_deref().map(own_control).transpose()?;
        let beside = own.as_deref().map(runtime::control_beside);
        let beside = beside.into_iter().chain(control).collect();
        let others = [
            ("--fuse", args.fuse.is_some()),
            ("--vhost-user", !args.vhost_user.is_empty()),
            ("--ublk", !args.ublk.is_empty()),
        ];
        let other = others.iter().find(|(_, given)| *given).map(|(option, _)| *option);
        let nbd = placed || other.is_none();
        if let Some(other) = other.filter(|_| !nbd && args.tls.is_given()) {
            let why =
                format!("--tls: with {other} alone there is no NBD; give --unix or --tcp too");
            return Err(Failure::Usage(why));
        }
        let inside = directory.as_deref().filter(|_| !placed && nbd);
        let unix = own.or_else(|| Some(runtime::sockets(inside?, &args.name)?.0));
        let name = args.name.clone();
        let doors = Doors { name, nbd, unix, beside, passed, directory, placed };
        doors.tell_of_killed(log);
        Ok(doors)
    }

    /// What the NBD server is started with.
    pub(super) fn config(
        &self,
        args: &args::Serve,
        default_export: &str,
        observer: Observer,
        log: &Log,
    ) -> Result<ServerConfig, Failure> {
        let mut config = ServerConfig::new(default_export);
        config.unix.extend(self.unix.clone());
        config.tcp.extend(args.tcp.clone());
        config.tcp_anywhere = args.tcp_anywhere;
        config.passed.extend(self.passed.nbd.clone());
        config.tls = args.tls.config()?;
        config.observer = observer;
        warn_of_tls(args, config.tls.as_ref(), log);
        Ok(config)
    }

    /// What the command of `--run` has in its environment, besides what the server has.
    pub(super) fn variables(
        &self,
        uris: &[String],
        default_export: &str,
    ) -> [(&'static str, OsString); 4] {
        let uri = OsString::from(uris.first().map_or("", String::as_str));
        let socket = self.unix.clone().unwrap_or_default().into_os_string();
        let export = OsString::from(default_export);
        [("uri", uri.clone()), ("nbd", uri), ("unixsocket", socket), ("exportname", export)]
    }

    /// Opens the control sockets. It also gives the TARGET by which `stat`, `set` and `check` find
    /// the server.
    pub(super) fn open_control(
        &self,
        handler: &Arc<Handler>,
        observer: &Observer,
        log: &Log,
    ) -> Result<(Option<Control>, String), Failure> {
        let start = |listed: Option<PathBuf>| {
            let places: Vec<PathBuf> = listed.into_iter().chain(self.beside.clone()).collect();
            let passed = &self.passed.control;
            Control::start(&places, passed, Arc::clone(handler), observer.clone())
        };
        let listed = self.listed(&self.name);
        let error = match start(listed.clone()) {
            Ok(control) => return Ok((Some(control), self.target(listed, &self.name))),
            Err(error) => error,
        };
        let is_taken = matches!(&error, ServeError::InUse(path) if Some(path) == listed.as_ref());
        if !self.placed || self.beside.iter().any(|beside| is_about(&error, beside)) {
            return Err(error.into());
        }
        if is_taken {
            let other = format!("{}-{}", self.name, std::process::id());
            let listed = self.listed(&other);
            if let Ok(control) = start(listed.clone()) {
                let name = &self.name;
                log.mention(format!(
                    "{name}: another server has this name; ramfold stat finds this one as {other}"
                ));
                return Ok((Some(control), self.target(listed, &other)));
            }
        }
        warn_unlisted(&error, log);
        Ok((Some(start(None)?), self.target(None, "TARGET")))
    }

    /// How commands name the server: as it is listed, or else by a socket.
    fn target(&self, listed: Option<PathBuf>, name: &str) -> String {
        let passed = self.passed.control.iter().find_map(|socket| socket.path());
        let sockets = [self.unix.as_deref(), self.beside.first().map(PathBuf::as_path), passed];
        match (listed, sockets.into_iter().flatten().next()) {
            (None, Some(socket)) => shell::word(socket),
            _ => name.to_owned(),
        }
    }

    /// The control socket in the runtime directory.
    fn listed(&self, name: &str) -> Option<PathBuf> {
        Some(runtime::sockets(self.directory.as_deref()?, name)?.1)
    }

    /// Tells if the server that was here before was killed.
    fn tell_of_killed(&self, log: &Log) {
        let listed = self.listed(&self.name);
        let left = self.unix.iter().chain(&self.beside).chain(&listed);
        // If a socket cannot be removed, making this server's socket will fail and say why.
        let killed = left.filter(|path| runtime::clear_abandoned(path).unwrap_or(false)).count();
        if killed > 0 {
            log.complain(format!(
                "{}: the server that was here before was killed; what it stored is gone",
                self.name
            ));
        }
    }
}

/// Mounts the tree, which has at least two threads.
pub(super) fn mount(
    directory: &Path,
    io_uring: IoUring,
    devices: &Arc<Devices>,
    log: &Log,
) -> Result<Arc<Fuse>, Failure> {
    let of = |text: fn(&zsmalloc::Memory) -> String| {
        let devices = Arc::clone(devices);
        Arc::new(move || text(devices.memory())) as Arc<dyn Fn() -> String + Send + Sync>
    };
    let texts = vec![
        TextFile { name: "pagetypeinfo", mode: 0o400, text: of(page_types::text) },
        TextFile { name: "buddyinfo", mode: 0o444, text: of(page_types::buddy_text) },
    ];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let log = log.clone();
    let complain: Arc<Complain> = Arc::new(move |what: &str| log.complain(what));
    let config = FuseConfig {
        directory: directory.to_owned(),
        threads: (cpus + THREADS_BESIDES).min(THREADS_MAX),
        io_uring: io_uring == IoUring::Auto,
        texts,
        complain,
    };
    Ok(Arc::new(Fuse::mount(Arc::clone(devices), config)?))
}

/// The runtime directory, or `None` if it is not available and the server has another place.
fn listing(placed: bool, log: &Log) -> Result<Option<PathBuf>, Failure> {
    match runtime::prepare() {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if placed => {
            warn_unlisted(&error, log);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a server did not start because of this path, or of the directory that it is in.
fn is_about(error: &ServeError, path: &Path) -> bool {
    matches!(
        error,
        ServeError::InUse(at)
            | ServeError::NotASocket(at)
            | ServeError::PathTooLong(at)
            | ServeError::Unix { path: at, .. } if at == path || Some(&**at) == path.parent()
    )
}

/// Says what is allowed and yet not safe, or does not work.
fn warn_of_tls(args: &args::Serve, tls: Option<&TlsConfig>, log: &Log) {
    if args.tcp_anywhere && !tls.is_some_and(|tls| tls.required) {
        log.complain(
            "warning: --tcp-anywhere without TLS: everybody who reaches this address may read and \
             write the disk, in the clear; --tls-certificates DIR encrypts it",
        );
    }
    if let Some(tls) = tls.filter(|tls| tls.is_signed().is_ok_and(|signed| !signed)) {
        log.complain(format!(
            "warning: no authority in {} has signed server-cert.pem; clients that have the same \
             file refuse this server",
            tls.directory.join("ca-cert.pem").display()
        ));
    }
}

fn warn_unlisted(error: &ServeError, log: &Log) {
    log.complain(format!("warning: ramfold stat will not list this server: {error}"));
}

/// The socket of an option as an absolute path, so that its address is right in every directory.
pub(super) fn own_socket(path: &Path, option: &str) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).map_err(|error| Failure::about(option, error))?;
    if path.as_os_str().as_bytes().ends_with(runtime::CONTROL_SUFFIX.as_bytes()) {
        let why = "a path that ends in .ctl is that of a control socket";
        return Err(Failure::Usage(format!("{option}: {why}")));
    }
    check_length(&path, option)?;
    Ok(path)
}

/// The socket of `--control`. `stat`, `set` and `check` know a control socket by the end of its
/// name.
fn own_control(path: &Path) -> Result<PathBuf, Failure> {
    if !path.as_os_str().as_bytes().ends_with(runtime::CONTROL_SUFFIX.as_bytes()) {
        let why = "the path of a control socket ends in .ctl";
        return Err(Failure::Usage(format!("--control: {}: {why}", path.display())));
    }
    std::path::absolute(path).map_err(|error| Failure::about("--control", error))
}

/// Checks that the path of the control socket, which is longer, is not too long either.
fn check_length(unix: &Path, option: &str) -> Result<(), Failure> {
    let most = runtime::SOCKET_PATH_MAX - runtime::CONTROL_SUFFIX.len();
    let len = unix.as_os_str().len();
    if len <= most {
        return Ok(());
    }
    let why = format!("too long for a socket: {len} bytes, and at most {most} leave room for .ctl");
    Err(Failure::Usage(format!("{option}: {} is {why}", unix.display())))
}
