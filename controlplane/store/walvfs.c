/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite writes a log frame by two system calls, one for its header and one for its page; a transaction of a few pages
 * spends more time in them than in all its statements, and one of a thousand pages still a third.
 *
 * So pieces that follow each other are kept, and written as one when something else is asked of the file: above all the sync that a
 * commit waits for. SQLite shows frames to others (other connections read the same file) only after that sync, so nobody
 * can miss what is kept here; what is lost in a crash is what was not committed. A piece that could not be written stays,
 * and is tried again by whatever comes next: so no call says "done" while something before it is missing.
 *
 * A transaction that spilled and was rolled back leaves pieces that must never be written: the place is free for whoever
 * commits next, also in another process (a store is sealed by one). */

#include "controlplane/store/walvfs.h"

#include <stdlib.h>
#include <string.h>

#include "common/macros.h"

#define KEPT_MAX (128 << 10) /* some 30 frames: the calls are few then */

struct wal_file {
    sqlite3_file base;
    char *kept; /* made with the first write: readers of a log need none */
    size_t n;
    sqlite3_int64 at; /* of kept[0] in the file */
    sqlite3_file real[]; /* and what the default VFS adds to it */
};

static sqlite3_vfs *real_vfs;

static struct wal_file *wal_of(sqlite3_file *f)
{
    return (struct wal_file *) f;
}

static int write_out(struct wal_file *w)
{
    int rc = w->n ? w->real->pMethods->xWrite(w->real, w->kept, (int) w->n, w->at) : SQLITE_OK;

    if (rc == SQLITE_OK)
        w->n = 0;
    return rc;
}

static int wal_close(sqlite3_file *f)
{
    struct wal_file *w = wal_of(f);

    free(w->kept); /* what is in it was not committed: it would have been synced */
    return w->real->pMethods->xClose(w->real);
}

static int wal_read(sqlite3_file *f, void *buf, int n, sqlite3_int64 at)
{
    struct wal_file *w = wal_of(f);
    int rc = write_out(w);

    return rc == SQLITE_OK ? w->real->pMethods->xRead(w->real, buf, n, at) : rc;
}

static int wal_write(sqlite3_file *f, const void *buf, int n, sqlite3_int64 at)
{
    struct wal_file *w = wal_of(f);
    bool follows = w->n && at == w->at + (sqlite3_int64) w->n && w->n + (size_t) n <= KEPT_MAX;
    int rc;

    if (!follows && (rc = write_out(w)) != SQLITE_OK)
        return rc;
    if (!w->kept)
        w->kept = malloc(KEPT_MAX);
    if (!w->kept || n > KEPT_MAX)
        return w->real->pMethods->xWrite(w->real, buf, n, at);
    if (!w->n)
        w->at = at;
    memcpy(w->kept + w->n, buf, (size_t) n);
    w->n += (size_t) n;
    return SQLITE_OK;
}

static int wal_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    struct wal_file *w = wal_of(f);
    int rc = write_out(w);

    return rc == SQLITE_OK ? w->real->pMethods->xTruncate(w->real, size) : rc;
}

static int wal_sync(sqlite3_file *f, int flags)
{
    struct wal_file *w = wal_of(f);
    int rc = write_out(w);

    return rc == SQLITE_OK ? w->real->pMethods->xSync(w->real, flags) : rc;
}

static int wal_size(sqlite3_file *f, sqlite3_int64 *ret)
{
    struct wal_file *w = wal_of(f);
    int rc = write_out(w);

    return rc == SQLITE_OK ? w->real->pMethods->xFileSize(w->real, ret) : rc;
}

static int wal_lock(sqlite3_file *f, int l)
{
    return wal_of(f)->real->pMethods->xLock(wal_of(f)->real, l);
}

static int wal_unlock(sqlite3_file *f, int l)
{
    return wal_of(f)->real->pMethods->xUnlock(wal_of(f)->real, l);
}

static int wal_reserved(sqlite3_file *f, int *ret)
{
    return wal_of(f)->real->pMethods->xCheckReservedLock(wal_of(f)->real, ret);
}

static int wal_control(sqlite3_file *f, int op, void *arg)
{
    return wal_of(f)->real->pMethods->xFileControl(wal_of(f)->real, op, arg);
}

static int wal_sector(sqlite3_file *f)
{
    return wal_of(f)->real->pMethods->xSectorSize(wal_of(f)->real);
}

static int wal_device(sqlite3_file *f)
{
    return wal_of(f)->real->pMethods->xDeviceCharacteristics(wal_of(f)->real);
}

/* Version 1: shared memory and memory mapping are the database file's alone. */
static const sqlite3_io_methods wal_methods = {
    .iVersion = 1,
    .xClose = wal_close,
    .xRead = wal_read,
    .xWrite = wal_write,
    .xTruncate = wal_truncate,
    .xSync = wal_sync,
    .xFileSize = wal_size,
    .xLock = wal_lock,
    .xUnlock = wal_unlock,
    .xCheckReservedLock = wal_reserved,
    .xFileControl = wal_control,
    .xSectorSize = wal_sector,
    .xDeviceCharacteristics = wal_device,
};

static int wal_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
    struct wal_file *w = wal_of(f);
    int rc;

    (void) vfs;
    if (!(flags & SQLITE_OPEN_WAL))
        return real_vfs->xOpen(real_vfs, name, f, flags, ret_flags);
    *w = (struct wal_file) { .base.pMethods = NULL };
    memset(w->real, 0, (size_t) real_vfs->szOsFile);
    rc = real_vfs->xOpen(real_vfs, name, w->real, flags, ret_flags);
    if (rc == SQLITE_OK)
        w->base.pMethods = &wal_methods;
    else if (w->real->pMethods)
        (void) w->real->pMethods->xClose(w->real); /* SQLite would, of a file of its own */
    return rc;
}

const char *walvfs_name(void)
{
    static sqlite3_vfs vfs;

    if (!real_vfs) {
        sqlite3_vfs *def = sqlite3_vfs_find(NULL);
        if (!def)
            return NULL;
        vfs = *def;
        vfs.pNext = NULL;
        vfs.zName = "advisor-wal";
        vfs.szOsFile = (int) sizeof(struct wal_file) + def->szOsFile;
        vfs.xOpen = wal_open;
        if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK)
            return NULL;
        real_vfs = def;
    }
    return vfs.zName;
}

void walvfs_drop(sqlite3 *db)
{
    sqlite3_file *f = NULL;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &f) == SQLITE_OK && f && f->pMethods == &wal_methods)
        wal_of(f)->n = 0;
}
