/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/ca.h"

#include <criterion/criterion.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include "mint.h"

#define NOW 1700000000

static char dir[] = "/tmp/advisor-ca-XXXXXX";
static char cert_path[64], key_path[64], other_path[64];

static X509 *self_signed(EVP_PKEY *key, const char *constraints, int64_t from_s, int64_t to_s)
{
    X509 *x = X509_new();
    X509V3_CTX ctx;

    (void) X509_set_version(x, X509_VERSION_3);
    (void) ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    (void) ASN1_TIME_set(X509_getm_notBefore(x), from_s);
    (void) ASN1_TIME_set(X509_getm_notAfter(x), to_s);
    (void) X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *) "test agents", -1, -1, 0);
    (void) X509_set_issuer_name(x, X509_get_subject_name(x));
    (void) X509_set_pubkey(x, key);
    X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, NID_basic_constraints, constraints);
    (void) X509_add_ext(x, ext, -1);
    X509_EXTENSION_free(ext);
    (void) X509_sign(x, key, EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256());
    return x;
}

static void write_files(EVP_PKEY *key, X509 *cert)
{
    FILE *f = fopen(cert_path, "w");
    (void) PEM_write_X509(f, cert);
    (void) fclose(f);
    f = fopen(key_path, "w");
    (void) PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
    (void) fclose(f);
}

static void make_ca(const char *type, const char *constraints, int64_t from_s, int64_t to_s)
{
    EVP_PKEY *key = mint_key(type);
    X509 *cert = self_signed(key, constraints, from_s, to_s);

    write_files(key, cert);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void setup(void)
{
    cr_assert_not_null(mkdtemp(dir));
    (void) snprintf(cert_path, sizeof(cert_path), "%s/ca.crt", dir);
    (void) snprintf(key_path, sizeof(key_path), "%s/ca.key", dir);
    (void) snprintf(other_path, sizeof(other_path), "%s/other", dir);
    make_ca("P-256", "critical,CA:TRUE,pathlen:0", NOW - 100, NOW + 1000000);
}

static void teardown(void)
{
    (void) unlink(cert_path);
    (void) unlink(key_path);
    (void) unlink(other_path);
    (void) rmdir(dir);
}

TestSuite(ca, .init = setup, .fini = teardown);

/* A signing request in DER; the caller frees it. */
static uint8_t *request(EVP_PKEY *key, int *ret_len)
{
    X509_REQ *req = X509_REQ_new();
    uint8_t *der = NULL;
    bool edwards = EVP_PKEY_is_a(key, "ED25519");

    (void) X509_REQ_set_version(req, 0);
    (void) X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(req), "CN", MBSTRING_ASC, (const unsigned char *) "admin", -1, -1, 0);
    (void) X509_REQ_set_pubkey(req, key);
    cr_assert_gt(X509_REQ_sign(req, key, edwards ? NULL : EVP_sha256()), 0);
    *ret_len = i2d_X509_REQ(req, &der);
    X509_REQ_free(req);
    return der;
}

static struct ca *loaded(void)
{
    struct ca *ca = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(ca_load(cert_path, key_path, NOW, &ca, &err), 0, "%s", err.msg);
    return ca;
}

static void issue_one(const char *ca_type, const char *key_type)
{
    int len;
    EVP_PKEY *key = mint_key(key_type);
    uint8_t *csr = request(key, &len);
    struct ca_cert c = { 0 };
    struct adv_err err = { 0 };

    make_ca(ca_type, "critical,CA:TRUE,pathlen:0", NOW - 100, NOW + 1000000);
    ADV_AUTO(ca) ca = loaded();
    const struct ca_request req = { "alpha", csr, (size_t) len, NOW, NOW + 3600 };
    cr_assert_eq(ca_issue(ca, &req, &c, &err), 0, "%s on %s: %s", ca_type, key_type, err.msg);
    cr_assert_eq(c.not_after_s, NOW + 3600);
    cr_assert_eq(strlen(c.serial), 40);

    BIO *bio = BIO_new_mem_buf(c.chain_pem, -1);
    X509 *x = PEM_read_bio_X509(bio, NULL, NULL, NULL), *issuer = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    cr_assert(x && issuer);
    cr_assert_eq(X509_verify(x, X509_get0_pubkey(issuer)), 1);
    cr_assert_eq(X509_check_issued(issuer, x), X509_V_OK);
    cr_assert_eq(EVP_PKEY_eq(X509_get0_pubkey(x), key), 1);
    cr_assert_eq(X509_check_ca(x), 0);
    cr_assert_eq(X509_get_extended_key_usage(x), XKU_SSL_CLIENT);
    cr_assert_eq(X509_get_key_usage(x), KU_DIGITAL_SIGNATURE);
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    cr_assert_eq(sk_GENERAL_NAME_num(names), 1);
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, 0);
    cr_assert_eq(name->type, GEN_URI);
    cr_assert_str_eq((const char *) ASN1_STRING_get0_data(name->d.uniformResourceIdentifier), "advisor:agent:alpha");
    GENERAL_NAMES_free(names);
    char cn[64];
    (void) X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, cn, sizeof(cn));
    cr_assert_str_eq(cn, "alpha", "the request's own names are not taken");
    BIGNUM *serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(x), NULL);
    char *hex = BN_bn2hex(serial), again[CA_SERIAL_SIZE];
    cr_assert_eq(ca_serial_parse(hex, again, NULL), 0);
    cr_assert_str_eq(again, c.serial);
    OPENSSL_free(hex);
    BN_free(serial);
    X509_free(issuer);
    X509_free(x);
    BIO_free(bio);
    free(c.chain_pem);
    OPENSSL_free(csr);
    EVP_PKEY_free(key);
}

