// Programs that do with their memory what few programs do. Each prints "right" at the end.
//
//   edges rings    io_uring, with and without registered buffers
//   edges locks    memory that is locked, and then is not
//   edges lockall  all memory is locked, what comes later too
//   edges frees    memory that the system may free
//   edges locals   thread-local storage
//   edges jits     memory that is written and executed in turn
//   edges huge     huge pages
//   edges fences   guard pages that are no mappings of their own
//   edges owners   a userfaultfd of the program's own
//   edges vforks   a child by vfork, which writes to its parent's memory
//   edges debugs   starts a program in order to trace it, as a debugger does
//   edges watched  another process looks at the memory, and at the registers
//   edges private  nobody may look at its memory or at its files in /proc
//   edges dumps    aborts; the file "where" says where its memory is
//   edges loops    uses its memory again and again, and says how much of it is there
//   edges tells    says whether it is in front, and which streams are terminals
//   edges lacks    executes `cat` where two system calls are missing, as in an emulator of programs

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "pages.h"

// A run looks at its processes ten times a second. One that ends before is not told of.
static void linger(void) { usleep(500000); }

// --- rings

static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} ring;

static void ring_open(void) {
    struct io_uring_params p = {0};
    ring.fd = (int)syscall(SYS_io_uring_setup, 8, &p);
    if (ring.fd < 0) wrong("io_uring_setup", errno);
    size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    size_t cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    int both = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_POPULATE;
    char *s = mmap(NULL, sq, both, how, ring.fd, IORING_OFF_SQ_RING);
    char *c = mmap(NULL, cq, both, how, ring.fd, IORING_OFF_CQ_RING);
    ring.sqes = mmap(NULL, p.sq_entries * sizeof(struct io_uring_sqe), both, how, ring.fd,
                     IORING_OFF_SQES);
    if (s == MAP_FAILED || c == MAP_FAILED || ring.sqes == MAP_FAILED) wrong("ring", 0);
    ring.sq_tail = (unsigned *)(s + p.sq_off.tail);
    ring.sq_mask = (unsigned *)(s + p.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(s + p.sq_off.array);
    ring.cq_head = (unsigned *)(c + p.cq_off.head);
    ring.cq_tail = (unsigned *)(c + p.cq_off.tail);
    ring.cq_mask = (unsigned *)(c + p.cq_off.ring_mask);
    ring.cqes = (struct io_uring_cqe *)(c + p.cq_off.cqes);
}

// One request, and its answer.
static int ring_do(int op, int file, void *at, size_t bytes, int buffer) {
    unsigned tail = *ring.sq_tail, index = tail & *ring.sq_mask;
    struct io_uring_sqe *sqe = &ring.sqes[index];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = op;
    sqe->fd = file;
    sqe->addr = (uintptr_t)at;
    sqe->len = bytes;
    sqe->buf_index = buffer;
    ring.sq_array[index] = index;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    long done = syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    if (done != 1) wrong("io_uring_enter", errno);
    unsigned head = *ring.cq_head;
    if (head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) wrong("no answer", 0);
    int result = ring.cqes[head & *ring.cq_mask].res;
    __atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static void rings(void) {
    enum { BUFFERS = 1024 };
    static char page[PAGE];
    char *plain = map(PAGES), *buffers = map(BUFFERS);
    int file = (int)syscall(SYS_memfd_create, "file", 0);
    fill_all(plain, PAGES, 0);
    fill_all(buffers, BUFFERS, 0);
    press();
    ring_open();
    // While most of them are out. From here on the device knows the pages that they have now.
    struct iovec whole = {buffers, (size_t)BUFFERS * PAGE};
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &whole, 1))
        wrong("io_uring_register", errno);
    check_all("registered", buffers, BUFFERS, 0);
    for (uint64_t turn = 1; turn < 4; turn++) {
        press();
        for (size_t p = 0; p < BUFFERS; p++) {
            fill(page, p, turn);
            if (pwrite(file, page, PAGE, 0) != PAGE) wrong("pwrite", p);
            if (ring_do(IORING_OP_READ_FIXED, file, buffers + p * PAGE, PAGE, 0) != PAGE)
                wrong("a registered buffer is read into", p);
            if (ring_do(IORING_OP_READ, file, plain + p * PAGE, PAGE, 0) != PAGE)
                wrong("memory is read into", p);
        }
        check_all("registered buffers", buffers, BUFFERS, turn);
        press();
        // What the device gives is what the program sees, after the press too.
        for (size_t p = 0; p < BUFFERS; p++) {
            if (ring_do(IORING_OP_WRITE_FIXED, file, buffers + p * PAGE, PAGE, 0) != PAGE)
                wrong("a registered buffer is written from", p);
            if (pread(file, page, PAGE, 0) != PAGE) wrong("pread", p);
            check("what was written", page, p, turn);
        }
        check_all("registered buffers at the end", buffers, BUFFERS, turn);
        check_all("memory at the end", plain, BUFFERS, turn);
    }
    for (size_t p = BUFFERS; p < PAGES; p++) check("the rest", plain + p * PAGE, p, 0);
}

