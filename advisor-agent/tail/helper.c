/* SPDX-License-Identifier: Apache-2.0 */

/* advisor-tail: reads job output with the rights of the job's owner, and nothing else; or, called with --keep, copies the end of
 * it to a new file beside it and ends.
 *
 * It may be installed setuid root, 4750 root:advisor, so that an agent without rights can use it.
 * Therefore: who may run it is said by the mode bits; before anything is opened it becomes the user
 * named on the command line for good, and checks that there is no way back. A caller other than
 * root cannot ask for uids below 1000, and chooses neither groups nor environment: the environment is
 * emptied and limits are set before the user database, and whatever code it loads, is asked.
 *
 * The user's files are then read like by the user: regular files only, owned by the user. A link is
 * followed (people link their outputs), since it leads to nothing that the user could not read; the
 * owner check keeps readable files of others, such as /etc/passwd, out of the logs.
 *
 * Secrets are covered here, so that they never leave the user's rights (common/redact.h). A token that may go on is held back:
 * the file itself keeps it, and it is read again with what comes behind it, or shown on the safe side after HOLD_MS.
 *
 * Reading stops without credit. A file on a dead mount may hang this process in the kernel: the id
 * stands in a page shared with the agent, which kills us and goes on without that file. */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "advisor-agent/tail/frame.h"
#include "common/failpoint.h"
#include "common/redact.h"

/* so that with the least credit there is always something judged */
_Static_assert(TAIL_CREDIT_LOW > ADV_REDACT_PART, "a token fits into it");

#define EXIT_REFUSED 77
#define NO_GROUP     65534u
#define MEMORY_BYTES (64u << 20)
#define LOOKUP_BYTES (256u << 20) /* name services map their databases */
#define LOCAL_MS     2000 /* look without an inotify event */
#define NETWORK_MS   250  /* others' writes cause no event there */
#define HOLD_MS      1000 /* no line waits longer for its end */
#define WARM_BYTES   8192 /* read before a start, to know whether it lies in a secret: more than a usual private key */
#define RETRY_MS     1000 /* a file that is not there or not readable */

struct file {
    uint32_t id;
    char *path;
    int fd;
    int wd;
    dev_t dev;
    ino_t ino;
    uint64_t offset;
    size_t back; /* bytes before offset that were sent and belong to a token that was not over */
    struct adv_redact redact; /* as it is at offset - back */
    int64_t held_ms; /* since when a token has been held back; 0: none is */
    uint64_t max_lag;
    uint64_t born_after_s; /* at the first open: what an older file holds is not the attempt's */
    int64_t waits_ms; /* since when bytes have been unread for want of credit; 0: none */
    bool behind;      /* as told */
    bool network;
    bool ready; /* may have unread bytes */
    bool rotated; /* another file is at the path; switch at the end of this one */
    int64_t due_ms;
    char error[96]; /* as told last */
};

static struct tail_page *page;
static uid_t owner;
static int notify_fd = -1;
static struct file *files;
static size_t n_files;
static uint32_t credit;
static uint8_t input[TAIL_FRAME_HEAD + TAIL_PAYLOAD_MAX];
static size_t input_len;
static uint8_t frame[TAIL_FRAME_HEAD + TAIL_PAYLOAD_MAX];

static _Noreturn void refuse(const char *why)
{
    (void) fprintf(stderr, "advisor-tail: %s\n", why);
    _exit(EXIT_REFUSED);
}

static int64_t now_ms(void)
{
    struct timespec ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Rights */

static unsigned long number(const char *text)
{
    char *end;

    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || n > 0xfffffffeul)
        refuse("bad number");
    return n;
}

static void drop_rights(uid_t uid)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } };
    uid_t r, e, s;
    gid_t gr, ge, gs;

    if (geteuid() != uid || getuid() != uid) {
        /* Groups and group come from the user database alone: the caller may not choose them. */
        struct passwd *pw = getpwuid(uid);
        gid_t gid = pw && pw->pw_gid != 0 ? pw->pw_gid : NO_GROUP;
        if ((pw ? initgroups(pw->pw_name, gid) : setgroups(0, NULL)) < 0)
            refuse("cannot set groups: neither root, setuid root nor capable");
        endpwent();
        if (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
            refuse("cannot become the user");
        if (getresgid(&gr, &ge, &gs) < 0 || gr != gid || ge != gid || gs != gid)
            refuse("group was not dropped");
    }
    if (syscall(SYS_capset, &head, none) < 0)
        refuse("cannot drop capabilities");
    if (getresuid(&r, &e, &s) < 0 || r != uid || e != uid || s != uid)
        refuse("user was not dropped");
    if (setuid(0) == 0 || seteuid(0) == 0 || setresuid(0, 0, 0) == 0)
        refuse("rights could be regained");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        refuse("prctl");
}

