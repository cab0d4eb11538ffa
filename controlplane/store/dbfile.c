/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/store/dbfile.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file system refused, and errno says why. */
static int file_error(struct adv_err *err, const char *what, const char *path, const char *more)
{
    int r = adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_FILE", "store: %s%s%s: %s", what, path, more, strerror(errno));

    if (err)
        err->sys_errno = errno;
    return r;
}

/* The file that @name leads to in the end, or would, if there is none yet. */
static int resolve(const char *name, char **ret, struct adv_err *err)
{
    adv_auto_free char *copy = NULL, *dir = NULL;
    char *real = realpath(name, NULL);
    const char *slash;
    struct stat sb;

    if (real) {
        *ret = real;
        return 0;
    }
    if (errno != ENOENT)
        return file_error(err, "", name, "");
    if (lstat(name, &sb) == 0)
        return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_FILE", "store %s: the link leads nowhere", name);
    if (!(copy = strdup(name)) || !(dir = realpath(dirname(copy), NULL)))
        return file_error(err, "the folder of ", name, "");
    slash = strrchr(name, '/');
    if (asprintf(&real, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, slash ? slash + 1 : name) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    *ret = real;
    return 0;
}

static int lock_file(const char *name, int fd, const char *path, struct adv_err *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno != EWOULDBLOCK)
        return file_error(err, "locking ", name, "");
    return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_LOCKED",
                              "store %s: another advisord has it open (lock %s)", path, name);
}

static int take(struct dbfile *f, bool create, struct adv_err *err)
{
    adv_auto_free char *lock = NULL;
    struct stat sb, named;
    int r;

    if (asprintf(&lock, "%s.lock", f->path) < 0) {
        lock = NULL;
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    }
    f->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (f->lock_fd < 0 || fstat(f->lock_fd, &sb) < 0)
        return file_error(err, "lock file ", lock, "");
    if ((r = lock_file(lock, f->lock_fd, f->path, err)) < 0)
        return r;
    if (stat(lock, &named) < 0 || named.st_dev != sb.st_dev || named.st_ino != sb.st_ino)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_LOCKED",
                                  "store %s: somebody removed its lock %s meanwhile; try again", f->path, lock);
    f->fd = open(f->path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    if (f->fd < 0 && errno == ENOENT && !create)
        return 0;
    if (f->fd < 0 || fstat(f->fd, &sb) < 0)
        return file_error(err, "", f->path, "");
    if (!S_ISREG(sb.st_mode))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_FOREIGN", "store %s: not a file", f->path);
    if ((r = lock_file(f->path, f->fd, f->path, err)) < 0)
        return r;
    /* its log lies beside one of them, and by another it would not be found */
    if (sb.st_nlink != 1)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_LINKED",
                                  "store %s: the file has %lu names (hard links), expected one", f->path,
                                  (unsigned long) sb.st_nlink);
    f->dev = sb.st_dev;
    f->ino = sb.st_ino;
    f->is_new = sb.st_size == 0;
    return 0;
}

int dbfile_take(const char *name, bool create, struct dbfile *f, struct adv_err *err)
{
    int r;

    *f = (struct dbfile) { .fd = -1, .lock_fd = -1 };
    if ((r = resolve(name, &f->path, err)) < 0)
        return r;
    if (!(f->name = strdup(name)))
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    if (r < 0 || (r = take(f, create, err)) < 0)
        dbfile_done(f);
    return r;
}

/* Zeros for what is not there; negative when the file system does not say. */
static int look(const char *name, struct stat *sb)
{
    if (stat(name, sb) == 0)
        return 0;
    memset(sb, 0, sizeof(*sb));
    return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
}

static int look_for_wal(const struct dbfile *f, struct stat *sb)
{
    char wal[PATH_MAX + 8];

    (void) snprintf(wal, sizeof(wal), "%s-wal", f->path);
    return look(wal, sb);
}

int dbfile_settle(struct dbfile *f, struct adv_err *err)
{
    struct stat sb;

    if (look_for_wal(f, &sb) < 0 || !sb.st_ino)
        return file_error(err, "its log ", f->path, "-wal");
    f->wal_ino = sb.st_ino;
    if (fstat(f->fd, &sb) < 0)
        return file_error(err, "", f->path, "");
    atomic_store(&f->size, sb.st_size);
    return 0;
}

int dbfile_check(struct dbfile *f, struct adv_err *err)
{
    int64_t size = atomic_load(&f->size); /* before looking: another check may see it grow */
    struct stat sb, path, wal;
    const char *what = NULL;

    if (look(f->name, &sb) < 0 || look_for_wal(f, &wal) < 0)
        return file_error(err, "looking whether it is still there: ", f->path, "");
    if (sb.st_dev != f->dev || sb.st_ino != f->ino)
        what = look(f->path, &path) == 0 && path.st_dev == f->dev && path.st_ino == f->ino ? "the link to it" :
                                                                                             "the file";
    else if (sb.st_size < size)
        what = "a part of the file";
    else if (wal.st_ino != f->wal_ino)
        what = "its log (-wal)";
    if (!what) {
        atomic_store(&f->size, sb.st_size);
        return 0;
    }
    return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_REPLACED",
                              "store %s: %s was removed or replaced while it was served; stop, put the store back,"
                              " start", f->path, what);
}

bool dbfile_has_other_log(const struct dbfile *f)
{
    struct stat sb, wal;

    return look(f->path, &sb) == 0 && sb.st_dev == f->dev && sb.st_ino == f->ino && look_for_wal(f, &wal) == 0 &&
           wal.st_ino != f->wal_ino && wal.st_size > 0;
}

void dbfile_done(struct dbfile *f)
{
    if (!f->path)
        return;
    if (f->fd >= 0)
        (void) close(f->fd);
    if (f->lock_fd >= 0)
        (void) close(f->lock_fd);
    free(f->name);
    free(f->path);
    *f = (struct dbfile) { .fd = -1, .lock_fd = -1 };
}
