/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config.h"

#include <criterion/criterion.h>

#include "common/buf.h"

struct conf {
    char *name, *path;
    bool tail;
    int64_t n, poll_ms, max_bytes;
    int mode;
    struct adv_config_list urls;
};

static const char *const modes[] = { "observe", "approve", "act", NULL };
static const struct adv_config_row rows[] = {
    ADV_CONFIG_STRING(struct conf, name, "name", "x", NOW, "A name."),
    ADV_CONFIG_PATH(struct conf, path, "store.path", "/var/lib/x", RESTART, "Where."),
    ADV_CONFIG_SIZE(struct conf, max_bytes, "store.max", 1024, 1 << 30, "64KiB", NEXT, "How big."),
    ADV_CONFIG_BOOL(struct conf, tail, "log.tail", "true", NOW, "Whether."),
    ADV_CONFIG_INT(struct conf, n, "log.deep.count", "lines", 1, 10, "3", NOW, "How many."),
    ADV_CONFIG_DURATION(struct conf, poll_ms, "poll", 100, 60000, "1.5s", NOW, "How often."),
    ADV_CONFIG_ENUM(struct conf, mode, "mode", modes, "observe", NOW, "Which."),
    ADV_CONFIG_LIST(struct conf, urls, "urls", "", NOW, "Where to."),
};

static int check(const void *v, struct adv_err *err)
{
    const struct conf *c = v;

    if (adv_streq(c->name, "forbidden")) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "name is forbidden");
        return adv_err_field(err, "name");
    }
    return 0;
}

static const struct adv_config_table table = {
    .program = "prog",
    .about = "Tests.",
    .env_prefix = "PROG",
    .rows = rows,
    .n_rows = ADV_ARRAY_LEN(rows),
    .struct_size = sizeof(struct conf),
    .check = check,
};

static char file[] = "/tmp/adv-config-XXXXXX";

static void put_file(const char *text)
{
    FILE *f = fopen(file, "w");

    cr_assert_not_null(f);
    cr_assert_geq(fputs(text, f), 0);
    cr_assert_eq(fclose(f), 0);
}

static void setup(void)
{
    int fd = mkstemp(file);

    cr_assert_geq(fd, 0);
    (void) close(fd);
}

static void teardown(void)
{
    (void) unlink(file);
}

TestSuite(config, .init = setup, .fini = teardown);

Test(config, defaults)
{
    ADV_AUTO(adv_config) c = NULL;

    cr_assert_eq(adv_config_load(&table, NULL, 0, NULL, &c, NULL), 0);
    const struct conf *v = adv_config_values(c);
    cr_assert_str_eq(v->path, "/var/lib/x");
    cr_assert(v->tail);
    cr_assert_eq(v->n, 3);
    cr_assert_eq(v->poll_ms, 1500);
    cr_assert_eq(v->max_bytes, 65536);
    cr_assert_eq(v->mode, 0);
    cr_assert_eq(v->urls.n, 0);
}

Test(config, precedence)
{
    ADV_AUTO(adv_config) c = NULL;
    char a1[] = "--mode", a2[] = "act", a3[] = "--log.tail=off";
    char *args[] = { a1, a2, a3 };
    struct adv_err e = { 0 };

    put_file("name: from-file\nstore:\n  path: /f\n  max: 1MiB\nmode: approve\nurls: [a, 'b "
             "c']\nlog: {deep: {count: 7}}\npoll: 2s\n");
    (void) setenv("PROG_STORE_PATH", "/e", 1);
    (void) setenv("PROG_MODE", "observe", 1);
    (void) setenv("PROG_SERVICE_HOST", "10.0.0.1", 1);
    cr_assert_eq(adv_config_load(&table, file, 3, args, &c, &e), 0, "%s", e.msg);
    const struct conf *v = adv_config_values(c);
    cr_assert_str_eq(v->name, "from-file");
    cr_assert_str_eq(v->path, "/e");
    cr_assert_eq(v->mode, 2);
    cr_assert(!v->tail);
    cr_assert_eq(v->max_bytes, 1 << 20);
    cr_assert_eq(v->n, 7);
    cr_assert_eq(v->urls.n, 2);
    cr_assert_str_eq(v->urls.items[1], "b c");
    cr_assert_eq(adv_config_source(c, "name"), ADV_CONFIG_FROM_FILE);
    cr_assert_eq(adv_config_source(c, "store.path"), ADV_CONFIG_FROM_ENV);
    cr_assert_eq(adv_config_source(c, "mode"), ADV_CONFIG_FROM_FLAG);
    cr_assert_eq(adv_config_source(c, "log.deep.count"), ADV_CONFIG_FROM_FILE);
}

