//! Metadata contexts. There is one, `base:allocation`, and a client chooses it or not.
//!
//! Invariant: a choice is for one export, and a new choice replaces it even if it fails. Locks:
//! none.

use super::haggling::{Haggling, parse_name};
use super::transmission::{ALLOCATION_ID, End, wire};

/// The only context.
const ALLOCATION: &[u8] = b"base:allocation";
/// A query that lists the contexts of this prefix but chooses none.
const BASE: &[u8] = b"base:";

/// Answers `LIST_META_CONTEXT` or `SET_META_CONTEXT`. A choice is for one export. It replaces the
/// choice before, even if it fails.
pub(super) fn answer(client: &mut Haggling<'_, '_>, option: u32, data: &[u8]) -> Result<(), End> {
    let choosing = option == wire::OPT_SET_META_CONTEXT;
    if choosing {
        client.context_of = None;
    }
    if !client.structured {
        return client.refuse(option, wire::REP_ERR_INVALID, "ask for structured replies first");
    }
    let Some((name, found)) = parse(data, choosing) else {
        return client.refuse(option, wire::REP_ERR_INVALID, "malformed data");
    };
    let export = match client.open(name) {
        Ok(export) => export,
        Err(why) => return client.refuse(option, wire::REP_ERR_UNKNOWN, &why),
    };
    if found {
        client.context_of = choosing.then(|| export.name().to_owned()).or(client.context_of.take());
        let id = if choosing { ALLOCATION_ID } else { 0 };
        client.reply(option, wire::REP_META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION])?;
    }
    client.reply(option, wire::REP_ACK, &[])
}

/// `name_len(4) name count(4) count * (len(4) query)`: the name, and whether a query matches.
fn parse(data: &[u8], choosing: bool) -> Option<(&[u8], bool)> {
    let (name, rest) = parse_name(data)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let count = u32::from_be_bytes(*count);
    // Without a query, everything is listed, but nothing is chosen.
    let mut found = count == 0 && !choosing;
    for _ in 0..count {
        let (query, tail) = parse_name(rest)?;
        found |= query == ALLOCATION || (query == BASE && !choosing);
        rest = tail;
    }
    rest.is_empty().then_some((name, found))
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn data(queries: &[&[u8]]) -> Vec<u8> {
        let mut data = vec![0, 0, 0, 1, b'x'];
        data.extend((queries.len() as u32).to_be_bytes());
        for query in queries {
            data.extend((query.len() as u32).to_be_bytes());
            data.extend(*query);
        }
        data
    }

    #[test]
    fn queries_match_as_the_specification_says() {
        let rows: [(&[&[u8]], bool, bool); 5] = [
            (&[], true, false),
            (&[b"base:"], true, false),
            (&[b"base:allocation"], true, true),
            (&[b"base:allocatio"], false, false),
            (&[b"qemu:", b"base:allocation"], true, true),
        ];
        for (queries, listed, chosen) in rows {
            let data = data(queries);
            assert_eq!(parse(&data, false), Some((&b"x"[..], listed)), "listing {queries:?}");
            assert_eq!(parse(&data, true), Some((&b"x"[..], chosen)), "choosing {queries:?}");
        }
    }

    #[test]
    fn every_truncation_is_malformed() {
        let data = data(&[b"base:", b"base:allocation"]);
        for len in 0..data.len() {
            assert_eq!(parse(&data[..len], true), None, "{len} of {} bytes", data.len());
        }
        assert_eq!(parse(&[&data[..], b"x"].concat(), true), None, "one byte too many");
    }
}
