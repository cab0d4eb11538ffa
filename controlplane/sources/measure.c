/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/sources/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/hostlist.h"

#define NODES_MAX 65536

static enum idleness ADV_PRINTF(2, 3) unknown(char detail[MEASURE_DETAIL_MAX], const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(detail, MEASURE_DETAIL_MAX, fmt, ap);
    va_end(ap);
    return IDLE_UNKNOWN;
}

static double sum_of_rises(const struct source_series *s)
{
    double sum = 0;

    for (size_t i = 1; i < s->n; i++) /* a counter that fell began anew: what it has now is work that was done */
        sum += s->samples[i].value >= s->samples[i - 1].value ? s->samples[i].value - s->samples[i - 1].value :
                                                                s->samples[i].value + 1;
    return sum;
}

/* It works: whatever else is missing, it is not idle. */
static bool busy(const struct source_measure *m, const struct source_series *s)
{
    if (m->counter) {
        double seconds = s->n > 1 ? (double) (s->samples[s->n - 1].ts_us - s->samples[0].ts_us) / 1e6 : 0;
        return sum_of_rises(s) > m->below * seconds;
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->samples[i].value >= m->below)
            return true;
    return false;
}

/* Samples cover the window up to now. */
static bool whole(const struct source_measure *m, const struct source_series *s, int64_t now_us)
{
    int64_t gap_us = m->max_age_ms * 1000, from_us = now_us - m->window_ms * 1000;

    if (s->n < 2 || s->samples[0].ts_us > from_us + gap_us || s->samples[s->n - 1].ts_us < now_us - gap_us ||
        s->samples[s->n - 1].ts_us > now_us + gap_us)
        return false;
    for (size_t i = 0; i < s->n; i++)
        if (!isfinite(s->samples[i].value) || (i && s->samples[i].ts_us - s->samples[i - 1].ts_us > gap_us))
            return false;
    return true;
}

static const char *host_or(const struct source_series *s)
{
    return *s->host ? s->host : "a series";
}

/* Every node has a series. */
static bool covered(const struct source_answer *a, const char *nodes, char detail[MEASURE_DETAIL_MAX])
{
    ADV_AUTO(adv_hostlist) missing = adv_hostlist_new(NODES_MAX);
    ADV_AUTO(adv_hostlist) shorts = adv_hostlist_new(NODES_MAX);
    char host[64];

    if (!missing || !shorts || adv_hostlist_parse(missing, nodes, NULL) < 0 || adv_hostlist_count(missing) == 0) {
        (void) unknown(detail, "the nodes of the attempt are not known");
        return false;
    }
    for (size_t i = 0; i < adv_hostlist_count(missing); i++) {
        const char *n = adv_hostlist_nth(missing, i);
        if (!source_host(n, strlen(n), host) || adv_hostlist_add(shorts, host, NULL) < 0) {
            (void) unknown(detail, "the node %.64s is none that series name", n);
            return false;
        }
    }
    for (size_t i = 0; i < a->n_series; i++)
        (void) adv_hostlist_remove(shorts, a->series[i].host);
    if (adv_hostlist_count(shorts) == 0)
        return true;
    (void) unknown(detail, "no series of %.64s", adv_hostlist_nth(shorts, 0));
    return false;
}

enum idleness measure_idle(const struct source_measure *m, const struct source_answer *a, const char *nodes, int64_t now_us,
                           size_t *most_series, char detail[MEASURE_DETAIL_MAX])
{
    int64_t since_us = 0;

    if (a->n_series > *most_series)
        *most_series = a->n_series;
    for (size_t i = 0; i < a->n_series; i++)
        if (busy(m, &a->series[i])) {
            (void) snprintf(detail, MEASURE_DETAIL_MAX, "%.64s is not", host_or(&a->series[i]));
            return IDLE_NO;
        }
    if (a->n_series == 0)
        return unknown(detail, "no series");
    if (a->partial)
        return unknown(detail, "the answer is not whole");
    if (a->n_series < *most_series)
        return unknown(detail, "%zu series, where there were %zu", a->n_series, *most_series);
    for (size_t i = 0; i < a->n_series; i++) {
        const struct source_series *s = &a->series[i];
        if (!whole(m, s, now_us))
            return unknown(detail, "a gap in the samples of %.64s", host_or(s));
        if (s->samples[0].ts_us > since_us)
            since_us = s->samples[0].ts_us;
    }
    if (m->node_label && !covered(a, nodes, detail))
        return IDLE_UNKNOWN;
    (void) snprintf(detail, MEASURE_DETAIL_MAX, "%zu series for %" PRId64 " s", a->n_series, (now_us - since_us) / 1000000);
    return IDLE_YES;
}

bool measure_rose(const struct source_measure *m, const struct source_answer *a, int64_t now_us, struct measure_counter *c,
                  bool *ret_stale)
{
    const struct source_sample *best = NULL;
    bool rose;

    for (size_t i = 0; i < a->n_series; i++) {
        const struct source_series *s = &a->series[i];
        const struct source_sample *v = s->n ? &s->samples[s->n - 1] : NULL;
        if (v && isfinite(v->value) && v->value >= 0 && v->ts_us >= now_us - m->max_age_ms * 1000 &&
            v->ts_us <= now_us + m->max_age_ms * 1000 && (!best || v->value > best->value))
            best = v;
    }
    *ret_stale = !best;
    if (!best)
        return false;
    rose = c->known && best->ts_us > c->ts_us && best->value > c->value;
    *c = (struct measure_counter) { true, best->ts_us, best->value };
    return rose;
}
