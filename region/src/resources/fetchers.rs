//! Threads that read from a cache's disk for a signal handler.
//!
//! ```text
//!   handler   group marked `fetching` --> request --.              ,--> looks at the group again
//!                                                   v              |
//!   fetcher                              waits --> read, COPY, raise `fetched`
//! ```
//!
//! A handler may interrupt any code, and so may everything that it calls. A disk that uses a
//! thread-local, a lock or the heap could meet itself half-way, or meet what the program was
//! changing. So a disk that is not a file is read here, where nothing is interrupted. A file is
//! read in the handler, by its descriptor and without its disk's code ([`Disk::file`]).
//!
//! If a disk touches a page that is on a disk, it waits for a fetcher while it occupies one, maybe
//! the last. [`is_fetcher`] detects that, and the process ends with a message.
//!
//! Invariant: for each request in the queue or with a fetcher, a thread waits in a fault, and that
//! thread borrows the region. So when a thread drops a region, no fetcher has it, or only one that
//! will soon let go.
//!
//! Lock: the queue's, of rank `Leaf`.
//!
//! [`Disk::file`]: disk::Disk::file

use host::fault::Vital;
use host::{Event, Lock, Rank};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Fetchers, and so reads that run at the same time.
const FETCHERS: usize = 4;
/// Requests of faulting threads that may wait for a fetcher. Further threads wait outside the
/// queue.
const REQUESTS: usize = 64;
/// How long a fetcher sleeps at a time if there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

thread_local! {
    /// Whether this thread is a fetcher. It is made at compile time and has no destructor, so that
    /// a signal handler may read it.
    static IS_FETCHER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is a fetcher.
pub(crate) fn is_fetcher() -> bool {
    IS_FETCHER.get()
}

/// An owner of pages on a disk: a region.
pub(crate) trait Fetching: Send + Sync + 'static {
    /// Reads pages that are `fetching` for a fault, and puts them in place.
    fn fetch_for_fault(&self, page: usize, count: usize);
}

/// Pages to be read, all `fetching`.
pub(crate) struct Request<R> {
    pub(crate) region: Arc<R>,
    pub(crate) page: usize,
    pub(crate) count: usize,
}

/// The threads. Dropping this ends them. No thread may be waiting for a page then.
pub(crate) struct Fetchers<R> {
    requests: Arc<Requests<R>>,
    threads: Vec<JoinHandle<()>>,
}

struct Requests<R> {
    queue: Lock<VecDeque<Request<R>>>,
    /// Raised when there is one more request, or when there will be no more.
    more: Event,
    stop: AtomicBool,
}

impl<R: Fetching> Fetchers<R> {
    /// Starts the threads.
    pub(crate) fn start() -> std::io::Result<Fetchers<R>> {
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
}

impl<R> Fetchers<R> {
    /// Asks for pages to be read. False if too many other requests wait. A signal handler may call
    /// this.
    pub(crate) fn ask(&self, request: Request<R>) -> bool {
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

impl<R> Drop for Fetchers<R> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `run`, so that a fetcher ends after what its owner did
        // until now.
        self.requests.stop.store(true, Ordering::Release);
        self.requests.more.raise();
        for thread in self.threads.drain(..) {
            // A fetcher that panics ends the process.
            drop(thread.join());
        }
    }
}

fn run<R: Fetching>(requests: &Requests<R>) {
    let vital = Vital::new("a thread that reads pages from a disk has failed");
    IS_FETCHER.set(true);
    // Acquire pairs with the Release in `drop`, so that a fetcher ends after what its owner did
    // before.
    while !requests.stop.load(Ordering::Acquire) {
        let seen = requests.more.seen();
        let next = requests.queue.lock().pop_front();
        match next {
            Some(Request { region, page, count }) => region.fetch_for_fault(page, count),
            None => requests.more.wait(seen, IDLE),
        }
    }
    vital.end();
}
