//! Why a process does not fold, in words, and what would let it.
//!
//! ```text
//!   the library is in it, and was refused       the system's error, which the process told
//!   the library is not in it                    its program file, its environment, its limits
//! ```
//!
//! Invariant: each text says why, and what to do about it if there is something. Locks: none.

use std::fs::{self, File};
use std::io::{Error, Read};
use std::path::Path;

use inside::CannotFold;
use rustix::io::Errno;

use super::found::LIBRARY_NAME;

/// What the kernel tells the loader about a program with rights of its own: `AT_SECURE`.
const SECURE: u64 = 23;
/// The first bytes of a program file, in which its headers are.
const HEADERS: u64 = 4096;
const PRELOAD: &[u8] = b"LD_PRELOAD=";

const STATIC: &str = "it is statically linked, so no library can be put into it; a dynamically \
                      linked build of it would fold";
const FOREIGN: &str = "it is a program for another machine; a 64-bit build of it would fold";
const PRIVILEGED: &str = "it has rights of its own (set-user-id, file capabilities), so the loader \
                          takes no library for it; a copy without them would fold";
const CLEARED: &str = "it was started without LD_PRELOAD, as by env -i or sudo; put ramfold run \
                       after that command: env -i ramfold run -- PROGRAM";
const CROWDED: &str = "as many processes of this run as can be told apart have their place already";
const NARROW: &str = "its addresses are limited (ulimit -v), and the library needs more; raise \
                      that limit";
const HIDDEN: &str = "it has another root directory or other mounts, where the library is not; \
                      put ramfold run after the command that changes them";
const APART: &str = "it is in a PID namespace of its own, as of unshare or a sandbox; put ramfold \
                     run after the command that makes it";
const OTHER_LIBRARY: &str = "without userfaultfd only programs with musl, or with glibc 2.34 or \
                             later, fold, and its C library is not known; CAP_SYS_PTRACE lets it \
                             fold";
const FIXED: &str = "without userfaultfd a program folds only where addresses are chosen by \
                     chance, and here they are fixed (setarch -R, a debugger); CAP_SYS_PTRACE \
                     lets it fold";
const MELTED: &str = "it did what is not served without userfaultfd (mlockall, io_uring, io_setup, \
                      process_madvise, a userfaultfd of its own), so all of its memory came back; \
                      CAP_SYS_PTRACE lets it fold";
const GO: &str = "it is a Go program, and without userfaultfd its stacks are too small for \
                  signals; CAP_SYS_PTRACE lets it fold";
const VALGRIND: &str = "valgrind runs it, which lets one thread run at a time, so that no other \
                        could bring a page in";
/// If no reason can be seen.
pub(crate) const UNKNOWN: &str = "the library did not begin in it";

/// Why this machine cannot fold programs, and what would let it.
pub(super) fn everywhere(error: &CannotFold) -> String {
    let source = std::error::Error::source(error).and_then(|it| it.downcast_ref::<Error>());
    let help = source.and_then(errno).map_or("", here);
    format!("programs cannot fold here, because {error}{help}")
}

/// What to do about an error of the system that meets every program.
fn here(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "; run as root, or give the command the capability CAP_SYS_PTRACE (in a container: \
             --cap-add SYS_PTRACE, and a filter of system calls that lets userfaultfd through)"
        }
        Errno::INVAL => "; the kernel is older than Linux 6.8, and a newer one is needed",
        Errno::NOSYS => {
            "; the kernel has no userfaultfd, or a filter of system calls hides it; Linux 6.8 or \
             newer is needed"
        }
        Errno::NOENT => "; mount /proc",
        Errno::MFILE | Errno::NFILE => "; allow more descriptors (ulimit -n)",
        _ => "",
    }
}

