//! Our handlers of SIGSEGV and SIGSYS.
//!
//! ```text
//!   SIGSEGV   in the arena, closed      opened; the access is made again
//!             anything else             the program's own handler
//!   SIGSYS    pins -> opens what is closed -> makes the call from the passage -> unpins
//!             of the program's filter   the program's own handler
//! ```
//!
//! That of SIGSEGV runs on the alternate stack, because the thread may be on a closed one. That of
//! SIGSYS runs on the stack that the program has. Both need little there: work is done on a block
//! of ours. A call that waits is made on the program's stack, with the program's mask, so its
//! handlers run as ever. A handler that leaves by `siglongjmp` leaves pins behind: those groups
//! stay.
//!
//! Invariant: while a thread is on a block of ours, it takes no signal. Lock: that of the state,
//! on the block.

use super::calls::{self, Use};
use super::code::{Code, is_musl};
use super::memory::{self, Answer};
use super::nested::{self, Pinned};
use super::previous::{self, Action, SI_KERNEL, set_mask};
use super::{cancel, filter, masks, musl};
use crate::arena::state::State;
use crate::arena::{addresses, files, narrow, pins, reach, stacks, state, way};
use crate::floor::crossing::cross;
use crate::floor::passage::pass;
use crate::places::PAGE;
use core::arch::global_asm;
use core::ffi::c_void;
use core::ops::Range;
use libc::c_long;

const SEGV_ACCERR: i32 = 2;
const SYS_SECCOMP: i32 = 1;
/// Bits of the processor's error code that say "write" and "instruction fetch".
const WRITE: i64 = 2;
const FETCH: i64 = 0x10;
const _: () = assert!(WRITE.count_ones() == 1 && FETCH.count_ones() == 1, "bits");

const SA_RESTORER: usize = 0x0400_0000;

/// What the kernel is told of our handler for a signal.
pub(super) fn action(signal: i32) -> Action {
    let (function, flags, mask) = if signal == libc::SIGSEGV {
        (on_fault as *const () as usize, libc::SA_ONSTACK as usize, u64::MAX)
    } else {
        (on_call as *const () as usize, libc::SA_NODEFER as usize, 0)
    };
    let flags = flags | libc::SA_SIGINFO as usize | SA_RESTORER;
    Action { function, flags, restorer: come_back as *const () as usize, mask }
}

// The end of a handler, in the form by which unwinders know it. They look for what describes the
// byte before it, and know it only if nothing does. So no function may end there.
global_asm!(
    ".pushsection .text",
    ".balign 16",
    "nop",
    ".globl ramfold_come_back",
    ".hidden ramfold_come_back",
    "ramfold_come_back:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0",
    "syscall",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "ramfold_come_back"]
    fn come_back();
}

struct Touch {
    address: usize,
    writes: bool,
    /// The stack pointer of the thread.
    stack: usize,
    served: bool,
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes valid structures.
    let (code, address, machine) = unsafe {
        let machine = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        ((*info).si_code, (*info).si_addr() as usize, machine)
    };
    let error = machine[libc::REG_ERR as usize];
    let stack = machine[libc::REG_RSP as usize] as usize;
    let mut touch = Touch { address, writes: error & WRITE != 0, stack, served: false };
    if code == SEGV_ACCERR && addresses::contains(address) && error & FETCH == 0 {
        state::settle();
        cross(touched, &mut touch);
    } else if code == SI_KERNEL && addresses::contains(stack) && lacked_a_frame(machine) {
        state::settle();
        // Another thread may have opened it meanwhile.
        touch.served = keep(stack) || (1..=4).all(|page| reach::allows(stack - page * PAGE, true));
        if touch.served {
            // The call is made again.
            machine[libc::REG_RIP as usize] -= SYSCALL.len() as i64;
        }
    }
    if !touch.served {
        previous::forward(signal, info, context);
    }
}

/// The instruction of a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Whether the filter trapped a call, and there was no place on the stack for the frame of that
/// signal. Then the registers are those before the call. After a call, the register of its number
/// has its result. So an instruction before it tells the number, as the C library writes it.
fn lacked_a_frame(machine: &[i64; 23]) -> bool {
    /// The library may load arguments between the two instructions.
    const BEFORE: usize = 24;
    let (number, arguments, instruction) = of_call(machine);
    let before = reach::peek::<[u8; BEFORE]>(instruction.wrapping_sub(BEFORE));
    let is_told = match is_musl() {
        true => musl::tells(machine),
        false => before.is_some_and(|it| it.ends_with(&SYSCALL) && musl::says(&it, number)),
    };
    is_told && filter::is_meant(number, &arguments, instruction, &Code::of_program())
}

