//! A second process, which gets the signals that are sent to more than this one.
//!
//! ```text
//!   kill PID      this process                          not told: it was meant alone
//!   kill -GROUP   this process and the witness in its group --pipe--> told, with sender and time
//! ```
//!
//! The system does not say whether a signal was sent to one process or to many. A process that
//! passes signals on has to know, because its child would get one twice. A witness in a group of
//! its own gets a signal only if the sender chose each process by itself, by file or from a list.
//!
//! Invariants
//! - The witness blocks all signals from its first instruction on, except those of faults and those
//!   that no process can block. It takes no lock and allocates nothing, because a lock that another
//!   thread held at the clone stays locked in it.
//! - Where the system has `close_range`, its only descriptor is its end of the pipe. It keeps no
//!   directory busy but the root.
//! - It ends with the thread that started it, and when it is dropped. No `wait` without `__WALL`
//!   finds it meanwhile, and no SIGCHLD is sent.
//! - Its name is not that of this process, and if /proc is there its arguments are not either. So
//!   what ends processes by name does not take it for one. Its executable file is the same.
//!
//! Lock: none.

use std::fs::File;
use std::io::{self, Read};
use std::mem::{self, MaybeUninit};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::clock;
use super::thread::Blocked;

/// The name of the process, as the system shows it.
pub const WITNESS_NAME: &str = "run-witness";
const NAME: &std::ffi::CStr = c"run-witness";
/// How long it may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(1);

/// In which process group a witness is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessPlace {
    /// That of this process.
    Group,
    /// One of its own.
    Apart,
}

/// A signal that reached a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witnessed {
    /// Its number.
    pub signal: i32,
    /// The process that sent it. 0 is the kernel, or a process of another namespace.
    pub sender: i32,
    /// When it came, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
}

/// A process beside this one.
#[derive(Debug)]
pub struct Witness {
    told: File,
    pid: libc::pid_t,
}

impl Witness {
    /// Starts it. It takes `signals`, which are numbers.
    ///
    /// # Errors
    ///
    /// If the system refuses a process or a pipe, has no signal of such a number, or does not let
    /// the process begin within a second.
    pub fn start(signals: &[i32], place: WitnessPlace) -> io::Result<Witness> {
        let set = set_of(signals)?;
        let (told, tells) = pipe_with(PipeFlags::CLOEXEC)?;
        let (parent, arguments) = (std::process::id(), arguments());
        let blocked = Blocked::all_except(&[])?;
        let zero: libc::c_long = 0;
        // SAFETY: the new process has its own copy of the memory, and goes on here. No signal is
        // sent at its end. It takes no lock, allocates nothing and never returns. All arguments are
        // 0, so their order, which differs between machines, does not matter.
        let pid = match unsafe { libc::syscall(libc::SYS_clone, zero, zero, zero, zero, zero) } {
            -1 => return Err(io::Error::last_os_error()),
            0 => watch(&set, tells.as_raw_fd(), parent, place, arguments),
            pid => pid as libc::pid_t,
        };
        drop((blocked, tells));
        let mut witness = Witness { told: File::from(told), pid };
        // Until it says so, it might outlive this thread.
        match witness.next(BEGIN_MAX)? {
            Some(_ready) => Ok(witness),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// What comes within `time`, the oldest first.
    ///
    /// # Errors
    ///
    /// If the witness is gone.
    pub fn next(&mut self, time: Duration) -> io::Result<Option<Witnessed>> {
        let end = Instant::now() + time;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now()));
            let left = left.map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.told, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Ok(None),
                Ok(_) => return self.receive().map(Some),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self) -> io::Result<Witnessed> {
        let mut word = || {
            let mut bytes = [0; mem::size_of::<u64>()];
            self.told.read_exact(&mut bytes).map(|()| u64::from_ne_bytes(bytes))
        };
        let [signal, sender, at_ns] = [word()?, word()?, word()?];
        Ok(Witnessed { signal: signal as i32, sender: sender as i32, at_ns })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: a child of this process that was not waited for, so the number is its own.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL);
        }
    }
}

fn set_of(signals: &[i32]) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: empties the set that it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: just emptied.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: the set is initialised. A number that is no signal is refused.
        if unsafe { libc::sigaddset(&raw mut set, signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set)
}

/// Where the arguments of this process are, as the system shows them. Empty if it does not say.
fn arguments() -> Range<usize> {
    /// Among the fields after the name.
    const ARG_START: usize = 45;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.split_ascii_whitespace());
    let mut places = fields.into_iter().flatten().skip(ARG_START);
    let mut place = || places.next()?.parse().ok();
    let (start, end) = (place().unwrap_or(0), place().unwrap_or(0));
    start..end
}

