/* SPDX-License-Identifier: Apache-2.0 */

/* The file is lines of JSON, each beginning with {"crc":"xxxxxxxx", where the sum covers all after
 * it, and with a sequence number that only rises. One record is one write(2) and one fdatasync(2).
 *
 * After a failed write the file is cut back to its last good length; if a sync has failed nobody can
 * say what the disk holds, so the journal takes no more intents until it is opened anew.
 *
 * The lock is a file of its own, because compaction replaces the journal. */

#include "advisor-agent/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/hash.h"
#include "common/json.h"
#include "common/num.h"
#include "common/utf8.h"
#include "common/uuid.h"

#define LINE_MAX_BYTES  65536u
#define CRC_HEAD        18 /* {"crc":"xxxxxxxx", */
#define COMPACT_BYTES   (4u << 20)
#define KEEP_US         (7 * 86400 * 1000000ll)
#define JOURNAL_VERSION 1
#define READ_BYTES      (4 * LINE_MAX_BYTES)
#define LOCK_WAIT_MS    2000 /* for a watchdog that looks whether it is taken */
#define LOCK_STEP_MS    20
#define HOLDS_MAX       10000 /* of a view: more than an agent can have orders for */

struct incarnation {
    char job[JOURNAL_JOB_SIZE];
    struct journal_life life;
    bool forgotten;
    UT_hash_handle hh;
};

/* What a reader keeps of the records. */
enum keep { KEEP_ALL, KEEP_HOLDS, KEEP_STEPS, KEEP_JOB };

struct journal {
    enum keep keep;
    const char *only_job; /* KEEP_JOB */
    char *dir;
    int dir_fd, lock_fd, fd;
    const struct journal_io *io;
    char id[ADV_UUID_SIZE];
    bool persistent;
    enum adv_code refuse; /* why no intent is taken; ADV_OK: taken */
    char why[160];
    uint64_t seq;
    off_t good; /* length up to the last whole record */
    size_t torn; /* bytes cut off when it was opened */
    bool anew;
    off_t live; /* length after the last compaction */
    struct journal_epoch highest;
    bool batching;
    struct adv_buf batch;

    struct journal_step *steps;
    size_t n_steps;
    struct journal_hold *holds;
    size_t n_holds;
    struct incarnation *incs; /* by job */
};

static ssize_t real_write(int fd, const void *data, size_t len)
{
    return write(fd, data, len);
}

static const struct journal_io real_io = { real_write, fdatasync };

int journal_epoch_cmp(struct journal_epoch a, struct journal_epoch b)
{
    if (a.term != b.term)
        return a.term < b.term ? -1 : 1;
    return a.counter < b.counter ? -1 : a.counter > b.counter;
}

static uint32_t crc_table[256];

__attribute__((constructor)) static void make_crc_table(void)
{
    for (uint32_t n = 0; n < ADV_ARRAY_LEN(crc_table); n++) {
        uint32_t crc = n;
        for (int b = 0; b < 8; b++)
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
        crc_table[n] = crc;
    }
}

static uint32_t crc32_of(const char *data, size_t len)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < len; i++)
        crc = crc >> 8 ^ crc_table[(crc ^ (uint8_t) data[i]) & 0xff];
    return ~crc;
}

/* One more element at the end of a list; NULL when memory is gone. */
static void *grow(void *list, size_t *n, size_t size)
{
    void **p = list, *more = realloc(*p, (*n + 1) * size);

    if (!more)
        return NULL;
    *p = more;
    return (char *) more + (*n)++ * size;
}

/* What a record does to the state. */

static struct journal_step *find_seq(const struct journal *j, uint64_t seq)
{
    for (size_t i = j->n_steps; i > 0; i--)
        if (j->steps[i - 1].seq == seq)
            return &j->steps[i - 1];
    return NULL;
}

static void free_texts(struct journal_step *s)
{
    free(s->intent.adds);
    free(s->outcome.excluded);
}

static struct incarnation *find_inc(const struct journal *j, const char *job)
{
    struct incarnation *n;

    HASH_FIND_STR(j->incs, job, n);
    return n;
}

static void remove_hold(struct journal *j, const char *job)
{
    for (size_t i = 0; i < j->n_holds; i++)
        if (strcmp(j->holds[i].job, job) == 0)
            j->holds[i--] = j->holds[--j->n_holds];
}

static int text(const json_t *o, const char *key, char *dst, size_t size, struct adv_err *err)
{
    const char *s;
    int r = adv_json_get_str(o, key, &s, err);

    if (r < 0)
        return r;
    if (strlen(s) >= size)
        return adv_err_set(err, ADV_OUT_OF_RANGE, "%s too long", key);
    memcpy(dst, s, strlen(s) + 1);
    return 0;
}

static int64_t num(const json_t *o, const char *key)
{
    int64_t n = 0;

    /* Missing counts as 0: the sum has vouched for the line, so a later version wrote it. */
    return adv_json_get_i64(o, key, INT64_MIN, INT64_MAX, &n, NULL) < 0 ? 0 : n;
}

static struct journal_epoch epoch_of(const json_t *o)
{
    return (struct journal_epoch) { (uint64_t) num(o, "term"), (uint64_t) num(o, "counter") };
}

