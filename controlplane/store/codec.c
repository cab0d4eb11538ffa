/* SPDX-License-Identifier: Apache-2.0 */
/* One row of a table a field: number, type, offset. Adding a field is adding a row with a new number; a number that is
 * no longer used stays reserved here by a comment. Signed numbers are stored as two's complement varints. */

#include "controlplane/store/codec.h"

enum ftype { F_STR, F_U32, F_I32, F_U64, F_I64, F_BOOL, F_ENUM, F_REASONS };

struct field {
    uint32_t number;
    enum ftype type;
    size_t offset;
};

#define F(n, t, s, m) { n, t, offsetof(struct s, m) }

static const struct field cluster_fields[] = {
    F(1, F_STR, cluster, name),
    F(2, F_ENUM, cluster, mode),
    F(3, F_I64, cluster, mode_us),
    F(4, F_I64, cluster, mode_effective_us),
    F(5, F_U64, cluster, epoch.term),
    F(6, F_U64, cluster, epoch.counter),
    F(7, F_ENUM, cluster, agent_state),
    F(8, F_I64, cluster, agent_state_us),
    F(9, F_STR, cluster, agent_version),
    F(10, F_STR, cluster, scheduler),
    F(11, F_ENUM, cluster, ceiling),
    F(12, F_STR, cluster, ceiling_reason),
    F(13, F_BOOL, cluster, journal_persistent),
    F(14, F_STR, cluster, holder_journal),
    F(15, F_STR, cluster, epoch_warning),
    F(16, F_U64, cluster, audit_seq),
    F(17, F_STR, cluster, audit_hash),
    F(18, F_U64, cluster, revision),
    F(19, F_I64, cluster, observe_us),
    F(20, F_I64, cluster, lease_us),
    F(21, F_I64, cluster, agent_skew_s),
    F(22, F_BOOL, cluster, logs_down),
    F(23, F_STR, cluster, sources_unknown),
};

static const struct field job_fields[] = {
    F(1, F_STR, job, uid),
    F(2, F_STR, job, job_id),
    F(3, F_STR, job, display_name),
    F(4, F_STR, job, user),
    F(5, F_U32, job, uid_number),
    F(6, F_STR, job, account),
    F(7, F_STR, job, partition),
    F(8, F_STR, job, qos),
    F(9, F_I64, job, submit_unix),
    F(10, F_I64, job, incarnation_unix),
    F(11, F_I64, job, first_seen_us),
    F(12, F_BOOL, job, batch),
    F(13, F_BOOL, job, requeueable),
    F(14, F_BOOL, job, held),
    F(15, F_BOOL, job, gone),
    F(16, F_STR, job, reason),
    F(17, F_STR, job, excluded_nodes),
    F(18, F_STR, job, required_nodes),
    F(19, F_U32, job, num_nodes),
    F(20, F_STR, job, stdout_path),
    F(21, F_STR, job, comment),
    F(22, F_ENUM, job, opt_mode),
    F(23, F_STR, job, policy),
    F(24, F_STR, job, workflow),
    F(25, F_STR, job, comment_error),
    F(26, F_U32, job, max_restarts),
    F(27, F_U64, job, revision),
    F(28, F_U32, job, first_index),
    F(29, F_U64, job, hash),
    F(30, F_BOOL, job, present),
    F(33, F_STR, job, progress),
    F(34, F_ENUM, job, make_requeueable),
};

