/* SPDX-License-Identifier: Apache-2.0 */
/* One loop, one connection, one call at a time. The loop runs inside the call functions, so a command reads downwards.
 *
 * A call fails as soon as the first attempt to connect does: a person at a terminal prefers an answer to a silent retry.
 * The connection's own error says more than the call's ("connect to x: connection refused"), so it is kept and shown. */

#include "ctl/client.h"

#include <inttypes.h>
#include <signal.h>
#include <uv.h>

#include "advisor-agent/wire/wire.h"
#include "ctl/text.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

#define MAX_ANSWER_BYTES (64 << 20)
#define TOKEN_MAX        8192 /* what the control plane takes */

struct client {
    const struct ctl_config *cfg;
    uv_loop_t loop;
    bool loop_made;
    struct wire_conn *conn;
    char why[256]; /* the last connection error */
    uv_signal_t sig[2];
    int signum;

    /* the call under way */
    struct wire_call *call;
    bool (*on_message)(void *arg, ProtobufCMessage *m);
    void *arg;
    const ProtobufCMessageDescriptor *type;
    struct failure *failure;
    bool ended, failed;
    char *authorization; /* "Bearer …" */
};

/* ---- failures --------------------------------------------------------------------------------------------------- */

static void copy(char *dst, size_t size, const char *src)
{
    (void) snprintf(dst, size, "%s", src ? src : "");
}

static void take_detail(struct failure *f, const Google__Protobuf__Any *any)
{
    const char *name = any->type_url ? strrchr(any->type_url, '/') : NULL;

    if (adv_streq(name, "/google.rpc.ErrorInfo")) {
        Google__Rpc__ErrorInfo *m = google__rpc__error_info__unpack(NULL, any->value.len, any->value.data);

        if (m)
            copy(f->reason, sizeof(f->reason), m->reason);
        google__rpc__error_info__free_unpacked(m, NULL);
    } else if (adv_streq(name, "/google.rpc.RetryInfo")) {
        Google__Rpc__RetryInfo *m = google__rpc__retry_info__unpack(NULL, any->value.len, any->value.data);

        if (m && m->retry_delay && m->retry_delay->seconds >= 0 && m->retry_delay->seconds < 1000000)
            f->retry_after_ms = m->retry_delay->seconds * 1000 + m->retry_delay->nanos / 1000000;
        google__rpc__retry_info__free_unpacked(m, NULL);
    } else if (adv_streq(name, "/google.rpc.BadRequest")) {
        Google__Rpc__BadRequest *m = google__rpc__bad_request__unpack(NULL, any->value.len, any->value.data);

        if (m && m->n_field_violations > 0) {
            copy(f->field, sizeof(f->field), m->field_violations[0]->field);
            copy(f->violation, sizeof(f->violation), m->field_violations[0]->description);
        }
        google__rpc__bad_request__free_unpacked(m, NULL);
    }
}

void failure_details(struct failure *f, const uint8_t *status, size_t len)
{
    Google__Rpc__Status *s = len ? google__rpc__status__unpack(NULL, len, status) : NULL;

    for (size_t i = 0; s && i < s->n_details; i++)
        take_detail(f, s->details[i]);
    google__rpc__status__free_unpacked(s, NULL);
}