static void remove_step(struct journal *j, size_t i)
{
    free_texts(&j->steps[i]);
    memmove(&j->steps[i], &j->steps[i + 1], (--j->n_steps - i) * sizeof(*j->steps));
}

/* A reader that looks from outside keeps of a job what is open, and the newest step of each verb. */
static void drop_older(struct journal *j, const struct journal_intent *in)
{
    for (size_t i = 0; i < j->n_steps;) {
        const struct journal_step *s = &j->steps[i];
        if (s->done && strcmp(s->intent.job, in->job) == 0 && strcmp(s->intent.verb, in->verb) == 0)
            remove_step(j, i);
        else
            i++;
    }
}

static bool keeps_steps_of(const struct journal *j, const json_t *o)
{
    const char *job;

    if (j->keep != KEEP_JOB)
        return j->keep != KEEP_HOLDS;
    return adv_json_get_str(o, "job", &job, NULL) == 0 && strcmp(job, j->only_job) == 0;
}

static int apply_intent(struct journal *j, uint64_t seq, const json_t *o, struct adv_err *err)
{
    struct journal_step s = { .seq = seq, .wall_us = num(o, "wall_us") }, *to;
    const char *adds;
    int r = 0;

    s.intent.epoch = epoch_of(o);
    s.intent.generation = (uint64_t) num(o, "generation");
    s.intent.restarts = (uint32_t) num(o, "restarts");
    s.intent.submit_s = num(o, "submit_s");
    if ((r = text(o, "advice", s.intent.advice, sizeof(s.intent.advice), err)) < 0 ||
        (r = text(o, "job", s.intent.job, sizeof(s.intent.job), err)) < 0 ||
        (r = text(o, "verb", s.intent.verb, sizeof(s.intent.verb), err)) < 0 ||
        (r = text(o, "read_before", s.intent.read_before, sizeof(s.intent.read_before), err)) < 0)
        return r;
    if (j->keep != KEEP_ALL)
        drop_older(j, &s.intent);
    else if (adv_json_get_str(o, "adds", &adds, NULL) == 0 && !(s.intent.adds = strdup(adds)))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the journal");
    to = grow(&j->steps, &j->n_steps, sizeof(*j->steps));
    if (!to) {
        free(s.intent.adds);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the journal");
    }
    *to = s;
    return 0;
}

static int apply_outcome(struct journal *j, const json_t *o, struct adv_err *err)
{
    struct journal_step *s = find_seq(j, (uint64_t) num(o, "intent"));
    struct journal_outcome out = { 0 };
    const char *excluded;
    int r;

    if (!s) /* its intent was compacted away */
        return 0;
    if ((r = text(o, "command", out.command, sizeof(out.command), err)) < 0 ||
        (r = text(o, "observed", out.observed, sizeof(out.observed), err)) < 0 ||
        (r = text(o, "reason", out.reason, sizeof(out.reason), err)) < 0)
        return r;
    if (j->keep == KEEP_ALL && adv_json_get_str(o, "excluded", &excluded, NULL) == 0 && !(out.excluded = strdup(excluded)))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the journal");
    free(s->outcome.excluded);
    s->outcome = out;
    s->done = true;
    return 0;
}

static int apply_hold(struct journal *j, const json_t *o, struct adv_err *err)
{
    struct journal_hold h = { .restarts = (uint32_t) num(o, "restarts"),
                              .first_submit_s = num(o, "first_submit_s"),
                              .expires_wall_us = num(o, "expires_wall_us"),
                              .on_expiry = (enum journal_on_expiry) num(o, "on_expiry"),
                              .kept = num(o, "kept") != 0, /* not in older records, which had none */
                              .want = (enum journal_want) num(o, "want"), /* not in older records, so unknown */
                              .mode = (enum journal_mode) num(o, "mode") },
                        *to;
    int r;

    if ((r = text(o, "job", h.job, sizeof(h.job), err)) < 0 ||
        (r = text(o, "advice", h.advice, sizeof(h.advice), err)) < 0)
        return r;
    (void) text(o, "comment", h.comment, sizeof(h.comment), NULL); /* not in older records */
    remove_hold(j, h.job);
    if (j->keep != KEEP_ALL && j->n_holds >= HOLDS_MAX)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "more than %d holds", HOLDS_MAX);
    to = grow(&j->holds, &j->n_holds, sizeof(*j->holds));
    if (!to)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the journal");
    *to = h;
    return 0;
}

static int apply_incarnation(struct journal *j, const json_t *o, struct adv_err *err)
{
    struct incarnation n = { .life = { .first_submit_s = num(o, "first_submit_s"), .uid = (uint32_t) num(o, "uid"),
                                       .restarts = (uint32_t) num(o, "restarts"), .submit_s = num(o, "submit_s"),
                                       .ended_s = num(o, "ended_s"), .seen_wall_us = num(o, "seen_wall_us") } },
                       *to;
    int r = text(o, "job", n.job, sizeof(n.job), err);

    if (r < 0)
        return r;
    to = find_inc(j, n.job);
    if (!to) {
        to = calloc(1, sizeof(*to));
        if (!to)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the journal");
        memcpy(to->job, n.job, sizeof(to->job));
        HASH_ADD_STR(j->incs, job, to);
    }
    to->life = n.life;
    to->forgotten = false;
    return 0;
}

