/* SPDX-License-Identifier: Apache-2.0 */

/* Rules are written by people, so the loader is strict and names the place: unknown and repeated keys, keys that do not
 * belong to the kind, missing examples, anchors and second documents are errors. The YAML is read as events, which gives
 * each value its line and column, and each value is text for us ("yes" is a word of `retryable`, no boolean).
 *
 * A set is immutable after it was built; scans hold a reference, and a reload builds another set beside it. The examples
 * are kept with the rules, so that `advisorctl rules test` and the unit tests check what is deployed. */

#include "controlplane/watcher/rules.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <yaml.h>

#include "common/buf.h"
#include "common/digest.h"
#include "common/num.h"
#include "controlplane/watcher/engine.h"
#include "controlplane/watcher/watcher.h"

#define MAX_FILES       256
#define MAX_TEXT        8192
#define MAX_EXAMPLES    64
#define MIN_EXAMPLES    2
#define MAX_ID          64
#define MAX_TOTAL_BYTES (8 << 20)

struct watcher_rules {
    unsigned refs;
    struct watcher_rule *rules;
    size_t n, cap;
    struct engine *engine;
    char version[WATCHER_RULES_VERSION_SIZE];
};

/* --- words --- */

static const char *const kind_words[] = { "signature",  "notice",    "progress",
                                          "checkpoint", "resume",    "finished",
                                          "recovered",  "healthy",   "traceback", "caught", "placement" };
static const char *const class_words[] = { "unknown",           "gpu_hardware",    "gpu_memory",
                                           "network_fabric",    "storage",         "host_memory",
                                           "node_failure",      "application_bug", "configuration",
                                           "transient_service", "preemption",      "time_limit",
                                           "user_cancel",       "interference" };
static const char *const anomaly_words[] = { "crash", "hang", "straggler" };
static const char *const retryable_words[] = { "maybe", "yes", "no" };
static const char *const blames_words[] = { "none", "node", "reporter", "lead" };
static const char *const unit_words[] = { "item", "step", "epoch" };
static const char *const scope_words[] = { "application", "node", "scheduler", "any" };
static const char *const bool_words[] = { "false", "true" };
static const char *const after_words[] = { "traceback" };

#define WORD(words, i) ((size_t) (i) < ADV_ARRAY_LEN(words) ? (words)[i] : "?")

const char *watcher_kind_name(enum watcher_kind kind)
{
    return WORD(kind_words, kind);
}

const char *watcher_class_name(enum watcher_class fault_class)
{
    return WORD(class_words, fault_class);
}

const char *watcher_retryable_name(enum watcher_retryable retryable)
{
    return WORD(retryable_words, retryable);
}

/* --- keys --- */

enum key {
    KEY_ID,
    KEY_KIND,
    KEY_CLASS,
    KEY_ANOMALY,
    KEY_RETRYABLE,
    KEY_PRECEDENCE,
    KEY_SCOPE,
    KEY_BLAMES,
    KEY_TERMINAL,
    KEY_UNIT,
    KEY_BEGINS,
    KEY_AFTER,
    KEY_PATTERN,
    KEY_CAPTURE,
    KEY_EXAMPLES,
    N_KEYS,
};

static const char *const key_names[N_KEYS] = { "id",        "kind",       "class",   "anomaly",
                                               "retryable", "precedence", "scope",   "blames",
                                               "terminal",  "unit",       "begins",  "after",
                                               "pattern",   "capture",    "examples" };

#define BIT(k) (1u << (k))
#define FAULT_KEYS                                                                                 \
    (BIT(KEY_CLASS) | BIT(KEY_ANOMALY) | BIT(KEY_RETRYABLE) | BIT(KEY_SCOPE) | BIT(KEY_BLAMES) |   \
     BIT(KEY_TERMINAL))
#define BASE_KEYS (BIT(KEY_ID) | BIT(KEY_KIND) | BIT(KEY_PATTERN) | BIT(KEY_EXAMPLES))

