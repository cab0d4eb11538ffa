/* SPDX-License-Identifier: Apache-2.0 */

/* Runs the real helper, as root for a user that has no passwd entry. Without root only the cases
 * that need no change of user could run, so then all are skipped. */

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "advisor-agent/tail/tail.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/spawn.h"

#define OWNER 64999

struct seen {
    struct tail_watch *w;
    struct adv_buf data;
    enum tail_state state;
    char reason[128];
    uint64_t dropped;
    unsigned restarts, rotations, opened;
    uint64_t offset; /* of the first byte of the last chunk */
};

static uv_loop_t loop;
static struct tail_manager *m;
static char dir[64];
static bool refuse_data;
static struct seen s1, s2;

static bool on_data(void *ctx, struct tail_watch *w, uint64_t offset, const uint8_t *data, size_t len,
                    uint64_t dropped)
{
    struct seen *s = tail_watch_user(w);
    if (refuse_data)
        return false;
    s->offset = offset;
    cr_assert_eq(adv_buf_append(&s->data, data, len), 0);
    return true;
}

static void on_state(void *ctx, struct tail_watch *w, enum tail_state state, const char *reason,
                     uint64_t dropped)
{
    struct seen *s = tail_watch_user(w);
    s->state = state;
    s->dropped = dropped;
    (void) snprintf(s->reason, sizeof(s->reason), "%s", reason);
}

static void on_restart(void *ctx, struct tail_watch *w, bool rotated)
{
    struct seen *s = tail_watch_user(w);
    if (rotated)
        s->rotations++;
    else
        s->restarts++;
}

static void on_opened(void *ctx, struct tail_watch *w, uint64_t dev, uint64_t ino, uint64_t size,
                      uint64_t offset)
{
    struct seen *s = tail_watch_user(w);
    s->opened++;
}

static const struct tail_ops ops = { on_data, on_state, on_restart, on_opened };

static void on_nothing(uv_timer_t *t)
{
}

/* Runs the loop until @cond or 15 s. */
#define UNTIL(cond)                                                                       \
    do {                                                                                  \
        int64_t end_ = adv_mono_us() + 15000000;                                          \
        while (!(cond) && adv_mono_us() < end_)                                           \
            (void) uv_run(&loop, UV_RUN_ONCE);                                            \
        cr_assert(cond, "%s; state %d '%s' len %zu", #cond, s1.state, s1.reason, s1.data.len); \
    } while (0)

static uv_timer_t pulse;

static void setup(void)
{
    struct tail_config cfg = { .helper_path = TAIL_HELPER, .min_uid = 1000, .hang_timeout_ms = 3000 };

    if (getuid() != 0)
        cr_skip("needs root");
    (void) signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(uv_loop_init(&loop), 0);
    uv_timer_init(&loop, &pulse);
    uv_timer_start(&pulse, on_nothing, 20, 20);
    strcpy(dir, "/tmp/tail-XXXXXX");
    cr_assert(mkdtemp(dir));
    cr_assert_eq(chmod(dir, 0755), 0);
    adv_buf_init(&s1.data, 64u << 20);
    adv_buf_init(&s2.data, 64u << 20);
    cr_assert_eq(tail_manager_new(&loop, &cfg, &ops, NULL, &m, NULL), 0);
}

static void teardown(void)
{
    char cmd[100];

    if (!m)
        return;
    m = tail_manager_free(m);
    uv_close((uv_handle_t *) &pulse, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    adv_buf_done(&s1.data);
    adv_buf_done(&s2.data);
    (void) snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    cr_assert_eq(system(cmd), 0);
}

TestSuite(tail, .init = setup, .fini = teardown, .timeout = 60);

static const char *path_of(const char *name)
{
    static char path[4][128];
    static unsigned i;
    char *p = path[i++ % 4];
    (void) snprintf(p, 128, "%s/%s", dir, name);
    return p;
}

static void put(const char *name, const char *text, int flags)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | flags, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t) strlen(text));
    cr_assert_eq(fchown(fd, OWNER, OWNER), 0);
    (void) close(fd);
}

