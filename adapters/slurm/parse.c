/* SPDX-License-Identifier: Apache-2.0 */

/* Slurm's tools were made for people, and what users put into names and comments comes out raw: a job may be named
 * "x\nJobState=FAILED". Three habits keep that harmless:
 *
 *  - The poll asks for no user text at all. State, times and counts come only from it.
 *  - User text is asked for with a random separator per call (see parse.h). This works the same on 22.05, 24.11 and
 *    later. Left aside: `scontrol show job` text, as a name may forge each line of it, and no rule about order or
 *    indentation tells the true line from the forged one for all fields (Comment stands before StdErr); its JSON, as
 *    22.05 has none (`squeue --json` there prints all jobs whatever is asked); sacct, as it knows the comment only
 *    after the end, and lags. JSON serves for one thing: the end state that text hides while COMPLETING.
 *  - A line that does not fit makes the whole answer "malformed". A skipped line would make a job look absent.
 */

#include "adapters/slurm/parse.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <sys/random.h>

#include "common/json.h"
#include "common/num.h"

/* ---- small helpers ---- */

static bool unset(const char *s)
{
    return !*s || strcmp(s, "N/A") == 0 || strcmp(s, "Unknown") == 0 || strcmp(s, "None") == 0 ||
           strcmp(s, "(null)") == 0 || strcmp(s, "NONE") == 0;
}

/* Unset words give @fallback; a malformed number fails. */
static int num(const char *s, int64_t min, int64_t max, int64_t fallback, int64_t *ret)
{
    if (unset(s)) {
        *ret = fallback;
        return 0;
    }
    return adv_parse_i64(s, min, max, ret, NULL);
}

static const char *plain(const char *s)
{
    return strcmp(s, "(null)") == 0 || strcmp(s, "N/A") == 0 ? "" : s;
}

/* Compares ignoring the difference between '_' and ' ' and case. */
static bool words_equal(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        char x = *a == '_' ? ' ' : (char) tolower((unsigned char) *a);
        char y = *b == '_' ? ' ' : (char) tolower((unsigned char) *b);
        if (x != y)
            return false;
    }
    return *a == *b;
}

/* Cuts @*cursor at the next @sep and returns the part before it; NULL when there is none. */
static char *take(char **cursor, char *end, const char *sep)
{
    size_t n = strlen(sep);
    char *start = *cursor, *hit = memmem(start, (size_t) (end - start), sep, n);

    if (!hit)
        return NULL;
    *hit = '\0';
    *cursor = hit + n;
    return start;
}

/* ---- words ---- */

enum adapter_job_state slurm_state(const char *word, bool *ret_completing)
{
    static const struct {
        const char *word;
        enum adapter_job_state state;
    } more[] = {
        { "REQUEUE_FED", ADAPTER_JOB_REQUEUED },   { "RESIZING", ADAPTER_JOB_RUNNING },
        { "SIGNALING", ADAPTER_JOB_RUNNING },      { "STAGE_OUT", ADAPTER_JOB_UNKNOWN_STATE },
        { "RESV_DEL_HOLD", ADAPTER_JOB_PENDING },  { "POWER_UP_NODE", ADAPTER_JOB_CONFIGURING },
    };
    char head[32];
    size_t n = strcspn(word, " +"); /* sacct: "CANCELLED by 1000" */

    *ret_completing = strcmp(word, "COMPLETING") == 0;
    if (n == 0 || n >= sizeof(head))
        return ADAPTER_JOB_UNKNOWN_STATE;
    memcpy(head, word, n);
    head[n] = '\0';
    for (int s = ADAPTER_JOB_UNKNOWN_STATE + 1; s < ADAPTER_JOB_STATE_MAX_; s++)
        if (strcmp(head, adapter_job_state_name((enum adapter_job_state) s)) == 0)
            return (enum adapter_job_state) s;
    for (size_t i = 0; i < ADV_ARRAY_LEN(more); i++)
        if (strcmp(head, more[i].word) == 0)
            return more[i].state;
    return ADAPTER_JOB_UNKNOWN_STATE;
}

enum slurm_answer slurm_parse_answer(const char *t)
{
    static const struct {
        const char *text;
        enum slurm_answer answer;
    } table[] = {
        /* no contact first: such lines may come together with another */
        { "Unexpected message received", SLURM_ANSWER_UNCLEAR },
        { "Unable to contact", SLURM_ANSWER_UNCLEAR },
        { "Socket timed out", SLURM_ANSWER_UNCLEAR },
        { "Zero Bytes were transmitted", SLURM_ANSWER_UNCLEAR },
        { "pending execution", SLURM_ANSWER_PENDING }, /* "is pending", "is no longer pending": see below */
        { "already finished", SLURM_ANSWER_FINISHED },
        { "already completing or completed", SLURM_ANSWER_FINISHED },
        { "presently disabled", SLURM_ANSWER_DISABLED },
        { "Only batch jobs", SLURM_ANSWER_NOT_BATCH },
        { "Invalid job id", SLURM_ANSWER_NO_JOB },
        { "not heterogeneous job leader", SLURM_ANSWER_REFUSED },
        { "Access/permission denied", SLURM_ANSWER_DENIED },
        { "Invalid user id", SLURM_ANSWER_DENIED },
        { "Invalid node name", SLURM_ANSWER_BAD_NODE },
        { "Job dependency problem", SLURM_ANSWER_DEPENDENCY },
        { "Operation not permitted", SLURM_ANSWER_REFUSED },
        { "held state", SLURM_ANSWER_REFUSED },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(table); i++) {
        if (!strstr(t, table[i].text))
            continue;
        if (table[i].answer == SLURM_ANSWER_PENDING && strstr(t, "no longer pending"))
            return SLURM_ANSWER_FINISHED;
        return table[i].answer;
    }
    return SLURM_ANSWER_UNCLEAR;
}

