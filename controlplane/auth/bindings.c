/* SPDX-License-Identifier: Apache-2.0 */
/* The file is read as YAML events against two tables of keys, so each error has its line; anchors and aliases are refused,
 * as in the configuration: a file about rights should read the same to a person and to us.
 *
 * A caller's grants point into the file they came from and hold it. */

#include "controlplane/auth/bindings.h"

#include "common/digest.h"
#include "common/num.h"
#include "common/utf8.h"
#include "common/yamlread.h"
#include "controlplane/auth/text.h"

#define MAX_ISSUERS  16
#define MAX_BINDINGS 4096
#define MAX_LIST     1024
#define MAX_TEXT     512

#define SKEW_MAX_MS   600000 /* more than that is no clock any more */
#define REFRESH_MIN   10000  /* an identity provider is asked no more often than that */
#define REFRESH_MAX   86400000

struct list {
    char **v;
    size_t n;
};

struct binding {
    struct list principals, clusters, accounts; /* empty: all */
    enum api_role role;
    bool has_role;
};

struct bindings {
    unsigned refs;
    struct bindings_issuer issuers[MAX_ISSUERS];
    size_t n_issuers;
    struct binding *bindings;
    size_t n_bindings;
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void list_done(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (struct list) { 0 };
}

static void issuer_done(struct bindings_issuer *is)
{
    struct list l = { is->audiences, is->n_audiences };

    list_done(&l);
    free(is->alias);
    free(is->issuer);
    free(is->keys);
    free(is->ca);
    free(is->user_claim);
    free(is->groups_claim);
}

struct bindings *bindings_empty(void)
{
    struct bindings *b = calloc(1, sizeof(*b));

    if (b)
        b->refs = 1;
    return b;
}

struct bindings *bindings_ref(struct bindings *b)
{
    b->refs++;
    return b;
}

struct bindings *bindings_unref(struct bindings *b)
{
    if (!b || --b->refs > 0)
        return NULL;
    for (size_t i = 0; i < b->n_issuers; i++)
        issuer_done(&b->issuers[i]);
    for (size_t i = 0; i < b->n_bindings; i++) {
        list_done(&b->bindings[i].principals);
        list_done(&b->bindings[i].clusters);
        list_done(&b->bindings[i].accounts);
    }
    free(b->bindings);
    free(b);
    return NULL;
}

const struct bindings_issuer *bindings_issuers(const struct bindings *b, size_t *ret_n)
{
    *ret_n = b->n_issuers;
    return b->issuers;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

struct reader {
    struct adv_yaml y;
    struct bindings *b;
};

#define at_mark(rd, m, ...)  adv_yaml_at(&(rd)->y, m, __VA_ARGS__)
#define at_event(rd, ...)    at_mark(rd, (rd)->y.ev.start_mark, __VA_ARGS__)
#define no_memory(rd)        adv_yaml_no_memory(&(rd)->y)
#define next(rd)             adv_yaml_next(&(rd)->y)
#define next_is(rd, t, what) adv_yaml_next_is(&(rd)->y, t, what)

/* The text of the present event: one line, not empty. */
static int text_of(struct reader *rd, const char **ret)
{
    const char *s = (const char *) rd->y.ev.data.scalar.value;
    size_t len = rd->y.ev.type == YAML_SCALAR_EVENT ? rd->y.ev.data.scalar.length : 0;

    if (rd->y.ev.type != YAML_SCALAR_EVENT)
        return at_event(rd, "expected a text");
    if (len == 0 || len > MAX_TEXT)
        return at_event(rd, "text of %zu bytes, expected 1 to %d", len, MAX_TEXT);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char) s[i] < 0x20 || s[i] == 0x7f)
            return at_event(rd, "control character in a text, expected none");
    *ret = s;
    return 0;
}

static int take_text(struct reader *rd, char **ret)
{
    const char *s = NULL;
    int r;

    if ((r = next(rd)) < 0 || (r = text_of(rd, &s)) < 0)
        return r;
    *ret = strdup(s);
    return *ret ? 0 : no_memory(rd);
}