static void watch(struct seen *s, const char *name, uint64_t offset)
{
    const char *path = path_of(name);
    struct tail_watch_args a = { .uid = OWNER, .path = path, .path_len = strlen(path),
                                 .start_offset = offset, .start_known = true, .user = s };
    struct adv_err err;
    cr_assert_eq(tail_watch(m, &a, &s->w, &err), 0, "%s", err.msg);
}

static bool has(const struct seen *s, const char *text)
{
    return s->data.len == strlen(text) && memcmp(s->data.data, text, s->data.len) == 0;
}

Test(tail, follows_appends)
{
    put("a", "one\n", 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "one\n"));
    cr_assert_eq(s1.state, TAIL_STATE_COMPLETE);
    put("a", "two\n", O_APPEND);
    UNTIL(has(&s1, "one\ntwo\n"));
    cr_assert_eq(tail_watch_offset(s1.w), 8);
}

Test(tail, starts_where_told)
{
    put("a", "old\nnew\n", 0);
    watch(&s1, "a", 4);
    put("b", "old\n", 0);
    watch(&s2, "b", TAIL_START_AT_END);
    UNTIL(has(&s1, "new\n") && s2.opened);
    put("b", "more\n", O_APPEND);
    UNTIL(has(&s2, "more\n"));
}

Test(tail, file_comes_later)
{
    watch(&s1, "a", TAIL_START_AT_END);
    UNTIL(s1.state == TAIL_STATE_LOST);
    cr_assert_str_eq(s1.reason, "no such file");
    put("a", "born\n", 0);
    UNTIL(has(&s1, "born\n") && s1.state == TAIL_STATE_COMPLETE);
}

Test(tail, truncated)
{
    put("a", "first attempt, long line\n", 0);
    watch(&s1, "a", 0);
    UNTIL(s1.data.len == 25);
    adv_buf_reset(&s1.data);
    put("a", "second\n", O_TRUNC);
    UNTIL(has(&s1, "second\n"));
    cr_assert_eq(s1.restarts, 1);
}

Test(tail, rotated)
{
    put("a", "one\n", 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "one\n"));
    cr_assert_eq(rename(path_of("a"), path_of("a.1")), 0);
    put("a.1", "late\n", O_APPEND);
    put("a", "two\n", 0);
    UNTIL(has(&s1, "one\nlate\ntwo\n"));
    cr_assert_eq(s1.rotations, 1);
}

Test(tail, deleted_file_is_still_read)
{
    put("a", "one\n", 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "one\n"));
    int fd = open(path_of("a"), O_WRONLY | O_APPEND);
    cr_assert_eq(unlink(path_of("a")), 0);
    cr_assert_eq(write(fd, "two\n", 4), 4);
    UNTIL(has(&s1, "one\ntwo\n"));
    (void) close(fd);
}

Test(tail, secrets_do_not_leave_the_helper)
{
    put("a", "token hf_aaaaaa", 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "token "));
    put("a", "aaaaaaaaaaaa ok\n", O_APPEND);
    UNTIL(has(&s1, "token ********************* ok\n"));
    adv_buf_reset(&s1.data);
    put("a", "step 1 loss", O_APPEND); /* the end of a line that does not come */
    UNTIL(has(&s1, "step 1 loss"));
    put("a", "=0.5\npassword=", O_APPEND);
    UNTIL(has(&s1, "step 1 loss=0.5\npassword="));
    put("a", "aaaa1 z\n", O_APPEND);
    UNTIL(has(&s1, "step 1 loss=0.5\npassword=***** z\n"));
}

Test(tail, a_start_inside_of_a_key)
{
    put("a", "-----BEGIN PRIVATE KEY-----\naaaa\nbbbb\n-----END PRIVATE KEY-----\nz\n", 0);
    watch(&s1, "a", 33);
    UNTIL(has(&s1, "****\n-----END PRIVATE KEY-----\nz\n"));
    tail_watch_rewind(s1.w, 33);
    UNTIL(has(&s1, "****\n-----END PRIVATE KEY-----\nz\n****\n-----END PRIVATE KEY-----\nz\n"));
    put("b", "password=aaaabbbb\n", 0);
    watch(&s2, "b", 13);
    UNTIL(has(&s2, "****\n"));
}

