/* SPDX-License-Identifier: Apache-2.0 */
/* What operators change: advice of which they decide, nodes, windows, incidents, policies, and what is known of a user. */

#include "ctl/internal.h"

#include <errno.h>

#include "advisor/v1/policy_service.pb-c.h"
#include "common/buf.h"
#include "common/num.h"

#define DOCUMENT_MAX (1 << 20)

/* ---- advice ------------------------------------------------------------------------------------------------------- */

/* The attempt of the first word, and the generation that was given or, with @read_it, is read. */
static int take_advice(struct ctl *ctl, bool read_it, char cluster[ARGS_PART_SIZE], char job[ARGS_PART_SIZE],
                       Advisor__V1__AttemptRef *ref, uint64_t *ret_generation, enum ctl_exit *ret_exit)
{
    const char *text = ctl->args->option[OPT_GENERATION];
    Advisor__V1__GetAdviceRequest q = ADVISOR__V1__GET_ADVICE_REQUEST__INIT;
    Advisor__V1__GetAdviceResponse *m;
    struct adv_err err = { 0 };
    struct failure f;
    int64_t attempt;

    *ret_exit = CTL_EXIT_USAGE;
    if (ctl_job_ref(ctl, true, cluster, job, ref, &attempt) < 0)
        return -1;
    if (!text && !read_it) {
        (void) ctl_bad_usage("expected --generation N, the one that you read: `advisorctl explain` shows it");
        return -1;
    }
    if (text && adv_parse_u64(text, 1, UINT64_MAX, ret_generation, &err) < 0) {
        adv_err_wrap(&err, "--generation");
        (void) ctl_bad_usage(err.msg);
        return -1;
    }
    ref->restart_count = attempt < 0 ? 0 : (uint32_t) attempt;
    if (attempt < 0 && ctl_newest_judged(ctl, ref, true, &f) < 0)
        goto failed;
    if (text)
        return 0;
    q.ref = ref;
    if (client_call(ctl->client, CTL_PATH(AdviceService, GetAdvice), &q.base, &advisor__v1__get_advice_response__descriptor,
                    (ProtobufCMessage **) &m, &f) < 0)
        goto failed;
    *ret_generation = m->advice ? m->advice->generation : 0;
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return 0;
failed:
    *ret_exit = ctl_failed(ctl, &f);
    return -1;
}

enum ctl_exit cmd_approve(struct ctl *ctl)
{
    Advisor__V1__ApproveAdviceRequest q = ADVISOR__V1__APPROVE_ADVICE_REQUEST__INIT;
    Advisor__V1__AttemptRef ref = ADVISOR__V1__ATTEMPT_REF__INIT;
    char cluster[ARGS_PART_SIZE], job[ARGS_PART_SIZE], id[ADV_UUID_SIZE];
    enum ctl_exit x;

    if (take_advice(ctl, false, cluster, job, &ref, &q.generation, &x) < 0)
        return x;
    ctl_request_id(id);
    q.request_id = id;
    q.ref = &ref;
    q.reason = ctl_text(ctl, OPT_REASON);
    CTL_ONE(ctl, AdviceService, ApproveAdvice, q, Advisor__V1__ApproveAdviceResponse,
            &advisor__v1__approve_advice_response__descriptor, advice, show_advice_list);
}

enum ctl_exit cmd_reject(struct ctl *ctl)
{
    Advisor__V1__RejectAdviceRequest q = ADVISOR__V1__REJECT_ADVICE_REQUEST__INIT;
    Advisor__V1__AttemptRef ref = ADVISOR__V1__ATTEMPT_REF__INIT;
    char cluster[ARGS_PART_SIZE], job[ARGS_PART_SIZE], id[ADV_UUID_SIZE];
    enum ctl_exit x;

    if (take_advice(ctl, false, cluster, job, &ref, &q.generation, &x) < 0)
        return x;
    ctl_request_id(id);
    q.request_id = id;
    q.ref = &ref;
    q.reason = ctl_text(ctl, OPT_REASON);
    CTL_ONE(ctl, AdviceService, RejectAdvice, q, Advisor__V1__RejectAdviceResponse,
            &advisor__v1__reject_advice_response__descriptor, advice, show_advice_list);
}

