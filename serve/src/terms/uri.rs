//! NBD addresses: `nbd+unix:///NAME?socket=PATH` and `nbd://HOST:PORT/NAME`. Every byte except
//! letters, digits and a few marks is written as `%XX`.
//!
//! Invariant: `socket_of` gives back the path that `unix` was given. Locks: none.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The beginning of an address that leads to a Unix socket.
pub(crate) const UNIX: &str = "nbd+unix://";

/// The address of an export at a Unix socket.
pub(crate) fn unix(name: &str, socket: &Path) -> String {
    format!("{UNIX}/{}?socket={}", escape(name.as_bytes()), escape(socket.as_os_str().as_bytes()))
}

/// The address of an export at a TCP address.
pub(crate) fn tcp(name: &str, address: SocketAddr) -> String {
    format!("nbd://{address}/{}", escape(name.as_bytes()))
}

/// The socket in an address of the Unix kind.
pub(crate) fn socket_of(uri: &str) -> Option<PathBuf> {
    let (_, query) = uri.strip_prefix(UNIX)?.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix("socket="))?;
    Some(PathBuf::from(OsString::from_vec(unescape(value)?))).filter(|p| !p.as_os_str().is_empty())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte)
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
        let uri = unix("zram0", Path::new("/run/a b.sock"));
        assert_eq!(uri, "nbd+unix:///zram0?socket=/run/a%20b.sock");
        let uri = tcp("x", "[::1]:10809".parse().unwrap());
        assert_eq!(uri, "nbd://[::1]:10809/x");
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
            prop_assert_eq!(socket_of(&unix(&name, &path)), Some(path));
        }

        #[test]
        fn no_text_confuses_the_parser(text in ".{0,60}") {
            let _ = socket_of(&format!("{UNIX}{text}"));
        }
    }
}
