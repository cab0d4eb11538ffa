/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_LOAD_LOAD_H
#define BENCH_LOAD_LOAD_H

/* What the parts of the load generator share: the command under way, its arguments, and samples. */

#include "advisor/v1/agent_service.pb-c.h"
#include "bench/load/link.h"

struct load {
    uv_loop_t *loop;
    struct link_env env;
    const char *ca_dir; /* NULL: plaintext */
    X509 *admin;
    char *argv[32]; /* "key=value" words of the command */
    int argc;
    bool busy;
};
extern struct load load;

/* An argument of the command under way. */
long arg(const char *key, long def);
const char *arg_text(const char *key, const char *def);

void show(const char *name, double value);
/* The command has ended; the next one may come. */
void command_done(void);
void die(const char *fmt, ...) ADV_PRINTF(1, 2) __attribute__((noreturn));

struct samples {
    int64_t *v; /* microseconds */
    size_t n, cap;
};
void samples_add(struct samples *s, int64_t us);
/* NAME_p50, NAME_p99, NAME_max in milliseconds; then empties it. */
void samples_show(struct samples *s, const char *name);

uint64_t mix(uint64_t a, uint64_t b); /* a hash */
uint32_t random32(void);
int64_t now_us(void);

/* Packs @m into one buffer that the next call overwrites. */
const uint8_t *pack(const ProtobufCMessage *m, size_t *ret_len);

/* The fleet of agents (agents.c). */
void cmd_clusters(void);
void cmd_agents(void);
void cmd_storm(void);
void cmd_changes(void);
void cmd_advice(void);
void cmd_commits(void);
/* Clients (clients.c). */
void cmd_unary(void);
void cmd_probe(void);
void cmd_watch(void);
void cmd_unwatch(void);
void cmd_lag(void);
void cmd_bare(void);
void cmd_fdatasync(void);

/* One unary call after another on one link, @inflight at a time; @next packs the i-th request or gives false for "no more". */
struct burst_ops {
    bool (*next)(void *ctx, unsigned long i, const uint8_t **bytes, size_t *len);
    void (*done)(void *ctx, unsigned long answered, const char *failed); /* all answered, or failed */
};
void burst(struct link_env *env, X509 *cert, const char *path, unsigned inflight, const struct burst_ops *ops, void *ctx,
           struct samples *latency);

const char *cluster_id(unsigned index, char buf[32]);

#endif