enum ctl_exit cmd_verdict(struct ctl *ctl)
{
    Advisor__V1__RecordVerdictRequest q = ADVISOR__V1__RECORD_VERDICT_REQUEST__INIT;
    Advisor__V1__AttemptRef ref = ADVISOR__V1__ATTEMPT_REF__INIT;
    char cluster[ARGS_PART_SIZE], job[ARGS_PART_SIZE], id[ADV_UUID_SIZE];
    int value = ctl_word("verdict", ctl->args->word[1], &advisor__v1__verdict_value__descriptor);
    enum ctl_exit x;

    if (value < 0)
        return CTL_EXIT_USAGE;
    if (take_advice(ctl, true, cluster, job, &ref, &q.generation, &x) < 0)
        return x;
    ctl_request_id(id);
    q.request_id = id;
    q.ref = &ref;
    q.verdict = (Advisor__V1__VerdictValue) value;
    q.why = ctl_text(ctl, OPT_REASON);
    CTL_ONE(ctl, AdviceService, RecordVerdict, q, Advisor__V1__RecordVerdictResponse,
            &advisor__v1__record_verdict_response__descriptor, advice, show_advice_list);
}

/* ---- exclusions, windows, incidents ------------------------------------------------------------------------------- */

/* "clusters/a/<collection>/<id>" of the words CLUSTER and ID. */
static char *entry_name(const struct ctl *ctl, const char *collection, char out[512])
{
    (void) snprintf(out, 512, "clusters/%.200s/%s/%.200s", ctl->args->word[0], collection, ctl->args->word[1]);
    return out;
}

enum ctl_exit cmd_exclusions(struct ctl *ctl)
{
    Advisor__V1__ListExclusionsRequest q = ADVISOR__V1__LIST_EXCLUSIONS_REQUEST__INIT;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.node = ctl_text(ctl, OPT_NODE);
    q.show_over = ctl->args->option[OPT_ALL] != NULL;
    CTL_LIST(ctl, FleetService, ListExclusions, q, Advisor__V1__ListExclusionsResponse,
             &advisor__v1__list_exclusions_response__descriptor, exclusions, n_exclusions, show_exclusions);
}

enum ctl_exit cmd_exclude(struct ctl *ctl)
{
    Advisor__V1__AddExclusionRequest q = ADVISOR__V1__ADD_EXCLUSION_REQUEST__INIT;
    Google__Protobuf__Timestamp end;
    char name[300], id[ADV_UUID_SIZE];

    if (ctl_time(ctl, OPT_END, "end", &end, &q.expire_time) < 0)
        return CTL_EXIT_USAGE;
    ctl_request_id(id);
    q.request_id = id;
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    q.node = (char *) (uintptr_t) ctl->args->word[1];
    q.reason = ctl_text(ctl, OPT_REASON);
    CTL_ONE(ctl, FleetService, AddExclusion, q, Advisor__V1__AddExclusionResponse,
            &advisor__v1__add_exclusion_response__descriptor, exclusion, show_exclusions);
}

/* The exclusion in force of the node that the second word names; the word itself is taken as the exclusion's id when there is
 * none. Errors: -1, already said. */
static int find_exclusion(struct ctl *ctl, char out[512], enum ctl_exit *ret_exit)
{
    Advisor__V1__ListExclusionsRequest q = ADVISOR__V1__LIST_EXCLUSIONS_REQUEST__INIT;
    Advisor__V1__ListExclusionsResponse *m;
    struct failure f;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    q.node = (char *) (uintptr_t) ctl->args->word[1];
    if (client_call(ctl->client, CTL_PATH(FleetService, ListExclusions), &q.base,
                    &advisor__v1__list_exclusions_response__descriptor, (ProtobufCMessage **) &m, &f) < 0) {
        *ret_exit = ctl_failed(ctl, &f);
        return -1;
    }
    if (m->n_exclusions == 1)
        (void) snprintf(out, 512, "%s", m->exclusions[0]->name);
    else
        (void) entry_name(ctl, "exclusions", out);
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return 0;
}

