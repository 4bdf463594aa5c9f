// A program for ramfold run, which knows what its memory must hold. It prints "right" at the end.
//
//   memory walk      touches, in order and at random
//   memory moves     mremap, munmap and mmap, madvise, mprotect, brk
//   memory tight     values on two pages, while nothing more can leave
//   memory parts     mremap of what was closed in parts
//   memory forks     children, their children, a parent that ends at once
//   memory shares    children that read everything share it with their parent and each other
//   memory copies    children write to all that they share, at the same time
//   memory heirs     children of children, each of which writes
//   memory storms    a parent that writes and gives memory up while children read what it was
//   memory crowds    threads that fork while others touch
//   memory clones    a child without the handlers of a fork
//   memory humble    a child that may not fold
//   memory calls     system calls on memory that has left
//   memory threads   threads that come and go while others touch
//   memory spawns    programs that are executed by children in this memory
//   memory fills     much more memory than the limit, as fast as a thread can, and some untouched
//   memory reuse     threads whose memory takes the places that others have just left
//   memory wipes     a child does not get what it must not have
//   memory leaves    a child does not have what is left out for it
//   memory drops     memory that is given up reads as zeros, again and again
//   memory handlers  a signal's handler forks in the middle of a fork
//   memory stacks    signals that arrive while a thread says where their stack is
//   memory readers   threads that read while another takes the right to write, and gives it back
//   memory leftovers a program that is executed and has addresses in registers that no call uses
//   memory fibers    code that runs on stacks which are memory like any other
//   memory ownstacks threads that are given memory for their stacks
//   memory cancels   threads that are cancelled while they wait with memory like any other
//   memory blocks    small blocks of the C library's heap
//   memory narrow    threads with the smallest stacks, and requests that such threads serve
//   memory closes    a program that closes all descriptors
//   memory guards    descriptors of the library, which a program cannot close
//   memory titles    a program that writes over its environment
//   memory returns   memory that is given back by other memory in its place
//   memory young     calls of younger kernels, and calls past the C library
//   memory rests     memory that nobody touches until a line comes
//   memory jails     a program that goes to another root and another user
//   memory waits     waits for SIGTERM and ends with 5
//
// With "noise" as a second word the memory does not compress.

#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "pages.h"

static void walk(void) {
    char *at = map(PAGES);
    static uint64_t turns[12288];
    fill_all(at, PAGES, 0);
    check_all("a walk", at, PAGES, 0);
    for (int i = 0; i < 60000; i++) {
        size_t p = roll() % PAGES;
        check("a jump", at + p * PAGE, p, turns[p]);
        if (roll() % 2) fill(at + p * PAGE, p, ++turns[p]);
    }
    for (size_t p = 0; p < PAGES; p++) check("the end", at + p * PAGE, p, turns[p]);
}

static void moves(void) {
    size_t half = PAGES / 2;
    char *cold = map(PAGES);
    fill_all(cold, PAGES, 1);
    for (int turn = 0; turn < 6; turn++) {
        // Memory that grows has to move.
        char *at = map(half);
        fill_all(at, half, 2);
        check_all("cold", cold, PAGES, 1);
        char *blocker = mmap(at + half * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        at = mremap(at, half * PAGE, (half + 64) * PAGE, MREMAP_MAYMOVE);
        if (at == MAP_FAILED) wrong("mremap", 0);
        check_all("moved", at, half, 2);
        for (size_t p = half; p < half + 64; p++)
            if (at[p * PAGE + 9]) wrong("grown", p);
        // A part is given back, and other memory comes to its place.
        munmap(at + 64 * PAGE, 512 * PAGE);
        char *again = mmap(at + 64 * PAGE, 512 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (size_t p = 0; p < 512; p++)
            if (again[p * PAGE]) wrong("new memory", p);
        // What is discarded reads as zeros; its neighbours stay.
        madvise(at + 1000 * PAGE, 300 * PAGE, MADV_DONTNEED);
        for (size_t p = 1000; p < 1300; p++)
            if (at[p * PAGE + 4000]) wrong("discarded", p);
        check("before", at + 999 * PAGE, 999, 2);
        check("after", at + 1300 * PAGE, 1300, 2);
        // Memory that may not be written keeps its bytes.
        mprotect(at + 2000 * PAGE, 200 * PAGE, PROT_NONE);
        mprotect(at + 2000 * PAGE, 200 * PAGE, PROT_READ);
        for (size_t p = 2000; p < 2200; p++) check("closed", at + p * PAGE, p, 2);
        mprotect(at + 2000 * PAGE, 200 * PAGE, PROT_READ | PROT_WRITE);
        fill(at + 2100 * PAGE, 2100, 3);
        check("opened", at + 2100 * PAGE, 2100, 3);
        // To a fixed place, over other memory.
        char *place = map(256);
        fill_all(place, 256, 4);
        char *from = at + 2560 * PAGE;
        if (mremap(from, 256 * PAGE, 256 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place)
            wrong("mremap to a place", 0);
        for (size_t p = 0; p < 256; p++) check("put over", place + p * PAGE, p + 2560, 2);
        munmap(blocker, PAGE);
        munmap(place, 256 * PAGE);
        munmap(at, (half + 64) * PAGE);
    }
    check_all("cold", cold, PAGES, 1);
    char *top = sbrk(4096 * PAGE);
    if (top == (void *)-1) return;  // musl has no heap of this kind
    fill_all(top, 4096, 5);
    check_all("cold", cold, PAGES, 1);
    check_all("heap", top, 4096, 5);
    sbrk(-(2048 * PAGE));
    sbrk(2048 * PAGE);
    check_all("the heap's lower half", top, 2048, 5);
    for (size_t p = 2048; p < 4096; p++)
        if (top[p * PAGE]) wrong("the heap's new half", p);
}

static void forks(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    for (int turn = 1; turn < 5; turn++) {
        pid_t child = fork();
        if (child < 0) wrong("fork", 0);
        if (child == 0) {
            check_all("a child", at, PAGES, 0);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                check_all("a grandchild", at, PAGES, 0);
                _exit(0);
            }
            fill_all(at, PAGES / 4, 9);
            expect_child(grandchild);
            check_all("a child's own", at, PAGES / 4, 9);
            _exit(0);
        }
        check_all("the parent", at, PAGES, 0);
        expect_child(child);
    }
    // A child whose parent ends at once.
    int ends[2];
    if (pipe(ends)) wrong("pipe", 0);
    pid_t middle = fork();
    if (middle == 0) {
        pid_t child = fork();
        if (child != 0) _exit(0);
        check_all("an orphan", at, PAGES, 0);
        char said = 'y';
        if (write(ends[1], &said, 1) != 1) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    expect_child(middle);
    char said = 0;
    if (read(ends[0], &said, 1) != 1 || said != 'y') wrong("an orphan's word", 0);
    check_all("the parent", at, PAGES, 0);
}

// KiB of anonymous memory of a process; what it shares is counted by parts.
static long part_of(pid_t pid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    long part = 0;
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Pss_Anon: %ld", &part);
    if (file) fclose(file);
    return part;
}

enum { CHILDREN = 4 };
// KiB: the limit of 32 MiB, a sixteenth of it, and 16 MiB. For moments it is more without
// userfaultfd, most of all on a machine with other work: 62 MiB were seen.
static const long BOUND = 50 << 10, MOMENT = 80 << 10;
enum { LOOKS = 4096 };

// KiB that this process and its children have.
static long part_of_all(const pid_t *children) {
    long sum = part_of(getpid());
    for (int i = 0; i < CHILDREN; i++) sum += part_of(children[i]);
    return sum;
}

static int by_size(const void *one, const void *other) {
    long a = *(const long *)one, b = *(const long *)other;
    return (a > b) - (a < b);
}

static void shares(void) {
    static long looks[LOOKS];
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    int here[2], go[2];
    if (pipe(here) || pipe(go)) wrong("pipe", 0);
    pid_t children[CHILDREN];
    char said = 'y';
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] < 0) wrong("fork", i);
        if (children[i] == 0) {
            close(go[1]);
            check_all("a child", at, PAGES, 0);
            if (write(here[1], &said, 1) != 1) _exit(1);
            if (read(go[0], &said, 1) != 0) _exit(1);
            check_all("a child at the end", at, PAGES, 0);
            _exit(0);
        }
    }
    // While all of them read.
    int count = 0;
    for (int words = 0; words < CHILDREN;) {
        struct pollfd word = {here[0], POLLIN, 0};
        int ready = poll(&word, 1, 1);
        if (ready > 0 && read(here[0], &said, 1) != 1) wrong("a child's word", words);
        words += ready > 0;
        if (count < LOOKS) looks[count++] = part_of_all(children);
    }
    qsort(looks, count, sizeof *looks, by_size);
    if (looks[count / 2] > BOUND) wrong("KiB of all in the median", looks[count / 2]);
    if (looks[count - 1] > MOMENT) wrong("KiB of all at most", looks[count - 1]);
    // Pages that a child has just read may still be on their way out.
    long sum = 0;
    for (int look = 0; look < 1000; look++) {
        sum = part_of_all(children);
        if (sum <= 40 << 10) break;
        usleep(10000);
    }
    if (sum > 40 << 10) wrong("KiB of all", sum);
    close(go[1]);
    for (int i = 0; i < CHILDREN; i++) expect_child(children[i]);
    check_all("the parent", at, PAGES, 0);
}

