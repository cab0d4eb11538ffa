/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_STORE_FAULTVFS_H
#define TESTS_UNIT_STORE_FAULTVFS_H

/* An SQLite VFS over the system's that can be told to fail: a disk that fills up, whose fsync fails, or that is gone.
 * Registered as the default, so that the code under test needs no switch. Counts over all files. */

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdatomic.h>

enum fault { FAULT_NONE, FAULT_FULL, FAULT_SYNC, FAULT_GONE };

static atomic_int fault_mode;
static atomic_long fault_countdown = -1; /* that write or sync (0 is the next) fails, once; -1: none does */
static atomic_long fault_ops;            /* writes and syncs so far */

struct fault_file {
    sqlite3_file base;
    sqlite3_file *real;
};

static sqlite3_vfs *fault_real;

static sqlite3_file *fault_of(sqlite3_file *f)
{
    return ((struct fault_file *) f)->real;
}

static int fault_tick(void)
{
    (void) atomic_fetch_add(&fault_ops, 1);
    return atomic_load(&fault_countdown) >= 0 && atomic_fetch_sub(&fault_countdown, 1) == 0;
}

static int fault_close(sqlite3_file *f)
{
    sqlite3_file *real = fault_of(f);
    int rc = real->pMethods ? real->pMethods->xClose(real) : SQLITE_OK;

    sqlite3_free(real);
    return rc;
}

static int fault_read(sqlite3_file *f, void *buf, int n, sqlite3_int64 at)
{
    if (atomic_load(&fault_mode) == FAULT_GONE)
        return SQLITE_IOERR_READ;
    return fault_of(f)->pMethods->xRead(fault_of(f), buf, n, at);
}

static int fault_write(sqlite3_file *f, const void *buf, int n, sqlite3_int64 at)
{
    int mode = atomic_load(&fault_mode);

    if (mode == FAULT_FULL || fault_tick())
        return SQLITE_FULL;
    if (mode == FAULT_GONE)
        return SQLITE_IOERR_WRITE;
    return fault_of(f)->pMethods->xWrite(fault_of(f), buf, n, at);
}

static int fault_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return fault_of(f)->pMethods->xTruncate(fault_of(f), size);
}

static int fault_sync(sqlite3_file *f, int flags)
{
    int mode = atomic_load(&fault_mode);

    if (mode == FAULT_SYNC || mode == FAULT_GONE || fault_tick())
        return SQLITE_IOERR_FSYNC;
    return fault_of(f)->pMethods->xSync(fault_of(f), flags);
}

static int fault_size(sqlite3_file *f, sqlite3_int64 *ret)
{
    return fault_of(f)->pMethods->xFileSize(fault_of(f), ret);
}
static int fault_lock(sqlite3_file *f, int l)
{
    return fault_of(f)->pMethods->xLock(fault_of(f), l);
}
static int fault_unlock(sqlite3_file *f, int l)
{
    return fault_of(f)->pMethods->xUnlock(fault_of(f), l);
}
static int fault_reserved(sqlite3_file *f, int *ret)
{
    return fault_of(f)->pMethods->xCheckReservedLock(fault_of(f), ret);
}
static int fault_control(sqlite3_file *f, int op, void *arg)
{
    return fault_of(f)->pMethods->xFileControl(fault_of(f), op, arg);
}
static int fault_sector(sqlite3_file *f)
{
    return fault_of(f)->pMethods->xSectorSize(fault_of(f));
}
static int fault_device(sqlite3_file *f)
{
    return fault_of(f)->pMethods->xDeviceCharacteristics(fault_of(f));
}
static int fault_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **ret)
{
    return fault_of(f)->pMethods->xShmMap(fault_of(f), page, size, extend, ret);
}
static int fault_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return fault_of(f)->pMethods->xShmLock(fault_of(f), offset, n, flags);
}
static void fault_shm_barrier(sqlite3_file *f)
{
    fault_of(f)->pMethods->xShmBarrier(fault_of(f));
}
static int fault_shm_unmap(sqlite3_file *f, int del)
{
    return fault_of(f)->pMethods->xShmUnmap(fault_of(f), del);
}

static const sqlite3_io_methods fault_methods = {
    .iVersion = 2, /* no memory mapping: it would go around us */
    .xClose = fault_close,
    .xRead = fault_read,
    .xWrite = fault_write,
    .xTruncate = fault_truncate,
    .xSync = fault_sync,
    .xFileSize = fault_size,
    .xLock = fault_lock,
    .xUnlock = fault_unlock,
    .xCheckReservedLock = fault_reserved,
    .xFileControl = fault_control,
    .xSectorSize = fault_sector,
    .xDeviceCharacteristics = fault_device,
    .xShmMap = fault_shm_map,
    .xShmLock = fault_shm_lock,
    .xShmBarrier = fault_shm_barrier,
    .xShmUnmap = fault_shm_unmap,
};

static int fault_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
    struct fault_file *ff = (struct fault_file *) f;
    int rc;

    (void) vfs;
    ff->base.pMethods = NULL;
    ff->real = sqlite3_malloc(fault_real->szOsFile);
    if (!ff->real)
        return SQLITE_NOMEM;
    memset(ff->real, 0, (size_t) fault_real->szOsFile);
    rc = fault_real->xOpen(fault_real, name, ff->real, flags, ret_flags);
    if (rc != SQLITE_OK) {
        sqlite3_free(ff->real);
        return rc;
    }
    ff->base.pMethods = &fault_methods;
    return SQLITE_OK;
}

/* Call once, before anything is opened. */
static void fault_install(void)
{
    static sqlite3_vfs vfs;

    fault_real = sqlite3_vfs_find(NULL);
    vfs = *fault_real;
    vfs.zName = "fault";
    vfs.szOsFile = sizeof(struct fault_file);
    vfs.xOpen = fault_open;
    cr_assert_eq(sqlite3_vfs_register(&vfs, 1), SQLITE_OK);
}

#endif