enum ctl_exit cmd_lift(struct ctl *ctl)
{
    Advisor__V1__LiftExclusionRequest q = ADVISOR__V1__LIFT_EXCLUSION_REQUEST__INIT;
    char name[512], id[ADV_UUID_SIZE];
    enum ctl_exit x;

    if (find_exclusion(ctl, name, &x) < 0)
        return x;
    ctl_request_id(id);
    q.request_id = id;
    q.name = name;
    q.reason = ctl_text(ctl, OPT_REASON);
    CTL_ONE(ctl, FleetService, LiftExclusion, q, Advisor__V1__LiftExclusionResponse,
            &advisor__v1__lift_exclusion_response__descriptor, exclusion, show_exclusions);
}

enum ctl_exit cmd_windows(struct ctl *ctl)
{
    Advisor__V1__ListMaintenanceWindowsRequest q = ADVISOR__V1__LIST_MAINTENANCE_WINDOWS_REQUEST__INIT;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.show_over = ctl->args->option[OPT_ALL] != NULL;
    CTL_LIST(ctl, FleetService, ListMaintenanceWindows, q, Advisor__V1__ListMaintenanceWindowsResponse,
             &advisor__v1__list_maintenance_windows_response__descriptor, windows, n_windows, show_windows);
}

enum ctl_exit cmd_window_create(struct ctl *ctl)
{
    Advisor__V1__CreateMaintenanceWindowRequest q = ADVISOR__V1__CREATE_MAINTENANCE_WINDOW_REQUEST__INIT;
    Google__Protobuf__Timestamp start, end;
    char name[300], id[ADV_UUID_SIZE];

    if (!ctl->args->option[OPT_END])
        return ctl_bad_usage("window create: expected --end TIME");
    if (ctl_time(ctl, OPT_START, "start", &start, &q.start_time) < 0 || ctl_time(ctl, OPT_END, "end", &end, &q.end_time) < 0)
        return CTL_EXIT_USAGE;
    ctl_request_id(id);
    q.request_id = id;
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    q.reason = ctl_text(ctl, OPT_REASON);
    CTL_ONE(ctl, FleetService, CreateMaintenanceWindow, q, Advisor__V1__CreateMaintenanceWindowResponse,
            &advisor__v1__create_maintenance_window_response__descriptor, window, show_windows);
}

enum ctl_exit cmd_window_end(struct ctl *ctl)
{
    Advisor__V1__EndMaintenanceWindowRequest q = ADVISOR__V1__END_MAINTENANCE_WINDOW_REQUEST__INIT;
    char name[512], id[ADV_UUID_SIZE];

    ctl_request_id(id);
    q.request_id = id;
    q.name = entry_name(ctl, "windows", name);
    CTL_ONE(ctl, FleetService, EndMaintenanceWindow, q, Advisor__V1__EndMaintenanceWindowResponse,
            &advisor__v1__end_maintenance_window_response__descriptor, window, show_windows);
}

enum ctl_exit cmd_incidents(struct ctl *ctl)
{
    Advisor__V1__ListIncidentsRequest q = ADVISOR__V1__LIST_INCIDENTS_REQUEST__INIT;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.show_closed = ctl->args->option[OPT_ALL] != NULL;
    CTL_LIST(ctl, FleetService, ListIncidents, q, Advisor__V1__ListIncidentsResponse,
             &advisor__v1__list_incidents_response__descriptor, incidents, n_incidents, show_incidents);
}

enum ctl_exit cmd_incident_close(struct ctl *ctl)
{
    Advisor__V1__CloseIncidentRequest q = ADVISOR__V1__CLOSE_INCIDENT_REQUEST__INIT;
    char name[512], id[ADV_UUID_SIZE];

