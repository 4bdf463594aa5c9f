//! A thread that serves the faults of one other thread, on the CPU of that thread.
//!
//! ```text
//!   CPU 0    program | fault         | program                 | fault
//!                    `-> follower: COPY -- woken, and takes the CPU from it at once
//!                        `--------- SCHED_IDLE ----------------'
//!   CPU 1    the fault thread looks every 4 ms: does the follower get anywhere?
//! ```
//!
//! A fault that is served there costs two context switches and no interrupt. A server on another
//! CPU costs more: it wakes a CPU that sleeps, or waits for one that is awake. But a thread that is
//! woken while its CPU is busy moves to an idle CPU, if there is one. It stays if everything else
//! that runs on its CPU gives way (`SCHED_IDLE`). So the follower gives way to everything.
//!
//! A thread that gives way may get no time at all. A program that computes on that CPU stops the
//! follower, and every thread that waits for it or for one of its locks. The fault thread therefore
//! looks after it. If the follower got little done in 4 ms, the fault thread makes it an ordinary
//! thread again and serves messages itself. This needs a system that lets a thread rise from
//! `SCHED_IDLE`: `CAP_SYS_NICE`, or an `RLIMIT_NICE` of 20. On other systems there is no follower.
//!
//! Invariant: only speed depends on which thread is followed, because both threads may read
//! messages at the same time. Lock: none.

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

/// How often the fault thread looks. Each look wakes a CPU. Before that CPU sleeps again it takes
/// over threads that wait elsewhere, and the followed thread may be one of them. An ordinary thread
/// may also be kept waiting for as long as this.
const TICK: Duration = Duration::from_millis(4);

/// Faults from one look to the next, at the least; that is one in 31 us. With fewer, the thread
/// does not fault often enough to be followed, or the follower gets too little time.
const FAULTS_A_TICK_MIN: u64 = 128;

/// Numbers that are no thread's: none is followed, or none will ever be.
const NOBODY: u32 = 0;
const ENDED: u32 = u32::MAX;

/// A number that is no CPU's.
const NOWHERE: usize = usize::MAX;

#[derive(Debug)]
pub(super) struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The number of the follower.
    number: Pid,
    /// Its policy while it follows no thread.
    usual: Policy,
    cpus: CpuSet,
}

#[derive(Debug)]
pub(super) struct Shared {
    messages: Arc<Messages>,
    /// The thread to follow. It is a hint: a reader that sees it late only serves a message that
    /// another one could have served.
    followed: AtomicU32,
    called: Event,
    /// Faults that it has served.
    served: AtomicU64,
    /// The CPU that it is bound to. It is a hint.
    place: AtomicUsize,
}

impl Follower {
    /// Starts a follower. `None` if it could not rise again, or if there is one CPU only. A woken
    /// thread stays on its CPU there anyway.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
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

    /// Makes the follower follow `thread` for as long as this thread faults and no other does.
    /// Gives the number of faults that were served meanwhile. `None` means that the system has
    /// become strict, and must not be asked again.
    pub(super) fn follow(&self, thread: u32) -> Option<u64> {
        let before = self.shared.served();
        if set_policy(self.number, Policy::GIVES_WAY) {
            self.shared.tell(thread);
            let (mut last, mut off) = (before, NOWHERE);
            while self.shared.messages.rest(TICK) && self.shared.followed() == thread {
                let served = self.shared.served();
                if served - last < FAULTS_A_TICK_MIN {
                    break;
                }
                last = served;
                self.keep_off(&mut off);
            }
            self.shared.tell(NOBODY);
        }
        self.rise().then(|| self.shared.served() - before)
    }

    /// Keeps the fault thread off the CPU of the follower. If it were woken there, the follower
    /// would give way to it, and the followed thread would move away.
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

    /// Makes both threads what they were, on any CPU. False if the follower has to go on giving
    /// way.
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
        // relaxed: a number on which no other read depends.
        self.followed.load(Ordering::Relaxed)
    }

    fn tell(&self, thread: u32) {
        // relaxed: published by the Release of `raise`.
        self.followed.store(thread, Ordering::Relaxed);
        self.called.raise();
    }

    /// Faults that it has served so far.
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

    /// Stops following `thread`, unless the fault thread has named another one.
    fn give_up(&self, thread: u32) {
        // relaxed: for the reason in `followed`; only this thread waits for the change.
        let relaxed = Ordering::Relaxed;
        let _ = self.followed.compare_exchange(thread, NOBODY, relaxed, relaxed);
    }

    /// Goes to the CPU of `thread`; false if it cannot. On that CPU the follower runs only while
    /// `thread` waits, mostly for a page. So if there is no message, `thread` may have moved.
    fn go_after(&self, thread: u32) -> bool {
        let Some(cpu) = cpu_of(thread) else { return false };
        // relaxed: written by this thread alone.
        let there = cpu == self.place.load(Ordering::Relaxed) || bind(gettid(), &only(cpu));
        // relaxed: a hint.
        self.place.store(cpu, Ordering::Relaxed);
        there
    }
}

/// The number of this thread, its policy and its CPUs. `None` if it cannot give way and rise again.
fn introduction() -> Option<(Pid, Policy, CpuSet)> {
    let this = gettid();
    let cpus = rustix::thread::sched_getaffinity(None).ok()?;
    let usual = policy(this)?;
    let there = set_policy(this, Policy::GIVES_WAY);
    (there && set_policy(this, usual)).then_some((this, usual, cpus))
}
