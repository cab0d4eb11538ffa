/* SPDX-License-Identifier: Apache-2.0 */
#include "advisor-agent/pki.h"

#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

static char dir[] = "/tmp/advisor-pki-XXXXXX";
static char cert[64], key[64], cert_new[80], key_new[80];

static void setup(void)
{
    cr_assert_not_null(mkdtemp(dir));
    (void) snprintf(cert, sizeof(cert), "%s/agent.crt", dir);
    (void) snprintf(key, sizeof(key), "%s/agent.key", dir);
    (void) snprintf(cert_new, sizeof(cert_new), "%s.new", cert);
    (void) snprintf(key_new, sizeof(key_new), "%s.new", key);
}

static void teardown(void)
{
    const char *files[] = { cert, key, cert_new, key_new };

    for (size_t i = 0; i < ADV_ARRAY_LEN(files); i++)
        (void) unlink(files[i]);
    (void) rmdir(dir);
}

TestSuite(pki, .init = setup, .fini = teardown);

/* A certificate for the key of @r, as PEM; serial and life are numbers to be known again by. */
static char *certify(const struct pki_request *r, long serial, int64_t from_s, int64_t to_s)
{
    size_t len;
    const uint8_t *p = pki_request_der(r, &len);
    X509_REQ *req = d2i_X509_REQ(NULL, &p, (long) len);
    EVP_PKEY *ca = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    X509 *x = X509_new();
    BIO *bio = BIO_new(BIO_s_mem());
    char *text, *out;

    cr_assert_not_null(req);
    cr_assert_eq(X509_REQ_verify(req, X509_REQ_get0_pubkey(req)), 1);
    (void) ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    (void) ASN1_TIME_set(X509_getm_notBefore(x), from_s);
    (void) ASN1_TIME_set(X509_getm_notAfter(x), to_s);
    (void) X509_set_pubkey(x, X509_REQ_get0_pubkey(req));
    (void) X509_sign(x, ca, EVP_sha256());
    (void) PEM_write_bio_X509(bio, x);
    out = strndup(text, (size_t) BIO_get_mem_data(bio, &text));
    BIO_free(bio);
    X509_free(x);
    EVP_PKEY_free(ca);
    X509_REQ_free(req);
    return out;
}

static long serial_of(void)
{
    struct pki_cert c;

    cr_assert_eq(pki_look(cert, &c, NULL), 0);
    return strtol(c.serial, NULL, 16);
}

static void install(struct pki_request *r, long serial)
{
    adv_auto_free char *chain = certify(r, serial, 1700000000, 1700001000);
    struct adv_err err = { 0 };

    cr_assert_eq(pki_install(r, chain, strlen(chain), cert, key, &err), 0, "%s", err.msg);
}

