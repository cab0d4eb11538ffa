/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/line.h"

#include <criterion/criterion.h>

static const struct {
    const char *line;
    const char *body;
    int rank, local_rank, task;
    const char *node;
} prefixes[] = {
    { "plain text", "plain text", -1, -1, -1, NULL },
    { "", "", -1, -1, -1, NULL },
    { "3: text", "text", -1, -1, 3, NULL },
    { "  12:   File", "  File", -1, -1, 12, NULL },
    { "12:", "", -1, -1, 12, NULL },
    { "12:34:56 text", "12:34:56 text", -1, -1, -1, NULL },
    { "1234567: text", "1234567: text", -1, -1, -1, NULL },
    { "[rank3]: text", "text", 3, -1, -1, NULL },
    { "[rank3]:     raise", "    raise", 3, -1, -1, NULL },
    { "[default7]:text", "text", -1, 7, -1, NULL },
    { "[2]:text", "text", -1, 2, -1, NULL },
    { "[1,40]<stderr>:text", "text", 40, -1, 40, NULL },
    { "[1,40]: text", "[1,40]: text", -1, -1, -1, NULL },
    { "[3] nodeb:400:410 [1] NCCL INFO x", "NCCL INFO x", 3, -1, 3, "nodeb" },
    { "slurmstepd-nodeb: error: x", "slurmstepd-nodeb: error: x", -1, -1, -1, "nodeb" },
    { "slurmstepd: error: x", "slurmstepd: error: x", -1, -1, -1, NULL },
    { "[rank3] text", "[rank3] text", -1, -1, -1, NULL },
    { "[rankx]: text", "[rankx]: text", -1, -1, -1, NULL },
    { "node17: [rank3]: text", "text", 3, -1, -1, "node17" },
    { "gpu-a-03.cluster: text", "text", -1, -1, -1, "gpu-a-03.cluster" },
    { "KeyError: 'x'", "KeyError: 'x'", -1, -1, -1, NULL },
    { "Conv2dError: x", "Conv2dError: x", -1, -1, -1, NULL },
    { "srun: error: x", "srun: error: x", -1, -1, -1, NULL },
    { "app-nodes.node04 [stderr] [rank14]:x", "x", 14, -1, -1, "node04" },
    { "(trainer, pid=4112) text", "text", -1, -1, -1, NULL },
    { "(Worker pid=7, ip=10.0.0.3) text", "text", -1, -1, -1, "10.0.0.3" },
    { "(no actor) text", "(no actor) text", -1, -1, -1, NULL },
    { "2024-01-31T10:00:00.616-07:00 | [0]:text", "text", -1, 0, -1, NULL },
    { "2024-01-31 10:00:00,123 text", "text", -1, -1, -1, NULL },
    { "0: 2024-01-31 10:00:00 text", "text", -1, -1, 0, NULL },
    { "2024-01-31T10:00:00.884Z: [1,12]<stdout>:text", "text", 12, -1, 12, NULL },
    { "2024-01-31 10:00", "2024-01-31 10:00", -1, -1, -1, NULL },
    { "node17:400:410 [3] NCCL INFO x", "NCCL INFO x", -1, -1, -1, "node17" },
    { "nodeb:400:410 [3] misc.cc:1 NCCL WARN x", "misc.cc:1 NCCL WARN x", -1, -1, -1, "nodeb" },
    { "0: nodea:400:410 [0] NCCL WARN x", "NCCL WARN x", -1, -1, 0, "nodea" },
    { "nodeb:400 [3] x", "nodeb:400 [3] x", -1, -1, -1, NULL },
    { "12:34:56 [3] x", "12:34:56 [3] x", -1, -1, -1, NULL },
    { "[nodeb:4000] *** Process received signal ***", "*** Process received signal ***", -1, -1, -1, "nodeb" },
    { "[nodeb:4000:0:4000] Caught signal 11", "Caught signal 11", -1, -1, -1, "nodeb" },
    { "[1700000000.123456] [nodeb:4000:0]   tcp.c:1 UCX ERROR x", "  tcp.c:1 UCX ERROR x", -1, -1, -1, "nodeb" },
    { "[INFO: x] y", "[INFO: x] y", -1, -1, -1, NULL },
    { "Jan  2 10:00:00 nodeb kernel: [5.1] x", "kernel: [5.1] x", -1, -1, -1, "nodeb" },
    { "Jan 12 10:00:00 nodeb nv-fabricmanager[812]: x", "nv-fabricmanager[812]: x", -1, -1, -1, "nodeb" },
    { "Jan 12 10:00:00 INFO started", "Jan 12 10:00:00 INFO started", -1, -1, -1, NULL },
    { "2024-01-31T10:00:00.1+01:00 nodeb kernel: x", "kernel: x", -1, -1, -1, "nodeb" },
    { "2024-01-31 10:00:00 INFO root: x", "INFO root: x", -1, -1, -1, NULL },
    { "[prterun-nodea-400@1,3]<stderr>: x", "x", 3, -1, 3, NULL },
    { "[pod/train-worker-3/pytorch] [rank1]: x", "x", 1, -1, -1, NULL },
};

