/*
 * ramfold.h - memory that folds, and a dense store of compressed values
 *
 * libramfold gives a C or C++ program two things. A region is memory whose cold pages are kept
 * compressed, and come back when they are touched. A pool stores values under numbers: compressed,
 * packed densely, and compacted after deletes. docs/c.md is the manual, with whole programs.
 *
 *     memory -+- pool ---- value, value, ...      dictionary: what values have in common
 *             `- pager --- region, region, ...
 *
 * RESULTS. A function returns RAMFOLD_OK (0) or a negative code of enum ramfold_status, unless its
 * comment says otherwise. After a code other than RAMFOLD_OK nothing was done, unless the comment
 * of the function says otherwise, and ramfold_last_message() has a sentence about it.
 *
 * HANDLES. A handle has the type of a pointer and is a number. It is never dereferenced. The
 * functions named _new, _train and _map make one, and _free and _unmap free it. A handle that was
 * freed, that is of another kind, or that was made up is answered with RAMFOLD_ERROR_HANDLE. NULL
 * is answered with RAMFOLD_ERROR_ARGUMENT, except that freeing NULL does nothing and returns
 * RAMFOLD_OK. Handles may be freed in any order: a pool keeps its memory, and a region its pager.
 * There are at most 65536 handles at a time.
 *
 * THREADS. Every function may be called by any thread at any time, except in a signal handler and in
 * a destructor of thread-specific data (pthread_key_create). A thread that is cancelled
 * (pthread_cancel) ends after the call that it is in. A handle may be freed while other threads are
 * in calls with it. These calls end as if they had come first, and what the handle named ends with
 * the last of them. The bytes of a region are the program's: it must not touch them once
 * ramfold_region_unmap was called.
 *
 * FORK. In a forked child every handle of the parent is answered with RAMFOLD_ERROR_FORKED, because
 * its memory is not there. The child may make handles of its own. Regions are not inherited,
 * except with RAMFOLD_FAULT_PROTECTION, where a child may read and write their bytes.
 *
 * STRUCTURES. A structure begins with its size. Set it with sizeof, and all else to zero:
 *
 *     ramfold_pool_config config = {0};
 *     config.size = sizeof config;
 *
 * In settings zero means the default, and a NULL pointer to settings means all defaults. A program
 * that was compiled with an older header, whose structures are shorter, works with a newer library.
 * A program with longer structures works too, if it sets nothing that the library does not know;
 * else it gets RAMFOLD_ERROR_UNSUPPORTED.
 *
 * POINTERS. A pointer must be NULL or valid. Bytes that are passed in must not change during the
 * call. Pointers are not kept after the call. Memory of a region that is passed to a function of
 * this library must be pinned.
 *
 * VERSIONS. A function never changes its meaning. If it has to, a new function gets a new name. The
 * numbers of codes stay. The library's name for the loader is libramfold.so.0 until version 1.
 *
 * Licence: MIT or Apache-2.0, at your choice.
 */
#ifndef RAMFOLD_H
#define RAMFOLD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version that this header is of: major * 1000000 + minor * 1000 + patch. */
#define RAMFOLD_VERSION 1000

/* What a function returns. */
enum ramfold_status {
    RAMFOLD_OK = 0,
    RAMFOLD_ERROR_ARGUMENT = -1,       /* NULL where something is needed, or out of range */
    RAMFOLD_ERROR_HANDLE = -2,         /* the handle was freed, is of another kind, or made up */
    RAMFOLD_ERROR_FORKED = -3,         /* the handle is of the process that forked this one */
    RAMFOLD_ERROR_NO_MEMORY = -4,      /* the system, or the memory of the handle, has no more */
    RAMFOLD_ERROR_LIMIT = -5,          /* a limit was reached: a pool's, or a number of things */
    RAMFOLD_ERROR_SHORT_BUFFER = -6,   /* the buffer is too short; the needed size is told */
    RAMFOLD_ERROR_NO_VALUE = -7,       /* the number names no value of this pool, or no longer */
    RAMFOLD_ERROR_CORRUPT = -8,        /* a defect of this library, or of the machine */
    RAMFOLD_ERROR_REFUSED = -9,        /* the system refused; the message says what helps */
    RAMFOLD_ERROR_UNSUPPORTED = -10,   /* this library, or the algorithm, does not know that */
    RAMFOLD_ERROR_PANICKED = -11,      /* a defect of this library; it goes on, if it can */
    RAMFOLD_ERROR_NOTHING_COMMON = -12 /* too few samples for a dictionary, or too different */
};

