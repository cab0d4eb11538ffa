/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "controlplane/store/dburl.h"

Test(dburl, good_ones)
{
    static const struct {
        const char *url, *user, *host, *socket, *database;
        uint16_t port;
    } v[] = {
        { "mysql://advisor@db.example/advisor", "advisor", "db.example", "", "advisor", 3306 },
        { "mysql://advisor@db.example:3307/advisor", "advisor", "db.example", "", "advisor", 3307 },
        { "mysql://a@[2001:db8::7]/d", "a", "2001:db8::7", "", "d", 3306 },
        { "mysql://a@[::1]:65535/d", "a", "::1", "", "d", 65535 },
        { "mysql://a@/d?socket=/run/mysqld/mysqld.sock", "a", "", "/run/mysqld/mysqld.sock", "d", 3306 },
        { "mysql://a%40b%2f@h/d%20d?", NULL, NULL, NULL, NULL, 0 },
        { "mysql://a%40b%2f@h/d%20d", "a@b/", "h", "", "d d", 3306 },
        { "mysql://a%3ab@h/d", "a:b", "h", "", "d", 3306 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(v); i++) {
        struct dburl u;
        struct adv_err err = { 0 };
        int r = dburl_parse(v[i].url, &u, &err);
        if (!v[i].user) {
            cr_assert_eq(r, -ADV_INVALID_ARGUMENT);
            continue;
        }
        cr_assert_eq(r, 0, "%s: %s", v[i].url, err.msg);
        cr_assert_str_eq(u.user, v[i].user);
        cr_assert_str_eq(u.host, v[i].host);
        cr_assert_str_eq(u.socket, v[i].socket);
        cr_assert_str_eq(u.database, v[i].database);
        cr_assert_eq(u.port, v[i].port);
    }
}

Test(dburl, bad_ones)
{
    static const char *const v[] = {
        "",
        "mysql:/a@h/d",
        "postgres://a@h/d",
        "mysql://",
        "mysql://h/d",
        "mysql://@h/d",
        "mysql://a@h",
        "mysql://a@h/",
        "mysql://a@/d",
        "mysql://a:secret@h/d",
        "mysql://a@h:0/d",
        "mysql://a@h:65536/d",
        "mysql://a@h:x/d",
        "mysql://a@:3306/d",
        "mysql://a@[::1/d",
        "mysql://a@[::1]x/d",
        "mysql://a@h/d/e",
        "mysql://a@h/d%2fe",
        "mysql://a@h/d%",
        "mysql://a@h/d%4",
        "mysql://a@h/d%zz",
        "mysql://a@h/d%00",
        "mysql://a@h/d?socket=/s",
        "mysql://a@/d?socket=s",
        "mysql://a@/d?socket=",
        "mysql://a@/d?socket=/s&x=y",
        "mysql://a@/d?tls=no",
        "mysql://a@h?/d",
        "mysql://a@h/01234567890123456789012345678901234567890123456789012345678901234",
        ("mysql://a@/d?socket=/012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
        "01234567890123456789"),
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(v); i++) {
        struct dburl u = { .port = 7 };
        struct adv_err err = { 0 };
        cr_assert_eq(dburl_parse(v[i], &u, &err), -ADV_INVALID_ARGUMENT, "%s was taken", v[i]);
        cr_assert(strstr(err.msg, "expected mysql://"), "%s: %s", v[i], err.msg);
        cr_assert_not(strstr(err.msg, "secret"), "%s", err.msg);
        cr_assert_eq(u.port, 7);
    }
    cr_assert(dburl_is("mysql://"));
    cr_assert_not(dburl_is("/var/lib/advisor/advisor.db"));
}
