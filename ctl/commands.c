/* SPDX-License-Identifier: Apache-2.0 */
/* A list command reads all pages and joins them into the first answer, so that a table or a JSON document is whole.
 * Every list response of the API has its items in field 1 and the token of the next page in field 2. */

#include "ctl/internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/random.h>

#include "advisor-agent/wire/codec.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/num.h"
#include "common/pbjson.h"
#include "common/uuid.h"
#include "ctl/text.h"

#define MAX_JSON_BYTES ((size_t) 1 << 30) /* one document of all pages */

enum ctl_exit ctl_failed(const struct ctl *ctl, const struct failure *f)
{
    (void) fflush(stdout);
    failure_print(stderr, f, ctl->cfg);
    return f->exit_code;
}

enum ctl_exit ctl_bad_usage(const char *what)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 4096);
    text_escape(&b, what);
    (void) fprintf(stderr, "advisorctl: %s\n", b.data);
    return CTL_EXIT_USAGE;
}

enum ctl_exit ctl_printed(int r)
{
    if (r < 0 || fflush(stdout) != 0) {
        (void) fprintf(stderr, "advisorctl: the answer could not be printed\n");
        return CTL_EXIT_REFUSED;
    }
    return CTL_EXIT_OK;
}

bool ctl_wants_json(const struct ctl *ctl)
{
    return ctl->cfg->output == CTL_OUTPUT_JSON;
}

/* "clusters/NAME", or "clusters/-" without a name; too long names stay too long and are refused by the server. */
const char *ctl_parent(const char *cluster, char out[300])
{
    (void) snprintf(out, 300, "clusters/%s", cluster && *cluster && !adv_streq(cluster, "all") ? cluster : "-");
    return out;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

int command_merge_page(ProtobufCMessage *into, ProtobufCMessage *from)
{
    const ProtobufCFieldDescriptor *field = &into->descriptor->fields[0];
    size_t *n_into = (size_t *) (void *) ((char *) into + field->quantifier_offset);
    size_t *n_from = (size_t *) (void *) ((char *) from + field->quantifier_offset);
    void ***v_into = (void ***) (void *) ((char *) into + field->offset);
    void ***v_from = (void ***) (void *) ((char *) from + field->offset);
    void **v;

    assert(into->descriptor == from->descriptor && field->id == 1 && field->label == PROTOBUF_C_LABEL_REPEATED);
    if (*n_from == 0)
        return 0;
    v = realloc(*v_into, (*n_into + *n_from) * sizeof(*v));
    if (!v)
        return -ADV_RESOURCE_EXHAUSTED;
    memcpy(v + *n_into, *v_from, *n_from * sizeof(*v));
    *v_into = v;
    *n_into += *n_from;
    *n_from = 0;
    return 0;
}

/* The next_page_token of a list response, by name: "" on the last page. */
static char **token_of(ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "next_page_token");

    assert(f && f->type == PROTOBUF_C_TYPE_STRING);
    return (char **) (void *) ((char *) m + f->offset);
}

/* Calls until there is no next page. @page_token is the member of @req. */
int ctl_call_pages(struct ctl *ctl, const char *path, const ProtobufCMessage *req, char **page_token,
                      const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret, struct failure *f)
{
    ProtobufCMessage *all = NULL, *page = NULL;
    adv_auto_free char *token = NULL;
    int r;

    for (;;) {
        if ((r = client_call(ctl->client, path, req, type, &page, f)) < 0)
            break;
        free(token);
        token = strdup(*token_of(page));
        if (!all) {
            all = ADV_STEAL(page);
        } else {
            r = command_merge_page(all, page);
            protobuf_c_message_free_unpacked(page, NULL);
        }
        if (r < 0 || !token) {
            *f = (struct failure) { .exit_code = CTL_EXIT_REFUSED, .code = ADV_RESOURCE_EXHAUSTED, .message = "no memory" };
            r = -ADV_RESOURCE_EXHAUSTED;
            break;
        }
        if (!*token)
            break;
        *page_token = token;
    }
    if (r < 0) {
        if (all)
            protobuf_c_message_free_unpacked(all, NULL);
        return r;
    }
    if (**token_of(all))
        **token_of(all) = '\0'; /* the document is whole */
    *ret = all;
    return 0;
}

