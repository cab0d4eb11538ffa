/* SPDX-License-Identifier: Apache-2.0 */
/* A token that was checked is remembered by its hash until it expires or anything changed that the answer hung on, because
 * a tool sends the same one with every call and a signature costs more than the rest of a small call. */

#include "controlplane/auth/auth.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/buf.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/hash.h"
#include "common/log.h"
#include "controlplane/auth/keys.h"

#define CACHE_MAX      4096
#define NAMES_MAX      (2 + JWT_MAX_GROUPS)
#define CHECK_MS       10000
#define RETRY_AFTER_MS 1000
#define MAX_CERT_NAME  64
#define MAX_ISSUERS    16 /* bindings.c */

struct issuer {
    const struct bindings_issuer *is; /* in auth->bindings */
    struct keys *keys;
};

struct cached {
    uint8_t sha256[ADV_SHA256_LEN];
    struct identity *id;
    UT_hash_handle hh;
};

struct auth {
    uv_loop_t *loop;
    uv_timer_t check;
    char *path; /* NULL: none */
    struct stat stat;
    struct bindings *bindings;
    struct issuer issuers[MAX_ISSUERS];
    size_t n_issuers;
    struct cached *cache; /* in order of arrival */
    uint64_t generation;
    unsigned refs; /* one for the owner, one for each identity */
    bool handle_open;
};

struct identity {
    struct auth *auth;
    unsigned refs;
    char **names; /* names[0] is the principal */
    size_t n_names;
    char *user;
    char *issuer; /* of a token: its "iss" */
    struct role_rights limit;
    int64_t expires_s;
    struct grants *grants;
    uint64_t rights;     /* digest of grants */
    uint64_t generation; /* of auth, when grants were looked up */
};

/* ---- identities --------------------------------------------------------------------------------------------------- */

static void auth_unref(struct auth *a)
{
    if (--a->refs > 0 || a->handle_open)
        return;
    (void) bindings_unref(a->bindings);
    free(a->path);
    free(a);
}

struct identity *identity_ref(struct identity *id)
{
    id->refs++;
    return id;
}

struct identity *identity_unref(struct identity *id)
{
    struct auth *a;

    if (!id || --id->refs > 0)
        return NULL;
    a = id->auth;
    for (size_t i = 0; i < id->n_names; i++)
        free(id->names[i]);
    free(id->names);
    free(id->user);
    free(id->issuer);
    (void) grants_free(id->grants);
    free(id);
    auth_unref(a);
    return NULL;
}

static struct identity *identity_new(struct auth *a, size_t max_names)
{
    struct identity *id = calloc(1, sizeof(*id));

    if (!id)
        return NULL;
    id->refs = 1;
    id->auth = a;
    a->refs++;
    id->names = calloc(max_names, sizeof(*id->names));
    return id->names ? id : identity_unref(id);
}

static bool add_name(struct identity *id, const char *kind, const char *alias, const char *name)
{
    char *text;

    if (asprintf(&text, "%s%s%s%s", kind, alias, *alias ? ":" : "", name) < 0)
        return false;
    id->names[id->n_names++] = text;
    return true;
}

const char *identity_principal(const struct identity *id)
{
    return id->names[0];
}

const char *identity_user(const struct identity *id)
{
    return id->user ? id->user : "";
}

int64_t identity_expires_s(const struct identity *id)
{
    return id->expires_s;
}

/* A token's issuer may be gone from the file, or stand for another one under the same alias. */
static bool issuer_stands(const struct identity *id)
{
    const struct auth *a = id->auth;

    for (size_t i = 0; i < a->n_issuers; i++)
        if (adv_streq(a->issuers[i].is->issuer, id->issuer) && adv_startswith(id->names[0] + strlen("jwt:"), a->issuers[i].is->alias) &&
            id->names[0][strlen("jwt:") + strlen(a->issuers[i].is->alias)] == ':')
            return true;
    return false;
}

static bool resolve(struct identity *id)
{
    struct role_rights limit = id->limit;
    /* an agent's rights are its cluster's and no matter of bindings */
    size_t n_names = role_rights_include(limit, ROLE_AGENT) ? 0 : id->n_names;
    struct grants *g;

    if (id->issuer && !issuer_stands(id))
        limit = (struct role_rights) { 0 };
    g = bindings_resolve(id->auth->bindings, (const char *const *) id->names, n_names, limit, id->issuer != NULL);
    if (!g)
        return false;
    (void) grants_free(id->grants);
    id->grants = g;
    id->rights = grants_digest(g);
    id->generation = id->auth->generation;
    return true;
}

