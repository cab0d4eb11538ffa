/* SPDX-License-Identifier: Apache-2.0 */

/* A printer, not a tree builder: a list of a thousand jobs goes straight into the buffer. Floats
 * are printed with the fewest digits that read back to the same value. protobuf-c forgets that a
 * repeated message was a map, so it is recognised by its shape: an entry type named after the field
 * with `key` = 1 and `value` = 2, which protoc reserves for maps. */

#include "common/pbjson.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/utf8.h"

#define TREE_MAX_BYTES (256 << 20)

/* Year 1 to 9999 and 10,000 years, as timestamp.proto and duration.proto say. */
#define TIMESTAMP_MIN_S INT64_C(-62135596800)
#define TIMESTAMP_MAX_S INT64_C(253402300799)
#define DURATION_MAX_S  INT64_C(315576000000)

struct printer {
    struct adv_buf *out;
    unsigned int flags;
    int depth;
    struct adv_err *err;
};

static int print_message(struct printer *p, const ProtobufCMessage *msg);

static void newline(struct printer *p)
{
    if (!(p->flags & ADV_PBJSON_PRETTY))
        return;
    (void) adv_buf_append_byte(p->out, '\n');
    for (int i = 0; i < p->depth; i++)
        (void) adv_buf_append_str(p->out, "  ");
}

static void print_string(struct printer *p, const char *s)
{
    adv_auto_free char *fixed = NULL;
    const char *run;

    if (!s)
        s = "";
    if (!adv_utf8_valid(s, strlen(s))) {
        fixed = adv_utf8_lossy(s, strlen(s));
        s = fixed ? fixed : "";
    }
    (void) adv_buf_append_byte(p->out, '"');
    for (run = s; *s; s++) {
        unsigned char c = (unsigned char) *s;
        const char *esc = strchr("\"\\\b\f\n\r\t", c);

        if (c >= 0x20 && !esc)
            continue;
        (void) adv_buf_append(p->out, run, (size_t) (s - run));
        run = s + 1;
        if (!esc)
            (void) adv_buf_appendf(p->out, "\\u%04x", c);
        else
            (void) adv_buf_appendf(p->out, "\\%c", "\"\\bfnrt"[esc - "\"\\\b\f\n\r\t"]);
    }
    (void) adv_buf_append(p->out, run, (size_t) (s - run));
    (void) adv_buf_append_byte(p->out, '"');
}

static void print_bytes(struct printer *p, const ProtobufCBinaryData *b)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    (void) adv_buf_append_byte(p->out, '"');
    for (size_t i = 0; i < b->len; i += 3) {
        size_t left = b->len - i;
        uint32_t v = (uint32_t) b->data[i] << 16 | (left > 1 ? (uint32_t) b->data[i + 1] << 8 : 0) |
                     (left > 2 ? b->data[i + 2] : 0);
        const char four[4] = { digits[v >> 18], digits[v >> 12 & 63],
                               left > 1 ? digits[v >> 6 & 63] : '=',
                               left > 2 ? digits[v & 63] : '=' };

        (void) adv_buf_append(p->out, four, sizeof(four));
    }
    (void) adv_buf_append_byte(p->out, '"');
}

static void print_double(struct printer *p, double v, bool is_float)
{
    char text[40];

    if (isnan(v) || isinf(v)) {
        (void) adv_buf_append_str(p->out, isnan(v) ? "\"NaN\""
                                          : v > 0  ? "\"Infinity\""
                                                   : "\"-Infinity\"");
        return;
    }
    for (int digits = is_float ? 6 : 15;; digits++) {
        (void) snprintf(text, sizeof(text), "%.*g", digits, v);
        if (digits == (is_float ? 9 : 17))
            break;
        if (is_float ? strtof(text, NULL) == (float) v : strtod(text, NULL) == v)
            break;
    }
    for (char *s = text; *s; s++) {
        if (*s == ',') /* some locales */
            *s = '.';
    }
    (void) adv_buf_append_str(p->out, text);
}

static void print_enum(struct printer *p, const ProtobufCEnumDescriptor *d, int v)
{
    const ProtobufCEnumValue *name = protobuf_c_enum_descriptor_get_value(d, v);

    if (name)
        print_string(p, name->name);
    else
        (void) adv_buf_appendf(p->out, "%d", v);
}

