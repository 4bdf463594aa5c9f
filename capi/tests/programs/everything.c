/*
 * Calls every function of ramfold.h, and checks what it answers.
 *
 *     everything store        memories, dictionaries, pools, handles, messages
 *     everything region MODE  pagers and regions; MODE is a number of enum ramfold_fault_mode
 *     everything fork MODE    a child that has its parent's handles, while threads use them
 *     everything little       where the system has no memory for a copy
 *     everything first        children that are the first process of a namespace, as their parent is
 *
 * It ends with 0 if all is as it should be, and with 77 if the system has no such fault mode.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ramfold.h"

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            char words[512];                                                                   \
            ramfold_last_message(words, sizeof words);                                         \
            fprintf(stderr, "%s:%d: %s; last message: %s\n", __FILE__, __LINE__, #condition,   \
                    words);                                                                    \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)
#define OK(call) CHECK((call) == RAMFOLD_OK)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static ramfold_memory *new_memory(void)
{
    ramfold_memory_config config = {0};
    ramfold_memory *memory = NULL;
    config.size = sizeof config;
    config.region_bytes = 1024 * MIB;
    config.values_max = 100000;
    config.arena_bytes = 256 * MIB;
    config.expected_bytes = 64 * MIB;
    OK(ramfold_memory_new(&config, &memory));
    CHECK(memory != NULL);
    return memory;
}

static ramfold_pool *new_pool(ramfold_memory *memory, const char *codec, ramfold_dictionary *dict)
{
    ramfold_pool_config config = {0};
    ramfold_pool *pool = NULL;
    config.size = sizeof config;
    config.codec = codec;
    config.dictionary = dict;
    config.chain_frames = 8;
    OK(ramfold_pool_new(memory, &config, &pool));
    return pool;
}

static ramfold_pool_stats stats_of(ramfold_pool *pool)
{
    ramfold_pool_stats stats;
    stats.size = sizeof stats;
    OK(ramfold_pool_get_stats(pool, &stats));
    return stats;
}

/* Fills bytes by a seed: text-like, or noise. */
static void fill(unsigned char *bytes, size_t size, uint64_t seed, int noise)
{
    for (size_t at = 0; at < size; at++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[at] = (unsigned char)(noise || at % 64 == 0 ? seed >> 56 : at / 37);
    }
}

static void check_words(void)
{
    char words[8] = "unset";
    CHECK(ramfold_version() == RAMFOLD_VERSION);
    CHECK(strcmp(ramfold_status_name(RAMFOLD_OK), "RAMFOLD_OK") == 0);
    CHECK(strcmp(ramfold_status_name(RAMFOLD_ERROR_NOTHING_COMMON),
                 "RAMFOLD_ERROR_NOTHING_COMMON") == 0);
    CHECK(strcmp(ramfold_status_name(5), "RAMFOLD_UNKNOWN") == 0);
    CHECK(ramfold_last_message(words, sizeof words) == 0 && words[0] == 0);
    CHECK(ramfold_pool_delete(NULL, 1) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_last_message(NULL, 0) == strlen("the handle is NULL"));
    CHECK(ramfold_last_message(words, sizeof words) > 0 && strcmp(words, "the han") == 0);
    words[0] = 'x';
    CHECK(ramfold_last_message(words, 0) > 0 && words[0] == 'x');
}

static void check_structures(void)
{
    ramfold_memory *memory = NULL;
    struct {
        ramfold_memory_config known;
        uint64_t newer;
    } config = {{0}, 0};
    CHECK(ramfold_memory_new(&config.known, &memory) == RAMFOLD_ERROR_ARGUMENT); /* size is 0 */
    config.known.size = sizeof config;
    config.newer = 1;
    CHECK(ramfold_memory_new(&config.known, &memory) == RAMFOLD_ERROR_UNSUPPORTED);
    CHECK(memory == NULL);
    config.newer = 0;
    config.known.arena_bytes = 64 * MIB;
    OK(ramfold_memory_new(&config.known, &memory));
    OK(ramfold_memory_free(memory));
    CHECK(ramfold_memory_new(&config.known, NULL) == RAMFOLD_ERROR_ARGUMENT);

    /* An older structure ends after two members; what follows it is not touched. */
    config.known.size = sizeof(size_t) + sizeof(uint64_t);
    memset(&config.known.values_max, 0xff, sizeof config.known - config.known.size);
    OK(ramfold_memory_new(&config.known, &memory));
    struct {
        ramfold_memory_stats known;
        uint64_t newer;
    } stats;
    memset(&stats, 0xff, sizeof stats);
    stats.known.size = sizeof(size_t) + sizeof(uint64_t);
    OK(ramfold_memory_get_stats(memory, &stats.known));
    CHECK(stats.known.mapped_bytes < UINT64_MAX && stats.known.free_bytes == UINT64_MAX);
    stats.known.size = sizeof stats;
    OK(ramfold_memory_get_stats(memory, &stats.known));
    CHECK(stats.known.size == sizeof stats && stats.newer == 0);
    CHECK(stats.known.pending_bytes < UINT64_MAX);
    CHECK(ramfold_memory_get_stats(memory, NULL) == RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_memory_free(memory));
    OK(ramfold_memory_new(NULL, &memory));
    OK(ramfold_memory_free(memory));
}

