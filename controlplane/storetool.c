/* SPDX-License-Identifier: Apache-2.0 */
/* Each verb is a function; image.h and check.h do the work. */

#include "controlplane/storetool.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "controlplane/store/check.h"
#include "controlplane/store/dburl.h"

#define SHOWN_PROBLEMS 100

struct tool {
    struct store_config cfg; /* the configured store */
    const char *verb;
    const char *what; /* the argument that is no flag; NULL: none */
    const char *password_file, *tls_ca; /* of a target */
    bool force;
};

static const char usage[] =
    "usage: advisord [flags] store VERB [...]\n"
    "\n"
    "  info                 what the store is and holds\n"
    "  check [STORE]        reads all of it, or of another one (file or URL), and says what is wrong where\n"
    "  backup FILE          writes it, as it is at this moment, into a new file; it may be served meanwhile\n"
    "  restore FILE         puts a backup in its place, with a new term; nobody may serve it\n"
    "  copy URL             copies it from SQLite to mysql://..., with a new term, and seals this one; it may be served\n"
    "                       meanwhile, until it is sealed\n"
    "  promote              gives it a new term: after a failover, or when its files were put back by other means\n"
    "  seal TEXT, unseal    forbids serving it, allows it again (SQLite)\n"
    "\n"
    "  --force              restore, copy: although the source has problems\n"
    "  --password-file FILE, --tls-ca FILE     copy: of the target\n";

static int fail(const struct tool *t, const struct adv_err *err)
{
    (void) fprintf(stderr, "advisord: store %s: %s%s%s%s\n", t->verb, err->msg, err->reason ? " (" : "", err->reason ? err->reason : "",
                   err->reason ? ")" : "");
    return 1;
}

static void print_rows(const uint64_t rows[IMAGE_TABLES_])
{
    for (int i = 0; i < IMAGE_TABLES_; i++)
        printf("%-9s %" PRIu64 "\n", image_table_names[i], rows[i]);
}

static void print_info(const struct image_info *i)
{
    printf("store     %s\nengine    %s\nterm      %" PRIu64 "\nschema    %" PRIu64 "\nnewest    change %" PRIu64 "\n", i->uuid, i->engine,
           i->term, i->schema_version, i->last_seq);
    if (i->sealed[0])
        printf("sealed    %s\n", i->sealed);
}

static int do_info(struct tool *t)
{
    struct image *im = NULL;
    struct image_digest d;
    struct adv_err err = { 0 };
    int r = image_open(&t->cfg, &im, &err);

    if (r == 0)
        r = image_digest(im, &d, &err);
    if (r == 0) {
        print_info(image_info(im));
        print_rows(d.rows);
        printf("content   %s\n", d.hex);
    }
    (void) image_close(im);
    return r < 0 ? fail(t, &err) : 0;
}

/* ---- check ------------------------------------------------------------------------------------------------------ */

static void say_problem(void *arg, const char *text)
{
    uint64_t *said = arg;

    if (++*said <= SHOWN_PROBLEMS)
        printf("bad       %s\n", text);
    else if (*said == SHOWN_PROBLEMS + 1)
        printf("bad       and more\n");
}

static const struct check_ops say = { say_problem };

/* 0, 1 with problems printed, or negative. */
static int check(struct image *im, struct check_result *ret, struct adv_err *err)
{
    uint64_t said = 0;
    int r = store_check(im, &say, &said, ret, err);

    return r < 0 ? r : ret->problems > 0;
}

static int do_check(struct tool *t)
{
    struct check_result res;
    struct image *im = NULL;
    struct adv_err err = { 0 };
    int r;

    if (t->what)
        t->cfg.url = t->what;
    r = image_open(&t->cfg, &im, &err);
    if (r == 0) {
        print_info(image_info(im));
        r = check(im, &res, &err);
    }
    (void) image_close(im);
    if (r < 0)
        return fail(t, &err);
    print_rows(res.rows);
    printf("chains    %" PRIu64 " of audit events, details of %" PRIu64 " erased\n", res.chains, res.erased);
    if (r)
        printf("%" PRIu64 " problem%s\n", res.problems, res.problems == 1 ? "" : "s");
    else
        printf("ok\n");
    return r;
}

