//! Forms that words of the command line have: addresses, numbers.
//!
//! Invariant: a refusal says what would be right. Locks: none.

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