static void check_handles(void)
{
    ramfold_memory *memory = new_memory();
    ramfold_pool *pool = new_pool(memory, NULL, NULL);
    uint64_t value = 1;
    size_t size = 1;
    OK(ramfold_memory_free(memory)); /* the pool keeps it */
    OK(ramfold_pool_put(pool, "here", 4, &value));
    CHECK(ramfold_memory_free(memory) == RAMFOLD_ERROR_HANDLE);
    CHECK(ramfold_memory_free((ramfold_memory *)pool) == RAMFOLD_ERROR_HANDLE);
    CHECK(ramfold_region_pin((ramfold_region *)pool, 0, 1) == RAMFOLD_ERROR_HANDLE);
    CHECK(ramfold_pool_size((ramfold_pool *)&size, value, &size) == RAMFOLD_ERROR_HANDLE);
    OK(ramfold_pool_size(pool, value, &size));
    CHECK(size == 4);
    OK(ramfold_pool_free(pool));
    CHECK(ramfold_pool_free(pool) == RAMFOLD_ERROR_HANDLE);
    CHECK(ramfold_pool_size(pool, value, &size) == RAMFOLD_ERROR_HANDLE);
    OK(ramfold_pool_free(NULL));
    OK(ramfold_memory_free(NULL));
    OK(ramfold_dictionary_free(NULL));
    OK(ramfold_pager_free(NULL));
    OK(ramfold_region_unmap(NULL));
}

