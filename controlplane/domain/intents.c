/* SPDX-License-Identifier: Apache-2.0 */
/* What an event changed, in the order in which it changed: the objects, once each, and the audit events with their chain
 * of hashes. */

#include "controlplane/domain/internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/digest.h"

/* ---- intents ---------------------------------------------------------------------------------------------------- */

void intents_init(struct intents *in)
{
    *in = (struct intents) { 0 };
}

static bool *dirty_mark(const struct intent *i)
{
    switch (i->kind) {
    case RESOURCE_CLUSTER:
        return &((struct cluster *) i->object)->dirty;
    case RESOURCE_JOB:
        return &((struct job *) i->object)->dirty;
    case RESOURCE_ATTEMPT:
        return &((struct attempt *) i->object)->dirty;
    case RESOURCE_ANOMALY:
        return &((struct anomaly *) i->object)->dirty;
    case RESOURCE_ADVICE:
        return &((struct advice *) i->object)->dirty;
    case RESOURCE_ACTION:
        return &((struct action *) i->object)->dirty;
    case RESOURCE_NODE:
        return &((struct node *) i->object)->dirty;
    case RESOURCE_EXCLUSION:
    case RESOURCE_INCIDENT:
    case RESOURCE_WINDOW:
    case RESOURCE_POLICY:
    case RESOURCE_CHECKPOINT:
        return &((struct entry *) i->object)->dirty;
    case RESOURCE_EVIDENCE:
        return &((struct evidence *) i->object)->dirty;
    case RESOURCE_ENROLMENT:
        return &((struct enrolment *) i->object)->dirty;
    case RESOURCE_REVOCATION:
        return &((struct revocation *) i->object)->dirty;
    case RESOURCE_AUDIT:
    case RESOURCE_NONE:
    case RESOURCE_KIND_END_:
        break;
    }
    return NULL;
}

void intents_done(struct intents *in)
{
    for (size_t i = 0; i < in->n; i++) {
        bool *d = in->v[i].object ? dirty_mark(&in->v[i]) : NULL;
        if (d)
            *d = false;
        free(in->v[i].gone_key);
    }
    for (size_t i = 0; i < in->n_audit; i++) {
        struct audit_record *r = &in->audit[i];
        free(r->prev_hash);
        free(r->hash);
        free(r->principal);
        free(r->verb);
        free(r->subject);
        free(r->detail);
        free(r->salt);
        free(r->detail_hash);
        free(r->event_id);
    }
    for (size_t i = 0; i < in->n_audit_changes; i++)
        free(in->audit_changes[i].erase_below);
    for (size_t i = 0; i < in->n_requests; i++) {
        free(in->requests[i].request_id);
        free(in->requests[i].hash);
    }
    free(in->v);
    free(in->audit);
    free(in->audit_changes);
    free(in->requests);
    *in = (struct intents) { 0 };
}

void *fleet_grow(struct intents *in, void *v, size_t n, size_t *cap, size_t size)
{
    size_t want = *cap ? *cap * 2 : 16;
    void *p;

    if (n < *cap)
        return v;
    p = realloc(v, want * size);
    if (!p) {
        in->oom = true;
        return NULL;
    }
    *cap = want;
    return p;
}

void fleet_touch(struct intents *in, enum resource_kind kind, void *object, struct cluster *c)
{
    struct intent i = { kind, object, c, NULL };
    bool *d = dirty_mark(&i);
    void *p;

    if (*d)
        return;
    p = fleet_grow(in, in->v, in->n, &in->cap, sizeof(*in->v));
    if (!p)
        return;
    in->v = p;
    in->v[in->n++] = i;
    *d = true;
}

void fleet_touch_gone(struct intents *in, enum resource_kind kind, void *object, struct cluster *c)
{
    char key[RESOURCE_KEY_MAX];

    fleet_touch(in, kind, object, c);
    for (size_t i = in->n; i-- > 0;)
        if (in->v[i].kind == kind && in->v[i].object == object) {
            in->v[i].object = NULL;
            if (!(in->v[i].gone_key = strdup(resource_key(kind, object, key))))
                in->oom = true;
            return;
        }
}

