//! A forked child that goes on with its copy of our memory: the book, the trays, the store.
//!
//! ```text
//!   program's thread                 pager                               server
//!   makes the pager, waits           opens descriptor, files, slot
//!                                    makes the server -----------------> waits
//!                                    touches gate, or plea if it cannot
//!     heir:   goes on <------------- takes the engine over ------------> serves
//!     child:  begins anew <--------- ends                                ends
//! ```
//!
//! All that may fail is done before the gate is touched: a child that cannot fold by itself gets
//! all of its memory. After that the parent is not needed, and may end at any time.
//!
//! The kernel copies a page at a time, and parent and child share it until one of them writes.
//!
//! Invariant: no thread of the program runs until the book is true of this process.
//!
//! Lock: none. The engine's is free, because both of the parent's strands were at rest.

use super::manners::{be_prompt, leave_descriptors, name};
use super::pager;
use crate::board::{Board, Slot, State};
use crate::floor::gate::{self, Answer};
use crate::floor::still::STILL;
use crate::floor::{call, strand};
use crate::kernel::{Mapping, Resident, Uffd};
use crate::ways::Engine;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the parent answered, for the program's thread; 0 before.
static ANSWER: AtomicU32 = AtomicU32::new(0);
/// What the server is told: to wait, to serve or to end.
static TOLD: AtomicU32 = AtomicU32::new(WAIT);
/// The kernel makes these 0 at the end of each strand.
static PAGER_LIVES: AtomicU32 = AtomicU32::new(0);
static SERVER_LIVES: AtomicU32 = AtomicU32::new(0);

const WAIT: u32 = 0;
const SERVE: u32 = 1;
const END: u32 = 2;

/// How long to wait until a word is looked at again, in ms.
const LOOK: u64 = 1000;

/// In a child whose copy of our memory is whole, on the program's thread, which takes no signal:
/// goes on with it if that is possible. Otherwise no strand of ours is left.
pub(crate) fn try_inherit() -> Answer {
    STILL.begin_anew();
    strand::disown();
    // The last two are those of strands that an heir among this process's ancestors made.
    for word in [&ANSWER, &TOLD, &PAGER_LIVES, &SERVER_LIVES] {
        // relaxed: there is one thread.
        word.store(0, Ordering::Relaxed);
    }
    if !strand::spawn_until(run, &PAGER_LIVES) {
        return gate::ask(false);
    }
    // Acquire pairs with the Release in `answer`, so that what the strand has done is seen.
    while ANSWER.load(Ordering::Acquire) == 0 {
        call::wait(&ANSWER, 0, LOOK);
    }
    // relaxed: as above.
    match ANSWER.load(Ordering::Relaxed) {
        it if it == Answer::Heir as u32 => {
            gate::take_over();
            Answer::Heir
        }
        it => {
            [&PAGER_LIVES, &SERVER_LIVES].into_iter().for_each(wait_for_end);
            if it == Answer::Whole as u32 { Answer::Whole } else { Answer::Lost }
        }
    }
}

fn wait_for_end(lives: &AtomicU32) {
    loop {
        // Acquire pairs with the kernel's write, so that the strand's stack is used no more.
        let word = lives.load(Ordering::Acquire);
        if word == 0 {
            return;
        }
        call::wait(lives, word, LOOK);
    }
}

fn answer(answer: Answer) {
    // Release pairs with the Acquire in `try_inherit`, so that what was done here is seen.
    ANSWER.store(answer as u32, Ordering::Release);
    call::wake(&ANSWER);
}

fn tell(word: u32) {
    // Release pairs with the Acquire in `serve`, so that the server finds the engine in order.
    TOLD.store(word, Ordering::Release);
    call::wake(&TOLD);
}

/// What the child needs to fold by itself.
struct Heir {
    board: &'static Board,
    slot: &'static Slot,
    uffd: Uffd,
    resident: Resident,
    mappings: Vec<Mapping>,
    small: SmallPages,
}

/// Keeps the kernel from making huge pages of this process's memory. From the moment at which the
/// parent closes its descriptor until the memory is registered again, the kernel would fill pages
/// that are out with zeros.
struct SmallPages {
    /// It was so before.
    were: bool,
}

impl SmallPages {
    fn only() -> SmallPages {
        let were = prctl(libc::PR_GET_THP_DISABLE, 0) != 0;
        if !were {
            prctl(libc::PR_SET_THP_DISABLE, 1);
        }
        SmallPages { were }
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        if !self.were {
            prctl(libc::PR_SET_THP_DISABLE, 0);
        }
    }
}

fn prctl(option: i32, value: usize) -> isize {
    // SAFETY: the options take a number, and no address.
    unsafe { call::call(libc::SYS_prctl, [option as usize, value, 0, 0, 0, 0]) }
}

/// The pager's strand.
extern "C" fn run() {
    leave_descriptors();
    name("ramfold-pager");
    be_prompt();
    let heir = Heir::prepare();
    match (gate::ask(heir.is_some()), heir) {
        (Answer::Heir, Some(heir)) => {
            let (board, slot) = (heir.board, heir.slot);
            heir.take_over();
            answer(Answer::Heir);
            pager::go_on(board, slot);
        }
        (other, heir) => {
            drop(heir);
            tell(END);
            answer(other);
        }
    }
}

/// The server's strand.
extern "C" fn serve() {
    loop {
        // Acquire pairs with the Release in `tell`, so that the engine is in order.
        match TOLD.load(Ordering::Acquire) {
            SERVE => return pager::serve(),
            END => return,
            word => call::wait(&TOLD, word, LOOK),
        }
    }
}

impl Heir {
    /// `None` if something is missing.
    fn prepare() -> Option<Heir> {
        let (engine, board, _) = pager::inherited();
        let board = board.filter(|_| !engine.is_null())?;
        let uffd = Uffd::open().ok()?;
        let resident = Resident::open().ok()?;
        let slot = board.claim(u64::from(std::process::id()))?;
        let mappings = resident.mappings().ok()?;
        let small = SmallPages::only();
        let heir = Heir { board, slot, uffd, resident, mappings, small };
        strand::spawn_until(serve, &SERVER_LIVES).then_some(heir)
    }

    /// Takes the engine over, and starts the server.
    fn take_over(self) {
        let (engine, _, server) = pager::inherited();
        if !server.is_null() {
            // SAFETY: the parent's server leaked it, and was at rest. Its thread is not here.
            unsafe { Box::from_raw(server) }.abandon();
        }
        let files = (self.uffd, self.resident);
        // SAFETY: the parent's strands were at rest when this process was made, and those of this
        // process wait. The program has one thread, which waits too.
        unsafe { Engine::inherit(engine, files, &self.mappings, gate::early()) };
        drop(self.small);
        strand::drop_old();
        self.slot.set_state(State::Folding);
        pager::tell_server(self.slot);
        tell(SERVE);
    }
}
