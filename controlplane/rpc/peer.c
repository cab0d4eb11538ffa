/* SPDX-License-Identifier: Apache-2.0 */

/* Who is at the other end, copied out of core's auth context so that it stays readable when the
 * call has gone.
 *
 * Reading a certificate takes longer than a whole call, and a client shows the same one with each:
 * what was read is shared by its calls, and the newest CERTS_KEPT stay known. The key is
 * a digest of the certificate as core gives it. Who signed it is told by the files of authorities,
 * so new files make all be read anew. */

/* A table that cannot grow leaves the new element out instead of ending the program. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(e) ((void) (e))

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>

#include "common/digest.h"
#include "controlplane/rpc/cert.h"
#include "controlplane/rpc/internal.h"

#define MAX_SANS   64
#define CERTS_KEPT 1024

struct names {
    size_t n;
    char *v[]; /* in the same block */
};

struct rpc_cert {
    unsigned refs; /* the table's is one */
    uint8_t key[ADV_SHA256_LEN];
    char *pem; /* what the key is the digest of */
    size_t pem_len;
    uint64_t tls_generation;
    char *common_name;
    struct names *sans, *uris;
    struct rpc_cert_facts facts;
    UT_hash_handle hh; /* rpc_server.certs, the longest unused first */
};

struct peer {
    struct rpc_peer pub;
    struct rpc_cert *cert; /* NULL: none was shown */
    char address[];
};

/* ---- certificates ---- */

static void cert_unref(struct rpc_cert *c)
{
    if (!c || --c->refs > 0)
        return;
    free(c->pem);
    free(c->common_name);
    free(c->sans);
    free(c->uris);
    free(c);
}

/* NULL on no memory; a value with a NUL inside is no identity and becomes "". */
static char *copy(const grpc_auth_property *prop)
{
    bool bad = prop && memchr(prop->value, 0, prop->value_length);

    return strndup(prop && !bad ? prop->value : "", prop && !bad ? prop->value_length : 0);
}

static const grpc_auth_property *first(const grpc_auth_context *ctx, const char *name)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(ctx, name);

    return grpc_auth_property_iterator_next(&it);
}

/* Copies the values of all properties of that name; NULL when memory is gone. */
static struct names *collect(const grpc_auth_context *ctx, const char *name)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(ctx, name);
    const grpc_auth_property *prop;
    size_t n = 0, bytes = 0;
    struct names *r;
    char *text;

    while (n < MAX_SANS && (prop = grpc_auth_property_iterator_next(&it))) {
        n++;
        bytes += prop->value_length + 1;
    }
    r = malloc(sizeof(*r) + n * sizeof(r->v[0]) + bytes);
    if (!r)
        return NULL;
    r->n = n;
    text = (char *) &r->v[n];
    it = grpc_auth_context_find_properties_by_name(ctx, name);
    for (size_t i = 0; i < n; i++) {
        prop = grpc_auth_property_iterator_next(&it);
        size_t len = memchr(prop->value, 0, prop->value_length) ? 0 : prop->value_length; /* as in copy() */
        r->v[i] = text;
        memcpy(text, prop->value, len);
        text[len] = '\0';
        text += len + 1;
    }
    return r;
}

static struct rpc_cert *cert_new(const grpc_auth_context *ctx, const grpc_auth_property *pem, const struct rpc_tls *tls)
{
    struct rpc_cert *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->refs = 1;
    c->tls_generation = rpc_tls_generation(tls);
    c->pem = malloc(pem->value_length + 1);
    if (c->pem)
        memcpy(c->pem, pem->value, pem->value_length);
    c->pem_len = pem->value_length;
    c->common_name = copy(first(ctx, GRPC_X509_CN_PROPERTY_NAME));
    c->sans = collect(ctx, GRPC_X509_SAN_PROPERTY_NAME);
    c->uris = collect(ctx, GRPC_PEER_URI_PROPERTY_NAME);
    if (c->pem && c->common_name && c->sans && c->uris &&
        rpc_cert_read(pem->value, pem->value_length, rpc_tls_second_ca(tls), &c->facts, NULL) == 0)
        return c;
    cert_unref(c);
    return NULL;
}

