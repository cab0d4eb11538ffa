/* SPDX-License-Identifier: Apache-2.0 */
/* TLS goes through memory BIOs, as in the agent. One read buffer serves all links. */

#include "bench/load/link.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <utlist.h>

#include "advisor-agent/wire/h2.h"

#define PULL_BYTES 65536

struct link {
    struct link_env *env;
    const struct link_ops *ops;
    void *ctx;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    SSL *ssl;
    BIO *in, *out; /* the SSL's */
    struct wire_h2 *h2;
    struct link_call *calls;
    struct adv_buf pending; /* cipher bytes to be written */
    bool bare, heard, secure, closing, writing, stalled;
    unsigned depth; /* inside nghttp2 */
    bool dead;      /* closed while inside */
};

struct link_call {
    struct link *link;
    struct wire_call *call; /* the stream's */
    const struct link_call_ops *ops;
    void *ctx;
    struct link_call *prev, *next;
};

static char read_buf[1 << 18];

static void die(const char *what)
{
    (void) fprintf(stderr, "load: %s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

/* ---- shared ----------------------------------------------------------------------------------------------------- */

void link_env_init(struct link_env *env, uv_loop_t *loop, int port, const char *ca_dir)
{
    static const unsigned char alpn[] = { 2, 'h', '2' };
    char path[512];
    FILE *f;

    *env = (struct link_env) { .loop = loop };
    (void) uv_ip4_addr("127.0.0.1", port, &env->addr);
    env->cfg = (struct wire_config) { .user_agent = "bench",
                                      .max_message_bytes = 4 << 20,
                                      .max_headers_bytes = 16384,
                                      .max_send_queue_bytes = 64 << 20,
                                      .stream_window_bytes = 65535 };
    if (!ca_dir)
        return;
    (void) snprintf(path, sizeof(path), "%s/ca.key", ca_dir);
    if (!(f = fopen(path, "re")) || !(env->ca_key = PEM_read_PrivateKey(f, NULL, NULL, NULL)))
        die(path);
    (void) fclose(f);
    (void) snprintf(path, sizeof(path), "%s/ca.crt", ca_dir);
    if (!(f = fopen(path, "re")) || !(env->ca = PEM_read_X509(f, NULL, NULL, NULL)))
        die(path);
    (void) fclose(f);
    env->key = EVP_EC_gen("P-256");
    env->tls = SSL_CTX_new(TLS_client_method());
    if (!env->key || !env->tls || SSL_CTX_load_verify_file(env->tls, path) != 1)
        die("TLS");
    (void) SSL_CTX_set_mode(env->tls, SSL_MODE_RELEASE_BUFFERS);
    (void) SSL_CTX_set_session_cache_mode(env->tls, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(env->tls, SSL_VERIFY_PEER, NULL);
    (void) SSL_CTX_set_alpn_protos(env->tls, alpn, sizeof(alpn));
}

X509 *link_env_issue(struct link_env *env, const char *uri)
{
    static long serial = 1000;
    char san[300];
    X509 *x;
    X509_EXTENSION *ext;
    X509V3_CTX v3;

    if (!env->tls)
        return NULL;
    x = X509_new();
    (void) snprintf(san, sizeof(san), "URI:%s", uri);
    if (!x || X509_set_version(x, X509_VERSION_3) != 1 || ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial) != 1 ||
        !X509_gmtime_adj(X509_getm_notBefore(x), -60) || !X509_gmtime_adj(X509_getm_notAfter(x), 86400 * 2) ||
        X509_set_issuer_name(x, X509_get_subject_name(env->ca)) != 1 || X509_set_pubkey(x, env->key) != 1 ||
        X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *) "agent", -1, -1,
                                   0) != 1)
        die("certificate");
    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, env->ca, x, NULL, NULL, 0);
    ext = X509V3_EXT_conf_nid(NULL, &v3, NID_subject_alt_name, san);
    if (!ext || X509_add_ext(x, ext, -1) != 1 || X509_sign(x, env->ca_key, EVP_sha256()) == 0)
        die("certificate");
    X509_EXTENSION_free(ext);
    return x;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h)
{
    struct link *l = h->data;
    struct link_call *c, *next;

    DL_FOREACH_SAFE (l->calls, c, next) {
        c->call->ops = NULL;
        wire_h2_reset(c->call);
        free(c);
    }
    (void) wire_h2_free(l->h2);
    SSL_free(l->ssl);
    adv_buf_done(&l->pending);
    free(l);
}