const char *failure_cause(const char *message)
{
    static const struct {
        const char *part, *cause;
    } causes[] = {
        { "connection refused", "nothing listens there: is advisord running, and is --server right?" },
        { "no such file", "the socket or a certificate file does not exist" },
        { "look up", "the name is not known here: is --server right?" },
        { "timed out", "no answer: a firewall, or the host is down" },
        { "no route", "the network does not lead there" },
        { "unreachable", "the network does not lead there" },
        { "certificate required", "the server wants a client certificate: give --cert and --key" },
        { "unknown ca", "the server does not trust the authority of your certificate" },
        { "bad certificate", "the server refuses your certificate" },
        { "certificate unknown", "the server refuses your certificate" },
        { "certificate expired", "your certificate has expired" },
        { "certificate has expired", "the server's certificate has expired" },
        { "hostname mismatch", "the server's certificate is for another name: see --server-name" },
        { "ip address mismatch", "the server's certificate is for another address: see --server-name" },
        { "certificate refused", "the server's certificate is not signed by the authority given with --ca" },
        { "wrong version number", "the server speaks no TLS there: is it another port, or was it started with insecure?" },
        { "permission denied", "you may not open the socket or a certificate file" },
        { "file '", "a certificate file cannot be read: see --ca, --cert and --key" },
        { "closed by the server", "the server ended it: without TLS on a TLS port, or with a certificate it refuses?" },
        { "connection reset", "the server ended it: without TLS on a TLS port, or with a certificate it refuses?" },
        { "insecure", "give --ca, --cert and --key, or use a loopback address" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(causes); i++)
        if (strcasestr(message, causes[i].part))
            return causes[i].cause;
    return NULL;
}

static void print_line(FILE *out, const char *head, const char *text)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 8192);
    text_escape(&b, text);
    (void) fprintf(out, "%s%s\n", head, b.data);
}

static void print_target(FILE *out, const struct ctl_config *cfg)
{
    char text[1024];

    if (cfg->insecure)
        (void) snprintf(text, sizeof(text), "%s without TLS", cfg->server);
    else
        (void) snprintf(text, sizeof(text), "%s with TLS, authority %s, certificate %s%s%s", cfg->server,
                        *cfg->ca ? cfg->ca : "of the system", *cfg->cert ? cfg->cert : "none",
                        *cfg->server_name ? ", server name " : "", cfg->server_name);
    print_line(out, "  tried:         ", text);
}

