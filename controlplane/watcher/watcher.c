/* SPDX-License-Identifier: Apache-2.0 */

/* A scan keeps the unfinished last line of its stream and little else. Whole lines are handed to the engine in blocks,
 * straight from the caller's bytes where those need no cleaning.
 *
 * Each line yields at most one finding of each type, by the rule of highest precedence, so that a generic rule does not
 * echo a specific one. A `healthy` rule calms the signatures of its line up to its own precedence.
 *
 * Python's last line of a traceback is what matters, and ranks interleave: open tracebacks are remembered by printer
 * (the launcher's prefix), a few of them, for a bounded distance.
 *
 * Repeats: thousands of ranks print the same fault, and some warnings go on for hours. A rule speaks REPEATS_SHOWN times
 * (one that leads to hosts as often as there are ranks), then at each power of two; progress resets the count, because a fault
 * after progress is news. Progress itself is told when the step of its rule changes. All of this counts lines, not time, so it does
 * not depend on how bytes arrive.
 *
 * After a gap the first piece up to a line end is not judged: the tail of "caught KeyError: x" would read as an uncaught one.
 * The unfinished line before a gap is dropped for the same reason.
 *
 * Tried and left: Hyperscan streams (see engine.c), and one finding for each rule of a line (a flood without use). */

#include "controlplane/watcher/watcher.h"


#include "common/buf.h"
#include "common/utf8.h"
#include "controlplane/watcher/engine.h"
#include "controlplane/watcher/hosts.h"
#include "controlplane/watcher/line.h"
#include "controlplane/watcher/pattern.h"
#include "controlplane/watcher/ranks.h"

#define TRACEBACKS 8
/* a traceback longer than this is not waited for: deep recursions print 100 kB */
#define TRACEBACK_BYTES 262144
#define CAUGHT_BYTES    1024  /* between the announcement of a caught exception and its traceback */
#define CAUGHT_SPAN     16384 /* such a traceback is short */
/* precedence up to which a caught exception is no signature, as for most healthy rules */
#define CAUGHT_CALMS  79
#define SERIES        6 /* progress rules that speak in one stream; real ones have one to three */
#define REPEATS_SHOWN 16
/* a rank a line: from some of them one could not tell how many they are */
#define LEADS_SHOWN   (HOSTS_RANKS_MAX + REPEATS_SHOWN)
#define PRINTERS      128 /* of steps; of more the first ones are known */
#define CARRY_KEPT    1024 /* an idle scan keeps at most this much room for an unfinished line */

#define UNPLACED      4 /* faults whose host is not known yet */
/* between the lines of one table */
#define TABLE_BYTES 256

#define MAX_STEP INT64_C(999999999999)

struct repeat {
    uint16_t generation, count;
};

/* Faults that named a rank whose host was not known: launchers say it when they tell of the end. */
struct unplaced {
    struct {
        bool open;
        uint16_t generation;
        struct watcher_finding as_told;
    } f[UNPLACED];
    unsigned next;
};

/* A host named on a line of its own, above its rank. */
struct table {
    uint64_t offset;
    uint32_t key;
    char host[HOSTS_NAME_SIZE];
};

struct printers {
    struct {
        uint32_t key;
        int64_t step;
    } p[PRINTERS];
    unsigned n;
};

struct watcher_scan {
    struct watcher_rules *rules;
    const struct watcher_rule *list;
    struct engine *engine;
    size_t n_rules;
    enum watcher_scope stream;
    watcher_finding_fn fn;
    void *ctx;
    char *node;

    char *carry; /* the unfinished line */
    size_t carry_len, carry_cap;
    uint64_t carry_offset;
    bool skipping; /* up to the next line end */
    uint64_t next_offset;
    bool explain;

    struct {
        uint32_t key;
        bool open, caught;
        uint64_t offset;
    } traceback[TRACEBACKS];
    struct {
        int64_t step;
        uint16_t rule;
        uint16_t age;
    } series[SERIES];
    struct repeat *repeats; /* by rule; allocated with the first signature */
    uint16_t generation;    /* rises with progress */
    int64_t last_step;
    struct watcher_pattern *own; /* the job's pattern; then @own_at is how far the block was read by it */
    size_t own_at;
    const char *block;
    struct ranks *ranks; /* allocated with the first step of a named rank */
    struct printers *printers; /* allocated with the first step */
    struct hosts *hosts; /* allocated when the log says where a rank runs */
    struct unplaced *unplaced;   /* allocated with the first */
    struct table *table;         /* allocated with the first */
    struct watcher_scan_stats stats;