static unsigned required_keys(enum watcher_kind kind)
{
    switch (kind) {
    case WATCHER_KIND_SIGNATURE:
    case WATCHER_KIND_NOTICE:
        return BASE_KEYS | BIT(KEY_PRECEDENCE) | FAULT_KEYS;
    case WATCHER_KIND_PROGRESS:
        return BASE_KEYS | BIT(KEY_PRECEDENCE) | BIT(KEY_UNIT);
    case WATCHER_KIND_TRACEBACK:
    case WATCHER_KIND_CAUGHT:
        return BASE_KEYS;
    case WATCHER_KIND_PLACEMENT:
        return BASE_KEYS | BIT(KEY_CAPTURE);
    default:
        return BASE_KEYS | BIT(KEY_PRECEDENCE);
    }
}

static unsigned optional_keys(enum watcher_kind kind)
{
    unsigned more = BIT(KEY_CAPTURE) | BIT(KEY_BEGINS);

    return kind == WATCHER_KIND_SIGNATURE || kind == WATCHER_KIND_NOTICE ? more | BIT(KEY_AFTER)
                                                                         : more;
}

/* --- reading --- */

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    bool have;
    const char *file;
    struct watcher_rules *set;
};

static int at_mark(struct reader *r, yaml_mark_t mark, struct adv_err *err, const char *what)
{
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "%s:%zu:%zu: %s", r->file, mark.line + 1,
                       mark.column + 1, what);
}

static int ADV_PRINTF(3, 4) at_event(struct reader *r, struct adv_err *err, const char *fmt, ...)
{
    char what[192];
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return at_mark(r, r->event.start_mark, err, what);
}

static int next(struct reader *r, struct adv_err *err)
{
    if (r->have)
        yaml_event_delete(&r->event);
    r->have = false;
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        if (r->parser.error == YAML_MEMORY_ERROR)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
        yaml_mark_t mark = r->parser.problem_mark;
        return at_mark(r, mark, err, r->parser.problem ? r->parser.problem : "not YAML");
    }
    r->have = true;
    if (r->event.type == YAML_ALIAS_EVENT)
        return at_event(r, err, "alias, expected the value itself");
    if ((r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.anchor) ||
        (r->event.type == YAML_MAPPING_START_EVENT && r->event.data.mapping_start.anchor) ||
        (r->event.type == YAML_SEQUENCE_START_EVENT && r->event.data.sequence_start.anchor))
        return at_event(r, err, "anchor, expected none");
    return 0;
}

static int next_is(struct reader *r, yaml_event_type_t type, const char *expected,
                   struct adv_err *err)
{
    int rc = next(r, err);

    if (rc < 0)
        return rc;
    return r->event.type == type ? 0 : at_event(r, err, "expected %s", expected);
}

static const char *text_of(const struct reader *r)
{
    return (const char *) r->event.data.scalar.value;
}

/* The current event as text without NUL bytes. */
static int check_text(struct reader *r, const char *expected, struct adv_err *err)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return at_event(r, err, "expected %s", expected);
    size_t len = r->event.data.scalar.length;
    if (len == 0 || len > MAX_TEXT)
        return at_event(r, err, "text of %zu bytes, expected 1..%d", len, MAX_TEXT);
    if (memchr(r->event.data.scalar.value, '\0', len))
        return at_event(r, err, "NUL byte in the text, expected %s", expected);
    return 0;
}

static int take_text(struct reader *r, const char *expected, char **ret, struct adv_err *err)
{
    int rc = check_text(r, expected, err);

    if (rc < 0)
        return rc;
    *ret = strndup(text_of(r), r->event.data.scalar.length);
    return *ret ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
}

static int take_word(struct reader *r, const char *const *words, size_t n, int *ret,
                     struct adv_err *err)
{
    char list[160] = "";
    size_t used = 0;
    int rc = check_text(r, "a word", err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text_of(r), words[i]) == 0) {
            *ret = (int) i;
            return 0;
        }
        int more = snprintf(list + used, sizeof(list) - used, "%s%s", i ? " " : "", words[i]);
        used += more > 0 && (size_t) more < sizeof(list) - used ? (size_t) more : 0;
    }
    return at_event(r, err, "\"%.40s\", expected one of: %s", text_of(r), list);
}

