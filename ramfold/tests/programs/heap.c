// A heap that a library begins before the program does, as the library of C++ does.
//
// With -DLIBRARY this is the library.

#include "pages.h"

extern char *kept;

#ifdef LIBRARY

char *kept;

__attribute__((constructor)) static void begin(void) {
    kept = malloc(1000);
    memset(kept, 7, 1000);
}

#else

#include <malloc.h>

enum { SIZE = 2000, BLOCKS = 24000 };  // 46 MiB

static char *block(size_t number) {
    char *at = malloc(SIZE);
    if (at == NULL) wrong("malloc", number);
    memset(at, number % 251, SIZE);
    return at;
}

static void has(const char *at, size_t number) {
    for (int i = 0; i < SIZE; i++)
        if (at[i] != (char)(number % 251)) wrong("a block", number);
}

int main(void) {
    static char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = block(i);
    for (size_t i = 0; i < BLOCKS; i += 2) {
        has(blocks[i], i);
        free(blocks[i]);
    }
    malloc_trim(0);
    for (size_t i = 0; i < BLOCKS; i += 2) blocks[i] = block(i);
    for (size_t i = 0; i < BLOCKS; i++) has(blocks[i], i);
    for (int i = 0; i < 1000; i++)
        if (kept[i] != 7) wrong("the library's block", i);
#if __GLIBC_PREREQ(2, 33)
    if (mallinfo2().arena > (size_t)1 << 40) wrong("the heap's size", mallinfo2().arena);
#endif
    puts("right");
    return 0;
}

#endif