    /* while a block is at the engine */
    uint64_t block_offset;
    int64_t observe_wall_us;
};

static const char *const type_names[] = { "SIGNATURE",  "NOTICE",  "PROGRESS",
                                          "CHECKPOINT", "RESUMED", "FINISHED", "RECOVERED", "CALMED" };

const char *watcher_finding_type_name(enum watcher_finding_type type)
{
    return (size_t) type < ADV_ARRAY_LEN(type_names) ? type_names[type] : "?";
}

/* --- what a line says --- */

/* -1: none, not a number, or above @max. */
static int64_t number(struct engine_span s, int64_t max)
{
    int64_t v = 0;

    if (!s.s || s.len == 0)
        return -1;
    for (size_t i = 0; i < s.len; i++) {
        if (s.s[i] < '0' || s.s[i] > '9')
            return -1;
        v = v * 10 + (s.s[i] - '0');
        if (v > max)
            return -1;
    }
    return v;
}

static void put_text(char *dst, size_t cap, const char *s, size_t len)
{
    (void) adv_utf8_lossy_buf(dst, cap, s, len < cap ? len : cap);
}

static bool believed(const struct watcher_scan *s, const struct watcher_rule *r)
{
    bool fault = r->kind == WATCHER_KIND_SIGNATURE || r->kind == WATCHER_KIND_NOTICE;

    if (r->kind == WATCHER_KIND_HEALTHY)
        return true;
    if (s->stream == WATCHER_SCOPE_APPLICATION)
        return !fault || r->scope != WATCHER_SCOPE_SCHEDULER;
    return fault && (r->scope == s->stream || r->scope == WATCHER_SCOPE_ANY);
}

static int find_traceback(const struct watcher_scan *s, uint32_t key, uint64_t offset)
{
    for (int i = 0; i < TRACEBACKS; i++) {
        if (s->traceback[i].open && s->traceback[i].key == key &&
            offset - s->traceback[i].offset <= TRACEBACK_BYTES)
            return i;
    }
    return -1;
}

static void open_traceback(struct watcher_scan *s, uint32_t key, uint64_t offset, bool caught)
{
    int slot = 0;
    bool known = false;

    for (int i = 0; i < TRACEBACKS; i++) {
        if (s->traceback[i].open && s->traceback[i].key == key) {
            slot = i;
            known = true;
            break;
        }
        if (s->traceback[slot].open &&
            (!s->traceback[i].open || s->traceback[i].offset < s->traceback[slot].offset))
            slot = i;
    }
    /* "Exception ignored in" comes before its traceback */
    s->traceback[slot].caught = caught || (known && s->traceback[slot].caught &&
                                           offset - s->traceback[slot].offset < CAUGHT_BYTES);
    s->traceback[slot].key = key;
    s->traceback[slot].open = true;
    s->traceback[slot].offset = offset;
}

/* True when the step of this rule is not the one it told last. */
static bool step_moved(struct watcher_scan *s, uint16_t rule, int64_t step)
{
    int slot = 0;

    for (int i = 0; i < SERIES; i++) {
        if (s->series[i].age > 0 && s->series[i].rule == rule) {
            s->series[i].age = UINT16_MAX;
            if (s->series[i].step == step)
                return false;
            s->series[i].step = step;
            return true;
        }
        if (s->series[i].age > 0)
            s->series[i].age -= s->series[i].age > 1;
        if (s->series[i].age < s->series[slot].age)
            slot = i;
    }
    s->series[slot].rule = rule;
    s->series[slot].step = step;
    s->series[slot].age = UINT16_MAX;
    return true;
}

/* Counts one more line of @rule; true when it is to be told. Without memory all are. */
static bool worth_telling(struct watcher_scan *s, size_t rule, uint32_t *ret_count)
{
    struct repeat *r;
    unsigned shown;

    *ret_count = 1;
    if (!s->repeats)
        s->repeats = calloc(s->n_rules, sizeof(*s->repeats));
    if (!s->repeats)
        return true;
    r = &s->repeats[rule];
    if (r->generation != s->generation)
        *r = (struct repeat){ .generation = s->generation };
    if (r->count < UINT16_MAX)
        r->count++;
    *ret_count = r->count;
    shown = s->list[rule].blames == WATCHER_BLAMES_LEAD ? LEADS_SHOWN : REPEATS_SHOWN;
    return r->count <= shown || (r->count & (r->count - 1)) == 0;
}