static void check_values(ramfold_memory *memory, const char *codec)
{
    static const size_t sizes[] = {0, 1, 63, 64, 300, 4093, 4094, 4095, 4096, 4097, 100000,
                                   RAMFOLD_VALUE_MAX};
    static unsigned char bytes[RAMFOLD_VALUE_MAX + 1], back[RAMFOLD_VALUE_MAX];
    ramfold_pool *pool = new_pool(memory, codec, NULL);
    uint64_t values[2 * COUNT(sizes)];
    for (size_t at = 0; at < COUNT(values); at++) {
        fill(bytes, sizes[at / 2], at, at % 2);
        OK(ramfold_pool_put(pool, bytes, sizes[at / 2], &values[at]));
        CHECK(values[at] != 0);
    }
    CHECK(stats_of(pool).values == COUNT(values));
    OK(ramfold_pool_compact(pool, NULL));
    for (size_t at = 0; at < COUNT(values); at++) {
        size_t size = sizeof back, told = 0;
        fill(bytes, sizes[at / 2], at, at % 2);
        OK(ramfold_pool_get(pool, values[at], back, &size));
        OK(ramfold_pool_size(pool, values[at], &told));
        CHECK(size == sizes[at / 2] && told == size && memcmp(bytes, back, size) == 0);
        if (size > 0) {
            size_t little = size - 1;
            back[0] = (unsigned char)~bytes[0];
            CHECK(ramfold_pool_get(pool, values[at], back, &little) ==
                  RAMFOLD_ERROR_SHORT_BUFFER);
            CHECK(little == size && back[0] != bytes[0]);
        }
        OK(ramfold_pool_delete(pool, values[at]));
        CHECK(ramfold_pool_delete(pool, values[at]) == RAMFOLD_ERROR_NO_VALUE);
        CHECK(ramfold_pool_get(pool, values[at], back, &size) == RAMFOLD_ERROR_NO_VALUE);
    }
    OK(ramfold_pool_check(pool));
    CHECK(stats_of(pool).objects == 0 && stats_of(pool).value_bytes == 0);
    CHECK(ramfold_pool_put(pool, bytes, sizeof bytes, values) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_pool_put(pool, NULL, 1, values) == RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_pool_put(pool, NULL, 0, values));
    CHECK(ramfold_pool_put(pool, bytes, 1, NULL) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_pool_get(pool, values[0], back, NULL) == RAMFOLD_ERROR_ARGUMENT);
    uint64_t place = 77; /* of the value, and of its number afterwards */
    CHECK(ramfold_pool_put(pool, bytes, sizeof bytes, &place) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(place == 77);
    OK(ramfold_pool_put(pool, &place, sizeof place, &place));
    size_t size = sizeof place;
    OK(ramfold_pool_get(pool, place, &place, &size));
    CHECK(place == 77 && size == sizeof place);
    size = 1;
    CHECK(ramfold_pool_get(pool, values[0], NULL, &size) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_pool_size(pool, values[0], NULL) == RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_pool_free(pool));
}

static void check_settings(ramfold_memory *memory)
{
    ramfold_pool_config config = {0};
    ramfold_pool *pool = NULL;
    config.size = sizeof config;
    config.codec = "gzip";
    CHECK(ramfold_pool_new(memory, &config, &pool) == RAMFOLD_ERROR_ARGUMENT);
    config.codec = "\xff";
    CHECK(ramfold_pool_new(memory, &config, &pool) == RAMFOLD_ERROR_ARGUMENT);
    config.codec = "lzo:3";
    CHECK(ramfold_pool_new(memory, &config, &pool) == RAMFOLD_ERROR_UNSUPPORTED);
    config.codec = NULL;
    config.chain_frames = 17;
    CHECK(ramfold_pool_new(memory, &config, &pool) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(pool == NULL);
    ramfold_pool *before = new_pool(memory, NULL, NULL), *after = before;
    CHECK(ramfold_pool_new(memory, &config, &after) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(after == before);
    OK(ramfold_pool_free(before));
    OK(ramfold_pool_new(memory, NULL, &pool));
    OK(ramfold_pool_free(pool));
    CHECK(ramfold_pool_new(NULL, NULL, &pool) == RAMFOLD_ERROR_ARGUMENT);
}

static void check_batches(ramfold_memory *memory)
{
    enum { VALUES = 100 };
    static unsigned char bytes[VALUES * 50], back[VALUES * 50];
    ramfold_pool *pool = new_pool(memory, "zstd:1", NULL);
    ramfold_bytes batch[VALUES];
    uint64_t values[VALUES];
    size_t sizes[VALUES], done = 7;
    fill(bytes, sizeof bytes, 1, 0);
    for (size_t at = 0; at < VALUES; at++) {
        batch[at].start = bytes + 50 * at;
        batch[at].size = 50;
    }
    OK(ramfold_pool_put_many(pool, batch, VALUES, values, &done));
    CHECK(done == VALUES && stats_of(pool).values == VALUES);
    OK(ramfold_pool_get_many(pool, values, VALUES, back, sizeof back, sizes, &done));
    CHECK(done == VALUES && sizes[99] == 50 && memcmp(bytes, back, sizeof back) == 0);
    CHECK(ramfold_pool_get_many(pool, values, VALUES, back, 149, sizes, &done) ==
          RAMFOLD_ERROR_SHORT_BUFFER);
    CHECK(done == 2 && sizes[2] == 50);
    OK(ramfold_pool_delete(pool, values[60]));
    CHECK(ramfold_pool_delete_many(pool, values, VALUES, &done) == RAMFOLD_ERROR_NO_VALUE);
    CHECK(done == 60 && stats_of(pool).values == 39);
    OK(ramfold_pool_delete_many(pool, values + 61, 39, NULL));
    batch[3].start = NULL;
    CHECK(ramfold_pool_put_many(pool, batch, VALUES, values, &done) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(done == 3 && stats_of(pool).values == 3);
    CHECK(ramfold_pool_put_many(pool, batch, 1, NULL, &done) == RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_pool_put_many(pool, NULL, 0, NULL, &done));
    CHECK(done == 0);
    CHECK(ramfold_pool_get_many(pool, values, 1, back, 50, NULL, NULL) ==
          RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_pool_delete_many(pool, NULL, 1, NULL) == RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_pool_free(pool));
    /* An error before the first value leaves no count of an earlier call. */
    done = 7;
    CHECK(ramfold_pool_put_many(pool, batch, 1, values, &done) == RAMFOLD_ERROR_HANDLE);
    CHECK(done == 0);
    done = 7;
    CHECK(ramfold_pool_get_many(pool, values, 1, back, 50, sizes, &done) == RAMFOLD_ERROR_HANDLE);
    CHECK(done == 0);
    done = 7;
    CHECK(ramfold_pool_delete_many(pool, values, 1, &done) == RAMFOLD_ERROR_HANDLE);
    CHECK(done == 0);
}

static void check_limit_and_compaction(ramfold_memory *memory)
{
    static unsigned char bytes[2000];
    static uint64_t values[1000];
    ramfold_pool *pool = new_pool(memory, "none", NULL);
    uint64_t freed = 0;
    OK(ramfold_pool_set_limit(pool, 1 * MIB));
    size_t stored = 0;
    int status = RAMFOLD_OK;
    while (stored < COUNT(values) && status == RAMFOLD_OK) {
        fill(bytes, sizeof bytes, stored, 1);
        status = ramfold_pool_put(pool, bytes, sizeof bytes, &values[stored]);
        stored += status == RAMFOLD_OK;
    }
    CHECK(status == RAMFOLD_ERROR_LIMIT && stored > 400 && stored < 600);
    OK(ramfold_pool_set_limit(pool, 0));
    OK(ramfold_pool_put(pool, bytes, sizeof bytes, &values[stored++]));
    for (size_t at = 0; at < stored; at += 2)
        OK(ramfold_pool_delete(pool, values[at]));
    uint64_t before = stats_of(pool).resident_bytes;
    OK(ramfold_pool_compact(pool, &freed));
    /* The worker may have been first. */
    CHECK(stats_of(pool).resident_bytes < 3 * MIB / 4 && before >= stats_of(pool).resident_bytes);
    for (size_t at = 1; at < stored; at += 2) {
        unsigned char back[2000];
        size_t size = sizeof back;
        fill(bytes, sizeof bytes, at, 1);
        OK(ramfold_pool_get(pool, values[at], back, &size));
        CHECK(size == sizeof back && memcmp(back, bytes, size) == 0);
    }
    OK(ramfold_pool_free(pool));
}

static void check_dictionary(ramfold_memory *memory)
{
    enum { SAMPLES = 4000 };
    static char samples[SAMPLES * 200];
    static size_t lengths[SAMPLES];
    char content[4096], again[4096];
    size_t size = 0, end = 0;
    ramfold_dictionary *dict = NULL;
    for (int at = 0; at < SAMPLES; at++) {
        int length = sprintf(samples + end,
                             "{\"id\": %d, \"name\": \"customer number %d\", \"city\": \"Trier\", "
                             "\"orders\": [%d, %d]}",
                             at, at * 7, at * 3, at + 11);
        lengths[at] = (size_t)length;
        end += lengths[at];
    }
    CHECK(ramfold_dictionary_train(samples, lengths, SAMPLES, 100, &dict) ==
          RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_dictionary_train(samples, lengths, 1, 4096, &dict) ==
          RAMFOLD_ERROR_NOTHING_COMMON);
    CHECK(ramfold_dictionary_train(NULL, lengths, 1, 4096, &dict) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(dict == NULL);
    OK(ramfold_dictionary_train(samples, lengths, SAMPLES, sizeof content, &dict));
    CHECK(ramfold_dictionary_get(dict, content, &size) == RAMFOLD_ERROR_SHORT_BUFFER);
    CHECK(size > 100 && size <= sizeof content);
    OK(ramfold_dictionary_get(dict, content, &size));

    ramfold_pool *with = new_pool(memory, "lz4", dict), *same = new_pool(memory, "lz4", dict);
    ramfold_pool *without = new_pool(memory, "lz4", NULL);
    OK(ramfold_dictionary_free(dict));
    uint64_t value = 0;
    for (size_t at = 0, start = 0; at < SAMPLES; start += lengths[at++]) {
        OK(ramfold_pool_put(without, samples + start, lengths[at], &value));
        OK(ramfold_pool_put(with, samples + start, lengths[at], &value));
        size_t length = sizeof again;
        OK(ramfold_pool_get(with, value, again, &length));
        CHECK(length == lengths[at] && memcmp(again, samples + start, length) == 0);
    }
    CHECK(stats_of(with).object_bytes < stats_of(without).object_bytes * 2 / 3);
    CHECK(stats_of(with).overhead_bytes > size && stats_of(same).values == 0);

    OK(ramfold_dictionary_new(content, size, &dict));
    size_t length = sizeof again;
    OK(ramfold_dictionary_get(dict, again, &length));
    CHECK(length == size && memcmp(content, again, size) == 0);
    ramfold_pool_config config = {0};
    ramfold_pool *pool = NULL;
    config.size = sizeof config;
    config.dictionary = dict;
    config.codec = "none";
    CHECK(ramfold_pool_new(memory, &config, &pool) == RAMFOLD_ERROR_UNSUPPORTED);
    config.codec = "deflate";
    CHECK(ramfold_pool_new(memory, &config, &pool) == RAMFOLD_ERROR_UNSUPPORTED);
    config.codec = "zstd:3";
    OK(ramfold_pool_new(memory, &config, &pool));
    OK(ramfold_pool_free(pool));
    OK(ramfold_pool_free(with));
    OK(ramfold_pool_free(same));
    OK(ramfold_pool_free(without));
    CHECK(ramfold_dictionary_new(content, 0, &dict) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_dictionary_get(NULL, again, &length) == RAMFOLD_ERROR_ARGUMENT);
}

/* Puts, reads and deletes until the pool is freed under it. */
static void *use_pool(void *argument)
{
    ramfold_pool *pool = argument;
    unsigned char bytes[700], back[700];
    uint64_t value = 0;
    for (uint64_t round = 0;; round++) {
        size_t size = (size_t)(round % sizeof bytes), length = sizeof back;
        fill(bytes, size, round, 0);
        int status = ramfold_pool_put(pool, bytes, size, &value);
        if (status == RAMFOLD_OK)
            status = ramfold_pool_get(pool, value, back, &length);
        if (status == RAMFOLD_OK) {
            CHECK(length == size && memcmp(bytes, back, size) == 0);
            status = ramfold_pool_delete(pool, value);
        }
        CHECK(status == RAMFOLD_OK || status == RAMFOLD_ERROR_HANDLE);
        if (status == RAMFOLD_ERROR_HANDLE)
            return NULL;
    }
}

static void check_free_under_use(ramfold_memory *memory)
{
    for (int round = 0; round < 20; round++) {
        ramfold_pool *pool = new_pool(memory, round % 2 ? "lz4" : "zstd:1", NULL);
        pthread_t threads[3];
        for (size_t at = 0; at < COUNT(threads); at++)
            CHECK(pthread_create(&threads[at], NULL, use_pool, pool) == 0);
        usleep(2000);
        OK(ramfold_pool_free(pool));
        for (size_t at = 0; at < COUNT(threads); at++)
            CHECK(pthread_join(threads[at], NULL) == 0);
    }
}

static void check_store(void)
{
    static const char *const codecs[] = {"none", "lz4", "lz4hc:4", "lzo-rle", "zstd:3", "deflate"};
    check_words();
    check_structures();
    check_handles();
    ramfold_memory *memory = new_memory();
    for (size_t at = 0; at < COUNT(codecs); at++)
        check_values(memory, codecs[at]);
    check_settings(memory);
    check_batches(memory);
    check_limit_and_compaction(memory);
    check_dictionary(memory);
    check_free_under_use(memory);
    OK(ramfold_memory_free(memory));
}

static ramfold_pager *new_pager(ramfold_memory *memory, int mode)
{
    ramfold_pager_config config = {0};
    ramfold_pager *pager = NULL;
    int found = -1;
    config.size = sizeof config;
    config.fault_mode = (uint64_t)mode;
    config.staging_bytes = 4 * MIB;
    int status = ramfold_pager_new(memory, &config, &pager);
    if (status == RAMFOLD_ERROR_REFUSED) {
        char words[512];
        ramfold_last_message(words, sizeof words);
        fprintf(stderr, "%s\n", words);
        exit(77);
    }
    CHECK(status == RAMFOLD_OK);
    OK(ramfold_pager_fault_mode(pager, &found));
    CHECK(mode == 0 ? found > 0 : found == mode);
    return pager;
}

static ramfold_region_stats region_stats(ramfold_region *region)
{
    ramfold_region_stats stats;
    stats.size = sizeof stats;
    OK(ramfold_region_get_stats(region, &stats));
    return stats;
}

static void check_bytes(const unsigned char *bytes, size_t size)
{
    unsigned char page[4096];
    for (size_t at = 0; at < size; at += sizeof page) {
        fill(page, sizeof page, at, at % 3 == 0);
        CHECK(memcmp(bytes + at, page, sizeof page) == 0);
    }
}

static void fill_region(unsigned char *bytes, size_t size)
{
    for (size_t at = 0; at < size; at += 4096)
        fill(bytes + at, 4096, at, at % 3 == 0);
}

static void check_region(ramfold_pager *pager, uint64_t limit)
{
    ramfold_region_config config = {0};
    ramfold_region *region = NULL;
    void *data = NULL;
    size_t size = 0;
    config.size = sizeof config;
    config.name = "test";
    config.codec = "lz4";
    config.resident_limit = limit;
    OK(ramfold_region_map(pager, 8 * MIB - 5, &config, &region));
    OK(ramfold_region_data(region, &data, NULL));
    OK(ramfold_region_data(region, &data, &size));
    CHECK(size == 8 * MIB);
    unsigned char *bytes = data;
    fill_region(bytes, size);
    OK(ramfold_region_advise(region, 0, size, RAMFOLD_ADVICE_PAGE_OUT));
    ramfold_region_stats stats = region_stats(region);
    CHECK(stats.bytes == size && stats.stored_bytes > 7 * MIB && stats.compressed_bytes < size);
    check_bytes(bytes, size);
    stats = region_stats(region);
    CHECK(stats.refaults > 0 && stats.pages_in >= 1000 && stats.pages_out >= 2000);
    CHECK(stats.limit_bytes == limit);

    /* A system call needs a pin, which outlives the call that made it. */
    int pipes[2];
    static unsigned char back[32 * KIB];
    OK(ramfold_region_pin(region, 5000, sizeof back));
    OK(ramfold_region_pin(region, 5000, sizeof back));
    OK(ramfold_region_unpin(region, 5000, sizeof back));
    OK(ramfold_region_advise(region, 0, size, RAMFOLD_ADVICE_PAGE_OUT));
    CHECK(pipe(pipes) == 0);
    CHECK(write(pipes[1], bytes + 5000, sizeof back) == sizeof back);
    CHECK(read(pipes[0], back, sizeof back) == sizeof back);
    CHECK(memcmp(back, bytes + 5000, sizeof back) == 0);
    CHECK(ramfold_region_advise(region, 0, 8192, RAMFOLD_ADVICE_DISCARD) ==
          RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_region_unpin(region, 5000, sizeof back));
    CHECK(ramfold_region_unpin(region, 5000, sizeof back) == RAMFOLD_ERROR_ARGUMENT);
    close(pipes[0]);
    close(pipes[1]);

    OK(ramfold_region_advise(region, 0, MIB, RAMFOLD_ADVICE_PREFETCH));
    OK(ramfold_region_advise(region, MIB, MIB, RAMFOLD_ADVICE_COLD));
    OK(ramfold_region_advise(region, 2 * MIB, MIB, RAMFOLD_ADVICE_DISCARD));
    for (size_t at = 2 * MIB; at < 3 * MIB; at++)
        CHECK(bytes[at] == 0);
    check_bytes(bytes, 2 * MIB);
    CHECK(ramfold_region_advise(region, 1, 4096, RAMFOLD_ADVICE_COLD) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_region_advise(region, 0, 9 * MIB, RAMFOLD_ADVICE_COLD) ==
          RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_region_advise(region, SIZE_MAX, 2, RAMFOLD_ADVICE_COLD) ==
          RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_region_advise(region, 0, 4096, 99) == RAMFOLD_ERROR_UNSUPPORTED);
    CHECK(ramfold_region_pin(region, 0, 9 * MIB) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_region_set_limit(region, 4096) == RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_region_set_limit(region, 2 * MIB));
    CHECK(region_stats(region).limit_bytes == 2 * MIB);
    OK(ramfold_region_set_limit(region, 0));
    CHECK(ramfold_region_data(region, NULL, &size) == RAMFOLD_ERROR_ARGUMENT);
    CHECK(ramfold_region_get_stats(region, NULL) == RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_region_unmap(region));
    CHECK(ramfold_region_unmap(region) == RAMFOLD_ERROR_HANDLE);
    CHECK(ramfold_region_data(region, &data, NULL) == RAMFOLD_ERROR_HANDLE);
}

/* Bytes that sorted numbers take. A structure of an earlier version has no size of elements. */
static uint64_t bytes_of_numbers(ramfold_pager *pager, size_t config_size, uint64_t element_bytes)
{
    enum { NUMBERS = MIB / 8 };
    ramfold_region_config config = {0};
    ramfold_region *region = NULL;
    void *data = NULL;
    uint64_t sum = 0;
    config.size = config_size;
    config.codec = "lz4";
    config.element_bytes = element_bytes;
    OK(ramfold_region_map(pager, MIB, &config, &region));
    OK(ramfold_region_data(region, &data, NULL));
    uint64_t *numbers = data;
    for (uint64_t at = 0; at < NUMBERS; at++)
        numbers[at] = at * 1000 + at * at % 997;
    OK(ramfold_region_advise(region, 0, MIB, RAMFOLD_ADVICE_PAGE_OUT));
    uint64_t taken = region_stats(region).compressed_bytes;
    for (uint64_t at = 0; at < NUMBERS; at++)
        sum += numbers[at] == at * 1000 + at * at % 997;
    CHECK(sum == NUMBERS);
    OK(ramfold_region_unmap(region));
    return taken;
}

static void check_elements(ramfold_pager *pager)
{
    size_t size = sizeof(ramfold_region_config);
    uint64_t plain = bytes_of_numbers(pager, size, 0);
    CHECK(bytes_of_numbers(pager, size, 8) < plain * 6 / 10);
    CHECK(bytes_of_numbers(pager, size, RAMFOLD_ELEMENTS_SAMPLED) < plain * 6 / 10);
    CHECK(bytes_of_numbers(pager, 40, 8) == plain);
}

/* Bytes that pages take which have much in common with their neighbours. */
static uint64_t bytes_of_neighbours(ramfold_pager *pager, size_t config_size, uint64_t density)
{
    const uint64_t bytes = 8 * MIB, words_of_all = bytes / 8;
    ramfold_region_config config = {0};
    ramfold_region *region = NULL;
    void *data = NULL;
    uint64_t sum = 0;
    config.size = config_size;
    config.density = density;
    config.resident_limit = 8 * MIB;
    OK(ramfold_region_map(pager, bytes, &config, &region));
    OK(ramfold_region_data(region, &data, NULL));
    uint64_t *words = data;
    for (uint64_t at = 0; at < words_of_all; at++)
        words[at] = (at % 4 == 0 ? at : at % 64) * 0x9E3779B97F4A7C15u;
    OK(ramfold_region_advise(region, 0, bytes, RAMFOLD_ADVICE_PAGE_OUT));
    CHECK(ramfold_region_densify(region) ==
          (density == 0 || config_size < sizeof config ? RAMFOLD_ERROR_UNSUPPORTED : RAMFOLD_OK));
    uint64_t taken = region_stats(region).compressed_bytes;
    for (uint64_t at = 0; at < words_of_all; at++)
        sum += words[at] == (at % 4 == 0 ? at : at % 64) * 0x9E3779B97F4A7C15u;
    CHECK(sum == words_of_all);
    OK(ramfold_region_unmap(region));
    return taken;
}

static void check_densities(ramfold_pager *pager)
{
    size_t size = sizeof(ramfold_region_config);
    uint64_t fast = bytes_of_neighbours(pager, size, RAMFOLD_DENSITY_FAST);
    uint64_t balanced = bytes_of_neighbours(pager, size, RAMFOLD_DENSITY_BALANCED);
    CHECK(balanced < fast);
    CHECK(bytes_of_neighbours(pager, size, RAMFOLD_DENSITY_DENSE) < balanced);
    CHECK(bytes_of_neighbours(pager, 48, 0) == fast);
}

/* Uses its quarter of a region while the others use theirs. */
struct quarter {
    ramfold_region *region;
    unsigned char *bytes;
    size_t offset, size;
};

static void *use_quarter(void *argument)
{
    struct quarter *own = argument;
    for (int round = 0; round < 10; round++) {
        fill_region(own->bytes + own->offset, own->size);
        OK(ramfold_region_advise(own->region, own->offset, own->size, RAMFOLD_ADVICE_PAGE_OUT));
        check_bytes(own->bytes + own->offset, own->size);
        OK(ramfold_region_advise(own->region, own->offset, own->size, RAMFOLD_ADVICE_DISCARD));
        CHECK(own->bytes[own->offset + 77] == 0);
    }
    return NULL;
}

static void check_threads_in_a_region(ramfold_pager *pager)
{
    ramfold_region *region = NULL;
    void *data = NULL;
    pthread_t threads[4];
    struct quarter quarters[COUNT(threads)];
    OK(ramfold_region_map(pager, 8 * MIB, NULL, &region));
    OK(ramfold_region_data(region, &data, NULL));
    for (size_t at = 0; at < COUNT(threads); at++) {
        quarters[at] = (struct quarter){region, data, at * 2 * MIB, 2 * MIB};
        CHECK(pthread_create(&threads[at], NULL, use_quarter, &quarters[at]) == 0);
    }
    for (size_t at = 0; at < COUNT(threads); at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    OK(ramfold_region_unmap(region));
}

static void check_region_settings(ramfold_memory *memory, ramfold_pager *pager)
{
    ramfold_pager_config settings = {0};
    ramfold_region_config config = {0};
    ramfold_region *region = NULL;
    settings.size = sizeof settings;
    settings.fault_mode = 9;
    CHECK(ramfold_pager_new(memory, &settings, &pager) == RAMFOLD_ERROR_UNSUPPORTED);
    CHECK(ramfold_pager_fault_mode(NULL, NULL) == RAMFOLD_ERROR_ARGUMENT);
    settings.fault_mode = 0;
    OK(ramfold_pager_new(memory, &settings, &pager));
    config.size = sizeof config;
    CHECK(ramfold_region_map(pager, 0, &config, &region) == RAMFOLD_ERROR_ARGUMENT);
    config.codec = "none";
    CHECK(ramfold_region_map(pager, 4096, &config, &region) == RAMFOLD_ERROR_ARGUMENT);
    config.codec = NULL;
    config.resident_limit = 4096;
    CHECK(ramfold_region_map(pager, 4096, &config, &region) == RAMFOLD_ERROR_ARGUMENT);
    config.resident_limit = 0;
    config.element_bytes = 3;
    CHECK(ramfold_region_map(pager, 4096, &config, &region) == RAMFOLD_ERROR_ARGUMENT);
    config.element_bytes = 0;
    config.density = 3;
    CHECK(ramfold_region_map(pager, 4096, &config, &region) == RAMFOLD_ERROR_UNSUPPORTED);
    CHECK(region == NULL);
    OK(ramfold_pager_free(pager));
    CHECK(ramfold_region_map(pager, 4096, NULL, &region) == RAMFOLD_ERROR_HANDLE);
}

/* More regions than the system's table of them has places. */
static void check_small_regions(ramfold_pager *pager)
{
    enum { REGIONS = 3000 };
    static ramfold_region *regions[REGIONS];
    static unsigned char *bytes[REGIONS];
    const size_t size = 8192;
    for (size_t at = 0; at < REGIONS; at++) {
        void *data = NULL;
        size_t told = 0;
        OK(ramfold_region_map(pager, size - 1, NULL, &regions[at]));
        OK(ramfold_region_data(regions[at], &data, &told));
        CHECK(told == size);
        bytes[at] = data;
        CHECK(bytes[at][0] == 0 && bytes[at][size - 1] == 0);
        fill(bytes[at], size, at, 0);
    }
    for (size_t at = 0; at < REGIONS; at += 3)
        OK(ramfold_region_advise(regions[at], 0, size, RAMFOLD_ADVICE_PAGE_OUT));
    CHECK(region_stats(regions[3]).stored_bytes == size);
    CHECK(region_stats(regions[4]).stored_bytes == 0 && region_stats(regions[4]).bytes == size);
    CHECK(ramfold_region_set_limit(regions[3], MIB) == RAMFOLD_ERROR_UNSUPPORTED);
    OK(ramfold_region_set_limit(regions[3], 0));
    CHECK(ramfold_region_advise(regions[3], 0, 2 * size, RAMFOLD_ADVICE_DISCARD) ==
          RAMFOLD_ERROR_ARGUMENT);
    OK(ramfold_region_advise(regions[4], 0, size, RAMFOLD_ADVICE_COLD));
    OK(ramfold_region_advise(regions[6], 0, size, RAMFOLD_ADVICE_PREFETCH));
    OK(ramfold_region_pin(regions[9], 0, size));
    CHECK(ramfold_region_unpin(regions[12], 0, size) == RAMFOLD_ERROR_ARGUMENT);
    for (size_t at = 0; at < REGIONS; at += 2)
        OK(ramfold_region_unmap(regions[at]));
    for (size_t at = 1; at < REGIONS; at += 2) {
        unsigned char page[8192];
        fill(page, size, at, 0);
        CHECK(memcmp(bytes[at], page, size) == 0);
        OK(ramfold_region_unmap(regions[at])); /* one of them is pinned */
    }
    void *data = NULL;
    OK(ramfold_region_map(pager, size, NULL, &regions[0]));
    OK(ramfold_region_data(regions[0], &data, NULL));
    CHECK(((unsigned char *)data)[0] == 0 && ((unsigned char *)data)[size - 1] == 0);
    OK(ramfold_region_unmap(regions[0]));
}

/* Works on a region and a pool until it is cancelled, by touches or by calls. */
struct cancelled {
    ramfold_pool *pool;
    ramfold_region *region;
    int touches;
};

static void *work_until_cancelled(void *argument)
{
    struct cancelled *work = argument;
    void *data = NULL;
    OK(ramfold_region_data(work->region, &data, NULL));
    for (size_t at = 0;; at = (at + 4096) % (4 * MIB)) {
        if (work->touches) {
            ((volatile unsigned char *)data)[at] = 7;
        } else {
            OK(ramfold_region_pin(work->region, at, 4096));
            OK(ramfold_region_unpin(work->region, at, 4096));
            OK(ramfold_region_advise(work->region, at, 4096, RAMFOLD_ADVICE_PAGE_OUT));
            uint64_t value = 0;
            OK(ramfold_pool_put(work->pool, "some bytes", 10, &value));
            OK(ramfold_pool_delete(work->pool, value));
        }
        /* Seldom, so that most requests come before many calls, and some before the first. */
        if (at % MIB == MIB / 2)
            pthread_testcancel();
    }
    return NULL;
}

static void check_cancelled_threads(ramfold_memory *memory, ramfold_pager *pager)
{
    ramfold_region_config config = {0};
    config.size = sizeof config;
    config.resident_limit = MIB;
    ramfold_pool *pool = new_pool(memory, NULL, NULL);
    alarm(120); /* a thread that is cancelled with a lock leaves others waiting */
    for (int round = 0; round < 120; round++) {
        struct cancelled work = {pool, NULL, round % 2};
        pthread_t thread;
        void *end = NULL;
        struct timespec time = {0, round * 10000};
        void *data = NULL;
        OK(ramfold_region_map(pager, 4 * MIB, &config, &work.region));
        OK(ramfold_region_data(work.region, &data, NULL));
        memset(data, 7, MIB);
        OK(ramfold_region_advise(work.region, 0, MIB, RAMFOLD_ADVICE_PAGE_OUT));
        CHECK(pthread_create(&thread, NULL, work_until_cancelled, &work) == 0);
        if (round >= 60) /* otherwise it has not begun yet */
            nanosleep(&time, NULL);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &end) == 0 && end == PTHREAD_CANCELED);
        OK(ramfold_region_unmap(work.region));
    }
    alarm(0);
    OK(ramfold_pool_free(pool));
}

static void check_regions(int mode)
{
    ramfold_memory *memory = new_memory();
    ramfold_pager *pager = new_pager(memory, mode);
    check_region(pager, 0);
    check_region(pager, 4 * MIB);
    check_threads_in_a_region(pager);
    check_cancelled_threads(memory, pager);
    check_elements(pager);
    check_densities(pager);
    check_small_regions(pager);
    check_region_settings(memory, pager);

    /* Freed in the odd order. */
    ramfold_region *region = NULL;
    void *data = NULL;
    OK(ramfold_region_map(pager, MIB, NULL, &region));
    OK(ramfold_pager_free(pager));
    OK(ramfold_memory_free(memory));
    OK(ramfold_region_data(region, &data, NULL));
    fill_region(data, MIB);
    OK(ramfold_region_advise(region, 0, MIB, RAMFOLD_ADVICE_PAGE_OUT));
    check_bytes(data, MIB);
    OK(ramfold_region_unmap(region));
}

static volatile int ends;

/* Uses a pool and a region until the program ends. */
struct both {
    ramfold_pool *pool;
    ramfold_region *region;
};

static void *use_both(void *argument)
{
    struct both *both = argument;
    void *data = NULL;
    OK(ramfold_region_data(both->region, &data, NULL));
    while (!ends) {
        uint64_t value = 0;
        OK(ramfold_pool_put(both->pool, "some bytes", 10, &value));
        OK(ramfold_pool_delete(both->pool, value));
        memset(data, 7, MIB);
        OK(ramfold_region_advise(both->region, 0, MIB, RAMFOLD_ADVICE_PAGE_OUT));
    }
    return NULL;
}

/* The child of a fork: every handle of its parent is refused, and its own ones work. */
static void check_child(ramfold_memory *memory, ramfold_pager *pager, struct both *both, int mode)
{
    uint64_t value = 1;
    void *data = NULL;
    ramfold_region *region = NULL;
    alarm(20);
    CHECK(ramfold_pool_put(both->pool, "x", 1, &value) == RAMFOLD_ERROR_FORKED);
    CHECK(ramfold_region_data(both->region, &data, NULL) == RAMFOLD_ERROR_FORKED);
    CHECK(ramfold_region_map(pager, 4096, NULL, &region) == RAMFOLD_ERROR_FORKED);
    CHECK(ramfold_region_unmap(both->region) == RAMFOLD_ERROR_FORKED);
    CHECK(ramfold_pool_free(both->pool) == RAMFOLD_ERROR_FORKED);
    CHECK(ramfold_pager_free(pager) == RAMFOLD_ERROR_FORKED);
    CHECK(ramfold_memory_free(memory) == RAMFOLD_ERROR_FORKED);

    ramfold_memory *own = new_memory();
    check_values(own, "lz4");
    check_region(new_pager(own, mode), 0);
    CHECK(ramfold_pool_free(both->pool) == RAMFOLD_ERROR_FORKED);
}

static void check_forks(int mode)
{
    ramfold_memory *memory = new_memory();
    ramfold_pager *pager = new_pager(memory, mode);
    struct both both[2];
    pthread_t threads[COUNT(both)];
    for (size_t at = 0; at < COUNT(both); at++) {
        both[at].pool = new_pool(memory, NULL, NULL);
        OK(ramfold_region_map(pager, MIB, NULL, &both[at].region));
        CHECK(pthread_create(&threads[at], NULL, use_both, &both[at]) == 0);
    }
    for (int round = 0; round < 20; round++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            check_child(memory, pager, &both[round % 2], mode);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    ends = 1;
    for (size_t at = 0; at < COUNT(both); at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
        OK(ramfold_region_unmap(both[at].region));
        OK(ramfold_pool_free(both[at].pool));
    }
    OK(ramfold_pager_free(pager));
    OK(ramfold_memory_free(memory));
}

/* Runs `part` in a child that is process 1 of a namespace of its own. 77 if that is not allowed. */
static int as_first(int (*part)(ramfold_memory *), ramfold_memory *memory)
{
    int status = -1;
    if (unshare(CLONE_NEWPID) != 0)
        return 77;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        CHECK(getpid() == 1);
        _exit(part(memory));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int refuse_parents(ramfold_memory *parents)
{
    ramfold_memory *own = new_memory();
    CHECK(ramfold_memory_free(parents) == RAMFOLD_ERROR_FORKED);
    OK(ramfold_memory_free(own));
    return 0;
}

static int be_parent(ramfold_memory *none)
{
    (void)none;
    return as_first(refuse_parents, new_memory());
}

static void check_little_memory(void)
{
    const size_t size = 120 * MIB;
    const struct rlimit addresses = {200 * MIB, 200 * MIB};
    char *content = malloc(size);
    ramfold_dictionary *dict = NULL;
    CHECK(content != NULL && setrlimit(RLIMIT_AS, &addresses) == 0);
    memset(content, 7, size);
    CHECK(ramfold_dictionary_new(content, size, &dict) == RAMFOLD_ERROR_NO_MEMORY);
    CHECK(dict == NULL);
    free(content);
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "store") == 0)
        check_store();
    else if (count == 2 && strcmp(words[1], "little") == 0)
        check_little_memory();
    else if (count == 2 && strcmp(words[1], "first") == 0)
        return as_first(be_parent, NULL);
    else if (count == 3 && strcmp(words[1], "region") == 0)
        check_regions(atoi(words[2]));
    else if (count == 3 && strcmp(words[1], "fork") == 0)
        check_forks(atoi(words[2]));
    else
        return 2;
    return 0;
}