/// What the new process does until it ends.
fn watch(
    set: &libc::sigset_t,
    pipe: RawFd,
    parent: u32,
    place: WitnessPlace,
    arguments: Range<usize>,
) -> ! {
    let number = pipe.unsigned_abs();
    // SAFETY: system calls, whose strings are constants. The system says where the arguments lie:
    // in the stack of this process, which is a copy and writable. Nothing in it reads them any
    // more.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        if u32::try_from(libc::getppid()) != Ok(parent) {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        if arguments.len() > NAME.count_bytes() {
            let text: *mut u8 = std::ptr::with_exposed_provenance_mut(arguments.start);
            text.write_bytes(0, arguments.len());
            text.copy_from(NAME.as_ptr().cast(), NAME.count_bytes());
        }
        if place == WitnessPlace::Apart {
            libc::setpgid(0, 0);
        }
        libc::chdir(c"/".as_ptr());
        if number > 0 {
            libc::syscall(libc::SYS_close_range, 0, number - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, number + 1, u32::MAX, 0);
    }
    let tell = |signal: i32, sender: i32| {
        let told = [signal as u64, sender as u64, clock::monotonic_ns()];
        // SAFETY: writes an array that is there. So few bytes go into a pipe together.
        let done = unsafe { libc::write(pipe, told.as_ptr().cast(), mem::size_of_val(&told)) };
        if done < 0 {
            // SAFETY: ends a process that nobody listens to.
            unsafe { libc::_exit(0) };
        }
    };
    tell(0, 0);
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the system reads the set, and fills `info`, for which all zeros is a value.
        let signal = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if signal > 0 {
            // SAFETY: filled. Signals of processes have a sender there, and the kernel's have 0.
            tell(signal, unsafe { info.assume_init_ref().si_pid() });
        } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // SAFETY: ends a process that cannot be told of signals.
            unsafe { libc::_exit(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};

    const LONG: Duration = Duration::from_secs(60);

    fn of(witness: &Witness) -> Pid {
        Pid::from_raw(witness.pid).expect("a number")
    }

    #[test]
    fn what_reaches_the_witness_is_told_with_its_sender_and_time() {
        let signals = [libc::SIGTERM, libc::SIGUSR1];
        let mut witness = Witness::start(&signals, WitnessPlace::Group).expect("a process");
        assert_eq!(witness.next(Duration::ZERO).expect("it is there"), None, "nothing was sent");
        for (signal, number) in [(Signal::TERM, libc::SIGTERM), (Signal::USR1, libc::SIGUSR1)] {
            let before = clock::monotonic_ns();
            kill_process(of(&witness), signal).expect("it is there");
            let told = witness.next(LONG).expect("it is there").expect("it comes");
            let sender = std::process::id().cast_signed();
            assert_eq!((told.signal, told.sender), (number, sender));
            assert!((before..=clock::monotonic_ns()).contains(&told.at_ns), "{told:?}");
        }
        kill_process(of(&witness), Signal::HUP).expect("it is there");
        kill_process(of(&witness), Signal::TERM).expect("it is there");
        let next = witness.next(LONG).expect("it is there").map(|it| it.signal);
        assert_eq!(next, Some(libc::SIGTERM), "others are not watched");
        kill_process(of(&witness), Signal::KILL).expect("it is there");
        assert!(witness.next(LONG).is_err(), "it is gone");
    }

    #[test]
    fn it_is_no_process_of_this_name_and_has_nothing_open() {
        let witness = Witness::start(&[libc::SIGTERM], WitnessPlace::Apart).expect("a process");
        let pid = of(&witness);
        let file = |name: &str| format!("/proc/{}/{name}", pid.as_raw_nonzero());
        let text = |name| std::fs::read_to_string(file(name)).expect("it is there");
        assert_eq!(text("comm").trim_end(), WITNESS_NAME);
        assert_eq!(text("cmdline").trim_end_matches('\0'), WITNESS_NAME);
        assert_eq!(std::fs::read_dir(file("fd")).expect("it is there").count(), 1);
        assert_eq!(getpgid(Some(pid)).expect("it is there"), pid);
        let near = Witness::start(&[libc::SIGTERM], WitnessPlace::Group).expect("a process");
        assert_eq!(getpgid(Some(of(&near))).expect("it is there"), getpgrp());
        drop((witness, near));
        assert!(!std::path::Path::new(&file("")).exists(), "and nothing is left of it");
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let start = || Witness::start(&[libc::SIGTERM], WitnessPlace::Group).expect("a process");
        let other = crate::thread::spawn("starts", start).expect("a thread");
        let mut witness = other.join().expect("no panic");
        assert!(witness.next(LONG).is_err());
    }

    #[test]
    fn a_number_that_is_no_signal_is_refused() {
        let refused = Witness::start(&[1000], WitnessPlace::Group).expect_err("no signal");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
