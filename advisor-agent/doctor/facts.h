/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_DOCTOR_FACTS_H
#define ADVISOR_DOCTOR_FACTS_H

/* What the doctor found out about a site, before anything is concluded from it. gather.c and host.c fill it, judge.c reads it;
 * tests make it by hand or from recorded answers. Zero means "not known" everywhere: unknown is never taken for good or bad.
 *
 * Texts from outside have gone through doctor_clean(): one line of UTF-8 without control characters. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adapters/adapter.h"
#include "common/err.h"

enum doctor_tri { DOCTOR_UNKNOWN = 0, DOCTOR_YES, DOCTOR_NO };

#define DOCTOR_SAID_SIZE 256

/* What a tool's error text complains of. */
enum doctor_complaint {
    DOCTOR_COMPLAINT_NONE = 0, /* nothing that is understood */
    DOCTOR_NO_MUNGE,           /* munge's socket does not answer */
    DOCTOR_BAD_CREDENTIAL,     /* it answers, and slurmctld takes no credential of ours */
    DOCTOR_BAD_CONF,           /* slurm.conf cannot be understood */
    DOCTOR_DENIED,
    DOCTOR_NO_CONTACT,
    DOCTOR_NO_DBD, /* slurmdbd */
};

enum doctor_end {
    DOCTOR_NOT_ASKED = 0,
    DOCTOR_ANSWERED, /* exit code 0 */
    DOCTOR_REFUSED,  /* another exit code */
    DOCTOR_SILENT,   /* killed after its deadline */
    DOCTOR_NO_TOOL,  /* nothing ran */
    DOCTOR_TOO_MUCH, /* more output than is read */
};

struct doctor_answer {
    enum doctor_end end;
    enum doctor_complaint complaint;
    int exit_code;
    int64_t took_ms;
    char said[DOCTOR_SAID_SIZE]; /* first line that tells something */
};

/* `scontrol show config`, as far as it matters. Times in seconds, -1: not told. */
struct doctor_settings {
    bool known;
    char version[32], cluster[64], slurm_user[64];
    char auth_type[48], accounting_type[64];
    enum doctor_tri private_jobs, store_comment, job_requeue, file_append, node_epilog, ctld_epilog, rate_limit;
    int64_t min_job_age_s, kill_wait_s, complete_wait_s, inactive_limit_s, message_timeout_s;
    char requeue_exit[64], requeue_exit_hold[64];
    char requeue_both[64]; /* the codes that are in both */
};

enum doctor_output_state {
    DOCTOR_OUTPUT_NOT_TRIED = 0,
    DOCTOR_OUTPUT_READABLE,
    DOCTOR_OUTPUT_ABSENT,
    DOCTOR_OUTPUT_DENIED, /* or another reason, in said */
    DOCTOR_OUTPUT_HUNG,
    DOCTOR_OUTPUT_NO_LOG, /* nothing that is read: a device such as /dev/null, or another's file */
};

#define DOCTOR_OUTPUTS_MAX 6
struct doctor_output { /* of a running job */
    char job[ADAPTER_ID_SIZE];
    char user[64];
    uint32_t uid;
    char path[1024]; /* as it is, bytes; "" when it is not known */
    char first_node[256];
    enum doctor_tri elsewhere; /* the node that writes it is not this host */
    enum doctor_tri network;   /* it lies on a network file system here, by the device of the open file */
    enum doctor_output_state state;
    char said[DOCTOR_SAID_SIZE];
};

#define DOCTOR_COMMENTS_MAX 5
struct doctor_comment { /* a malformed one */
    char job[ADAPTER_ID_SIZE];
    char why[160];
};

struct doctor_slurm {
    /* our copy of slurm.conf: 0, or a code */
    int conf_code;
    bool no_conf; /* there is none to be found */
    char conf_said[DOCTOR_SAID_SIZE];
    char conf_source[512];

    char tools_missing[128]; /* "sacct, sinfo" */
    char client_version[32];
    struct doctor_answer ping, ping_own_conf; /* the second with the site's own slurm.conf, where the first one failed */
    char controllers_down[256];               /* of several: those that ping calls DOWN while another is UP */
    struct doctor_answer config, stats, assoc, jobs, sample, nodes, federation, clusters, accounting;
    struct doctor_settings set;

