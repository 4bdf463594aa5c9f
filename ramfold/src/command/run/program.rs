//! The program: started, sent the signals that come here, awaited.
//!
//! ```text
//!   a terminal's Ctrl-C, kill -GROUP     the program gets it itself
//!   kill PID                             passed on
//!   the program ends                     so does this command: with its status, or by its signal
//! ```
//!
//! Invariant: the program has this command's streams, terminal, process group, limits and
//! environment, except for the variables that the caller sets.
//!
//! Locks: none.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use host::{Witness, WitnessPlace, Witnessed, clock};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::Cause;

use crate::line::Failure;

/// Signals that are passed on.
const PASSED: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGALRM];
/// What a shell answers for a program that it cannot start, and for one that is not there.
const NOT_STARTED: i32 = 126;
const NOT_FOUND: i32 = 127;

/// What runs scripts that name no interpreter.
const SHELL: &str = "/bin/sh";

/// A witness may get a signal a moment later than this process, because senders take one after the
/// other.
const PATIENCE: Duration = Duration::from_millis(100);
/// What a witness has told counts for so long. timeout(1) sends a signal to this process and then
/// to its group, so one word of the witness may stand for two signals here.
const FRESH: Duration = Duration::from_millis(200);
/// The most words of a witness that are kept.
const TOLD_MAX: usize = 256;
/// The name of service managers that end each process of a service by itself.
const MANAGER: &str = "systemd";

/// A program that runs.
pub(crate) struct Program {
    child: Child,
    signals: SignalsInfo<WithOrigin>,
    group: Group,
}

/// How the program ended.
pub(crate) struct End(ExitStatus);

impl Program {
    /// Starts it. `prepare` changes its environment.
    pub(crate) fn start(
        words: &[OsString],
        prepare: impl Fn(&mut Command),
    ) -> Result<Program, Failure> {
        // A signal that is ignored stays so for the program. A handler here would change that.
        let ignored = ignored();
        let taken = PASSED.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let watched = taken.chain([SIGCHLD]);
        let signals = SignalsInfo::<WithOrigin>::new(watched)
            .map_err(|error| Failure::about("signals", error))?;
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::Usage("a program is missing".to_owned()));
        };
        let mut group = Group::watch(&PASSED);
        let start = |command: &mut Command| {
            prepare(command.args(arguments));
            command.spawn()
        };
        let started = match start(&mut Command::new(program)) {
            Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                let script = script(program).map(|path| start(Command::new(SHELL).arg(path)));
                script.unwrap_or(Err(error))
            }
            started => started,
        };
        match started {
            Ok(child) => {
                group.begun_ns = clock::monotonic_ns();
                Ok(Program { child, signals, group })
            }
            Err(error) => Err(Failure::NotStarted {
                text: format!("{}: {error}", program.display()),
                code: match error.kind() {
                    std::io::ErrorKind::NotFound => NOT_FOUND,
                    _ => NOT_STARTED,
                },
            }),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends, and passes signals on meanwhile.
    pub(crate) fn wait(mut self) -> Result<End, Failure> {
        let failed = |error| Failure::about("waiting for the program", error);
        loop {
            if let Some(status) = self.child.try_wait().map_err(failed)? {
                return Ok(End(status));
            }
            let came: Vec<Origin> = self.signals.wait().collect();
            // What came together is judged together, so that none is old at its turn.
            let end = Instant::now() + PATIENCE;
            came.iter().filter(|it| it.signal != SIGCHLD).for_each(|it| self.pass(it, end));
        }
    }

    fn pass(&mut self, signal: &Origin, end: Instant) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(pid), Some(named)) = (pid, Signal::from_named_raw(signal.signal))
            && !self.group.has(pid, signal, end)
        {
            // It may have ended a moment ago.
            let _ = kill_process(pid, named);
        }
    }
}

/// Whether the program has got a signal without us.
///
/// ```text
///   a terminal sent it (a key, a new size)                   has it, if it is in the group
///
///   told to the witness       signal was sent to             so the program
///   in our group   apart
///   no             no         this process                   gets it from us
///   yes            no         the process group              has it, if it is in the group
///   yes            yes        processes by file or by list   has it if systemd sent it to the
///                                                            cgroup, gets it from us otherwise
/// ```
///
/// Invariant: in doubt the program gets it from us, and may then get it twice.
struct Group {
    witnesses: Option<[Ear; 2]>,
    /// When the program was there. What came before did not reach it.
    begun_ns: u64,
}

/// A witness, and what it has told.
struct Ear {
    witness: Witness,
    told: Vec<Witnessed>,
}

impl Group {
    /// Signals of these numbers are watched from now on, if the system allows it.
    fn watch(signals: &[i32]) -> Group {
        // The first child in a new namespace would be its process 1, and end it by its end.
        let space = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        if space("pid") != space("pid_for_children") {
            return Group { witnesses: None, begun_ns: 0 };
        }
        let ear = |place| {
            let witness = Witness::start(signals, place).ok()?;
            Some(Ear { witness, told: Vec::new() })
        };
        let near = ear(WitnessPlace::Group);
        let both = near.and_then(|near| Some([near, ear(WitnessPlace::Apart)?]));
        Group { witnesses: both, begun_ns: 0 }
    }