static const struct field attempt_fields[] = {
    F(1, F_U32, attempt, index),
    F(2, F_ENUM, attempt, state),
    F(3, F_STR, attempt, state_raw),
    F(4, F_U32, attempt, exit_code),
    F(5, F_U32, attempt, exit_signal),
    F(6, F_STR, attempt, nodes),
    F(7, F_I64, attempt, start_unix),
    F(8, F_I64, attempt, end_unix),
    F(9, F_ENUM, attempt, telemetry),
    F(10, F_STR, attempt, telemetry_reason),
    F(11, F_U64, attempt, dropped_bytes),
    F(12, F_I64, attempt, ms.first_suspicion_us),
    F(13, F_I64, attempt, ms.end_observed_us),
    F(14, F_I64, attempt, ms.anomaly_confirmed_us),
    F(15, F_I64, attempt, ms.advised_us),
    F(16, F_I64, attempt, ms.first_command_us),
    F(17, F_I64, attempt, ms.converged_us),
    F(18, F_I64, attempt, ms.successor_started_us),
    F(19, F_I64, attempt, ms.successor_productive_us),
    F(20, F_I64, attempt, ms.job_completed_us),
    F(21, F_U64, attempt, last_step),
    F(22, F_U64, attempt, last_checkpoint_step),
    F(23, F_U64, attempt, resumed_from_step),
    F(24, F_U32, attempt, steps_seen),
    F(25, F_I64, attempt, last_progress_us),
    F(26, F_BOOL, attempt, unseen),
    F(27, F_U64, attempt, revision),
    F(28, F_U64, attempt, shed_bytes),
    F(29, F_I64, attempt, finished_us),
    F(30, F_U32, attempt, steps_reported),
    F(33, F_BOOL, attempt, has_steps),
    F(34, F_U32, attempt, checkpoints_seen),
    F(35, F_I64, attempt, rhythm_bound_us),
    F(36, F_I64, attempt, submit_unix),
    F(37, F_STR, attempt, source_fed),
    F(38, F_STR, attempt, source_gap),
    F(39, F_I64, attempt, shed_us),
    F(40, F_BOOL, attempt, history),
    F(41, F_ENUM, attempt, attribution_fast),
    F(42, F_ENUM, attempt, attribution_slow),
    F(43, F_I64, attempt, attribution_us),
    F(44, F_STR, attempt, attribution_note),
    F(45, F_ENUM, attempt, cancelled_by),
};

static const struct field anomaly_fields[] = {
    F(1, F_STR, anomaly, uid),
    F(2, F_ENUM, anomaly, kind),
    F(3, F_ENUM, anomaly, status),
    F(4, F_STR, anomaly, fault_class),
    F(5, F_STR, anomaly, rule),
    F(6, F_STR, anomaly, rules_version),
    F(7, F_ENUM, anomaly, retryable),
    F(8, F_I32, anomaly, precedence),
    F(9, F_BOOL, anomaly, terminal),
    F(10, F_STR, anomaly, nodes),
    F(11, F_STR, anomaly, ranks),
    F(12, F_STR, anomaly, stream),
    F(13, F_U64, anomaly, offset),
    F(14, F_STR, anomaly, excerpt),
    F(15, F_STR, anomaly, excerpt_sha256),
    F(16, F_STR, anomaly, reporter),
    F(17, F_I64, anomaly, observe_us),
    F(18, F_I64, anomaly, record_us),
    F(19, F_I64, anomaly, status_us),
    F(20, F_STR, anomaly, status_reason),
    F(21, F_U64, anomaly, step_at),
    F(22, F_U32, anomaly, progress_after),
    F(23, F_U32, anomaly, repeats),
    F(24, F_U64, anomaly, revision),
    F(25, F_U64, anomaly, last_offset),
    F(26, F_STR, anomaly, named),
    F(27, F_U32, anomaly, blame),
    F(28, F_BOOL, anomaly, reported),
    F(29, F_BOOL, anomaly, late),
};