static void limit(int what, rlim_t n)
{
    struct rlimit l;

    if (getrlimit((__rlimit_resource_t) what, &l) < 0)
        refuse("cannot read limits");
    if (l.rlim_max < n)
        n = l.rlim_max; /* lower already: only root could raise it */
    l.rlim_cur = l.rlim_max = n;
    if (setrlimit((__rlimit_resource_t) what, &l) < 0)
        refuse("cannot set limits");
}

/* While still privileged, before anything of the caller's could matter. */
static void prepare(void)
{
    (void) clearenv();
    (void) umask(077);
    if (chdir("/") < 0)
        refuse("no root directory");
    limit(RLIMIT_CORE, 0);
#ifndef __SANITIZE_ADDRESS__
    limit(RLIMIT_AS, LOOKUP_BYTES);
#endif
}

static void confine(void)
{
    pid_t parent = getppid();

#ifndef __SANITIZE_ADDRESS__
    limit(RLIMIT_AS, MEMORY_BYTES);
#endif
    /* Ends with the agent, also when it is stuck; set after the change of user, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(0);
    (void) signal(SIGPIPE, SIG_DFL);
}

/* Talking */

static void send_frame(enum tail_frame_type type, uint32_t id, size_t len)
{
    size_t done = 0, all = TAIL_FRAME_HEAD + len;

    tail_frame_head(frame, type, id, len);
    while (done < all) {
        ssize_t n = write(STDOUT_FILENO, frame + done, all - done);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };
            (void) poll(&p, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            _exit(0);
        } else if (n > 0) {
            done += (size_t) n;
        }
    }
}

static void tell_error(struct file *f, const char *text)
{
    if (strcmp(f->error, text) == 0)
        return;
    (void) snprintf(f->error, sizeof(f->error), "%s", text);
    memcpy(frame + TAIL_FRAME_HEAD, f->error, strlen(f->error));
    send_frame(TAIL_FRAME_ERROR, f->id, strlen(f->error));
}

/* Files */

/* Around each system call that may hang on a file. */
static void touch(const struct file *f)
{
    __atomic_store_n(&page->current_id, f ? f->id : 0, __ATOMIC_SEQ_CST);
    if (f) {
        ADV_FAILPOINT("tail.hang");
        ADV_FAILPOINT(strstr(f->path, "/hung/") ? "tail.hang_named" : "tail.other");
    }
}

static void let_go(struct file *f)
{
    if (f->wd >= 0)
        (void) inotify_rm_watch(notify_fd, f->wd);
    f->wd = -1;
    if (f->fd >= 0) {
        touch(f);
        (void) close(f->fd);
        touch(NULL);
    }
    f->fd = -1;
}

static bool is_network(int fd)
{
    static const unsigned long types[] = {
        0x6969,     0x0bd00bd0, 0x65735546, 0x47504653, 0x19830326, /* NFS, Lustre, FUSE, GPFS, BeeGFS */
        0x00c36400, 0xff534d42, 0xfe534d42, 0x01021997, 0x20030528, /* Ceph, CIFS, SMB2, 9p, PVFS2 */
        0xaad7aaea, 0x013111a8,                                     /* PanFS, IBRIX */
    };
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return true;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if ((unsigned long) fs.f_type == types[i])
            return true;
    return false;
}

/* Reading goes on at @offset: whether a secret is under way there is told by what stands before it. */
static void begin_at(struct file *f, uint64_t offset)
{
    uint64_t from = offset > WARM_BYTES ? offset - WARM_BYTES : 0;
    uint8_t *text = frame + TAIL_FRAME_HEAD; /* nothing is being sent */
    ssize_t n = 0;

    f->redact = (struct adv_redact) { .mask = '*' };
    f->offset = offset;
    f->back = 0;
    f->held_ms = 0;
    if (offset == 0)
        return;
    touch(f);
    n = pread(f->fd, text, (size_t) (offset - from), (off_t) from);
    touch(NULL);
    if (n == (ssize_t) (offset - from))
        f->back = (size_t) n - adv_redact(&f->redact, text, (size_t) n);
}

