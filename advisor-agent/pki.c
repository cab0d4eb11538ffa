/* SPDX-License-Identifier: Apache-2.0 */
#include "advisor-agent/pki.h"

#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>

#define CHAIN_MAX (64 << 10)

struct pki_request {
    EVP_PKEY *key;
    uint8_t *der;
    size_t len;
};

static int internal(struct adv_err *err, const char *what)
{
    ERR_clear_error();
    return adv_err_set(err, ADV_INTERNAL, "%s: OpenSSL refused", what);
}

struct pki_request *pki_request_free(struct pki_request *r)
{
    if (!r)
        return NULL;
    EVP_PKEY_free(r->key);
    OPENSSL_free(r->der);
    free(r);
    return NULL;
}

int pki_request_new(struct pki_request **ret, struct adv_err *err)
{
    ADV_AUTO(pki_request) r = calloc(1, sizeof(*r));
    X509_REQ *req = X509_REQ_new();
    int n = -1;

    if (r && req) {
        r->key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
        if (r->key && X509_REQ_set_version(req, X509_REQ_VERSION_1) == 1 && X509_REQ_set_pubkey(req, r->key) == 1 &&
            X509_REQ_sign(req, r->key, EVP_sha256()) > 0)
            n = i2d_X509_REQ(req, &r->der);
    }
    X509_REQ_free(req);
    if (n <= 0)
        return internal(err, "a new key");
    r->len = (size_t) n;
    *ret = ADV_STEAL(r);
    return 0;
}

