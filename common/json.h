/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_JSON_H
#define ADV_COMMON_JSON_H

/* Reading JSON from outside over jansson: limits, typed getters with ranges, one canonical output.
 *
 * Getters: 0, -ADV_NOT_FOUND (no such member, or null), -ADV_INVALID_ARGUMENT (wrong type),
 * -ADV_OUT_OF_RANGE; err->field names the member. Thread: one owner per tree. Blocks: no. */

#include <jansson.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define ADV_JSON_MAX_DEPTH 64

/* Parses one JSON text of at most @max_bytes. Bytes that are not UTF-8 become U+FFFD first;
 * duplicate keys, depth over
 * ADV_JSON_MAX_DEPTH and a rest after the value are refused.
 * Owner: caller, json_decref().
 * Errors: -ADV_INVALID_ARGUMENT (message has line and column); -ADV_RESOURCE_EXHAUSTED (too long,
 *         no memory). */
adv_must_check int adv_json_parse(const void *bytes, size_t len, size_t max_bytes, json_t **ret,
                                  struct adv_err *err);

/* The same, but texts may hold U+0000, as log lines do: read them by json_string_length(). */
adv_must_check int adv_json_parse_any(const void *bytes, size_t len, size_t max_bytes, json_t **ret,
                                      struct adv_err *err);

/* Borrowed from @obj. */
adv_must_check int adv_json_get_str(const json_t *obj, const char *key, const char **ret,
                                    struct adv_err *err);
adv_must_check int adv_json_get_bool(const json_t *obj, const char *key, bool *ret,
                                     struct adv_err *err);
adv_must_check int adv_json_get_i64(const json_t *obj, const char *key, int64_t min, int64_t max,
                                    int64_t *ret, struct adv_err *err);
/* Takes whole numbers too. */
adv_must_check int adv_json_get_f64(const json_t *obj, const char *key, double min, double max,
                                    double *ret, struct adv_err *err);
adv_must_check int adv_json_get_obj(const json_t *obj, const char *key, json_t **ret,
                                    struct adv_err *err);
adv_must_check int adv_json_get_arr(const json_t *obj, const char *key, json_t **ret,
                                    struct adv_err *err);

/* Appends @v compactly with sorted keys: equal trees give equal bytes.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int adv_json_dump(const json_t *v, struct adv_buf *out, struct adv_err *err);

/* json_decref at the end of scope: ADV_JSON_AUTO json_t *root = NULL; */
static inline void adv_json_cleanup_(json_t **p)
{
    json_decref(*p);
}
#define ADV_JSON_AUTO __attribute__((cleanup(adv_json_cleanup_)))

#endif