/// Why a process was refused, by the number that it told: an error of the system, or a reason of
/// the library's own.
pub(crate) fn refused(number: i32) -> String {
    let own = match number {
        inside::board::refusals::LIBRARY => Some(OTHER_LIBRARY),
        inside::board::refusals::ADDRESSES => Some(FIXED),
        inside::board::refusals::MELTED => Some(MELTED),
        inside::board::refusals::GO => Some(GO),
        inside::board::refusals::VALGRIND => Some(VALGRIND),
        _ => None,
    };
    if let Some(text) = own {
        return text.to_owned();
    }
    let error = Error::from_raw_os_error(number);
    let help = match errno(&error) {
        Some(Errno::PERM) => {
            "; it gave up CAP_SYS_PTRACE, or a filter of system calls refuses userfaultfd"
        }
        Some(Errno::ACCESS) => {
            "; it may not be dumped (PR_SET_DUMPABLE), which hides its memory from itself too"
        }
        Some(Errno::NOSYS) => {
            "; a filter of system calls, or what runs the program (valgrind, an emulator), hides a \
             call that is needed"
        }
        // Only what folds without userfaultfd has addresses of its own.
        Some(Errno::EXIST) => {
            "; the program has memory where ours must be, as with ThreadSanitizer; CAP_SYS_PTRACE \
             lets it fold"
        }
        Some(Errno::NOENT) => "; it does not see /proc",
        Some(Errno::MFILE) => "; it may have no more descriptors (ulimit -n)",
        Some(Errno::NOMEM) => "; its addresses are limited (ulimit -v), or memory is full",
        Some(Errno::AGAIN) => "; it may have no more threads (ulimit -u)",
        _ => "",
    };
    format!("the system refuses what that needs: {error}{help}")
}

fn errno(error: &Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// Whether a process was asked to have the library of another run, which was started in this one.
pub(super) fn is_of_another_run(pid: u32, library: &Path) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ"));
    let any = Path::new(LIBRARY_NAME);
    environment.is_ok_and(|it| asks_for(&it, any) && !asks_for(&it, library))
}

/// Why the library is not in a process. `None` if no reason can be seen: it may begin yet.
pub(crate) fn not_loaded(pid: u32, library: &Path, is_full: bool) -> Option<&'static str> {
    let file = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
    if file("auxv").is_some_and(|vector| is_secure(&vector)) {
        return Some(PRIVILEGED);
    }
    let program_file = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    if program_file.parent().is_some_and(|place| place.ends_with("valgrind")) {
        // Its own file is linked statically. The library begins in what it runs, after a while.
        return Some(VALGRIND);
    }
    if let Some(why) = program(&headers(pid)) {
        return Some(why);
    }
    if file("environ").is_some_and(|environment| !asks_for(&environment, library)) {
        return Some(CLEARED);
    }
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    if namespace(&pid.to_string()).is_some_and(|its| Some(its) != namespace("self")) {
        return Some(APART);
    }
    let inner = library.strip_prefix("/").unwrap_or(library);
    if !Path::new(&format!("/proc/{pid}/root")).join(inner).exists() {
        return Some(HIDDEN);
    }
    if file("limits").is_some_and(|limits| is_narrow(&String::from_utf8_lossy(&limits))) {
        return Some(NARROW);
    }
    is_full.then_some(CROWDED)
}

/// The beginning of the program file of a process.
fn headers(pid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/exe")) {
        // A file that cannot be read tells nothing.
        let _ = file.take(HEADERS).read_to_end(&mut bytes);
    }
    bytes
}

/// Why a program cannot have the library, by its ELF headers. Offsets and numbers are those of
/// `elf(5)`.
fn program(bytes: &[u8]) -> Option<&'static str> {
    const CLASS_64: u8 = 2;
    const INTERPRETER: u64 = 3;
    if !bytes.starts_with(b"\x7fELF") {
        return None;
    }
    if *bytes.get(4)? != CLASS_64 {
        return Some(FOREIGN);
    }
    let (table, entry) = (number(bytes, 32, 8)?, number(bytes, 54, 2)?);
    let mut kinds = (0..number(bytes, 56, 2)?).map(|at| {
        let place = table.checked_add(at * entry)?;
        number(bytes, usize::try_from(place).ok()?, 4)
    });
    let has_interpreter = kinds.any(|kind| kind == Some(INTERPRETER));
    (!has_interpreter).then_some(STATIC)
}

/// The number of `len` bytes at a place, the lowest byte first.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(word))
}