int slurm_parse_id(const char *id, uint32_t *ret_base, int64_t *ret_task, int32_t *ret_offset, struct adv_err *err)
{
    char text[ADAPTER_ID_SIZE];
    int64_t base = 0, task = -1, offset = -1;
    char *rest;
    size_t n = id ? strlen(id) : 0;

    if (n == 0 || n >= sizeof(text))
        goto bad;
    memcpy(text, id, n + 1);
    if ((rest = strchr(text, '_'))) {
        *rest++ = '\0';
        if (adv_parse_i64(rest, 0, UINT32_MAX, &task, NULL) < 0)
            goto bad;
    } else if ((rest = strchr(text, '+'))) {
        *rest++ = '\0';
        if (adv_parse_i64(rest, 0, INT32_MAX, &offset, NULL) < 0)
            goto bad;
    }
    if (adv_parse_i64(text, 1, UINT32_MAX, &base, NULL) < 0)
        goto bad;
    *ret_base = (uint32_t) base;
    *ret_task = task;
    *ret_offset = (int32_t) offset;
    return 0;
bad:
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "job id: expected 123, 46_5 or 56+1");
}

/* ---- the poll ---- */

enum field {
    F_JOBID, F_ARRAYID, F_TASK, F_HETID, F_HETOFF, F_STATE, F_RESTARTS, F_REQUEUE, F_BATCH, F_EXIT, F_SUBMIT,
    F_ELIGIBLE, F_START, F_END, F_PRIORITY, F_NODES, F_USER, F_UID, F_ACCOUNT, F_PARTITION, F_QOS, F_NNODES, F_DEPENDENCY,
    F_REASON,
    F_NAME, F_COMMENT, F_WORKDIR, F_STDOUT, F_STDERR, F_REQNODES, F_LIMIT, F_FEATURES,
    F_RESERVATION,
};
#define DETAIL_FIELDS (F_RESERVATION + 1)

static const char *const field_names[DETAIL_FIELDS] = {
    "JobID",      "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "State",        "RestartCnt", "Requeue",
    "BatchFlag",  "exit_code",  "SubmitTime",  "EligibleTime", "StartTime", "EndTime",     "PriorityLong", "NodeList",
    "UserName",   "UserID",     "Account",     "Partition", "QOS",         "NumNodes",     "Dependency",
    "Reason",
    "Name",       "Comment",    "WorkDir",     "STDOUT",   "STDERR",       "ReqNodes",     "TimeLimit",
    "Feature",    "Reservation",
};

static int format_fields(size_t n, const char *sep, struct adv_buf *out)
{
    for (size_t i = 0; i < n; i++)
        (void) adv_buf_appendf(out, "%s%s:%s", i ? "," : "", field_names[i], sep);
    return adv_buf_error(out);
}

int slurm_job_format(const char *sep, struct adv_buf *out)
{
    return format_fields(SLURM_JOB_FIELDS, sep, out);
}

int slurm_detail_format(const char *nonce, struct adv_buf *out)
{
    return format_fields(DETAIL_FIELDS, nonce, out);
}

/* "2", "2-4" (the least counts), "1K"; 0 when it cannot be told. */
static uint32_t node_count(const char *s)
{
    int64_t n = 0;

    for (; isdigit((unsigned char) *s) && n < INT32_MAX; s++)
        n = n * 10 + (*s - '0');
    if (*s == 'K' || *s == 'k')
        n *= 1024;
    return n > 0 && n < UINT32_MAX ? (uint32_t) n : 0;
}

/* 22.05 prints the raw wait status (768), later releases "3:0". */
static int parse_exit(const char *s, struct adapter_exit *ret)
{
    const char *colon = strchr(s, ':');
    char head[12];
    int64_t a, b = 0;

    *ret = (struct adapter_exit) { .known = false };
    if (unset(s))
        return 0;
    if (colon) {
        size_t n = (size_t) (colon - s);
        if (n == 0 || n >= sizeof(head))
            return -ADV_INVALID_ARGUMENT;
        memcpy(head, s, n);
        head[n] = '\0';
        if (adv_parse_i64(head, 0, 255, &a, NULL) < 0 || adv_parse_i64(colon + 1, 0, 255, &b, NULL) < 0)
            return -ADV_INVALID_ARGUMENT;
        *ret = (struct adapter_exit) { true, (int) a, (int) b };
        return 0;
    }
    if (adv_parse_i64(s, 0, UINT32_MAX, &a, NULL) < 0)
        return -ADV_INVALID_ARGUMENT;
    *ret = (struct adapter_exit) { true, (int) (a >> 8 & 0xff), (int) (a & 0x7f) };
    return 0;
}

static int parse_job(char *const *f, struct adapter_job *j)
{
    int64_t raw, array, task, het, off, restarts, requeue, batch, uid;
    uint64_t prio = 0;
    int r = 0;

    *j = (struct adapter_job) { .array_task = -1, .het_offset = -1 };
    r |= num(f[F_JOBID], 1, UINT32_MAX, 0, &raw);
    r |= num(f[F_ARRAYID], 0, UINT32_MAX, 0, &array);
    r |= num(f[F_TASK], 0, UINT32_MAX, -1, &task);
    r |= num(f[F_HETID], 0, UINT32_MAX, 0, &het);
    r |= num(f[F_HETOFF], 0, INT32_MAX, -1, &off);
    r |= num(f[F_RESTARTS], 0, UINT32_MAX, 0, &restarts);
    r |= num(f[F_REQUEUE], 0, UINT16_MAX, 0, &requeue);
    r |= num(f[F_BATCH], 0, UINT16_MAX, 0, &batch); /* counts launches: 2 after a launch that failed */
    r |= parse_exit(f[F_EXIT], &j->exit);
    r |= num(f[F_SUBMIT], 0, INT64_MAX, 0, &j->submit_s);
    r |= num(f[F_ELIGIBLE], 0, INT64_MAX, 0, &j->eligible_s);
    r |= num(f[F_START], 0, INT64_MAX, 0, &j->start_s);
    r |= num(f[F_END], 0, INT64_MAX, 0, &j->end_s);
    r |= num(f[F_UID], 0, UINT32_MAX, UINT32_MAX, &uid);
    if (!unset(f[F_PRIORITY]))
        r |= adv_parse_u64(f[F_PRIORITY], 0, UINT64_MAX, &prio, NULL);
    /* an empty restart count, requeue flag or state is a field this release does not have */
    if (r || raw == 0 || !*f[F_RESTARTS] || !*f[F_REQUEUE] || !*f[F_BATCH] || !*f[F_STATE] || !*f[F_PRIORITY])
        return -ADV_DATA_LOSS;
    /* a word where nodes are counted: fields are not where they belong */
    if (!unset(f[F_NNODES]) && !isdigit((unsigned char) *f[F_NNODES]))
        return -ADV_DATA_LOSS;

    j->raw_id = (uint32_t) raw;
    j->restart_count = (uint32_t) restarts;
    j->requeueable = requeue > 0;
    j->batch = batch > 0;
    j->priority = prio;
    j->uid = (uint32_t) uid;
    j->node_count = node_count(f[F_NNODES]);
    if (task >= 0) {
        j->array_id = (uint32_t) array;
        j->array_task = task;
        (void) snprintf(j->id, sizeof(j->id), "%u_%lld", j->array_id, (long long) task);
    } else if (het > 0) {
        j->het_id = (uint32_t) het;
        j->het_offset = (int32_t) off;
        (void) snprintf(j->id, sizeof(j->id), "%u+%lld", j->het_id, (long long) off);
    } else {
        (void) snprintf(j->id, sizeof(j->id), "%u", j->raw_id);
    }
    j->state_text = f[F_STATE];
    j->state = slurm_state(f[F_STATE], &j->completing);
    j->reason = plain(f[F_REASON]);
    j->nodes = plain(f[F_NODES]);
    j->user = f[F_USER];
    j->account = plain(f[F_ACCOUNT]);
    j->partition = plain(f[F_PARTITION]);
    j->qos = plain(f[F_QOS]);
    j->dependency = plain(f[F_DEPENDENCY]);
    /* Held is what does not start by itself. BadConstraints has priority 0 too; it needs more than a release, so it is not called
     * held. A job whose dependency is never satisfied keeps its priority. */
    bool waiting = j->state == ADAPTER_JOB_PENDING || j->completing;
    j->held_by_requeue = waiting && prio == 0 && words_equal(j->reason, "job requeued in held state");
    j->held = j->state == ADAPTER_JOB_REQUEUE_HOLD || j->state == ADAPTER_JOB_SPECIAL_EXIT || j->held_by_requeue ||
              (j->state == ADAPTER_JOB_PENDING && prio == 0 && !words_equal(j->reason, "BadConstraints"));
    return 0;
}


