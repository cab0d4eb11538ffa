/* SPDX-License-Identifier: Apache-2.0 */

/* Every reader of the doctor: what Slurm's tools print, lists of mounts, command lines. The first byte picks one. What it read
 * is then judged and printed, which must give JSON that can be read, whatever stands in it. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "advisor-agent/doctor/read.h"
#include "advisor-agent/doctor/report.h"
#include "common/json.h"
#include "common/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void clean(const char *s)
{
    must(adv_utf8_valid(s, strlen(s)));
    for (; *s; s++)
        must((unsigned char) *s >= ' ');
}

static void on_node(void *arg, const char *name, const char *host, int64_t start_s)
{
    clean(name);
    clean(host);
    must(start_s >= 0);
    *(size_t *) arg += 1;
}

static void on_comment(void *arg, const char *job, const char *comment)
{
    must(strlen(job) <= 10);
    *(size_t *) arg += strlen(comment);
}

static void report(const struct doctor_facts *f)
{
    struct doctor_findings *found = calloc(1, sizeof(*found));
    ADV_AUTO_DONE(adv_buf) out = { 0 };
    ADV_JSON_AUTO json_t *root = NULL;

    if (!found)
        return;
    adv_buf_init(&out, 4u << 20);
    doctor_judge(f, found);
    must(doctor_report_json(f, found, &out) == 0 && adv_json_parse(out.data, out.len, 4u << 20, &root, NULL) == 0);
    adv_buf_reset(&out);
    must(doctor_report_text(f, found, 40, &out) == 0);
    free(found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct doctor_facts *f = calloc(1, sizeof(*f));
    char said[DOCTOR_SAID_SIZE], small[64], *flags[8];
    const char *config;
    uid_t real, effective;
    size_t len = size ? size - 1 : 0, n = 0;
    char *text = malloc(len + 1);

    if (!f || !text || size < 1) {
        free(f);
        free(text);
        return 0;
    }
    if (len)
        memcpy(text, data + 1, len);
    text[len] = '\0';
    f->cluster = f->target = f->config_file = f->tail_helper = f->ceiling_path = f->tls_cert = f->tls_key = f->slurm_user_name = f->bin_dir = "x";
    f->poll_ms = 15000;
    f->command_deadline_ms = 12000;
    f->action_deadline_ms = 90000;
    f->slurm.ping.end = DOCTOR_ANSWERED;
    switch (data[0] % 9) {
    case 0:
        doctor_read_settings(text, len, &f->slurm.set);
        clean(f->slurm.set.cluster);
        clean(f->slurm.set.requeue_exit);
        break;
    case 1:
        f->slurm.ping.end = DOCTOR_REFUSED;
        f->slurm.ping.complaint = doctor_read_complaint(text, len);
        doctor_read_said(text, len, f->slurm.ping.said);
        clean(f->slurm.ping.said);
        break;
    case 2:
        (void) doctor_read_ping(text, len, f->slurm.controllers_down, sizeof(f->slurm.controllers_down));
        clean(f->slurm.controllers_down);
        break;
    case 3:
        doctor_read_version(text, len, f->slurm.client_version);
        must(!f->slurm.client_version[0] || doctor_release(f->slurm.client_version));
        must(doctor_read_ctld_clock(text, len) >= 0);
        break;
    case 4:
        doctor_read_nodes(text, len, on_node, &n);
        break;
    case 5:
        (void) doctor_read_comments(text, len, "@s@", on_comment, &n);
        break;
    case 6:
        doctor_read_federation(text, len, f->slurm.federation_name, sizeof(f->slurm.federation_name));
        clean(f->slurm.federation_name);
        f->slurm.n_clusters = doctor_read_clusters(text, len);
        break;
    case 7:
        doctor_mount_type(text, len, 0, 42, small, sizeof(small));
        clean(small);
        (void) doctor_is_network(small);
        (void) doctor_read_uids(text, len, &real, &effective);
        doctor_common_codes(text, "0-99,3", said, sizeof(said));
        break;
    default:
        must(doctor_read_cmdline(text, len, flags, 8, &config) <= 8);
        break;
    }
    if (data[0] % 9 != 8)
        report(f);
    free(text);
    free(f);
    return 0;
}