static const struct field advice_fields[] = {
    F(1, F_U64, advice, generation),
    F(2, F_ENUM, advice, desired),
    F(3, F_ENUM, advice, actionability),
    F(4, F_STR, advice, exclude_nodes),
    { 5, F_REASONS, 0 },
    F(6, F_STR, advice, summary),
    F(7, F_U64, advice, valid_for_ms),
    F(8, F_STR, advice, correlation_id),
    F(9, F_STR, advice, anomaly_uid),
    F(10, F_BOOL, advice, may_interrupt),
    F(11, F_U64, advice, observed_generation),
    F(12, F_ENUM, advice, disposition),
    F(13, F_U32, advice, disposition_reason),
    F(14, F_STR, advice, status_detail),
    F(15, F_I64, advice, status_us),
    F(16, F_I64, advice, create_us),
    F(17, F_I64, advice, update_us),
    F(18, F_U64, advice, revision),
    F(19, F_ENUM, advice, approval),
    F(20, F_U64, advice, approval_generation),
    F(21, F_STR, advice, approval_by),
    F(22, F_STR, advice, approval_reason),
    F(23, F_I64, advice, approval_us),
    F(24, F_ENUM, advice, verdict),
    F(25, F_U64, advice, verdict_generation),
    F(26, F_STR, advice, verdict_by),
    F(27, F_STR, advice, verdict_why),
    F(28, F_I64, advice, verdict_us),
    F(29, F_STR, advice, people_nodes),
    F(30, F_BOOL, advice, preserve),
};

static const struct field action_fields[] = {
    F(1, F_STR, action, journal_id),
    F(2, F_U64, action, journal_seq),
    F(3, F_U64, action, generation),
    F(4, F_U64, action, epoch.term),
    F(5, F_U64, action, epoch.counter),
    F(6, F_U32, action, verb),
    F(7, F_STR, action, read_before),
    F(8, F_ENUM, action, command),
    F(9, F_ENUM, action, observed),
    F(10, F_STR, action, reason),
    F(11, F_STR, action, detail),
    F(12, F_I64, action, observe_us),
    F(13, F_I64, action, record_us),
    F(14, F_I64, action, outcome_us),
    F(15, F_U64, action, revision),
};

static const struct field node_fields[] = {
    F(1, F_STR, node, name),
    F(2, F_STR, node, state_raw),
    F(3, F_STR, node, reason),
    F(4, F_BOOL, node, available),
    F(5, F_U64, node, hash),
    F(6, F_U64, node, revision),
};

static const struct field evidence_fields[] = {
    F(1, F_STR, evidence, uid),
    F(2, F_STR, evidence, source),
    F(3, F_STR, evidence, kind),
    F(4, F_I64, evidence, window_start_us),
    F(5, F_I64, evidence, window_end_us),
    F(6, F_STR, evidence, nodes),
    F(7, F_STR, evidence, ranks),
    F(8, F_U32, evidence, weight_percent),
    F(9, F_STR, evidence, summary),
    F(10, F_STR, evidence, excerpt_ref),
    F(11, F_STR, evidence, excerpt_sha256),
    F(12, F_STR, evidence, reporter),
    F(13, F_I64, evidence, observe_us),
    F(14, F_I64, evidence, record_us),
    F(15, F_STR, evidence, request_id),
    F(16, F_U64, evidence, revision),
    F(17, F_STR, evidence, fault_class),
    F(18, F_STR, evidence, rule),
    F(19, F_ENUM, evidence, origin),
    F(20, F_BOOL, evidence, late),
};

#define ENTRY(type) F(1, F_STR, type, e.uid), F(2, F_STR, type, e.request_id), F(3, F_U64, type, e.revision)

static const struct field exclusion_fields[] = {
    ENTRY(exclusion),
    F(4, F_STR, exclusion, node),
    F(5, F_STR, exclusion, reason),
    F(6, F_STR, exclusion, owner),
    F(7, F_ENUM, exclusion, state),
    F(8, F_I64, exclusion, create_us),
    F(9, F_I64, exclusion, expire_us),
    F(10, F_I64, exclusion, lift_us),
    F(11, F_STR, exclusion, lifted_by),
    F(12, F_STR, exclusion, lift_reason),
};

