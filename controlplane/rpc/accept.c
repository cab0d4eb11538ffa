/* SPDX-License-Identifier: Apache-2.0 */

/* gRPC core 1.51 stops listening for ever after one EMFILE from accept4 (grpc/grpc #16058, #20418,
 * #31080; #29308 for ECONNABORTED), has no limit on connections, reads whom it likes, and cannot end
 * one. All are mended here, by defining accept4, recvmsg and epoll_ctl in the executable:
 *
 * - On EMFILE/ENFILE a reserve descriptor is given up, the backlog is accepted and closed (core's
 *   epoll is edge-triggered: what stays in the backlog would not be announced again), the reserve
 *   is taken back, and the caller gets EAGAIN, which it handles well. Transient errors become
 *   EAGAIN too.
 * - The cap counts descriptors that were handed out. Nobody tells us of their closing, so at the
 *   cap the table is swept: a descriptor that is no socket any more, or another one (its inode
 *   differs), is gone. A sweep happens at most every SWEEP_MS.
 * - Core reads one busy socket on and on, inside of one call, while there is something to read: who
 * sends frames faster than they are parsed has the loop's thread to himself. So recvmsg is the
 * process's own too: what one connection may be read of in one turn of the loop is limited, then
 * core is told that there is no more, and in the next turn that there is. (Its epoll is
 * edge-triggered and takes a change of a descriptor's entry for news; for that epoll_ctl is replaced
 * as well, and remembers the entries.) One turn of one connection is some milliseconds at the worst.
 * - What the frames of a connection cost is counted, in processor time of the thread between one
 * large read and the next. Messages, in both directions, explain some of it, time some more; a
 * connection that costs more than that is ended.
 * - Connections that have made no call yet are *new*, and only so many are new at one time: core
 * works at all its connections in turn, so a thousand handshakes at once all end when the last
 * one does, after the time limit of each. The others wait in the kernel's queue, in the order in
 * which they came. A connection that makes no call counts for NEW_MAX_US only: those who say
 * nothing slow others down, but cannot keep them out. When there is room again, core is told of
 * the queue as above.
 * - To end a connection its socket is disconnected, which core takes for the peer's hanging up. What
 *   the kernel holds of it goes at once; after a mere shutdown(2) core would read on. It is found by
 *   the peer's address, as core tells that of a call; or, as calls that were aborted early have
 *   none, as the one that has received most without there being messages that explain it. */

#include "controlplane/rpc/accept.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/num.h"

#define SWEEP_MS      100
#define MAX_NEW       64 /* a handshake is a millisecond of work, and some round trips */
#define NEW_MAX_US    1000000
#define NEW_SWEEP_US  20000
#define MAX_LISTENERS 16
/* What the kernel may hold of one connection for us. By itself it goes up to some megabytes: a lot of
 * work that cannot be refused any more, and a lot of memory with thousands of connections. */
#define RECEIVE_BYTES (256 * 1024)
/* Headers of a call, frames and TLS records around a message, generously. */
#define AROUND_MESSAGE 512
#define AROUND_ANSWER  64 /* window updates */
/* What parsing may cost: a message this much for itself and this much for its bytes, everything else
 * a share of the time. 4 MB over TLS take some 20 ms, a small call a few us. */
#define COST_MAX_US       200000
#define COST_MESSAGE_US   50
#define COST_BYTES_PER_US 100
#define COST_FREE_PERCENT 2
#define COST_MIN_BYTES    (32 << 10) /* not explained, or it is not the frames */
/* What core may keep of frames that belong to no message: a header block without end. Eight of the
 * largest requests may be on their way. */
#define PLAIN_MAX_BYTES  (32 << 20)
#define PLAIN_FREE_PER_S (256 << 10)
#define LARGE_READ        2048       /* asking the clock costs as much as parsing a small one */

