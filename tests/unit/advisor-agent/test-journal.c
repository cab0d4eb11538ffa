/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "advisor-agent/journal.h"

static char dir[64];

static void setup(void)
{
    strcpy(dir, "/tmp/journal-XXXXXX");
    cr_assert(mkdtemp(dir));
}

static void teardown(void)
{
    char cmd[100];
    (void) snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    cr_assert_eq(system(cmd), 0);
}

TestSuite(journal, .init = setup, .fini = teardown, .timeout = 60);

static struct journal *reopen(struct journal *j)
{
    struct adv_err err;
    (void) journal_free(j);
    j = NULL;
    cr_assert_eq(journal_open(dir, true, NULL, &j, &err), 0, "%s", err.msg);
    return j;
}

static struct journal_intent intent(const char *job, const char *verb)
{
    struct journal_intent in = { .epoch = { 1, 7 }, .generation = 2, .restarts = 1, .submit_s = 99 };
    (void) snprintf(in.advice, sizeof(in.advice), "clusters/a/jobs/%s/attempts/1/advice", job);
    (void) snprintf(in.job, sizeof(in.job), "%s", job);
    (void) snprintf(in.verb, sizeof(in.verb), "%s", verb);
    (void) snprintf(in.read_before, sizeof(in.read_before), "FAILED \xff restart 1");
    if (strcmp(verb, "constrain") == 0)
        in.adds = (char *) (uintptr_t) "n[1-3]";
    return in;
}

static uint64_t begin(struct journal *j, const char *job, const char *verb, int64_t wall_us)
{
    struct journal_intent in = intent(job, verb);
    uint64_t seq = 0;
    struct adv_err err;
    cr_assert_eq(journal_append_intent(j, &in, wall_us, &seq, &err), 0, "%s", err.msg);
    return seq;
}

static void end(struct journal *j, uint64_t seq, const char *excluded)
{
    struct journal_outcome out = { "accepted", "yes", "ok", (char *) (uintptr_t) excluded };
    cr_assert_eq(journal_append_outcome(j, seq, &out, NULL), 0);
}

static size_t count_open(struct journal *j)
{
    size_t pos = 0, n = 0;
    while (journal_next_open(j, &pos))
        n++;
    return n;
}

static int life(struct journal *j, const char *job, int64_t first_submit_s, uint32_t uid)
{
    struct journal_life l = { .first_submit_s = first_submit_s, .uid = uid, .restarts = 3, .submit_s = first_submit_s + 5,
                              .ended_s = first_submit_s + 9, .seen_wall_us = first_submit_s * 7, .seen_boot_us = 1 };

    return journal_append_life(j, job, &l, NULL);
}

static int64_t first_submit_s(const struct journal *j, const char *job, uint32_t uid)
{
    const struct journal_life *l = journal_life(j, job);

    if (!l || l->uid != uid)
        return 0;
    cr_assert(l->restarts == 3 && l->submit_s == l->first_submit_s + 5 && l->ended_s == l->first_submit_s + 9 &&
              l->seen_wall_us == l->first_submit_s * 7);
    return l->first_submit_s;
}

static void check_all(struct journal *j, uint64_t a)
{
    size_t pos = 0;
    const struct journal_step *s = journal_next_open(j, &pos);
    cr_assert(s && s->seq == a && !journal_next_open(j, &pos));
    cr_assert_str_eq(s->intent.verb, "preserve");
    cr_assert_eq(s->intent.epoch.counter, 7);
    cr_assert_eq(s->intent.submit_s, 99);
    cr_assert_null(s->intent.adds);
    s = journal_find_step(j, "clusters/a/jobs/6/attempts/1/advice", NULL, "constrain");
    cr_assert(s && s->done);
    cr_assert_str_eq(s->outcome.excluded, "n[1-2]");
    cr_assert_str_eq(s->intent.adds, "n[1-3]");
    const struct journal_hold *h = journal_find_hold(j, "5");
    cr_assert(h && h->on_expiry == JOURNAL_CANCEL && h->expires_wall_us == 12345 && h->kept);
    cr_assert_str_eq(h->comment, "0a1b");
    cr_assert(!journal_find_hold(j, "6"));
    cr_assert_eq(first_submit_s(j, "5", 7), 1000);
    cr_assert_eq(first_submit_s(j, "46_5", 7), 2000);
    cr_assert_eq(first_submit_s(j, "7", 7), 0);
    cr_assert_eq(journal_highest_epoch(j).counter, 9);
    cr_assert_eq(journal_count_since(j, 150), 1);
    cr_assert_eq(journal_count_since(j, 50), 2);
}