static int apply(struct journal *j, const json_t *o, struct adv_err *err)
{
    const char *kind;
    uint64_t seq = (uint64_t) num(o, "seq");
    int r = adv_json_get_str(o, "kind", &kind, err);

    if (r < 0)
        return r;
    if (seq <= j->seq)
        return adv_err_set(err, ADV_DATA_LOSS, "sequence %llu after %llu", (unsigned long long) seq,
                           (unsigned long long) j->seq);
    if (strcmp(kind, "journal") == 0) {
        if (num(o, "version") != JOURNAL_VERSION)
            r = adv_err_set(err, ADV_DATA_LOSS, "journal version %lld is not known",
                            (long long) num(o, "version"));
        else
            r = text(o, "id", j->id, sizeof(j->id), err);
    } else if (strcmp(kind, "intent") == 0) {
        if (keeps_steps_of(j, o))
            r = apply_intent(j, seq, o, err);
    } else if (strcmp(kind, "outcome") == 0) {
        r = apply_outcome(j, o, err);
    } else if (strcmp(kind, "hold") == 0) {
        r = apply_hold(j, o, err);
    } else if (strcmp(kind, "hold_end") == 0) {
        char job[JOURNAL_JOB_SIZE];
        r = text(o, "job", job, sizeof(job), err);
        if (r == 0)
            remove_hold(j, job);
    } else if (strcmp(kind, "incarnation") == 0) {
        if (j->keep == KEEP_ALL || (j->keep == KEEP_JOB && keeps_steps_of(j, o)))
            r = apply_incarnation(j, o, err);
    } else if (strcmp(kind, "epoch_seen") == 0) {
        if (journal_epoch_cmp(epoch_of(o), j->highest) > 0)
            j->highest = epoch_of(o);
    } else {
        r = adv_err_set(err, ADV_DATA_LOSS, "record of unknown kind '%.20s'", kind);
    }
    if (r == 0) {
        if (strcmp(kind, "intent") == 0 && journal_epoch_cmp(epoch_of(o), j->highest) > 0)
            j->highest = epoch_of(o);
        j->seq = seq;
    }
    return r;
}

/* Writing */

/* Takes over @o. Appends the line of it, with sum, to @out. */
static int render(json_t *o, uint64_t seq, struct adv_buf *out, struct adv_err *err)
{
    struct adv_buf body;
    int r = -ADV_RESOURCE_EXHAUSTED;

    adv_buf_init(&body, LINE_MAX_BYTES);
    if (o && json_object_set_new(o, "seq", json_integer((json_int_t) seq)) == 0)
        r = adv_json_dump(o, &body, NULL);
    if (r == 0)
        r = adv_buf_append_byte(&body, '\n');
    if (r < 0 && o && json_dumpb(o, NULL, 0, JSON_COMPACT) >= LINE_MAX_BYTES) /* no room on any disk will help */
        r = -ADV_INVALID_ARGUMENT;
    if (r == 0) {
        (void) adv_buf_appendf(out, "{\"crc\":\"%08x\",", crc32_of(body.data + 1, body.len - 1));
        r = adv_buf_append(out, body.data + 1, body.len - 1);
    }
    adv_buf_done(&body);
    json_decref(o);
    if (r == -ADV_INVALID_ARGUMENT)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "journal: record too long, expected at most %u bytes", LINE_MAX_BYTES);
    return r < 0 ? adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a journal record") : 0;
}

static int refuse(struct journal *j, enum adv_code code, const char *why)
{
    j->refuse = code;
    (void) snprintf(j->why, sizeof(j->why), "%.150s", why);
    return -(int) code;
}

int journal_may_act(const struct journal *j, struct adv_err *err)
{
    if (j->refuse != ADV_OK)
        return adv_err_set(err, j->refuse, "%s", j->why);
    if (!j->persistent)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "JOURNAL_NOT_PERSISTENT",
                                  "the state folder does not survive a crash of the host");
    return 0;
}

static int put(struct journal *j, const struct adv_buf *line, struct adv_err *err)
{
    ssize_t n = j->io->write(j->fd, line->data, line->len);

    if (n != (ssize_t) line->len) {
        int e = n < 0 ? errno : ENOSPC;
        if (ftruncate(j->fd, j->good) < 0)
            (void) refuse(j, ADV_UNAVAILABLE, "the journal could not be cut back after a failed write");
        return adv_err_set_errno(err, ADV_RESOURCE_EXHAUSTED, e, "journal: write");
    }
    ADV_FAILPOINT("journal.written");
    if (j->io->fdatasync(j->fd) < 0) {
        int e = errno;
        (void) refuse(j, ADV_UNAVAILABLE, "a journal sync failed, what the disk holds is not known");
        (void) ftruncate(j->fd, j->good);
        return adv_err_set_errno(err, ADV_UNAVAILABLE, e, "journal: fdatasync");
    }
    j->good += (off_t) line->len;
    return 0;
}