Test(config, bad_files)
{
    static const struct {
        const char *text, *want;
    } t[] = {
        { "nam: x\n", ":1:1: nam: unknown key" },
        { "store:\n  pth: x\n", ":2:3: store.pth: unknown key" },
        { "name: a\nname: b\n", ":2:1: name: is set a second time" },
        { "poll: 5\n", ":1:7: poll: not a duration" },
        { "poll: 5h\n", ":1:7: poll: 5h is outside 100ms..1m" },
        { "log: {deep: {count: 11}}\n", ":1:21: log.deep.count: 11 is outside 1..10" },
        { "mode: full\n", ":1:7: mode: expected one of observe, approve, act; got \"full\"" },
        { "log: {tail: maybe}\n", "expected true or false" },
        { "store: /x\n", ":1:8: store: expected a map" },
        { "name: [a]\n", "name: expected a string" },
        { "urls: a\n", "urls: expected a list" },
        { "urls: [a, {b: c}]\n", "urls: expected a list of strings" },
        { "name:\n", "name: expected a string" },
        { "- a\n", "expected a map of keys" },
        { "name: &x a\n", "anchors" },
        { "name: 'a\n", "not YAML" },
        { "name: a\n---\nname: b\n", "more than one document" },
        { "name: forbidden\n", "name is forbidden" },
        { "name: \"a\\0b\"\n", "NUL" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct adv_config *c = NULL;
        struct adv_err e = { 0 };

        put_file(t[i].text);
        cr_assert_lt(adv_config_load(&table, file, 0, NULL, &c, &e), 0, "%s", t[i].text);
        cr_assert(strstr(e.msg, t[i].want), "%s -> %s", t[i].text, e.msg);
        cr_assert_null(c);
    }
}

Test(config, empty_files)
{
    static const char *const t[] = { "", "# only a comment\n", "---\n", "~\n", "store:\n" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO(adv_config) c = NULL;
        struct adv_err e = { 0 };

        put_file(t[i]);
        cr_assert_eq(adv_config_load(&table, file, 0, NULL, &c, &e), 0, "\"%s\": %s", t[i], e.msg);
    }
}

Test(config, bad_flags_and_env)
{
    static const struct {
        const char *arg, *want;
    } t[] = {
        { "--nope=1", "unknown flag" },
        { "--name", "needs a value" },
        { "stray", "unexpected argument" },
        { "--poll=1", "flag --poll: not a duration" },
    };
    struct adv_config *c = NULL;
    struct adv_err e = { 0 };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char arg[32], *args[] = { arg };

        (void) snprintf(arg, sizeof(arg), "%s", t[i].arg);
        cr_assert_lt(adv_config_load(&table, NULL, 1, args, &c, &e), 0);
        cr_assert(strstr(e.msg, t[i].want), "%s", e.msg);
    }
    char a[] = "--name=a", b[] = "--name=b", *twice[] = { a, b };
    cr_assert_lt(adv_config_load(&table, NULL, 2, twice, &c, &e), 0);
    cr_assert(strstr(e.msg, "twice"));
    (void) setenv("PROG_LOG_DEEP_COUNT", "many", 1);
    cr_assert_lt(adv_config_load(&table, NULL, 0, NULL, &c, &e), 0);
    cr_assert(adv_startswith(e.msg, "environment PROG_LOG_DEEP_COUNT: "), "%s", e.msg);
    cr_assert_eq(adv_config_load(&table, "/no/such", 0, NULL, &c, &e), -ADV_NOT_FOUND);
}

static char changes[256];

static void changed(void *user, const struct adv_config_row *row)
{
    (void) user;
    (void) strncat(changes, row->key, 100);
    (void) strncat(changes, " ", 2);
}

