//! Where our code begins in a program: before `main`, and in each forked child.
//!
//! ```text
//!   loader --> first: yard, gate, fork handlers, a strand for the pager --> main
//!   fork ----> child: heir: goes on with its copy of our memory
//!                     any other: waits at the gate until it has all of its memory; begins anew
//! ```
//!
//! Invariant: nothing here changes what the program sees: not its signals, not its descriptors, not
//! its `errno`.
//!
//! Lock: none.

use crate::board::{self, Way, refusals};
use crate::closed;
use crate::floor::call::call;
use crate::floor::gate::Answer;
use crate::floor::still::{STILL, Who};
use crate::floor::{gate, pristine, runner, strand, yard};
use crate::kernel;
use crate::threads::{heir, pager};
use core::arch::global_asm;
use core::ffi::{CStr, c_char};

/// What the environment may ask for.
const WISH: &str = "RAMFOLD_PATH";
const WISHES: [(&[u8], Way); 2] = [(b"userfaultfd", Way::Faults), (b"closed", Way::Closed)];

#[used]
#[unsafe(link_section = ".init_array")]
static FIRST: extern "C" fn() = first;

// Functions of the program's C library that take fork handlers; 0 where it has none.
global_asm!(
    ".weak __register_atfork",
    ".weak pthread_atfork",
    ".pushsection .data.rel.ro, \"aw\"",
    ".balign 8",
    ".globl ramfold_atfork",
    ".hidden ramfold_atfork",
    "ramfold_atfork:",
    ".quad __register_atfork",
    ".quad pthread_atfork",
    ".weak environ",
    ".weak __curbrk",
    ".weak gnu_get_libc_version",
    ".weak __dls3",
    ".weak thrd_create",
    ".globl ramfold_library",
    ".hidden ramfold_library",
    "ramfold_library:",
    ".quad gnu_get_libc_version",
    ".quad __curbrk",
    ".quad environ",
    ".quad __dls3",
    ".quad thrd_create",
    ".popsection",
);

type Handler = extern "C" fn();

unsafe extern "C" {
    #[link_name = "ramfold_atfork"]
    static ATFORK: [Option<unsafe extern "C" fn(Handler, Handler, Handler, usize) -> i32>; 2];
    #[link_name = "ramfold_library"]
    static LIBRARY: [usize; 5];
}

extern "C" fn first() {
    let is_refused = runner::is_valgrind();
    if is_refused {
        // It is told before our variables are kept, so that a forked child knows too.
        closed::refuse(refusals::VALGRIND);
    }
    // Valgrind complains of calls that it does not know, so it is not asked for any.
    if !pristine::keep() || (!is_refused && runner::is_emulator()) {
        return;
    }
    if !is_refused && is_to_close() && begin_closed() {
        return;
    }
    begin(None);
    // SAFETY: the linker fills the table; the loader has bound it.
    let [glibc, musl] = unsafe { ATFORK };
    if let Some(register) = glibc.or(musl) {
        // SAFETY: the handlers live as long as the process; the last argument is for libraries that
        // are unloaded, which this one is not.
        unsafe { register(gate::before, gate::after, child, 0) };
    }
}

/// Whether this program should fold without userfaultfd.
fn is_to_close() -> bool {
    wish().map_or_else(|| !kernel::may_have_faults(), |way| way == Way::Closed)
}

/// The way that the environment asks for.
fn wish() -> Option<Way> {
    let asked = variable(WISH)?;
    WISHES.iter().find(|(text, _)| *text == asked).map(|&(_, way)| way)
}

/// The value of a variable of the environment. Programs write over it from `main` on, as some do to
/// give themselves a title, so it is read before that.
fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: the loader has bound the table; the variables end with a null.
    unsafe {
        let environ = LIBRARY[2] as *const *const *const c_char;
        let mut entries = if environ.is_null() { return None } else { *environ };
        while !entries.is_null() && !(*entries).is_null() {
            let entry = CStr::from_ptr(*entries).to_bytes();
            let value = entry.strip_prefix(name.as_bytes()).and_then(|it| it.strip_prefix(b"="));
            if value.is_some() {
                return value;
            }
            entries = entries.add(1);
        }
    }
    None
}