    enum adapter_privilege privilege;
    bool user_unknown; /* slurmctld knows no such user */
    bool superuser;    /* root, or SlurmUser */

    bool jobs_read;
    char jobs_why[DOCTOR_SAID_SIZE]; /* why they were not */
    size_t n_jobs, n_running;
    enum doctor_tri skew_known;
    int64_t skew_ms;       /* slurmctld's clock less ours */
    int64_t skew_sharp_ms; /* give or take */
    char node_ahead[256];  /* a node whose slurmd started in slurmctld's future */
    int64_t node_ahead_s;
    char federation_name[128];
    size_t n_clusters;

    size_t n_outputs;
    struct doctor_output outputs[DOCTOR_OUTPUTS_MAX];
    size_t n_comments; /* malformed ones, all of them */
    struct doctor_comment comments[DOCTOR_COMMENTS_MAX];
};

enum doctor_helper {
    DOCTOR_HELPER_NOT_TRIED = 0,
    DOCTOR_HELPER_WORKS,
    DOCTOR_HELPER_MISSING,
    DOCTOR_HELPER_NOT_OURS,  /* we may not run it */
    DOCTOR_HELPER_NO_RIGHTS, /* it cannot become a user */
    DOCTOR_HELPER_ODD,       /* in said */
};

enum doctor_link {
    DOCTOR_LINK_NOT_TRIED = 0,
    DOCTOR_LINK_WORKS,
    DOCTOR_LINK_UNREACHABLE,
    DOCTOR_LINK_TLS,   /* certificates do not fit, by either side's word */
    DOCTOR_LINK_FILES, /* our own cannot be used */
    DOCTOR_LINK_REFUSED, /* connected, and not taken for an agent */
};

struct doctor_host {
    int64_t wall_s; /* when this was looked at */
    char me[64];    /* the user we are */
    uint32_t uid;
    char state_owner[64];
    uint32_t state_uid;
    bool other_user; /* the state folder is another user's: what needs rights was seen as @me, and is not the agent's case */

    /* configuration */
    char config_error[DOCTOR_SAID_SIZE]; /* the file cannot be used */
    bool no_cluster, no_target;
    bool defaults_only; /* none of the site's settings is known */

    /* state folder */
    char state_dir[512];
    enum doctor_tri dir_exists, dir_creatable, dir_writable, dir_lasting;
    bool dir_open; /* others may write there */
    unsigned dir_mode;
    int64_t free_bytes; /* -1: not known */
    enum doctor_tri agent_runs;
    int journal_code; /* 0, -ADV_NOT_FOUND: none, or why it cannot be read */
    char journal_said[DOCTOR_SAID_SIZE];
    size_t open_steps, holds;
    int64_t journal_ahead_s;       /* its newest step lies so far in our future */
    char other_agent[DOCTOR_SAID_SIZE]; /* another agent of our cluster on this host; "" */

    /* ceiling */
    bool ceiling_set, ceiling_known, ceiling_off;
    char ceiling_said[DOCTOR_SAID_SIZE];

    /* helper for logs */
    bool tail_on;
    enum doctor_helper helper;
    bool helper_for_all; /* setuid, and anybody may run it */
    char helper_said[DOCTOR_SAID_SIZE];

    /* clock */
    enum doctor_tri clock_synced;
    int64_t clock_stepped_ms; /* while we looked */

    /* control plane */
    bool insecure;
    int cert_code; /* 0: read; -ADV_NOT_FOUND: none */
    int64_t cert_from_s, cert_until_s;
    char cert_cluster[256]; /* of its name advisor:agent:...; "" if it has no such name */
    bool cert_named;
    unsigned key_mode; /* not 0: others can read the key */
    enum doctor_tri renewable;
    char renew_said[DOCTOR_SAID_SIZE];
    enum doctor_link link;
    char link_said[DOCTOR_SAID_SIZE];
};

struct doctor_facts {
    /* what the agent would go by */
    const char *cluster, *target, *config_file, *tail_helper, *ceiling_path, *tls_cert, *tls_key, *slurm_user_name;
    const char *bin_dir;
    bool renew;
    int64_t poll_ms, command_deadline_ms, action_deadline_ms, landing_bound_ms, tail_min_uid;

    struct doctor_slurm slurm;
    struct doctor_host host;
    bool out_of_time; /* the doctor's own time was over before all was asked */
};

#endif