// Children write to all that they share, at the same time. Together it is far more than the limit.
// They wait before that, so that whoever folds by then has guarded its memory.
static void copies(void) {
    enum { SHARED = 6144 };  // 24 MiB
    char *at = map(SHARED);
    fill_all(at, SHARED, 0);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] < 0) wrong("fork", i);
        if (children[i] == 0) {
            usleep(500000);
            fill_all(at, SHARED, i + 1);
            check_all("a child", at, SHARED, i + 1);
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++) expect_child(children[i]);
    check_all("the parent", at, SHARED, 0);
}

// Areas of several mappings that are moved as a whole. The kernel refuses some of these moves. Where
// pages are closed it may have made the parts itself, so there all of them are made.
static void parts(void) {
    enum { AREAS = 24, AREA = 512 };
    char *areas[AREAS];
    int go[2];
    if (pipe(go)) wrong("pipe", 0);
    for (int i = 0; i < AREAS; i++) fill_all(areas[i] = map(AREA), AREA, i);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);
        char byte;
        for (int i = 0; i < AREAS; i++) check_all("a child", areas[i], AREA, i);
        _exit(read(go[0], &byte, 1) == 0 ? 0 : 1);
    }
    const char *way = getenv("RAMFOLD_PATH");
    int moves_all = way && !strcmp(way, "closed");
    for (int i = 0; i < AREAS; i++)
        if (i % 2 && madvise(areas[i], (1 + i) * PAGE, MADV_DONTDUMP)) wrong("madvise", i);
    for (int i = 0; i < AREAS; i++)
        for (size_t p = 0; p < AREA; p += 1 + p % 5) fill(areas[i] + p * PAGE, p, i);
    for (int i = 0; i < AREAS; i++) {
        size_t pages = i % 3 == 0 ? AREA : i % 3 == 1 ? AREA + 100 : AREA - 100;
        // Shared memory does not fold, and is in another place.
        int kind = MAP_ANONYMOUS | (i % 4 < 2 ? MAP_PRIVATE : MAP_SHARED);
        char *to = mmap(NULL, pages * PAGE, PROT_NONE, kind, -1, 0);
        int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        if (mremap(areas[i], AREA * PAGE, pages * PAGE, flags, to) != to) {
            if (errno != EFAULT || moves_all || i % 2 == 0) wrong("mremap", i);
            continue;
        }
        check_all("moved", to, pages < AREA ? pages : AREA, i);
        for (size_t at = AREA * PAGE; at < pages * PAGE; at += 512)
            if (to[at]) wrong("new pages", at / PAGE);
        char *longer = mremap(to, pages * PAGE, (pages + 300) * PAGE, MREMAP_MAYMOVE);
        if (longer == MAP_FAILED) {
            if (errno != EFAULT || moves_all || i % 2 == 0) wrong("mremap to grow", i);
            continue;
        }
        check_all("grown", longer, pages < AREA ? pages : AREA, i);
    }
    close(go[1]);
    expect_child(child);

    // A hole: the move is refused, and all is where it was. Then the same in another place.
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        char *at = map(AREA);
        fill_all(at, AREA, 77);
        fill_all(map(PAGES), PAGES, 1);
        if (elsewhere) {
            char *to = mmap(NULL, AREA * PAGE, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
            if (mremap(at, AREA * PAGE, AREA * PAGE, flags, to) != to) wrong("mremap", errno);
            at = to;
        }
        if (munmap(at + 300 * PAGE, PAGE)) wrong("munmap", 300);
        errno = 0;
        if (mremap(at, AREA * PAGE, (AREA + 9) * PAGE, MREMAP_MAYMOVE) != MAP_FAILED ||
            errno != EFAULT)
            wrong("mremap over a hole", errno);
        for (size_t p = 0; p < AREA; p++)
            if (p != 300) check("beside a hole", at + p * PAGE, p, 77);
        // Shorter again, where it is.
        char *shorter = mremap(at, 300 * PAGE, 200 * PAGE, 0);
        if (shorter != at) wrong("mremap to shrink", errno);
        check_all("shorter", at, 200, 77);
    }
}

// More memory that cannot leave than the limit allows, and values that lie on two pages. A touch of
// one page must not close the other one, or the instruction would never end.
static void tight(void) {
    // Mappings too small to fold where pages are closed, with guards, so that they stay apart.
    enum { SMALL = 16, MANY = 1000 };
    static char *small[MANY];
    for (int i = 0; i < MANY; i++) {
        small[i] = map(SMALL + 1);
        if (mprotect(small[i] + SMALL * PAGE, PAGE, PROT_NONE)) wrong("mprotect", i);
        fill_all(small[i], SMALL, i);
    }
    char *at = map(PAGES / 4);
    for (int turn = 0; turn < 3; turn++) {
        for (size_t p = 1; p < PAGES / 4; p++) {
            uint64_t value = p * 77 + turn;
            *(volatile uint64_t *)(at + p * PAGE - 4) = value;
        }
        for (size_t p = 1; p < PAGES / 4; p++)
            if (*(volatile uint64_t *)(at + p * PAGE - 4) != p * 77 + turn) wrong("a value", p);
    }
    for (int i = 0; i < MANY; i++) check_all("what stays", small[i], SMALL, i);
}

static void heirs(void) {
    char *at = map(PAGES);
    static uint64_t turns[12288];
    fill_all(at, PAGES, 0);
    int depth = 0;
    pid_t child = 0;
    while (depth < 6 && (child = fork()) == 0) {
        depth++;
        for (size_t p = 0; p < PAGES; p++) {
            check("an heir", at + p * PAGE, p, turns[p]);
            if (p % 7 == (size_t)depth) fill(at + p * PAGE, p, turns[p] = depth);
        }
        // Its memory grows and moves as if there had been no fork.
        char *own = map(512);
        fill_all(own, 512, depth);
        own = mremap(own, 512 * PAGE, 2048 * PAGE, MREMAP_MAYMOVE);
        check_all("its own", own, 512, depth);
        munmap(own, 2048 * PAGE);
    }
    if (child < 0) wrong("fork", depth);
    if (child > 0) expect_child(child);
    for (size_t p = 0; p < PAGES; p++) check("at the end", at + p * PAGE, p, turns[p]);
    if (depth) _exit(0);
}