/* Without memory nobody is behind. */
static void note_rank(struct watcher_scan *s, int rank, int64_t step)
{
    if (rank >= 0 && !s->ranks)
        s->ranks = calloc(1, sizeof(*s->ranks));
    if (s->ranks)
        ranks_step(s->ranks, rank, step);
}

/* Many ranks may write into one file, each a block at a time: then the steps of one stand behind later ones of another. They
 * are told from steps that are done again by that one printer's own go on. Who goes back himself does so with all others. */
static bool came_late(struct watcher_scan *s, uint32_t key, int64_t step)
{
    struct printers *ps = s->printers;
    unsigned i = 0;

    if (!ps && !(ps = s->printers = calloc(1, sizeof(*ps))))
        return false;
    while (i < ps->n && ps->p[i].key != key)
        i++;
    if (i == PRINTERS)
        return false;
    if (i < ps->n && step < ps->p[i].step)
        ps->n = i = 0; /* what the others said is of before */
    if (i == ps->n)
        ps->n++;
    ps->p[i].key = key;
    ps->p[i].step = step;
    return ps->n > 1 && step < s->last_step;
}

static const char *host_of(const struct watcher_scan *s, int rank)
{
    return s->hosts ? hosts_of(s->hosts, rank) : NULL;
}

static void forget_places(struct watcher_scan *s)
{
    if (s->hosts)
        memset(s->hosts, 0, sizeof(*s->hosts));
    if (s->unplaced)
        memset(s->unplaced, 0, sizeof(*s->unplaced));
}

static void keep_unplaced(struct watcher_scan *s, const struct watcher_finding *f)
{
    struct unplaced *u = s->unplaced;
    unsigned i;

    if (!u && !(u = s->unplaced = calloc(1, sizeof(*u))))
        return;
    i = u->next++ % UNPLACED;
    u->f[i].open = true;
    u->f[i].generation = s->generation;
    u->f[i].as_told = *f;
}

/* Is @value in "0-7,12"? What is no such list holds nothing behind its fault. */
static bool in_list(struct engine_span list, int value)
{
    int64_t first = -1, v = -1;

    for (size_t i = 0; i <= list.len; i++) {
        char c = i < list.len ? list.s[i] : ',';
        if (c >= '0' && c <= '9') {
            v = (v < 0 ? 0 : v * 10) + (c - '0');
            if (v > 999999)
                return false;
        } else if (v < 0 || (c != '-' && c != ',') || (c == '-' && first >= 0)) {
            return false;
        } else if (c == '-') {
            first = v;
            v = -1;
        } else {
            if (value >= (first < 0 ? v : first) && value <= v)
                return true;
            first = v = -1;
        }
    }
    return false;
}

/* The line at @offset says where @rank, or the launcher's @tasks, ran: their faults are told once more, with the host. What
 * came before progress or a restart is over. */
static void tell_placed(struct watcher_scan *s, int rank, struct engine_span tasks, struct engine_span host, size_t offset)
{
    struct unplaced *u = s->unplaced;

    for (unsigned i = 0; u && i < UNPLACED; i++) {
        struct watcher_finding f = u->f[i].as_told;
        bool meant = tasks.s ? f.task >= 0 && in_list(tasks, f.task) : f.rank == rank;

        if (!u->f[i].open || u->f[i].generation != s->generation || !meant)
            continue;
        u->f[i].open = false;
        f.offset = s->block_offset + offset;
        f.observe_wall_us = s->observe_wall_us;
        f.step = f.total = -1;
        f.count = 1;
        f.calmed_by = NULL;
        put_text(f.node, sizeof(f.node), host.s, host.len);
        memcpy(f.reporter, f.node, sizeof(f.node));
        s->stats.findings++;
        s->fn(s->ctx, &f);
    }
}

static void begin_table(struct watcher_scan *s, struct engine_span host, const struct line_prefix *prefix, uint64_t offset)
{
    if (host.len >= HOSTS_NAME_SIZE || (!s->table && !(s->table = calloc(1, sizeof(*s->table)))))
        return;
    memcpy(s->table->host, host.s, host.len);
    s->table->host[host.len] = '\0';
    s->table->key = prefix->key;
    s->table->offset = offset;
}

