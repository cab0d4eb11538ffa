/* SPDX-License-Identifier: Apache-2.0 */

/* Hyperscan tells which of all patterns end where in a block of text, at the price of one pass. It cannot say where a match began
 * nor what a group held, and its `[^x]` and `\s` run across line ends. So a hit is only a candidate "rule r on the line that
 * holds this end"; PCRE2 then looks at that line alone.
 *
 * Blocks of whole lines, not Hyperscan streams: the line has to be at hand for the second pass anyway, so the
 * unfinished line is kept by the scan (watcher.c) and each line is matched once, whole. That makes the result
 * independent of how the bytes were cut by construction, costs a scan no stream state, and a block is the faster
 * mode. A block is at most ENGINE_LINE_MAX bytes and stays in the first-level cache.
 *
 * A rule with a `capture` has its pattern confirmed by PCRE2 only if something in it could match a line end; otherwise
 * the first pass is exact already. */

#include "controlplane/watcher/engine.h"

#include <hs.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/utf8.h"
#include "controlplane/watcher/redact.h"
#include "controlplane/watcher/rules.h"

#define MATCH_LIMIT 100000 /* PCRE2 steps for one line; the shipped rules stay far below */
#define DEPTH_LIMIT 1000
#define HEAP_LIMIT  64 /* KiB */
#define MAX_GROUPS  16
/* candidates of one block; above WATCHER_RULES_MAX, so one line always fits */
#define MAX_HITS 16384

#define EXCERPT_LEFT 40 /* shown before the match when the line is long */
/* redacted before and after what is shown, for secrets that stick into it */
#define EXCERPT_GUARD 512

struct matcher {
    pcre2_code *code;
    uint8_t group[MAX_GROUPS]; /* number of a named group ... */
    uint8_t what[MAX_GROUPS];  /* ... and what it captures */
    size_t n_groups;
};

struct compiled {
    struct matcher pattern, capture;
    bool use_pattern, use_capture, begins;
};

struct hit {
    uint16_t line, len; /* the block is at most 16 KiB */
    uint16_t rule;
};
_Static_assert(ENGINE_LINE_MAX <= UINT16_MAX, "offsets of a block fit into struct hit");

struct engine {
    hs_database_t *db;
    hs_scratch_t *scratch;
    struct compiled *rules;
    size_t n_rules;
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint64_t limit_hits;

    /* the block at hand */
    const char *text;
    size_t len;
    size_t line_start, line_end; /* of the last hit */
    struct hit *hits;
    size_t n_hits;
    bool overflow;
    uint64_t *seen; /* by rule: serial of the block << 32 | start of the line of its last hit */
    uint64_t serial;
    uint16_t line_rules[WATCHER_RULES_MAX];

    char work[ENGINE_WORK_SIZE];
    char excerpt[2 * EXCERPT_GUARD + 1024 + 1]; /* redact_text() wants one more */
};

static const char *const capture_names[ENGINE_N_CAPTURES] = { "step",       "total", "rank",
                                                              "local_rank", "task",  "node",
                                                              "device",     "code",  "missing", "present" };

/* --- compiling --- */

static int bad_pattern(struct adv_err *err, const struct watcher_rule *r, bool capture,
                       const char *why)
{
    return adv_err_set(err, ADV_INVALID_ARGUMENT,
                       "%s:%u:%u: rule %s: %s: %s, expected a %s pattern", r->file,
                       capture ? r->capture_line : r->pattern_line,
                       capture ? r->capture_column : r->pattern_column, r->id,
                       capture ? "capture" : "pattern", why, capture ? "PCRE2" : "Hyperscan");
}

static int no_memory(struct adv_err *err)
{
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
}

/* Hyperscan refuses two groups of one name, so it is given (?:...) for (?<name>...). */
static char *without_names(const char *pattern)
{
    size_t n = strlen(pattern);
    char *out = malloc(n + 1), *q = out;
    const char *p = pattern;

    if (!out)
        return NULL;
    while (*p) {
        if (*p == '\\' && p[1]) {
            *q++ = *p++;
            *q++ = *p++;
        } else if (p[0] == '(' && p[1] == '?' && p[2] == '<' && p[3] != '=' && p[3] != '!' &&
                   strchr(p, '>')) {
            memcpy(q, "(?:", 3);
            q += 3;
            p = strchr(p, '>') + 1;
        } else {
            *q++ = *p++;
        }
    }
    *q = '\0';
    return out;
}

