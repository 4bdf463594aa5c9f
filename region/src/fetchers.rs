//! Threads that read from a cache's disk for a signal handler.
//!
//! ```text
//!   handler   group marked `fetching` --> request --.              ,--> looks at the group again
//!                                                   v              |
//!   fetcher                              waits --> read, COPY, raise `fetched`
//! ```
//!
//! A handler runs in the middle of any code, and so would what it calls: a disk that uses a
//! thread-local, a lock or the heap could meet itself, half-way, or what the program was changing.
//! So a disk that is not a file is read here, where nothing is interrupted. A file is read in the
//! handler, past its disk ([`Disk::file`]).
//!
//! A disk that touches a page which is on a disk would wait for a fetcher and is with one, maybe
//! the last: that ends the process with a word.
//!
//! Invariant: who is in the queue, or with a fetcher, has a thread waiting for it in a fault, which
//! borrows the region: whoever drops that finds no fetcher with it, or one that is about to let go.
//!
//! Lock: the queue's, of rank `Leaf`.
//!
//! [`Disk::file`]: disk::Disk::file

use crate::fault_in::{Arrived, Why};
use crate::folded::Folded;
use host::fault::Vital;
use host::{Event, Lock, Rank};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Reads at a time.
const FETCHERS: usize = 4;
/// Requests that wait for a fetcher, of threads that fault; more wait outside.
const REQUESTS: usize = 64;
/// How long to sleep at a time where there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

thread_local! {
    /// Whether this thread is a fetcher. Needs no making and no end: a handler may ask.
    static IS_FETCHER: Cell<bool> = const { Cell::new(false) };
}

/// Pages to be read, all `fetching`.
pub(crate) struct Request {
    pub(crate) folded: Arc<Folded>,
    pub(crate) page: usize,
    pub(crate) count: usize,
}

/// The threads. Dropping this ends them; nobody may be waiting for a page then.
pub(crate) struct Fetchers {
    requests: Arc<Requests>,
    threads: Vec<JoinHandle<()>>,
}

struct Requests {
    queue: Lock<VecDeque<Request>>,
    /// Raised when there is one more, or no more will be.
    more: Event,
    stop: AtomicBool,
}

impl Fetchers {
    /// Starts them.
    pub(crate) fn start() -> std::io::Result<Fetchers> {
        let queue = Lock::new(Rank::Leaf, VecDeque::with_capacity(REQUESTS));
        let requests = Requests { queue, more: Event::new(), stop: AtomicBool::new(false) };
        let mut fetchers = Fetchers { requests: Arc::new(requests), threads: Vec::new() };
        for _ in 0..FETCHERS {
            let requests = Arc::clone(&fetchers.requests);
            let thread = host::thread::spawn("ramfold-fetch", move || run(&requests))?;
            fetchers.threads.push(thread);
        }
        Ok(fetchers)
    }

    /// Has pages read; false where too many others wait. Fit for a signal handler.
    pub(crate) fn ask(&self, request: Request) -> bool {
        if IS_FETCHER.get() {
            request.folded.end("a disk touched a page that is on a disk", request.page);
        }
        let mut queue = self.requests.queue.lock();
        let room = queue.len() < REQUESTS;
        if room {
            queue.push_back(request);
        }
        drop(queue);
        self.requests.more.raise();
        room
    }
}

impl Drop for Fetchers {
    fn drop(&mut self) {
        // Pairs with the Acquire in `run`.
        self.requests.stop.store(true, Ordering::Release);
        self.requests.more.raise();
        for thread in self.threads.drain(..) {
            // It ends the process if it panics.
            drop(thread.join());
        }
    }
}

fn run(requests: &Requests) {
    let vital = Vital::new("a thread that reads pages from a disk has failed");
    IS_FETCHER.set(true);
    // Pairs with the Release in `drop`.
    while !requests.stop.load(Ordering::Acquire) {
        let seen = requests.more.seen();
        let next = requests.queue.lock().pop_front();
        match next {
            Some(Request { folded, page, count }) => {
                if let Arrived::Failed(why) = folded.bring_fetched(page, count, Why::Fault) {
                    folded.end(why, page);
                }
            }
            None => requests.more.wait(seen, IDLE),
        }
    }
    vital.end();
}