struct adapter_observation *slurm_parse_jobs(char *text, size_t len)
{
    struct adapter_observation *o = calloc(1, sizeof(*o));
    char *cursor = text, *end = text + len;
    size_t cap = 0;
    unsigned line_no = 0;

    struct slurm_texts *texts = calloc(1, sizeof(*texts));
    if (!o || !texts) {
        free(text);
        free(o);
        free(texts);
        return NULL;
    }
    texts->text = text;
    o->priv_ = texts;
    if (memchr(text, '\0', len))
        goto malformed;
    while (cursor < end) {
        char *f[SLURM_JOB_FIELDS];
        char *line = take(&cursor, end, "\n"), *line_end;

        line_no++;
        if (!line)
            goto malformed; /* the last line lacks its end: cut off */
        line_end = cursor - 1;
        if (line == line_end)
            continue;
        char *p = line;
        for (int i = 0; i < SLURM_JOB_FIELDS; i++) {
            if (i == F_REASON) { /* the rest, minus the closing separator */
                if (p >= line_end || line_end[-1] != '|')
                    goto malformed;
                line_end[-1] = '\0';
                f[i] = p;
            } else if (!(f[i] = take(&p, line_end, "|"))) {
                goto malformed;
            }
        }
        if (o->n_jobs == cap) {
            size_t want = cap ? cap * 2 : 64;
            struct adapter_job *more = realloc(o->jobs, want * sizeof(*more));
            if (!more) {
                (void) adv_err_set(&o->err, ADV_RESOURCE_EXHAUSTED, "squeue: no memory");
                o->unknown_reason = "no_memory";
                return o;
            }
            o->jobs = more;
            cap = want;
        }
        if (parse_job(f, &o->jobs[o->n_jobs]) < 0)
            goto malformed;
        o->n_jobs++;
    }
    if (slurm_join_components(o, texts) < 0) {
        (void) adv_err_set(&o->err, ADV_DATA_LOSS, "squeue: the components of a heterogeneous job cannot be put together");
        o->unknown_reason = "malformed";
        return o;
    }
    o->complete = true;
    return o;

malformed:
    (void) adv_err_set(&o->err, ADV_DATA_LOSS, "squeue: line %u is not as asked for", line_no);
    o->unknown_reason = "malformed";
    return o;
}

struct adapter_observation *adapter_observation_free(struct adapter_observation *o)
{
    if (o) {
        struct slurm_texts *texts = o->priv_;
        for (size_t i = 0; texts && i < texts->n_more; i++)
            free(texts->more[i]);
        if (texts) {
            free(texts->more);
            free(texts->text);
        }
        free(texts);
        free(o->jobs);
        free(o);
    }
    return NULL;
}

/* First name of a compressed list, "n[3-5],x" -> "n3". */
static void first_node(const char *nodes, struct adv_buf *out)
{
    size_t head = strcspn(nodes, "[,");

    (void) adv_buf_append(out, nodes, head);
    if (nodes[head] == '[') {
        const char *inner = nodes + head + 1, *close = strchr(inner, ']');
        (void) adv_buf_append(out, inner, strcspn(inner, "-,]"));
        if (close) {
            size_t tail = strcspn(close + 1, ",");
            (void) adv_buf_append(out, close + 1, tail);
        }
    }
}

int slurm_expand_path(const char *pattern, const struct adapter_job *job, const char *name, const char *workdir,
                      struct adv_buf *out, struct adv_err *err)
{
    const char *p = pattern;
    bool literal = strchr(pattern, '\\') != NULL; /* a backslash anywhere turns all specifiers off */
    bool array = job->array_task >= 0;
    char dflt[32];