/* The caller's reference. NULL: no memory, or nothing that can be read: then nobody is known. */
/* The one that was asked for last, if it is that again: a busy client's calls come one after the other. */
static struct rpc_cert *same_again(const struct rpc_server *srv, const grpc_auth_property *pem)
{
    struct rpc_cert *c = srv->newest_cert;

    if (!c || c->tls_generation != rpc_tls_generation(srv->tls) || c->pem_len != pem->value_length ||
        memcmp(c->pem, pem->value, c->pem_len) != 0)
        return NULL;
    c->refs++;
    return c;
}

/* The caller's reference. NULL: no memory. */
static struct rpc_cert *cert_of(struct rpc_server *srv, const grpc_auth_context *ctx, const grpc_auth_property *pem)
{
    struct rpc_cert *c = NULL, *oldest;
    uint8_t key[ADV_SHA256_LEN];

    if ((c = same_again(srv, pem)))
        return c;
    if (adv_sha256(pem->value, pem->value_length, key, NULL) < 0)
        return NULL;
    HASH_FIND(hh, srv->certs, key, sizeof(key), c);
    if (c) {
        HASH_DELETE(hh, srv->certs, c); /* put back below, as the newest */
        srv->newest_cert = NULL;
        if (c->tls_generation != rpc_tls_generation(srv->tls)) {
            cert_unref(c);
            c = NULL;
        }
    }
    if (!c && !(c = cert_new(ctx, pem, srv->tls)))
        return NULL;
    memcpy(c->key, key, sizeof(key));
    HASH_ADD_KEYPTR(hh, srv->certs, c->key, sizeof(c->key), c);
    if (!c->hh.tbl) /* no memory for the table: the reference is the caller's alone */
        return c;
    c->refs++;
    srv->newest_cert = c;
    if (HASH_COUNT(srv->certs) > CERTS_KEPT) {
        oldest = srv->certs;
        HASH_DELETE(hh, srv->certs, oldest);
        cert_unref(oldest);
    }
    return c;
}

void rpc_certs_free(struct rpc_server *srv)
{
    struct rpc_cert *c, *next;

    srv->newest_cert = NULL;
    HASH_ITER(hh, srv->certs, c, next) {
        HASH_DELETE(hh, srv->certs, c);
        cert_unref(c);
    }
}

/* ---- peers ---- */

struct rpc_peer *rpc_peer_free(struct rpc_peer *pub)
{
    struct peer *p;

    if (!pub)
        return NULL;
    p = ADV_CONTAINER_OF(pub, struct peer, pub);
    cert_unref(p->cert);
    free(p);
    return NULL;
}

static void show_cert(struct rpc_peer *pub, const struct rpc_cert *c)
{
    pub->authenticated = true;
    pub->common_name = c->common_name;
    pub->sans = (const char *const *) c->sans->v;
    pub->n_sans = c->sans->n;
    pub->uris = (const char *const *) c->uris->v;
    pub->n_uris = c->uris->n;
    memcpy(pub->cert_sha256, c->facts.sha256, sizeof(c->facts.sha256));
    memcpy(pub->cert_serial, c->facts.serial, sizeof(c->facts.serial));
    pub->cert_not_before_s = c->facts.not_before_s;
    pub->cert_not_after_s = c->facts.not_after_s;
    pub->by_second_ca = c->facts.by_second_ca;
}

struct rpc_peer *rpc_peer_new(struct rpc_server *srv, grpc_call *call)
{
    grpc_auth_context *ctx = grpc_call_auth_context(call);
    const grpc_auth_property *pem =
        ctx && grpc_auth_context_peer_is_authenticated(ctx) ? first(ctx, GRPC_X509_PEM_CERT_PROPERTY_NAME) : NULL;
    char *addr = grpc_call_get_peer(call);
    size_t len = addr ? strlen(addr) : 0;
    struct peer *p = calloc(1, sizeof(*p) + len + 1);
    bool ok = p != NULL;

    if (ok) {
        memcpy(p->address, addr ? addr : "", len);
        p->pub.address = p->address;
        p->pub.common_name = "";
    }
    if (ok && pem && srv->tls) {
        p->cert = cert_of(srv, ctx, pem);
        ok = p->cert != NULL;
        if (ok)
            show_cert(&p->pub, p->cert);
    }
    gpr_free(addr);
    if (ctx)
        grpc_auth_context_release(ctx);
    if (ok)
        return &p->pub;
    free(p);
    return NULL;
}
