//! Calls about signals: SIGSEGV and SIGSYS are never blocked, and their handlers stay ours.
//!
//! ```text
//!   rt_sigprocmask    the mask in the interrupted context changes: it is in force afterwards
//!   rt_sigaction      of the two signals: kept. Of others: their masks go without the two
//!   sigaltstack       the stack stays open, because the kernel writes to it. A thread without one
//!                     has one of ours, and is told of none
//!   sigsuspend, ppoll, pselect, epoll_pwait     their masks go without the two
//! ```
//!
//! A signal that is blocked when it must be taken ends the process. The program does not see the
//! difference, except that the two are not in the masks that it gets back.
//!
//! Invariant: no mask that is in force while code of the program runs has the two signals. Lock:
//! none, except in `provide`. The memory that the arguments lead to is pinned and open.

use super::cancel;
use super::previous::{self, Action, OURS};
use crate::arena::reach::{peek, poke};
use crate::arena::way::ask;
use crate::arena::{stacks, state};
use libc::c_long;

/// Bytes of the kernel's mask.
const MASK_LEN: usize = 8;

/// The parts of an interrupted context that these calls change.
pub(super) struct Interrupted<'a> {
    pub(super) mask: &'a mut u64,
    pub(super) stack: &'a mut libc::stack_t,
    pub(super) pointer: usize,
    /// A stack of ours, for a thread that wants none, or a small one.
    pub(super) ours: Option<libc::stack_t>,
    /// What the thread believes to have, while it has one of ours.
    pub(super) told: libc::stack_t,
}

/// Does a call about signals. What waits is done with `wait`, while the program's mask is in force.
pub(super) fn serve(
    number: c_long,
    arguments: &[usize; 6],
    interrupted: Interrupted<'_>,
    wait: impl FnOnce([usize; 6]) -> isize,
) -> isize {
    match number {
        libc::SYS_rt_sigprocmask => change(arguments, interrupted.mask),
        libc::SYS_rt_sigaction => action(arguments),
        libc::SYS_sigaltstack => alternate(arguments, interrupted),
        libc::SYS_rt_sigsuspend => masked(arguments, 0, wait),
        libc::SYS_ppoll => masked(arguments, 3, wait),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => masked(arguments, 4, wait),
        libc::SYS_pselect6 => select(arguments, wait),
        _ => wait(*arguments),
    }
}

fn error(number: i32) -> isize {
    -(number as isize)
}

fn change(arguments: &[usize; 6], mask: &mut u64) -> isize {
    let [how, set, old, len, ..] = *arguments;
    if len != MASK_LEN {
        return error(libc::EINVAL);
    }
    let before = *mask;
    let after = match (set, how as i32) {
        (0, _) => before,
        (at, how) => {
            let Some(set) = peek::<u64>(at) else { return error(libc::EFAULT) };
            match how {
                libc::SIG_BLOCK => before | set,
                libc::SIG_UNBLOCK => before & !set,
                libc::SIG_SETMASK => set,
                _ => return error(libc::EINVAL),
            }
        }
    };
    *mask = after & !OURS;
    if old != 0 && !poke(old, before) { error(libc::EFAULT) } else { 0 }
}

fn action(arguments: &[usize; 6]) -> isize {
    let [signal, new, old, len, ..] = *arguments;
    if len != MASK_LEN {
        return error(libc::EINVAL);
    }
    let mut action = None;
    if new != 0 {
        let Some(given) = peek::<Action>(new) else { return error(libc::EFAULT) };
        action = Some(Action { mask: given.mask & !OURS, ..given });
    }
    let before = if previous::is_kept(signal as i32) {
        previous::exchange(signal as i32, action.as_ref())
    } else {
        let mut before = Action::default();
        let action = action.map(|action| cancel::wrapped(signal as i32, action));
        let new = action.as_ref().map_or(0, |action| core::ptr::from_ref(action) as usize);
        let changed =
            ask(libc::SYS_rt_sigaction, [signal, new, &raw mut before as usize, MASK_LEN, 0, 0]);
        if changed < 0 {
            return changed;
        }
        cancel::unwrapped(before)
    };
    if old != 0 && !poke(old, before) { error(libc::EFAULT) } else { 0 }
}

/// The kernel puts the stack of the interrupted context back when the handler returns, so it is
/// changed there too.
fn alternate(arguments: &[usize; 6], interrupted: Interrupted<'_>) -> isize {
    let [new, old, ..] = *arguments;
    // A stack with SS_AUTODISARM is away while a handler runs, and comes back with the context.
    let mut before = stacks::or_none(interrupted.stack);
    let is_on = interrupted.pointer.wrapping_sub(before.ss_sp as usize) < before.ss_size;
    let wants_none = interrupted.told.ss_flags & libc::SS_DISABLE != 0;
    // Who leaves a handler by longjmp may ask whether it is on such a stack, and is told of ours.
    if stacks::is_ours(&before) && !(is_on && wants_none) {
        before = interrupted.told;
    }
    // The program may have set this bit, which means nothing then.
    before.ss_flags &= !libc::SS_ONSTACK;
    if is_on && before.ss_flags == 0 {
        before.ss_flags = libc::SS_ONSTACK;
    }
    if new != 0 {
        let Some(wanted) = peek::<libc::stack_t>(new) else { return error(libc::EFAULT) };
        let stack = interrupted.ours.unwrap_or(wanted);
        let done = set_stack(&stack);
        if done < 0 {
            return done;
        }
        *interrupted.stack = stack;
    }
    if old != 0 && !poke(old, before) { error(libc::EFAULT) } else { 0 }
}

fn set_stack(stack: &libc::stack_t) -> isize {
    ask(libc::SYS_sigaltstack, [core::ptr::from_ref(stack) as usize, 0, 0, 0, 0, 0])
}

/// Gives this thread a stack of ours, if it has none. Works on a block of ours.
pub(super) fn provide(now: &libc::stack_t) -> Option<libc::stack_t> {
    if stacks::or_none(now).ss_flags & libc::SS_DISABLE == 0 {
        return None;
    }
    let stack = state::with(|state| state.stack(None))?;
    (set_stack(&stack) == 0).then_some(stack)
}

/// A call that has a mask for as long as it waits.
fn masked(
    arguments: &[usize; 6],
    argument: usize,
    wait: impl FnOnce([usize; 6]) -> isize,
) -> isize {
    let mut arguments = *arguments;
    if arguments[argument] == 0 {
        return wait(arguments);
    }
    let Some(mask) = peek::<u64>(arguments[argument]) else { return error(libc::EFAULT) };
    let mask = mask & !OURS;
    arguments[argument] = &raw const mask as usize;
    wait(arguments)
}

/// `pselect6` has address and length of the mask in a structure.
fn select(arguments: &[usize; 6], wait: impl FnOnce([usize; 6]) -> isize) -> isize {
    let mut arguments = *arguments;
    if arguments[5] == 0 {
        return wait(arguments);
    }
    let Some([at, len]) = peek::<[usize; 2]>(arguments[5]) else { return error(libc::EFAULT) };
    if at == 0 {
        return wait(arguments);
    }
    let Some(mask) = peek::<u64>(at) else { return error(libc::EFAULT) };
    let mask = mask & !OURS;
    let given = [&raw const mask as usize, len];
    arguments[5] = &raw const given as usize;
    wait(arguments)
}