/* Appends the record and applies it. Takes over @o. */
static int append(struct journal *j, json_t *o, struct adv_err *err)
{
    struct adv_buf line;
    uint64_t seq = j->seq + 1;
    int r;

    adv_buf_init(&line, LINE_MAX_BYTES + CRC_HEAD);
    if (j->refuse != ADV_OK) {
        json_decref(o);
        return adv_err_set(err, j->refuse, "%s", j->why);
    }
    json_incref(o);
    r = render(o, seq, &line, err);
    if (r == 0)
        r = j->batching ? adv_buf_append(&j->batch, line.data, line.len) : put(j, &line, err);
    if (r == 0) {
        r = apply(j, o, err);
        if (r < 0) /* only memory can fail here: the record is there, our picture is not */
            (void) refuse(j, ADV_UNAVAILABLE, "no memory to follow the journal");
    }
    json_decref(o);
    adv_buf_done(&line);
    if (r == 0 && !j->batching && j->good > COMPACT_BYTES && j->good > 2 * j->live)
        r = journal_compact_now(j, NULL) < 0 ? 0 : r; /* else at the next append */
    return r;
}

/* As text that fits a field of @cap bytes again when it is read back. */
static json_t *str(const char *s, size_t cap)
{
    char clean[JOURNAL_ADVICE_SIZE];

    (void) adv_utf8_lossy_buf(clean, cap < sizeof(clean) ? cap : sizeof(clean), s, strlen(s));
    return json_string(clean);
}
#define STR(array) str(array, sizeof(array))

static json_t *intent_record(const struct journal_intent *in, int64_t wall_us)
{
    json_t *o = json_pack("{ss sI so so sI sI sI sI sI so so}", "kind", "intent", "wall_us",
                          (json_int_t) wall_us, "advice", STR(in->advice), "job", STR(in->job), "restarts",
                          (json_int_t) in->restarts, "generation", (json_int_t) in->generation, "term",
                          (json_int_t) in->epoch.term, "counter", (json_int_t) in->epoch.counter,
                          "submit_s", (json_int_t) in->submit_s, "verb", STR(in->verb), "read_before",
                          STR(in->read_before));
    if (o && in->adds && json_object_set_new(o, "adds", json_string(in->adds)) < 0) {
        json_decref(o); /* without them the record would say that there are none */
        return NULL;
    }
    return o;
}

static json_t *outcome_record(uint64_t seq, const struct journal_outcome *out)
{
    json_t *o = json_pack("{ss sI so so so}", "kind", "outcome", "intent", (json_int_t) seq,
                          "command", STR(out->command), "observed", STR(out->observed), "reason",
                          STR(out->reason));
    if (o && out->excluded)
        (void) json_object_set_new(o, "excluded", json_string(out->excluded));
    return o;
}

static json_t *hold_record(const struct journal_hold *h)
{
    return json_pack("{ss so so sI sI sI si si so si si}", "kind", "hold", "job", STR(h->job), "advice",
                     STR(h->advice), "restarts", (json_int_t) h->restarts, "first_submit_s",
                     (json_int_t) h->first_submit_s, "expires_wall_us", (json_int_t) h->expires_wall_us,
                     "on_expiry", (int) h->on_expiry, "kept", (int) h->kept, "comment", STR(h->comment), "want", (int) h->want,
                     "mode", (int) h->mode);
}

static json_t *incarnation_record(const char *job, const struct journal_life *l)
{
    return json_pack("{ss so sI sI sI sI sI sI}", "kind", "incarnation", "job", str(job, JOURNAL_JOB_SIZE),
                     "first_submit_s", (json_int_t) l->first_submit_s, "uid", (json_int_t) l->uid, "restarts",
                     (json_int_t) l->restarts, "submit_s", (json_int_t) l->submit_s, "ended_s", (json_int_t) l->ended_s,
                     "seen_wall_us", (json_int_t) l->seen_wall_us);
}

static json_t *epoch_record(struct journal_epoch e)
{
    return json_pack("{ss sI sI}", "kind", "epoch_seen", "term", (json_int_t) e.term, "counter",
                     (json_int_t) e.counter);
}

static json_t *head_record(const char *id)
{
    return json_pack("{ss ss si}", "kind", "journal", "id", id, "version", JOURNAL_VERSION);
}

int journal_append_intent(struct journal *j, const struct journal_intent *in, int64_t wall_us,
                          uint64_t *ret_seq, struct adv_err *err)
{
    int r = journal_may_act(j, err);

    if (r == 0)
        r = append(j, intent_record(in, wall_us), err);
    if (r == 0)
        *ret_seq = j->steps[j->n_steps - 1].seq;
    return r;
}

int journal_append_outcome(struct journal *j, uint64_t seq, const struct journal_outcome *out,
                           struct adv_err *err)
{
    const struct journal_step *s = find_seq(j, seq);

    if (!s || s->done)
        return adv_err_set(err, ADV_NOT_FOUND, "no open intent %llu", (unsigned long long) seq);
    return append(j, outcome_record(seq, out), err);
}

int journal_append_hold(struct journal *j, const struct journal_hold *h, struct adv_err *err)
{
    return append(j, hold_record(h), err);
}

int journal_append_hold_end(struct journal *j, const char *job, struct adv_err *err)
{
    if (!journal_find_hold(j, job))
        return 0;
    return append(j, json_pack("{ss so}", "kind", "hold_end", "job", str(job, JOURNAL_JOB_SIZE)), err);
}