/* 0: the file system does not tell. */
static int64_t born_s(int fd)
{
    struct statx sx;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &sx) < 0 || !(sx.stx_mask & STATX_BTIME))
        return 0;
    return sx.stx_btime.tv_sec;
}

static void open_file(struct file *f, uint64_t offset)
{
    struct stat st;
    int fd;

    f->due_ms = now_ms() + RETRY_MS;
    touch(f);
    fd = open(f->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int e = errno;
        if (fd >= 0)
            (void) close(fd);
        touch(NULL);
        if (e == ENOENT) { /* all of a file that comes later is new */
            f->born_after_s = 0;
            if (f->offset == TAIL_OFFSET_END)
                f->offset = 0;
        }
        tell_error(f, e == ENOENT    ? "no such file"
                      : e == EACCES  ? "permission denied"
                      : e == ELOOP   ? "too many links"
                      : e == ENXIO   ? "not a regular file"
                                     : strerror(e));
        return;
    }
    if (!S_ISREG(st.st_mode) || st.st_uid != owner) {
        (void) close(fd);
        touch(NULL);
        tell_error(f, S_ISREG(st.st_mode) ? "not owned by the job's user" : "not a regular file");
        return;
    }
    f->network = is_network(fd);
    if (offset == 0 && f->born_after_s && born_s(fd) < (int64_t) f->born_after_s)
        offset = TAIL_OFFSET_END;
    touch(NULL);
    f->born_after_s = 0;
    f->fd = fd;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    begin_at(f, offset == TAIL_OFFSET_END ? (uint64_t) st.st_size : offset);
    f->ready = true;
    f->rotated = false;
    f->error[0] = '\0';
    if (notify_fd >= 0 && !f->network) {
        touch(f);
        /* By the descriptor, so that it is this file and not what is at the path by now. */
        char self[64];
        (void) snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        f->wd = inotify_add_watch(notify_fd, self, IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF);
        touch(NULL);
    }
    tail_put(frame + TAIL_FRAME_HEAD, 8, (uint64_t) st.st_dev);
    tail_put(frame + TAIL_FRAME_HEAD + 8, 8, (uint64_t) st.st_ino);
    tail_put(frame + TAIL_FRAME_HEAD + 16, 8, (uint64_t) st.st_size);
    tail_put(frame + TAIL_FRAME_HEAD + 24, 8, f->offset);
    send_frame(TAIL_FRAME_OPENED, f->id, 32);
}

/* Is the path still this file, and the file still as long as what was read of it? */
static void look(struct file *f)
{
    struct stat st;
    int r;

    if (f->fd < 0) {
        open_file(f, f->offset);
        return;
    }
    f->due_ms = now_ms() + (f->network || f->wd < 0 ? NETWORK_MS : LOCAL_MS);
    touch(f);
    r = fstat(f->fd, &st);
    touch(NULL);
    if (r < 0) {
        tell_error(f, strerror(errno));
        let_go(f);
        return;
    }
    uint64_t size = st.st_size > 0 ? (uint64_t) st.st_size : 0;
    if (size < f->offset) {
        begin_at(f, 0);
        send_frame(TAIL_FRAME_TRUNCATED, f->id, 0);
    }
    if (f->max_lag && size - f->offset > f->max_lag)
        begin_at(f, size - f->max_lag / 2);
    f->ready = size > f->offset;
    touch(f);
    r = stat(f->path, &st);
    touch(NULL);
    f->rotated = r == 0 && (st.st_dev != f->dev || st.st_ino != f->ino);
    if (f->rotated)
        f->ready = true; /* the end of the old file makes the switch */
}

