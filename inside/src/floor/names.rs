//! What the standard library and the codecs take from a C library, under the names by which they
//! ask for it. The linker binds these names inside our file, and no program sees them.
//!
//! ```text
//!   memory      malloc and its kin              our heap
//!   threads     errno, thread-local storage     the strand that runs
//!   system      read, mmap, futex by syscall    the kernel
//!   unwinding   none: a panic ends the process with its message
//!   strings     memcpy and the like             `bytes`
//! ```
//!
//! Invariant: nothing here reads or writes what the program's C library keeps.
//!
//! Lock: none here; `heap` has one.

use super::call::call;
use super::{heap, strand, yard};
use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::ptr;

/// The C way to answer: -1 with `errno` set, or the value.
fn answer(value: isize) -> isize {
    if value >= 0 {
        return value;
    }
    // SAFETY: the strand is the one that runs, and `errno` is its own.
    unsafe { (*strand::current()).errno = -value as i32 };
    -1
}

/// A function that is a system call: its name, the call, and its arguments.
macro_rules! calls {
    ($($name:ident = $number:ident ( $($argument:ident : $kind:ty),* ) -> $result:ty;)*) => {$(
        /// # Safety
        ///
        /// That of the system call.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            let mut arguments = [0; 6];
            let given = [$($argument as usize),*];
            arguments[..given.len()].copy_from_slice(&given);
            // SAFETY: the caller's contract.
            answer(unsafe { call(libc::$number, arguments) }) as $result
        }
    )*};
}

calls! {
    read = SYS_read(fd: c_int, to: *mut c_void, len: usize) -> isize;
    write = SYS_write(fd: c_int, from: *const c_void, len: usize) -> isize;
    writev = SYS_writev(fd: c_int, parts: *const libc::iovec, count: c_int) -> isize;
    pread64 = SYS_pread64(fd: c_int, to: *mut c_void, len: usize, at: i64) -> isize;
    pwrite64 = SYS_pwrite64(fd: c_int, from: *const c_void, len: usize, at: i64) -> isize;
    open64 = SYS_open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    close = SYS_close(fd: c_int) -> c_int;
    fcntl64 = SYS_fcntl(fd: c_int, what: c_int, value: usize) -> c_int;
    ftruncate64 = SYS_ftruncate(fd: c_int, len: i64) -> c_int;
    ioctl = SYS_ioctl(fd: c_int, what: usize, value: usize) -> c_int;
    poll = SYS_poll(fds: *mut libc::pollfd, count: usize, millis: c_int) -> c_int;
    lseek64 = SYS_lseek(fd: c_int, at: i64, from: c_int) -> i64;
    fstat64 = SYS_fstat(fd: c_int, to: *mut c_void) -> c_int;
    stat64 = SYS_stat(path: *const c_char, to: *mut c_void) -> c_int;
    statx = SYS_statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void)
        -> c_int;
    readlink = SYS_readlink(path: *const c_char, to: *mut c_char, len: usize) -> isize;
    mincore = SYS_mincore(at: *mut c_void, len: usize, to: *mut u8) -> c_int;
    mprotect = SYS_mprotect(at: *mut c_void, len: usize, access: c_int) -> c_int;
    munlock = SYS_munlock(at: *mut c_void, len: usize) -> c_int;
    eventfd = SYS_eventfd2(count: c_uint, flags: c_int) -> c_int;
    getrandom = SYS_getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize;
    clock_gettime = SYS_clock_gettime(clock: c_int, to: *mut libc::timespec) -> c_int;
    nanosleep = SYS_nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int;
    clock_nanosleep = SYS_clock_nanosleep(
        clock: c_int, flags: c_int, time: *const libc::timespec, left: *mut libc::timespec
    ) -> c_int;
    sched_yield = SYS_sched_yield() -> c_int;
    sched_setscheduler = SYS_sched_setscheduler(
        thread: c_int, policy: c_int, param: *const c_void
    ) -> c_int;
    sched_setaffinity = SYS_sched_setaffinity(thread: c_int, len: usize, set: *const c_void)
        -> c_int;
    gettid = SYS_gettid() -> c_int;
    getpid = SYS_getpid() -> c_int;
    pause = SYS_pause() -> c_int;
    prctl = SYS_prctl(what: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
}

/// # Safety
///
/// That of the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's contract.
    answer(unsafe { call(number, [a, b, c, d, e, f]) }) as c_long
}

/// # Safety
///
/// That of `madvise(2)`. Whether children get our memory is not for those to say who map it.
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    if is_moot(advice) {
        return 0;
    }
    let arguments = [at as usize, len, advice as usize, 0, 0, 0];
    // SAFETY: the caller's contract.
    answer(unsafe { call(libc::SYS_madvise, arguments) }) as c_int
}