/// A thread begins on a stack in memory that folds. The part that it uses first, and the words that
/// the kernel writes at its beginning and its end, stay open. Or a child begins on a stack that is
/// too small, and gets one of ours. Then the call is made again, by the program, because the child
/// comes out of it too.
fn begin_thread(machine: &mut libc::ucontext_t, arguments: &[usize; 6]) {
    let mask = set_mask(u64::MAX);
    state::settle();
    for &stack in arguments[1..4].iter().filter(|&&at| addresses::contains(at)) {
        keep(stack);
    }
    let registers = &mut machine.uc_mcontext.gregs;
    if musl::is_narrow(arguments, registers[libc::REG_RSP as usize] as usize) {
        let mut stack = None;
        cross(wide_stack, &mut stack);
        let at = stack.and_then(|stack| musl::begins_at(&stack, arguments[1]));
        registers[libc::REG_RSI as usize] = at.unwrap_or(arguments[1]) as i64;
    }
    set_mask(mask);
    // Flags may come as a negative number, with all upper bits. The kernel reads the lower half.
    let flags = registers[libc::REG_RDI as usize] & i64::from(u32::MAX);
    registers[libc::REG_RDI as usize] = flags | calls::LOOKED_AT as i64;
    registers[libc::REG_RIP as usize] -= SYSCALL.len() as i64;
}

/// Number, arguments and place of a system call.
fn of_call(machine: &[i64; 23]) -> (c_long, [usize; 6], usize) {
    let register = |name: i32| machine[name as usize] as usize;
    let names =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
    (register(libc::REG_RAX) as c_long, names.map(register), register(libc::REG_RIP))
}

/// If the thread is on a stack in memory that folds, the part that it uses now folds no more.
fn keep_own_stack(machine: &libc::ucontext_t) {
    let stack = machine.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    if addresses::contains(stack) {
        // While its pages are not pinned, a touch must be served, so no signal is blocked yet.
        let range = way::stack(stack);
        pins::pin(&range);
        probe();
        previous::block_all();
        state::settle();
        keep(stack);
        // SAFETY: the kernel's mask is the first word of the library's.
        set_mask(unsafe { *(&raw const machine.uc_sigmask).cast::<u64>() });
        pins::unpin(&range);
    }
}

/// Touches what the handler is about to use of its stack.
#[inline(never)]
fn probe() {
    let mut below = [0u8; 2048];
    core::hint::black_box(&mut below);
}

/// The part of a stack that is used next folds no more. False if it did not. No signal is taken.
fn keep(stack: usize) -> bool {
    let mut kept = (stack, false);
    cross(kept_open, &mut kept);
    kept.1
}

extern "C" fn kept_open((stack, did_fold): &mut (usize, bool)) {
    *did_fold = state::with(|state| way::keep_stack(state, *stack));
}

extern "C" fn wide_stack(stack: &mut Option<libc::stack_t>) {
    *stack = state::with(State::wide_stack);
}

extern "C" fn touched(touch: &mut Touch) {
    touch.served = state::with(|state| {
        let served = way::touch(state, touch.address, touch.writes);
        if served && addresses::contains(touch.stack) {
            way::keep_stack(state, touch.stack);
        }
        served
    });
    state::wait_for_disk();
}

/// A system call that was trapped.
struct Trap {
    number: c_long,
    arguments: [usize; 6],
    /// The thread may be cancelled while it waits.
    may_be_cancelled: bool,
    /// Pinned by arguments.
    direct: [Option<Range<usize>>; 6],
    nested: Option<Pinned>,
    /// A stack of ours for this thread.
    stack: Option<libc::stack_t>,
    /// What it believes to have, while it has one of ours.
    told: libc::stack_t,
    /// What it had.
    interrupted: libc::stack_t,
    answer: Answer,
}

extern "C" fn on_call(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes valid structures.
    let machine = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let (number, arguments, instruction) = of_call(&machine.uc_mcontext.gregs);
    // SAFETY: as above.
    let code = unsafe { (*info).si_code };
    let library = Code::of_program();
    if code != SYS_SECCOMP || !filter::is_meant(number, &arguments, instruction, &library) {
        previous::forward(signal, info, context);
        return;
    }
    keep_own_stack(machine);
    if number == libc::SYS_clone && !calls::forks(number, &arguments) {
        return begin_thread(machine, &arguments);
    }
    let mut trap = Trap {
        number,
        arguments,
        may_be_cancelled: cancel::may_be_cancelled(instruction),
        direct: Default::default(),
        nested: None,
        stack: None,
        told: stacks::none(),
        interrupted: stacks::none(),
        answer: None,
    };
    let answer = trap.serve(machine);
    machine.uc_mcontext.gregs[libc::REG_RAX as usize] = answer as i64;
}

