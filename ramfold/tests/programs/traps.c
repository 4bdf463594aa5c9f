// Programs that fall into each trap of folded memory that others have fallen into, if it is open.
// Each prints "right" at the end.
//
//   traps stays     memory moves away, and its old place stays (MREMAP_DONTUNMAP)
//   traps grows     locked memory moves and grows, and the system fills it before it says so
//   traps born      children by calls that no handler of a fork sees
//   traps losses    calls that take what they give: it must arrive in memory that is out
//   traps blocked   threads wait in calls whose memory goes cold meanwhile
//   traps masks     signals are blocked, all of them, while memory is touched
//   traps faults    the program's own faults reach its handler with all that belongs to them
//   traps mappings  the system gives no more mappings
//   traps single    a program with one thread stays one for its C library

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <ucontext.h>

#include "pages.h"

static void remap(char *from, size_t pages, char *to) {
    int how = MREMAP_MAYMOVE | MREMAP_FIXED;
    if (mremap(from, pages * PAGE, pages * PAGE, how, to) != to) wrong("mremap", errno);
}

// --- stays

static void stays(void) {
    enum { DONTUNMAP = 4 };  // Linux 5.7
    size_t half = PAGES / 2, len = half * PAGE;
    for (int turn = 0; turn < 4; turn++) {
        char *at = map(half), *other = map(half);
        fill_all(at, half, turn);
        press();
        char *to = mremap(at, len, len, MREMAP_MAYMOVE | DONTUNMAP, NULL);
        if (to == MAP_FAILED) wrong("MREMAP_DONTUNMAP", errno);
        if (turn % 2) {
            for (size_t p = 0; p < half; p++)
                if (!is_zero(at + p * PAGE)) wrong("what was left behind", p);
            fill_all(at, half, turn + 10);
            press();
            check_all("the old place", at, half, turn + 10);
        }
        check_all("the new place", to, half, turn);
        // The old place goes in two parts, and other memory moves there.
        munmap(at, len / 2);
        munmap(at + len / 2, len - len / 2);
        fill_all(other, half, turn + 20);
        press();
        remap(other, half, at);
        press();
        check_all("what came", at, half, turn + 20);
        press();
        // And yet other memory takes its place.
        int both = PROT_READ | PROT_WRITE, how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (mmap(at, len, both, how, -1, 0) != at) wrong("mmap to a place", errno);
        for (size_t p = 0; p < half; p++)
            if (!is_zero(at + p * PAGE)) wrong("new memory", p);
        fill_all(at, half, turn + 30);
        press();
        check_all("what is new there", at, half, turn + 30);
        check_all("the new place at the end", to, half, turn);
        munmap(at, len);
        munmap(to, len);
    }
}

// --- grows