static uint64_t fill(struct journal *j)
{
    struct journal_hold h5 = { "5", "adv", 2, 1000, 12345, JOURNAL_CANCEL, true, "0a1b" }, h6 = { "6", "adv", 2, 0, 0, JOURNAL_LEAVE };
    uint64_t a = begin(j, "5", "preserve", 100), b = begin(j, "6", "constrain", 200);

    end(j, b, "n[1-2]");
    cr_assert_eq(journal_append_hold(j, &h5, NULL), 0);
    cr_assert_eq(journal_append_hold(j, &h6, NULL), 0);
    cr_assert_eq(journal_append_hold_end(j, "6", NULL), 0);
    cr_assert_eq(life(j, "5", 1000, 7), 0);
    cr_assert_eq(life(j, "46_5", 2000, 7), 0);
    cr_assert_eq(journal_note_epoch(j, (struct journal_epoch) { 1, 9 }, NULL), 0);
    cr_assert_eq(journal_note_epoch(j, (struct journal_epoch) { 1, 8 }, NULL), 0);
    cr_assert_eq(journal_append_outcome(j, b, &(struct journal_outcome) { 0 }, NULL), -ADV_NOT_FOUND);
    return a;
}

Test(journal, remembers)
{
    struct journal *j = reopen(NULL);
    uint64_t a = fill(j);
    char id[40];

    strcpy(id, journal_id(j));
    check_all(j, a);
    j = reopen(j);
    check_all(j, a);
    cr_assert_str_eq(journal_id(j), id);
    journal_free(j);
}

Test(journal, compaction_keeps_what_matters)
{
    struct journal *j = reopen(NULL);
    uint64_t a = fill(j), last = 0;

    for (int i = 0; i < 50; i++)
        end(j, begin(j, "8", "release", 10), NULL);
    cr_assert_eq(life(j, "9", 3000, 7), 0);
    journal_forget_job(j, "9");
    cr_assert_eq(journal_compact(j, 50, NULL), 0);
    check_all(j, a);
    cr_assert(!journal_find_step(j, "clusters/a/jobs/8/attempts/1/advice", "8", "release"));
    last = begin(j, "8", "release", 10);
    end(j, last, NULL);
    cr_assert_gt(last, 100);
    j = reopen(j);
    check_all(j, a);
    cr_assert_eq(first_submit_s(j, "9", 7), 0);
    cr_assert_eq(journal_compact(j, 50, NULL), 0);
    cr_assert_gt(begin(j, "8", "release", 10), last);
    journal_free(j);
}

static bool is_5(void *ctx, const char *job)
{
    return strcmp(job, "5") == 0;
}

Test(journal, jobs_that_went_unseen_and_numbers_of_others)
{
    struct journal *j = reopen(NULL);

    (void) fill(j);
    cr_assert_eq(first_submit_s(j, "5", 8), 0, "another user's");
    journal_forget_unless(j, is_5, NULL);
    cr_assert_eq(first_submit_s(j, "5", 7), 1000);
    cr_assert_eq(first_submit_s(j, "46_5", 7), 0);
    cr_assert_eq(journal_compact(j, 50, NULL), 0);
    j = reopen(j);
    cr_assert_eq(first_submit_s(j, "5", 7), 1000);
    cr_assert_eq(first_submit_s(j, "46_5", 7), 0);
    journal_free(j);
}

Test(journal, batch)
{
    struct journal *j = reopen(NULL);
    char job[16];

    journal_batch_begin(j);
    for (int i = 0; i < 3000; i++) {
        (void) snprintf(job, sizeof(job), "%d", i);
        cr_assert_eq(life(j, job, 1000 + i, 7), 0);
    }
    cr_assert_eq(journal_batch_commit(j, NULL), 0);
    j = reopen(j);
    cr_assert_eq(first_submit_s(j, "2999", 7), 3999);
    journal_free(j);
}

static off_t size_of(void)
{
    char path[100];
    struct stat st;
    (void) snprintf(path, sizeof(path), "%s/journal", dir);
    cr_assert_eq(stat(path, &st), 0);
    return st.st_size;
}

