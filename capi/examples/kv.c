/*
 * A key-value server on a Unix socket, whose values are in a pool.
 *
 *     cc -o kv kv.c $(pkg-config --cflags --libs ramfold) -lpthread
 *     ./kv /tmp/kv.sock 256          at most 256 MiB of memory for values
 *
 *     SET key size\n<size bytes>     OK\n          or  ERROR words\n
 *     GET key\n                      VALUE size\n<size bytes>  or  NONE\n
 *     DELETE key\n                   OK\n          or  NONE\n
 *     STATS\n                        STATS values bytes memory\n
 *     STOP\n                         OK\n, and the server ends
 *
 * Any other line is answered by ERROR words\n. A wrong SET, a long key and a long line end the
 * connection then, because the bytes of a value would be taken for requests.
 *
 * The pool has the values, compressed. The table below has the keys, each with the 8 bytes that
 * name its value. One lock guards the table; the pool needs none. So a value is read without the
 * lock, and may be deleted meanwhile. The pool notices that, and the key is looked up again.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <ramfold.h>

enum { BUCKETS = 65536, KEY_MAX = 250 };

struct entry {
    struct entry *next;
    uint64_t value;
    char key[];
};

static struct entry *table[BUCKETS];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static ramfold_pool *pool;
static const char *socket_path;

static struct entry **bucket_of(const char *key)
{
    uint64_t hash = 14695981039346656037u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 1099511628211u;
    return &table[hash % BUCKETS];
}

/* The link to the entry of a key, or to the end of its bucket. The lock is held. */
static struct entry **find(const char *key)
{
    struct entry **link = bucket_of(key);
    while (*link && strcmp((*link)->key, key) != 0)
        link = &(*link)->next;
    return link;
}

static uint64_t value_of(const char *key)
{
    pthread_mutex_lock(&table_lock);
    struct entry *entry = *find(key);
    uint64_t value = entry ? entry->value : 0;
    pthread_mutex_unlock(&table_lock);
    return value;
}

/* Makes `value` the key's, 0 for none. Returns the value that it had, or `value` without memory. */
static uint64_t exchange(const char *key, uint64_t value)
{
    uint64_t old = 0;
    pthread_mutex_lock(&table_lock);
    struct entry **link = find(key), *entry = *link;
    if (entry) {
        old = entry->value;
        entry->value = value;
    } else if (value) {
        size_t size = strlen(key) + 1;
        entry = malloc(sizeof *entry + size);
        if (entry) {
            *entry = (struct entry){NULL, value};
            memcpy(entry->key, key, size);
            *link = entry;
        } else {
            old = value;
        }
    }
    if (entry && !value) {
        *link = entry->next;
        free(entry);
    }
    pthread_mutex_unlock(&table_lock);
    return old;
}

static void answer_error(FILE *client)
{
    char words[512];
    ramfold_last_message(words, sizeof words);
    fprintf(client, "ERROR %s\n", words);
}

static void set(FILE *client, const char *key, char *bytes, size_t size)
{
    uint64_t value, old;
    if (ramfold_pool_put(pool, bytes, size, &value) != RAMFOLD_OK) {
        answer_error(client);
        return;
    }
    old = exchange(key, value);
    if (old)
        ramfold_pool_delete(pool, old);
    fputs(old == value ? "ERROR out of memory\n" : "OK\n", client);
}

static void get(FILE *client, const char *key, char *buffer)
{
    int status;
    uint64_t value;
    size_t size;
    do {
        value = value_of(key);
        size = RAMFOLD_VALUE_MAX;
        status = value ? ramfold_pool_get(pool, value, buffer, &size) : RAMFOLD_OK;
    } while (status == RAMFOLD_ERROR_NO_VALUE);
    if (status != RAMFOLD_OK) {
        answer_error(client);
    } else if (!value) {
        fprintf(client, "NONE\n");
    } else {
        fprintf(client, "VALUE %zu\n", size);
        fwrite(buffer, 1, size, client);
    }
}

static void stats(FILE *client)
{
    ramfold_pool_stats found = {0};
    found.size = sizeof found;
    ramfold_pool_get_stats(pool, &found);
    fprintf(client, "STATS %llu %llu %llu\n", (unsigned long long)found.values,
            (unsigned long long)found.value_bytes, (unsigned long long)found.resident_bytes);
}

static void stop(FILE *client)
{
    fprintf(client, "OK\n");
    fflush(client);
    unlink(socket_path);
    exit(ramfold_pool_free(pool) == RAMFOLD_OK ? 0 : 1);
}