/* The version of the library, as RAMFOLD_VERSION. */
uint32_t ramfold_version(void);

/*
 * The name of a status, such as "RAMFOLD_ERROR_LIMIT". It lives for ever. A number that is no
 * status is "RAMFOLD_UNKNOWN".
 */
const char *ramfold_status_name(int status);

/*
 * Copies a sentence about the last call of this thread that failed to `buffer`, cut to `size` bytes
 * with the zero that ends it. Returns the length of the sentence, at most 511, without the zero. It
 * is 0 if no call has failed. `buffer` may be NULL, if only the length is wanted.
 */
size_t ramfold_last_message(char *buffer, size_t size);

/* ---------------------------------------------------------------------------------------------
 * Memory: address space from which pools and the stores of regions take what they need. A program
 * has one, or several that are counted apart. Address space costs nothing until it is used.
 */
typedef struct ramfold_memory ramfold_memory;

typedef struct ramfold_memory_config {
    size_t size;
    uint64_t region_bytes;   /* what all regions may be long together; default: 32 GiB */
    uint64_t values_max;     /* how many values all pools may have; default: 4 million */
    uint64_t arena_bytes;    /* the most compressed data; default: 5/4 of the machine's memory */
    uint64_t expected_bytes; /* what is likely; 1/32 of it is kept free for reuse. No limit */
    uint64_t no_worker;      /* not 0: no thread compacts pools and gives free memory back */
} ramfold_memory_config;

typedef struct ramfold_memory_stats {
    size_t size;
    uint64_t mapped_bytes;   /* all that it takes: compressed data, what is free, and tables */
    uint64_t free_bytes;     /* what is free and kept for reuse */
    uint64_t metadata_bytes; /* tables of frames, objects and descriptors */
    uint64_t pending_bytes;  /* what was freed and is yet to be given back */
} ramfold_memory_stats;

/* Makes a memory, which is freed with ramfold_memory_free(). */
int ramfold_memory_new(const ramfold_memory_config *config, ramfold_memory **memory);

/* Says what a memory takes. */
int ramfold_memory_get_stats(ramfold_memory *memory, ramfold_memory_stats *stats);

/* Frees the handle. The memory ends with the last pool and pager on it. */
int ramfold_memory_free(ramfold_memory *memory);

/* ---------------------------------------------------------------------------------------------
 * Dictionaries: what small values have in common, found once and shared by pools. Values of a few
 * hundred bytes hardly compress without one.
 */
typedef struct ramfold_dictionary ramfold_dictionary;

/*
 * Makes a dictionary of at most `size_max` bytes, 1024 or more, from samples of values. They lie
 * one after the other at `samples`, and `lengths` has the bytes of each of the `count` samples. A
 * few thousand samples, a hundred times the dictionary together, are enough. It takes seconds for
 * some MiB.
 *
 * RAMFOLD_ERROR_NOTHING_COMMON: the samples are too few, or have nothing in common.
 */
int ramfold_dictionary_train(const void *samples, const size_t *lengths, size_t count,
                             size_t size_max, ramfold_dictionary **dictionary);

/* Makes a dictionary from `size` bytes that were kept, which are copied. Any bytes are one. */
int ramfold_dictionary_new(const void *content, size_t size, ramfold_dictionary **dictionary);

/*
 * Copies the bytes of a dictionary, for keeping them, to `buffer`, which has `*size` bytes. `*size`
 * becomes the length. RAMFOLD_ERROR_SHORT_BUFFER: the length is told and nothing was copied.
 */
int ramfold_dictionary_get(ramfold_dictionary *dictionary, void *buffer, size_t *size);

/* Frees the handle. Pools that were made with it keep the dictionary. */
int ramfold_dictionary_free(ramfold_dictionary *dictionary);

/* ---------------------------------------------------------------------------------------------
 * Pools: values of 0 to RAMFOLD_VALUE_MAX bytes under numbers. A value that gets no shorter by
 * compression is stored as it is. Values of more than 4096 bytes are cut.
 */
typedef struct ramfold_pool ramfold_pool;

/* Bytes of the longest value. */
#define RAMFOLD_VALUE_MAX 1048576

