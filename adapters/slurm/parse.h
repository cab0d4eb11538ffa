/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_SLURM_PARSE_H
#define ADV_ADAPTERS_SLURM_PARSE_H

/* What Slurm's tools print, read into the adapter's shapes. Pure: bytes in, structs out; all input is hostile.
 * Any thread, never blocks. */

#include "adapters/adapter.h"
#include "common/buf.h"

/* ---- squeue -O: the fields of one job, in this order, each followed by the separator; Reason is last, as it is the
 * only one that is free text (of Slurm's own). */
#define SLURM_JOB_FIELDS 24

/* The -O argument for separator @sep, e.g. "|". */
adv_must_check int slurm_job_format(const char *sep, struct adv_buf *out);

/* Reads all lines; the components of a heterogeneous job become one. The text is taken over and cut in place: the
 * observation's strings point into it.
 * A line that does not fit makes the result incomplete ("malformed"), never shorter.
 * Owner: caller. NULL when memory is gone. */
adv_must_check struct adapter_observation *slurm_parse_jobs(char *text, size_t len);

/* ---- One job with its user text. Name, comment and paths may hold any byte, also newlines and text that looks like
 * other fields; so the adapter draws 128 random bits for each call and puts them between the fields. What stands
 * between two separators is one value, whatever it holds. */
#define SLURM_NONCE_SIZE 36
void slurm_nonce(char out[SLURM_NONCE_SIZE]);

/* The -O argument. */
adv_must_check int slurm_detail_format(const char *nonce, struct adv_buf *out);
/* Finds the record of @id. @text is cut in place; the result does not point into it.
 * Owner: caller. Errors: -ADV_NOT_FOUND (no records at all); -ADV_INVALID_ARGUMENT (records, but of other ids: @id is
 * an array's bare id, or no component); -ADV_DATA_LOSS (not as asked for); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int slurm_parse_detail(char *text, size_t len, const char *nonce, const char *id,
                                      struct adapter_job_detail **ret, struct adv_err *err);

/* The excluded nodes have no name that all releases take in -O; they come from -o, without user text. */
#define SLURM_EXCLUDED_FORMAT "%i|%V|%x"
/* Fills @d->excluded_nodes, and that of each component. Errors: -ADV_ABORTED (not all there with the same submit times: read
 * again). */
adv_must_check int slurm_parse_excluded(char *text, size_t len, struct adapter_job_detail *d, struct adv_err *err);

/* Resolves Slurm's file name pattern for the batch script's output of @job (@name, @workdir, first node).
 * Errors: -ADV_RESOURCE_EXHAUSTED; -ADV_INVALID_ARGUMENT (a specifier that only exists per step). */
adv_must_check int slurm_expand_path(const char *pattern, const struct adapter_job *job, const char *name,
                                     const char *workdir, struct adv_buf *out, struct adv_err *err);

/* ---- scontrol show job ID --json=v0.0.42, where a release has it: the end state that text hides while COMPLETING.
 * UNKNOWN_STATE when the answer is not about exactly @job (record number, task, submit time). */
enum adapter_job_state slurm_parse_end_state(const char *text, size_t len, const struct adapter_job *job);

/* ---- sinfo -h -N -O with '|' */
#define SLURM_NODE_FORMAT "NodeList:|,StateLong:|,Partition:|,Features_act:|,Reason:|"
adv_must_check struct adapter_node_list *slurm_parse_nodes(char *text, size_t len);

/* ---- scontrol show config */
struct slurm_site {
    char version[32];
    char cluster[64];
    char slurm_user[64];
    bool private_jobs;
    bool accounting;
    int64_t min_job_age_s;
};
/* Errors: -ADV_DATA_LOSS (no ClusterName in it). */
adv_must_check int slurm_parse_config(const char *text, size_t len, struct slurm_site *ret, struct adv_err *err);

/* ---- scontrol -o show reservation NAME: appends its node list.
 * Errors: -ADV_DATA_LOSS (it has none to show). */
