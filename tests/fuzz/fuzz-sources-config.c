/* SPDX-License-Identifier: Apache-2.0 */
/* The file of sources. What is taken can be asked: its templates expand, or say why not. */

#include <stdint.h>

#include "controlplane/sources/config.h"
#include "controlplane/sources/query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct query_vars vars = { "alpha", "46_5", 1, "alice", "ml", "gpu", "n[1-3]" };
    ADV_AUTO(sources_config) c = NULL;
    struct adv_err err = { 0 };

    if (sources_config_parse("fuzz", data, size, &c, &err) < 0) {
        if (!*err.msg)
            abort();
        return 0;
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct source_config *s = &c->sources[i];
        ADV_AUTO_DONE(adv_buf) b;

        adv_buf_init(&b, QUERY_MAX);
        if (!s->name || !s->url || (s->kind == SOURCE_PROMETHEUS) != (s->n_measures > 0))
            abort();
        if (s->job_logs.query && query_expand(s->job_logs.query, &vars, &b, NULL) == -ADV_INVALID_ARGUMENT)
            abort();
        for (size_t k = 0; k < s->n_measures; k++)
            if (query_expand(s->measures[k].query, &vars, &b, NULL) == -ADV_INVALID_ARGUMENT)
                abort();
    }
    return 0;
}