struct conn {
    struct rpc_accept_key key;
    int fd;
    uint64_t inode;
    uint64_t received;  /* bytes, at the last look */
    uint64_t explained; /* by messages since then */
    bool ended;         /* by us; core will close it */
    bool is_new;        /* then: in that list */
    int64_t accepted_us;
    struct conn *next_new, *prev_new;

    uint32_t turn;       /* the one it was last read in, */
    uint32_t turn_bytes; /* and how much */
    bool held;
    struct conn *next_held;
    int epoll_fd; /* -1: not known */
    struct epoll_event entry;

    int64_t cost_us;
    uint64_t plain_bytes; /* read, that no message explains */
    int64_t forgave_us;   /* when time had last explained some of both */
    UT_hash_handle hh;
};

struct listener {
    int fd, epoll_fd;
    struct epoll_event entry;
    bool waits; /* core was told that nobody is there, though somebody may be */
};

/* What the thread has read last, and parses now. */
static _Thread_local struct {
    bool on;
    struct rpc_accept_key key;
    int64_t cpu_us;
} parsing;

static _Atomic uint32_t turn;
static atomic_bool have_held, have_new, have_waiting; /* something to look at: for a look without the lock */
static atomic_int wake_fd = -1;

static struct {
    pthread_mutex_t lock; /* guards all below */
    size_t max;           /* 0: no cap */
    struct conn *conns;
    struct conn **by_fd; /* owned by @conns */
    size_t n_fd;
    struct conn *held;
    struct conn *fresh; /* those that are new, the oldest first */
    size_t n_new;
    int64_t new_swept_us;
    struct listener listeners[MAX_LISTENERS];
    size_t n_listeners;
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

static bool is_there(const struct conn *c)
{
    return inode(c->fd) == c->inode;
}

static struct conn *at_fd(int fd)
{
    return fd >= 0 && (size_t) fd < st.n_fd ? st.by_fd[fd] : NULL;
}

static bool set_fd(struct conn *c)
{
    size_t n = st.n_fd ? st.n_fd : 64;
    struct conn **mem;

    while (n <= (size_t) c->fd)
        n *= 2;
    if (n > st.n_fd) {
        mem = realloc(st.by_fd, n * sizeof(struct conn *));
        if (!mem)
            return false;
        memset(mem + st.n_fd, 0, (n - st.n_fd) * sizeof(struct conn *));
        st.by_fd = mem;
        st.n_fd = n;
    }
    st.by_fd[c->fd] = c;
    return true;
}

static void not_new(struct conn *c)
{
    if (!c->is_new)
        return;
    c->is_new = false;
    DL_DELETE2(st.fresh, c, prev_new, next_new);
    st.n_new--;
    atomic_store(&have_new, st.n_new > 0);
}

static void drop(struct conn *c)
{
    not_new(c);
    if (c->held)
        LL_DELETE2(st.held, c, next_held);
    if (at_fd(c->fd) == c)
        st.by_fd[c->fd] = NULL;
    HASH_DEL(st.conns, c);
    free(c);
}

static void sweep(void)
{
    struct conn *c, *next;
    int64_t now = adv_mono_us();

    if (now - st.swept_us < SWEEP_MS * 1000)
        return;
    st.swept_us = now;
    HASH_ITER(hh, st.conns, c, next)
        if (!is_there(c))
            drop(c);
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

/* ---- addresses: IPv4 as mapped into IPv6 ---- */

static void map_v4(uint8_t to[16], const struct in_addr *ip)
{
    memset(to, 0, 16);
    to[10] = to[11] = 0xff;
    memcpy(to + 12, ip, 4);
}

/* Zeroed to the last bit: it is a key. A unix socket has its descriptor in place of an address. */
static void key_of(const struct sockaddr *sa, int fd, struct rpc_accept_key *ret)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    memset(ret, 0, sizeof(*ret));
    if (sa && sa->sa_family == AF_INET) {
        memcpy(&v4, sa, sizeof(v4));
        map_v4(ret->ip, &v4.sin_addr);
        ret->port = ntohs(v4.sin_port);
    } else if (sa && sa->sa_family == AF_INET6) {
        memcpy(&v6, sa, sizeof(v6));
        memcpy(ret->ip, &v6.sin6_addr, sizeof(ret->ip));
        ret->port = ntohs(v6.sin6_port);
    } else {
        ret->unix_fd = (uint32_t) fd + 1;
    }
}

bool rpc_accept_key(const char *peer, struct rpc_accept_key *ret)
{
    bool v6 = adv_startswith(peer, "ipv6:%5B");
    const char *ip = peer + (v6 ? strlen("ipv6:%5B") : strlen("ipv4:")), *end;
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    int64_t port;

    memset(ret, 0, sizeof(*ret));
    if (!v6 && !adv_startswith(peer, "ipv4:"))
        return false;
    end = v6 ? strstr(ip, "%5D:") : strchr(ip, ':');
    if (!end || (size_t) (end - ip) >= sizeof(text) ||
        adv_parse_i64(end + (v6 ? strlen("%5D:") : 1), 1, UINT16_MAX, &port, NULL) < 0)
        return false;
    (void) snprintf(text, sizeof(text), "%.*s", (int) (end - ip), ip);
    ret->port = (uint32_t) port;
    if (v6)
        return inet_pton(AF_INET6, text, ret->ip) == 1;
    if (inet_pton(AF_INET, text, &v4) != 1)
        return false;
    map_v4(ret->ip, &v4);
    return true;
}

/* ---- ending connections ---- */

static struct conn *find(const struct rpc_accept_key *key)
{
    struct conn *c = NULL;