static void edit(off_t at, const char *bytes, size_t n, bool truncate_there)
{
    char path[100];
    (void) snprintf(path, sizeof(path), "%s/journal", dir);
    int fd = open(path, O_WRONLY);
    cr_assert(fd >= 0);
    if (n)
        cr_assert_eq(pwrite(fd, bytes, n, at), (ssize_t) n);
    if (truncate_there)
        cr_assert_eq(ftruncate(fd, at), 0);
    close(fd);
}

Test(journal, torn_at_every_byte)
{
    struct journal *j = reopen(NULL);
    end(j, begin(j, "5", "preserve", 1), NULL);
    off_t before = size_of();
    begin(j, "6", "preserve", 1);
    off_t after = size_of();
    journal_free(j);
    for (off_t cut = after - 1; cut >= before; cut--) {
        edit(cut, NULL, 0, true);
        j = reopen(NULL);
        cr_assert_eq(count_open(j), 0, "cut %ld", (long) cut);
        cr_assert_eq(journal_may_act(j, NULL), 0);
        cr_assert_eq(size_of(), before);
        begin(j, "6", "preserve", 1);
        cr_assert_eq(size_of(), after);
        journal_free(j);
    }
    /* A block of zeros in place of the last record, as some file systems leave it. */
    static const char zeros[300];
    edit(before, zeros, sizeof(zeros), false);
    j = reopen(NULL);
    cr_assert_eq(count_open(j), 0);
    cr_assert_eq(journal_may_act(j, NULL), 0);
    journal_free(j);
}

Test(journal, what_is_cut_off_is_told)
{
    static const char nothing[] = "{}\n";
    struct journal *j = reopen(NULL);
    char first[64];
    bool anew = true;
    off_t size;

    cr_assert_eq(journal_torn(j, &anew), 0);
    cr_assert(!anew);
    (void) snprintf(first, sizeof(first), "%s", journal_id(j));
    begin(j, "5", "preserve", 1);
    size = size_of();
    journal_free(j);
    edit(size - 7, NULL, 0, true);
    j = reopen(NULL);
    cr_assert_gt(journal_torn(j, &anew), 0);
    cr_assert(!anew);
    cr_assert_str_eq(journal_id(j), first);
    journal_free(j);
    edit(0, NULL, 0, true);
    edit(0, nothing, strlen(nothing), false);
    j = reopen(NULL);
    cr_assert_eq(journal_torn(j, &anew), strlen(nothing));
    cr_assert(anew);
    cr_assert_str_neq(journal_id(j), first);
    j = reopen(j);
    cr_assert_eq(journal_torn(j, &anew), 0);
    cr_assert(!anew);
    journal_free(j);
}

Test(journal, damage_in_the_middle_forbids_acting)
{
    struct journal *j = reopen(NULL);
    fill(j);
    journal_free(j);
    edit(size_of() / 2, "#", 1, false);
    j = reopen(NULL);
    struct adv_err err;
    struct journal_intent in = intent("5", "preserve");
    uint64_t seq;
    off_t size = size_of();
    cr_assert_eq(journal_may_act(j, &err), -ADV_DATA_LOSS);
    cr_assert(strstr(err.msg, "journal damaged at byte"), "%s", err.msg);
    cr_assert_eq(journal_append_intent(j, &in, 1, &seq, NULL), -ADV_DATA_LOSS);
    cr_assert_eq(journal_compact(j, 0, NULL), -ADV_DATA_LOSS);
    cr_assert_eq(size_of(), size);
    journal_free(j);
}

Test(journal, second_agent_is_refused)
{
    struct journal *j = reopen(NULL), *k = NULL;
    cr_assert_eq(journal_open(dir, true, NULL, &k, NULL), -ADV_ALREADY_EXISTS);
    journal_free(j);
}

Test(journal, volatile_folder)
{
    char shm[] = "/dev/shm/journal-XXXXXX", cmd[100];
    struct journal *j = NULL;
    struct adv_err err;

    if (!mkdtemp(shm))
        cr_skip("no tmpfs");
    cr_assert_eq(journal_open(shm, false, NULL, &j, NULL), 0);
    cr_assert(!journal_persistent(j));
    cr_assert_eq(journal_may_act(j, &err), -ADV_FAILED_PRECONDITION);
    cr_assert_eq(life(j, "5", 1000, 7), 0);
    journal_free(j);
    cr_assert_eq(journal_open(shm, true, NULL, &j, NULL), 0);
    cr_assert_eq(journal_may_act(j, NULL), 0);
    journal_free(j);
    (void) snprintf(cmd, sizeof(cmd), "rm -rf %s", shm);
    cr_assert_eq(system(cmd), 0);
}