    if (!*p) {
        (void) snprintf(dflt, sizeof(dflt), array ? "slurm-%%A_%%a.out" : "slurm-%%j.out");
        p = dflt;
    }
    if (*p != '/')
        (void) adv_buf_appendf(out, "%s/", workdir);
    while (*p) {
        int64_t width = 0;

        if (literal && *p == '\\') {
            p++;
            continue;
        }
        if (literal || *p != '%') {
            (void) adv_buf_append_byte(out, (uint8_t) *p++);
            continue;
        }
        const char *spec = p + 1;
        while (isdigit((unsigned char) *spec) && width < 100)
            width = width * 10 + (*spec++ - '0');
        if (width > 10)
            width = 10; /* as Slurm does */
        int w = (int) width;
        switch (*spec) {
        case '%':
            (void) adv_buf_append_byte(out, '%');
            break;
        case 'A':
            (void) adv_buf_appendf(out, "%0*u", w, array ? job->array_id : job->raw_id);
            break;
        case 'a':
            (void) adv_buf_appendf(out, "%0*lld", w, array ? (long long) job->array_task : 4294967294LL);
            break;
        case 'J':
        case 'j':
            (void) adv_buf_appendf(out, "%0*u", w, job->raw_id);
            break;
        case 'N': {
            const char *node = job->nodes;
            size_t at = out->len;
            first_node(node, out);
            char *dot = memchr(out->data + at, '.', out->len - at);
            if (dot)
                adv_buf_truncate(out, (size_t) (dot - out->data));
            break;
        }
        case 'n':
        case 't':
            (void) adv_buf_appendf(out, "%0*d", w, 0); /* the batch script is node 0, task 0 */
            break;
        case 's':
            (void) adv_buf_append_str(out, "batch");
            break;
        case 'u':
            (void) adv_buf_append_str(out, job->user);
            break;
        case 'x':
            (void) adv_buf_append_str(out, name);
            break;
        case 'b':
            (void) adv_buf_appendf(out, "%0*lld", w, array ? (long long) (job->array_task % 10) : 4LL);
            break;
        default:
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "output path: unknown specifier");
        }
        p = spec + 1;
    }
    if (adv_buf_error(out))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "output path: too long");
    return 0;
}

/* ---- details ---- */

/* Strings of a detail: a chain of pieces. */
struct piece {
    struct piece *next;
    char text[];
};

const char *slurm_detail_str(struct adapter_job_detail *d, const char *s)
{
    size_t n = s ? strlen(s) : 0;
    struct piece *p;

    if (n == 0 || !(p = malloc(sizeof(*p) + n + 1)))
        return "";
    memcpy(p->text, s, n + 1);
    p->next = d->priv_;
    d->priv_ = p;
    return p->text;
}

struct adapter_job_detail *slurm_detail_new(const struct adapter_job *job)
{
    struct adapter_job_detail *d = calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    d->job = *job;
    d->job.state_text = slurm_detail_str(d, job->state_text);
    d->job.reason = slurm_detail_str(d, job->reason);
    d->job.nodes = slurm_detail_str(d, job->nodes);
    d->job.user = slurm_detail_str(d, job->user);
    d->job.account = slurm_detail_str(d, job->account);
    d->job.partition = slurm_detail_str(d, job->partition);
    d->job.qos = slurm_detail_str(d, job->qos);
    d->job.dependency = slurm_detail_str(d, job->dependency ? job->dependency : "");
    d->name = d->comment = d->workdir = d->stdout_path = d->stderr_path = d->stdout_pattern = d->excluded_nodes =
        d->required_nodes = d->features = d->reservation = "";
    return d;
}

struct adapter_job_detail *adapter_job_detail_free(struct adapter_job_detail *d)
{
    if (d) {
        for (struct piece *p = d->priv_, *next; p; p = next) {
            next = p->next;
            free(p);
        }
        free(d->parts);
        free(d);
    }
    return NULL;
}

void slurm_nonce(char out[SLURM_NONCE_SIZE])
{
    static const char hex[] = "0123456789abcdef";
    uint8_t raw[16];

    /* no digit in front: it would be read as a field width */
    if (getrandom(raw, sizeof(raw), 0) != (ssize_t) sizeof(raw))
        abort();
    out[0] = '@';
    out[1] = 'x';
    for (size_t i = 0; i < sizeof(raw); i++) {
        out[2 + 2 * i] = hex[raw[i] >> 4];
        out[3 + 2 * i] = hex[raw[i] & 15];
    }
    out[34] = '@';
    out[35] = '\0';
}

/* "1-02:03:04", "02:03:04", "03:04", "UNLIMITED" */
static int64_t time_limit(const char *s)
{
    int64_t days = 0, part[3] = { 0 };
    size_t n = 0;

    if (strcmp(s, "UNLIMITED") == 0)
        return -1;
    for (;;) {
        int64_t v = 0;
        if (!isdigit((unsigned char) *s))
            return 0;
        for (; isdigit((unsigned char) *s) && v < INT32_MAX; s++)
            v = v * 10 + (*s - '0');
        if (*s == '-' && n == 0 && days == 0) {
            days = v;
            s++;
            continue;
        }
        if (n == ADV_ARRAY_LEN(part))
            return 0;
        part[n++] = v;
        if (*s != ':')
            break;
        s++;
    }
    if (*s || n < 2)
        return 0;
    return n == 3 ? ((days * 24 + part[0]) * 60 + part[1]) * 60 + part[2] : (days * 24 * 60 + part[0]) * 60 + part[1];
}

static const char *expanded(struct adapter_job_detail *d, const char *pattern)
{
    ADV_AUTO_DONE(adv_buf) b = { 0 };

    adv_buf_init(&b, 8192);
    if (slurm_expand_path(pattern, &d->job, d->name, d->workdir, &b, NULL) < 0)
        return "";
    return slurm_detail_str(d, b.data);
}

/* The name of an output file as it was asked for. 22.05 shows an array task without one as if it were no task:
 * "<workdir>/slurm-<number>.out"; the file is slurm-<array>_<task>.out all the same. */
static const char *as_submitted(const struct adapter_job_detail *d, const char *path)
{
    size_t dir = strlen(d->workdir);
    char dflt[32];

    (void) snprintf(dflt, sizeof(dflt), "/slurm-%u.out", d->job.raw_id);
    if (d->job.array_task >= 0 && strncmp(path, d->workdir, dir) == 0 && strcmp(path + dir, dflt) == 0)
        return "";
    return path;
}

static struct adapter_job_detail *make_detail(char *const *f, const struct adapter_job *job)
{
    struct adapter_job_detail *d = slurm_detail_new(job);