static const struct field incident_fields[] = {
    ENTRY(incident),
    F(4, F_ENUM, incident, kind),
    F(5, F_BOOL, incident, closed),
    F(6, F_STR, incident, summary),
    F(7, F_STR, incident, subject),
    F(8, F_U32, incident, count),
    F(9, F_I64, incident, open_us),
    F(10, F_I64, incident, update_us),
    F(11, F_I64, incident, close_us),
    F(12, F_STR, incident, closed_by),
    F(13, F_STR, incident, close_reason),
};

static const struct field window_fields[] = {
    ENTRY(window),
    F(4, F_ENUM, window, state),
    F(5, F_I64, window, start_us),
    F(6, F_I64, window, end_us),
    F(7, F_STR, window, reason),
    F(8, F_STR, window, owner),
    F(9, F_I64, window, create_us),
    F(10, F_STR, window, ended_by),
};

static const struct field policy_fields[] = {
    ENTRY(policy_doc),
    F(4, F_STR, policy_doc, name),
    F(5, F_U64, policy_doc, version),
    F(6, F_STR, policy_doc, document),
    F(7, F_STR, policy_doc, document_sha256),
    F(8, F_STR, policy_doc, owner),
    F(9, F_STR, policy_doc, reason),
    F(10, F_I64, policy_doc, create_us),
};

static const struct field checkpoint_fields[] = {
    ENTRY(checkpoint),
    F(4, F_U64, checkpoint, seq),
    F(5, F_STR, checkpoint, hash),
    F(6, F_I64, checkpoint, record_us),
    F(7, F_STR, checkpoint, signature),
    F(8, F_STR, checkpoint, key_id),
    F(9, F_STR, checkpoint, store_uuid),
};
#undef ENTRY
static const struct field enrolment_fields[] = {
    F(1, F_STR, enrolment, uid),
    F(2, F_STR, enrolment, token_sha256),
    F(3, F_STR, enrolment, principal),
    F(4, F_I64, enrolment, create_us),
    F(5, F_I64, enrolment, expire_us),
    F(6, F_I64, enrolment, redeem_us),
    F(7, F_STR, enrolment, key_sha256),
    F(8, F_STR, enrolment, serial),
    F(9, F_BOOL, enrolment, voided),
    F(10, F_U64, enrolment, revision),
    F(11, F_BOOL, enrolment, reused),
};

static const struct field revocation_fields[] = {
    F(1, F_STR, revocation, uid),
    F(2, F_STR, revocation, serial),
    F(3, F_I64, revocation, before_us),
    F(4, F_STR, revocation, reason),
    F(5, F_STR, revocation, principal),
    F(6, F_I64, revocation, create_us),
    F(7, F_U64, revocation, revision),
};
#undef F

static const struct field *table_of(enum resource_kind kind, size_t *ret_n)
{
#define TABLE(k, t)                \
    case k:                        \
        *ret_n = ADV_ARRAY_LEN(t); \
        return t
    switch (kind) {
        TABLE(RESOURCE_CLUSTER, cluster_fields);
        TABLE(RESOURCE_JOB, job_fields);
        TABLE(RESOURCE_ATTEMPT, attempt_fields);
        TABLE(RESOURCE_ANOMALY, anomaly_fields);
        TABLE(RESOURCE_ADVICE, advice_fields);
        TABLE(RESOURCE_ACTION, action_fields);
        TABLE(RESOURCE_NODE, node_fields);
        TABLE(RESOURCE_EXCLUSION, exclusion_fields);
        TABLE(RESOURCE_INCIDENT, incident_fields);
        TABLE(RESOURCE_WINDOW, window_fields);
        TABLE(RESOURCE_POLICY, policy_fields);
        TABLE(RESOURCE_CHECKPOINT, checkpoint_fields);
        TABLE(RESOURCE_EVIDENCE, evidence_fields);
        TABLE(RESOURCE_ENROLMENT, enrolment_fields);
        TABLE(RESOURCE_REVOCATION, revocation_fields);
    case RESOURCE_AUDIT:
    case RESOURCE_NONE:
    case RESOURCE_KIND_END_:
        break;
    }
#undef TABLE
    *ret_n = 0;
    return NULL;
}

