/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "adapters/slurm/depend.h"

Test(depend, understood_or_not)
{
    static const struct {
        const char *text;
        size_t n; /* 0 and not "": not understood */
        bool any;
    } t[] = {
        { "", 0, false },
        { "afterok:68(unfulfilled)", 1, false },
        { "afterok:10(failed)?afterok:11(unfulfilled)", 2, true },
        { "after:11+10(unfulfilled),afterok:10(failed)", 2, false },
        { "singleton(unfulfilled),afterok:10(unfulfilled)", 2, false },
        { "aftercorr:22_*(failed),afterany:22_1(fulfilled),afternotok:3,afterburstbuffer:4(unfulfilled)", 4, false },
        { "afterok:1,afterok:2?afterok:3", 0, false },
        { "afterok:1,", 0, false },
        { ",afterok:1", 0, false },
        { "afterok", 0, false },
        { "afterok:", 0, false },
        { "afterok:x", 0, false },
        { "afterok:1_", 0, false },
        { "afterok:1_x", 0, false },
        { "afterok:1+", 0, false },
        { "afterok:1++2", 0, false },
        { "afterok:1(perhaps)", 0, false },
        { "afterok:1 (failed)", 0, false },
        { "afterlife:1", 0, false },
        { "singleton:1", 0, false },
        { "afterok:123456789012345678901234567890123456(failed)", 0, false },
        { "expand:7", 0, false },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO_DONE(slurm_deps) d = { 0 };
        struct adv_err err = { 0 };
        int r = slurm_deps_parse(t[i].text, &d, &err);
        cr_expect_eq(r, t[i].n || !*t[i].text ? 0 : -ADV_DATA_LOSS, "%s", t[i].text);
        cr_expect_eq(d.n, t[i].n, "%s", t[i].text);
        cr_expect_eq(d.any, t[i].any, "%s", t[i].text);
    }
    char many[20 * (SLURM_DEPS_MAX + 1)] = "afterok:1";
    for (int i = 0; i < SLURM_DEPS_MAX; i++)
        strcat(many, ",afterok:1");
    ADV_AUTO_DONE(slurm_deps) d = { 0 };
    cr_expect_eq(slurm_deps_parse(many, &d, NULL), -ADV_DATA_LOSS);
}

Test(depend, whose)
{
    cr_expect(slurm_depends("afterok:68(unfulfilled)", "68", "9"));
    cr_expect(slurm_depends("afterok:6,afterany:68(failed)", "68", "9"));
    cr_expect(slurm_depends("afterok:46_*(unfulfilled)", "46_5", "9"));
    cr_expect(slurm_depends("afterok:46_5(unfulfilled)", "46_5", "9"));
    cr_expect(!slurm_depends("afterok:46_5(unfulfilled)", "46_50", "9"));
    cr_expect(!slurm_depends("afterok:46_*(unfulfilled)", "468_5", "9"));
    cr_expect(!slurm_depends("afterok:6(unfulfilled)", "68", "9"));
    cr_expect(!slurm_depends("after:68(unfulfilled)", "68", "9"), "it has begun");
    cr_expect(!slurm_depends("singleton(unfulfilled)", "68", "9"));
    cr_expect(!slurm_depends("", "68", "9"));
    /* one task waits for the one of its index */
    cr_expect(slurm_depends("aftercorr:46_*(failed)", "46_5", "50_5"));
    cr_expect(!slurm_depends("aftercorr:46_*(unfulfilled)", "46_5", "50_6"));
    cr_expect(!slurm_depends("aftercorr:46_*(unfulfilled)", "46_5", "50_55"));
    cr_expect(!slurm_depends("aftercorr:46_*(unfulfilled)", "46_5", "50"));
    cr_expect(slurm_depends("aftercorr:46_*(unfulfilled),afterok:46_*(unfulfilled)", "46_5", "50_6"));
    cr_expect(!slurm_depends("afterok:68,what", "68", "9"), "half understood is not understood");
}