/* A connection. What is read and what is written have a stream each, as sockets need it. */
struct connection {
    FILE *in, *out;
};

static int refuse(FILE *out, const char *words)
{
    fprintf(out, "ERROR %s\n", words);
    fflush(out);
    return 0;
}

/* Reads the value of SET. Returns 0 if the connection cannot go on. */
static int read_and_set(struct connection *client, const char *key, const char *size, char *buffer)
{
    /* A sign, or more digits than a size_t has, is no size. */
    size_t digits = strspn(size, "0123456789"), count = strtoul(size, NULL, 10);
    if (digits == 0 || size[digits] || digits > 9 || count > RAMFOLD_VALUE_MAX)
        return refuse(client->out, "a value has at most 1048576 bytes");
    if (fread(buffer, 1, count, client->in) != count)
        return refuse(client->out, "the value ends early");
    set(client->out, key, buffer, count);
    return fflush(client->out) == 0;
}

/* Answers one request. Returns 0 if the connection cannot go on. */
static int serve(struct connection *client, char *line, char *buffer)
{
    FILE *out = client->out;
    char *rest, *words[4];
    int count = 0;
    if (!strchr(line, '\n'))
        return refuse(out, "a line is too long, or has a byte of zero");
    for (; count < 4 && (words[count] = strtok_r(count ? NULL : line, " \n", &rest)); count++)
        ;
    if (count > 1 && strlen(words[1]) > KEY_MAX)
        return refuse(out, "a key has at most 250 bytes");
    int is_set = count && strcmp(words[0], "SET") == 0;
    if (is_set && count != 3)
        return refuse(out, "it is SET key size");
    if (is_set)
        return read_and_set(client, words[1], words[2], buffer);
    if (count == 2 && strcmp(words[0], "GET") == 0) {
        get(out, words[1], buffer);
    } else if (count == 2 && strcmp(words[0], "DELETE") == 0) {
        uint64_t old = exchange(words[1], 0);
        fputs(old && ramfold_pool_delete(pool, old) == RAMFOLD_OK ? "OK\n" : "NONE\n", out);
    } else if (count == 1 && strcmp(words[0], "STATS") == 0) {
        stats(out);
    } else if (count == 1 && strcmp(words[0], "STOP") == 0) {
        stop(out);
    } else {
        fputs("ERROR it is SET, GET or DELETE with a key, STATS or STOP\n", out);
    }
    return fflush(out) == 0;
}

static void *serve_client(void *argument)
{
    int descriptor = (int)(intptr_t)argument;
    struct connection client = {fdopen(descriptor, "r"), fdopen(dup(descriptor), "w")};
    char line[KEY_MAX + 40], *buffer = malloc(RAMFOLD_VALUE_MAX);
    if (client.in && client.out && buffer)
        while (fgets(line, sizeof line, client.in) && serve(&client, line, buffer))
            ;
    free(buffer);
    if (client.out)
        fclose(client.out);
    if (client.in)
        fclose(client.in);
    return NULL;
}

static int make_pool(size_t mebibytes)
{
    ramfold_memory *memory;
    ramfold_pool_config config = {0};
    config.size = sizeof config;
    config.codec = "lz4";
    config.limit_bytes = (uint64_t)mebibytes << 20;
    if (ramfold_memory_new(NULL, &memory) != RAMFOLD_OK)
        return 0;
    int status = ramfold_pool_new(memory, &config, &pool);
    ramfold_memory_free(memory); /* the pool keeps it */
    return status == RAMFOLD_OK;
}

int main(int count, char **words)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (count != 3 || strlen(words[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: kv SOCKET MEBIBYTES\n");
        return 2;
    }
    if (!make_pool(strtoul(words[2], NULL, 10))) {
        answer_error(stderr);
        return 1;
    }
    strcpy(address.sun_path, words[1]);
    socket_path = words[1];
    signal(SIGPIPE, SIG_IGN); /* a client that leaves is no reason to end */
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) {
        perror(words[1]);
        return 1;
    }
    printf("listening on %s\n", words[1]);
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        intptr_t connection = accept(listener, NULL, NULL);
        if (connection < 0) {
            /* There may be no descriptor until a client goes. */
            if (errno != EINTR && errno != ECONNABORTED)
                poll(NULL, 0, 10);
            continue;
        }
        if (pthread_create(&thread, NULL, serve_client, (void *)connection) == 0)
            pthread_detach(thread);
        else
            close((int)connection);
    }
}
