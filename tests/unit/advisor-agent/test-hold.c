/* SPDX-License-Identifier: Apache-2.0 */

/* The verdict on a hold, for every combination of what it depends on; and the tables of docs/watchdog.md, which are made
 * from the same function: UPDATE_DOCS=1 writes them. */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor-agent/hold.h"
#include "common/buf.h"


static const char *const want_names[] = { "not recorded (older agent)", "in force", "awaits a person's word", "over",
                                          "another agent has the lease" };
static const char *const mode_names[] = { "not recorded", "OFF", "OBSERVE", "APPROVE", "ACT" };
static const char *const ceiling_names[] = { "off", "observe", "approve", "act" };
static const char *const way_names[] = { "RELEASE", "CANCEL", "LEAVE" };
static const char *const word_names[] = { "off", "observe", "act" };
static const char *const sight_names[HOLD_SIGHT_MAX_] = {
    [HOLD_SIGHT_NONE] = "not looked at, or the scheduler does not answer",
    [HOLD_SIGHT_GONE] = "the scheduler has no such job",
    [HOLD_SIGHT_OPEN] = "not held: released by its owner, running, ended, cancelled",
    [HOLD_SIGHT_ANOTHER] = "another restart count, or another job under the id",
    [HOLD_SIGHT_BUSY] = "completing, or a state that is not understood",
    [HOLD_SIGHT_PERSON] = ("held, but not by a requeue (`JobHeldUser`, `JobHeldAdmin` without description), or by one that is "
                          "surely not ours"),
    [HOLD_SIGHT_COMMENT] = "its comment has changed since, or is not on record",
    [HOLD_SIGHT_UNSURE] = "user, first submission and submit time do not add up to the job on record",
    [HOLD_SIGHT_FIRST] = "held before its first attempt (a child of a workflow)",
    [HOLD_SIGHT_OURS] = "in our hold, untouched",
};

static struct hold_case base(void)
{
    return (struct hold_case) { .on_expiry = JOURNAL_RELEASE, .want = JOURNAL_OVER, .mode = JOURNAL_MODE_ACT,
                                .ceiling_known = true, .ceiling = CEILING_ACT, .word = CEILING_WATCHDOG_ACT,
                                .grace_over = true, .sight = HOLD_SIGHT_OURS };
}

static enum hold_verdict ask(const struct hold_case *c)
{
    const char *why = NULL;
    enum hold_verdict v = hold_verdict(c, &why);

    cr_assert(why && why[0]);
    cr_assert((unsigned) v < HOLD_VERDICT_MAX_ && hold_verdict_name(v));
    return v;
}

/* Written down a second time, as a sentence would say it. */
static bool may_end(const struct hold_case *c)
{
    bool lowered = c->mode == JOURNAL_MODE_OFF || c->mode == JOURNAL_MODE_OBSERVE || c->ceiling == CEILING_OFF ||
                   c->ceiling == CEILING_OBSERVE;
    bool over = c->want != JOURNAL_ELSEWHERE &&
                (lowered || c->want == JOURNAL_OVER ||
                 (c->expired && (c->want != JOURNAL_AWAITING || c->on_expiry == JOURNAL_CANCEL)));

    return c->ceiling_known && c->word != CEILING_WATCHDOG_OFF && over && c->on_expiry != JOURNAL_LEAVE && c->grace_over &&
           c->sight == HOLD_SIGHT_OURS;
}

