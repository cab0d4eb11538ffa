/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CONTRACT_STORE_CONTRACT_H
#define TESTS_CONTRACT_STORE_CONTRACT_H

/* The store that a run of the contract is about: SQLite in a folder of its own, or, below mariadb-lab, a database of a real
 * server. Each test begins with an empty one. */

#define STOREKIT_SHARED_LOOP 1
#include "tests/unit/store/storekit.h"

extern char contract_url[512];

/* True below mariadb-lab. */
bool contract_shared(void);
void contract_setup(void);
void contract_teardown(void);

/* Opens the store as replica @name; the second fails the test when it cannot. */
int contract_open(const char *name, struct store **ret, struct adv_err *err);
struct store *must_open(const char *name);
/* More than the usual; applies to what is opened after it. */
extern struct store_config contract_config;

/* Runs statements on the store itself, beside the program; the second gives the first column of the first row. */
void contract_sql(const char *fmt, ...) ADV_PRINTF(1, 2);
uint64_t contract_number(const char *fmt, ...) ADV_PRINTF(1, 2);

/* mariadb-lab's command for this server: "freeze", "kill", … */
void contract_lab(const char *what);

/* Statements on a server, beside the store: server.c, or server-fallback.c without the MySQL engine. */
void server_begin(const char *url);
void server_end(void);
void server_sql(const char *text, char ret[64]);

#endif
