//! Listening sockets that were passed to this process when it was started: systemd's socket
//! activation, which libnbd uses too.
//!
//! ```text
//!   LISTEN_PID=1234  LISTEN_FDS=2  LISTEN_FDNAMES=nbd:control
//!
//!   descriptor 3     named nbd, or the only one with another name or none    NBD clients
//!   descriptor 4     named control                                           stat, set, check
//! ```
//!
//! Invariants
//! - Variables that are meant for another process are left unread.
//! - A socket that was passed belongs to the process that made it: it is never shut down, and its
//!   path is never removed. That process may listen on it again later.
//! - No program that this process starts has the variables or the sockets.
//!
//! Locks: none.

use super::place::Place;
use crate::terms::ServeError;
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType, sockopt};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

const PID: &str = "LISTEN_PID";
const COUNT: &str = "LISTEN_FDS";
const NAMES: &str = "LISTEN_FDNAMES";

/// The most sockets that are taken. One of each kind is usual.
const SOCKETS_MAX: u16 = 64;

/// A listening socket that was passed to this process. A clone is the same socket.
#[derive(Clone)]
pub struct Passed {
    fd: Arc<OwnedFd>,
    place: Place,
}

/// All of them, by what they are for.
#[derive(Clone, Debug, Default)]
pub struct PassedSockets {
    /// For NBD clients.
    pub nbd: Vec<Passed>,
    /// For questions about the server. These are Unix sockets.
    pub control: Vec<Passed>,
}

impl PassedSockets {
    /// The sockets that the environment announces, if it announces them to this process. It also
    /// removes the variables, so it is called before there are threads.
    ///
    /// # Errors
    ///
    /// [`ServeError::Passed`] if the variables make no sense, or if a socket is not one that a
    /// server could listen on.
    pub fn take() -> Result<PassedSockets, ServeError> {
        let variables = [PID, COUNT, NAMES].map(env::var_os);
        if variables.iter().all(Option::is_none) {
            return Ok(PassedSockets::default());
        }
        let names = announced(variables, std::process::id()).map_err(ServeError::Passed)?;
        let forgotten = host::forget_variables(&[PID, COUNT, NAMES]);
        if names.is_empty() {
            return Ok(PassedSockets::default());
        }
        forgotten.map_err(|error| ServeError::Passed(format!("{COUNT}: {error}")))?;
        let count = names.len() as u16; // at most SOCKETS_MAX
        let descriptors = host::passed_descriptors(count).map_err(|error| {
            ServeError::Passed(format!("{COUNT} is {count}, but not all of them are open: {error}"))
        })?;
        let sockets = names.into_iter().zip(descriptors).enumerate();
        let sockets = sockets.map(|(at, (name, fd))| Named { number: at + 3, name, fd });
        sorted(sockets.collect()).map_err(ServeError::Passed)
    }
}

/// A descriptor with its name, which is empty if it has none.
struct Named {
    number: usize,
    name: String,
    fd: OwnedFd,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.name {
            "" => write!(f, "descriptor {}", self.number),
            name => write!(f, "descriptor {} ({name:?})", self.number),
        }
    }
}

/// The names of the sockets that are announced to process `own`, each empty without one.
fn announced(variables: [Option<OsString>; 3], own: u32) -> Result<Vec<String>, String> {
    let [pid, count, names] = variables;
    let Some(pid) = pid else { return Ok(Vec::new()) };
    match number::<u32>(&pid) {
        Some(pid) if pid != own => return Ok(Vec::new()),
        Some(_) => {}
        None => return Err(format!("{PID}: {pid:?} is not the number of a process")),
    }
    let count = count.ok_or_else(|| format!("{PID} names this process, but {COUNT} is not set"))?;
    let count =
        number::<u16>(&count).filter(|count| (1..=SOCKETS_MAX).contains(count)).ok_or_else(
            || format!("{COUNT}: {count:?} is not a count of 1 to {SOCKETS_MAX} sockets"),
        )?;
    let Some(names) = names else { return Ok(vec![String::new(); count.into()]) };
    let names = names.into_string().map_err(|names| format!("{NAMES}: {names:?} is not text"))?;
    let names: Vec<String> = names.split(':').map(str::to_owned).collect();
    if names.len() != usize::from(count) {
        return Err(format!("{COUNT} is {count}, but {NAMES} has {} names", names.len()));
    }
    Ok(names)
}

