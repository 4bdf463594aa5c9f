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
//! The kernel says of a terminal's signals that they are its own. Of the others the witness knows
//! whether they were sent to more than this process. Without a witness every signal that a process
//! sent is passed on, so the program may get one twice, but never not at all.
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

use host::{Witness, Witnessed};
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

/// The witness may get a signal a moment later than this process. A manager sends one after the
/// other.
const PATIENCE: Duration = Duration::from_millis(50);
/// A sender may mean this process and then its group, as timeout(1) does. The second signal is then
/// told of once, and comes here once or twice.
const FRESH: Duration = Duration::from_millis(200);

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
            Ok(child) => Ok(Program { child, signals, group: Group::watch(&PASSED) }),
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
            came.iter().filter(|it| it.signal != SIGCHLD).for_each(|it| self.pass(it));
        }
    }

    fn pass(&mut self, signal: &Origin) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Some(pid), Some(named)) = (pid, Signal::from_named_raw(signal.signal))
            && !self.group.has(pid, signal)
        {
            // It may have ended a moment ago.
            let _ = kill_process(pid, named);
        }
    }
}

/// What is known of the signals of the process group.
struct Group {
    witness: Option<Witness>,
    told: Vec<(Witnessed, Instant)>,
}

impl Group {
    /// Signals of these numbers are watched from now on, if the system allows it.
    fn watch(signals: &[i32]) -> Group {
        Group { witness: Witness::start(signals).ok(), told: Vec::new() }
    }

    /// Whether `program` has got the signal without us.
    fn has(&mut self, program: Pid, signal: &Origin) -> bool {
        if matches!(signal.cause, Cause::Kernel) {
            return true;
        }
        let wanted = signal.process.map(|it| Witnessed { signal: signal.signal, sender: it.pid });
        wanted.is_some_and(|it| getpgid(Some(program)) == Ok(getpgrp()) && self.is_told(it))
    }

    fn is_told(&mut self, wanted: Witnessed) -> bool {
        let end = Instant::now() + PATIENCE;
        loop {
            self.told.retain(|(_, at)| at.elapsed() < FRESH);
            if self.told.iter().any(|(it, _)| *it == wanted) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.witness.as_mut().and_then(|witness| witness.next(left)) {
                Some(it) => self.told.push((it, Instant::now())),
                None => return false,
            }
        }
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
