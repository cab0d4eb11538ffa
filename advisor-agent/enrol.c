/* SPDX-License-Identifier: Apache-2.0 */
/* One call on a connection without a client certificate, to the first of the bundle's servers that answers. The same key is
 * used for all tries: the control plane gives the same key another certificate if the answer to a try was lost. */

#include "advisor-agent/enrol.h"

#include <fcntl.h>
#include <limits.h>
#include <pb_decode.h>
#include <pb_encode.h>
#include <stdio.h>
#include <uv.h>

#include "advisor/v1/agent_service.pb.h"

#include "advisor-agent/pki.h"
#include "advisor-agent/wire/wire.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/json.h"

#define TRY_MS   5000  /* each server */
#define TOTAL_MS 30000 /* a control plane that starts meanwhile is found */

/* ---- the bundle ------------------------------------------------------------------------------------------------- */

struct enrol_bundle *enrol_bundle_free(struct enrol_bundle *b)
{
    if (!b)
        return NULL;
    for (size_t i = 0; i < b->n_servers; i++)
        free(b->servers[i]);
    free(b->ca);
    free(b);
    return NULL;
}

static int wrong(struct adv_err *err, const char *field, const char *expected)
{
    (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "bundle: %s: expected %s", field, expected);
    return adv_err_field(err, "%s", field);
}

/* One line of printable text, or "" when it is absent. */
static int text(const json_t *root, const char *field, bool needed, char *ret, size_t size, struct adv_err *err)
{
    const json_t *v = json_object_get(root, field);
    const char *s = json_string_value(v);

    if (!v || json_is_null(v) || (s && !*s)) {
        ret[0] = '\0';
        return needed ? wrong(err, field, "a text") : 0;
    }
    if (!s || strlen(s) >= size)
        return wrong(err, field, "a short text");
    for (const char *p = s; *p; p++)
        if (*p < 0x21 || *p > 0x7e)
            return wrong(err, field, "a word without blanks");
    (void) strcpy(ret, s);
    return 0;
}

static int servers(const json_t *root, struct enrol_bundle *b, struct adv_err *err)
{
    const json_t *v = json_object_get(root, "servers"), *one;
    char word[300];
    size_t i;
    int r;

    if (!v || json_is_null(v))
        return 0;
    if (!json_is_array(v) || json_array_size(v) > ENROL_SERVERS_MAX)
        return wrong(err, "servers", "a list of at most 16 addresses");
    json_array_foreach (v, i, one) {
        ADV_JSON_AUTO json_t *holder = json_object();

        if (!holder || json_object_set(holder, "servers", (json_t *) (uintptr_t) one) < 0)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        if ((r = text(holder, "servers", true, word, sizeof(word), err)) < 0)
            return r;
        if (!(b->servers[b->n_servers] = strdup(word)))
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        b->n_servers++;
    }
    return 0;
}

/* The same words as the control plane takes for a cluster id. */
static bool cluster_ok(const char *s)
{
    return *s >= 'a' && *s <= 'z' && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(s);
}

int enrol_bundle_parse(const void *bytes, size_t len, struct enrol_bundle **ret, struct adv_err *err)
{
    ADV_AUTO(enrol_bundle) b = calloc(1, sizeof(*b));
    ADV_JSON_AUTO json_t *root = NULL;
    const char *ca, *expires;
    int r;

    if (!b)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if ((r = adv_json_parse(bytes, len, ENROL_BUNDLE_MAX, &root, err)) < 0) {
        adv_err_wrap(err, "bundle");
        return r;
    }
    if (!json_is_object(root))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "bundle: expected a JSON object as `advisorctl cluster enrol` writes it");
    if ((r = text(root, "cluster", true, b->cluster, sizeof(b->cluster), err)) < 0 ||
        (r = text(root, "token", true, b->token, sizeof(b->token), err)) < 0 ||
        (r = text(root, "serverName", false, b->server_name, sizeof(b->server_name), err)) < 0 ||
        (r = servers(root, b, err)) < 0)
        return r;
    if (!cluster_ok(b->cluster))
        return wrong(err, "cluster", "the name of a cluster");
    ca = json_string_value(json_object_get(root, "caCertificates"));
    if (!ca || !strstr(ca, "-----BEGIN CERTIFICATE-----"))
        return wrong(err, "caCertificates", "certificates as PEM");
    expires = json_string_value(json_object_get(root, "expireTime"));
    if (expires && adv_rfc3339_parse(expires, &b->expire_us, NULL) < 0)
        return wrong(err, "expireTime", "a time");
    if (!(b->ca = strdup(ca)))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    *ret = ADV_STEAL(b);
    return 0;
}