static void put_varint(struct adv_buf *b, uint64_t v)
{
    while (v >= 0x80) {
        (void) adv_buf_append_byte(b, (uint8_t) (v | 0x80));
        v >>= 7;
    }
    (void) adv_buf_append_byte(b, (uint8_t) v);
}

static void put_bytes(struct adv_buf *b, uint32_t number, const void *p, size_t n)
{
    put_varint(b, (uint64_t) number << 3 | 2);
    put_varint(b, n);
    (void) adv_buf_append(b, p, n);
}

static void put_str(struct adv_buf *b, uint32_t number, const char *s)
{
    if (s && *s)
        put_bytes(b, number, s, strlen(s));
}

static int put_reasons(struct adv_buf *out, uint32_t number, const struct advice *ad)
{
    for (uint32_t i = 0; i < ad->n_reasons; i++) {
        ADV_AUTO_DONE(adv_buf) b;
        adv_buf_init(&b, adv_buf_room(out));
        put_str(&b, 1, ad->reasons[i].code);
        put_str(&b, 2, ad->reasons[i].param);
        put_str(&b, 3, ad->reasons[i].sentence);
        if (adv_buf_error(&b))
            return adv_buf_error(&b);
        put_bytes(out, number, b.data, b.len);
    }
    return 0;
}

int codec_encode(enum resource_kind kind, const void *object, struct adv_buf *out)
{
    size_t n;
    const struct field *f = table_of(kind, &n), *end = f + n;
    int r;

    for (; f < end; f++) {
        const char *p = (const char *) object + f->offset;
        uint64_t v = 0;
        uint32_t u32;
        int32_t i32;
        bool flag;
        const char *s;

        switch (f->type) {
        case F_STR:
            memcpy(&s, p, sizeof(s));
            put_str(out, f->number, s);
            continue;
        case F_REASONS:
            if ((r = put_reasons(out, f->number, object)) < 0)
                return r;
            continue;
        case F_U32:
        case F_ENUM:
            memcpy(&u32, p, sizeof(u32));
            v = u32;
            break;
        case F_I32:
            memcpy(&i32, p, sizeof(i32));
            v = (uint64_t) (int64_t) i32;
            break;
        case F_U64:
        case F_I64:
            memcpy(&v, p, sizeof(v));
            break;
        case F_BOOL:
            memcpy(&flag, p, sizeof(flag));
            v = flag;
            break;
        }
        if (v) {
            put_varint(out, (uint64_t) f->number << 3);
            put_varint(out, v);
        }
    }
    return adv_buf_error(out);
}

struct reader {
    const uint8_t *p, *end;
};

