/* SPDX-License-Identifier: Apache-2.0 */
#include "advisor-agent/tail/keep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/spawn.h"
#include "common/utf8.h"

struct tail_keep {
    bool wanted;  /* by who asked for it */
    bool running;
    bool failed;
    int64_t until_us;
    char why[200];
};

static void maybe_free(struct tail_keep *k)
{
    if (!k->wanted && !k->running)
        free(k);
}

static void on_exit_(void *user, const struct adv_spawn_result *res)
{
    struct tail_keep *k = user;
    size_t n = strcspn(res->err_out ? res->err_out : "", "\n");

    k->running = false;
    k->failed = res->exit_code != 0;
    if (k->failed && res->timed_out)
        (void) snprintf(k->why, sizeof(k->why), "it took longer than %d s", TAIL_KEEP_MS / 1000);
    else if (k->failed && res->exec_errno)
        (void) snprintf(k->why, sizeof(k->why), "the helper cannot be run: %s", strerror(res->exec_errno));
    else if (k->failed && n) /* it names files, whose names are bytes */
        (void) adv_utf8_lossy_buf(k->why, sizeof(k->why), res->err_out, n);
    else if (k->failed)
        (void) snprintf(k->why, sizeof(k->why), "the helper failed");
    maybe_free(k);
}

int tail_keep(struct uv_loop_s *loop, const struct tail_keep_args *args, struct tail_keep **ret, struct adv_err *err)
{
    char uid[24], min_uid[24], bytes[24], attempt[24];
    const char *argv[14] = { args->helper_path, "--uid", uid, "--min-uid", min_uid, "--keep", bytes, "--attempt", attempt, "--" };
    struct tail_keep *k;
    struct adv_spawn *sp;
    size_t n = 10;
    int r;

    for (size_t i = 0; i < ADV_ARRAY_LEN(args->paths); i++)
        if (args->paths[i] && args->paths[i][0] == '/' && !(i && adv_streq(args->paths[0], args->paths[i])))
            argv[n++] = args->paths[i];
    if (n == 10)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "no path of its output is known");
    if (args->uid < args->min_uid)
        return adv_err_set(err, ADV_PERMISSION_DENIED, "uid %u is not served, the least is %u", args->uid, args->min_uid);
    (void) snprintf(uid, sizeof(uid), "%u", args->uid);
    (void) snprintf(min_uid, sizeof(min_uid), "%u", args->min_uid);
    (void) snprintf(bytes, sizeof(bytes), "%zu", args->bytes);
    (void) snprintf(attempt, sizeof(attempt), "%u", args->attempt);
    k = calloc(1, sizeof(*k));
    if (!k)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    k->wanted = k->running = true;
    k->until_us = adv_mono_us() + TAIL_KEEP_MS * INT64_C(1000);
    struct adv_spawn_opts opts = { .argv = argv, .stderr_max = 1024, .deadline_ms = TAIL_KEEP_MS, .term_grace_ms = 500,
                                   .cb = on_exit_, .user = k };
    r = adv_spawn(loop, &opts, &sp, err);
    if (r < 0) {
        free(k);
        return r;
    }
    *ret = k;
    return 0;
}

bool tail_keep_done(const struct tail_keep *k, int64_t now_us, const char **ret_why)
{
    *ret_why = k->running ? "it hangs, perhaps on a dead mount" : k->failed ? k->why : NULL;
    return !k->running || now_us >= k->until_us;
}

struct tail_keep *tail_keep_free(struct tail_keep *k)
{
    if (k) {
        k->wanted = false;
        maybe_free(k);
    }
    return NULL;
}
