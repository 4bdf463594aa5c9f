//! Calls whose arguments lead to more addresses: vectors of buffers, messages, what a program is
//! executed with. All of that is pinned and opened.
//!
//! ```text
//!   readv ..     vector --> buffers
//!   sendmsg ..   message --> name, vector --> buffers, control
//!   futex_waitv  list --> words
//!   execve       path; list --> words; list --> variables
//! ```
//!
//! Invariant: what is read here is pinned and open before it is read. Lock: the caller has the
//! state.

use super::calls::BYTES_MAX;
use crate::arena::reach::own_pid;
use crate::arena::state::State;
use crate::arena::way::{open_range, pages};
use crate::arena::{addresses, pins, reach};
use crate::places::Kind;
use crate::places::PAGE;
use core::ops::Range;
use libc::c_long;

/// Buffers of a vector, messages of a call (`IOV_MAX`, `UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;
/// Words that a thread waits for at once (`FUTEX_WAITV_MAX`).
const FUTEXES_MAX: usize = 128;
/// Words of a program.
const WORDS_MAX: usize = 1 << 20; // 1048576

/// What a call has pinned.
#[derive(Debug, Default)]
pub(super) struct Pinned(pub(super) Vec<Range<usize>>);

impl Pinned {
    /// Pins a range and opens it, as far as it is in the arena.
    fn add(&mut self, state: &mut State, at: usize, len: usize) {
        if len == 0 || !addresses::contains(at) {
            return;
        }
        // The kernel moves no more in one call.
        let range = pages(at, len.min(BYTES_MAX));
        if self.0.last() == Some(&range) {
            return;
        }
        if !pins::pin(&range) {
            open_range(state, &range);
        }
        self.0.push(range);
    }

    /// Takes the pins back.
    pub(super) fn release(&self) {
        self.0.iter().for_each(pins::unpin);
    }

    /// A value of the program, which is pinned.
    fn peek<T: Copy>(&mut self, state: &mut State, at: usize) -> Option<T> {
        self.add(state, at, size_of::<T>());
        reach::peek(at)
    }

    fn vector(&mut self, state: &mut State, at: usize, count: usize) {
        for part in 0..count.min(PARTS_MAX) {
            let Some([base, len]) = self.peek::<[usize; 2]>(state, at + part * 16) else { return };
            self.add(state, base, len);
        }
    }

    /// `struct msghdr`: name and length, vector and count, control and length, flags.
    fn message(&mut self, state: &mut State, at: usize) {
        let Some([name, name_len, vector, count, control, control_len, _]) =
            self.peek::<[usize; 7]>(state, at)
        else {
            return;
        };
        self.add(state, name, name_len as u32 as usize);
        self.add(state, control, control_len);
        self.vector(state, vector, count);
    }

    /// `struct futex_waitv`: value, address, flags.
    fn futexes(&mut self, state: &mut State, at: usize, count: usize) {
        for word in 0..count.min(FUTEXES_MAX) {
            let Some([_, address, _]) = self.peek::<[usize; 3]>(state, at + word * 24) else {
                return;
            };
            self.add(state, address, size_of::<u64>());
        }
    }

    fn text(&mut self, state: &mut State, at: usize) {
        if !addresses::contains(at) {
            return;
        }
        let mut start = at;
        loop {
            let end = (start & !(PAGE - 1)) + PAGE;
            self.add(state, start, end - start);
            if state.spans.kind(start) != Some(Kind::Folds) {
                return;
            }
            // SAFETY: the page folds, is open and pinned.
            let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, end - start) };
            if bytes.contains(&0) {
                return;
            }
            start = end;
        }
    }

    fn texts(&mut self, state: &mut State, at: usize) {
        if at == 0 {
            return;
        }
        for word in 0..WORDS_MAX {
            match self.peek::<usize>(state, at + word * 8) {
                None | Some(0) => return,
                Some(text) => self.text(state, text),
            }
        }
    }
}

/// Whether a call executes a program.
pub(super) fn executes(number: c_long) -> bool {
    matches!(number, libc::SYS_execve | libc::SYS_execveat)
}

/// Pins and opens all that a call leads to.
pub(super) fn pin(state: &mut State, number: c_long, arguments: &[usize; 6]) -> Pinned {
    let mut pinned = Pinned::default();
    let [first, second, third, fourth, fifth, _] = *arguments;
    match number {
        libc::SYS_sendmsg | libc::SYS_recvmsg => pinned.message(state, second),
        libc::SYS_sendmmsg | libc::SYS_recvmmsg => {
            // struct mmsghdr is a message and a length.
            let all = (0..third.min(PARTS_MAX)).map(|number| second + number * 64);
            all.for_each(|message| pinned.message(state, message));
        }
        libc::SYS_execve => {
            pinned.text(state, first);
            pinned.texts(state, second);
            pinned.texts(state, third);
        }
        libc::SYS_execveat => {
            pinned.text(state, second);
            pinned.texts(state, third);
            pinned.texts(state, fourth);
        }
        libc::SYS_futex_waitv => pinned.futexes(state, first, second),
        libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
            pinned.vector(state, second, third);
            if first == own_pid() {
                pinned.vector(state, fourth, fifth);
            }
        }
        _ => pinned.vector(state, second, third),
    }
    pinned
}