    if (!d)
        return NULL;
    d->name = slurm_detail_str(d, f[F_NAME]);
    d->comment = slurm_detail_str(d, plain(f[F_COMMENT]));
    d->workdir = slurm_detail_str(d, plain(f[F_WORKDIR]));
    d->required_nodes = slurm_detail_str(d, plain(f[F_REQNODES]));
    d->features = slurm_detail_str(d, plain(f[F_FEATURES]));
    d->reservation = slurm_detail_str(d, plain(f[F_RESERVATION]));
    d->time_limit_s = time_limit(f[F_LIMIT]);
    if (job->batch) { /* srun and salloc write to a terminal */
        const char *err = as_submitted(d, plain(f[F_STDERR]));
        d->stdout_pattern = slurm_detail_str(d, as_submitted(d, plain(f[F_STDOUT])));
        d->stdout_path = expanded(d, d->stdout_pattern);
        d->stderr_path = *err ? expanded(d, err) : d->stdout_path;
    }
    return d;
}

static int by_offset(const void *a, const void *b)
{
    const struct adapter_part *x = a, *y = b;
    size_t n = strlen(x->id), m = strlen(y->id);

    return n != m ? (n > m) - (n < m) : strcmp(x->id, y->id); /* the same base */
}

/* Texts still point into what squeue printed. */
static int add_part(struct adapter_part **parts, size_t *n, char *const *f, const struct adapter_job *job)
{
    if (*n == ADAPTER_PARTS_MAX)
        return -ADV_DATA_LOSS;
    if (!*parts && !(*parts = calloc(ADAPTER_PARTS_MAX, sizeof(**parts))))
        return -ADV_RESOURCE_EXHAUSTED;
    struct adapter_part *p = &(*parts)[(*n)++];
    *p = (struct adapter_part) { .state = job->state, .completing = job->completing, .requeueable = job->requeueable,
                                 .restart_count = job->restart_count, .submit_s = job->submit_s,
                                 .eligible_s = job->eligible_s, .node_count = job->node_count, .nodes = job->nodes,
                                 .partition = job->partition, .features = plain(f[F_FEATURES]),
                                 .reservation = plain(f[F_RESERVATION]), .required_nodes = plain(f[F_REQNODES]),
                                 .excluded_nodes = "" };
    memcpy(p->id, job->id, sizeof(p->id));
    return 0;
}

/* The components' texts become the detail's own. */
static int keep_parts(struct adapter_job_detail *d, struct adapter_part *parts, size_t n)
{
    d->parts = parts;
    d->n_parts = n;
    for (size_t i = 0; i < n; i++) {
        struct adapter_part *p = &parts[i];
        const char **texts[] = { &p->nodes, &p->partition, &p->features, &p->reservation, &p->required_nodes };
        for (size_t k = 0; k < ADV_ARRAY_LEN(texts); k++)
            *texts[k] = slurm_detail_str(d, *texts[k]);
    }
    qsort(parts, n, sizeof(*parts), by_offset);
    return slurm_join_parts(d);
}

int slurm_parse_detail(char *text, size_t len, const char *nonce, const char *id, struct adapter_job_detail **ret,
                       struct adv_err *err)
{
    ADV_AUTO(adapter_job_detail) d = NULL;
    adv_auto_free struct adapter_part *parts = NULL;
    char *cursor = text, *end = text + len;
    size_t n_parts = 0;
    unsigned seen = 0;

    if (memchr(text, '\0', len))
        return adv_err_set(err, ADV_DATA_LOSS, "squeue: NUL in its answer");
    for (; cursor < end; seen++) {
        char *f[DETAIL_FIELDS];
        struct adapter_job job;

        for (size_t i = 0; i < DETAIL_FIELDS; i++)
            if (!(f[i] = take(&cursor, end, nonce)))
                return adv_err_set(err, ADV_DATA_LOSS, "squeue: record %u lacks field %zu", seen + 1, i + 1);
        if (cursor >= end || *cursor != '\n')
            return adv_err_set(err, ADV_DATA_LOSS, "squeue: record %u lacks its end", seen + 1);
        cursor++;
        if (parse_job(f, &job) < 0)
            return adv_err_set(err, ADV_DATA_LOSS, "squeue: record %u is not as asked for", seen + 1);
        /* "56" means the leader and with it the whole set; "56+0" does in journals of earlier versions */
        char bare[ADAPTER_ID_SIZE], first[ADAPTER_ID_SIZE];
        (void) snprintf(bare, sizeof(bare), "%u", job.het_id);
        (void) snprintf(first, sizeof(first), "%u+0", job.het_id);
        bool of_set = job.het_id && (strcmp(bare, id) == 0 || strcmp(first, id) == 0);
        if (of_set && add_part(&parts, &n_parts, f, &job) < 0)
            return adv_err_set(err, ADV_DATA_LOSS, "job %s: more than %d components", id, ADAPTER_PARTS_MAX);
        bool meant = job.het_id ? job.het_offset == 0 && of_set : strcmp(job.id, id) == 0;
        if (d || !meant)
            continue;
        if (!(d = make_detail(f, &job)))
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "job %s: no memory", id);
    }
    if (d) {
        if (n_parts && keep_parts(d, ADV_STEAL(parts), n_parts) < 0)
            return adv_err_set(err, ADV_DATA_LOSS, "job %s: its components cannot be put together", id);
        *ret = ADV_STEAL(d);
        return 0;
    }
    if (seen)
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "job %s: address an array's task, or a heterogeneous job by its leader's number", id);
    return adv_err_set(err, ADV_NOT_FOUND, "job %s: not in the queue", id);
}

int slurm_parse_excluded(char *text, size_t len, struct adapter_job_detail *d, struct adv_err *err)
{
    char *cursor = text, *end = text + len, *line;
    size_t want = d->n_parts ? d->n_parts : 1, got = 0;
    bool leader = false;

    if (memchr(text, '\0', len))
        return adv_err_set(err, ADV_DATA_LOSS, "squeue: NUL in its answer");
    while (got < want && (line = take(&cursor, end, "\n"))) {
        char *line_end = cursor - 1, *p = line;
        char *id = take(&p, line_end, "|"), *submit = id ? take(&p, line_end, "|") : NULL;
        int64_t submit_s;

        if (!submit)
            break;
        if (num(submit, 0, INT64_MAX, 0, &submit_s) < 0)
            continue;
        for (size_t i = 0; i < d->n_parts; i++) {
            if (strcmp(id, d->parts[i].id) != 0 || submit_s != d->parts[i].submit_s)
                continue;
            d->parts[i].excluded_nodes = slurm_detail_str(d, plain(p));
            got++;
            if (i == 0) {
                d->excluded_nodes = d->parts[0].excluded_nodes;
                leader = true;
            }
        }
        if (d->n_parts || strcmp(id, d->job.id) != 0 || submit_s != d->job.submit_s)
            continue;
        d->excluded_nodes = slurm_detail_str(d, plain(p));
        leader = true;
        got++;
    }
    if (got >= want && leader)
        return 0;
    return adv_err_set(err, ADV_ABORTED, "job %s: changed between two reads", d->job.id);
}

