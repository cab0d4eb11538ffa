/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/redact.h"

#include "common/redact.h"

#define COVERED '\1' /* no text that is shown has it */

size_t redact_text(char *text, size_t len, bool whole, size_t *mark)
{
    struct adv_redact r = { .mask = COVERED };
    size_t done, to = 0, at = mark ? *mark : 0;

    text[len] = whole ? '\n' : 'x'; /* ends the last token, or leaves it open */
    done = adv_redact(&r, (uint8_t *) text, len + 1);
    if (done < len)
        adv_redact_rest(&r, (uint8_t *) text + done, len - done);
    for (size_t i = 0, run = 0; i < len; i++) {
        if (mark && i == at)
            *mark = to;
        run = text[i] == COVERED ? run + 1 : 0;
        if (run <= 3)
            text[to++] = run ? '*' : text[i];
    }
    if (mark && at >= len)
        *mark = to;
    return to;
}