static void storms(void) {
    enum { FORKS = 20, PART = 1024 };
    char *at = map(PAGES);
    static uint64_t turns[12288];
    fill_all(at, PAGES, 0);
    pid_t children[FORKS];
    for (int i = 0; i < FORKS; i++) {
        children[i] = fork();
        if (children[i] < 0) wrong("fork", i);
        if (children[i] == 0) {
            for (size_t p = i; p < PAGES; p += 3) check("a child", at + p * PAGE, p, turns[p]);
            for (size_t p = i * 100; p < (size_t)i * 100 + 700; p++) fill(at + p * PAGE, p, 77);
            for (size_t p = 0; p < 700; p++)
                check("a child's own", at + (p + i * 100) * PAGE, p + i * 100, 77);
            _exit(0);
        }
        size_t from = roll() % (PAGES - PART);
        madvise(at + from * PAGE, PART * PAGE, MADV_DONTNEED);
        for (size_t p = from; p < from + PART; p++) {
            if (at[p * PAGE + 8]) wrong("given up", p);
            fill(at + p * PAGE, p, turns[p] = i + 1);
        }
        if (i >= 3) expect_child(children[i - 3]);
    }
    for (int i = FORKS - 3; i < FORKS; i++) expect_child(children[i]);
    for (size_t p = 0; p < PAGES; p++) check("the parent", at + p * PAGE, p, turns[p]);
}

static char *shared_memory;
static void *touch(void *number) {
    uint64_t own = (uintptr_t)number * 2654435761u + 1;
    char stack[65536];
    memset(stack, (int)own, sizeof stack);
    for (int i = 0; i < 4000; i++) {
        own ^= own << 13, own ^= own >> 7, own ^= own << 17;
        size_t p = own % PAGES;
        check("a thread", shared_memory + p * PAGE, p, 0);
    }
    for (size_t i = 0; i < sizeof stack; i += 511)
        if (stack[i] != stack[0]) wrong("a stack", i);
    return NULL;
}

static void *toucher(void *number) {
    for (int turn = 0; turn < 3; turn++) {
        touch(number);
        // Blocks of its C library's heap come and go.
        char *blocks[64];
        for (int i = 0; i < 64; i++) memset(blocks[i] = malloc(1000 + 900 * i), i, 1000 + 900 * i);
        for (int i = 0; i < 64; i++) {
            if (blocks[i][999] != i) wrong("a block", i);
            free(blocks[i]);
        }
    }
    return NULL;
}

static void *forker(void *number) {
    size_t first = (uintptr_t)number;
    for (int turn = 0; turn < 10; turn++) {
        pid_t child = fork();
        if (child < 0) wrong("fork", turn);
        if (child == 0) {
            char *block = malloc(300000);
            memset(block, turn, 300000);
            for (size_t p = first; p < PAGES; p += 17)
                check("a child", shared_memory + p * PAGE, p, 0);
            if (block[299999] != turn) wrong("a child's block", turn);
            free(block);
            _exit(0);
        }
        expect_child(child);
    }
    return NULL;
}

static void crowds(void) {
    shared_memory = map(PAGES);
    fill_all(shared_memory, PAGES, 0);
    pthread_t all[6];
    for (uintptr_t i = 0; i < 6; i++)
        if (pthread_create(&all[i], NULL, i < 4 ? toucher : forker, (void *)i))
            wrong("a thread", i);
    for (int i = 0; i < 6; i++) pthread_join(all[i], NULL);
    check_all("the parent", shared_memory, PAGES, 0);
}

static int on_given_stack(void *memory) {
    check_all("a child with a stack", memory, PAGES, 0);
    fill_all(memory, PAGES / 4, 1);
    check_all("what it wrote", memory, PAGES / 4, 1);
    return 7;
}

static void clones(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    for (int turn = 0; turn < 4; turn++) {
        char *stack = turn % 2 ? malloc(65536) : map(16);
        pid_t child = clone(on_given_stack, stack + 65536, SIGCHLD, at);
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child) wrong("clone with a stack", turn);
        if (status != 7 << 8) wrong("the end of a child with a stack", status);
        check_all("its parent", at, PAGES, 0);
    }
    for (int turn = 0; turn < 4; turn++) {
        pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child < 0) wrong("clone", turn);
        if (child == 0) {
            check_all("a child", at, PAGES, 0);
            fill_all(at, PAGES / 4, 1);
            check_all("its own", at, PAGES / 4, 1);
            _exit(0);
        }
        expect_child(child);
        check_all("the parent", at, PAGES, 0);
    }
}

static void give_up_rights(void) {
    // capset(2): a version and a thread; effective, permitted and inheritable rights, twice.
    uint32_t head[2] = {0x20080522, 0}, none[6] = {0};
    if (syscall(SYS_capset, head, none)) wrong("capset", errno);
}

static void humble(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    pid_t heir = fork();
    if (heir < 0) wrong("fork", PAGES);
    if (heir == 0) {
        // A child that folded by itself has no right to do so any more, and forks.
        check_all("a child before", at, PAGES, 0);
        give_up_rights();
        pid_t grandchild = fork();
        if (grandchild < 0) wrong("fork", PAGES + 1);
        if (grandchild == 0) {
            check_all("a grandchild", at, PAGES, 0);
            _exit(0);
        }
        expect_child(grandchild);
        check_all("a child after", at, PAGES, 0);
        _exit(0);
    }
    expect_child(heir);
    give_up_rights();
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = fork();
        if (child < 0) wrong("fork", turn);
        if (child == 0) {
            check_all("a child", at, PAGES, 0);
            _exit(0);
        }
        expect_child(child);
        check_all("the parent", at, PAGES, 0);
    }
}

static void calls(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    int file = memfd_create("file", 0);
    for (size_t p = 0; p < PAGES; p += 3)
        if (pwrite(file, at + p * PAGE, PAGE, p * PAGE) != PAGE) wrong("pwrite", p);
    char *back = map(PAGES);
    for (size_t p = 0; p < PAGES; p += 3)
        if (pread(file, back + p * PAGE, PAGE, p * PAGE) != PAGE) wrong("pread", p);
    for (size_t p = 0; p < PAGES; p += 3) check("read back", back + p * PAGE, p, 0);
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t from = random % ((PAGES - 3) * PAGE), len = 1 + (random >> 40) % (2 * PAGE);
        if (pwrite(file, at + from, len, 0) != (ssize_t)len) wrong("pwrite across pages", i);
        if (pread(file, back + from, len, 0) != (ssize_t)len) wrong("pread across pages", i);
        if (memcmp(back + from, at + from, len)) wrong("bytes across pages", i);
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) wrong("socketpair", 0);
    for (size_t p = 1; p + 1 < PAGES; p += 97) {
        struct iovec parts[2] = {{at + p * PAGE, 1000}, {at + (p + 1) * PAGE, 1000}};
        if (writev(pair[0], parts, 2) != 2000) wrong("writev", p);
        struct iovec to[2] = {{back + p * PAGE, 1000}, {back + (PAGES - p) * PAGE, 1000}};
        if (readv(pair[1], to, 2) != 2000) wrong("readv", p);
        if (memcmp(back + p * PAGE, at + p * PAGE, 1000)) wrong("a datagram", p);
    }
    check_all("what was sent", at, PAGES, 0);
}

static void threads(void) {
    shared_memory = map(PAGES);
    fill_all(shared_memory, PAGES, 0);
    for (int turn = 0; turn < 6; turn++) {
        pthread_t all[8];
        for (uintptr_t i = 0; i < 8; i++)
            if (pthread_create(&all[i], NULL, touch, (void *)(i + 8 * turn))) wrong("a thread", i);
        for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
    }
}

enum { BUFFERS = 12, BUFFER = 256 };

