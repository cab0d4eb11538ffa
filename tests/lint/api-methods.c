/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the API's methods as the program serves them: path, shape, role. For tests/lint/api-roles. */

#include <stdio.h>

#include "controlplane/api/api.h"

int main(void)
{
    static const char *const shapes[] = { "unary", "server stream", "client stream", "stream" };
    const struct api_method *m;
    size_t n;

    m = api_methods(&n);
    for (size_t i = 0; i < n; i++)
        (void) printf("%s\t%s\t%s\n", m[i].path, shapes[m[i].shape], role_name(m[i].role));
    return 0;
}
