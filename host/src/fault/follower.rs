//! A thread that serves the faults of one other, on the CPU of that one.
//!
//! ```text
//!   CPU 0    program | fault         | program                 | fault
//!                    `-> follower: COPY -- woken, and takes the CPU from it at once
//!                        `--------- SCHED_IDLE ----------------'
//!   CPU 1    the fault thread looks every 4 ms: does the follower get anywhere?
//! ```
//!
//! A fault served there costs two context switches and no interrupt; from any other place it wakes
//! a CPU that sleeps, or waits for one that is awake. But a thread that is woken while its CPU is
//! busy moves to an idle one, if there is one. Where all that its CPU runs gives way (`SCHED_IDLE`)
//! it stays. So the follower gives way to everybody.
//!
//! Who gives way may get no time at all: a program that computes on that CPU stops the follower,
//! and whoever waits for it, or for a lock it holds. So the fault thread looks after it, and where
//! it got little done in 4 ms, makes it a thread like others and serves messages itself. That
//! takes a system that lets a thread rise from `SCHED_IDLE` again: `CAP_SYS_NICE`, or an
//! `RLIMIT_NICE` of 20. Where it does not, there is no follower.
//!
//! Both may read messages at the same time. So nothing but speed depends on who is followed.

use super::messages::{Messages, Reader};
use super::scheduling::{Policy, bind, cpu_of, only, policy, set_policy};
use crate::locks::Event;
use crate::machine::{Vital, cpu};
use rustix::thread::{CpuSet, Pid, gettid};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the fault thread looks. Each look wakes a CPU, and where that goes to sleep again it
/// takes over what it finds waiting elsewhere, the followed thread too; and to be kept waiting for
/// as long is nothing new to a thread like others.
const TICK: Duration = Duration::from_millis(4);

/// Faults from one look to the next, at least: what it takes in 31 us each. With fewer, the thread
/// does not fault often enough to be followed, or the follower gets too little time.
const OFTEN: u64 = 128;

/// No thread's number: nobody is followed, or ever will be.
const NOBODY: u32 = 0;
const ENDED: u32 = u32::MAX;

/// No CPU's number.
const NOWHERE: usize = usize::MAX;

#[derive(Debug)]
pub(super) struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The follower.
    number: Pid,
    /// What it is while it follows nobody.
    usual: Policy,
    cpus: CpuSet,
}

#[derive(Debug)]
pub(super) struct Shared {
    messages: Arc<Messages>,
    /// Whom to follow. A hint: who reads it late reads a message that another could have.
    followed: AtomicU32,
    called: Event,
    /// Faults it has served.
    served: AtomicU64,
    /// The CPU it is bound to. A hint.
    place: AtomicUsize,
}

