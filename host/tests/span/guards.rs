//! Pages that have guards: their memory is a file, which goes with them.

use crate::setting::whole;
use crate::setting::{in_a_child, in_a_child_in, is_child, is_child_in, path, served, setting_in};
use ramfold_host::{FaultError, FaultMode, FaultPath, PAGE_SIZE, Span, SpanAddress, Staging};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MODE: FaultMode = FaultMode::Guards;

/// Pages that the files of this process for folded memory have.
fn pages_of_files() -> u64 {
    let files = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let is_ours = |file: &fs::DirEntry| {
        fs::read_link(file.path())
            .is_ok_and(|name| name.to_string_lossy().contains("memfd:ramfold"))
    };
    let blocks = |file: fs::DirEntry| {
        fs::metadata(file.path())
            .map_or(0, |status| std::os::unix::fs::MetadataExt::blocks(&status))
    };
    files.filter(is_ours).map(blocks).sum::<u64>() * 512 / PAGE_SIZE as u64
}

/// What is discarded, given back or dropped would stay in the file for ever.
#[test]
fn memory_goes_back_with_the_pages() {
    if !as_told("guards::memory_goes_back_with_the_pages") {
        return;
    }
    let Some(mut at) = setting_in(MODE) else { return };
    assert_eq!(pages_of_files(), 64);
    let mut segment = at.staging.take().expect("taken back").expect("free");
    assert_eq!(at.span.move_out(0, 16, &mut segment, 0).pages, 16);
    assert_eq!(pages_of_files(), 48);
    at.memory.discard(16..24).expect("discarded");
    assert_eq!(pages_of_files(), 40);
    at.memory.unmap(60..64).expect("given back");
    assert_eq!(pages_of_files(), 36);
    assert_eq!(at.fill(0, 2, 9).pages, 2);
    assert_eq!(pages_of_files(), 38);
    drop(segment);
    drop(at);
    assert_eq!(pages_of_files(), 0);
    eprintln!("as told");
}

/// A guard takes no mapping, however many pages are out.
#[test]
fn guards_split_no_mapping() {
    let Some(mut at) = setting_in(MODE) else { return };
    let range = at.span.range();
    let mappings = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("the mappings can be read");
        let start = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
        maps.lines().filter_map(start).filter(|start| range.contains(start)).count()
    };
    let mut segment = at.staging.take().expect("taken back").expect("free");
    for page in (0..64).step_by(2) {
        assert_eq!(at.span.move_out(page, 1, &mut segment, page).pages, 1);
    }
    assert_eq!(mappings(), 1);
    drop(segment);
    assert_eq!(whole(&mut at.memory)[PAGE_SIZE], 2);
}

/// The offset of a page in the file is its address, so another span may get it.
#[test]
fn what_a_span_had_is_not_in_the_next_one_at_its_place() {
    if !as_told("guards::what_a_span_had_is_not_in_the_next_one_at_its_place") {
        return;
    }
    let Some(path) = path(MODE) else { return };
    let file = format!("/proc/self/fd/{}", number_of("memfd:ramfold"));
    let file = fs::OpenOptions::new().write(true).open(file).expect("a descriptor of its own");
    for round in 0..100 {
        let (span, mut memory) = Span::reserve(&path, 8).expect("a span");
        assert!(whole(&mut memory).iter().all(|&byte| byte == 0));
        whole(&mut memory).fill(7);
        let at = span.range().start;
        drop((span, memory));
        // As if the system had refused to take them away.
        if round % 2 == 1 {
            file.write_all_at(&[9; 8 * PAGE_SIZE], at as u64).expect("written");
        }
    }
    eprintln!("as told");
}