int journal_append_life(struct journal *j, const char *job, const struct journal_life *l, struct adv_err *err)
{
    struct incarnation *n = find_inc(j, job);
    int r = 0;

    if (!n || n->life.first_submit_s != l->first_submit_s || n->life.uid != l->uid || n->life.restarts != l->restarts ||
        n->life.submit_s != l->submit_s || n->life.ended_s != l->ended_s) {
        r = append(j, incarnation_record(job, l), err);
        n = find_inc(j, job);
    }
    if (r == 0 && n) {
        n->life = *l;
        n->forgotten = false;
    }
    return r;
}

void journal_batch_begin(struct journal *j)
{
    j->batching = true;
}

int journal_batch_commit(struct journal *j, struct adv_err *err)
{
    int r = j->batch.len ? put(j, &j->batch, err) : 0;

    j->batching = false;
    adv_buf_done(&j->batch);
    if (r < 0) /* numbers have been given that the file does not have; that is allowed */
        adv_err_wrap(err, "incarnations");
    return r;
}

int journal_note_epoch(struct journal *j, struct journal_epoch e, struct adv_err *err)
{
    return journal_epoch_cmp(e, j->highest) > 0 ? append(j, epoch_record(e), err) : 0;
}

/* Reading */

size_t journal_torn(const struct journal *j, bool *ret_anew)
{
    *ret_anew = j->anew;
    return j->torn;
}

/* Can the record be left out without being parsed? Its sum has been found right. */
static bool passes_by(const struct journal *j, const char *line, size_t len)
{
    char word[JOURNAL_JOB_SIZE + 16];
    int n;

    if (j->keep == KEEP_HOLDS && j->seq)
        return !memmem(line, len, "\"kind\":\"hold", 12);
    if (j->keep != KEEP_JOB || !j->seq || memmem(line, len, "\"kind\":\"outcome\"", 16))
        return false;
    n = snprintf(word, sizeof(word), "\"job\":\"%s\"", j->only_job);
    return n > 0 && !memmem(line, len, word, (size_t) n);
}

/* One line with its newline. */
static int take_line(struct journal *j, const char *line, size_t len, bool *ret_sum_good, struct adv_err *err)
{
    ADV_JSON_AUTO json_t *o = NULL;
    char head[CRC_HEAD + 1];
    int r;

    *ret_sum_good = false;
    if (len <= CRC_HEAD || len > LINE_MAX_BYTES + CRC_HEAD)
        return adv_err_set(err, ADV_DATA_LOSS, "bad checksum");
    (void) snprintf(head, sizeof(head), "{\"crc\":\"%08x\",", crc32_of(line + CRC_HEAD, len - CRC_HEAD));
    if (memcmp(head, line, CRC_HEAD) != 0)
        return adv_err_set(err, ADV_DATA_LOSS, "bad checksum");
    *ret_sum_good = true;
    if (passes_by(j, line, len))
        return 0;
    r = adv_json_parse(line, len, LINE_MAX_BYTES + CRC_HEAD, &o, err);
    if (r == 0)
        r = apply(j, o, err);
    if (r == 0 && j->seq == 1 && !j->id[0])
        r = adv_err_set(err, ADV_DATA_LOSS, "the first record is not a journal's");
    return r;
}

/* Applies the records of @fd from j->good on, up to @size, and moves j->good behind the last whole one. What is not whole
 * at the end is no error: @ret_torn. Errors: -ADV_DATA_LOSS (damage elsewhere); -ADV_RESOURCE_EXHAUSTED; -ADV_UNAVAILABLE. */
static int read_records(struct journal *j, int fd, off_t size, size_t *ret_torn, struct adv_err *err)
{
    adv_auto_free char *buf = malloc(READ_BYTES);
    size_t have = 0;
    off_t at = j->good;     /* of buf[0] */
    bool too_long = false; /* the line under way, whose beginning is not there any more */

    if (!buf)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the journal");
    while (at + (off_t) have < size) {
        off_t left = size - at - (off_t) have;
        size_t room = READ_BYTES - have, done = 0;
        ssize_t n = pread(fd, buf + have, left < (off_t) room ? (size_t) left : room, at + (off_t) have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return adv_err_set(err, ADV_UNAVAILABLE, "journal cannot be read");
        have += (size_t) n;
        for (const char *end; (end = memchr(buf + done, '\n', have - done));) {
            size_t len = (size_t) (end - buf) + 1 - done;
            struct adv_err why = { 0 };
            bool sum_good = false;
            int r = too_long ? adv_err_set(&why, ADV_DATA_LOSS, "bad checksum") : take_line(j, buf + done, len, &sum_good, &why);

            if (r < 0 && !sum_good && at + (off_t) (done + len) == size)
                break; /* torn as well */
            if (r < 0)
                return adv_err_set(err, r == -ADV_RESOURCE_EXHAUSTED ? ADV_RESOURCE_EXHAUSTED : ADV_DATA_LOSS,
                                   "journal damaged at byte %lld: %.100s", (long long) j->good, why.msg);
            done += len;
            j->good = at + (off_t) done;
        }
        if (done == 0 && have == READ_BYTES) {
            too_long = true;
            done = have;
        }
        memmove(buf, buf + done, have - done);
        have -= done;
        at += (off_t) done;
    }
    *ret_torn = (size_t) (size - j->good);
    return 0;
}

static int replay(struct journal *j, struct adv_err *err)
{
    struct adv_err why;
    struct stat st;
    int r;

    if (fstat(j->fd, &st) < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "journal");
    r = read_records(j, j->fd, st.st_size, &j->torn, &why);
    if (r == -ADV_UNAVAILABLE)
        return adv_err_set(err, ADV_UNAVAILABLE, "%s", why.msg);
    if (r < 0) {
        (void) refuse(j, ADV_DATA_LOSS, why.msg);
        return 0;
    }
    j->live = j->good;
    j->anew = j->torn && j->good == 0;
    if (j->torn && (ftruncate(j->fd, j->good) < 0 || j->io->fdatasync(j->fd) < 0))
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "journal: cut a torn record");
    return 0;
}