void failure_print(FILE *out, const struct failure *f, const struct ctl_config *cfg)
{
    char head[128], num[TEXT_TIME_SIZE];
    const char *cause;

    if (f->exit_code == CTL_EXIT_UNREACHABLE) {
        print_line(out, "advisorctl: ", "the server cannot be reached");
        print_target(out, cfg);
        print_line(out, "  what happened: ", f->message);
        cause = failure_cause(f->message);
        if (!cfg->insecure && !*cfg->cert && strstr(f->message, "closed by the server"))
            cause = "the server wants a client certificate: give --cert and --key";
        if (cause)
            print_line(out, "  likely cause:  ", cause);
        return;
    }
    (void) snprintf(head, sizeof(head), "advisorctl: %s%s%s%s: ", adv_code_name((int) f->code), *f->reason ? " (" : "",
                    f->reason, *f->reason ? ")" : "");
    print_line(out, head, f->message);
    if (f->exit_code == CTL_EXIT_TIMEOUT)
        print_target(out, cfg);
    if (*f->field)
        print_line(out, "  field: ", f->field);
    if (*f->violation && !strstr(f->message, f->violation))
        print_line(out, "  wrong: ", f->violation);
    if (f->retry_after_ms)
        (void) fprintf(out, "  try again in %s\n", text_span(f->retry_after_ms * 1000, num));
    else if (adv_code_retryable((int) f->code))
        (void) fprintf(out, "  the same command may succeed later\n");
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

static void end_call(struct client *c)
{
    c->ended = true;
    uv_stop(&c->loop);
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct client *c = h->data;

    c->signum = signum;
    end_call(c);
}

static void on_state(void *ctx, enum wire_state state, const struct adv_err *err)
{
    struct client *c = ctx;

    (void) state;
    if (err)
        copy(c->why, sizeof(c->why), err->msg);
}

static void on_bytes(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
    struct client *c = ctx;
    ProtobufCMessage *m = protobuf_c_message_unpack(c->type, NULL, len, data);

    (void) call;
    if (!m) {
        c->failed = true;
        *c->failure = (struct failure) { .exit_code = CTL_EXIT_REFUSED, .code = ADV_INTERNAL };
        copy(c->failure->message, sizeof(c->failure->message), "the server's answer is not understood");
    }
    if (!m || !c->on_message(c->arg, m)) {
        c->call = wire_call_cancel(c->call);
        end_call(c);
    }
}

static void on_closed(void *ctx, struct wire_call *call, const struct wire_status *status)
{
    struct client *c = ctx;
    struct failure *f = c->failure;

    (void) call;
    c->call = NULL;
    end_call(c);
    if (status->code == ADV_OK)
        return;
    c->failed = true;
    *f = (struct failure) { .exit_code = CTL_EXIT_REFUSED, .code = status->code };
    copy(f->message, sizeof(f->message), status->message);
    if (status->code == ADV_DEADLINE_EXCEEDED)
        f->exit_code = CTL_EXIT_TIMEOUT;
    else if (!status->from_server && (status->code == ADV_UNAVAILABLE || status->code == ADV_UNAUTHENTICATED))
        f->exit_code = CTL_EXIT_UNREACHABLE;
    if (f->exit_code == CTL_EXIT_UNREACHABLE && *c->why)
        copy(f->message, sizeof(f->message), c->why);
    if (f->exit_code == CTL_EXIT_TIMEOUT && *c->why)
        (void) snprintf(f->message, sizeof(f->message), "no answer in time; the connection: %.256s", c->why);
    failure_details(f, status->details, status->details_len);
}

int client_new(const struct ctl_config *cfg, struct client **ret, struct adv_err *err)
{
    static const struct wire_conn_ops ops = { .on_state = on_state };
    struct wire_config wc = {
        .target = cfg->server,
        .server_name = *cfg->server_name ? cfg->server_name : NULL,
        .ca_path = *cfg->ca && !cfg->insecure ? cfg->ca : NULL,
        .cert_path = *cfg->cert ? cfg->cert : NULL,
        .key_path = *cfg->key ? cfg->key : NULL,
        .insecure = cfg->insecure,
        .user_agent = "advisorctl/" ADVISOR_VERSION,
        .max_message_bytes = MAX_ANSWER_BYTES,
        .stream_window_bytes = 1 << 20,
        /* a call with a deadline ends by it; the connection's own limit only says what it was waiting for */
        .connect_timeout_ms = (uint64_t) cfg->timeout_ms,
    };
    ADV_AUTO(client) c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    c->cfg = cfg;
    if (uv_loop_init(&c->loop) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no event loop");
    c->loop_made = true;
    for (size_t i = 0; i < ADV_ARRAY_LEN(c->sig); i++) {
        (void) uv_signal_init(&c->loop, &c->sig[i]);
        c->sig[i].data = c;
        uv_unref((uv_handle_t *) &c->sig[i]);
    }
    if ((r = wire_conn_new(&c->loop, &wc, &ops, c, &c->conn, err)) < 0)
        return r;
    *ret = ADV_STEAL(c);
    return 0;
}

struct client *client_free(struct client *c)
{
    if (!c)
        return NULL;
    c->conn = wire_conn_free(c->conn);
    if (c->loop_made) {
        for (size_t i = 0; i < ADV_ARRAY_LEN(c->sig); i++)
            uv_close((uv_handle_t *) &c->sig[i], NULL);
        (void) uv_run(&c->loop, UV_RUN_DEFAULT);
        (void) uv_loop_close(&c->loop);
    }
    free(c->authorization);
    free(c);
    return NULL;
}

static int fail_local(struct failure *f, const struct adv_err *err)
{
    *f = (struct failure) { .exit_code = err->code == ADV_UNAVAILABLE ? CTL_EXIT_UNREACHABLE : CTL_EXIT_REFUSED,
                            .code = err->code };
    copy(f->message, sizeof(f->message), err->msg);
    return -(int) err->code;
}

static int read_token(struct client *c, struct adv_err *err)
{
    FILE *f = fopen(c->cfg->token_file, "re");
    char text[TOKEN_MAX + 2] = "";
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    if (f)
        (void) fclose(f);
    else
        return adv_err_set_errno(err, ADV_INVALID_ARGUMENT, errno, "token_file %.180s", c->cfg->token_file);
    text[n] = '\0';
    n = strcspn(text, " \t\r\n");
    if (n == 0 || n > TOKEN_MAX || text[n + strspn(text + n, " \t\r\n")])
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "token_file %.180s: expected one token of at most %d bytes",
                           c->cfg->token_file, TOKEN_MAX);
    text[n] = '\0';
    if (asprintf(&c->authorization, "Bearer %s", text) < 0) {
        c->authorization = NULL;
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    return 0;
}

static int start_call(struct client *c, const char *path, const ProtobufCMessage *req, uint64_t deadline_ms,
                      struct adv_err *err)
{
    static const struct wire_call_ops ops = { .on_message = on_bytes, .on_closed = on_closed };
    size_t len = protobuf_c_message_get_packed_size(req);
    adv_auto_free uint8_t *bytes = malloc(len + 1);
    int r;

    if (!bytes)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    (void) protobuf_c_message_pack(req, bytes);
    if (*c->cfg->token_file && !c->authorization && (r = read_token(c, err)) < 0)
        return r;
    const struct wire_metadata auth = { "authorization", c->authorization, c->authorization ? strlen(c->authorization) : 0 };
    if ((r = wire_call_start(c->conn, path, &auth, c->authorization ? 1 : 0, deadline_ms, 0, &ops, c, &c->call, err)) < 0)
        return r;
    if ((r = wire_call_send(c->call, bytes, len, err)) < 0) {
        c->call = wire_call_cancel(c->call);
        return r;
    }
    wire_call_half_close(c->call);
    return 0;
}

int client_stream(struct client *c, const char *path, const ProtobufCMessage *req, uint64_t deadline_ms,
                  const ProtobufCMessageDescriptor *type, bool (*on_message)(void *arg, ProtobufCMessage *m),
                  void *arg, bool *ret_interrupted, struct failure *f)
{
    static const int signums[] = { SIGINT, SIGTERM };
    struct adv_err err = { 0 };

    c->on_message = on_message;
    c->arg = arg;
    c->type = type;
    c->failure = f;
    c->ended = c->failed = false;
    c->signum = 0;
    if (start_call(c, path, req, deadline_ms, &err) < 0)
        return fail_local(f, &err);
    for (size_t i = 0; ret_interrupted && i < ADV_ARRAY_LEN(c->sig); i++)
        (void) uv_signal_start(&c->sig[i], on_signal, signums[i]);
    while (!c->ended)
        (void) uv_run(&c->loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < ADV_ARRAY_LEN(c->sig); i++)
        (void) uv_signal_stop(&c->sig[i]);
    c->call = wire_call_cancel(c->call);
    if (ret_interrupted)
        *ret_interrupted = c->signum != 0;
    return c->failed ? -(int) f->code : 0;
}

static bool keep_answer(void *arg, ProtobufCMessage *m)
{
    ProtobufCMessage **answer = arg;

    if (*answer)
        protobuf_c_message_free_unpacked(*answer, NULL);
    *answer = m;
    return true; /* the status still comes */
}

int client_call(struct client *c, const char *path, const ProtobufCMessage *req, const ProtobufCMessageDescriptor *type,
                ProtobufCMessage **ret, struct failure *f)
{
    ProtobufCMessage *answer = NULL;
    int r = client_stream(c, path, req, (uint64_t) c->cfg->timeout_ms, type, keep_answer, &answer, NULL, f);

    if (r == 0 && !answer) {
        struct adv_err err = { 0 };

        (void) adv_err_set(&err, ADV_INTERNAL, "the server sent no answer");
        r = fail_local(f, &err);
    }
    if (r < 0) {
        if (answer)
            protobuf_c_message_free_unpacked(answer, NULL);
        return r;
    }
    *ret = answer;
    return 0;
}