typedef struct ramfold_pool_config {
    size_t size;
    const char *codec;              /* "lz4" (default), "zstd:3", "lz4hc:9", "lzo-rle", "lzo",
                                       "deflate:6", "pagelz"; "none" stores values as they are */
    ramfold_dictionary *dictionary; /* not for lzo and deflate; NULL: none. It may be freed after */
    uint64_t limit_bytes;           /* the most bytes of memory for objects; 0: no limit */
    uint64_t chain_frames;          /* 1 to 16; default 16. A pool below 8 MiB is denser with 8 */
} ramfold_pool_config;

typedef struct ramfold_pool_stats {
    size_t size;
    uint64_t values;          /* values that are stored */
    uint64_t value_bytes;     /* their bytes, before compression */
    uint64_t objects;         /* objects that they are stored as; a long value has several */
    uint64_t object_bytes;    /* the bytes of the slots of these */
    uint64_t resident_bytes;  /* the memory that these take; ramfold_pool_compact() may lower it */
    uint64_t overhead_bytes;  /* the pool's own structures, codecs and dictionary */
    uint64_t pages_compacted; /* pages that compaction has freed so far */
} ramfold_pool_stats;

/* A value of a batch. */
typedef struct ramfold_bytes {
    const void *start; /* may be NULL if `size` is 0 */
    size_t size;
} ramfold_bytes;

/*
 * Makes a pool in `memory`, which is freed with ramfold_pool_free().
 *
 * RAMFOLD_ERROR_UNSUPPORTED: the codec takes no level or no dictionary.
 */
int ramfold_pool_new(ramfold_memory *memory, const ramfold_pool_config *config,
                     ramfold_pool **pool);

/*
 * Stores `size` bytes, which are copied. `*value` becomes their number, which is never 0. A number
 * is valid until ramfold_pool_delete(), and is not given away again before the slot behind it was
 * used 2^32 times.
 *
 * RAMFOLD_ERROR_LIMIT: the pool's limit was reached. RAMFOLD_ERROR_NO_MEMORY: the memory is full.
 */
int ramfold_pool_put(ramfold_pool *pool, const void *start, size_t size, uint64_t *value);

/*
 * Copies a value to `buffer`, which has `*size` bytes. `*size` becomes the value's length.
 *
 * RAMFOLD_ERROR_SHORT_BUFFER: the length is told and nothing was copied. RAMFOLD_ERROR_NO_VALUE:
 * the number names no value, or another thread deleted it meanwhile; `buffer` may have changed.
 */
int ramfold_pool_get(ramfold_pool *pool, uint64_t value, void *buffer, size_t *size);

/* Says how long a value is. */
int ramfold_pool_size(ramfold_pool *pool, uint64_t value, size_t *size);

/* Deletes a value. Of several threads that delete one value, one succeeds. */
int ramfold_pool_delete(ramfold_pool *pool, uint64_t value);

/*
 * As ramfold_pool_put() for each of `count` values, in order, to the first that fails. `values` has
 * room for as many numbers. `*done`, if `done` is not NULL, becomes how many were stored. They stay
 * stored whatever is returned.
 */
int ramfold_pool_put_many(ramfold_pool *pool, const ramfold_bytes *batch, size_t count,
                          uint64_t *values, size_t *done);

/*
 * Copies `count` values one after the other to `buffer`, which has `room` bytes, to the first that
 * fails. `sizes` has room for as many lengths. `*done`, if `done` is not NULL, becomes how many
 * were copied. After RAMFOLD_ERROR_SHORT_BUFFER sizes[*done] is the length of the value that had
 * no room.
 */
int ramfold_pool_get_many(ramfold_pool *pool, const uint64_t *values, size_t count, void *buffer,
                          size_t room, size_t *sizes, size_t *done);

/* As ramfold_pool_delete() for each of `count` values, in order, to the first that fails. */
int ramfold_pool_delete_many(ramfold_pool *pool, const uint64_t *values, size_t count,
                             size_t *done);

/*
 * Moves objects together and gives the memory that this frees back. Numbers stay what they are.
 * `*freed_bytes`, if it is not NULL, becomes how much that was. The worker of the memory does it by
 * itself in a pool at rest.
 */
int ramfold_pool_compact(ramfold_pool *pool, uint64_t *freed_bytes);

/* Sets the most bytes of memory for objects; 0: no limit. Values that are there stay. */
int ramfold_pool_set_limit(ramfold_pool *pool, uint64_t bytes);

