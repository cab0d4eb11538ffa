/* SPDX-License-Identifier: Apache-2.0 */

/* The file is read with the table-driven configuration reader, so unknown keys and bad values are
 * errors with file and line; an error means off. Ownership is checked on the opened file's path
 * again after reading, so that an exchange in between is seen as a change at the next look. */

#include "advisor-agent/ceiling.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/config.h"

struct values {
    int mode, watchdog;
    struct adv_config_list verbs, partitions, accounts;
    int64_t actions_per_hour;
    bool preserve_in_approve;
};

static const char *const modes[] = { "off", "observe", "approve", "act", NULL };
static const char *const watchdog_words[] = { "off", "observe", "act", NULL };

static const struct adv_config_row rows[] = {
    ADV_CONFIG_ENUM(struct values, mode, "mode", modes, "off", NOW, "Highest mode at this cluster."),
    ADV_CONFIG_LIST(struct values, verbs, "verbs", "", NOW, "Verbs allowed; empty: all."),
    ADV_CONFIG_LIST(struct values, partitions, "partitions", "", NOW,
                    "Partitions whose jobs may be acted on; empty: all."),
    ADV_CONFIG_LIST(struct values, accounts, "accounts", "", NOW,
                    "Accounts whose jobs may be acted on; empty: all."),
    ADV_CONFIG_INT(struct values, actions_per_hour, "actions_per_hour", "steps", 0, 1000000, "0", NOW,
                   "Steps in any hour; 0: no limit of its own."),
    ADV_CONFIG_BOOL(struct values, preserve_in_approve, "preserve_in_approve", "false", NOW,
                    "Ended jobs may be held while approval is awaited."),
    ADV_CONFIG_ENUM(struct values, watchdog, "watchdog", watchdog_words, "act", NOW,
                    "Whether advisor-watchdog gives held jobs back, only says so, or stays out of it."),
};

static const char *const verb_names[] = { "preserve", "interrupt",     "make_requeueable", "constrain",
                                          "release",  "cancel",        "protect_child",    "rearm_child" };

static int check(const void *values, struct adv_err *err)
{
    const struct values *v = values;

    for (size_t i = 0; i < v->verbs.n; i++) {
        bool known = false;
        for (size_t k = 0; k < ADV_ARRAY_LEN(verb_names); k++)
            known = known || strcmp(v->verbs.items[i], verb_names[k]) == 0;
        if (!known) {
            (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "verb '%.40s' is not known",
                               v->verbs.items[i]);
            return adv_err_field(err, "verbs");
        }
    }
    return 0;
}

static const struct adv_config_table table = {
    .program = "ceiling",
    .about = "The site's limit.",
    /* No environment may lift the ceiling: a name cannot hold this. */
    .env_prefix = "=",
    .rows = rows,
    .n_rows = ADV_ARRAY_LEN(rows),
    .struct_size = sizeof(struct values),
    .check = check,
};

struct ceiling {
    char *path;
    uid_t admin;
    struct adv_config *cfg; /* NULL: off, for the reason below */
    char reason[200];
    struct stat seen;
    bool looked;
    uint64_t version;
};

int ceiling_owner_uid(const char *name, uid_t *ret, struct adv_err *err)
{
    struct passwd pw, *found = NULL;
    char buf[4096];

    *ret = 0;
    if (!name[0])
        return 0;
    if (getpwnam_r(name, &pw, buf, sizeof(buf), &found) != 0 || !found)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "ceiling.owner: no user '%.60s'", name);
    if (pw.pw_uid != 0 && pw.pw_uid == geteuid())
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "ceiling.owner: the agent itself must not be able to write its ceiling");
    *ret = pw.pw_uid;
    return 0;
}

int ceiling_new(const char *path, uid_t admin_uid, struct ceiling **ret, struct adv_err *err)
{
    struct ceiling *c = calloc(1, sizeof(*c));

    if (!c || (path && !(c->path = strdup(path)))) {
        free(c);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the ceiling");
    }
    c->admin = admin_uid;
    (void) ceiling_refresh(c);
    *ret = c;
    return 0;
}

struct ceiling *ceiling_free(struct ceiling *c)
{
    if (!c)
        return NULL;
    (void) adv_config_free(c->cfg);
    free(c->path);
    free(c);
    return NULL;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mode == b->st_mode && a->st_uid == b->st_uid &&
           memcmp(&a->st_mtim, &b->st_mtim, sizeof(a->st_mtim)) == 0 &&
           memcmp(&a->st_ctim, &b->st_ctim, sizeof(a->st_ctim)) == 0;
}

static bool off(struct ceiling *c, const char *why, const char *more)
{
    char reason[sizeof(c->reason)];

    (void) snprintf(reason, sizeof(reason), "ceiling file %s%.150s", why, more);
    bool changed = c->cfg || strcmp(reason, c->reason) != 0;
    c->cfg = adv_config_free(c->cfg);
    memcpy(c->reason, reason, sizeof(reason));
    return changed;
}

