/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/ca.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/digest.h"
#include "controlplane/auth/text.h"

#define MAX_FILE_BYTES (64 << 10)
#define SERIAL_BYTES   20 /* RFC 5280's most; the first bit is 0 */
#define TOKEN_PREFIX   "adv-enrol-" /* so that scanners for lost secrets know one */
#define TOKEN_BYTES    32

struct ca {
    char *cert_path, *key_path;
    struct stat stat[2]; /* of these, when they were read last, good or bad */
    X509 *cert;
    EVP_PKEY *key;
    char *pem; /* the whole certificate file */
    int64_t not_after_s;
};

static int no_memory(struct adv_err *err)
{
    ERR_clear_error();
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
}

static int refused_csr(struct adv_err *err, enum adv_code code, const char *reason, const char *what)
{
    ERR_clear_error();
    (void) adv_err_set_reason(err, code, reason, "signing request: %s", what);
    return adv_err_field(err, "csr");
}

static int64_t time_s(const ASN1_TIME *t)
{
    int days = 0, seconds = 0;
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    bool ok = epoch && ASN1_TIME_diff(&days, &seconds, epoch, t) == 1;

    ASN1_TIME_free(epoch);
    return ok ? (int64_t) days * 86400 + seconds : 0;
}

/* ---- the authority ---------------------------------------------------------------------------------------------- */

static int slurp(const char *path, struct stat *st, char **ret, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ADV_AUTO_DONE(adv_buf) b;
    int r;

    adv_buf_init(&b, MAX_FILE_BYTES);
    if (fd >= 0 && fstat(fd, st) < 0)
        return adv_err_set_errno(err, ADV_NOT_FOUND, errno, "%.180s", path);
    r = fd < 0 ? -ADV_UNAVAILABLE : adv_buf_read(&b, fd);
    if (r == -ADV_RESOURCE_EXHAUSTED)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: too large for a PEM file", path);
    if (r < 0)
        return adv_err_set_errno(err, errno == EACCES ? ADV_PERMISSION_DENIED : ADV_NOT_FOUND, errno, "%.180s", path);
    *ret = adv_buf_steal(&b, NULL);
    return *ret ? 0 : no_memory(err);
}

static int no_password(char *buf, int size, int rwflag, void *user)
{
    (void) buf;
    (void) size;
    (void) rwflag;
    (void) user;
    return -1; /* never ask on the terminal */
}

static void forget(char *text)
{
    if (text)
        OPENSSL_cleanse(text, strlen(text));
    free(text);
}

static int check_ca(const struct ca *ca, const char *cert_path, const char *key_path, int64_t now_s, struct adv_err *err)
{
    if (!ca->cert)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: no certificate in it", cert_path);
    if (!ca->key)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: no private key without a password in it", key_path);
    if (X509_check_private_key(ca->cert, ca->key) != 1)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.100s is not the key of %.100s", key_path, cert_path);
    if (X509_check_ca(ca->cert) != 1 || !(X509_get_key_usage(ca->cert) & KU_KEY_CERT_SIGN))
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "%.120s: expected basicConstraints CA:TRUE, and keyCertSign if it has a keyUsage", cert_path);
    if (ca->not_after_s <= now_s)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: expired", cert_path);
    return 0;
}

/* Fills all but the paths. */
static int load(struct ca *ca, struct stat st[2], int64_t now_s, struct adv_err *err)
{
    char *key_pem = NULL;
    BIO *cert_bio = NULL, *key_bio = NULL;
    int r;

    if ((r = slurp(ca->cert_path, &st[0], &ca->pem, err)) < 0 || (r = slurp(ca->key_path, &st[1], &key_pem, err)) < 0)
        return r;
    cert_bio = BIO_new_mem_buf(ca->pem, -1);
    key_bio = BIO_new_mem_buf(key_pem, -1);
    ca->cert = cert_bio ? PEM_read_bio_X509(cert_bio, NULL, no_password, NULL) : NULL;
    ca->key = key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, no_password, NULL) : NULL;
    ca->not_after_s = ca->cert ? time_s(X509_get0_notAfter(ca->cert)) : 0;
    r = check_ca(ca, ca->cert_path, ca->key_path, now_s, err);
    BIO_free(cert_bio);
    BIO_free(key_bio);
    forget(key_pem);
    ERR_clear_error();
    return r;
}

static void forget_loaded(struct ca *ca)
{
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    free(ca->pem);
    ca->cert = NULL;
    ca->key = NULL;
    ca->pem = NULL;
}

int ca_load(const char *cert_path, const char *key_path, int64_t now_s, struct ca **ret, struct adv_err *err)
{
    ADV_AUTO(ca) ca = calloc(1, sizeof(*ca));
    int r;

    if (!ca || !(ca->cert_path = strdup(cert_path)) || !(ca->key_path = strdup(key_path)))
        return no_memory(err);
    if ((r = load(ca, ca->stat, now_s, err)) == 0)
        *ret = ADV_STEAL(ca);
    return r;
}