static bool on_lasting_storage(int fd)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return false;
    switch ((unsigned long) fs.f_type) {
    case 0x01021994: /* tmpfs */
    case 0x858458f6: /* ramfs */
    case 0x794c7630: /* overlayfs: goes with the container */
        return false;
    default:
        return true;
    }
}

bool journal_folder_lasting(const char *dir)
{
    adv_auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 && on_lasting_storage(fd);
}

static bool lock_within(int fd, int wait_ms)
{
    const struct timespec step = { .tv_nsec = LOCK_STEP_MS * 1000000l };

    for (; flock(fd, LOCK_EX | LOCK_NB) < 0; wait_ms -= LOCK_STEP_MS) {
        if (wait_ms <= 0)
            return false;
        (void) nanosleep(&step, NULL);
    }
    return true;
}

int journal_folder_lock(const char *dir, int *ret_fd, struct adv_err *err)
{
    adv_auto_close int fd = -1;
    char path[4096];

    if (snprintf(path, sizeof(path), "%s/lock", dir) >= (int) sizeof(path))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "state folder: path too long, expected at most 4090 bytes");
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return adv_err_set_errno(err, errno == ENOENT ? ADV_NOT_FOUND : ADV_UNAVAILABLE, errno, "lock of state folder '%s'", dir);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return adv_err_set(err, ADV_ALREADY_EXISTS, "an agent has state folder '%s'", dir);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int journal_open(const char *dir, bool allow_volatile, const struct journal_io *io,
                 struct journal **ret, struct adv_err *err)
{
    ADV_AUTO(journal) j = calloc(1, sizeof(*j));
    char id[ADV_UUID_SIZE];
    int r;

    if (!j)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the journal");
    j->dir_fd = j->lock_fd = j->fd = -1;
    j->io = io ? io : &real_io;
    adv_buf_init(&j->batch, 16u << 20);
    j->dir = strdup(dir);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return adv_err_set_errno(err, ADV_PERMISSION_DENIED, errno, "state folder '%s'", dir);
    j->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->dir_fd >= 0)
        j->lock_fd = openat(j->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (j->lock_fd < 0)
        return adv_err_set_errno(err, ADV_PERMISSION_DENIED, errno, "state folder '%s'", dir);
    if (!lock_within(j->lock_fd, LOCK_WAIT_MS))
        return adv_err_set(err, ADV_ALREADY_EXISTS, "another agent uses state folder '%s'", dir);
    (void) unlinkat(j->dir_fd, "journal.new", 0); /* of a compaction that did not end */
    j->fd = openat(j->dir_fd, "journal", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (j->fd < 0)
        return adv_err_set_errno(err, ADV_PERMISSION_DENIED, errno, "journal in '%s'", dir);
    j->persistent = allow_volatile || on_lasting_storage(j->fd);
    r = replay(j, err);
    if (r < 0)
        return r;
    if (j->refuse == ADV_OK && !j->id[0]) {
        r = adv_uuid_v7(adv_wall_us(), id, err);
        if (r == 0)
            r = append(j, head_record(id), err);
        if (r == 0 && fsync(j->dir_fd) < 0)
            r = adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "state folder '%s'", dir);
        if (r < 0)
            return r;
    }
    *ret = ADV_STEAL(j);
    return 0;
}

static void free_records(struct journal *j)
{
    struct incarnation *n, *next;

    for (size_t i = 0; i < j->n_steps; i++)
        free_texts(&j->steps[i]);
    free(j->steps);
    free(j->holds);
    HASH_ITER(hh, j->incs, n, next) {
        HASH_DEL(j->incs, n);
        free(n);
    }
}

struct journal *journal_free(struct journal *j)
{
    if (!j)
        return NULL;
    free_records(j);
    adv_buf_done(&j->batch);
    if (j->fd >= 0)
        (void) close(j->fd);
    if (j->lock_fd >= 0)
        (void) close(j->lock_fd);
    if (j->dir_fd >= 0)
        (void) close(j->dir_fd);
    free(j->dir);
    free(j);
    return NULL;
}

/* Compaction: sequence numbers of steps are kept, because they name actions for ever. Records are
 * written in their order, holds and incarnations after them with fresh numbers. */