/* A rank with its host is of the start, and holds for what comes; launchers' tasks, and a table's ranks, are of the end, and
 * hold for what came: the next start may be elsewhere. Without memory it is not known. */
static void note_host(struct watcher_scan *s, const struct engine_match *m, const struct line_prefix *prefix, size_t at)
{
    const struct engine_span *cap = m->capture, task = cap[ENGINE_CAPTURE_TASK], none = { 0 };
    int rank = (int) number(cap[ENGINE_CAPTURE_RANK], 999999);
    uint64_t offset = s->block_offset + at;
    struct engine_span name = cap[ENGINE_CAPTURE_NODE];

    if (name.s && task.s) {
        tell_placed(s, -1, task, name, at);
    } else if (name.s && rank < 0) {
        begin_table(s, name, prefix, offset);
    } else if (rank >= 0 && !name.s && s->table && s->table->host[0] && s->table->key == prefix->key &&
               offset - s->table->offset <= TABLE_BYTES) {
        name = (struct engine_span){ .s = s->table->host, .len = strlen(s->table->host) };
        tell_placed(s, rank, none, name, at);
    } else if (rank >= 0 && (name.s || prefix->node) && (s->hosts || (s->hosts = calloc(1, sizeof(*s->hosts))))) {
        if (!name.s)
            name = (struct engine_span){ .s = prefix->node, .len = prefix->node_len };
        hosts_note(s->hosts, rank, number(cap[ENGINE_CAPTURE_TOTAL], MAX_STEP), name.s, name.len);
    }
}

struct candidate {
    size_t rule;
    bool any;
    const struct watcher_rule *calmed_by;
    struct engine_match match;
};

/* Who is missing where the others are: the hosts of those ranks, if the log has said where they run. */
static void find_missing(const struct watcher_scan *s, const struct engine_span *cap, struct watcher_finding *f)
{
    bool came = cap[ENGINE_CAPTURE_PRESENT].s != NULL;
    const struct engine_span list = cap[came ? ENGINE_CAPTURE_PRESENT : ENGINE_CAPTURE_MISSING];
    char names[WATCHER_NODE_SIZE] = "";

    f->rank = (int) number(cap[ENGINE_CAPTURE_RANK], 999999);
    if (!list.s && cap[ENGINE_CAPTURE_NODE].s)
        return; /* the line names the host itself */
    if (list.s)
        (void) hosts_missing(s->hosts, list.s, list.len, came, names, sizeof(names), f->missing, sizeof(f->missing));
    put_text(f->node, sizeof(f->node), names, strlen(names)); /* "" if nobody: who waits is not the one */
}