/* The n-th system call fails, in one of three ways. */
static int left;
static enum { WRITE_FAILS, WRITE_IS_SHORT, SYNC_FAILS } how;

static ssize_t bad_write(int fd, const void *data, size_t len)
{
    if (how != SYNC_FAILS && left-- == 0) {
        if (how == WRITE_IS_SHORT)
            return write(fd, data, len / 2);
        errno = ENOSPC;
        return -1;
    }
    return write(fd, data, len);
}

static int bad_sync(int fd)
{
    if (how == SYNC_FAILS && left-- == 0) {
        errno = EIO;
        return -1;
    }
    return fdatasync(fd);
}

/* It is no full disk, which would be waited for, and changes nothing. */
Test(journal, a_record_too_long_is_said_to_be_one)
{
    struct journal *j = NULL;
    struct journal_intent in = { .job = "5", .advice = "adv", .verb = "constrain" };
    adv_auto_free char *adds = malloc(70001);
    struct adv_err err;
    uint64_t seq;

    memset(adds, 'n', 70000);
    adds[70000] = '\0';
    in.adds = adds;
    cr_assert_eq(journal_open(dir, true, NULL, &j, &err), 0);
    cr_assert_eq(journal_append_intent(j, &in, 1, &seq, &err), -ADV_INVALID_ARGUMENT);
    cr_assert(strstr(err.msg, "record too long"), "%s", err.msg);
    cr_assert_eq(count_open(j), 0);
    adds[60000] = '\0';
    cr_assert_eq(journal_append_intent(j, &in, 1, &seq, &err), 0, "%s", err.msg);
    (void) journal_free(j);
    cr_assert_eq(journal_open(dir, true, NULL, &j, &err), 0);
    cr_assert_eq(count_open(j), 1);
    (void) journal_free(j);
}

static const struct journal_io bad_io = { bad_write, bad_sync };

Test(journal, nth_failure)
{
    for (int h = 0; h < 3; h++) {
        for (int n = 1;; n++) {
            struct journal *j = NULL;
            uint64_t acked[8];
            size_t n_acked = 0, failed = 0;

            how = h;
            left = n;
            teardown();
            setup();
            cr_assert_eq(journal_open(dir, true, &bad_io, &j, NULL), 0);
            for (int i = 0; i < 6; i++) {
                struct journal_intent in = intent("5", "preserve");
                uint64_t seq;
                if (i == 3 && journal_compact(j, 0, NULL) < 0)
                    failed++;
                if (journal_append_intent(j, &in, 1, &seq, NULL) == 0)
                    acked[n_acked++] = seq;
                else
                    failed++;
            }
            if (how == SYNC_FAILS && failed && journal_may_act(j, NULL) == 0)
                cr_assert_eq(failed, 1); /* only the compaction */
            bool done = left >= 0;
            j = reopen(j);
            cr_assert_eq(journal_may_act(j, NULL), 0);
            /* Exactly what was acknowledged is there. */
            size_t pos = 0, seen = 0;
            const struct journal_step *s;
            while ((s = journal_next_open(j, &pos))) {
                cr_assert_lt(seen, n_acked);
                cr_assert_eq(s->seq, acked[seen++]);
            }
            cr_assert_eq(seen, n_acked);
            journal_free(j);
            if (done)
                break;
        }
    }
}

