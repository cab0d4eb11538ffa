/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a log, kept by the real helper with its owner's rights. Needs root, as test-tail. */

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "advisor-agent/tail/keep.h"
#include "common/clock.h"
#include "common/spawn.h"
#include "common/utf8.h"

#define OWNER 64999

static uv_loop_t loop;
static char dir[64];
static char why[256];

static void setup(void)
{
    if (getuid() != 0)
        cr_skip("needs root");
    (void) signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(uv_loop_init(&loop), 0);
    strcpy(dir, "/tmp/keep-XXXXXX");
    cr_assert(mkdtemp(dir));
    cr_assert_eq(chown(dir, OWNER, OWNER), 0);
    cr_assert_eq(chmod(dir, 0755), 0);
}

static void teardown(void)
{
    char cmd[100];

    if (!dir[0])
        return;
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void) snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    cr_assert_eq(system(cmd), 0);
}

TestSuite(keep, .init = setup, .fini = teardown, .timeout = 60);

static const char *path_of(const char *name)
{
    static char path[4][128];
    static unsigned i;
    char *p = path[i++ % 4];

    (void) snprintf(p, 128, "%s/%s", dir, name);
    return p;
}

static void put(const char *name, const char *text, size_t n, uid_t uid)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    cr_assert(fd >= 0);
    cr_assert_eq(write(fd, text, n), (ssize_t) n);
    cr_assert_eq(fchown(fd, uid, uid), 0);
    (void) close(fd);
}

/* What is at @name; NULL: no such file. */
static char *get(const char *name, size_t *ret_n)
{
    int fd = open(path_of(name), O_RDONLY | O_NOFOLLOW);
    static char text[1 << 20];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        (void) close(fd);
    if (n < 0)
        return NULL;
    text[n] = '\0';
    *ret_n = (size_t) n;
    return text;
}

/* "" when nothing was said against it. */
static const char *keep(const char *out, const char *err_path, size_t bytes, uint32_t attempt)
{
    struct tail_keep_args args = { .helper_path = TAIL_HELPER, .min_uid = 1000, .uid = OWNER, .bytes = bytes, .attempt = attempt,
                                   .paths = { out, err_path } };
    struct tail_keep *k = NULL;
    struct adv_err err = { 0 };
    const char *what = NULL;

    if (tail_keep(&loop, &args, &k, &err) < 0) {
        (void) snprintf(why, sizeof(why), "%s", err.msg);
        return why;
    }
    while (!tail_keep_done(k, adv_mono_us(), &what))
        (void) uv_run(&loop, UV_RUN_ONCE);
    (void) snprintf(why, sizeof(why), "%s", what ? what : "");
    (void) tail_keep_free(k);
    return why;
}

Test(keep, the_whole_of_a_short_one)
{
    struct stat st;
    size_t n;

    put("out", "one\ntoken=abcdef0123456789abcdef0123456789\n", 44, OWNER);
    cr_assert_str_eq(keep(path_of("out"), path_of("out"), 4096, 0), "");
    cr_assert_str_eq(get("out.attempt-0.tail", &n), "one\ntoken=abcdef0123456789abcdef0123456789\n"); /* his own: nothing is covered */
    cr_assert_eq(stat(path_of("out.attempt-0.tail"), &st), 0);
    cr_assert(st.st_uid == OWNER && st.st_gid != 0 && (st.st_mode & 07777) == 0600);
    /* what was kept stays, whatever the log says now */
    put("out", "two\n", 4, OWNER);
    cr_assert_str_eq(keep(path_of("out"), "", 4096, 0), "");
    cr_assert_str_eq(get("out.attempt-0.tail", &n), "one\ntoken=abcdef0123456789abcdef0123456789\n");
    cr_assert_str_eq(keep(path_of("out"), "", 4096, 1), "");
    cr_assert_str_eq(get("out.attempt-1.tail", &n), "two\n");
}

