/* SPDX-License-Identifier: Apache-2.0 */

/* A row of the store that something else wrote: it is refused, or decodes to an object that encodes to a fixed point.
 * The first byte picks the kind. The rest also goes to the parsers of a job's comment and of resource names. */

#include <stdint.h>
#include <stdlib.h>

#include "common/jobcomment.h"
#include "controlplane/domain/entries.h"
#include "controlplane/domain/policy.h"
#include "controlplane/store/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *decode(enum resource_kind kind, const void *bytes, size_t len, int *ret)
{
    static const size_t sizes[RESOURCE_KIND_END_] = {
        [RESOURCE_CLUSTER] = sizeof(struct cluster), [RESOURCE_JOB] = sizeof(struct job),
        [RESOURCE_ATTEMPT] = sizeof(struct attempt), [RESOURCE_ANOMALY] = sizeof(struct anomaly),
        [RESOURCE_ADVICE] = sizeof(struct advice),   [RESOURCE_ACTION] = sizeof(struct action),
        [RESOURCE_NODE] = sizeof(struct node),       [RESOURCE_EVIDENCE] = sizeof(struct evidence),
        [RESOURCE_ENROLMENT] = sizeof(struct enrolment), [RESOURCE_REVOCATION] = sizeof(struct revocation),
    };
    void *o = calloc(1, entry_size(kind) ? entry_size(kind) : sizes[kind]);

    if (entry_size(kind))
        ((struct entry *) o)->kind = kind;
    *ret = codec_decode(kind, bytes, len, o);
    return o;
}

static void free_object(enum resource_kind kind, void *o)
{
    switch (kind) {
    case RESOURCE_CLUSTER: cluster_free(o); break;
    case RESOURCE_JOB: job_free(o); break;
    case RESOURCE_ATTEMPT: attempt_free(o); break;
    case RESOURCE_ANOMALY: anomaly_free(o); break;
    case RESOURCE_ADVICE: advice_free(o); break;
    case RESOURCE_ACTION: action_free(o); break;
    case RESOURCE_NODE: node_free(o); break;
    case RESOURCE_EVIDENCE: evidence_free(o); break;
    case RESOURCE_EXCLUSION:
    case RESOURCE_INCIDENT:
    case RESOURCE_WINDOW:
    case RESOURCE_POLICY:
    case RESOURCE_CHECKPOINT: entry_free(o); break;
    case RESOURCE_ENROLMENT: enrolment_free(o); break;
    case RESOURCE_REVOCATION: revocation_free(o); break;
    case RESOURCE_AUDIT:
    case RESOURCE_NONE:
    case RESOURCE_KIND_END_:
        abort();
    }
}

static void round_trip(enum resource_kind kind, const uint8_t *data, size_t size)
{
    struct adv_buf a, b;
    int r;
    void *o = decode(kind, data, size, &r), *again;

    adv_buf_init(&a, 1 << 24);
    adv_buf_init(&b, 1 << 24);
    if (r == 0) {
        if (codec_encode(kind, o, &a) < 0)
            abort();
        again = decode(kind, a.data, a.len, &r);
        if (r < 0 || codec_encode(kind, again, &b) < 0 || a.len != b.len || memcmp(a.data, b.data, a.len) != 0)
            abort();
        free_object(kind, again);
    }
    free_object(kind, o);
    adv_buf_done(&a);
    adv_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct adv_jobcomment opts;
    struct resource_path path;
    char *text, uid[64], name[2 * RESOURCE_NAME_MAX];
    const char *rest;
    uint32_t index;
    int kind;

    if (size == 0)
        return 0;
    kind = RESOURCE_CLUSTER + data[0] % (RESOURCE_KIND_END_ - 1);
    if (kind != RESOURCE_AUDIT)
        round_trip((enum resource_kind) kind, data + 1, size - 1);
    text = strndup((const char *) data + 1, size - 1);
    adv_jobcomment_parse(text, &opts);
    if (opts.error[0] && opts.mode != ADV_JOBCOMMENT_UNSET && opts.mode != ADV_JOBCOMMENT_OFF)
        abort(); /* what cannot be understood is no consent */
    (void) !resource_path_parse(text, &path, NULL);
    (void) resource_key_parse(text, uid, &index, &rest);
    for (kind = RESOURCE_NONE; kind < RESOURCE_KIND_END_; kind++)
        (void) resource_name((enum resource_kind) kind, "c", text, name);
    (void) sched_job_id_valid(text);
    free(text);
    return 0;
}