Test(ca, issues)
{
    issue_one("P-256", "P-256");
    issue_one("RSA", "P-384");
    issue_one("ED25519", "ED25519");
    issue_one("P-384", "RSA");
}

Test(ca, never_outlives_itself)
{
    int len;
    EVP_PKEY *key = mint_key("P-256");
    uint8_t *csr = request(key, &len);
    ADV_AUTO(ca) ca = loaded();
    struct ca_cert c = { 0 };
    struct adv_err err = { 0 };
    struct ca_request req = { "alpha", csr, (size_t) len, NOW, NOW + 100000000 };

    cr_assert_eq(ca_issue(ca, &req, &c, NULL), 0);
    cr_assert_eq(c.not_after_s, NOW + 1000000);
    free(c.chain_pem);
    req.not_before_s = NOW + 1000000;
    cr_assert_eq(ca_issue(ca, &req, &c, &err), -ADV_FAILED_PRECONDITION);
    cr_assert_str_eq(err.reason, "CA_EXPIRED");
    OPENSSL_free(csr);
    EVP_PKEY_free(key);
}

Test(ca, requests_that_are_none)
{
    static const char *const small[] = { "P-521", "ED25519" };
    char hash[65], hash2[65];
    struct adv_err err = { 0 };
    int len;
    EVP_PKEY *key = mint_key("P-256");
    uint8_t *csr = request(key, &len), *bad = malloc((size_t) len + 1);

    cr_assert_eq(ca_check_csr(csr, (size_t) len, hash, NULL), 0);
    cr_assert_eq(strlen(hash), 64);
    OPENSSL_free(csr);
    csr = request(key, &len);
    cr_assert_eq(ca_check_csr(csr, (size_t) len, hash2, NULL), 0);
    cr_assert_str_eq(hash, hash2, "known again by its key");

    for (int n = 0; n < len; n++)
        cr_assert_lt(ca_check_csr(csr, (size_t) n, hash, NULL), 0, "%d bytes of %d", n, len);
    bad = realloc(bad, (size_t) len + 1);
    memcpy(bad, csr, (size_t) len);
    bad[len] = 0;
    cr_assert_eq(ca_check_csr(bad, (size_t) len + 1, hash, &err), -ADV_INVALID_ARGUMENT, "a rest behind it");
    cr_assert_str_eq(err.reason, "CSR_MALFORMED");
    cr_assert_str_eq(err.field, "csr");
    for (int i = 0; i < len; i++) { /* every change is noticed */
        bad[i] ^= 1;
        cr_assert_lt(ca_check_csr(bad, (size_t) len, hash, NULL), 0, "byte %d", i);
        bad[i] ^= 1;
    }
    bad[len - 1] ^= 1;
    cr_assert_lt(ca_check_csr(bad, (size_t) len, hash, &err), 0);
    free(bad);
    OPENSSL_free(csr);
    EVP_PKEY_free(key);

    key = mint_key(small[0]);
    csr = request(key, &len);
    cr_assert_eq(ca_check_csr(csr, (size_t) len, hash, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_str_eq(err.reason, "CSR_KEY");
    OPENSSL_free(csr);
    EVP_PKEY_free(key);

    key = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t) 1024);
    csr = request(key, &len);
    cr_assert_eq(ca_check_csr(csr, (size_t) len, hash, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_str_eq(err.reason, "CSR_KEY");
    OPENSSL_free(csr);
    EVP_PKEY_free(key);

    adv_auto_free uint8_t *big = calloc(1, CA_CSR_MAX_BYTES + 1);
    cr_assert_eq(ca_check_csr(big, CA_CSR_MAX_BYTES + 1, hash, &err), -ADV_INVALID_ARGUMENT);
}

/* One key's request with another key's signature: somebody who does not hold the private key. */
Test(ca, proof_of_possession)
{
    EVP_PKEY *key = mint_key("P-256"), *thief = mint_key("P-256");
    X509_REQ *req = X509_REQ_new();
    uint8_t *der = NULL;
    char hash[65];
    struct adv_err err = { 0 };

    (void) X509_REQ_set_pubkey(req, key);
    (void) X509_REQ_sign(req, thief, EVP_sha256());
    int len = i2d_X509_REQ(req, &der);
    cr_assert_eq(ca_check_csr(der, (size_t) len, hash, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_str_eq(err.reason, "CSR_SIGNATURE");
    OPENSSL_free(der);
    X509_REQ_free(req);
    EVP_PKEY_free(thief);
    EVP_PKEY_free(key);
}

Test(ca, files_that_are_no_authority)
{
    struct ca *ca = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(ca_load("/nowhere/ca.crt", key_path, NOW, &ca, &err), -ADV_NOT_FOUND);
    cr_assert_eq(ca_load(cert_path, "/nowhere/ca.key", NOW, &ca, &err), -ADV_NOT_FOUND);
    cr_assert_eq(ca_load(key_path, key_path, NOW, &ca, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(ca_load(cert_path, cert_path, NOW, &ca, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(ca_load(cert_path, key_path, NOW + 1000000, &ca, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(err.msg, "expired"), "%s", err.msg);
    (void) rename(key_path, other_path);
    (void) rename(other_path, key_path);
    make_ca("P-256", "critical,CA:FALSE", NOW - 100, NOW + 1000000);
    cr_assert_eq(ca_load(cert_path, key_path, NOW, &ca, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(err.msg, "CA:TRUE"), "%s", err.msg);
    /* the key of another one */
    EVP_PKEY *a = mint_key("P-256"), *b = mint_key("P-256");
    X509 *x = self_signed(a, "critical,CA:TRUE", NOW - 100, NOW + 100);
    write_files(b, x);
    cr_assert_eq(ca_load(cert_path, key_path, NOW, &ca, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(err.msg, "is not the key of"), "%s", err.msg);
    X509_free(x);
    EVP_PKEY_free(a);
    EVP_PKEY_free(b);
    cr_assert_null(ca);
}

Test(ca, files_may_change)
{
    int len;
    EVP_PKEY *key = mint_key("P-256");
    uint8_t *csr = request(key, &len);
    ADV_AUTO(ca) ca = loaded();
    struct ca_cert c = { 0 };
    struct adv_err err = { 0 };
    const struct ca_request req = { "alpha", csr, (size_t) len, NOW, NOW + 100000000 };

    cr_assert_eq(ca_refresh(ca, NOW, &err), 0);
    make_ca("P-256", "critical,CA:FALSE", NOW - 100, NOW + 5000);
    cr_assert_eq(ca_refresh(ca, NOW, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(ca_issue(ca, &req, &c, NULL), 0);
    cr_assert_eq(c.not_after_s, NOW + 1000000, "the old one stays");
    free(c.chain_pem);
    make_ca("RSA", "critical,CA:TRUE", NOW - 100, NOW + 5000);
    cr_assert_eq(ca_refresh(ca, NOW, &err), 0, "%s", err.msg);
    cr_assert_eq(ca_issue(ca, &req, &c, NULL), 0);
    cr_assert_eq(c.not_after_s, NOW + 5000);
    free(c.chain_pem);
    OPENSSL_free(csr);
    EVP_PKEY_free(key);
}

Test(ca, serials)
{
    static const struct {
        const char *text, *serial;
    } t[] = {
        { "1", "1" },
        { "00:AB:cd", "abcd" },
        { "0000000000000000000000000000000000000000000000000000ff", "ff" },
        { "0123456789abcdef0123456789abcdef01234567", "123456789abcdef0123456789abcdef01234567" },
        { "f123456789abcdef0123456789abcdef01234567", "f123456789abcdef0123456789abcdef01234567" },
        { "f123456789abcdef0123456789abcdef012345678", NULL },
        { "", NULL },
        { "0", NULL },
        { "0x12", NULL },
        { ":12", NULL },
        { "12:", NULL },
        { "12 34", NULL },
        { "-1", NULL },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct adv_err err = { 0 };
        char out[CA_SERIAL_SIZE] = "";
        int r = ca_serial_parse(t[i].text, out, &err);

        cr_assert_eq(r, t[i].serial ? 0 : -ADV_INVALID_ARGUMENT, "%s", t[i].text);
        cr_assert_str_eq(out, t[i].serial ? t[i].serial : "");
        cr_assert(t[i].serial || adv_streq(err.reason, "SERIAL_MALFORMED"));
    }
}

Test(enrol, tokens)
{
    static const char *const bad[] = { "", "adv-enrol-", "adv-enrol-AAAA", "x", "adv-enrol",
                                       "adv-enrol-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB",
                                       "adv-enrol-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
                                       "adv-enrol-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" };
    char hash[65];

    cr_assert(enrol_token_hash("adv-enrol-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", hash));
    cr_assert_str_eq(hash, "308b4574a5ba4e0611e91f9719557247378b3ce1f59e9ec47cd29e6b3644e483");
    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++)
        cr_assert(!enrol_token_hash(bad[i], hash), "%s", bad[i]);
}