/* {"set":true,"infinite":false,"number":5} */
static int json_number(const json_t *o, const char *key, int64_t *ret, bool *ret_infinite)
{
    json_t *v = NULL;
    bool set = false;

    *ret_infinite = false;
    if (adv_json_get_obj(o, key, &v, NULL) < 0 || adv_json_get_bool(v, "set", &set, NULL) < 0)
        return -ADV_NOT_FOUND;
    (void) !adv_json_get_bool(v, "infinite", ret_infinite, NULL);
    if (!set)
        return -ADV_NOT_FOUND;
    return adv_json_get_i64(v, "number", 0, INT64_MAX, ret, NULL);
}

static bool json_is_job(const json_t *o, const struct adapter_job *job)
{
    int64_t id = 0, task = -1, submit = 0;
    bool inf;

    if (adv_json_get_i64(o, "job_id", 0, UINT32_MAX, &id, NULL) < 0 || id != job->raw_id)
        return false;
    if (job->array_task >= 0 && json_number(o, "array_task_id", &task, &inf) == 0 && task != job->array_task)
        return false;
    return json_number(o, "submit_time", &submit, &inf) == 0 && submit == job->submit_s;
}

/* ["FAILED","COMPLETING"]: the base state beside the flag. */
static enum adapter_job_state json_base_state(const json_t *o)
{
    enum adapter_job_state found = ADAPTER_JOB_UNKNOWN_STATE;
    json_t *list = NULL, *v;
    size_t i;

    if (adv_json_get_arr(o, "job_state", &list, NULL) < 0)
        return found;
    json_array_foreach(list, i, v) {
        bool completing;
        enum adapter_job_state s =
            json_is_string(v) ? slurm_state(json_string_value(v), &completing) : ADAPTER_JOB_UNKNOWN_STATE;
        if (s != ADAPTER_JOB_UNKNOWN_STATE && found == ADAPTER_JOB_UNKNOWN_STATE)
            found = s;
    }
    return found;
}

enum adapter_job_state slurm_parse_end_state(const char *text, size_t len, const struct adapter_job *job)
{
    ADV_JSON_AUTO json_t *root = NULL;
    json_t *jobs = NULL;

    if (adv_json_parse(text, len, 16u << 20, &root, NULL) < 0 || adv_json_get_arr(root, "jobs", &jobs, NULL) < 0)
        return ADAPTER_JOB_UNKNOWN_STATE;
    for (size_t i = 0; i < json_array_size(jobs); i++)
        if (json_is_job(json_array_get(jobs, i), job))
            return json_base_state(json_array_get(jobs, i));
    return ADAPTER_JOB_UNKNOWN_STATE;
}

/* ---- nodes ---- */

static void node_state(const char *text, struct adapter_node *n)
{
    static const struct {
        const char *word;
        enum adapter_node_base base;
        unsigned flags;
    } table[] = {
        { "idle", ADAPTER_NODE_IDLE, 0 },
        { "mixed", ADAPTER_NODE_MIXED, 0 },
        { "allocated", ADAPTER_NODE_ALLOCATED, 0 },
        { "completing", ADAPTER_NODE_ALLOCATED, ADAPTER_NODE_COMPLETING },
        { "down", ADAPTER_NODE_DOWN, 0 },
        { "error", ADAPTER_NODE_DOWN, 0 },
        { "future", ADAPTER_NODE_FUTURE, 0 },
        { "drained", ADAPTER_NODE_IDLE, ADAPTER_NODE_DRAIN },
        { "draining", ADAPTER_NODE_MIXED, ADAPTER_NODE_DRAIN },
        { "fail", ADAPTER_NODE_IDLE, ADAPTER_NODE_FAIL },
        { "failing", ADAPTER_NODE_MIXED, ADAPTER_NODE_FAIL },
        { "maint", ADAPTER_NODE_IDLE, ADAPTER_NODE_MAINT },
        { "reserved", ADAPTER_NODE_IDLE, ADAPTER_NODE_RESERVED },
        { "planned", ADAPTER_NODE_IDLE, ADAPTER_NODE_PLANNED },
        { "inval", ADAPTER_NODE_DOWN, 0 },
        { "reboot", ADAPTER_NODE_IDLE, ADAPTER_NODE_REBOOT },
        { "perfctrs", ADAPTER_NODE_ALLOCATED, 0 },
        { "powered_down", ADAPTER_NODE_IDLE, ADAPTER_NODE_POWERED_DOWN },
        { "powering_down", ADAPTER_NODE_IDLE, ADAPTER_NODE_POWERED_DOWN },
        { "powering_up", ADAPTER_NODE_IDLE, ADAPTER_NODE_POWERED_DOWN },
        { "blocked", ADAPTER_NODE_IDLE, 0 },
    };
    size_t n_word = strcspn(text, "*~#!%$@^-+"); /* sinfo's suffixes */

    n->state_text = text;
    for (size_t i = 0; i < ADV_ARRAY_LEN(table); i++)
        if (strlen(table[i].word) == n_word && strncasecmp(text, table[i].word, n_word) == 0) {
            n->base = table[i].base;
            n->flags = table[i].flags;
        }
    for (const char *s = text + n_word; *s; s++) {
        if (*s == '*')
            n->flags |= ADAPTER_NODE_NOT_RESPONDING;
        else if (*s == '$')
            n->flags |= ADAPTER_NODE_MAINT;
        else if (*s == '~' || *s == '#' || *s == '!' || *s == '%')
            n->flags |= ADAPTER_NODE_POWERED_DOWN;
        else if (*s == '@' || *s == '^')
            n->flags |= ADAPTER_NODE_REBOOT;
        else if (*s == '-')
            n->flags |= ADAPTER_NODE_PLANNED;
    }
}