static void tell(struct watcher_scan *s, enum watcher_finding_type type, const struct candidate *c,
                 const char *line, size_t len, size_t offset, const struct line_prefix *prefix,
                 bool in_traceback)
{
    const struct watcher_rule *r = &s->list[c->rule];
    const struct engine_span *cap = c->match.capture;
    struct watcher_finding f = { .type = type,
                                 .rule = r,
                                 .offset = s->block_offset + offset,
                                 .observe_wall_us = s->observe_wall_us,
                                 .in_traceback = in_traceback,
                                 .calmed_by = c->calmed_by,
                                 .count = 1 };
    const char *host;

    f.step = number(cap[ENGINE_CAPTURE_STEP], MAX_STEP);
    f.total = number(cap[ENGINE_CAPTURE_TOTAL], MAX_STEP);
    if (type == WATCHER_PROGRESS && s->own && r->unit == WATCHER_UNIT_STEP)
        f.step = f.total = -1; /* the job says itself what its steps are */
    if (type == WATCHER_PROGRESS) {
        bool step = r->unit == WATCHER_UNIT_STEP && f.step >= 0;

        if (step) {
            note_rank(s, prefix->rank >= 0 ? prefix->rank : prefix->task, f.step);
            f.late = came_late(s, prefix->key, f.step);
        }
        if (f.step >= 0 && !step_moved(s, (uint16_t) c->rule, f.step))
            return;
        s->generation += !f.late;
        if (step && !f.late)
            s->last_step = f.step;
    } else if (type == WATCHER_SIGNATURE || type == WATCHER_NOTICE) {
        if (!worth_telling(s, c->rule, &f.count)) {
            s->stats.suppressed++;
            return;
        }
    } else if (type == WATCHER_CHECKPOINT && f.step < 0) {
        f.step = s->last_step;
        f.step_inferred = f.step >= 0;
    } else if (type == WATCHER_RESUMED || type == WATCHER_RECOVERED) {
        if (type == WATCHER_RESUMED && f.step >= 0)
            s->last_step = f.step;
        if (s->printers)
            s->printers->n = 0;
    }
    f.rank = (int) number(cap[ENGINE_CAPTURE_RANK], 999999);
    f.local_rank = (int) number(cap[ENGINE_CAPTURE_LOCAL_RANK], 999999);
    f.task = (int) number(cap[ENGINE_CAPTURE_TASK], 999999);
    f.code = (int) number(cap[ENGINE_CAPTURE_CODE], 999999);
    if (f.rank < 0)
        f.rank = prefix->rank;
    if (f.local_rank < 0)
        f.local_rank = prefix->local_rank;
    if (f.task < 0)
        f.task = prefix->task;
    host = host_of(s, prefix->rank);
    if (prefix->node)
        put_text(f.reporter, sizeof(f.reporter), prefix->node, prefix->node_len);
    else if (host)
        put_text(f.reporter, sizeof(f.reporter), host, strlen(host));
    else if (s->node)
        put_text(f.reporter, sizeof(f.reporter), s->node, strlen(s->node));
    host = host_of(s, (int) number(cap[ENGINE_CAPTURE_RANK], 999999));
    if (cap[ENGINE_CAPTURE_NODE].s)
        put_text(f.node, sizeof(f.node), cap[ENGINE_CAPTURE_NODE].s, cap[ENGINE_CAPTURE_NODE].len);
    else if (host) /* the rank that the line is about, whoever printed it */
        put_text(f.node, sizeof(f.node), host, strlen(host));
    else
        memcpy(f.node, f.reporter, sizeof(f.node));
    if (r->blames == WATCHER_BLAMES_LEAD)
        find_missing(s, cap, &f);
    if (cap[ENGINE_CAPTURE_DEVICE].s)
        put_text(f.device, sizeof(f.device), cap[ENGINE_CAPTURE_DEVICE].s,
                 cap[ENGINE_CAPTURE_DEVICE].len);
    if (type != WATCHER_PROGRESS) {
        size_t start = len < sizeof(f.excerpt) ? 0 : engine_find(s->engine, c->rule, line, len);
        (void) engine_excerpt(s->engine, line, len, start, f.excerpt, sizeof(f.excerpt));
        if (adv_sha256(line, len, f.sha256, NULL) < 0)
            memset(
                f.sha256, 0,
                sizeof(f.sha256)); /* no memory: a finding without identity is better than none */
    }
    if (type == WATCHER_SIGNATURE && r->blames == WATCHER_BLAMES_NODE && !f.node[0] && (f.rank >= 0 || f.task >= 0))
        keep_unplaced(s, &f);
    s->stats.findings++;
    s->fn(s->ctx, &f);
}

/* The healthy rule that speaks against a signature of this precedence; NULL for none. */
static const struct watcher_rule *calmed(struct watcher_scan *s, int precedence, const char *line, size_t len,
                                         const struct line_prefix *prefix, const uint16_t *rules, size_t n)
{
    struct engine_match match;

    for (size_t i = 0; i < n; i++) {
        const struct watcher_rule *r = &s->list[rules[i]];
        if (r->kind == WATCHER_KIND_HEALTHY && r->precedence >= precedence &&
            engine_confirm(s->engine, rules[i], line, len, prefix->body, &match))
            return r;
    }
    return NULL;
}

/* Reads the block by the job's own pattern, up to @end: in front of what the rules find there, so that the order of lines
 * stays. */