/// Makes the gate, with the note of where the board is; that of a parent has it.
fn make_gate(inherited: Option<usize>) -> bool {
    let made = gate::make(inherited);
    if made && inherited.is_none() {
        gate::write_note(variable(board::VARIABLE).unwrap_or_default());
    }
    made
}

/// Prepares to fold without userfaultfd. False if that cannot be.
fn begin_closed() -> bool {
    // SAFETY: the loader has bound the table.
    let [glibc, brk, _, loader, threads] = unsafe { LIBRARY };
    let before = block_signals();
    yard::set_inherited(true);
    let library = closed::Library { glibc, musl: [loader, threads], brk };
    let begun = yard::reserve() && make_gate(None) && closed::begin(library, child_closed);
    if begun {
        strand::spawn(crate::threads::keeper::run);
    }
    yard::set_inherited(begun);
    set_mask(if begun { before & !closed::OURS } else { before });
    begun
}

/// After a fork, in the child of a process that folds without userfaultfd.
fn child_closed() {
    strand::spawn(crate::threads::keeper::run);
}

/// Blocks all signals, and gives the mask that was there.
fn block_signals() -> u64 {
    set_mask(u64::MAX)
}

fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let arguments =
        [libc::SIG_SETMASK as usize, &raw const mask as usize, &raw mut before as usize, 8, 0, 0];
    // SAFETY: a call about this thread, whose arguments live as long as it runs.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

/// After a fork, in the child.
extern "C" fn child() {
    match answer() {
        Answer::Heir => return,
        Answer::Whole => {}
        Answer::Lost => lost(),
    }
    let gate = gate::address();
    // SAFETY: the child has one thread, no strand of ours is left, and `gate` was the last that it
    // looked at.
    unsafe {
        yard::drop_all();
        pristine::restore();
    }
    begin(gate);
}

/// What becomes of this child. It is an heir if its copy of our memory is whole: both strands of
/// its parent were at rest.
fn answer() -> Answer {
    if !gate::is_passing() {
        return Answer::Whole;
    }
    if !(STILL.is_still(Who::Pager) && STILL.is_still(Who::Server)) {
        return gate::ask(false);
    }
    without_signals(heir::try_inherit)
}

fn lost() -> ! {
    const TEXT: &[u8] = b"ramfold: the parent of this process died while it forked, so memory \
                          of this process is lost\n";
    loop {
        // SAFETY: calls about this process; the text lives as long.
        unsafe {
            call(libc::SYS_write, [2, TEXT.as_ptr() as usize, TEXT.len(), 0, 0, 0]);
            call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]);
        }
    }
}

/// Starts the pager, if the system has memory for it. `gate` is the page of a parent.
fn begin(gate: Option<usize>) {
    without_signals(|| {
        if yard::reserve() && make_gate(gate) {
            strand::spawn(pager::run);
        }
    });
}

/// Does `work` on this thread without signals. A strand has the mask of the thread that starts it,
/// and takes no signal of the program.
fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let all = u64::MAX;
    let mut mask = 0u64;
    let block =
        [libc::SIG_SETMASK as usize, &raw const all as usize, &raw mut mask as usize, 8, 0, 0];
    let restore = [libc::SIG_SETMASK as usize, &raw const mask as usize, 0, 8, 0, 0];
    // SAFETY: calls about this thread, whose arguments live as long as they run.
    unsafe { call(libc::SYS_rt_sigprocmask, block) };
    let done = work();
    // SAFETY: as above.
    unsafe { call(libc::SYS_rt_sigprocmask, restore) };
    done
}
