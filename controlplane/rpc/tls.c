/* SPDX-License-Identifier: Apache-2.0 */

/* Two authorities may sign clients: the one for everybody, and a second one whose certificates are marked, so that what it
 * may vouch for can be narrower. Core is given both as one list of roots; which of the two signed a certificate is told by
 * the issuer's name, which OpenSSL has matched to the root's subject when it verified. So the names have to differ, and the
 * second one may have no authorities below it.
 *
 * Core asks a "config fetcher" at each handshake. Its answer is UNCHANGED unless a new generation
 * was published, so it costs a lock. Files are checked with OpenSSL before they are published:
 * certificate and key parse, belong together, the CA file holds a certificate. (Core would keep the
 * old certificate too, but with nothing better than a log line.)
 *
 * Core wants NEW as the first answer for each listener, therefore each has its own generation
 * counter.
 *
 * For what core gives no setting, the process has its own SSL_CTX_new(3); the program is linked with -rdynamic (the rpc
 * dependency does it), so that libgrpc binds to it:
 * - No session tickets. A client that resumes a session shows its certificate to nobody: an authority that was replaced, or
 *   a certificate that has expired, would go on to count for as long as the ticket lives. And making two of them for each
 *   connection is a third of what a handshake costs.
 * - Buffers of a connection are given back while it is idle: some 33 kB each. */

#include "controlplane/rpc/tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/log.h"

#define MAX_FILE_BYTES (1 << 20)

enum { CERT, KEY, CA, SECOND_CA, N_FILES };

/* As the settings of advisord are called, so that an error says which one. */
static const char *const settings[N_FILES] = { "tls.cert", "tls.key", "tls.ca", "auth.agent_ca_cert" };

struct listener {
    struct listener *next;
    struct rpc_tls *tls;
    uint64_t seen; /* generation; guarded by the lock */
};

struct rpc_tls {
    enum rpc_client_cert client_cert;
    char *path[N_FILES]; /* NULL for SECOND_CA when there is none */
    struct stat stat[N_FILES];
    X509_NAME *second_ca; /* its subject; NULL: none, or the same certificate is in CA too */
    struct listener *listeners;
    pthread_mutex_t lock;
    char *pem[N_FILES];  /* guarded by the lock */
    uint64_t generation; /* guarded by the lock */
};

/* Replaces OpenSSL's. */
__attribute__((visibility("default"))) SSL_CTX *SSL_CTX_new(const SSL_METHOD *method)
{
    SSL_CTX *ctx = SSL_CTX_new_ex(NULL, NULL, method);

    if (!ctx)
        return NULL;
    (void) SSL_CTX_set_num_tickets(ctx, 0);
    (void) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    (void) SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void) SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    return ctx;
}

static int slurp(const char *path, struct stat *st, char **ret, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ADV_AUTO_DONE(adv_buf) b;
    int r;

    adv_buf_init(&b, MAX_FILE_BYTES);
    if (fd < 0 || fstat(fd, st) < 0)
        return adv_err_set_errno(err, errno == EACCES ? ADV_PERMISSION_DENIED : ADV_NOT_FOUND,
                                 errno, "%.180s", path);
    r = adv_buf_read(&b, fd);
    if (r == -ADV_RESOURCE_EXHAUSTED)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: too large for a PEM file", path);
    if (r < 0)
        return adv_err_set_errno(err, ADV_NOT_FOUND, errno, "%.180s", path);
    *ret = adv_buf_steal(&b, NULL);
    return *ret ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
}

static X509 *parse_cert(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *x = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    return x;
}

/* As core reads roots: blocks called TRUSTED CERTIFICATE, too. */
static X509 *next_root(BIO *bio)
{
    return bio ? PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL) : NULL;
}

/* Whether @x stands in @pem. */
static bool holds(const char *pem, X509 *x)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *y;
    bool found = false;

    while (!found && (y = next_root(bio))) {
        found = X509_cmp(x, y) == 0;
        X509_free(y);
    }
    BIO_free(bio);
    return found;
}

/* All of the second authority's file become roots, and only @second is told apart from those of @pem: what else is in it,
 * say the authority that signed it, must be one of those already. */
