// Threads that do to their memory whatever a program may, and know what it must hold.
//
//   torture SECONDS SEED
//
// It prints "right", and how often each thing was done, or what was wrong. The word of a page is
// made of its turn, which no other page ever had, so a page that stands in for another is seen.
// Turn 0 is zeros. A thread changes its own areas alone, and a forked child checks those of the
// thread that made it.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 4, AREAS = 24, PAGES_MAX = 700, BUDGET = 3000 };
enum { STACK = 256 << 10 };

extern char **environ;

typedef struct {
    char *at;
    size_t pages;
    uint64_t *turns;
    // Parts of it were treated apart. The kernel moves them in parts or not at all, and with a
    // userfaultfd it refuses.
    int is_split;
} Area;

typedef struct {
    Area areas[AREAS];
    size_t held;
    uint64_t chance, turn;
    int pipe[2], pair[2], file, poll;
} Worker;

static const char *const NAMES[] = {"map",   "fill",  "check", "unmap", "move",  "drop",  "advise",
                                    "close", "pipe",  "file",  "socket", "asks", "fork",  "spawn",
                                    "signal", "lock"};
enum { KINDS = sizeof NAMES / sizeof *NAMES };
static uint64_t counts[KINDS];
static time_t end;
static uint64_t handled;
static pthread_t threads[THREADS];
static int running[THREADS], done;

static void wrong(const char *what, uint64_t number) {
    char text[200];
    int length = snprintf(text, sizeof text, "wrong: %s, %llu (%s)\n", what,
                          (unsigned long long)number, strerror(errno));
    if (write(1, text, length) < 0) _exit(2);
    _exit(1);
}

static uint64_t roll(Worker *w, uint64_t below) {
    w->chance ^= w->chance << 13;
    w->chance ^= w->chance >> 7;
    w->chance ^= w->chance << 17;
    return w->chance % below;
}

static uint64_t word(uint64_t turn, size_t i) {
    return turn ? turn * 0x9e3779b97f4a7c15u + i / 8 : 0;
}

static void fill(char *at, uint64_t turn) {
    for (size_t i = 0; i < WORDS; i++) ((uint64_t *)at)[i] = word(turn, i);
}

static void check(const char *what, const char *at, uint64_t turn) {
    for (size_t i = 0; i < WORDS; i++)
        if (((const uint64_t *)at)[i] != word(turn, i)) wrong(what, i);
}

static void check_area(const char *what, const Area *a) {
    for (size_t p = 0; p < a->pages; p++) check(what, a->at + p * PAGE, a->turns[p]);
}

// An area of the worker, and a range of its pages. None if it has no area.
static Area *some(Worker *w, size_t *first, size_t *count) {
    Area *a = &w->areas[roll(w, AREAS)];
    for (int i = 0; i < AREAS && !a->at; i++) a = &w->areas[i];
    if (!a->at) return NULL;
    *first = roll(w, a->pages);
    *count = 1 + roll(w, a->pages - *first);
    return a;
}

static void map(Worker *w) {
    for (int i = 0; i < AREAS; i++) {
        Area *a = &w->areas[i];
        if (a->at) continue;
        size_t pages = 1 + roll(w, roll(w, 4) ? 60 : PAGES_MAX);
        if (w->held + pages > BUDGET) return;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        if (!roll(w, 8)) flags |= MAP_POPULATE;
        if (!roll(w, 4)) flags |= MAP_NORESERVE;
        a->at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (a->at == MAP_FAILED) wrong("mmap", pages);
        a->pages = pages;
        a->turns = calloc(pages, sizeof *a->turns);
        w->held += pages;
        return;
    }
}

static void lose(Worker *w, Area *a) {
    w->held -= a->pages;
    free(a->turns);
    memset(a, 0, sizeof *a);
}

// Takes pages away from the end, or all of them.
static void shorten(Worker *w, Area *a, size_t pages) {
    w->held -= a->pages - pages;
    a->pages = pages;
    if (!pages) lose(w, a);
}

static void unmap(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    if (roll(w, 2)) {
        // The beginning goes.
        count = first + 1;
        if (munmap(a->at, count * PAGE)) wrong("munmap", count);
        w->held -= count;
        a->at += count * PAGE;
        a->pages -= count;
        memmove(a->turns, a->turns + count, a->pages * sizeof *a->turns);
        if (!a->pages) lose(w, a);
    } else {
        if (munmap(a->at + first * PAGE, (a->pages - first) * PAGE)) wrong("munmap", first);
        shorten(w, a, first);
    }
}