/* Bytes that were left unread for want of credit, until all are read. */
static void count_wait(struct file *f, int64_t now)
{
    if (f->fd < 0 || !f->ready) {
        f->waits_ms = 0;
        if (f->behind)
            send_frame(TAIL_FRAME_CAUGHT_UP, f->id, 0);
        f->behind = false;
        return;
    }
    if (!f->waits_ms && credit >= TAIL_CREDIT_LOW)
        return;
    if (!f->waits_ms)
        f->waits_ms = now;
    if (f->behind || now - f->waits_ms <= TAIL_BEHIND_MS)
        return;
    f->behind = true;
    send_frame(TAIL_FRAME_BEHIND, f->id, 0);
}

/* Sends what was read behind the offset, of @n bytes from offset - back on, as far as it may go. Returns true if something was
 * sent. */
static bool send_some(struct file *f, uint8_t *text, size_t n)
{
    uint64_t from = f->offset - f->back;
    size_t back = f->back, judged = adv_redact(&f->redact, text, n), send;
    int64_t now = now_ms();

    if (judged <= back && (!f->held_ms || now - f->held_ms < HOLD_MS)) {
        f->back = back - judged;
        if (!f->held_ms)
            f->held_ms = now;
        if (f->due_ms > f->held_ms + HOLD_MS)
            f->due_ms = f->held_ms + HOLD_MS;
        f->ready = false;
        return false;
    }
    send = judged > back ? judged - back : n - back;
    if (judged <= back)
        adv_redact_rest(&f->redact, text + judged, n - judged);
    memmove(text, text + back, send);
    tail_put(frame + TAIL_FRAME_HEAD, 8, f->offset);
    send_frame(TAIL_FRAME_DATA, f->id, 8 + send);
    f->offset += send;
    f->back = (size_t) (f->offset - from) - judged;
    f->held_ms = 0;
    credit -= (uint32_t) send;
    return true;
}

/* Sends at most one chunk. Returns true if something was sent. */
static bool read_some(struct file *f)
{
    size_t want = f->back + credit < TAIL_DATA_MAX ? f->back + credit : TAIL_DATA_MAX;
    ssize_t n;

    if (f->fd < 0 || !f->ready || credit < TAIL_CREDIT_LOW)
        return false;
    touch(f);
    n = pread(f->fd, frame + TAIL_FRAME_HEAD + 8, want, (off_t) (f->offset - f->back));
    touch(NULL);
    if (n > (ssize_t) f->back)
        return send_some(f, frame + TAIL_FRAME_HEAD + 8, (size_t) n);
    f->ready = false;
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        tell_error(f, strerror(errno));
        let_go(f);
    } else if (f->rotated) {
        let_go(f);
        send_frame(TAIL_FRAME_ROTATED, f->id, 0);
        f->offset = 0;
        open_file(f, 0);
        return true;
    } else {
        look(f); /* a truncation shows itself as an end */
    }
    return false;
}

static struct file *find(uint32_t id)
{
    for (size_t i = 0; i < n_files; i++)
        if (files[i].id == id)
            return &files[i];
    return NULL;
}

static void handle(const struct tail_frame *in)
{
    struct file *f = find(in->id);

    switch (in->type) {
    case TAIL_FRAME_OPEN: {
        size_t n = in->len - TAIL_OPEN_HEAD;
        const uint8_t *text = in->payload + TAIL_OPEN_HEAD;
        if (f || n_files == TAIL_FILES_MAX || in->id == 0 || *text != '/' || memchr(text, '\0', n))
            _exit(1);
        struct file *more = realloc(files, (n_files + 1) * sizeof(*files));
        char *path = strndup((const char *) text, n);
        if (!more || !path)
            _exit(1);
        files = more;
        f = &files[n_files++];
        *f = (struct file) { .id = in->id, .path = path, .fd = -1, .wd = -1 };
        f->offset = tail_get(in->payload, 8);
        f->max_lag = tail_get(in->payload + 8, 8);
        f->born_after_s = tail_get(in->payload + 16, 8);
        open_file(f, f->offset);
        break;
    }
    case TAIL_FRAME_CLOSE:
        if (!f)
            break;
        let_go(f);
        free(f->path);
        *f = files[--n_files];
        break;
    case TAIL_FRAME_CREDIT: {
        uint64_t sum = credit + tail_get(in->payload, 4);
        credit = sum > TAIL_CREDIT_MAX ? TAIL_CREDIT_MAX : (uint32_t) sum;
        break;
    }
    default:
        _exit(1);
    }
}