static bool brings_others(const char *second_pem, X509 *second, const char *pem)
{
    BIO *bio = BIO_new_mem_buf(second_pem, -1);
    X509 *x;
    bool others = !bio;

    while (!others && (x = next_root(bio))) {
        others = X509_cmp(x, second) != 0 && !holds(pem, x);
        X509_free(x);
    }
    BIO_free(bio);
    return others;
}

/* Whether the second authority may stand beside those of @pem, and its name if it is to be told apart from them. */
static int check_second(const struct rpc_tls *tls, const char *pem, const char *second_pem, X509 *second, X509_NAME **ret,
                        struct adv_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *x;
    bool clash = false;

    if (brings_others(second_pem, second, pem)) {
        BIO_free(bio);
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "auth.agent_ca_cert: %.120s: it has another authority, which is not in tls.ca: that would"
                           " sign people, too",
                           tls->path[SECOND_CA]);
    }
    if (holds(pem, second)) {
        BIO_free(bio);
        adv_warn("tls", "agents have an authority of people: with its key, which lies here, one can make administrators",
                 ADV_FS("auth.agent_ca_cert", tls->path[SECOND_CA]), ADV_FS("expected", "one that is not in tls.ca"));
        return 0;
    }
    while ((x = next_root(bio))) {
        if (X509_NAME_cmp(X509_get_subject_name(x), X509_get_subject_name(second)) == 0)
            clash = true;
        X509_free(x);
    }
    BIO_free(bio);
    if (clash)
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "tls.ca and auth.agent_ca_cert: %.70s and %.70s: two authorities of one name, expected two names",
                           tls->path[CA], tls->path[SECOND_CA]);
    if (X509_check_ca(second) != 1 || X509_get_pathlen(second) != 0)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "auth.agent_ca_cert: %.160s: expected basicConstraints CA:TRUE, pathlen:0",
                           tls->path[SECOND_CA]);
    *ret = X509_NAME_dup(X509_get_subject_name(second));
    return *ret ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
}

static int check(struct rpc_tls *tls, char *const pem[N_FILES], X509_NAME **ret_second, struct adv_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem[KEY], -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    X509 *cert = parse_cert(pem[CERT]), *ca = parse_cert(pem[CA]), *second = pem[SECOND_CA] ? parse_cert(pem[SECOND_CA]) : NULL;
    int r = 0;

    if (!cert)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "tls.cert: %.180s: no certificate in it", tls->path[CERT]);
    else if (!key)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "tls.key: %.180s: no private key in it", tls->path[KEY]);
    else if (X509_check_private_key(cert, key) != 1)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "tls.key: %.110s is not the key of %.110s (tls.cert)",
                        tls->path[KEY], tls->path[CERT]);
    else if (!ca)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "tls.ca: %.180s: no certificate in it", tls->path[CA]);
    else if (pem[SECOND_CA] && !second)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "auth.agent_ca_cert: %.180s: no certificate in it", tls->path[SECOND_CA]);
    else if (second)
        r = check_second(tls, pem[CA], pem[SECOND_CA], second, ret_second, err);
    X509_free(second);
    X509_free(ca);
    X509_free(cert);
    EVP_PKEY_free(key);
    BIO_free(bio);
    ERR_clear_error();
    return r;
}

static bool unchanged(const struct rpc_tls *tls)
{
    for (int i = 0; i < N_FILES; i++) {
        const struct stat *a = &tls->stat[i];
        struct stat b;

        if (!tls->path[i])
            continue;
        if (stat(tls->path[i], &b) < 0 || a->st_ino != b.st_ino || a->st_size != b.st_size ||
            a->st_mtim.tv_sec != b.st_mtim.tv_sec || a->st_mtim.tv_nsec != b.st_mtim.tv_nsec)
            return false;
    }
    return true;
}

