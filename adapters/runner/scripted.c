/* SPDX-License-Identifier: Apache-2.0 */

/* The scripted runner. Virtual time makes a minute of waiting cost nothing and every run the same. Events are kept in
 * one list ordered by due time, then by age. */

#include "adapters/runner/scripted.h"

#include <fnmatch.h>
#include <stdio.h>

#include "common/buf.h"
#include "common/num.h"

#define TEXT_MAX  (16u << 20)
#define WORDS_MAX 64

struct step {
    struct step *next;
    char *line; /* cut into words */
    const char *words[WORDS_MAX];
    size_t n_words;
    bool rest; /* last word was ** */
    struct adv_buf out, err;
    enum adapter_run_end end;
    int exit_code;
    int delay_ms;
    bool any;
    unsigned used;
    unsigned line_no;
};

struct event {
    struct event *next;
    int64_t due_us;
    adapter_run_cb run_cb;
    adapter_timer_cb timer_cb;
    void *arg;
    struct step *step;
    char *nonce;
};

struct runner_scripted {
    struct adapter_runner base;
    struct step *steps;
    struct event *events;
    struct log {
        struct log *next;
        char *tool, *word;
    } *log;
    int64_t now_us;
    char error[512];
};

static struct runner_scripted *self(struct adapter_runner *base)
{
    return ADV_CONTAINER_OF(base, struct runner_scripted, base);
}

static bool step_matches(const struct step *s, const char *const argv[])
{
    size_t i = 0;

    for (; i < s->n_words; i++)
        if (!argv[i] || fnmatch(s->words[i], argv[i], 0) != 0)
            return false;
    return s->rest || !argv[i];
}

static char *find_nonce(const char *const argv[])
{
    const char *last = NULL, *from;

    for (size_t i = 0; argv[i]; i++)
        if (strchr(argv[i], '%') || strchr(argv[i], ':'))
            last = argv[i];
    if (!last)
        return NULL;
    from = last + strcspn(last, "%:");
    if (*from == '%')
        return strndup(last, (size_t) (from - last));
    return strndup(from + 1, strcspn(from + 1, ","));
}

static void enqueue(struct runner_scripted *r, struct event *e, int delay_ms)
{
    struct event **at = &r->events;

    e->due_us = r->now_us + (int64_t) delay_ms * 1000;
    while (*at && (*at)->due_us <= e->due_us)
        at = &(*at)->next;
    e->next = *at;
    *at = e;
}

static void scripted_run(struct adapter_runner *base, const char *const argv[], const struct adapter_run_opts *opts,
                         adapter_run_cb cb, void *arg)
{
    struct runner_scripted *r = self(base);
    struct event *e = calloc(1, sizeof(*e));
    struct log *l = calloc(1, sizeof(*l));
    struct step *s, *ordered = NULL, *match = NULL;

    if (!e || !l)
        abort();
    l->tool = strdup(argv[0]);
    l->word = argv[1] ? strdup(argv[1]) : NULL;
    l->next = r->log;
    r->log = l;
    for (s = r->steps; s; s = s->next) {
        if (!s->any && !s->used && !ordered)
            ordered = s;
        if (s->any && !match && step_matches(s, argv))
            match = s;
    }
    if (ordered && step_matches(ordered, argv))
        match = ordered;
    if (!match && !r->error[0]) {
        int n = snprintf(r->error, sizeof(r->error), "unexpected command:");
        for (size_t i = 0; argv[i] && n > 0 && (size_t) n < sizeof(r->error); i++)
            n += snprintf(r->error + n, sizeof(r->error) - (size_t) n, " '%s'", argv[i]);
        if (ordered && n > 0 && (size_t) n < sizeof(r->error))
            (void) snprintf(r->error + n, sizeof(r->error) - (size_t) n, "; line %u was next", ordered->line_no);
    }
    if (match)
        match->used++;
    *e = (struct event) { .run_cb = cb, .arg = arg, .step = match, .nonce = find_nonce(argv) };
    int delay = match ? match->delay_ms : 1;
    if (match && (match->end == ADAPTER_RUN_TIMED_OUT || delay > opts->deadline_ms))
        delay = opts->deadline_ms;
    enqueue(r, e, delay);
}

static void scripted_after(struct adapter_runner *base, int delay_ms, adapter_timer_cb cb, void *arg)
{
    struct event *e = calloc(1, sizeof(*e));

    if (!e)
        abort();
    *e = (struct event) { .timer_cb = cb, .arg = arg };
    enqueue(self(base), e, delay_ms);
}

static void substitute(struct adv_buf *out, const struct adv_buf *in, const char *nonce)
{
    const char *p = in->data, *hit;

    while (nonce && (hit = strstr(p, "${nonce}"))) {
        (void) adv_buf_append(out, p, (size_t) (hit - p));
        (void) adv_buf_append_str(out, nonce);
        p = hit + strlen("${nonce}");
    }
    (void) adv_buf_append_str(out, p);
}

static void fire(struct event *e)
{
    ADV_AUTO_DONE(adv_buf) out = { 0 };
    struct adapter_run_result res = { .end = ADAPTER_RUN_NOT_STARTED, .out = "", .err = "unexpected command" };

    adv_buf_init(&out, TEXT_MAX);
    if (e->step) {
        substitute(&out, &e->step->out, e->nonce);
        res = (struct adapter_run_result) {
            .end = e->step->end,
            .exit_code = e->step->exit_code,
            .out = out.data,
            .out_len = out.len,
            .err = e->step->err.data,
            .err_len = e->step->err.len,
            .took_us = (int64_t) e->step->delay_ms * 1000,
        };
    }
    if (e->run_cb)
        e->run_cb(e->arg, &res);
    else
        e->timer_cb(e->arg);
    free(e->nonce);
    free(e);
}

