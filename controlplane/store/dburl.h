/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_DBURL_H
#define CONTROLPLANE_STORE_DBURL_H

/* Where a MySQL or MariaDB database is, as one line of configuration:
 *
 *     mysql://USER@HOST[:PORT]/DATABASE
 *     mysql://USER@[2001:db8::7]:3307/DATABASE
 *     mysql://USER@/DATABASE?socket=/run/mysqld/mysqld.sock
 *
 * %XX stands for a byte in every part. A password has no place in it: a URL shows up in process lists, logs and
 * configuration dumps.
 *
 * Any thread.  Blocks: no. */

#include <stdint.h>

#include "common/err.h"

struct dburl {
    char user[81];
    char host[254]; /* "" with a socket */
    uint16_t port;
    char socket[108]; /* "" with a host; what a sockaddr_un holds */
    char database[65];
};

/* Errors: -ADV_INVALID_ARGUMENT, which says what is expected; *ret stays as it was. */
adv_must_check int dburl_parse(const char *url, struct dburl *ret, struct adv_err *err);

/* Whether @text means one of these at all, rather than a path. */
bool dburl_is(const char *text);

#endif