impl Trap {
    fn serve(&mut self, machine: &mut libc::ucontext_t) -> isize {
        if calls::forks(self.number, &self.arguments) {
            return self.fork(machine);
        }
        // In a child that has not come home, pins end.
        state::settle();
        let kind = calls::kind(self.number, &self.arguments);
        let pointer = machine.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        if self.number == libc::SYS_mmap && musl::maps_stack(pointer) {
            if narrow::is_narrow(self.arguments[1]) {
                self.aside(map_narrow);
            }
            return self.answer.unwrap_or_else(|| self.make(self.arguments));
        }
        if kind == Use::Memory || kind == Use::Trace {
            self.aside(if kind == Use::Memory { about_memory } else { ask_to_be_traced });
            return self.answer.unwrap_or_else(|| self.make(self.arguments));
        }
        if kind == Use::Unserved {
            self.aside(not_served);
        }
        if !self.pin() {
            self.aside(open_direct);
        }
        if self.number == libc::SYS_sigaltstack {
            self.aside(prepare_stack);
        }
        if calls::lasts(self.number) {
            self.aside(keep_open);
        }
        let answer = match kind {
            Use::Mask => {
                let mask = (&raw mut machine.uc_sigmask).cast::<u64>();
                let interrupted = masks::Interrupted {
                    // SAFETY: the kernel's mask is the first word of the library's.
                    mask: unsafe { &mut *mask },
                    stack: &mut machine.uc_stack,
                    pointer,
                    ours: self.stack,
                    told: self.told,
                };
                let wait = |arguments| self.make(arguments);
                masks::serve(self.number, &self.arguments, interrupted, wait)
            }
            Use::Nested => {
                self.aside(pin_nested);
                let answer = self.make(self.arguments);
                if nested::executes(self.number) {
                    self.aside(has_not_executed);
                }
                answer
            }
            Use::Descriptors => self.close_range(),
            Use::Plain | Use::Memory | Use::Trace | Use::Unserved => self.make(self.arguments),
        };
        if self.number == libc::SYS_sigaltstack && answer < 0 && self.stack.is_some() {
            self.aside(take_stack_back);
        }
        if begins(self.number, &machine.uc_stack) {
            self.interrupted = machine.uc_stack;
            self.aside(give_stack);
            machine.uc_stack = self.stack.unwrap_or(machine.uc_stack);
        }
        self.direct.iter().flatten().for_each(pins::unpin);
        if self.nested.is_some() {
            self.aside(unpin_nested);
        }
        answer
    }

    /// Makes a child that has all that is in memory, while nothing is on the move. It comes back
    /// here as its parent does, and gets the stack that was asked for with the context.
    fn fork(&self, machine: &mut libc::ucontext_t) -> isize {
        let mask = set_mask(u64::MAX);
        state::before_fork();
        let mut arguments = self.arguments;
        let stack = match self.number {
            libc::SYS_clone => core::mem::take(&mut arguments[1]),
            _ => 0,
        };
        let child = self.make(arguments);
        if child == 0 {
            if stack != 0 {
                machine.uc_mcontext.gregs[libc::REG_RSP as usize] = stack as i64;
            }
            let flags = if self.number == libc::SYS_clone { self.arguments[0] } else { 0 };
            // At the end of a function that has its own stack, the C library ends the thread alone.
            // With a strand of ours the process would have no end.
            state::in_child(flags & libc::CLONE_FILES as usize != 0, stack == 0);
        } else {
            state::after_fork();
        }
        set_mask(mask);
        child
    }

    /// Closes descriptors of a range, but not ours.
    fn close_range(&self) -> isize {
        let [first, last, flags, ..] = self.arguments;
        let (first, last) = (first as u32, last as u32);
        if last < first {
            return self.make(self.arguments);
        }
        let parts = files::without_ours(first, last);
        let close = |(first, last)| self.make([first as usize, last as usize, flags, 0, 0, 0]);
        parts.map(close).min().unwrap_or(0)
    }

    /// Works on a block of ours.
    fn aside(&mut self, work: extern "C" fn(&mut Trap)) {
        let mask = set_mask(u64::MAX);
        state::settle();
        cross(work, self);
        set_mask(mask);
    }

