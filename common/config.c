/* SPDX-License-Identifier: Apache-2.0 */

/* Every source ends in set_text(row, text): one parser and one message for each type, whether a
 * value came from a file, the environment or the command line. The YAML is read as events, so each
 * error has a line and column; anchors, aliases and second documents are refused, because a
 * configuration should read the same to a person and to us.
 *
 * A reload builds a second object and compares it with the first row by row through the same text
 * form that the dump prints. */

#include "common/config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <yaml.h>

#include "common/buf.h"
#include "common/num.h"

#define MAX_DEPTH      8
#define MAX_KEY        128
#define MAX_FILE_BYTES (1 << 20)
#define MAX_LIST       1024

struct adv_config {
    const struct adv_config_table *table;
    void *values;
    uint8_t *source; /* enum adv_config_source, one for each row */
    char *file;
    int n_args;
    char *const *args;
};

static const char *const bool_words[][2] = { { "false", "true" },
                                             { "no", "yes" },
                                             { "off", "on" } };
static const char *const type_names[] = { "string",   "path", "bool",   "whole number",
                                          "duration", "size", "one of", "list" };
static const char *const reload_names[] = { "now", "next connection or run", "restart" };
static const char *const source_names[] = { "default", "file", "environment", "flag" };

static void *member(const struct adv_config *c, const struct adv_config_row *row)
{
    return (char *) c->values + row->offset;
}

static void list_done(struct adv_config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct adv_config_list){ 0 };
}

static int no_memory(struct adv_err *err)
{
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "configuration: no memory");
}

static int list_add(struct adv_config_list *l, const char *text, size_t len, struct adv_err *err)
{
    if (l->n == MAX_LIST)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "more than %d entries", MAX_LIST);
    char **items = realloc(l->items, (l->n + 2) * sizeof(*items));
    if (!items)
        return no_memory(err);
    l->items = items;
    items[l->n] = strndup(text, len);
    if (!items[l->n])
        return no_memory(err);
    items[++l->n] = NULL;
    return 0;
}

static void limits(const struct adv_config_row *row, int64_t *min, int64_t *max)
{
    *min = row->min;
    *max = row->min == 0 && row->max == 0 ? INT64_MAX : row->max;
}

static int set_list(struct adv_config_list *l, const char *text, struct adv_err *err)
{
    struct adv_config_list fresh = { 0 };

    for (const char *s = text; *s;) {
        const char *end = strchrnul(s, ',');
        int r = end == s ? adv_err_set(err, ADV_INVALID_ARGUMENT, "empty entry in list")
                         : list_add(&fresh, s, (size_t) (end - s), err);

        if (r < 0) {
            list_done(&fresh);
            return r;
        }
        s = *end ? end + 1 : end;
    }
    list_done(l);
    *l = fresh;
    return 0;
}

static int set_enum(const struct adv_config_row *row, int *v, const char *text, struct adv_err *err)
{
    char all[160] = "";

    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(row->choices[i], text) == 0) {
            *v = i;
            return 0;
        }
        size_t n = strlen(all);
        (void) snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", row->choices[i]);
    }
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "expected one of %s; got \"%.40s\"", all, text);
}

/* Puts the value @text stands for into the struct. */
static int set_text(struct adv_config *c, const struct adv_config_row *row, const char *text,
                    struct adv_err *err)
{
    void *m = member(c, row);
    int64_t min, max;

