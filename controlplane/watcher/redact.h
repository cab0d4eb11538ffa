/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_REDACT_H
#define ADV_WATCHER_REDACT_H

/* Takes secrets out of text before anything of it is kept. Thread: one owner. Used by this folder alone. */

#include "common/err.h"

struct redact;

/* Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int redact_new(struct redact **ret, struct adv_err *err);
struct redact *redact_free(struct redact *r);

/* Replaces each secret in @text by "***" in place. Returns the new length, never more than @len. The offset *mark (may
 * be NULL) is moved along with the text in front of it. */
size_t redact_text(struct redact *r, char *text, size_t len, size_t *mark);

#endif
