//! NBD addresses: `nbd+unix:///NAME?socket=PATH` and `nbd://HOST:PORT/NAME`. Every byte except
//! letters, digits and a few marks is written as `%XX`. With TLS they begin with `nbds`, and name
//! the directory of the certificates as `tls-certificates=DIR`, which libnbd knows.
//!
//! Invariant: `socket_of` gives back the path that `unix` was given. Locks: none.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The beginning of an address that leads to a Unix socket.
const UNIX: &str = "nbd+unix://";
/// The same with TLS.
const UNIX_TLS: &str = "nbds+unix://";

/// The address of an export at a Unix socket.
pub(crate) fn unix(name: &str, socket: &Path, tls: Option<&Path>) -> String {
    let start = if tls.is_some() { UNIX_TLS } else { UNIX };
    let certificates = certificates(tls, '&');
    format!("{start}/{}?socket={}{certificates}", escape(name.as_bytes()), escape_path(socket))
}

/// The address of an export at a TCP address.
pub(crate) fn tcp(name: &str, address: SocketAddr, tls: Option<&Path>) -> String {
    let start = if tls.is_some() { "nbds" } else { "nbd" };
    format!("{start}://{address}/{}{}", escape(name.as_bytes()), certificates(tls, '?'))
}

/// Whether an address is of the Unix kind.
pub(crate) fn is_unix(uri: &str) -> bool {
    of_unix(uri).is_some()
}

/// What follows the beginning of an address of the Unix kind.
fn of_unix(uri: &str) -> Option<&str> {
    uri.strip_prefix(UNIX).or_else(|| uri.strip_prefix(UNIX_TLS))
}

fn certificates(tls: Option<&Path>, mark: char) -> String {
    tls.map_or_else(String::new, |path| format!("{mark}tls-certificates={}", escape_path(path)))
}

/// The socket in an address of the Unix kind.
pub(crate) fn socket_of(uri: &str) -> Option<PathBuf> {
    let (_, query) = of_unix(uri)?.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix("socket="))?;
    Some(PathBuf::from(OsString::from_vec(unescape(value)?))).filter(|p| !p.as_os_str().is_empty())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)
}

fn escape_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = tail.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit))?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_those_clients_take() {
        let (socket, address) = (Path::new("/run/a b.sock"), "[::1]:10809".parse().unwrap());
        let tls = Some(Path::new("/etc/p ki"));
        let uri = unix("zram0", socket, None);
        assert_eq!(uri, "nbd+unix:///zram0?socket=/run/a%20b.sock");
        let uri = unix("zram0", socket, tls);
        let expected = "nbds+unix:///zram0?socket=/run/a%20b.sock&tls-certificates=/etc/p%20ki";
        assert_eq!(uri, expected);
        assert_eq!(socket_of(&uri).as_deref(), Some(socket));
        assert_eq!(tcp("x", address, None), "nbd://[::1]:10809/x");
        assert_eq!(tcp("x", address, tls), "nbds://[::1]:10809/x?tls-certificates=/etc/p%20ki");
    }

    #[test]
    fn a_damaged_address_is_no_address() {
        for uri in ["nbd+unix:///x", "nbd+unix:///x?socket=", "nbd+unix:///x?socket=%4", "nbd:///"]
        {
            assert_eq!(socket_of(uri), None, "{uri}");
        }
        assert_eq!(socket_of("nbd+unix:///?a=b&socket=/s"), Some(PathBuf::from("/s")));
    }

    proptest! {
        #[test]
        fn any_path_survives(path in prop::collection::vec(1_u8.., 1..50), name in ".{0,20}") {
            let path = PathBuf::from(OsString::from_vec(path));
            prop_assert_eq!(socket_of(&unix(&name, &path, None)), Some(path));
        }

        #[test]
        fn no_text_confuses_the_parser(text in ".{0,60}") {
            let _ = socket_of(&format!("{UNIX}{text}"));
        }
    }
}