// --- locks

static void locks(void) {
    size_t pages = PAGES / 4;
    char *at = map(pages);
    fill_all(at, pages, 0);
    press();
    if (mlock(at, pages * PAGE)) wrong("mlock", errno);
    press();
    static unsigned char there[16384];
    if (mincore(at, pages * PAGE, there)) wrong("mincore", errno);
    for (size_t p = 0; p < pages; p++)
        if (!(there[p] & 1)) wrong("a locked page is out", p);
    check_all("locked", at, pages, 0);
    fill_all(at, pages, 1);
    if (munlock(at, pages * PAGE)) wrong("munlock", errno);
    press();
    check_all("unlocked", at, pages, 1);
}

// All of it, which a process without userfaultfd is not folded after.
static void locks_all(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    until_some_are_out(PAGES);
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) wrong("mlockall", errno);
    check_all("locked", at, PAGES, 0);
    char *later = map(PAGES / 4);
    fill_all(later, PAGES / 4, 1);
    if (munlockall()) wrong("munlockall", errno);
    press();
    check_all("unlocked", at, PAGES, 0);
    check_all("what came later", later, PAGES / 4, 1);
    linger();
}

// --- frees

static void frees(void) {
    char *at = map(PAGES);
    for (uint64_t turn = 1; turn < 4; turn++) {
        fill_all(at, PAGES, turn);
        press();
        char *half = at + PAGES / 2 * PAGE;
        if (madvise(half, PAGES / 2 * PAGE, MADV_FREE)) wrong("MADV_FREE", errno);
        // What is written after it stays.
        for (size_t p = PAGES / 2; p < PAGES; p += 2) fill(at + p * PAGE, p, turn + 10);
        press();
        for (size_t p = 0; p < PAGES; p++) {
            char *page = at + p * PAGE;
            if (p < PAGES / 2) check("what is not free", page, p, turn);
            else if (p % 2 == 0) check("what was written again", page, p, turn + 10);
            else if (!is_zero(page)) check("what may be free", page, p, turn);
        }
    }
}

// --- locals

enum { LOCAL_PAGES = 512, LOCAL_THREADS = 6 };
static __thread char local[LOCAL_PAGES * PAGE] __attribute__((aligned(4096)));
static pthread_barrier_t filled, pressed;

static void *uses_locals(void *number) {
    uint64_t turn = (uintptr_t)number;
    fill_all(local, LOCAL_PAGES, turn);
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&pressed);
    check_all("thread-local storage", local, LOCAL_PAGES, turn);
    return NULL;
}

static void locals(void) {
    pthread_t threads[LOCAL_THREADS];
    pthread_barrier_init(&filled, NULL, LOCAL_THREADS + 1);
    pthread_barrier_init(&pressed, NULL, LOCAL_THREADS + 1);
    for (int round = 0; round < 3; round++) {
        for (uintptr_t t = 0; t < LOCAL_THREADS; t++)
            if (pthread_create(&threads[t], NULL, uses_locals, (void *)(t + 1))) wrong("thread", t);
        fill_all(local, LOCAL_PAGES, 99);
        pthread_barrier_wait(&filled);
        press();
        pthread_barrier_wait(&pressed);
        for (int t = 0; t < LOCAL_THREADS; t++) pthread_join(threads[t], NULL);
        check_all("the first thread's", local, LOCAL_PAGES, 99);
    }
}

