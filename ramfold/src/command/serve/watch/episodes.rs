//! What is the matter now. Each thing is said once while it goes on.
//!
//! ```text
//!   occurs --> said, begun --occurs: counted--> ... --OVER_AFTER without one--> over
//!                  '-- goes on for REMIND_AFTER: said again, with the count
//! ```
//!
//! Invariant: at most `SAID_MAX` notices are said within `WINDOW`, and the others are counted. No
//! clock is read here, because the caller gives the time.
//!
//! Locks: none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::notice::{Notice, Subject};
use crate::line::size::count;

/// An episode is over if nothing occurs for so long.
const OVER_AFTER: Duration = Duration::from_secs(60);
/// An episode that goes on for so long is said again.
const REMIND_AFTER: Duration = Duration::from_secs(3600);
/// The most notices that are said within a window.
const SAID_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// What is the matter.
#[derive(Default)]
pub(super) struct Episodes {
    now: BTreeMap<Subject, Episode>,
    window: Option<Window>,
}

struct Episode {
    notice: Notice,
    said: Instant,
    last: Instant,
    times: u64,
}

struct Window {
    since: Instant,
    said: u32,
    left_out: u64,
}

impl Episodes {
    /// Notes that something occurs, and gives the line to say if it is to be said.
    pub(super) fn occurs(&mut self, notice: Notice, now: Instant) -> Option<String> {
        let line = match self.now.get_mut(&notice.subject()) {
            Some(episode) => {
                (episode.last, episode.times) = (now, episode.times + 1);
                if now.saturating_duration_since(episode.said) < REMIND_AFTER {
                    return None;
                }
                episode.said = now;
                episode.notice = notice;
                let times = count(episode.times, "time");
                format!("still: {} (noticed {times} so far)", episode.notice)
            }
            None => {
                let line = notice.to_string();
                let episode = Episode { said: now, last: now, times: 1, notice };
                self.now.insert(episode.notice.subject(), episode);
                line
            }
        };
        self.within_window(now).then_some(line)
    }

    /// Ends an episode. False if there was none.
    pub(super) fn ends(&mut self, subject: &Subject) -> bool {
        self.now.remove(subject).is_some()
    }

    /// Forgets episodes that are over. Gives the line to say about notices that were left out.
    pub(super) fn pass(&mut self, now: Instant) -> Option<String> {
        self.now.retain(|_, episode| now.saturating_duration_since(episode.last) < OVER_AFTER);
        let is_over = |window: &Window| now.saturating_duration_since(window.since) >= WINDOW;
        let left_out = self.window.take_if(|window| is_over(window))?.left_out;
        (left_out > 0)
            .then(|| format!("{} left out within a minute", count(left_out, "more notice")))
    }

    /// What is the matter now, one line each.
    pub(super) fn lines(&self) -> Vec<String> {
        self.now.values().map(|episode| episode.notice.to_string()).collect()
    }

    fn within_window(&mut self, now: Instant) -> bool {
        let window = self.window.get_or_insert(Window { since: now, said: 0, left_out: 0 });
        let is_within = window.said < SAID_MAX;
        if is_within {
            window.said += 1;
        } else {
            window.left_out += 1;
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serve::{Peer, Stall};

    fn stall(pid: u32) -> Notice {
        let silent = Duration::from_secs(5);
        Notice::ClientStalled { peer: Peer::Process(pid), stall: Stall::Answers, silent }
    }

    #[test]
    fn what_goes_on_is_said_once_and_again_after_an_hour() {
        let (mut episodes, start) = (Episodes::default(), Instant::now());
        let mut said = 0;
        for second in 0..4000 {
            let now = start + Duration::from_secs(second);
            said += usize::from(episodes.occurs(stall(1), now).is_some());
            episodes.pass(now);
            assert_eq!(episodes.lines().len(), 1);
        }
        assert_eq!(said, 2);
    }

    #[test]
    fn what_is_over_is_forgotten_and_said_when_it_begins_anew() {
        let (mut episodes, start) = (Episodes::default(), Instant::now());
        assert!(episodes.occurs(stall(1), start).is_some());
        episodes.pass(start + OVER_AFTER);
        assert!(episodes.lines().is_empty(), "nothing happened for a minute");
        assert!(episodes.occurs(stall(1), start + OVER_AFTER).is_some());
        assert!(episodes.ends(&Subject::stall_of(Peer::Process(1))));
        assert!(!episodes.ends(&Subject::stall_of(Peer::Process(1))), "it is over");
        assert!(episodes.occurs(stall(1), start + OVER_AFTER).is_some());
    }

    #[test]
    fn a_flood_is_cut_and_its_rest_counted() {
        let (mut episodes, start) = (Episodes::default(), Instant::now());
        let said = (0..1000).filter_map(|pid| episodes.occurs(stall(pid), start)).count();
        assert_eq!(said, SAID_MAX as usize);
        let rest = episodes.pass(start + WINDOW).expect("it is told");
        assert!(rest.contains("980 more notices"), "{rest}");
        assert_eq!(episodes.pass(start + WINDOW), None, "once");
    }
}
