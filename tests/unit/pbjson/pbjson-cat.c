/* SPDX-License-Identifier: Apache-2.0 */

/* Reads frames (4 bytes little-endian length, then an Everything message) from stdin, prints each
 * as a line of JSON. */

#include <stdio.h>

#include "common/pbjson.h"
#include "pbjson_test.pb-c.h"

int main(int argc, char **argv)
{
    unsigned int flags = argc > 1 && strcmp(argv[1], "--defaults") == 0 ? ADV_PBJSON_DEFAULTS : 0;
    uint8_t head[4];

    while (fread(head, 1, 4, stdin) == 4) {
        size_t len =
            head[0] | (size_t) head[1] << 8 | (size_t) head[2] << 16 | (size_t) head[3] << 24;
        adv_auto_free uint8_t *bytes = malloc(len + 1);
        ADV_AUTO_DONE(adv_buf) b;
        struct adv_err err = { 0 };

        adv_buf_init(&b, 64 << 20);
        if (!bytes || fread(bytes, 1, len, stdin) != len)
            return 1;
        Advisor__Test__V1__Everything *m = advisor__test__v1__everything__unpack(NULL, len, bytes);
        if (!m)
            return 1;
        int r = adv_pbjson_print(&m->base, flags, &b, &err);
        advisor__test__v1__everything__free_unpacked(m, NULL);
        if (r < 0) {
            (void) fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        puts(b.data);
    }
    return 0;
}
