//! The connections of a service: which are served, which wait, and which make way.
//!
//! ```text
//!                       engage                      remove
//!   admit --> Waiting <--------> Engaged -------------------------> gone
//!     |          |       wait
//!     |          '-- displaced by another, after PATIENCE --> Displaced --> gone
//!     '--> Refused: is told why ----------------------------------------> gone
//! ```
//!
//! A connection waits during its handshake, and a control connection also between two questions. If
//! all places are taken, the connection that has waited longest makes way for a new one. An engaged
//! connection never makes way, because a file system may be behind it.
//!
//! Invariants: at most `most` connections wait or are engaged, and at most `REFUSALS_MAX` are being
//! refused.
//!
//! Locks: none. The service has a lock around the whole list.

use super::event::Refused;
use super::peer::{Client, Peer};
use super::socket::Socket;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection that has waited for less than this is not displaced, because it may be about to
/// ask.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many connections can be told at the same time why they are not let in. One more is closed.
const REFUSALS_MAX: usize = 8;

/// How many connections a service takes, and what it does if there are no descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// How many connections are served at a time.
    pub(crate) most: usize,
    /// Whether a connection on a descriptor of the reserve is served.
    pub(crate) serves_from_reserve: bool,
}

/// All connections of a service.
#[derive(Default)]
pub(crate) struct Guests {
    next: u64,
    list: BTreeMap<u64, Guest>,
}

struct Guest {
    socket: Arc<Socket>,
    peer: Peer,
    stage: Stage,
}

enum Stage {
    Waiting(Instant),
    Engaged(String),
    Displaced,
    Refused,
}

/// What becomes of a new connection.
pub(crate) struct Admission {
    /// Its number; `None` if it is to be closed without a word.
    pub(crate) number: Option<u64>,
    /// Why it is not served.
    pub(crate) refused: Option<Refused>,
    /// The client that made way for it.
    pub(crate) displaced: Option<Peer>,
    /// The client that has most connections, if that is the reason.
    pub(crate) busiest: Option<(Peer, usize)>,
}

impl Guests {
    /// Lists a new connection. `scarce` says that it has a descriptor of the reserve.
    pub(crate) fn admit(
        &mut self,
        socket: Arc<Socket>,
        peer: Peer,
        places: &Places,
        scarce: bool,
    ) -> Admission {
        let is_full = self.served().count() >= places.most;
        let displaced = if is_full || scarce { self.displace() } else { None };
        let refused = match (displaced, is_full, scarce && !places.serves_from_reserve) {
            (None, true, _) => Some(Refused::Full { most: places.most }),
            (None, _, true) => Some(Refused::NoDescriptor),
            _ => None,
        };
        let busiest = refused.and_then(|_| self.busiest());
        let stage = match refused {
            Some(_) if self.refused() >= REFUSALS_MAX => {
                return Admission { number: None, refused, displaced, busiest };
            }
            Some(_) => Stage::Refused,
            None => Stage::Waiting(Instant::now()),
        };
        let number = self.next;
        self.next += 1;
        self.list.insert(number, Guest { socket, peer, stage });
        Admission { number: Some(number), refused, displaced, busiest }
    }

    /// Notes that a connection begins its work. False if it has made way for another meanwhile.
    pub(crate) fn engage(&mut self, number: u64, what: &str) -> bool {
        let Some(guest) = self.list.get_mut(&number) else { return false };
        let waits = matches!(guest.stage, Stage::Waiting(_));
        if waits {
            guest.stage = Stage::Engaged(what.to_owned());
        }
        waits
    }

    /// Notes that a connection is done with what it asked for.
    pub(crate) fn wait(&mut self, number: u64) {
        if let Some(guest) = self.list.get_mut(&number) {
            guest.stage = Stage::Waiting(Instant::now());
        }
    }

    /// Whether a connection made way for another.
    pub(crate) fn is_displaced(&self, number: u64) -> bool {
        self.list.get(&number).is_some_and(|guest| matches!(guest.stage, Stage::Displaced))
    }

    /// Takes a connection off the list.
    pub(crate) fn remove(&mut self, number: u64) {
        self.list.remove(&number);
    }

    /// How many connections there are, with those that are about to end.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// How many connections are engaged in `what`.
    pub(crate) fn engaged_in(&self, what: &str) -> usize {
        let is_in = |guest: &&Guest| matches!(&guest.stage, Stage::Engaged(it) if it == what);
        self.list.values().filter(is_in).count()
    }