static void *reuser(void *number) {
    uint64_t own = (uintptr_t)number * 2654435761u + 1;
    char *at[BUFFERS];
    uint64_t turn[BUFFERS] = {0};
    for (int i = 0; i < BUFFERS; i++) at[i] = map(BUFFER);
    for (uint64_t step = 1; step < 500; step++) {
        own ^= own << 13, own ^= own >> 7, own ^= own << 17;
        int i = own % BUFFERS;
        if (turn[i]) check_all("a buffer", at[i], BUFFER, turn[i]);
        int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
        switch (own >> 32 & 3) {
            case 0:
                if (mmap(at[i], BUFFER * PAGE, protection, flags | MAP_FIXED, -1, 0) != at[i])
                    wrong("mmap to a place", i);
                break;
            case 1: {
                char *to = mmap(NULL, BUFFER * PAGE, PROT_NONE, flags, -1, 0);
                if (mremap(at[i], BUFFER * PAGE, BUFFER * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) !=
                    to)
                    wrong("mremap to a place", i);
                at[i] = to;
                if (turn[i]) check_all("moved", to, BUFFER, turn[i]);
                break;
            }
            case 2:
                madvise(at[i], BUFFER * PAGE, MADV_DONTNEED);
                for (int p = 0; p < BUFFER; p++)
                    if (at[i][p * PAGE + 8]) wrong("given up", p);
                break;
            default:
                munmap(at[i], BUFFER * PAGE);
                at[i] = map(BUFFER);
                for (int p = 0; p < BUFFER; p++)
                    if (at[i][p * PAGE + 8]) wrong("new", p);
        }
        turn[i] = step + ((uint64_t)(uintptr_t)number << 32);
        fill_all(at[i], BUFFER, turn[i]);
    }
    return NULL;
}

static void reuse(void) {
    pthread_t all[4];
    for (uintptr_t i = 0; i < 4; i++)
        if (pthread_create(&all[i], NULL, reuser, (void *)(i + 1))) wrong("a thread", i);
    for (int i = 0; i < 4; i++) pthread_join(all[i], NULL);
}

static void wipes(void) {
    char *secret = map(2048), *other = map(PAGES);
    if (madvise(secret, 2048 * PAGE, MADV_WIPEONFORK)) wrong("madvise", 0);
    fill_all(secret, 2048, 1);
    fill_all(other, PAGES, 2);
    until_some_are_out(2048 + PAGES);
    pid_t child = fork();
    if (child == 0) {
        for (size_t p = 0; p < 2048; p++)
            if (secret[p * PAGE + 8]) wrong("a secret", p);
        check_all("a child", other, PAGES, 2);
        fill_all(secret, 2048, 3);
        check_all("a child", other, PAGES, 2);
        check_all("a child's own", secret, 2048, 3);
        _exit(0);
    }
    expect_child(child);
    check_all("the secret", secret, 2048, 1);
}

