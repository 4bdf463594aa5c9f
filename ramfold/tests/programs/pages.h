// Pages whose content says which page they are, for programs under ramfold run.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const size_t PAGES = 12288;  // 48 MiB

static void wrong(const char *what, size_t page) {
    printf("wrong: %s, page %zu\n", what, page);
    fflush(stdout);
    _exit(1);
}

static void *map(size_t pages) {
    void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) wrong("mmap", 0);
    return at;
}

static uint64_t chance = 88172645463325252u;
static uint64_t roll(void) {
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance;
}

// Pages do not compress.
static int is_noise;

// The words of a page say which page it is and how often it was written.
static uint64_t word(size_t page, uint64_t turn, int i) {
    uint64_t value = page * 1000003 + turn * 7 + i / 16;
    if (!is_noise) return value;
    // splitmix64, by Sebastiano Vigna.
    value = (value << 9) + i + 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

static void fill(char *at, size_t page, uint64_t turn) {
    uint64_t *words = (uint64_t *)at;
    for (int i = 0; i < PAGE / 8; i++) words[i] = word(page, turn, i);
}

static void check(const char *what, char *at, size_t page, uint64_t turn) {
    uint64_t *words = (uint64_t *)at;
    for (int i = 0; i < PAGE / 8; i += 37)
        if (words[i] != word(page, turn, i)) wrong(what, page);
}

static void fill_all(char *at, size_t pages, uint64_t turn) {
    for (size_t p = 0; p < pages; p++) fill(at + p * PAGE, p, turn);
}

static void check_all(const char *what, char *at, size_t pages, uint64_t turn) {
    for (size_t p = 0; p < pages; p++) check(what, at + p * PAGE, p, turn);
}

/* Waits until some of `pages` that were filled are out, because a claim that ends sooner may end
 * before anything folds. Ten seconds at most, so that it ends where nothing folds. */
static void until_some_are_out(size_t pages) {
    for (int look = 0; look < 1000; look++) {
        FILE *file = fopen("/proc/self/statm", "r");
        size_t size, resident;
        if (!file || fscanf(file, "%zu %zu", &size, &resident) != 2) wrong("statm", 0);
        fclose(file);
        if (resident < pages) return;
        usleep(10000);
    }
}

// Touches so much other memory that what was not touched for long is out.
static void press(void) {
    static char *at;
    static uint64_t turn;
    int is_first = !at;
    if (is_first) at = map(PAGES);
    fill_all(at, PAGES, ++turn);
    if (is_first) until_some_are_out(PAGES);
    check_all("what presses", at, PAGES, turn);
}

static int is_zero(const char *page) {
    for (int i = 0; i < PAGE; i++)
        if (page[i]) return 0;
    return 1;
}

static void expect_child(pid_t child) {
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) wrong("a child's end", status);
}

// What a program can be asked to do.
struct claim {
    const char *name;
    void (*work)(void);
};

// Does the claim of this name. The status of a program that has none of this name is 2.
static int claim(const struct claim *all, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, all[i].name)) {
            all[i].work();
            puts("right");
            return 0;
        }
    return 2;
}
