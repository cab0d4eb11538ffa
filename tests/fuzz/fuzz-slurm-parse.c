/* SPDX-License-Identifier: Apache-2.0 */

/* Every parser of what Slurm's tools print. The first byte picks the parser; for the detail a fixed separator stands
 * for the random one. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/slurm/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_row(void *arg, const struct slurm_acct_row *row)
{
    if (slurm_acct_covers(row->id, "7_2"))
        (*(unsigned *) arg)++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct adapter_job job = { .raw_id = 7, .array_task = -1, .submit_s = 1000, .id = "7", .state_text = "", .reason = "",
                               .nodes = "n[1-2]", .user = "u", .account = "", .partition = "", .qos = "" };
    struct adapter_job_detail *d = NULL;
    struct slurm_site site;
    unsigned rows = 0;
    uint32_t base;
    int64_t task;
    int32_t offset;
    char *text;
    size_t len;

    if (size < 1 || !(text = malloc(size)))
        return 0;
    len = size - 1;
    memcpy(text, data + 1, len);
    text[len] = '\0';
    switch (data[0] % 8) {
    case 0:
        (void) adapter_observation_free(slurm_parse_jobs(text, len));
        return 0;
    case 1:
        (void) adapter_node_list_free(slurm_parse_nodes(text, len));
        return 0;
    case 2:
        (void) !slurm_parse_detail(text, len, "@N@", "7", &d, NULL);
        break;
    case 3:
        if ((d = slurm_detail_new(&job)))
            (void) !slurm_parse_excluded(text, len, d, NULL);
        break;
    case 4:
        (void) slurm_parse_end_state(text, len, &job);
        break;
    case 5:
        (void) !slurm_parse_config(text, len, &site, NULL);
        (void) slurm_parse_assoc(text, len, "u");
        {
            ADV_AUTO_DONE(adv_buf) b = { 0 };
            adv_buf_init(&b, 4096);
            (void) !slurm_parse_reservation(text, len, &b, NULL);
        }
        break;
    case 6:
        slurm_parse_acct(text, len, on_row, &rows);
        (void) slurm_parse_answer(text);
        (void) !slurm_parse_id(text, &base, &task, &offset, NULL);
        break;
    default: {
        ADV_AUTO_DONE(adv_buf) b = { 0 };
        adv_buf_init(&b, 4096);
        (void) !slurm_expand_path(text, &job, "name", "/w", &b, NULL);
    }
    }
    (void) adapter_job_detail_free(d);
    free(text);
    return 0;
}
