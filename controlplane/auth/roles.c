/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/roles.h"

enum { SEE = 1, SIGNAL = 2, OWN = 4, OPERATE = 8, ADMINISTER = 16, AGENT = 32 };

static const struct {
    const char *name;
    unsigned needs; /* the right that a call with this role needs */
    struct role_rights has;
} roles[] = {
    [ROLE_NONE] = { "none", 0, { 0, false } },
    [ROLE_READER] = { "reader", SEE, { SEE, false } },
    [ROLE_DETECTOR] = { "detector", SIGNAL, { SIGNAL, false } },
    [ROLE_USER] = { "user", OWN, { SEE | OWN, true } },
    [ROLE_OPERATOR] = { "operator", OPERATE, { SEE | SIGNAL | OWN | OPERATE, false } },
    [ROLE_ADMIN] = { "admin", ADMINISTER, { SEE | SIGNAL | OWN | OPERATE | ADMINISTER, false } },
    [ROLE_AGENT] = { "agent", AGENT, { AGENT, false } },
};

struct role_rights role_rights(enum api_role role)
{
    return roles[role].has;
}

struct role_rights role_rights_meet(struct role_rights a, struct role_rights b)
{
    return (struct role_rights) { .bits = a.bits & b.bits, .own_only = a.own_only || b.own_only };
}

bool role_rights_include(struct role_rights has, enum api_role needed)
{
    return (has.bits & roles[needed].needs) == roles[needed].needs;
}

const char *role_name(enum api_role role)
{
    return roles[role].name;
}

bool role_from_name(const char *name, enum api_role *ret)
{
    for (size_t i = ROLE_NONE + 1; i < ADV_ARRAY_LEN(roles); i++) {
        if (!adv_streq(name, roles[i].name))
            continue;
        *ret = (enum api_role) i;
        return true;
    }
    return false;
}