static void grows(void) {
    enum { SOME = 256 };
    char *other = map(PAGES);
    fill_all(other, PAGES, 0);
    for (int turn = 0; turn < 6; turn++) {
        char *at = map(SOME);
        fill_all(at, SOME, turn);
        press();
        if (mlock(at, SOME * PAGE)) wrong("mlock", errno);
        // It cannot grow where it is.
        char *blocker =
            mmap(at + SOME * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t pages = SOME; pages < 4 * SOME; pages *= 2) {
            char *to = map(2 * pages);
            at = mremap(at, pages * PAGE, 2 * pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            if (at != to) wrong("mremap", errno);
            check_all("what moved", at, SOME, turn);
            for (size_t p = pages; p < 2 * pages; p++)
                if (!is_zero(at + p * PAGE)) wrong("what was added", p);
        }
        if (munlock(at, 4 * SOME * PAGE)) wrong("munlock", errno);
        fill_all(at, 4 * SOME, turn + 10);
        press();
        check_all("what folds again", at, 4 * SOME, turn + 10);
        munmap(at, 4 * SOME * PAGE);
        munmap(blocker, PAGE);
    }
    check_all("other memory", other, PAGES, 0);
}

static void leave_no_core(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
}

// --- born

static char *of_parent;

static int child_of_clone(void *unused) {
    (void)unused;
    check_all("a child", of_parent, PAGES, 0);
    fill_all(of_parent, PAGES / 4, 1);
    press();
    check_all("what it wrote", of_parent, PAGES / 4, 1);
    return 0;
}

// It shares the table of descriptors, so what it opens or closes its parent has too.
static pid_t born_with_files(void) {
    char *stack = map(64);
    return clone(child_of_clone, stack + 64 * PAGE, SIGCHLD | CLONE_FILES, NULL);
}

// glibc has it since 2.34.
extern pid_t _Fork(void) __attribute__((weak));

static pid_t born_without_handlers(void) {
    pid_t child = _Fork ? _Fork() : fork();
    if (child == 0) _exit(child_of_clone(NULL));
    return child;
}

static pid_t born_by_number(void) {
    // struct clone_args: flags, three places for words, and the signal at the end.
    uint64_t how[8] = {0, 0, 0, 0, SIGCHLD};
    pid_t child = (pid_t)syscall(SYS_clone3, how, sizeof how);
    if (child < 0 && errno == ENOSYS) child = fork();
    if (child == 0) _exit(child_of_clone(NULL));
    return child;
}

static void born(void) {
    pid_t (*const ways[])(void) = {born_with_files, born_without_handlers, born_by_number};
    of_parent = map(PAGES);
    fill_all(of_parent, PAGES, 0);
    const char *way = getenv("RAMFOLD_PATH");
    int is_closed = way && !strcmp(way, "closed");
    leave_no_core();
    for (int turn = 0, ends = 0; turn < 6; turn++) {
        press();
        pid_t child = ways[turn % 3]();
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child) wrong("a child", turn);
        check_all("the parent", of_parent, PAGES, 0);
        // Without userfaultfd, one by clone3 while a page is on the move ends with a message.
        int may_end = is_closed && ways[turn % 3] == born_by_number && ends++ < 20;
        if (may_end && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) turn--;
        else if (status != 0) wrong("a child's end", status);
    }
}

// --- losses

// Pages that are out. Each lies far from the one before, which would bring its neighbours.
enum { COLD = 8192, APART = 67 };
static char *cold;
static size_t next_cold;

static void chill(void) {
    if (!cold) cold = map(COLD);
    next_cold = 0;
    fill_all(cold, COLD, 9);
}

static char *pages(size_t count) {
    if (next_cold + count > COLD) wrong("no page is left", next_cold);
    char *at = cold + next_cold * PAGE;
    next_cold += count + APART;
    return at;
}

static char *page(void) { return pages(1); }

// All of a page but its first bytes is what it was.
static void check_rest(const char *what, char *at, size_t bytes) {
    size_t p = (at - cold) / PAGE;
    for (size_t i = (bytes + 7) / 8; i < PAGE / 8; i++)
        if (((uint64_t *)at)[i] != word(p, 9, i)) wrong(what, p);
}

static void expect(const char *what, int is) {
    if (!is) {
        fprintf(stderr, "errno %d\n", errno);
        wrong(what, 0);
    }
}