    limits(row, &min, &max);
    switch (row->type) {
    case ADV_CONFIG_TYPE_STRING:
    case ADV_CONFIG_TYPE_PATH: {
        char *copy = strdup(text);

        if (!copy)
            return no_memory(err);
        free(*(char **) m);
        *(char **) m = copy;
        return 0;
    }
    case ADV_CONFIG_TYPE_BOOL:
        for (size_t i = 0; i < ADV_ARRAY_LEN(bool_words); i++) {
            for (int v = 0; v < 2; v++) {
                if (strcasecmp(bool_words[i][v], text) == 0) {
                    *(bool *) m = v == 1;
                    return 0;
                }
            }
        }
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "expected true or false; got \"%.40s\"",
                           text);
    case ADV_CONFIG_TYPE_INT:
        return adv_parse_i64(text, min, max, m, err);
    case ADV_CONFIG_TYPE_DURATION_MS: {
        int r = adv_parse_duration_ms(text, min, max, m, err);

        if (r == -ADV_OUT_OF_RANGE) {
            char lo[ADV_NUM_TEXT_SIZE], hi[ADV_NUM_TEXT_SIZE];

            (void) adv_err_set(err, ADV_OUT_OF_RANGE, "%.40s is outside %s..%s", text,
                               adv_format_duration_ms(min, lo), adv_format_duration_ms(max, hi));
        }
        return r;
    }
    case ADV_CONFIG_TYPE_SIZE: {
        int r = adv_parse_size(text, min, max, m, err);

        if (r == -ADV_OUT_OF_RANGE) {
            char lo[ADV_NUM_TEXT_SIZE], hi[ADV_NUM_TEXT_SIZE];

            (void) adv_err_set(err, ADV_OUT_OF_RANGE, "%.40s is outside %s..%s", text,
                               adv_format_size(min, lo), adv_format_size(max, hi));
        }
        return r;
    }
    case ADV_CONFIG_TYPE_ENUM:
        return set_enum(row, m, text, err);
    case ADV_CONFIG_TYPE_LIST:
        return set_list(m, text, err);
    }
    return -ADV_INTERNAL;
}

static const struct adv_config_row *find_row(const struct adv_config_table *t, const char *key,
                                             size_t len)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        if (strncmp(t->rows[i].key, key, len) == 0 && t->rows[i].key[len] == '\0')
            return &t->rows[i];
    }
    return NULL;
}

static bool is_group(const struct adv_config_table *t, const char *key)
{
    size_t len = strlen(key);

    for (size_t i = 0; i < t->n_rows; i++) {
        if (strncmp(t->rows[i].key, key, len) == 0 && t->rows[i].key[len] == '.')
            return true;
    }
    return false;
}

static uint8_t *source_of(const struct adv_config *c, const struct adv_config_row *row)
{
    return &c->source[row - c->table->rows];
}

/* ---- file ---- */

struct reader {
    struct adv_config *c;
    yaml_parser_t yaml;
    yaml_event_t ev;
    char prefix[MAX_KEY];
    int depth;
    struct adv_err *err;
};

static int at(struct reader *rd, yaml_mark_t m, enum adv_code code, const char *what,
              const char *key)
{
    (void) adv_err_set(rd->err, code, "%s:%zu:%zu: %s%s%s", rd->c->file, m.line + 1, m.column + 1,
                       key, *key ? ": " : "", what);
    (void) adv_err_field(rd->err, "%s", key);
    return -(int) code;
}

static int next_event(struct reader *rd)
{
    yaml_event_delete(&rd->ev);
    rd->ev = (yaml_event_t){ 0 };
    if (!yaml_parser_parse(&rd->yaml, &rd->ev)) {
        yaml_mark_t m = rd->yaml.problem_mark;
        char what[160];

        (void) snprintf(what, sizeof(what), "not YAML: %s",
                        rd->yaml.problem ? rd->yaml.problem : "no memory");
        return at(rd, m, ADV_INVALID_ARGUMENT, what, "");
    }
    bool anchored =
        (rd->ev.type == YAML_SCALAR_EVENT && rd->ev.data.scalar.anchor) ||
        (rd->ev.type == YAML_SEQUENCE_START_EVENT && rd->ev.data.sequence_start.anchor) ||
        (rd->ev.type == YAML_MAPPING_START_EVENT && rd->ev.data.mapping_start.anchor);
    if (rd->ev.type == YAML_ALIAS_EVENT || anchored)
        return at(rd, rd->ev.start_mark, ADV_INVALID_ARGUMENT,
                  "anchors and aliases are not supported", "");
    return 0;
}