static void own_lines(struct watcher_scan *s, size_t end)
{
    static const struct watcher_rule rule = { .id = (char *) (uintptr_t) "job-pattern", .kind = WATCHER_KIND_PROGRESS,
                                              .unit = WATCHER_UNIT_STEP };

    while (s->own && s->own_at < end) {
        const char *line = s->block + s->own_at, *nl = line_first_end(line, end - s->own_at);
        size_t len = nl ? (size_t) (nl - line) : end - s->own_at;
        struct watcher_finding f = { .type = WATCHER_PROGRESS, .rule = &rule, .offset = s->block_offset + s->own_at,
                                     .observe_wall_us = s->observe_wall_us, .total = -1, .rank = -1, .local_rank = -1,
                                     .task = -1, .code = -1, .count = 1 };
        f.step = watcher_pattern_step(s->own, line, len);
        s->own_at += len + 1;
        if (f.step < 0 || f.step == s->last_step)
            continue;
        s->generation++;
        s->last_step = f.step;
        s->stats.findings++;
        s->fn(s->ctx, &f);
    }
}

static void on_line(void *ctx, const char *line, size_t len, size_t offset, const uint16_t *rules,
                    size_t n)
{
    static const enum watcher_finding_type order[] = { WATCHER_SIGNATURE,  WATCHER_NOTICE,
                                                       WATCHER_RESUMED,    WATCHER_PROGRESS,
                                                       WATCHER_CHECKPOINT, WATCHER_FINISHED,
                                                       WATCHER_RECOVERED };
    struct watcher_scan *s = ctx;
    struct candidate best[ADV_ARRAY_LEN(order)] = { 0 };
    struct line_prefix prefix;
    struct engine_match match;
    bool opens = false, closes = false, caught = false;
    int traceback;

    own_lines(s, offset + len);
    line_parse_prefix(line, len, &prefix);
    traceback = find_traceback(s, prefix.key, s->block_offset + offset);
    for (size_t i = 0; i < n; i++) {
        const struct watcher_rule *r = &s->list[rules[i]];
        enum watcher_finding_type type = WATCHER_SIGNATURE;

        if (!believed(s, r) || (r->after_traceback && traceback < 0))
            continue;
        switch (r->kind) {
        case WATCHER_KIND_SIGNATURE:
            type = WATCHER_SIGNATURE;
            break;
        case WATCHER_KIND_NOTICE:
            type = WATCHER_NOTICE;
            break;
        case WATCHER_KIND_PROGRESS:
            type = WATCHER_PROGRESS;
            break;
        case WATCHER_KIND_CHECKPOINT:
            type = WATCHER_CHECKPOINT;
            break;
        case WATCHER_KIND_RESUME:
            type = WATCHER_RESUMED;
            break;
        case WATCHER_KIND_FINISHED:
            type = WATCHER_FINISHED;
            break;
        case WATCHER_KIND_RECOVERED:
            type = WATCHER_RECOVERED;
            break;
        case WATCHER_KIND_HEALTHY:
            continue; /* asked below, if there is something to calm */
        case WATCHER_KIND_TRACEBACK:
            opens |= engine_confirm(s->engine, rules[i], line, len, prefix.body, &match);
            continue;
        case WATCHER_KIND_CAUGHT:
            caught |= engine_confirm(s->engine, rules[i], line, len, prefix.body, &match);
            continue;
        case WATCHER_KIND_PLACEMENT:
            if (engine_confirm(s->engine, rules[i], line, len, prefix.body, &match))
                note_host(s, &match, &prefix, offset);
            continue;
        }
        if (best[type].any && s->list[best[type].rule].precedence >= r->precedence)
            continue;
        if (engine_confirm(s->engine, rules[i], line, len, prefix.body, &match))
            best[type] = (struct candidate){ .rule = rules[i], .any = true, .match = match };
    }
    if (best[WATCHER_SIGNATURE].any) {
        const struct watcher_rule *r = &s->list[best[WATCHER_SIGNATURE].rule];
        bool calm = traceback >= 0 && s->traceback[traceback].caught &&
                    r->precedence <= CAUGHT_CALMS &&
                    s->block_offset + offset - s->traceback[traceback].offset <= CAUGHT_SPAN;
        closes = traceback >= 0 && (r->begins || calm);
        best[WATCHER_SIGNATURE].calmed_by =
            calm ? NULL : calmed(s, r->precedence, line, len, &prefix, rules, n);
        best[WATCHER_SIGNATURE].any = !calm && !best[WATCHER_SIGNATURE].calmed_by;
        if (s->explain && !best[WATCHER_SIGNATURE].any)
            tell(s, WATCHER_CALMED, &best[WATCHER_SIGNATURE], line, len, offset, &prefix, closes);
    }
    if (best[WATCHER_RECOVERED].any)
        forget_places(s); /* ranks may run elsewhere now */
    for (size_t i = 0; i < ADV_ARRAY_LEN(order); i++) {
        enum watcher_finding_type type = order[i];
        if (best[type].any)
            tell(s, type, &best[type], line, len, offset, &prefix,
                 closes && type == WATCHER_SIGNATURE);
    }
    if (closes)
        s->traceback[traceback].open = false;
    if (opens || caught)
        open_traceback(s, prefix.key, s->block_offset + offset, caught);
}