/* @check, if not NULL, looks at each text while it is the present event, so that what it says names its place. */
static int take_list(struct reader *rd, int (*check)(struct reader *rd, const char *text), struct list *ret)
{
    int r = next_is(rd, YAML_SEQUENCE_START_EVENT, "a list of texts");

    while (r == 0 && (r = next(rd)) == 0 && rd->y.ev.type != YAML_SEQUENCE_END_EVENT) {
        const char *s = NULL;
        char **more;

        if ((r = text_of(rd, &s)) < 0)
            return r;
        if (ret->n == MAX_LIST)
            return at_event(rd, "expected at most %d of them", MAX_LIST);
        if (ret->n % 16 == 0) {
            if (!(more = realloc(ret->v, (ret->n + 16) * sizeof(*more))))
                return no_memory(rd);
            ret->v = more;
        }
        if (!(ret->v[ret->n] = strdup(s)))
            return no_memory(rd);
        ret->n++;
        if (check && (r = check(rd, s)) < 0)
            return r;
    }
    if (r == 0 && !ret->n)
        return at_event(rd, "empty list, expected at least one text");
    return r;
}

static int take_duration(struct reader *rd, int64_t min, int64_t max, int64_t *ret_ms)
{
    struct adv_err why = { 0 };
    const char *s = NULL;
    int r;

    if ((r = next(rd)) < 0 || (r = text_of(rd, &s)) < 0)
        return r;
    if (adv_parse_duration_ms(s, min, max, ret_ms, &why) < 0)
        return at_event(rd, "%.140s", why.msg);
    return 0;
}

/* ---- issuers ---------------------------------------------------------------------------------------------------- */

/* Short and without ':', as it stands inside of principals. */
static bool alias_ok(const char *s)
{
    return strlen(s) <= 16 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(s);
}

static int take_algs(struct reader *rd, unsigned *ret)
{
    struct list l = { 0 };
    int r = take_list(rd, NULL, &l);

    *ret = 0;
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        enum jwt_alg a = jwt_alg_from_name(l.v[i]);

        if (a == JWT_ALG_NONE)
            r = at_event(rd, "algorithm \"%.20s\", expected RS256, ES256, EdDSA, or RS, PS or ES with 384 or 512, or PS256",
                         l.v[i]);
        *ret |= JWT_ALG_BIT(a);
    }
    list_done(&l);
    return r;
}

enum issuer_key { I_ALIAS, I_ISSUER, I_AUDIENCE, I_KEYS, I_CA, I_ALGS, I_SKEW, I_REFRESH, I_USER, I_GROUPS, N_ISSUER_KEYS };
static const char *const issuer_keys[N_ISSUER_KEYS] = { "alias",      "issuer", "audience", "keys",       "ca",
                                                        "algorithms", "skew",   "refresh",  "user_claim", "groups_claim" };

static int issuer_value(struct reader *rd, struct bindings_issuer *is, int key)
{
    struct list l = { 0 };
    int64_t ms = 0;
    int r = 0;

    switch ((enum issuer_key) key) {
    case I_ALIAS:
        if ((r = take_text(rd, &is->alias)) == 0 && !alias_ok(is->alias))
            return at_event(rd, "alias \"%.40s\", expected at most 16 of a-z, 0-9 and '-'", is->alias);
        for (size_t i = 0; r == 0 && i + 1 < rd->b->n_issuers; i++)
            if (adv_streq(rd->b->issuers[i].alias, is->alias))
                return at_event(rd, "a second issuer \"%s\", expected another alias", is->alias);
        return r;
    case I_ISSUER:
        if ((r = take_text(rd, &is->issuer)) < 0)
            return r;
        for (size_t i = 0; i + 1 < rd->b->n_issuers; i++)
            if (adv_streq(rd->b->issuers[i].issuer, is->issuer))
                return at_event(rd, "a second entry for this issuer, expected one");
        return 0;
    case I_AUDIENCE:
        r = take_list(rd, NULL, &l);
        is->audiences = l.v;
        is->n_audiences = l.n;
        return r;
    case I_KEYS:
        if ((r = take_text(rd, &is->keys)) == 0 && is->keys[0] != '/' && !adv_startswith(is->keys, "https://"))
            return at_event(rd, "keys: expected https://… or the path of a file from /");
        return r;
    case I_CA:
        if ((r = take_text(rd, &is->ca)) == 0 && is->ca[0] != '/')
            return at_event(rd, "ca: expected the path of a file from /");
        return r;
    case I_ALGS:
        return take_algs(rd, &is->algs);
    case I_SKEW:
        r = take_duration(rd, 0, SKEW_MAX_MS, &ms);
        is->skew_s = ms / 1000;
        return r;
    case I_REFRESH:
        return take_duration(rd, REFRESH_MIN, REFRESH_MAX, &is->refresh_ms);
    case I_USER:
        return take_text(rd, &is->user_claim);
    case I_GROUPS:
        return take_text(rd, &is->groups_claim);
    case N_ISSUER_KEYS:
        break;
    }
    return r;
}

