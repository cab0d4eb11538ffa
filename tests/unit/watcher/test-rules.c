/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/rules.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>

#include "tests/unit/watcher/collect.h"

#define RULE_HEAD                                                                                  \
    "version: 1\nrules:\n  - id: a\n    kind: signature\n    class: storage\n    anomaly: "        \
    "crash\n    retryable: no\n"                                                                   \
    "    precedence: 5\n    scope: any\n    blames: none\n    terminal: true\n"
#define EXAMPLES "    examples:\n      positive: ['boom', 'big boom']\n      negative: ['x', 'y']\n"
#define GOOD     RULE_HEAD "    pattern: 'boom'\n" EXAMPLES

static int parse(const char *text, struct watcher_rules **ret, struct adv_err *err)
{
    struct watcher_rules_source src = { .name = "t.yaml", .bytes = text, .len = strlen(text) };

    return watcher_rules_parse(&src, 1, ret, err);
}

Test(rules, shipped_rules_pass_their_examples)
{
    ADV_AUTO(watcher_rules) rules = shipped_rules();
    struct adv_err e;
    size_t n = 0;

    const struct watcher_rule *list = watcher_rules_list(rules, &n);
    cr_assert_gt(n, 100);
    cr_assert_eq(watcher_rules_check_examples(rules, &e), 0, "%s", e.msg);
    for (size_t i = 0; i < n; i++) {
        cr_assert_geq(list[i].n_positive, 2);
        cr_assert_geq(list[i].n_negative, 2);
        cr_assert_eq(watcher_rules_find(rules, list[i].id), &list[i]);
    }
    cr_assert_null(watcher_rules_find(rules, "no-such-rule"));
    cr_assert_eq(strlen(watcher_rules_version(rules)), 64);
}

/* --- what each example leads to ---
 *
 * rules.golden has, for every positive example of every shipped rule, what the watcher tells of it. A rule that is deleted
 * or changed is missed there; UPDATE_GOLDEN=1 writes the file anew. */

static void tell(void *ctx, const struct watcher_finding *f)
{
    const struct watcher_rule *r = f->rule;
    bool fault = f->type == WATCHER_SIGNATURE || f->type == WATCHER_NOTICE || f->type == WATCHER_CALMED;
    struct adv_buf *b = ctx;

    (void) adv_buf_appendf(b, " %s %s", watcher_finding_type_name(f->type), r->id);
    if (fault)
        (void) adv_buf_appendf(b, " (%s %d %s %d)", watcher_class_name(r->fault_class), (int) r->anomaly,
                               watcher_retryable_name(r->retryable), r->precedence);
    if (f->type == WATCHER_CALMED)
        (void) adv_buf_appendf(b, " by %s", f->calmed_by ? f->calmed_by->id : "caught");
    if (f->step >= 0)
        (void) adv_buf_appendf(b, " step=%lld", (long long) f->step);
    if (f->rank >= 0)
        (void) adv_buf_appendf(b, " rank=%d", f->rank);
    if (fault && *f->node)
        (void) adv_buf_appendf(b, " node=%s", f->node);
    if (*f->device)
        (void) adv_buf_appendf(b, " device=%s", f->device);
    (void) adv_buf_append_str(b, ";");
}

static void describe(struct watcher_rules *rules, const struct watcher_rule *r, struct adv_buf *out)
{
    for (size_t k = 0; k < r->n_positive; k++) {
        struct watcher_scan_options o = { .stream = r->scope == WATCHER_SCOPE_ANY ? WATCHER_SCOPE_APPLICATION : r->scope,
                                          .explain = true, .fn = tell, .ctx = out };
        struct watcher_scan *s = NULL;

        (void) adv_buf_appendf(out, "%s %zu:", r->id, k + 1);
        cr_assert_eq(watcher_scan_new(rules, &o, &s, NULL), 0);
        cr_assert_eq(watcher_scan_feed(s, 0, r->positive[k], strlen(r->positive[k]), 0, 0, NULL), 0);
        watcher_scan_finish(s, 0);
        s = watcher_scan_free(s);
        (void) adv_buf_append_str(out, "\n");
    }
}

static char *golden_path(void)
{
    const char *root = getenv("SOURCE_ROOT");
    char *path = NULL;

    cr_assert_geq(asprintf(&path, "%s/tests/unit/watcher/rules.golden", root ? root : "."), 0);
    return path;
}