/* Recounts the whole pool, for tests. RAMFOLD_ERROR_CORRUPT: the message says what is wrong. */
int ramfold_pool_check(ramfold_pool *pool);

/* Says what a pool holds. It takes microseconds. */
int ramfold_pool_get_stats(ramfold_pool *pool, ramfold_pool_stats *stats);

/* Frees the handle, and all values with it. */
int ramfold_pool_free(ramfold_pool *pool);

/* ---------------------------------------------------------------------------------------------
 * Pagers: what regions share, and the threads that look after them. A program has one.
 */
typedef struct ramfold_pager ramfold_pager;

/* How a touch of a page that is out is served. */
enum ramfold_fault_mode {
    RAMFOLD_FAULT_BEST = 0,      /* the first that the system has: _SIGNAL, _PROTECTION, _GUARDS */
    RAMFOLD_FAULT_SIGNAL = 1,    /* userfaultfd and SIGBUS; Linux 6.8, no privilege */
    RAMFOLD_FAULT_THREAD = 2,    /* userfaultfd and a thread; system calls fault too; a privilege */
    RAMFOLD_FAULT_PROTECTION = 3, /* mprotect and SIGSEGV; no userfaultfd */
    RAMFOLD_FAULT_GUARDS = 4     /* guards and SIGSEGV; Linux 6.15; faster than _PROTECTION */
};

typedef struct ramfold_pager_config {
    size_t size;
    uint64_t fault_mode;    /* one of enum ramfold_fault_mode */
    uint64_t staging_bytes; /* memory for pages on their way out; default: 16 MiB */
} ramfold_pager_config;

/*
 * Makes a pager whose regions keep their pages in `memory`. It starts two threads, which take no
 * signals, and installs a handler of SIGBUS or SIGSEGV, which passes on what is not a region's.
 *
 * RAMFOLD_ERROR_REFUSED: the system has or gives no such mode; the message says what helps.
 */
int ramfold_pager_new(ramfold_memory *memory, const ramfold_pager_config *config,
                      ramfold_pager **pager);

/* Says how faults are served: 1 to 4 of enum ramfold_fault_mode. */
int ramfold_pager_fault_mode(ramfold_pager *pager, int *mode);

/* Frees the handle. The pager ends with its last region. */
int ramfold_pager_free(ramfold_pager *pager);

/* ---------------------------------------------------------------------------------------------
 * Regions: memory whose cold pages are compressed. Except with RAMFOLD_FAULT_THREAD, three things
 * must not be done with their bytes:
 *   - a system call on bytes that are not pinned. It answers EFAULT if a page is out;
 *   - a touch in a thread that has blocked SIGBUS (_SIGNAL) or SIGSEGV (_PROTECTION and
 *     _GUARDS);
 *   - a stack of a thread, or of a signal handler.
 * In no mode may other code discard, move or unmap them. docs/region.md has all rules.
 */
typedef struct ramfold_region ramfold_region;

/*
 * How dense pages become while they stay out. A thread of the pager works on that, with at most a
 * tenth of one CPU for each region. A page that was out for less than half a minute stays as it
 * left. The denser, the longer a touch takes.
 */
enum ramfold_density {
    RAMFOLD_DENSITY_FAST = 0,     /* as they left, by `codec` */
    RAMFOLD_DENSITY_BALANCED = 1, /* denser after a minute, where that saves much */
    RAMFOLD_DENSITY_DENSE = 2     /* after half a minute, and ever more; 16 minutes later several
                                     neighbours are compressed as one */
};

typedef struct ramfold_region_config {
    size_t size;
    const char *name;        /* a name for statistics; it is copied */
    const char *codec;       /* as in ramfold_pool_config, except "none"; default: "lz4" */
    uint64_t resident_limit; /* the most bytes in memory, 1 MiB at least; 0: no limit */
    uint64_t store_limit;    /* the most bytes of compressed pages; 0: no limit */
    uint64_t element_bytes;  /* 2, 4 or 8, if the region has numbers of that size: their bytes are
                                sorted before they are compressed, and take much less; 0: no;
                                RAMFOLD_ELEMENTS_SAMPLED: samples of the pages say where it pays */
    uint64_t density;        /* how dense pages become while they stay out: one of
                                enum ramfold_density */
} ramfold_region_config;

/* For element_bytes, if nobody knows what the region will have. A page takes one byte more. */
#define RAMFOLD_ELEMENTS_SAMPLED 1