    ctl_request_id(id);
    q.request_id = id;
    q.name = entry_name(ctl, "incidents", name);
    q.reason = ctl_text(ctl, OPT_REASON);
    CTL_ONE(ctl, FleetService, CloseIncident, q, Advisor__V1__CloseIncidentResponse,
            &advisor__v1__close_incident_response__descriptor, incident, show_incidents);
}

/* ---- policies ----------------------------------------------------------------------------------------------------- */

enum ctl_exit cmd_policies(struct ctl *ctl)
{
    Advisor__V1__ListPoliciesRequest q = ADVISOR__V1__LIST_POLICIES_REQUEST__INIT;

    CTL_LIST(ctl, PolicyService, ListPolicies, q, Advisor__V1__ListPoliciesResponse,
             &advisor__v1__list_policies_response__descriptor, policies, n_policies, show_policies);
}

enum ctl_exit cmd_policy_versions(struct ctl *ctl)
{
    Advisor__V1__ListPolicyVersionsRequest q = ADVISOR__V1__LIST_POLICY_VERSIONS_REQUEST__INIT;
    char name[300];

    (void) snprintf(name, sizeof(name), "policies/%.200s", ctl->args->word[0]);
    q.parent = name;
    CTL_LIST(ctl, PolicyService, ListPolicyVersions, q, Advisor__V1__ListPolicyVersionsResponse,
             &advisor__v1__list_policy_versions_response__descriptor, policies, n_policies, show_policies);
}

static int show_document(const struct screen *s, Advisor__V1__Policy *const *v, size_t n)
{
    (void) n;
    return show_policy(s, v[0]);
}

enum ctl_exit cmd_policy_get(struct ctl *ctl)
{
    Advisor__V1__GetPolicyRequest q = ADVISOR__V1__GET_POLICY_REQUEST__INIT;
    struct adv_err err = { 0 };
    char name[300];

    if (ctl->args->word[1] && adv_parse_u64(ctl->args->word[1], 1, UINT64_MAX, &q.version, &err) < 0) {
        adv_err_wrap(&err, "VERSION");
        return ctl_bad_usage(err.msg);
    }
    (void) snprintf(name, sizeof(name), "policies/%.200s", ctl->args->word[0]);
    q.name = name;
    CTL_ONE(ctl, PolicyService, GetPolicy, q, Advisor__V1__GetPolicyResponse, &advisor__v1__get_policy_response__descriptor,
            policy, show_document);
}

/* The text of a file, "-" for standard input. Errors: -1, already said. */
static int read_document(const char *path, struct adv_buf *ret)
{
    FILE *in = adv_streq(path, "-") ? stdin : fopen(path, "re");
    char piece[4096];
    size_t n;
    bool bad;
    int why;

    adv_buf_init(ret, DOCUMENT_MAX);
    while (in && (n = fread(piece, 1, sizeof(piece), in)) > 0)
        (void) adv_buf_append(ret, piece, n);
    bad = !in || ferror(in);
    why = errno;
    if (in && in != stdin)
        (void) fclose(in);
    if (!bad && !adv_buf_error(ret) && !memchr(ret->data, 0, ret->len))
        return 0;
    if (bad)
        (void) fprintf(stderr, "advisorctl: %s: cannot be read: %s\n", path, strerror(why));
    else
        (void) fprintf(stderr, "advisorctl: %s: is no text of at most 1 MiB\n", path);
    return -1;
}

enum ctl_exit cmd_policy_apply(struct ctl *ctl)
{
    Advisor__V1__ApplyPolicyRequest q = ADVISOR__V1__APPLY_POLICY_REQUEST__INIT;
    Advisor__V1__ApplyPolicyResponse *m;
    ADV_AUTO_DONE(adv_buf) text = { 0 };
    char id[ADV_UUID_SIZE];
    struct failure f;
    enum ctl_exit x;