static const char *scalar(const struct reader *rd)
{
    return (const char *) rd->ev.data.scalar.value;
}

static bool scalar_is_null(const struct reader *rd)
{
    const char *s = scalar(rd);

    return rd->ev.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*s || adv_streq(s, "~") || adv_streq(s, "null"));
}

static int read_list(struct reader *rd, const struct adv_config_row *row)
{
    struct adv_config_list *l = member(rd->c, row);
    struct adv_err why = { 0 };

    list_done(l);
    for (;;) {
        int r = next_event(rd);

        if (r < 0)
            return r;
        if (rd->ev.type == YAML_SEQUENCE_END_EVENT)
            return 0;
        if (rd->ev.type != YAML_SCALAR_EVENT || scalar_is_null(rd))
            return at(rd, rd->ev.start_mark, ADV_INVALID_ARGUMENT, "expected a list of strings",
                      row->key);
        r = list_add(l, scalar(rd), rd->ev.data.scalar.length, &why);
        if (r < 0)
            return at(rd, rd->ev.start_mark, why.code, why.msg, row->key);
    }
}

static int read_mapping(struct reader *rd);

/* The value of rd->prefix; the event is already there. */
static int read_value(struct reader *rd, yaml_mark_t key_mark)
{
    const struct adv_config_row *row = find_row(rd->c->table, rd->prefix, strlen(rd->prefix));
    yaml_mark_t mark = rd->ev.start_mark;
    struct adv_err why = { 0 };
    char what[200];

    if (!row) {
        if (!is_group(rd->c->table, rd->prefix))
            return at(rd, key_mark, ADV_INVALID_ARGUMENT, "unknown key", rd->prefix);
        if (rd->ev.type == YAML_SCALAR_EVENT && scalar_is_null(rd))
            return 0; /* an empty group */
        if (rd->ev.type != YAML_MAPPING_START_EVENT)
            return at(rd, mark, ADV_INVALID_ARGUMENT, "expected a map of keys", rd->prefix);
        if (++rd->depth > MAX_DEPTH)
            return at(rd, mark, ADV_INVALID_ARGUMENT, "nested too deeply", rd->prefix);
        int r = read_mapping(rd);
        rd->depth--;
        return r;
    }
    if (*source_of(rd->c, row) == ADV_CONFIG_FROM_FILE)
        return at(rd, key_mark, ADV_INVALID_ARGUMENT, "is set a second time", row->key);
    *source_of(rd->c, row) = ADV_CONFIG_FROM_FILE;
    if (row->type == ADV_CONFIG_TYPE_LIST && rd->ev.type == YAML_SEQUENCE_START_EVENT)
        return read_list(rd, row);
    if (rd->ev.type != YAML_SCALAR_EVENT || row->type == ADV_CONFIG_TYPE_LIST ||
        scalar_is_null(rd)) {
        (void) snprintf(what, sizeof(what), "expected a %s", type_names[row->type]);
        return at(rd, mark, ADV_INVALID_ARGUMENT, what, row->key);
    }
    if (strlen(scalar(rd)) != rd->ev.data.scalar.length)
        return at(rd, mark, ADV_INVALID_ARGUMENT, "has a NUL character", row->key);
    if (set_text(rd->c, row, scalar(rd), &why) < 0)
        return at(rd, mark, why.code, why.msg, row->key);
    return 0;
}

static int read_mapping(struct reader *rd)
{
    size_t len = strlen(rd->prefix);

    for (;;) {
        int r = next_event(rd);

        if (r < 0)
            return r;
        if (rd->ev.type == YAML_MAPPING_END_EVENT)
            return 0;
        yaml_mark_t mark = rd->ev.start_mark;
        if (rd->ev.type != YAML_SCALAR_EVENT)
            return at(rd, mark, ADV_INVALID_ARGUMENT, "expected a key", rd->prefix);
        int n = snprintf(rd->prefix + len, sizeof(rd->prefix) - len, "%s%s", len ? "." : "",
                         scalar(rd));
        if (n < 0 || (size_t) n >= sizeof(rd->prefix) - len)
            return at(rd, mark, ADV_INVALID_ARGUMENT, "key is too long", "");
        r = next_event(rd);
        if (r == 0)
            r = read_value(rd, mark);
        rd->prefix[len] = '\0';
        if (r < 0)
            return r;
    }
}