// --- jits

// A function at the start of each page, which returns the page's number and a turn.
static void emit(char *page, size_t p, uint32_t turn) {
    uint32_t value = p * 16 + turn;
    fill(page, p, turn);
    page[0] = (char)0xb8;  // mov eax, value; ret
    memcpy(page + 1, &value, 4);
    page[5] = (char)0xc3;
}

static void jits(void) {
    size_t pages = PAGES / 2;
    char *code = map(pages);
    for (uint32_t turn = 1; turn < 6; turn++) {
        if (mprotect(code, pages * PAGE, PROT_READ | PROT_WRITE)) wrong("to write", errno);
        for (size_t p = 0; p < pages; p++) emit(code + p * PAGE, p, turn);
        // Some of it is out when it becomes code.
        if (turn % 2) press();
        if (mprotect(code, pages * PAGE, PROT_READ | PROT_EXEC)) wrong("to execute", errno);
        press();
        for (size_t p = 0; p < pages; p++) {
            int (*call)(void) = (int (*)(void))(code + p * PAGE);
            if (call() != (int)(p * 16 + turn)) wrong("code", p);
            if (((uint64_t *)(code + p * PAGE))[37] != word(p, turn, 37)) wrong("data", p);
        }
    }
}

// --- huge

static void huge(void) {
    enum { HUGE = 2 << 20, COUNT = 24 };
    char *raw = map((COUNT + 1) * (HUGE / PAGE));
    char *at = (char *)(((uintptr_t)raw + HUGE - 1) / HUGE * HUGE);
    size_t pages = (size_t)COUNT * HUGE / PAGE;
    if (madvise(at, pages * PAGE, MADV_HUGEPAGE)) wrong("MADV_HUGEPAGE", errno);
    for (uint64_t turn = 1; turn < 4; turn++) {
        fill_all(at, pages, turn);
        check_all("huge pages", at, pages, turn);
        press();
        // One page of each comes back.
        for (size_t p = 7; p < pages; p += HUGE / PAGE) check("one page", at + p * PAGE, p, turn);
        check_all("huge pages that were out", at, pages, turn);
    }
}

// --- fences