/// Whether the loader was told that the program has rights of its own.
fn is_secure(vector: &[u8]) -> bool {
    let pairs = vector.chunks_exact(16);
    let pair = |pair: &[u8]| (number(pair, 0, 8), number(pair, 8, 8));
    pairs.map(pair).any(|(name, value)| name == Some(SECURE) && value != Some(0))
}

/// Whether an environment asks for the library.
fn asks_for(environment: &[u8], library: &Path) -> bool {
    let wanted = library.as_os_str().as_encoded_bytes();
    let mut entries = environment.split(|&byte| byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(PRELOAD));
    value.is_some_and(|value| value.windows(wanted.len()).any(|part| part == wanted))
}

/// Whether the text of `limits` bounds the addresses.
fn is_narrow(limits: &str) -> bool {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    let soft = line.and_then(|line| line.split_ascii_whitespace().next());
    soft.is_some_and(|soft| soft != "unlimited")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of a program with entries of these kinds.
    fn elf(class: u8, kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = kinds.len() as u8;
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn a_program_file_tells_whether_it_is_linked_dynamically() {
        assert_eq!(program(&elf(2, &[6, 3, 1])), None);
        assert_eq!(program(&elf(2, &[6, 1])), Some(STATIC));
        assert_eq!(program(&elf(1, &[6, 3])), Some(FOREIGN));
        assert_eq!(program(b"#!/bin/sh"), None);
        let whole = elf(2, &[6, 1]);
        for len in 0..whole.len() {
            // What is cut off tells nothing that is wrong; it must not panic.
            let _ = program(&whole[..len]);
        }
        let mut far = whole;
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(program(&far), Some(STATIC), "no entry can be read");
    }

    #[test]
    fn an_environment_asks_for_one_library() {
        let library = Path::new("/run/user/0/ramfold/run-7/libramfold_inside.so");
        let asks = |text: &[u8]| asks_for(text, library);
        assert!(asks(b"A=b\0LD_PRELOAD=/run/user/0/ramfold/run-7/libramfold_inside.so:/x\0"));
        for none in [&b""[..], b"A=b\0", b"LD_PRELOAD=/x\0", b"XLD_PRELOAD=/run/user/0/ramfold"] {
            assert!(!asks(none), "{}", String::from_utf8_lossy(none));
        }
    }

    #[test]
    fn rights_and_limits_are_read() {
        let vector = |name: u64, value: u64| [name.to_le_bytes(), value.to_le_bytes()].concat();
        let both = |value| [vector(6, 4096), vector(SECURE, value)].concat();
        assert_eq!((is_secure(&both(0)), is_secure(&both(1))), (false, true));
        let own = fs::read("/proc/self/auxv").expect("ours");
        assert!(!is_secure(&own) && own.len() > 16);
        let limits = |soft| format!("Max stack size  1  2\nMax address space   {soft}  unlimited");
        assert!(is_narrow(&limits("1048576")) && !is_narrow(&limits("unlimited")));
    }

    #[test]
    fn an_error_is_told_with_what_helps() {
        let rows = [
            (Errno::PERM, "Operation not permitted", "CAP_SYS_PTRACE", "CAP_SYS_PTRACE"),
            (Errno::ACCESS, "Permission denied", "CAP_SYS_PTRACE", "PR_SET_DUMPABLE"),
            (Errno::NOSYS, "not implemented", "Linux 6.8", "a filter"),
            (Errno::INVAL, "Invalid argument", "older than Linux 6.8", "Invalid"),
            (Errno::MFILE, "Too many open files", "ulimit -n", "ulimit -n"),
            (Errno::NOENT, "No such file", "mount /proc", "see /proc"),
            (Errno::EXIST, "File exists", "", "where ours must be"),
        ];
        for (errno, words, remedy, of_process) in rows {
            let text = refused(errno.raw_os_error());
            assert!(text.contains(words) && text.contains(of_process), "{text}");
            assert!(here(errno).contains(remedy), "{}", here(errno));
        }
        assert_eq!(refused(-1), refused(-1), "any number has a text");
        for (own, words) in
            [(-2, "C library"), (-3, "by chance"), (-4, "io_uring"), (-5, "Go"), (-6, "valgrind")]
        {
            assert!(refused(own).contains(words), "{}", refused(own));
        }
    }
}