struct link *link_close(struct link *l)
{
    if (!l || l->closing)
        return NULL;
    l->closing = true;
    if (l->depth)
        l->dead = true;
    else
        uv_close((uv_handle_t *) &l->tcp, on_closed);
    return NULL;
}

static void fail(struct link *l, const char *why)
{
    if (l->closing)
        return;
    (void) link_close(l);
    l->ops->closed(l->ctx, why);
}

/* ---- out -------------------------------------------------------------------------------------------------------- */

static void take_cipher(struct link *l)
{
    size_t n;

    while ((n = BIO_ctrl_pending(l->out)) > 0) {
        void *room = adv_buf_reserve(&l->pending, n);
        int got = room ? BIO_read(l->out, room, (int) n) : -1;
        if (got <= 0)
            die("no memory");
        adv_buf_commit(&l->pending, (size_t) got);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct link *l = req->data;

    l->writing = false;
    adv_buf_done(&l->pending);
    adv_buf_init(&l->pending, SIZE_MAX / 2);
    if (status < 0)
        fail(l, uv_strerror(status));
    else
        link_flush(l);
}

static void write_out(struct link *l)
{
    uv_buf_t b = uv_buf_init(l->pending.data, (unsigned) l->pending.len);
    int n;

    if (l->pending.len == 0 || l->writing || l->closing)
        return;
    n = uv_try_write((uv_stream_t *) &l->tcp, &b, 1);
    if (n == (int) l->pending.len) {
        adv_buf_done(&l->pending); /* thousands are idle at a time */
        adv_buf_init(&l->pending, SIZE_MAX / 2);
        return;
    }
    if (n > 0)
        adv_buf_consume(&l->pending, (size_t) n);
    b = uv_buf_init(l->pending.data, (unsigned) l->pending.len);
    l->write.data = l;
    l->writing = uv_write(&l->write, (uv_stream_t *) &l->tcp, &b, 1, on_written) == 0;
    if (!l->writing)
        fail(l, "write");
}

void link_flush(struct link *l)
{
    const uint8_t *data;
    struct adv_err err;
    int64_t n;

    if (l->closing || l->depth || l->writing)
        return;
    while (l->h2 && l->pending.len < PULL_BYTES) {
        l->depth++;
        n = wire_h2_pull(l->h2, &data, &err);
        l->depth--;
        if (n < 0) {
            fail(l, err.msg);
            return;
        }
        if (n == 0)
            break;
        if (!l->ssl) {
            if (adv_buf_append(&l->pending, data, (size_t) n) < 0)
                die("no memory");
            continue;
        }
        if (SSL_write(l->ssl, data, (int) n) != (int) n)
            die("SSL_write");
        take_cipher(l);
    }
    if (l->dead) {
        uv_close((uv_handle_t *) &l->tcp, on_closed);
        return;
    }
    write_out(l);
}

/* ---- in --------------------------------------------------------------------------------------------------------- */

static void on_settings(void *ctx)
{
    struct link *l = ctx;

    l->ops->ready(l->ctx);
}

static void on_goaway(void *ctx, uint32_t code, const char *debug)
{
}

static void on_ping_ack(void *ctx)
{
}

static const struct wire_h2_ops h2_ops = { on_settings, on_goaway, on_ping_ack };

static void start_h2(struct link *l)
{
    struct adv_err err;

    if (wire_h2_new(&l->env->cfg, "localhost", l->ssl != NULL, &h2_ops, l, &l->h2, &err) < 0)
        die(err.msg);
}

static bool feed(struct link *l, const char *data, size_t n)
{
    struct adv_err err;
    int r;

    if (l->bare) {
        if (!l->heard)
            l->ops->ready(l->ctx);
        l->heard = true;
        return !l->closing;
    }
    l->depth++;
    r = wire_h2_feed(l->h2, (const uint8_t *) data, n, &err);
    l->depth--;
    if (l->dead) {
        l->dead = false;
        uv_close((uv_handle_t *) &l->tcp, on_closed);
        return false;
    }
    if (r < 0)
        fail(l, err.msg);
    return r == 0;
}

static bool feed_tls(struct link *l, const char *data, size_t n)
{
    char plain[16384];
    int r;

    ERR_clear_error();
    if (BIO_write(l->in, data, (int) n) != (int) n)
        die("BIO_write");
    if (!l->secure) {
        r = SSL_do_handshake(l->ssl);
        take_cipher(l);
        if (r != 1) {
            if (SSL_get_error(l->ssl, r) == SSL_ERROR_WANT_READ)
                return true;
            fail(l, "TLS handshake");
            return false;
        }
        l->secure = true;
        if (!l->bare)
            start_h2(l);
    }
    while ((r = SSL_read(l->ssl, plain, sizeof(plain))) > 0)
        if (!feed(l, plain, (size_t) r))
            return false;
    take_cipher(l);
    if (SSL_get_error(l->ssl, r) != SSL_ERROR_WANT_READ) {
        fail(l, "TLS closed");
        return false;
    }
    return true;
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    *buf = uv_buf_init(read_buf, sizeof(read_buf));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct link *l = s->data;

    if (l->closing || n == 0)
        return;
    if (n < 0)
        fail(l, n == UV_EOF ? "closed by the server" : uv_strerror((int) n));
    else if (l->ssl ? feed_tls(l, buf->base, (size_t) n) : feed(l, buf->base, (size_t) n))
        link_flush(l);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct link *l = req->data;

    if (l->closing)
        return;
    if (status < 0) {
        fail(l, uv_strerror(status));
        return;
    }
    (void) uv_tcp_nodelay(&l->tcp, 1);
    (void) uv_read_start((uv_stream_t *) &l->tcp, on_alloc, on_read);
    if (l->ssl) {
        (void) SSL_do_handshake(l->ssl);
        take_cipher(l);
        write_out(l);
    } else {
        start_h2(l);
        link_flush(l);
    }
}

struct link *link_open(struct link_env *env, X509 *cert, bool bare, const struct link_ops *ops, void *ctx)
{
    struct link *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        die("no memory");
    l->env = env;
    l->ops = ops;
    l->ctx = ctx;
    l->bare = bare;
    adv_buf_init(&l->pending, SIZE_MAX / 2);
    (void) uv_tcp_init(env->loop, &l->tcp);
    l->tcp.data = l->connect.data = l;
    if (env->tls) {
        l->ssl = SSL_new(env->tls);
        l->in = BIO_new(BIO_s_mem());
        l->out = BIO_new(BIO_s_mem());
        if (!l->ssl || !l->in || !l->out || SSL_use_certificate(l->ssl, cert) != 1 ||
            SSL_use_PrivateKey(l->ssl, env->key) != 1 || SSL_set1_host(l->ssl, "localhost") != 1)
            die("TLS");
        (void) BIO_set_mem_eof_return(l->in, -1);
        (void) BIO_set_mem_eof_return(l->out, -1);
        SSL_set_bio(l->ssl, l->in, l->out);
        SSL_set_connect_state(l->ssl);
    }
    r = uv_tcp_connect(&l->connect, &l->tcp, (const struct sockaddr *) &env->addr, on_connected);
    if (r < 0)
        die(uv_strerror(r));
    return l;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static void on_message(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
    struct link_call *c = ctx;

    c->ops->message(c->ctx, c, data, len);
}

static void on_call_closed(void *ctx, struct wire_call *call, const struct wire_status *status)
{
    struct link_call *c = ctx;

    DL_DELETE(c->link->calls, c);
    c->ops->closed(c->ctx, c, status);
    free(c);
}

static const struct wire_call_ops call_ops = { on_message, on_call_closed, NULL };

struct link_call *link_call(struct link *l, const char *path, const struct link_call_ops *ops, void *ctx)
{
    struct link_call *c = calloc(1, sizeof(*c));
    struct adv_err err = { .msg = "no memory" };

    if (!c)
        die(err.msg);
    *c = (struct link_call) { .link = l, .ops = ops, .ctx = ctx };
    if (call_new(path, NULL, 0, &l->env->cfg, &call_ops, c, &c->call, &err) < 0 ||
        wire_h2_open(l->h2, c->call, 0, &err) < 0)
        die(err.msg);
    (void) call_unref(c->call); /* the stream holds it until it is gone */
    DL_APPEND(l->calls, c);
    return c;
}

void link_send(struct link_call *c, const void *bytes, size_t len, bool last)
{
    struct adv_err err;

    if (wire_call_send(c->call, bytes, len, &err) < 0)
        die(err.msg);
    if (last)
        wire_call_half_close(c->call);
}

void link_stall(struct link *l)
{
    (void) uv_read_stop((uv_stream_t *) &l->tcp);
}