struct node_list_priv {
    char *text;
    char *partitions;
};

static int by_name(const void *a, const void *b)
{
    const struct adapter_node *x = a, *y = b;
    int r = strcmp(x->name, y->name);

    return r ? r : strcmp(x->partitions, y->partitions);
}

struct adapter_node_list *slurm_parse_nodes(char *text, size_t len)
{
    struct adapter_node_list *l = calloc(1, sizeof(*l));
    struct node_list_priv *priv = calloc(1, sizeof(*priv));
    char *cursor = text, *end = text + len;
    size_t cap = 0, part_bytes = 1, kept = 0;

    if (!l || !priv) {
        free(l);
        free(priv);
        free(text);
        return NULL;
    }
    priv->text = text;
    l->priv_ = priv;
    if (memchr(text, '\0', len))
        goto malformed;
    while (cursor < end) {
        char *p = cursor, *line_end;
        char *f[5];

        /* name, state, partition, features hold no separator; the reason is an administrator's text and may hold anything,
         * also a newline: continue until a line ends with the separator. */
        for (int i = 0; i < 4; i++) {
            if (!(f[i] = take(&p, end, "|")) || strchr(f[i], '\n'))
                goto malformed;
        }
        f[4] = p;
        line_end = memmem(p, (size_t) (end - p), "|\n", 2);
        if (!line_end)
            goto malformed;
        *line_end = '\0';
        cursor = line_end + 2;
        if (l->n_nodes == cap) {
            size_t want = cap ? cap * 2 : 64;
            struct adapter_node *more = realloc(l->nodes, want * sizeof(*more));
            if (!more) {
                (void) adv_err_set(&l->err, ADV_RESOURCE_EXHAUSTED, "sinfo: no memory");
                return l;
            }
            l->nodes = more;
            cap = want;
        }
        struct adapter_node *n = &l->nodes[l->n_nodes++];
        *n = (struct adapter_node) { .name = f[0], .partitions = f[2], .features = plain(f[3]) };
        n->reason = strcmp(f[4], "none") == 0 ? "" : f[4];
        size_t pl = strlen(f[2]);
        if (pl && f[2][pl - 1] == '*') /* the default partition is marked */
            f[2][pl - 1] = '\0';
        node_state(f[1], n);
        part_bytes += pl + 1;
    }
    /* sinfo prints a line for each partition of a node: join them */
    if (!(priv->partitions = malloc(part_bytes))) {
        (void) adv_err_set(&l->err, ADV_RESOURCE_EXHAUSTED, "sinfo: no memory");
        return l;
    }
    char *w = priv->partitions;
    if (l->n_nodes)
        qsort(l->nodes, l->n_nodes, sizeof(*l->nodes), by_name);
    for (size_t i = 0; i < l->n_nodes; kept++) {
        struct adapter_node n = l->nodes[i];
        const char *name = n.name;

        char *joined = w;
        for (size_t first = i; i < l->n_nodes && strcmp(l->nodes[i].name, name) == 0; i++) {
            if (i > first)
                *w++ = ',';
            w = stpcpy(w, l->nodes[i].partitions);
        }
        *w++ = '\0';
        n.partitions = joined;
        l->nodes[kept] = n;
    }
    l->n_nodes = kept;
    l->complete = true;
    return l;

malformed:
    (void) adv_err_set(&l->err, ADV_DATA_LOSS, "sinfo: not as asked for");
    return l;
}

struct adapter_node_list *adapter_node_list_free(struct adapter_node_list *l)
{
    if (l) {
        struct node_list_priv *priv = l->priv_;
        if (priv) {
            free(priv->text);
            free(priv->partitions);
            free(priv);
        }
        free(l->nodes);
        free(l);
    }
    return NULL;
}

/* ---- the site ---- */

/* Value of a "Key   = value" line, cut to @cap. */
static bool config_value(const char *text, size_t len, const char *key, char *out, size_t cap)
{
    size_t kn = strlen(key);

    for (const char *p = text, *end = text + len, *nl; p < end; p = nl + 1) {
        nl = memchr(p, '\n', (size_t) (end - p));
        if (!nl)
            nl = end;
        if ((size_t) (nl - p) <= kn || strncasecmp(p, key, kn) != 0 || (p[kn] != ' ' && p[kn] != '='))
            continue;
        const char *v = memchr(p, '=', (size_t) (nl - p));
        if (!v)
            continue;
        for (v++; v < nl && *v == ' '; v++)
            ;
        size_t n = (size_t) (nl - v);
        while (n && isspace((unsigned char) v[n - 1]))
            n--;
        if (n >= cap)
            n = cap - 1;
        memcpy(out, v, n);
        out[n] = '\0';
        return true;
    }
    return false;
}

int slurm_parse_config(const char *text, size_t len, struct slurm_site *ret, struct adv_err *err)
{
    struct slurm_site s = { 0 };
    char v[256];

    if (!config_value(text, len, "ClusterName", s.cluster, sizeof(s.cluster)))
        return adv_err_set(err, ADV_DATA_LOSS, "scontrol show config: no ClusterName in it");
    (void) config_value(text, len, "SLURM_VERSION", s.version, sizeof(s.version));
    if (config_value(text, len, "SlurmUser", s.slurm_user, sizeof(s.slurm_user)))
        s.slurm_user[strcspn(s.slurm_user, "(")] = '\0';
    /* not told counts as hidden: unknown sight is not full sight */
    s.private_jobs = !config_value(text, len, "PrivateData", v, sizeof(v)) || strstr(v, "jobs") || strstr(v, "all");
    s.accounting = config_value(text, len, "AccountingStorageType", v, sizeof(v)) && strstr(v, "slurmdbd");
    if (config_value(text, len, "MinJobAge", v, sizeof(v))) {
        v[strcspn(v, " ")] = '\0';
        (void) !adv_parse_i64(v, 0, INT32_MAX, &s.min_job_age_s, NULL);
    }
    *ret = s;
    return 0;
}

int slurm_parse_reservation(const char *text, size_t len, struct adv_buf *out, struct adv_err *err)
{
    const char *v = strnlen(text, len) == len ? strstr(text, " Nodes=") : NULL; /* the name before it holds no blank */
    size_t n = 0;

    if (v) {
        v += strlen(" Nodes=");
        n = strcspn(v, " \n");
    }
    if (!n || strncmp(v, "(null)", n) == 0 || adv_buf_append(out, v, n) < 0)
        return adv_err_set(err, ADV_DATA_LOSS, "scontrol show reservation: no nodes in its answer");
    return 0;
}

