/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_OTLP_H
#define CONTROLPLANE_API_OTLP_H

/* Which attempt an OTLP resource speaks of, and the lines of a record. Pure. docs/otlp.md says what senders set.
 *
 * Thread: any.  Blocks: no. */

#include "opentelemetry/proto/logs/v1/logs.pb-c.h"

#include "common/buf.h"

#define OTLP_RECORD_MAX (64 << 10) /* bytes of text of one record */

/* Why a record is not taken; counted one by one, and told by these words. */
enum otlp_fault {
    OTLP_OK,
    OTLP_NO_CLUSTER,       /* no attribute advisor.cluster */
    OTLP_NO_JOB,           /* no slurm.job.id, and no slurm.array.job.id with slurm.array.task.id */
    OTLP_NO_RESTART_COUNT, /* no slurm.restart.count: which attempt is not said */
    OTLP_MALFORMED,        /* one of them is of a wrong type or makes no sense */
    OTLP_UNKNOWN,          /* no such cluster, job or attempt, or none that the sender may speak of */
    OTLP_NOT_OWNED,        /* another replica owns the cluster */
    OTLP_BEFORE_START,     /* older than the attempt */
    OTLP_NO_TEXT,          /* the body is no text */
    OTLP_TOO_LONG,         /* over OTLP_RECORD_MAX */
    OTLP_TOO_MANY,         /* records or resources of one request */
    OTLP_NO_ROOM,          /* as many logs are being read as may be */
    OTLP_N_FAULTS
};
const char *otlp_fault_words(enum otlp_fault f);

struct otlp_route {
    char cluster[65];
    char job_id[40]; /* as people write it */
    uint32_t restart_count;
    char host[64]; /* "" when it is not said, or is no host name */
    enum otlp_fault fault;
};

/* Fills *ret; what is wrong is in ret->fault. */
void otlp_route(const Opentelemetry__Proto__Resource__V1__Resource *resource, struct otlp_route *ret);

/* "otlp", "otlp-stdout", "otlp-stderr". */
#define OTLP_N_STREAMS 3
extern const char *const otlp_streams[OTLP_N_STREAMS];
/* One of them, by attribute log.iostream. */
const char *otlp_stream(const Opentelemetry__Proto__Logs__V1__LogRecord *r);

/* Its time, else when it was observed; microseconds, 0 for neither. */
int64_t otlp_time_us(const Opentelemetry__Proto__Logs__V1__LogRecord *r);

/* Appends the lines of the record, and those of exception.stacktrace, each with "<host>: " in front where there is a host and
 * the line does not begin so. */
enum otlp_fault otlp_lines(const Opentelemetry__Proto__Logs__V1__LogRecord *r, const char *host, struct adv_buf *ret);

/* Appends @text as whole lines, each with "<host>: " in front as above; no host: "". Errors stay in the buffer. */
void otlp_put_lines(struct adv_buf *b, const char *text, size_t len, const char *host);

#endif