bool ceiling_refresh(struct ceiling *c)
{
    struct adv_config *cfg = NULL;
    struct adv_err err;
    struct stat st;

    if (!c->path)
        return false;
    if (stat(c->path, &st) < 0) {
        c->looked = false;
        return off(c, "unreadable: ", strerror(errno));
    }
    if (c->looked && same(&st, &c->seen))
        return false;
    c->seen = st;
    c->looked = true;
    if (!S_ISREG(st.st_mode))
        return off(c, "is not a regular file", "");
    if (st.st_uid != 0 && st.st_uid != c->admin)
        return off(c, "does not belong to root or the agent's administrator", "");
    /* A group that may write it is the administrators' own business only if it is root's. */
    if (st.st_mode & S_IWOTH || (st.st_mode & S_IWGRP && st.st_gid != 0))
        return off(c, "is writable by others", "");
    if (adv_config_load(&table, c->path, 0, NULL, &cfg, &err) < 0)
        return off(c, "malformed: ", err.msg);
    (void) adv_config_free(c->cfg);
    c->cfg = cfg;
    c->reason[0] = '\0';
    return true;
}

static const struct values *values_of(const struct ceiling *c)
{
    return c->cfg ? adv_config_values(c->cfg) : NULL;
}

bool ceiling_known(const struct ceiling *c)
{
    return !c->path || c->cfg;
}

enum ceiling_mode ceiling_mode(const struct ceiling *c)
{
    const struct values *v = values_of(c);

    if (!c->path)
        return CEILING_ACT;
    return v ? (enum ceiling_mode) v->mode : CEILING_OFF;
}

const char *ceiling_mode_name(enum ceiling_mode mode)
{
    return modes[mode];
}

enum ceiling_watchdog ceiling_watchdog(const struct ceiling *c)
{
    const struct values *v = values_of(c);

    if (!c->path)
        return CEILING_WATCHDOG_ACT;
    return v ? (enum ceiling_watchdog) v->watchdog : CEILING_WATCHDOG_OFF;
}

const char *ceiling_reason(const struct ceiling *c)
{
    return c->reason;
}

size_t ceiling_verbs(const struct ceiling *c, const char *const **ret_verbs)
{
    const struct values *v = values_of(c);

    *ret_verbs = v ? (const char *const *) v->verbs.items : NULL;
    return v ? v->verbs.n : 0;
}

static bool listed(const struct adv_config_list *l, const char *word)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i], word) == 0)
            return true;
    return l->n == 0;
}

bool ceiling_lists(const struct ceiling *c, const char *verb)
{
    const struct values *v = values_of(c);

    return !c->path || (v && listed(&v->verbs, verb));
}

bool ceiling_preserves_in_approve(const struct ceiling *c)
{
    const struct values *v = values_of(c);

    return c->path && v && v->preserve_in_approve;
}

int ceiling_check(const struct ceiling *c, const char *verb, const char *partition,
                  const char *account, unsigned done_last_hour, enum ceiling_ground ground, struct adv_err *err)
{
    const struct values *v = values_of(c);
    int least = ground == CEILING_BY_APPROVAL ? CEILING_APPROVE : CEILING_ACT;

    if (!c->path)
        return ground == CEILING_UNAPPROVED ? adv_err_set(err, ADV_PERMISSION_DENIED, "not approved") : 0;
    if (!v)
        return adv_err_set(err, ADV_UNAVAILABLE, "%s", c->reason);
    if (ground == CEILING_UNAPPROVED) {
        if (!v->preserve_in_approve || strcmp(verb, "preserve") != 0 || v->mode < CEILING_APPROVE)
            return adv_err_set(err, ADV_PERMISSION_DENIED, "not approved");
    } else if (v->mode < least) {
        return adv_err_set(err, ADV_FAILED_PRECONDITION, "the site's ceiling is %s", modes[v->mode]);
    }
    if (!listed(&v->verbs, verb))
        return adv_err_set(err, ADV_PERMISSION_DENIED, "the site's ceiling does not allow %s", verb);
    if (!listed(&v->partitions, partition))
        return adv_err_set(err, ADV_PERMISSION_DENIED,
                           "the site's ceiling does not allow partition '%.60s'", partition);
    if (!listed(&v->accounts, account))
        return adv_err_set(err, ADV_PERMISSION_DENIED,
                           "the site's ceiling does not allow account '%.60s'", account);
    if (v->actions_per_hour && done_last_hour >= v->actions_per_hour)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%u steps in the last hour, the site allows %lld",
                           done_last_hour, (long long) v->actions_per_hour);
    return 0;
}