static void read_input(void)
{
    ssize_t n = read(STDIN_FILENO, input + input_len, sizeof(input) - input_len);
    size_t done = 0;

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        _exit(0); /* the agent has gone */
    if (n > 0)
        input_len += (size_t) n;
    for (;;) {
        struct tail_frame in;
        long used = tail_frame_parse(input + done, input_len - done, &in);
        if (used < 0)
            _exit(1);
        if (used == 0)
            break;
        handle(&in);
        done += (size_t) used;
    }
    memmove(input, input + done, input_len - done);
    input_len -= done;
}

static void read_notify(void)
{
    union {
        struct inotify_event ev;
        char bytes[4096];
    } buf;
    ssize_t n;

    while ((n = read(notify_fd, buf.bytes, sizeof(buf.bytes))) > 0) {
        for (ssize_t at = 0; at + (ssize_t) sizeof(struct inotify_event) <= n;) {
            struct inotify_event ev;
            memcpy(&ev, buf.bytes + at, sizeof(ev));
            at += (ssize_t) (sizeof(ev) + ev.len);
            for (size_t i = 0; i < n_files; i++) {
                if ((ev.mask & IN_Q_OVERFLOW) || files[i].wd == ev.wd) {
                    files[i].ready = true;
                    if (ev.mask & ~(uint32_t) IN_MODIFY)
                        files[i].due_ms = 0;
                }
            }
        }
    }
}

static _Noreturn void run(void)
{
    int64_t tick_ms = 0;

    for (;;) {
        int64_t now = now_ms(), due = tick_ms + TAIL_TICK_MS;
        bool busy = false;

        if (now >= due) {
            send_frame(TAIL_FRAME_TICK, 0, 0);
            tick_ms = now;
            due = now + TAIL_TICK_MS;
        }
        for (size_t i = 0; i < n_files; i++) {
            if (now >= files[i].due_ms)
                look(&files[i]);
            busy |= read_some(&files[i]);
            count_wait(&files[i], now);
            if (files[i].due_ms < due)
                due = files[i].due_ms;
        }
        now = now_ms();
        struct pollfd p[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                               { .fd = notify_fd, .events = POLLIN } };
        if (poll(p, 2, busy || due <= now ? 0 : (int) (due - now)) > 0) {
            if (p[0].revents)
                read_input();
            if (p[1].revents)
                read_notify();
        }
    }
}

/* Keeping: the end of a file that the job's next attempt may truncate, for its owner. With his rights and in his folder; a new
 * file, never through a link, readable by him alone. The bytes are his own and stay with him, so nothing in them is covered. */

#define KEEP_MAX       (16u << 20)
#define KEEP_ATTEMPT   1000000u
#define KEEP_LINE      4096 /* a longer first line is kept as it was cut */

static bool keep_failed(const char *path, const char *what, int e)
{
    (void) fprintf(stderr, "%s: %s: %s\n", path, what, strerror(e));
    return false;
}

/* Where the first whole line of what is kept begins, at @from or behind it. */
static off_t line_at(int fd, off_t from)
{
    char text[KEEP_LINE];
    ssize_t n = from > 0 ? pread(fd, text, sizeof(text), from - 1) : 0;
    const char *end = n > 0 ? memchr(text, '\n', (size_t) n) : NULL;

    return end ? from + (end - text) : from;
}

static int copy_end(int from, int to, off_t begin, off_t end)
{
    char text[65536];

    while (begin < end) {
        size_t want = (size_t) (end - begin) < sizeof(text) ? (size_t) (end - begin) : sizeof(text);
        ssize_t n = pread(from, text, want, begin);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0) /* it was cut meanwhile */
            break;
        for (ssize_t done = 0, w; done < n; done += w) {
            w = write(to, text + done, (size_t) (n - done));
            if (w < 0 && errno != EINTR)
                return errno;
            if (w < 0)
                w = 0;
        }
        ADV_FAILPOINT("tail.keep_half");
        begin += n;
    }
    return fsync(to) < 0 ? errno : 0; /* where a quota shows itself */
}

