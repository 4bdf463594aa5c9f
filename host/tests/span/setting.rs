//! The common parts of the tests of spans: 64 pages that can be moved and come back, a server for
//! them, and a child that is to be ended.

use ramfold_host::fault::{Asker, Served, Server, Watch, watch};
use ramfold_host::{FaultError, FaultPath, Staging, Transfer};
use ramfold_host::{FaultMode, PAGE_SIZE, Segment, Span, SpanMemory};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CHILD: &str = "RAMFOLD_SPAN_CHILD";

/// A userfaultfd; `None`, with a word, where the system has none for us: a test is skipped then.
pub(crate) fn path(mode: FaultMode) -> Option<Arc<FaultPath>> {
    match FaultPath::open(mode) {
        Ok(path) => Some(path),
        Err(
            error @ (FaultError::Denied { .. }
            | FaultError::Unsupported { .. }
            | FaultError::Unguarded { .. }),
        ) => {
            eprintln!("skipped: needs {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) struct Setting {
    pub(crate) span: Arc<Span>,
    pub(crate) memory: SpanMemory,
    pub(crate) staging: Arc<Staging>,
}

/// 64 registered pages, each filled with its number plus one.
pub(crate) fn setting() -> Option<Setting> {
    setting_in(FaultMode::Signal)
}

/// The same in another mode.
pub(crate) fn setting_in(mode: FaultMode) -> Option<Setting> {
    let path = path(mode)?;
    let (span, mut memory) = Span::reserve(&path, 64).expect("a span");
    let staging = Staging::reserve(&path, 2).expect("staging");
    for (number, page) in whole(&mut memory).chunks_mut(PAGE_SIZE).enumerate() {
        page.fill(number as u8 + 1);
    }
    span.register(0..64).expect("registered");
    Some(Setting { span, memory, staging })
}

impl Setting {
    /// Puts pages of one byte where pages are missing.
    pub(crate) fn fill(&self, first: usize, count: usize, byte: u8) -> Transfer {
        // SAFETY: no test has borrowed what it puts back, and none reads it before.
        unsafe { self.span.fill(first, &vec![byte; count * PAGE_SIZE]) }
    }
}

pub(crate) fn whole(memory: &mut SpanMemory) -> &mut [u8] {
    let len = memory.len();
    memory.bytes_mut(0..len).expect("nothing was given back")
}

/// Puts back pages full of one byte, and notes how many and which.
pub(crate) struct Filler {
    pub(crate) span: Arc<Span>,
    pub(crate) served: AtomicU64,
    pub(crate) which: AtomicU64,
}

impl Filler {
    pub(crate) fn of(span: &Arc<Span>) -> Arc<Filler> {
        let (served, which) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Filler { span: Arc::clone(span), served, which })
    }
}

// SAFETY: it changes atomics of its own and makes a system call.
unsafe impl Server for Filler {
    fn serve(&self, address: usize, _: Asker) -> Served {
        let Some(page) = self.span.page_at(address) else { return Served::Foreign };
        // relaxed: read by the thread that faulted, or not at all.
        self.served.fetch_add(1, Ordering::Relaxed);
        // relaxed: as above.
        self.which.fetch_or(1 << page, Ordering::Relaxed);
        // SAFETY: no test keeps what it has borrowed of a page that leaves, and none looks at the
        // page before this has put it back.
        match unsafe { self.span.fill(page, &[42; PAGE_SIZE]) }.stop {
            None => Served::Filled,
            Some(_) => Served::Present,
        }
    }

    fn let_go(&self) {
        self.span.let_go();
    }
}

/// A server for the pages of `at`, which are out.
pub(crate) fn served(at: &mut Setting) -> (Watch<'static>, Segment) {
    let filler = Filler::of(&at.span);
    served_by(at, filler)
}

/// The same with a server of the test's.
pub(crate) fn served_by(at: &mut Setting, server: Arc<dyn Server>) -> (Watch<'static>, Segment) {
    let watch = watch(at.span.range(), at.span.mode(), server).expect("watched");
    let mut segment = at.staging.take().expect("taken back").expect("free");
    assert_eq!(at.span.move_out(0, 64, &mut segment, 0).pages, 64);
    (watch, segment)
}

/// Runs one test in a child, where [`is_child`] is true: how it ended, and its last words.
pub(crate) fn in_a_child(test: &str) -> (Option<i32>, String) {
    run_in_a_child(test, "1")
}

fn run_in_a_child(test: &str, of: &str) -> (Option<i32>, String) {
    let this = std::env::current_exe().expect("this test's path");
    let child = Command::new(this).args([test, "--exact", "--nocapture"]).env(CHILD, of).output();
    let child = child.expect("a child");
    (child.status.signal(), String::from_utf8_lossy(&child.stderr).into_owned())
}

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// The same for a test that has a child for each mode.
pub(crate) fn in_a_child_in(mode: FaultMode, test: &str) -> (Option<i32>, String) {
    run_in_a_child(test, &format!("{mode:?}"))
}

/// Whether this is the child for `mode`; `None` in the child for another one.
pub(crate) fn is_child_in(mode: FaultMode) -> Option<bool> {
    match std::env::var(CHILD) {
        Ok(of) => (of == format!("{mode:?}")).then_some(true),
        Err(_) => Some(false),
    }
}