#define TAKE_WORD(r, words, field, err)                                                            \
    do {                                                                                           \
        int word_ = 0;                                                                             \
        int rc_ = take_word((r), (words), ADV_ARRAY_LEN(words), &word_, (err));                    \
        if (rc_ < 0)                                                                               \
            return rc_;                                                                            \
        (field) = (__typeof__(field)) word_;                                                       \
    } while (0)

static int take_id(struct reader *r, struct watcher_rule *rule, struct adv_err *err)
{
    int rc = check_text(r, "a rule name", err);

    if (rc < 0)
        return rc;
    size_t len = strlen(text_of(r));
    if (len > MAX_ID || strspn(text_of(r), "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
        return at_event(r, err,
                        "\"%.70s\", expected lower case letters, digits and '-', at most %d",
                        text_of(r), MAX_ID);
    for (size_t i = 0; i < r->set->n; i++) {
        const struct watcher_rule *other = &r->set->rules[i];
        if (other != rule && adv_streq(other->id, text_of(r)))
            return at_event(r, err, "rule %s stands in %s:%u already, expected a new name",
                            other->id, other->file, other->line);
    }
    return take_text(r, "a rule name", &rule->id, err);
}

static int take_examples_list(struct reader *r, char ***ret_list, size_t *ret_n,
                              struct adv_err *err)
{
    int rc = next_is(r, YAML_SEQUENCE_START_EVENT, "a list of example lines", err);
    char **list;

    if (rc < 0)
        return rc;
    yaml_mark_t begin = r->event.start_mark;
    list = calloc(MAX_EXAMPLES, sizeof(*list));
    if (!list)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
    *ret_list = list;
    for (;;) {
        rc = next(r, err);
        if (rc < 0)
            return rc;
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        if (*ret_n == MAX_EXAMPLES)
            return at_event(r, err, "too many examples, expected at most %d", MAX_EXAMPLES);
        rc = take_text(r, "an example line", &list[*ret_n], err);
        if (rc < 0)
            return rc;
        (*ret_n)++;
    }
    return *ret_n >= MIN_EXAMPLES
               ? 0
               : at_mark(r, begin, err, "too few examples, expected at least two");
}

static int take_examples(struct reader *r, struct watcher_rule *rule, struct adv_err *err)
{
    yaml_mark_t begin = r->event.start_mark;

    if (r->event.type != YAML_MAPPING_START_EVENT)
        return at_event(r, err, "expected a mapping with positive and negative");
    for (;;) {
        int rc = next(r, err);
        if (rc < 0)
            return rc;
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        rc = check_text(r, "positive or negative", err);
        if (rc < 0)
            return rc;
        if (adv_streq(text_of(r), "positive") && !rule->positive)
            rc = take_examples_list(r, &rule->positive, &rule->n_positive, err);
        else if (adv_streq(text_of(r), "negative") && !rule->negative)
            rc = take_examples_list(r, &rule->negative, &rule->n_negative, err);
        else
            rc = at_event(r, err, "\"%.40s\" here, expected positive and negative, each once",
                          text_of(r));
        if (rc < 0)
            return rc;
    }
    return rule->positive && rule->negative
               ? 0
               : at_mark(r, begin, err, "expected both positive and negative examples");
}

static int take_value(struct reader *r, enum key key, struct watcher_rule *rule,
                      struct adv_err *err)
{
    int64_t number = 0;
    int word = 0, rc;

    switch (key) {
    case KEY_ID:
        return take_id(r, rule, err);
    case KEY_KIND:
        TAKE_WORD(r, kind_words, rule->kind, err);
        return 0;
    case KEY_CLASS:
        TAKE_WORD(r, class_words, rule->fault_class, err);
        return 0;
    case KEY_ANOMALY:
        TAKE_WORD(r, anomaly_words, rule->anomaly, err);
        return 0;
    case KEY_RETRYABLE:
        TAKE_WORD(r, retryable_words, rule->retryable, err);
        return 0;
    case KEY_SCOPE:
        TAKE_WORD(r, scope_words, rule->scope, err);
        return 0;
    case KEY_BLAMES:
        TAKE_WORD(r, blames_words, rule->blames, err);
        return 0;
    case KEY_UNIT:
        TAKE_WORD(r, unit_words, rule->unit, err);
        return 0;
    case KEY_TERMINAL:
        TAKE_WORD(r, bool_words, word, err);
        rule->terminal = word;
        return 0;
    case KEY_BEGINS:
        TAKE_WORD(r, bool_words, word, err);
        rule->begins = word;
        return 0;
    case KEY_AFTER:
        TAKE_WORD(r, after_words, word, err);
        rule->after_traceback = true;
        return 0;
    case KEY_PRECEDENCE:
        rc = check_text(r, "a number", err);
        if (rc < 0)
            return rc;
        if (adv_parse_i64(text_of(r), 0, 100, &number, NULL) < 0)
            return at_event(r, err, "\"%.40s\", expected a number from 0 to 100", text_of(r));
        rule->precedence = (int) number;
        return 0;
    case KEY_PATTERN:
        rule->pattern_line = (unsigned) r->event.start_mark.line + 1;
        rule->pattern_column = (unsigned) r->event.start_mark.column + 1;
        return take_text(r, "a regular expression", &rule->pattern, err);
    case KEY_CAPTURE:
        rule->capture_line = (unsigned) r->event.start_mark.line + 1;
        rule->capture_column = (unsigned) r->event.start_mark.column + 1;
        return take_text(r, "a regular expression", &rule->capture, err);
    case KEY_EXAMPLES:
        return take_examples(r, rule, err);
    case N_KEYS:
        break;
    }
    return at_event(r, err, "unknown key");
}

static int check_keys(struct reader *r, const struct watcher_rule *rule, unsigned have,
                      const yaml_mark_t *where, struct adv_err *err)
{
    yaml_mark_t begin = { .line = rule->line - 1, .column = rule->column - 1 };
    unsigned need = BASE_KEYS, may;
    char what[128];

    if (have & BIT(KEY_KIND)) {
        need = required_keys(rule->kind);
        may = need | optional_keys(rule->kind);
        for (int k = 0; k < N_KEYS; k++) {
            if (have & ~may & BIT(k)) {
                (void) snprintf(what, sizeof(what),
                                "%s does not belong to kind %s, expected it to be absent",
                                key_names[k], kind_words[rule->kind]);
                return at_mark(r, where[k], err, what);
            }
        }
    }
    for (int k = 0; k < N_KEYS; k++) {
        if (need & ~have & BIT(k)) {
            (void) snprintf(what, sizeof(what), "rule %s has no %s, expected one",
                            rule->id ? rule->id : "without a name", key_names[k]);
            return at_mark(r, begin, err, what);
        }
    }
    if (rule->kind == WATCHER_KIND_NOTICE && rule->terminal)
        return at_mark(r, where[KEY_TERMINAL], err, "a notice cannot be terminal, expected false");
    return 0;
}

static int add_rule(struct reader *r, struct watcher_rule **ret, struct adv_err *err)
{
    struct watcher_rules *set = r->set;

    if (set->n == WATCHER_RULES_MAX)
        return at_event(r, err, "too many rules, expected at most %d", WATCHER_RULES_MAX);
    if (set->n == set->cap) {
        size_t cap = set->cap ? set->cap * 2 : 64;
        struct watcher_rule *mem = realloc(set->rules, cap * sizeof(*mem));
        if (!mem)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
        set->rules = mem;
        set->cap = cap;
    }
    *ret = &set->rules[set->n++];
    **ret = (struct watcher_rule){ .line = (unsigned) r->event.start_mark.line + 1,
                                   .column = (unsigned) r->event.start_mark.column + 1 };
    (*ret)->file = strdup(r->file);
    return (*ret)->file ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
}

static int read_rule(struct reader *r, struct adv_err *err)
{
    yaml_mark_t where[N_KEYS] = { 0 };
    struct watcher_rule *rule = NULL;
    unsigned have = 0;
    int rc;

    if (r->event.type != YAML_MAPPING_START_EVENT)
        return at_event(r, err, "expected a rule (a mapping)");
    rc = add_rule(r, &rule, err);
    while (rc == 0) {
        int key = 0;

        rc = next(r, err);
        if (rc < 0 || r->event.type == YAML_MAPPING_END_EVENT)
            break;
        rc = take_word(r, key_names, N_KEYS, &key, err);
        if (rc < 0)
            break;
        if (have & BIT(key)) {
            rc = at_event(r, err, "%s stands twice, expected once", key_names[key]);
            break;
        }
        have |= BIT(key);
        where[key] = r->event.start_mark;
        rc = next(r, err);
        if (rc == 0)
            rc = take_value(r, (enum key) key, rule, err);
    }
    return rc < 0 ? rc : check_keys(r, rule, have, where, err);
}

static int read_document(struct reader *r, struct adv_err *err)
{
    static const char *const words[] = { "version", "rules" };
    static const char *const versions[] = { "1" };
    bool have[2] = { false, false };
    yaml_mark_t begin;
    int rc;

    rc = next_is(r, YAML_STREAM_START_EVENT, "YAML", err);
    if (rc == 0)
        rc = next_is(r, YAML_DOCUMENT_START_EVENT, "a document", err);
    if (rc == 0)
        rc = next_is(r, YAML_MAPPING_START_EVENT, "a mapping with version and rules", err);
    if (rc < 0)
        return rc;
    begin = r->event.start_mark;
    for (;;) {
        int word = 0, version = 0;

        rc = next(r, err);
        if (rc < 0)
            return rc;
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        rc = take_word(r, words, ADV_ARRAY_LEN(words), &word, err);
        if (rc < 0)
            return rc;
        if (have[word])
            return at_event(r, err, "%s stands twice, expected once", words[word]);
        have[word] = true;
        if (word == 0) {
            rc = next(r, err);
            if (rc == 0)
                rc = take_word(r, versions, ADV_ARRAY_LEN(versions), &version, err);
            if (rc < 0)
                return rc;
            continue;
        }
        rc = next_is(r, YAML_SEQUENCE_START_EVENT, "a list of rules", err);
        while (rc == 0) {
            rc = next(r, err);
            if (rc < 0 || r->event.type == YAML_SEQUENCE_END_EVENT)
                break;
            rc = read_rule(r, err);
        }
        if (rc < 0)
            return rc;
    }
    if (!have[0] || !have[1])
        return at_mark(r, begin, err,
                       have[0] ? "no rules, expected a list" : "no version, expected version: 1");
    rc = next_is(r, YAML_DOCUMENT_END_EVENT, "the end of the document", err);
    return rc < 0 ? rc : next_is(r, YAML_STREAM_END_EVENT, "one document", err);
}

static int read_source(struct watcher_rules *set, const struct watcher_rules_source *src,
                       struct adv_err *err)
{
    struct reader r = { .file = src->name, .set = set };
    int rc;

    if (src->len > WATCHER_RULES_MAX_FILE_BYTES)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%s:1:1: %zu bytes, expected at most %d",
                           src->name, src->len, WATCHER_RULES_MAX_FILE_BYTES);
    if (!yaml_parser_initialize(&r.parser))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *) src->bytes, src->len);
    rc = read_document(&r, err);
    if (r.have)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return rc;
}

