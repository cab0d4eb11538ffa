/* SPDX-License-Identifier: Apache-2.0 */
/* One batch a call, so one tag: what is sent, and what comes back up to the status. Core enforces the deadline, also before
 * there is a connection. A call that is not waiting for readiness fails at once while the channel is broken, which is what
 * makes a provider that is gone cheap.
 *
 * The end: every tag has to be back before the pump is given back, and that must not happen from within the pump's own turn.
 * So the last one closes a handle, and the callback of that does the rest. */

#include "controlplane/rpc/client.h"

#include <fcntl.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <sys/stat.h>
#include <utlist.h>

#include "common/buf.h"
#include "common/clock.h"
#include "common/log.h"
#include "controlplane/rpc/door.h"
#include "controlplane/rpc/internal.h"

#define LOOK_US        (10 * 1000000LL)
#define FILE_MAX       (1 << 20)
#define RECONNECT_MIN  500   /* ms */
#define RECONNECT_MAX  60000 /* ms */
#define WHY_MAX        120   /* bytes of the server's words */

enum { FILE_CA, FILE_CERT, FILE_KEY, N_FILES };

struct stamp {
    int64_t sec, nsec, size;
    uint64_t ino;
};

struct rpc_client {
    uv_loop_t *loop;
    struct rpc_pump *pump;
    grpc_channel *channel;
    char *target;
    char *path[N_FILES]; /* NULL: none */
    struct stamp stamp[N_FILES];
    int64_t looked_us;
    size_t max_response_bytes;
    struct client_call *calls;
    uv_timer_t end; /* only to be closed */
    bool stopping, closing;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

struct client_call {
    struct rpc_tag tag;
    struct rpc_client *c;
    struct client_call *prev, *next;
    grpc_call *call;
    grpc_byte_buffer *sent, *received;
    grpc_metadata_array head, tail;
    grpc_status_code status;
    grpc_slice text;
    const ProtobufCMessageDescriptor *desc;
    rpc_client_cb cb;
    void *arg;
};

/* ---- channel ------------------------------------------------------------------------------------------------------ */

static bool stamp_of(const char *path, struct stamp *ret)
{
    struct stat st;

    if (!path || stat(path, &st) < 0)
        return false;
    *ret = (struct stamp) { st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_size, st.st_ino };
    return true;
}

static int slurp(const char *path, char **ret, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, FILE_MAX);
    if (fd < 0)
        return adv_err_set_errno(err, errno == EACCES ? ADV_PERMISSION_DENIED : ADV_NOT_FOUND, errno, "%.180s", path);
    if (adv_buf_read(&b, fd) < 0)
        return adv_err_set(err, ADV_NOT_FOUND, "%.180s: cannot be read, or is too large for a PEM file", path);
    *ret = adv_buf_steal(&b, NULL);
    return *ret ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
}