static void leaves(void) {
    char *other = map(PAGES), *left_out = map(1024);
    if (madvise(left_out, 1024 * PAGE, MADV_DONTFORK)) wrong("madvise", 1);
    fill_all(left_out, 1024, 1);
    fill_all(other, PAGES, 2);
    until_some_are_out(1024 + PAGES);
    pid_t child = fork();
    if (child == 0) {
        char *again = mmap(left_out, 1024 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (again != left_out) wrong("what is left out", 0);
        for (size_t p = 0; p < 1024; p++)
            if (again[p * PAGE + 8]) wrong("what is left out", p);
        check_all("a child", other, PAGES, 2);
        _exit(0);
    }
    expect_child(child);
    check_all("what is left out", left_out, 1024, 1);
}

/* As V8 does it for each piece of its heap: reserved, left out of children, cut, opened. */
static void leftout(void) {
    enum { PIECES = 256, PIECE = 64 }; /* 64 MiB, of which the limit has room for half */
    static char *at[PIECES];
    for (int i = 0; i < PIECES; i++) {
        at[i] = mmap(NULL, 2 * PIECE * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at[i] == MAP_FAILED) wrong("a piece", i);
        if (madvise(at[i], 2 * PIECE * PAGE, MADV_DONTFORK)) wrong("left out", i);
        if (munmap(at[i] + PIECE * PAGE, PIECE * PAGE)) wrong("cut", i);
        if (mprotect(at[i], PIECE * PAGE, PROT_READ | PROT_WRITE)) wrong("open", i);
        fill_all(at[i], PIECE, i);
    }
    char *moved = mremap(at[0], PIECE * PAGE, 2 * PIECE * PAGE, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) wrong("mremap", 0);
    if (madvise(at[1], PIECE * PAGE, MADV_DOFORK)) wrong("madvise", 1);
    volatile int *done = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (done == MAP_FAILED) wrong("mmap", 0);
    for (int turn = 0; turn < 4; turn++) {
        *done = -1;
        pid_t child = fork();
        if (child == 0) {
            check_all("got again", at[1], PIECE, 1);
            char *other = map(PAGES / 2);
            fill_all(other, PAGES / 2, 7);
            check_all("a child's own", other, PAGES / 2, 7);
            char *again = mmap(at[3], PIECE * PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
            if (again != at[3]) wrong("a place", turn);
            for (size_t p = 0; p < PIECE; p++)
                if (again[p * PAGE + 8]) wrong("left out", p);
            fill_all(again, PIECE, 9);
            check_all("at the place", again, PIECE, 9);
            *done = turn;
            char *lost[] = {at[2], moved, moved + 2 * PIECE * PAGE - 1};
            if (turn < 3) *(volatile char *)lost[turn];
            _exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child) wrong("waitpid", turn);
        if (*done != turn) wrong("a child", turn);
        int ended = turn < 3 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV : status == 0;
        if (!ended) wrong("a child has it", turn);
    }
    check_all("moved", moved, PIECE, 0);
    for (int i = 1; i < PIECES; i++) check_all("left out", at[i], PIECE, i);
}

static void *presses(void *unused) {
    char *at = map(PAGES / 2);
    fill_all(at, PAGES / 2, 8);
    for (int turn = 0; turn < 30; turn++) check_all("pressed", at, PAGES / 2, 8);
    return unused;
}

static void drops(void) {
    pthread_t presser;
    if (pthread_create(&presser, NULL, presses, NULL)) wrong("a thread", 0);
    char *at = map(2048);
    for (int turn = 1; turn < 400; turn++) {
        fill_all(at, 2048, turn);
        madvise(at, 2048 * PAGE, MADV_DONTNEED);
        for (size_t p = 0; p < 2048; p++)
            if (at[p * PAGE + 8]) wrong("given up", p);
    }
    pthread_join(presser, NULL);
}

static void at_alarm(int signal) {
    (void)signal;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
}

static void handlers(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    struct sigaction action = {.sa_handler = at_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 30000}, {0, 30000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int turn = 0; turn < 30; turn++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        int status = 1;
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        check("a handler", at + turn * 100 * PAGE, turn * 100, 0);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    check_all("at the end", at, PAGES, 0);
}

static volatile sig_atomic_t signals_end;
static uint64_t signals_taken;

static void on_new_stack(int signal) {
    (void)signal;
    __atomic_fetch_add(&signals_taken, 1, __ATOMIC_RELAXED);
}

static void *signals_main(void *thread) {
    while (!signals_end) pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

/* A signal may arrive at any moment, also just after the stack for it was named. */
static void stacks(void) {
    enum { STACK = 256 << 10 };
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    struct sigaction action = {.sa_handler = on_new_stack, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    static char small[8192];
    stack_t few = {.ss_sp = small, .ss_size = sizeof small}, told;
    if (sigaltstack(&few, NULL) || sigaltstack(NULL, &told)) wrong("a small stack", 0);
    if (told.ss_sp != small || told.ss_size != sizeof small || told.ss_flags) wrong("told", 0);
    raise(SIGUSR1);
    few.ss_flags = SS_DISABLE;
    if (sigaltstack(&few, &told) || told.ss_sp != small) wrong("told again", 0);
    if (sigaltstack(NULL, &told) || told.ss_flags != SS_DISABLE) wrong("told of none", 0);
    few = (stack_t){.ss_sp = small, .ss_size = 100};
    if (sigaltstack(&few, NULL) != -1 || errno != ENOMEM) wrong("too small a stack", 0);
    pthread_t self = pthread_self(), other;
    if (pthread_create(&other, NULL, signals_main, &self)) wrong("a thread", 0);
    for (int turn = 0; turn < 3000; turn++) {
        stack_t stack = {.ss_sp = map(STACK / PAGE), .ss_size = STACK}, none = {.ss_flags = SS_DISABLE};
        stack_t before;
        if (sigaltstack(&stack, &before)) wrong("a stack", turn);
        if (before.ss_flags != SS_DISABLE) wrong("it had a stack", turn);
        check("beside signals", at + turn * 4 * PAGE, turn * 4, 0);
        if (sigaltstack(&none, NULL)) wrong("no stack", turn);
        munmap(stack.ss_sp, STACK);
    }
    signals_end = 1;
    pthread_join(other, NULL);
    if (!signals_taken) wrong("no signal came", 0);
    check_all("at the end", at, PAGES, 0);
}

static void *reader(void *memory) {
    uint64_t state = 88172645463325252u;
    while (!signals_end) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t page = state % PAGES;
        check("read only", (char *)memory + page * PAGE, page, 0);
    }
    return NULL;
}

/* What may be read before, during and after must never be refused. */
static void readers(void) {
    enum { READERS = 3, PART = 96 };
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    pthread_t all[READERS];
    for (int i = 0; i < READERS; i++)
        if (pthread_create(&all[i], NULL, reader, at)) wrong("a thread", i);
    for (int turn = 0; turn < 2000; turn++) {
        char *part = at + turn * 61 % (PAGES - PART) * PAGE;
        if (mprotect(part, PART * PAGE, PROT_READ)) wrong("read only", turn);
        if (mprotect(part, PART * PAGE, PROT_READ | PROT_WRITE)) wrong("both", turn);
    }
    signals_end = 1;
    for (int i = 0; i < READERS; i++) pthread_join(all[i], NULL);
    check_all("at the end", at, PAGES, 0);
}

static long call_with(long number, long first, long second, long third, long others) {
    register long fourth __asm__("r10") = others, fifth __asm__("r8") = others;
    register long sixth __asm__("r9") = others;
    long answer = number;
    __asm__ volatile("syscall"
                     : "+a"(answer)
                     : "D"(first), "S"(second), "d"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return answer;
}

/* Its parent's filter of system calls is there, but nobody who serves what it traps. */
static void unserved(void) {
    static char bytes[8];
    for (long value = 1; value > 0; value <<= 1) {
        /* Any bit, and the bits of an address that may fold. */
        for (int kind = 0; kind < 2; kind++) {
            long left = kind ? value : 0x1b0000000000 + value % (1L << 40);
            if (call_with(SYS_getpid, left, left, left, left) != getpid()) wrong("getpid", left);
            if (call_with(SYS_close, -1, left, left, left) != -EBADF) wrong("close", left);
            if (call_with(SYS_read, -1, (long)bytes, 8, left) != -EBADF) wrong("read", left);
            if (call_with(SYS_lseek, -1, left, 0, left) != -EBADF) wrong("lseek", left);
            if (call_with(SYS_brk, 0, left, left, left) <= 0) wrong("brk", left);
        }
    }
    /* Nobody is killed for it. */
    if (call_with(SYS_io_uring_setup, 8, (long)bytes, 0, 0) != -ENOSYS) wrong("io_uring", 0);
    _exit(0);
}

static void leftovers(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    pid_t child = fork();
    if (child == 0) {
        unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "memory", "unserved", NULL);
        _exit(9);
    }
    expect_child(child);
    check_all("beside it", at, PAGES, 0);
}

enum { FIBER_STACK = 256 << 10 };
static char *stacks_memory;
static int stacks_file;

static void stacks_begin(void) {
    stacks_memory = map(PAGES);
    fill_all(stacks_memory, PAGES, 0);
    char name[] = "/tmp/fibers-XXXXXX";
    stacks_file = mkstemp(name);
    unlink(name);
}

enum { FIBERS = 300, DEPTH = 40 };
static char *fiber_stacks[FIBERS];
static void fiber(int turn);

#ifdef __GLIBC__
static ucontext_t fibers[FIBERS], fibers_main;
static void fiber_begin(int turn, char *stack) {
    getcontext(&fibers[turn]);
    fibers[turn].uc_stack.ss_sp = stack;
    fibers[turn].uc_stack.ss_size = FIBER_STACK;
    fibers[turn].uc_link = &fibers_main;
    makecontext(&fibers[turn], (void (*)(void))fiber, 1, turn);
}
static void fiber_enter(int turn) { swapcontext(&fibers_main, &fibers[turn]); }
static void fiber_leave(int turn) { swapcontext(&fibers[turn], &fibers_main); }
#else
/* musl has no contexts. A stack pointer is enough, above all that a function must keep. */
void fiber_switch(void **from, void *to);
void fiber_first(void);
__asm__(".text\n"
        "fiber_switch:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        "fiber_first:\n mov %rbx, %rdi\n call fiber_last\n");
static void *fibers[FIBERS], *fibers_main;
static void fiber_begin(int turn, char *stack) {
    void **top = (void **)(stack + FIBER_STACK) - 9;
    top[4] = (void *)(intptr_t)turn, top[6] = (void *)fiber_first;
    fibers[turn] = top;
}
static void fiber_enter(int turn) { fiber_switch(&fibers_main, fibers[turn]); }
static void fiber_leave(int turn) { fiber_switch(&fibers[turn], fibers_main); }
__attribute__((used)) void fiber_last(int turn) {
    fiber(turn);
    fiber_leave(turn);
}
#endif

/* Goes deep, and makes calls with and without memory on the way. */
static uint64_t deeper(int depth, uint64_t turn) {
    volatile char frame[3000];
    memset((char *)frame, depth, sizeof frame);
    if (depth % 8 == 3) {
        char text[64] = "words on a stack";
        if (pwrite(stacks_file, text, sizeof text, 0) != sizeof text) wrong("pwrite", depth);
        struct iovec part = {text, sizeof text};
        if (preadv(stacks_file, &part, 1, 0) != sizeof text) wrong("preadv", depth);
        if (turn % 60 == 7) {
            pid_t child = fork();
            if (child == 0) {
                check("in a child", stacks_memory + turn * PAGE, turn, 0);
                _exit(0);
            }
            expect_child(child);
        }
        fiber_leave(turn);
    }
    uint64_t below = depth < DEPTH ? deeper(depth + 1, turn) : turn;
    for (size_t i = 0; i < sizeof frame; i++)
        if (frame[i] != (char)depth) wrong("a frame", depth);
    size_t page = (turn * 31 + depth) % PAGES;
    check("from a fiber", stacks_memory + page * PAGE, page, 0);
    return below;
}

static void fiber(int turn) {
    /* Only the first page of its stack was ever touched, and has no room for a signal's frame. */
    volatile char *unused = __builtin_alloca(2600);
    __asm__ volatile("" : : "r"(unused) : "memory");
    if (turn % 2) {
        if (pwrite(stacks_file, stacks_memory, 8, 0) != 8) wrong("a first pwrite", turn);
    } else {
        sigset_t *none = (sigset_t *)unused + 18;
        sigemptyset(none);
        if (sigprocmask(SIG_BLOCK, none, NULL)) wrong("a first mask", turn);
    }
    if (deeper(0, turn) != (uint64_t)turn) wrong("a result", turn);
}

/* Each comes back DEPTH / 8 times, and then at its end. Before it begins, its first page is looked
   at, and may be there alone. */
static void *fibers_rounds(void *first) {
    check_all("before fibers", stacks_memory, PAGES, 0);
    for (int round = 0; round <= DEPTH / 8; round++)
        for (int i = (intptr_t)first; i < FIBERS; i += 2) {
            if (round == 0) *(volatile char *)(fiber_stacks[i] + FIBER_STACK - PAGE);
            fiber_enter(i);
        }
    return NULL;
}

static void fibers_run(void) {
    stacks_begin();
    pthread_t beside;
    if (pthread_create(&beside, NULL, reader, stacks_memory)) wrong("a thread", 0);
    for (int i = 0; i < FIBERS; i++)
        fiber_begin(i, fiber_stacks[i] = map(FIBER_STACK / PAGE));
    pthread_t other;
    fibers_rounds((void *)0);
    if (pthread_create(&other, NULL, fibers_rounds, (void *)1)) wrong("another thread", 0);
    pthread_join(other, NULL);
    signals_end = 1;
    pthread_join(beside, NULL);
    check_all("after fibers", stacks_memory, PAGES, 0);
}
static void *plain_depth(void *turn) {
    volatile char frame[200000];
    for (size_t i = 0; i < sizeof frame; i++) frame[i] = 7;
    for (size_t page = (uintptr_t)turn; page < PAGES; page += 5) {
        /* Much else is used, and the stack grows cold. */
        check("from a thread", stacks_memory + page * PAGE, page, 0);
        char text[8] = "words";
        if (page % 64 == 0 && pwrite(stacks_file, text, 8, 0) != 8) wrong("pwrite", 0);
    }
    for (size_t i = 0; i < sizeof frame; i++)
        if (frame[i] != 7) wrong("a frame", i);
    return turn;
}

static void own_stacks(void) {
    stacks_begin();
    for (uintptr_t turn = 0; turn < 30; turn++) {
        size_t bytes = turn % 2 ? FIBER_STACK : 4 * FIBER_STACK;
        char *stack = turn % 3 ? map(bytes / PAGE) : aligned_alloc(PAGE, bytes);
        size_t length = bytes;
        if (turn % 6 == 1) {
            /* It begins just above the place where memory may be open together. */
            stack = map((bytes = 3 * FIBER_STACK) / PAGE);
            length = FIBER_STACK - (uintptr_t)stack % FIBER_STACK + FIBER_STACK + PAGE;
        }
        pthread_attr_t how;
        pthread_attr_init(&how);
        if (pthread_attr_setstack(&how, stack, length)) wrong("a stack", turn);
        pthread_t thread;
        void *answer;
        if (pthread_create(&thread, &how, plain_depth, (void *)turn)) wrong("a thread", turn);
        pthread_join(thread, &answer);
        if (answer != (void *)turn) wrong("an answer", turn);
        if (turn % 3) munmap(stack, bytes);
        else free(stack);
    }
    check_all("after threads", stacks_memory, PAGES, 0);
}

/* Waits of a thread that is cancelled: what it waits with may be out. */
enum { WAITS = 6 };
static struct waiting {
    char *memory;
    int way, pipe[2], disabled;
    ssize_t answer;
} waiting;

static void unlock(void *mutex) { pthread_mutex_unlock(mutex); }

static void wait_for_ever(int way, char *at) {
    struct iovec parts[2] = {{at, 100}, {at + PAGE, 100}};
    struct pollfd *descriptors = (struct pollfd *)(at + 2 * PAGE);
    pthread_mutex_t *mutex = (pthread_mutex_t *)(at + 3 * PAGE);
    pthread_cond_t *condition = (pthread_cond_t *)(at + 4 * PAGE);
    switch (way) {
        case 0: waiting.answer = read(waiting.pipe[0], at, PAGE); break;
        case 1: waiting.answer = readv(waiting.pipe[0], parts, 2); break;
        case 2:
            descriptors[0] = (struct pollfd){.fd = waiting.pipe[0], .events = POLLIN};
            waiting.answer = poll(descriptors, 1, -1);
            break;
        case 3:
            pthread_mutex_init(mutex, NULL);
            pthread_cond_init(condition, NULL);
            pthread_mutex_lock(mutex);
            pthread_cleanup_push(unlock, mutex);
            for (;;) pthread_cond_wait(condition, mutex);
            pthread_cleanup_pop(1);
        case 4:
            sem_init((sem_t *)at, 0, 0);
            for (;;) sem_wait((sem_t *)at);
        default: {
            sigset_t *none = (sigset_t *)at;
            sigemptyset(none);
            waiting.answer = ppoll(NULL, 0, NULL, none);
        }
    }
}

static void *waiter(void *ignored) {
    int before;
    if (waiting.disabled) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    wait_for_ever(waiting.way, waiting.memory);
    return ignored;
}

static void cancels(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    alarm(120);
    for (int turn = 0; turn < 40 * WAITS; turn++) {
        size_t page = (size_t)turn * 40 % (PAGES - 8);
        waiting = (struct waiting){.memory = at + page * PAGE, .way = turn % WAITS};
        /* The first cancel of the process meets a thread that waits already. */
        waiting.disabled = turn > 0 && turn % WAITS < 2 && turn % 5 == 0;
        if (pipe(waiting.pipe)) wrong("pipe", turn);
        pthread_t thread;
        void *answer;
        if (pthread_create(&thread, NULL, waiter, NULL)) wrong("a thread", turn);
        /* It has not begun, begins to wait, or waits. */
        if (waiting.disabled || turn % 3 == 0) usleep(3000);
        else usleep(roll() % 120);
        pthread_cancel(thread);
        if (waiting.disabled) {
            usleep(2000);
            if (write(waiting.pipe[1], "x", 1) != 1) wrong("write", turn);
        }
        if (pthread_join(thread, &answer)) wrong("join", turn);
        if (waiting.disabled ? answer != NULL || waiting.answer != 1 : answer != PTHREAD_CANCELED)
            wrong("how it ended", turn);
        close(waiting.pipe[0]), close(waiting.pipe[1]);
        for (size_t p = page; p < page + 5; p++) fill(at + p * PAGE, p, 0);
        for (size_t p = turn; p < PAGES; p += 50) check("beside it", at + p * PAGE, p, 0);
    }
    check_all("at the end", at, PAGES, 0);
}

static void blocks(void) {
    enum { BLOCKS = 600000, TURNS = 4 };
    static struct block {
        size_t number;
        size_t words[11];
    } *all[BLOCKS];
    for (size_t turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < BLOCKS; i += turn ? 1 + roll() % 40 : 1) {
            if (turn && all[i]->number != i) wrong("a block", i);
            free(all[i]);
            size_t bytes = turn ? sizeof *all[i] + roll() % 64 : sizeof *all[i];
            if (!(all[i] = malloc(bytes))) wrong("no block", i);
            all[i]->number = i;
            for (size_t word = 0; word < 11; word++) all[i]->words[word] = i * 31 + word / 4;
        }
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t word = 0; word < 11; word++)
            if (all[i]->words[word] != i * 31 + word / 4) wrong("a block at the end", i);
}

/* Little of its stack is its own, so that calls have the least room. */
static void *narrow_thread(void *page) {
    char *at = shared_memory + (uintptr_t)page * PAGE;
    struct iovec part = {at, PAGE};
    if (pwritev(stacks_file, &part, 1, (uintptr_t)page * PAGE) != PAGE) wrong("pwritev", 0);
    if (pread(stacks_file, at, PAGE, (uintptr_t)page * PAGE) != PAGE) wrong("pread", 0);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_BLOCK, &none, NULL);
    return page;
}

static void narrow(void) {
    enum { MANY = 600, REQUESTS = 8 };
    stacks_begin();
    shared_memory = stacks_memory;
    for (uintptr_t turn = 0; turn < MANY; turn++) {
        pthread_attr_t how;
        pthread_attr_init(&how);
        if (pthread_attr_setstacksize(&how, PTHREAD_STACK_MIN)) wrong("a stack", turn);
        if (turn % 2) pthread_attr_setguardsize(&how, 0);
        if (turn % 3 == 0) pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
        pthread_t thread;
        void *answer = NULL;
        if (pthread_create(&thread, &how, narrow_thread, (void *)(turn * 20))) wrong("a thread", turn);
        if (turn % 3 && (pthread_join(thread, &answer) || answer != (void *)(turn * 20)))
            wrong("an answer", turn);
    }
    static struct aiocb requests[REQUESTS];
    for (size_t turn = 0; turn < 100; turn++) {
        for (size_t i = 0; i < REQUESTS; i++) {
            size_t page = (turn * 100 + i * 7) % PAGES;
            requests[i] = (struct aiocb){.aio_fildes = stacks_file, .aio_nbytes = PAGE};
            requests[i].aio_buf = stacks_memory + page * PAGE, requests[i].aio_offset = page * PAGE;
            if (aio_write(&requests[i])) wrong("aio_write", i);
        }
        for (size_t i = 0; i < REQUESTS; i++) {
            const struct aiocb *one[1] = {&requests[i]};
            while (aio_error(one[0]) == EINPROGRESS) aio_suspend(one, 1, NULL);
            if (aio_return(&requests[i]) != PAGE) wrong("aio_return", i);
        }
    }
    check_all("at the end", stacks_memory, PAGES, 0);
}

static void closes(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    int out = dup(1);
    for (int fd = 0; fd < 5000; fd++)
        if (fd != out) close(fd);
    check_all("without descriptors", at, PAGES, 0);
    for (int fd = 5000; fd > 0; fd--)
        if (fd != out) dup2(out, fd), close(fd);
    if (syscall(SYS_close_range, 0, out - 1, 0) || syscall(SYS_close_range, out + 1, ~0u, 0))
        wrong("close_range", 0);
    fill_all(at, PAGES, 1);
    check_all("without ranges of descriptors", at, PAGES, 1);
    if (dup2(out, 1) != 1) _exit(3);
}

/* What dup2 answers where it must not put a descriptor. musl asks for ever if that is EBUSY. */
#ifdef __GLIBC__
enum { BUSY = EBUSY };
#else
enum { BUSY = EBADF };
#endif

/* The descriptor of this process's memory. */
static int guarded(void) {
    char path[64], wanted[64], link[64];
    snprintf(wanted, sizeof wanted, "/proc/%d/mem", (int)getpid());
    for (int fd = 0; fd < 5000; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, link, sizeof link - 1);
        if (len > 0 && (link[len] = 0, !strcmp(link, wanted))) return fd;
    }
    return -1;
}

static void guards(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    int ours = guarded();
    if (ours < 0) wrong("no descriptor", 0);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) wrong("getrlimit", errno);
    if (limit.rlim_cur < limit.rlim_max && (rlim_t)ours < limit.rlim_cur && ours < 4096)
        wrong("a number that the program comes to", ours);
    if (close(ours) != -1 || errno != EBADF) wrong("close", errno);
    if (dup2(1, ours) != -1 || errno != BUSY) wrong("dup2", errno);
    if (syscall(SYS_close, ours, at, at, at) != -1 || errno != EBADF) wrong("raw close", errno);
    if (syscall(SYS_close_range, 3, ~0u, 0)) wrong("close_range", errno);
    if (guarded() != ours) wrong("it was closed", ours);
    pid_t child = fork();
    if (child == 0) {
        if (guarded() != ours) wrong("a child has its own", ours);
        check_all("a child", at, PAGES, 0);
        _exit(0);
    }
    expect_child(child);
    check_all("with it", at, PAGES, 0);
}

static int narrow_child(void *at) {
    struct iovec part = {at, PAGE};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &none, NULL);
    _exit(pwritev(stacks_file, &part, 1, 0) == PAGE ? 0 : 1);
}

