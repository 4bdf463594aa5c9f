// A program with functions of its own by names of the C library, which touch memory that folds. A
// sanitizer and some profilers have such functions.
//
//   cc -O1 -fno-builtin -rdynamic own.c

#include "pages.h"

enum { ENTRIES = 4 << 20 };
static uint64_t *uses;  // 32 MiB

static void note(const void *at) {
    if (uses) uses[((uintptr_t)at >> 12) % ENTRIES]++;
}

void *memset(void *to, int byte, size_t len) {
    note(to);
    for (volatile char *next = to; len--; next++) *next = byte;
    return to;
}

void *memcpy(void *to, const void *from, size_t len) {
    note(to);
    const char *next = from;
    for (volatile char *at = to; len--; at++) *at = *next++;
    return to;
}

int main(void) {
    uses = map(ENTRIES * sizeof *uses / PAGE);
    char *at = map(PAGES);
    for (uint64_t turn = 0; turn < 3; turn++) {
        for (size_t page = 0; page < PAGES; page++) fill(at + page * PAGE, page, turn);
        for (size_t page = 0; page < PAGES; page++) check("own", at + page * PAGE, page, turn);
        memset(at, turn, PAGE);
        if (at[PAGE - 1] != (char)turn) wrong("memset", 0);
    }
    printf("right\n");
    return 0;
}
