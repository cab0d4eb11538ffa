/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/keys.h"

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/auth/fetch.h"

struct keys {
    uv_loop_t *loop;
    uv_timer_t timer;
    char *source, *ca, *alias;
    int64_t refresh_ms;
    struct jwks *set;
    struct fetch *fetch; /* under way */
    int64_t begun_mono_us;
    unsigned failures; /* in a row */
    void (*changed)(void *arg);
    void *arg;
    bool closing;
};

static void begin(struct keys *k);

static void on_timer(uv_timer_t *t)
{
    begin(t->data);
}

/* Failures are tried again sooner than the ordinary refresh, but slower each time. */
static void schedule(struct keys *k)
{
    int64_t wait_ms = k->refresh_ms;

    if (k->failures) {
        wait_ms = (int64_t) KEYS_MIN_INTERVAL_MS << (k->failures < 6 ? k->failures - 1 : 5);
        wait_ms = wait_ms < k->refresh_ms ? wait_ms : k->refresh_ms;
    }
    (void) uv_timer_start(&k->timer, on_timer, (uint64_t) wait_ms, 0);
}

static void on_fetched(void *arg, const char *bytes, size_t len, const struct adv_err *why)
{
    struct keys *k = arg;
    struct jwks *set = NULL;
    struct adv_err err = { 0 };

    k->fetch = NULL;
    if (why)
        err = *why;
    if (err.code || jwks_parse(bytes, len, &set, &err) < 0) {
        k->failures++;
        schedule(k);
        adv_warn("auth", k->set ? "keys of an issuer cannot be read, the old ones stay, will retry"
                                : "keys of an issuer cannot be read, its tokens are not taken, will retry",
                 ADV_FS("issuer", k->alias), ADV_FS("keys", k->source), ADV_FS("why", err.msg));
        return;
    }
    if (k->failures || !k->set)
        adv_info("auth", "keys of an issuer read", ADV_FS("issuer", k->alias), ADV_FI("keys", (int64_t) jwks_count(set)));
    (void) jwks_free(k->set);
    k->set = set;
    k->failures = 0;
    schedule(k);
    k->changed(k->arg);
}

static void begin(struct keys *k)
{
    struct adv_err err = { 0 };

    if (k->fetch || k->closing)
        return;
    k->begun_mono_us = adv_mono_us();
    if (fetch_start(k->loop, k->source, k->ca, JWKS_MAX_BYTES, on_fetched, k, &k->fetch, &err) < 0) {
        k->failures++;
        schedule(k);
    }
}

static void keys_destroy(struct keys *k)
{
    (void) jwks_free(k->set);
    free(k->source);
    free(k->ca);
    free(k->alias);
    free(k);
}

static void on_closed(uv_handle_t *h)
{
    keys_destroy(h->data);
}

struct keys *keys_new(uv_loop_t *loop, const struct bindings_issuer *is, void (*changed)(void *arg), void *arg)
{
    struct keys *k = calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->loop = loop;
    k->refresh_ms = is->refresh_ms;
    k->changed = changed;
    k->arg = arg;
    k->source = strdup(is->keys);
    k->alias = strdup(is->alias);
    k->ca = is->ca ? strdup(is->ca) : NULL;
    if (!k->source || !k->alias || (is->ca && !k->ca)) {
        keys_destroy(k);
        return NULL;
    }
    (void) uv_timer_init(loop, &k->timer);
    k->timer.data = k;
    begin(k);
    return k;
}

struct keys *keys_free(struct keys *k)
{
    if (!k)
        return NULL;
    k->closing = true;
    k->fetch = fetch_cancel(k->fetch);
    uv_close((uv_handle_t *) &k->timer, on_closed);
    return NULL;
}

const struct jwks *keys_get(const struct keys *k)
{
    return k->set;
}

bool keys_want(struct keys *k)
{
    if (k->fetch)
        return true;
    if (adv_mono_us() - k->begun_mono_us < KEYS_MIN_INTERVAL_MS * 1000LL)
        return false;
    begin(k);
    return k->fetch != NULL;
}

bool keys_same(const struct keys *k, const struct bindings_issuer *is)
{
    return adv_streq(k->source, is->keys) && adv_streq(k->ca, is->ca) && adv_streq(k->alias, is->alias) &&
           k->refresh_ms == is->refresh_ms;
}
