//! Where a remote disk is: `nbd://HOST[:PORT]/NAME` or `nbd+unix:///NAME?socket=PATH`.
//!
//! The form is that of the NBD project's `doc/uri.md`. A byte may be written as `%XX`. Our own are
//! `?timeout=SECONDS` and `&timeout=SECONDS`.
//!
//! Invariant: text that is not of this form is refused with a reason. Locks: none.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

const TCP: &str = "nbd://";
const UNIX: &str = "nbd+unix://";
/// The port that is registered for NBD.
const PORT: u16 = 10809;
/// The longest name of an export that the protocol allows, in bytes.
const NAME_MAX: usize = 4096;
/// The longest time that a request may be given, in seconds.
const SECONDS_MAX: u64 = 3600;

/// Where a server is, and which of its disks is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) place: Place,
    pub(super) name: String,
    /// How long a request may take.
    pub(super) patience: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

/// Whether a text means to be an address, and not the path of a file.
pub(super) fn is_address(text: &str) -> bool {
    ["nbd:", "nbd+unix:", "nbds:", "nbds+unix:"].iter().any(|scheme| text.starts_with(scheme))
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Address, &'static str> {
        if text.starts_with("nbds") {
            return Err("TLS is not supported; a tunnel can carry the connection");
        }
        match (text.strip_prefix(UNIX), text.strip_prefix(TCP)) {
            (Some(rest), _) => unix(rest),
            (_, Some(rest)) => tcp(rest),
            _ => Err("an address is nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH"),
        }
    }
}

fn unix(rest: &str) -> Result<Address, &'static str> {
    let (name, query) = rest.split_once('?').ok_or("the address has no ?socket=PATH")?;
    let name = name.strip_prefix('/').ok_or("an address of this kind begins with nbd+unix:///")?;
    let socket = value(query, "socket=").filter(|path| !path.is_empty());
    let socket = socket.ok_or("the address has no ?socket=PATH")?;
    let path = PathBuf::from(OsString::from_vec(unescape(socket)?));
    if !path.is_absolute() {
        return Err("the path of a socket begins with /");
    }
    known(query, &["socket=", "timeout="])?;
    Ok(Address { place: Place::Unix(path), name: export(name)?, patience: patience(query)? })
}

fn tcp(rest: &str) -> Result<Address, &'static str> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match host.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((host, port)) if !port.ends_with(']') => {
            (host, digits(port).ok_or("the port is no number from 0 to 65535")?)
        }
        _ => (host, PORT),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err("the address has no host");
    }
    known(query, &["timeout="])?;
    let place = Place::Tcp { host: host.to_owned(), port };
    Ok(Address { place, name: export(name)?, patience: patience(query)? })
}

/// What a query says of a name that ends in `=`.
fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name))
}

/// A typing error should not change what is meant.
fn known(query: &str, names: &[&str]) -> Result<(), &'static str> {
    let is_known = |pair: &str| pair.is_empty() || names.iter().any(|name| pair.starts_with(name));
    let known = query.split('&').all(is_known);
    known
        .then_some(())
        .ok_or("after ? there are only socket=PATH, with nbd+unix, and timeout=SECONDS")
}

/// A number without a sign.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn patience(query: &str) -> Result<Option<Duration>, &'static str> {
    let Some(text) = value(query, "timeout=") else { return Ok(None) };
    let seconds = digits(text).filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds.map(|seconds| Some(Duration::from_secs(seconds))).ok_or("the timeout is 1 to 3600 s")
}

fn export(name: &str) -> Result<String, &'static str> {
    let name = String::from_utf8(unescape(name)?).map_err(|_| "the name is not UTF-8")?;
    if name.len() > NAME_MAX { Err("the name is longer than 4096 bytes") } else { Ok(name) }
}

fn unescape(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let digits = tail.first_chunk::<2>().filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.ok_or("after % there are not two hexadecimal digits")?);
        rest = &tail[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, name: &str) -> Address {
        let place = Place::Tcp { host: host.to_owned(), port };
        Address { place, name: name.to_owned(), patience: None }
    }

    #[test]
    fn both_kinds_are_understood() {
        let place = Place::Unix("/run/a b.sock".into());
        let unix = Address { place, name: "zram0".to_owned(), patience: None };
        assert_eq!(Address::parse("nbd+unix:///zram0?socket=/run/a%20b.sock"), Ok(unix.clone()));
        let unix = Address { patience: Some(Duration::from_secs(7)), ..unix };
        let text = "nbd+unix:///zram0?timeout=7&socket=/run/a%20b.sock";
        assert_eq!(Address::parse(text), Ok(unix));
        let patient = Address { patience: Some(Duration::from_secs(60)), ..tcp("far", 7, "x") };
        assert_eq!(Address::parse("nbd://far:7/x?timeout=60"), Ok(patient));
        assert_eq!(Address::parse("nbd://far"), Ok(tcp("far", 10809, "")));
        assert_eq!(Address::parse("nbd://far:7/a/b"), Ok(tcp("far", 7, "a/b")));
        assert_eq!(Address::parse("nbd://[::1]:7/x"), Ok(tcp("::1", 7, "x")));
        assert_eq!(Address::parse("nbd://[::1]/"), Ok(tcp("::1", 10809, "")));
    }

    #[test]
    fn a_damaged_address_is_refused_with_a_reason() {
        for (text, why) in [
            ("nbd:x", "an address is"),
            ("nbd://", "no host"),
            ("nbd://h:x/", "the port"),
            ("nbd://h:70000/", "the port"),
            ("nbd://h/x?timeout=0", "timeout"),
            ("nbd://h/x?timeout=+5", "timeout"),
            ("nbd://h/x?tiemout=5", "only"),
            ("nbd://h/x?socket=/s", "only"),
            ("nbd+unix:///x?socket=/s&tls=1", "only"),
            ("nbd+unix:///x?socket=s", "begins with /"),
            ("nbd://h:+7/x", "the port"),
            ("nbd://h/x?timeout=", "timeout"),
            ("nbd+unix:///x?socket=/s&timeout=3601", "timeout"),
            ("nbd://h/%zz", "hexadecimal"),
            ("nbd://h/%e", "hexadecimal"),
            ("nbd://h/%ff", "UTF-8"),
            ("nbd+unix:///x", "no ?socket"),
            ("nbd+unix:///x?socket=", "no ?socket"),
            ("nbd+unix://x?socket=/s", "begins with"),
            ("nbds://h/x", "TLS"),
        ] {
            assert!(is_address(text), "{text}");
            let refused = Address::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        assert!(!is_address("/a/nbd:x") && !is_address("nbd"));
    }
}