/* A child whose stack is a small piece of its parent's, as musl makes them itself. */
static void narrow_stack(char *at) {
    struct {
        char below[8192], stack[2048];
    } frame;
    memset(frame.below, 77, sizeof frame.below);
    char *top = frame.stack + sizeof frame.stack;
    expect_child(clone(narrow_child, top, CLONE_VM | CLONE_VFORK | SIGCHLD, at));
    for (size_t i = 0; i < sizeof frame.below; i++)
        if (frame.below[i] != 77) wrong("below a stack", i);
}

/* Children that share this memory until they execute a program. */
static void spawns(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 0);
    stacks_begin();
#ifndef __GLIBC__
    for (size_t p = 0; p < PAGES; p += 500) narrow_stack(at + p * PAGE);
#else
    (void)narrow_stack;
#endif
    for (int i = 0; i < 200; i++) {
        char **words = malloc(300000);
        memset(words, 0, 300000);
        char *path = (char *)words + 200000 + i * 97;
        strcpy(path, i % 4 ? "/bin/sh" : "/nonexistent");
        words[0] = path, words[1] = "-c", words[2] = strcpy(path + 4000, "exit 7");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, 2, 1);
        pid_t child;
        int status, error = posix_spawn(&child, path, &actions, NULL, words, environ);
        if (error != (i % 4 ? 0 : ENOENT)) wrong("posix_spawn", error);
        if (!error && (waitpid(child, &status, 0) != child || status != 7 << 8)) wrong("an exit", i);
        posix_spawn_file_actions_destroy(&actions);
        check("beside children", at + i * 50 * PAGE, i * 50, 0);
        if (i % 3) free(words);
    }
    check_all("after children", at, PAGES, 0);
}