Test(rules, shipped_rules_say_what_they_said, .timeout = 120)
{
    ADV_AUTO(watcher_rules) rules = shipped_rules();
    adv_auto_free char *path = golden_path();
    ADV_AUTO_DONE(adv_buf) got;
    adv_auto_free char *want = calloc(1, 1 << 20);
    size_t n = 0, line = 1;
    const struct watcher_rule *list = watcher_rules_list(rules, &n);

    adv_buf_init(&got, 1 << 20);
    for (size_t i = 0; i < n; i++)
        describe(rules, &list[i], &got);
    cr_assert_eq(adv_buf_error(&got), 0);
    if (getenv("UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "we");
        cr_assert(f && fwrite(got.data, 1, got.len, f) == got.len && fclose(f) == 0);
        return;
    }
    FILE *f = fopen(path, "re");
    cr_assert_not_null(f, "%s", path);
    cr_assert_lt(fread(want, 1, (1 << 20) - 1, f), (1 << 20) - 1);
    (void) fclose(f);
    for (size_t i = 0; got.data[i] && got.data[i] == want[i]; i++)
        line += got.data[i] == '\n';
    cr_assert_str_eq(got.data, want, "rules.golden differs at line %zu", line);
}

/* With any rule taken out, the test above would fail: a rule that makes no difference to any example has no reason to be.
 * A rule is taken out by making it one that calms nothing, which spares compiling the set hundreds of times. */
Test(rules, every_rule_is_missed, .timeout = 300)
{
    ADV_AUTO(watcher_rules) rules = shipped_rules();
    size_t n = 0;
    struct watcher_rule *list = (struct watcher_rule *) (uintptr_t) watcher_rules_list(rules, &n);

    for (size_t i = 0; i < n; i++) {
        const struct watcher_rule kept = list[i];
        bool missed = false;

        for (size_t k = 0; k < n && !missed; k++) {
            const struct watcher_rule *r = &list[(i + k) % n];
            ADV_AUTO_DONE(adv_buf) with;
            ADV_AUTO_DONE(adv_buf) without;

            adv_buf_init(&with, 1 << 16);
            adv_buf_init(&without, 1 << 16);
            describe(rules, r, &with);
            list[i].kind = WATCHER_KIND_HEALTHY;
            list[i].precedence = -1;
            describe(rules, r, &without);
            list[i].kind = kept.kind;
            list[i].precedence = kept.precedence;
            missed = !adv_streq(with.data, without.data);
        }
        cr_expect(missed, "without rule %s every example leads to the same", kept.id);
    }
}

/* Each band of rules/README.md: causes above consequences. */
Test(rules, shipped_precedence)
{
    static const char *const falling[] = { "slurm-cancelled-job",
                                           "slurm-time-limit",
                                           "slurm-node-failure",
                                           "xid-gpu-hardware",
                                           "disk-full",
                                           "gpu-out-of-memory",
                                           "cuda-illegal-access",
                                           "ib-retry-exceeded",
                                           "nccl-remote-error",
                                           "nccl-watchdog-timeout",
                                           "python-generic-exception",
                                           "elastic-child-exit",
                                           "srun-task-exit",
                                           "slurm-cancelled-step",
                                           "xid-notice" };
    ADV_AUTO(watcher_rules) rules = shipped_rules();
    int last = 101;

    for (size_t i = 0; i < ADV_ARRAY_LEN(falling); i++) {
        const struct watcher_rule *r = watcher_rules_find(rules, falling[i]);
        cr_assert_not_null(r, "%s", falling[i]);
        cr_assert_lt(r->precedence, last, "%s", falling[i]);
        last = r->precedence;
    }
}

Test(rules, values)
{
    ADV_AUTO(watcher_rules) rules = NULL;
    struct adv_err e;
    size_t n = 0;

    cr_assert_eq(parse(GOOD, &rules, &e), 0, "%s", e.msg);
    const struct watcher_rule *r = watcher_rules_list(rules, &n);
    cr_assert_eq(n, 1);
    cr_assert_str_eq(r->id, "a");
    cr_assert_eq(r->kind, WATCHER_KIND_SIGNATURE);
    cr_assert_eq(r->fault_class, WATCHER_CLASS_STORAGE);
    cr_assert_eq(r->retryable, WATCHER_RETRYABLE_NO);
    cr_assert_eq(r->scope, WATCHER_SCOPE_ANY);
    cr_assert_eq(r->precedence, 5);
    cr_assert(r->terminal && !r->begins && !r->after_traceback);
    cr_assert_str_eq(r->file, "t.yaml");
    cr_assert_eq(r->line, 3);
    cr_assert_str_eq(watcher_class_name(r->fault_class), "storage");
    cr_assert_str_eq(watcher_kind_name(r->kind), "signature");
    cr_assert_str_eq(watcher_retryable_name(r->retryable), "no");
    cr_assert_str_eq(watcher_class_name((enum watcher_class) 99), "?");
    cr_assert_eq(watcher_rules_check_examples(rules, NULL), 0);
}

Test(rules, version_follows_content)
{
    struct watcher_rules_source two[] = { { "a.yaml", GOOD, sizeof(GOOD) - 1 },
                                          { "b.yaml", NULL, 0 } };
    ADV_AUTO(watcher_rules) one = NULL;
    ADV_AUTO(watcher_rules) again = NULL;
    ADV_AUTO(watcher_rules) other = NULL;
    char changed[] = GOOD;
    char second[sizeof(GOOD)];

    cr_assert_eq(parse(GOOD, &one, NULL), 0);
    cr_assert_eq(parse(GOOD, &again, NULL), 0);
    cr_assert_str_eq(watcher_rules_version(one), watcher_rules_version(again));
    strstr(changed, "precedence: 5")[12] = '6';
    cr_assert_eq(parse(changed, &other, NULL), 0);
    cr_assert_str_neq(watcher_rules_version(one), watcher_rules_version(other));

    memcpy(second, GOOD, sizeof(GOOD));
    strstr(second, "id: a")[4] = 'b';
    two[1].bytes = second;
    two[1].len = strlen(second);
    other = watcher_rules_unref(other);
    cr_assert_eq(watcher_rules_parse(two, 2, &other, NULL), 0);
    struct watcher_rules_source swapped[] = { two[1], two[0] };
    again = watcher_rules_unref(again);
    cr_assert_eq(watcher_rules_parse(swapped, 2, &again, NULL), 0);
    cr_assert_str_eq(watcher_rules_version(other), watcher_rules_version(again));
}

struct bad {
    char text[700];
    char says[120];
};

ParameterizedTestParameters(rules, refused)
{
    static struct bad rows[] = {
        { "", "t.yaml:1:1: expected a document" },
        { "- x\n", "t.yaml:1:1: expected a mapping with version and rules" },
        { "version: 2\n", "t.yaml:1:10: \"2\", expected one of: 1" },
        { "version: 1\n", "t.yaml:1:1: no rules, expected a list" },
        { "version: 1\nrules: []\n", "no rules, expected at least one" },
        { "rules: []\n", "t.yaml:1:1: no version" },
        { "version: 1\nrulez: []\n", "t.yaml:2:1: \"rulez\", expected one of: version rules" },
        { "version: 1\nrules:\n  - id: A\n", "t.yaml:3:9: \"A\", expected lower case letters" },
        { RULE_HEAD "    colour: red\n", "t.yaml:12:5: \"colour\", expected one of: id kind" },
        { RULE_HEAD "    terminal: false\n", "t.yaml:12:5: terminal stands twice" },
        { RULE_HEAD EXAMPLES, "t.yaml:3:5: rule a has no pattern" },
        { RULE_HEAD "    pattern: 'boom'\n", "t.yaml:3:5: rule a has no examples" },
        { RULE_HEAD "    unit: step\n    pattern: 'boom'\n" EXAMPLES,
          "t.yaml:12:5: unit does not belong to kind signature" },
        { RULE_HEAD "    pattern: '(boom'\n" EXAMPLES, "t.yaml:12:14: rule a: pattern: " },
        { RULE_HEAD "    pattern: '(?=b)boom'\n" EXAMPLES, "t.yaml:12:14: rule a: pattern: " },
        { RULE_HEAD "    pattern: 'b*'\n" EXAMPLES, "t.yaml:12:14: rule a: pattern: " },
        { RULE_HEAD "    pattern: '(?<colour>b)oom'\n" EXAMPLES,
          "rule a: pattern: unknown group name" },
        { RULE_HEAD "    pattern: 'boom'\n    capture: '['\n" EXAMPLES,
          "t.yaml:13:14: rule a: capture: " },
        { RULE_HEAD "    pattern: 'boom'\n    examples:\n      positive: ['boom']\n",
          "t.yaml:14:17: too few examples" },
        { RULE_HEAD "    pattern: 'boom'\n    examples:\n      positive: ['boom', 'boom']\n",
          "t.yaml:14:7: expected both" },
        { RULE_HEAD "    pattern: &x 'boom'\n" EXAMPLES, "t.yaml:12:14: anchor, expected none" },
        { RULE_HEAD "    pattern: \"a\\0b\"\n" EXAMPLES, "t.yaml:12:14: NUL byte" },
        { RULE_HEAD "    pattern: [a]\n" EXAMPLES, "t.yaml:12:14: expected a regular expression" },
        { GOOD "...\n---\nversion: 1\n", "expected one document" },
        { "version: 1\nrules:\n  - id: \"a\n", "t.yaml:" },
    };

    return cr_make_param_array(struct bad, rows, ADV_ARRAY_LEN(rows));
}

ParameterizedTest(struct bad *row, rules, refused)
{
    struct watcher_rules *rules = NULL;
    struct adv_err e = { 0 };

    cr_assert_lt(parse(row->text, &rules, &e), 0, "%s", row->text);
    cr_assert_null(rules);
    cr_assert_not_null(strstr(e.msg, row->says), "got \"%s\", expected \"%s\"", e.msg, row->says);
}

Test(rules, more_refusals)
{
    char text[2 * sizeof(GOOD)], *p;
    struct watcher_rules *rules = NULL;
    struct adv_err e;

    (void) snprintf(text, sizeof(text), "%s%s", GOOD, strstr(GOOD, "  - id"));
    cr_assert_lt(parse(text, &rules, &e), 0);
    cr_assert_not_null(strstr(e.msg, "rule a stands in t.yaml:3 already"), "%s", e.msg);

    memcpy(text, GOOD, sizeof(GOOD));
    p = strstr(text, "precedence: 5");
    p[12] = 'x';
    cr_assert_lt(parse(text, &rules, &e), 0);
    cr_assert_not_null(strstr(e.msg, "expected a number from 0 to 100"), "%s", e.msg);

    cr_assert_eq(watcher_rules_load("/no/such/folder", &rules, &e), -ADV_NOT_FOUND);
    cr_assert_null(rules);
}

Test(rules, examples_are_checked)
{
    ADV_AUTO(watcher_rules) rules = NULL;
    struct adv_err e;

    cr_assert_eq(parse(RULE_HEAD
                       "    pattern: 'boom'\n    examples:\n      positive: ['boom', 'bang']\n"
                       "      negative: ['x', 'y']\n",
                       &rules, NULL),
                 0);
    cr_assert_eq(watcher_rules_check_examples(rules, &e), -ADV_FAILED_PRECONDITION);
    cr_assert_str_eq(e.msg, "t.yaml:3:5: rule a: positive example 2 does not match");
    rules = watcher_rules_unref(rules);
    cr_assert_eq(parse(RULE_HEAD
                       "    pattern: 'boom'\n    examples:\n      positive: ['boom', 'boom']\n"
                       "      negative: ['boom', 'y']\n",
                       &rules, NULL),
                 0);
    cr_assert_eq(watcher_rules_check_examples(rules, &e), -ADV_FAILED_PRECONDITION);
    cr_assert_str_eq(e.msg, "t.yaml:3:5: rule a: negative example 1 matches");
}

/* A scan keeps its set alive. */
Test(rules, counted)
{
    struct watcher_scan_options o = { .fn = collect };
    ADV_AUTO(watcher_scan) s = NULL;
    ADV_AUTO_DONE(adv_buf) out = { 0 };
    struct watcher_rules *rules = NULL, *second = NULL;

    adv_buf_init(&out, 4096);
    o.ctx = &out;
    cr_assert_eq(parse(GOOD, &rules, NULL), 0);
    cr_assert_eq(watcher_scan_new(rules, &o, &s, NULL), 0);
    rules = watcher_rules_unref(rules);
    cr_assert_eq(watcher_scan_feed(s, 0, "boom\nbo", 7, 0, 1, NULL), 0);
    cr_assert_not_null(strstr(out.data, "SIGNATURE a at=0"));
    cr_assert_eq(parse(RULE_HEAD
                       "    pattern: 'omm'\n    examples:\n      positive: ['omm', 'omm']\n"
                       "      negative: ['x', 'y']\n",
                       &second, NULL),
                 0);
    watcher_scan_set_rules(s, second);
    second = watcher_rules_unref(second);
    adv_buf_reset(&out);
    cr_assert_eq(watcher_scan_feed(s, 7, "mm\n", 3, 0, 1, NULL), 0);
    cr_assert_not_null(strstr(out.data, "SIGNATURE a at=5"), "%s", out.data);
}
