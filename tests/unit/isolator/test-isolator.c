/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/isolator/isolator.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <utlist.h>

static char *word(const char *s)
{
    return (char *) (uintptr_t) s;
}

/* ---- the question ------------------------------------------------------------------------------------------------- */

Test(isolator, a_question_has_what_is_known)
{
    struct cluster c = { .name = word("a"), .mode = MODE_ACT };
    struct attempt a[14] = { 0 }, *index[14];
    struct job j = { .cluster = &c, .uid = word("u"), .job_id = word("7"), .attempts = index, .n_attempts = 14 };
    struct anomaly an = { .uid = word("x"), .attempt = &a[13], .rule = word("peer-gone"), .status = ANOMALY_CONFIRMED },
                   gone = { .uid = word("y"), .attempt = &a[13], .status = ANOMALY_WITHDRAWN };
    struct evidence e = { .uid = word("z"), .attempt = &a[13], .source = word("logs"), .kind = word("node-log"), .nodes = word("n2"),
                          .fault_class = word("gpu_hardware") };
    struct adv_arena ar = { 0 };
    Advisor__V1__AttributeRequest *q;

    for (uint32_t i = 0; i < 14; i++) {
        a[i] = (struct attempt) { .job = &j, .index = i, .state = JOB_FAILED, .nodes = word("n[1-4]"), .unseen = i == 11 };
        index[i] = &a[i];
    }
    DL_APPEND(a[13].anomalies, &an);
    DL_APPEND(a[13].anomalies, &gone);
    DL_APPEND(a[13].evidence, &e);
    a[13].n_anomalies = 2;
    a[13].n_evidence = 1;
    adv_arena_init(&ar, 1 << 20);
    q = isolator_question(&ar, &a[13], ATTRIBUTION_SLOW, 1234);
    cr_assert(q);
    cr_assert_eq(q->phase, ADVISOR__V1__ATTRIBUTION_PHASE__ATTRIBUTION_PHASE_SLOW);
    cr_assert_eq(q->budget_ms, 1234);
    cr_assert_str_eq(q->correlation_id, "u/13");
    cr_assert_eq(q->n_anomalies, 1, "what was withdrawn is not told");
    cr_assert_str_eq(q->anomalies[0]->rule, "peer-gone");
    cr_assert_eq(q->n_evidence, 1);
    cr_assert_str_eq(q->evidence[0]->fault_class, "gpu_hardware");
    cr_assert_eq(q->n_earlier_attempts, ISOLATOR_EARLIER_MAX);
    cr_assert_str_eq(q->earlier_attempts[0]->name, "clusters/a/jobs/u/attempts/12");
    cr_assert_str_eq(q->earlier_attempts[1]->name, "clusters/a/jobs/u/attempts/10", "nobody saw the one between");
    adv_arena_done(&ar);
    adv_arena_init(&ar, 600);
    cr_assert_null(isolator_question(&ar, &a[13], ATTRIBUTION_SLOW, 1), "no memory is no question");
    adv_arena_done(&ar);
}

/* ---- the answer --------------------------------------------------------------------------------------------------- */

static Advisor__V1__Attribution one(const char *fault_class, uint32_t confidence, size_t n_nodes)
{
    static char *nodes[ISOLATOR_NODES_MAX + 1];
    Advisor__V1__Attribution x = ADVISOR__V1__ATTRIBUTION__INIT;

    for (size_t i = 0; i < ADV_ARRAY_LEN(nodes); i++)
        nodes[i] = word("n1");
    x.fault_class = word(fault_class);
    x.confidence_percent = confidence;
    x.nodes = nodes;
    x.n_nodes = n_nodes;
    return x;
}

static struct isolator_answer read_one(const char *fault_class, uint32_t confidence, size_t n_nodes)
{
    Advisor__V1__Attribution x = one(fault_class, confidence, n_nodes), *list[] = { &x };
    Advisor__V1__AttributeResponse m = ADVISOR__V1__ATTRIBUTE_RESPONSE__INIT;
    struct isolator_answer got;

    m.attributions = list;
    m.n_attributions = 1;
    isolator_read(&m, NULL, NULL, &got);
    return got;
}

