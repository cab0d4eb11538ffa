/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ed25519.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

/* RFC 8032, section 7.1, TEST 2, as PKCS #8 and SubjectPublicKeyInfo */
#define SECRET                                                                                                         \
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n"               \
    "-----END PRIVATE KEY-----\n"
#define PUBLIC                                                                                                         \
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n-----END PUBLIC KEY-----\n"
#define SIGNED                                                                                                         \
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"                                                 \
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
/* of the curve P-256 */
#define OTHER                                                                                                          \
    "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRQpZaDG7b2610Z+x\n"                  \
    "XTKe/bdHF0FP+eF3AAPuSajkEWKhRANCAAQeLdW9QWbS/c0YkE7DuuCPZmGADlvQ\n"                                                \
    "1wAlwnbsbtDzqt9luY4Sj7B5ftyXQW40KyL5v6dpaqXJVuLzi9pjOFv/\n" \
    "-----END PRIVATE KEY-----\n"

static char path[32];
static struct adv_err err;

static int load(const char *pem, bool is_public, struct adv_ed25519 **ret)
{
    FILE *f;

    (void) snprintf(path, sizeof(path), "/tmp/adv-key-XXXXXX");
    f = fdopen(mkstemp(path), "w");
    cr_assert(f);
    cr_assert(fputs(pem, f) >= 0);
    cr_assert_eq(fclose(f), 0);
    err = (struct adv_err) { 0 };
    {
        int r = adv_ed25519_load(path, is_public, ret, &err);
        cr_assert_eq(unlink(path), 0);
        return r;
    }
}

Test(ed25519, signs_and_verifies)
{
    struct adv_ed25519 *secret = NULL, *pub = NULL;
    uint8_t sig[ADV_ED25519_SIZE], want[ADV_ED25519_SIZE];

    cr_assert_eq(load(SECRET, false, &secret), 0, "%s", err.msg);
    cr_assert_eq(load(PUBLIC, true, &pub), 0, "%s", err.msg);
    cr_assert_str_eq(adv_ed25519_id(secret), adv_ed25519_id(pub));
    cr_assert_eq(adv_ed25519_sign(secret, "\x72", 1, sig, &err), 0);
    cr_assert(adv_unhex(SIGNED, want, sizeof(want)));
    cr_assert_arr_eq(sig, want, sizeof(sig));
    cr_assert(adv_ed25519_verify(secret, "\x72", 1, sig, sizeof(sig)));
    cr_assert(adv_ed25519_verify(pub, "\x72", 1, sig, sizeof(sig)));
    cr_assert(!adv_ed25519_verify(pub, "\x73", 1, sig, sizeof(sig)));
    cr_assert(!adv_ed25519_verify(pub, "\x72", 1, sig, sizeof(sig) - 1));
    sig[5] ^= 1;
    cr_assert(!adv_ed25519_verify(pub, "\x72", 1, sig, sizeof(sig)));
    cr_assert_eq(adv_ed25519_sign(pub, "\x72", 1, sig, &err), -ADV_FAILED_PRECONDITION);
    (void) adv_ed25519_free(secret);
    (void) adv_ed25519_free(pub);
}

Test(ed25519, takes_no_other_file)
{
    struct adv_ed25519 *k = NULL;

    cr_assert_eq(load("", false, &k), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(load("nothing\n", true, &k), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(load(PUBLIC, false, &k), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(load(SECRET, true, &k), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(load(OTHER, false, &k), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(adv_ed25519_load("/nonexistent/key", false, &k, &err), -ADV_NOT_FOUND);
    cr_assert_null(k);
    cr_assert_null(adv_ed25519_free(NULL));
}
