/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "common/jobcomment.h"
#include "controlplane/domain/policy.h"

static const struct {
    const char *comment;
    enum adv_mode mode;
    uint32_t max_restarts;
    const char *policy, *workflow, *error; /* a word of it; NULL: none */
} comments[] = {
    /* somebody's own text */
    { NULL, MODE_UNSET, 0, "", "", NULL },
    { "", MODE_UNSET, 0, "", "", NULL },
    { "please do not touch", MODE_UNSET, 0, "", "", NULL },
    { "{\"other\": {\"mode\": \"act\"}}", MODE_UNSET, 0, "", "", NULL },
    { "{broken", MODE_UNSET, 0, "", "", NULL },
    { "[1,2]", MODE_UNSET, 0, "", "", NULL },
    { "advisor", MODE_UNSET, 0, "", "", NULL },
    /* opt-in */
    { "{\"advisor\":{}}", MODE_ACT, 0, "", "", NULL },
    { " { \"advisor\" : { } , \"mine\": 1 } ", MODE_ACT, 0, "", "", NULL },
    { "{\"advisor\":{\"policy\":\"pretrain\",\"max_restarts\":5,\"workflow\":\"run7\"}}", MODE_ACT, 5, "pretrain", "run7", NULL },
    { "{\"advisor\":{\"mode\":\"act\"}}", MODE_ACT, 0, "", "", NULL },
    { "{\"advisor\":{\"mode\":\"approve\"}}", MODE_APPROVE, 0, "", "", NULL },
    { "{\"advisor\":{\"mode\":\"observe\",\"max_restarts\":2}}", MODE_OBSERVE, 2, "", "", NULL },
    { "{\"advisor\":{\"max_restarts\":1000}}", MODE_ACT, 1000, "", "", NULL },
    /* no restart wanted: at most watched */
    { "{\"advisor\":{\"max_restarts\":0}}", MODE_OBSERVE, 0, "", "", NULL },
    { "{\"advisor\":{\"max_restarts\":0,\"mode\":\"act\"}}", MODE_OBSERVE, 0, "", "", NULL },
    { "{\"advisor\":{\"max_restarts\":0,\"mode\":\"off\"}}", MODE_OFF, 0, "", "", NULL },
    /* off wins over everything else, even over what cannot be understood */
    { "{\"advisor\":{\"mode\":\"off\"}}", MODE_OFF, 0, "", "", NULL },
    { "{\"advisor\":{\"mode\":\"OFF\"}}", MODE_OFF, 0, "", "", NULL },
    { "{\"advisor\":{\"mode\":\"off\",\"max_restarts\":9}}", MODE_OFF, 9, "", "", NULL },
    { "{\"advisor\":{\"mode\":\"off\",\"bogus\":1}}", MODE_OFF, 0, "", "", "bogus" },
    { "{\"advisor\":{\"max_restarts\":\"x\",\"mode\":\"off\"}}", MODE_OFF, 0, "", "", "max_restarts" },
    { "{\"APS\":{\"auto_resume_mode\":\"requeue\"},\"advisor\":{\"mode\":\"off\"}}", MODE_OFF, 0, "", "", NULL },
    /* malformed is shown, never guessed */
    { "{\"advisor\":{\"mode\":\"on\"}}", MODE_UNSET, 0, "", "", "mode" },
    { "{\"advisor\":{\"mode\":true}}", MODE_UNSET, 0, "", "", "mode" },
    { "{\"advisor\":{\"mode\":\"act\",\"bogus\":1}}", MODE_UNSET, 0, "", "", "bogus" },
    { "{\"advisor\":{\"max_restarts\":-1}}", MODE_UNSET, 0, "", "", "max_restarts" },
    { "{\"advisor\":{\"max_restarts\":1001}}", MODE_UNSET, 0, "", "", "max_restarts" },
    { "{\"advisor\":{\"max_restarts\":2.5}}", MODE_UNSET, 0, "", "", "max_restarts" },
    { "{\"advisor\":{\"max_restarts\":\"3\"}}", MODE_UNSET, 0, "", "", "max_restarts" },
    { "{\"advisor\":{\"policy\":1}}", MODE_UNSET, 0, "", "", "policy" },
    { "{\"advisor\":{\"policy\":\"\"}}", MODE_UNSET, 0, "", "", "policy" },
    { "{\"advisor\":true}", MODE_UNSET, 0, "", "", "object" },
    { "{\"advisor\":[]}", MODE_UNSET, 0, "", "", "object" },
    { "{\"advisor\":null}", MODE_UNSET, 0, "", "", "object" },
    { "[\"advisor\"]", MODE_UNSET, 0, "", "", "object" },
    { "\"advisor\"", MODE_UNSET, 0, "", "", "object" },
    { "{\"advisor\":{}", MODE_UNSET, 0, "", "", "JSON" },
    { "{\"advisor\":{}} trailing", MODE_UNSET, 0, "", "", "JSON" },
    { "{\"advisor\":{},\"advisor\":{\"mode\":\"off\"}}", MODE_UNSET, 0, "", "", "JSON" },
    { "{\"advisor\":{\"mode\":\"act\",\"mode\":\"off\"}}", MODE_UNSET, 0, "", "", "JSON" },
    { "{\"advisor\":{\"make_requeueable\":true}}", MODE_ACT, 0, "", "", NULL },
    { "{\"advisor\":{\"make_requeueable\":false}}", MODE_ACT, 0, "", "", NULL },
    { "{\"advisor\":{\"make_requeueable\":1}}", MODE_UNSET, 0, "", "", "make_requeueable" },
    { "{\"advisor\":{\"make_requeueable\":\"true\"}}", MODE_UNSET, 0, "", "", "make_requeueable" },
    { "{\"advisor\":{\"make_requeueable\":null}}", MODE_UNSET, 0, "", "", "make_requeueable" },
    /* the older form */
    { "{\"APS\":{\"auto_resume_mode\":\"requeue\",\"max_requeue_times\":1}}", MODE_ACT, 1, "", "", NULL },
    { "{\"APS\":{\"auto_resume_mode\":\"requeue\"}}", MODE_ACT, 0, "", "", NULL },
    { "{\"APS\":{\"auto_resume_mode\":\"requeue\",\"max_requeue_times\":0}}", MODE_OBSERVE, 0, "", "", NULL },
    { "{\"APS\":{\"auto_resume_mode\":\"none\"}}", MODE_OBSERVE, 0, "", "", NULL },
    { "{\"APS\":{\"auto_resume_mode\":\"requeue\",\"else\":1}}", MODE_ACT, 0, "", "", NULL },
    { "{\"APS\":{}}", MODE_UNSET, 0, "", "", "auto_resume_mode" },
    { "{\"APS\":{\"auto_resume_mode\":1}}", MODE_UNSET, 0, "", "", "auto_resume_mode" },
    { "{\"APS\":{\"auto_resume_mode\":\"requeue\",\"max_requeue_times\":\"1\"}}", MODE_UNSET, 0, "", "", "max_requeue_times" },
    { "{\"APS\":1}", MODE_UNSET, 0, "", "", "object" },
    { "{\"APS\"", MODE_UNSET, 0, "", "", "JSON" },
    { "{\"APS\":{\"auto_resume_mode\":\"requeue\"},\"advisor\":{\"mode\":\"observe\"}}", MODE_OBSERVE, 0, "", "", NULL },
};