static sigjmp_buf back;
static void jump(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static int is_fenced(char *at) {
    if (sigsetjmp(back, 1)) return 1;
    *(volatile char *)at;
    return 0;
}

static void fences(void) {
    enum { EVERY = 16, INSTALL = 102, REMOVE = 103 };  // MADV_GUARD_*, Linux 6.13
    struct sigaction action = {.sa_handler = jump};
    sigaction(SIGSEGV, &action, NULL);
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    press();
    if (madvise(at + 3 * PAGE, PAGE, INSTALL)) {
        if (errno != EINVAL) wrong("MADV_GUARD_INSTALL", errno);
        // As on an older kernel. It has done nothing.
        check_all("without guards", at, PAGES, 0);
        fputs("guards are refused\n", stderr);
        return;
    }
    for (size_t p = 3 + EVERY; p < PAGES; p += EVERY)
        if (madvise(at + p * PAGE, PAGE, INSTALL)) wrong("MADV_GUARD_INSTALL", errno);
    for (int round = 0; round < 2; round++) {
        press();
        for (size_t p = 0; p < PAGES; p++)
            if (p % EVERY != 3) check("between guards", at + p * PAGE, p, 0);
        for (size_t p = 3; p < PAGES; p += EVERY)
            if (!is_fenced(at + p * PAGE)) wrong("a guard is gone", p);
    }
    for (size_t p = 3; p < PAGES; p += EVERY) {
        if (madvise(at + p * PAGE, PAGE, REMOVE)) wrong("MADV_GUARD_REMOVE", errno);
        if (!is_zero(at + p * PAGE)) wrong("where a guard was", p);
        fill(at + p * PAGE, p, 0);
    }
    press();
    check_all("all", at, PAGES, 0);
}

// --- owners

static int own_faults;
static char *own_page;

static void *serves(void *at) {
    for (;;) {
        struct uffd_msg message;
        struct pollfd ready = {own_faults, POLLIN, 0};
        poll(&ready, 1, -1);
        if (read(own_faults, &message, sizeof message) != sizeof message) continue;
        char *page = (char *)(message.arg.pagefault.address / PAGE * PAGE);
        fill(own_page, (page - (char *)at) / PAGE, 3);
        struct uffdio_copy copy = {(uintptr_t)page, (uintptr_t)own_page, PAGE, 0, 0};
        ioctl(own_faults, UFFDIO_COPY, &copy);
    }
    return NULL;
}

static void owners(void) {
    enum { OWN = 256 };
    char *at = map(OWN), *other = map(PAGES);
    own_page = map(1);
    fill_all(other, PAGES, 0);
    press();
    own_faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (own_faults < 0) {
        if (errno != EPERM) wrong("userfaultfd", errno);
        fputs("a userfaultfd is refused\n", stderr);
        return;
    }
    struct uffdio_api api = {.api = UFFD_API};
    if (ioctl(own_faults, UFFDIO_API, &api)) wrong("UFFDIO_API", errno);
    // It may have been registered by now.
    munmap(at, OWN * PAGE);
    at = map(OWN);
    struct uffdio_register place = {{(uintptr_t)at, OWN * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(own_faults, UFFDIO_REGISTER, &place)) {
        if (errno != EBUSY) wrong("UFFDIO_REGISTER", errno);
        fputs("ours was first\n", stderr);
        return;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, serves, at)) wrong("thread", 0);
    for (int round = 0; round < 3; round++) {
        check_all("what the program serves", at, OWN, round ? 4 : 3);
        // A page that left would come back as what its server gives.
        fill_all(at, OWN, 4);
        press();
        check_all("what the program wrote", at, OWN, 4);
        check_all("other memory", other, PAGES, 0);
    }
    linger();
}

// --- vforks

static void vforks(void) {
    char *volatile at = map(PAGES);
    fill_all(at, PAGES, 0);
    for (volatile uint64_t turn = 1; turn < 4; turn++) {
        press();
        pid_t child = vfork();
        if (child < 0) wrong("vfork", errno);
        if (child == 0) {
            for (size_t p = 0; p < PAGES; p += 4) fill(at + p * PAGE, p, turn);
            _exit(0);
        }
        expect_child(child);
        for (size_t p = 0; p < PAGES; p++) check("after vfork", at + p * PAGE, p, p % 4 ? 0 : turn);
        press();
        child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(9);
        }
        expect_child(child);
    }
}

// --- debugs

// Each signal stops a child that is traced, and its parent does not run before the child's program.
static void debugs(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    for (int turn = 0; turn < 4; turn++) {
        press();
        pid_t child = vfork();
        if (child < 0) wrong("vfork", errno);
        if (child == 0) {
            // The child of the second turn executes nothing.
            if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(8);
            for (int number = 1; number < 32; number++) signal(number, SIG_DFL);
            if (turn == 1) _exit(3);
            execl("/bin/true", "true", NULL);
            _exit(9);
        }
        int status, first = 0;
        while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
            int number = WSTOPSIG(status);
            if (first == 0) first = number;
            if (ptrace(PTRACE_CONT, child, 0, number == SIGTRAP ? 0 : number)) wrong("go on", errno);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (turn == 1 ? 3 : 0)) wrong("end", status);
        if (turn != 1 && first != SIGTRAP) wrong("the first stop", first);
    }
    check_all("all", at, PAGES, 0);
}

// --- watched

static size_t peeked, copied;

// Looks at the pages of the parent. What cannot be had is an error, or reads as zeros.
static void watch(pid_t parent, char *at) {
    if (ptrace(PTRACE_ATTACH, parent, 0, 0)) _exit(errno == EPERM ? 77 : 1);
    int status;
    if (waitpid(parent, &status, __WALL) != parent || !WIFSTOPPED(status)) _exit(2);
    for (size_t p = 1; p < PAGES; p++) {
        errno = 0;
        uint64_t value = ptrace(PTRACE_PEEKDATA, parent, at + p * PAGE, 0);
        if (errno) continue;
        if (value == word(p, 0, 0)) peeked++;
        else if (value) _exit(3);
    }
    if (ptrace(PTRACE_DETACH, parent, 0, 0)) _exit(4);
    static char page[PAGE];
    for (size_t p = 1; p < PAGES; p++) {
        struct iovec here = {page, PAGE}, there = {at + p * PAGE, PAGE};
        if (process_vm_readv(parent, &here, 1, &there, 1, 0) != PAGE) continue;
        if (*(uint64_t *)page == word(p, 0, 0)) copied++;
        else if (*(uint64_t *)page) _exit(5);
    }
    fprintf(stderr, "%zu pages peeked, %zu copied\n", peeked, copied);
    _exit(peeked && copied ? 0 : 6);
}