Test(hold, every_combination)
{
    unsigned n = 0, ended = 0;

    for (unsigned k = 0; k < 3u * 5 * 5 * 2 * 4 * 3 * 2 * 2 * 2 * 2 * HOLD_SIGHT_MAX_; k++) {
        unsigned r = k;
#define PICK(of) (r % (of)); r /= (of)
        struct hold_case c;
        c.on_expiry = (enum journal_on_expiry) PICK(3);
        c.want = (enum journal_want) PICK(5);
        c.mode = (enum journal_mode) PICK(5);
        c.ceiling_known = PICK(2);
        c.ceiling = (enum ceiling_mode) PICK(4);
        c.word = (enum ceiling_watchdog) PICK(3);
        c.expired = PICK(2);
        c.agent_there = PICK(2);
        c.grace_over = PICK(2);
        c.observe = PICK(2);
        c.sight = (enum hold_sight) PICK(HOLD_SIGHT_MAX_);
        enum hold_verdict v = ask(&c);
        bool acts = v == HOLD_RELEASE || v == HOLD_CANCEL, says = v == HOLD_WOULD_RELEASE || v == HOLD_WOULD_CANCEL;

        n++;
        ended += acts;
        cr_assert_eq(acts || says, may_end(&c), "%u: %s", k, hold_verdict_name(v));
        cr_assert_eq(acts, may_end(&c) && !c.observe && c.word == CEILING_WATCHDOG_ACT, "%u", k);
        if (acts || says)
            cr_assert_eq(v == HOLD_RELEASE || v == HOLD_WOULD_RELEASE, c.on_expiry == JOURNAL_RELEASE, "%u", k);
        /* never for a person's word that is awaited and can still come; never set in motion for want of one */
        if (c.want == JOURNAL_AWAITING && c.mode >= JOURNAL_MODE_APPROVE && c.ceiling >= CEILING_APPROVE) {
            cr_assert(v == HOLD_KEEP || (c.expired && c.on_expiry == JOURNAL_CANCEL), "%u", k);
            cr_assert(v != HOLD_RELEASE && v != HOLD_WOULD_RELEASE, "%u", k);
        }
    }
    cr_assert_eq(n, 288000);
    cr_assert_gt(ended, 100);
}

Test(hold, a_record_that_says_something_else_is_left)
{
    struct hold_case c = base();

    c.on_expiry = (enum journal_on_expiry) 7;
    cr_assert_eq(ask(&c), HOLD_LEAVE);
    c = base();
    c.want = (enum journal_want) 9; /* of a later version */
    cr_assert_eq(ask(&c), HOLD_KEEP);
}

/* ---- looks ---- */

static struct adapter_job_detail job_in_hold(void)
{
    return (struct adapter_job_detail) {
        .job = { .id = "7", .state = ADAPTER_JOB_PENDING, .restart_count = 1, .submit_s = 2000, .held = true,
                 .held_by_requeue = true, .uid = 5, .reason = "JobHeldUser" },
        .comment = "{}",
    };
}

static struct journal_hold hold_of(const char *comment)
{
    struct journal_hold h = { .job = "7", .restarts = 1, .first_submit_s = 1000 };

    hold_comment_hash(comment, h.comment);
    return h;
}

Test(hold, what_a_look_tells)
{
    struct journal_hold h = hold_of("{}");
    struct adapter_job_detail d = job_in_hold();

    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_OURS);
    cr_assert_eq(hold_sight(&h, NULL, &d, 0), HOLD_SIGHT_UNSURE);
    cr_assert_eq(hold_sight(&h, NULL, &d, 999), HOLD_SIGHT_ANOTHER);
    d.comment = "{ }";
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_COMMENT);
    d = job_in_hold();
    h.comment[0] = '\0';
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_COMMENT);
    h = hold_of("{}");
    d.job.held_by_requeue = false;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_PERSON);
    d.job.held = false;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_OPEN);
    d = job_in_hold();
    d.job.state = ADAPTER_JOB_CANCELLED;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_OPEN);
    d.job.completing = true;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_BUSY);
    d = job_in_hold();
    d.job.state = ADAPTER_JOB_UNKNOWN_STATE;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_BUSY);
    d = job_in_hold();
    d.job.restart_count = 2;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_ANOTHER);
    /* before its first attempt, whatever a record may say */
    d = job_in_hold();
    d.job.restart_count = 0;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_FIRST);
    h.restarts = 0;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_FIRST);
    h.restarts = 3;
    d.job.restart_count = 2;
    cr_assert_eq(hold_sight(&h, NULL, &d, 1000), HOLD_SIGHT_ANOTHER);
}

