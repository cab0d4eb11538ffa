/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_ISOLATOR_ISOLATOR_H
#define CONTROLPLANE_ISOLATOR_ISOLATOR_H

/* What stands between a provider of attributions (proto/advisor/v1/attribution_service.proto) and the domain: the question
 * as a message, the answer as something that the domain may see, and when to leave a provider alone. No I/O; who calls is
 * controlplane/attribute.c.
 *
 * A provider is somebody else's program. It may say what it likes; here that is bounded, and what makes no sense is told and
 * left out. What is made of the rest is the domain's (domain/attribution.c).
 *
 * Thread: loop thread.  Blocks: no. */

#include "advisor/v1/attribution_service.pb-c.h"

#include "common/arena.h"
#include "controlplane/domain/fleet.h"

#define ISOLATOR_ATTRIBUTIONS_MAX 4    /* of one answer, the likeliest */
#define ISOLATOR_NODES_MAX        1024 /* of one attribution; who names more names nobody */
#define ISOLATOR_EARLIER_MAX      10
#define ISOLATOR_ANSWER_MAX       (256 << 10) /* bytes */
#define ISOLATOR_NOTE_MAX         300

/* The question about @a, in @ar; it may borrow texts of @a: pack it before the fleet changes. NULL: the arena is exhausted. */
Advisor__V1__AttributeRequest *isolator_question(struct adv_arena *ar, const struct attempt *a, enum attribution_phase phase,
                                                 uint32_t budget_ms);

struct isolator_answer {
    struct attribution v[ISOLATOR_ATTRIBUTIONS_MAX]; /* borrows from the message */
    size_t n;
    char note[ISOLATOR_NOTE_MAX]; /* what was left out, for people; "" for nothing */
};

/* Never fails: what cannot be used is in the note. @excerpt covers secrets in a text in place; NULL: nobody does. */
void isolator_read(const Advisor__V1__AttributeResponse *m, void (*excerpt)(void *ctx, char *text), void *ctx,
                   struct isolator_answer *ret);

/* A provider that fails is left alone for a while that grows; then one question tries whether it is back. Zero at first. */
struct isolator_breaker {
    unsigned fails; /* in a row */
    int64_t closed_until_us; /* CLOCK_MONOTONIC; nobody asks before */
    bool trying;
};
#define ISOLATOR_FAILS       3 /* in a row, before it is left alone */
#define ISOLATOR_PAUSE_MIN_US (1000 * 1000LL)
#define ISOLATOR_PAUSE_MAX_US (300 * 1000000LL)

/* May it be asked now? If so, that has to be followed by one of the next three. */
bool isolator_may_ask(struct isolator_breaker *b, int64_t mono_us);
void isolator_answered(struct isolator_breaker *b);
/* @lot: any number, for jitter. Returns how long it is left alone from now on; 0: not. */
int64_t isolator_failed(struct isolator_breaker *b, int64_t mono_us, uint32_t lot);
/* It says nothing of the provider: we ended it. */
void isolator_called_off(struct isolator_breaker *b);

#endif