Test(tail, line_of_a_megabyte)
{
    static char big[(1 << 20) + 2];
    memset(big, 'x', 1 << 20);
    big[1 << 20] = '\n';
    put("a", big, 0);
    watch(&s1, "a", 0);
    UNTIL(s1.data.len == (1 << 20) + 1);
    cr_assert_eq(s1.dropped, 0);
}

Test(tail, what_is_not_served)
{
    static const struct {
        const char *name, *reason;
    } t[] = { { "fifo", "not a regular file" },   { "dir", "not a regular file" },
              { "null", "not a regular file" },   { "shadow", "permission denied" },
              { "passwd", "not owned by the job's user" }, { "closed", "permission denied" },
              { "loop", "too many links" },        { "sock", "not a regular file" } };
    struct seen s[ADV_ARRAY_LEN(t)];

    cr_assert_eq(mkfifo(path_of("fifo"), 0666), 0);
    cr_assert_eq(mkdir(path_of("dir"), 0777), 0);
    cr_assert_eq(symlink("/dev/null", path_of("null")), 0);
    cr_assert_eq(symlink("/etc/shadow", path_of("shadow")), 0);
    cr_assert_eq(symlink("/etc/passwd", path_of("passwd")), 0);
    cr_assert_eq(symlink(path_of("loop"), path_of("loop")), 0);
    put("closed", "secret\n", 0);
    cr_assert_eq(chmod(path_of("closed"), 0), 0);
    cr_assert_eq(mknod(path_of("sock"), S_IFSOCK | 0666, 0), 0);
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        memset(&s[i], 0, sizeof(s[i]));
        adv_buf_init(&s[i].data, 1024);
        watch(&s[i], t[i].name, 0);
    }
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        UNTIL(s[i].state == TAIL_STATE_LOST);
        cr_assert_str_eq(s[i].reason, t[i].reason, "%s: %s", t[i].name, s[i].reason);
        cr_assert_eq(s[i].data.len, 0);
        s[i].w = tail_unwatch(s[i].w);
    }
}

Test(tail, link_to_own_file_is_served)
{
    put("real", "text\n", 0);
    cr_assert_eq(symlink(path_of("real"), path_of("a")), 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "text\n"));
}

Test(tail, killed_helper_goes_on_where_it_was)
{
    put("a", "one\n", 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "one\n"));
    int pid = tail_helper_pid(m, OWNER);
    cr_assert(pid > 0);
    cr_assert_eq(kill(pid, SIGKILL), 0);
    put("a", "two\n", O_APPEND);
    UNTIL(has(&s1, "one\ntwo\n"));
    cr_assert_neq(tail_helper_pid(m, OWNER), pid);
}

Test(tail, back_pressure_loses_nothing)
{
    static char big[(2 << 20) + 1];
    memset(big, 'y', 2 << 20);
    put("a", big, 0);
    refuse_data = true;
    watch(&s1, "a", 0);
    UNTIL(s1.opened);
    for (int64_t end = adv_mono_us() + 1500000; adv_mono_us() < end;)
        (void) uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(s1.data.len, 0);
    refuse_data = false;
    tail_manager_resume(m);
    UNTIL(s1.data.len == 2 << 20);
    cr_assert_eq(s1.dropped, 0);
}

/* Bytes that wait for the consumer are told of. */
Test(tail, behind_until_caught_up)
{
    static char big[(1 << 20) + 1];
    memset(big, 'y', 1 << 20);
    put("a", big, 0);
    refuse_data = true;
    watch(&s1, "a", 0);
    UNTIL(s1.state == TAIL_STATE_PARTIAL);
    cr_assert_str_eq(s1.reason, "behind");
    cr_assert(tail_watch_behind(s1.w));
    refuse_data = false;
    tail_manager_resume(m);
    UNTIL(s1.data.len == 1 << 20 && s1.state == TAIL_STATE_COMPLETE);
    cr_assert(!tail_watch_behind(s1.w));
    cr_assert_eq(s1.dropped, 0);
}

