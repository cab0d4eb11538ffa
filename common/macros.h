/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_MACROS_H
#define ADV_COMMON_MACROS_H

/* Small things every module uses: attributes, cleanup of locals, string predicates.
 * Nothing here allocates or blocks; usable from any thread. */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define adv_must_check   __attribute__((warn_unused_result))
#define ADV_PRINTF(a, b) __attribute__((format(printf, a, b)))

#define ADV_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The object of type @type whose @member is at @ptr. */
#define ADV_CONTAINER_OF(ptr, type, member)                                                        \
    ((type *) (void *) ((char *) (ptr) -offsetof(type, member)))

/* Cleanup functions keep errno, so a failing function may return while its locals go. */
static inline void adv_cleanup_free(void *p)
{
    int keep = errno;
    void *mem;

    memcpy(&mem, p, sizeof(mem));
    free(mem);
    errno = keep;
}

static inline void adv_cleanup_close(int *fd)
{
    if (*fd >= 0) {
        int keep = errno;
        (void) close(*fd);
        errno = keep;
    }
}

/* adv_auto_free char *s = NULL;   adv_auto_close int fd = -1; */
#define adv_auto_free  __attribute__((cleanup(adv_cleanup_free)))
#define adv_auto_close __attribute__((cleanup(adv_cleanup_close)))

/* In a header: ADV_DEFINE_CLEANUP(attempt, attempt_unref);
 * in a function: ADV_AUTO(attempt) at = NULL;
 * The variable is a `struct attempt *`; @func is called once with it when it is not NULL. */
#define ADV_DEFINE_CLEANUP(type, func)                                                             \
    static inline void type##_cleanup_(struct type **p)                                            \
    {                                                                                              \
        if (*p) {                                                                                  \
            int keep_ = errno;                                                                     \
            (void) func(*p);                                                                       \
            errno = keep_;                                                                         \
        }                                                                                          \
    }                                                                                              \
    struct type
#define ADV_AUTO(type) __attribute__((cleanup(type##_cleanup_))) struct type *

/* The same for an object held by value: ADV_AUTO_DONE(adv_buf) b = ...; */
#define ADV_DEFINE_DONE(type, func)                                                                \
    static inline void type##_done_(struct type *p)                                                \
    {                                                                                              \
        int keep_ = errno;                                                                         \
        func(p);                                                                                   \
        errno = keep_;                                                                             \
    }                                                                                              \
    struct type
#define ADV_AUTO_DONE(type) __attribute__((cleanup(type##_done_))) struct type

/* Hands a pointer over: yields its value and leaves NULL behind. */
#define ADV_STEAL(p) ((__typeof__(p)) adv_steal_(&(p)))
static inline void *adv_steal_(void *pp)
{
    void *mem, *null = NULL;

    memcpy(&mem, pp, sizeof(mem));
    memcpy(pp, &null, sizeof(null));
    return mem;
}

/* Both tolerate NULL; two NULLs are equal. */
static inline bool adv_streq(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static inline bool adv_startswith(const char *s, const char *prefix)
{
    return s && strncmp(s, prefix, strlen(prefix)) == 0;
}

#endif