static void watched(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    until_some_are_out(PAGES);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) watch(parent, at);
    int status;
    if (waitpid(child, &status, 0) != child) wrong("waitpid", errno);
    if (status != 0 && WEXITSTATUS(status) != 77) wrong("who looks", WEXITSTATUS(status));
    check_all("what was looked at", at, PAGES, 0);
    fill_all(at, PAGES, 1);
    press();
    check_all("afterwards", at, PAGES, 1);
}

// --- private

static void private(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    // If it were so from the first moment on, nothing could be seen of its memory.
    until_some_are_out(PAGES);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) wrong("PR_SET_DUMPABLE", errno);
    check_all("before", at, PAGES, 0);
    fill_all(at, PAGES, 0);
    press();
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = fork();
        if (child == 0) {
            check_all("a child", at, PAGES, 0);
            fill_all(at, PAGES, 5);
            check_all("a child's own", at, PAGES, 5);
            _exit(0);
        }
        check_all("a parent", at, PAGES, 0);
        expect_child(child);
    }
    check_all("the end", at, PAGES, 0);
}

// --- dumps

static void dumps(void) {
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &all)) wrong("RLIMIT_CORE", errno);
    char *at = map(PAGES);
    // Reserved far away, and a part of it is opened later, as allocators do it.
    enum { RESERVED = 1 << 20, OPENED = 256 };
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *reserved = mmap(NULL, (size_t)RESERVED * PAGE, PROT_NONE, how, -1, 0);
    if (reserved == MAP_FAILED) wrong("a reserve", errno);
    char *opened = reserved + (size_t)(RESERVED - OPENED) * PAGE;
    if (mprotect(opened, OPENED * PAGE, PROT_READ | PROT_WRITE)) wrong("mprotect", errno);
    fill_all(at, PAGES, 0);
    until_some_are_out(PAGES);
    fill_all(opened, OPENED, 0);
    FILE *where = fopen("where", "w");
    int said = where ? fprintf(where, "%lu %zu\n%lu %d\n", (unsigned long)at, PAGES,
                               (unsigned long)opened, OPENED) : -1;
    if (said < 0) wrong("where", 0);
    fclose(where);
    abort();
}

// --- loops

// Uses all of its memory again and again, and says how much of it is there in the end.
static void loops(void) {
    size_t pages = PAGES / 6 * 5;  // 40 MiB
    char *at = map(pages);
    fill_all(at, pages, 0);
    for (int round = 0; round < 60; round++) check_all("a round", at, pages, 0);
    size_t there = 0;
    static unsigned char resident[16384];
    if (mincore(at, pages * PAGE, resident)) wrong("mincore", errno);
    for (size_t p = 0; p < pages; p++) there += resident[p] & 1;
    printf("%zu of %zu\n", there, pages);
}

// --- tells

static void tells(void) {
    printf("in front %d, terminals %d%d%d\n", tcgetpgrp(0) == getpgrp(), isatty(0), isatty(1),
           isatty(2));
}

// --- lacks

static void lacks(void) {
    struct sock_filter words[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof words / sizeof *words, words};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) wrong("no_new_privs", errno);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) wrong("filter", errno);
    execl("/bin/cat", "cat", "/proc/self/maps", NULL);
    wrong("cat", errno);
}

int main(int count, char **words) {
    static const struct claim all[] = {
        {"rings", rings}, {"locks", locks}, {"lockall", locks_all}, {"frees", frees},
        {"locals", locals}, {"jits", jits}, {"huge", huge}, {"fences", fences},
        {"owners", owners}, {"vforks", vforks}, {"debugs", debugs}, {"watched", watched},
        {"private", private}, {"dumps", dumps}, {"loops", loops}, {"tells", tells}, {"lacks", lacks}
    };
    return claim(all, sizeof all / sizeof *all, count > 1 ? words[1] : "");
}
