/* SPDX-License-Identifier: Apache-2.0 */
/* fleetload: thousands of agents, watchers and callers in one process, for bench/fleet.
 *
 *   fleetload --port=N [--ca=DIR]
 *
 * Commands come as lines on standard input, "word key=value ...". Each answers with lines "name value" and ends with a
 * line of one dot. Agents that are connected go on with their heartbeats between commands. */

#include "bench/load/load.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/clock.h"

struct load load;

static const struct {
    const char *word;
    void (*run)(void);
} commands[] = {
    { "clusters", cmd_clusters }, { "agents", cmd_agents }, { "storm", cmd_storm },     { "changes", cmd_changes },
    { "advice", cmd_advice },     { "commits", cmd_commits }, { "unary", cmd_unary },   { "probe", cmd_probe },
    { "watch", cmd_watch },       { "unwatch", cmd_unwatch }, { "lag", cmd_lag },         { "bare", cmd_bare },     { "fdatasync", cmd_fdatasync },
};

void die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void) fputs("fleetload: ", stderr);
    (void) vfprintf(stderr, fmt, ap);
    (void) fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

const char *arg_text(const char *key, const char *def)
{
    size_t n = strlen(key);

    for (int i = 1; i < load.argc; i++)
        if (strncmp(load.argv[i], key, n) == 0 && load.argv[i][n] == '=')
            return load.argv[i] + n + 1;
    return def;
}

long arg(const char *key, long def)
{
    const char *s = arg_text(key, NULL);

    return s ? strtol(s, NULL, 10) : def;
}

void show(const char *name, double value)
{
    (void) printf("%s %.6f\n", name, value);
}

void command_done(void)
{
    load.busy = false;
    (void) printf(".\n");
    (void) fflush(stdout);
}

void samples_add(struct samples *s, int64_t us)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 1024;
        s->v = realloc(s->v, s->cap * sizeof(*s->v));
        if (!s->v)
            die("no memory");
    }
    s->v[s->n++] = us;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *) a, y = *(const int64_t *) b;

    return x < y ? -1 : x > y;
}

void samples_show(struct samples *s, const char *name)
{
    static const struct {
        const char *word;
        unsigned percent;
    } parts[] = { { "p50", 50 }, { "p99", 99 }, { "max", 100 } };
    char full[128];

    if (s->n)
        qsort(s->v, s->n, sizeof(*s->v), by_size);
    for (size_t i = 0; s->n && i < ADV_ARRAY_LEN(parts); i++) {
        (void) snprintf(full, sizeof(full), "%s_%s", name, parts[i].word);
        show(full, (double) s->v[(s->n - 1) * parts[i].percent / 100] / 1000);
    }
    free(s->v);
    *s = (struct samples) { 0 };
}

uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15ULL ^ b;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

uint32_t random32(void)
{
    static uint64_t state = 1;

    return (uint32_t) mix(state++, 0x5eed);
}

int64_t now_us(void)
{
    return adv_mono_us();
}

const uint8_t *pack(const ProtobufCMessage *m, size_t *ret_len)
{
    static uint8_t *buf;
    static size_t cap;
    size_t n = protobuf_c_message_get_packed_size(m);

    if (n > cap) {
        free(buf);
        cap = n * 2;
        buf = malloc(cap);
        if (!buf)
            die("no memory");
    }
    *ret_len = protobuf_c_message_pack(m, buf);
    return buf;
}

const char *cluster_id(unsigned index, char buf[32])
{
    (void) snprintf(buf, 32, "f%05u", index);
    return buf;
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static char line[4096];
static size_t line_len;

static void run_line(void)
{
    static char words[sizeof(line)];
    char *save = NULL, *w;

    (void) strcpy(words, line);
    load.argc = 0;
    for (w = strtok_r(words, " ", &save); w && load.argc < (int) ADV_ARRAY_LEN(load.argv); w = strtok_r(NULL, " ", &save))
        load.argv[load.argc++] = w;
    if (load.argc == 0)
        return;
    if (load.busy)
        die("\"%s\" came while another command is under way", line);
    for (size_t i = 0; i < ADV_ARRAY_LEN(commands); i++)
        if (strcmp(load.argv[0], commands[i].word) == 0) {
            load.busy = true;
            commands[i].run();
            return;
        }
    die("unknown command \"%s\"", load.argv[0]);
}

static void on_input(uv_poll_t *h, int status, int events)
{
    char buf[1024];
    ssize_t n = read(0, buf, sizeof(buf));

    if (n <= 0)
        exit(0);
    for (ssize_t i = 0; i < n; i++) {
        if (buf[i] != '\n') {
            if (line_len + 1 < sizeof(line))
                line[line_len++] = buf[i];
            continue;
        }
        line[line_len] = '\0';
        line_len = 0;
        run_line();
    }
}

int main(int argc, char **argv)
{
    struct rlimit rl;
    uv_poll_t input;
    int port = 0;

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--port=", 7) == 0)
            port = (int) strtol(argv[i] + 7, NULL, 10);
        else if (strncmp(argv[i], "--ca=", 5) == 0)
            load.ca_dir = argv[i] + 5;
        else
            die("unknown argument %s", argv[i]);
    }
    (void) signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
        rl.rlim_cur = rl.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &rl);
    }
    load.loop = uv_default_loop();
    link_env_init(&load.env, load.loop, port, load.ca_dir);
    load.admin = link_env_issue(&load.env, "advisor:admin:bench");
    (void) uv_poll_init(load.loop, &input, 0);
    (void) uv_poll_start(&input, UV_READABLE, on_input);
    (void) uv_run(load.loop, UV_RUN_DEFAULT);
    return 0;
}