static void lose_counts(void) {
    int events = eventfd(7, 0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    char *at = page();
    expect("eventfd", read(events, at, 8) == 8 && *(uint64_t *)at == 7);
    check_rest("eventfd", at, 8);
    struct itimerspec soon = {.it_value = {0, 1000000}};
    timerfd_settime(timer, 0, &soon, NULL);
    at = page();
    expect("timerfd", read(timer, at, 8) == 8 && *(uint64_t *)at == 1);
    check_rest("timerfd", at, 8);
    close(events);
    close(timer);
}

static void lose_signals(void) {
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, &old);
    int file = signalfd(-1, &set, 0);
    union sigval value = {.sival_int = 77};
    sigqueue(getpid(), SIGUSR2, value);
    char *at = page();
    struct signalfd_siginfo *told = (void *)at;
    expect("signalfd", read(file, at, sizeof *told) == sizeof *told);
    expect("signalfd's value", told->ssi_signo == SIGUSR2 && told->ssi_int == 77);
    check_rest("signalfd", at, sizeof *told);
    sigqueue(getpid(), SIGUSR2, value);
    siginfo_t *info = (void *)(at = page());
    expect("sigwaitinfo", sigwaitinfo(&set, info) == SIGUSR2 && info->si_value.sival_int == 77);
    check_rest("sigwaitinfo", at, sizeof *info);
    sigqueue(getpid(), SIGUSR2, value);
    int *number = (void *)(at = page());
    expect("sigwait", sigwait(&set, number) == 0 && *number == SIGUSR2);
    check_rest("sigwait", at, 8);
    close(file);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static pid_t child_that_ends(int status) {
    pid_t child = fork();
    if (child == 0) _exit(status);
    return child;
}

static void lose_children(void) {
    pid_t child = child_that_ends(5);
    char *at = page(), *usage = page();
    int *status = (void *)at;
    expect("wait4", wait4(child, status, 0, (void *)usage) == child);
    expect("a status", WIFEXITED(*status) && WEXITSTATUS(*status) == 5);
    check_rest("wait4", at, 8);
    check_rest("usage", usage, sizeof(struct rusage));
    child = child_that_ends(6);
    siginfo_t *info = (void *)(at = page());
    expect("waitid", waitid(P_PID, child, info, WEXITED) == 0);
    expect("what waitid says", info->si_pid == child && info->si_status == 6);
    check_rest("waitid", at, sizeof *info);
}

static void lose_files(void) {
    char path[512];
    const char *above = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/traps-XXXXXX", above ? above : "/tmp");
    expect("a directory", mkdtemp(path) != NULL);
    int news = inotify_init1(0), directory = open(path, O_RDONLY | O_DIRECTORY);
    expect("inotify", inotify_add_watch(news, path, IN_CREATE) > 0);
    int file = openat(directory, "a-name", O_CREAT | O_RDWR, 0600);
    char *at = page();
    struct inotify_event *event = (void *)at;
    ssize_t len = read(news, at, 512);
    expect("inotify's news", len > 0 && event->mask == IN_CREATE && !strcmp(event->name, "a-name"));
    check_rest("inotify", at, len);
    at = page();
    len = syscall(SYS_getdents64, directory, at, 512);
    int names = 0;
    // inode, offset, length of this entry, kind, name
    for (ssize_t from = 0; from < len; from += *(uint16_t *)(at + from + 16)) names++;
    expect("entries", names == 3);
    check_rest("getdents64", at, len);
    // Large reads are whole, over pages that are out one after the other.
    enum { WHOLE = 16 };
    static char bytes[WHOLE * PAGE];
    memset(bytes, 5, sizeof bytes);
    expect("write", write(file, bytes, sizeof bytes) == sizeof bytes);
    at = pages(WHOLE);
    expect("pread", pread(file, at, WHOLE * PAGE, 0) == WHOLE * PAGE);
    expect("bytes", !memcmp(at, bytes, sizeof bytes));
    int ends[2];
    expect("pipe", pipe(ends) == 0 && write(ends[1], bytes, 8 * PAGE) == 8 * PAGE);
    at = pages(8);
    expect("a pipe", read(ends[0], at, 8 * PAGE) == 8 * PAGE && !memcmp(at, bytes, 8 * PAGE));
    unlinkat(directory, "a-name", 0);
    rmdir(path);
    close(ends[0]);
    close(ends[1]);
    close(file);
    close(news);
    close(directory);
}

static void lose_polls(void) {
    int events = eventfd(1, 0), set = epoll_create1(0);
    struct epoll_event once = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 99};
    expect("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, events, &once) == 0);
    char *at = page();
    struct epoll_event *told = (void *)at;
    expect("epoll_wait", epoll_wait(set, told, 1, 1000) == 1 && told->data.u64 == 99);
    check_rest("epoll_wait", at, sizeof *told);
    close(set);
    close(events);
}

// What calls read is in pages that are out, too.
struct message {
    struct msghdr head;
    struct iovec part;
};

static void lose_datagrams(struct message *message, char *control, char *bytes) {
    int pair[2], events = eventfd(3, 0);
    expect("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    // A descriptor is on its way.
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } given = {0};
    char text[] = "a datagram";
    struct iovec part = {text, sizeof text};
    struct msghdr out = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = given.room,
                         .msg_controllen = sizeof given.room};
    given.head.cmsg_len = CMSG_LEN(sizeof(int));
    given.head.cmsg_level = SOL_SOCKET;
    given.head.cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(&given.head), &events, sizeof events);
    expect("sendmsg", sendmsg(pair[0], &out, 0) == sizeof text);
    expect("recvmsg", recvmsg(pair[1], &message->head, 0) == sizeof text);
    expect("nothing was cut", !(message->head.msg_flags & (MSG_CTRUNC | MSG_TRUNC)));
    expect("its bytes", !strcmp(bytes, text));
    int passed;
    memcpy(&passed, CMSG_DATA((struct cmsghdr *)control), sizeof passed);
    uint64_t count = 0;
    expect("a descriptor", read(passed, &count, 8) == 8 && count == 3);
    close(passed);
    // One after the other, each in a page of its own.
    for (int i = 0; i < 8; i++) {
        char sent[100];
        memset(sent, i, sizeof sent);
        expect("send", send(pair[0], sent, sizeof sent, 0) == sizeof sent);
        char *at = page();
        expect("recv", recv(pair[1], at, PAGE, 0) == sizeof sent && !memcmp(at, sent, sizeof sent));
        check_rest("recv", at, sizeof sent + 7);
    }
    close(pair[0]);
    close(pair[1]);
    close(events);
}