Test(line, prefix)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(prefixes); i++) {
        struct line_prefix f;
        size_t len = strlen(prefixes[i].line);
        adv_auto_free char *copy = malloc(len + !len);

        memcpy(copy, prefixes[i].line, len);
        line_parse_prefix(copy, len, &f);
        cr_assert_eq(f.body, len - strlen(prefixes[i].body), "%s: %zu", prefixes[i].line, f.body);
        cr_assert_eq(f.rank, prefixes[i].rank, "%s", prefixes[i].line);
        cr_assert_eq(f.local_rank, prefixes[i].local_rank, "%s", prefixes[i].line);
        cr_assert_eq(f.task, prefixes[i].task, "%s", prefixes[i].line);
        cr_assert_eq(f.node != NULL, prefixes[i].node != NULL, "%s", prefixes[i].line);
        if (f.node)
            cr_assert(f.node_len == strlen(prefixes[i].node) &&
                          memcmp(f.node, prefixes[i].node, f.node_len) == 0,
                      "%s", prefixes[i].line);
    }
}

Test(line, key_is_the_printer)
{
    static const char *const same[] = { "[rank3]: a", "2024-01-31 10:00:00 [rank3]: b",
                                        "2024-01-31 10:00:01 [rank3]: c" };
    struct line_prefix first, f;

    line_parse_prefix(same[0], strlen(same[0]), &first);
    for (size_t i = 1; i < ADV_ARRAY_LEN(same); i++) {
        line_parse_prefix(same[i], strlen(same[i]), &f);
        cr_assert_eq(f.key, first.key);
    }
    line_parse_prefix("[rank4]: a", 10, &f);
    cr_assert_neq(f.key, first.key);
    line_parse_prefix("a", 1, &f);
    cr_assert_neq(f.key, first.key);
}

static const struct {
    const char *text;
    size_t len;
    const char *clean;
} cleans[] = {
    { "a\rb\n", 4, "a\nb\n" },
    { "a\0b\n", 4, "a\nb\n" },
    { "\033[36mx\033[0m\ny\n", 13, "x\n\n\n\n\n\n\n\n\n\ny\n" },
    { "\033[1;31mx", 8, "x\n\n\n\n\n\n\n" },
    { "\033]0;title\ax\n", 12, "x\n\n\n\n\n\n\n\n\n\n\n" },
    { "\033]0;t\033\\x\n", 9, "x\n\n\n\n\n\n\n\n" },
    { "a\033\nb\n", 5, "a\n\nb\n" },
    { "a\033[12\nb\n", 8, "a\n\n\n\n\nb\n" },
    { "a\033", 2, "a\n" },
    { "\033Mx\n", 4, "x\n\n\n" },
};

Test(line, clean)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(cleans); i++) {
        adv_auto_free char *in = malloc(cleans[i].len), *out = malloc(cleans[i].len);

        memcpy(in, cleans[i].text, cleans[i].len);
        cr_assert(line_needs_clean(in, cleans[i].len));
        line_clean(in, cleans[i].len, out);
        cr_assert_eq(cleans[i].len, strlen(cleans[i].clean), "row %zu", i);
        cr_assert_eq(memcmp(out, cleans[i].clean, cleans[i].len), 0, "row %zu: %.*s", i,
                     (int) cleans[i].len, out);
    }
    cr_assert_not(line_needs_clean("plain\n", 6));
}

Test(line, ends)
{
    static const char text[] = "ab\rcd\0ef\ngh";

    cr_assert_eq(line_first_end(text, 11), text + 2);
    cr_assert_eq(line_first_end(text + 3, 8), text + 5);
    cr_assert_eq(line_last_end(text, 11), text + 8);
    cr_assert_eq(line_last_end(text, 8), text + 5);
    cr_assert_eq(line_last_end(text, 3), text + 2);
    cr_assert_null(line_last_end(text, 2));
    cr_assert_null(line_first_end(text + 9, 2));
}
