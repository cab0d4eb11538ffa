/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "advisor-agent/tail/frame.h"
#include "advisor-agent/tail/tail.h"

Test(tail_frame, round_trip_at_every_cut)
{
    uint8_t wire[TAIL_FRAME_HEAD + 11];
    struct tail_frame f;

    tail_frame_head(wire, TAIL_FRAME_DATA, 0x01020304, 11);
    tail_put(wire + TAIL_FRAME_HEAD, 8, 0x1122334455667788);
    memcpy(wire + TAIL_FRAME_HEAD + 8, "abc", 3);
    for (size_t n = 0; n < sizeof(wire); n++)
        cr_assert_eq(tail_frame_parse(wire, n, &f), 0);
    cr_assert_eq(tail_frame_parse(wire, sizeof(wire), &f), (long) sizeof(wire));
    cr_assert_eq(f.id, 0x01020304);
    cr_assert_eq(f.len, 11);
    cr_assert_eq(tail_get(f.payload, 8), 0x1122334455667788);
}

Test(tail_frame, refuses_what_is_no_frame)
{
    static const struct {
        uint8_t type;
        uint32_t len;
    } bad[] = { { 0, 0 },  { 99, 0 }, { TAIL_FRAME_TICK, 1 },  { TAIL_FRAME_DATA, 8 },
                { TAIL_FRAME_DATA, TAIL_DATA_MAX + 9 }, { TAIL_FRAME_OPENED, 31 },
                { TAIL_FRAME_ERROR, 201 }, { TAIL_FRAME_OPEN, 24 }, { TAIL_FRAME_BEHIND, 1 }, { TAIL_FRAME_CREDIT, 0xffffffff } };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        uint8_t head[TAIL_FRAME_HEAD];
        struct tail_frame f;
        tail_frame_head(head, (enum tail_frame_type) bad[i].type, 1, bad[i].len);
        cr_assert_eq(tail_frame_parse(head, sizeof(head), &f), -1, "%zu", i);
    }
}

Test(tail_start, rule)
{
    struct tail_start s = tail_start_rule(false, false, false, 0);
    cr_assert(s.offset == 0 && s.known);
    s = tail_start_rule(false, true, true, 77);
    cr_assert(s.offset == 77 && s.known);
    s = tail_start_rule(true, true, false, 0);
    cr_assert(s.offset == 0 && !s.known);
    s = tail_start_rule(false, true, false, 0);
    cr_assert(s.offset == TAIL_START_AT_END && !s.known);
}

Test(tail_start, paths_that_name_their_job)
{
    static const struct {
        const char *path, *id;
        bool has;
    } t[] = { { "/w/slurm-17.out", "17", true },     { "/w/slurm-17.out", "7", false },
              { "/w/17", "17", true },               { "/w/171/17x", "17", true },
              { "/w/log.out", "17", false },         { "/w/slurm-46_5.out", "46_5", true },
              { "/w/slurm-46.out", "46_5", false },  { "/w/46/5.log", "46_5", true },
              { "/w/slurm-46_15.out", "46_5", false }, { "/w/56.out", "56+1", true },
              { "/w/x", "", false } };

    for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
        cr_assert_eq(tail_path_has_id(t[i].path, strlen(t[i].path), t[i].id), t[i].has, "%s %s", t[i].path, t[i].id);
}
