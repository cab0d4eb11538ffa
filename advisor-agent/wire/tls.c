/* SPDX-License-Identifier: Apache-2.0 */

/* OpenSSL with memory BIOs. The context is made anew for every connection, so a renewed certificate
 * is used from the next connect on, and an idle connection keeps only what the SSL object needs:
 * record buffers are released between records. */

#include "advisor-agent/wire/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

/* Cipher bytes that may wait unread: some records of 16 kB. */
#define INPUT_MAX (256 * 1024)

struct tls {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    int64_t cert_expiry_s;
};

static int fail(struct adv_err *err, enum adv_code code, const char *what)
{
    unsigned long e = ERR_peek_last_error();
    const char *reason = e ? ERR_reason_error_string(e) : NULL;

    ERR_clear_error();
    return adv_err_set(err, code, "%s: %s", what, reason ? reason : "failed");
}

static int no_password(char *buf, int size, int rwflag, void *user)
{
    return -1; /* never ask on the terminal */
}

static int64_t expiry_of(SSL_CTX *ctx)
{
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    int days, seconds;
    ASN1_TIME *epoch;
    int64_t at = 0;

    if (!cert)
        return 0;
    epoch = ASN1_TIME_set(NULL, 0);
    if (epoch && ASN1_TIME_diff(&days, &seconds, epoch, X509_get0_notAfter(cert)))
        at = (int64_t) days * 86400 + seconds;
    ASN1_TIME_free(epoch);
    return at;
}

static int load(SSL_CTX *ctx, const struct wire_config *cfg, struct adv_err *err)
{
    char what[160];

    SSL_CTX_set_default_passwd_cb(ctx, no_password);
    if (cfg->ca_path) {
        (void) snprintf(what, sizeof(what), "CA file '%.120s'", cfg->ca_path);
        if (SSL_CTX_load_verify_file(ctx, cfg->ca_path) != 1)
            return fail(err, ADV_FAILED_PRECONDITION, what);
    } else if (SSL_CTX_set_default_verify_paths(ctx) != 1) {
        return fail(err, ADV_FAILED_PRECONDITION, "system CA store");
    }
    if (cfg->cert_path) {
        (void) snprintf(what, sizeof(what), "certificate '%.120s'", cfg->cert_path);
        if (SSL_CTX_use_certificate_chain_file(ctx, cfg->cert_path) != 1)
            return fail(err, ADV_FAILED_PRECONDITION, what);
        (void) snprintf(what, sizeof(what), "key '%.120s'", cfg->key_path);
        if (SSL_CTX_use_PrivateKey_file(ctx, cfg->key_path, SSL_FILETYPE_PEM) != 1 ||
            SSL_CTX_check_private_key(ctx) != 1)
            return fail(err, ADV_FAILED_PRECONDITION, what);
    }
    return 0;
}

int tls_new(const struct wire_config *cfg, const char *name, struct tls **ret_tls,
            struct adv_err *err)
{
    static const unsigned char alpn[] = { 2, 'h', '2' };
    struct tls *t = calloc(1, sizeof(*t));
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    unsigned char addr[16];
    int r;

    ERR_clear_error();
    if (!t || !ctx) {
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for TLS");
        goto out;
    }
    (void) SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    (void) SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                     SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void) SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    (void) SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    r = load(ctx, cfg, err);
    if (r < 0)
        goto out;
    t->cert_expiry_s = expiry_of(ctx);
    t->ssl = SSL_new(ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out) {
        BIO_free(t->in);
        BIO_free(t->out);
        r = fail(err, ADV_RESOURCE_EXHAUSTED, "TLS");
        goto out;
    }
    (void) BIO_set_mem_eof_return(t->in, -1);
    (void) BIO_set_mem_eof_return(t->out, -1);
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_connect_state(t->ssl);
    bool is_addr = inet_pton(AF_INET, name, addr) == 1 || inet_pton(AF_INET6, name, addr) == 1;
    SSL_set_hostflags(t->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if ((is_addr ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t->ssl), name)
                 : SSL_set1_host(t->ssl, name) && SSL_set_tlsext_host_name(t->ssl, name)) != 1 ||
        SSL_set_alpn_protos(t->ssl, alpn, sizeof(alpn)) != 0) {
        r = fail(err, ADV_INVALID_ARGUMENT, "server name");
        goto out;
    }
    *ret_tls = ADV_STEAL(t);
    r = 0;