Test(journal, killed_at_any_moment)
{
    for (int round = 0; round < 15; round++) {
        int p[2];
        uint64_t last = 0, seq;

        cr_assert_eq(pipe(p), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct journal *j = NULL;
            struct journal_intent in = intent("5", "preserve");
            if (journal_open(dir, true, NULL, &j, NULL) < 0)
                _exit(1);
            for (int i = 0;; i++) {
                if (journal_append_intent(j, &in, 1, &seq, NULL) < 0 ||
                    write(p[1], &seq, sizeof(seq)) != sizeof(seq))
                    _exit(1);
                if (i % 20 == 19 && journal_compact(j, 0, NULL) < 0)
                    _exit(1);
            }
        }
        close(p[1]);
        usleep(20000 + (useconds_t) round * 7000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        while (read(p[0], &seq, sizeof(seq)) == sizeof(seq))
            last = seq;
        close(p[0]);
        struct journal *j = reopen(NULL);
        cr_assert_eq(journal_may_act(j, NULL), 0);
        size_t pos = 0;
        bool found = last == 0;
        const struct journal_step *s;
        while ((s = journal_next_open(j, &pos)))
            found = found || s->seq == last;
        cr_assert(found, "intent %lu was acknowledged and is not there", (unsigned long) last);
        journal_free(j);
    }
}

/* ---- looking from outside ---- */

static struct journal_view *view(enum journal_view_of what)
{
    struct journal_view *v = NULL;

    cr_assert_eq(journal_view_new(dir, what, &v, NULL), 0);
    return v;
}

static int look(struct journal_view *v, bool *ret_changed)
{
    struct adv_err err;

    return journal_view_refresh(v, ret_changed, &err);
}

static size_t count_holds(struct journal_view *v)
{
    size_t pos = 0, n = 0;

    while (journal_view_next_hold(v, &pos))
        n++;
    return n;
}

static void hold_job(struct journal *j, const char *job, enum journal_want want)
{
    struct journal_hold h = { .advice = "adv", .restarts = 2, .first_submit_s = 1000, .expires_wall_us = 5, .want = want,
                              .mode = JOURNAL_MODE_ACT };

    (void) snprintf(h.job, sizeof(h.job), "%s", job);
    cr_assert_eq(journal_append_hold(j, &h, NULL), 0);
}

static void write_at(off_t at, const char *text)
{
    char path[100];

    (void) snprintf(path, sizeof(path), "%s/journal", dir);
    int fd = open(path, O_WRONLY);
    cr_assert(fd >= 0);
    if (at < 0)
        at = lseek(fd, 0, SEEK_END) + at + 1;
    cr_assert_eq(pwrite(fd, text, strlen(text), at), (ssize_t) strlen(text));
    (void) close(fd);
}

Test(journal, is_seen_from_outside_while_it_grows)
{
    struct journal_view *v = view(JOURNAL_VIEW_HOLDS);
    struct journal *j;
    struct journal_story s;
    size_t pos = 0;
    bool changed;

    cr_assert_eq(look(v, &changed), -ADV_NOT_FOUND);
    j = reopen(NULL);
    fill(j);
    cr_assert_eq(look(v, &changed), 0);
    cr_assert(changed && count_holds(v) == 1);
    cr_assert_eq(look(v, &changed), 0);
    cr_assert(!changed);
    hold_job(j, "8", JOURNAL_AWAITING);
    hold_job(j, "8", JOURNAL_WANTED);
    cr_assert_eq(look(v, &changed), 0);
    cr_assert(changed && count_holds(v) == 2);
    (void) journal_view_next_hold(v, &pos);
    const struct journal_hold *h = journal_view_next_hold(v, &pos);
    cr_assert(h && h->want == JOURNAL_WANTED && h->mode == JOURNAL_MODE_ACT && h->expires_wall_us == 5);
    /* of one job: its life, and the step that requeued it last */
    end(j, begin(j, "5", "constrain", 300), NULL);
    uint64_t last = begin(j, "5", "interrupt", 400);
    end(j, begin(j, "6", "interrupt", 500), NULL);
    cr_assert_eq(journal_view_job(v, "5", &s, NULL), 0);
    cr_assert(s.life_known && s.life.first_submit_s == 1000 && s.life.uid == 7 && s.requeue.seq == last);
    cr_assert_str_eq(s.requeue.intent.verb, "interrupt");
    cr_assert_eq(journal_view_job(v, "9", &s, NULL), 0);
    cr_assert(!s.life_known && !s.requeue.seq);
    /* compaction replaces the file */
    cr_assert_eq(journal_append_hold_end(j, "5", NULL), 0);
    cr_assert_eq(journal_compact(j, 0, NULL), 0);
    cr_assert_eq(look(v, &changed), 0);
    cr_assert(changed && count_holds(v) == 1);
    cr_assert_eq(journal_view_job(v, "5", &s, NULL), 0);
    cr_assert(s.life_known && s.requeue.seq == last);
    journal_free(j);
    journal_view_free(v);
}

Test(journal, an_end_that_is_not_whole_is_not_there)
{
    struct journal_view *v = view(JOURNAL_VIEW_HOLDS);
    struct journal *j = reopen(NULL);
    bool changed;

    hold_job(j, "5", JOURNAL_WANTED);
    write_at(-1, "{\"crc\":\"00000000\",\"job\":\"5\",\"kind\":\"hold_end\"");
    cr_assert_eq(look(v, &changed), 0);
    cr_assert_eq(count_holds(v), 1);
    write_at(-1, ",\"seq\":3}\n"); /* whole, but its sum is wrong: the writer cuts it off as well */
    cr_assert_eq(look(v, &changed), 0);
    cr_assert_eq(count_holds(v), 1);
    write_at(-1, "\n"); /* not the end any more */
    cr_assert_eq(look(v, &changed), -ADV_DATA_LOSS);
    cr_assert_eq(count_holds(v), 0);
    cr_assert_eq(look(v, &changed), -ADV_DATA_LOSS);
    journal_free(j);
    journal_view_free(v);
}

Test(journal, damage_shows_nothing)
{
    struct journal_view *v = view(JOURNAL_VIEW_HOLDS);
    struct journal *j = reopen(NULL);
    struct journal_story s;
    char path[100];
    bool changed;

    hold_job(j, "5", JOURNAL_WANTED);
    hold_job(j, "6", JOURNAL_WANTED);
    journal_free(j);
    write_at(30, "\x01");
    cr_assert_eq(look(v, &changed), -ADV_DATA_LOSS);
    cr_assert_eq(count_holds(v), 0);
    cr_assert_eq(journal_view_job(v, "5", &s, NULL), -ADV_DATA_LOSS);
    /* nor does a pipe in its place stop the reader */
    (void) snprintf(path, sizeof(path), "%s/journal", dir);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(look(v, &changed), -ADV_UNAVAILABLE);
    journal_view_free(v);
}

/* The writer cuts a record off that it could not sync, and writes on: where the reader stood there is no line's beginning. */
Test(journal, what_was_cut_back_is_read_anew)
{
    struct journal_view *v = view(JOURNAL_VIEW_HOLDS);
    struct journal *j = reopen(NULL);
    struct stat st;
    char path[100];
    bool changed;

    (void) snprintf(path, sizeof(path), "%s/journal", dir);
    hold_job(j, "5", JOURNAL_WANTED);
    cr_assert_eq(stat(path, &st), 0);
    hold_job(j, "6", JOURNAL_WANTED);
    cr_assert_eq(look(v, &changed), 0);
    cr_assert_eq(count_holds(v), 2);
    journal_free(j);
    cr_assert_eq(truncate(path, st.st_size), 0);
    j = reopen(NULL);
    hold_job(j, "46_5", JOURNAL_AWAITING);
    hold_job(j, "47_5", JOURNAL_AWAITING);
    cr_assert_eq(look(v, &changed), 0);
    cr_assert(changed && count_holds(v) == 3);
    journal_free(j);
    journal_view_free(v);
}

Test(journal, steps_are_seen_from_outside)
{
    struct journal_view *v = view(JOURNAL_VIEW_STEPS);
    struct journal *j = reopen(NULL);
    const struct journal_step *s;
    size_t pos = 0;
    bool changed;

    for (int i = 0; i < 50; i++)
        end(j, begin(j, "5", "release", i), NULL);
    uint64_t open = begin(j, "5", "release", 60);
    cr_assert_eq(look(v, &changed), 0);
    cr_assert((s = journal_view_next_step(v, &pos)) && s->seq == open && !s->done, "older ones are not kept");
    cr_assert_null(journal_view_next_step(v, &pos));
    end(j, open, NULL);
    cr_assert_eq(look(v, &changed), 0);
    pos = 0;
    cr_assert((s = journal_view_next_step(v, &pos)) && s->done);
    cr_assert_str_eq(s->outcome.observed, "yes");
    journal_free(j);
    journal_view_free(v);
}

Test(journal, the_folder_is_one_agents)
{
    struct journal *j = reopen(NULL);
    int fd = -1;

    cr_assert_eq(journal_folder_lock(dir, &fd, NULL), -ADV_ALREADY_EXISTS);
    journal_free(j);
    cr_assert_eq(journal_folder_lock(dir, &fd, NULL), 0);
    /* who takes it for a moment does not keep an agent from starting */
    pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        (void) usleep(300000);
        _exit(0);
    }
    (void) close(fd); /* the child has it still */
    j = reopen(NULL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    journal_free(j);
    (void) strcat(dir, "/none");
    cr_assert_eq(journal_folder_lock(dir, &fd, NULL), -ADV_NOT_FOUND);
    dir[strlen(dir) - 5] = '\0';
}
