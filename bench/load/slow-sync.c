/* SPDX-License-Identifier: Apache-2.0 */
/* LD_PRELOAD: a disk whose syncs take SLOW_SYNC_US microseconds, or as long as the real one's if that is longer. So what is
 * compared does not depend on how fast the machine's disk is, nor on who else uses it at that moment. */

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static long sync_us;

__attribute__((constructor)) static void configure(void)
{
    const char *us = getenv("SLOW_SYNC_US");

    sync_us = us ? strtol(us, NULL, 10) : 0;
}

static int sync_slowly(long call, int fd)
{
    struct timespec until;
    int r, e;

    (void) clock_gettime(CLOCK_MONOTONIC, &until);
    r = (int) syscall(call, fd);
    e = errno;
    until.tv_nsec += sync_us % 1000000 * 1000;
    until.tv_sec += sync_us / 1000000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    errno = e;
    return r;
}

EXPORT int fdatasync(int fd)
{
    return sync_slowly(SYS_fdatasync, fd);
}

EXPORT int fsync(int fd)
{
    return sync_slowly(SYS_fsync, fd);
}