    HASH_FIND(hh, st.conns, key, sizeof(*key), c);
    return c;
}

static bool peer_text(const struct conn *c, char ret_peer[RPC_ACCEPT_PEER_SIZE])
{
    char ip[INET6_ADDRSTRLEN];

    if (!inet_ntop(AF_INET6, c->key.ip, ip, sizeof(ip)))
        return false;
    (void) snprintf(ret_peer, RPC_ACCEPT_PEER_SIZE, "[%s]:%u", ip, (unsigned int) c->key.port);
    return true;
}

/* It stays in the table, and counted, until core has closed it. */
static bool disconnect(struct conn *c)
{
    const struct sockaddr none = { .sa_family = AF_UNSPEC };
    bool done = !c->ended && !c->key.unix_fd && is_there(c) &&
                (connect(c->fd, &none, sizeof(none)) == 0 || shutdown(c->fd, SHUT_RDWR) == 0);

    c->ended |= done;
    st.stats.kicked += done;
    return done;
}

bool rpc_accept_kick(const struct rpc_accept_key *key)
{
    struct conn *c;
    bool done;

    (void) pthread_mutex_lock(&st.lock);
    c = find(key);
    done = c && disconnect(c);
    (void) pthread_mutex_unlock(&st.lock);
    return done;
}

static void explain(const struct rpc_accept_key *key, size_t bytes, size_t cost_bytes)
{
    int64_t cost_us = COST_MESSAGE_US + (int64_t) (cost_bytes / COST_BYTES_PER_US);
    struct conn *c;

    (void) pthread_mutex_lock(&st.lock);
    c = find(key);
    if (c) {
        c->explained += bytes;
        c->plain_bytes = c->plain_bytes > bytes ? c->plain_bytes - bytes : 0;
        c->cost_us = c->cost_us > cost_us ? c->cost_us - cost_us : 0;
    }
    (void) pthread_mutex_unlock(&st.lock);
}

void rpc_accept_explain(const struct rpc_accept_key *key, size_t bytes)
{
    explain(key, bytes + AROUND_MESSAGE, bytes);
}

void rpc_accept_explain_sent(const struct rpc_accept_key *key, size_t bytes)
{
    explain(key, AROUND_ANSWER, bytes);
}

/* False for what cannot be asked: it is gone, or a unix socket. */
static bool received(const struct conn *c, uint64_t *ret)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);

    if (c->key.unix_fd || !is_there(c) || getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return false;
    *ret = info.tcpi_bytes_received;
    return true;
}

