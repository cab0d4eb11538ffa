/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_ENTRIES_H
#define CONTROLPLANE_DOMAIN_ENTRIES_H

/* What hangs on a cluster by a uid of its own (model.h: struct entry): found, made, freed, loaded alike, whatever it is.
 * A new kind needs its struct, its size and texts here, its fields in store/codec.c, its shape, and its events.
 *
 * Thread: loop thread.  Blocks: no. */

#include "controlplane/domain/fleet.h"

/* 0 when things of @kind are no entries. */
size_t entry_size(enum resource_kind kind);

struct entry *entry_find(const struct cluster *c, enum resource_kind kind, const char *uid);
/* That a call with this request id made; NULL for none. */
struct entry *entry_find_request(const struct cluster *c, enum resource_kind kind, const char *request_id);
void entry_free(struct entry *e);

/* Loading: takes over. On an error @e stays the caller's: -ADV_DATA_LOSS, -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int fleet_load_entry(struct cluster *c, enum resource_kind kind, struct entry *e);

/* Part of the current state: not an old version of something. */
bool entry_current(const struct entry *e);

/* In force now. */
bool exclusion_active(const struct exclusion *x);
/* Of that node; NULL for none. */
const struct exclusion *exclusion_of_node(const struct cluster *c, const char *node);
/* Adds the nodes in force to @all. False: no memory. */
bool exclusions_add(const struct cluster *c, struct adv_hostlist *all);
uint32_t exclusions_active(const struct cluster *c);
uint32_t incidents_open(const struct cluster *c);

/* Recomputes what the cluster knows of its maintenance windows. */
void fleet_windows_sum(struct cluster *c, int64_t now_us);

/* The newest version; NULL when there is none of that name. */
struct policy_doc *policy_doc_find(const struct fleet *f, const char *name, uint64_t version_or_0);

#endif