/* ---- bindings --------------------------------------------------------------------------------------------------- */

/* Names an issuer that exists, so that a misspelt alias is an error and not a binding for nobody. */
static int check_principal(struct reader *rd, const char *p)
{
    static const char *const kinds[] = { "jwt:", "jwt-group:", "jwt-email:" };
    enum api_role role;
    char word[16];
    size_t n = strcspn(p, ":");

    for (size_t i = 0; i < ADV_ARRAY_LEN(kinds); i++) {
        const char *alias = p + strlen(kinds[i]);
        size_t len;

        if (!adv_startswith(p, kinds[i]))
            continue;
        len = strcspn(alias, ":");
        for (size_t k = 0; k < rd->b->n_issuers; k++)
            if (strlen(rd->b->issuers[k].alias) == len && strncmp(rd->b->issuers[k].alias, alias, len) == 0 &&
                alias[len] == ':' && alias[len + 1])
                return 0;
        return at_event(rd, "principal \"%.60s\": expected %s<alias of an issuer above>:<name>", p, kinds[i]);
    }
    if (n < sizeof(word) && p[n] == ':' && p[n + 1]) {
        (void) strcpy(word, "");
        (void) strncat(word, p, n);
        if (adv_streq(word, "*") || (role_from_name(word, &role) && role != ROLE_AGENT))
            return 0;
    }
    return at_event(rd, "principal \"%.60s\": expected role:name of a certificate, or jwt:, jwt-group: or jwt-email:", p);
}

/* A glob that can be the name of no cluster binds nobody and nothing, and whoever wrote it meant something else: "!alpha",
 * "[a-c]*". */
static int check_cluster(struct reader *rd, const char *p)
{
    size_t ok = strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789-_*?"), least = 0;

    for (const char *c = p; *c; c++)
        least += *c != '*';
    if (p[ok])
        return at_event(rd, "cluster \"%.60s\" can match none: expected a-z, 0-9, '-', '_', and the wildcards * and ?", p);
    if (least > 64 || !strchr("abcdefghijklmnopqrstuvwxyz*?", *p))
        return at_event(rd, "cluster \"%.60s\" can match none: expected at most 64 characters, the first of a-z, * and ?", p);
    return 0;
}

/* Slurm puts these between accounts, or takes them for none; who writes them here means a glob of another kind. */
static int check_account(struct reader *rd, const char *p)
{
    if (strpbrk(p, "![]{}(),|\\ "))
        return at_event(rd, "account \"%.60s\" can match none: expected a name, and the wildcards * and ?", p);
    return 0;
}

enum binding_key { B_PRINCIPALS, B_ROLE, B_CLUSTERS, B_ACCOUNTS, N_BINDING_KEYS };
static const char *const binding_keys[N_BINDING_KEYS] = { "principals", "role", "clusters", "accounts" };

