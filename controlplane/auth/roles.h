/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_ROLES_H
#define CONTROLPLANE_AUTH_ROLES_H

/* Roles as sets of rights. A role that a call needs stands for one right; a role that somebody has stands for several, so
 * that two limits (a certificate's role and a binding's) meet in what both allow.
 *
 *              see things   see own jobs   signal   act on own jobs   operate   administer   be an agent
 *   reader         x             x
 *   detector                                  x
 *   user                         x                       x
 *   operator       x             x            x          x               x
 *   admin          x             x            x          x               x           x
 *   agent                                                                                         x
 *
 * Pure. Any thread, never blocks. */

#include "common/macros.h"

enum api_role { ROLE_NONE, ROLE_READER, ROLE_DETECTOR, ROLE_USER, ROLE_OPERATOR, ROLE_ADMIN, ROLE_AGENT };

struct role_rights {
    unsigned bits;
    bool own_only; /* only jobs of the caller's own user name */
};

struct role_rights role_rights(enum api_role role);
/* What both allow. */
struct role_rights role_rights_meet(struct role_rights a, struct role_rights b);
/* Whether @has is enough for a call that needs @needed, own_only aside. ROLE_NONE needs nothing. */
bool role_rights_include(struct role_rights has, enum api_role needed);

const char *role_name(enum api_role role); /* "reader"; "none" */
/* False when @name is none of them; "none" is none. */
bool role_from_name(const char *name, enum api_role *ret);

#endif
