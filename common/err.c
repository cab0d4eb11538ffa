/* SPDX-License-Identifier: Apache-2.0 */

/* Errors are fixed-size and owned by the caller: reporting "out of memory" must not need memory,
 * and an error that crosses five layers is written once and wrapped, not copied. Text that does not
 * fit is cut at a character boundary, because it goes into protocol fields that must be UTF-8. */

#include "common/err.h"

#include <stdint.h>
#include <stdio.h>

static const char *const names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

/* Drops an incomplete UTF-8 sequence at the end of a cut text of @len bytes. */
static void trim_partial(char *s, size_t len)
{
    size_t i = len, need = 1;

    while (i > 0 && ((unsigned char) s[i - 1] & 0xC0) == 0x80)
        i--;
    if (i == 0)
        return;
    unsigned char lead = (unsigned char) s[i - 1];
    if (lead >= 0xF0)
        need = 4;
    else if (lead >= 0xE0)
        need = 3;
    else if (lead >= 0xC0)
        need = 2;
    if (len - (i - 1) < need)
        s[i - 1] = '\0';
}

static ADV_PRINTF(3, 0) void format(char *dst, size_t cap, const char *fmt, va_list ap)
{
    int n = vsnprintf(dst, cap, fmt, ap);

    if (n < 0)
        dst[0] = '\0';
    else if ((size_t) n >= cap)
        trim_partial(dst, cap - 1);
}

static ADV_PRINTF(5, 0) int set(struct adv_err *err, enum adv_code code, const char *reason,
                                int sys_errno, const char *fmt, va_list ap)
{
    if (err) {
        int keep = errno;

        *err = (struct adv_err){ .code = code, .reason = reason, .sys_errno = sys_errno };
        format(err->msg, sizeof(err->msg), fmt, ap);
        errno = keep;
    }
    return -(int) code;
}

int adv_err_set(struct adv_err *err, enum adv_code code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int r = set(err, code, NULL, 0, fmt, ap);
    va_end(ap);
    return r;
}

int adv_err_set_reason(struct adv_err *err, enum adv_code code, const char *reason, const char *fmt,
                       ...)
{
    va_list ap;

    va_start(ap, fmt);
    int r = set(err, code, reason, 0, fmt, ap);
    va_end(ap);
    return r;
}

int adv_err_set_errno(struct adv_err *err, enum adv_code code, int sys_errno, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int r = set(err, code, NULL, sys_errno, fmt, ap);
    va_end(ap);
    if (err) {
        int keep = errno;
        const char *text = strerrordesc_np(sys_errno);
        size_t len = strlen(err->msg);

        (void) snprintf(err->msg + len, sizeof(err->msg) - len, ": %s",
                        text ? text : "unknown error");
        errno = keep;
    }
    return r;
}

int adv_err_field(struct adv_err *err, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return -ADV_INVALID_ARGUMENT;
    int keep = errno;
    va_start(ap, fmt);
    format(err->field, sizeof(err->field), fmt, ap);
    va_end(ap);
    errno = keep;
    return -(int) err->code;
}

void adv_err_wrap(struct adv_err *err, const char *fmt, ...)
{
    char old[sizeof(err->msg)];
    va_list ap;

    if (!err)
        return;
    int keep = errno;
    memcpy(old, err->msg, sizeof(old));
    va_start(ap, fmt);
    format(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    size_t len = strlen(err->msg);
    int n = snprintf(err->msg + len, sizeof(err->msg) - len, ": %s", old);
    if (n >= 0 && (size_t) n >= sizeof(err->msg) - len)
        trim_partial(err->msg, strlen(err->msg));
    errno = keep;
}

const char *adv_code_name(int code)
{
    unsigned int i = code < 0 ? 0U - (unsigned int) code : (unsigned int) code;

    return i < ADV_ARRAY_LEN(names) ? names[i] : "UNKNOWN";
}

bool adv_code_retryable(int code)
{
    switch (code < 0 ? -(int64_t) code : code) {
    case ADV_UNAVAILABLE:
    case ADV_RESOURCE_EXHAUSTED:
    case ADV_ABORTED:
    case ADV_DEADLINE_EXCEEDED:
        return true;
    default:
        return false;
    }
}
