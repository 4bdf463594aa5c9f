//! Handlers of the program that are installed after ours, or in its place.

use crate::setting::{Filler, Setting, in_a_child_in, is_child_in, path, served, served_by};
use crate::setting::{setting, setting_in, whole};
use ramfold_host::fault::{Asker, BlockedLooks, HandlerLooks, Served, Server};
use ramfold_host::{FaultMode, PAGE_SIZE};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static CALLED: AtomicUsize = AtomicUsize::new(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Goes on as if nothing were: the page is touched again, at full speed.
extern "C" fn returns(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLED.fetch_add(1, Ordering::Relaxed);
}

/// Calls the one before it, as the manual of `sigaction` says.
extern "C" fn chains(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    CALLED.fetch_add(1, Ordering::Relaxed);
    let before = BEFORE.load(Ordering::Relaxed);
    // SAFETY: it was installed with SA_SIGINFO, by the first region.
    let before: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
        unsafe { std::mem::transmute(before) };
    before(signal, info, context);
}

/// What a program does after its first region, with the signal by which its pages come.
fn install(signal: libc::c_int, function: usize) {
    // SAFETY: all-zero is SIG_DFL with no flags and an empty set.
    let [mut action, mut before]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
    action.sa_sigaction = function;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the function is of the type that the flag asks for, or none.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, &raw mut before) }, 0);
    BEFORE.store(before.sa_sigaction, Ordering::Relaxed);
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Has a child look three times after `function` is installed; its last words.
fn look_after(
    mode: FaultMode,
    function: usize,
    test: &str,
    then: fn(&mut Setting),
) -> Option<(Option<i32>, String)> {
    let mut at = setting_in(mode)?;
    if !is_child_in(mode)? {
        return Some(in_a_child_in(mode, test));
    }
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(20));
        // SAFETY: ends this child, and does nothing else.
        unsafe { libc::_exit(1) };
    });
    let _served = served(&mut at);
    let probed_by = path(mode).expect("as before");
    let mut looks = HandlerLooks::default();
    looks.look(&probed_by);
    let signal = if mode == FaultMode::Signal { libc::SIGBUS } else { libc::SIGSEGV };
    install(signal, function);
    (0..3).for_each(|_| looks.look(&probed_by));
    then(&mut at);
    eprintln!("went on");
    std::process::exit(0)
}

/// The modes in which a signal brings a page in.
const BY_SIGNAL: [FaultMode; 3] = [FaultMode::Signal, FaultMode::Protection, FaultMode::Guards];

/// It was an endless loop in the first thread that touched a page.
#[test]
fn a_handler_that_does_not_call_ours_ends_the_process_with_a_word() {
    let test = "handlers::a_handler_that_does_not_call_ours_ends_the_process_with_a_word";
    for mode in BY_SIGNAL {
        let ended = look_after(mode, returns as Handler as usize, test, |_| ());
        let Some((signal, words)) = ended else { continue };
        assert!(words.contains("does not call the one before it"), "{words}");
        assert!(words.contains(mode.signal_name()), "{words}");
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
    }
}

#[test]
fn a_handler_that_calls_ours_is_probed_once_and_accepted() {
    let test = "handlers::a_handler_that_calls_ours_is_probed_once_and_accepted";
    for mode in BY_SIGNAL {
        let went_on = look_after(mode, chains as Handler as usize, test, |at| {
            assert_eq!(CALLED.load(Ordering::Relaxed), 1, "probed once");
            assert_eq!(whole(&mut at.memory)[9 * PAGE_SIZE], 42);
            assert_eq!(CALLED.load(Ordering::Relaxed), 2, "and asked about the page");
        });
        let Some((signal, words)) = went_on else { continue };
        assert!(signal.is_none() && words.contains("went on"), "{signal:?}: {words}");
    }
}

/// Death without a word at the next touch.
#[test]
fn a_handler_that_was_removed_ends_the_process_with_a_word() {
    let test = "handlers::a_handler_that_was_removed_ends_the_process_with_a_word";
    for mode in BY_SIGNAL {
        let Some((signal, words)) = look_after(mode, libc::SIG_DFL, test, |_| ()) else { continue };
        assert!(words.contains("has removed the SIG") && words.contains(mode.signal_name()));
        assert_eq!(signal, Some(libc::SIGABRT), "{words}");
    }
}

/// Serves as `Filler` does, once it is told to.
struct Waiting {
    filler: Arc<Filler>,
    /// 0, then 1 while a thread waits here, then 2 when it may go on.
    state: AtomicUsize,
}

// SAFETY: as `Filler`, after waiting.
unsafe impl Server for Waiting {
    fn serve(&self, address: usize, asker: Asker) -> Served {
        self.state.store(1, Ordering::Relaxed);
        while self.state.load(Ordering::Relaxed) != 2 {
            std::thread::yield_now();
        }
        self.filler.serve(address, asker)
    }
}

/// It was named as one that blocks SIGBUS: in our handler it does.
#[test]
fn a_thread_that_is_being_served_is_not_named() {
    let Some(mut at) = setting() else { return };
    let waiting = Waiting { filler: Filler::of(&at.span), state: AtomicUsize::new(0) };
    let waiting = Arc::new(waiting);
    let _served = served_by(&mut at, Arc::clone(&waiting) as Arc<dyn Server>);
    std::thread::scope(|scope| {
        let touching = std::thread::Builder::new().name("touches".into());
        let memory = &mut at.memory;
        let touching = touching.spawn_scoped(scope, || whole(memory)[9 * PAGE_SIZE]);
        while waiting.state.load(Ordering::Relaxed) != 1 {
            std::thread::yield_now();
        }
        let lines = BlockedLooks::of(FaultMode::Signal).look();
        waiting.state.store(2, Ordering::Relaxed);
        assert_eq!(touching.expect("a thread").join().expect("it touches only"), 42);
        assert!(!lines.iter().any(|line| line.contains("(touches)")), "{lines:?}");
    });
}