static void move(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a || a->is_split) return;
    size_t pages = 1 + roll(w, 2 * a->pages);
    if (w->held + pages > BUDGET + a->pages) pages = a->pages;
    int flags = MREMAP_MAYMOVE;
    char *to = NULL;
    if (!roll(w, 3)) {
        to = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        flags |= MREMAP_FIXED;
    }
    char *at = mremap(a->at, a->pages * PAGE, pages * PAGE, flags, to);
    if (at == MAP_FAILED) wrong("mremap", pages);
    a->at = at;
    if (pages < a->pages) {
        shorten(w, a, pages);
    } else {
        a->turns = realloc(a->turns, pages * sizeof *a->turns);
        memset(a->turns + a->pages, 0, (pages - a->pages) * sizeof *a->turns);
        w->held += pages - a->pages;
        a->pages = pages;
    }
}

static void advise(Worker *w) {
    static const int advices[] = {MADV_WILLNEED, MADV_COLD,     MADV_PAGEOUT, MADV_HUGEPAGE,
                                  MADV_NOHUGEPAGE, MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL};
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    a->is_split = 1;
    int advice = advices[roll(w, sizeof advices / sizeof *advices)];
    // What the kernel was not built with is refused.
    if (madvise(a->at + first * PAGE, count * PAGE, advice) && errno != EINVAL && errno != EBADF)
        wrong("madvise", advice);
}

static void drop(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    char *at = a->at + first * PAGE;
    a->is_split = 1;
    if (roll(w, 3)) {
        if (madvise(at, count * PAGE, MADV_DONTNEED)) wrong("MADV_DONTNEED", count);
    } else if (mmap(at, count * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at) {
        wrong("mmap over", count);
    }
    memset(a->turns + first, 0, count * sizeof *a->turns);
    check("dropped", at, 0);
}

static void close_for_a_while(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    char *at = a->at + first * PAGE;
    int without = roll(w, 2) ? PROT_READ : PROT_NONE;
    a->is_split = 1;
    if (mprotect(at, count * PAGE, without)) wrong("mprotect", count);
    if (without == PROT_READ) {
        check("read only", at, a->turns[first]);
        errno = 0;
        if (pread(w->file, at, PAGE, 0) != -1 || errno != EFAULT) wrong("written by a call", 0);
    } else if (pwrite(w->file, at, PAGE, 0) != -1 || errno != EFAULT) {
        wrong("read by a call", 0);
    }
    if (mprotect(at, count * PAGE, PROT_READ | PROT_WRITE)) wrong("mprotect back", count);
}

// Pages leave by one call and come back by another, into themselves.
static void through_pipe(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    if (count > 8) count = 8;
    char *at = a->at + first * PAGE;
    size_t cut = roll(w, count * PAGE);
    struct iovec parts[2] = {{at, cut}, {at + cut, count * PAGE - cut}};
    ssize_t all = count * PAGE;
    if (writev(w->pipe[1], parts, 2) != all) wrong("writev", cut);
    for (size_t p = 0; p < count; p++) fill(at + p * PAGE, 1);
    if (roll(w, 2)) madvise(at, count * PAGE, MADV_DONTNEED);
    if (readv(w->pipe[0], parts, 2) != all) wrong("readv", cut);
    for (size_t p = 0; p < count; p++) check("by a pipe", at + p * PAGE, a->turns[first + p]);
}

static void through_file(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    char *at = a->at + first * PAGE;
    ssize_t all = count * PAGE;
    if (pwrite(w->file, at, all, 0) != all) wrong("pwrite", count);
    Area *to = some(w, &first, &count);
    if ((ssize_t)(to->pages * PAGE) < all) all = to->pages * PAGE;
    if (pread(w->file, to->at, all, 0) != all) wrong("pread", all);
    size_t source = (at - a->at) / PAGE;
    memmove(to->turns, a->turns + source, all / PAGE * sizeof *to->turns);
    check("by a file", to->at, to->turns[0]);
    check("by a file, last", to->at + all - PAGE, to->turns[all / PAGE - 1]);
}

// Structures of a message in folded memory, which lead to more of it.
static void through_socket(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    char *at = a->at + first * PAGE;
    struct iovec *part = malloc(sizeof *part);
    struct msghdr *message = calloc(1, sizeof *message);
    *part = (struct iovec){at, PAGE};
    message->msg_iov = part;
    message->msg_iovlen = 1;
    if (sendmsg(w->pair[0], message, 0) != PAGE) wrong("sendmsg", count);
    memset(at, 1, PAGE);
    if (recvmsg(w->pair[1], message, MSG_WAITALL) != PAGE) wrong("recvmsg", count);
    check("by a socket", at, a->turns[first]);
    free(message);
    free(part);
}

// Calls that write small structures, at any place of a page and across pages.
static void asks(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a) return;
    char *page = a->at + first * PAGE;
    size_t place = count > 1 ? PAGE - 16 : roll(w, PAGE - 512);
    char *at = page + place / 8 * 8;
    switch (roll(w, 8)) {
        case 0: {
            struct timespec zero = {0, 0};
            if (clock_gettime(CLOCK_MONOTONIC, (void *)at)) wrong("clock_gettime", 0);
            memcpy(at, &zero, sizeof zero);
            if (nanosleep((void *)at, NULL) && errno != EINTR) wrong("nanosleep", 0);
            break;
        }
        case 1:
            if (fstat(w->file, (void *)at) || ((struct stat *)at)->st_nlink > 1) wrong("fstat", 0);
            break;
        case 2: {
            struct pollfd *fd = (void *)at;
            *fd = (struct pollfd){w->pipe[1], POLLOUT, 0};
            if (poll(fd, 1, 0) != 1 || fd->revents != POLLOUT) wrong("poll", fd->revents);
            break;
        }
        case 3: {
            fd_set *set = (void *)at;
            FD_ZERO(set);
            FD_SET(w->pipe[1], set);
            struct timeval zero = {0, 0};
            if (select(w->pipe[1] + 1, NULL, set, NULL, &zero) != 1) wrong("select", 0);
            break;
        }
        case 4:
            if (epoll_wait(w->poll, (void *)at, 1, 0) != 1) wrong("epoll_wait", 0);
            if (((struct epoll_event *)at)->data.u64 != 7) wrong("an event", 0);
            break;
        case 5: {
            socklen_t *length = (void *)at;
            int *value = (int *)at + 2;
            *length = sizeof *value;
            if (getsockopt(w->pair[0], SOL_SOCKET, SO_TYPE, value, length)) wrong("getsockopt", 0);
            if (*value != SOCK_STREAM || *length != sizeof *value) wrong("a type", *value);
            break;
        }
        case 6: {
            sigset_t *set = (void *)at;
            if (pthread_sigmask(SIG_BLOCK, NULL, set)) wrong("sigmask", 0);
            if (pthread_sigmask(SIG_SETMASK, set, NULL)) wrong("sigmask back", 0);
            break;
        }
        default:
            strcpy(at, "/nonexistent");
            errno = 0;
            if (open(at, O_RDONLY) != -1 || errno != ENOENT) wrong("open", errno);
            break;
    }
    // What was there is there again.
    for (size_t p = 0; p < count && p < 2; p++) fill(page + p * PAGE, a->turns[first + p]);
}