void runner_scripted_spin(struct adapter_runner *base, int64_t until_ms)
{
    struct runner_scripted *r = self(base);
    int64_t stop_us = r->now_us + until_ms * 1000;

    while (r->events && r->events->due_us <= stop_us) {
        struct event *e = r->events;
        r->events = e->next;
        if (e->due_us > r->now_us)
            r->now_us = e->due_us;
        fire(e);
    }
}

const char *runner_scripted_error(struct adapter_runner *base)
{
    struct runner_scripted *r = self(base);

    for (struct step *s = r->steps; s && !r->error[0]; s = s->next)
        if (!s->any && !s->used)
            (void) snprintf(r->error, sizeof(r->error), "line %u: '%s %s' was not asked for", s->line_no, s->words[0],
                            s->n_words > 1 ? s->words[1] : "");
    return r->error[0] ? r->error : NULL;
}

unsigned runner_scripted_count(struct adapter_runner *base, const char *tool, const char *word)
{
    unsigned n = 0;

    for (struct log *l = self(base)->log; l; l = l->next)
        n += strcmp(l->tool, tool) == 0 && (!word || adv_streq(l->word, word));
    return n;
}

static int64_t scripted_us(struct adapter_runner *base)
{
    return self(base)->now_us;
}

static void scripted_free(struct adapter_runner *base)
{
    struct runner_scripted *r = self(base);
    struct adapter_run_result killed = { .end = ADAPTER_RUN_TIMED_OUT, .out = "", .err = "" };

    while (r->events) {
        struct event *e = r->events;
        r->events = e->next;
        if (e->run_cb)
            e->run_cb(e->arg, &killed);
        else
            e->timer_cb(e->arg);
        free(e->nonce);
        free(e);
    }
    for (struct step *s = r->steps, *next; s; s = next) {
        next = s->next;
        adv_buf_done(&s->out);
        adv_buf_done(&s->err);
        free(s->line);
        free(s);
    }
    for (struct log *l = r->log, *next; l; l = next) {
        next = l->next;
        free(l->tool);
        free(l->word);
        free(l);
    }
    free(r);
}

static int parse_line(struct runner_scripted *r, struct step ***tail, struct step **cur, char *line, unsigned no)
{
    char kind = line[0];
    char *rest = line[0] && line[1] == ' ' ? line + 2 : line + 1;
    struct step *s = *cur;
    int64_t v;

    if (kind == '\0' || kind == '#')
        return 0;
    if (kind == '>') {
        if (!(s = calloc(1, sizeof(*s))) || !(s->line = strdup(rest))) {
            free(s);
            return -ADV_RESOURCE_EXHAUSTED;
        }
        adv_buf_init(&s->out, TEXT_MAX);
        adv_buf_init(&s->err, TEXT_MAX);
        s->delay_ms = 1;
        s->line_no = no;
        for (char *save = NULL, *w = strtok_r(s->line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
            if (s->n_words == WORDS_MAX)
                break;
            s->words[s->n_words++] = w;
        }
        if (s->n_words && strcmp(s->words[s->n_words - 1], "**") == 0) {
            s->n_words--;
            s->rest = true;
        }
        **tail = s;
        *tail = &s->next;
        *cur = s;
        return 0;
    }
    if (!s)
        return -ADV_INVALID_ARGUMENT;
    switch (kind) {
    case '<':
        if (line[1] == '~') {
            rest = line[2] == ' ' ? line + 3 : line + 2;
            return adv_buf_append_str(&s->out, rest);
        }
        return adv_buf_appendf(&s->out, "%s\n", rest);
    case '!':
        return adv_buf_appendf(&s->err, "%s\n", rest);
    case '=':
        if (strcmp(rest, "timeout") == 0)
            s->end = ADAPTER_RUN_TIMED_OUT;
        else if (strcmp(rest, "lost") == 0)
            s->end = ADAPTER_RUN_NOT_STARTED;
        else if (adv_parse_i64(rest, 0, 255, &v, NULL) == 0)
            s->exit_code = (int) v;
        else
            return -ADV_INVALID_ARGUMENT;
        return 0;
    case '@':
        if (adv_parse_i64(rest, 0, INT32_MAX, &v, NULL) < 0)
            return -ADV_INVALID_ARGUMENT;
        s->delay_ms = (int) v;
        return 0;
    case '?':
        s->any = true;
        return 0;
    default:
        return -ADV_INVALID_ARGUMENT;
    }
}

int runner_scripted_new(const char *text, struct adapter_runner **ret, struct adv_err *err)
{
    static const struct adapter_runner_ops ops = {
        .name = "scripted",
        .run = scripted_run,
        .after = scripted_after,
        .mono_us = scripted_us,
        .wall_us = scripted_us,
        .free = scripted_free,
    };
    struct runner_scripted *r = calloc(1, sizeof(*r));
    adv_auto_free char *copy = strdup(text);
    struct step **tail, *cur = NULL;
    unsigned no = 0;

    if (!r || !copy) {
        free(r);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "script: no memory");
    }
    r->base.ops = &ops;
    r->now_us = 1000000;
    tail = &r->steps;
    for (char *p = copy, *nl; *p; p = nl) {
        nl = strchrnul(p, '\n');
        if (*nl)
            *nl++ = '\0';
        no++;
        int rc = parse_line(r, &tail, &cur, p, no);
        if (rc < 0) {
            scripted_free(&r->base);
            return adv_err_set(err, (enum adv_code) -rc, "script: line %u", no);
        }
    }
    *ret = &r->base;
    return 0;
}
