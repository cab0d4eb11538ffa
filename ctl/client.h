/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_CLIENT_H
#define ADVISOR_CTL_CLIENT_H

/* Calls of the Advisor API as plain functions: each runs the loop until it has its answer.
 * Thread: one owner.  Blocks: until the answer, the deadline, or SIGINT / SIGTERM. */

#include <stdint.h>
#include <stdio.h>

#include <protobuf-c/protobuf-c.h>

#include "common/err.h"
#include "ctl/config.h"

enum ctl_exit {
    CTL_EXIT_OK = 0,
    CTL_EXIT_REFUSED = 1,
    CTL_EXIT_USAGE = 2,
    CTL_EXIT_UNREACHABLE = 3,
    CTL_EXIT_TIMEOUT = 4,
};

/* Why a call failed, with all that the server's error details say. */
struct failure {
    enum ctl_exit exit_code;
    enum adv_code code;
    char message[512];
    char reason[64];
    char field[128];
    char violation[256]; /* what is wrong with the field */
    int64_t retry_after_ms; /* 0: no hint */
};

struct client;

/* @cfg is borrowed. Errors: -ADV_INVALID_ARGUMENT (settings); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int client_new(const struct ctl_config *cfg, struct client **ret, struct adv_err *err);
struct client *client_free(struct client *c); /* returns NULL */

/* One message in, one out.
 * Owner: caller, protobuf_c_message_free_unpacked(ret, NULL).
 * Errors: negative, with @f filled. */
adv_must_check int client_call(struct client *c, const char *path, const ProtobufCMessage *req,
                               const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret, struct failure *f);

/* One message in, many out. @on_message owns each message and returns false when it has seen enough. @deadline_ms 0:
 * none. With @ret_interrupted SIGINT and SIGTERM end the call.
 * Returns 0 when @on_message ended it, the server did, or a signal came (then *ret_interrupted is true). */
adv_must_check int client_stream(struct client *c, const char *path, const ProtobufCMessage *req, uint64_t deadline_ms,
                                 const ProtobufCMessageDescriptor *type,
                                 bool (*on_message)(void *arg, ProtobufCMessage *m), void *arg,
                                 bool *ret_interrupted, struct failure *f);

/* For people, on @out: what failed, what was tried, what the likely cause is. */
void failure_print(FILE *out, const struct failure *f, const struct ctl_config *cfg);

/* Reads google.rpc.Status bytes into @f (code and message stay). Ignores what it does not understand. Pure. */
void failure_details(struct failure *f, const uint8_t *status, size_t len);

/* A sentence for a connection that failed with @message, or NULL. Pure. */
const char *failure_cause(const char *message);

ADV_DEFINE_CLEANUP(client, client_free);

#endif
