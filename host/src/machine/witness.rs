//! A second process, which gets the signals that are sent to the whole process group too.
//!
//! ```text
//!   kill PID         this process                           not told: it was meant alone
//!   kill -GROUP      this process and the witness --pipe--> told: others got the signal themselves
//!   systemd's stop   the same, process by process
//! ```
//!
//! The system does not say whether a signal was sent to one process or to many. A process that
//! passes signals on has to know, because its child would get one twice.
//!
//! Invariants
//! - The witness blocks all signals from its first instruction on and executes nothing but system
//!   calls, so no lock or memory of this process matters to it.
//! - It has no descriptor but its end of the pipe, and it ends with the thread that started it.
//! - The system gives its end to nobody: it is no child that a `wait` without flags finds.
//!
//! Lock: none.

use std::fs::File;
use std::io::{self, Read};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::thread::Blocked;

/// A signal that reached more than this process, with the process that sent it. 0 is one of another
/// name space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witnessed {
    /// Its number.
    pub signal: i32,
    /// The process that sent it.
    pub sender: i32,
}

/// A process beside this one. It ends when the thread that started it does.
#[derive(Debug)]
pub struct Witness {
    told: File,
}

impl Witness {
    /// Starts it. It takes `signals`, which are numbers.
    ///
    /// # Errors
    ///
    /// If the system refuses a process or a pipe, or has no signal of such a number.
    pub fn start(signals: &[i32]) -> io::Result<Witness> {
        let set = set_of(signals)?;
        let (told, tells) = pipe_with(PipeFlags::CLOEXEC)?;
        let parent = std::process::id();
        let _blocked = Blocked::all_except(&[])?;
        // SAFETY: the new process has its own copy of the memory, and goes on here. No signal is
        // sent at its end. It makes system calls only, and never returns. All arguments are 0, so
        // their order, which differs between machines, does not matter.
        match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(&set, tells.as_raw_fd(), parent),
            _ => {
                drop(tells);
                let mut witness = Witness { told: File::from(told) };
                // Until it says so, it might outlive this thread.
                witness.receive().map(|_ready| witness)
            }
        }
    }

    /// What comes within `time`. `None` if nothing does, or if the witness is gone.
    pub fn next(&mut self, time: Duration) -> Option<Witnessed> {
        let time = Timespec::try_from(time).ok()?;
        poll(&mut [PollFd::new(&self.told, PollFlags::IN)], Some(&time)).ok().filter(|&n| n > 0)?;
        let [signal, sender] = self.receive().ok()?;
        Some(Witnessed { signal, sender })
    }

    fn receive(&mut self) -> io::Result<[i32; 2]> {
        let mut number = || {
            let mut bytes = [0; mem::size_of::<i32>()];
            self.told.read_exact(&mut bytes).map(|()| i32::from_ne_bytes(bytes))
        };
        Ok([number()?, number()?])
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

/// What the new process does until it ends.
fn watch(set: &libc::sigset_t, pipe: RawFd, parent: u32) -> ! {
    let number = pipe.unsigned_abs();
    // SAFETY: system calls without memory. This process has one thread, and of its descriptors it
    // uses the pipe only. On systems without `close_range` it keeps the others until it ends.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"ramfold-witness".as_ptr());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        if u32::try_from(libc::getppid()) != Ok(parent) {
            libc::_exit(0);
        }
        if number > 0 {
            libc::syscall(libc::SYS_close_range, 0, number - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, number + 1, u32::MAX, 0);
    }
    let tell = |told: [i32; 2]| {
        // SAFETY: writes an array that is there. So few bytes go into a pipe together.
        let done = unsafe { libc::write(pipe, told.as_ptr().cast(), mem::size_of_val(&told)) };
        if done < 0 {
            // SAFETY: ends a process that nobody listens to.
            unsafe { libc::_exit(0) };
        }
    };
    tell([0, 0]);
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the system reads the set, and fills `info`, for which all zeros is a value.
        let signal = unsafe { libc::sigwaitinfo(set, info.as_mut_ptr()) };
        if signal <= 0 {
            continue;
        }
        // SAFETY: filled. Signals that a process sends have its number; for others it is no matter.
        tell([signal, unsafe { info.assume_init_ref().si_pid() }]);
    }
}

/// The test's own signals go to one of its threads.
#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};

    fn witnesses() -> Vec<i32> {
        let id = rustix::thread::gettid().as_raw_nonzero();
        let path = format!("/proc/self/task/{id}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    #[test]
    fn what_reaches_the_witness_is_told_with_its_sender() {
        let mut witness = Witness::start(&[libc::SIGTERM, libc::SIGUSR1]).expect("a process");
        let Some(&pid) = witnesses().first() else {
            println!("skipped: needs /proc/PID/task/TID/children");
            return;
        };
        let pid = Pid::from_raw(pid).expect("a number");
        assert_eq!(witness.next(Duration::ZERO), None, "nothing was sent");
        for (signal, number) in [(Signal::TERM, libc::SIGTERM), (Signal::USR1, libc::SIGUSR1)] {
            kill_process(pid, signal).expect("it is there");
            let sender = std::process::id().cast_signed();
            let expected = Some(Witnessed { signal: number, sender });
            assert_eq!(witness.next(Duration::from_secs(60)), expected);
        }
        kill_process(pid, Signal::HUP).expect("it is there");
        kill_process(pid, Signal::TERM).expect("it is there");
        let next = witness.next(Duration::from_secs(60)).map(|it| it.signal);
        assert_eq!(next, Some(libc::SIGTERM), "others are not watched");
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
        assert_eq!(descriptors.expect("it is there").count(), 1, "its end of the pipe");
        kill_process(pid, Signal::KILL).expect("it is there");
        assert_eq!(witness.next(Duration::from_secs(60)), None, "it is gone");
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let start = || {
            let witness = Witness::start(&[libc::SIGTERM]).expect("a process");
            (witness, witnesses())
        };
        let other = crate::thread::spawn("starts", start).expect("a thread");
        let (mut witness, _) = other.join().expect("no panic");
        assert_eq!(witness.next(Duration::from_secs(60)), None);
        let end = witness.told.read(&mut [0; 8]).expect("an end");
        assert_eq!(end, 0, "the other end is closed");
    }

    #[test]
    fn a_number_that_is_no_signal_is_refused() {
        let refused = Witness::start(&[1000]).expect_err("no signal");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
