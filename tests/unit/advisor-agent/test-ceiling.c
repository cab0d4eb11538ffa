/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advisor-agent/ceiling.h"

static char path[64];

static void setup(void)
{
    strcpy(path, "/tmp/ceiling-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
}

static void teardown(void)
{
    (void) unlink(path);
}

TestSuite(ceiling, .init = setup, .fini = teardown);

/* Replaces the file, as an editor does. */
static void put(const char *text, mode_t mode)
{
    char tmp[80];
    (void) snprintf(tmp, sizeof(tmp), "%s.new", path);
    FILE *f = fopen(tmp, "w");
    cr_assert(f);
    fputs(text, f);
    fclose(f);
    cr_assert_eq(chmod(tmp, mode), 0);
    cr_assert_eq(rename(tmp, path), 0);
}

static struct ceiling *make(const char *text)
{
    struct ceiling *c = NULL;
    put(text, 0644);
    cr_assert_eq(ceiling_new(path, getuid(), &c, NULL), 0);
    return c;
}

static int ask(struct ceiling *c, const char *verb, const char *partition, const char *account, unsigned done,
               enum ceiling_ground ground)
{
    (void) ceiling_refresh(c);
    return ceiling_check(c, verb, partition, account, done, ground, NULL);
}

Test(ceiling, a_word_for_the_watchdog)
{
    struct ceiling *c = make("mode: observe\n");

    cr_assert_eq(ceiling_watchdog(c), CEILING_WATCHDOG_ACT);
    put("mode: off\nwatchdog: observe\n", 0644);
    cr_assert(ceiling_refresh(c));
    cr_assert_eq(ceiling_watchdog(c), CEILING_WATCHDOG_OBSERVE);
    put("watchdog: off\n", 0644);
    (void) ceiling_refresh(c);
    cr_assert(ceiling_known(c) && ceiling_watchdog(c) == CEILING_WATCHDOG_OFF);
    put("watchdog: sometimes\n", 0644);
    (void) ceiling_refresh(c);
    cr_assert(!ceiling_known(c) && ceiling_watchdog(c) == CEILING_WATCHDOG_OFF);
    ceiling_free(c);
    cr_assert_eq(ceiling_new(NULL, 0, &c, NULL), 0);
    cr_assert_eq(ceiling_watchdog(c), CEILING_WATCHDOG_ACT);
    ceiling_free(c);
}

Test(ceiling, no_file_configured)
{
    struct ceiling *c = NULL;
    cr_assert_eq(ceiling_new(NULL, 0, &c, NULL), 0);
    cr_assert_eq(ceiling_mode(c), CEILING_ACT);
    cr_assert_eq(ask(c, "cancel", "p", "a", 9999, CEILING_BY_MODE), 0);
    cr_assert_lt(ask(c, "preserve", "p", "a", 0, CEILING_UNAPPROVED), 0);
    ceiling_free(c);
}

Test(ceiling, lists)
{
    struct ceiling *c = make("mode: act\nverbs: [preserve, release]\npartitions: [gpu]\n"
                             "accounts: [ml]\nactions_per_hour: 3\n");
    cr_assert_eq(ceiling_mode(c), CEILING_ACT);
    cr_assert_eq(ask(c, "preserve", "gpu", "ml", 2, CEILING_BY_MODE), 0);
    cr_assert_eq(ask(c, "cancel", "gpu", "ml", 2, CEILING_BY_MODE), -ADV_PERMISSION_DENIED);
    cr_assert(ceiling_known(c) && ceiling_lists(c, "release") && !ceiling_lists(c, "cancel"));
    cr_assert_eq(ask(c, "preserve", "cpu", "ml", 2, CEILING_BY_MODE), -ADV_PERMISSION_DENIED);
    cr_assert_eq(ask(c, "preserve", "gpu", "bio", 2, CEILING_BY_MODE), -ADV_PERMISSION_DENIED);
    cr_assert_eq(ask(c, "preserve", "gpu", "ml", 3, CEILING_BY_MODE), -ADV_RESOURCE_EXHAUSTED);
    ceiling_free(c);
}

Test(ceiling, json_and_modes)
{
    struct ceiling *c = make("{\"mode\": \"approve\", \"preserve_in_approve\": true}");
    cr_assert_eq(ceiling_mode(c), CEILING_APPROVE);
    cr_assert_eq(ask(c, "release", "p", "a", 0, CEILING_BY_MODE), -ADV_FAILED_PRECONDITION, "nobody has approved it");
    cr_assert_eq(ask(c, "preserve", "p", "a", 0, CEILING_BY_MODE), -ADV_FAILED_PRECONDITION);
    cr_assert_eq(ask(c, "preserve", "p", "a", 0, CEILING_UNAPPROVED), 0);
    cr_assert(ceiling_lists(c, "release"));
    cr_assert_lt(ask(c, "interrupt", "p", "a", 0, CEILING_UNAPPROVED), 0);
    cr_assert_eq(ask(c, "interrupt", "p", "a", 0, CEILING_BY_APPROVAL), 0);
    put("mode: observe\n", 0644);
    cr_assert_lt(ask(c, "release", "p", "a", 0, CEILING_BY_MODE), 0);
    cr_assert_eq(ask(c, "release", "p", "a", 0, CEILING_BY_APPROVAL), -ADV_FAILED_PRECONDITION);
    put("mode: off\n", 0644);
    cr_assert_lt(ask(c, "release", "p", "a", 0, CEILING_BY_MODE), 0);
    cr_assert_lt(ask(c, "release", "p", "a", 0, CEILING_BY_APPROVAL), 0);
    cr_assert_eq(ceiling_mode(c), CEILING_OFF);
    ceiling_free(c);
}

Test(ceiling, anything_wrong_is_off)
{
    static const struct {
        const char *text, *reason;
        mode_t mode;
    } t[] = { { "mode: atc\n", "malformed", 0644 },
              { "mode: act\nverb: [preserve]\n", "malformed", 0644 },
              { "mode: act\nverbs: [preserv]\n", "malformed", 0644 },
              { "{\"mode\": \"act\"", "malformed", 0644 },
              { "mode: act\nmode: act\n", "malformed", 0644 },
              { "mode: act\n", "writable by others", 0646 } };
    struct ceiling *c = make("mode: act\n");

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        put(t[i].text, t[i].mode);
        (void) ceiling_refresh(c);
        cr_assert_eq(ceiling_mode(c), CEILING_OFF, "case %zu", i);
        cr_assert(strstr(ceiling_reason(c), t[i].reason), "case %zu: %s", i, ceiling_reason(c));
        put("mode: act\n", 0644);
        cr_assert(ceiling_refresh(c));
        cr_assert_eq(ceiling_mode(c), CEILING_ACT);
        cr_assert_str_eq(ceiling_reason(c), "");
        cr_assert(!ceiling_refresh(c));
    }
    put("", 0644);
    (void) ceiling_refresh(c);
    cr_assert_eq(ceiling_mode(c), CEILING_OFF);
    (void) unlink(path);
    (void) ceiling_refresh(c);
    cr_assert_eq(ceiling_mode(c), CEILING_OFF);
    cr_assert(!ceiling_known(c) && !ceiling_lists(c, "release"));
    cr_assert_eq(ask(c, "release", "p", "a", 0, CEILING_BY_MODE), -ADV_UNAVAILABLE);
    cr_assert(strstr(ceiling_reason(c), "unreadable"));
    ceiling_free(c);
}

Test(ceiling, foreign_owner)
{
    if (getuid() != 0)
        cr_skip("needs root");
    struct ceiling *c = make("mode: act\n");
    cr_assert_eq(chown(path, 64999, 0), 0);
    (void) ceiling_refresh(c);
    cr_assert_eq(ceiling_mode(c), CEILING_OFF);
    ceiling_free(c);
}