static int print_json(const ProtobufCMessage *m, unsigned flags)
{
    struct adv_err err = { 0 };
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, MAX_JSON_BYTES);
    if (adv_pbjson_print(m, ADV_PBJSON_DEFAULTS | flags, &b, &err) < 0) {
        (void) fprintf(stderr, "advisorctl: %s\n", err.msg);
        return -1;
    }
    return fprintf(stdout, "%s\n", b.data) < 0 || fflush(stdout) != 0 ? -1 : 0;
}

enum ctl_exit ctl_json(const ProtobufCMessage *m)
{
    return ctl_printed(print_json(m, ADV_PBJSON_PRETTY));
}

/* ---- fleet ------------------------------------------------------------------------------------------------------ */

static enum ctl_exit cmd_clusters(struct ctl *ctl)
{
    Advisor__V1__ListClustersRequest q = ADVISOR__V1__LIST_CLUSTERS_REQUEST__INIT;

    CTL_LIST(ctl, FleetService, ListClusters, q, Advisor__V1__ListClustersResponse,
         &advisor__v1__list_clusters_response__descriptor, clusters, n_clusters, show_clusters);
}

static enum ctl_exit cmd_nodes(struct ctl *ctl)
{
    Advisor__V1__ListNodesRequest q = ADVISOR__V1__LIST_NODES_REQUEST__INIT;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    CTL_LIST(ctl, FleetService, ListNodes, q, Advisor__V1__ListNodesResponse, &advisor__v1__list_nodes_response__descriptor,
         nodes, n_nodes, show_nodes);
}

static enum ctl_exit show_one_cluster(struct ctl *ctl, const Advisor__V1__Cluster *c)
{
    return ctl_wants_json(ctl) ? ctl_json(&c->base) : ctl_printed(show_cluster(&ctl->screen, c));
}

static enum ctl_exit get_cluster(struct ctl *ctl, const char *cluster)
{
    Advisor__V1__GetClusterRequest q = ADVISOR__V1__GET_CLUSTER_REQUEST__INIT;
    Advisor__V1__GetClusterResponse *m;
    struct failure f;
    char name[300];
    enum ctl_exit x;