static void lose_connections(socklen_t *len, char *address, socklen_t *again) {
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    // Without a path: an abstract name that the system makes up.
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    expect("bind", bind(listener, (void *)&place, sizeof place.sun_family) == 0);
    expect("listen", listen(listener, 1) == 0);
    struct sockaddr_un *own = (void *)page();
    // Its length is in memory that is out.
    expect("getsockname", getsockname(listener, (void *)own, len) == 0);
    expect("connect", bind(client, (void *)&place, sizeof place.sun_family) == 0 &&
                          connect(client, (void *)own, *len) == 0);
    int taken = accept(listener, (void *)address, again);
    expect("accept", taken >= 0 && ((struct sockaddr_un *)address)->sun_family == AF_UNIX);
    expect("the length of an address", *again > sizeof place.sun_family && *again < 16);
    expect("a connection", write(client, "x", 1) == 1 && read(taken, page(), 8) == 1);
    close(taken);
    close(client);
    close(listener);
}

static void lose_messages(void) {
    int queue = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);
    if (queue < 0) return;  // Not every namespace has them.
    struct {
        long kind;
        char text[64];
    } sent = {3, "a message"};
    expect("msgsnd", msgsnd(queue, &sent, sizeof sent.text, 0) == 0);
    char *at = page();
    expect("msgrcv", msgrcv(queue, at, sizeof sent.text, 0, 0) == sizeof sent.text);
    expect("a message", !memcmp(at, &sent, sizeof sent));
    check_rest("msgrcv", at, sizeof sent);
    msgctl(queue, IPC_RMID, NULL);
}

static void losses(void) {
    for (int round = 0; round < 3; round++) {
        chill();
        // What calls read was written before it leaves.
        struct message *message = (void *)page();
        char *control = page(), *bytes = page();
        *message = (struct message){.part = {bytes, PAGE}};
        message->head = (struct msghdr){.msg_iov = &message->part, .msg_iovlen = 1,
                                        .msg_control = control, .msg_controllen = 64};
        socklen_t *len = (void *)page(), *again = (void *)page();
        *len = *again = sizeof(struct sockaddr_un);
        char *address = page();
        press();
        lose_counts();
        lose_signals();
        lose_children();
        lose_files();
        lose_polls();
        lose_datagrams(message, control, bytes);
        lose_connections(len, address, again);
        lose_messages();
    }
}

