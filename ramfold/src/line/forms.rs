//! Forms that words of the command line have: names, addresses, numbers.
//!
//! Invariant: a refusal says what would be right. Locks: none.

/// Checks a device's name, which becomes a file name and a part of addresses.
pub(super) fn device_name(text: &str) -> Result<String, String> {
    const LEN_MAX: usize = 64;
    let plain = |c: char| c.is_alphanumeric() || "-_.+@:".contains(c);
    // A device called `x.sock` would answer instead of the device `x`, whose sockets are x.sock and
    // x.ctl. The tree has files of its own with the other names.
    let taken = text.ends_with(".sock")
        || text.ends_with(".ctl")
        || ["zram-control", "buddyinfo", "pagetypeinfo"].contains(&text);
    let sized = !text.is_empty() && text.len() <= LEN_MAX && !taken;
    if !sized || text.starts_with(['.', '-']) || !text.chars().all(plain) {
        return Err(format!(
            "{text:?} is not a name for a device; use up to {LEN_MAX} letters and digits, and \
             after the first also - _ . + @ :, but no .sock or .ctl at the end, and no name that \
             the tree has for its own files"
        ));
    }
    Ok(text.to_owned())
}

/// Checks the form of an address to listen on. The system resolves the host later.
pub(super) fn address(text: &str) -> Result<String, String> {
    let right = "an address is HOST:PORT, as in 127.0.0.1:10809";
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("{text:?}: {right}"))?;
    if digits(port).and_then(|port| port.parse::<u16>().ok()).is_none() {
        return Err(format!("{port:?} is no port from 0 to 65535; {right}"));
    }
    if host.is_empty() {
        return Err(format!(
            "{text:?} has no host; write 127.0.0.1:{port}, or 0.0.0.0:{port} with --tcp-anywhere"
        ));
    }
    Ok(text.to_owned())
}

/// The text if it has only digits. `parse` alone would accept a sign.
pub(super) fn digits(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)
}

pub(super) fn chain_order(text: &str) -> Result<u32, String> {
    let order = digits(text).and_then(|text| text.parse().ok());
    let order = order.filter(|&order| zsmalloc::ChainSize::from_order(order).is_some());
    order.ok_or_else(|| format!("there is no chain order {text:?}; it is 0 to 4"))
}