    if (read_document(ctl->args->word[1], &text) < 0)
        return CTL_EXIT_USAGE;
    ctl_request_id(id);
    q.request_id = id;
    q.policy_id = (char *) (uintptr_t) ctl->args->word[0];
    q.document = text.data;
    q.dry_run = ctl->args->option[OPT_DRY_RUN] != NULL;
    q.reason = ctl_text(ctl, OPT_REASON);
    if (client_call(ctl->client, CTL_PATH(PolicyService, ApplyPolicy), &q.base, &advisor__v1__apply_policy_response__descriptor,
                    (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    if (ctl_wants_json(ctl))
        x = ctl_json(&m->base);
    else
        x = ctl_printed(fprintf(stdout, "%s: %s version %" PRIu64 "%s\n", m->policy ? m->policy->name : "policy",
                                q.dry_run && m->changed ? "would become" : m->changed ? "is now" : "unchanged, is",
                                m->policy ? m->policy->version : 0, q.dry_run ? " (dry run)" : ""));
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

enum ctl_exit cmd_policy_validate(struct ctl *ctl)
{
    Advisor__V1__ValidatePolicyRequest q = ADVISOR__V1__VALIDATE_POLICY_REQUEST__INIT;
    Advisor__V1__ValidatePolicyResponse *m;
    ADV_AUTO_DONE(adv_buf) text = { 0 };
    struct failure f;
    enum ctl_exit x;

    if (read_document(ctl->args->word[0], &text) < 0)
        return CTL_EXIT_USAGE;
    q.document = text.data;
    if (client_call(ctl->client, CTL_PATH(PolicyService, ValidatePolicy), &q.base,
                    &advisor__v1__validate_policy_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = ctl_wants_json(ctl) ? ctl_json(&m->base) : ctl_printed(show_problems(&ctl->screen, m->problems, m->n_problems));
    if (x == CTL_EXIT_OK && m->n_problems)
        x = CTL_EXIT_REFUSED;
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

/* ---- erasure ------------------------------------------------------------------------------------------------------ */

enum ctl_exit cmd_forget(struct ctl *ctl)
{
    Advisor__V1__ForgetUserRequest q = ADVISOR__V1__FORGET_USER_REQUEST__INIT;
    Advisor__V1__ForgetUserResponse *m;
    Advisor__V1__ListClustersRequest lq = ADVISOR__V1__LIST_CLUSTERS_REQUEST__INIT;
    Advisor__V1__ListClustersResponse *clusters = NULL;
    char name[300], id[ADV_UUID_SIZE];
    struct failure f;
    enum ctl_exit x = CTL_EXIT_OK;

    lq.page_size = CTL_PAGE_SIZE;
    if (!ctl->args->option[OPT_CLUSTER] &&
        ctl_call_pages(ctl, CTL_PATH(FleetService, ListClusters), &lq.base, &lq.page_token,
                       &advisor__v1__list_clusters_response__descriptor, (ProtobufCMessage **) &clusters, &f) < 0)
        return ctl_failed(ctl, &f);
    q.user = (char *) (uintptr_t) ctl->args->word[0];
    for (size_t i = 0; x == CTL_EXIT_OK && i < (clusters ? clusters->n_clusters : 1); i++) {
        ctl_request_id(id);
        q.request_id = id;
        q.parent = clusters ? clusters->clusters[i]->name : (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
        if (client_call(ctl->client, CTL_PATH(FleetService, ForgetUser), &q.base, &advisor__v1__forget_user_response__descriptor,
                        (ProtobufCMessage **) &m, &f) < 0) {
            x = ctl_failed(ctl, &f);
            break;
        }
        if (ctl_wants_json(ctl))
            x = ctl_json(&m->base);
        else
            x = ctl_printed(fprintf(stdout, "%s: %" PRIu32 " jobs forgotten%s\n", q.parent, m->forgotten_jobs,
                                    m->present_jobs ? ", some are still with the scheduler: run it again later" : ""));
        protobuf_c_message_free_unpacked(&m->base, NULL);
    }
    if (clusters)
        protobuf_c_message_free_unpacked(&clusters->base, NULL);
    return x;
}
