/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/store/sample.h"

#include "controlplane/domain/entries.h"
#include "controlplane/store/codec.h"

union object {
    struct cluster cluster;
    struct job job;
    struct attempt attempt;
    struct anomaly anomaly;
    struct advice advice;
    struct action action;
    struct node node;
    struct enrolment enrolment;
    struct revocation revocation;
};

/* Kinds by what a row of the table needs: rows of the table in codec.c, all of them set by the sample. */
static const struct kind {
    enum resource_kind kind;
    const char *name;
    size_t size, fields;
} kinds[] = {
    { RESOURCE_CLUSTER, "cluster", sizeof(struct cluster), 23 }, { RESOURCE_JOB, "job", sizeof(struct job), 30 },
    { RESOURCE_ATTEMPT, "attempt", sizeof(struct attempt), 36 }, { RESOURCE_ANOMALY, "anomaly", sizeof(struct anomaly), 25 },
    { RESOURCE_ADVICE, "advice", sizeof(struct advice), 29 },    { RESOURCE_ACTION, "action", sizeof(struct action), 15 },
    { RESOURCE_NODE, "node", sizeof(struct node), 6 },
    { RESOURCE_EXCLUSION, "exclusion", sizeof(struct exclusion), 12 },
    { RESOURCE_INCIDENT, "incident", sizeof(struct incident), 13 },
    { RESOURCE_WINDOW, "window", sizeof(struct window), 10 },
    { RESOURCE_EVIDENCE, "evidence", sizeof(struct evidence), 20 },
    { RESOURCE_POLICY, "policy", sizeof(struct policy_doc), 10 },
    { RESOURCE_ENROLMENT, "enrolment", sizeof(struct enrolment), 11 },
    { RESOURCE_REVOCATION, "revocation", sizeof(struct revocation), 7 },
    { RESOURCE_CHECKPOINT, "checkpoint", sizeof(struct checkpoint), 9 },
};

static void *sample(const struct kind *k)
{
    void *o = calloc(1, k->size);

    switch (k->kind) {
    case RESOURCE_CLUSTER: sample_cluster(o, "name", 1); break;
    case RESOURCE_JOB: sample_job(o, 1); break;
    case RESOURCE_ATTEMPT: sample_attempt(o, 70000, 1); break;
    case RESOURCE_ANOMALY: sample_anomaly(o, 1); break;
    case RESOURCE_ADVICE: sample_advice(o, 1); break;
    case RESOURCE_ACTION: sample_action(o, 1); break;
    case RESOURCE_NODE: sample_node(o, 1); break;
    case RESOURCE_EXCLUSION: sample_exclusion(o, 1); break;
    case RESOURCE_INCIDENT: sample_incident(o, 1); break;
    case RESOURCE_WINDOW: sample_window(o, 1); break;
    case RESOURCE_EVIDENCE: sample_evidence(o, 1); break;
    case RESOURCE_POLICY: sample_policy_doc(o, 1); break;
    case RESOURCE_ENROLMENT: sample_enrolment(o, 1); break;
    case RESOURCE_REVOCATION: sample_revocation(o, 1); break;
    case RESOURCE_CHECKPOINT: sample_checkpoint(o, 1); break;
    case RESOURCE_AUDIT:
    case RESOURCE_KIND_END_:
    case RESOURCE_NONE: break;
    }
    return o;
}

static void same(const struct kind *k, const void *a, const void *b)
{
    switch (k->kind) {
    case RESOURCE_CLUSTER: same_cluster(a, b, k->name); break;
    case RESOURCE_JOB: same_job(a, b, k->name); break;
    case RESOURCE_ATTEMPT: same_attempt(a, b, k->name); break;
    case RESOURCE_ANOMALY: same_anomaly(a, b, k->name); break;
    case RESOURCE_ADVICE: same_advice(a, b, k->name); break;
    case RESOURCE_ACTION: same_action(a, b, k->name); break;
    case RESOURCE_NODE: same_node(a, b, k->name); break;
    case RESOURCE_EXCLUSION: same_exclusion(a, b, k->name); break;
    case RESOURCE_INCIDENT: same_incident(a, b, k->name); break;
    case RESOURCE_WINDOW: same_window(a, b, k->name); break;
    case RESOURCE_EVIDENCE: same_evidence(a, b, k->name); break;
    case RESOURCE_POLICY: same_policy_doc(a, b, k->name); break;
    case RESOURCE_ENROLMENT: same_enrolment(a, b, k->name); break;
    case RESOURCE_REVOCATION: same_revocation(a, b, k->name); break;
    case RESOURCE_CHECKPOINT: same_checkpoint(a, b, k->name); break;
    case RESOURCE_AUDIT:
    case RESOURCE_KIND_END_:
    case RESOURCE_NONE: break;
    }
}