Test(keep, the_end_of_a_long_one_from_a_line_on)
{
    static char text[400000];
    size_t n = 0, kept;

    while (n < sizeof(text) - 20)
        n += (size_t) sprintf(text + n, "line %zu\n", n);
    put("out", text, n, OWNER);
    put("err", "why\n", 4, OWNER);
    cr_assert_str_eq(keep(path_of("out"), path_of("err"), 65536, 3), "");
    const char *end = get("out.attempt-3.tail", &kept);
    cr_assert(end && kept <= 65536 && kept > 65000 && strncmp(end, "line ", 5) == 0);
    cr_assert_str_eq(end, text + n - kept);
    cr_assert_str_eq(get("err.attempt-3.tail", &kept), "why\n");
    /* one line without an end is cut where it must be */
    memset(text, 'x', 20000);
    put("out", text, 20000, OWNER);
    cr_assert_str_eq(keep(path_of("out"), "", 8192, 4), "");
    cr_assert(get("out.attempt-4.tail", &kept) && kept == 8192);
}

Test(keep, nothing_to_keep)
{
    size_t n;

    cr_assert_str_eq(keep(path_of("none"), "", 4096, 0), "");
    put("empty", "", 0, OWNER);
    cr_assert_str_eq(keep(path_of("empty"), "/dev/null", 4096, 0), "");
    cr_assert(!get("none.attempt-0.tail", &n) && !get("empty.attempt-0.tail", &n) && access("/dev/null.attempt-0.tail", F_OK) < 0);
    cr_assert_str_eq(keep("", NULL, 4096, 0), "no path of its output is known");
    cr_assert_str_eq(keep("relative", "", 4096, 0), "no path of its output is known");
}

/* A link in the way is not written through, and another's file is not read. */
Test(keep, no_games_with_links)
{
    size_t n;

    put("out", "mine\n", 5, OWNER);
    put("target", "precious\n", 9, OWNER);
    cr_assert_eq(symlink(path_of("target"), path_of("out.attempt-0.tail")), 0);
    cr_assert_str_eq(keep(path_of("out"), "", 4096, 0), ""); /* something is there: it stays as it is */
    cr_assert_str_eq(get("target", &n), "precious\n");
    cr_assert_eq(symlink(path_of("not-there"), path_of("out.attempt-1.tail")), 0);
    cr_assert_str_eq(keep(path_of("out"), "", 4096, 1), "");
    cr_assert(!get("not-there", &n));
    put("root", "secret\n", 7, 0);
    cr_assert_eq(chmod(path_of("root"), 0644), 0);
    cr_assert(strstr(keep(path_of("root"), "", 4096, 0), "not owned"), "%s", why);
    cr_assert(!get("root.attempt-0.tail", &n));
    cr_assert(strstr(keep("/etc/passwd", "", 4096, 0), "not owned"), "%s", why);
    cr_assert_eq(mkfifo(path_of("pipe"), 0666), 0);
    cr_assert_eq(chown(path_of("pipe"), OWNER, OWNER), 0);
    cr_assert_str_eq(keep(path_of("pipe"), "", 4096, 0), "");
}

/* A folder that its owner may not write to: told, and no harm. */
Test(keep, where_it_cannot_be_written)
{
    size_t n;

    put("out", "mine\n", 5, OWNER);
    cr_assert_eq(chown(dir, 0, 0), 0);
    cr_assert(strstr(keep(path_of("out"), "", 4096, 0), "create: Permission denied"), "%s", why);
    cr_assert(!get("out.attempt-0.tail", &n));
}

/* Half of it is not the end of the log, and must not stand where the whole is looked for. */
Test(keep, killed_in_the_middle_it_is_kept_whole_by_the_next)
{
    static char text[200000];
    size_t n;

#ifndef ADV_FAILPOINTS
    cr_skip("needs a build with failpoints");
#endif
    memset(text, 'x', sizeof(text));
    put("out", text, sizeof(text), OWNER);
    setenv("ADVISOR_FAILPOINT", "tail.keep_half=kill@2", 1);
    cr_assert(*keep(path_of("out"), "", 1 << 18, 0) != '\0');
    unsetenv("ADVISOR_FAILPOINT");
    cr_assert(!get("out.attempt-0.tail", &n));
    cr_assert(get("out.attempt-0.tail.part", &n) && n < sizeof(text));
    cr_assert_str_eq(keep(path_of("out"), "", 1 << 18, 0), "");
    cr_assert(get("out.attempt-0.tail", &n) && n == sizeof(text));
    cr_assert(!get("out.attempt-0.tail.part", &n));
    /* somebody else's thing in the way of the half is left alone, and told */
    cr_assert_eq(symlink(path_of("not-there"), path_of("out.attempt-1.tail.part")), 0);
    cr_assert(strstr(keep(path_of("out"), "", 1 << 18, 1), "create: File exists"), "%s", why);
    cr_assert(!get("not-there", &n) && !get("out.attempt-1.tail", &n));
}

