/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's journal as it lies on the disk: what its owner makes of it, and what the watchdog sees from outside. The
 * watchdog never sees a hold that its owner would not.
 *
 * After a first byte '#' each line is given its sum, so that what lies behind the sum is tried as well. */

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

static uint32_t sum_of(const uint8_t *data, size_t len)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int b = 0; b < 8; b++)
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* The caller frees it. */
static uint8_t *with_sums(const uint8_t *data, size_t size, size_t *ret_size)
{
    uint8_t *out = malloc(20 * size + 20);
    size_t n = 0;

    if (!out)
        abort();
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t) (end - data) + 1 - at : size - at;
        n += (size_t) snprintf((char *) out + n, 20, "{\"crc\":\"%08x\",", sum_of(data + at, len));
        memcpy(out + n, data + at, len);
        n += len;
        at += len;
    }
    *ret_size = n;
    return out;
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
    uint8_t *own_sums = NULL;
    bool changed;

    if (!file[0])
        begin();
    if (size && data[0] == '#')
        data = own_sums = with_sums(data + 1, size - 1, &size);
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
    free(own_sums);
    (void) journal_view_free(half);
    (void) journal_view_free(whole);
    (void) journal_view_free(steps);
    return n == SIZE_MAX;
}
