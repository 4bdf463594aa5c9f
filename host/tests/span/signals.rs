//! Which thread serves a fault, and what happens to a fault that none can serve.

use crate::setting::{Filler, in_a_child, is_child, path, served, setting, whole};
use ramfold_host::fault::{Asker, FaultThread, Served, Server, watch};
use ramfold_host::{FaultMode, PAGE_SIZE, Span};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn a_touch_is_served_in_the_thread_that_touches() {
    let Some(mut at) = setting() else { return };
    let filler = Filler::of(&at.span);
    let _watch =
        watch(at.span.range(), at.span.mode(), Arc::<Filler>::clone(&filler)).expect("watched");
    let mut segment = at.staging.take().expect("taken back").expect("free");
    at.span.move_out(0, 64, &mut segment, 0);
    assert_eq!(whole(&mut at.memory)[33 * PAGE_SIZE + 100], 42);
    whole(&mut at.memory)[34 * PAGE_SIZE] = 1;
    assert_eq!(whole(&mut at.memory)[34 * PAGE_SIZE..][..2], [1, 42]);
    // relaxed: this thread has served itself.
    let (served, which) =
        (filler.served.load(Ordering::Relaxed), filler.which.load(Ordering::Relaxed));
    assert_eq!((served, which), (2, 1 << 33 | 1 << 34));
}

struct Panicking;

// SAFETY: it breaks its promise in a child that touches its page in the middle of nothing, with
// neither the allocator nor a stream taken apart.
unsafe impl Server for Panicking {
    fn serve(&self, _: usize, _: Asker) -> Served {
        panic!("as this server does")
    }
}

/// What becomes of a process whose server panics, read from a child that runs `test`.
fn panic_in_a_server(mode: FaultMode, test: &str) {
    let Some(path) = path(mode) else { return };
    if !is_child() {
        let (signal, words) = in_a_child(test);
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
        return assert!(words.contains("as this server does"), "{words}");
    }
    let (span, memory) = Span::reserve(&path, 1).expect("a span");
    span.register(0..1).expect("registered");
    let _watch = watch(span.range(), span.mode(), Arc::new(Panicking)).expect("watched");
    let serves = (mode == FaultMode::Thread).then(|| FaultThread::start(path));
    let _thread = serves.transpose().expect("a thread");
    let bytes = memory.bytes(0..1).expect("there");
    std::hint::black_box(bytes[0]);
}

#[test]
fn a_server_that_panics_in_the_handler_ends_the_process() {
    let test = "signals::a_server_that_panics_in_the_handler_ends_the_process";
    panic_in_a_server(FaultMode::Signal, test);
}

#[test]
fn a_server_that_panics_in_its_thread_ends_the_process() {
    let test = "signals::a_server_that_panics_in_its_thread_ends_the_process";
    panic_in_a_server(FaultMode::Thread, test);
}

#[test]
fn touching_a_region_that_is_gone_ends_the_process() {
    let Some(mut at) = setting() else { return };
    if !is_child() {
        let (signal, words) =
            in_a_child("signals::touching_a_region_that_is_gone_ends_the_process");
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
        assert!(words.contains("touched after it was dropped at 0x"), "{words}");
        return;
    }
    let filler = Filler::of(&at.span);
    let watch = watch(at.span.range(), at.span.mode(), filler).expect("watched");
    at.memory.discard(0..1).expect("discarded");
    watch.retire();
    std::hint::black_box(whole(&mut at.memory)[0]);
}

#[test]
fn touching_it_ends_the_process_with_a_thread_that_serves_too() {
    let Some(path) = path(FaultMode::Thread) else { return };
    if !is_child() {
        let test = "signals::touching_it_ends_the_process_with_a_thread_that_serves_too";
        let (signal, words) = in_a_child(test);
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
        assert!(words.contains("touched after it was dropped at 0x"), "{words}");
        return;
    }
    let (span, mut memory) = Span::reserve(&path, 4).expect("a span");
    let filler = Filler::of(&span);
    let watch = watch(span.range(), span.mode(), filler).expect("watched");
    let _thread = FaultThread::start(path).expect("a thread");
    span.register(0..4).expect("registered");
    assert_eq!(whole(&mut memory)[5], 42, "served while it is there");
    watch.retire();
    std::hint::black_box(whole(&mut memory)[2 * PAGE_SIZE]);
}

#[test]
fn a_bus_error_that_is_not_ours_ends_the_process_as_without_us() {
    let Some(at) = setting() else { return };
    if !is_child() {
        let (signal, words) =
            in_a_child("signals::a_bus_error_that_is_not_ours_ends_the_process_as_without_us");
        assert_eq!(signal, Some(libc::SIGBUS), "{words}");
        return;
    }
    let filler = Filler::of(&at.span);
    let _watch = watch(at.span.range(), at.span.mode(), filler).expect("watched");
    // A page of a file that has none.
    let file = std::fs::File::open("/proc/self/exe").expect("a file");
    let past = 1 << 40;
    // SAFETY: a new mapping disturbs nobody.
    let page = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(std::ptr::null_mut(), PAGE_SIZE, libc::PROT_READ, libc::MAP_PRIVATE, fd, past)
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: mapped; reading it is what ends this process.
    std::hint::black_box(unsafe { page.cast::<u8>().read_volatile() });
}

/// What a SIGBUS does that a process sends, by what was to be done before there were regions.
fn is_sent_one(before: Option<usize>, test: &str) -> Option<(Option<i32>, String)> {
    let mut at = setting()?;
    if !is_child() {
        return Some(in_a_child(test));
    }
    if let Some(before) = before {
        // SAFETY: neither is a function.
        unsafe { libc::signal(libc::SIGBUS, before) };
    }
    let _served = served(&mut at);
    // SAFETY: to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
    // More than one, as the first may come by a path that the next does not.
    let bytes = whole(&mut at.memory);
    assert_eq!([bytes[0], bytes[9 * PAGE_SIZE], bytes[60 * PAGE_SIZE]], [42; 3]);
    eprintln!("went on");
    std::process::exit(0)
}

#[test]
fn a_program_that_goes_on_after_a_signal_has_its_pages() {
    // Rust's own handler.
    let test = "signals::a_program_that_goes_on_after_a_signal_has_its_pages";
    let Some((signal, words)) = is_sent_one(None, test) else { return };
    assert!(signal.is_none() && words.contains("went on"), "{signal:?}: {words}");
}

#[test]
fn a_program_that_ignores_the_signal_has_its_pages() {
    let test = "signals::a_program_that_ignores_the_signal_has_its_pages";
    let Some((signal, words)) = is_sent_one(Some(libc::SIG_IGN), test) else { return };
    assert!(signal.is_none() && words.contains("went on"), "{signal:?}: {words}");
}

#[test]
fn a_program_that_a_signal_ends_is_ended() {
    let test = "signals::a_program_that_a_signal_ends_is_ended";
    let Some((signal, words)) = is_sent_one(Some(libc::SIG_DFL), test) else { return };
    assert!(signal == Some(libc::SIGBUS) && !words.contains("went on"), "{signal:?}: {words}");
}