int journal_compact(struct journal *j, int64_t keep_since_wall_us, struct adv_err *err)
{
    struct adv_buf out;
    adv_auto_close int fd = -1;
    uint64_t seq = j->seq;
    struct incarnation *n, *next;
    size_t kept = 0;
    int r;

    if (j->refuse != ADV_OK)
        return adv_err_set(err, j->refuse, "%s", j->why);
    adv_buf_init(&out, 256u << 20);
    /* The first step has at least number 2, as the head had 1. */
    r = render(head_record(j->id), 1, &out, err);
    for (size_t i = 0; r == 0 && i < j->n_steps; i++) {
        const struct journal_step *s = &j->steps[i];
        if (!s->done || s->wall_us >= keep_since_wall_us)
            r = render(intent_record(&s->intent, s->wall_us), s->seq, &out, err);
    }
    for (size_t i = 0; r == 0 && i < j->n_steps; i++) {
        const struct journal_step *s = &j->steps[i];
        if (s->done && s->wall_us >= keep_since_wall_us)
            r = render(outcome_record(s->seq, &s->outcome), ++seq, &out, err);
    }
    for (size_t i = 0; r == 0 && i < j->n_holds; i++)
        r = render(hold_record(&j->holds[i]), ++seq, &out, err);
    for (n = j->incs; r == 0 && n; n = n->hh.next)
        if (!n->forgotten)
            r = render(incarnation_record(n->job, &n->life), ++seq, &out, err);
    if (r == 0) /* also keeps the highest number in the file */
        r = render(epoch_record(j->highest), ++seq, &out, err);
    if (r == 0) {
        fd = openat(j->dir_fd, "journal.new",
                    O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || j->io->write(fd, out.data, out.len) != (ssize_t) out.len ||
            j->io->fdatasync(fd) < 0)
            r = adv_err_set_errno(err, ADV_RESOURCE_EXHAUSTED, errno, "journal: compaction");
    }
    ADV_FAILPOINT("journal.before_rename");
    if (r == 0 && renameat(j->dir_fd, "journal.new", j->dir_fd, "journal") < 0)
        r = adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "journal: rename");
    if (r < 0) {
        (void) unlinkat(j->dir_fd, "journal.new", 0);
        adv_buf_done(&out);
        return r;
    }
    (void) close(j->fd);
    j->fd = fd;
    fd = -1;
    j->good = j->live = (off_t) out.len;
    j->seq = seq;
    adv_buf_done(&out);
    for (size_t i = 0; i < j->n_steps; i++) {
        if (!j->steps[i].done || j->steps[i].wall_us >= keep_since_wall_us)
            j->steps[kept++] = j->steps[i];
        else
            free_texts(&j->steps[i]);
    }
    j->n_steps = kept;
    HASH_ITER(hh, j->incs, n, next)
        if (n->forgotten) {
            HASH_DEL(j->incs, n);
            free(n);
        }
    if (fsync(j->dir_fd) < 0) {
        (void) refuse(j, ADV_UNAVAILABLE, "the state folder could not be synced after compaction");
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "journal: folder");
    }
    return 0;
}

int journal_compact_now(struct journal *j, struct adv_err *err)
{
    return journal_compact(j, adv_wall_us() - KEEP_US, err);
}

/* Looking */

const char *journal_id(const struct journal *j)
{
    return j->id;
}

bool journal_persistent(const struct journal *j)
{
    return j->persistent;
}

void journal_forget_job(struct journal *j, const char *job)
{
    struct incarnation *n = find_inc(j, job);

    if (n)
        n->forgotten = true;
}

void journal_forget_unless(struct journal *j, bool (*there)(void *ctx, const char *job), void *ctx)
{
    for (struct incarnation *n = j->incs; n; n = n->hh.next)
        n->forgotten = n->forgotten || !there(ctx, n->job);
}

struct journal_epoch journal_highest_epoch(const struct journal *j)
{
    return j->highest;
}

const struct journal_life *journal_life(const struct journal *j, const char *job)
{
    const struct incarnation *n = find_inc(j, job);

    return n && !n->forgotten ? &n->life : NULL;
}

const struct journal_step *journal_find_step(const struct journal *j, const char *advice,
                                             const char *job, const char *verb)
{
    for (size_t i = j->n_steps; i > 0; i--) {
        const struct journal_step *s = &j->steps[i - 1];
        if (strcmp(s->intent.verb, verb) == 0 && (!advice || strcmp(s->intent.advice, advice) == 0) &&
            (!job || strcmp(s->intent.job, job) == 0))
            return s;
    }
    return NULL;
}

const struct journal_hold *journal_find_hold(const struct journal *j, const char *job)
{
    for (size_t i = 0; i < j->n_holds; i++)
        if (strcmp(j->holds[i].job, job) == 0)
            return &j->holds[i];
    return NULL;
}

unsigned journal_count_since(const struct journal *j, int64_t wall_us)
{
    unsigned n = 0;

    for (size_t i = j->n_steps; i > 0; i--)
        n += j->steps[i - 1].wall_us >= wall_us;
    return n;
}

const struct journal_step *journal_next_step(const struct journal *j, size_t *pos)
{
    return *pos < j->n_steps ? &j->steps[(*pos)++] : NULL;
}

const struct journal_step *journal_next_open(const struct journal *j, size_t *pos)
{
    while (*pos < j->n_steps) {
        const struct journal_step *s = &j->steps[(*pos)++];
        if (!s->done)
            return s;
    }
    return NULL;
}