const struct grants *identity_grants(struct identity *id)
{
    if (id->generation == id->auth->generation || resolve(id))
        return id->grants;
    return grants_nothing(); /* without memory nobody may do anything */
}

uint64_t identity_rights(struct identity *id)
{
    return identity_grants(id) == grants_nothing() ? 0 : id->rights;
}

/* ---- certificates ------------------------------------------------------------------------------------------------- */

bool auth_name_parse(const char *uri, struct auth_name *ret)
{
    const char *rest = uri + strlen("advisor:"), *colon;
    char word[16];

    if (!adv_startswith(uri, "advisor:") || !(colon = strchr(rest, ':')) || (size_t) (colon - rest) >= sizeof(word))
        return false;
    (void) snprintf(word, sizeof(word), "%.*s", (int) (colon - rest), rest);
    if (!role_from_name(word, &ret->role) || !colon[1] || strlen(colon + 1) > MAX_CERT_NAME)
        return false;
    for (const char *p = colon + 1; *p; p++)
        if ((unsigned char) *p < 0x20 || *p == 0x7f)
            return false;
    ret->principal = rest;
    ret->name = colon + 1;
    return true;
}

struct identity *auth_by_certificate(struct auth *a, const struct auth_name *name, int64_t expires_s)
{
    ADV_AUTO(identity) id = identity_new(a, 1);

    if (!id || !add_name(id, "", "", name->principal))
        return NULL;
    id->expires_s = expires_s;
    id->limit = role_rights(name->role);
    if (name->role == ROLE_USER && !(id->user = strdup(name->name)))
        return NULL;
    return resolve(id) ? ADV_STEAL(id) : NULL;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------- */

static void cache_drop(struct auth *a, struct cached *c)
{
    HASH_DEL(a->cache, c);
    (void) identity_unref(c->id);
    free(c);
}

static void cache_clear(struct auth *a)
{
    while (a->cache)
        cache_drop(a, a->cache);
}

static void cache_put(struct auth *a, const uint8_t sha256[ADV_SHA256_LEN], struct identity *id)
{
    struct cached *c = malloc(sizeof(*c));

    if (!c)
        return;
    if (HASH_COUNT(a->cache) >= CACHE_MAX)
        cache_drop(a, a->cache);
    memcpy(c->sha256, sha256, ADV_SHA256_LEN);
    c->id = identity_ref(id);
    HASH_ADD(hh, a->cache, sha256, ADV_SHA256_LEN, c);
}

static struct identity *token_identity(struct auth *a, const struct jwt *t, const struct bindings_issuer *is)
{
    ADV_AUTO(identity) id = identity_new(a, NAMES_MAX);
    const char *email = jwt_claim_text(t, "email"), *user = jwt_claim_text(t, is->user_claim), *group;

    if (!id || !add_name(id, "jwt:", is->alias, jwt_claim_text(t, "sub")))
        return NULL;
    /* an address that nobody has verified is what the user typed in */
    if (*email && jwt_claim_true(t, "email_verified") && !add_name(id, "jwt-email:", is->alias, email))
        return NULL;
    for (size_t i = 0; i < JWT_MAX_GROUPS && (group = jwt_claim_item(t, is->groups_claim, i)); i++)
        if (*group && !add_name(id, "jwt-group:", is->alias, group))
            return NULL;
    if (!(id->issuer = strdup(is->issuer)) || (*user && !(id->user = strdup(user))))
        return NULL;
    id->expires_s = jwt_expiry_s(t) + is->skew_s;
    id->limit = role_rights(ROLE_ADMIN);
    return resolve(id) ? ADV_STEAL(id) : NULL;
}

static struct issuer *find_issuer(struct auth *a, const char *iss)
{
    for (size_t i = 0; i < a->n_issuers; i++)
        if (adv_streq(a->issuers[i].is->issuer, iss))
            return &a->issuers[i];
    return NULL;
}

static int keys_pending(const struct bindings_issuer *is, struct adv_err *err)
{
    (void) adv_err_set_reason(err, ADV_UNAVAILABLE, "TOKEN_KEYS_UNAVAILABLE", "token: the keys of issuer %s are being read",
                              is->alias);
    if (err)
        err->retry_after_ms = RETRY_AFTER_MS;
    return -ADV_UNAVAILABLE;
}

static int check_token(struct auth *a, const char *token, size_t len, int64_t now_s, struct identity **ret,
                       struct adv_err *err)
{
    ADV_AUTO(jwt) t = NULL;
    struct issuer *is;
    const struct jwks *keys;
    struct adv_err why = { 0 };
    int r;

