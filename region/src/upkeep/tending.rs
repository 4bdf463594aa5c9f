//! The thread that makes stored pages denser, for those regions of a pager that have tiers.
//!
//! ```text
//!   each region with tiers:   16 pages --> until its share of CPU time allows the next 16
//!                             all pages --> a quarter of an age
//! ```
//!
//! It is a thread of its own, because training takes longer than a limit may wait. It starts with
//! the first region that has tiers, and ends with the pager.
//!
//! Invariants
//! - Only this thread has the work on the tiers of a region, from the first time it sees it on.
//! - It holds a region for one turn at a time, because a thread that drops the region waits. It is
//!   in the region's gate for this work meanwhile (F3 of `folded`).
//! - It is inside before it holds a region. Otherwise it could wait for a fork, which waits for a
//!   thread that drops the region, which waits for this one.
//!
//! Locks: the gate of a region for this work, then those of a device, from `PostProcessing` on.

use crate::resources::Shared;
use crate::state::Folded;
use host::fork::go_inside;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zram::TierPass;

/// How long it waits at most, so that it sees new regions.
const LOOK: Duration = Duration::from_millis(250);

/// A region that has tiers.
struct Tended {
    folded: Weak<Folded>,
    pass: TierPass,
    /// When there is something to do.
    due: Instant,
}

pub(super) fn start(shared: Arc<Shared<Folded>>) -> std::io::Result<JoinHandle<()>> {
    host::thread::spawn("ramfold-tiers", move || {
        let (mut seen, mut tended) = (shared.over.seen(), Vec::new());
        while !shared.is_over() {
            tended.retain(|it: &Tended| it.folded.strong_count() > 0);
            let inside = go_inside();
            tended.extend(shared.alive().filter_map(Tended::of));
            drop(inside);
            let pauses = tended.iter_mut().map(|it| it.turn(&shared));
            let pause = pauses.min().unwrap_or(LOOK);
            if pause > Duration::ZERO {
                shared.over.wait(seen, pause);
            }
            seen = shared.over.seen();
        }
    })
}

impl Tended {
    /// A region that is seen for the first time and has tiers.
    fn of(folded: Arc<Folded>) -> Option<Tended> {
        let pass = folded.store.take_pass()?;
        Some(Tended { folded: Arc::downgrade(&folded), pass, due: Instant::now() })
    }

    /// Does a turn, if one is due. Returns how long to wait until it looks again.
    fn turn(&mut self, shared: &Shared<Folded>) -> Duration {
        let now = Instant::now();
        if self.due > now || shared.is_over() {
            return (self.due - now).min(LOOK);
        }
        // A fork waits for the turn, so that no lock of the device stays locked in the child.
        let _inside = go_inside();
        let Some(folded) = self.folded.upgrade() else { return LOOK };
        // A region that ends is not kept waiting.
        let Ok(pause) = folded.tend(|device| self.pass.turn(device)) else { return LOOK };
        self.due = Instant::now() + pause;
        pause.min(LOOK)
    }
}
