//! How a thread of this process shares its CPU with others, and on which CPUs it runs.
//!
//! Invariant: nothing here allocates, because a thread that serves faults may call it. Lock: none.

use crate::machine::cpu;
use rustix::thread::{CpuSet, Pid};
use std::fs::File;
use std::io::{Read, Write};

/// How a thread shares its CPU with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    number: libc::c_int,
    priority: libc::c_int,
}

impl Policy {
    /// Runs only while no other thread wants the CPU (`SCHED_IDLE`).
    pub(super) const GIVES_WAY: Policy = Policy { number: libc::SCHED_IDLE, priority: 0 };
}

/// The policy of a thread of this process; `None` if the system does not tell.
pub(super) fn policy(thread: Pid) -> Option<Policy> {
    let thread = thread.as_raw_nonzero().get();
    let mut parameters = cpu::scheduling(0);
    // SAFETY: asks only.
    let number = unsafe { libc::sched_getscheduler(thread) };
    // SAFETY: the answer is written where it may be.
    let answer = unsafe { libc::sched_getparam(thread, &raw mut parameters) };
    let priority = parameters.sched_priority;
    (number >= 0 && answer == 0).then_some(Policy { number, priority })
}

/// Sets the policy of a thread; false if the system refuses.
pub(super) fn set_policy(thread: Pid, policy: Policy) -> bool {
    let parameters = cpu::scheduling(policy.priority);
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: concerns a thread of this process; the parameters are read during the call.
    unsafe { libc::sched_setscheduler(thread, policy.number, &raw const parameters) == 0 }
}

/// Sets the CPUs on which a thread may run; false if the system refuses.
pub(super) fn bind(thread: Pid, cpus: &CpuSet) -> bool {
    rustix::thread::sched_setaffinity(Some(thread), cpus).is_ok()
}

/// The set of one CPU.
pub(super) fn only(cpu: usize) -> CpuSet {
    let mut cpus = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        cpus.set(cpu);
    }
    cpus
}

/// The CPU on which a thread of this process ran last; `None` if there is no such thread.
pub(super) fn cpu_of(thread: u32) -> Option<usize> {
    const FIELD: usize = 39; // `processor`, proc_pid_stat(5)
    const AFTER_NAME: usize = 3;
    let (mut path, mut stat) = ([0; 48], [0; 512]);
    let mut rest = &mut path[..];
    write!(rest, "/proc/self/task/{thread}/stat").ok()?;
    let unused = rest.len();
    let path = str::from_utf8(&path[..path.len() - unused]).ok()?;
    let read = File::open(path).and_then(|mut file| file.read(&mut stat)).ok()?;
    // The name of a thread may contain anything, even brackets.
    let name_end = stat[..read].iter().rposition(|&byte| byte == b')')?;
    let fields = str::from_utf8(&stat[name_end + 1..read]).ok()?;
    fields.split_ascii_whitespace().nth(FIELD - AFTER_NAME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_where_it_was_bound_to() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let bound = std::thread::Builder::new().name(") 1 2 (".into()).spawn(move || {
            let all = rustix::thread::sched_getaffinity(None).expect("asks only");
            let here: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
            for &cpu in [here[0], here[here.len() - 1]].iter() {
                assert!(bind(rustix::thread::gettid(), &only(cpu)));
                tell.send((rustix::thread::gettid(), cpu)).expect("heard");
                ended.recv().expect("told to go on");
            }
        });
        for _ in 0..2 {
            let (thread, cpu) = told.recv().expect("its number");
            assert_eq!(cpu_of(thread.as_raw_nonzero().get() as u32), Some(cpu));
            end.send(()).expect("heard");
        }
        bound.expect("a thread").join().expect("bound");
        assert_eq!(cpu_of(0), None);
    }

    #[test]
    fn a_policy_is_the_one_that_was_set() {
        let policies = std::thread::spawn(|| {
            let this = rustix::thread::gettid();
            assert!(set_policy(this, Policy::GIVES_WAY));
            policy(this)
        });
        assert_eq!(policies.join().expect("it may give way"), Some(Policy::GIVES_WAY));
    }
}