/// The system would end the program with a SIGXFSZ.
#[test]
fn a_program_that_may_not_write_large_files_is_refused_with_that_reason() {
    let test = "guards::a_program_that_may_not_write_large_files_is_refused_with_that_reason";
    if !as_told(test) {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: this child's limit, read by the system.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let error = FaultPath::open(MODE).expect_err("the file is longer");
    assert!(matches!(error, FaultError::Unguarded { .. }), "{error}");
    assert!(error.to_string().contains("RLIMIT_FSIZE"), "{error}");
    eprintln!("as told");
}

/// A child has neither the pages nor the right to change them, and its end changes nothing.
#[test]
fn a_forked_child_that_drops_what_it_inherited_leaves_its_parents_pages() {
    let Some(at) = setting_in(MODE) else { return };
    let mut parts = Some((Arc::clone(&at.span), at));
    // SAFETY: the child drops what it has, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let (span, mut at) = parts.take().expect("the child's copy");
        let refused = at.memory.discard(0..64).is_err();
        drop((at, span));
        // SAFETY: without what a test's end would do.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 1;
    // SAFETY: waits for that child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let (_, mut at) = parts.expect("the parent's own");
    assert_eq!(whole(&mut at.memory)[7 * PAGE_SIZE], 8);
}

/// A child that outlives its parent would keep all the memory that its parent had.
#[test]
fn a_forked_child_lets_go_of_the_file() {
    if !as_told("guards::a_forked_child_lets_go_of_the_file") {
        return;
    }
    let Some(mut at) = setting_in(MODE) else { return };
    let _served = served(&mut at);
    assert_eq!(whole(&mut at.memory)[7 * PAGE_SIZE], 42);
    assert_eq!(pages_of_files(), 1);
    // SAFETY: the child, of a process without other threads that count, looks and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let left = i32::from(pages_of_files() != 0);
        // SAFETY: without what a test's end would do.
        unsafe { libc::_exit(left) };
    }
    let mut status = 1;
    // SAFETY: waits for that child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(whole(&mut at.memory)[7 * PAGE_SIZE], 42, "the parent still has it");
    assert_eq!(pages_of_files(), 1);
    eprintln!("as told");
}

/// Runs a test in a child, which says "as told" if all was right.
fn as_told(test: &str) -> bool {
    if is_child() {
        return true;
    }
    let (signal, words) = in_a_child(test);
    let right = words.contains("as told") || words.contains("skipped: ");
    assert!(signal.is_none() && right, "{signal:?}: {words}");
    false
}

/// The descriptor of this process whose file has a name that ends so.
fn number_of(name: &str) -> libc::c_int {
    let files = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let is_it = |file: &fs::DirEntry| {
        fs::read_link(file.path()).is_ok_and(|link| link.to_string_lossy().contains(name))
    };
    let mut found = files.filter(is_it).filter_map(|file| file.file_name().to_str()?.parse().ok());
    found.next().expect("it is open")
}

/// Closes the file of a way whose pages are out, opens another way, whose file gets the number, and
/// brings the pages back. They would come back empty.
fn number_is_taken(mode: FaultMode, name: &str) {
    let Some(at) = setting_in(mode) else { return };
    let number = number_of(name);
    let mut segment = at.staging.take().expect("taken back").expect("free");
    assert_eq!(at.span.move_out(0, 8, &mut segment, 0).pages, 8);
    // SAFETY: as a program does that closes all its descriptors.
    unsafe { libc::close(number) };
    let _other = path(MODE).expect("another way");
    assert_eq!(number_of("memfd:ramfold"), number, "its file has the number");
    // SAFETY: the pages were moved there from these places.
    let came = unsafe { at.span.fill_from(0, 8, &segment, 0) };
    eprintln!("{came:?}");
}

#[test]
fn another_file_of_ours_is_not_taken_for_the_one_that_was_closed() {
    const TEST: &str = "guards::another_file_of_ours_is_not_taken_for_the_one_that_was_closed";
    let files = [(FaultMode::Protection, "/mem"), (MODE, "memfd:ramfold")];
    for (mode, name) in files.into_iter().filter(|_| path(MODE).is_some()) {
        match is_child_in(mode) {
            Some(true) => number_is_taken(mode, name),
            Some(false) => {
                let (signal, words) = in_a_child_in(mode, TEST);
                let right = words.contains("the descriptor of folded memory was closed");
                assert!(right && signal == Some(libc::SIGABRT), "{mode:?}, {signal:?}: {words}");
            }
            None => {}
        }
    }
}