impl Follower {
    /// None where it could not rise again, or there is but one CPU: there a thread that is woken
    /// stays where it was anyway.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub(super) fn start(messages: &Arc<Messages>) -> io::Result<Option<Follower>> {
        if cpu::count() < 2 {
            return Ok(None);
        }
        let shared = Arc::new(Shared {
            messages: Arc::clone(messages),
            followed: AtomicU32::new(NOBODY),
            called: Event::new(),
            served: AtomicU64::new(0),
            place: AtomicUsize::new(NOWHERE),
        });
        let (tell, told) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let thread = crate::machine::thread::spawn("ramfold-follow", move || {
            let vital = Vital::new("the thread that brings pages in has failed");
            let about = introduction();
            let stay = about.is_some();
            if tell.send(about).is_ok() && stay {
                theirs.run();
            }
            vital.end();
        })?;
        let Ok(Some((number, usual, cpus))) = told.recv() else { return Ok(None) };
        Ok(Some(Follower { shared, thread: Some(thread), number, usual, cpus }))
    }

    /// Has `thread` followed for as long as it faults and nobody else does: how many faults were
    /// served meanwhile. `None` where the system has become strict: it is not to be asked again.
    pub(super) fn follow(&self, thread: u32) -> Option<u64> {
        let before = self.shared.served();
        if set_policy(self.number, Policy::GIVES_WAY) {
            self.shared.tell(thread);
            let (mut last, mut off) = (before, NOWHERE);
            while self.shared.messages.rest(TICK) && self.shared.followed() == thread {
                let served = self.shared.served();
                if served - last < OFTEN {
                    break;
                }
                last = served;
                self.keep_off(&mut off);
            }
            self.shared.tell(NOBODY);
        }
        self.rise().then(|| self.shared.served() - before)
    }

    /// Who looks after the follower is never woken on its CPU: that would be somebody to give way
    /// to, and the followed thread would leave.
    fn keep_off(&self, off: &mut usize) {
        // relaxed: a hint.
        let place = self.shared.place.load(Ordering::Relaxed);
        if *off != place && place < CpuSet::MAX_CPU {
            let mut others = self.cpus;
            others.unset(place);
            bind(gettid(), &others);
            *off = place;
        }
    }

    /// Both back to what they were, and anywhere; false where the follower has to go on giving way.
    fn rise(&self) -> bool {
        bind(self.number, &self.cpus);
        bind(gettid(), &self.cpus);
        set_policy(self.number, self.usual)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.tell(ENDED);
        if let Some(thread) = self.thread.take() {
            // It ends the process if it panics.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn followed(&self) -> u32 {
        // relaxed: a number that nothing else is read by.
        self.followed.load(Ordering::Relaxed)
    }

    fn tell(&self, thread: u32) {
        // relaxed: published by the Release of `raise`.
        self.followed.store(thread, Ordering::Relaxed);
        self.called.raise();
    }

    /// Faults it has served so far.
    pub(super) fn served(&self) -> u64 {
        // relaxed: a count.
        self.served.load(Ordering::Relaxed)
    }

    fn run(&self) {
        let mut reader = Reader::of(&self.messages, 1);
        loop {
            let seen = self.called.seen();
            match self.followed() {
                ENDED => return,
                NOBODY => self.called.wait(seen, Duration::from_secs(3600)),
                thread => self.serve(thread, &mut reader),
            }
        }
    }

    fn serve(&self, thread: u32, reader: &mut Reader<'_>) {
        // relaxed: a hint.
        self.place.store(NOWHERE, Ordering::Relaxed);
        while self.followed() == thread {
            let served = reader.serve();
            // relaxed: a count.
            self.served.fetch_add(served as u64, Ordering::Relaxed);
            let another = served > 0 && reader.streak.thread != thread;
            if another || served == 0 && !(self.go_after(thread) && self.messages.wait()) {
                self.give_up(thread);
            }
        }
    }

    /// Follows `thread` no more, unless the fault thread has said something else.
    fn give_up(&self, thread: u32) {
        // relaxed: as in `followed`; only this thread waits to be told.
        let relaxed = Ordering::Relaxed;
        let _ = self.followed.compare_exchange(thread, NOBODY, relaxed, relaxed);
    }

    /// To the CPU where `thread` is. On its CPU this one runs only when that one waits, for a page
    /// most often: so when there is no message it may have gone elsewhere.
    fn go_after(&self, thread: u32) -> bool {
        let Some(cpu) = cpu_of(thread) else { return false };
        // relaxed: written by this thread alone.
        let there = cpu == self.place.load(Ordering::Relaxed) || bind(gettid(), &only(cpu));
        // relaxed: a hint.
        self.place.store(cpu, Ordering::Relaxed);
        there
    }
}

/// Who this thread is and where it may run, if it can give way and come back.
fn introduction() -> Option<(Pid, Policy, CpuSet)> {
    let this = gettid();
    let cpus = rustix::thread::sched_getaffinity(None).ok()?;
    let usual = policy(this)?;
    let there = set_policy(this, Policy::GIVES_WAY);
    (there && set_policy(this, usual)).then_some((this, usual, cpus))
}
