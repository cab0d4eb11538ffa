/* SPDX-License-Identifier: Apache-2.0 */
/* In place of the MySQL engine where it was not built. */

#include "controlplane/store/engine.h"

int mysql_store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err)
{
    (void) loop;
    (void) ret;
    return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_ENGINE_MISSING",
                              "store %.100s: this program was built without MySQL", cfg->url);
}