/// It would show the program's own file, and change it.
#[test]
fn a_file_of_the_programs_is_not_mapped() {
    if !as_told("guards::a_file_of_the_programs_is_not_mapped") {
        return;
    }
    let Some(path) = path(MODE) else { return };
    let number = number_of("memfd:ramfold");
    // SAFETY: as above, and a name that lives longer than the call.
    let own = unsafe {
        libc::close(number);
        libc::memfd_create(c"the program's".as_ptr(), 0)
    };
    assert_eq!(own, number);
    let error = Span::reserve(&path, 8).expect_err("its file is gone");
    assert!(matches!(error, FaultError::Refused { .. }), "{error}");
    eprintln!("as told");
    std::mem::forget(path);
}

/// A thread may be in a system call that writes to the region while it is dropped.
#[test]
fn what_is_written_while_a_span_is_dropped_is_not_in_the_next_one() {
    if !as_told("guards::what_is_written_while_a_span_is_dropped_is_not_in_the_next_one") {
        return;
    }
    let Some(path) = path(MODE) else { return };
    let bytes = fs::File::open("/proc/self/exe").expect("this test");
    let at = AtomicUsize::new(0);
    // Even: the thread waits. Odd: it writes.
    let (turn, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let write = || {
        let at = std::ptr::without_provenance_mut(at.load(Ordering::SeqCst));
        // SAFETY: the system writes to a page that the span has, or had. No other thread of this
        // child maps memory meanwhile.
        unsafe { libc::pread(bytes.as_raw_fd(), at, PAGE_SIZE, 0) };
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let now = turn.load(Ordering::SeqCst);
                seen.store(now, Ordering::SeqCst);
                match now {
                    ROUNDS_DONE => break,
                    odd if odd % 2 == 1 => write(),
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let take_turns = |now| {
            turn.store(now, Ordering::SeqCst);
            while seen.load(Ordering::SeqCst) != now {
                std::hint::spin_loop();
            }
        };
        let _end = AtTheEnd(|| turn.store(ROUNDS_DONE, Ordering::SeqCst));
        let (mut again, mut last) = (0, 0);
        for round in 0..1000 {
            let (span, address) = SpanAddress::reserve(&path, 1024).expect("a span");
            // SAFETY: it is mapped, and no thread writes it now.
            let first = unsafe { address.as_ptr().cast::<u8>().read_volatile() };
            assert_eq!(first, 0, "round {round}: an earlier span's");
            again += usize::from(last == address.as_ptr().addr());
            last = address.as_ptr().addr();
            at.store(last, Ordering::SeqCst);
            take_turns(2 * round + 1);
            drop((span, address));
            take_turns(2 * round + 2);
            assert_eq!(pages_of_files(), 0, "round {round}");
        }
        assert!(again > 500, "{again} of 1000 were at the place of the one before");
    });
    eprintln!("as told");
}

/// The turn after the last one.
const ROUNDS_DONE: usize = usize::MAX;

/// Does something in any case, so that a thread that is waited for ends.
struct AtTheEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtTheEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Guards cannot be put on locked pages.
#[test]
fn locked_pages_are_named() {
    let Some(path) = path(MODE) else { return };
    let (span, mut memory) = Span::reserve(&path, 64).expect("a span");
    whole(&mut memory)[0] = 1;
    let (start, flags) = (span.range().start, libc::MLOCK_ONFAULT);
    // SAFETY: locks pages of this test's.
    let locked =
        unsafe { libc::mlock2(std::ptr::without_provenance(start), span.range().len(), flags) };
    if locked != 0 {
        return eprintln!("skipped: needs the right to lock memory");
    }
    let error = span.register(0..64).expect_err("they are locked");
    assert!(error.to_string().contains("mlock"), "{error}");
    assert_eq!(whole(&mut memory)[0], 1);
    assert_eq!(whole(&mut memory)[5 * PAGE_SIZE], 0);
}

/// The reason must not be taken for one of the system's.
#[test]
fn a_program_without_descriptors_is_told_so() {
    if !as_told("guards::a_program_without_descriptors_is_told_so") {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 3, rlim_max: 4096 };
    // SAFETY: this child's limit, read by the system.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    for error in [FaultMode::Protection, MODE].map(|mode| FaultPath::open(mode).expect_err("none"))
    {
        assert!(matches!(error, FaultError::Exhausted { .. }), "{error:?}");
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    }
    eprintln!("as told");
}

/// Without the word, nobody would know why.
#[test]
fn a_program_that_lowers_the_limit_of_files_is_told_so() {
    if is_child() {
        let Some(at) = setting_in(MODE) else { return eprintln!("skipped: ") };
        let mut segment = at.staging.take().expect("taken back").expect("free");
        assert_eq!(at.span.move_out(0, 8, &mut segment, 0).pages, 8);
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 30 };
        // SAFETY: this child's limit and signals.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        // SAFETY: the pages were moved there from these places.
        let came = unsafe { at.span.fill_from(0, 8, &segment, 0) };
        return eprintln!("{came:?}");
    }
    let (signal, words) = in_a_child("guards::a_program_that_lowers_the_limit_of_files_is_told_so");
    let named = words.contains("RLIMIT_FSIZE") && signal == Some(libc::SIGABRT);
    assert!(named || words.contains("skipped: "), "{signal:?}: {words}");
}