void rpc_accept_look(void)
{
    (void) pthread_mutex_lock(&st.lock);
    for (struct conn *c = st.conns; c; c = c->hh.next) {
        (void) received(c, &c->received);
        c->explained = 0;
    }
    (void) pthread_mutex_unlock(&st.lock);
}

bool rpc_accept_kick_busiest(uint64_t min_bytes, char ret_peer[RPC_ACCEPT_PEER_SIZE])
{
    struct conn *most = NULL;
    uint64_t most_bytes = min_bytes, now;
    bool done;

    (void) pthread_mutex_lock(&st.lock);
    for (struct conn *c = st.conns; c; c = c->hh.next) {
        uint64_t known = c->received + c->explained;

        if (received(c, &now) && now >= known && now - known >= most_bytes) {
            most = c;
            most_bytes = now - known;
        }
    }
    done = most && peer_text(most, ret_peer) && disconnect(most);
    (void) pthread_mutex_unlock(&st.lock);
    return done;
}

/* ---- reading ---- */

static int64_t cpu_us(void)
{
    struct timespec ts = { 0 };

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return ts.tv_sec * INT64_C(1000000) + ts.tv_nsec / 1000;
}

/* Time explains a little. Then: is it too much? */
static bool too_much(struct conn *c)
{
    int64_t now = adv_mono_us(), past = now - c->forgave_us, cost = past * COST_FREE_PERCENT / 100;
    uint64_t bytes = (uint64_t) past * PLAIN_FREE_PER_S / 1000000;

    c->forgave_us = now;
    c->cost_us = c->cost_us > cost ? c->cost_us - cost : 0;
    c->plain_bytes = c->plain_bytes > bytes ? c->plain_bytes - bytes : 0;
    return (c->cost_us > COST_MAX_US && c->plain_bytes > COST_MIN_BYTES) || c->plain_bytes > PLAIN_MAX_BYTES;
}

/* What was read last has been parsed: its connection is charged. */
static void charge(void)
{
    char peer[RPC_ACCEPT_PEER_SIZE];
    bool done = false;
    struct conn *c;

    parsing.on = false;
    (void) pthread_mutex_lock(&st.lock);
    c = find(&parsing.key);
    if (c) {
        c->cost_us += cpu_us() - parsing.cpu_us;
        done = too_much(c) && peer_text(c, peer) && disconnect(c);
    }
    (void) pthread_mutex_unlock(&st.lock);
    if (done)
        adv_warn("rpc", "a client keeps the server busy with frames: its connection is ended", ADV_FS("peer", peer));
}

void rpc_accept_parsed(void)
{
    if (parsing.on)
        charge();
}

/* Has it been read enough of in this turn? Then core hears of it in the next. */
static bool hold(struct conn *c)
{
    uint32_t now = atomic_load(&turn);
    const uint64_t one = 1;

    if (c->turn != now) {
        c->turn = now;
        c->turn_bytes = 0;
    }
    if (c->turn_bytes < RPC_ACCEPT_TURN_BYTES || c->epoll_fd < 0 || !is_there(c))
        return false;
    if (!c->held) {
        c->held = true;
        LL_PREPEND2(st.held, c, next_held);
        if (!atomic_exchange(&have_held, true))
            (void) !write(atomic_load(&wake_fd), &one, sizeof(one)); /* cannot be full: the loop has had its turn then */
    }
    return true;
}