static int binding_value(struct reader *rd, struct binding *b, int key)
{
    const char *s = NULL;
    int r = 0;

    switch ((enum binding_key) key) {
    case B_PRINCIPALS:
        return take_list(rd, check_principal, &b->principals);
    case B_ROLE:
        if ((r = next(rd)) < 0 || (r = text_of(rd, &s)) < 0)
            return r;
        if (!role_from_name(s, &b->role) || b->role == ROLE_AGENT)
            return at_event(rd, "role \"%.20s\", expected reader, detector, user, operator or admin", s);
        b->has_role = true;
        return 0;
    case B_CLUSTERS:
        return take_list(rd, check_cluster, &b->clusters);
    case B_ACCOUNTS:
        return take_list(rd, check_account, &b->accounts);
    case N_BINDING_KEYS:
        break;
    }
    return r;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

/* The next key of the present mapping, or -1 at its end, in @ret. */
static int take_key(struct reader *rd, const char *const *keys, size_t n_keys, unsigned *seen, int *ret)
{
    const char *s = NULL;
    int r = next(rd);

    *ret = -1;
    if (r < 0 || rd->y.ev.type == YAML_MAPPING_END_EVENT)
        return r;
    if ((r = text_of(rd, &s)) < 0)
        return r;
    for (size_t i = 0; i < n_keys; i++) {
        if (!adv_streq(s, keys[i]))
            continue;
        if (*seen & 1u << i)
            return at_event(rd, "\"%s\" stands here twice, expected it once", keys[i]);
        *seen |= 1u << i;
        *ret = (int) i;
        return 0;
    }
    return at_event(rd, "key \"%.40s\" is not known here", s);
}

static int missing(struct reader *rd, yaml_mark_t mark, const char *const *keys, unsigned needed, unsigned seen)
{
    for (unsigned i = 0; needed >> i; i++)
        if (needed >> i & 1 && !(seen >> i & 1))
            return at_mark(rd, mark, "\"%s\" is missing here", keys[i]);
    return 0;
}

static int take_issuer(void *arg)
{
    struct reader *rd = arg;
    const unsigned needed = 1u << I_ALIAS | 1u << I_ISSUER | 1u << I_AUDIENCE | 1u << I_KEYS;
    yaml_mark_t mark = rd->y.ev.start_mark;
    struct bindings_issuer *is;
    unsigned seen = 0;
    int key, r;

    if (rd->b->n_issuers == MAX_ISSUERS)
        return at_event(rd, "expected at most %d issuers", MAX_ISSUERS);
    is = &rd->b->issuers[rd->b->n_issuers++];
    *is = (struct bindings_issuer) { .algs = JWT_ALGS_DEFAULT, .skew_s = 60, .refresh_ms = 600000 };
    while ((r = take_key(rd, issuer_keys, N_ISSUER_KEYS, &seen, &key)) == 0 && key >= 0)
        if ((r = issuer_value(rd, is, key)) < 0)
            return r;
    if (r < 0 || (r = missing(rd, mark, issuer_keys, needed, seen)) < 0)
        return r;
    if (is->ca && is->keys[0] == '/')
        return at_mark(rd, mark, "\"ca\" is of use only with keys from https://");
    if (!is->user_claim)
        is->user_claim = strdup("preferred_username");
    if (!is->groups_claim)
        is->groups_claim = strdup("groups");
    return is->user_claim && is->groups_claim ? 0 : no_memory(rd);
}

static int take_binding(void *arg)
{
    struct reader *rd = arg;
    yaml_mark_t mark = rd->y.ev.start_mark;
    struct binding *b, *more;
    unsigned seen = 0;
    int key, r;

    if (rd->b->n_bindings == MAX_BINDINGS)
        return at_event(rd, "expected at most %d bindings", MAX_BINDINGS);
    if (rd->b->n_bindings % 64 == 0) {
        if (!(more = realloc(rd->b->bindings, (rd->b->n_bindings + 64) * sizeof(*more))))
            return no_memory(rd);
        rd->b->bindings = more;
    }
    b = &rd->b->bindings[rd->b->n_bindings++];
    *b = (struct binding) { 0 };
    while ((r = take_key(rd, binding_keys, N_BINDING_KEYS, &seen, &key)) == 0 && key >= 0)
        if ((r = binding_value(rd, b, key)) < 0)
            return r;
    return r < 0 ? r : missing(rd, mark, binding_keys, 1u << B_PRINCIPALS | 1u << B_ROLE, seen);
}

static int take_file(struct reader *rd)
{
    enum { F_ISSUERS, F_BINDINGS };
    static const char *const keys[] = { "issuers", "bindings" };
    unsigned seen = 0;
    int key, r;

    if ((r = next_is(rd, YAML_STREAM_START_EVENT, "a file")) < 0 || (r = next(rd)) < 0)
        return r;
    /* Without bindings each certificate has its role everywhere. A file that was cut to nothing must not do that. */
    if (rd->y.ev.type == YAML_STREAM_END_EVENT)
        return at_event(rd, "nothing in it, expected bindings (\"bindings: []\" for none)");
    if ((r = next_is(rd, YAML_MAPPING_START_EVENT, "a mapping with issuers and bindings")) < 0)
        return r;
    while ((r = take_key(rd, keys, ADV_ARRAY_LEN(keys), &seen, &key)) == 0 && key >= 0) {
        if (key == F_ISSUERS && seen & 1u << F_BINDINGS)
            return at_event(rd, "\"issuers\" behind \"bindings\", expected it before them");
        if ((r = adv_yaml_mappings(&rd->y, "a list", key == F_ISSUERS ? take_issuer : take_binding, rd)) < 0)
            return r;
    }
    if (r == 0 && !seen)
        return at_event(rd, "nothing in it, expected bindings (\"bindings: []\" for none)");
    if (r < 0 || (r = next_is(rd, YAML_DOCUMENT_END_EVENT, "the end of the file")) < 0)
        return r;
    return next_is(rd, YAML_STREAM_END_EVENT, "the end of the file, not a second document");
}

int bindings_parse(const char *name, const void *text, size_t len, struct bindings **ret, struct adv_err *err)
{
    ADV_AUTO(bindings) b = bindings_empty();
    struct reader rd = { .y = { .name = name, .err = err }, .b = b };
    int r;

    if (!b)
        return no_memory(&rd);
    if (len > BINDINGS_MAX_BYTES)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%.80s: %zu bytes, expected at most %d", name, len,
                           BINDINGS_MAX_BYTES);
    if (!adv_utf8_valid(text, len))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.80s: expected UTF-8", name);
    if ((r = adv_yaml_init(&rd.y, name, text, len, err)) < 0)
        return r;
    r = take_file(&rd);
    adv_yaml_done(&rd.y);
    if (r == 0)
        *ret = ADV_STEAL(b);
    return r;
}