/* Roots of both authorities in one text. */
static int append(char **text, const char *more, struct adv_err *err)
{
    char *both;

    if (asprintf(&both, "%s\n%s", *text, more) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    free(*text);
    *text = both;
    return 0;
}

const X509_NAME *rpc_tls_second_ca(const struct rpc_tls *tls)
{
    return tls->second_ca;
}

uint64_t rpc_tls_generation(const struct rpc_tls *tls)
{
    return tls->generation; /* written by this thread */
}

int rpc_tls_reload(struct rpc_tls *tls, bool only_if_changed, struct adv_err *err)
{
    char *pem[N_FILES] = { NULL };
    X509_NAME *second = NULL;
    int r = 0;

    if (only_if_changed && unchanged(tls))
        return 0;
    for (int i = 0; r == 0 && i < N_FILES; i++)
        if (tls->path[i] && (r = slurp(tls->path[i], &tls->stat[i], &pem[i], err)) < 0)
            adv_err_wrap(err, "%s", settings[i]);
    if (r == 0)
        r = check(tls, pem, &second, err);
    if (r == 0 && pem[SECOND_CA])
        r = append(&pem[CA], pem[SECOND_CA], err);
    if (r == 0) {
        X509_NAME *was = tls->second_ca;

        tls->second_ca = second; /* of the loop thread, as is its reader */
        second = was;
        (void) pthread_mutex_lock(&tls->lock);
        for (int i = 0; i < N_FILES; i++) {
            char *old = tls->pem[i];

            tls->pem[i] = pem[i];
            pem[i] = old;
        }
        tls->generation++;
        (void) pthread_mutex_unlock(&tls->lock);
    }
    for (int i = 0; i < N_FILES; i++)
        free(pem[i]);
    X509_NAME_free(second);
    return r;
}

/* On a thread of core's. */
static grpc_ssl_certificate_config_reload_status fetch(void *user,
                                                       grpc_ssl_server_certificate_config **ret)
{
    struct listener *l = user;
    struct rpc_tls *tls = l->tls;
    grpc_ssl_certificate_config_reload_status r = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;

    (void) pthread_mutex_lock(&tls->lock);
    if (l->seen != tls->generation) {
        grpc_ssl_pem_key_cert_pair pair = { .private_key = tls->pem[KEY],
                                            .cert_chain = tls->pem[CERT] };

        *ret = grpc_ssl_server_certificate_config_create(tls->pem[CA], &pair, 1);
        r = *ret ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
        if (*ret)
            l->seen = tls->generation;
    }
    (void) pthread_mutex_unlock(&tls->lock);
    return r;
}

grpc_server_credentials *rpc_tls_credentials(struct rpc_tls *tls)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    *l = (struct listener){ .next = tls->listeners, .tls = tls };
    tls->listeners = l;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            tls->client_cert == RPC_CLIENT_CERT_OPTIONAL
                ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
            fetch, l));
}

int rpc_tls_new(const struct rpc_config *cfg, struct rpc_tls **ret, struct adv_err *err)
{
    const char *const paths[N_FILES] = { cfg->cert_file, cfg->key_file, cfg->ca_file, cfg->second_ca_file };
    struct rpc_tls *tls = calloc(1, sizeof(*tls));

    if (!tls)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    tls->client_cert = cfg->client_cert;
    (void) pthread_mutex_init(&tls->lock, NULL);
    int r = 0;
    for (int i = 0; r == 0 && i < N_FILES; i++) {
        if (i == SECOND_CA && (!paths[i] || !*paths[i]))
            continue;
        if (!paths[i] || !*paths[i])
            r = adv_err_set(err, ADV_INVALID_ARGUMENT,
                            "certificate, key and CA files are all needed for TLS");
        else if (!(tls->path[i] = strdup(paths[i])))
            r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    if (r == 0)
        r = rpc_tls_reload(tls, false, err);
    if (r < 0) {
        (void) rpc_tls_free(tls);
        return r;
    }
    *ret = tls;
    return 0;
}

struct rpc_tls *rpc_tls_free(struct rpc_tls *tls)
{
    if (!tls)
        return NULL;
    for (struct listener *l = tls->listeners, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    for (int i = 0; i < N_FILES; i++) {
        free(tls->path[i]);
        free(tls->pem[i]);
    }
    X509_NAME_free(tls->second_ca);
    (void) pthread_mutex_destroy(&tls->lock);
    free(tls);
    return NULL;
}