/* A source that has problems is not carried on. */
static int must_be_sound(const struct tool *t, struct image *im, struct adv_err *err)
{
    struct check_result res;
    int r = check(im, &res, err);

    if (r <= 0 || t->force)
        return r < 0 ? r : 0;
    return adv_err_set(err, ADV_DATA_LOSS, "it has %" PRIu64 " problems; --force takes it all the same", res.problems);
}

/* ---- backup, restore -------------------------------------------------------------------------------------------- */

static int do_backup(struct tool *t)
{
    struct store_config to = { .url = t->what };
    struct image *im = NULL, *made = NULL;
    struct image_digest d;
    struct adv_err err = { 0 };
    int r;

    if (dburl_is(t->cfg.url)) {
        if (access(t->what, F_OK) == 0)
            r = adv_err_set(&err, ADV_ALREADY_EXISTS, "%s: is there already", t->what);
        else if ((r = image_open(&t->cfg, &im, &err)) == 0)
            r = image_write(im, &to, image_info(im)->term, &err);
    } else {
        r = image_backup_sqlite(t->cfg.url, t->what, &err);
    }
    (void) image_close(im);
    if (r == 0 && (r = image_open(&to, &made, &err)) == 0 && (r = image_check_engine(made, &err)) == 0 &&
        (r = image_digest(made, &d, &err)) == 0) {
        print_info(image_info(made));
        print_rows(d.rows);
        printf("content   %s\n%s is written and on disk\n", d.hex, t->what);
    }
    (void) image_close(made);
    return r < 0 ? fail(t, &err) : 0;
}

static int do_restore(struct tool *t)
{
    struct store_config from = { .url = t->what };
    struct image *im = NULL;
    struct adv_err err = { 0 };
    uint64_t objects, there = 0, term;
    int r;

    if (dburl_is(t->what))
        r = adv_err_set(&err, ADV_INVALID_ARGUMENT, "expected a file that `store backup` wrote");
    else if ((r = image_open(&from, &im, &err)) == 0)
        r = must_be_sound(t, im, &err);
    if (r < 0) {
        (void) image_close(im);
        return fail(t, &err);
    }
    /* Above both, if what is there can still be read. Only of what is broken nothing need be known: else the old term, which
     * agents and tokens may have, could come again. */
    r = image_look(&t->cfg, &objects, &there, &err);
    if (r == -ADV_DATA_LOSS)
        there = 0;
    else if (r < 0) {
        (void) image_close(im);
        return fail(t, &err);
    }
    term = (there > image_info(im)->term ? there : image_info(im)->term) + 1;
    r = image_write(im, &t->cfg, term, &err);
    if (r == 0) {
        print_info(image_info(im));
        printf("restored with term %" PRIu64 "\n", term);
    }
    (void) image_close(im);
    return r < 0 ? fail(t, &err) : 0;
}

/* ---- copy ------------------------------------------------------------------------------------------------------- */

static int copy_sealed(struct tool *t, const struct store_config *to, uint64_t *ret_term, struct adv_err *err)
{
    struct image *im = NULL;
    int r = image_open(&t->cfg, &im, err);

    if (r == 0) {
        *ret_term = image_info(im)->term + 1;
        r = image_write(im, to, *ret_term, err);
    }
    (void) image_close(im);
    return r;
}