/// A child without the C library's hooks learns it at its first touch.
#[test]
fn a_child_of_a_plain_clone_ends_with_the_word_about_its_parent() {
    if is_child() {
        let Some(mut at) = setting_in(MODE) else { return eprintln!("skipped: ") };
        let _served = served(&mut at);
        // SAFETY: the child touches one page, and ends.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            // SAFETY: the page is not mapped, or ours.
            unsafe {
                at.memory.bytes(0..1).expect("its bytes").as_ptr().read_volatile();
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: waits for that child.
        unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
        assert_eq!(libc::WTERMSIG(status), libc::SIGABRT);
        return;
    }
    let (signal, words) =
        in_a_child("guards::a_child_of_a_plain_clone_ends_with_the_word_about_its_parent");
    let right = words.contains("this process was forked") || words.contains("skipped: ");
    assert!(signal.is_none() && right, "{signal:?}: {words}");
}

/// Refuses userfaultfd to this process, as container runtimes do. False if it may not.
fn refuse_userfaultfd() -> bool {
    let word = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut words = [
        word(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        // The next word, or the one after it.
        word(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_userfaultfd as u32),
        word(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        word(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let filter = libc::sock_fprog { len: words.len() as u16, filter: words.as_mut_ptr() };
    // SAFETY: a filter of this child's, which lives as long as the call.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}

/// Gives this process mounts without `/proc`. False if it may not.
fn be_without_proc() -> bool {
    // SAFETY: changes mounts of this child alone.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                std::ptr::null(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
            && libc::umount2(c"/proc".as_ptr(), libc::MNT_DETACH) == 0
    }
}

/// It was refused any region.
#[test]
fn a_program_without_userfaultfd_and_proc_has_guards() {
    if !as_told("guards::a_program_without_userfaultfd_and_proc_has_guards") {
        return;
    }
    if path(MODE).is_none() {
        return;
    }
    if !be_without_proc() || !refuse_userfaultfd() {
        return eprintln!("skipped: needs the right to mount, and filters of system calls");
    }
    let path = FaultPath::open_any().expect("guards");
    assert_eq!(path.mode(), MODE);
    let [userfaultfd, memory] = path.refusals() else { panic!("{:?}", path.refusals()) };
    assert!(matches!(userfaultfd, FaultError::Denied { .. }), "{userfaultfd}");
    assert!(matches!(memory, FaultError::Unforced { .. }), "{memory}");
    let (span, mut memory) = Span::reserve(&path, 64).expect("a span");
    let staging = Staging::reserve(&path, 1).expect("staging");
    whole(&mut memory).fill(9);
    span.register(0..64).expect("registered");
    let mut segment = staging.take().expect("taken back").expect("free");
    assert_eq!(span.move_out(0, 64, &mut segment, 0).pages, 64);
    // SAFETY: the pages were moved there from these places.
    assert_eq!(unsafe { span.fill_from(0, 64, &segment, 0) }.pages, 64);
    assert!(whole(&mut memory).iter().all(|&byte| byte == 9));
    eprintln!("as told");
}