/* Held by a requeue, at the right restart: but ours had been refused. */
Test(hold, a_requeue_that_surely_did_nothing_holds_nothing)
{
    struct journal_hold h = hold_of("{}");
    struct adapter_job_detail d = job_in_hold();
    struct journal_step s = { .seq = 3, .done = true,
                              .intent = { .advice = "adv", .restarts = 0, .submit_s = 1000, .verb = "preserve" },
                              .outcome = { .command = "refused", .observed = "no" } };

    (void) strcpy(h.advice, "adv");
    cr_assert_eq(hold_sight(&h, &s, &d, 1000), HOLD_SIGHT_PERSON);
    (void) strcpy(s.outcome.observed, "unknown");
    cr_assert_eq(hold_sight(&h, &s, &d, 1000), HOLD_SIGHT_OURS);
    (void) strcpy(s.outcome.command, "not_sent");
    cr_assert_eq(hold_sight(&h, &s, &d, 1000), HOLD_SIGHT_PERSON);
    s.intent.restarts = 1; /* of another attempt */
    cr_assert_eq(hold_sight(&h, &s, &d, 1000), HOLD_SIGHT_OURS);
    s.intent.restarts = 0;
    (void) strcpy(s.intent.advice, "other");
    cr_assert_eq(hold_sight(&h, &s, &d, 1000), HOLD_SIGHT_OURS);
    (void) strcpy(s.intent.advice, "adv");
    s.done = false; /* may have landed */
    cr_assert_eq(hold_sight(&h, &s, &d, 1000), HOLD_SIGHT_OURS);
    s = (struct journal_step) { 0 };
    cr_assert_eq(hold_sight(&h, &s, &d, 1000), HOLD_SIGHT_OURS);
}

Test(hold, an_id_means_what_it_meant)
{
    struct journal_life l = { .first_submit_s = 1000, .uid = 5, .restarts = 0, .submit_s = 1000, .ended_s = 1900 };
    struct adapter_job job = job_in_hold().job;
    struct journal_step cut = { .seq = 3, .wall_us = 1995 * 1000000ll,
                                .intent = { .restarts = 0, .submit_s = 1000, .verb = "interrupt" } };

    cr_assert(!life_same_attempt(&l, &job));
    /* preserved before the scheduler could forget it */
    cr_assert(life_followed_by(&l, NULL, &job, 300, life_keep_us(300), false));
    job.submit_s = 1900 + 300;
    cr_assert(!life_followed_by(&l, NULL, &job, 300, life_keep_us(300), false));
    /* interrupted by our own command */
    l.ended_s = 0;
    job.submit_s = 2000;
    cr_assert(!life_followed_by(&l, NULL, &job, 300, life_keep_us(300), false));
    cr_assert(life_followed_by(&l, &cut, &job, 300, life_keep_us(300), false));
    cr_assert(!life_followed_by(&l, &cut, &job, 0, life_keep_us(0), false));
    cut.intent.submit_s = 1001;
    cr_assert(!life_followed_by(&l, &cut, &job, 300, life_keep_us(300), false));
    l.restarts = 1;
    l.submit_s = 2000;
    cr_assert(life_same_attempt(&l, &job));
}

/* ---- the tables for people ---- */

static void is_it_over(struct adv_buf *out)
{
    (void) adv_buf_append_str(out, "| advice, as recorded | cluster's mode, as recorded | ceiling | not expired | expired |\n"
                                   "|---|---|---|---|---|\n");
    for (int want = 0; want < 5; want++)
        for (int mode = 0; mode < 5; mode++)
            for (int ceiling = 0; ceiling < 4; ceiling++) {
                struct hold_case c = base();
                const char *says[2];
                c.want = (enum journal_want) want;
                c.mode = (enum journal_mode) mode;
                c.ceiling = (enum ceiling_mode) ceiling;
                for (int e = 0; e < 2; e++) {
                    c.expired = e;
                    says[e] = ask(&c) == HOLD_KEEP ? "kept" : "over";
                }
                (void) adv_buf_appendf(out, "| %s | %s | %s | %s | %s |\n", want_names[want], mode_names[mode],
                                       ceiling_names[ceiling], says[0], says[1]);
            }
}