/* What is said of it goes to the control plane, as text. */
Test(keep, a_file_that_is_named_with_bytes)
{
    put("out-\xff\xc3", "mine\n", 5, OWNER);
    cr_assert_eq(chown(dir, 0, 0), 0);
    cr_assert(strstr(keep(path_of("out-\xff\xc3"), "", 4096, 0), "create: Permission denied"), "%s", why);
    cr_assert(adv_utf8_valid(why, strlen(why)), "%s", why);
}

static char full[80]; /* a small file system, mounted where the right to do so is there */

Test(keep, a_full_disk_leaves_nothing_behind)
{
    static char text[1 << 18];
    char cmd[200];
    struct stat st;

    (void) snprintf(full, sizeof(full), "%s/full", dir);
    cr_assert_eq(mkdir(full, 0755), 0);
    (void) snprintf(cmd, sizeof(cmd), "mount -t tmpfs -o size=300k,mode=0777 tmpfs %s 2>/dev/null", full);
    if (system(cmd) != 0)
        cr_skip("no right to mount");
    memset(text, 'x', sizeof(text));
    put("full/out", text, sizeof(text), OWNER);
    const char *said = keep(path_of("full/out"), "", 1 << 18, 0);
    bool told = strstr(said, "No space left") != NULL, left = stat(path_of("full/out.attempt-0.tail"), &st) == 0;
    (void) snprintf(cmd, sizeof(cmd), "umount %s", full);
    cr_assert_eq(system(cmd), 0);
    cr_assert(told && !left, "%s", said);
}

Test(keep, what_is_refused)
{
    struct tail_keep_args args = { .helper_path = TAIL_HELPER, .min_uid = 1000, .uid = 999, .bytes = 10, .paths = { "/tmp/x" } };
    struct adv_err err;
    struct tail_keep *k;

    cr_assert_eq(tail_keep(&loop, &args, &k, &err), -ADV_PERMISSION_DENIED);
    put("out", "mine\n", 5, OWNER);
    cr_assert(strstr(keep(path_of("out"), "", (16u << 20) + 1, 0), "usage"), "%s", why); /* more than it ever writes */
    cr_assert(strstr(keep(path_of("out"), "", 0, 0), "usage"), "%s", why);
    args.uid = OWNER;
    args.helper_path = "/not/there";
    if (tail_keep(&loop, &args, &k, &err) == 0) {
        const char *what;
        while (!tail_keep_done(k, adv_mono_us(), &what))
            (void) uv_run(&loop, UV_RUN_ONCE);
        cr_assert(strstr(what, "cannot be run"), "%s", what);
        (void) tail_keep_free(k);
    }
}

/* Who does not wait for it any longer: the process ends by itself, and nothing is used after it was freed. */
Test(keep, given_up_in_between)
{
    struct tail_keep_args args = { .helper_path = TAIL_HELPER, .min_uid = 1000, .uid = OWNER, .bytes = 4096, .paths = { path_of("out") } };
    struct tail_keep *k;
    const char *what;
    struct adv_err err;
    size_t n;

    put("out", "mine\n", 5, OWNER);
    cr_assert_eq(tail_keep(&loop, &args, &k, &err), 0);
    cr_assert(tail_keep_done(k, adv_mono_us() + TAIL_KEEP_MS * INT64_C(1000), &what) && strstr(what, "hangs"));
    (void) tail_keep_free(k);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_str_eq(get("out.attempt-0.tail", &n), "mine\n");
}