/// Digits and nothing else.
fn number<T: std::str::FromStr>(text: &OsStr) -> Option<T> {
    let text = text.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

fn sorted(sockets: Vec<Named>) -> Result<PassedSockets, String> {
    let is_only = sockets.len() == 1;
    let mut found = PassedSockets::default();
    for socket in sockets {
        let place = place_of(&socket.fd).map_err(|why| format!("{socket} {why}"))?;
        let is_tcp = matches!(place, Place::Tcp(_));
        let described = socket.to_string();
        let list = match &*socket.name {
            "control" if is_tcp => {
                return Err(format!("{described} is TCP, and control has no password: use Unix"));
            }
            "control" => {
                check_private(&place).map_err(|why| format!("{described} {why}"))?;
                &mut found.control
            }
            "nbd" => &mut found.nbd,
            _ if is_only => &mut found.nbd,
            _ => return Err(format!("{described} must be named nbd or control, in {NAMES}")),
        };
        list.push(Passed { fd: Arc::new(socket.fd), place });
    }
    Ok(found)
}

/// Control has no password, so only its owner may open its socket.
fn check_private(place: &Place) -> Result<(), String> {
    /// To connect is to write.
    const OTHERS_MAY_WRITE: u32 = 0o022;
    const _: () = assert!(OTHERS_MAY_WRITE & 0o200 == 0, "its owner may");
    let Place::Unix { path, .. } = place else {
        return Err("has no path, and anybody could open it: control has no password".to_owned());
    };
    let mode = fs::metadata(path).map_err(|error| format!("cannot be seen: {error}"))?.mode();
    if mode & OTHERS_MAY_WRITE != 0 {
        return Err(format!(
            "can be opened by others, and control has no password: SocketMode=0600, not {:04o}",
            mode & 0o7777
        ));
    }
    Ok(())
}

/// Where a socket listens, or what keeps clients from connecting to it.
fn place_of(fd: &OwnedFd) -> Result<Place, String> {
    let kind = sockopt::socket_type(fd).map_err(|_| "is not a socket")?;
    if kind != SocketType::STREAM {
        return Err("is not a stream socket, which NBD and control need".to_owned());
    }
    let failed = |error| format!("cannot be asked: {error}");
    if !sockopt::socket_acceptconn(fd).map_err(failed)? {
        return Err("does not listen; a connection (Accept=yes) is not served".to_owned());
    }
    let address = net::getsockname(fd).map_err(failed)?;
    match sockopt::socket_domain(fd).map_err(failed)? {
        AddressFamily::UNIX => Ok(unix_place(address)),
        AddressFamily::INET | AddressFamily::INET6 => {
            Ok(Place::Tcp(address.try_into().map_err(failed)?))
        }
        _ => Err("is neither a Unix socket nor TCP".to_owned()),
    }
}

fn unix_place(address: SocketAddrAny) -> Place {
    let address = SocketAddrUnix::try_from(address).ok();
    let Some(path) = address.as_ref().and_then(SocketAddrUnix::path) else {
        return Place::Unreachable;
    };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Place::Unix { path, ours: None }
}

impl Passed {
    /// Where it listens.
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// The path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Unix { path, .. } => Some(path),
            _ => None,
        }
    }
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Passed").field(&self.place).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

    fn told(pid: &str, count: Option<&str>, names: Option<&str>) -> Result<Vec<String>, String> {
        announced([Some(pid), count, names].map(|text| text.map(OsString::from)), 7)
    }

    #[test]
    fn what_is_meant_for_another_process_is_left_alone() {
        assert_eq!(told("8", Some("nonsense"), None), Ok(Vec::new()));
        let without = announced([None, Some("1".into()), None], 7);
        assert_eq!(without, Ok(Vec::new()), "systemd always says for which process");
    }

    #[test]
    fn variables_that_make_no_sense_are_named() {
        let rows = [
            ("", Some("1"), None, "LISTEN_PID: \"\" is not the number"),
            ("+7", Some("1"), None, "LISTEN_PID: \"+7\""),
            ("7", None, None, "LISTEN_FDS is not set"),
            ("7", Some("0"), None, "LISTEN_FDS: \"0\" is not a count"),
            ("7", Some("-1"), None, "LISTEN_FDS: \"-1\""),
            ("7", Some("two"), None, "LISTEN_FDS: \"two\""),
            ("7", Some(""), None, "LISTEN_FDS: \"\""),
            ("7", Some("65"), None, "1 to 64"),
            ("7", Some("99999999999999999999"), None, "1 to 64"),
            ("7", Some("2"), Some("nbd"), "LISTEN_FDNAMES has 1 names"),
        ];
        for (pid, count, names, expected) in rows {
            let error = told(pid, count, names).unwrap_err();
            assert!(error.contains(expected), "{pid:?} {count:?} {names:?}: {error}");
        }
        assert_eq!(
            told("7", Some("2"), Some("nbd:")).as_deref(),
            Ok(&["nbd", ""].map(String::from)[..])
        );
    }

    fn named(sockets: Vec<(&str, OwnedFd)>) -> Result<PassedSockets, String> {
        let sockets = sockets.into_iter().enumerate();
        let named = sockets.map(|(at, (name, fd))| Named { number: at + 3, name: name.into(), fd });
        sorted(named.collect())
    }

    fn tcp() -> OwnedFd {
        TcpListener::bind("127.0.0.1:0").unwrap().into()
    }

    fn unix(name: &str) -> OwnedFd {
        let name = format!("ramfold-passed-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        UnixListener::bind_addr(&address).unwrap().into()
    }

    /// At a path, with these rights of others. The file is gone when the value is.
    struct Placed(std::path::PathBuf);

    impl Placed {
        fn new(name: &str, mode: u32) -> (Placed, OwnedFd) {
            let name = format!("ramfold-passed-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_file(&path);
            let socket = UnixListener::bind(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            (Placed(path), socket.into())
        }
    }

    impl Drop for Placed {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_control_socket_is_its_owners_alone() {
        let (_kept, open) = Placed::new("open", 0o660);
        let refused = named(vec![("control", open)]).unwrap_err();
        assert!(refused.contains("SocketMode=0600, not 0660"), "{refused}");
        let refused = named(vec![("control", unix("abstract"))]).unwrap_err();
        assert!(refused.contains("control has no password"), "{refused}");
    }

    #[test]
    fn a_name_says_what_a_socket_is_for() {
        let ((_one, b), (_other, c)) = (Placed::new("b", 0o600), Placed::new("c", 0o600));
        let counts = |found: PassedSockets| (found.nbd.len(), found.control.len());
        let found = |sockets| named(sockets).map(counts);
        assert_eq!(found(vec![("", tcp())]), Ok((1, 0)));
        assert_eq!(found(vec![("ramfold.socket", unix("a"))]), Ok((1, 0)), "systemd's default");
        assert_eq!(found(vec![("control", b)]), Ok((0, 1)));
        let three = vec![("nbd", tcp()), ("control", c), ("nbd", unix("d"))];
        assert_eq!(found(three), Ok((2, 1)));
        let unnamed = named(vec![("nbd", tcp()), ("", tcp())]).unwrap_err();
        assert!(unnamed.contains("descriptor 4 must be named nbd or control"), "{unnamed}");
        let open = named(vec![("control", tcp())]).unwrap_err();
        assert!(open.contains("control has no password"), "{open}");
    }

    #[test]
    fn what_nobody_can_connect_to_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let rows: [(OwnedFd, &str); 4] = [
            (UdpSocket::bind("127.0.0.1:0").unwrap().into(), "not a stream socket"),
            (UnixDatagram::unbound().unwrap().into(), "not a stream socket"),
            (connection.into(), "does not listen"),
            (file.into(), "is not a socket"),
        ];
        for (fd, expected) in rows {
            let error = named(vec![("nbd", fd)]).unwrap_err();
            let is_named = error.starts_with("descriptor 3 (\"nbd\") ");
            assert!(is_named && error.contains(expected), "{error}");
        }
    }
}
