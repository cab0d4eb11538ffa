/* SPDX-License-Identifier: Apache-2.0 */
/* What hangs on a cluster by a uid: limits, versions, repeated calls. Their meaning is in the event scripts. */

#include <criterion/criterion.h>
#include <stdio.h>

#include "controlplane/domain/entries.h"

static struct fleet *f;
static struct cluster *c;
static struct adv_err err;
static int64_t now_us;

static int apply(struct event *ev)
{
    struct intents in;
    int r;

    intents_init(&in);
    err = (struct adv_err) { 0 };
    ev->now_us = ev->mono_us = now_us;
    ev->principal = "operator:t";
    if (!ev->cluster)
        ev->cluster = "alpha";
    r = fleet_apply(f, ev, &in, &err);
    cr_assert(!in.oom);
    for (size_t i = 0; i < in.n; i++) /* as the turn would */
        if (in.v[i].object && entry_size(in.v[i].kind))
            ((struct entry *) in.v[i].object)->revision = ++in.v[i].cluster->revision;
    intents_done(&in);
    return r;
}

static void setup(void)
{
    const struct fleet_config cfg = { .lease_us = 1000000 };
    struct event ev = { .type = EV_CLUSTER_CREATE };

    now_us = 1000000000000;
    f = fleet_new(&cfg);
    cr_assert(f);
    fleet_load_done(f, true, now_us, now_us);
    cr_assert_eq(apply(&ev), 0);
    c = fleet_find_cluster(f, "alpha");
    cr_assert(c);
}

static void teardown(void)
{
    f = fleet_free(f);
}

TestSuite(entries, .init = setup, .fini = teardown);

static int exclude(const char *node, const char *request_id, int64_t expire_us)
{
    struct event ev = { .type = EV_EXCLUSION_ADD, .request_id = request_id };

    ev.u.exclusion.node = node;
    ev.u.exclusion.reason = "r";
    ev.u.exclusion.expire_us = expire_us;
    return apply(&ev);
}

static int on_entry(enum event_type type, const char *uid, uint64_t if_revision)
{
    struct event ev = { .type = type };

    ev.u.entry.uid = uid;
    ev.u.entry.if_revision = if_revision;
    ev.u.entry.reason = "";
    return apply(&ev);
}

static int plan(int64_t start_us, int64_t end_us)
{
    struct event ev = { .type = EV_WINDOW_CREATE };

    ev.u.window.start_us = start_us;
    ev.u.window.end_us = end_us;
    ev.u.window.reason = "r";
    return apply(&ev);
}

static int put_policy(const char *name, const char *document, uint64_t if_revision)
{
    struct event ev = { .type = EV_POLICY_APPLY, .cluster = FLEET_CLUSTER };

    ev.u.policy.name = name;
    ev.u.policy.document = ev.u.policy.document_sha256 = document;
    ev.u.policy.if_revision = if_revision;
    return apply(&ev);
}

Test(entries, so_many_exclusions_and_no_more)
{
    char node[16];

    for (int i = 0; i < 1024; i++) {
        (void) snprintf(node, sizeof(node), "n%d", i);
        cr_assert_eq(exclude(node, NULL, 0), 0);
    }
    cr_assert_eq(exclude("x", NULL, 0), -ADV_RESOURCE_EXHAUSTED);
    cr_assert_str_eq(err.reason, "EXCLUSION_LIMIT");
    cr_assert_eq(on_entry(EV_EXCLUSION_LIFT, c->entries[RESOURCE_EXCLUSION]->uid, 0), 0);
    cr_assert_eq(exclude("x", NULL, 0), 0);
    cr_assert_eq(exclusions_active(c), 1024);
}

Test(entries, so_many_windows_and_no_more)
{
    for (int i = 0; i < 256; i++)
        cr_assert_eq(plan(now_us + 1000, now_us + 2000), 0);
    cr_assert_eq(plan(0, now_us + 2000), -ADV_RESOURCE_EXHAUSTED);
    cr_assert_str_eq(err.reason, "WINDOW_LIMIT");
    cr_assert_eq(on_entry(EV_WINDOW_END, c->entries[RESOURCE_WINDOW]->uid, 0), 0);
    cr_assert_eq(plan(0, now_us + 2000), 0);
}

Test(entries, so_many_policies_and_no_more)
{
    char name[16];

    for (int i = 0; i < 1000; i++) {
        (void) snprintf(name, sizeof(name), "p%d", i);
        cr_assert_eq(put_policy(name, "a", 0), 0);
    }
    cr_assert_eq(put_policy("x", "a", 0), -ADV_RESOURCE_EXHAUSTED);
    cr_assert_str_eq(err.reason, "POLICY_LIMIT");
    cr_assert_eq(put_policy("p1", "b", 0), 0);
    cr_assert_eq(policy_doc_find(f, "p1", 0)->version, 2);
    cr_assert_str_eq(policy_doc_find(f, "p1", 1)->document, "a");
    cr_assert_null(policy_doc_find(f, "p1", 3));
    cr_assert_null(policy_doc_find(f, "q", 0));
}

