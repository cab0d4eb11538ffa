/* SPDX-License-Identifier: Apache-2.0 */
#include "common/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

static char text[1 << 20];

static int fd;

static void begin(enum adv_log_format f)
{
    fd = memfd_create("log", 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fcntl(fd, F_SETFL, O_APPEND), 0); /* as every log file is opened */
    adv_log_init(f, ADV_LOG_INFO, fd);
}

static const char *written(void)
{
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    cr_assert_geq(n, 0);
    text[n] = '\0';
    return text;
}

Test(log, logfmt)
{
    begin(ADV_LOG_TEXT);
    adv_debug("t", "hidden");
    adv_warn("session", "agent gone, advice is held", ADV_FS("cluster", "a"), ADV_FI("n", -3),
             ADV_FU("u", UINT64_MAX), ADV_FS("job", "x y\"\n\x1b[0m=\\"), ADV_FS("none", NULL),
             ADV_FS("empty", ""));
    const char *s = written();
    cr_assert(adv_startswith(s, "time=20"));
    cr_assert(
        strstr(s, " level=warn topic=session event=\"agent gone, advice is held\" cluster=a n=-3 "
                  "u=18446744073709551615 job=\"x y\\\"\\n\\u001b[0m=\\\\\" none=- empty=\"\"\n"),
        "%s", s);
    cr_assert_null(strstr(s, "hidden"));
    cr_assert_eq(strchr(s, '\n')[1], '\0', "one line");
}

Test(log, json_is_json)
{
    begin(ADV_LOG_JSON);
    char longer[6000];
    memset(longer, 'q', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    adv_info("t", "e", ADV_FS("a", "q\"\\\n\x01\xFF\xE2\x82\xAC"), ADV_FI("i", 5),
             ADV_FS("long", longer));
    json_t *j = json_loads(written(), 0, NULL);
    cr_assert_not_null(j, "%s", text);
    cr_assert_str_eq(json_string_value(json_object_get(j, "a")),
                     "q\"\\\n\x01\xEF\xBF\xBD\xE2\x82\xAC");
    cr_assert_eq(json_integer_value(json_object_get(j, "i")), 5);
    cr_assert_eq(strlen(json_string_value(json_object_get(j, "long"))), ADV_LOG_VALUE_MAX + 3);
    json_decref(j);
}

Test(log, line_is_bounded)
{
    begin(ADV_LOG_JSON);
    char v[ADV_LOG_VALUE_MAX + 1];
    memset(v, '\x01', sizeof(v) - 1); /* six bytes each when escaped */
    v[sizeof(v) - 1] = '\0';
    adv_info("t", "e", ADV_FS("a", v), ADV_FS("b", v), ADV_FS("c", v), ADV_FS("d", v),
             ADV_FS("e", v), ADV_FI("n", 1));
    json_t *j = json_loads(written(), 0, NULL);
    cr_assert_not_null(j);
    cr_assert_leq(strlen(text), ADV_LOG_LINE_MAX);
    cr_assert_eq(json_integer_value(json_object_get(j, "cut")), 1);
    json_decref(j);
}

static void *writer(void *arg)
{
    (void) arg;
    for (int i = 0; i < 500; i++)
        adv_info("t", "from a thread", ADV_FI("i", i));
    return NULL;
}

Test(log, threads)
{
    pthread_t th[4];
    size_t lines = 0;

    begin(ADV_LOG_TEXT);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&th[i], NULL, writer, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        (void) pthread_join(th[i], NULL);
    for (const char *s = written(); *s; s = strchr(s, '\n') + 1, lines++)
        cr_assert(adv_startswith(s, "time="));
    cr_assert_eq(lines, 2000);
}

Test(log, ratelimit)
{
    struct adv_ratelimit rl = { 0 };
    unsigned int through = 0;

    for (int i = 0; i < 100000; i++)
        through += adv_log_ratelimit(&rl, 5);
    cr_assert_geq(through, 5);
    cr_assert_leq(through, 15);
    cr_assert_eq(adv_ratelimit_take_suppressed(&rl), 100000 - through);
    cr_assert_eq(adv_ratelimit_take_suppressed(&rl), 0);
}