    if ((r = jwt_open(token, len, &t, err)) < 0)
        return r;
    is = find_issuer(a, jwt_unverified_issuer(t));
    if (!is)
        return adv_err_set_reason(err, ADV_UNAUTHENTICATED, "TOKEN_ISSUER", "token: \"iss\" is no issuer known here");
    keys = keys_get(is->keys);
    if (!keys) {
        (void) keys_want(is->keys);
        return keys_pending(is->is, err);
    }
    const struct jwt_rules rules = { .issuer = is->is->issuer,
                                     .audiences = (const char *const *) is->is->audiences,
                                     .n_audiences = is->is->n_audiences,
                                     .algs = is->is->algs,
                                     .skew_s = is->is->skew_s };
    r = jwt_check(t, keys, &rules, now_s, &why);
    if (r < 0 && adv_streq(why.reason, "TOKEN_KEY_UNKNOWN") && keys_want(is->keys))
        return keys_pending(is->is, err); /* the issuer may have rotated its keys */
    if (r < 0) {
        if (err)
            *err = why;
        return r;
    }
    *ret = token_identity(a, t, is->is);
    return *ret ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
}

static const char scheme[] = "Bearer ";

static struct cached *find_cached(struct auth *a, const char *value, size_t len, uint8_t ret_sha256[ADV_SHA256_LEN])
{
    struct cached *c = NULL;

    if (len < strlen(scheme) || strncasecmp(value, scheme, strlen(scheme)) != 0 ||
        adv_sha256(value + strlen(scheme), len - strlen(scheme), ret_sha256, NULL) < 0)
        return NULL;
    HASH_FIND(hh, a->cache, ret_sha256, ADV_SHA256_LEN, c);
    return c;
}

struct identity *auth_by_header_again(struct auth *a, const char *value, size_t len, int64_t now_s)
{
    uint8_t sha256[ADV_SHA256_LEN];
    struct cached *c = find_cached(a, value, len, sha256);

    return c && now_s < c->id->expires_s ? identity_ref(c->id) : NULL;
}

int auth_by_header(struct auth *a, const char *value, size_t len, int64_t now_s, struct identity **ret,
                   struct adv_err *err)
{
    uint8_t sha256[ADV_SHA256_LEN] = { 0 };
    struct cached *c = find_cached(a, value, len, sha256);
    int r;

    if (len < strlen(scheme) || strncasecmp(value, scheme, strlen(scheme)) != 0)
        return adv_err_set_reason(err, ADV_UNAUTHENTICATED, "AUTHORIZATION_MALFORMED",
                                  "authorization: expected \"Bearer <token>\"");
    if (c)
        cache_drop(a, c); /* the check says whether it is still good */
    r = check_token(a, value + strlen(scheme), len - strlen(scheme), now_s, ret, err);
    if (r == 0 && !find_cached(a, value, len, sha256))
        cache_put(a, sha256, *ret);
    return r;
}

/* ---- the file ------------------------------------------------------------------------------------------------------ */

static int slurp(const char *path, struct stat *st, struct adv_buf *b, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r;

    if (fd < 0 || fstat(fd, st) < 0)
        return adv_err_set_errno(err, errno == EACCES ? ADV_PERMISSION_DENIED : ADV_NOT_FOUND, errno, "%.180s", path);
    r = adv_buf_read(b, fd);
    if (r == -ADV_RESOURCE_EXHAUSTED)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%.180s: expected at most %d bytes", path, BINDINGS_MAX_BYTES);
    return r < 0 ? adv_err_set_errno(err, ADV_NOT_FOUND, errno, "%.180s", path) : 0;
}

static void keys_changed(void *arg)
{
    struct auth *a = arg;

    /* what the keys that are gone have signed is to be checked again; calls under way go on until their tokens expire */
    cache_clear(a);
}

static void drop_issuers(struct issuer *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i].keys = keys_free(v[i].keys);
}

