/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_REDACT_H
#define ADV_WATCHER_REDACT_H

/* Takes secrets out of text before anything of it is kept. Agents do it at the source (advisor-agent/tail); what comes from
 * elsewhere, or from an older agent, is covered here. Thread: any. Used by this folder alone. */

#include <stdbool.h>
#include <stddef.h>

/* Replaces each secret in @text by "***" in place. There is room for one byte behind @len. @whole: the text ends where its line
 * does; else its last token may have been cut, and goes if it can be a secret. Returns the new length, never more than @len. The
 * offset *mark (may be NULL) is moved along with the text in front of it. */
size_t redact_text(char *text, size_t len, bool whole, size_t *mark);

#endif