void fleet_touch_cluster(struct intents *in, struct cluster *c)
{
    fleet_touch(in, RESOURCE_CLUSTER, c, c);
}
void fleet_touch_job(struct intents *in, struct job *j)
{
    fleet_touch(in, RESOURCE_JOB, j, j->cluster);
}
void fleet_touch_attempt(struct intents *in, struct attempt *a)
{
    fleet_touch(in, RESOURCE_ATTEMPT, a, a->job->cluster);
}
void fleet_touch_anomaly(struct intents *in, struct anomaly *an)
{
    fleet_touch(in, RESOURCE_ANOMALY, an, an->attempt->job->cluster);
}
void fleet_touch_advice(struct intents *in, struct advice *ad)
{
    fleet_touch(in, RESOURCE_ADVICE, ad, ad->attempt->job->cluster);
}

bool str_set(struct intents *in, char **dst, const char *src)
{
    char *copy = NULL;

    if (adv_streq(str_or(*dst), str_or(src)))
        return false;
    if (src && *src && !(copy = strdup(src))) {
        in->oom = true;
        return false;
    }
    free(*dst);
    *dst = copy;
    return true;
}

/* printf into a heap string; NULL and oom when memory is gone */
char *fleet_strf(struct intents *in, const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0) {
        in->oom = true;
        s = NULL;
    }
    va_end(ap);
    return s;
}

void fleet_str_take(char **dst, char *s)
{
    free(*dst);
    *dst = s;
}

/* ---- audit ------------------------------------------------------------------------------------------------------ */

/* The hash of an event covers the hash of the one before it and every field, each with its length in front, so that
 * no two different events have the same bytes. Of the detail it covers a hash, salted so that a short text cannot be
 * guessed from it: then the detail can be erased, and the chain still holds. resources.proto says the same to clients. */
bool audit_detail_hash(const char *salt, const char *detail, char ret_hex[ADV_SHA256_HEX_SIZE])
{
    ADV_AUTO_DONE(adv_buf) b;
    uint8_t raw[ADV_SHA256_LEN];

    adv_buf_init(&b, 1 << 20);
    (void) adv_buf_append_str(&b, salt);
    (void) adv_buf_append_str(&b, detail);
    if (adv_buf_error(&b) || adv_sha256(b.data, b.len, raw, NULL) < 0)
        return false;
    (void) adv_hex(raw, sizeof(raw), ret_hex);
    return true;
}

/* " <length>:<text>" */
static void put_field(struct adv_buf *b, const char *text)
{
    size_t len = strlen(text), n = len;
    char head[24], *p = head + sizeof(head);

    *--p = ':';
    do
        *--p = (char) ('0' + n % 10);
    while (n /= 10);
    *--p = ' ';
    (void) adv_buf_append(b, p, (size_t) (head + sizeof(head) - p));
    (void) adv_buf_append(b, text, len);
}

bool audit_hash(const struct audit_row *r, char ret_hex[ADV_SHA256_HEX_SIZE])
{
    const char *fields[] = { r->cluster, r->prev_hash, r->principal, r->verb, r->subject, r->event_id, r->detail_hash };
    ADV_AUTO_DONE(adv_buf) b;
    uint8_t raw[ADV_SHA256_LEN];

    adv_buf_init(&b, 1 << 20);
    (void) adv_buf_appendf(&b, "%llu %lld %lld", (unsigned long long) r->seq, (long long) r->observe_us,
                           (long long) r->record_us);
    for (size_t i = 0; i < ADV_ARRAY_LEN(fields); i++)
        put_field(&b, str_or(fields[i]));
    if (adv_buf_error(&b) || adv_sha256(b.data, b.len, raw, NULL) < 0)
        return false;
    (void) adv_hex(raw, sizeof(raw), ret_hex);
    return true;
}

