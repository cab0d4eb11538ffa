/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_ERR_H
#define ADV_COMMON_ERR_H

/* One error type for the whole tree. Functions return 0 or a negative code (-ADV_NOT_FOUND) and
 * describe the failure in a `struct adv_err` that the caller owns and may leave out (NULL). No
 * heap: it works when memory is gone.
 *
 *     return adv_err_set(err, ADV_NOT_FOUND, "job %u: no such record", id);
 *
 * Any thread, never blocks; errno is preserved by all functions. */

#include <stdarg.h>

#include "common/macros.h"

/* The numbers are gRPC's status codes, so that the rpc edge has nothing to translate. */
enum adv_code {
    ADV_OK = 0,
    ADV_CANCELLED = 1,
    ADV_UNKNOWN = 2,
    ADV_INVALID_ARGUMENT = 3,
    ADV_DEADLINE_EXCEEDED = 4,
    ADV_NOT_FOUND = 5,
    ADV_ALREADY_EXISTS = 6,
    ADV_PERMISSION_DENIED = 7,
    ADV_RESOURCE_EXHAUSTED = 8,
    ADV_FAILED_PRECONDITION = 9,
    ADV_ABORTED = 10,
    ADV_OUT_OF_RANGE = 11,
    ADV_UNIMPLEMENTED = 12,
    ADV_INTERNAL = 13,
    ADV_UNAVAILABLE = 14,
    ADV_DATA_LOSS = 15,
    ADV_UNAUTHENTICATED = 16,
};

struct adv_err {
    enum adv_code code;
    const char *reason; /* static text such as "HISTORY_COMPACTED", or NULL; ErrorInfo.reason */
    char field[64];     /* path of the offending input, "job.name", or "" */
    int retry_after_ms; /* 0: no hint */
    int sys_errno;      /* 0: none */
    char msg[256];      /* one line, reads outside-in; cut at a UTF-8 boundary */
};

/* Fills all of @err (may be NULL) and returns -@code. @code must not be ADV_OK. */
int adv_err_set(struct adv_err *err, enum adv_code code, const char *fmt, ...) ADV_PRINTF(3, 4);

/* The same with a reason; @reason is kept by pointer, so it must be static text. */
int adv_err_set_reason(struct adv_err *err, enum adv_code code, const char *reason, const char *fmt,
                       ...) ADV_PRINTF(4, 5);

/* The same for a failed system call: appends ": " and the text of @sys_errno. */
int adv_err_set_errno(struct adv_err *err, enum adv_code code, int sys_errno, const char *fmt, ...)
    ADV_PRINTF(4, 5);

/* Names the offending input of an error that is already set. Returns -err->code
 * (-ADV_INVALID_ARGUMENT when
 * @err is NULL). */
int adv_err_field(struct adv_err *err, const char *fmt, ...) ADV_PRINTF(2, 3);

/* Puts "context: " before the message. Does nothing on NULL. */
void adv_err_wrap(struct adv_err *err, const char *fmt, ...) ADV_PRINTF(2, 3);

/* "NOT_FOUND"; "UNKNOWN" for a number outside the enum. Takes either sign. Static text. */
const char *adv_code_name(int code);

/* True when the same request may succeed later without being changed. Takes either sign. */
bool adv_code_retryable(int code);

#endif
