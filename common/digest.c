/* SPDX-License-Identifier: Apache-2.0 */

/* A thin layer over OpenSSL's EVP, so that no other file names the crypto library for a hash. */

#include "common/digest.h"

#include <openssl/evp.h>
#include <pthread.h>

static int refused(struct adv_err *err)
{
    return adv_err_set(err, ADV_INTERNAL, "sha256: crypto library refused");
}

/* EVP_sha256() is looked for in the library's tables, under locks, at every use: for a short text that costs more than its
 * hash. Found once it is kept for the life of the process. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256;

static void find(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

int adv_sha256_init(struct adv_sha256 *h, struct adv_err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    h->ctx_ = NULL;
    (void) pthread_once(&once, find);
    if (!ctx)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "sha256: no memory");
    if (EVP_DigestInit_ex(ctx, sha256 ? sha256 : EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return refused(err);
    }
    h->ctx_ = ctx;
    return 0;
}

int adv_sha256_update(struct adv_sha256 *h, const void *bytes, size_t len, struct adv_err *err)
{
    if (len > 0 && EVP_DigestUpdate(h->ctx_, bytes, len) != 1)
        return refused(err);
    return 0;
}

int adv_sha256_final(struct adv_sha256 *h, uint8_t ret[ADV_SHA256_LEN], struct adv_err *err)
{
    if (EVP_DigestFinal_ex(h->ctx_, ret, NULL) != 1)
        return refused(err);
    return 0;
}

void adv_sha256_done(struct adv_sha256 *h)
{
    if (h) {
        EVP_MD_CTX_free(h->ctx_);
        h->ctx_ = NULL;
    }
}

int adv_sha256(const void *bytes, size_t len, uint8_t ret[ADV_SHA256_LEN], struct adv_err *err)
{
    ADV_AUTO_DONE(adv_sha256) h;
    int r = adv_sha256_init(&h, err);

    if (r == 0)
        r = adv_sha256_update(&h, bytes, len, err);
    return r < 0 ? r : adv_sha256_final(&h, ret, err);
}

const char *adv_hex(const void *bytes, size_t len, char *out)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = bytes;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = hex[p[i] >> 4];
        out[2 * i + 1] = hex[p[i] & 15];
    }
    out[2 * len] = '\0';
    return out;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool adv_unhex(const char *hex, void *ret_bytes, size_t len)
{
    uint8_t *out = ret_bytes;

    if (strlen(hex) != 2 * len)
        return false;
    for (size_t i = 0; i < len; i++) {
        int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);

        if (hi < 0 || lo < 0)
            return false;
        out[i] = (uint8_t) (hi * 16 + lo);
    }
    return true;
}
