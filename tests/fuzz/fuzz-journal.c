/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's journal as it lies on the disk: what its owner makes of it, and what the watchdog sees from outside. The
 * watchdog never sees a hold that its owner would not. */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor-agent/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/tmp/fuzz-journal-XXXXXX", file[64], lock[64];

static void remove_all(void)
{
    (void) unlink(file);
    (void) unlink(lock);
    (void) rmdir(dir);
}

static void begin(void)
{
    if (!mkdtemp(dir))
        abort();
    (void) snprintf(file, sizeof(file), "%s/journal", dir);
    (void) snprintf(lock, sizeof(lock), "%s/lock", dir);
    (void) atexit(remove_all);
}

static void put(const uint8_t *data, size_t size)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, data, size) != (ssize_t) size || close(fd) < 0)
        abort();
}

static size_t holds_seen(struct journal_view *v)
{
    struct journal_story story;
    const struct journal_hold *h;
    size_t pos = 0, n = 0;

    while ((h = journal_view_next_hold(v, &pos)) && n++ < 8)
        if (journal_view_job(v, h->job, &story, NULL) == 0 && story.requeue.seq && story.requeue.intent.adds)
            abort(); /* a reader of this kind keeps no texts */
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct journal_view *half = NULL, *whole = NULL, *steps = NULL;
    struct journal *j = NULL;
    struct adv_err err;
    size_t n = 0, pos = 0;
    bool changed;

    if (!file[0])
        begin();
    if (journal_view_new(dir, JOURNAL_VIEW_HOLDS, &half, NULL) < 0 || journal_view_new(dir, JOURNAL_VIEW_HOLDS, &whole, NULL) < 0 ||
        journal_view_new(dir, JOURNAL_VIEW_STEPS, &steps, NULL) < 0)
        abort();
    put(data, size / 2);
    if (journal_view_refresh(half, &changed, &err) < 0 && holds_seen(half))
        abort();
    put(data, size); /* as if it had grown */
    int r = journal_view_refresh(whole, &changed, &err), r_half = journal_view_refresh(half, &changed, &err);
    size_t seen = holds_seen(whole);
    if (r_half != r || holds_seen(half) != seen || (r < 0 && seen))
        abort();
    if (journal_view_refresh(steps, &changed, &err) == 0)
        while (journal_view_next_step(steps, &pos))
            n++;
    if (journal_open(dir, true, NULL, &j, &err) == 0) {
        size_t own = 0;
        pos = 0;
        while (journal_next_hold(j, &pos))
            own++;
        if (journal_may_act(j, &err) == 0 && (r < 0 || (own < 8 && seen != own)))
            abort();
        (void) journal_free(j);
    }
    (void) journal_view_free(half);
    (void) journal_view_free(whole);
    (void) journal_view_free(steps);
    return n == SIZE_MAX;
}
