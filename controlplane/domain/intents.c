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
        return &((struct entry *) i->object)->dirty;
    case RESOURCE_EVIDENCE:
        return &((struct evidence *) i->object)->dirty;
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
    }
    for (size_t i = 0; i < in->n_requests; i++) {
        free(in->requests[i].request_id);
        free(in->requests[i].hash);
    }
    free(in->v);
    free(in->audit);
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
 * no two different events have the same bytes. */
static char *audit_hash(struct intents *in, const struct audit_record *r)
{
    ADV_AUTO_DONE(adv_buf) b;
    uint8_t raw[ADV_SHA256_LEN];
    char *hex = malloc(ADV_SHA256_HEX_SIZE);
    const char *fields[] = { r->cluster->name, str_or(r->prev_hash), r->principal, r->verb, r->subject, r->detail };

    adv_buf_init(&b, 1 << 20);
    (void) adv_buf_appendf(&b, "%llu %lld %lld", (unsigned long long) r->seq, (long long) r->observe_us,
                           (long long) r->record_us);
    for (size_t i = 0; i < ADV_ARRAY_LEN(fields); i++)
        (void) adv_buf_appendf(&b, " %zu:%s", strlen(str_or(fields[i])), str_or(fields[i]));
    if (!hex || adv_buf_error(&b) || adv_sha256(b.data, b.len, raw, NULL) < 0) {
        in->oom = true;
        free(hex);
        return NULL;
    }
    (void) adv_hex(raw, sizeof(raw), hex);
    return hex;
}

void fleet_audit(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us, const char *verb,
                  const char *subject, const char *fmt, ...)
{
    struct audit_record r = { .cluster = c, .observe_us = observe_us, .record_us = ev->now_us };
    void *p = fleet_grow(in, in->audit, in->n_audit, &in->cap_audit, sizeof(*in->audit));
    va_list ap;

    if (!p)
        return;
    in->audit = p;
    va_start(ap, fmt);
    if (vasprintf(&r.detail, fmt, ap) < 0)
        r.detail = NULL;
    va_end(ap);
    r.seq = ++c->audit_seq;
    r.prev_hash = strdup(str_or(c->audit_hash));
    r.principal = strdup(ev->principal ? ev->principal : "advisord");
    r.verb = strdup(verb);
    r.subject = strdup(subject);
    in->audit[in->n_audit++] = r;
    if (!r.detail || !r.prev_hash || !r.principal || !r.verb || !r.subject) {
        in->oom = true;
        return;
    }
    in->audit[in->n_audit - 1].hash = audit_hash(in, &r);
    (void) str_set(in, &c->audit_hash, in->audit[in->n_audit - 1].hash);
    fleet_touch_cluster(in, c);
}