/// # Safety
///
/// That of `mmap(2)`. An address that is only a hint is not taken.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    answer(unsafe { yard::map(at as usize, len, access, flags, fd, offset) }) as *mut c_void
}

/// # Safety
///
/// That of `mmap(2)`, as above: offsets have 64 bits anyway.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { mmap64(at, len, access, flags, fd, offset) }
}

/// # Safety
///
/// That of `munmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's contract.
    answer(unsafe { yard::unmap(at as usize, len) }) as c_int
}

/// # Safety
///
/// That of `ppoll(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    count: usize,
    time: *const libc::timespec,
    mask: *const u64,
) -> c_int {
    // The kernel writes the rest of the time.
    let mut left = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut limit = ptr::null_mut();
    if !time.is_null() {
        // SAFETY: the caller's contract.
        left = unsafe { *time };
        limit = &raw mut left;
    }
    let arguments = [fds as usize, count, limit as usize, mask as usize, size_of::<u64>(), 0];
    // SAFETY: the caller's contract.
    answer(unsafe { call(libc::SYS_ppoll, arguments) }) as c_int
}

/// # Safety
///
/// That of `posix_madvise(3)`, which returns the error and does not touch `errno`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_madvise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    if is_moot(advice) {
        return 0;
    }
    // SAFETY: the caller's contract.
    let value = unsafe { call(libc::SYS_madvise, [at as usize, len, advice as usize, 0, 0, 0]) };
    -value as c_int
}

/// Advice about children, where they get all that is ours.
fn is_moot(advice: c_int) -> bool {
    advice == libc::MADV_DONTFORK && yard::is_inherited()
}

#[unsafe(no_mangle)]
extern "C" fn malloc(len: usize) -> *mut c_void {
    heap::take(len, 16).cast()
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, len: usize) -> *mut c_void {
    let Some(len) = count.checked_mul(len) else { return ptr::null_mut() };
    let place = heap::take(len, 16);
    if !place.is_null() {
        // SAFETY: the block has `len` bytes, and is the caller's alone.
        unsafe { ptr::write_bytes(place, 0, len) };
    }
    place.cast()
}

/// # Safety
///
/// That of `realloc(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(place: *mut c_void, len: usize) -> *mut c_void {
    let old = place.cast::<u8>();
    if old.is_null() {
        return malloc(len);
    }
    // SAFETY: the caller's contract: the block is in use.
    let had = unsafe { heap::len(old) };
    if len <= had {
        return place;
    }
    let new = heap::take(len, 16);
    if !new.is_null() {
        // SAFETY: both blocks have `had` bytes, and are two.
        unsafe {
            ptr::copy_nonoverlapping(old, new, had);
            heap::give(old);
        }
    }
    new.cast()
}

/// # Safety
///
/// That of `free(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn free(place: *mut c_void) {
    if !place.is_null() {
        // SAFETY: the caller's contract.
        unsafe { heap::give(place.cast()) };
    }
}

/// # Safety
///
/// That of `posix_memalign(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, len: usize) -> c_int {
    let place = heap::take(len, align);
    if place.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's contract.
    unsafe { *to = place.cast() };
    0
}

#[unsafe(no_mangle)]
extern "C" fn __errno_location() -> *mut c_int {
    // SAFETY: the strand is the one that runs.
    unsafe { &raw mut (*strand::current()).errno }
}

/// The address of a variable of this strand: the second word is its place in our storage. The first
/// is the number that the loader gave our file.
///
/// # Safety
///
/// The compiler makes these calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn __tls_get_addr(variable: *const [usize; 2]) -> *mut c_void {
    // SAFETY: the compiler has made the index; the strand is the one that runs.
    unsafe { ((*strand::current()).local + (*variable)[1]) as *mut c_void }
}

/// A strand never ends while our code uses its storage, so nothing is done at its end.
#[unsafe(no_mangle)]
extern "C" fn __cxa_thread_atexit_impl(_: usize, _: usize, _: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
static __dso_handle: u8 = 0;

/// # Safety
///
/// `key` is writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_key_create(key: *mut c_uint, _: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { *key = 1 };
    0
}

/// Answers of functions that have nothing to do here.
macro_rules! answers {
    ($($name:ident = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> isize {
            $value
        }
    )*};
}