/* True when something in @pattern may match '\n' (may err on this side). */
static bool may_cross_lines(const char *pattern)
{
    return strstr(pattern, "[^") || strstr(pattern, "\\s") || strstr(pattern, "\\W") ||
           strstr(pattern, "\\D") || strstr(pattern, "\\n") || strstr(pattern, "(?s") ||
           strstr(pattern, "\\x") || strstr(pattern, "\\v") || strstr(pattern, "\\R") ||
           strstr(pattern, "\\N");
}

static int matcher_init(struct matcher *m, const struct watcher_rule *r, bool capture,
                        struct adv_err *err)
{
    const char *text = capture ? r->capture : r->pattern;
    uint32_t count = 0, entry = 0, groups = 0;
    PCRE2_SPTR table = NULL;
    PCRE2_SIZE offset = 0;
    int code = 0;

    m->code = pcre2_compile((PCRE2_SPTR) text, PCRE2_ZERO_TERMINATED,
                            PCRE2_DUPNAMES | PCRE2_NEVER_BACKSLASH_C, &code, &offset, NULL);
    if (!m->code) {
        char why[120] = "";
        (void) pcre2_get_error_message(code, (PCRE2_UCHAR *) why, sizeof(why));
        return bad_pattern(err, r, capture, why);
    }
    (void) pcre2_jit_compile(m->code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    (void) pcre2_pattern_info(m->code, PCRE2_INFO_NAMECOUNT, &count);
    (void) pcre2_pattern_info(m->code, PCRE2_INFO_NAMEENTRYSIZE, &entry);
    (void) pcre2_pattern_info(m->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    (void) pcre2_pattern_info(m->code, PCRE2_INFO_NAMETABLE, &table);
    if (groups >= MAX_GROUPS || count > MAX_GROUPS)
        return bad_pattern(err, r, capture, "too many groups, use (?:...)");
    for (uint32_t i = 0; i < count; i++, table += entry) {
        const char *name = (const char *) table + 2;
        size_t what = 0;

        while (what < ENGINE_N_CAPTURES && !adv_streq(name, capture_names[what]))
            what++;
        if (what == ENGINE_N_CAPTURES)
            return bad_pattern(err, r, capture, "unknown group name");
        m->group[m->n_groups] = (uint8_t) ((table[0] << 8) | table[1]);
        m->what[m->n_groups++] = (uint8_t) what;
    }
    return 0;
}

static void matcher_done(struct matcher *m)
{
    pcre2_code_free(m->code);
}

static int compile_rule(struct compiled *c, const struct watcher_rule *r, struct adv_err *err)
{
    int rc = matcher_init(&c->pattern, r, false, err);

    if (rc < 0)
        return rc;
    c->begins = r->begins;
    c->use_capture = r->capture != NULL;
    if (c->use_capture) {
        rc = matcher_init(&c->capture, r, true, err);
        if (rc < 0)
            return rc;
    }
    c->use_pattern = !c->use_capture || may_cross_lines(r->pattern);
    return 0;
}

static int compile_database(struct engine *e, const struct watcher_rule *rules, struct adv_err *err)
{
    const char **patterns = calloc(e->n_rules, sizeof(*patterns));
    unsigned *flags = calloc(e->n_rules, sizeof(*flags));
    unsigned *ids = calloc(e->n_rules, sizeof(*ids));
    hs_compile_error_t *why = NULL;
    int rc = 0;

    if (!patterns || !flags || !ids)
        rc = no_memory(err);
    for (size_t i = 0; i < e->n_rules && rc == 0; i++) {
        patterns[i] = without_names(rules[i].pattern);
        flags[i] = HS_FLAG_MULTILINE;
        ids[i] = (unsigned) i;
        if (!patterns[i])
            rc = no_memory(err);
    }
    if (rc == 0) {
        hs_error_t code = hs_compile_multi(patterns, flags, ids, (unsigned) e->n_rules,
                                           HS_MODE_BLOCK, NULL, &e->db, &why);
        if (code == HS_COMPILER_ERROR && why && why->expression >= 0 &&
            (size_t) why->expression < e->n_rules)
            rc = bad_pattern(err, &rules[why->expression], false, why->message);
        else if (code == HS_COMPILER_ERROR)
            rc = adv_err_set(err, ADV_INVALID_ARGUMENT, "rules: %s",
                             why ? why->message : "patterns are too large");
        else if (code != HS_SUCCESS || hs_alloc_scratch(e->db, &e->scratch) != HS_SUCCESS)
            rc = no_memory(err);
        (void) hs_free_compile_error(why);
    }
    for (size_t i = 0; patterns && i < e->n_rules; i++)
        free((char *) patterns[i]);
    free(patterns);
    free(flags);
    free(ids);
    return rc;
}

int engine_new(const struct watcher_rule *rules, size_t n_rules, struct engine **ret,
               struct adv_err *err)
{
    struct engine *e = calloc(1, sizeof(*e));
    int rc = 0;

    if (!e)
        return no_memory(err);
    e->n_rules = n_rules;
    e->rules = calloc(n_rules, sizeof(*e->rules));
    e->seen = calloc(n_rules, sizeof(*e->seen));
    e->hits = calloc(MAX_HITS, sizeof(*e->hits));
    e->data = pcre2_match_data_create(MAX_GROUPS, NULL);
    e->context = pcre2_match_context_create(NULL);
    if (!e->rules || !e->seen || !e->hits || !e->data || !e->context)
        rc = no_memory(err);
    for (size_t i = 0; i < n_rules && rc == 0; i++)
        rc = compile_rule(&e->rules[i], &rules[i], err);
    if (rc == 0)
        rc = compile_database(e, rules, err);
    if (rc < 0) {
        (void) engine_free(e);
        return rc;
    }
    (void) pcre2_set_match_limit(e->context, MATCH_LIMIT);
    (void) pcre2_set_depth_limit(e->context, DEPTH_LIMIT);
    (void) pcre2_set_heap_limit(e->context, HEAP_LIMIT);
    *ret = e;
    return 0;
}

struct engine *engine_free(struct engine *e)
{
    if (!e)
        return NULL;
    (void) hs_free_scratch(e->scratch);
    (void) hs_free_database(e->db);
    for (size_t i = 0; e->rules && i < e->n_rules; i++) {
        matcher_done(&e->rules[i].pattern);
        matcher_done(&e->rules[i].capture);
    }
    pcre2_match_data_free(e->data);
    pcre2_match_context_free(e->context);
    free(e->rules);
    free(e->seen);
    free(e->hits);
    free(e);
    return NULL;
}

/* --- first pass --- */

static void find_line(struct engine *e, size_t at)
{
    const char *nl = at > 0 ? memrchr(e->text, '\n', at) : NULL;

    e->line_start = nl ? (size_t) (nl - e->text) + 1 : 0;
    nl = memchr(e->text + at, '\n', e->len - at);
    e->line_end = nl ? (size_t) (nl - e->text) : e->len;
}

/* Keeps the hits ordered by line, then rule. Hyperscan reports nearly in order of the ends, so the way back is short. */
static void add_hit(struct engine *e, struct hit h)
{
    uint32_t key = (uint32_t) h.line << 16 | h.rule;
    size_t i = e->n_hits++;

    for (; i > 0 && ((uint32_t) e->hits[i - 1].line << 16 | e->hits[i - 1].rule) > key; i--)
        e->hits[i] = e->hits[i - 1];
    e->hits[i] = h;
}

static int on_hit(unsigned id, unsigned long long from, unsigned long long to, unsigned flags,
                  void *context)
{
    struct engine *e = context;
    size_t at = to > 0 ? (size_t) to - 1 : 0; /* the last byte of the match */
    uint64_t mark;

    if (at < e->line_start || at > e->line_end)
        find_line(e, at);
    mark = e->serial << 32 | e->line_start;
    if (e->seen[id] == mark)
        return 0;
    if (e->n_hits == MAX_HITS) {
        e->overflow = true;
        return 1;
    }
    e->seen[id] = mark;
    add_hit(e, (struct hit){ .line = (uint16_t) e->line_start,
                             .len = (uint16_t) (e->line_end - e->line_start),
                             .rule = (uint16_t) id });
    return 0;
}

static void scan_block(struct engine *e, const char *text, size_t len, size_t base,
                       engine_line_fn fn, void *ctx)
{
    if (len == 0)
        return;
    e->text = text;
    e->len = len;
    e->n_hits = 0;
    e->overflow = false;
    e->serial++;
    find_line(e, 0);
    (void) hs_scan(e->db, text, (unsigned) len, 0, e->scratch, on_hit, e);
    if (e->overflow) {
        /* A block of very short lines that all speak to many rules. Halves of it, at a line end, until they fit. */
        const char *nl = memchr(text + len / 2, '\n', len - len / 2 - 1);
        if (!nl && len / 2 > 0)
            nl = memrchr(text, '\n', len / 2);
        if (nl) {
            size_t first = (size_t) (nl - text) + 1;
            scan_block(e, text, first, base, fn, ctx);
            scan_block(e, text + first, len - first, base + first, fn, ctx);
            return;
        }
    }
    for (size_t i = 0; i < e->n_hits;) {
        size_t start = e->hits[i].line, line_len = e->hits[i].len, n = 0;

        for (; i < e->n_hits && e->hits[i].line == start; i++) {
            if (n == 0 || e->line_rules[n - 1] != e->hits[i].rule)
                e->line_rules[n++] = e->hits[i].rule;
        }
        fn(ctx, text + start, line_len, base + start, e->line_rules, n);
    }
}

void engine_scan(struct engine *e, const char *text, size_t len, engine_line_fn fn, void *ctx)
{
    scan_block(e, text, len, 0, fn, ctx);
}

/* --- second pass --- */

static bool run(struct engine *e, const struct matcher *m, const char *text, size_t len,
                bool anchored, struct engine_match *ret)
{
    PCRE2_SIZE *v;
    int rc = pcre2_match(m->code, (PCRE2_SPTR) text, len, 0, anchored ? PCRE2_ANCHORED : 0, e->data,
                         e->context);

    if (rc < 0) {
        e->limit_hits += rc != PCRE2_ERROR_NOMATCH;
        return false;
    }
    v = pcre2_get_ovector_pointer(e->data);
    for (size_t i = 0; i < m->n_groups; i++) {
        size_t g = m->group[i];
        if ((int) g < rc && v[2 * g] != PCRE2_UNSET && v[2 * g + 1] > v[2 * g])
            ret->capture[m->what[i]] =
                (struct engine_span){ text + v[2 * g], v[2 * g + 1] - v[2 * g] };
    }
    return true;
}

bool engine_confirm(struct engine *e, size_t rule, const char *line, size_t len, size_t body,
                    struct engine_match *ret)
{
    const struct compiled *c = &e->rules[rule];

    *ret = (struct engine_match){ 0 };
    if (c->use_pattern) {
        bool anchored = c->begins && !c->use_capture;
        size_t skip = anchored ? body : 0;
        if (!run(e, &c->pattern, line + skip, len - skip, anchored, ret))
            return false;
    }
    if (c->use_capture) {
        size_t skip = c->begins ? body : 0;
        if (!run(e, &c->capture, line + skip, len - skip, c->begins, ret))
            return false;
    }
    return true;
}

size_t engine_find(struct engine *e, size_t rule, const char *line, size_t len)
{
    struct engine_match m;

    return run(e, &e->rules[rule].pattern, line, len, false, &m)
               ? pcre2_get_ovector_pointer(e->data)[0]
               : 0;
}

char *engine_work(struct engine *e)
{
    return e->work;
}

size_t engine_excerpt(struct engine *e, const char *line, size_t len, size_t start, char *dst,
                      size_t cap)
{
    size_t show = 0, from, to, mark, n;

    if (len >= cap && start > EXCERPT_LEFT)
        show = start - EXCERPT_LEFT;
    while (show > 0 && show < start && ((unsigned char) line[show] & 0xc0) == 0x80)
        show++; /* not inside a character */
    from = show > EXCERPT_GUARD ? show - EXCERPT_GUARD : 0;
    to = len - from > sizeof(e->excerpt) - 1 ? from + sizeof(e->excerpt) - 1 : len;
    memcpy(e->excerpt, line + from, to - from);
    mark = show - from;
    n = redact_text(e->excerpt, to - from, to == len, &mark);
    return adv_utf8_lossy_buf(dst, cap, e->excerpt + mark, n - mark);
}

uint64_t engine_limit_hits(const struct engine *e)
{
    return e->limit_hits;
}

const struct hs_database *engine_database(const struct engine *e)
{
    return e->db;
}

size_t engine_database_bytes(const struct engine *e)
{
    size_t n = 0;

    return hs_database_size(e->db, &n) == HS_SUCCESS ? n : 0;
}
