//! The handshake, fact by fact.
//!
//! Invariant of every test here: a refused option leaves the connection usable.

use crate::client::{Client, REP_ACK, bad};
use crate::fixture::{Fixture, SIZE};
use disk::{RamDisk, ReadOnly};
use std::io;
use std::sync::Arc;

const ERR_UNSUP: u32 = 1 << 31 | 1;
const ERR_POLICY: u32 = 1 << 31 | 2;
const ERR_INVALID: u32 = 1 << 31 | 3;
const ERR_UNKNOWN: u32 = 1 << 31 | 6;
const ERR_TOO_BIG: u32 = 1 << 31 | 9;

fn greeted(fixture: &Fixture) -> Client {
    Client::greeted(fixture.path(), 3).expect("the server greets")
}

/// The type of the only reply.
fn only(replies: io::Result<Vec<(u32, Vec<u8>)>>) -> u32 {
    let replies = replies.expect("the option is answered");
    assert_eq!(replies.len(), 1, "one reply is expected: {replies:?}");
    replies[0].0
}

fn name_and(name: &[u8], rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name, rest].concat()
}

#[test]
fn go_tells_size_flags_names_and_block_sizes() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    let replies = client.go("ram").unwrap();
    assert_eq!((client.size, client.flags), (SIZE, 0b1101_0110_1101), "size and flags");
    let sizes = [&[0, 3][..], &[0, 0, 0, 1], &[0, 0, 16, 0], &[2, 0, 0, 0]].concat();
    let expected = [(3, b"\0\x01ram".to_vec()), (3, b"\0\x02plain memory".to_vec()), (3, sizes)];
    assert_eq!(replies[1..4], expected);
    assert_eq!(replies[4..], [(REP_ACK, Vec::new())]);
    client.read(0, 1).expect("transmission follows");
}

#[test]
fn info_tells_only_what_was_asked_for_and_does_not_choose() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    let replies = client.option(6, &name_and(b"", &[0, 0])).unwrap();
    assert_eq!(replies.len(), 2, "the export and ACK: {replies:?}");
    client.go("").expect("haggling goes on");
    client.read(0, 1).expect("transmission follows");
}

#[test]
fn flags_say_read_only_and_unfragmented_where_it_applies() {
    let disk = ReadOnly::new(RamDisk::new(SIZE).unwrap());
    let fixture = Fixture::of(Arc::new(disk));
    assert_eq!(fixture.open(false).flags, 0b1101_0110_1111, "bit 1 is READ_ONLY");
    assert_eq!(fixture.open(true).flags, 0b1101_1110_1111, "bit 7 is SEND_DF");
}

#[test]
fn the_old_way_to_choose_works_with_and_without_zeros() {
    let fixture = Fixture::ram();
    for (flags, zeros) in [(1, 124), (3, 0), (0, 124)] {
        let mut client = Client::greeted(fixture.path(), flags).unwrap();
        client.send_option(1, b"ram").unwrap();
        let expected = [&SIZE.to_be_bytes()[..], &0b1101_0110_1101_u16.to_be_bytes()].concat();
        assert_eq!(client.bytes(10).unwrap(), expected);
        assert_eq!(client.bytes(zeros).unwrap(), vec![0; zeros]);
        client.read(0, 1).expect("transmission follows");
    }
}

#[test]
fn requests_may_follow_the_last_option_at_once() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    let ask = crate::client::Ask { kind: 3, cookie: 7, ..Default::default() };
    let option = [&crate::client::IHAVEOPT.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    client.line.write_all(&[option, crate::client::encode(&ask)].concat()).unwrap();
    client.bytes(10).unwrap();
    client.answer(&ask).expect("what came with the option was not lost");
}

#[test]
fn an_unknown_name_is_refused_or_ends_the_connection() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    assert_eq!(only(client.option(7, &name_and(b"rom", &[0, 0]))), ERR_UNKNOWN);
    client.go("ram").expect("another name may be tried");
    let mut client = greeted(&fixture);
    client.send_option(1, b"rom").unwrap();
    assert!(client.is_closed(), "the old way has no words for a refusal");
}

#[test]
fn list_shows_the_one_export() {
    let fixture = Fixture::ram();
    let replies = greeted(&fixture).option(3, &[]).unwrap();
    assert_eq!(replies, [(2, b"\0\0\0\x03ramplain memory".to_vec()), (REP_ACK, vec![])]);
}