static void at_term(int signal) {
    (void)signal;
    _exit(5);
}

static void rests(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 3);
    until_some_are_out(PAGES);
    puts("rests");
    fflush(stdout);
    if (getchar() == EOF) wrong("no line", 0);
    check_all("what rested", at, PAGES, 3);
}

static void jails(void) {
    char *at = map(PAGES);
    fill_all(at, PAGES, 1);
    until_some_are_out(PAGES);
    if (chdir("/proc") || (geteuid() == 0 && chroot("/proc"))) wrong("chroot", 0);
    if (geteuid() == 0 && (setgid(65534) || setuid(65534))) wrong("setuid", 0);
    for (int turn = 1; turn < 4; turn++) {
        check_all("a prisoner", at, PAGES, turn);
        fill_all(at, PAGES, turn + 1);
    }
    pid_t child = fork();
    if (child < 0) wrong("fork", 0);
    if (child == 0) {
        check_all("a prisoner's child", at, PAGES, 4);
        fill_all(at, PAGES, 5);
        check_all("a prisoner's child", at, PAGES, 5);
        _exit(0);
    }
    expect_child(child);
    check_all("a prisoner", at, PAGES, 4);
}

static void waits(void) {
    signal(SIGTERM, at_term);
    puts("waits");
    fflush(stdout);
    for (;;) pause();
}

// Two thirds of a page are 16 letters in no order, the rest is a part of them again.
static void letters(char *at, size_t page) {
    const size_t first = PAGE / 3 * 2;
    uint64_t state = page * 2 + 1;
    for (size_t i = 0; i < first; i++) {
        state = state * 0x5851f42d4c957f2du + (page | 1);
        at[i] = 'a' + (state >> 60);
    }
    memcpy(at + first, at, PAGE - first);
}

static uint64_t *first(char *at, size_t page) { return (uint64_t *)(at + page * PAGE); }

static void zeros(const char *what, char *at, size_t from, size_t to) {
    for (size_t p = from; p < to; p++)
        if (*first(at, p)) wrong(what, p);
}

