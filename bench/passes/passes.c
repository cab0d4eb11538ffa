/* SPDX-License-Identifier: Apache-2.0 */
/* passes RULES FILE: how fast one core reads FILE, a job's log, in several ways:
 *   watch      all that advisord does with it before the domain hears of anything: lines, prefixes, rules, progress
 *   scan       which rules speak of which line (engine.h)
 *   hyperscan  the same database and nothing else, over the whole file at once; its hits are counted
 *   pcre2      each rule's pattern, compiled by its JIT, on each line; of a part of the file, as it takes long
 * Each is the best of ROUNDS, which take turns. Then what an attempt takes in memory.
 * passes --patterns RULES: the patterns, one a line. */

#include <errno.h>
#include <fcntl.h>
#include <hs/hs.h>
#include <malloc.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/buf.h"
#include "controlplane/watcher/engine.h"
#include "controlplane/watcher/watcher.h"

#define ROUNDS      5
#define CHUNK       32768 /* as agents send it */
#define PCRE2_BYTES (1 << 20)
#define ATTEMPTS    1000
#define EACH_BYTES  (256 << 10)

struct run {
    struct watcher_rules *rules;
    struct engine *engine;
    const hs_database_t *db;
    hs_scratch_t *scratch;
    pcre2_code **codes;
    size_t n_codes;
    const char *text;
    size_t len;
    uint64_t count; /* so that nothing is optimised away */
};