/* Keys of sources that stay the same are taken over from the present issuers. */
static int make_issuers(struct auth *a, const struct bindings *b, struct issuer *ret, size_t *ret_n, struct adv_err *err)
{
    size_t n;
    const struct bindings_issuer *is = bindings_issuers(b, &n);

    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        struct keys *k = NULL;

        for (size_t j = 0; !k && j < a->n_issuers; j++)
            if (a->issuers[j].keys && keys_same(a->issuers[j].keys, &is[i]))
                k = ADV_STEAL(a->issuers[j].keys);
        if (!k && !(k = keys_new(a->loop, &is[i], keys_changed, a)))
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        ret[(*ret_n)++] = (struct issuer) { &is[i], k };
    }
    return 0;
}

static int install(struct auth *a, struct bindings *b, struct adv_err *err)
{
    struct issuer next[MAX_ISSUERS] = { 0 };
    size_t n = 0;
    int r = make_issuers(a, b, next, &n, err);

    drop_issuers(a->issuers, a->n_issuers);
    memcpy(a->issuers, next, sizeof(next));
    a->n_issuers = n;
    (void) bindings_unref(a->bindings);
    a->bindings = b;
    a->generation++;
    cache_clear(a);
    return r;
}

int auth_reload(struct auth *a, const char *path, struct adv_err *err)
{
    ADV_AUTO(bindings) b = NULL;
    ADV_AUTO_DONE(adv_buf) text;
    struct stat st = { 0 };
    int r;

    adv_buf_init(&text, BINDINGS_MAX_BYTES);
    if (path && !adv_streq(path, a->path)) {
        char *copy = *path ? strdup(path) : NULL;

        if (*path && !copy)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        free(a->path);
        a->path = copy;
    }
    if (!a->path)
        return (b = bindings_empty()) ? install(a, ADV_STEAL(b), err) : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if ((r = slurp(a->path, &st, &text, err)) < 0)
        return r;
    a->stat = st; /* also of a bad file: said once */
    if ((r = bindings_parse(a->path, text.data, text.len, &b, err)) < 0)
        return r;
    return install(a, ADV_STEAL(b), err);
}

static bool changed(const struct auth *a)
{
    const struct stat *x = &a->stat;
    struct stat y;

    return stat(a->path, &y) == 0 &&
           (x->st_ino != y.st_ino || x->st_size != y.st_size || x->st_mtim.tv_sec != y.st_mtim.tv_sec ||
            x->st_mtim.tv_nsec != y.st_mtim.tv_nsec);
}

static void on_check(uv_timer_t *t)
{
    struct auth *a = t->data;
    struct adv_err err = { 0 };

    if (!a->path || !changed(a))
        return;
    if (auth_reload(a, NULL, &err) < 0)
        adv_error("auth", "bindings not reloaded, the old ones stay", ADV_FS("why", err.msg));
    else
        adv_info("auth", "bindings reloaded", ADV_FS("path", a->path));
}

uint64_t auth_generation(const struct auth *a)
{
    return a->generation;
}

bool auth_takes_tokens(const struct auth *a)
{
    return a->n_issuers > 0;
}

/* ---- life ----------------------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h)
{
    struct auth *a = h->data;

    a->handle_open = false;
    auth_unref(a);
}

struct auth *auth_free(struct auth *a)
{
    if (!a)
        return NULL;
    cache_clear(a);
    drop_issuers(a->issuers, a->n_issuers);
    a->n_issuers = 0;
    uv_close((uv_handle_t *) &a->check, on_closed);
    return NULL;
}

int auth_new(uv_loop_t *loop, const struct auth_config *cfg, struct auth **ret, struct adv_err *err)
{
    struct auth *a = calloc(1, sizeof(*a));
    int check_ms = cfg->check_ms ? cfg->check_ms : CHECK_MS;
    int r;

    if (!a)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    a->loop = loop;
    a->refs = 1;
    a->handle_open = true;
    (void) uv_timer_init(loop, &a->check);
    a->check.data = a;
    if ((r = auth_reload(a, cfg->bindings_path ? cfg->bindings_path : "", err)) < 0) {
        (void) auth_free(a);
        return r;
    }
    (void) uv_timer_start(&a->check, on_check, (uint64_t) check_ms, (uint64_t) check_ms);
    *ret = a;
    return 0;
}
