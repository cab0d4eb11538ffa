/* SPDX-License-Identifier: Apache-2.0 */

/* gRPC core 1.51 stops listening for ever after one EMFILE from accept4 (grpc/grpc #16058, #20418,
 * #31080; #29308 for ECONNABORTED), and has no limit on connections. Both are mended here, by
 * defining accept4 in the executable:
 *
 * - On EMFILE/ENFILE a reserve descriptor is given up, the backlog is accepted and closed (core's
 *   epoll is edge-triggered: what stays in the backlog would not be announced again), the reserve
 *   is taken back, and the caller gets EAGAIN, which it handles well. Transient errors become
 *   EAGAIN too.
 * - The cap counts descriptors that were handed out. Nobody tells us of their closing, so at the
 *   cap the table is swept: a descriptor that is no socket any more, or another one (its inode
 *   differs), is gone. A sweep happens at most every SWEEP_MS. */

#include "controlplane/rpc/accept.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common/clock.h"
#include "common/log.h"

#define SWEEP_MS 100

static struct {
    pthread_mutex_t lock; /* guards all below */
    size_t max;           /* 0: no cap */
    size_t n;
    int *fds;
    uint64_t *inodes;
    int reserve;
    int64_t swept_us;
    struct rpc_accept_stats stats;
    struct adv_ratelimit log_rate;
} st = { .lock = PTHREAD_MUTEX_INITIALIZER, .reserve = -1 };

static int raw_accept(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    return (int) syscall(SYS_accept4, fd, addr, len, flags);
}

static uint64_t inode(int fd)
{
    struct stat s;

    return fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode) ? s.st_ino : 0;
}

static void sweep(void)
{
    size_t o = 0;
    int64_t now = adv_mono_us();

    if (now - st.swept_us < SWEEP_MS * 1000)
        return;
    st.swept_us = now;
    for (size_t i = 0; i < st.n; i++) {
        if (inode(st.fds[i]) != st.inodes[i])
            continue;
        st.fds[o] = st.fds[i];
        st.inodes[o++] = st.inodes[i];
    }
    st.n = o;
}

static void warn(const char *what)
{
    if (adv_log_ratelimit(&st.log_rate, 1))
        adv_warn("rpc", what, ADV_FU("over_cap", st.stats.over_cap),
                 ADV_FU("out_of_fds", st.stats.out_of_fds),
                 ADV_FU("lines_held_back", adv_ratelimit_take_suppressed(&st.log_rate)));
}

static int out_of_fds(int listener)
{
    int fd;

    st.stats.out_of_fds++;
    warn("out of descriptors, waiting connections are closed");
    if (st.reserve >= 0) {
        (void) close(st.reserve);
        while ((fd = raw_accept(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
            (void) close(fd);
        st.reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    errno = EAGAIN;
    return -1;
}

static int accept_locked(int listener, struct sockaddr *addr, socklen_t *len, int flags)
{
    socklen_t space = len ? *len : 0;

    for (;;) {
        int fd = raw_accept(listener, addr, len, flags);

        if (fd < 0) {
            switch (errno) {
            case EMFILE:
            case ENFILE:
                return out_of_fds(listener);
            case ECONNABORTED:
            case ENOBUFS:
            case ENOMEM:
            case EPROTO:
                errno = EAGAIN;
                return -1;
            default:
                return -1;
            }
        }
        if (st.max && st.n == st.max)
            sweep();
        if (!st.max || st.n < st.max) {
            if (st.max) {
                st.fds[st.n] = fd;
                st.inodes[st.n++] = inode(fd);
            }
            st.stats.accepted++;
            return fd;
        }
        (void) close(fd);
        st.stats.over_cap++;
        warn("too many connections, new ones are closed");
        if (len)
            *len = space;
    }
}

/* Replaces the C library's. */
__attribute__((visibility("default"))) int accept4(int fd, __SOCKADDR_ARG addr,
                                                   socklen_t *restrict len, int flags)
{
    (void) pthread_mutex_lock(&st.lock);
    int r = accept_locked(fd, addr.__sockaddr__, len, flags); /* glibc's transparent union */
    int keep = errno;
    (void) pthread_mutex_unlock(&st.lock);
    errno = keep;
    return r;
}

static void forget(void)
{
    free(st.fds);
    free(st.inodes);
    st.fds = NULL;
    st.inodes = NULL;
    st.n = st.max = 0;
    adv_cleanup_close(&st.reserve);
    st.reserve = -1;
}

int rpc_accept_configure(size_t max_connections, struct adv_err *err)
{
    int r = 0;

    (void) pthread_mutex_lock(&st.lock);
    forget();
    st.fds = calloc(max_connections + 1, sizeof(*st.fds));
    st.inodes = calloc(max_connections + 1, sizeof(*st.inodes));
    st.reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!st.fds || !st.inodes || st.reserve < 0) {
        forget();
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "connection cap: no memory or descriptor");
    } else {
        st.max = max_connections;
    }
    (void) pthread_mutex_unlock(&st.lock);
    return r;
}

void rpc_accept_done(void)
{
    (void) pthread_mutex_lock(&st.lock);
    forget();
    (void) pthread_mutex_unlock(&st.lock);
}

void rpc_accept_stats(struct rpc_accept_stats *ret)
{
    (void) pthread_mutex_lock(&st.lock);
    *ret = st.stats;
    (void) pthread_mutex_unlock(&st.lock);
}