/* ".5", ".123456", ... with 3, 6 or 9 digits; nothing for 0. */
static void print_nanos(struct printer *p, int32_t nanos)
{
    if (nanos == 0)
        return;
    if (nanos % 1000000 == 0)
        (void) adv_buf_appendf(p->out, ".%03d", nanos / 1000000);
    else if (nanos % 1000 == 0)
        (void) adv_buf_appendf(p->out, ".%06d", nanos / 1000);
    else
        (void) adv_buf_appendf(p->out, ".%09d", nanos);
}

static int64_t i64_field(const ProtobufCMessage *msg, unsigned int number)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field(msg->descriptor, number);
    const char *at = (const char *) msg + f->offset;
    int64_t v64;
    int32_t v32;

    if (f->type == PROTOBUF_C_TYPE_INT64) {
        memcpy(&v64, at, sizeof(v64));
        return v64;
    }
    memcpy(&v32, at, sizeof(v32));
    return v32;
}

static int print_timestamp(struct printer *p, const ProtobufCMessage *msg)
{
    int64_t s = i64_field(msg, 1), nanos = i64_field(msg, 2);
    char text[ADV_RFC3339_SIZE];

    if (s < TIMESTAMP_MIN_S || s > TIMESTAMP_MAX_S || nanos < 0 || nanos > 999999999)
        return adv_err_set(p->err, ADV_INVALID_ARGUMENT, "timestamp is out of range");
    (void) adv_rfc3339_format(s * 1000000, text);
    (void) adv_buf_appendf(p->out, "\"%.19s", text);
    print_nanos(p, (int32_t) nanos);
    (void) adv_buf_append_str(p->out, "Z\"");
    return 0;
}

static int print_duration(struct printer *p, const ProtobufCMessage *msg)
{
    int64_t s = i64_field(msg, 1), nanos = i64_field(msg, 2);
    bool negative = s < 0 || nanos < 0;

    if (s < -DURATION_MAX_S || s > DURATION_MAX_S || nanos < -999999999 || nanos > 999999999 ||
        (s < 0 && nanos > 0) || (s > 0 && nanos < 0))
        return adv_err_set(p->err, ADV_INVALID_ARGUMENT, "duration is out of range");
    (void) adv_buf_appendf(p->out, "\"%s%" PRId64, negative ? "-" : "", s < 0 ? -s : s);
    print_nanos(p, (int32_t) (nanos < 0 ? -nanos : nanos));
    (void) adv_buf_append_str(p->out, "s\"");
    return 0;
}

static int print_any(struct printer *p, const ProtobufCMessage *msg)
{
    const ProtobufCMessageDescriptor *d = msg->descriptor;
    const char *base = (const char *) msg;
    ProtobufCBinaryData value;
    const char *url;

    memcpy(&url, base + protobuf_c_message_descriptor_get_field(d, 1)->offset, sizeof(url));
    memcpy(&value, base + protobuf_c_message_descriptor_get_field(d, 2)->offset, sizeof(value));
    (void) adv_buf_append_byte(p->out, '{');
    p->depth++;
    newline(p);
    (void) adv_buf_append_str(p->out, p->flags & ADV_PBJSON_PRETTY ? "\"@type\": " : "\"@type\":");
    print_string(p, url);
    (void) adv_buf_append_byte(p->out, ',');
    newline(p);
    (void) adv_buf_append_str(p->out, p->flags & ADV_PBJSON_PRETTY ? "\"value\": " : "\"value\":");
    print_bytes(p, &value);
    p->depth--;
    newline(p);
    (void) adv_buf_append_byte(p->out, '}');
    return 0;
}

static size_t element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_ENUM:
        return 4;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 8;
    }
}

/* The value at @at, one element of @f. As a map's key everything is a string. */
static int print_value(struct printer *p, const ProtobufCFieldDescriptor *f, const void *at,
                       bool key)
{
    union {
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f;
        double d;
        protobuf_c_boolean b;
        void *ptr;
        ProtobufCBinaryData bytes;
    } v;
    const char *quote = key ? "\"" : "";

    memcpy(&v, at, element_size(f->type));
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        (void) adv_buf_appendf(p->out, "%s%" PRId32 "%s", quote, v.i32, quote);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        (void) adv_buf_appendf(p->out, "%s%" PRIu32 "%s", quote, v.u32, quote);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        (void) adv_buf_appendf(p->out, "\"%" PRId64 "\"", v.i64);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        (void) adv_buf_appendf(p->out, "\"%" PRIu64 "\"", v.u64);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        print_double(p, (double) v.f, true);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        print_double(p, v.d, false);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        (void) adv_buf_appendf(p->out, "%s%s%s", quote, v.b ? "true" : "false", quote);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        print_enum(p, f->descriptor, v.i32);
        break;
    case PROTOBUF_C_TYPE_STRING:
        print_string(p, v.ptr);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        print_bytes(p, &v.bytes);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        return print_message(p, v.ptr);
    }
    return 0;
}