/* Another one for every audit event. */
static bool draw_salt(const struct event *ev, const struct cluster *c, char ret[33])
{
    char text[sizeof(ev->seed) * 2 + 128], hex[sizeof(ev->seed) * 2 + 1];
    uint8_t raw[ADV_SHA256_LEN];
    int n = snprintf(text, sizeof(text), "%s %.64s %llu", adv_hex(ev->seed, sizeof(ev->seed), hex), c->name,
                     (unsigned long long) c->audit_seq);

    if (adv_sha256(text, (size_t) n, raw, NULL) < 0)
        return false;
    (void) adv_hex(raw, 16, ret);
    return true;
}

/* The event's hashes, and its place in the chain. */
static bool chain(struct intents *in, struct audit_record *r, const struct event *ev)
{
    char salt[33], detail[ADV_SHA256_HEX_SIZE], hash[ADV_SHA256_HEX_SIZE];
    struct audit_row row = { .seq = r->seq, .prev_hash = r->prev_hash, .principal = r->principal, .verb = r->verb,
                             .subject = r->subject, .event_id = r->event_id, .detail_hash = detail,
                             .observe_us = r->observe_us, .record_us = r->record_us };

    (void) snprintf(row.cluster, sizeof(row.cluster), "%s", r->cluster->name);
    if (!draw_salt(ev, r->cluster, salt) || !audit_detail_hash(salt, r->detail, detail) || !audit_hash(&row, hash))
        return false;
    r->salt = strdup(salt);
    r->detail_hash = strdup(detail);
    r->hash = strdup(hash);
    (void) str_set(in, &r->cluster->audit_hash, hash);
    return r->salt && r->detail_hash && r->hash;
}

/* Takes @detail over. */
static void put_audit(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us, const char *verb,
                      const char *subject, const char *event_id, char *detail)
{
    struct audit_record r = { .cluster = c, .observe_us = observe_us, .record_us = ev->now_us, .detail = detail };
    void *p = fleet_grow(in, in->audit, in->n_audit, &in->cap_audit, sizeof(*in->audit));

    if (!p) {
        free(detail);
        return;
    }
    in->audit = p;
    r.seq = ++c->audit_seq;
    r.prev_hash = strdup(str_or(c->audit_hash));
    r.principal = strdup(ev->principal ? ev->principal : "advisord");
    r.verb = strdup(verb);
    r.subject = strdup(subject);
    r.event_id = event_id ? strdup(event_id) : NULL;
    in->audit[in->n_audit++] = r;
    if (!r.detail || !r.prev_hash || !r.principal || !r.verb || !r.subject || (event_id && !r.event_id) ||
        !chain(in, &in->audit[in->n_audit - 1], ev)) {
        in->oom = true;
        return;
    }
    fleet_touch_cluster(in, c);
}

void fleet_audit(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us, const char *verb,
                  const char *subject, const char *fmt, ...)
{
    char *detail = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&detail, fmt, ap) < 0)
        detail = NULL;
    va_end(ap);
    put_audit(in, c, ev, observe_us, verb, subject, NULL, detail);
}

void fleet_audit_outside(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us,
                         const char *verb, const char *subject, const char *event_id, const char *detail)
{
    put_audit(in, c, ev, observe_us, verb, subject, event_id, strdup(detail));
}

static struct audit_change *add_change(struct intents *in, struct cluster *c)
{
    void *p = fleet_grow(in, in->audit_changes, in->n_audit_changes, &in->cap_audit_changes, sizeof(*in->audit_changes));

    if (!p)
        return NULL;
    in->audit_changes = p;
    in->audit_changes[in->n_audit_changes] = (struct audit_change) { .cluster = c };
    fleet_touch_cluster(in, c);
    return &in->audit_changes[in->n_audit_changes++];
}

void fleet_audit_erase(struct intents *in, struct cluster *c, const char *subject)
{
    struct audit_change *ch = add_change(in, c);

    if (ch && !(ch->erase_below = strdup(subject)))
        in->oom = true;
}

void fleet_audit_cut(struct intents *in, struct cluster *c, uint64_t through_seq)
{
    struct audit_change *ch = add_change(in, c);

    if (ch)
        ch->cut_through = through_seq;
}
