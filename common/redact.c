/* SPDX-License-Identifier: Apache-2.0 */
#include "common/redact.h"

#include <stdbool.h>
#include <string.h>

#define PEM_MAX   16384 /* a key of 16384 bits takes 13 kB; a heading without an end must not hide the rest of a log */
#define QUOTE_MAX 256
#define NAME_MAX  64
#define VALUE_MIN 4

/* What the next token is. */
enum want {
    NOTHING,
    ASSIGNMENT, /* behind a telling name: '=', ':' or "is" */
    ASSIGNMENT_TOKEN,
    VALUE,
    VALUE_OF_TOKEN, /* names that end in "token" may be of counts and of vocabularies */
    CLAIM,          /* behind "password is" */
    FLAG_VALUE,     /* behind --password */
    SCHEME,         /* behind "Authorization:" */
    BEARER,         /* behind "bearer" somewhere */
};

enum pem { NO_PEM, PEM_BEGIN, PEM_PRIVATE, PEM_INSIDE };
enum cont { TOKEN_START, GOES_ON, GOES_ON_COVERED };

/* A token at hand. @open: more of it may come. */
struct piece {
    uint8_t *t;
    size_t n;
    bool open;
    uint8_t mask;
    bool covered_end; /* its last byte is */
};

static bool is_space(uint8_t c)
{
    return c <= 0x20 || c == 0x7f;
}

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t) (c | 0x20) : c;
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(uint8_t c)
{
    return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z');
}

static bool is_word(uint8_t c)
{
    return is_alnum(c) || c == '_' || c == '-';
}

static bool is_quote(uint8_t c)
{
    return c == '"' || c == '\'' || c == '`';
}

static bool one_of(uint8_t c, const char *set)
{
    return c && strchr(set, c);
}

static void cover(struct piece *p, size_t from, size_t to)
{
    if (to <= from)
        return;
    memset(p->t + from, p->mask, to - from);
    if (to == p->n)
        p->covered_end = true;
}

static size_t find(const uint8_t *t, size_t from, size_t n, const char *what)
{
    size_t len = strlen(what);

    for (size_t i = from; i + len <= n; i++)
        if (t[i] == (uint8_t) what[0] && memcmp(t + i, what, len) == 0)
            return i;
    return n;
}

static bool same_word(const uint8_t *t, size_t n, const char *word)
{
    size_t i = 0;

    for (; i < n && word[i]; i++)
        if (lower(t[i]) != (uint8_t) word[i])
            return false;
    return i == n && !word[i];
}

