/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ed25519.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

struct adv_ed25519 {
    EVP_PKEY *key;
    bool is_public;
    char id[ADV_SHA256_HEX_SIZE];
};

struct adv_ed25519 *adv_ed25519_free(struct adv_ed25519 *k)
{
    if (!k)
        return NULL;
    EVP_PKEY_free(k->key);
    free(k);
    return NULL;
}

int adv_ed25519_load(const char *path, bool is_public, struct adv_ed25519 **ret, struct adv_err *err)
{
    struct adv_ed25519 *k = calloc(1, sizeof(*k));
    FILE *f = fopen(path, "re");
    uint8_t raw[32], sum[ADV_SHA256_LEN];
    size_t len = sizeof(raw);

    if (!k || !f) {
        int saved = errno;
        if (f)
            (void) fclose(f);
        free(k);
        return f ? adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory") :
                   adv_err_set_errno(err, saved == EACCES ? ADV_PERMISSION_DENIED : ADV_NOT_FOUND, saved, "%.180s", path);
    }
    k->is_public = is_public;
    /* "" for a passphrase: a key that wants one is refused, and nobody is asked */
    k->key = is_public ? PEM_read_PUBKEY(f, NULL, NULL, NULL) : PEM_read_PrivateKey(f, NULL, NULL, (void *) (uintptr_t) "");
    (void) fclose(f);
    if (!k->key || EVP_PKEY_get_base_id(k->key) != EVP_PKEY_ED25519 ||
        EVP_PKEY_get_raw_public_key(k->key, raw, &len) != 1 || len != sizeof(raw)) {
        (void) adv_ed25519_free(k);
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.180s: expected an Ed25519 %s key in PEM, without a passphrase", path,
                           is_public ? "public" : "private");
    }
    if (adv_sha256(raw, sizeof(raw), sum, err) < 0) {
        (void) adv_ed25519_free(k);
        return -ADV_INTERNAL;
    }
    (void) adv_hex(sum, sizeof(sum), k->id);
    *ret = k;
    return 0;
}

const char *adv_ed25519_id(const struct adv_ed25519 *k)
{
    return k->id;
}

int adv_ed25519_sign(const struct adv_ed25519 *k, const void *bytes, size_t len, uint8_t ret[ADV_ED25519_SIZE],
                     struct adv_err *err)
{
    EVP_MD_CTX *ctx = k->is_public ? NULL : EVP_MD_CTX_new();
    size_t n = ADV_ED25519_SIZE;
    bool ok;

    if (k->is_public)
        return adv_err_set(err, ADV_FAILED_PRECONDITION, "a public key signs nothing");
    ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->key) == 1 &&
         EVP_DigestSign(ctx, ret, &n, bytes, len) == 1 && n == ADV_ED25519_SIZE;
    EVP_MD_CTX_free(ctx);
    return ok ? 0 : adv_err_set(err, ADV_INTERNAL, "the crypto library did not sign");
}

bool adv_ed25519_verify(const struct adv_ed25519 *k, const void *bytes, size_t len, const void *signature, size_t sig_len)
{
    EVP_MD_CTX *ctx = sig_len == ADV_ED25519_SIZE ? EVP_MD_CTX_new() : NULL;
    bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k->key) == 1 &&
              EVP_DigestVerify(ctx, signature, sig_len, bytes, len) == 1;

    EVP_MD_CTX_free(ctx);
    return ok;
}