void rpc_accept_turn(void)
{
    struct conn *c, *next;

    (void) atomic_fetch_add(&turn, 1);
    if (!atomic_load(&have_held))
        return;
    (void) pthread_mutex_lock(&st.lock);
    LL_FOREACH_SAFE2 (st.held, c, next, next_held) {
        c->held = false;
        (void) syscall(SYS_epoll_ctl, c->epoll_fd, EPOLL_CTL_MOD, c->fd, &c->entry);
    }
    st.held = NULL;
    atomic_store(&have_held, false);
    (void) pthread_mutex_unlock(&st.lock);
}

void rpc_accept_wake(int fd)
{
    atomic_store(&wake_fd, fd);
}

/* Replaces the C library's. */
__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    struct rpc_accept_key key = { 0 };
    struct conn *c;
    bool held, ours;
    ssize_t n;

    rpc_accept_parsed();
    (void) pthread_mutex_lock(&st.lock);
    c = at_fd(fd);
    ours = c != NULL;
    held = ours && hold(c);
    (void) pthread_mutex_unlock(&st.lock);
    if (held) {
        errno = EAGAIN;
        return -1;
    }
    n = (ssize_t) syscall(SYS_recvmsg, fd, msg, flags);
    if (!ours || n <= 0)
        return n;
    (void) pthread_mutex_lock(&st.lock);
    c = at_fd(fd);
    if (c) {
        c->turn_bytes += (uint32_t) n;
        c->plain_bytes += (uint64_t) n;
        key = c->key;
    }
    (void) pthread_mutex_unlock(&st.lock);
    if (c && n >= LARGE_READ) {
        parsing.key = key;
        parsing.cpu_us = cpu_us();
        parsing.on = true;
    }
    return n;
}

/* ---- new connections ---- */

static void sweep_new(void)
{
    int64_t now = adv_mono_us();
    struct conn *c, *next;

    if (now - st.new_swept_us < NEW_SWEEP_US)
        return;
    st.new_swept_us = now;
    DL_FOREACH_SAFE2 (st.fresh, c, next, next_new)
        if (now - c->accepted_us > NEW_MAX_US || !is_there(c))
            not_new(c);
}

static struct listener *find_listener(int fd)
{
    for (size_t i = 0; i < st.n_listeners; i++)
        if (st.listeners[i].fd == fd)
            return &st.listeners[i];
    return NULL;
}

/* May @listener accept now? If not, it is told when there is room. */
static bool room_for(int listener)
{
    struct listener *l = find_listener(listener);

    if (!l || st.n_new < MAX_NEW)
        return true;
    sweep_new();
    if (st.n_new < MAX_NEW)
        return true;
    l->waits = true;
    atomic_store(&have_waiting, true);
    st.stats.held_back++;
    return false;
}

/* Not by a unix socket: such clients are few, and on this host. */
static void begin_new(struct conn *c)
{
    if (c->key.unix_fd)
        return;
    c->is_new = true;
    c->accepted_us = adv_mono_us();
    DL_APPEND2(st.fresh, c, prev_new, next_new);
    st.n_new++;
    atomic_store(&have_new, true);
}

/* Tells core again of the queues that it was kept from. */
static void wake_listeners(void)
{
    bool waiting = false;

    for (size_t i = 0; i < st.n_listeners; i++) {
        struct listener *l = &st.listeners[i];

        if (l->waits && st.n_new < MAX_NEW) {
            l->waits = false;
            (void) syscall(SYS_epoll_ctl, l->epoll_fd, EPOLL_CTL_MOD, l->fd, &l->entry);
        }
        waiting = waiting || l->waits;
    }
    atomic_store(&have_waiting, waiting);
}

bool rpc_accept_has_new(void)
{
    return atomic_load(&have_new);
}

void rpc_accept_called(const struct rpc_accept_key *key)
{
    struct conn *c;

    (void) pthread_mutex_lock(&st.lock);
    c = find(key);
    if (c)
        not_new(c);
    /* by halves: core accepts several at a time then */
    if (atomic_load(&have_waiting) && st.n_new <= MAX_NEW / 2)
        wake_listeners();
    (void) pthread_mutex_unlock(&st.lock);
}