static bool listed(const uint8_t *t, size_t n, const char *const *words)
{
    for (; *words; words++)
        if (same_word(t, n, *words))
            return true;
    return false;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

enum name { PLAIN, SECRET, SECRET_TOKEN, AUTHORIZATION };

static bool ends_with(const char *name, size_t n, const char *end)
{
    size_t len = strlen(end);

    return n >= len && memcmp(name + n - len, end, len) == 0;
}

static bool ends_with_one(const char *name, size_t n, const char *const *ends)
{
    for (; *ends; ends++)
        if (ends_with(name, n, *ends))
            return true;
    return false;
}

/* What a name says of its value. It is compared without '_' and '-' and the case of letters: apiKey, API_KEY and api-key are one.
 * Only its end counts: a secretName or a token_count is no secret. */
static enum name judge_name(const uint8_t *t, size_t n)
{
    static const char *const secrets[] = {
        "password",  "passwd",     "passphrase", "pwd",         "secret",      "apikey",      "accesskey", "accesskeyid",
        "secretkey", "privatekey", "authkey",    "accountkey",  "licensekey",  "signingkey",  "hmackey",   "encryptionkey",
        "sharedkey", "credential", "credentials", "passcode",   "secretvalue", "tokenvalue",  "tokensecret", NULL,
    };
    /* of vocabularies and of counts */
    static const char *const harmless[] = {
        "padtoken",   "eostoken",    "bostoken",   "masktoken",   "unktoken",  "septoken",   "clstoken",  "specialtoken",
        "imagetoken", "videotoken",  "audiotoken", "starttoken",  "endtoken",  "stoptoken",  "eodtoken",  "pertoken",
        "lasttoken",  "firsttoken",  "nexttoken",  "newtoken",    "eachtoken", "prefixtoken", "suffixtoken", "middletoken",
        "addedtoken", "beginoftexttoken", "eottoken", "bytoken",  "numtoken",  "maxtoken",   "mintoken",   NULL,
    };
    char name[NAME_MAX];
    size_t len = 0;

    if (n > NAME_MAX) {
        t += n - NAME_MAX;
        n = NAME_MAX;
    }
    for (size_t i = 0; i < n; i++)
        if (t[i] != '_' && t[i] != '-')
            name[len++] = (char) lower(t[i]);
    if (ends_with(name, len, "token"))
        return ends_with_one(name, len, harmless) ? PLAIN : SECRET_TOKEN;
    if (ends_with(name, len, "authorization"))
        return AUTHORIZATION;
    return ends_with_one(name, len, secrets) ? SECRET : PLAIN;
}

/* Of an URL's query, where the shortest names count, too. */
static bool query_secret(const uint8_t *t, size_t n)
{
    static const char *const names[] = { "sig", "signature", "x-amz-signature", "x-amz-credential", "x-amz-security-token",
                                         "x-goog-signature", "x-goog-credential", "key", "code", "auth", "se", "sv", NULL };

    return listed(t, n, names);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static bool is_number(const uint8_t *t, size_t n)
{
    bool digit = false;

    for (size_t i = 0; i < n; i++) {
        if (!is_digit(t[i]) && !one_of(t[i], ".,eE+-%"))
            return false;
        digit |= is_digit(t[i]);
    }
    return digit;
}

/* What people write behind such a name when it is no secret. */
static bool is_said_of_it(const uint8_t *t, size_t n)
{
    static const char *const words[] = {
        "none", "null", "true", "false", "not", "is", "the", "for", "to", "was", "has", "in", "of", "and", "file",
        "id", "ids", "error", "expired", "invalid", "found", "yes", "no", "ok", "valid", "missing", "required",
        "wrong", "incorrect", "empty", "set", "unset", "undefined", "a", "an", "or", "from", "with", "must", "should",
        "cannot", "could", "denied", "failed", "authentication", "unauthorized", "rejected", "accepted", "present",
        "absent", "provided", "str", "string", "optional", NULL,
    };

    return listed(t, n, words);
}

static size_t skip_quotes(const struct piece *p, size_t at, uint8_t *ret_quote)
{
    while (at < p->n && (is_quote(p->t[at]) || (p->t[at] == '\\' && at + 1 < p->n && is_quote(p->t[at + 1])))) {
        if (is_quote(p->t[at]))
            *ret_quote = p->t[at];
        at++;
    }
    return at;
}

/* The value that begins at @at. Returns its end; @at at the token's end: the value has not begun yet. */
static size_t take_value(struct adv_redact *r, struct piece *p, size_t at, enum want how)
{
    uint8_t quote = 0;
    size_t from = skip_quotes(p, at, &quote), to = from;
    bool closed, digit = false;

    while (to < p->n && !(quote ? p->t[to] == quote : one_of(p->t[to], "\"',;&}])"))) {
        digit |= is_digit(p->t[to]);
        to++;
    }
    closed = to < p->n;
    if (quote && closed && to > from && p->t[to - 1] == '\\')
        to--; /* "{\"password\":\"x\"}" inside of a text */
    if (from == p->n && !p->open) {
        r->want_ = (uint8_t) how;
        return p->n;
    }
    if (p->open && !closed) { /* as it may become one */
        cover(p, from, to);
        return to;
    }
    if (how == VALUE_OF_TOKEN && from < to && one_of(p->t[from], "<[({"))
        return to;
    if (how == CLAIM && !digit)
        return to;
    if (how == BEARER && !digit && to - from < 20)
        return to;
    if (to - from < VALUE_MIN && !(quote && !closed))
        return to;
    if (how == VALUE_OF_TOKEN && is_number(p->t + from, to - from))
        return to;
    if (is_said_of_it(p->t + from, to - from))
        return to;
    cover(p, from, to);
    if (quote && !closed) {
        r->quote_ = quote;
        r->left_ = QUOTE_MAX;
    }
    return to;
}

static const char *const schemes[] = { "bearer", "basic", "token", "digest", "negotiate", "apikey", NULL };

/* name=value, name:value, "name":"value" anywhere in the token. */
static void take_pairs(struct adv_redact *r, struct piece *p, size_t from)
{
    size_t begin = from; /* of the name at hand */

    for (size_t i = from; i < p->n; i++) {
        size_t end = i, at = i + 1, name = begin;
        uint8_t quote = 0;
        enum name what;

        if (p->t[i] != '=' && p->t[i] != ':') {
            if (!is_word(p->t[i]) && !is_quote(p->t[i]) && p->t[i] != '\\')
                begin = i + 1;
            continue;
        }
        begin = at;
        while (end > name && (is_quote(p->t[end - 1]) || p->t[end - 1] == '\\'))
            end--;
        while (name < end && (is_quote(p->t[name]) || p->t[name] == '\\'))
            name++;
        what = judge_name(p->t + name, end - name);
        if (what == PLAIN && name > 0 && one_of(p->t[name - 1], "?&") && query_secret(p->t + name, end - name))
            what = SECRET;
        if (what == PLAIN)
            continue;
        if (at < p->n && p->t[at] == p->t[i])
            continue; /* a comparison; a scope */
        if (at < p->n && one_of(p->t[at], p->t[i] == ':' ? "=" : ">"))
            at++;
        if (p->t[i] == ':' && at + 1 < p->n && p->t[at] == '/' && p->t[at + 1] == '/')
            continue;
        if (at < p->n && p->t[at] == '/' && end >= 3 && same_word(p->t + end - 3, 3, "pwd"))
            continue; /* the working folder */
        if (what == AUTHORIZATION && !p->open) {
            size_t v = skip_quotes(p, at, &quote);
            if (v == p->n || listed(p->t + v, p->n - v, schemes)) {
                r->want_ = v == p->n ? SCHEME : VALUE;
                return;
            }
        }
        i = take_value(r, p, at, what == SECRET_TOKEN ? VALUE_OF_TOKEN : VALUE);
        begin = i + 1;
    }
}

static bool is_port(const uint8_t *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_digit(t[i]))
            return false;
    return true;
}

/* scheme://user:password@host, also without a user */
static void take_url(struct piece *p)
{
    for (size_t at = find(p->t, 0, p->n, "://"); at < p->n; at = find(p->t, at, p->n, "://")) {
        size_t from = at += 3, to = from;

        while (to < p->n && !one_of(p->t[to], "/@\"'<>"))
            to++;
        if (to < p->n && p->t[to] == '@' && to - from >= 3)
            cover(p, from, to);
        if (to == p->n && p->open) { /* host:port, or user:password with more to come */
            const uint8_t *colon = memchr(p->t + from, ':', to - from);
            if (colon && !is_port(colon + 1, (size_t) (p->t + to - colon - 1)))
                cover(p, from, to);
        }
    }
}

/* ---- heads ------------------------------------------------------------------------------------------------------ */

static const struct head {
    const char *text;
    const char *also; /* characters beside letters and digits */
    uint8_t min;      /* of them behind the head: less is somebody's identifier, hf_hub_download */
} heads[] = {
    { "hf_", "", 16 },           { "api_org_", "", 20 },     { "ghp_", "", 16 },         { "gho_", "", 16 },
    { "ghu_", "", 16 },          { "ghs_", "", 16 },         { "ghr_", "", 16 },         { "github_pat_", "_", 16 },
    { "glpat-", "_-", 16 },      { "xoxa-", "-", 10 },       { "xoxb-", "-", 10 },       { "xoxe-", "-", 10 },
    { "xoxp-", "-", 10 },        { "xoxr-", "-", 10 },       { "xoxs-", "-", 10 },       { "sk-", "_-", 20 },
    { "sk_live_", "", 16 },      { "rk_live_", "", 16 },     { "pypi-", "_-", 16 },      { "npm_", "", 20 },
    { "dckr_pat_", "_-", 16 },   { "nvapi-", "_-", 20 },     { "AIza", "_-", 30 },       { "ya29.", "_-.", 20 },
    { "AKIA", "", 12 },          { "ASIA", "", 12 },         { "AGPA", "", 12 },         { "AROA", "", 12 },
    { "eyJ", "_-.=", 24 },       { "wandb_v1_", "_-", 16 },  { "gsk_", "", 20 },         { "r8_", "", 20 },
    { "SG.", "_-.", 20 },        { "shpat_", "", 20 },       { "dop_v1_", "", 20 },      { "dapi", "", 32 },
    { "hvs.", "_-", 20 },        { "AGE-SECRET-KEY-", "", 16 }, { "tskey-", "-", 16 },
};

static size_t head_at(const struct piece *p, size_t i)
{
    for (size_t k = 0; k < sizeof(heads) / sizeof(*heads); k++) {
        const struct head *h = &heads[k];
        size_t len = strlen(h->text), to;

        if (p->t[i] != (uint8_t) h->text[0])
            continue;
        if (i + len > p->n || memcmp(p->t + i, h->text, len) != 0)
            continue;
        for (to = i + len; to < p->n && (is_alnum(p->t[to]) || one_of(p->t[to], h->also)); to++)
            ;
        if (to - i - len >= h->min || (p->open && to == p->n))
            return to;
    }
    return i;
}

static void take_heads(struct piece *p, bool at_start)
{
    static const uint8_t firsts[256] = {
        ['h'] = 1, ['a'] = 1, ['g'] = 1, ['x'] = 1, ['s'] = 1, ['r'] = 1, ['p'] = 1, ['n'] = 1,
        ['d'] = 1, ['A'] = 1, ['y'] = 1, ['e'] = 1, ['w'] = 1, ['S'] = 1, ['t'] = 1,
    };

    for (size_t i = at_start ? 0 : 1; i < p->n; i++) {
        size_t to;

        if (!firsts[p->t[i]] || (i > 0 && (is_alnum(p->t[i - 1]) || p->t[i - 1] == '_')))
            continue;
        if ((to = head_at(p, i)) == i)
            continue;
        while (to < p->n && (is_word(p->t[to]) || one_of(p->t[to], ".~+/=")))
            to++; /* what sticks to it is of it */
        cover(p, i, to);
        i = to;
    }
}

/* ---- private keys ----------------------------------------------------------------------------------------------- */

/* Returns whether the whole token was part of a key. */
static bool take_pem(struct adv_redact *r, struct piece *p)
{
    size_t at = 0;

    if (r->pem_ == PEM_INSIDE) {
        size_t end = find(p->t, 0, p->n, "-----END");

        cover(p, 0, end);
        if (end == p->n && r->left_ > p->n) {
            r->left_ = (uint16_t) (r->left_ - p->n);
            return true;
        }
        r->pem_ = NO_PEM;
        return true;
    }
    if ((at = find(p->t, 0, p->n, "-----BEGIN")) < p->n)
        r->pem_ = PEM_BEGIN;
    else
        at = 0;
    if (r->pem_ == NO_PEM)
        return false;
    if (find(p->t, at, p->n, "PRIVATE") < p->n)
        r->pem_ = PEM_PRIVATE;
    if ((at = find(p->t, at, p->n, "KEY-----")) < p->n && r->pem_ == PEM_PRIVATE) {
        size_t end = find(p->t, at, p->n, "-----END");

        cover(p, at + 8, end);
        r->pem_ = end < p->n ? NO_PEM : PEM_INSIDE;
        r->left_ = PEM_MAX;
        return true;
    }
    if (find(p->t, at < p->n ? at : 0, p->n, "CERTIFICATE") < p->n)
        r->pem_ = NO_PEM;
    return false;
}

/* ---- tokens ----------------------------------------------------------------------------------------------------- */

/* What the token that just passed announces. */
static enum want announced(const struct piece *p)
{
    const uint8_t *t = p->t;
    size_t n = p->n;
    bool flag = n > 2 && t[0] == '-' && t[1] == '-';
    enum name what;

    while (n > 0 && (is_quote(*t) || one_of(*t, "([{,"))) {
        t++;
        n--;
    }
    while (n > 0 && is_quote(t[n - 1]))
        n--;
    if (same_word(t, n, "bearer"))
        return BEARER;
    for (size_t i = 0; i < n; i++)
        if (!is_word(t[i]) && t[i] != '.')
            return NOTHING;
    what = judge_name(t, n);
    if (flag)
        return what != PLAIN || (n > 5 && same_word(t + n - 4, 4, "-key")) ? FLAG_VALUE : NOTHING;
    return what == PLAIN ? NOTHING : what == SECRET_TOKEN ? ASSIGNMENT_TOKEN : ASSIGNMENT;
}

/* What was announced. Returns where the rest of the token begins. */
static size_t take_announced(struct adv_redact *r, struct piece *p, enum want want)
{
    uint8_t quote = 0;
    size_t at;

    switch (want) {
    case NOTHING:
        return 0;
    case ASSIGNMENT:
    case ASSIGNMENT_TOKEN:
        if (same_word(p->t, p->n, "is")) {
            r->want_ = CLAIM;
            return p->n;
        }
        if ((p->t[0] != '=' && p->t[0] != ':') || (p->n > 1 && p->t[0] == '=' && p->t[1] == '='))
            return 0;
        at = p->n > 1 && one_of(p->t[1], "=>") ? 2 : 1;
        return take_value(r, p, at, want == ASSIGNMENT ? VALUE : VALUE_OF_TOKEN);
    case SCHEME:
        at = skip_quotes(p, 0, &quote);
        if (listed(p->t + at, p->n - at, schemes) && !p->open) {
            r->want_ = VALUE;
            return p->n;
        }
        return take_value(r, p, 0, VALUE);
    case FLAG_VALUE:
        return p->t[0] == '-' ? 0 : take_value(r, p, 0, VALUE);
    case VALUE:
    case VALUE_OF_TOKEN:
    case CLAIM:
    case BEARER:
        return take_value(r, p, 0, want);
    }
    return 0;
}

/* The letters of a colour that stands before the token: ESC [ 3 1 m */
static size_t skip_colour(const struct piece *p)
{
    size_t i = 1;

    if (p->n == 0 || p->t[0] != '[')
        return 0;
    while (i < p->n && (is_digit(p->t[i]) || one_of(p->t[i], ";?:")))
        i++;
    return i < p->n && is_alnum(p->t[i]) ? i + 1 : 0;
}

static void take_token(struct adv_redact *r, uint8_t *t, size_t n, bool open)
{
    struct piece p = { .t = t, .n = n, .open = open, .mask = r->mask };
    enum want want = (enum want) r->want_;
    bool esc = r->esc_, start = r->cont_ == TOKEN_START;
    size_t from = 0;

    r->esc_ = 0;
    if (r->cont_ == GOES_ON_COVERED) {
        cover(&p, 0, p.n);
        return;
    }
    if (esc && start) {
        size_t skip = skip_colour(&p);
        p.t += skip;
        p.n -= skip;
        if (p.n == 0)
            return; /* what was announced is still to come */
    }
    r->want_ = NOTHING;
    if (take_pem(r, &p))
        goto out;
    if (r->quote_) {
        const uint8_t *end = memchr(p.t, r->quote_, p.n);
        from = end ? (size_t) (end - p.t) : p.n;
        cover(&p, 0, from);
        if (end || r->left_ <= p.n)
            r->quote_ = 0;
        else
            r->left_ = (uint16_t) (r->left_ - p.n);
    } else if (start) {
        from = take_announced(r, &p, want);
    }
    take_heads(&p, start);
    if (from < p.n)
        take_pairs(r, &p, from);
    take_url(&p);
    if (!p.open && start && r->want_ == NOTHING && from == 0)
        r->want_ = (uint8_t) announced(&p);
out:
    r->cont_ = !open ? TOKEN_START : p.covered_end ? GOES_ON_COVERED : GOES_ON;
}

static void take_space(struct adv_redact *r, uint8_t c)
{
    r->cont_ = TOKEN_START;
    r->esc_ = c == 0x1b;
    if (c != '\n')
        return;
    r->want_ = NOTHING;
    r->quote_ = 0;
    if (r->pem_ != PEM_INSIDE)
        r->pem_ = NO_PEM;
}

/* Where a token that is too long falls into two: behind what stands between the members of compact JSON or of a list, so that no
 * name is torn from its value. 0: nowhere. */
static size_t member_end(const uint8_t *t)
{
    for (size_t n = ADV_REDACT_PART; n > ADV_REDACT_PART / 2; n--)
        if (one_of(t[n - 1], ",;&{}[]()|<>"))
            return n;
    return 0;
}

size_t adv_redact(struct adv_redact *r, uint8_t *text, size_t len)
{
    size_t i = 0;

    while (i < len) {
        size_t to = i, n;

        if (is_space(text[i])) {
            take_space(r, text[i++]);
            continue;
        }
        while (to < len && to - i < ADV_REDACT_PART && !is_space(text[to]))
            to++;
        if (to == len) /* what comes next says whether this is all of it */
            return i;
        if (!is_space(text[to]) && (n = member_end(text + i)) > 0) {
            take_token(r, text + i, n, false);
            to = i + n;
        } else {
            take_token(r, text + i, to - i, !is_space(text[to]));
        }
        i = to;
    }
    return i;
}

void adv_redact_rest(const struct adv_redact *r, uint8_t *text, size_t len)
{
    struct adv_redact copy = *r;

    if (len)
        take_token(&copy, text, len, true);
}