typedef struct ramfold_region_stats {
    size_t size;
    uint64_t bytes;            /* the length of the region */
    uint64_t resident_bytes;   /* what is in memory, as far as it is watched */
    uint64_t staged_bytes;     /* what is on its way out */
    uint64_t stored_bytes;     /* what is out, before compression */
    uint64_t unwatched_bytes;  /* what no page has left yet; only the system knows what is there */
    uint64_t compressed_bytes; /* what is out, after compression */
    uint64_t metadata_bytes;   /* what describes the region */
    uint64_t limit_bytes;      /* its limit; 0: none */
    uint64_t faults;           /* touches that were served */
    uint64_t refaults;         /* those of pages that had been out */
    uint64_t pages_in;         /* pages that came back */
    uint64_t pages_out;        /* pages that left */
    uint64_t pages_refused;    /* pages that the store had no room for; they stayed */
} ramfold_region_stats;

/* What may be advised of a range. */
enum ramfold_advice {
    RAMFOLD_ADVICE_PAGE_OUT = 1, /* compress it now */
    RAMFOLD_ADVICE_PREFETCH = 2, /* bring it to memory, as far as the limit allows */
    RAMFOLD_ADVICE_COLD = 3,     /* at the limit, it leaves before the rest of the region */
    RAMFOLD_ADVICE_DISCARD = 4   /* forget it: it reads as zeros. No thread may use it meanwhile */
};

/*
 * Maps a region of `size` bytes, rounded up to 4096, all zeros. No page is touched. It is unmapped
 * with ramfold_region_unmap().
 *
 * A region of at most 1 MiB without settings is a part of one that all such regions of the pager
 * share. So there may be tens of thousands. It takes addresses in steps of 256 KiB. Its bytes may
 * be another region's after its unmap, and its statistics say only where its pages are. Regions
 * with settings, or longer ones, are about a thousand at most.
 *
 * RAMFOLD_ERROR_REFUSED: this thread has the signal of the fault mode blocked, or the system
 * refuses to watch. RAMFOLD_ERROR_LIMIT: there are too many regions.
 */
int ramfold_region_map(ramfold_pager *pager, size_t size, const ramfold_region_config *config,
                       ramfold_region **region);

/* Says where the bytes are, and how many. `size` may be NULL. They are there until the unmap. */
int ramfold_region_data(ramfold_region *region, void **data, size_t *size);

/*
 * Brings the pages of a range to memory, and keeps them there until as many calls of
 * ramfold_region_unpin() with this very range. System calls may use pinned bytes. Pins may exceed
 * the limit.
 *
 * RAMFOLD_ERROR_CORRUPT: a page cannot be brought back.
 */
int ramfold_region_pin(ramfold_region *region, size_t offset, size_t size);

/* Takes one pin off a range. RAMFOLD_ERROR_ARGUMENT: this very range has none. */
int ramfold_region_unpin(ramfold_region *region, size_t offset, size_t size);

/*
 * Says what the program knows of a range, whose bounds are multiples of 4096: one of enum
 * ramfold_advice. Pages that are pinned stay in memory, and RAMFOLD_ADVICE_DISCARD of them is
 * RAMFOLD_ERROR_ARGUMENT.
 *
 * RAMFOLD_ERROR_LIMIT: the store had no room for some pages, which stayed in memory; others left.
 */
int ramfold_region_advise(ramfold_region *region, size_t offset, size_t size, int advice);

/*
 * Sets how many bytes may be in memory, 1 MiB at least; 0: no limit. The rest leaves soon.
 * RAMFOLD_ERROR_UNSUPPORTED: the region shares its memory with others; see ramfold_region_map().
 */
int ramfold_region_set_limit(ramfold_region *region, uint64_t bytes);

/*
 * Makes the pages that are out as dense as the region's density allows, however short they have
 * rested. It takes up to some hundred microseconds for a page. It is for a program that is about to
 * rest. RAMFOLD_ERROR_UNSUPPORTED: the region's density is RAMFOLD_DENSITY_FAST.
 */
int ramfold_region_densify(ramfold_region *region);

/* Says where the pages are, and what was served. */
int ramfold_region_get_stats(ramfold_region *region, ramfold_region_stats *stats);

/* Frees the handle and the memory, in microseconds, whatever the size. Pins end with it. */
int ramfold_region_unmap(ramfold_region *region);

#ifdef __cplusplus
}
#endif

#endif /* RAMFOLD_H */