/* --- sets --- */

static int compare_sources(const void *a, const void *b)
{
    const struct watcher_rules_source *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int make_version(struct watcher_rules *set, const struct watcher_rules_source *const *order,
                        size_t n, struct adv_err *err)
{
    ADV_AUTO_DONE(adv_sha256) h = { 0 };
    uint8_t digest[ADV_SHA256_LEN];
    int rc = adv_sha256_init(&h, err);

    for (size_t i = 0; i < n && rc == 0; i++) {
        uint8_t len[8];

        for (int b = 0; b < 8; b++)
            len[b] = (uint8_t) ((uint64_t) order[i]->len >> (8 * b));
        rc = adv_sha256_update(&h, order[i]->name, strlen(order[i]->name) + 1, err);
        if (rc == 0)
            rc = adv_sha256_update(&h, len, sizeof(len), err);
        if (rc == 0)
            rc = adv_sha256_update(&h, order[i]->bytes, order[i]->len, err);
    }
    if (rc == 0)
        rc = adv_sha256_final(&h, digest, err);
    if (rc == 0)
        (void) adv_hex(digest, sizeof(digest), set->version);
    return rc;
}

int watcher_rules_parse(const struct watcher_rules_source *sources, size_t n,
                        struct watcher_rules **ret, struct adv_err *err)
{
    ADV_AUTO(watcher_rules) set = calloc(1, sizeof(*set));
    adv_auto_free const struct watcher_rules_source **order = calloc(n ? n : 1, sizeof(*order));
    int rc = 0;

    if (!set || !order)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "rules: no memory");
    set->refs = 1;
    for (size_t i = 0; i < n; i++)
        order[i] = &sources[i];
    qsort(order, n, sizeof(*order), compare_sources);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_source(set, order[i], err);
    if (rc == 0 && set->n == 0)
        rc = adv_err_set(err, ADV_NOT_FOUND, "no rules, expected at least one in a *.yaml file");
    if (rc == 0)
        rc = make_version(set, order, n, err);
    if (rc == 0)
        rc = engine_new(set->rules, set->n, &set->engine, err);
    if (rc < 0)
        return rc;
    *ret = ADV_STEAL(set);
    return 0;
}