/* --- bytes to lines --- */

/* @text is whole lines, or the head of a long one; at most ENGINE_LINE_MAX bytes and a line end. */
static void scan_lines(struct watcher_scan *s, const char *text, size_t len, uint64_t offset)
{
    s->block_offset = offset;
    if (line_needs_clean(text, len)) {
        char *work = engine_work(s->engine);
        line_clean(text, len, work);
        text = work;
    }
    s->block = text;
    s->own_at = 0;
    engine_scan(s->engine, text, len, on_line, s);
    own_lines(s, len);
}

static void drop_carry(struct watcher_scan *s)
{
    s->carry_len = 0;
    if (s->carry_cap > CARRY_KEPT) {
        free(s->carry);
        s->carry = NULL;
        s->carry_cap = 0;
    }
}

static int grow_carry(struct watcher_scan *s, size_t len, struct adv_err *err)
{
    size_t cap = s->carry_cap ? s->carry_cap : 256;

    while (cap < s->carry_len + len)
        cap *= 2;
    if (cap > s->carry_cap) {
        char *mem = realloc(s->carry, cap);
        if (!mem) {
            s->stats.gaps++;
            s->stats.skipped_bytes += s->carry_len;
            drop_carry(s);
            s->skipping = true;
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED,
                               "log scan: no memory for a line of %zu bytes", s->carry_len + len);
        }
        s->carry = mem;
        s->carry_cap = cap;
    }
    return 0;
}

/* Adds to the unfinished line; its head is looked at as soon as it is full, and the rest of the line skipped. */
static int keep(struct watcher_scan *s, uint64_t offset, const char *p, size_t len,
                struct adv_err *err)
{
    size_t room = ENGINE_LINE_MAX - s->carry_len, n = len < room ? len : room;
    int rc;

    if (s->carry_len == 0)
        s->carry_offset = offset;
    rc = grow_carry(s, n, err);
    if (rc < 0)
        return rc;
    memcpy(s->carry + s->carry_len, p, n);
    s->carry_len += n;
    if (len > n) {
        scan_lines(s, s->carry, s->carry_len, s->carry_offset);
        drop_carry(s);
        s->stats.long_lines++;
        s->stats.skipped_bytes += len - n;
        s->skipping = true;
    }
    return 0;
}

/* Consumes up to the first line end of @p, which belongs to a line that is under way. Returns how much that was. */
static size_t end_line(struct watcher_scan *s, uint64_t offset, const char *p, size_t len, int *rc,
                       struct adv_err *err)
{
    const char *nl = line_first_end(p, len);
    size_t n = nl ? (size_t) (nl - p) : len;

    if (s->skipping) {
        s->stats.skipped_bytes += n;
        s->skipping = nl == NULL;
        return nl ? n + 1 : n;
    }
    *rc = keep(s, offset, p, n, err);
    if (!nl)
        return n;
    if (!s->skipping && s->carry_len > 0) {
        scan_lines(s, s->carry, s->carry_len, s->carry_offset);
        drop_carry(s);
    }
    s->skipping = false;
    return n + 1;
}

static void note_gap(struct watcher_scan *s, uint64_t missing, bool truncated)
{
    s->stats.skipped_bytes += s->carry_len;
    drop_carry(s);
    memset(s->traceback, 0, sizeof(s->traceback));
    if (truncated) {
        s->stats.truncations++;
    } else {
        s->stats.gaps++;
        s->stats.missing_bytes += missing;
    }
}