static void expect(pid_t child, const char *what) {
    int status;
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR) wrong("waitpid", errno);
    if (status) wrong(what, status);
}

static void forks(Worker *w) {
    pid_t child = fork();
    if (child < 0) wrong("fork", errno);
    if (!child) {
        for (int i = 0; i < AREAS; i++)
            if (roll(w, 2)) check_area("a child", &w->areas[i]);
        size_t first, count;
        Area *a = some(w, &first, &count);
        if (a) {
            fill(a->at + first * PAGE, 3);
            a->turns[first] = 3;
            check_area("a child that wrote", a);
        }
        if (!roll(w, 4)) {
            pid_t grandchild = fork();
            if (grandchild < 0) wrong("a fork of a child", errno);
            if (!grandchild) {
                for (int i = 0; i < AREAS; i++) check_area("a grandchild", &w->areas[i]);
                _exit(0);
            }
            expect(grandchild, "a grandchild's end");
        }
        _exit(0);
    }
    // The parent's own change meanwhile.
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (a) fill(a->at + first * PAGE, a->turns[first] = ++w->turn);
    expect(child, "a child's end");
}

static void spawns(Worker *w) {
    char *words[] = {strdup("true"), NULL};
    pid_t child = 0;
    if (roll(w, 2)) {
        int error = posix_spawn(&child, "/bin/true", NULL, NULL, words, environ);
        if (error) wrong("posix_spawn", error);
    } else if ((child = vfork()) == 0) {
        execve("/bin/true", words, environ);
        _exit(9);
    }
    expect(child, "what was executed");
    free(words[0]);
}

