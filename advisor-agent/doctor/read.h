/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_DOCTOR_READ_H
#define ADVISOR_DOCTOR_READ_H

/* What Slurm's tools and the kernel print when the doctor asks, read into facts. All input is hostile: it may be anything, and whatever is
 * not understood stays unknown. Texts are NUL-terminated after @len.
 *
 * Pure. Any thread, never blocks. */

#include <sys/types.h>

#include "advisor-agent/doctor/facts.h"

/* One line of UTF-8 without control characters, cut to @cap. */
void doctor_clean(char *dst, size_t cap, const void *bytes, size_t len);

/* What is wrong, by a tool's stderr (or, for ping, stdout). */
enum doctor_complaint doctor_read_complaint(const char *text, size_t len);
/* The line of it that says most: the first of a complaint that is understood, else of an error, else of all. */
void doctor_read_said(const char *text, size_t len, char ret[DOCTOR_SAID_SIZE]);

/* scontrol -V: "slurm-wlm 22.05.8" -> "22.05.8"; "" if it is something else. */
void doctor_read_version(const char *text, size_t len, char ret[32]);
/* "22.05.8" -> 2205; 0: not understood. */
unsigned doctor_release(const char *version);

/* scontrol ping: is one UP? @ret_down lists those that are DOWN beside it, as Slurm calls them. */
enum doctor_tri doctor_read_ping(const char *text, size_t len, char *ret_down, size_t cap);

/* scontrol show config. Not known without a ClusterName in it. */
void doctor_read_settings(const char *text, size_t len, struct doctor_settings *ret);

/* The codes in both of two lists like "1-3,7", in the same shape; "" when there are none. */
void doctor_common_codes(const char *a, const char *b, char *ret, size_t cap);

/* sdiag: the clock of slurmctld. 0: not told. */
int64_t doctor_read_ctld_clock(const char *text, size_t len);

/* scontrol -o show nodes: each node's name, host and when its slurmd started by the node's own clock (0: not told). */
typedef void (*doctor_node_fn)(void *arg, const char *name, const char *host, int64_t slurmd_start_s);
void doctor_read_nodes(const char *text, size_t len, doctor_node_fn fn, void *arg);

/* squeue -O "JobID:SEP,Comment:SEP": each job's comment. @text is cut in place.
 * False: it is not as asked for; what came before was told. */
typedef void (*doctor_comment_fn)(void *arg, const char *job, const char *comment);
bool doctor_read_comments(char *text, size_t len, const char *sep, doctor_comment_fn fn, void *arg);

/* scontrol show federation: its name, "" when there is none. */
void doctor_read_federation(const char *text, size_t len, char *ret, size_t cap);
/* sacctmgr -n -P show cluster format=Cluster: how many. */
size_t doctor_read_clusters(const char *text, size_t len);

/* The type of the file system with this device by /proc/self/mountinfo; "" if it is not told. */
void doctor_mount_type(const char *mounts, size_t len, unsigned dev_major, unsigned dev_minor, char *ret, size_t cap);
/* "nfs4", "lustre": is it shared by hosts? UNKNOWN for what may or may not be (fuse). */
enum doctor_tri doctor_is_network(const char *type);

/* /proc/PID/status: whose process it is. False: not told. */
bool doctor_read_uids(const char *text, size_t len, uid_t *ret_real, uid_t *ret_effective);

/* From an agent's command line as /proc has it: the words after argv[0], at most @max, and the file of --config ("").
 * @text is cut in place; what is returned points into it. Returns how many flags of settings there are. */
int doctor_read_cmdline(char *text, size_t len, char **ret_flags, int max, const char **ret_config);

#endif