/* ---- grants ----------------------------------------------------------------------------------------------------- */

struct grant {
    struct role_rights rights;
    const struct binding *binding; /* NULL: everywhere */
};

struct grants {
    struct bindings *b;
    struct grant *v;
    size_t n;
};

static bool list_matches(const struct list *l, const char *text)
{
    for (size_t i = 0; i < l->n; i++)
        if (glob_match(l->v[i], text))
            return true;
    return l->n == 0;
}

/* A list that leaves nothing out. */
static bool list_is_all(const struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (adv_streq(l->v[i], "*"))
            return true;
    return l->n == 0;
}

static bool names_one(const struct binding *b, const char *const *names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        for (size_t k = 0; k < b->principals.n; k++) {
            const char *pattern = b->principals.v[k];
            /* "*:name" is of certificates of any role: a stranger's issuer cannot give out such names */
            if ((!adv_startswith(pattern, "*:") || !adv_startswith(names[i], "jwt")) && glob_match(pattern, names[i]))
                return true;
        }
    return false;
}

struct grants *grants_free(struct grants *g)
{
    if (!g)
        return NULL;
    (void) bindings_unref(g->b);
    free(g->v);
    free(g);
    return NULL;
}

struct grants *bindings_resolve(struct bindings *b, const char *const *names, size_t n_names, struct role_rights limit,
                                bool bound)
{
    ADV_AUTO(grants) g = calloc(1, sizeof(*g));
    bool named = false;

    if (!g || !(g->v = calloc(b->n_bindings + 1, sizeof(*g->v))))
        return NULL;
    g->b = bindings_ref(b);
    for (size_t i = 0; i < b->n_bindings; i++) {
        struct role_rights both = role_rights_meet(role_rights(b->bindings[i].role), limit);

        if (!names_one(&b->bindings[i], names, n_names))
            continue;
        named = true;
        if (both.bits)
            g->v[g->n++] = (struct grant) { both, &b->bindings[i] };
    }
    if (!named && !bound)
        g->v[g->n++] = (struct grant) { limit, NULL };
    return ADV_STEAL(g);
}

