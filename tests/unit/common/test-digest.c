/* SPDX-License-Identifier: Apache-2.0 */
#include "common/digest.h"

#include <criterion/criterion.h>

/* FIPS 180-2 examples */
static const struct {
    const char *text, *hex;
} t[] = {
    { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
};

Test(digest, vectors)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        uint8_t d[ADV_SHA256_LEN];
        char hex[ADV_SHA256_HEX_SIZE];
        ADV_AUTO_DONE(adv_sha256) h;

        cr_assert_eq(adv_sha256(t[i].text, strlen(t[i].text), d, NULL), 0);
        cr_assert_str_eq(adv_hex(d, sizeof(d), hex), t[i].hex);
        cr_assert_eq(adv_sha256_init(&h, NULL), 0);
        for (const char *s = t[i].text; *s; s++)
            cr_assert_eq(adv_sha256_update(&h, s, 1, NULL), 0);
        cr_assert_eq(adv_sha256_final(&h, d, NULL), 0);
        cr_assert_str_eq(adv_hex(d, sizeof(d), hex), t[i].hex);
    }
}

Test(digest, unhex)
{
    static const char *const bad[] = { "", "0", "0g", "g0", "000102", "00010", "00 1", "-1ff" };
    uint8_t b[2];

    cr_assert(adv_unhex("00ff", b, 2) && b[0] == 0 && b[1] == 0xff);
    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++)
        cr_assert(!adv_unhex(bad[i], b, 2), "\"%s\"", bad[i]);
}