Test(policy, what_a_comment_says_of_requeueing)
{
    struct adv_jobcomment o;

    adv_jobcomment_parse("{\"advisor\":{\"make_requeueable\":true}}", &o);
    cr_assert_eq(o.make_requeueable, ADV_JOBCOMMENT_REQUEUE_YES);
    adv_jobcomment_parse("{\"advisor\":{\"make_requeueable\":false,\"mode\":\"act\"}}", &o);
    cr_assert_eq(o.make_requeueable, ADV_JOBCOMMENT_REQUEUE_NO);
    adv_jobcomment_parse("{\"advisor\":{}}", &o);
    cr_assert_eq(o.make_requeueable, ADV_JOBCOMMENT_REQUEUE_UNSAID);
    adv_jobcomment_parse("{\"APS\":{\"auto_resume_mode\":\"requeue\"}}", &o);
    cr_assert_eq(o.make_requeueable, ADV_JOBCOMMENT_REQUEUE_UNSAID);
}

Test(policy, comments)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(comments); i++) {
        struct adv_jobcomment o;
        const char *c = comments[i].comment;
        adv_jobcomment_parse(c, &o);
        cr_assert_eq((enum adv_mode) o.mode, comments[i].mode, "%s: mode %s, error \"%s\"", c, mode_name((enum adv_mode) o.mode), o.error);
        cr_assert_str_eq(o.policy, comments[i].policy, "%s", c);
        cr_assert_str_eq(o.workflow, comments[i].workflow, "%s", c);
        if (!comments[i].error) {
            cr_assert_str_empty(o.error, "%s: %s", c, o.error);
            cr_assert_eq(o.max_restarts, comments[i].max_restarts, "%s", c);
        } else {
            cr_assert(strstr(o.error, comments[i].error), "%s: \"%s\" has no word of %s", c, o.error, comments[i].error);
        }
    }
}