Test(isolator, what_makes_no_sense_is_left_out_and_told)
{
    static const struct {
        const char *fault_class;
        uint32_t confidence;
        size_t n_nodes;
        const char *note; /* NULL: it is taken */
    } rows[] = {
        { "gpu_hardware", 100, 1, NULL },
        { "gpu_hardware", 0, 0, NULL },
        { "gremlins", 50, ISOLATOR_NODES_MAX, NULL }, /* that there is no such class the domain knows */
        { "", 50, 1, "no class that is a word" },
        { "Gpu", 50, 1, "no class that is a word" },
        { "a_word_that_is_longer_than_any_class", 50, 1, "no class that is a word" },
        { "gpu_hardware", 101, 1, "confidence of 101 %" },
        { "gpu_hardware", UINT32_MAX, 1, "confidence of 4294967295 %" },
        { "gpu_hardware", 50, ISOLATOR_NODES_MAX + 1, "more than 1024" },
    };
    for (size_t i = 0; i < ADV_ARRAY_LEN(rows); i++) {
        struct isolator_answer got = read_one(rows[i].fault_class, rows[i].confidence, rows[i].n_nodes);
        cr_assert_eq(got.n, rows[i].note ? 0 : 1, "row %zu", i);
        cr_assert(rows[i].note ? strstr(got.note, rows[i].note) != NULL : !*got.note, "row %zu: %s", i, got.note);
    }
}

static unsigned covered;

static void cover(void *ctx, char *text)
{
    (void) ctx;
    (void) text;
    covered++;
}

Test(isolator, an_answer_is_bounded)
{
    enum { N = 5000 };
    Advisor__V1__Attribution *list[N], x[N];
    Advisor__V1__AttributeResponse m = ADVISOR__V1__ATTRIBUTE_RESPONSE__INIT;
    struct isolator_answer got;

    for (size_t i = 0; i < N; i++) {
        x[i] = one(i ? "gpu_hardware" : "No", 90, 1);
        list[i] = &x[i];
    }
    m.attributions = list;
    m.n_attributions = N;
    covered = 0;
    isolator_read(&m, cover, NULL, &got);
    cr_assert_eq(got.n, ISOLATOR_ATTRIBUTIONS_MAX - 1);
    cr_assert(strstr(got.note, "attribution 1 has no class") && strstr(got.note, "4996 more were left out"), "%s", got.note);
    cr_assert_eq(covered, 2 * (ISOLATOR_ATTRIBUTIONS_MAX - 1), "texts of outside are covered");
    for (size_t i = 0; i < N; i++)
        x[i].fault_class = word("");
    isolator_read(&m, NULL, NULL, &got);
    cr_assert_eq(got.n, 0);
    cr_assert_lt(strlen(got.note), ISOLATOR_NOTE_MAX);
}

/* ---- the pause ---------------------------------------------------------------------------------------------------- */

Test(isolator, who_fails_is_left_alone_for_longer_and_longer)
{
    struct isolator_breaker b = { 0 };
    int64_t now = 1000000, last = 0, pause;

    for (int i = 1; i < ISOLATOR_FAILS; i++) {
        cr_assert(isolator_may_ask(&b, now));
        cr_assert_eq(isolator_failed(&b, now, 7), 0);
    }
    for (int i = 0; i < 20; i++) {
        cr_assert(isolator_may_ask(&b, now), "round %d", i);
        pause = isolator_failed(&b, now, UINT32_MAX);
        cr_assert(pause >= last && pause <= ISOLATOR_PAUSE_MAX_US && pause >= ISOLATOR_PAUSE_MIN_US, "round %d: %lld", i,
                  (long long) pause);
        cr_assert_not(isolator_may_ask(&b, now + pause - 1));
        last = pause;
        now += pause;
    }
    cr_assert_eq(last, ISOLATOR_PAUSE_MAX_US);
    /* one tries; the others wait for what comes of it */
    cr_assert(isolator_may_ask(&b, now));
    cr_assert_not(isolator_may_ask(&b, now));
    isolator_called_off(&b);
    cr_assert(isolator_may_ask(&b, now));
    isolator_answered(&b);
    for (int i = 0; i < 100; i++)
        cr_assert(isolator_may_ask(&b, now), "it is back");
}

Test(isolator, calls_of_before_the_pause_make_it_no_longer)
{
    struct isolator_breaker b = { 0 };
    int64_t pause;

    for (int i = 0; i < ISOLATOR_FAILS - 1; i++)
        (void) isolator_failed(&b, 0, 0);
    pause = isolator_failed(&b, 10, 0);
    cr_assert_gt(pause, 0);
    for (int i = 0; i < 50; i++)
        cr_assert_leq(isolator_failed(&b, 20, 0), pause);
    cr_assert(isolator_may_ask(&b, 10 + pause));
}