static void slow(void)
{
    setup();
    m = tail_manager_free(m);
    struct tail_config cfg = { .helper_path = TAIL_HELPER, .min_uid = 1000, .rate_bytes_per_s = 65536, .burst_bytes = 65536,
                               .max_buffered_bytes = 65536 };
    cr_assert_eq(tail_manager_new(&loop, &cfg, &ops, NULL, &m, NULL), 0);
}

/* One user who writes more than can be read leaves another's lines where they are. */
Test(tail_slow, a_flood_of_one_user_does_not_starve_another, .init = slow, .fini = teardown, .timeout = 60)
{
    static char big[(8 << 20) + 1];
    memset(big, 'y', 8 << 20);
    put("a", big, 0);
    watch(&s1, "a", 0);
    UNTIL(s1.data.len > 65536);
    put("b", "", 0);
    cr_assert_eq(chown(path_of("b"), OWNER - 1, OWNER - 1), 0);
    const char *path = path_of("b");
    struct tail_watch_args args = { .uid = OWNER - 1, .path = path, .path_len = strlen(path), .start_known = true,
                                    .user = &s2 };
    cr_assert_eq(tail_watch(m, &args, &s2.w, NULL), 0);
    UNTIL(s2.opened);
    for (int i = 1; i <= 20; i++) {
        int fd = open(path, O_WRONLY | O_APPEND);
        cr_assert_eq(write(fd, "line\n", 5), 5);
        (void) close(fd);
        int64_t end = adv_mono_us() + 2000000;
        while (s2.data.len < (size_t) i * 5 && adv_mono_us() < end)
            (void) uv_run(&loop, UV_RUN_ONCE);
        cr_assert_eq(s2.data.len, (size_t) i * 5, "line %d is late", i);
    }
    cr_assert_lt(s1.data.len, 8 << 20, "the flood was over too early to tell");
    cr_assert_eq(s2.state, TAIL_STATE_COMPLETE);
}

Test(tail, a_file_older_than_the_attempt)
{
    static const struct {
        int64_t born;
        const char *first, *all;
        enum tail_state state;
    } t[] = { { -10, "old\n", "old\nnew\n", TAIL_STATE_COMPLETE }, { 10, "", "new\n", TAIL_STATE_PARTIAL } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char name[2] = { (char) ('a' + i), '\0' };
        const char *path = path_of(name);
        struct tail_watch_args args = { .uid = OWNER, .path = path, .path_len = strlen(path), .start_known = true,
                                        .born_after_s = adv_wall_us() / 1000000 + t[i].born, .user = &s1 };
        put(name, "old\n", 0);
        s1.opened = 0;
        adv_buf_reset(&s1.data);
        cr_assert_eq(tail_watch(m, &args, &s1.w, NULL), 0);
        UNTIL(s1.opened && has(&s1, t[i].first) && s1.state == t[i].state);
        if (t[i].state == TAIL_STATE_PARTIAL)
            cr_assert_str_eq(s1.reason, "the file is older than the attempt");
        /* A run of the helper later nothing has changed. */
        cr_assert_eq(kill(tail_helper_pid(m, OWNER), SIGKILL), 0);
        put(name, "new\n", O_APPEND);
        UNTIL(has(&s1, t[i].all) && s1.state == t[i].state);
        s1.w = tail_unwatch(s1.w);
    }
    /* What is made later is the attempt's. */
    const char *path = path_of("later");
    struct tail_watch_args args = { .uid = OWNER, .path = path, .path_len = strlen(path), .start_known = true,
                                    .born_after_s = adv_wall_us() / 1000000 + 10, .user = &s1 };
    adv_buf_reset(&s1.data);
    cr_assert_eq(tail_watch(m, &args, &s1.w, NULL), 0);
    UNTIL(s1.state == TAIL_STATE_LOST);
    put("later", "all\n", 0);
    UNTIL(has(&s1, "all\n") && s1.state == TAIL_STATE_COMPLETE);
}