out:
    SSL_CTX_free(ctx); /* the SSL holds its own reference */
    (void) tls_free(t);
    return r;
}

struct tls *tls_free(struct tls *t)
{
    if (t) {
        SSL_free(t->ssl);
        free(t);
    }
    return NULL;
}

int tls_input(struct tls *t, const uint8_t *data, size_t len, struct adv_err *err)
{
    if (BIO_ctrl_pending(t->in) + len > INPUT_MAX || len > INT32_MAX ||
        BIO_write(t->in, data, (int) len) != (int) len)
        return adv_err_set(err, ADV_UNAVAILABLE, "TLS: too much input");
    return 0;
}

int tls_output(struct tls *t, struct adv_buf *out, struct adv_err *err)
{
    size_t n;

    while ((n = BIO_ctrl_pending(t->out)) > 0) {
        void *room = adv_buf_reserve(out, n);
        int got = room ? BIO_read(t->out, room, (int) n) : -1;
        if (got <= 0)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for TLS output");
        adv_buf_commit(out, (size_t) got);
    }
    return 0;
}

/* Turns OpenSSL's last error into text; a verify error says what is wrong with the certificate. */
static int ssl_fail(struct tls *t, struct adv_err *err)
{
    long verify = SSL_get_verify_result(t->ssl);
    unsigned long e = ERR_peek_last_error();
    int reason = ERR_GET_REASON(e);

    if (verify != X509_V_OK) {
        ERR_clear_error();
        return adv_err_set(err, ADV_UNAUTHENTICATED, "TLS: server certificate refused: %s",
                           X509_verify_cert_error_string(verify));
    }
    /* Alerts arrive as SSL_AD_REASON_OFFSET + number; 42..49, 116 speak of our certificate. */
    int alert = reason - SSL_AD_REASON_OFFSET;
    bool ours = ERR_GET_LIB(e) == ERR_LIB_SSL && ((alert >= 42 && alert <= 49) || alert == 116);
    return fail(err, ours ? ADV_UNAUTHENTICATED : ADV_UNAVAILABLE,
                ours ? "TLS: the server refused our certificate" : "TLS");
}

int tls_handshake(struct tls *t, struct adv_err *err)
{
    const unsigned char *proto = NULL;
    unsigned len = 0;

    ERR_clear_error();
    int r = SSL_do_handshake(t->ssl);
    if (r != 1)
        return SSL_get_error(t->ssl, r) == SSL_ERROR_WANT_READ ? 0 : ssl_fail(t, err);
    SSL_get0_alpn_selected(t->ssl, &proto, &len);
    if (len != 2 || memcmp(proto, "h2", 2) != 0)
        return adv_err_set(err, ADV_UNAVAILABLE, "TLS: the server does not speak h2");
    return 1;
}

int64_t tls_read(struct tls *t, uint8_t *buf, size_t room, struct adv_err *err)
{
    size_t n = 0;

    ERR_clear_error();
    if (SSL_read_ex(t->ssl, buf, room, &n) == 1)
        return (int64_t) n;
    switch (SSL_get_error(t->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return adv_err_set(err, ADV_UNAVAILABLE, "connection closed by the server");
    default:
        return ssl_fail(t, err);
    }
}

int tls_write(struct tls *t, const uint8_t *data, size_t len, struct adv_err *err)
{
    ERR_clear_error();
    while (len > 0) {
        size_t n = 0;
        if (SSL_write_ex(t->ssl, data, len, &n) != 1)
            return ssl_fail(t, err);
        data += n;
        len -= n;
    }
    return 0;
}

void tls_close_notify(struct tls *t)
{
    (void) SSL_shutdown(t->ssl);
    ERR_clear_error();
}

int64_t tls_cert_expiry_s(const struct tls *t)
{
    return t->cert_expiry_s;
}
