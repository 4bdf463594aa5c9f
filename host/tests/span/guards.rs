//! Pages that have guards: their memory is a file, which goes with them.

use crate::setting::{in_a_child, is_child, path, served, setting_in, whole};
use ramfold_host::{FaultError, FaultMode, FaultPath, PAGE_SIZE, Span, Staging};
use std::fs;
use std::sync::Arc;

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
    if !is_child() {
        let (signal, words) = in_a_child("guards::memory_goes_back_with_the_pages");
        let right = words.contains("as told") || words.contains("skipped: ");
        return assert!(signal.is_none() && right, "{signal:?}: {words}");
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
    let Some(path) = path(MODE) else { return };
    for _ in 0..100 {
        let (_, mut memory) = Span::reserve(&path, 8).expect("a span");
        assert!(whole(&mut memory).iter().all(|&byte| byte == 0));
        whole(&mut memory).fill(7);
    }
}

/// The system would end the program with a SIGXFSZ.
#[test]
fn a_program_that_may_not_write_large_files_is_refused_with_that_reason() {
    if !is_child() {
        let test = "guards::a_program_that_may_not_write_large_files_is_refused_with_that_reason";
        let (signal, words) = in_a_child(test);
        return assert!(signal.is_none() && words.contains("as told"), "{signal:?}: {words}");
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
    let Some(mut at) = setting_in(MODE) else { return };
    let _served = served(&mut at);
    assert_eq!(whole(&mut at.memory)[7 * PAGE_SIZE], 42);
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
    assert_eq!(whole(&mut at.memory)[7 * PAGE_SIZE], 42);
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
    if !is_child() {
        let (signal, words) =
            in_a_child("guards::a_program_without_userfaultfd_and_proc_has_guards");
        let right = words.contains("as told") || words.contains("skipped: ");
        return assert!(signal.is_none() && right, "{signal:?}: {words}");
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