static bool same_file(const char *path, const struct stat *a)
{
    struct stat b;

    return stat(path, &b) == 0 && a->st_ino == b.st_ino && a->st_size == b.st_size &&
           a->st_mtim.tv_sec == b.st_mtim.tv_sec && a->st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

int ca_refresh(struct ca *ca, int64_t now_s, struct adv_err *err)
{
    struct ca fresh = { .cert_path = ca->cert_path, .key_path = ca->key_path };
    int r;

    if (same_file(ca->cert_path, &ca->stat[0]) && same_file(ca->key_path, &ca->stat[1]))
        return 0;
    r = load(&fresh, ca->stat, now_s, err);
    if (r < 0) {
        forget_loaded(&fresh);
        return r;
    }
    forget_loaded(ca);
    ca->cert = fresh.cert;
    ca->key = fresh.key;
    ca->pem = fresh.pem;
    ca->not_after_s = fresh.not_after_s;
    return 0;
}

struct ca *ca_free(struct ca *ca)
{
    if (!ca)
        return NULL;
    forget_loaded(ca);
    free(ca->cert_path);
    free(ca->key_path);
    free(ca);
    return NULL;
}

/* ---- signing requests ------------------------------------------------------------------------------------------- */

static bool key_ok(EVP_PKEY *key)
{
    char group[32] = "";

    switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_RSA:
        return EVP_PKEY_get_bits(key) >= 2048 && EVP_PKEY_get_bits(key) <= 4096;
    case EVP_PKEY_EC:
        return EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) == 1 &&
               (adv_streq(group, "prime256v1") || adv_streq(group, "secp384r1"));
    case EVP_PKEY_ED25519:
        return true;
    default:
        return false;
    }
}

/* The key of a request that is whole and signed by it; owned by @ret_req. */
static int open_csr(const void *csr, size_t len, X509_REQ **ret_req, EVP_PKEY **ret_key, struct adv_err *err)
{
    const unsigned char *p = csr;
    X509_REQ *req;
    EVP_PKEY *key;

    if (len > CA_CSR_MAX_BYTES)
        return refused_csr(err, ADV_INVALID_ARGUMENT, "CSR_MALFORMED", "expected at most 8 kB");
    req = d2i_X509_REQ(NULL, &p, (long) len);
    if (!req || p != (const unsigned char *) csr + len) {
        X509_REQ_free(req);
        return refused_csr(err, ADV_INVALID_ARGUMENT, "CSR_MALFORMED", "expected PKCS #10 in DER");
    }
    key = X509_REQ_get0_pubkey(req);
    if (!key || !key_ok(key)) {
        X509_REQ_free(req);
        return refused_csr(err, ADV_INVALID_ARGUMENT, "CSR_KEY", "expected a key EC P-256 or P-384, Ed25519, or RSA of 2048 to 4096 bits");
    }
    if (X509_REQ_verify(req, key) != 1) {
        X509_REQ_free(req);
        return refused_csr(err, ADV_INVALID_ARGUMENT, "CSR_SIGNATURE", "its signature is not of its key");
    }
    *ret_req = req;
    *ret_key = key;
    return 0;
}

static int key_hash(EVP_PKEY *key, char ret[65], struct adv_err *err)
{
    uint8_t *der = NULL, digest[ADV_SHA256_LEN];
    int n = i2d_PUBKEY(key, &der), r;

    if (n <= 0)
        return no_memory(err);
    r = adv_sha256(der, (size_t) n, digest, err);
    OPENSSL_free(der);
    if (r == 0)
        (void) adv_hex(digest, sizeof(digest), ret);
    return r;
}

int ca_check_csr(const void *csr, size_t len, char ret_key_sha256[65], struct adv_err *err)
{
    X509_REQ *req = NULL;
    EVP_PKEY *key = NULL;
    int r = open_csr(csr, len, &req, &key, err);

    if (r == 0)
        r = key_hash(key, ret_key_sha256, err);
    X509_REQ_free(req);
    ERR_clear_error();
    return r;
}

/* ---- certificates ----------------------------------------------------------------------------------------------- */

static bool add_extension(X509 *cert, X509 *ca, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *ext;
    bool ok;

    X509V3_set_ctx(&ctx, ca, cert, NULL, NULL, 0);
    ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    ok = ext && X509_add_ext(cert, ext, -1) == 1;
    X509_EXTENSION_free(ext);
    return ok;
}

static bool set_serial(X509 *cert, char ret[CA_SERIAL_SIZE])
{
    uint8_t bytes[SERIAL_BYTES];
    BIGNUM *n;
    bool ok;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and always of full length */
    n = BN_bin2bn(bytes, sizeof(bytes), NULL);
    ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
    BN_free(n);
    (void) adv_hex(bytes, sizeof(bytes), ret);
    return ok;
}

