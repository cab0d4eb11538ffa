/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a policy, and docs/policy.md, which is made from them (UPDATE_DOCS=1 writes it). */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "controlplane/api/policy_document.h"

static const char head[] =
    "<!-- made by tests/unit/api/test-policy-document.c from controlplane/api/policy_document.c -->\n"
    "# Policies\n\n"
    "A policy is a YAML document with some of the keys below; `ApplyPolicy` (`advisorctl policy apply`) stores it as a new\n"
    "version under its name, and jobs name it in their comment: `{\"advisor\": {\"policy\": \"pretrain\"}}`. Unknown keys and values\n"
    "out of range are refused with the line. **This control plane stores, checks and serves policies; it does not judge by them\n"
    "yet.** What it judges by is its own configuration ([config-advisord.md](config-advisord.md)).\n\n";

static char *slurp(FILE *f)
{
    char *text = calloc(1, 1 << 16);

    cr_assert(text);
    (void) !fread(text, 1, (1 << 16) - 1, f);
    return text;
}

Test(policy_document, the_page_is_made_from_the_table)
{
    const char *root = getenv("SOURCE_ROOT");
    char path[4096];
    FILE *f, *want = tmpfile();

    cr_assert(root && want);
    (void) fputs(head, want);
    adv_config_dump_docs(&policy_document_table, want);
    rewind(want);
    char *text = slurp(want);
    (void) fclose(want);
    (void) snprintf(path, sizeof(path), "%s/docs/policy.md", root);
    if (getenv("UPDATE_DOCS")) {
        f = fopen(path, "w");
        cr_assert(f);
        (void) fputs(text, f);
        (void) fclose(f);
    }
    f = fopen(path, "r");
    cr_assert(f, "%s is missing: UPDATE_DOCS=1 makes it", path);
    char *is = slurp(f);
    (void) fclose(f);
    cr_assert_str_eq(is, text, "%s differs from the table: UPDATE_DOCS=1 makes it anew", path);
    free(text);
    free(is);
}

Test(policy_document, what_is_one)
{
    static const struct {
        const char *text, *field; /* NULL: a good one */
    } t[] = { { "", NULL },
              { "{}", NULL },
              { "mode: approve\nrestart: {max: 5, after_time_limit: true}\nreporters: {trusted: [\"detector:dcgm\"]}\n", NULL },
              { "mode: perhaps\n", "mode" },
              { "restart: {max: -1}\n", "restart.max" },
              { "restart: {max: 1001}\n", "restart.max" },
              { "restart: 5\n", "restart" },
              { "wait: {shared_cause: soon}\n", "wait.shared_cause" },
              { "budget: {user: 1, user: 2}\n", "budget.user" },
              { "budgets: {user: 1}\n", "budgets" },
              { "- a\n", "" },
              { "a: &x 1\n", "" },
              { "mode: act\n---\nmode: act\n", "" },
              { "{", "" } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct adv_err err = { 0 };
        int r = policy_document_check(t[i].text, &err);
        if (t[i].field)
            cr_assert(r < 0 && adv_streq(err.field, t[i].field), "%s: %d field \"%s\" %s", t[i].text, r,
                      err.field, err.msg);
        else
            cr_assert_eq(r, 0, "%s: %s", t[i].text, err.msg);
        cr_assert_eq(policy_document_check(t[i].text, NULL), r, "without room for the error it is the same");
    }
}