#[test]
fn abort_is_acknowledged_before_the_end() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    assert_eq!(only(client.option(2, &[])), REP_ACK);
    assert!(client.is_closed());
}

#[test]
fn what_is_not_offered_is_refused_each_in_its_way() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    let go = |count, kinds: &[u8]| name_and(b"", &[&[0, count], kinds].concat());
    let rows = [
        (5, vec![], ERR_POLICY, "STARTTLS"),
        (11, vec![], ERR_UNSUP, "EXTENDED_HEADERS"),
        (4, vec![], ERR_UNSUP, "PEEK_EXPORT"),
        (u32::MAX, vec![1; 500], ERR_UNSUP, "an option nobody knows"),
        (3, vec![0], ERR_INVALID, "LIST with data"),
        (8, vec![0], ERR_INVALID, "STRUCTURED_REPLY with data"),
        (7, vec![], ERR_INVALID, "GO without data"),
        (7, go(1, &[]), ERR_INVALID, "GO with fewer kinds than it says"),
        (7, go(0, &[0, 1]), ERR_INVALID, "GO with more kinds than it says"),
        (6, vec![0xff; 6], ERR_INVALID, "INFO with a name beyond its end"),
        (7, name_and(&[b'x'; 4097], &[0, 0]), ERR_INVALID, "GO with too long a name"),
        (7, name_and(&[b'x'; 4096], &[0, 0]), ERR_UNKNOWN, "GO with the longest name"),
        (7, vec![0; (16 << 10) + 1], ERR_TOO_BIG, "GO with too much data"),
        (9, vec![0; 8], ERR_INVALID, "LIST_META_CONTEXT before STRUCTURED_REPLY"),
    ];
    for (option, data, expected, what) in rows {
        assert_eq!(only(client.option(option, &data)), expected, "{what}");
    }
    client.go("ram").expect("after all that, haggling goes on");
    client.read(0, 1).expect("and transmission follows");
}

#[test]
fn metadata_contexts_are_listed_and_chosen() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    client.ask_structured().unwrap();
    let context = |id: u32| (4, [&id.to_be_bytes()[..], b"base:allocation"].concat());
    let ack = (REP_ACK, Vec::new());
    let listed = client.option(9, &name_and(b"ram", &[0; 4])).unwrap();
    assert_eq!(listed, [context(0), ack.clone()], "no query lists everything");
    let query = [&1_u32.to_be_bytes()[..], &name_and(b"base:", &[])].concat();
    let listed = client.option(9, &name_and(b"ram", &query)).unwrap();
    assert_eq!(listed, [context(0), ack.clone()], "a namespace lists what is in it");
    let chosen = client.option(10, &name_and(b"ram", &query)).unwrap();
    assert_eq!(chosen, *std::slice::from_ref(&ack), "a namespace chooses nothing");
    assert_eq!(only(client.option(10, &name_and(b"rom", &query))), ERR_UNKNOWN);
    assert_eq!(only(client.option(10, &name_and(b"ram", &[0, 0, 0, 1]))), ERR_INVALID);
}

#[test]
fn choosing_again_replaces_the_choice() {
    let fixture = Fixture::ram();
    let mut client = greeted(&fixture);
    client.ask_structured().unwrap();
    let query = [&1_u32.to_be_bytes()[..], &name_and(b"base:allocation", &[])].concat();
    assert_eq!(client.option(10, &name_and(b"", &query)).unwrap().len(), 2);
    assert_eq!(client.option(10, &name_and(b"", &[0; 4])).unwrap().len(), 1);
    client.go("").unwrap();
    let refused = client.simple_call(crate::client::STATUS, 0, 4096).unwrap();
    assert_eq!(refused, crate::client::Answer::Error(22), "no context is chosen any more");
}

#[test]
fn nonsense_ends_the_connection() {
    let fixture = Fixture::ram();
    let mut client = Client::greeted(fixture.path(), 1 << 2).unwrap();
    assert!(client.is_closed(), "an unknown client flag");
    let mut client = greeted(&fixture);
    client.line.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(client.is_closed(), "not an option");
    let mut client = greeted(&fixture);
    let outcome = (0..1000).try_for_each(|_| match client.option(4, &[]) {
        Ok(_) => Ok(()),
        Err(_) => Err(bad("cut")),
    });
    assert!(outcome.is_err(), "a client may not haggle for ever");
    fixture.assert_well();
}