/* What one that was killed in the middle has left: a file of the owner's own, and of no worth. */
static void remove_stale(const char *part)
{
    struct stat st;

    if (fstatat(AT_FDCWD, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && st.st_uid == owner)
        (void) unlink(part);
}

/* The file that is open, whole and on disk, gets its name; what has that name already stays. 0 or an errno. */
static int name_it(int fd, const char *part, const char *name)
{
    char self[64];

    (void) snprintf(self, sizeof(self), "/proc/self/fd/%d", fd); /* not what may be at the path by now */
    if (linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST)
        return 0;
    if (errno != EPERM && errno != EOPNOTSUPP)
        return errno;
    /* a file system without links */
    return renameat2(AT_FDCWD, part, AT_FDCWD, name, RENAME_NOREPLACE) == 0 || errno == EEXIST ? 0 : errno;
}

static bool keep_file(const char *path, unsigned long bytes, unsigned long attempt)
{
    char *name = NULL, *part = NULL;
    struct stat st, other;
    int from, to, e;
    off_t begin;

    from = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0)
        return errno == ENOENT || keep_failed(path, "open", errno); /* it wrote nothing */
    if (fstat(from, &st) < 0)
        return keep_failed(path, "look", errno);
    if (!S_ISREG(st.st_mode))
        return true; /* /dev/null and the like: nothing is truncated */
    if (st.st_uid != owner)
        return keep_failed(path, "not owned by the job's user", EPERM);
    if (st.st_size == 0)
        return true;
    if (asprintf(&name, "%s.attempt-%lu.tail", path, attempt) < 0)
        return keep_failed(path, "name", ENOMEM);
    if (asprintf(&part, "%s.part", name) < 0)
        return keep_failed(path, "name", ENOMEM);
    if (lstat(name, &other) == 0)
        return true; /* kept before, or whatever it is, it stays */
    remove_stale(part);
    to = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0600);
    if (to < 0)
        return keep_failed(part, "create", errno);
    begin = (uint64_t) st.st_size > bytes ? line_at(from, st.st_size - (off_t) bytes) : 0;
    e = copy_end(from, to, begin, st.st_size);
    if (!e)
        e = name_it(to, part, name);
    (void) unlink(part);
    if (close(to) < 0 && !e)
        e = errno;
    return !e || keep_failed(name, "write", e);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "uid", required_argument, NULL, 'u' },
        { "min-uid", required_argument, NULL, 'm' },
        { "keep", required_argument, NULL, 'k' },
        { "attempt", required_argument, NULL, 'a' },
        { NULL, 0, NULL, 0 },
    };
    unsigned long uid = 0, min_uid = 1000, keep = 0, attempt = 0;
    bool kept = true;
    int c;

    opterr = 0;
#ifdef ADV_FAILPOINTS
    adv_failpoint_init();
#endif
    prepare();
    if (syscall(SYS_close_range, TAIL_PAGE_FD + 1, ~0u, 0) < 0 && errno != ENOSYS)
        refuse("cannot close descriptors");
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'u')
            uid = number(optarg);
        else if (c == 'm')
            min_uid = number(optarg);
        else if (c == 'k')
            keep = number(optarg);
        else if (c == 'a')
            attempt = number(optarg);
        else
            refuse("usage: advisor-tail --uid N [--min-uid N] [--keep BYTES --attempt N PATH...]");
    }
    if ((optind != argc) != (keep > 0) || argc - optind > 2 || keep > KEEP_MAX || attempt > KEEP_ATTEMPT)
        refuse("usage: advisor-tail --uid N [--min-uid N] [--keep BYTES --attempt N PATH...]");
    limit(RLIMIT_FSIZE, keep); /* who follows files writes none */
    if (getuid() != 0 && min_uid < 1000)
        min_uid = 1000; /* only root itself may lower it */
    if (uid == 0 || uid < min_uid)
        refuse("this uid is not served");
    owner = (uid_t) uid;
    drop_rights(owner);
    confine();
    for (int i = optind; i < argc; i++)
        kept = (*argv[i] == '/' && keep_file(argv[i], keep, attempt)) && kept;
    if (keep)
        _exit(kept ? 0 : 1);
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, TAIL_PAGE_FD, 0);
    if (page == MAP_FAILED)
        refuse("no shared page");
    (void) close(TAIL_PAGE_FD);
    page->magic = TAIL_PAGE_MAGIC;
    notify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    run();
}