const struct grants *grants_nothing(void)
{
    static const struct grants nothing;

    return &nothing;
}

bool grants_none(const struct grants *g)
{
    return g->n == 0;
}

bool grants_any(const struct grants *g, enum api_role needed)
{
    for (size_t i = 0; i < g->n; i++)
        if (role_rights_include(g->v[i].rights, needed))
            return true;
    return false;
}

static bool in_cluster(const struct grant *gr, const char *cluster)
{
    if (!gr->binding)
        return true;
    return cluster ? list_matches(&gr->binding->clusters, cluster) : list_is_all(&gr->binding->clusters);
}

static bool for_all_jobs(const struct grant *gr)
{
    return !gr->rights.own_only && (!gr->binding || list_is_all(&gr->binding->accounts));
}

bool grants_allow(const struct grants *g, enum api_role needed, const char *cluster, const char *account,
                  const char *user, const char *own)
{
    bool whole = !account && !user;

    for (size_t i = 0; i < g->n; i++) {
        const struct grant *gr = &g->v[i];

        if (!role_rights_include(gr->rights, needed))
            continue;
        if (!in_cluster(gr, cluster) && !(whole && !cluster && needed == ROLE_READER))
            continue;
        if (whole) {
            if (needed == ROLE_READER || for_all_jobs(gr))
                return true;
            continue;
        }
        if (gr->binding && !list_matches(&gr->binding->accounts, account ? account : ""))
            continue;
        if (!gr->rights.own_only || (*own && adv_streq(own, user)))
            return true;
    }
    return false;
}

bool grants_some_of_cluster(const struct grants *g, enum api_role needed, const char *cluster)
{
    for (size_t i = 0; i < g->n; i++)
        if (role_rights_include(g->v[i].rights, needed) && in_cluster(&g->v[i], cluster))
            return true;
    return false;
}

bool grants_whole_cluster(const struct grants *g, enum api_role needed, const char *cluster)
{
    for (size_t i = 0; i < g->n; i++)
        if (role_rights_include(g->v[i].rights, needed) && in_cluster(&g->v[i], cluster) && for_all_jobs(&g->v[i]))
            return true;
    return false;
}

static void hash_list(struct adv_sha256 *h, const struct list *l, int *r)
{
    for (size_t i = 0; *r == 0 && i < l->n; i++)
        *r = adv_sha256_update(h, l->v[i], strlen(l->v[i]) + 1, NULL);
    if (*r == 0)
        *r = adv_sha256_update(h, "", 1, NULL);
}

uint64_t grants_digest(const struct grants *g)
{
    static const struct list all = { 0 };
    struct adv_sha256 h;
    uint8_t out[ADV_SHA256_LEN];
    uint64_t digest = 0;
    int r = adv_sha256_init(&h, NULL);

    if (r < 0)
        return 0;
    for (size_t i = 0; i < g->n; i++) {
        uint32_t rights = g->v[i].rights.bits << 1 | g->v[i].rights.own_only;

        if (r == 0)
            r = adv_sha256_update(&h, &rights, sizeof(rights), NULL);
        hash_list(&h, g->v[i].binding ? &g->v[i].binding->clusters : &all, &r);
        hash_list(&h, g->v[i].binding ? &g->v[i].binding->accounts : &all, &r);
    }
    if (r == 0 && adv_sha256_final(&h, out, NULL) == 0)
        memcpy(&digest, out, sizeof(digest));
    adv_sha256_done(&h);
    return digest;
}
