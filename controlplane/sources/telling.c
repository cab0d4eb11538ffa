/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/sources/telling.h"

#include <string.h>

#include "common/hash.h"

static bool near(int64_t a_us, int64_t b_us)
{
    return a_us - b_us < TELLING_AGAIN_US && b_us - a_us < TELLING_AGAIN_US;
}

/* The fault told least lately, if that is long ago. */
static struct telling_entry *old_fault(struct telling *t, int64_t ts_us)
{
    struct telling_entry *oldest = NULL;

    for (size_t i = 0; i < t->n; i++)
        if (t->told[i].counts && (!oldest || t->told[i].ts_us < oldest->ts_us))
            oldest = &t->told[i];
    return oldest && ts_us - oldest->ts_us > TELLING_OLD_US ? oldest : NULL;
}

static enum telling_how left_out(struct telling *t, int64_t ts_us)
{
    if (t->more && near(ts_us, t->more_us))
        return TELL_NOT;
    t->more = true;
    t->more_us = ts_us;
    return TELL_MORE;
}

enum telling_how telling_next(struct telling *t, const char *rule, const char *host, bool counts, int64_t ts_us)
{
    uint32_t of_rule = adv_hash_bytes(rule, strlen(rule)), of_host = adv_hash_bytes(host, strlen(host));
    struct telling_entry *place = NULL;
    size_t lately = 0;
    bool host_told = false;

    for (size_t i = 0; i < t->n; i++) {
        struct telling_entry *e = &t->told[i];
        lately += e->counts && ts_us - e->ts_us <= TELLING_OLD_US;
        host_told |= e->host == of_host && e->counts && near(ts_us, e->ts_us);
        if (e->rule != of_rule || e->host != of_host || e->counts != counts)
            continue;
        if (ts_us - e->ts_us < TELLING_AGAIN_US)
            return TELL_NOT;
        e->ts_us = ts_us;
        return TELL;
    }
    if (!counts) {
        if (t->n - t->n_faults == TELLING_OTHERS_MAX) /* for people, who have the first of them */
            return TELL_NOT;
    } else if (host_told && lately >= TELLING_FAULTS_PLENTY) {
        return TELL_NOT;
    } else if (t->n_faults == TELLING_FAULTS_MAX && !(place = old_fault(t, ts_us))) {
        return left_out(t, ts_us);
    }
    if (!place) {
        place = &t->told[t->n++];
        t->n_faults += counts;
    }
    *place = (struct telling_entry) { of_rule, of_host, counts, ts_us };
    return TELL;
}
