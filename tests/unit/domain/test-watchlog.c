/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "controlplane/domain/watchlog.h"

static void append(struct watchlog *w, uint64_t seq)
{
    char name[32];

    (void) snprintf(name, sizeof(name), "n%llu", (unsigned long long) seq);
    cr_assert_eq(watchlog_append(w, seq, seq * 2, RESOURCE_JOB, "alpha", name), 0);
}

Test(watchlog, empty)
{
    struct watchlog w;
    bool gone = true;

    cr_assert_eq(watchlog_init(&w, 4, 100), 0);
    cr_assert_null(watchlog_after(&w, 100, &gone));
    cr_assert_not(gone);
    cr_assert_null(watchlog_after(&w, 500, &gone), "a position of the future");
    cr_assert_not(gone);
    (void) watchlog_after(&w, 99, &gone);
    cr_assert(gone, "what came before the first is not known");
    watchlog_done(&w);
}

/* For every ring size, start and position: either the very next change, or "gone", or "not yet". */
Test(watchlog, every_position)
{
    for (size_t cap = 1; cap <= 9; cap++)
        for (uint64_t start = 0; start <= 12; start++) {
            struct watchlog w;
            cr_assert_eq(watchlog_init(&w, cap, start), 0);
            for (uint64_t seq = start + 1; seq <= start + 30; seq++) {
                uint64_t floor = seq - start > cap ? seq - cap : start;
                append(&w, seq);
                for (uint64_t at = 0; at <= seq + 2; at++) {
                    bool gone;
                    const struct change *c = watchlog_after(&w, at, &gone);
                    char want[32];
                    cr_assert_eq(gone, at < floor, "cap %zu start %zu at %zu", cap, (size_t) start, (size_t) at);
                    cr_assert_eq(c != NULL, at >= floor && at < seq);
                    if (!c)
                        continue;
                    (void) snprintf(want, sizeof(want), "n%llu", (unsigned long long) at + 1);
                    cr_assert(c->seq == at + 1 && c->revision == (at + 1) * 2 && c->kind == RESOURCE_JOB);
                    cr_assert_str_eq(c->key, want);
                    cr_assert_str_eq(c->cluster, "alpha");
                }
            }
            watchlog_done(&w);
        }
}

/* Keys of any length come back whole, also from a slot that held one of another length before. */
Test(watchlog, keys_of_any_length)
{
    struct watchlog w;
    char key[RESOURCE_KEY_MAX], name[16];
    bool gone;

    cr_assert_eq(watchlog_init(&w, 3, 0), 0);
    for (uint64_t seq = 1; seq < 400; seq++) {
        size_t len = seq * 31 % (RESOURCE_KEY_MAX - 1);
        const struct change *c;
        memset(key, 'a' + (int) (seq % 26), len);
        key[len] = '\0';
        (void) snprintf(name, sizeof(name), "c%u", (unsigned) (seq % 5));
        cr_assert_eq(watchlog_append(&w, seq, seq, RESOURCE_ACTION, name, key), 0);
        c = watchlog_after(&w, seq - 1, &gone);
        cr_assert(c && strcmp(c->key, key) == 0 && strcmp(c->cluster, name) == 0);
    }
    watchlog_done(&w);
}

/* A reader may compare clusters by their pointers. */
Test(watchlog, one_name_for_a_cluster)
{
    struct watchlog w;
    const char *alpha, *beta;
    bool gone;

    cr_assert_eq(watchlog_init(&w, 8, 0), 0);
    for (uint64_t seq = 1; seq <= 4; seq++)
        cr_assert_eq(watchlog_append(&w, seq, seq, RESOURCE_JOB, seq % 2 ? "alpha" : "beta", "k"), 0);
    alpha = watchlog_after(&w, 0, &gone)->cluster;
    beta = watchlog_after(&w, 1, &gone)->cluster;
    cr_assert_neq(alpha, beta);
    cr_assert_eq(watchlog_after(&w, 2, &gone)->cluster, alpha);
    cr_assert_eq(watchlog_after(&w, 3, &gone)->cluster, beta);
    watchlog_done(&w);
}

Test(watchlog, done_twice)
{
    struct watchlog w;

    cr_assert_eq(watchlog_init(&w, 2, 0), 0);
    append(&w, 1);
    watchlog_done(&w);
    watchlog_done(&w);
}