static bool get_varint(struct reader *r, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        uint8_t b = *r->p++;
        v |= (uint64_t) (b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

/* One field: number, and either a varint or a piece. Groups and fixed fields are not ours. */
static bool get_field(struct reader *r, uint32_t *number, bool *is_piece, uint64_t *v, struct reader *piece)
{
    uint64_t tag, n;

    if (!get_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
        return false;
    *number = (uint32_t) (tag >> 3);
    switch (tag & 7) {
    case 0:
        *is_piece = false;
        return get_varint(r, v);
    case 1:
        if (r->end - r->p < 8)
            return false;
        r->p += 8;
        *number = 0; /* skipped */
        *is_piece = false;
        return true;
    case 5:
        if (r->end - r->p < 4)
            return false;
        r->p += 4;
        *number = 0;
        *is_piece = false;
        return true;
    case 2:
        if (!get_varint(r, &n) || n > (uint64_t) (r->end - r->p))
            return false;
        *is_piece = true;
        *piece = (struct reader) { r->p, r->p + n };
        r->p += n;
        return true;
    default:
        return false;
    }
}

static int take_str(char **dst, const struct reader *piece)
{
    char *s = strndup((const char *) piece->p, (size_t) (piece->end - piece->p));

    if (!s)
        return -ADV_RESOURCE_EXHAUSTED;
    free(*dst);
    *dst = s;
    return 0;
}

static int take_reason(struct advice *ad, struct reader r)
{
    struct advice_reason *re;
    struct reader piece;
    uint32_t number;
    uint64_t v;
    bool is_piece;
    int rc = 0;

    if (ad->n_reasons >= ADVICE_MAX_REASONS)
        return 0;
    re = &ad->reasons[ad->n_reasons++];
    while (rc == 0 && r.p < r.end) {
        if (!get_field(&r, &number, &is_piece, &v, &piece))
            return -ADV_DATA_LOSS;
        if (is_piece && number == 1)
            rc = take_str(&re->code, &piece);
        else if (is_piece && number == 2)
            rc = take_str(&re->param, &piece);
        else if (is_piece && number == 3)
            rc = take_str(&re->sentence, &piece);
    }
    return rc;
}

static int take_number(const struct field *f, void *object, uint64_t v)
{
    char *p = (char *) object + f->offset;
    uint32_t u32 = (uint32_t) v;
    int32_t i32 = (int32_t) (int64_t) v;
    bool flag = v != 0;

    switch (f->type) {
    case F_U32:
    case F_ENUM:
        if (v > UINT32_MAX)
            return -ADV_DATA_LOSS;
        memcpy(p, &u32, sizeof(u32));
        return 0;
    case F_I32:
        memcpy(p, &i32, sizeof(i32));
        return 0;
    case F_U64:
    case F_I64:
        memcpy(p, &v, sizeof(v));
        return 0;
    case F_BOOL:
        memcpy(p, &flag, sizeof(flag));
        return 0;
    case F_STR:
    case F_REASONS:
        break;
    }
    return -ADV_DATA_LOSS;
}

void codec_reset(enum resource_kind kind, void *object)
{
    size_t n;
    const struct field *f = table_of(kind, &n), *end = f + n;
    struct advice *ad = object;

    for (; f < end; f++) {
        char *s, *p = (char *) object + f->offset;
        switch (f->type) {
        case F_STR:
            memcpy(&s, p, sizeof(s));
            free(s);
            s = NULL;
            memcpy(p, &s, sizeof(s));
            break;
        case F_REASONS:
            for (uint32_t i = 0; i < ad->n_reasons; i++) {
                free(ad->reasons[i].code);
                free(ad->reasons[i].param);
                free(ad->reasons[i].sentence);
                ad->reasons[i] = (struct advice_reason) { 0 };
            }
            ad->n_reasons = 0;
            break;
        case F_U32:
        case F_ENUM:
        case F_I32:
            memset(p, 0, 4);
            break;
        case F_U64:
        case F_I64:
            memset(p, 0, 8);
            break;
        case F_BOOL:
            memset(p, 0, sizeof(bool));
            break;
        }
    }
}

int codec_decode(enum resource_kind kind, const void *bytes, size_t len, void *object)
{
    struct reader r = { bytes, (const uint8_t *) bytes + len }, piece = { 0 };
    size_t n;
    const struct field *table = table_of(kind, &n), *f;
    uint32_t number;
    uint64_t v = 0;
    bool is_piece;
    int rc;

    while (r.p < r.end) {
        if (!get_field(&r, &number, &is_piece, &v, &piece))
            return -ADV_DATA_LOSS;
        for (f = table; f < table + n && f->number != number; f++)
            ;
        if (f == table + n)
            continue;
        if (is_piece != (f->type == F_STR || f->type == F_REASONS))
            return -ADV_DATA_LOSS;
        if (f->type == F_REASONS) {
            rc = take_reason(object, piece);
        } else if (f->type == F_STR) {
            char *s, *field = (char *) object + f->offset;
            memcpy(&s, field, sizeof(s));
            rc = take_str(&s, &piece);
            memcpy(field, &s, sizeof(s));
        } else {
            rc = take_number(f, object, v);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}
