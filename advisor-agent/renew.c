/* SPDX-License-Identifier: Apache-2.0 */
#include "advisor-agent/renew.h"

#include <sys/random.h>
#include <sys/stat.h>

#include "advisor-agent/pki.h"
#include "common/clock.h"
#include "common/log.h"

#define LOOK_US     (10 * INT64_C(1000000)) /* how often the file is looked at when its life is long */
#define RETRY_MAX_S 3600

struct renew {
    const struct agent_config *cfg;
    struct pki_request *request; /* under way */
    struct pki_cert cert;
    struct stat stat;
    bool known;   /* cert is what the file holds */
    bool refused; /* this control plane issues none: until the file changes or the agent restarts */
    uint32_t random;
    int64_t next_look_us, next_try_us; /* monotonic */
    unsigned failures;
};

struct renew *renew_new(const struct agent_config *cfg)
{
    struct renew *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->cfg = cfg;
    if (getrandom(&r->random, sizeof(r->random), GRND_NONBLOCK) != (ssize_t) sizeof(r->random))
        r->random = (uint32_t) adv_mono_us() * 2654435761u;
    if (!cfg->insecure && pki_recover(cfg->tls_cert, cfg->tls_key))
        adv_info("renew", "a renewal that was interrupted is finished", ADV_FS("certificate", cfg->tls_cert));
    return r;
}

struct renew *renew_free(struct renew *r)
{
    if (!r)
        return NULL;
    (void) pki_request_free(r->request);
    free(r);
    return NULL;
}

int64_t renew_due_s(int64_t not_before_s, int64_t not_after_s, uint32_t random)
{
    int64_t life = not_after_s - not_before_s;

    return life <= 0 ? not_after_s : not_before_s + life / 3 * 2 + (int64_t) ((uint64_t) (life / 10) * random >> 32);
}

static int64_t life_s(const struct renew *r)
{
    return r->cert.not_after_s - r->cert.not_before_s;
}

/* Reads the file if it is another one than before. */
static void look(struct renew *r, int64_t now_us)
{
    struct adv_err err = { 0 };
    struct stat st;

    r->next_look_us = now_us + (r->known && life_s(r) < 600 ? LOOK_US / 10 : LOOK_US);
    if (stat(r->cfg->tls_cert, &st) < 0 ||
        (r->known && st.st_ino == r->stat.st_ino && st.st_mtim.tv_sec == r->stat.st_mtim.tv_sec &&
         st.st_mtim.tv_nsec == r->stat.st_mtim.tv_nsec))
        return;
    r->known = pki_look(r->cfg->tls_cert, &r->cert, &err) == 0;
    r->stat = st;
    r->refused = false;
    r->failures = 0;
    r->next_try_us = 0;
    if (!r->known)
        adv_warn("renew", "the certificate cannot be read, the connection goes on with the one before", ADV_FS("why", err.msg));
}

static void failed(struct renew *r, const char *why)
{
    int64_t wait_s = life_s(r) / 50;

    wait_s = wait_s < 1 ? 1 : wait_s > RETRY_MAX_S ? RETRY_MAX_S : wait_s;
    r->failures++;
    r->next_try_us = adv_mono_us() + wait_s * 1000000;
    adv_warn("renew", "the certificate was not renewed, will try again", ADV_FS("why", why), ADV_FI("in_s", wait_s),
             ADV_FI("left_s", r->cert.not_after_s - adv_wall_us() / 1000000));
}

static void on_answer(void *arg, const void *chain, size_t len, const struct adv_err *why)
{
    struct renew *r = arg;
    struct pki_request *request = ADV_STEAL(r->request);
    struct adv_err err = { 0 };

    if (why && why->code == ADV_FAILED_PRECONDITION && adv_streq(why->reason, "NO_AGENT_CA")) {
        r->refused = true;
        adv_info("renew", "this control plane issues no certificates: whoever issued this one has to renew it");
    } else if (why) {
        failed(r, why->msg);
    } else if (pki_install(request, chain, len, r->cfg->tls_cert, r->cfg->tls_key, &err) < 0) {
        failed(r, err.msg);
    } else {
        look(r, adv_mono_us());
        adv_info("renew", "the certificate was renewed, it is used from the next connection on", ADV_FS("serial", r->cert.serial),
                 ADV_FI("life_s", life_s(r)));
    }
    (void) pki_request_free(request);
}

static void ask(struct renew *r, struct session *s)
{
    struct adv_err err = { 0 };
    const uint8_t *der;
    size_t len;

    if (pki_writable(r->cfg->tls_cert, r->cfg->tls_key, &err) < 0 || pki_request_new(&r->request, &err) < 0) {
        failed(r, err.msg);
        return;
    }
    der = pki_request_der(r->request, &len);
    if (session_renew(s, der, len, on_answer, r, &err) < 0) {
        r->request = pki_request_free(r->request);
        failed(r, err.msg);
    }
}

/* The connection's own certificate ends soon and the file holds a later one: move now, rather than be thrown out then. */
static bool better_to_move(const struct renew *r, int64_t in_use_until_s, int64_t now_s)
{
    return in_use_until_s > 0 && in_use_until_s < r->cert.not_after_s && now_s >= r->cert.not_before_s &&
           in_use_until_s - now_s < life_s(r) / 6;
}

void renew_tick(struct renew *r, struct session *s, int64_t now_mono_us, int64_t now_wall_us)
{
    int64_t now_s = now_wall_us / 1000000;

    if (r->cfg->insecure)
        return;
    if (now_mono_us >= r->next_look_us)
        look(r, now_mono_us);
    if (!r->known || !s || !session_active(s))
        return;
    if (better_to_move(r, session_cert_expiry_s(s), now_s)) {
        session_give_up(s, "a newer certificate is there", 0);
        return;
    }
    if (r->cfg->tls_renew && !r->request && !r->refused && now_mono_us >= r->next_try_us &&
        now_s >= renew_due_s(r->cert.not_before_s, r->cert.not_after_s, r->random))
        ask(r, s);
}
