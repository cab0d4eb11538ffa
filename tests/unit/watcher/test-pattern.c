/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <time.h>

#include "controlplane/watcher/watcher.h"
#include "controlplane/watcher/pattern.h"

static int64_t step_of(const char *pattern, const char *line)
{
    ADV_AUTO(watcher_pattern) p = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(watcher_pattern_new(pattern, &p, &err), 0, "%s: %s", pattern, err.msg);
    return watcher_pattern_step(p, line, strlen(line));
}

Test(pattern, finds_the_step)
{
    cr_assert_eq(step_of("^tick (?<step>\\d+) of", "tick 42 of 100"), 42);
    cr_assert_eq(step_of("tick (?<step>\\d+)", "no such line"), -1);
    cr_assert_eq(step_of("(a)?n=(?<step>\\d*)", "n="), -1);
    cr_assert_eq(step_of("n=(?<step>\\S+)", "n=12e3"), -1, "not a number");
    cr_assert_eq(step_of("n=(?<step>\\d+)", "n=1234567890123456"), -1, "too long");
}

Test(pattern, refuses_what_it_cannot_use)
{
    char why[160], longer[WATCHER_PATTERN_MAX + 40];

    cr_assert_not(watcher_pattern_check("tick (\\d+)", why, sizeof(why)));
    cr_assert(strstr(why, "step"), "%s", why);
    cr_assert_not(watcher_pattern_check("tick (?<step>\\d+", why, sizeof(why)));
    cr_assert(strstr(why, "at character"), "%s", why);
    cr_assert_not(watcher_pattern_check("(?<step>((a{1,200}){1,200}){1,200})", why, sizeof(why)));
    cr_assert_not(watcher_pattern_check("(*UTF)(?<step>\\d+)", why, sizeof(why)));
    memset(longer, 'a', sizeof(longer));
    (void) snprintf(longer + sizeof(longer) - 16, 16, "(?<step>\\d+)");
    cr_assert_not(watcher_pattern_check(longer, why, sizeof(why)));
}

/* Exponential without a limit: it has to end at once and match nothing. */
Test(pattern, costs_little_whatever_it_is, .timeout = 20)
{
    char line[3000];
    struct timespec a, b;

    memset(line, 'a', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    (void) clock_gettime(CLOCK_MONOTONIC, &a);
    cr_assert_eq(step_of("^(a+)+(?<step>\\d)$", line), -1);
    (void) clock_gettime(CLOCK_MONOTONIC, &b);
    cr_assert_leq(b.tv_sec - a.tv_sec, 5);
}

struct told {
    char text[1024];
};

static void on_finding(void *ctx, const struct watcher_finding *f)
{
    struct told *t = ctx;
    size_t n = strlen(t->text);

    (void) snprintf(t->text + n, sizeof(t->text) - n, "%s:%s:%d ", f->rule->id, watcher_finding_type_name(f->type), (int) f->step);
}

/* In the order of the lines, beside the rules; numbers of other rules are then no steps of the run. */
Test(pattern, is_read_by_a_scan)
{
    static const char rule[] = "version: 1\nrules:\n"
        "  - id: boom\n    kind: signature\n    class: unknown\n    anomaly: crash\n    retryable: maybe\n    precedence: 50\n    scope: application\n"
        "    blames: none\n    terminal: true\n    pattern: 'BOOM happened'\n"
        "    examples: { positive: ['BOOM happened', 'a BOOM happened'], negative: ['no', 'none'] }\n"
        "  - id: other\n    kind: progress\n    unit: step\n    precedence: 50\n    pattern: 'batch (?<step>\\d+)'\n"
        "    examples: { positive: ['batch 1', 'batch 2'], negative: ['no', 'none'] }\n";
    static const char log[] = "tick 1\nbatch 900\ntick 2\nBOOM happened\ntick 2\r\ntick 3\nlast tick 4";
    const struct watcher_rules_source src = { .name = "t.yaml", .bytes = rule, .len = sizeof(rule) - 1 };
    ADV_AUTO(watcher_rules) rules = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(watcher_rules_parse(&src, 1, &rules, &err), 0, "%s", err.msg);
    for (size_t cut = 1; cut < sizeof(log); cut++) {
        struct told t = { "" };
        struct watcher_scan_options o = { .stream = WATCHER_SCOPE_APPLICATION, .progress = "^tick (?<step>\\d+)|last tick (?<more>\\d+)",
                                          .fn = on_finding, .ctx = &t };
        ADV_AUTO(watcher_scan) s = NULL;
        cr_assert_eq(watcher_scan_new(rules, &o, &s, &err), 0);
        cr_assert_eq(watcher_scan_feed(s, 0, log, cut, 0, 1, &err), 0);
        cr_assert_eq(watcher_scan_feed(s, cut, log + cut, sizeof(log) - 1 - cut, 0, 1, &err), 0);
        watcher_scan_finish(s, 1);
        cr_assert_str_eq(t.text, "job-pattern:PROGRESS:1 other:PROGRESS:-1 job-pattern:PROGRESS:2 boom:SIGNATURE:-1 "
                                 "job-pattern:PROGRESS:3 ");
        cr_assert_eq(watcher_scan_last_step(s), 3);
        cr_assert_leq(watcher_scan_memory(s), WATCHER_SCAN_MAX_BYTES);
    }
}