/* Much more memory than the limit, filled as fast as a thread can, and some that is not touched. */
static void fills(void) {
    const size_t all = 393216 + 77, filled = 262144 + 33, half = filled / 2; /* 1.5 GiB, 1 GiB */
    char *at = map(all);
    for (size_t p = 0; p < filled; p++) *first(at, p) = p + 1;
    for (size_t p = 0; p < filled; p++)
        if (*first(at, p) != p + 1) wrong("filled", p);
    /* A system call, a child, and a hole in what was not touched. */
    int ends[2];
    uint64_t sent = 7;
    if (pipe(ends) || write(ends[1], &sent, 8) != 8) wrong("pipe", 0);
    if (read(ends[0], first(at, filled + 9000), 8) != 8) wrong("read", errno);
    if (*first(at, filled + 9000) != 7) wrong("what was read", filled + 9000);
    pid_t child = fork();
    if (child == 0) {
        zeros("a child's zeros", at, filled + 10000, filled + 20000);
        for (size_t p = filled + 10000; p < filled + 12000; p++) *first(at, p) = p;
        for (size_t p = filled + 10000; p < filled + 12000; p++)
            if (*first(at, p) != p) wrong("a child's own", p);
        for (size_t p = half; p < half + 5000; p++)
            if (*first(at, p) != p + 1) wrong("a child's", p);
        _exit(0);
    }
    expect_child(child);
    zeros("not touched", at, filled + 10000, filled + 12000);
    if (madvise(at + (filled - 3000) * PAGE, 20000ul * PAGE, MADV_DONTNEED)) wrong("madvise", errno);
    zeros("given up", at, filled - 3000, filled + 17000);
    if (munmap(at + (filled + 30001) * PAGE, 5000ul * PAGE)) wrong("munmap", errno);
    char *hole = mmap(at + (filled + 30001) * PAGE, 5000ul * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (hole == MAP_FAILED) wrong("mmap", errno);
    zeros("a hole", at, filled + 20000, all);
    /* It has to move, and what was not touched moves along. */
    char *moved = mremap(at, (filled + 30001) * PAGE, 2 * all * PAGE, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) wrong("mremap", errno);
    for (size_t p = 0; p < filled - 3000; p++)
        if (*first(moved, p) != p + 1) wrong("moved", p);
    zeros("moved zeros", moved, filled - 3000, filled + 30000);
    zeros("grown", moved, 2 * all - 9000, 2 * all);
}

/* Memory that nobody touches until the standard input ends. */
static void lingers(void) {
    char *at = map(PAGES), expected[PAGE], end;
    for (size_t p = 0; p < PAGES; p++) letters(at + p * PAGE, p);
    puts("lingers");
    fflush(stdout);
    while (read(0, &end, 1) > 0) {}
    for (size_t p = 0; p < PAGES; p++) {
        letters(expected, p);
        if (memcmp(at + p * PAGE, expected, PAGE)) wrong("letters", p);
    }
}

/* Pages of memory that this process has for itself. */
static long anonymous(void) {
    long all, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &all, &resident, &shared) != 3) wrong("statm", errno);
    fclose(file);
    return resident - shared;
}

/* The heaps of Java and of JavaScript give memory back so. */
static void returns(void) {
    const size_t all = 4 * PAGES, kept = 1000;
    const int over = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    char *at = map(all);
    fill_all(at, all, 0);
    char *rest = at + kept * PAGE;
    if (mmap(rest, (all - kept) * PAGE, PROT_NONE, over, -1, 0) != rest) wrong("mmap", errno);
    check_all("before it", at, kept, 0);
    if (mprotect(rest, (all - kept) * PAGE, PROT_READ | PROT_WRITE)) wrong("mprotect", errno);
    zeros("given back", rest, 0, all - kept);
    fill_all(at, all, 1);
    if (mmap(rest, (all - kept) * PAGE, PROT_READ | PROT_WRITE, over, -1, 0) != rest)
        wrong("mmap", errno);
    zeros("given back at once", rest, 0, all - kept);
    check_all("before it, again", at, kept, 1);
    /* What takes its place folds too, after a moment. */
    fill_all(at, all, 2);
    for (int looks = 0; anonymous() > 12288; looks++) {
        if (looks == 2000) wrong("it stays", anonymous());
        usleep(10000);
    }
    check_all("in its place", at, all, 2);
    /* A descriptor means nothing without a file. */
    char *other = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0, 0);
    if (other == MAP_FAILED) wrong("mmap", errno);
    fill_all(other, PAGES, 2);
    static const size_t lengths[] = {-1ul, -PAGE, 1ul << 62, 1ul << 47};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (munmap(at, lengths[i]) == 0 || errno != EINVAL) wrong("munmap", i);
    check_all("not unmapped", other, PAGES, 2);
    check_all("nor this", at, kept, 2);
}

static void young(void) {
    struct { uint64_t value, address; uint32_t flags, none; } *words;
    static long numbers[8];
    char *at = map(PAGES), *list = map(PAGES);
    fill_all(at, PAGES, 0);
    fill_all(list, PAGES, 1);
    /* The words that it waits for have left, and so has the list of them. */
    check_all("all", list, PAGES, 1);
    words = (void *)(at + 7 * PAGE);
    words[0].value = *(uint32_t *)at + 1;
    words[0].address = (uint64_t)at;
    words[0].flags = 2 | 128; /* 32 bits, private */
    words[0].none = 0;
    check_all("all", list, PAGES, 1);
    struct timespec now = {0, 0};
    long answer = syscall(449, words, 1, 0, &now, CLOCK_MONOTONIC);
    if (answer != -1 || (errno != EAGAIN && errno != ENOSYS)) wrong("futex_waitv", errno);
    /* Longer than what a call is taken to use of which nothing is known. */
    static const size_t count = 40000;
    char *arrays = map(PAGES);
    void **pages = (void **)arrays;
    int *status = (int *)(arrays + 200 * PAGE);
    for (size_t i = 0; i < count; i++) pages[i] = list + i % PAGES * PAGE;
    answer = syscall(SYS_move_pages, 0, count, pages, NULL, status, 0);
    if (answer < 0 && errno != ENOSYS && errno != EPERM && errno != ENODEV) wrong("move_pages", errno);
    /* Past the C library. */
    if (call_with(SYS_io_uring_setup, 8, (long)numbers, 0, 0) != -ENOSYS) wrong("io_uring", 0);
    if (call_with(SYS_io_setup, 8, (long)numbers, 0, 0) != -ENOSYS) wrong("io_setup", 0);
    check_all("all", list, PAGES, 1);
}

// Writes over the environment at once, as programs do to give themselves a title.
static void titles(void) {
    for (char **entry = environ; *entry; entry++) memset(*entry, 't', strlen(*entry));
    environ = NULL;
    walk();
}

int main(int count, char **words) {
    is_noise = count > 2 && !strcmp(words[2], "noise");
    static const struct claim all[] = {
        {"walk", walk}, {"moves", moves}, {"forks", forks}, {"calls", calls}, {"waits", waits},
        {"rests", rests}, {"jails", jails}, {"threads", threads}, {"closes", closes},
        {"reuse", reuse}, {"drops", drops}, {"handlers", handlers}, {"wipes", wipes},
        {"leaves", leaves}, {"leftout", leftout}, {"shares", shares}, {"parts", parts},
        {"tight", tight}, {"heirs", heirs}, {"copies", copies}, {"storms", storms},
        {"crowds", crowds}, {"clones", clones}, {"humble", humble}, {"spawns", spawns},
        {"stacks", stacks}, {"readers", readers}, {"unserved", unserved},
        {"leftovers", leftovers}, {"fibers", fibers_run}, {"ownstacks", own_stacks},
        {"guards", guards}, {"cancels", cancels}, {"narrow", narrow}, {"blocks", blocks},
        {"lingers", lingers}, {"fills", fills}, {"titles", titles}, {"returns", returns},
        {"young", young}
    };
    return claim(all, sizeof all / sizeof *all, count > 1 ? words[1] : "");
}