static void sized(const char *key, size_t len, bool ok)
{
    char *comment = NULL;
    char *value = calloc(1, len + 1);
    struct adv_jobcomment o;

    memset(value, 'w', len);
    cr_assert(asprintf(&comment, "{\"advisor\":{\"%s\":\"%s\"}}", key, value) > 0);
    adv_jobcomment_parse(comment, &o);
    cr_assert_eq((enum adv_mode) o.mode, ok ? MODE_ACT : MODE_UNSET, "%s of %zu: %s", key, len, o.error);
    cr_assert_eq(o.error[0] == '\0', ok);
    free(comment);
    free(value);
}

Test(policy, limits_of_words)
{
    sized("policy", 63, true);
    sized("policy", 64, false);
    sized("workflow", 256, true);
    sized("workflow", 257, false);
    sized("workflow", 5000, false);
}

Test(policy, deep_and_strange)
{
    char deep[4000];
    struct adv_jobcomment o;

    memset(deep, '[', sizeof(deep) - 1);
    memcpy(deep, "{\"advisor\":", 11);
    deep[sizeof(deep) - 1] = '\0';
    adv_jobcomment_parse(deep, &o);
    cr_assert((enum adv_mode) o.mode == MODE_UNSET && o.error[0]);
    adv_jobcomment_parse("{\"advisor\":{\"workflow\":\"\xff\xfe\"}}", &o); /* bytes that are no text */
    cr_assert((enum adv_mode) o.mode == MODE_ACT || (enum adv_mode) o.mode == MODE_UNSET);
}

/* ---- consent is the lowest of all who have a say --------------------------------------------------------------- */

static enum adv_mode job_mode(const struct job *j, char first[160])
{
    char *why[POLICY_MAX_MODE_REASONS];
    size_t n;
    enum adv_mode m = policy_job_mode(j, why, &n);

    (void) snprintf(first, 160, "%s", n ? why[0] : "");
    cr_assert_leq(n, POLICY_MAX_MODE_REASONS);
    cr_assert_eq(n > 0, m < MODE_ACT, "a lowered mode has a reason");
    for (size_t i = 0; i < n; i++)
        free(why[i]);
    return m;
}

Test(policy, the_lowest_counts)
{
    char first[160];

    for (int mode = MODE_OFF; mode <= MODE_ACT; mode++)
        for (int ceiling = MODE_UNSET; ceiling <= MODE_ACT; ceiling++)
            for (int opt = MODE_UNSET; opt <= MODE_ACT; opt++)
                for (unsigned bits = 0; bits < 64; bits++) {
                    struct cluster c = { .mode = (enum adv_mode) mode, .ceiling = (enum adv_mode) ceiling,
                                         .agent_state = bits & 1 ? AGENT_NEVER_SEEN : AGENT_CONNECTED,
                                         .journal_persistent = !(bits & 2),
                                         .epoch_warning = bits & 4 ? (char[]) { "behind" } : NULL };
                    struct job j = { .cluster = &c, .opt_mode = (enum adv_mode) opt, .incarnation_unix = bits & 8 ? 0 : 5,
                                     .batch = !(bits & 16), .comment_error = bits & 32 ? (char[]) { "malformed" } : NULL };
                    enum adv_mode want = (enum adv_mode) mode, got = job_mode(&j, first);
#define AT_MOST(m) want = want < (m) ? want : (m)
                    if (bits & 1 || ceiling == MODE_UNSET)
                        AT_MOST(MODE_OBSERVE);
                    else
                        AT_MOST((enum adv_mode) ceiling);
                    if (bits & 30 && (bits & 28 || !(bits & 1)))
                        AT_MOST(MODE_OBSERVE);
                    if (bits & 32)
                        AT_MOST(opt == MODE_OFF ? MODE_OFF : MODE_OBSERVE);
                    else
                        AT_MOST(opt == MODE_UNSET ? MODE_OBSERVE : (enum adv_mode) opt);
#undef AT_MOST
                    cr_assert_eq(got, want, "mode %d ceiling %d opt %d bits %x: %s, wanted %s (%s)", mode, ceiling, opt, bits,
                                 mode_name(got), mode_name(want), first);
                }
}

Test(policy, the_first_reason_is_the_strongest)
{
    struct cluster c = { .mode = MODE_APPROVE, .ceiling = MODE_ACT, .agent_state = AGENT_CONNECTED, .journal_persistent = true };
    struct job j = { .cluster = &c, .opt_mode = MODE_OFF, .incarnation_unix = 1, .batch = true };
    char first[160];

    cr_assert_eq(job_mode(&j, first), MODE_OFF);
    cr_assert(strstr(first, "comment"), "%s", first);
    j.opt_mode = MODE_ACT;
    cr_assert_eq(job_mode(&j, first), MODE_APPROVE);
    cr_assert(strstr(first, "cluster's mode"), "%s", first);
}