const uint8_t *pki_request_der(const struct pki_request *r, size_t *ret_len)
{
    *ret_len = r->len;
    return r->der;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static int file_err(struct adv_err *err, const char *path)
{
    return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%.180s", path);
}

static void folder_of(const char *path, char ret[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    (void) snprintf(ret, PATH_MAX, "%.*s", slash > path ? (int) (slash - path) : 1, slash ? slash > path ? path : "/" : ".");
}

static void sync_folder(const char *path)
{
    char folder[PATH_MAX];

    folder_of(path, folder);
    adv_auto_close int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void) fsync(fd); /* without it a crash of the host may bring the old file back, which is a whole one too */
}

static int new_path(const char *path, char ret[PATH_MAX], struct adv_err *err)
{
    int n = snprintf(ret, PATH_MAX, "%s.new", path);

    return n > 0 && n < PATH_MAX ? 0 : adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: too long a path", path);
}

/* Writes "<path>.new". */
static int write_new(const char *path, const void *bytes, size_t len, unsigned mode, struct adv_err *err)
{
    char tmp[PATH_MAX];
    int r = new_path(path, tmp, err);

    if (r < 0)
        return r;
    (void) unlink(tmp); /* of an earlier try; O_EXCL below never follows a link that somebody put there */
    adv_auto_close int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return file_err(err, tmp);
    for (const char *p = bytes; len > 0;) {
        ssize_t n = write(fd, p, len);
        if (n < 0)
            return file_err(err, tmp);
        p += n;
        len -= (size_t) n;
    }
    return fsync(fd) < 0 ? file_err(err, tmp) : 0;
}

static int move_new(const char *path, struct adv_err *err)
{
    char tmp[PATH_MAX];
    int r = new_path(path, tmp, err);

    if (r == 0 && rename(tmp, path) < 0)
        r = file_err(err, path);
    if (r == 0)
        sync_folder(path);
    return r;
}

int pki_write_file(const char *path, const void *bytes, size_t len, unsigned mode, struct adv_err *err)
{
    int r = write_new(path, bytes, len, mode, err);

    return r < 0 ? r : move_new(path, err);
}

/* ---- a pair ----------------------------------------------------------------------------------------------------- */

static int no_password(char *buf, int size, int rwflag, void *user)
{
    return -1;
}

static X509 *read_cert(const char *path)
{
    FILE *f = fopen(path, "re");
    X509 *x = f ? PEM_read_X509(f, NULL, no_password, NULL) : NULL;

    if (f)
        (void) fclose(f);
    ERR_clear_error();
    return x;
}

static bool fits(const char *cert_path, const char *key_path)
{
    FILE *f = fopen(key_path, "re");
    EVP_PKEY *key = f ? PEM_read_PrivateKey(f, NULL, no_password, NULL) : NULL;
    X509 *cert = read_cert(cert_path);
    bool ok = key && cert && X509_check_private_key(cert, key) == 1;

    if (f)
        (void) fclose(f);
    X509_free(cert);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return ok;
}

static int check_chain(const struct pki_request *r, const void *chain, size_t len, struct adv_err *err)
{
    BIO *bio = len > 0 && len <= CHAIN_MAX ? BIO_new_mem_buf(chain, (int) len) : NULL;
    X509 *x = bio ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    bool ok = x && X509_check_private_key(x, r->key) == 1;

    X509_free(x);
    BIO_free(bio);
    ERR_clear_error();
    return ok ? 0 : adv_err_set(err, ADV_INVALID_ARGUMENT, "the certificate that came is none, or is of another key");
}

/* The key as PEM; the caller cleanses it. */
static int key_pem(const struct pki_request *r, BIO **ret, struct adv_err *err)
{
    BIO *bio = BIO_new(BIO_s_secmem());

    if (!bio || PEM_write_bio_PrivateKey(bio, r->key, NULL, NULL, 0, NULL, NULL) != 1) {
        BIO_free(bio);
        return internal(err, "the private key");
    }
    *ret = bio;
    return 0;
}

int pki_install(const struct pki_request *r, const void *chain, size_t chain_len, const char *cert_path,
                const char *key_path, struct adv_err *err)
{
    BIO *bio = NULL;
    char *text;
    long n;
    int rc = check_chain(r, chain, chain_len, err);

    if (rc < 0 || (rc = key_pem(r, &bio, err)) < 0)
        return rc;
    n = BIO_get_mem_data(bio, &text);
    if ((rc = write_new(key_path, text, (size_t) n, 0600, err)) == 0 &&
        (rc = write_new(cert_path, chain, chain_len, 0644, err)) == 0 && (rc = move_new(key_path, err)) == 0)
        rc = move_new(cert_path, err);
    BIO_free(bio);
    return rc;
}

bool pki_recover(const char *cert_path, const char *key_path)
{
    char tmp[PATH_MAX];

    return new_path(cert_path, tmp, NULL) == 0 && access(tmp, F_OK) == 0 && !fits(cert_path, key_path) &&
           fits(tmp, key_path) && move_new(cert_path, NULL) == 0;
}

int pki_writable(const char *cert_path, const char *key_path, struct adv_err *err)
{
    const char *paths[] = { cert_path, key_path };

    for (size_t i = 0; i < ADV_ARRAY_LEN(paths); i++) {
        char folder[PATH_MAX];

        folder_of(paths[i], folder);
        if (access(folder, W_OK | X_OK) < 0)
            return adv_err_set_errno(err, ADV_PERMISSION_DENIED, errno, "folder %.160s", folder);
    }
    return 0;
}

bool pki_key_exposed(const char *key_path, unsigned *ret_mode)
{
    struct stat st;

    if (stat(key_path, &st) < 0)
        return false;
    *ret_mode = st.st_mode & 0777;
    return st.st_mode & (S_IWGRP | S_IRWXO);
}

static int64_t time_s(const ASN1_TIME *t)
{
    int days = 0, seconds = 0;
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    bool ok = epoch && ASN1_TIME_diff(&days, &seconds, epoch, t) == 1;

    ASN1_TIME_free(epoch);
    return ok ? (int64_t) days * 86400 + seconds : 0;
}

static void uri_name(const X509 *x, char *ret, size_t cap)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *n = sk_GENERAL_NAME_value(names, i);

        if (n->type != GEN_URI)
            continue;
        size_t len = (size_t) ASN1_STRING_length(n->d.uniformResourceIdentifier);
        const unsigned char *text = ASN1_STRING_get0_data(n->d.uniformResourceIdentifier);

        if (len < cap && !memchr(text, '\0', len))
            memcpy(ret, text, len);
        break;
    }
    GENERAL_NAMES_free(names);
}

int pki_look(const char *cert_path, struct pki_cert *ret, struct adv_err *err)
{
    X509 *x = read_cert(cert_path);
    BIGNUM *n = x ? ASN1_INTEGER_to_BN(X509_get0_serialNumber(x), NULL) : NULL;
    char *hex = n ? BN_bn2hex(n) : NULL;
    struct pki_cert c = { 0 };
    bool ok = x != NULL;

    if (x) {
        c.not_before_s = time_s(X509_get0_notBefore(x));
        c.not_after_s = time_s(X509_get0_notAfter(x));
        uri_name(x, c.name, sizeof(c.name));
        for (size_t i = 0; hex && hex[i] && i < sizeof(c.serial) - 1; i++)
            c.serial[i] = hex[i] >= 'A' && hex[i] <= 'F' ? (char) (hex[i] - 'A' + 'a') : hex[i];
        *ret = c;
    }
    OPENSSL_free(hex);
    BN_free(n);
    X509_free(x);
    if (ok)
        return 0;
    return access(cert_path, R_OK) < 0 ? adv_err_set_errno(err, ADV_NOT_FOUND, errno, "%.180s", cert_path)
                                       : adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: no certificate in it", cert_path);
}