// --- blocked

enum { WAITING = 4 };
static int wires[WAITING][2];
static char *places[WAITING];
static _Atomic int is_there[WAITING];

// Waits with vectors, buffers and addresses in memory that goes cold while it waits.
static void *waits(void *which) {
    size_t w = (uintptr_t)which;
    struct iovec *parts = (void *)places[w];
    for (int i = 0; i < 8; i++) parts[i] = (struct iovec){places[w] + (i + 1) * PAGE, 100};
    is_there[w] = 1;
    ssize_t len = w % 2 ? readv(wires[w][1], parts, 8) : recv(wires[w][1], places[w] + PAGE, 800, 0);
    for (int i = 0; len == 800 && i < 800; i++) {
        char *at = w % 2 ? places[w] + (i / 100 + 1) * PAGE + i % 100 : places[w] + PAGE + i;
        if (*at != (char)(i + w)) wrong("a byte that came", i);
    }
    if (len != 800) wrong("what came was cut", len);
    return NULL;
}

static void blocked(void) {
    for (int w = 0; w < WAITING; w++) places[w] = map(64);
    for (int round = 0; round < 6; round++) {
        pthread_t threads[WAITING];
        for (uintptr_t w = 0; w < WAITING; w++) {
            fill_all(places[w], 64, round);
            if (socketpair(AF_UNIX, SOCK_DGRAM, 0, wires[w])) wrong("socketpair", errno);
        }
        press();
        for (uintptr_t w = 0; w < WAITING; w++) {
            is_there[w] = 0;
            if (pthread_create(&threads[w], NULL, waits, (void *)w)) wrong("thread", w);
        }
        for (int w = 0; w < WAITING; w++)
            while (!is_there[w]) usleep(1000);
        usleep(20000);
        // Their memory is the coldest now.
        press();
        press();
        for (uintptr_t w = 0; w < WAITING; w++) {
            char bytes[800];
            for (int i = 0; i < 800; i++) bytes[i] = (char)(i + w);
            if (send(wires[w][0], bytes, 800, 0) != 800) wrong("send", errno);
            pthread_join(threads[w], NULL);
            for (size_t p = 10; p < 64; p++) check("beside", places[w] + p * PAGE, p, round);
            close(wires[w][0]);
            close(wires[w][1]);
        }
    }
}

// --- masks

static char *touched;
static volatile size_t touched_at;
static volatile sig_atomic_t alarms;

static void touch_some(void) {
    for (int i = 0; i < 256; i++, touched_at = (touched_at + 1) % PAGES)
        check("in a handler", touched + touched_at * PAGE, touched_at, 0);
}

static void on_alarm(int number) {
    (void)number;
    touch_some();
    alarms++;
}

