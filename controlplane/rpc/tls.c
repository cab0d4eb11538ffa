/* SPDX-License-Identifier: Apache-2.0 */

/* Core asks a "config fetcher" at each handshake. Its answer is UNCHANGED unless a new generation
 * was published, so it costs a lock. Files are checked with OpenSSL before they are published:
 * certificate and key parse, belong together, the CA file holds a certificate. (Core would keep the
 * old certificate too, but with nothing better than a log line.)
 *
 * Core wants NEW as the first answer for each listener, therefore each has its own generation
 * counter. */

#include "controlplane/rpc/tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/log.h"

#define MAX_FILE_BYTES (1 << 20)

enum { CERT, KEY, CA, N_FILES };

struct listener {
    struct listener *next;
    struct rpc_tls *tls;
    uint64_t seen; /* generation; guarded by the lock */
};

struct rpc_tls {
    enum rpc_client_cert client_cert;
    char *path[N_FILES];
    struct stat stat[N_FILES];
    struct listener *listeners;
    pthread_mutex_t lock;
    char *pem[N_FILES];  /* guarded by the lock */
    uint64_t generation; /* guarded by the lock */
};

static int slurp(const char *path, struct stat *st, char **ret, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, MAX_FILE_BYTES);
    if (fd < 0 || fstat(fd, st) < 0)
        return adv_err_set_errno(err, errno == EACCES ? ADV_PERMISSION_DENIED : ADV_NOT_FOUND,
                                 errno, "%.180s", path);
    for (;;) {
        char chunk[4096];
        ssize_t n = read(fd, chunk, sizeof(chunk));

        if (n == 0)
            break;
        if (n < 0)
            return adv_err_set_errno(err, ADV_NOT_FOUND, errno, "%.180s", path);
        if (adv_buf_append(&b, chunk, (size_t) n) < 0)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: too large for a PEM file", path);
    }
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

static int check(struct rpc_tls *tls, char *const pem[N_FILES], struct adv_err *err)
{
    BIO *bio = BIO_new_mem_buf(pem[KEY], -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    X509 *cert = parse_cert(pem[CERT]), *ca = parse_cert(pem[CA]);
    int r = 0;

    if (!cert)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: no certificate in it", tls->path[CERT]);
    else if (!key)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: no private key in it", tls->path[KEY]);
    else if (X509_check_private_key(cert, key) != 1)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "%.120s is not the key of %.120s",
                        tls->path[KEY], tls->path[CERT]);
    else if (!ca)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: no certificate in it", tls->path[CA]);
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

        if (stat(tls->path[i], &b) < 0 || a->st_ino != b.st_ino || a->st_size != b.st_size ||
            a->st_mtim.tv_sec != b.st_mtim.tv_sec || a->st_mtim.tv_nsec != b.st_mtim.tv_nsec)
            return false;
    }
    return true;
}

int rpc_tls_reload(struct rpc_tls *tls, bool only_if_changed, struct adv_err *err)
{
    char *pem[N_FILES] = { NULL };
    int r = 0;

    if (only_if_changed && unchanged(tls))
        return 0;
    for (int i = 0; r == 0 && i < N_FILES; i++)
        r = slurp(tls->path[i], &tls->stat[i], &pem[i], err);
    if (r == 0)
        r = check(tls, pem, err);
    if (r == 0) {
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
    const char *const paths[N_FILES] = { cfg->cert_file, cfg->key_file, cfg->ca_file };
    struct rpc_tls *tls = calloc(1, sizeof(*tls));

    if (!tls)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    tls->client_cert = cfg->client_cert;
    (void) pthread_mutex_init(&tls->lock, NULL);
    int r = 0;
    for (int i = 0; r == 0 && i < N_FILES; i++) {
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
    (void) pthread_mutex_destroy(&tls->lock);
    free(tls);
    return NULL;
}