    /// Makes the call. Memory that it uses is open.
    fn make(&self, arguments: [usize; 6]) -> isize {
        // SAFETY: the program asks for it.
        unsafe {
            match self.may_be_cancelled {
                true => cancel::pass(self.number, arguments),
                false => pass(self.number, arguments),
            }
        }
    }

    /// Pins what the arguments lead to. True if all of it is open.
    fn pin(&mut self) -> bool {
        if nested::executes(self.number) {
            // Its arguments are among what `nested` pins, and takes back.
            return true;
        }
        let mut open = true;
        for argument in 0..6 {
            self.direct[argument] = calls::used(self.number, &self.arguments, argument);
            if let Some(range) = &self.direct[argument] {
                open &= pins::pin(range);
            }
        }
        open
    }
}

/// Whether this is the first call that comes to us from a thread. With glibc that is the one about
/// its list of mutexes, and with musl the one that gives it its mask.
fn begins(number: c_long, stack: &libc::stack_t) -> bool {
    let has_none = || stacks::or_none(stack).ss_flags & libc::SS_DISABLE != 0;
    number == libc::SYS_set_robust_list
        || number == libc::SYS_rt_sigprocmask && is_musl() && has_none() && state::is_home()
}

extern "C" fn map_narrow(trap: &mut Trap) {
    let mapped = state::with(|state| state.narrow.map(trap.arguments[1]));
    trap.answer = mapped.map(|place| place as isize);
}

extern "C" fn about_memory(trap: &mut Trap) {
    trap.answer = state::with(|state| memory::serve(state, trap.number, &trap.arguments));
}

extern "C" fn not_served(_: &mut Trap) {
    state::with(way::melt);
}

extern "C" fn open_direct(trap: &mut Trap) {
    state::with(|state| {
        trap.direct.iter().flatten().for_each(|range| way::open_range(state, range));
    });
}

extern "C" fn pin_nested(trap: &mut Trap) {
    trap.nested = state::with(|state| {
        let pinned = nested::pin(state, trap.number, &trap.arguments);
        if !nested::executes(trap.number) {
            return Some(pinned);
        }
        // If the program is executed, nobody comes back to take the pins away.
        if state.executing.begin(&state::caller(), pinned.0) {
            // SAFETY: the program asked for it. Every signal is blocked until the end of this.
            unsafe { pass(libc::SYS_ptrace, [calls::TRACE_ME as usize, 0, 0, 0, 0, 0]) };
        }
        None
    });
}

extern "C" fn has_not_executed(_: &mut Trap) {
    state::with(|state| state.executing.failed(&state::caller()));
}

extern "C" fn ask_to_be_traced(trap: &mut Trap) {
    trap.answer = state::with(|state| state.executing.ask(&state::caller())).then_some(0);
}

extern "C" fn unpin_nested(trap: &mut Trap) {
    if let Some(pinned) = trap.nested.take() {
        pinned.release();
        // It is freed under the lock, like all that our heap has (C3).
        state::with(|_| drop(pinned));
    }
}

/// Before the kernel hears of a stack, which is open from then on: a signal may arrive in the same
/// moment, and the kernel cannot write to a closed page. For a thread that will have none, one of
/// ours.
extern "C" fn prepare_stack(trap: &mut Trap) {
    trap.told = state::with(|state| state.stacks.told(state::thread()));
    if trap.arguments[0] == 0 {
        return;
    }
    let Some(stack) = reach::peek::<libc::stack_t>(trap.arguments[0]) else { return };
    let range = way::pages(stack.ss_sp as usize, stack.ss_size);
    let is_none = stack.ss_flags & libc::SS_DISABLE != 0;
    if is_none || stacks::is_small(&stack) {
        let told = (!is_none).then_some(stack);
        trap.stack = state::with(|state| state.stack(told));
    } else if addresses::contains(range.start) {
        state::with(|state| way::dissolve(state, &range));
    }
}

/// The kernel has refused what `prepare_stack` prepared.
extern "C" fn take_stack_back(trap: &mut Trap) {
    state::with(|state| state.stacks.tell(state::thread(), trap.told));
}

/// A thread begins. It gets a stack for the handler of SIGSEGV.
extern "C" fn give_stack(trap: &mut Trap) {
    trap.stack = masks::provide(&trap.interrupted);
}

/// What the kernel uses as long as the thread lives stays open, and so does the word that it clears
/// at the end, just before it.
extern "C" fn keep_open(trap: &mut Trap) {
    const BEFORE: usize = 64;
    let Some(range) = trap.direct[0].clone() else { return };
    let range = range.start.saturating_sub(BEFORE)..range.end.min(range.start + PAGE);
    state::with(|state| way::dissolve(state, &way::pages(range.start, range.len())));
}
