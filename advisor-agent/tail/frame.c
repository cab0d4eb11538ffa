/* SPDX-License-Identifier: Apache-2.0 */

#include "advisor-agent/tail/frame.h"

static const struct {
    enum tail_frame_type type;
    size_t min, max;
} shapes[] = {
    { TAIL_FRAME_OPEN, TAIL_OPEN_HEAD + 1, TAIL_OPEN_HEAD + TAIL_PATH_MAX },
    { TAIL_FRAME_CLOSE, 0, 0 },
    { TAIL_FRAME_CREDIT, 4, 4 },
    { TAIL_FRAME_OPENED, 32, 32 },
    { TAIL_FRAME_DATA, 9, 8 + TAIL_DATA_MAX },
    { TAIL_FRAME_TRUNCATED, 0, 0 },
    { TAIL_FRAME_ROTATED, 0, 0 },
    { TAIL_FRAME_ERROR, 1, 200 },
    { TAIL_FRAME_TICK, 0, 0 },
    { TAIL_FRAME_BEHIND, 0, 0 },
    { TAIL_FRAME_CAUGHT_UP, 0, 0 },
};

long tail_frame_parse(const uint8_t *data, size_t len, struct tail_frame *ret_frame)
{
    size_t n;

    if (len < TAIL_FRAME_HEAD)
        return 0;
    n = (size_t) tail_get(data + 5, 4);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        if ((unsigned) shapes[i].type != data[0])
            continue;
        if (n < shapes[i].min || n > shapes[i].max)
            return -1;
        if (len < TAIL_FRAME_HEAD + n)
            return 0;
        *ret_frame = (struct tail_frame) {
            .type = shapes[i].type,
            .id = (uint32_t) tail_get(data + 1, 4),
            .payload = data + TAIL_FRAME_HEAD,
            .len = n,
        };
        return (long) (TAIL_FRAME_HEAD + n);
    }
    return -1;
}

void tail_frame_head(uint8_t head[TAIL_FRAME_HEAD], enum tail_frame_type type, uint32_t id,
                     size_t len)
{
    head[0] = (uint8_t) type;
    tail_put(head + 1, 4, id);
    tail_put(head + 5, 4, len);
}