Test(depend, the_whole_list)
{
    const struct adapter_job plain = { .id = "10", .raw_id = 10, .array_task = -1 };
    const struct adapter_job task = { .id = "22_1", .raw_id = 28, .array_id = 22, .array_task = 1 };
    const struct adapter_job last = { .id = "22_2", .raw_id = 22, .array_id = 22, .array_task = 2 };
    const struct adapter_job kid = { .id = "12", .raw_id = 12, .array_task = -1 };
    const struct adapter_job kids1 = { .id = "26_1", .raw_id = 27, .array_id = 26, .array_task = 1 };
    const struct adapter_job kids2 = { .id = "26_2", .raw_id = 26, .array_id = 26, .array_task = 2 };
    const struct {
        const struct adapter_job *child, *parent;
        const char *now, *before;
        enum adapter_reason want;
        const char *list;
    } t[] = {
        { &kid, &plain, "afterok:10(failed)", "", ADAPTER_REASON_OK, "afterok:10" },
        { &kid, &plain, "afterok:10(failed),afterok:11(unfulfilled)", "", ADAPTER_REASON_OK, "afterok:10,afterok:11" },
        { &kid, &plain, "afterok:10(failed)?afterok:11(unfulfilled)", "", ADAPTER_REASON_OK, "afterok:10?afterok:11" },
        { &kid, &plain, "after:11+10(unfulfilled),afterok:10(failed)", "", ADAPTER_REASON_OK, "after:11+10,afterok:10" },
        { &kid, &plain, "singleton(unfulfilled),afterok:10(failed)", "", ADAPTER_REASON_OK, "singleton,afterok:10" },
        /* Slurm took out what the failure met, or its owner did */
        { &kid, &plain, "afterok:11(unfulfilled)", "afterany:10(unfulfilled),afterok:11(unfulfilled)",
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kid, &plain, "afterok:11(unfulfilled)", "afternotok:10(unfulfilled),afterok:11(unfulfilled)",
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kid, &plain, "", "afterany:10(unfulfilled)", ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kid, &plain, "afterok:10(failed)", "afterok:10(unfulfilled),afterany:10(unfulfilled)", ADAPTER_REASON_OK, "afterok:10" },
        /* not judged: a running parent that was requeued, or one that Slurm holds */
        { &kid, &plain, "afterok:10(unfulfilled)", "", ADAPTER_REASON_ALREADY_SATISFIED, NULL },
        { &kid, &plain, "afterok:10(unfulfilled)", "afterok:10(unfulfilled)", ADAPTER_REASON_ALREADY_SATISFIED, NULL },
        /* what the user did meanwhile */
        { &kid, &plain, "afterok:12(unfulfilled)", "afterany:10(unfulfilled),afterok:11(unfulfilled)",
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kid, &plain, "afterok:11(unfulfilled)", "afterok:10(unfulfilled),afterok:11(unfulfilled)", ADAPTER_REASON_WRONG_STATE,
          NULL }, /* a failure meets no afterok: it was taken out by hand */
        { &kid, &plain, "", "", ADAPTER_REASON_WRONG_STATE, NULL },
        { &kid, &plain, "afterok:11(unfulfilled)", "what is this", ADAPTER_REASON_WRONG_STATE, NULL },
        { &kid, &plain, "after:10+5(unfulfilled)", "", ADAPTER_REASON_WRONG_STATE, NULL },
        /* 22.05 takes an edge to a forgotten job for met */
        { &kid, &plain, "afterok:10(failed),afterok:11(failed)", "", ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kid, &plain, "afterok:10(failed)?afterok:11(failed)", "", ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kid, &plain, "afterok:10(failed),odd:11", "", ADAPTER_REASON_INVALID, NULL },
        /* arrays */
        { &kid, &task, "afterok:22_1(failed)", "", ADAPTER_REASON_OK, "afterok:22_1" },
        { &kid, &task, "afterok:28(failed)", "", ADAPTER_REASON_OK, "afterok:28" },
        { &kid, &task, "afterok:22_*(failed)", "", ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kid, &task, "afterok:22_*(unfulfilled)", "", ADAPTER_REASON_ALREADY_SATISFIED, NULL },
        { &kid, &last, "afterok:22(failed)", "", ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL }, /* the array, not the task */
        { &kids1, &task, "aftercorr:22_*(failed)", "", ADAPTER_REASON_OK, "aftercorr:22_*" },
        { &kids2, &task, "aftercorr:22_*(failed)", "", ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, NULL },
        { &kids2, &task, "aftercorr:22_*(unfulfilled)", "", ADAPTER_REASON_WRONG_STATE, NULL },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO_DONE(adv_buf) b = { 0 };
        const char *why;
        adv_buf_init(&b, 4096);
        enum adapter_reason r = slurm_deps_rearm(t[i].now, t[i].before, t[i].child, t[i].parent, &b, &why);
        cr_expect_eq(r, t[i].want, "%zu: %s", i, adapter_reason_name(r));
        if (t[i].list) {
            cr_expect_str_eq(b.data, t[i].list, "%zu: %s", i, b.data);
            cr_expect_gt(slurm_deps_waiting(b.data, t[i].child, t[i].parent), 0, "%zu", i);
            cr_expect_null(why);
        }
        cr_expect_eq(why != NULL, r != ADAPTER_REASON_OK && r != ADAPTER_REASON_ALREADY_SATISFIED, "%zu", i);
    }
    cr_expect_eq(slurm_deps_waiting("afterok:10(failed),afterany:10(unfulfilled)", &kid, &plain), 0);
    cr_expect_eq(slurm_deps_waiting("afterok:10(unfulfilled),afterany:10(unfulfilled)", &kid, &plain), 2);
}