static int credentials(const struct rpc_client *c, grpc_channel_credentials **ret, struct adv_err *err)
{
    char *pem[N_FILES] = { NULL };
    grpc_ssl_pem_key_cert_pair pair;
    int r = 0;

    if (!c->path[FILE_CA]) {
        *ret = grpc_insecure_credentials_create();
        return *ret ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    for (int i = 0; r == 0 && i < N_FILES; i++)
        if (c->path[i])
            r = slurp(c->path[i], &pem[i], err);
    if (r == 0) {
        pair = (grpc_ssl_pem_key_cert_pair) { pem[FILE_KEY], pem[FILE_CERT] };
        *ret = grpc_ssl_credentials_create_ex(pem[FILE_CA], pem[FILE_CERT] ? &pair : NULL, NULL, NULL);
        if (!*ret)
            r = adv_err_set(err, ADV_INVALID_ARGUMENT, "%.100s: no certificates that can be used", c->path[FILE_CA]);
    }
    for (int i = 0; i < N_FILES; i++)
        free(pem[i]);
    return r;
}

static grpc_arg number(const char *key, int value)
{
    return (grpc_arg) { .type = GRPC_ARG_INTEGER, .key = (char *) (uintptr_t) key, .value.integer = value };
}

static int dial(struct rpc_client *c, struct adv_err *err)
{
    grpc_channel_credentials *creds;
    grpc_arg args[] = {
        number("grpc.max_receive_message_length", (int) c->max_response_bytes),
        number("grpc.max_metadata_size", 16 << 10),
        number("grpc.per_message_decompression", 0), /* nobody inflates what was not measured */
        number("grpc.compression_enabled_algorithms_bitset", 1),
        number("grpc.enable_retries", 0),
        number("grpc.service_config_disable_resolution", 1),
        number("grpc.enable_http_proxy", 0),
        number("grpc.use_local_subchannel_pool", 1),
        number("grpc.initial_reconnect_backoff_ms", RECONNECT_MIN),
        number("grpc.min_reconnect_backoff_ms", RECONNECT_MIN),
        number("grpc.max_reconnect_backoff_ms", RECONNECT_MAX),
        number("grpc.keepalive_time_ms", 60000),
        number("grpc.keepalive_timeout_ms", 10000),
    };
    const grpc_channel_args list = { ADV_ARRAY_LEN(args), args };
    struct stamp stamp[N_FILES] = { 0 };
    grpc_channel *channel;
    int r;

    for (int i = 0; i < N_FILES; i++)
        (void) stamp_of(c->path[i], &stamp[i]);
    r = credentials(c, &creds, err);
    if (r < 0)
        return r;
    channel = grpc_channel_create(c->target, creds, &list);
    grpc_channel_credentials_release(creds);
    if (!channel)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (c->channel)
        grpc_channel_destroy(c->channel); /* its calls go on */
    c->channel = channel;
    memcpy(c->stamp, stamp, sizeof(stamp));
    return 0;
}

static void look_at_files(struct rpc_client *c)
{
    static struct adv_ratelimit limit;
    int64_t now_us = adv_mono_us();
    struct adv_err err = { 0 };
    bool changed = false;

    if (!c->path[FILE_CA] || now_us - c->looked_us < LOOK_US)
        return;
    c->looked_us = now_us;
    for (int i = 0; i < N_FILES; i++) {
        struct stamp s = { 0 };
        (void) stamp_of(c->path[i], &s);
        changed |= memcmp(&s, &c->stamp[i], sizeof(s)) != 0;
    }
    if (changed && dial(c, &err) < 0 && adv_log_ratelimit(&limit, 1))
        adv_warn("rpc", "certificates of a client not read again, the old ones stay", ADV_FS("target", c->target),
                 ADV_FS("why", err.msg));
}

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static void maybe_end(struct rpc_client *c);

static void call_free(struct client_call *call)
{
    if (call->sent)
        grpc_byte_buffer_destroy(call->sent);
    if (call->received)
        grpc_byte_buffer_destroy(call->received);
    grpc_metadata_array_destroy(&call->head);
    grpc_metadata_array_destroy(&call->tail);
    grpc_slice_unref(call->text);
    if (call->call)
        grpc_call_unref(call->call);
    free(call);
}

static void words_of(grpc_slice text, char ret[WHY_MAX + 1])
{
    const uint8_t *p = GRPC_SLICE_START_PTR(text);
    size_t n = GRPC_SLICE_LENGTH(text);

    if (n > WHY_MAX)
        n = WHY_MAX;
    for (size_t i = 0; i < n; i++)
        ret[i] = p[i] >= 0x20 && p[i] < 0x7f ? (char) p[i] : '?';
    ret[n] = '\0';
}

/* Through the door, into @arena. */
static int open_answer(const struct client_call *call, struct adv_arena *arena, ProtobufCMessage **ret, struct adv_err *err)
{
    grpc_byte_buffer_reader reader;
    grpc_slice flat;
    int r;

    if (!call->received)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "the answer has no message");
    if (call->received->data.raw.compression != GRPC_COMPRESS_NONE)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "the answer is compressed, which was not offered");
    if (grpc_byte_buffer_length(call->received) > call->c->max_response_bytes)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "the answer has more than %zu bytes",
                                  call->c->max_response_bytes);
    if (!grpc_byte_buffer_reader_init(&reader, call->received))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    flat = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    r = rpc_door_decode(call->desc, GRPC_SLICE_START_PTR(flat), GRPC_SLICE_LENGTH(flat), arena, ret, err);
    grpc_slice_unref(flat);
    return r;
}

static void on_done(struct rpc_tag *tag, bool ok)
{
    struct client_call *call = ADV_CONTAINER_OF(tag, struct client_call, tag);
    struct rpc_client *c = call->c;
    ADV_AUTO_DONE(adv_arena) arena;
    ProtobufCMessage *answer = NULL;
    struct adv_err err = { 0 };
    char words[WHY_MAX + 1];

    (void) ok; /* a batch with a status never fails */
    adv_arena_init(&arena, 0);
    words_of(call->text, words);
    if (c->stopping)
        (void) adv_err_set(&err, ADV_CANCELLED, "no longer asked");
    else if (call->status != GRPC_STATUS_OK)
        (void) adv_err_set(&err, call->status > GRPC_STATUS_OK && call->status <= GRPC_STATUS_UNAUTHENTICATED ?
                                     (enum adv_code) call->status : ADV_UNKNOWN, "%s", words);
    else if (open_answer(call, &arena, &answer, &err) < 0)
        answer = NULL;
    DL_DELETE(c->calls, call);
    call->cb(call->arg, answer, answer ? NULL : &err);
    call_free(call);
    maybe_end(c);
}