Test(tail, runs_as_the_user_with_nothing_else)
{
    char path[64], text[4096];

    put("a", "x", 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "x"));
    (void) snprintf(path, sizeof(path), "/proc/%d/status", tail_helper_pid(m, OWNER));
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    cr_assert(n > 0);
    (void) close(fd);
    text[n] = '\0';
    cr_assert(strstr(text, "Uid:\t64999\t64999\t64999\t64999"), "%s", text);
    cr_assert(strstr(text, "Gid:\t65534\t65534\t65534\t65534"), "%s", text);
    cr_assert(strstr(text, "Groups:\t \n") || strstr(text, "Groups:\t\n"), "%s", text);
    cr_assert(strstr(text, "CapEff:\t0000000000000000"), "%s", text);
    cr_assert(strstr(text, "CapPrm:\t0000000000000000"), "%s", text);
    cr_assert(strstr(text, "NoNewPrivs:\t1"), "%s", text);
    (void) snprintf(path, sizeof(path), "/proc/%d/limits", tail_helper_pid(m, OWNER));
    fd = open(path, O_RDONLY);
    n = read(fd, text, sizeof(text) - 1);
    cr_assert(n > 0);
    (void) close(fd);
    text[n] = '\0';
    cr_assert(strstr(text, "Max file size             0                    0 "), "%s", text);
    cr_assert(strstr(text, "Max core file size        0                    0 "), "%s", text);
}

/* Each system call on a file passes the point. */
static void stop_helper(void)
{
    setenv("ADVISOR_FAILPOINT", "tail.hang=stop@9", 1);
    setup();
}

Test(tail_hang, hung_file_is_given_up_others_go_on, .init = stop_helper, .fini = teardown, .timeout = 60)
{
#ifndef ADV_FAILPOINTS
    cr_skip("needs a build with failpoints");
#endif
    put("a", "one\n", 0);
    watch(&s1, "a", 0);
    UNTIL(has(&s1, "one\n"));
    /* Each look passes the point: the helper stops before long, on one of its files. */
    UNTIL(s1.state == TAIL_STATE_LOST);
    cr_assert_str_eq(s1.reason, "hung");
    put("b", "other\n", 0);
    unsetenv("ADVISOR_FAILPOINT");
    watch(&s2, "b", 0);
    UNTIL(has(&s2, "other\n") && s2.state == TAIL_STATE_COMPLETE);
}

static int run_helper(const char *const *argv)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        (void) freopen("/dev/null", "w", stderr);
        (void) execv(TAIL_HELPER, (char *const *) (uintptr_t) argv);
        _exit(1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(tail_args, refusals)
{
    static const char *const t[][6] = {
        { "advisor-tail", NULL },
        { "advisor-tail", "--uid", "0", NULL },
        { "advisor-tail", "--uid", "0", "--min-uid", "0", NULL },
        { "advisor-tail", "--uid", "999", NULL },
        { "advisor-tail", "--uid", "-1", NULL },
        { "advisor-tail", "--uid", "4294967295", NULL },
        { "advisor-tail", "--uid", "1000x", NULL },
        { "advisor-tail", "--uid", "64999", "rest", NULL },
        { "advisor-tail", "--other", NULL },
        { "advisor-tail", "--uid", "64999", NULL }, /* no shared page */
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_eq(run_helper(t[i]), 77, "case %zu", i);
}

Test(tail_args, manager_refuses)
{
    struct tail_config cfg = { .helper_path = TAIL_HELPER, .min_uid = 1000 };
    struct tail_watch_args a = { .uid = 999, .path = "/tmp/x", .path_len = 6 };
    struct tail_watch *w;

    uv_loop_init(&loop);
    cr_assert_eq(tail_manager_new(&loop, &cfg, &ops, NULL, &m, NULL), 0);
    cr_assert_eq(tail_watch(m, &a, &w, NULL), -ADV_PERMISSION_DENIED);
    a.uid = 1000;
    a.path = "rel/x";
    cr_assert_eq(tail_watch(m, &a, &w, NULL), -ADV_INVALID_ARGUMENT);
    a.path = "/t\0p/x";
    cr_assert_eq(tail_watch(m, &a, &w, NULL), -ADV_INVALID_ARGUMENT);
    m = tail_manager_free(m);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
}