/* Is a singular scalar zero or empty? */
static bool is_zero(const ProtobufCFieldDescriptor *f, const void *at)
{
    static const char zeros[sizeof(ProtobufCBinaryData)];
    const char *s;
    ProtobufCBinaryData b;

    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&s, at, sizeof(s));
        return !s || !*s;
    case PROTOBUF_C_TYPE_BYTES:
        memcpy(&b, at, sizeof(b));
        return b.len == 0;
    default:
        return memcmp(at, zeros, element_size(f->type)) == 0;
    }
}

static bool is_null_message(const ProtobufCFieldDescriptor *f, const void *at)
{
    const void *m;

    if (f->type != PROTOBUF_C_TYPE_MESSAGE)
        return false;
    memcpy(&m, at, sizeof(m));
    return !m;
}

/* Does the singular field @f appear in the output? */
static bool present(const struct printer *p, const ProtobufCMessage *msg,
                    const ProtobufCFieldDescriptor *f)
{
    const char *base = (const char *) msg;
    const void *at = base + f->offset;
    uint32_t which;
    protobuf_c_boolean has;
    const void *ptr;

    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        memcpy(&which, base + f->quantifier_offset, sizeof(which));
        return which == f->id && !is_null_message(f, at);
    }
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return !is_null_message(f, at);
    if (f->label == PROTOBUF_C_LABEL_OPTIONAL) { /* proto2 and proto3 `optional` */
        if (f->type == PROTOBUF_C_TYPE_STRING) {
            memcpy(&ptr, at, sizeof(ptr));
            return ptr && ptr != f->default_value;
        }
        memcpy(&has, base + f->quantifier_offset, sizeof(has));
        return has;
    }
    return f->label == PROTOBUF_C_LABEL_REQUIRED || (p->flags & ADV_PBJSON_DEFAULTS) ||
           !is_zero(f, at);
}

/* Writes lowerCamelCase of @name to @out of @cap bytes; with @first_upper CamelCase. */
static void camel(const char *name, bool first_upper, char *out, size_t cap)
{
    size_t n = 0;

    for (bool upper = first_upper; *name && n + 1 < cap; name++) {
        if (*name == '_') {
            upper = true;
            continue;
        }
        out[n++] = upper && *name >= 'a' && *name <= 'z' ? (char) (*name - 'a' + 'A') : *name;
        upper = false;
    }
    out[n] = '\0';
}

static bool is_map(const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *d = f->descriptor;
    char want[128];

    if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE ||
        d->n_fields != 2 || d->fields[0].id != 1 || d->fields[1].id != 2 ||
        strcmp(d->fields[0].name, "key") != 0 || strcmp(d->fields[1].name, "value") != 0)
        return false;
    camel(f->name, true, want, sizeof(want) - 5);
    (void) strcat(want, "Entry");
    const char *dot = strrchr(d->name, '.');
    return strcmp(dot ? dot + 1 : d->name, want) == 0;
}

static int print_entry(struct printer *p, const ProtobufCMessage *e)
{
    const ProtobufCFieldDescriptor *k = &e->descriptor->fields[0], *v = &e->descriptor->fields[1];
    const void *value = (const char *) e + v->offset;

    int r = print_value(p, k, (const char *) e + k->offset, true);
    (void) adv_buf_append_str(p->out, p->flags & ADV_PBJSON_PRETTY ? ": " : ":");
    if (r < 0)
        return r;
    if (is_null_message(v, value)) { /* an entry without a value has an empty one */
        (void) adv_buf_append_str(p->out, "{}");
        return 0;
    }
    return print_value(p, v, value, false);
}