    q.name = (char *) (uintptr_t) ctl_parent(cluster, name);
    if (client_call(ctl->client, CTL_PATH(FleetService, GetCluster), &q.base, &advisor__v1__get_cluster_response__descriptor,
                    (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = m->cluster ? show_one_cluster(ctl, m->cluster) : CTL_EXIT_REFUSED;
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

static enum ctl_exit cmd_cluster_get(struct ctl *ctl)
{
    return get_cluster(ctl, ctl->args->word[0]);
}

/* Each run of the program is one request; the id makes a retry below us harmless. */
void ctl_request_id(char out[ADV_UUID_SIZE])
{
    if (adv_uuid_v7(adv_wall_us(), out, NULL) < 0)
        out[0] = '\0';
}

/* ---- agents' certificates ---------------------------------------------------------------------------------------- */

/* "adv-enrol-" and 32 random bytes as unpadded base64url, and what the control plane is told of it. */
static int draw_token(char ret_token[64], char ret_sha256[65])
{
    static const char prefix[] = "adv-enrol-";
    uint8_t bytes[32], digest[ADV_SHA256_LEN];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t) sizeof(bytes))
        return -1;
    (void) strcpy(ret_token, prefix);
    (void) wire_base64_encode(bytes, sizeof(bytes), ret_token + strlen(prefix));
    for (char *p = ret_token + strlen(prefix); *p; p++)
        *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
    if (adv_sha256(ret_token, strlen(ret_token), digest, NULL) < 0)
        return -1;
    (void) adv_hex(digest, sizeof(digest), ret_sha256);
    return 0;
}

/* Where a bundle goes: a file that was not there before and that nobody else may read, or standard output. It is made before
 * the control plane is asked, so that nothing is registered for which there is no place. */
struct bundle_out {
    char path[4096];
    int fd; /* -1: standard output */
};

static enum ctl_exit bundle_open(const struct ctl *ctl, const char *cluster, struct bundle_out *ret)
{
    const char *out = ctl->args->option[OPT_OUT];

    ret->fd = -1;
    if (out ? snprintf(ret->path, sizeof(ret->path), "%s", out) >= (int) sizeof(ret->path) :
              snprintf(ret->path, sizeof(ret->path), "%.200s-enrolment.json", cluster) < 0)
        return ctl_bad_usage("--out: too long a path");
    if (adv_streq(ret->path, "-"))
        return CTL_EXIT_OK;
    ret->fd = open(ret->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (ret->fd >= 0)
        return CTL_EXIT_OK;
    if (errno == EEXIST)
        (void) fprintf(stderr, "advisorctl: %s is there already: remove it, or give another --out\n", ret->path);
    else
        (void) fprintf(stderr, "advisorctl: --out: %s: %s\n", ret->path, strerror(errno));
    return CTL_EXIT_USAGE;
}

/* Without a bundle in it the file goes again. */
static void bundle_close(struct bundle_out *o, bool keep)
{
    if (o->fd < 0)
        return;
    (void) close(o->fd);
    if (!keep)
        (void) unlink(o->path);
}

static int bundle_write(const struct bundle_out *o, const char *text, struct adv_err *err)
{
    size_t len = strlen(text);

    if (o->fd < 0)
        return fputs(text, stdout) < 0 || fflush(stdout) != 0 ? adv_err_set(err, ADV_UNAVAILABLE, "stdout cannot be written") : 0;
    for (ssize_t n; len > 0; text += n, len -= (size_t) n)
        if ((n = write(o->fd, text, len)) <= 0)
            return adv_err_set_errno(err, ADV_UNAVAILABLE, n < 0 ? errno : EIO, "%.180s", o->path);
    return fsync(o->fd) < 0 ? adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%.180s", o->path) : 0;
}

static enum ctl_exit bundle_file(const struct bundle_out *o, Advisor__V1__EnrolmentBundle *b, char *token)
{
    struct adv_err err = { 0 };
    ADV_AUTO_DONE(adv_buf) text;
    char *none = b->token;
    int r;

    adv_buf_init(&text, 1 << 20);
    b->token = token;
    r = adv_pbjson_print(&b->base, ADV_PBJSON_DEFAULTS | ADV_PBJSON_PRETTY, &text, &err);
    b->token = none;
    if (r == 0)
        r = adv_buf_append_byte(&text, '\n') < 0 ?
                adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory") :
                bundle_write(o, text.data, &err);
    if (r < 0) {
        (void) fprintf(stderr, "advisorctl: the bundle was not written: %s\n", err.msg);
        return CTL_EXIT_REFUSED;
    }
    if (o->fd >= 0)
        (void) fprintf(stderr, "advisorctl: wrote %s; run on the agent's host: advisor-agent --enrol %s\n", o->path, o->path);
    return CTL_EXIT_OK;
}

static enum ctl_exit take_valid(const struct ctl *ctl, uint64_t *ret_ms)
{
    const char *valid = ctl->args->option[OPT_VALID];
    struct adv_err err = { 0 };
    int64_t ms = 0;

    if (valid && adv_parse_duration_ms(valid, 1000, INT64_C(30) * 86400000, &ms, &err) < 0) {
        adv_err_wrap(&err, "--valid");
        return ctl_bad_usage(err.msg);
    }
    *ret_ms = (uint64_t) ms;
    return CTL_EXIT_OK;
}

static enum ctl_exit enrol_into(struct ctl *ctl, const struct bundle_out *o, uint64_t valid_ms)
{
    Advisor__V1__CreateEnrolmentRequest q = ADVISOR__V1__CREATE_ENROLMENT_REQUEST__INIT;
    Advisor__V1__CreateEnrolmentResponse *m;
    char name[300], id[ADV_UUID_SIZE], token[64], sha256[65];
    struct failure f;
    enum ctl_exit x;

    if (draw_token(token, sha256) < 0) {
        (void) fprintf(stderr, "advisorctl: no random bytes\n");
        return CTL_EXIT_REFUSED;
    }
    ctl_request_id(id);
    q.request_id = id;
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    q.valid_for_ms = valid_ms;
    q.token_sha256 = sha256;
    if (client_call(ctl->client, CTL_PATH(FleetService, CreateEnrolment), &q.base,
                    &advisor__v1__create_enrolment_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = m->bundle ? bundle_file(o, m->bundle, token) : CTL_EXIT_REFUSED;
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

/* @before, if not NULL, comes between making the file and filling it. */
static enum ctl_exit enrol_after(struct ctl *ctl, enum ctl_exit (*before)(struct ctl *ctl))
{
    struct bundle_out o;
    uint64_t valid_ms;
    enum ctl_exit x;

    if ((x = take_valid(ctl, &valid_ms)) != CTL_EXIT_OK || (x = bundle_open(ctl, ctl->args->word[0], &o)) != CTL_EXIT_OK)
        return x;
    x = before ? before(ctl) : CTL_EXIT_OK;
    if (x == CTL_EXIT_OK)
        x = enrol_into(ctl, &o, valid_ms);
    bundle_close(&o, x == CTL_EXIT_OK);
    return x;
}

static enum ctl_exit cmd_cluster_enrol(struct ctl *ctl)
{
    return enrol_after(ctl, NULL);
}

static enum ctl_exit cmd_cluster_enrolments(struct ctl *ctl)
{
    Advisor__V1__ListEnrolmentsRequest q = ADVISOR__V1__LIST_ENROLMENTS_REQUEST__INIT;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    CTL_LIST(ctl, FleetService, ListEnrolments, q, Advisor__V1__ListEnrolmentsResponse,
         &advisor__v1__list_enrolments_response__descriptor, enrolments, n_enrolments, show_enrolments);
}

static enum ctl_exit cmd_cluster_revocations(struct ctl *ctl)
{
    Advisor__V1__ListRevocationsRequest q = ADVISOR__V1__LIST_REVOCATIONS_REQUEST__INIT;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    CTL_LIST(ctl, FleetService, ListRevocations, q, Advisor__V1__ListRevocationsResponse,
         &advisor__v1__list_revocations_response__descriptor, revocations, n_revocations, show_revocations);
}

static enum ctl_exit cmd_cluster_revoke(struct ctl *ctl)
{
    Advisor__V1__RevokeAgentRequest q = ADVISOR__V1__REVOKE_AGENT_REQUEST__INIT;
    const char *serial = ctl->args->option[OPT_SERIAL], *before = ctl->args->option[OPT_BEFORE],
               *reason = ctl->args->option[OPT_REASON];
    Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Advisor__V1__RevokeAgentResponse *m;
    char name[300], id[ADV_UUID_SIZE];
    struct adv_err err = { 0 };
    struct failure f;
    int64_t before_us;
    enum ctl_exit x;

    /* the API takes no serial for all: nobody should say that by a variable that is empty */
    if (!!serial + !!before + !!ctl->args->option[OPT_ALL] != 1)
        return ctl_bad_usage("cluster revoke: expected one of --serial HEX, --before TIME and --all");
    if (serial && !*serial)
        return ctl_bad_usage("--serial: expected the serial number of a certificate, not an empty text; --all means all");
    if (before && adv_rfc3339_parse(before, &before_us, &err) < 0) {
        adv_err_wrap(&err, "--before");
        return ctl_bad_usage(err.msg);
    }
    if (before) {
        t.seconds = before_us / 1000000;
        t.nanos = (int32_t) (before_us % 1000000) * 1000;
        q.before_time = &t;
    }
    ctl_request_id(id);
    q.request_id = id;
    q.name = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    q.serial = (char *) (uintptr_t) (serial ? serial : "");
    q.reason = (char *) (uintptr_t) (reason ? reason : "");
    if (client_call(ctl->client, CTL_PATH(FleetService, RevokeAgent), &q.base, &advisor__v1__revoke_agent_response__descriptor,
                    (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = !m->revocation     ? CTL_EXIT_REFUSED :
        ctl_wants_json(ctl)     ? ctl_json(&m->revocation->base) :
                             ctl_printed(show_revocations(&ctl->screen, &m->revocation, 1));
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

/* ---- clusters ----------------------------------------------------------------------------------------------------- */

static enum ctl_exit create_cluster(struct ctl *ctl)
{
    Advisor__V1__CreateClusterRequest q = ADVISOR__V1__CREATE_CLUSTER_REQUEST__INIT;
    Advisor__V1__CreateClusterResponse *m;
    char id[ADV_UUID_SIZE];
    struct failure f;
    enum ctl_exit x;

    ctl_request_id(id);
    q.request_id = id;
    q.cluster_id = (char *) (uintptr_t) ctl->args->word[0];
    if (client_call(ctl->client, CTL_PATH(FleetService, CreateCluster), &q.base,
                    &advisor__v1__create_cluster_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = m->cluster ? show_one_cluster(ctl, m->cluster) : CTL_EXIT_REFUSED;
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

static enum ctl_exit cmd_cluster_create(struct ctl *ctl)
{
    return ctl->args->option[OPT_OUT] || ctl->args->option[OPT_VALID] ? enrol_after(ctl, create_cluster) : create_cluster(ctl);
}

/* ---- mode ------------------------------------------------------------------------------------------------------- */

struct mode_wait {
    struct ctl *ctl;
    Advisor__V1__Mode mode;
    bool done, overtaken;
    enum ctl_exit exit_code;
};

static bool on_cluster(void *arg, ProtobufCMessage *message)
{
    struct mode_wait *w = arg;
    Advisor__V1__WatchResponse *m = (void *) message;
    const Advisor__V1__Cluster *c = m->resource_case == ADVISOR__V1__WATCH_RESPONSE__RESOURCE_CLUSTER_RESOURCE
                                        ? m->cluster_resource : NULL;

    if (c && c->mode != w->mode) {
        w->overtaken = true;
    } else if (c && c->mode_effective) {
        w->done = true;
        w->exit_code = show_one_cluster(w->ctl, c);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return !w->done && !w->overtaken;
}

static enum ctl_exit wait_for_mode(struct ctl *ctl, const char *name, Advisor__V1__Mode mode)
{
    Advisor__V1__WatchRequest q = ADVISOR__V1__WATCH_REQUEST__INIT;
    Advisor__V1__ResourceKind kind = ADVISOR__V1__RESOURCE_KIND__RESOURCE_KIND_CLUSTER;
    struct mode_wait w = { .ctl = ctl, .mode = mode };
    bool interrupted = false;
    struct failure f;
    int r;

    q.parent = (char *) (uintptr_t) name;
    q.kinds = &kind;
    q.n_kinds = 1;
    r = client_stream(ctl->client, CTL_PATH(WatchService, Watch), &q.base, (uint64_t) ctl->cfg->timeout_ms,
                      &advisor__v1__watch_response__descriptor, on_cluster, &w, &interrupted, &f);
    if (w.done)
        return w.exit_code;
    if (w.overtaken) {
        (void) fprintf(stderr, "advisorctl: the mode was changed again meanwhile\n");
        return CTL_EXIT_REFUSED;
    }
    if (r < 0 && f.exit_code != CTL_EXIT_TIMEOUT)
        return ctl_failed(ctl, &f);
    (void) fprintf(stderr, "advisorctl: the mode is stored, but the cluster's agent has not confirmed it%s\n",
                   r < 0 ? " in time (is it connected?)" : "");
    return CTL_EXIT_TIMEOUT;
}

static enum ctl_exit cmd_mode(struct ctl *ctl)
{
    Advisor__V1__SetClusterModeRequest q = ADVISOR__V1__SET_CLUSTER_MODE_REQUEST__INIT;
    Advisor__V1__SetClusterModeResponse *m;
    const char *word = ctl->args->word[1], *reason = ctl->args->option[OPT_REASON];
    char name[300], id[ADV_UUID_SIZE];
    struct failure f;
    enum ctl_exit x;
    int mode;

    if (!word)
        return get_cluster(ctl, ctl->args->word[0]);
    if (show_parse_word(&advisor__v1__mode__descriptor, word, strlen(word), &mode) < 0)
        return ctl_bad_usage("mode: expected off, observe, approve or act");
    ctl_request_id(id);
    q.request_id = id;
    q.name = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    q.mode = (Advisor__V1__Mode) mode;
    q.reason = (char *) (uintptr_t) (reason ? reason : "");
    if (client_call(ctl->client, CTL_PATH(FleetService, SetClusterMode), &q.base,
                    &advisor__v1__set_cluster_mode_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    if (ctl->args->option[OPT_WAIT])
        x = wait_for_mode(ctl, name, q.mode);
    else
        x = m->cluster ? show_one_cluster(ctl, m->cluster) : CTL_EXIT_REFUSED;
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

/* ---- jobs and advice -------------------------------------------------------------------------------------------- */

/* Enum values of "a,b,c". Errors: -1 when a word is not known, with @ret_bad. */
static int parse_words(const ProtobufCEnumDescriptor *type, const char *text, int *ret, size_t max, size_t *ret_n,
                       const char **ret_bad)
{
    *ret_n = 0;
    while (text && *text) {
        size_t len = strcspn(text, ",");

        *ret_bad = text;
        if (*ret_n == max || show_parse_word(type, text, len, &ret[(*ret_n)++]) < 0)
            return -1;
        text += len + (text[len] == ',');
    }
    return 0;
}

static enum ctl_exit unknown_word(const char *option, const char *bad, const ProtobufCEnumDescriptor *type)
{
    char word[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 4096);
    (void) adv_buf_appendf(&b, "--%s: unknown word \"%.*s\"; expected", option, (int) strcspn(bad, ","), bad);
    for (unsigned i = 0; i < type->n_values; i++) {
        if (!type->values[i].value)
            continue;
        (void) show_word(type, type->values[i].value, word);
        for (char *p = word; *p; p++)
            *p = *p == ' ' ? '-' : *p;
        (void) adv_buf_appendf(&b, "%s %s", i > 1 ? "," : "", word);
    }
    return ctl_bad_usage(b.data);
}

static enum ctl_exit cmd_jobs(struct ctl *ctl)
{
    Advisor__V1__ListJobsRequest q = ADVISOR__V1__LIST_JOBS_REQUEST__INIT;
    const char *user = ctl->args->option[OPT_USER], *bad;
    int words[32];
    Advisor__V1__JobState states[32];
    char name[300];

    if (parse_words(&advisor__v1__job_state__descriptor, ctl->args->option[OPT_STATE], words, ADV_ARRAY_LEN(words),
                    &q.n_states, &bad) < 0)
        return unknown_word("state", bad, &advisor__v1__job_state__descriptor);
    for (size_t i = 0; i < q.n_states; i++)
        states[i] = (Advisor__V1__JobState) words[i];
    q.states = states;
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.user = (char *) (uintptr_t) (user ? user : "");
    CTL_LIST(ctl, JobService, ListJobs, q, Advisor__V1__ListJobsResponse, &advisor__v1__list_jobs_response__descriptor, jobs,
         n_jobs, show_jobs);
}

/* Fills @ref from "CLUSTER/JOBID[/ATTEMPT]". Errors: -1, already said. */
int ctl_job_ref(const struct ctl *ctl, bool attempt_allowed, char cluster[ARGS_PART_SIZE], char job[ARGS_PART_SIZE],
                   Advisor__V1__AttemptRef *ref, int64_t *ret_attempt)
{
    struct adv_err err = { 0 };

    if (args_job_path(ctl->args->word[0], attempt_allowed, cluster, job, ret_attempt, &err) < 0) {
        (void) ctl_bad_usage(err.msg);
        return -1;
    }
    ref->cluster = cluster;
    ref->job_id = job;
    return 0;
}

static int get_timeline(struct ctl *ctl, Advisor__V1__AttemptRef *ref, Advisor__V1__GetJobTimelineResponse **ret,
                        struct failure *f)
{
    Advisor__V1__GetJobTimelineRequest q = ADVISOR__V1__GET_JOB_TIMELINE_REQUEST__INIT;

    q.ref = ref;
    return client_call(ctl->client, CTL_PATH(JobService, GetJobTimeline), &q.base,
                       &advisor__v1__get_job_timeline_response__descriptor, (ProtobufCMessage **) ret, f);
}

static enum ctl_exit cmd_job(struct ctl *ctl)
{
    Advisor__V1__AttemptRef ref = ADVISOR__V1__ATTEMPT_REF__INIT;
    Advisor__V1__GetJobTimelineResponse *m;
    char cluster[ARGS_PART_SIZE], job[ARGS_PART_SIZE];
    struct failure f;
    enum ctl_exit x;

    if (ctl_job_ref(ctl, false, cluster, job, &ref, NULL) < 0)
        return CTL_EXIT_USAGE;
    if (get_timeline(ctl, &ref, &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = ctl_wants_json(ctl) ? ctl_json(&m->base) : ctl_printed(show_timeline(&ctl->screen, m));
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

static enum ctl_exit cmd_advice(struct ctl *ctl)
{
    Advisor__V1__ListAdviceRequest q = ADVISOR__V1__LIST_ADVICE_REQUEST__INIT;
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.only_actions = ctl->args->option[OPT_ACTIONS] != NULL;
    CTL_LIST(ctl, AdviceService, ListAdvice, q, Advisor__V1__ListAdviceResponse, &advisor__v1__list_advice_response__descriptor,
         advice, n_advice, show_advice_list);
}

int ctl_newest_judged(struct ctl *ctl, Advisor__V1__AttemptRef *ref, bool judged, struct failure *f)
{
    Advisor__V1__GetJobTimelineResponse *m;
    int r = get_timeline(ctl, ref, &m, f);

    if (r < 0)
        return r;
    ref->restart_count = m->job ? m->job->last_attempt : 0;
    if (judged && m->n_advice > 0 && m->advice[m->n_advice - 1]->attempt)
        ref->restart_count = m->advice[m->n_advice - 1]->attempt->restart_count;
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return 0;
}

char *ctl_text(const struct ctl *ctl, enum option_id o)
{
    return (char *) (uintptr_t) (ctl->args->option[o] ? ctl->args->option[o] : "");
}

int ctl_word(const char *what, const char *word, const ProtobufCEnumDescriptor *type)
{
    char one[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(adv_buf) b;
    int value;

    adv_buf_init(&b, 4096);
    if (show_parse_word(type, word, strlen(word), &value) == 0)
        return value;
    (void) adv_buf_appendf(&b, "%s: unknown word \"%.40s\"; expected", what, word);
    for (unsigned i = 0; i < type->n_values; i++)
        if (type->values[i].value)
            (void) adv_buf_appendf(&b, " %s", show_word(type, type->values[i].value, one));
    (void) ctl_bad_usage(b.data);
    return -1;
}

int ctl_time(const struct ctl *ctl, enum option_id o, const char *name, Google__Protobuf__Timestamp *t,
             Google__Protobuf__Timestamp **ret)
{
    const char *text = ctl->args->option[o];
    struct adv_err err = { 0 };
    int64_t us, span_ms;
    int r;

    *ret = NULL;
    if (!text)
        return 0;
    if (*text == '+' || *text == '-') {
        r = adv_parse_duration_ms(text + 1, 1, INT64_C(3650) * 86400000, &span_ms, &err);
        us = adv_wall_us() + (*text == '+' ? 1 : -1) * (r == 0 ? span_ms : 0) * 1000;
    } else {
        r = adv_rfc3339_parse(text, &us, &err);
    }
    if (r < 0) {
        adv_err_wrap(&err, "--%s", name);
        (void) ctl_bad_usage(err.msg);
        return -1;
    }
    google__protobuf__timestamp__init(t);
    t->seconds = us / 1000000;
    t->nanos = (int32_t) (us % 1000000) * 1000;
    *ret = t;
    return 0;
}

static enum ctl_exit cmd_explain(struct ctl *ctl)
{
    Advisor__V1__ExplainAdviceRequest q = ADVISOR__V1__EXPLAIN_ADVICE_REQUEST__INIT;
    Advisor__V1__AttemptRef ref = ADVISOR__V1__ATTEMPT_REF__INIT;
    Advisor__V1__ExplainAdviceResponse *m;
    char cluster[ARGS_PART_SIZE], job[ARGS_PART_SIZE];
    int64_t attempt;
    struct failure f;
    enum ctl_exit x;

    if (ctl_job_ref(ctl, true, cluster, job, &ref, &attempt) < 0)
        return CTL_EXIT_USAGE;
    ref.restart_count = attempt < 0 ? 0 : (uint32_t) attempt;
    q.ref = &ref;
    if ((attempt < 0 && ctl_newest_judged(ctl, &ref, true, &f) < 0) ||
        client_call(ctl->client, CTL_PATH(AdviceService, ExplainAdvice), &q.base,
                    &advisor__v1__explain_advice_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = ctl_wants_json(ctl) ? ctl_json(&m->base) : ctl_printed(show_explanation(&ctl->screen, m));
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

static enum ctl_exit cmd_audit(struct ctl *ctl)
{
    Advisor__V1__ListAuditEventsRequest q = ADVISOR__V1__LIST_AUDIT_EVENTS_REQUEST__INIT;
    const char *verb = ctl->args->option[OPT_VERB], *subject = ctl->args->option[OPT_SUBJECT];
    char name[300];

    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.verb = (char *) (uintptr_t) (verb ? verb : "");
    q.subject_prefix = (char *) (uintptr_t) (subject ? subject : "");
    CTL_LIST(ctl, AuditService, ListAuditEvents, q, Advisor__V1__ListAuditEventsResponse,
         &advisor__v1__list_audit_events_response__descriptor, events, n_events, show_audit);
}

/* ---- watch ------------------------------------------------------------------------------------------------------ */

struct watching {
    struct ctl *ctl;
    char token[256]; /* of the last message */
    bool output_failed;
};

static bool on_change(void *arg, ProtobufCMessage *message)
{
    struct watching *w = arg;
    const Advisor__V1__WatchResponse *m = (const void *) message;

    w->ctl->screen.now_us = adv_wall_us();
    if (*m->resume_token)
        (void) snprintf(w->token, sizeof(w->token), "%s", m->resume_token);
    w->output_failed = (ctl_wants_json(w->ctl) ? print_json(message, 0) : show_change(&w->ctl->screen, m)) < 0;
    protobuf_c_message_free_unpacked(message, NULL);
    return !w->output_failed;
}

static enum ctl_exit cmd_watch(struct ctl *ctl)
{
    Advisor__V1__WatchRequest q = ADVISOR__V1__WATCH_REQUEST__INIT;
    Advisor__V1__ResourceKind kinds[16];
    struct watching w = { .ctl = ctl };
    const char *bad, *since = ctl->args->option[OPT_SINCE];
    int words[16];
    bool interrupted = false;
    struct failure f;
    char name[300];
    int r;

    if (parse_words(&advisor__v1__resource_kind__descriptor, ctl->args->option[OPT_KINDS], words, ADV_ARRAY_LEN(words),
                    &q.n_kinds, &bad) < 0)
        return unknown_word("kinds", bad, &advisor__v1__resource_kind__descriptor);
    for (size_t i = 0; i < q.n_kinds; i++)
        kinds[i] = (Advisor__V1__ResourceKind) words[i];
    q.kinds = kinds;
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.resume_token = (char *) (uintptr_t) (since ? since : "");
    r = client_stream(ctl->client, CTL_PATH(WatchService, Watch), &q.base, 0, &advisor__v1__watch_response__descriptor, on_change,
                      &w, &interrupted, &f);
    if (w.output_failed)
        return CTL_EXIT_REFUSED; /* the reader of a pipe has gone: nothing to say to it */
    if (r < 0)
        (void) ctl_failed(ctl, &f);
    if (*w.token)
        (void) fprintf(stderr, "advisorctl: go on with --since %s\n", w.token);
    return r < 0 ? f.exit_code : CTL_EXIT_OK;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

enum ctl_exit command_run(struct ctl *ctl)
{
    static enum ctl_exit (*const run[])(struct ctl *ctl) = {
        [CMD_CLUSTERS] = cmd_clusters,
        [CMD_CLUSTER_CREATE] = cmd_cluster_create,
        [CMD_CLUSTER_GET] = cmd_cluster_get,
        [CMD_NODES] = cmd_nodes,
        [CMD_CLUSTER_ENROL] = cmd_cluster_enrol,
        [CMD_CLUSTER_ENROLMENTS] = cmd_cluster_enrolments,
        [CMD_CLUSTER_REVOKE] = cmd_cluster_revoke,
        [CMD_CLUSTER_REVOCATIONS] = cmd_cluster_revocations,
        [CMD_JOBS] = cmd_jobs,
        [CMD_JOB] = cmd_job,
        [CMD_ADVICE] = cmd_advice,
        [CMD_EXPLAIN] = cmd_explain,
        [CMD_MODE] = cmd_mode,
        [CMD_AUDIT] = cmd_audit,
        [CMD_AUDIT_LIST] = cmd_audit,
        [CMD_APPROVE] = cmd_approve,
        [CMD_REJECT] = cmd_reject,
        [CMD_VERDICT] = cmd_verdict,
        [CMD_EXCLUSIONS] = cmd_exclusions,
        [CMD_EXCLUDE] = cmd_exclude,
        [CMD_LIFT] = cmd_lift,
        [CMD_WINDOWS] = cmd_windows,
        [CMD_WINDOW_CREATE] = cmd_window_create,
        [CMD_WINDOW_END] = cmd_window_end,
        [CMD_INCIDENTS] = cmd_incidents,
        [CMD_INCIDENT_CLOSE] = cmd_incident_close,
        [CMD_POLICIES] = cmd_policies,
        [CMD_POLICY_GET] = cmd_policy_get,
        [CMD_POLICY_VERSIONS] = cmd_policy_versions,
        [CMD_POLICY_APPLY] = cmd_policy_apply,
        [CMD_POLICY_VALIDATE] = cmd_policy_validate,
        [CMD_FORGET] = cmd_forget,
        [CMD_SIGNAL_ANOMALY] = cmd_signal_anomaly,
        [CMD_SIGNAL_EVIDENCE] = cmd_signal_evidence,
        [CMD_SIGNAL_PROGRESS] = cmd_signal_progress,
        [CMD_SIGNAL_MILESTONE] = cmd_signal_milestone,
        [CMD_REPORT_LATENCY] = cmd_report_latency,
        [CMD_REPORT_OUTCOME] = cmd_report_outcome,
        [CMD_AUDIT_APPEND] = cmd_audit_append,
        [CMD_AUDIT_VERIFY] = cmd_audit_verify,
        [CMD_WATCH] = cmd_watch,
        [CMD_RULES_TEST] = cmd_rules_test,
        [CMD_RULES_LINT] = cmd_rules_lint,
        [CMD_DOCTOR] = cmd_doctor,
    };

    assert(ctl->args->command->id < ADV_ARRAY_LEN(run) && run[ctl->args->command->id]);
    return run[ctl->args->command->id](ctl);
}