static bool fill(struct ca *ca, X509 *cert, const struct ca_request *req, EVP_PKEY *key, int64_t not_after_s,
                 char ret_serial[CA_SERIAL_SIZE])
{
    char san[128];
    X509_NAME *subject = X509_get_subject_name(cert);

    (void) snprintf(san, sizeof(san), "URI:advisor:agent:%s", req->cluster);
    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert, ret_serial) &&
           ASN1_TIME_set(X509_getm_notBefore(cert), (time_t) req->not_before_s) &&
           ASN1_TIME_set(X509_getm_notAfter(cert), (time_t) not_after_s) &&
           X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC, (const unsigned char *) "Advisor", -1, -1, 0) == 1 &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *) req->cluster, -1, -1, 0) == 1 &&
           X509_set_issuer_name(cert, X509_get_subject_name(ca->cert)) == 1 && X509_set_pubkey(cert, key) == 1 &&
           add_extension(cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, ca->cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, ca->cert, NID_ext_key_usage, "clientAuth") &&
           add_extension(cert, ca->cert, NID_subject_alt_name, san) &&
           add_extension(cert, ca->cert, NID_subject_key_identifier, "hash") &&
           add_extension(cert, ca->cert, NID_authority_key_identifier, "keyid,issuer");
}

static char *to_pem(X509 *cert, const char *ca_pem)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text, *pem = NULL;
    long n;

    if (bio && PEM_write_bio_X509(bio, cert) == 1 && (n = BIO_get_mem_data(bio, &text)) > 0 &&
        asprintf(&pem, "%.*s%s", (int) n, text, ca_pem) < 0)
        pem = NULL;
    BIO_free(bio);
    return pem;
}

int ca_issue(struct ca *ca, const struct ca_request *req, struct ca_cert *ret, struct adv_err *err)
{
    /* an Edwards curve has its own digest */
    int type = EVP_PKEY_get_base_id(ca->key);
    const EVP_MD *md = type == EVP_PKEY_ED25519 || type == EVP_PKEY_ED448 ? NULL : EVP_sha256();
    X509_REQ *csr = NULL;
    EVP_PKEY *key = NULL;
    X509 *cert = NULL;
    int r;

    if (req->not_before_s >= ca->not_after_s)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "CA_EXPIRED", "the agent CA's certificate has expired");
    if ((r = open_csr(req->csr, req->csr_len, &csr, &key, err)) < 0)
        return r;
    ret->not_after_s = req->not_after_s < ca->not_after_s ? req->not_after_s : ca->not_after_s;
    cert = X509_new();
    if (!cert || !fill(ca, cert, req, key, ret->not_after_s, ret->serial) || X509_sign(cert, ca->key, md) <= 0)
        r = adv_err_set(err, ADV_INTERNAL, "the certificate could not be made");
    else if (!(ret->chain_pem = to_pem(cert, ca->pem)))
        r = no_memory(err);
    X509_free(cert);
    X509_REQ_free(csr);
    ERR_clear_error();
    return r;
}

int ca_serial_parse(const char *text, char ret[CA_SERIAL_SIZE], struct adv_err *err)
{
    char out[CA_SERIAL_SIZE];
    size_t n = 0;

    for (const char *p = text; *p; p++) {
        char c = *p >= 'A' && *p <= 'F' ? (char) (*p - 'A' + 'a') : *p;

        if (c == ':' && p != text && p[1])
            continue;
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) || n == sizeof(out) - 1) {
            n = 0;
            break;
        }
        if (n || c != '0')
            out[n++] = c;
    }
    if (!n) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "SERIAL_MALFORMED",
                                  "serial \"%.60s\": expected up to 40 digits of hex, not all zero", text);
        return adv_err_field(err, "serial");
    }
    out[n] = '\0';
    (void) strcpy(ret, out);
    return 0;
}

/* ---- enrolment tokens ------------------------------------------------------------------------------------------- */

static bool hash_text(const char *text, char ret[65], struct adv_err *err)
{
    uint8_t digest[ADV_SHA256_LEN];

    if (adv_sha256(text, strlen(text), digest, err) < 0)
        return false;
    (void) adv_hex(digest, sizeof(digest), ret);
    return true;
}

bool enrol_token_hash(const char *token, char ret_sha256[65])
{
    uint8_t bytes[base64url_room(ENROL_TOKEN_SIZE)];
    size_t skip = strlen(TOKEN_PREFIX), len = strlen(token);

    return adv_startswith(token, TOKEN_PREFIX) && len < ENROL_TOKEN_SIZE &&
           base64url_decode(token + skip, len - skip, bytes) == TOKEN_BYTES && hash_text(token, ret_sha256, NULL);
}