const struct journal_hold *journal_next_hold(const struct journal *j, size_t *pos)
{
    return *pos < j->n_holds ? &j->holds[(*pos)++] : NULL;
}

/* Looking from outside. The file is opened anew at each look, since compaction replaces it, and read on from where the last
 * look ended if it is the same one. It may also have been cut back and written on in between: what then looks like damage
 * is looked at once more from the beginning. */

struct journal_view {
    struct journal j; /* no folder, no lock, nothing to write to */
    char *path;
    struct stat seen;
    bool looked;
    int result; /* of the last look at the file as it was then */
    struct adv_err why;
};

static void forget_all(struct journal *j)
{
    free_records(j);
    *j = (struct journal) { .keep = j->keep, .only_job = j->only_job, .fd = -1, .lock_fd = -1, .dir_fd = -1, .io = j->io };
}

int journal_view_new(const char *dir, enum journal_view_of what, struct journal_view **ret, struct adv_err *err)
{
    struct journal_view *v = calloc(1, sizeof(*v));

    if (!v || asprintf(&v->path, "%s/journal", dir) < 0) {
        free(v);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a view of a journal");
    }
    v->j.keep = what == JOURNAL_VIEW_HOLDS ? KEEP_HOLDS : KEEP_STEPS;
    v->j.io = &real_io;
    forget_all(&v->j);
    *ret = v;
    return 0;
}

struct journal_view *journal_view_free(struct journal_view *v)
{
    if (!v)
        return NULL;
    forget_all(&v->j);
    free(v->path);
    free(v);
    return NULL;
}

/* O_NONBLOCK: a pipe in its place must not stop us. */
static int open_to_read(const char *path, struct stat *ret, int *ret_fd, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return adv_err_set_errno(err, errno == ENOENT ? ADV_NOT_FOUND : ADV_UNAVAILABLE, errno, "%s", path);
    if (fstat(fd, ret) < 0 || !S_ISREG(ret->st_mode))
        return adv_err_set(err, ADV_UNAVAILABLE, "%s is not a regular file", path);
    if (ret->st_uid != geteuid() && ret->st_uid != 0)
        return adv_err_set(err, ADV_PERMISSION_DENIED, "%s belongs to user %u, expected %u, as whom this program runs", path,
                           (unsigned) ret->st_uid, (unsigned) geteuid());
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int journal_view_refresh(struct journal_view *v, bool *ret_changed, struct adv_err *err)
{
    adv_auto_close int fd = -1;
    struct stat st;
    size_t torn;
    int r = open_to_read(v->path, &st, &fd, &v->why);

    *ret_changed = true;
    if (r < 0) {
        forget_all(&v->j);
        v->looked = false;
        v->result = r;
    } else {
        bool same = v->looked && st.st_dev == v->seen.st_dev && st.st_ino == v->seen.st_ino;
        if (same && st.st_size == v->seen.st_size && memcmp(&st.st_mtim, &v->seen.st_mtim, sizeof(st.st_mtim)) == 0) {
            *ret_changed = false;
        } else {
            bool on = same && v->result == 0 && st.st_size >= v->j.good;
            if (!on)
                forget_all(&v->j);
            r = read_records(&v->j, fd, st.st_size, &torn, &v->why);
            if (r < 0 && on) {
                forget_all(&v->j);
                r = read_records(&v->j, fd, st.st_size, &torn, &v->why);
            }
            if (r < 0)
                forget_all(&v->j);
            v->seen = st;
            v->looked = r != -ADV_UNAVAILABLE;
            v->result = r;
        }
    }
    if (v->result < 0 && err)
        *err = v->why;
    return v->result;
}

const struct journal_hold *journal_view_next_hold(const struct journal_view *v, size_t *pos)
{
    return journal_next_hold(&v->j, pos);
}

const struct journal_step *journal_view_next_step(const struct journal_view *v, size_t *pos)
{
    return journal_next_step(&v->j, pos);
}

int journal_view_job(const struct journal_view *v, const char *job, struct journal_story *ret, struct adv_err *err)
{
    static const char *const requeues[] = { "preserve", "interrupt" };
    struct journal j = { .keep = KEEP_JOB, .only_job = job, .io = &real_io };
    adv_auto_close int fd = -1;
    const struct journal_life *l;
    struct stat st;
    size_t torn;
    int r = open_to_read(v->path, &st, &fd, err);

    if (r < 0)
        return r;
    forget_all(&j);
    r = read_records(&j, fd, st.st_size, &torn, err);
    if (r == 0) {
        *ret = (struct journal_story) { 0 };
        if ((l = journal_life(&j, job))) {
            ret->life_known = true;
            ret->life = *l;
        }
        for (size_t i = 0; i < j.n_steps; i++) {
            const struct journal_step *s = &j.steps[i];
            for (size_t k = 0; k < ADV_ARRAY_LEN(requeues); k++) {
                if (strcmp(s->intent.verb, requeues[k]) != 0 || s->seq < ret->requeue.seq)
                    continue;
                ret->requeue = *s; /* a reader of this kind keeps no texts */
            }
        }
    }
    forget_all(&j);
    return r;
}