static char *guarded;
static void on_signal(int signal) {
    (void)signal;
    // On a stack of folded memory, from wherever the thread was: in a touch, or in a call.
    int saved = errno;
    uint64_t number = __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
    check("in a handler", guarded + number % 64 * PAGE, 5);
    errno = saved;
}

// To any thread. One that has ended is not joined as long as another one runs.
static void signals(Worker *w) {
    int other = roll(w, THREADS);
    if (!__atomic_load_n(&running[other], __ATOMIC_ACQUIRE)) return;
    int error = pthread_kill(threads[other], SIGUSR1);
    if (error && error != ESRCH) wrong("pthread_kill", error);
}

static void locks(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (!a || count > 32) return;
    char *at = a->at + first * PAGE;
    a->is_split = 1;
    // A small limit may refuse it.
    if (!mlock(at, count * PAGE)) check("locked", at, a->turns[first]);
    munlock(at, count * PAGE);
}

static void fills(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    for (size_t p = first; a && p < first + count; p++)
        fill(a->at + p * PAGE, a->turns[p] = ++w->turn);
}

static void checks(Worker *w) {
    size_t first, count;
    Area *a = some(w, &first, &count);
    if (a) check_area("a page", a);
}

static void *stack_of_signals(void) {
    stack_t stack = {.ss_size = STACK};
    stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack.ss_sp == MAP_FAILED || sigaltstack(&stack, NULL)) wrong("a stack", 0);
    return stack.ss_sp;
}

static void *work(void *argument) {
    static void (*const kinds[KINDS])(Worker *) = {
        map, fills, checks, unmap, move, drop, advise, close_for_a_while, through_pipe,
        through_file, through_socket, asks, forks, spawns, signals, locks};
    static const int often[KINDS] = {30, 40, 40, 6, 8, 8, 10, 6, 20, 12, 20, 40, 2, 1, 10, 4};
    Worker *w = argument;
    void *stack = stack_of_signals();
    // For a while; then another thread goes on with the same areas.
    for (int turns = 300 + roll(w, 3000); turns && time(NULL) <= end; turns--) {
        int kind = 0, at = roll(w, 257);
        while ((at -= often[kind]) >= 0) kind++;
        kinds[kind](w);
        __atomic_fetch_add(&counts[kind], 1, __ATOMIC_RELAXED);
    }
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    munmap(stack, STACK);
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void open_all(Worker *w, int number, uint64_t seed) {
    w->chance = 88172645463325252u * (seed + number + 1) | 1;
    w->turn = ((uint64_t)number + 1) << 40;
    char name[] = "/tmp/torture-XXXXXX";
    if (pipe(w->pipe) || socketpair(AF_UNIX, SOCK_STREAM, 0, w->pair)) wrong("pipes", errno);
    w->file = mkstemp(name);
    if (w->file < 0 || unlink(name)) wrong("a file", errno);
    if (ftruncate(w->file, PAGE)) wrong("a file's length", errno);
    w->poll = epoll_create1(0);
    struct epoll_event event = {EPOLLOUT, {.u64 = 7}};
    if (epoll_ctl(w->poll, EPOLL_CTL_ADD, w->pipe[1], &event)) wrong("epoll", errno);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    end = time(NULL) + atoi(words[1]);
    guarded = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int p = 0; p < 64; p++) fill(guarded + p * PAGE, 5);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    Worker *workers = calloc(THREADS, sizeof *workers);
    for (int i = 0; i < THREADS; i++) open_all(&workers[i], i, strtoull(words[2], NULL, 10));
    while (time(NULL) <= end) {
        for (int i = 0; i < THREADS; i++) {
            if (pthread_create(&threads[i], NULL, work, &workers[i])) wrong("a thread", i);
            __atomic_store_n(&running[i], 1, __ATOMIC_RELEASE);
        }
        // None of them is joined before the last one has ended.
        while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < THREADS) usleep(1000);
        for (int i = 0; i < THREADS; i++) {
            running[i] = 0;
            pthread_join(threads[i], NULL);
        }
        done = 0;
    }
    for (int i = 0; i < THREADS; i++)
        for (int a = 0; a < AREAS; a++) check_area("at the end", &workers[i].areas[a]);
    for (int kind = 0; kind < KINDS; kind++)
        printf("%s %llu ", NAMES[kind], (unsigned long long)counts[kind]);
    printf("handled %llu\nright\n", (unsigned long long)handled);
    return 0;
}