int watcher_scan_feed(struct watcher_scan *s, uint64_t offset, const void *bytes, size_t len,
                      uint64_t dropped_before, int64_t observe_wall_us, struct adv_err *err)
{
    const char *p = bytes;
    int rc = 0;

    s->observe_wall_us = observe_wall_us;
    if (offset < s->next_offset) {
        note_gap(s, 0, true);
        s->skipping = offset != 0;
    } else if (offset > s->next_offset || dropped_before > 0) {
        uint64_t jump = offset - s->next_offset;
        note_gap(s, jump > dropped_before ? jump : dropped_before, false);
        s->skipping = true;
    }
    s->stats.bytes += len;
    while (len > 0) {
        const char *last;
        size_t n;

        if (s->skipping || s->carry_len > 0) {
            n = end_line(s, offset, p, len, &rc, err);
        } else {
            n = len < ENGINE_LINE_MAX ? len : ENGINE_LINE_MAX;
            last = line_last_end(p, n);
            if (last) {
                n = (size_t) (last - p) + 1;
                scan_lines(s, p, n, offset);
            } else {
                n = end_line(s, offset, p, len, &rc, err);
            }
        }
        p += n;
        offset += n;
        len -= n;
    }
    s->next_offset = offset;
    return rc;
}

void watcher_scan_finish(struct watcher_scan *s, int64_t observe_wall_us)
{
    s->observe_wall_us = observe_wall_us;
    if (s->carry_len > 0) {
        scan_lines(s, s->carry, s->carry_len, s->carry_offset);
        drop_carry(s);
        s->skipping = true; /* more of that line may still come */
    }
}

/* --- life --- */

static void take_rules(struct watcher_scan *s, struct watcher_rules *rules)
{
    s->rules = watcher_rules_ref(rules);
    s->list = watcher_rules_list(rules, &s->n_rules);
    s->engine = watcher_rules_engine(rules);
}

int watcher_scan_new(struct watcher_rules *rules, const struct watcher_scan_options *options,
                     struct watcher_scan **ret, struct adv_err *err)
{
    struct watcher_scan *s = calloc(1, sizeof(*s));

    if (!s || (options->node && !(s->node = strdup(options->node)))) {
        free(s);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "log scan: no memory");
    }
    if (options->progress && watcher_pattern_new(options->progress, &s->own, NULL) == -ADV_RESOURCE_EXHAUSTED) {
        free(s->node);
        free(s);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "log scan: no memory");
    }
    take_rules(s, rules);
    s->stream = options->stream;
    s->explain = options->explain;
    s->fn = options->fn;
    s->ctx = options->ctx;
    s->next_offset = options->start_offset;
    s->last_step = -1;
    *ret = s;
    return 0;
}

struct watcher_scan *watcher_scan_free(struct watcher_scan *s)
{
    if (s) {
        (void) watcher_rules_unref(s->rules);
        free(s->node);
        free(s->carry);
        free(s->repeats);
        free(s->ranks);
        free(s->printers);
        free(s->hosts);
        free(s->unplaced);
        free(s->table);
        (void) watcher_pattern_free(s->own);
        free(s);
    }
    return NULL;
}

void watcher_scan_set_rules(struct watcher_scan *s, struct watcher_rules *rules)
{
    struct watcher_rules *old = s->rules;

    take_rules(s, rules);
    (void) watcher_rules_unref(old);
    free(s->repeats);
    s->repeats = NULL;
    free(s->unplaced); /* its rules are of the old set */
    s->unplaced = NULL;
    memset(s->series, 0, sizeof(s->series));
}

const struct watcher_scan_stats *watcher_scan_stats(const struct watcher_scan *s)
{
    return &s->stats;
}

int64_t watcher_scan_last_step(const struct watcher_scan *s)
{
    return s->last_step;
}

bool watcher_scan_behind(struct watcher_scan *s, char ret_ranks[WATCHER_RANKS_SIZE])
{
    ret_ranks[0] = '\0';
    return s->ranks && ranks_behind(s->ranks, ret_ranks, WATCHER_RANKS_SIZE);
}

size_t watcher_scan_memory(const struct watcher_scan *s)
{
    return sizeof(*s) + s->carry_cap + (s->ranks ? sizeof(*s->ranks) : 0) + (s->hosts ? sizeof(*s->hosts) : 0) +
           (s->printers ? sizeof(*s->printers) : 0) + (s->unplaced ? sizeof(*s->unplaced) : 0) +
           (s->table ? sizeof(*s->table) : 0) + (s->node ? strlen(s->node) + 1 : 0) +
           (s->repeats ? s->n_rules * sizeof(*s->repeats) : 0);
}
