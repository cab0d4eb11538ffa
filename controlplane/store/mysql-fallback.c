/* SPDX-License-Identifier: Apache-2.0 */
/* In place of the MySQL engine where it was not built. */

#include "controlplane/store/engine.h"
#include "controlplane/store/image-engine.h"

static int missing(const char *url, struct adv_err *err)
{
    return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_ENGINE_MISSING",
                              "store %.100s: this program was built without MySQL", url);
}

int mysql_store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err)
{
    (void) loop, (void) ret;
    return missing(cfg->url, err);
}

int mysql_image_open(const struct store_config *cfg, struct image **ret, struct adv_err *err)
{
    (void) ret;
    return missing(cfg->url, err);
}

int mysql_image_write(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err)
{
    (void) im, (void) term;
    return missing(cfg->url, err);
}

int mysql_image_promote(const struct store_config *cfg, uint64_t term, uint64_t *ret_term, struct adv_err *err)
{
    (void) term, (void) ret_term;
    return missing(cfg->url, err);
}
