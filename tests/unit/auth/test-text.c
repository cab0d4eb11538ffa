/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/text.h"

#include <criterion/criterion.h>

#include "controlplane/auth/roles.h"

Test(text, glob)
{
    static const struct {
        const char *pattern, *text;
        bool match;
    } t[] = {
        { "", "", true },
        { "", "a", false },
        { "*", "", true },
        { "*", "anything", true },
        { "prod-*", "prod-1", true },
        { "prod-*", "prod-", true },
        { "prod-*", "prod", false },
        { "prod-*", "xprod-1", false },
        { "?", "a", true },
        { "?", "", false },
        { "*@example.org", "a@example.org", true },
        { "*@example.org", "a@example.org.evil", false },
        { "a*b*c", "a-b-b-c", true },
        { "a*b*c", "a-c-b", false },
        { "a[b]", "a[b]", true }, /* no classes */
        { "a[b]", "ab", false },
        { "\\*", "*", false }, /* no escapes */
        { "**a", "bba", true },
        { "a", "A", false },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_eq(glob_match(t[i].pattern, t[i].text), t[i].match, "\"%s\" on \"%s\"", t[i].pattern, t[i].text);
}

Test(text, base64url)
{
    static const struct {
        const char *text;
        ssize_t len;
        const char *bytes;
    } t[] = {
        { "", 0, "" },
        { "Zg", 1, "f" },
        { "Zm8", 2, "fo" },
        { "Zm9v", 3, "foo" },
        { "Zm9vYmFy", 6, "foobar" },
        { "-_-_", 3, "\xfb\xff\xbf" },
        { "Z", -1, NULL },
        { "Zm9vY", -1, NULL },
        { "Zg==", -1, NULL }, /* no padding in JOSE */
        { "Zh", -1, NULL },   /* bits beyond the last byte: a second text of "f" */
        { "Zm9", -1, NULL },
        { "Zm+v", -1, NULL },
        { "Zm/v", -1, NULL },
        { "Zm v", -1, NULL },
        { "Zm\n8", -1, NULL },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        uint8_t out[16];
        char back[16];
        ssize_t n = base64url_decode(t[i].text, strlen(t[i].text), out);

        cr_assert_eq(n, t[i].len, "\"%s\": %zd", t[i].text, n);
        if (n < 0)
            continue;
        cr_assert_eq(memcmp(out, t[i].bytes, (size_t) n), 0, "%s", t[i].text);
        cr_assert_str_eq(base64url_encode(out, (size_t) n, back), t[i].text);
    }
}

Test(roles, what_each_may)
{
    /* needed: none reader detector user operator admin agent */
    static const char *const t[] = {
        [ROLE_READER] = "xx.....",   [ROLE_DETECTOR] = "x.x....", [ROLE_USER] = "xx.x...",
        [ROLE_OPERATOR] = "xxxxx..", [ROLE_ADMIN] = "xxxxxx.",    [ROLE_AGENT] = "x.....x",
    };

    for (int has = ROLE_READER; has <= ROLE_AGENT; has++)
        for (int needed = ROLE_NONE; needed <= ROLE_AGENT; needed++)
            cr_assert_eq(role_rights_include(role_rights((enum api_role) has), (enum api_role) needed), t[has][needed] == 'x',
                         "%s for %s", role_name((enum api_role) has), role_name((enum api_role) needed));
    cr_assert(role_rights(ROLE_USER).own_only);
}

Test(roles, two_limits_meet)
{
    struct role_rights r = role_rights_meet(role_rights(ROLE_READER), role_rights(ROLE_ADMIN));

    cr_assert(role_rights_include(r, ROLE_READER) && !role_rights_include(r, ROLE_OPERATOR));
    r = role_rights_meet(role_rights(ROLE_USER), role_rights(ROLE_READER));
    cr_assert(role_rights_include(r, ROLE_READER) && r.own_only);
    cr_assert_eq(role_rights_meet(role_rights(ROLE_AGENT), role_rights(ROLE_ADMIN)).bits, 0);
}

Test(roles, names)
{
    enum api_role r = ROLE_NONE;

    for (int i = ROLE_READER; i <= ROLE_AGENT; i++)
        cr_assert(role_from_name(role_name((enum api_role) i), &r) && (int) r == i);
    cr_assert(!role_from_name("none", &r) && !role_from_name("", &r) && !role_from_name("root", &r));
}