enum adapter_privilege slurm_parse_assoc(const char *text, size_t len, const char *user)
{
    adv_auto_free char *want = NULL;
    const char *line, *level;

    /* names hold neither blanks nor newlines, so "UserName=x(" at a line's start is slurmctld's own */
    if (asprintf(&want, "UserName=%s(", user) < 0) {
        want = NULL;
        return ADAPTER_PRIVILEGE_UNKNOWN;
    }
    if (strnlen(text, len) < len)
        return ADAPTER_PRIVILEGE_UNKNOWN;
    for (line = strstr(text, want); line; line = strstr(line + 1, want))
        if (line == text || line[-1] == '\n')
            break;
    if (!line)
        return ADAPTER_PRIVILEGE_UNKNOWN;
    const char *stop = strchr(line, '\n');
    level = strstr(line, " AdminLevel=");
    if (!level || (stop && level > stop))
        return ADAPTER_PRIVILEGE_UNKNOWN;
    level += strlen(" AdminLevel=");
    if (adv_startswith(level, "Operator"))
        return ADAPTER_PRIVILEGE_OPERATOR;
    if (adv_startswith(level, "Admin"))
        return ADAPTER_PRIVILEGE_ADMIN;
    return adv_startswith(level, "None") ? ADAPTER_PRIVILEGE_NONE : ADAPTER_PRIVILEGE_UNKNOWN;
}

static bool acct_exit(const char *text, struct adapter_exit *ret)
{
    char part[16];
    const char *colon = strchr(text, ':');
    int64_t code, sig;

    *ret = (struct adapter_exit) { .known = false };
    if (!colon || (size_t) (colon - text) >= sizeof(part))
        return false;
    memcpy(part, text, (size_t) (colon - text));
    part[colon - text] = '\0';
    if (num(part, 0, 255, 0, &code) < 0 || num(colon + 1, 0, 255, 0, &sig) < 0)
        return false;
    *ret = (struct adapter_exit) { true, (int) code, (int) sig };
    return true;
}

void slurm_parse_acct(const char *text, size_t len, slurm_acct_fn fn, void *arg)
{
    enum { ID, SUBMIT, START, END, EXIT, NODES, N_BEFORE_STATE };

    for (const char *p = text, *end = text + len, *nl; p < end; p = nl + 1) {
        char *cursor, *f[N_BEFORE_STATE];
        struct slurm_acct_row row = { .submit_s = 0 };
        bool completing;
        size_t i = 0;

        nl = memchr(p, '\n', (size_t) (end - p));
        if (!nl)
            nl = end;
        size_t n = (size_t) (nl - p);
        if (memchr(p, '\0', n))
            continue;
        adv_auto_free char *line = malloc(n + 1); /* a list of nodes may be of any length: a row must not be missing for it */
        if (!line)
            abort();
        memcpy(line, p, n);
        line[n] = '\0';
        cursor = line;
        while (i < N_BEFORE_STATE && (f[i] = take(&cursor, line + n, "|")))
            i++;
        if (i < N_BEFORE_STATE || num(f[SUBMIT], 0, INT64_MAX, 0, &row.submit_s) < 0)
            continue;
        row.id = f[ID];
        /* "Unknown", "None": not known */
        if (num(f[START], 0, INT64_MAX, 0, &row.start_s) < 0)
            row.start_s = 0;
        if (num(f[END], 0, INT64_MAX, 0, &row.end_s) < 0)
            row.end_s = 0;
        (void) acct_exit(f[EXIT], &row.exit);
        row.nodes = strcmp(f[NODES], "None assigned") == 0 ? "" : f[NODES];
        row.state = slurm_state(cursor, &completing);
        row.state_text = cursor;
        fn(arg, &row);
    }
}

bool slurm_acct_canceller(const char *state_text, uint32_t *ret_uid)
{
    static const char by[] = "CANCELLED by ";
    uint64_t uid = 0;
    const char *p = state_text + sizeof(by) - 1;

    if (strncmp(state_text, by, sizeof(by) - 1) != 0 || *p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9' && uid < UINT32_MAX; p++)
        uid = 10 * uid + (uint64_t) (*p - '0');
    if (*p || uid >= UINT32_MAX) /* a name, or what is no uid */
        return false;
    *ret_uid = (uint32_t) uid;
    return true;
}

void slurm_acct_add_id(struct adv_buf *ids, const char *id)
{
    size_t n = strcspn(id, "_+"), k;

    for (const char *p = ids->len ? ids->data : ""; *p; p += k + (p[k] == ',')) {
        k = strcspn(p, ",");
        if (k == n && strncmp(p, id, n) == 0)
            return;
    }
    (void) adv_buf_appendf(ids, "%s%.*s", ids->len ? "," : "", (int) n, id);
}

bool slurm_acct_covers(const char *row_id, const char *id)
{
    size_t base = strcspn(id, "_");
    int64_t task, lo, hi;
    char part[32];

    if (strcmp(row_id, id) == 0)
        return true;
    if (id[base] == '\0' && strncmp(row_id, id, base) == 0 && strcmp(row_id + base, "+0") == 0)
        return true; /* a heterogeneous job's leader */
    if (id[base] != '_' || strncmp(row_id, id, base + 1) != 0 || row_id[base + 1] != '[' ||
        adv_parse_i64(id + base + 1, 0, UINT32_MAX, &task, NULL) < 0)
        return false;
    for (const char *p = row_id + base + 2; *p && *p != ']' && *p != '%'; p += *p == ',') {
        size_t n = strcspn(p, ",]%");
        char *dash;

        if (n >= sizeof(part))
            return false;
        memcpy(part, p, n);
        part[n] = '\0';
        p += n;
        if ((dash = strchr(part, '-')))
            *dash++ = '\0';
        if (adv_parse_i64(part, 0, UINT32_MAX, &lo, NULL) < 0)
            return false;
        hi = lo;
        if (dash && adv_parse_i64(dash, 0, UINT32_MAX, &hi, NULL) < 0)
            return false;
        if (task >= lo && task <= hi)
            return true;
    }
    return false;
}
