/* SPDX-License-Identifier: Apache-2.0 */

/* A rules file of any bytes. Each error must name the file; what loads must survive its own examples. */

#include <stddef.h>
#include <stdint.h>

#include "controlplane/watcher/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct watcher_rules_source src = { .name = "fuzz.yaml",
                                        .bytes = (const char *) data,
                                        .len = size };
    struct watcher_rules *rules = NULL;
    struct adv_err err = { 0 };
    int rc;

    if (size > 65536)
        return 0;
    rc = watcher_rules_parse(&src, 1, &rules, &err);
    if (rc == -ADV_INVALID_ARGUMENT && !strstr(err.msg, "fuzz.yaml:") &&
        !adv_startswith(err.msg, "rules: "))
        abort();
    if (rc == 0)
        (void) !watcher_rules_check_examples(rules, &err);
    (void) watcher_rules_unref(rules);
    return 0;
}
