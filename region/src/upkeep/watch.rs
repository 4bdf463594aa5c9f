//! The thread that checks whether faults can be served at all.
//!
//! ```text
//!   every second    signals           a page is out: which threads block SIGBUS? whose handler?
//!                   a thread serves   does a page wait for the thread that waits for the page?
//! ```
//!
//! It is a thread of its own, because the pager's thread may be the one that waits. For example, it
//! may wait for the lock of a group while the thread that holds the lock waits for a page.
//!
//! Invariant: it takes no lock except that of the list of regions.

use crate::resources::{Count, Shared};
use crate::state::Folded;
use host::FaultMode;
use host::fault::{BlockedLooks, HandlerLooks, StuckLooks, Vital};
use std::io::{Write, stderr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it checks.
const EVERY: Duration = Duration::from_secs(1);

pub(super) fn start(shared: Arc<Shared<Folded>>) -> std::io::Result<JoinHandle<()>> {
    host::thread::spawn("ramfold-watch", move || {
        let vital = Vital::new("the thread that looks after faults has failed");
        let mut watch = Watch::of(&shared);
        let mut seen = shared.over.seen();
        while !shared.is_over() {
            shared.over.wait(seen, EVERY);
            if shared.over.seen() == seen {
                watch.look(&shared);
            }
            seen = shared.over.seen();
        }
        vital.end();
    })
}

/// What it saw at the last check.
struct Watch {
    blocked: BlockedLooks,
    handler: HandlerLooks,
    stuck: StuckLooks,
}

impl Watch {
    fn of(shared: &Shared<Folded>) -> Watch {
        Watch {
            blocked: BlockedLooks::of(shared.path.mode()),
            handler: HandlerLooks::default(),
            stuck: StuckLooks::default(),
        }
    }

    fn look(&mut self, shared: &Shared<Folded>) {
        if let Some(faults) = shared.fault_thread() {
            faults.look(&mut self.stuck);
        }
        if shared.path.mode() != FaultMode::Thread && is_folded(shared) {
            for line in self.blocked.look() {
                // Standard error may be closed.
                let _ = writeln!(stderr(), "ramfold: {line}");
            }
            self.handler.look(&shared.path);
        }
    }
}

/// Whether a page of any region is out.
fn is_folded(shared: &Shared<Folded>) -> bool {
    let out = [Count::Staged, Count::Stored];
    shared.alive().any(|folded| out.iter().any(|&count| folded.counters.read(count) > 0))
}

#[cfg(test)]
mod tests {
    use crate::{FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
    use host::fault::begin_call;
    use std::hint::black_box;
    use std::process::Command;
    use std::time::Duration;

    const CHILD: &str = "RAMFOLD_WATCH_CHILD";

    /// In a child, a thread touches a page of a group whose lock it holds. It does so in a call, as
    /// a signal handler of the program would. Checks how the child ends.
    fn touch_in_a_call(fault_mode: FaultMode, test: &str) {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
        let config = PagerConfig { fault_mode: Some(fault_mode), ..PagerConfig::default() };
        let Ok(pager) = Pager::new(memory, &config) else {
            return eprintln!("skipped: needs userfaultfd in this mode");
        };
        if std::env::var_os(CHILD).is_none() {
            let this = std::env::current_exe().expect("this test's path");
            let test = format!("upkeep::watch::tests::{test}");
            let child = Command::new(this).args([&test, "--exact"]).env(CHILD, "1").output();
            let words = String::from_utf8_lossy(&child.expect("a child").stderr).into_owned();
            return assert!(words.contains("in the middle of its own call"), "{words}");
        }
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(20));
            // The touch waits for ever.
            std::process::exit(1);
        });
        let mut region = Region::map(&pager, 1 << 18, &RegionConfig::default()).expect("one");
        region.as_mut_slice().fill(7);
        region.control().page_out(0..1 << 18).expect("out");
        let _call = begin_call();
        let _held = region.folded.lock(0).expect("registered");
        black_box(region.as_slice()[0]);
    }

    #[test]
    fn a_touch_in_the_middle_of_a_call_ends_the_process() {
        let test = "a_touch_in_the_middle_of_a_call_ends_the_process";
        touch_in_a_call(FaultMode::Signal, test);
    }

    /// Nothing noticed this once: the thread that serves waited for a lock of the thread that
    /// touched.
    #[test]
    fn so_does_one_that_another_thread_serves() {
        touch_in_a_call(FaultMode::Thread, "so_does_one_that_another_thread_serves");
    }
}