/* Appends the file and ends it with a NUL byte that does not count. */
static int slurp(int dir_fd, const char *name, struct adv_buf *out, size_t *ret_len,
                 struct adv_err *err)
{
    adv_auto_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    size_t start = out->len;

    if (fd < 0 || fstat(fd, &st) < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%s", name);
    if (!S_ISREG(st.st_mode))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%s:1:1: not a file, expected a regular one",
                           name);
    for (;;) {
        void *space = adv_buf_reserve(out, 65536);
        if (!space)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED,
                               "%s: rules are too large, expected at most %d bytes", name,
                               MAX_TOTAL_BYTES);
        ssize_t n = read(fd, space, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%s", name);
        if (n == 0)
            break;
        adv_buf_commit(out, (size_t) n);
    }
    *ret_len = out->len - start;
    return 0;
}

static int is_rule_file(const struct dirent *d)
{
    size_t n = strlen(d->d_name);

    return d->d_name[0] != '.' && n > 5 && strcmp(d->d_name + n - 5, ".yaml") == 0;
}

int watcher_rules_load(const char *dir, struct watcher_rules **ret, struct adv_err *err)
{
    struct watcher_rules_source sources[MAX_FILES];
    struct dirent **names = NULL;
    size_t start[MAX_FILES];
    adv_auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ADV_AUTO_DONE(adv_buf) text = { 0 };
    int n, rc = 0;

    if (fd < 0)
        return adv_err_set_errno(err, errno == ENOENT ? ADV_NOT_FOUND : ADV_UNAVAILABLE, errno,
                                 "rules folder %s", dir);
    n = scandir(dir, &names, is_rule_file, alphasort);
    if (n < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "rules folder %s", dir);
    adv_buf_init(&text, MAX_TOTAL_BYTES);
    if (n > MAX_FILES)
        rc = adv_err_set(err, ADV_RESOURCE_EXHAUSTED,
                         "rules folder %s: %d files, expected at most %d", dir, n, MAX_FILES);
    for (int i = 0; i < n && rc == 0; i++) {
        start[i] = text.len;
        sources[i] = (struct watcher_rules_source){ .name = names[i]->d_name };
        rc = slurp(fd, names[i]->d_name, &text, &sources[i].len, err);
    }
    for (int i = 0; i < n && rc == 0; i++)
        sources[i].bytes = text.data + start[i];
    if (rc == 0)
        rc = watcher_rules_parse(sources, (size_t) n, ret, err);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return rc;
}