static int slurp(const char *path, struct adv_buf *b, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? -ADV_UNAVAILABLE : adv_buf_read(b, fd);

    if (r == -ADV_RESOURCE_EXHAUSTED)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: too large", path);
    return r < 0 ? adv_err_set_errno(err, ADV_NOT_FOUND, errno, "%.180s", path) : 0;
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

struct asking {
    uv_loop_t *loop;
    bool done;
    int result;
    struct adv_err *err;
    struct adv_buf chain;
    int64_t expire_s;
    char why[256]; /* of the connection */
};

static void on_state(void *ctx, enum wire_state state, const struct adv_err *err)
{
    struct asking *a = ctx;

    (void) state;
    if (err)
        (void) snprintf(a->why, sizeof(a->why), "%s", err->msg);
}

static void on_message(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
    struct asking *a = ctx;
    advisor_v1_EnrolResponse *m = calloc(1, sizeof(*m));
    pb_istream_t is = pb_istream_from_buffer(data, len);

    if (m && pb_decode(&is, advisor_v1_EnrolResponse_fields, m)) {
        adv_buf_reset(&a->chain);
        (void) adv_buf_append(&a->chain, m->certificate_chain.bytes, m->certificate_chain.size);
        a->expire_s = m->expire_unix;
    }
    free(m);
}

static void on_closed(void *ctx, struct wire_call *call, const struct wire_status *st)
{
    struct asking *a = ctx;

    a->done = true;
    if (st->code == ADV_OK && a->chain.len > 0)
        a->result = 0;
    else if (st->code == ADV_OK)
        a->result = adv_err_set(a->err, ADV_INTERNAL, "the control plane's answer cannot be read");
    else
        a->result = adv_err_set(a->err, st->code, "%s", st->from_server || !*a->why ? st->message : a->why);
    uv_stop(a->loop);
}

static int encode(const struct enrol_bundle *b, const struct pki_request *req, struct adv_buf *out, struct adv_err *err)
{
    advisor_v1_EnrolRequest m = advisor_v1_EnrolRequest_init_zero;
    size_t len, size;
    const uint8_t *der = pki_request_der(req, &len);
    adv_auto_free pb_bytes_array_t *csr = malloc(PB_BYTES_ARRAY_T_ALLOCSIZE(len));
    void *room;

    if (!csr)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    csr->size = (pb_size_t) len;
    memcpy(csr->bytes, der, len);
    m.cluster = (char *) (uintptr_t) b->cluster;
    m.token = (char *) (uintptr_t) b->token;
    m.csr = csr;
    if (!pb_get_encoded_size(&size, advisor_v1_EnrolRequest_fields, &m) || !(room = adv_buf_reserve(out, size)))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    pb_ostream_t os = pb_ostream_from_buffer(room, size);
    if (!pb_encode(&os, advisor_v1_EnrolRequest_fields, &m))
        return adv_err_set(err, ADV_INTERNAL, "encode: %s", PB_GET_ERROR(&os));
    adv_buf_commit(out, os.bytes_written);
    return 0;
}

static int ask(uv_loop_t *loop, const struct wire_config *wc, const struct adv_buf *request, struct asking *a,
               struct adv_err *err)
{
    static const struct wire_conn_ops conn_ops = { on_state };
    static const struct wire_call_ops call_ops = { .on_message = on_message, .on_closed = on_closed };
    struct wire_conn *conn = NULL;
    struct wire_call *call;
    int r = wire_conn_new(loop, wc, &conn_ops, a, &conn, err);

    if (r < 0)
        return r;
    a->done = false;
    a->why[0] = '\0';
    r = wire_call_start(conn, "/advisor.v1.AgentService/Enrol", NULL, 0, TRY_MS, 0, &call_ops, a, &call, err);
    if (r == 0 && (r = wire_call_send(call, request->data, request->len, err)) == 0) {
        wire_call_half_close(call);
        while (!a->done)
            (void) uv_run(loop, UV_RUN_DEFAULT);
        r = a->result;
    }
    (void) wire_conn_free(conn);
    (void) uv_run(loop, UV_RUN_DEFAULT);
    return r;
}

static bool worth_another_try(int r)
{
    return r == -ADV_UNAVAILABLE || r == -ADV_DEADLINE_EXCEEDED || r == -ADV_ABORTED;
}

static int ask_all(const struct agent_config *cfg, const struct enrol_bundle *b, const char *ca_path,
                   const struct pki_request *req, struct asking *a, const char **ret_target, struct adv_err *err)
{
    const char *own = cfg->target, *const *targets = cfg->target[0] ? &own : (const char *const *) b->servers;
    size_t n = cfg->target[0] ? 1 : b->n_servers;
    const char *name = cfg->server_name[0] ? cfg->server_name : b->server_name[0] ? b->server_name : NULL;
    int64_t until = adv_mono_us() + TOTAL_MS * INT64_C(1000);
    ADV_AUTO_DONE(adv_buf) request;
    int r;

    adv_buf_init(&request, 64 << 10);
    if (n == 0)
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "the bundle names no server: set control_plane.target to where the control plane is");
    if ((r = encode(b, req, &request, err)) < 0)
        return r;
    do {
        for (size_t i = 0; i < n; i++) {
            struct wire_config wc = { .target = targets[i], .server_name = name, .ca_path = ca_path, .insecure = cfg->insecure,
                                      .user_agent = "advisor-agent/" ADVISOR_VERSION, .connect_timeout_ms = TRY_MS,
                                      .backoff_min_ms = 500, .backoff_max_ms = 500 };

            r = ask(a->loop, &wc, &request, a, err);
            *ret_target = targets[i];
            if (!worth_another_try(r))
                return r;
            adv_err_wrap(err, "%.100s", targets[i]);
        }
        uv_sleep(500); /* nothing else runs here */
    } while (adv_mono_us() < until);
    return r;
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

static int check_place(const struct agent_config *cfg, const struct enrol_bundle *b, struct adv_err *err)
{
    ADV_AUTO_DONE(adv_buf) old;

    adv_buf_init(&old, ENROL_BUNDLE_MAX);
    if (cfg->cluster[0] && !adv_streq(cfg->cluster, b->cluster))
        return adv_err_set(err, ADV_FAILED_PRECONDITION, "the bundle is for cluster %s, the configuration says %.64s", b->cluster,
                           cfg->cluster);
    if (access(cfg->tls_ca, F_OK) == 0 &&
        (slurp(cfg->tls_ca, &old, err) < 0 || !adv_streq(old.data, b->ca)))
        return adv_err_set(err, ADV_FAILED_PRECONDITION,
                           "%.180s is there and holds another authority than the bundle: remove it if it is to be replaced",
                           cfg->tls_ca);
    if (pki_writable(cfg->tls_cert, cfg->tls_key, err) < 0 || pki_writable(cfg->tls_ca, cfg->tls_ca, err) < 0)
        return -(int) err->code;
    return 0;
}

/* Beside the certificate stands which bundle it came from, as a hash of the token: a second use of the bundle with a new key
 * would be refused, and told to the site as if somebody had stolen it. */
static bool marker_path(const struct agent_config *cfg, char ret[PATH_MAX])
{
    return snprintf(ret, PATH_MAX, "%s.bundle", cfg->tls_cert) < PATH_MAX;
}

static int token_hash(const struct enrol_bundle *b, char ret[ADV_SHA256_HEX_SIZE + 1], struct adv_err *err)
{
    uint8_t raw[ADV_SHA256_LEN];
    int r = adv_sha256(b->token, strlen(b->token), raw, err);

    if (r == 0) {
        (void) adv_hex(raw, sizeof(raw), ret);
        (void) strcpy(ret + 2 * sizeof(raw), "\n");
    }
    return r;
}

static int check_unused(const struct agent_config *cfg, const struct enrol_bundle *b, struct adv_err *err)
{
    char path[PATH_MAX], hash[ADV_SHA256_HEX_SIZE + 1];
    ADV_AUTO_DONE(adv_buf) old;
    int r;

    adv_buf_init(&old, 4096);
    if (!marker_path(cfg, path) || access(path, F_OK) < 0)
        return 0;
    if ((r = token_hash(b, hash, err)) < 0 || (r = slurp(path, &old, err)) < 0)
        return r;
    if (!adv_streq(old.data, hash))
        return 0;
    return adv_err_set(err, ADV_FAILED_PRECONDITION,
                       "this bundle was used here before, and is good for one certificate: %.120s; for another one make "
                       "another bundle (advisorctl cluster enrol)", cfg->tls_cert);
}

/* Not worth failing for: the certificate is in its place. */
static void note_used(const struct agent_config *cfg, const struct enrol_bundle *b)
{
    char path[PATH_MAX], hash[ADV_SHA256_HEX_SIZE + 1];
    struct adv_err err = { 0 };

    if (marker_path(cfg, path) && (token_hash(b, hash, &err) < 0 || pki_write_file(path, hash, strlen(hash), 0600, &err) < 0))
        (void) fprintf(stderr, "advisor-agent: that the bundle is used up was not written down: %s\n", err.msg);
}

static void tell(const struct agent_config *cfg, const struct enrol_bundle *b, const char *target)
{
    char when[ADV_RFC3339_SIZE], all[ENROL_SERVERS_MAX * 300] = "";
    struct pki_cert c = { 0 };

    for (size_t i = 0, n = 0; i < b->n_servers; i++)
        n += (size_t) snprintf(all + n, sizeof(all) - n, "%s%s", i ? "," : "", b->servers[i]);
    if (pki_look(cfg->tls_cert, &c, NULL) < 0) /* it was written a moment ago */
        (void) strcpy(c.serial, "?");
    (void) printf("cluster %s is enrolled: certificate %s, valid until %s\n", b->cluster, c.serial,
                  adv_rfc3339_format(c.not_after_s * 1000000, when));
    (void) printf("  %s\n  %s\n  %s\n", cfg->tls_cert, cfg->tls_key, cfg->tls_ca);
    if (!cfg->cluster[0] || !cfg->target[0])
        (void) printf("set in the agent's configuration:\n  cluster: %s\n  control_plane.target: %s\n", b->cluster,
                      b->n_servers > 1 ? all : target);
    if (b->server_name[0] && !cfg->server_name[0])
        (void) printf("  control_plane.server_name: %s\n", b->server_name);
    (void) printf("the bundle is used up and can be deleted\n");
}

int enrol_run(const struct agent_config *cfg, const char *bundle_path, struct adv_err *err)
{
    ADV_AUTO(enrol_bundle) b = NULL;
    ADV_AUTO(pki_request) req = NULL;
    ADV_AUTO_DONE(adv_buf) file;
    char ca_new[PATH_MAX];
    const char *target = "";
    uv_loop_t loop;
    struct asking a = { .loop = &loop, .err = err };
    int r;

    adv_buf_init(&file, ENROL_BUNDLE_MAX);
    if ((r = slurp(bundle_path, &file, err)) < 0 || (r = enrol_bundle_parse(file.data, file.len, &b, err)) < 0 ||
        (r = check_place(cfg, b, err)) < 0 || (r = check_unused(cfg, b, err)) < 0 || (r = pki_request_new(&req, err)) < 0)
        return r;
    if (snprintf(ca_new, sizeof(ca_new), "%s.enrol", cfg->tls_ca) >= (int) sizeof(ca_new))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "tls.ca: too long a path");
    if (uv_loop_init(&loop) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no event loop");
    adv_buf_init(&a.chain, 64 << 10);
    if ((r = pki_write_file(ca_new, b->ca, strlen(b->ca), 0644, err)) == 0 &&
        (r = ask_all(cfg, b, ca_new, req, &a, &target, err)) == 0 &&
        (r = pki_install(req, a.chain.data, a.chain.len, cfg->tls_cert, cfg->tls_key, err)) == 0 &&
        rename(ca_new, cfg->tls_ca) < 0)
        r = adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%.180s", cfg->tls_ca);
    (void) unlink(ca_new);
    adv_buf_done(&a.chain);
    (void) uv_loop_close(&loop);
    if (r == 0) {
        note_used(cfg, b);
        tell(cfg, b, target);
    }
    return r;
}