static void what_is_done(struct adv_buf *out)
{
    (void) adv_buf_appendf(out, "| the job shows | `on_expiry` %s | %s | %s |\n|---|---|---|---|\n", way_names[0], way_names[1],
                           way_names[2]);
    for (int sight = 0; sight < HOLD_SIGHT_MAX_; sight++) {
        (void) adv_buf_appendf(out, "| %s |", sight_names[sight]);
        for (size_t way = 0; way < ADV_ARRAY_LEN(way_names); way++) {
            struct hold_case c = base();
            c.sight = (enum hold_sight) sight;
            c.on_expiry = (enum journal_on_expiry) way;
            (void) adv_buf_appendf(out, " %s |", hold_verdict_name(ask(&c)));
        }
        (void) adv_buf_append_str(out, "\n");
    }
}

static void when_it_is_done(struct adv_buf *out)
{
    (void) adv_buf_append_str(out, "| agent | over for | ceiling says `watchdog:` | verdict | with `--observe` |\n"
                                   "|---|---|---|---|---|\n");
    for (int there = 0; there < 2; there++)
        for (int grace = 0; grace < 2; grace++)
            for (size_t word = 0; word <= ADV_ARRAY_LEN(word_names); word++) {
                struct hold_case c = base();
                const char *says[2];
                c.agent_there = there;
                c.grace_over = grace;
                c.ceiling_known = word < ADV_ARRAY_LEN(word_names);
                c.word = c.ceiling_known ? (enum ceiling_watchdog) word : CEILING_WATCHDOG_OFF;
                for (int o = 0; o < 2; o++) {
                    c.observe = o;
                    says[o] = hold_verdict_name(ask(&c));
                }
                (void) adv_buf_appendf(out, "| %s | %s `grace.agent_%s` | %s | %s | %s |\n",
                                       there ? "has its folder's lock (runs, hangs, is frozen)" : "does not run",
                                       grace ? "longer than" : "less than", there ? "there" : "gone",
                                       c.ceiling_known ? word_names[word] : "(file unreadable or malformed)", says[0], says[1]);
            }
}

static void part(struct adv_buf *page, const char *text, const char *name, void (*make)(struct adv_buf *out))
{
    char begin[80], end[80];
    const char *from, *to;

    (void) snprintf(begin, sizeof(begin), "<!-- table %s: made by test-hold.c -->\n", name);
    (void) snprintf(end, sizeof(end), "<!-- end of table %s -->\n", name);
    from = strstr(text, begin);
    to = strstr(text, end);
    cr_assert(from && to && from < to, "docs/watchdog.md has no place for table %s", name);
    (void) adv_buf_append(page, text, (size_t) (from - text) + strlen(begin));
    make(page);
}

Test(hold, the_page_has_these_tables)
{
    const char *root = getenv("SOURCE_ROOT");
    struct adv_buf page;
    char path[512], *text = NULL;
    size_t size = 0;

    cr_assert(root);
    (void) snprintf(path, sizeof(path), "%s/docs/watchdog.md", root);
    FILE *f = fopen(path, "r");
    cr_assert(f, "no %s", path);
    cr_assert(getdelim(&text, &size, '\0', f) > 0);
    (void) fclose(f);
    adv_buf_init(&page, 1u << 20);
    part(&page, text, "over", is_it_over);
    part(&page, strstr(text, "<!-- end of table over"), "when", when_it_is_done);
    part(&page, strstr(text, "<!-- end of table when"), "what", what_is_done);
    cr_assert_eq(adv_buf_append_str(&page, strstr(text, "<!-- end of table what")), 0);
    if (getenv("UPDATE_DOCS")) {
        f = fopen(path, "w");
        cr_assert(f && fwrite(page.data, 1, page.len, f) == page.len);
        (void) fclose(f);
    } else {
        cr_assert(page.len == strlen(text) && memcmp(page.data, text, page.len) == 0,
                  "docs/watchdog.md is not what hold.c does; UPDATE_DOCS=1 makes its tables anew");
    }
    adv_buf_done(&page);
    free(text);
}
