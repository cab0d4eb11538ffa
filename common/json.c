/* SPDX-License-Identifier: Apache-2.0 */

/* jansson recurses up to 2048 levels and refuses a document for one bad byte. Both are wrong for
 * text that schedulers pass on from users: depth is counted before parsing, and bad bytes are
 * replaced. */

#include "common/json.h"

#include <inttypes.h>

#include "common/utf8.h"

static bool too_deep(const char *s, size_t len)
{
    size_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        if (in_string) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                in_string = false;
        } else if (s[i] == '"') {
            in_string = true;
        } else if (s[i] == '{' || s[i] == '[') {
            if (++depth > ADV_JSON_MAX_DEPTH)
                return true;
        } else if ((s[i] == '}' || s[i] == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

static int parse(const void *bytes, size_t len, size_t max_bytes, size_t flags, json_t **ret, struct adv_err *err)
{
    adv_auto_free char *fixed = NULL;
    json_error_t je;

    if (len > max_bytes)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED,
                           "JSON of %zu bytes is over the limit of %zu", len, max_bytes);
    if (!adv_utf8_valid(bytes, len)) {
        fixed = adv_utf8_lossy(bytes, len);
        if (!fixed)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        bytes = fixed;
        len = strlen(fixed);
    }
    if (too_deep(bytes, len))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "JSON is nested deeper than %d levels",
                           ADV_JSON_MAX_DEPTH);
    json_t *root = json_loadb(bytes, len, flags | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!root)
        return adv_err_set(err,
                           json_error_code(&je) == json_error_out_of_memory ? ADV_RESOURCE_EXHAUSTED
                                                                            : ADV_INVALID_ARGUMENT,
                           "line %d column %d: %s", je.line, je.column, je.text);
    *ret = root;
    return 0;
}

int adv_json_parse(const void *bytes, size_t len, size_t max_bytes, json_t **ret, struct adv_err *err)
{
    return parse(bytes, len, max_bytes, 0, ret, err);
}

int adv_json_parse_any(const void *bytes, size_t len, size_t max_bytes, json_t **ret, struct adv_err *err)
{
    return parse(bytes, len, max_bytes, JSON_ALLOW_NUL, ret, err);
}

static int wrong(struct adv_err *err, enum adv_code code, const char *key, const char *what)
{
    (void) adv_err_set(err, code, "\"%.60s\": %s", key, what);
    (void) adv_err_field(err, "%s", key);
    return -(int) code;
}

static int find(const json_t *obj, const char *key, json_t **ret, struct adv_err *err)
{
    json_t *v = json_object_get(obj, key);

    if (!v || json_is_null(v))
        return wrong(err, ADV_NOT_FOUND, key, "missing");
    *ret = v;
    return 0;
}

int adv_json_get_str(const json_t *obj, const char *key, const char **ret, struct adv_err *err)
{
    json_t *v = NULL;
    int r = find(obj, key, &v, err);

    if (r < 0)
        return r;
    if (!json_is_string(v))
        return wrong(err, ADV_INVALID_ARGUMENT, key, "expected a string");
    *ret = json_string_value(v);
    return 0;
}

int adv_json_get_bool(const json_t *obj, const char *key, bool *ret, struct adv_err *err)
{
    json_t *v = NULL;
    int r = find(obj, key, &v, err);

    if (r < 0)
        return r;
    if (!json_is_boolean(v))
        return wrong(err, ADV_INVALID_ARGUMENT, key, "expected true or false");
    *ret = json_is_true(v);
    return 0;
}

int adv_json_get_i64(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *ret,
                     struct adv_err *err)
{
    json_t *v = NULL;
    int r = find(obj, key, &v, err);

    if (r < 0)
        return r;
    if (!json_is_integer(v))
        return wrong(err, ADV_INVALID_ARGUMENT, key, "expected a whole number");
    if (json_integer_value(v) < min || json_integer_value(v) > max)
        return wrong(err, ADV_OUT_OF_RANGE, key, "out of range");
    *ret = json_integer_value(v);
    return 0;
}

int adv_json_get_f64(const json_t *obj, const char *key, double min, double max, double *ret,
                     struct adv_err *err)
{
    json_t *v = NULL;
    int r = find(obj, key, &v, err);

    if (r < 0)
        return r;
    if (!json_is_number(v))
        return wrong(err, ADV_INVALID_ARGUMENT, key, "expected a number");
    double d = json_number_value(v);
    if (!(d >= min && d <= max))
        return wrong(err, ADV_OUT_OF_RANGE, key, "out of range");
    *ret = d;
    return 0;
}

int adv_json_get_obj(const json_t *obj, const char *key, json_t **ret, struct adv_err *err)
{
    json_t *v = NULL;
    int r = find(obj, key, &v, err);

    if (r < 0)
        return r;
    if (!json_is_object(v))
        return wrong(err, ADV_INVALID_ARGUMENT, key, "expected an object");
    *ret = v;
    return 0;
}

int adv_json_get_arr(const json_t *obj, const char *key, json_t **ret, struct adv_err *err)
{
    json_t *v = NULL;
    int r = find(obj, key, &v, err);

    if (r < 0)
        return r;
    if (!json_is_array(v))
        return wrong(err, ADV_INVALID_ARGUMENT, key, "expected a list");
    *ret = v;
    return 0;
}

static int emit(const char *bytes, size_t len, void *user)
{
    return adv_buf_append(user, bytes, len) < 0 ? -1 : 0;
}

int adv_json_dump(const json_t *v, struct adv_buf *out, struct adv_err *err)
{
    if (json_dump_callback(v, emit, out, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "JSON output is over its limit");
    return 0;
}