static int read_document(struct reader *rd)
{
    int r = 0;

    while (r == 0 && (rd->ev.type == YAML_NO_EVENT || rd->ev.type == YAML_STREAM_START_EVENT ||
                      rd->ev.type == YAML_DOCUMENT_START_EVENT))
        r = next_event(rd);
    if (r < 0 || rd->ev.type == YAML_STREAM_END_EVENT)
        return r; /* an empty file is a valid one */
    if (rd->ev.type == YAML_MAPPING_START_EVENT) {
        r = read_mapping(rd);
        if (r < 0)
            return r;
    } else if (rd->ev.type != YAML_SCALAR_EVENT || !scalar_is_null(rd)) {
        return at(rd, rd->ev.start_mark, ADV_INVALID_ARGUMENT, "expected a map of keys", "");
    }
    r = next_event(rd);
    if (r == 0)
        r = next_event(rd);
    if (r == 0 && rd->ev.type != YAML_STREAM_END_EVENT)
        r = at(rd, rd->ev.start_mark, ADV_INVALID_ARGUMENT, "more than one document", "");
    return r;
}

static int slurp(const char *file, struct adv_buf *b, struct adv_err *err)
{
    adv_auto_close int fd = open(file, O_RDONLY | O_CLOEXEC);
    int r;

    if (fd < 0)
        return adv_err_set_errno(err, errno == EACCES ? ADV_PERMISSION_DENIED : ADV_NOT_FOUND,
                                 errno, "%.180s", file);
    r = adv_buf_read(b, fd);
    if (r == -ADV_RESOURCE_EXHAUSTED)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%.180s: larger than %d bytes", file, MAX_FILE_BYTES);
    return r < 0 ? adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%.180s", file) : 0;
}

static int load_text(struct adv_config *c, const char *text, size_t len, struct adv_err *err)
{
    struct adv_err mine;
    struct reader rd = { .c = c, .err = err ? err : &mine };
    int r;

    if (!yaml_parser_initialize(&rd.yaml))
        return no_memory(err);
    yaml_parser_set_input_string(&rd.yaml, (const unsigned char *) text, len);
    r = read_document(&rd);
    yaml_event_delete(&rd.ev);
    yaml_parser_delete(&rd.yaml);
    return r;
}

static int load_file(struct adv_config *c, struct adv_err *err)
{
    ADV_AUTO_DONE(adv_buf) text;

    adv_buf_init(&text, MAX_FILE_BYTES);
    int r = slurp(c->file, &text, err);
    return r < 0 ? r : load_text(c, text.data, text.len, err);
}

/* ---- environment and flags ---- */

static int load_env(struct adv_config *c, struct adv_err *err)
{
    const struct adv_config_table *t = c->table;

    for (size_t i = 0; i < t->n_rows; i++) {
        char name[MAX_KEY + 32];
        struct adv_err why = { 0 };
        int n = snprintf(name, sizeof(name), "%s_%s", t->env_prefix, t->rows[i].key);

        for (int k = 0; k < n && name[k]; k++) {
            if (name[k] >= 'a' && name[k] <= 'z')
                name[k] = (char) (name[k] - 'a' + 'A');
            else if (name[k] == '.' || name[k] == '-')
                name[k] = '_';
        }
        const char *v = getenv(name);
        if (!v)
            continue;
        int r = set_text(c, &t->rows[i], v, &why);
        if (r < 0) {
            (void) adv_err_set(err, why.code, "environment %s: %s", name, why.msg);
            (void) adv_err_field(err, "%s", t->rows[i].key);
            return r;
        }
        c->source[i] = ADV_CONFIG_FROM_ENV;
    }
    return 0;
}