struct watcher_rules *watcher_rules_ref(struct watcher_rules *rules)
{
    rules->refs++;
    return rules;
}

static void free_list(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

struct watcher_rules *watcher_rules_unref(struct watcher_rules *rules)
{
    if (!rules || --rules->refs > 0)
        return NULL;
    (void) engine_free(rules->engine);
    for (size_t i = 0; i < rules->n; i++) {
        struct watcher_rule *r = &rules->rules[i];
        free(r->id);
        free(r->pattern);
        free(r->capture);
        free(r->file);
        free_list(r->positive, r->n_positive);
        free_list(r->negative, r->n_negative);
    }
    free(rules->rules);
    free(rules);
    return NULL;
}

const char *watcher_rules_version(const struct watcher_rules *rules)
{
    return rules->version;
}

const struct watcher_rule *watcher_rules_list(const struct watcher_rules *rules, size_t *ret_n)
{
    *ret_n = rules->n;
    return rules->rules;
}

const struct watcher_rule *watcher_rules_find(const struct watcher_rules *rules, const char *id)
{
    for (size_t i = 0; i < rules->n; i++) {
        if (adv_streq(rules->rules[i].id, id))
            return &rules->rules[i];
    }
    return NULL;
}

void watcher_rules_excerpt(struct watcher_rules *rules, char *text)
{
    size_t len = strlen(text);
    char excerpt[501];

    if (!len)
        return; /* an unset field of a message stands in memory that cannot be written */
    if (engine_excerpt(rules->engine, text, len, 0, excerpt, sizeof(excerpt)) <= len)
        (void) strcpy(text, excerpt);
    else
        *text = '\0'; /* cannot be: redaction makes nothing longer */
}

struct engine *watcher_rules_engine(struct watcher_rules *rules)
{
    return rules->engine;
}

/* --- examples --- */

static void note_rule(void *ctx, const struct watcher_finding *f)
{
    const struct watcher_rule **wanted = ctx;

    if (f->rule == *wanted)
        *wanted = NULL;
}

struct look {
    struct watcher_rules *set;
    const struct watcher_rule *rule;
    bool found;
};

static void note_line(void *ctx, const char *line, size_t len, size_t offset, const uint16_t *rules,
                      size_t n)
{
    struct look *look = ctx;
    struct engine_match m;

    for (size_t i = 0; i < n; i++) {
        if (&look->set->rules[rules[i]] == look->rule)
            look->found |= engine_confirm(look->set->engine, rules[i], line, len, 0, &m);
    }
}

/* True when @rule is what the watcher reports for @text; for kinds that are never reported, when it matches. */
static int example_matches(struct watcher_rules *rules, const struct watcher_rule *rule,
                           const char *text, bool *ret, struct adv_err *err)
{
    if (rule->kind >= WATCHER_KIND_HEALTHY) {
        struct look look = { .set = rules, .rule = rule };
        engine_scan(rules->engine, text, strlen(text), note_line, &look);
        *ret = look.found;
        return 0;
    }
    const struct watcher_rule *wanted = rule;
    struct watcher_scan_options o = { .stream = rule->scope == WATCHER_SCOPE_ANY
                                                    ? WATCHER_SCOPE_APPLICATION
                                                    : rule->scope,
                                      .fn = note_rule,
                                      .ctx = &wanted };
    struct watcher_scan *s = NULL;
    int rc = watcher_scan_new(rules, &o, &s, err);
    if (rc == 0)
        rc = watcher_scan_feed(s, 0, text, strlen(text), 0, 0, err);
    if (rc == 0)
        watcher_scan_finish(s, 0);
    (void) watcher_scan_free(s);
    *ret = wanted == NULL;
    return rc;
}

int watcher_rules_check_rule(struct watcher_rules *rules, size_t i, struct adv_err *err)
{
    const struct watcher_rule *r = &rules->rules[i];

    for (size_t k = 0; k < r->n_positive + r->n_negative; k++) {
        bool positive = k < r->n_positive, match = false;
        size_t number = positive ? k : k - r->n_positive;
        int rc = example_matches(rules, r, positive ? r->positive[number] : r->negative[number], &match, err);

        if (rc < 0)
            return rc;
        if (match != positive)
            return adv_err_set(err, ADV_FAILED_PRECONDITION, "%s:%u:%u: rule %s: %s example %zu %s", r->file, r->line,
                               r->column, r->id, positive ? "positive" : "negative", number + 1,
                               positive ? "does not match" : "matches");
    }
    return 0;
}

int watcher_rules_check_examples(struct watcher_rules *rules, struct adv_err *err)
{
    for (size_t i = 0; i < rules->n; i++) {
        int rc = watcher_rules_check_rule(rules, i, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