Test(pki, a_pair_is_put_in_its_places)
{
    ADV_AUTO(pki_request) r = NULL;
    ADV_AUTO(pki_request) other = NULL;
    struct pki_cert c;
    struct stat st;
    struct adv_err err = { 0 };

    cr_assert_eq(pki_request_new(&r, NULL), 0);
    cr_assert_eq(pki_request_new(&other, NULL), 0);
    install(r, 0xab);
    cr_assert_eq(pki_look(cert, &c, NULL), 0);
    cr_assert_str_eq(c.serial, "ab");
    cr_assert_eq(c.not_before_s, 1700000000);
    cr_assert_eq(c.not_after_s, 1700001000);
    cr_assert_eq(stat(key, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600, "the key is for nobody else");
    adv_auto_free char *wrong = certify(other, 2, 1, 2);
    cr_assert_eq(pki_install(r, wrong, strlen(wrong), cert, key, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(pki_install(r, "nothing", 7, cert, key, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(pki_install(r, "", 0, cert, key, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(serial_of(), 0xab, "the old pair stays");
    cr_assert(access(cert_new, F_OK) < 0 && access(key_new, F_OK) < 0);
    install(other, 0xcd);
    cr_assert_eq(serial_of(), 0xcd);
}

/* Every point at which the host may crash between "written beside" and "both in place". */
Test(pki, a_key_that_others_can_read_is_seen)
{
    static const struct {
        mode_t mode;
        bool exposed;
    } t[] = { { 0600, false }, { 0400, false }, { 0640, false }, { 0644, true }, { 0660, true }, { 0602, true } };
    ADV_AUTO(pki_request) r = NULL;
    unsigned mode = 0;

    cr_assert(!pki_key_exposed(key, &mode), "a file that is not there");
    cr_assert_eq(pki_request_new(&r, NULL), 0);
    install(r, 1);
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        cr_assert_eq(chmod(key, t[i].mode), 0);
        cr_assert_eq(pki_key_exposed(key, &mode), t[i].exposed, "%o", (unsigned) t[i].mode);
        cr_assert_eq(mode, t[i].mode);
    }
}

Test(pki, an_interrupted_install_is_finished_or_forgotten)
{
    ADV_AUTO(pki_request) old = NULL;
    ADV_AUTO(pki_request) next = NULL;

    cr_assert_eq(pki_request_new(&old, NULL), 0);
    cr_assert_eq(pki_request_new(&next, NULL), 0);
    /* make the new pair's files: install it, move it away, put the old one back */
    install(next, 2);
    cr_assert_eq(rename(cert, cert_new), 0);
    cr_assert_eq(rename(key, key_new), 0);
    adv_auto_free char *chain = certify(old, 1, 1700000000, 1700001000);
    char tmp_cert[80], tmp_key[80];
    (void) snprintf(tmp_cert, sizeof(tmp_cert), "%s/tmp.crt", dir);
    (void) snprintf(tmp_key, sizeof(tmp_key), "%s/tmp.key", dir);
    cr_assert_eq(pki_install(old, chain, strlen(chain), tmp_cert, tmp_key, NULL), 0);
    cr_assert_eq(rename(tmp_cert, cert), 0);
    cr_assert_eq(rename(tmp_key, key), 0);
    /* nothing moved yet: the old pair is whole */
    cr_assert(!pki_recover(cert, key));
    cr_assert_eq(serial_of(), 1);
    /* the key was moved, the certificate was not */
    cr_assert_eq(rename(key_new, key), 0);
    cr_assert(pki_recover(cert, key));
    cr_assert_eq(serial_of(), 2);
    cr_assert(!pki_recover(cert, key));
}

Test(pki, a_link_beside_is_not_followed)
{
    ADV_AUTO(pki_request) r = NULL;
    char victim[80];
    struct stat st;

    (void) snprintf(victim, sizeof(victim), "%s/victim", dir);
    cr_assert_eq(pki_request_new(&r, NULL), 0);
    cr_assert_eq(symlink(victim, key_new), 0);
    install(r, 1);
    cr_assert_lt(stat(victim, &st), 0);
    cr_assert_eq(lstat(key, &st), 0);
    cr_assert(S_ISREG(st.st_mode));
}

Test(pki, folders_that_cannot_be_written)
{
    struct adv_err err = { 0 };
    struct pki_cert c;

    cr_assert_eq(pki_writable(cert, key, &err), 0);
    cr_assert_eq(pki_writable("/nowhere/a.crt", key, &err), -ADV_PERMISSION_DENIED);
    cr_assert_not_null(strstr(err.msg, "/nowhere"));
    cr_assert_eq(pki_look("/nowhere/a.crt", &c, &err), -ADV_NOT_FOUND);
    cr_assert_eq(pki_write_file(cert, "x", 1, 0644, &err), 0);
    cr_assert_eq(pki_look(cert, &c, &err), -ADV_INVALID_ARGUMENT);
    cr_assert(!pki_recover("/nowhere/a.crt", "/nowhere/a.key"));
}