static void release(const struct kind *k, void *o)
{
    switch (k->kind) {
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
    case RESOURCE_CHECKPOINT:
        ((struct entry *) o)->kind = k->kind;
        entry_free(o);
        break;
    case RESOURCE_ENROLMENT: enrolment_free(o); break;
    case RESOURCE_REVOCATION: revocation_free(o); break;
    case RESOURCE_AUDIT:
    case RESOURCE_KIND_END_:
    case RESOURCE_NONE: break;
    }
}

/* Field numbers of the encoding, and where the top-level fields end. */
static size_t walk(const struct adv_buf *b, bool seen[64], size_t *ends)
{
    const uint8_t *p = (const uint8_t *) b->data;
    size_t n = 0;

    for (size_t i = 0; i < b->len;) {
        uint64_t tag = 0, v = 0;
        unsigned shift;
        for (shift = 0; p[i] & 0x80; shift += 7)
            tag |= (uint64_t) (p[i++] & 0x7f) << shift;
        tag |= (uint64_t) p[i++] << shift;
        for (shift = 0; p[i] & 0x80; shift += 7)
            v |= (uint64_t) (p[i++] & 0x7f) << shift;
        v |= (uint64_t) p[i++] << shift;
        if ((tag & 7) == 2)
            i += v;
        cr_assert(tag >> 3 < 64);
        seen[tag >> 3] = true;
        ends[n++] = i;
    }
    return n;
}

Test(codec, every_field_survives)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        void *a = sample(k), *b = calloc(1, k->size);
        ADV_AUTO_DONE(adv_buf) bytes;
        bool seen[64] = { false };
        size_t ends[64], count = 0;

        adv_buf_init(&bytes, 1 << 20);
        cr_assert_eq(codec_encode(k->kind, a, &bytes), 0);
        (void) walk(&bytes, seen, ends);
        for (size_t f = 0; f < 64; f++)
            count += seen[f];
        cr_assert_eq(count, k->fields, "%s: the sample sets %zu of %zu fields", k->name, count, k->fields);
        cr_assert_eq(codec_decode(k->kind, bytes.data, bytes.len, b), 0);
        same(k, a, b);
        release(k, a);
        release(k, b);
    }
}

/* A follower decodes a newer record over an object it has. */
Test(codec, reset_makes_room_for_another_record)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        void *a = sample(k);
        ADV_AUTO_DONE(adv_buf) bytes;

        adv_buf_init(&bytes, 1 << 20);
        codec_reset(k->kind, a);
        cr_assert_eq(codec_encode(k->kind, a, &bytes), 0);
        cr_assert_eq(bytes.len, 0, "%s keeps something", k->name);
        release(k, a);
    }
}

Test(codec, nothing_set_is_nothing_written)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(kinds); i++) {
        void *a = calloc(1, kinds[i].size), *b = calloc(1, kinds[i].size);
        ADV_AUTO_DONE(adv_buf) bytes;

        adv_buf_init(&bytes, 1 << 20);
        cr_assert_eq(codec_encode(kinds[i].kind, a, &bytes), 0);
        cr_assert_eq(bytes.len, 0);
        cr_assert_eq(codec_decode(kinds[i].kind, "", 0, b), 0);
        same(&kinds[i], a, b);
        release(&kinds[i], a);
        release(&kinds[i], b);
    }
}

/* A newer version's fields: a varint, fixed64, a piece, fixed32, before and behind ours. */
Test(codec, unknown_fields_are_skipped)
{
    static const char more[] = "\xf8\x3e\x96\x01" "\xf9\x3e" "12345678" "\xfa\x3e\x03" "abc" "\xfd\x3e" "1234";

    for (size_t i = 0; i < ADV_ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        void *a = sample(k), *b = calloc(1, k->size);
        ADV_AUTO_DONE(adv_buf) bytes;

        adv_buf_init(&bytes, 1 << 20);
        (void) adv_buf_append(&bytes, more, sizeof(more) - 1);
        cr_assert_eq(codec_encode(k->kind, a, &bytes), 0);
        (void) adv_buf_append(&bytes, more, sizeof(more) - 1);
        cr_assert_eq(codec_decode(k->kind, bytes.data, bytes.len, b), 0, "%s", k->name);
        same(k, a, b);
        release(k, a);
        release(k, b);
    }
}