    /// All sockets.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.list.values().map(|guest| &*guest.socket)
    }

    fn served(&self) -> impl Iterator<Item = &Guest> {
        let is_served = |stage: &Stage| matches!(stage, Stage::Waiting(_) | Stage::Engaged(_));
        self.list.values().filter(move |guest| is_served(&guest.stage))
    }

    fn refused(&self) -> usize {
        self.list.values().filter(|guest| matches!(guest.stage, Stage::Refused)).count()
    }

    /// Ends the input of the connection that has waited longest.
    fn displace(&mut self) -> Option<Peer> {
        let since = |guest: &Guest| match guest.stage {
            Stage::Waiting(since) => Some(since),
            _ => None,
        };
        let waiting = self.list.values_mut().filter(|guest| since(guest).is_some());
        let oldest = waiting.min_by_key(|guest| since(guest))?;
        if since(oldest).is_none_or(|since| since.elapsed() < PATIENCE) {
            return None;
        }
        oldest.stage = Stage::Displaced;
        oldest.socket.end_input();
        Some(oldest.peer)
    }

    fn busiest(&self) -> Option<(Peer, usize)> {
        let mut counts = BTreeMap::<Client, (Peer, usize)>::new();
        for guest in self.served() {
            counts.entry(guest.peer.client()).or_insert((guest.peer, 0)).1 += 1;
        }
        counts.into_values().max_by_key(|&(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const PLACES: Places = Places { most: 2, serves_from_reserve: false };

    fn socket() -> Arc<Socket> {
        Arc::new(Socket::new(UnixStream::pair().unwrap().0.into()))
    }

    impl Guests {
        fn come(&mut self, pid: u32) -> Admission {
            self.admit(socket(), Peer::Process(pid), &PLACES, false)
        }

        /// Makes connections look as if time had passed.
        fn age(&mut self) {
            for guest in self.list.values_mut() {
                if let Stage::Waiting(since) = &mut guest.stage {
                    *since -= PATIENCE;
                }
            }
        }
    }

    #[test]
    fn who_has_waited_longest_makes_way_and_who_is_engaged_does_not() {
        let mut guests = Guests::default();
        let engaged = guests.come(1).number.unwrap();
        assert!(guests.engage(engaged, "zram0"));
        let idle = guests.come(2).number.unwrap();
        let third = guests.come(3);
        assert_eq!(third.refused, Some(Refused::Full { most: 2 }), "it may be about to ask");
        guests.remove(third.number.unwrap());
        guests.age();
        let fourth = guests.come(4);
        assert_eq!((fourth.refused, fourth.displaced), (None, Some(Peer::Process(2))));
        assert!(guests.is_displaced(idle) && !guests.engage(idle, "zram0"), "too late");
        assert!(guests.engage(fourth.number.unwrap(), "zram0"));
        guests.age();
        assert!(guests.come(5).refused.is_some(), "nobody waits");
        assert_eq!(guests.engaged_in("zram0"), 2);
        guests.wait(engaged);
        guests.age();
        assert_eq!(guests.come(6).displaced, Some(Peer::Process(1)), "done with its question");
    }

    #[test]
    fn of_two_that_wait_the_one_that_came_first_makes_way() {
        let mut guests = Guests::default();
        for pid in [1, 2] {
            assert!(guests.come(pid).refused.is_none());
            guests.age();
        }
        assert_eq!(guests.come(3).displaced, Some(Peer::Process(1)));
    }

    #[test]
    fn a_refusal_names_who_has_most_and_only_a_few_are_told() {
        let mut guests = Guests::default();
        for pid in [7, 7] {
            let number = guests.come(pid).number.unwrap();
            guests.engage(number, "zram0");
        }
        for _ in 0..REFUSALS_MAX {
            let refusal = guests.come(8);
            assert_eq!(refusal.busiest, Some((Peer::Process(7), 2)));
            assert!(refusal.number.is_some(), "it is told");
        }
        let silent = guests.come(8);
        assert!(silent.number.is_none() && silent.refused.is_some());
    }

    #[test]
    fn a_descriptor_of_the_reserve_serves_where_it_is_for_that() {
        let mut guests = Guests::default();
        let refused = guests.admit(socket(), Peer::Unknown, &PLACES, true).refused;
        assert_eq!(refused, Some(Refused::NoDescriptor));
        let serving = Places { serves_from_reserve: true, ..PLACES };
        assert_eq!(guests.admit(socket(), Peer::Unknown, &serving, true).refused, None);
    }
}