void rpc_accept_tick(void)
{
    if (!atomic_load(&have_waiting))
        return;
    (void) pthread_mutex_lock(&st.lock);
    sweep_new();
    wake_listeners();
    (void) pthread_mutex_unlock(&st.lock);
}

/* ---- what epoll is told ---- */

static void note_listener(int epfd, int op, int fd, const struct epoll_event *event)
{
    struct listener *l = find_listener(fd);

    if (!l && op == EPOLL_CTL_ADD && st.n_listeners < MAX_LISTENERS)
        l = &st.listeners[st.n_listeners++];
    if (l && op == EPOLL_CTL_ADD)
        *l = (struct listener){ fd, epfd, *event, false };
    else if (l)
        *l = st.listeners[--st.n_listeners];
}

static void note_connection(int epfd, int fd, const struct epoll_event *event)
{
    struct conn *c = at_fd(fd);

    if (c && is_there(c)) {
        c->epoll_fd = epfd;
        c->entry = *event;
    } else if (c) {
        drop(c); /* the descriptor is somebody else's now */
    }
}

/* Replaces the C library's. */
__attribute__((visibility("default"))) int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    int r = (int) syscall(SYS_epoll_ctl, epfd, op, fd, event), keep = errno, listens = 0;
    socklen_t len = sizeof(listens);

    if (r == 0 && op != EPOLL_CTL_MOD) {
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) < 0)
            listens = 0; /* no socket, but perhaps where one was */
        (void) pthread_mutex_lock(&st.lock);
        if (listens)
            note_listener(epfd, op, fd, event);
        else if (op == EPOLL_CTL_ADD)
            note_connection(epfd, fd, event);
        (void) pthread_mutex_unlock(&st.lock);
    }
    errno = keep;
    return r;
}

/* ---- accepting ---- */

/* Takes @fd into the table; false when there is no room. */
static bool take(int fd, const struct sockaddr *addr)
{
    const int receive = RECEIVE_BYTES;
    struct rpc_accept_key key;
    struct conn *c;

    if (!st.max)
        return true;
    key_of(addr, fd, &key);
    if ((c = find(&key)))
        drop(c); /* of a connection that is over */
    if ((c = at_fd(fd)))
        drop(c);
    if (HASH_COUNT(st.conns) >= st.max)
        sweep();
    if (HASH_COUNT(st.conns) >= st.max || !(c = calloc(1, sizeof(*c))))
        return false;
    c->key = key;
    c->fd = fd;
    c->epoll_fd = -1;
    c->inode = inode(fd);
    c->forgave_us = adv_mono_us();
    HASH_ADD(hh, st.conns, key, sizeof(c->key), c);
    if (!c->hh.tbl) {
        free(c);
        return false;
    }
    if (!set_fd(c)) {
        drop(c);
        return false;
    }
    begin_new(c);
    if (!key.unix_fd)
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof(receive));
    return true;
}

static int accept_locked(int listener, struct sockaddr *addr, socklen_t *len, int flags)
{
    socklen_t space = len ? *len : 0;

    for (;;) {
        if (!room_for(listener)) {
            errno = EAGAIN;
            return -1;
        }
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
        if (take(fd, addr)) {
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
    struct conn *c, *next;

    HASH_ITER(hh, st.conns, c, next)
        drop(c);
    free(st.by_fd);
    st.by_fd = NULL;
    st.n_fd = 0;
    st.max = 0;
    adv_cleanup_close(&st.reserve);
    st.reserve = -1;
}

int rpc_accept_configure(size_t max_connections, struct adv_err *err)
{
    int r = 0;

    (void) pthread_mutex_lock(&st.lock);
    forget();
    st.reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (st.reserve < 0)
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "connection cap: no descriptor");
    else
        st.max = max_connections;
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