static double now_s(void)
{
    struct timespec ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

static void on_finding(void *ctx, const struct watcher_finding *finding)
{
    struct run *r = ctx;

    r->count++;
}

static void feed(struct watcher_scan *scan, const char *text, size_t len)
{
    for (size_t at = 0; at < len; at += CHUNK)
        if (watcher_scan_feed(scan, at, text + at, len - at < CHUNK ? len - at : CHUNK, 0, (int64_t) at, NULL) < 0)
            abort();
}

static size_t watch(struct run *r)
{
    struct watcher_scan_options o = { .stream = WATCHER_SCOPE_APPLICATION, .fn = on_finding, .ctx = r };
    struct watcher_scan *scan = NULL;

    if (watcher_scan_new(r->rules, &o, &scan, NULL) < 0)
        abort();
    feed(scan, r->text, r->len);
    (void) watcher_scan_free(scan);
    return r->len;
}

static void on_line(void *ctx, const char *line, size_t len, size_t offset, const uint16_t *rules, size_t n)
{
    struct run *r = ctx;

    r->count += n;
}

static size_t scan(struct run *r)
{
    for (size_t at = 0; at < r->len;) {
        size_t n = r->len - at < ENGINE_LINE_MAX ? r->len - at : ENGINE_LINE_MAX;
        const char *nl = memrchr(r->text + at, '\n', n);

        if (nl)
            n = (size_t) (nl - r->text) + 1 - at;
        engine_scan(r->engine, r->text + at, n, on_line, r);
        at += n;
    }
    return r->len;
}

static int on_match(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *ctx)
{
    struct run *r = ctx;

    r->count++;
    return 0;
}

static size_t hyperscan(struct run *r)
{
    if (hs_scan(r->db, r->text, (unsigned) r->len, 0, r->scratch, on_match, r) != HS_SUCCESS)
        abort();
    return r->len;
}

static size_t pcre2(struct run *r)
{
    size_t len = r->len < PCRE2_BYTES ? r->len : PCRE2_BYTES;
    pcre2_match_data *data = pcre2_match_data_create(32, NULL);

    for (size_t at = 0; at < len;) {
        const char *nl = memchr(r->text + at, '\n', r->len - at);
        size_t n = nl ? (size_t) (nl - r->text) - at : r->len - at;

        for (size_t i = 0; i < r->n_codes; i++)
            r->count += pcre2_jit_match(r->codes[i], (PCRE2_SPTR) r->text + at, n, 0, 0, data, NULL) >= 0;
        at += n + 1;
    }
    pcre2_match_data_free(data);
    return len;
}

/* Heap bytes that are in use; what one attempt adds, as malloc counts it. */
static void memory(struct run *r)
{
    struct watcher_scan_options o = { .stream = WATCHER_SCOPE_APPLICATION, .fn = on_finding, .ctx = r };
    struct watcher_scan *scans[ATTEMPTS];
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd, most = 0;

    for (size_t i = 0; i < ATTEMPTS; i++) {
        size_t at = r->len > EACH_BYTES ? (i * 7919 * 1024) % (r->len - EACH_BYTES) : 0;

        if (watcher_scan_new(r->rules, &o, &scans[i], NULL) < 0)
            abort();
        feed(scans[i], r->text + at, r->len < EACH_BYTES ? r->len : EACH_BYTES);
        most = watcher_scan_memory(scans[i]) > most ? watcher_scan_memory(scans[i]) : most;
    }
    printf("attempt_bytes %zu\nattempt_bytes_most %zu\n", (mallinfo2().uordblks + mallinfo2().hblkhd - before) / ATTEMPTS, most);
    for (size_t i = 0; i < ATTEMPTS; i++)
        (void) watcher_scan_free(scans[i]);
}

static void compile(struct run *r)
{
    const struct watcher_rule *list = watcher_rules_list(r->rules, &r->n_codes);

    r->codes = calloc(r->n_codes, sizeof(*r->codes));
    for (size_t i = 0; i < r->n_codes; i++) {
        int code;
        PCRE2_SIZE at;

        r->codes[i] = pcre2_compile((PCRE2_SPTR) list[i].pattern, PCRE2_ZERO_TERMINATED, PCRE2_DUPNAMES, &code, &at, NULL);
        if (!r->codes[i] || pcre2_jit_compile(r->codes[i], PCRE2_JIT_COMPLETE) != 0)
            abort();
    }
}

static int patterns(const char *dir, struct adv_err *err)
{
    struct watcher_rules *rules = NULL;
    const struct watcher_rule *list;
    size_t n = 0;

    if (watcher_rules_load(dir, &rules, err) < 0)
        return -1;
    list = watcher_rules_list(rules, &n);
    for (size_t i = 0; i < n; i++)
        printf("%s\n", list[i].pattern);
    (void) watcher_rules_unref(rules);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        size_t (*fn)(struct run *r);
    } ways[] = { { "watch", watch }, { "scan", scan }, { "hyperscan", hyperscan }, { "pcre2", pcre2 } };
    double best[sizeof(ways) / sizeof(*ways)] = { 0 };
    struct run r = { 0 };
    struct adv_err err = { 0 };
    struct adv_buf b;
    int file;

    if (argc == 3 && strcmp(argv[1], "--patterns") == 0) {
        if (patterns(argv[2], &err) == 0)
            return 0;
        (void) fprintf(stderr, "passes: %s\n", err.msg);
        return 1;
    }
    if (argc != 3) {
        (void) fprintf(stderr, "usage: passes RULES FILE, passes --patterns RULES\n");
        return 2;
    }
    adv_buf_init(&b, (size_t) 1 << 30);
    file = open(argv[2], O_RDONLY | O_CLOEXEC);
    if (file < 0 || adv_buf_read(&b, file) < 0) {
        (void) fprintf(stderr, "passes: %s: %s\n", argv[2], strerror(errno));
        return 1;
    }
    (void) close(file);
    if (watcher_rules_load(argv[1], &r.rules, &err) < 0) {
        (void) fprintf(stderr, "passes: %s\n", err.msg);
        return 1;
    }
    r.text = b.data;
    r.len = b.len;
    r.engine = watcher_rules_engine(r.rules);
    r.db = engine_database(r.engine);
    if (hs_alloc_scratch(r.db, &r.scratch) != HS_SUCCESS)
        abort();
    compile(&r);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
            double began = now_s();
            double speed = (double) ways[i].fn(&r) / (now_s() - began) / 1e6;
            if (speed > best[i])
                best[i] = speed;
        }
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        printf("%s %.3f\n", ways[i].name, best[i]);
    printf("rules %zu\ndatabase_bytes %zu\n", r.n_codes, engine_database_bytes(r.engine));
    memory(&r);
    (void) fprintf(stderr, "passes: %llu hits\n", (unsigned long long) r.count);
    for (size_t i = 0; i < r.n_codes; i++)
        pcre2_code_free(r.codes[i]);
    free(r.codes);
    (void) hs_free_scratch(r.scratch);
    (void) watcher_rules_unref(r.rules);
    adv_buf_done(&b);
    return 0;
}