static int print_repeated(struct printer *p, const ProtobufCMessage *msg,
                          const ProtobufCFieldDescriptor *f)
{
    const char *base = (const char *) msg, *items;
    size_t n, size = element_size(f->type);
    bool map = is_map(f);
    int r = 0;

    memcpy(&n, base + f->quantifier_offset, sizeof(n));
    memcpy(&items, base + f->offset, sizeof(items));
    (void) adv_buf_append_byte(p->out, map ? '{' : '[');
    p->depth++;
    for (size_t i = 0; r == 0 && i < n; i++) {
        const ProtobufCMessage *entry;

        if (i > 0)
            (void) adv_buf_append_byte(p->out, ',');
        newline(p);
        if (map) {
            memcpy(&entry, items + i * size, sizeof(entry));
            r = print_entry(p, entry);
        } else {
            r = print_value(p, f, items + i * size, false);
        }
        if (r == 0 && adv_buf_error(p->out)) /* full: do not walk a long list in vain */
            r = adv_err_set(p->err, ADV_RESOURCE_EXHAUSTED, "JSON output is over its limit");
    }
    p->depth--;
    if (n > 0)
        newline(p);
    (void) adv_buf_append_byte(p->out, map ? '}' : ']');
    return r;
}

static size_t repeated_count(const ProtobufCMessage *msg, const ProtobufCFieldDescriptor *f)
{
    size_t n;

    memcpy(&n, (const char *) msg + f->quantifier_offset, sizeof(n));
    return n;
}

static int print_fields(struct printer *p, const ProtobufCMessage *msg)
{
    bool any = false;
    int r = 0;

    (void) adv_buf_append_byte(p->out, '{');
    p->depth++;
    for (unsigned int i = 0; r == 0 && i < msg->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &msg->descriptor->fields[i];
        bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        char name[128];

        if (repeated ? repeated_count(msg, f) == 0 && !(p->flags & ADV_PBJSON_DEFAULTS)
                     : !present(p, msg, f))
            continue;
        if (any)
            (void) adv_buf_append_byte(p->out, ',');
        any = true;
        newline(p);
        camel(f->name, false, name, sizeof(name));
        (void) adv_buf_appendf(p->out, p->flags & ADV_PBJSON_PRETTY ? "\"%s\": " : "\"%s\":", name);
        r = repeated ? print_repeated(p, msg, f)
                     : print_value(p, f, (const char *) msg + f->offset, false);
    }
    p->depth--;
    if (any)
        newline(p);
    (void) adv_buf_append_byte(p->out, '}');
    return r;
}

static int print_message(struct printer *p, const ProtobufCMessage *msg)
{
    static const struct {
        const char *name;
        int (*print)(struct printer *p, const ProtobufCMessage *msg);
    } special[] = {
        { "google.protobuf.Timestamp", print_timestamp },
        { "google.protobuf.Duration", print_duration },
        { "google.protobuf.Any", print_any },
    };
    const char *name = msg->descriptor->name;

    if (p->depth >= 2 * ADV_PBJSON_MAX_DEPTH) /* a list is a level of its own */
        return adv_err_set(p->err, ADV_INVALID_ARGUMENT, "message is nested too deeply");
    if (adv_startswith(name, "google.protobuf.")) {
        for (size_t i = 0; i < ADV_ARRAY_LEN(special); i++) {
            if (strcmp(name, special[i].name) == 0)
                return special[i].print(p, msg);
        }
    }
    return print_fields(p, msg);
}

int adv_pbjson_print(const ProtobufCMessage *msg, unsigned int flags, struct adv_buf *out,
                     struct adv_err *err)
{
    struct printer p = { .out = out, .flags = flags, .err = err };
    int r = print_message(&p, msg);

    if (r < 0)
        return r;
    if (adv_buf_error(out))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "JSON output is over its limit");
    return 0;
}

int adv_pbjson_tree(const ProtobufCMessage *msg, unsigned int flags, json_t **ret,
                    struct adv_err *err)
{
    ADV_AUTO_DONE(adv_buf) b;
    json_error_t je;

    adv_buf_init(&b, TREE_MAX_BYTES);
    int r = adv_pbjson_print(msg, flags & ~(unsigned int) ADV_PBJSON_PRETTY, &b, err);
    if (r < 0)
        return r;
    json_t *tree = json_loadb(b.data, b.len, JSON_DECODE_ANY, &je);
    if (!tree)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "JSON tree: %s", je.text);
    *ret = tree;
    return 0;
}
