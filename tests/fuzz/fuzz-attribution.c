/* SPDX-License-Identifier: Apache-2.0 */
/* A provider's answer, from its bytes to what the domain makes of it. */

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "controlplane/isolator/isolator.h"
#include "controlplane/rpc/door.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void excerpt(void *ctx, char *text)
{
    (void) ctx;
    if (strlen(text) > 3)
        text[3] = 'x';
}

static void apply(struct fleet *f, struct event *ev)
{
    struct intents in;

    intents_init(&in);
    ev->cluster = "a";
    ev->now_us += 1000000;
    ev->mono_us = ev->now_us;
    if (fleet_apply(f, ev, &in, NULL) < 0 || in.oom)
        abort();
    intents_done(&in);
}

static void judge(const struct isolator_answer *answer)
{
    struct fleet_config cfg = { .lease_us = 1000000 };
    struct event ev = { .type = EV_CLUSTER_CREATE, .now_us = 1000000LL * 1000000, .principal = "fuzz" };
    struct job_obs o = { .job_id = "7", .state = JOB_FAILED, .state_raw = "x", .submit_unix = 5, .batch = true, .requeueable = true,
                         .nodes = "n[1-4]", .detail_known = true, .comment = "{\"advisor\":{}}", .hash = 3, .start_unix = 1,
                         .end_unix = 1000000, .exit_code = 1 };
    char name[RESOURCE_NAME_MAX];
    struct fleet *f;
    struct attempt *a;
    const struct evidence *e;

    policy_defaults(&cfg.policy);
    cfg.policy.attribution_fast_us = 2000000;
    cfg.policy.attribution_min_percent = 60;
    f = fleet_new(&cfg);
    if (!f)
        abort();
    fleet_load_done(f, true, 0, 0);
    apply(f, &ev);
    ev.type = EV_AGENT_HELLO;
    ev.u.hello.instance_id = "i";
    ev.u.hello.journal_id = "j";
    ev.u.hello.ceiling = MODE_ACT;
    apply(f, &ev);
    memset(&ev.u, 0, sizeof(ev.u));
    ev.type = EV_STATE_UPDATE;
    ev.u.state.instance_id = "i";
    ev.u.state.full_begin = ev.u.state.full_end = true;
    ev.u.state.jobs = &o;
    ev.u.state.n_jobs = 1;
    ev.u.state.digest = o.hash;
    apply(f, &ev);
    a = job_attempt(fleet_find_job(f->clusters, "7"), 0);
    a->attribution_us = 1;
    a->attribution_fast = ATTRIBUTION_ASKED;
    memset(&ev.u, 0, sizeof(ev.u));
    ev.type = EV_ATTRIBUTION;
    ev.u.attribution.attempt_name = attempt_resource_name(a, name);
    ev.u.attribution.phase = ATTRIBUTION_FAST;
    ev.u.attribution.v = answer->v;
    ev.u.attribution.n = answer->n;
    ev.u.attribution.note = answer->note;
    ev.u.attribution.answered = true;
    apply(f, &ev);
    if (a->n_evidence > ISOLATOR_ATTRIBUTIONS_MAX || a->attribution_fast != ATTRIBUTION_ANSWERED)
        abort();
    DL_FOREACH (a->evidence, e) {
        ADV_AUTO(adv_hostlist) own = adv_hostlist_new(8);
        ADV_AUTO(adv_hostlist) named = adv_hostlist_new(8);
        if (!own || !named || nodes_add(own, "n[1-4]") < 0 || nodes_add(named, str_or(e->nodes)) < 0)
            abort();
        adv_hostlist_minus(named, own);
        if (adv_hostlist_count(named) > 0 || e->weight_percent > 100 || !fault_class_known(e->fault_class))
            abort();
    }
    (void) fleet_free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ADV_AUTO_DONE(adv_arena) arena;
    ProtobufCMessage *m;
    struct isolator_answer answer;

    adv_arena_init(&arena, 0);
    if (size > ISOLATOR_ANSWER_MAX || rpc_door_decode(&advisor__v1__attribute_response__descriptor, data, size, &arena, &m, NULL) < 0)
        return 0;
    isolator_read((const Advisor__V1__AttributeResponse *) m, excerpt, NULL, &answer);
    if (answer.n > ISOLATOR_ATTRIBUTIONS_MAX || strlen(answer.note) >= ISOLATOR_NOTE_MAX)
        abort();
    judge(&answer);
    return 0;
}