    /// The witnesses have until `end` to be told of it.
    fn has(&mut self, program: Pid, signal: &Origin, end: Instant) -> bool {
        let is_in_group = getpgid(Some(program)) == Ok(getpgrp());
        let sender = match (&signal.cause, &signal.process) {
            // The kernel sends these for a terminal, to the group. A hangup it sends to the leader
            // of a session alone, or to the group, and a timer to its process.
            (Cause::Kernel, _) if [SIGINT, SIGQUIT, SIGWINCH].contains(&signal.signal) => {
                return is_in_group;
            }
            (Cause::Kernel, _) => 0,
            (_, Some(process)) => process.pid,
            (_, None) => return false,
        };
        let wanted = Wanted { signal: signal.signal, sender, begun_ns: self.begun_ns, end };
        self.was_told(program, &wanted, is_in_group).unwrap_or_else(|| {
            self.witnesses = None;
            false
        })
    }

    /// Whether the witnesses say that the program has it. `None` if they are gone.
    fn was_told(&mut self, program: Pid, wanted: &Wanted, is_in_group: bool) -> Option<bool> {
        let [near, apart] = self.witnesses.as_mut()?;
        if !near.hears(wanted)? {
            return Some(false);
        }
        let of_manager = is_manager(wanted.sender) && is_in_cgroup(program);
        Some(of_manager || is_in_group && !apart.hears(wanted)?)
    }
}

/// A signal, and when the program was there to get it.
struct Wanted {
    signal: i32,
    sender: i32,
    begun_ns: u64,
    /// Until when its witness may be told of it.
    end: Instant,
}

impl Ear {
    /// Whether the witness is told of the signal, or was a moment ago. `None` if it is gone.
    fn hears(&mut self, wanted: &Wanted) -> Option<bool> {
        loop {
            let left = wanted.end.saturating_duration_since(Instant::now());
            // All that is there is taken first, so that it never fills the pipe.
            let wait = if self.knows(wanted) { Duration::ZERO } else { left };
            match self.witness.next(wait).ok()? {
                Some(it) => self.told.push(it),
                None => break,
            }
        }
        let old = self.told.len().saturating_sub(TOLD_MAX);
        self.told.drain(..old);
        Some(self.knows(wanted))
    }

    fn knows(&self, wanted: &Wanted) -> bool {
        let fresh = clock::monotonic_ns().saturating_sub(FRESH.as_nanos() as u64);
        let since = fresh.max(wanted.begun_ns);
        let is_it = |it: &Witnessed| (it.signal, it.sender) == (wanted.signal, wanted.sender);
        self.told.iter().any(|it| is_it(it) && it.at_ns >= since)
    }
}

fn is_manager(sender: i32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{sender}/comm"));
    name.is_ok_and(|name| name.trim_end() == MANAGER)
}

/// Whether a manager that stops our cgroup stops the program too.
fn is_in_cgroup(program: Pid) -> bool {
    let of = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup"));
    match (of("self"), of(&program.as_raw_nonzero().to_string())) {
        (Ok(own), Ok(its)) => own == its,
        _ => false,
    }
}

/// The path of a program that the system takes for none, if it is a script that names no
/// interpreter. The shell runs these, as for execvp(3). A first line with a byte 0 is no text.
fn script(program: &OsStr) -> Option<PathBuf> {
    let named = Path::new(program);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let path = match program.as_bytes().contains(&b'/') {
        true => std::path::absolute(named).ok()?,
        false => {
            let mut places = std::env::split_paths(&paths).map(|place| place.join(named));
            places.find(|path| access(path, Access::EXEC_OK).is_ok() && path.is_file())?
        }
    };
    let mut first = Vec::new();
    std::fs::File::open(&path).ok()?.take(256).read_to_end(&mut first).ok()?;
    let line = first.split(|&byte| byte == b'\n').next().unwrap_or_default();
    (!line.contains(&0)).then_some(path)
}

/// The signals that are ignored, a bit for each, the first lowest.
fn ignored() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.signal() {
            Some(signal) => write!(f, "signal {signal}"),
            None => write!(f, "exit {}", self.0.code().unwrap_or(1)),
        }
    }
}

impl End {
    /// Ends this command in the same way.
    pub(crate) fn leave(self) -> Result<(), Failure> {
        if let Some(signal) = self.0.signal() {
            // The program has written a core file if it was to.
            let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
            let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
            let _ = emulate_default_handler(signal);
            return Err(Failure::Ended(128 + signal));
        }
        match self.0.code() {
            Some(0) => Ok(()),
            code => Err(Failure::Ended(code.unwrap_or(1))),
        }
    }
}