Test(config, reload)
{
    struct adv_config *c = NULL;
    struct adv_err e = { 0 };

    put_file("name: a\nstore: {path: /one}\n");
    cr_assert_eq(adv_config_load(&table, file, 0, NULL, &c, NULL), 0);
    put_file("name: b\nstore: {path: /two}\nurls: [x]\n");
    cr_assert_eq(adv_config_reload(&c, changed, NULL, &e), 0, "%s", e.msg);
    const struct conf *v = adv_config_values(c);
    cr_assert_str_eq(v->name, "b");
    cr_assert_str_eq(v->path, "/one", "needs a restart");
    cr_assert_str_eq(changes, "name store.path urls ");
    put_file("name: c\npoll: 0s\n");
    cr_assert_lt(adv_config_reload(&c, changed, NULL, &e), 0);
    v = adv_config_values(c);
    cr_assert_str_eq(v->name, "b", "a bad file changes nothing");
    (void) adv_config_free(c);
}

Test(config, dump_reads_back)
{
    ADV_AUTO(adv_config) c = NULL;
    ADV_AUTO(adv_config) again = NULL;
    char *text = NULL, *text2 = NULL;
    size_t len;
    struct adv_err e = { 0 };

    put_file("name: 'odd: \"#name\"'\nurls: [a, '', ' b ', \"null\", \"\\x01\"]\n");
    cr_assert_eq(adv_config_load(&table, file, 0, NULL, &c, &e), 0, "%s", e.msg);
    FILE *f = open_memstream(&text, &len);
    adv_config_dump(c, f);
    (void) fclose(f);
    cr_assert(strstr(text, "store:\n  path: /var/lib/x  # default\n  max: 64KiB  # default\nlog:\n "
                           " tail: true  # default\n"
                           "  deep:\n    count: 3  # default\npoll: 1500ms  # default\n"),
              "%s", text);
    cr_assert(strstr(text, "  # file\n"));
    put_file(text);
    cr_assert_eq(adv_config_load(&table, file, 0, NULL, &again, &e), 0, "%s\n%s", e.msg, text);
    const struct conf *v = adv_config_values(again);
    cr_assert_str_eq(v->name, "odd: \"#name\"");
    cr_assert_eq(v->urls.n, 5);
    cr_assert_str_eq(v->urls.items[4], "\x01");
    f = open_memstream(&text2, &len);
    adv_config_dump_docs(&table, f);
    (void) fclose(f);
    cr_assert(strstr(text2, "| `poll` | duration | 100ms to 1m | `1.5s` | now | How often. |"),
              "%s", text2);
    free(text);
    free(text2);
}

Test(config, main_flags)
{
    static const struct {
        const char *args[4];
        bool go;
        int status;
    } t[] = {
        { { "--check-config" }, false, 0 },
        { { "--check-config", "--poll=1" }, false, 1 },
        { { "--dump-config" }, false, 0 },
        { { "--dump-config-docs" }, false, 0 },
        { { "--help" }, false, 0 },
        { { "--version" }, false, 0 },
        { { "--config" }, false, 2 },
        { { "--config", "/no/such" }, false, 1 },
        { { "--name", "--help-me" }, true, 0 },
        { { "stray" }, false, 2 },
        { { NULL }, true, 0 },
    };

    (void) freopen("/dev/null", "w", stdout);
    (void) freopen("/dev/null", "w", stderr);
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char mem[5][32] = { "prog" }, *argv[6] = { mem[0] };
        struct adv_config *c = NULL;
        int argc = 1, status = 9;

        for (; argc < 5 && t[i].args[argc - 1]; argc++) {
            (void) snprintf(mem[argc], sizeof(mem[argc]), "%s", t[i].args[argc - 1]);
            argv[argc] = mem[argc];
        }
        cr_assert_eq(adv_config_main(&table, argc, argv, NULL, &c, &status), t[i].go, "row %zu", i);
        cr_assert_eq(status, t[i].status, "row %zu", i);
        cr_assert_eq(c != NULL, t[i].go);
        (void) adv_config_free(c);
    }
    char m0[] = "prog", m1[] = "--mode", m2[] = "act", m3[] = "jobs", m4[] = "--x";
    char *argv[] = { m0, m1, m2, m3, m4, NULL };
    struct adv_config *c = NULL;
    int rest = 0, status;
    cr_assert(adv_config_main(&table, 5, argv, &rest, &c, &status));
    cr_assert_eq(rest, 3);
    cr_assert_str_eq(argv[rest], "jobs");
    (void) adv_config_free(c);
}