static int do_copy(struct tool *t)
{
    struct store_config to = t->cfg;
    struct image *im = NULL;
    struct adv_err err = { 0 }, undo = { 0 };
    char how[256], when[ADV_RFC3339_SIZE];
    uint64_t objects = 0, term = 0;
    int r = 0;

    to.url = t->what;
    to.password_file = t->password_file;
    to.tls_ca = t->tls_ca;
    if (!dburl_is(t->what) || dburl_is(t->cfg.url))
        r = adv_err_set(&err, ADV_INVALID_ARGUMENT, "expected a configured SQLite store and a mysql:// target");
    if (r == 0 && (r = image_look(&to, &objects, &term, &err)) == 0 && objects)
        r = adv_err_set(&err, ADV_FAILED_PRECONDITION, "%s: holds %" PRIu64 " objects; expected an empty database", t->what, objects);
    if (r == 0 && (r = image_open(&t->cfg, &im, &err)) == 0)
        r = must_be_sound(t, im, &err);
    (void) image_close(im);
    if (r < 0)
        return fail(t, &err);
    (void) snprintf(how, sizeof(how), "copied to %.150s at %s", t->what, adv_rfc3339_format(adv_wall_us(), when));
    if ((r = image_seal(&t->cfg, how, &err)) < 0)
        return fail(t, &err);
    printf("sealed    %s: nothing is written to it any more\n", t->cfg.url);
    (void) fflush(stdout);
    r = copy_sealed(t, &to, &term, &err);
    if (r == 0) {
        printf("copied with term %" PRIu64 "; now set store.url and start\n", term);
        return 0;
    }
    (void) fail(t, &err);
    if (adv_streq(err.reason, "STORE_OUTCOME_UNKNOWN")) {
        (void) fprintf(stderr, "advisord: %s stays sealed: look into the target (store check %s), then `store unseal` here if it"
                               " holds nothing\n", t->cfg.url, t->what);
    } else if (image_seal(&t->cfg, NULL, &undo) < 0) {
        (void) fail(t, &undo);
        (void) fprintf(stderr, "advisord: %s is still sealed: `store unseal` takes that back\n", t->cfg.url);
    } else {
        (void) fprintf(stderr, "advisord: %s is not sealed any more and may be served\n", t->cfg.url);
    }
    return 1;
}

/* ---- marks ------------------------------------------------------------------------------------------------------ */

static int do_promote(struct tool *t)
{
    struct adv_err err = { 0 };
    uint64_t term;

    if (image_promote(&t->cfg, 0, &term, &err) < 0)
        return fail(t, &err);
    printf("term      %" PRIu64 "\n", term);
    return 0;
}

static int do_seal(struct tool *t)
{
    struct adv_err err = { 0 };

    return image_seal(&t->cfg, t->what, &err) < 0 ? fail(t, &err) : 0;
}

static int do_unseal(struct tool *t)
{
    struct adv_err err = { 0 };

    return image_seal(&t->cfg, NULL, &err) < 0 ? fail(t, &err) : 0;
}

enum takes { NOTHING, MAYBE_ONE, ONE };

static const struct {
    const char *name;
    int (*run)(struct tool *t);
    enum takes takes;
} verbs[] = {
    { "info", do_info, NOTHING },       { "check", do_check, MAYBE_ONE }, { "backup", do_backup, ONE },
    { "restore", do_restore, ONE },     { "copy", do_copy, ONE },         { "promote", do_promote, NOTHING },
    { "seal", do_seal, ONE },           { "unseal", do_unseal, NOTHING },
};

static int wrong(const char *what, const char *which)
{
    (void) fprintf(stderr, "advisord: store: %s%s%s\n\n%s", what, which ? " " : "", which ? which : "", usage);
    return 2;
}

int storetool_main(const struct advisord_config *c, int n_args, char *const *args)
{
    struct tool t = {
        .cfg = { .url = *c->store_url ? c->store_url : c->store_path,
                 .password_file = c->store_password_file,
                 .tls_ca = c->store_tls_ca,
                 .replica = "tool",
                 .owner_lease_us = c->store_owner_lease_ms * 1000,
                 .timeout_us = c->store_timeout_ms * 1000,
                 .accept_lossy = c->store_accept_lossy },
    };

    if (n_args && (adv_streq(args[0], "help") || adv_streq(args[0], "--help"))) {
        printf("%s", usage);
        return 0;
    }
    t.verb = n_args ? args[0] : NULL;
    for (int i = 1; i < n_args; i++) {
        const char *a = args[i];
        if (adv_streq(a, "--force"))
            t.force = true;
        else if (adv_streq(a, "--password-file") && i + 1 < n_args)
            t.password_file = args[++i];
        else if (adv_streq(a, "--tls-ca") && i + 1 < n_args)
            t.tls_ca = args[++i];
        else if (a[0] == '-' || t.what)
            return wrong("unexpected", a);
        else
            t.what = a;
    }
    for (size_t i = 0; t.verb && i < ADV_ARRAY_LEN(verbs); i++) {
        if (!adv_streq(verbs[i].name, t.verb))
            continue;
        if (verbs[i].takes == ONE ? !t.what : verbs[i].takes == NOTHING && t.what)
            return wrong(t.what ? "unexpected" : "something is missing after", t.what ? t.what : t.verb);
        return verbs[i].run(&t);
    }
    return wrong(t.verb ? "unknown verb" : "a verb is missing", t.verb);
}