static void alarm_soon(void) {
    struct itimerval soon = {.it_value = {0, 20000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

// Each waits with everything blocked but the alarm.
static void wait_in_poll(const sigset_t *mask) { ppoll(NULL, 0, NULL, mask); }
static void wait_in_select(const sigset_t *mask) { pselect(0, NULL, NULL, NULL, NULL, mask); }
static void wait_in_suspend(const sigset_t *mask) { sigsuspend(mask); }
static void wait_in_epoll(const sigset_t *mask) {
    static int set = -1;
    if (set < 0) set = epoll_create1(0);
    struct epoll_event event;
    epoll_pwait(set, &event, 1, -1, mask);
}

static void masks(void) {
    touched = map(PAGES);
    fill_all(touched, PAGES, 0);
    sigset_t full, but_alarm, old;
    sigfillset(&full);
    sigfillset(&but_alarm);
    sigdelset(&but_alarm, SIGALRM);
    struct sigaction action = {.sa_handler = on_alarm, .sa_mask = full};
    if (sigaction(SIGALRM, &action, NULL)) wrong("sigaction", errno);
    void (*const calls[])(const sigset_t *) = {wait_in_poll, wait_in_select, wait_in_suspend,
                                               wait_in_epoll};
    for (int round = 0; round < 3; round++) {
        press();
        pthread_sigmask(SIG_BLOCK, &full, &old);
        check_all("with all signals blocked", touched, PAGES, 0);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        press();
        raise(SIGALRM);
        for (int call = 0; call < 4; call++) {
            int before = alarms;
            pthread_sigmask(SIG_BLOCK, &full, &old);
            alarm_soon();
            calls[call](&but_alarm);
            pthread_sigmask(SIG_SETMASK, &old, NULL);
            if (alarms != before + 1) wrong("a call that a signal ends", call);
        }
    }
}

// --- faults

static volatile struct {
    int number, code, is_blocked, count;
    char *address, *stack;
    uintptr_t instruction;
} seen;
static char *closed_page, *nested_page;

static void open_page(char *at) {
    if (mprotect(at, PAGE, PROT_READ | PROT_WRITE)) wrong("mprotect in a handler", errno);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    sigset_t now;
    char local;
    seen.number = number;
    seen.code = info->si_code;
    seen.address = info->si_addr;
    seen.stack = &local;
    seen.instruction = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    seen.count++;
    sigprocmask(SIG_BLOCK, NULL, &now);
    seen.is_blocked = sigismember(&now, SIGUSR1);
    if (seen.address == closed_page) {
        if (nested_page) check("a fault in a handler", nested_page, 0, 8);
        open_page(closed_page);
    } else if (seen.address == nested_page) {
        open_page(nested_page);
    }
}

static sigjmp_buf back;
static void jump(int number, siginfo_t *info, void *context) {
    on_fault(number, info, context);
    siglongjmp(back, 1);
}

__attribute__((noinline, noclone)) static uint64_t read_at(volatile uint64_t *at) { return *at; }

static void handle(void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags}, old;
    sigaddset(&action.sa_mask, SIGUSR1);
    if (sigaction(SIGSEGV, &action, NULL) || sigaction(SIGSEGV, NULL, &old))
        wrong("sigaction", errno);
    if (old.sa_sigaction != handler || !sigismember(&old.sa_mask, SIGUSR1)) wrong("its action", 0);
    int shown = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER;
    if ((old.sa_flags & shown) != action.sa_flags) wrong("its flags", old.sa_flags);
}

// A page of memory that is out, closed by the program.
static void close_page(char *at) {
    press();
    if (mprotect(at, PAGE, PROT_NONE)) wrong("mprotect", errno);
}

// Whether a child ends by SIGSEGV.
static void expect_death(const char *what, void (*work)(void)) {
    pid_t child = fork();
    if (child == 0) {
        leave_no_core();
        work();
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child) wrong("waitpid", errno);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) wrong(what, status);
}

static void fault_twice(void) {
    handle(jump, SA_RESETHAND);
    if (!sigsetjmp(back, 1)) read_at((void *)16);
    if (seen.count != 1) _exit(1);
    read_at((void *)16);
}

static void fault_by_default(void) {
    signal(SIGSEGV, SIG_DFL);
    read_at((void *)closed_page);
}

static void fault_while_ignored(void) {
    signal(SIGSEGV, SIG_IGN);
    read_at((void *)closed_page);
}

static void raise_by_default(void) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static void faults(void) {
    enum { STACK = 1 << 16 };
    static char stack[STACK];
    char *at = map(PAGES);
    fill_all(at, PAGES, 8);
    closed_page = at + 77 * PAGE;
    handle(on_fault, 0);
    close_page(closed_page);
    seen.count = 0;
    if (read_at((void *)closed_page) != word(77, 8, 0)) wrong("what a handler opened", 77);
    if (seen.count != 1 || seen.address != closed_page) wrong("its address", seen.count);
    if (seen.number != SIGSEGV || seen.code != SEGV_ACCERR) wrong("its code", seen.code);
    if (seen.instruction - (uintptr_t)read_at > 64) wrong("its instruction", 0);
    if (!seen.is_blocked) wrong("its mask", 0);
    // Elsewhere, where nothing is.
    handle(jump, SA_ONSTACK);
    stack_t other = {.ss_sp = stack, .ss_size = STACK};
    if (sigaltstack(&other, NULL)) wrong("sigaltstack", errno);
    if (!sigsetjmp(back, 1)) read_at((void *)16);
    if (seen.address != (char *)16 || seen.code != SEGV_MAPERR) wrong("a hole", seen.code);
    if (seen.stack < stack || seen.stack >= stack + STACK) wrong("its stack", 0);
    // A handler that faults itself.
    nested_page = at;
    handle(on_fault, SA_NODEFER);
    close_page(closed_page);
    close_page(nested_page);
    seen.count = 0;
    if (read_at((void *)closed_page) != word(77, 8, 0)) wrong("after two faults", 77);
    if (seen.count != 2) wrong("two faults", seen.count);
    // A signal that is no fault.
    kill(getpid(), SIGSEGV);
    if (seen.count != 3 || seen.code != SI_USER) wrong("a signal by kill", seen.code);
    signal(SIGSEGV, SIG_IGN);
    raise(SIGSEGV);
    close_page(closed_page);
    seen.count = 0;
    expect_death("a second fault", fault_twice);
    expect_death("a fault by default", fault_by_default);
    expect_death("a fault that is ignored", fault_while_ignored);
    expect_death("a signal by default", raise_by_default);
    open_page(closed_page);
    check_all("the end", at, PAGES, 8);
}

// --- mappings

static void *does_nothing(void *it) { return it; }

static void mappings(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    size_t most;
    if (!file || fscanf(file, "%zu", &most) != 1) wrong("max_map_count", 0);
    fclose(file);
    if (most > 1 << 18) {
        press();
        fputs("there are too many mappings\n", stderr);
        return;
    }
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    press();
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *reserve = mmap(NULL, 2 * most * PAGE, PROT_NONE, how, -1, 0);
    if (reserve == MAP_FAILED) wrong("a reserve", errno);
    size_t opened = 0;
    while (opened < most && !mprotect(reserve + 2 * opened * PAGE, PAGE, PROT_READ | PROT_WRITE))
        opened++;
    if (opened == most || errno != ENOMEM) wrong("mappings are not used up", opened);
    // All of it comes and goes all the same.
    for (uint64_t turn = 1; turn < 4; turn++) {
        for (int i = 0; i < 20000; i++) {
            size_t p = roll() % PAGES;
            check("a page at random", at + p * PAGE, p, turn - 1);
        }
        check_all("all pages", at, PAGES, turn - 1);
        fill_all(at, PAGES, turn);
        press();
    }
    munmap(reserve, 2 * most * PAGE);
    pthread_t thread;
    if (pthread_create(&thread, NULL, does_nothing, NULL)) wrong("a thread afterwards", errno);
    pthread_join(thread, NULL);
    check_all("the end", at, PAGES, 3);
}

// --- single

#ifdef __GLIBC__
extern char __libc_single_threaded __attribute__((weak));
#endif

static void single(void) {
    press();
#ifdef __GLIBC__
    if (&__libc_single_threaded && !__libc_single_threaded) wrong("it has another thread", 0);
#endif
    press();
}

int main(int count, char **words) {
    static const struct claim all[] = {
        {"stays", stays}, {"grows", grows}, {"born", born}, {"losses", losses},
        {"blocked", blocked}, {"masks", masks}, {"faults", faults}, {"mappings", mappings},
        {"single", single}
    };
    return claim(all, sizeof all / sizeof *all, count > 1 ? words[1] : "");
}