/* A cut inside a field is refused; between fields it is an older, shorter record. */
Test(codec, cut_anywhere)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        void *a = sample(k);
        ADV_AUTO_DONE(adv_buf) bytes;
        bool seen[64] = { false };
        size_t ends[64], n, next = 0;

        adv_buf_init(&bytes, 1 << 20);
        cr_assert_eq(codec_encode(k->kind, a, &bytes), 0);
        n = walk(&bytes, seen, ends);
        for (size_t len = 1; len < bytes.len; len++) {
            void *b = calloc(1, k->size);
            uint8_t *exact = malloc(len); /* so that reading beyond is seen */
            bool whole;
            int r;

            memcpy(exact, bytes.data, len);
            while (next < n && ends[next] < len)
                next++;
            whole = next < n && ends[next] == len;
            r = codec_decode(k->kind, exact, len, b);
            cr_assert_eq(r, whole ? 0 : -ADV_DATA_LOSS, "%s cut at %zu: %d", k->name, len, r);
            release(k, b);
            free(exact);
        }
        release(k, a);
    }
}

Test(codec, malformed)
{
    static const struct {
        enum resource_kind kind;
        const char *bytes;
        size_t len;
    } t[] = {
        { RESOURCE_JOB, "\x08\x01", 2 },                                             /* a number where text belongs */
        { RESOURCE_JOB, "\x2a\x01x", 3 },                                            /* text where a number belongs */
        { RESOURCE_JOB, "\x28\x80\x80\x80\x80\x10", 6 },                             /* more than 32 bits */
        { RESOURCE_JOB, "\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13 }, /* more than 64 bits */
        { RESOURCE_JOB, "\x00\x01", 2 },                                             /* field number 0 */
        { RESOURCE_JOB, "\x0b", 1 },                                                 /* a group */
        { RESOURCE_JOB, "\x0a\xff\xff\xff\xff\x0f", 6 },                             /* longer than everything */
        { RESOURCE_ADVICE, "\x2a\x03\x0a\x05x", 5 },                                 /* a reason longer than its frame */
        { RESOURCE_ADVICE, "\x28\x01", 2 },                                          /* a number for a reason */
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        union object o = { 0 };
        cr_assert_eq(codec_decode(t[i].kind, t[i].bytes, t[i].len, &o), -ADV_DATA_LOSS, "row %zu", i);
        if (t[i].kind == RESOURCE_ADVICE)
            for (uint32_t k = 0; k < o.advice.n_reasons; k++)
                free(o.advice.reasons[k].code);
    }
}

/* More reasons than fit are left out; the last of repeated texts counts. */
Test(codec, limits)
{
    struct advice *ad = calloc(1, sizeof(*ad));
    ADV_AUTO_DONE(adv_buf) bytes;

    adv_buf_init(&bytes, 1 << 20);
    for (int i = 0; i < ADVICE_MAX_REASONS + 5; i++)
        (void) adv_buf_append(&bytes, "\x2a\x03\x0a\x01x", 5);
    (void) adv_buf_append(&bytes, "\x32\x01" "a" "\x32\x02" "bc", 7);
    cr_assert_eq(codec_decode(RESOURCE_ADVICE, bytes.data, bytes.len, ad), 0);
    cr_assert_eq(ad->n_reasons, ADVICE_MAX_REASONS);
    cr_assert_str_eq(ad->summary, "bc");
    advice_free(ad);
}

/* A reason of any length comes back whole; a buffer too small for it is said. */
Test(codec, long_reasons)
{
    struct advice *ad = calloc(1, sizeof(*ad)), *back = calloc(1, sizeof(*back));
    ADV_AUTO_DONE(adv_buf) bytes;

    ad->n_reasons = 1;
    ad->reasons[0].param = calloc(1, 200001);
    memset(ad->reasons[0].param, 'n', 200000);
    adv_buf_init(&bytes, 1 << 16);
    cr_assert_eq(codec_encode(RESOURCE_ADVICE, ad, &bytes), -ADV_RESOURCE_EXHAUSTED);
    adv_buf_done(&bytes);
    adv_buf_init(&bytes, 1 << 20);
    cr_assert_eq(codec_encode(RESOURCE_ADVICE, ad, &bytes), 0);
    cr_assert_eq(codec_decode(RESOURCE_ADVICE, bytes.data, bytes.len, back), 0);
    cr_assert_str_eq(back->reasons[0].param, ad->reasons[0].param);
    advice_free(ad);
    advice_free(back);
}
