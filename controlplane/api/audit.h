/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_AUDIT_H
#define CONTROLPLANE_API_AUDIT_H

/* What the files of AuditService share. For api/ alone. */

#include "advisor/v1/audit_service.pb-c.h"

#include "controlplane/api/find.h"

/* "clusters/<id>", "clusters/_fleet", or with @all_too "clusters/-" (then @ret_cluster is "").
 * Errors: -ADV_INVALID_ARGUMENT, -ADV_NOT_FOUND. */
adv_must_check int audit_parent(struct api_call *call, const char *parent, bool all_too, char ret_cluster[65],
                                struct adv_err *err);

void audit_append(struct api_call *call, const ProtobufCMessage *req);
void audit_verify(struct api_call *call, const ProtobufCMessage *req);

/* The text that a checkpoint's signature is over; false: it does not fit. */
bool audit_checkpoint_text(const char *store_uuid, const char *cluster, uint64_t seq, const char *hash, int64_t record_us,
                           char buf[512]);

#endif