int rpc_client_call(struct rpc_client *c, const char *path, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *answer, int timeout_ms, rpc_client_cb cb, void *arg, struct adv_err *err)
{
    gpr_timespec deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
    struct client_call *call;
    grpc_slice bytes;
    grpc_op op[6] = { { .op = GRPC_OP_SEND_INITIAL_METADATA } };

    if (c->stopping)
        return adv_err_set(err, ADV_UNAVAILABLE, "stopping");
    look_at_files(c);
    call = calloc(1, sizeof(*call));
    if (!call)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    call->c = c;
    call->tag.fn = on_done;
    call->desc = answer;
    call->cb = cb;
    call->arg = arg;
    call->text = grpc_empty_slice();
    grpc_metadata_array_init(&call->head);
    grpc_metadata_array_init(&call->tail);
    bytes = grpc_slice_malloc(protobuf_c_message_get_packed_size(request));
    (void) protobuf_c_message_pack(request, GRPC_SLICE_START_PTR(bytes));
    call->sent = grpc_raw_byte_buffer_create(&bytes, 1);
    grpc_slice_unref(bytes);
    call->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, rpc_pump_cq(c->pump),
                                          grpc_slice_from_static_string(path), NULL, deadline, NULL);
    op[1] = (grpc_op) { .op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->sent };
    op[2] = (grpc_op) { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT };
    op[3] = (grpc_op) { .op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &call->head };
    op[4] = (grpc_op) { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->received };
    op[5] = (grpc_op) { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                        .data.recv_status_on_client = { .trailing_metadata = &call->tail, .status = &call->status,
                                                        .status_details = &call->text } };
    RPC_TAG_GIVE(&call->tag);
    if (!call->call || grpc_call_start_batch(call->call, op, ADV_ARRAY_LEN(op), &call->tag, NULL) != GRPC_CALL_OK) {
        call_free(call);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "the call cannot be begun");
    }
    DL_APPEND(c->calls, call);
    return 0;
}

/* ---- life --------------------------------------------------------------------------------------------------------- */

static void on_put(void *arg)
{
    struct rpc_client *c = arg;

    c->closing = false;
    if (c->stopped)
        c->stopped(c->stopped_arg);
}

static void on_ended(uv_handle_t *h)
{
    struct rpc_client *c = h->data;

    grpc_channel_destroy(c->channel);
    c->channel = NULL;
    rpc_pump_put(ADV_STEAL(c->pump), on_put, c);
}

static void maybe_end(struct rpc_client *c)
{
    if (!c->stopping || c->calls || c->closing)
        return;
    c->closing = true;
    uv_close((uv_handle_t *) &c->end, on_ended);
}

void rpc_client_stop(struct rpc_client *c, void (*stopped)(void *arg), void *arg)
{
    struct client_call *call;

    c->stopping = true;
    c->stopped = stopped;
    c->stopped_arg = arg;
    DL_FOREACH (c->calls, call)
        (void) grpc_call_cancel(call->call, NULL);
    maybe_end(c);
}

struct rpc_client *rpc_client_free(struct rpc_client *c)
{
    if (!c)
        return NULL;
    assert(!c->calls && !c->pump && !c->channel);
    for (int i = 0; i < N_FILES; i++)
        free(c->path[i]);
    free(c->target);
    free(c);
    grpc_shutdown();
    return NULL;
}

static bool set(char **dst, const char *src)
{
    return !src || !*src || (*dst = strdup(src));
}

int rpc_client_new(uv_loop_t *loop, const struct rpc_client_config *cfg, struct rpc_client **ret, struct adv_err *err)
{
    struct rpc_client *c = calloc(1, sizeof(*c));
    int r = 0;

    if (!c)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    grpc_init();
    c->loop = loop;
    c->max_response_bytes = cfg->max_response_bytes;
    if (!set(&c->target, cfg->target) || !set(&c->path[FILE_CA], cfg->ca_file) || !set(&c->path[FILE_CERT], cfg->cert_file) ||
        !set(&c->path[FILE_KEY], cfg->key_file))
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    else if (!c->target || (!c->path[FILE_CA] && !rpc_address_is_local(c->target)))
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "%.100s: without TLS only loopback and unix addresses are called; set a CA",
                        c->target ? c->target : "");
    if (r == 0)
        r = dial(c, err);
    if (r == 0)
        r = rpc_pump_get(loop, &c->pump, err);
    if (r < 0) {
        if (c->channel)
            grpc_channel_destroy(ADV_STEAL(c->channel));
        (void) rpc_client_free(c);
        return r;
    }
    c->looked_us = adv_mono_us();
    (void) uv_timer_init(loop, &c->end);
    c->end.data = c;
    *ret = c;
    return 0;
}
