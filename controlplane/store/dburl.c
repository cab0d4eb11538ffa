/* SPDX-License-Identifier: Apache-2.0 */
/* Cut at the delimiters first, percent signs resolved afterwards, so that a "%2F" in a part is no delimiter. */

#include "controlplane/store/dburl.h"

#include <stdio.h>

#include "common/num.h"

#define SCHEME       "mysql://"
#define DEFAULT_PORT 3306
#define EXPECTED     "expected mysql://USER@HOST[:PORT]/DATABASE or mysql://USER@/DATABASE?socket=PATH"

static int bad(struct adv_err *err, const char *what)
{
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "%s; " EXPECTED, what);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char) (c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* @out gets the bytes that @begin..@end stands for. False: does not fit, a bad escape, a NUL. */
static bool decode(const char *begin, const char *end, char *out, size_t size)
{
    size_t n = 0;

    for (; begin < end; begin++) {
        int c = (unsigned char) *begin;
        if (c == '%') {
            if (end - begin < 3 || hex(begin[1]) < 0 || hex(begin[2]) < 0)
                return false;
            c = hex(begin[1]) << 4 | hex(begin[2]);
            begin += 2;
        }
        if (c == '\0' || n + 1 >= size)
            return false;
        out[n++] = (char) c;
    }
    out[n] = '\0';
    return true;
}

static int parse_host(const char *p, const char *end, struct dburl *u, struct adv_err *err)
{
    const char *host_end, *colon;
    char port[8];
    uint64_t number;

    if (p < end && *p == '[') {
        host_end = memchr(p, ']', (size_t) (end - p));
        if (!host_end)
            return bad(err, "']' is missing");
        if (!decode(p + 1, host_end, u->host, sizeof(u->host)))
            return bad(err, "bad host");
        colon = host_end + 1;
        if (colon < end && *colon != ':')
            return bad(err, "something between ']' and the port");
    } else {
        colon = memchr(p, ':', (size_t) (end - p));
        if (!colon)
            colon = end;
        if (!decode(p, colon, u->host, sizeof(u->host)))
            return bad(err, "bad host");
    }
    if (colon >= end)
        return 0;
    if (!u->host[0] || !decode(colon + 1, end, port, sizeof(port)) || adv_parse_u64(port, 1, UINT16_MAX, &number, NULL) < 0)
        return bad(err, "bad port");
    u->port = (uint16_t) number;
    return 0;
}

static int parse_query(const char *p, const char *end, struct dburl *u, struct adv_err *err)
{
    static const char key[] = "socket=";

    if ((size_t) (end - p) < sizeof(key) - 1 || memcmp(p, key, sizeof(key) - 1) != 0 || memchr(p, '&', (size_t) (end - p)))
        return bad(err, "unknown parameter after '?'");
    if (!decode(p + sizeof(key) - 1, end, u->socket, sizeof(u->socket)) || u->socket[0] != '/')
        return bad(err, "the socket is no absolute path of at most 107 bytes");
    return 0;
}

bool dburl_is(const char *text)
{
    return adv_startswith(text, SCHEME);
}

int dburl_parse(const char *url, struct dburl *ret, struct adv_err *err)
{
    struct dburl u = { .port = DEFAULT_PORT };
    const char *p = url + sizeof(SCHEME) - 1, *end = url + strlen(url), *slash, *at, *query;
    int r;

    if (!dburl_is(url))
        return bad(err, "another scheme");
    query = strchr(p, '?');
    slash = memchr(p, '/', (size_t) ((query ? query : end) - p));
    if (!slash)
        return bad(err, "no database");
    at = memchr(p, '@', (size_t) (slash - p));
    if (!at)
        return bad(err, "no user");
    if (memchr(p, ':', (size_t) (at - p)))
        return bad(err, "a password belongs into a file, not into the URL");
    if (at == p || !decode(p, at, u.user, sizeof(u.user)))
        return bad(err, "bad user");
    if ((r = parse_host(at + 1, slash, &u, err)) < 0)
        return r;
    if (!decode(slash + 1, query ? query : end, u.database, sizeof(u.database)) || !u.database[0] || strchr(u.database, '/'))
        return bad(err, "bad database");
    if (query && (r = parse_query(query + 1, end, &u, err)) < 0)
        return r;
    if (!u.host[0] == !u.socket[0])
        return bad(err, u.host[0] ? "a host and a socket" : "neither host nor socket");
    *ret = u;
    return 0;
}
