/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_TAIL_FRAME_H
#define ADVISOR_TAIL_FRAME_H

/* What advisor-tail and the agent say to each other over the helper's stdin and stdout. Both sides
 * read the other as untrusted: the helper runs as the job's owner, who may at least kill it.
 *
 * A frame is type (1 byte), file id (4), payload length (4), payload; numbers are little-endian.
 * Libc only, because the helper links nothing else. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAIL_FRAME_HEAD    9
#define TAIL_PAYLOAD_MAX   (32u * 1024 + 8)
#define TAIL_DATA_MAX      (32u * 1024)
#define TAIL_PATH_MAX      4096
#define TAIL_FILES_MAX     4096 /* of one helper */
#define TAIL_CREDIT_MAX    (1u << 20)
#define TAIL_CREDIT_LOW    1024u /* with less nothing is read: a token must not go out in pieces for want of credit */
#define TAIL_OFFSET_END    UINT64_MAX /* OPEN: start at the size the file has then */
#define TAIL_PAGE_FD       3
#define TAIL_BEHIND_MS     5000
#define TAIL_TICK_MS       1000 /* the helper's loop turns as often, at least */
#define TAIL_OPEN_HEAD     24 /* before the path */

enum tail_frame_type {
    /* agent → helper */
    TAIL_FRAME_OPEN = 1,   /* u64 offset, u64 max lag (0: none), u64 born after (0: any), path */
    TAIL_FRAME_CLOSE = 2,
    TAIL_FRAME_CREDIT = 3, /* u32 bytes that may be sent on top */
    /* helper → agent */
    TAIL_FRAME_OPENED = 16,    /* u64 device, u64 inode, u64 size, u64 offset */
    TAIL_FRAME_DATA = 17,      /* u64 offset, bytes; a jump forward means bytes were left out */
    TAIL_FRAME_TRUNCATED = 18, /* goes on at 0 */
    TAIL_FRAME_ROTATED = 19,   /* another file is at the path; goes on at its 0 */
    TAIL_FRAME_ERROR = 20,     /* text; the helper tries again by itself */
    TAIL_FRAME_TICK = 21,      /* at least each second */
    TAIL_FRAME_BEHIND = 22,    /* bytes of the file have waited for credit longer than TAIL_BEHIND_MS */
    TAIL_FRAME_CAUGHT_UP = 23, /* none wait any more */
};

struct tail_frame {
    enum tail_frame_type type;
    uint32_t id;
    const uint8_t *payload; /* borrowed from the input */
    size_t len;
};

/* The page shared by both: what the helper is about to touch. Written by the helper before each
 * system call on a file, so that the agent can tell which one hangs. */
struct tail_page {
    uint32_t magic; /* TAIL_PAGE_MAGIC once the helper has dropped its rights */
    uint32_t current_id; /* 0: none */
};
#define TAIL_PAGE_MAGIC 0x4c494154u

/* Looks at the start of @data. Returns the frame's whole length, 0 if more bytes are needed, -1 if
 * this is no frame (unknown type, wrong length): give the peer up. */
long tail_frame_parse(const uint8_t *data, size_t len, struct tail_frame *ret_frame);

void tail_frame_head(uint8_t head[TAIL_FRAME_HEAD], enum tail_frame_type type, uint32_t id,
                     size_t len);

static inline uint64_t tail_get(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t) p[i] << (8 * i);
    return v;
}

static inline void tail_put(uint8_t *p, unsigned bytes, uint64_t v)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t) (v >> (8 * i));
}

#endif