static int load_flags(struct adv_config *c, struct adv_err *err)
{
    for (int i = 0; i < c->n_args; i++) {
        const char *arg = c->args[i];
        struct adv_err why = { 0 };

        if (!adv_startswith(arg, "--"))
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "unexpected argument \"%.80s\"", arg);
        const char *key = arg + 2, *eq = strchrnul(key, '=');
        const struct adv_config_row *row = find_row(c->table, key, (size_t) (eq - key));
        if (!row)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "unknown flag \"%.80s\"", arg);
        const char *value = *eq ? eq + 1 : NULL;
        if (!value && row->type == ADV_CONFIG_TYPE_BOOL)
            value = "true";
        else if (!value && i + 1 < c->n_args)
            value = c->args[++i];
        else if (!value)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "flag --%s needs a value", row->key);
        if (*source_of(c, row) == ADV_CONFIG_FROM_FLAG)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "flag --%s is given twice", row->key);
        int r = set_text(c, row, value, &why);
        if (r < 0) {
            (void) adv_err_set(err, why.code, "flag --%s: %s", row->key, why.msg);
            (void) adv_err_field(err, "%s", row->key);
            return r;
        }
        *source_of(c, row) = ADV_CONFIG_FROM_FLAG;
    }
    return 0;
}

/* ---- the object ---- */

struct adv_config *adv_config_free(struct adv_config *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; c->values && i < c->table->n_rows; i++) {
        const struct adv_config_row *row = &c->table->rows[i];

        if (row->type == ADV_CONFIG_TYPE_LIST)
            list_done(member(c, row));
        else if (row->type == ADV_CONFIG_TYPE_STRING || row->type == ADV_CONFIG_TYPE_PATH)
            free(*(char **) member(c, row));
    }
    free(c->values);
    free(c->source);
    free(c->file);
    free(c);
    return NULL;
}

/* With all values at their defaults. */
static int new_config(const struct adv_config_table *table, const char *file, struct adv_config **ret,
                      struct adv_err *err)
{
    struct adv_config *c = calloc(1, sizeof(*c));
    int r = 0;

    if (!c)
        return no_memory(err);
    c->table = table;
    c->values = calloc(1, table->struct_size);
    c->source = calloc(table->n_rows + 1, 1);
    c->file = file ? strdup(file) : NULL;
    if (!c->values || !c->source || (file && !c->file))
        r = no_memory(err);
    for (size_t i = 0; r == 0 && i < table->n_rows; i++) {
        r = set_text(c, &table->rows[i], table->rows[i].def, err);
        if (r < 0)
            adv_err_wrap(err, "default of %s", table->rows[i].key); /* a mistake in the table */
    }
    if (r < 0)
        (void) adv_config_free(c);
    else
        *ret = c;
    return r;
}

int adv_config_parse(const struct adv_config_table *table, const char *name, const char *text, size_t len,
                     struct adv_config **ret, struct adv_err *err)
{
    struct adv_config *c = NULL;
    int r = new_config(table, name, &c, err);

    if (r < 0)
        return r;
    r = load_text(c, text, len, err);
    if (r == 0 && table->check)
        r = table->check(c->values, err);
    if (r < 0)
        (void) adv_config_free(c);
    else
        *ret = c;
    return r;
}

