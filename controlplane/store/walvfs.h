/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_WALVFS_H
#define CONTROLPLANE_STORE_WALVFS_H

/* An SQLite VFS over the default one, for connections that write: what a transaction appends to the write-ahead log
 * reaches the file in large pieces. Everything else is the default's.
 *
 * For connections with synchronous=FULL or more, whose owner calls walvfs_drop() after each transaction that did not
 * commit. */

#include <sqlite3.h>

/* The name for sqlite3_open_v2(); registered with the first call. NULL, the default VFS: it could not be.
 * Thread: loop thread. */
const char *walvfs_name(void);

/* Forgets what a transaction of @db, now rolled back, has left: by the next write another connection may have written its own
 * to that place. */
void walvfs_drop(sqlite3 *db);

#endif