answers! {
    // Threads: strands are started by `strand::spawn` alone.
    pthread_key_delete = 0;
    pthread_setspecific = 0;
    pthread_attr_init = libc::EAGAIN as isize;
    pthread_attr_destroy = 0;
    pthread_attr_setstacksize = 0;
    pthread_create = libc::EAGAIN as isize;
    pthread_detach = 0;
    pthread_join = libc::ESRCH as isize;
    pthread_setname_np = 0;
    // There is no other code to find by name, and no environment to ask.
    dlsym = 0;
    getenv = 0;
    getcwd = 0;
    realpath = 0;
    getauxval = 0;
    // A panic's backtrace is empty.
    dl_iterate_phdr = 0;
    _Unwind_Backtrace = 5;
    _Unwind_GetIP = 0;
    _Unwind_GetIPInfo = 0;
    _Unwind_GetLanguageSpecificData = 0;
    _Unwind_GetRegionStart = 0;
    _Unwind_GetTextRelBase = 0;
    _Unwind_GetDataRelBase = 0;
    _Unwind_SetGR = 0;
    _Unwind_SetIP = 0;
    // Hooks of zstd's traces.
    ZSTD_trace_compress_begin = 0;
    ZSTD_trace_compress_end = 0;
    ZSTD_trace_decompress_begin = 0;
    ZSTD_trace_decompress_end = 0;
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    abort()
}

#[unsafe(no_mangle)]
extern "C" fn pthread_self() -> usize {
    strand::current() as usize
}

/// # Safety
///
/// That of `sigfillset(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigfillset(set: *mut u64) -> c_int {
    // SAFETY: the caller's contract; the kernel's set is one word.
    unsafe { *set = u64::MAX };
    0
}

/// # Safety
///
/// That of `sigdelset(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sigdelset(set: *mut u64, signal: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *set &= !(1 << (signal - 1)) };
    0
}

/// # Safety
///
/// That of `pthread_sigmask(3)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    let arguments = [how as usize, set as usize, old as usize, size_of::<u64>(), 0, 0];
    // SAFETY: the caller's contract.
    -unsafe { call(libc::SYS_rt_sigprocmask, arguments) } as c_int
}

/// # Safety
///
/// `set` has `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(thread: c_int, len: usize, set: *mut u8) -> c_int {
    let arguments = [thread as usize, len, set as usize, 0, 0, 0];
    // SAFETY: the caller's contract.
    let written = answer(unsafe { call(libc::SYS_sched_getaffinity, arguments) });
    if written < 0 {
        return -1;
    }
    // SAFETY: the kernel wrote the bytes before; the rest are the caller's.
    unsafe { ptr::write_bytes(set.add(written as usize), 0, len - written as usize) };
    0
}

/// The selector of the segment that has the number of the CPU.
const CPU_NUMBER: u64 = 0x7b;

#[unsafe(no_mangle)]
extern "C" fn sched_getcpu() -> c_int {
    let limit: u64;
    // The kernel keeps the number of the CPU in the limit of a segment, for the function of the
    // same name in its vdso.
    // SAFETY: it reads a descriptor that every CPU has, and changes no memory.
    unsafe {
        core::arch::asm!(
            "lsl {0}, {0}",
            inout(reg) CPU_NUMBER => limit,
            options(nomem, nostack),
        );
    }
    (limit & 0xfff) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn sysconf(name: c_int) -> c_long {
    match name {
        libc::_SC_PAGESIZE => 4096,
        libc::_SC_NPROCESSORS_ONLN | libc::_SC_NPROCESSORS_CONF => {
            let mut set = [0u8; 128];
            // SAFETY: the set is as long as is said.
            unsafe { sched_getaffinity(0, set.len(), set.as_mut_ptr()) };
            set.iter().map(|byte| c_long::from(byte.count_ones() as u8)).sum::<c_long>().max(1)
        }
        _ => -1,
    }
}

/// # Safety
///
/// `to` has `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xpg_strerror_r(_: c_int, to: *mut c_char, len: usize) -> c_int {
    let text = c"error of the system";
    if len < text.count_bytes() + 1 {
        return libc::ERANGE;
    }
    // SAFETY: the buffer is long enough.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), to, text.count_bytes() + 1) };
    0
}

/// Ends the process as if the signal SIGABRT had not been caught.
#[unsafe(no_mangle)]
extern "C" fn abort() -> ! {
    let default = [0usize; 4];
    let open = [libc::SIG_UNBLOCK as usize, &raw const ABORTS as usize, 0, 8, 0, 0];
    // SAFETY: calls about this process, whose arguments live as long as they run.
    unsafe {
        let signal = libc::SIGABRT as usize;
        call(libc::SYS_rt_sigaction, [signal, default.as_ptr() as usize, 0, 8, 0, 0]);
        call(libc::SYS_rt_sigprocmask, open);
        let (process, thread) = (getpid() as usize, gettid() as usize);
        call(libc::SYS_tgkill, [process, thread, signal, 0, 0, 0]);
        loop {
            call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]);
        }
    }
}

static ABORTS: u64 = 1 << (libc::SIGABRT - 1);
