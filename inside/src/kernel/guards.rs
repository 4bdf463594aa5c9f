//! Guard pages that are no mappings of their own (`MADV_GUARD_INSTALL`, Linux 6.13).
//!
//! ```text
//!   a page is out --> a guard is put there --> and taken away --> a touch: the page must be zeros
//!                     nobody is told of this, so it would be what it was before the guard
//! ```
//!
//! A userfaultfd tells of memory that is discarded, but not of this. So programs that fold are told
//! that the system has no such guards, as older ones have none, and they protect their pages in the
//! old way. That takes a filter of system calls, which the system lets those load that have
//! `CAP_SYS_ADMIN` or cannot get new rights. It looks at two calls alone: the kernel knows of all
//! others that they pass. It is loaded when the process begins to fold. Guards from before are of
//! memory that was never out. Programs that are executed inherit it, and need no handler for it.
//!
//! Invariant: a process has one such filter at most, because it is not loaded where the advice is
//! unknown. Lock: none.

use crate::floor::call::call;

/// `MADV_GUARD_INSTALL`.
const INSTALL: u32 = 102;

/// Which argument of a call is the advice.
const CALLS: [(libc::c_long, u32); 2] = [(libc::SYS_madvise, 2), (libc::SYS_process_madvise, 3)];

/// `struct seccomp_data`: number, machine, instruction, arguments.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;
const X86_64: u32 = 0xc000_003e;
const TSYNC: usize = 1;

/// Has the system refuse such guards in this process, as far as it may.
pub(crate) fn refuse() {
    if !is_known() {
        return;
    }
    let mut program = program();
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let mode = libc::SECCOMP_SET_MODE_FILTER as usize;
    // SAFETY: the call changes what this process may do; the program lives as long as it runs.
    unsafe { call(libc::SYS_seccomp, [mode, TSYNC, &raw const filter as usize, 0, 0, 0]) };
}

/// Whether the system knows the advice. It does nothing for no bytes.
fn is_known() -> bool {
    // SAFETY: it is about no memory.
    unsafe { call(libc::SYS_madvise, [0, 0, INSTALL as usize, 0, 0, 0]) == 0 }
}

/// The program of the filter.
fn program() -> [libc::sock_filter; 11] {
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, [0, 0]);
    let equal = |value, jumps| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, jumps);
    let give = |action| step(libc::BPF_RET | libc::BPF_K, action, [0, 0]);
    let [(first, advice), (second, other)] = CALLS;
    [
        load(MACHINE),
        equal(X86_64, [0, 7]),
        load(NUMBER),
        equal(first as u32, [0, 2]),
        load(ARGUMENTS + 8 * advice),
        equal(INSTALL, [4, 3]),
        equal(second as u32, [0, 2]),
        load(ARGUMENTS + 8 * other),
        equal(INSTALL, [1, 0]),
        give(libc::SECCOMP_RET_ALLOW),
        give(libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
    ]
}

/// `jumps` are the steps to leave out: if it is so, and if it is not.
fn step(code: u32, k: u32, jumps: [u8; 2]) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: jumps[0], jf: jumps[1], k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says to a call.
    fn answer(machine: u32, number: libc::c_long, arguments: [u64; 6]) -> u32 {
        let mut data = vec![number as u32, machine, 0, 0];
        data.extend(arguments.iter().flat_map(|it| [*it as u32, (*it >> 32) as u32]));
        let (program, mut at, mut word) = (program(), 0, 0);
        loop {
            let step = program[at];
            at += 1;
            match u32::from(step.code) & 0x7 {
                libc::BPF_LD => word = data[step.k as usize / 4],
                libc::BPF_JMP => {
                    at += usize::from(if word == step.k { step.jt } else { step.jf });
                }
                _ => return step.k,
            }
        }
    }

    #[test]
    fn one_advice_of_two_calls_is_refused() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32;
        for number in 0..500 {
            for argument in 0..6 {
                let mut arguments = [7; 6];
                arguments[argument] = u64::from(INSTALL);
                let expected = match CALLS.contains(&(number, argument as u32)) {
                    true => refused,
                    false => libc::SECCOMP_RET_ALLOW,
                };
                assert_eq!(answer(X86_64, number, arguments), expected, "{number} {argument}");
                let other = answer(X86_64 ^ 1, number, arguments);
                assert_eq!(other, libc::SECCOMP_RET_ALLOW, "calls of another machine");
            }
        }
        let remove = [0, 4096, u64::from(INSTALL) + 1, 0, 0, 0];
        assert_eq!(answer(X86_64, libc::SYS_madvise, remove), libc::SECCOMP_RET_ALLOW);
    }
}
