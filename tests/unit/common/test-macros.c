/* SPDX-License-Identifier: Apache-2.0 */
#include "common/macros.h"

#include <criterion/criterion.h>
#include <fcntl.h>

struct thing {
    int inner;
    int *gone;
};

static struct thing *thing_free(struct thing *t)
{
    (*t->gone)++;
    errno = EIO;
    free(t);
    return NULL;
}
ADV_DEFINE_CLEANUP(thing, thing_free);

static struct thing *make(int *gone)
{
    ADV_AUTO(thing) t = malloc(sizeof(*t));

    cr_assert_not_null(t);
    t->gone = gone;
    return ADV_STEAL(t);
}

Test(macros, cleanup_and_steal)
{
    int gone = 0;

    errno = ENOENT;
    {
        ADV_AUTO(thing) t = make(&gone);
        cr_assert_eq(gone, 0);
        cr_assert_eq(ADV_CONTAINER_OF(&t->gone, struct thing, gone), t);
    }
    cr_assert_eq(gone, 1);
    cr_assert_eq(errno, ENOENT, "cleanup must keep errno");
}

Test(macros, auto_close)
{
    int fd;
    {
        adv_auto_close int f = open("/dev/null", O_RDONLY);
        fd = f;
    }
    cr_assert_eq(fcntl(fd, F_GETFD), -1);
}

Test(macros, strings)
{
    cr_assert(adv_streq(NULL, NULL));
    cr_assert(!adv_streq("a", NULL));
    cr_assert(adv_streq("a", "a"));
    cr_assert(adv_startswith("abc", "ab"));
    cr_assert(!adv_startswith("a", "ab"));
    cr_assert(!adv_startswith(NULL, "a"));
}
