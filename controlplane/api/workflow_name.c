/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/api/workflow_name.h"

#include <stdio.h>

#include "common/digest.h"

static bool plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~';
}

char *workflow_name(struct adv_arena *ar, const char *cluster, const char *workflow)
{
    char buf[WORKFLOW_NAME_SIZE];
    size_t n = (size_t) snprintf(buf, sizeof(buf), "clusters/%.64s/workflows/", cluster);

    for (const char *p = workflow; *p && n + 4 < sizeof(buf); p++)
        if (plain(*p))
            buf[n++] = *p;
        else
            n += (size_t) snprintf(buf + n, 4, "%%%02X", (unsigned char) *p);
    buf[n] = '\0';
    return adv_arena_strdup(ar, buf);
}

bool workflow_name_parse(const char *name, char ret_cluster[65], char ret_workflow[WORKFLOW_MAX + 1])
{
    const char *p = adv_startswith(name, "clusters/") ? strchr(name + 9, '/') : NULL;
    size_t n = 0;

    if (!p || p - name - 9 > 64 || !adv_startswith(p, "/workflows/"))
        return false;
    (void) snprintf(ret_cluster, 65, "%.*s", (int) (p - name - 9), name + 9);
    for (p += 11; *p; n++) {
        uint8_t byte = 0;
        char hex[3] = { 0 };
        if (n == WORKFLOW_MAX)
            return false;
        if (*p == '%') {
            if (!p[1] || !p[2])
                return false;
            hex[0] = (char) (p[1] >= 'A' && p[1] <= 'F' ? p[1] - 'A' + 'a' : p[1]);
            hex[1] = (char) (p[2] >= 'A' && p[2] <= 'F' ? p[2] - 'A' + 'a' : p[2]);
            if (!adv_unhex(hex, &byte, 1) || !byte)
                return false;
            p += 3;
        } else if (plain(*p)) {
            byte = (uint8_t) *p++;
        } else {
            return false;
        }
        ret_workflow[n] = (char) byte;
    }
    ret_workflow[n] = '\0';
    return n > 0;
}