Test(entries, versions_guard_updates)
{
    struct policy_doc *p;
    struct entry *x;

    cr_assert_eq(put_policy("p", "a", 77), -ADV_ABORTED);
    cr_assert_eq(put_policy("p", "a", 0), 0);
    p = policy_doc_find(f, "p", 0);
    cr_assert_eq(put_policy("p", "b", p->e.revision + 1), -ADV_ABORTED);
    cr_assert_str_eq(err.reason, "ETAG_MISMATCH");
    cr_assert_eq(put_policy("p", "b", p->e.revision), 0);
    cr_assert_eq(put_policy("p", "b", 0), 0);
    cr_assert_eq(policy_doc_find(f, "p", 0)->version, 2, "the same document is no new version");

    cr_assert_eq(exclude("n1", NULL, 0), 0);
    x = c->entries[RESOURCE_EXCLUSION];
    cr_assert_eq(on_entry(EV_EXCLUSION_LIFT, x->uid, x->revision + 1), -ADV_ABORTED);
    x->dirty = true; /* changed earlier in the same turn: not what the caller read */
    cr_assert_eq(on_entry(EV_EXCLUSION_LIFT, x->uid, x->revision), -ADV_ABORTED);
    x->dirty = false;
    cr_assert_eq(on_entry(EV_EXCLUSION_LIFT, x->uid, x->revision), 0);
}

Test(entries, what_is_not_there)
{
    static const struct {
        enum event_type type;
        const char *reason;
    } t[] = { { EV_EXCLUSION_LIFT, "EXCLUSION_NOT_FOUND" },
              { EV_WINDOW_END, "WINDOW_NOT_FOUND" },
              { EV_INCIDENT_CLOSE, "INCIDENT_NOT_FOUND" } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        cr_assert_eq(on_entry(t[i].type, "nope", 0), -ADV_NOT_FOUND);
        cr_assert_str_eq(err.reason, t[i].reason);
        cr_assert_eq(on_entry(t[i].type, NULL, 0), -ADV_NOT_FOUND);
    }
}

Test(entries, a_call_finds_what_it_made)
{
    cr_assert_eq(exclude("n1", "req-1", 0), 0);
    cr_assert_eq(exclude("n2", "req-2", 0), 0);
    cr_assert_str_eq(((struct exclusion *) entry_find_request(c, RESOURCE_EXCLUSION, "req-2"))->node, "n2");
    cr_assert_null(entry_find_request(c, RESOURCE_EXCLUSION, "req-3"));
    cr_assert_null(entry_find_request(c, RESOURCE_EXCLUSION, ""));
    cr_assert_null(entry_find_request(c, RESOURCE_WINDOW, "req-1"));
}

Test(entries, deadlines_are_kept_in_order)
{
    struct event tick = { .type = EV_TICK };
    const struct exclusion *x;

    cr_assert_eq(fleet_next_deadline(f), 0);
    cr_assert_eq(exclude("n1", NULL, now_us + 5000), 0);
    cr_assert_eq(plan(now_us + 1000, now_us + 9000), 0);
    cr_assert_eq(fleet_next_deadline(f), now_us + 1000);
    now_us += 1000;
    cr_assert_eq(apply(&tick), 0);
    cr_assert_eq(c->maintenance_until_us, now_us + 8000);
    cr_assert_eq(fleet_next_deadline(f), now_us + 4000);
    now_us += 4000;
    cr_assert_eq(apply(&tick), 0);
    x = (struct exclusion *) c->entries[RESOURCE_EXCLUSION];
    cr_assert_eq(x->state, EXCLUSION_EXPIRED);
    now_us += 4000;
    cr_assert_eq(apply(&tick), 0);
    cr_assert_eq(c->maintenance_until_us, 0);
    cr_assert_eq(c->listen_us, now_us);
    cr_assert_eq(fleet_next_deadline(f), 0);
}

/* However the table is ordered: the store's rows come in the order of their keys, a list may have been newest first. */
Test(entries, oldest_checkpoint_goes)
{
    struct event ev = { .type = EV_AUDIT_CUT };
    struct event mode = { .type = EV_SET_MODE, .u.set_mode.mode = MODE_OBSERVE };
    char uid[32];

    cr_assert_eq(apply(&mode), 0);
    for (int i = 64; i > 0; i--) {
        struct checkpoint *cp = calloc(1, sizeof(*cp));
        cr_assert(cp);
        (void) snprintf(uid, sizeof(uid), "%018d", i);
        cr_assert(cp->e.uid = strdup(uid));
        cr_assert_eq(fleet_load_entry(c, RESOURCE_CHECKPOINT, &cp->e), 0);
    }
    ev.u.cut.seq = 1;
    ev.u.cut.hash = "h";
    ev.u.cut.store_uuid = "u";
    cr_assert_eq(apply(&ev), 0);
    cr_assert_null(entry_find(c, RESOURCE_CHECKPOINT, "000000000000000001"));
    cr_assert(entry_find(c, RESOURCE_CHECKPOINT, "000000000000000064"));
}
