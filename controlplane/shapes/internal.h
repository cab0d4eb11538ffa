/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SHAPES_INTERNAL_H
#define CONTROLPLANE_SHAPES_INTERNAL_H

/* What the files of shapes share. */

#include "controlplane/domain/entries.h"
#include "controlplane/shapes/shapes.h"

/* A zeroed, initialised message of the arena. */
#define MESSAGE(var, Type, init)                        \
    Type *var = adv_arena_alloc(ar, sizeof(Type));      \
    if (!var)                                           \
        return NULL;                                    \
    init(var)

/* protobuf-c does not write through texts it encodes; its structs just lack the const. */
static inline char *text(const char *s)
{
    return (char *) (uintptr_t) str_or(s);
}

#endif
