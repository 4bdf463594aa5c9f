//! Where a server listens: for NBD clients, and for `stat`, `set` and `check`.
//!
//! | given | NBD | control |
//! |---|---|---|
//! | nothing | `NAME.sock` in the runtime directory | `NAME.ctl` there |
//! | `--fuse` alone | none | `NAME.ctl` there |
//! | `--tcp` | the address | `NAME.ctl` there |
//! | `--unix PATH` | PATH | `PATH.ctl`, and `NAME.ctl` there |
//!
//! Invariant: a server with `--unix` or `--tcp` serves even if it has no place in the runtime
//! directory. If its name is taken there, it is listed as `NAME-PID`. If nothing can be made there,
//! it warns.
//!
//! Locks: none.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serve::control::{Control, Handler};
use serve::{Observer, ServeError, ServerConfig, runtime, shell};

use super::log::Log;
use crate::line::Failure;
use crate::line::args;

/// Where to listen.
pub(super) struct Doors {
    name: String,
    /// Whether there is an NBD server.
    pub(super) nbd: bool,
    unix: Option<PathBuf>,
    /// The control socket beside `--unix PATH`.
    beside: Option<PathBuf>,
    /// The runtime directory. `None` if it is not available and `--unix` or `--tcp` is given.
    directory: Option<PathBuf>,
    /// Whether `--unix` or `--tcp` says where it is.
    placed: bool,
}

impl Doors {
    /// The places that were typed, or else the runtime directory.
    pub(super) fn choose(args: &args::Serve, log: &Log) -> Result<Doors, Failure> {
        let placed = args.unix.is_some() || args.tcp.is_some();
        let own = args.unix.as_deref().map(own_socket).transpose()?;
        let directory = match runtime::prepare() {
            Ok(directory) => Some(directory),
            Err(error) if placed => {
                warn_unlisted(&error, log);
                None
            }
            Err(error) => return Err(error.into()),
        };
        let beside = own.as_deref().map(runtime::control_beside);
        let nbd = placed || args.fuse.is_none();
        let inside = directory.as_deref().filter(|_| !placed && nbd);
        let unix = own.or_else(|| Some(runtime::sockets(inside?, &args.name)?.0));
        let doors = Doors { name: args.name.clone(), nbd, unix, beside, directory, placed };
        doors.tell_of_killed(log);
        Ok(doors)
    }

    /// What the NBD server is started with.
    pub(super) fn config(&self, args: &args::Serve, observer: Observer) -> ServerConfig {
        let mut config = ServerConfig::new(&args.name);
        config.unix.extend(self.unix.clone());
        config.tcp.extend(args.tcp.clone());
        config.tcp_anywhere = args.tcp_anywhere;
        config.observer = observer;
        config
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
            Control::start(&places, Arc::clone(handler), observer.clone())
        };
        let listed = self.listed(&self.name);
        let error = match start(listed.clone()) {
            Ok(control) => return Ok((Some(control), self.target(listed, &self.name))),
            Err(error) => error,
        };
        let is_taken = matches!(&error, ServeError::InUse(path) if Some(path) == listed.as_ref());
        if !self.placed || self.beside.as_deref().is_some_and(|beside| is_about(&error, beside)) {
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
        let control = self.beside.is_some().then(|| start(None)).transpose()?;
        Ok((control, self.target(None, "TARGET")))
    }

    /// How commands name the server: as it is listed, or else by its socket.
    fn target(&self, listed: Option<PathBuf>, name: &str) -> String {
        match (listed, &self.unix) {
            (None, Some(unix)) => shell::word(unix),
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
        let ours = [&self.unix, &self.beside, &listed];
        let left = ours.into_iter().flatten();
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

/// Whether a server did not start because of this path.
fn is_about(error: &ServeError, path: &Path) -> bool {
    matches!(
        error,
        ServeError::InUse(at)
            | ServeError::NotASocket(at)
            | ServeError::PathTooLong(at)
            | ServeError::Unix { path: at, .. } if at == path
    )
}

fn warn_unlisted(error: &ServeError, log: &Log) {
    log.complain(format!("warning: ramfold stat will not list this server: {error}"));
}

/// The socket of `--unix` as an absolute path, so that its address is right in every directory.
fn own_socket(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).map_err(|error| Failure::about("--unix", error))?;
    if path.as_os_str().as_bytes().ends_with(runtime::CONTROL_SUFFIX.as_bytes()) {
        let why = "--unix: a path that ends in .ctl is that of a control socket";
        return Err(Failure::Usage(why.to_owned()));
    }
    check_length(&path)?;
    Ok(path)
}

/// Checks that the path of the control socket, which is longer, is not too long either.
fn check_length(unix: &Path) -> Result<(), Failure> {
    let most = runtime::SOCKET_PATH_MAX - runtime::CONTROL_SUFFIX.len();
    let len = unix.as_os_str().len();
    if len <= most {
        return Ok(());
    }
    let why = format!("too long for a socket: {len} bytes, and at most {most} leave room for .ctl");
    Err(Failure::Usage(format!("--unix: {} is {why}", unix.display())))
}