adv_must_check int slurm_parse_reservation(const char *text, size_t len, struct adv_buf *out, struct adv_err *err);

/* ---- scontrol -o show assoc_mgr flags=users users=X */
enum adapter_privilege slurm_parse_assoc(const char *text, size_t len, const char *user);

/* "CANCELLED by 1000": who did. False: it does not say. */
bool slurm_acct_canceller(const char *state_text, uint32_t *ret_uid);

/* ---- sacct -n -X -P [-D] -o SLURM_ACCT_FIELDS (times as unix seconds) */
#define SLURM_ACCT_FIELDS "JobID,Submit,Start,End,ExitCode,NodeList,State"
struct slurm_acct_row { /* texts are borrowed for the call */
    const char *id; /* "7", "7_2", or "7_[1-3,5]" for tasks that never were on their own */
    int64_t submit_s, start_s, end_s; /* 0: not known */
    struct adapter_exit exit;
    const char *nodes; /* "" when none */
    enum adapter_job_state state;
    const char *state_text; /* "CANCELLED by 1000" */
};
typedef void (*slurm_acct_fn)(void *arg, const struct slurm_acct_row *row);
void slurm_parse_acct(const char *text, size_t len, slurm_acct_fn fn, void *arg);
/* Adds @id to the comma separated list that sacct is asked for, once. By its number alone: sacct knows tasks that never were
 * on their own only as "7_[1-3]", and not by "7_2". */
void slurm_acct_add_id(struct adv_buf *ids, const char *id);
/* Does a row's id speak for job @id? */
bool slurm_acct_covers(const char *row_id, const char *id);

/* ---- words */
enum adapter_job_state slurm_state(const char *word, bool *ret_completing);

/* What a tool's error text says. */
enum slurm_answer {
    SLURM_ANSWER_UNCLEAR = 0, /* no contact, time-out, or not understood: it may have been done */
    SLURM_ANSWER_PENDING,     /* "Job is pending execution" */
    SLURM_ANSWER_FINISHED,    /* "Job has already finished", "no longer pending" */
    SLURM_ANSWER_DISABLED,    /* Requeue=0 */
    SLURM_ANSWER_NOT_BATCH,
    SLURM_ANSWER_NO_JOB,
    SLURM_ANSWER_DENIED,
    SLURM_ANSWER_BAD_NODE,
    SLURM_ANSWER_DEPENDENCY, /* the list of dependencies is refused: a job of it is gone, or a circle */
    SLURM_ANSWER_REFUSED, /* another clear no */
};
enum slurm_answer slurm_parse_answer(const char *err_text);

/* Reads "123", "46_5", "56+1". @ret_task and @ret_offset are -1 where absent.
 * Errors: -ADV_INVALID_ARGUMENT. */
adv_must_check int slurm_parse_id(const char *id, uint32_t *ret_base, int64_t *ret_task, int32_t *ret_offset,
                                  struct adv_err *err);

/* ---- het.c: components of heterogeneous jobs */

/* What joining allocates hangs on the observation's priv_, behind the text. */
struct slurm_texts {
    char *text;
    char **more;
    size_t n_more;
};
/* Makes one job of each set of components in @o. Errors: -ADV_RESOURCE_EXHAUSTED; -ADV_DATA_LOSS (a list of nodes that cannot be
 * read, or more components than Slurm allows). */
adv_must_check int slurm_join_components(struct adapter_observation *o, struct slurm_texts *texts);
/* The same for one that is read in full: d->parts are there, d->job is the leader's. */
adv_must_check int slurm_join_parts(struct adapter_job_detail *d);

/* ---- building a detail: strings live as long as it. */
adv_must_check struct adapter_job_detail *slurm_detail_new(const struct adapter_job *job);
/* A copy owned by @d, or "" when memory is gone. */
const char *slurm_detail_str(struct adapter_job_detail *d, const char *s);

#endif