int adv_config_load(const struct adv_config_table *table, const char *file, int n_args,
                    char *const *args, struct adv_config **ret, struct adv_err *err)
{
    struct adv_config *c = NULL;
    int r = new_config(table, file, &c, err);

    if (r < 0)
        return r;
    c->n_args = n_args;
    c->args = args;
    if (file)
        r = load_file(c, err);
    if (r == 0)
        r = load_env(c, err);
    if (r == 0)
        r = load_flags(c, err);
    if (r == 0 && table->check)
        r = table->check(c->values, err);
    if (r < 0) {
        (void) adv_config_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

const void *adv_config_values(const struct adv_config *c)
{
    return c->values;
}

enum adv_config_source adv_config_source(const struct adv_config *c, const char *key)
{
    const struct adv_config_row *row = find_row(c->table, key, strlen(key));

    return row ? (enum adv_config_source) * source_of(c, row) : ADV_CONFIG_FROM_DEFAULT;
}

/* ---- text of a value ---- */

static void put_yaml_string(struct adv_buf *b, const char *s)
{
    bool plain = *s && !strchr("-?:,[]{}#&*!|>'\"%@` ~=", *s) && strcmp(s, "null") != 0;

    for (const char *p = s; *p && plain; p++)
        plain = (unsigned char) *p > ' ' && *p != 0x7F && !strchr(":#,[]{}\"'\\", *p);
    if (plain) {
        (void) adv_buf_append_str(b, s);
        return;
    }
    (void) adv_buf_append_byte(b, '"');
    for (; *s; s++) {
        unsigned char ch = (unsigned char) *s;

        if (ch == '"' || ch == '\\')
            (void) adv_buf_appendf(b, "\\%c", ch);
        else if (ch < 0x20 || ch == 0x7F)
            (void) adv_buf_appendf(b, "\\x%02x", ch);
        else
            (void) adv_buf_append_byte(b, ch);
    }
    (void) adv_buf_append_byte(b, '"');
}

static void put_value(const struct adv_config *c, const struct adv_config_row *row,
                      struct adv_buf *b)
{
    const void *m = member(c, row);
    char num[ADV_NUM_TEXT_SIZE];

    switch (row->type) {
    case ADV_CONFIG_TYPE_STRING:
    case ADV_CONFIG_TYPE_PATH:
        put_yaml_string(b, *(char *const *) m);
        break;
    case ADV_CONFIG_TYPE_BOOL:
        (void) adv_buf_append_str(b, *(const bool *) m ? "true" : "false");
        break;
    case ADV_CONFIG_TYPE_INT:
        (void) adv_buf_appendf(b, "%" PRId64, *(const int64_t *) m);
        break;
    case ADV_CONFIG_TYPE_DURATION_MS:
        (void) adv_buf_append_str(b, adv_format_duration_ms(*(const int64_t *) m, num));
        break;
    case ADV_CONFIG_TYPE_SIZE:
        (void) adv_buf_append_str(b, adv_format_size(*(const int64_t *) m, num));
        break;
    case ADV_CONFIG_TYPE_ENUM:
        put_yaml_string(b, row->choices[*(const int *) m]);
        break;
    case ADV_CONFIG_TYPE_LIST: {
        const struct adv_config_list *l = m;

        (void) adv_buf_append_byte(b, '[');
        for (size_t i = 0; i < l->n; i++) {
            if (i > 0)
                (void) adv_buf_append_str(b, ", ");
            put_yaml_string(b, l->items[i]);
        }
        (void) adv_buf_append_byte(b, ']');
        break;
    }
    }
}

/* Swaps the values of @row between two objects of one table. */
static void swap_value(struct adv_config *a, struct adv_config *b, const struct adv_config_row *row)
{
    static const size_t sizes[] = {
        [ADV_CONFIG_TYPE_STRING] = sizeof(char *),
        [ADV_CONFIG_TYPE_PATH] = sizeof(char *),
        [ADV_CONFIG_TYPE_BOOL] = sizeof(bool),
        [ADV_CONFIG_TYPE_INT] = sizeof(int64_t),
        [ADV_CONFIG_TYPE_DURATION_MS] = sizeof(int64_t),
        [ADV_CONFIG_TYPE_SIZE] = sizeof(int64_t),
        [ADV_CONFIG_TYPE_ENUM] = sizeof(int),
        [ADV_CONFIG_TYPE_LIST] = sizeof(struct adv_config_list),
    };
    char tmp[sizeof(struct adv_config_list)];
    size_t n = sizes[row->type];
    uint8_t src = *source_of(a, row);

    memcpy(tmp, member(a, row), n);
    memcpy(member(a, row), member(b, row), n);
    memcpy(member(b, row), tmp, n);
    *source_of(a, row) = *source_of(b, row);
    *source_of(b, row) = src;
}

int adv_config_reload(struct adv_config **c,
                      void (*changed)(void *user, const struct adv_config_row *row), void *user,
                      struct adv_err *err)
{
    struct adv_config *old = *c, *fresh = NULL;
    const struct adv_config_table *t = old->table;
    ADV_AUTO_DONE(adv_buf) was;
    ADV_AUTO_DONE(adv_buf) is;

    adv_buf_init(&was, MAX_FILE_BYTES);
    adv_buf_init(&is, MAX_FILE_BYTES);
    int r = adv_config_load(t, old->file, old->n_args, old->args, &fresh, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct adv_config_row *row = &t->rows[i];

        adv_buf_reset(&was);
        adv_buf_reset(&is);
        put_value(old, row, &was);
        put_value(fresh, row, &is);
        if (was.len == is.len && memcmp(was.data, is.data, is.len) == 0)
            continue;
        if (changed)
            changed(user, row);
        if (row->reload == ADV_CONFIG_RESTART)
            swap_value(old, fresh, row);
    }
    *c = fresh;
    (void) adv_config_free(old);
    return 0;
}

/* ---- output ---- */

void adv_config_dump(const struct adv_config *c, FILE *out)
{
    const char *last = "";
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, MAX_FILE_BYTES);
    for (size_t i = 0; i < c->table->n_rows; i++) {
        const struct adv_config_row *row = &c->table->rows[i];
        const char *key = row->key, *dot;
        int depth = 0;
        bool shared = true;

        /* open the groups that the row before did not open */
        for (const char *s = key; (dot = strchr(s, '.')); s = dot + 1, depth++) {
            size_t upto = (size_t) (dot + 1 - key);

            shared = shared && strncmp(last, key, upto) == 0;
            if (!shared)
                (void) fprintf(out, "%*s%.*s:\n", depth * 2, "", (int) (dot - s), s);
        }
        const char *leaf = strrchr(key, '.');
        adv_buf_reset(&b);
        put_value(c, row, &b);
        (void) fprintf(out, "%*s%s: %s  # %s\n", depth * 2, "", leaf ? leaf + 1 : key, b.data,
                       source_names[*source_of(c, row)]);
        last = key;
    }
}

static void put_range(const struct adv_config_row *row, FILE *out)
{
    char lo[ADV_NUM_TEXT_SIZE], hi[ADV_NUM_TEXT_SIZE];
    int64_t min, max;

    limits(row, &min, &max);
    if (row->type == ADV_CONFIG_TYPE_ENUM) {
        for (int i = 0; row->choices[i]; i++)
            (void) fprintf(out, "%s`%s`", i ? ", " : "", row->choices[i]);
        return;
    }
    if (row->type == ADV_CONFIG_TYPE_DURATION_MS) {
        (void) adv_format_duration_ms(min, lo);
        (void) adv_format_duration_ms(max, hi);
    } else if (row->type == ADV_CONFIG_TYPE_SIZE) {
        (void) adv_format_size(min, lo);
        (void) adv_format_size(max, hi);
    } else if (row->type == ADV_CONFIG_TYPE_INT) {
        (void) snprintf(lo, sizeof(lo), "%" PRId64, min);
        (void) snprintf(hi, sizeof(hi), "%" PRId64, max);
    } else {
        return;
    }
    if (max == INT64_MAX)
        (void) fprintf(out, "from %s", lo);
    else
        (void) fprintf(out, "%s to %s", lo, hi);
    if (row->unit)
        (void) fprintf(out, " %s", row->unit);
}

void adv_config_dump_docs(const struct adv_config_table *table, FILE *out)
{
    (void) fprintf(
        out, "| key | type | range | default | reload | meaning |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < table->n_rows; i++) {
        const struct adv_config_row *row = &table->rows[i];

        (void) fprintf(out, "| `%s` | %s | ", row->key,
                       row->type == ADV_CONFIG_TYPE_ENUM ? "enum" : type_names[row->type]);
        put_range(row, out);
        (void) fprintf(out, " | %s%s%s | %s | %s |\n", *row->def ? "`" : "",
                       *row->def ? row->def : "none", *row->def ? "`" : "",
                       reload_names[row->reload], row->text);
    }
}

static void help(const struct adv_config_table *t)
{
    printf(
        "Usage: %s [--config FILE] [--KEY=VALUE ...]\n\n%s\n\n"
        "  --config FILE          read this YAML file\n"
        "  --check-config         check the configuration and exit (0 good, 1 bad)\n"
        "  --dump-config          print the effective configuration with the source of each value\n"
        "  --dump-config-docs     print the reference of all keys as Markdown\n"
        "  --version, --help\n\n"
        "Each key may stand in the file, as %s_KEY in the environment, or as a flag:\n\n",
        t->program, t->about, t->env_prefix);
    for (size_t i = 0; i < t->n_rows; i++)
        printf("  --%-28s %s (default %s)\n", t->rows[i].key, t->rows[i].text,
               *t->rows[i].def ? t->rows[i].def : "none");
}

bool adv_config_main(const struct adv_config_table *table, int argc, char **argv, int *ret_rest,
                     struct adv_config **ret, int *ret_exit)
{
    bool check = false, dump = false;
    const char *file = NULL;
    struct adv_err err = { 0 };
    int n = 0, i;

    *ret_exit = 0;
    if (ret_rest)
        *ret_rest = argc;
    /* Our own flags are taken out; what is left in argv[1..n] is the table's. */
    for (i = 1; i < argc; i++) {
        const char *a = argv[i];

        if (adv_streq(a, "--help")) {
            help(table);
            return false;
        }
        if (adv_streq(a, "--version")) {
            printf("%s %s\n", table->program, ADVISOR_VERSION);
            return false;
        }
        if (adv_streq(a, "--dump-config-docs")) {
            adv_config_dump_docs(table, stdout);
            return false;
        }
        if (adv_streq(a, "--check-config")) {
            check = true;
        } else if (adv_streq(a, "--dump-config")) {
            dump = true;
        } else if (adv_streq(a, "--config") || adv_startswith(a, "--config=")) {
            bool joined = a[8] == '=';

            if (file || (!joined && i + 1 == argc)) {
                (void) fprintf(stderr, "%s: --config takes one file\n", table->program);
                *ret_exit = 2;
                return false;
            }
            file = joined ? a + 9 : argv[++i];
        } else if (!adv_startswith(a, "--") || a[2] == '\0') {
            if (!ret_rest) {
                (void) fprintf(stderr, "%s: unexpected argument \"%s\"\n", table->program, a);
                *ret_exit = 2;
                return false;
            }
            *ret_rest = a[0] == '-' && a[1] == '-' ? i + 1 : i;
            break;
        } else {
            const char *eq = strchr(a, '=');
            const struct adv_config_row *row = find_row(table, a + 2, strlen(a + 2));

            argv[1 + n++] = argv[i];
            if (!eq && row && row->type != ADV_CONFIG_TYPE_BOOL && i + 1 < argc)
                argv[1 + n++] = argv[++i];
        }
    }
    int r = adv_config_load(table, file, n, argv + 1, ret, &err);
    if (r < 0) {
        (void) fprintf(stderr, "%s: %s\n", table->program, err.msg);
        *ret_exit = 1;
        return false;
    }
    if (check || dump) {
        if (dump)
            adv_config_dump(*ret, stdout);
        else
            printf("configuration is good\n");
        *ret = adv_config_free(*ret);
        return false;
    }
    return true;
}
