/* SPDX-License-Identifier: Apache-2.0 */

/* Model: a helper stands for one user and owns that user's watches; a proc is one run of
 * advisor-tail for it. A proc that is killed may take for ever to end (a dead mount), so it is cut
 * off from its helper at once and freed whenever its end is seen, while the helper starts the next.
 *
 * Credit: the helper process may send `credit` more bytes. It is granted from what is left of the
 * rate, of the user's bound and of the bound of all; so nothing read is ever thrown away here.
 *
 * Fairness: users may be hostile, or just loud. Fresh rate is dealt out in equal shares; what a helper
 * leaves of its share goes to all. Half of the memory serves only first grants of GRANT_MIN, because
 * credit once given cannot be taken back. Helpers, and files of one helper, are served in turn.
 *
 * Everything a proc sends is checked against what it was asked for: it runs as the user. A proc that
 * breaks the rules is killed. */

#include "advisor-agent/tail/tail.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <uv.h>

#include "advisor-agent/tail/frame.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/spawn.h"
#include "common/telemetry.h"

#define TIMER_MS        250
#define RESTART_MIN_MS  500
#define RESTART_MAX_MS  60000
#define GRANT_MIN       4096u
#define ABANDONED_MAX   4 /* stuck processes of one user before we stop starting more */
#define REASON_MAX      120

struct chunk {
    struct chunk *next;
    uint64_t offset, dropped;
    size_t len;
    uint8_t data[];
};

struct proc {
    struct helper *helper;     /* NULL: cut off */
    struct tail_manager *m;    /* NULL: manager gone */
    struct adv_spawn *spawn;
    uv_pipe_t in, out;
    unsigned open_handles; /* pipes */
    bool exited;
    struct tail_page *page;
    struct adv_buf rx;
    bool ticked;
    int64_t heard_ms;
};

struct helper {
    struct helper *next;
    struct tail_manager *m;
    uint32_t uid;
    struct proc *proc;
    struct tail_watch *watches;
    size_t credit; /* granted and not used */
    size_t queued;
    uint64_t tokens; /* its own share of the rate */
    unsigned failures;
    unsigned abandoned;
    int64_t start_ms; /* next start */
    char last_error[REASON_MAX];
};

struct tail_watch {
    struct tail_watch *next;
    struct helper *helper;
    uint32_t id;
    uint8_t *path;
    size_t path_len;
    uint64_t offset; /* of the next byte expected from the helper; may be TAIL_START_AT_END */
    uint64_t delivered;
    uint64_t counted; /* behind the last byte that came or was counted as left out */
    void *user;
    bool start_known;
    const char *start_reason; /* if it is not known */
    uint64_t born_after_s;    /* until it has been opened */
    bool behind;
    bool hung;
    int64_t retry_ms;
    enum tail_state state;
    char reason[REASON_MAX];
    char error[REASON_MAX]; /* the helper's last word, "" = opened */
    bool opened_once;
    uint64_t dropped;
    bool changed; /* to be told */
    struct chunk *first, **last;
};

struct tail_manager {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct tail_config cfg;
    char *helper_path;
    const struct tail_ops *ops;
    void *ctx;
    struct helper *helpers;
    struct proc **procs; /* all that still live, cut off or not */
    size_t n_procs;
    uint32_t next_id;
    size_t n_files;
    size_t reserved; /* credit + queued over all helpers */
    size_t queued;
    uint64_t tokens; /* for whoever asks */
    int64_t tokens_ms;
    bool closing;
    bool delivering;
};

static int64_t now_ms(void)
{
    return adv_mono_us() / 1000;
}

struct tail_start tail_start_rule(bool first, bool append, bool seen, uint64_t seen_size)
{
    if (!append) /* Slurm truncates at each start unless told to append */
        return (struct tail_start) { 0, true };
    if (seen)
        return (struct tail_start) { seen_size, true };
    return first ? (struct tail_start) { 0, false } : (struct tail_start) { TAIL_START_AT_END, false };
}

static bool has_number(const uint8_t *path, size_t len, const char *digits, size_t n)
{
    for (size_t i = 0; n > 0 && i + n <= len; i++)
        if (memcmp(path + i, digits, n) == 0 && (i == 0 || !isdigit(path[i - 1])) &&
            (i + n == len || !isdigit(path[i + n])))
            return true;
    return false;
}

bool tail_path_has_id(const void *path, size_t len, const char *id)
{
    size_t n = strspn(id, "0123456789");

    return has_number(path, len, id, n) &&
           (id[n] != '_' || has_number(path, len, id + n + 1, strspn(id + n + 1, "0123456789")));
}

/* State */

static void set_state(struct tail_watch *w, enum tail_state state, const char *reason)
{
    if (w->state == state && strcmp(w->reason, reason) == 0)
        return;
    w->state = state;
    (void) snprintf(w->reason, sizeof(w->reason), "%s", reason);
    w->changed = true;
}

static void judge(struct tail_watch *w)
{
    if (w->hung)
        set_state(w, TAIL_STATE_LOST, "hung");
    else if (w->error[0])
        set_state(w, w->opened_once && w->dropped == 0 && strcmp(w->error, "no such file") == 0
                         ? TAIL_STATE_COMPLETE
                         : TAIL_STATE_LOST,
                  w->error);
    else if (!w->opened_once)
        set_state(w, TAIL_STATE_PENDING, "");
    else if (!w->start_known)
        set_state(w, TAIL_STATE_PARTIAL, w->start_reason);
    else if (w->behind)
        set_state(w, TAIL_STATE_PARTIAL, w->dropped ? "shed under load" : "behind");
    else if (w->dropped)
        set_state(w, TAIL_STATE_PARTIAL, ADV_TELEMETRY_WHOLE_SINCE);
    else
        set_state(w, TAIL_STATE_COMPLETE, "");
}

static void tell_changes(struct tail_manager *m)
{
again:
    for (struct helper *h = m->helpers; h; h = h->next)
        for (struct tail_watch *w = h->watches; w; w = w->next)
            if (w->changed) {
                w->changed = false;
                m->ops->on_state(m->ctx, w, w->state, w->reason, w->dropped);
                if (m->closing)
                    return;
                goto again; /* the callback may have changed the lists */
            }
}

/* Processes */

static void proc_maybe_free(struct proc *p)
{
    if (!p->exited || p->open_handles > 0)
        return;
    if (p->m)
        for (size_t i = 0; i < p->m->n_procs; i++)
            if (p->m->procs[i] == p) {
                p->m->procs[i] = p->m->procs[--p->m->n_procs];
                break;
            }
    adv_buf_done(&p->rx);
    if (p->page)
        (void) munmap(p->page, sizeof(*p->page));
    free(p);
}

static void on_pipe_closed(uv_handle_t *h)
{
    struct proc *p = h->data;

    p->open_handles--;
    proc_maybe_free(p);
}

static void close_pipes(struct proc *p)
{
    if (p->open_handles && !uv_is_closing((uv_handle_t *) &p->in))
        uv_close((uv_handle_t *) &p->in, on_pipe_closed);
    if (p->open_handles && !uv_is_closing((uv_handle_t *) &p->out))
        uv_close((uv_handle_t *) &p->out, on_pipe_closed);
}

/* Cuts the process off. @kill: it does not end by itself when its stdin closes. */
static void cut_off(struct proc *p, bool kill)
{
    struct helper *h = p->helper;

    p->helper = NULL;
    if (h) {
        h->m->reserved -= h->credit;
        h->credit = 0;
        h->proc = NULL;
        if (!p->exited)
            h->abandoned++;
    }
    close_pipes(p);
    if (kill && !p->exited)
        adv_spawn_cancel(p->spawn);
}

static void schedule(struct helper *h)
{
    int64_t wait = RESTART_MIN_MS;

    for (unsigned i = 1; i < h->failures && wait < RESTART_MAX_MS; i++)
        wait *= 2;
    h->start_ms = now_ms() + (wait < RESTART_MAX_MS ? wait : RESTART_MAX_MS);
}

/* The run has ended badly: try again later, say so if it keeps happening. */
static void failed(struct helper *h, const char *why)
{
    h->failures++;
    (void) snprintf(h->last_error, sizeof(h->last_error), "helper: %.100s", why);
    schedule(h);
    if (h->failures >= 2)
        for (struct tail_watch *w = h->watches; w; w = w->next) {
            (void) snprintf(w->error, sizeof(w->error), "%s", h->last_error);
            judge(w);
        }
}

static struct helper *find_helper(const struct tail_manager *m, uint32_t uid)
{
    for (struct helper *h = m->helpers; h; h = h->next)
        if (h->uid == uid)
            return h;
    return NULL;
}

static void on_proc_exit(void *user, const struct adv_spawn_result *res)
{
    struct proc *p = user;
    struct helper *h = p->helper;
    char why[REASON_MAX];

    p->exited = true;
    p->spawn = NULL;
    if (h) {
        size_t n = strcspn(res->err_out ? res->err_out : "", "\n");
        if (n > 0)
            (void) snprintf(why, sizeof(why), "%.*s", (int) (n < 100 ? n : 100), res->err_out);
        else if (res->exec_errno)
            (void) snprintf(why, sizeof(why), "%s", strerror(res->exec_errno));
        else
            (void) snprintf(why, sizeof(why), "ended (exit code %d, signal %d)", res->exit_code,
                            res->term_signal);
        if (p->ticked)
            h->failures = 0;
        cut_off(p, false);
        failed(h, why);
        tell_changes(h->m);
    } else {
        close_pipes(p);
    }
    proc_maybe_free(p);
}

struct out_frame {
    uv_write_t req;
    uint8_t data[];
};

static void on_frame_written(uv_write_t *req, int status)
{
    free(req->data);
}

static void send_frame(struct helper *h, enum tail_frame_type type, uint32_t id,
                       const uint8_t *payload, size_t len)
{
    struct out_frame *f;
    uv_buf_t buf;

    if (!h->proc)
        return;
    f = malloc(sizeof(*f) + TAIL_FRAME_HEAD + len);
    if (!f)
        return; /* an OPEN is repeated by the next run; CREDIT by the next grant */
    f->req.data = f;
    tail_frame_head(f->data, type, id, len);
    if (len)
        memcpy(f->data + TAIL_FRAME_HEAD, payload, len);
    buf = uv_buf_init((char *) f->data, (unsigned) (TAIL_FRAME_HEAD + len));
    if (uv_write(&f->req, (uv_stream_t *) &h->proc->in, &buf, 1, on_frame_written) < 0)
        free(f);
}

static void send_open(struct tail_watch *w)
{
    uint8_t payload[TAIL_OPEN_HEAD + TAIL_PATH_MAX];

    w->behind = false;
    tail_put(payload, 8, w->offset);
    tail_put(payload + 8, 8, w->helper->m->cfg.max_lag_bytes);
    tail_put(payload + 16, 8, w->born_after_s);
    memcpy(payload + TAIL_OPEN_HEAD, w->path, w->path_len);
    send_frame(w->helper, TAIL_FRAME_OPEN, w->id, payload, TAIL_OPEN_HEAD + w->path_len);
}

static void grant(struct helper *h)
{
    struct tail_manager *m = h->m;
    size_t used = h->credit + h->queued, allowed;
    uint8_t payload[4];

    if (!h->proc || !h->proc->ticked || used >= m->cfg.max_buffered_user_bytes)
        return;
    allowed = m->cfg.max_buffered_user_bytes - used;
    size_t room = m->reserved < m->cfg.max_buffered_bytes / 2 ? m->cfg.max_buffered_bytes / 2 - m->reserved : 0;
    if (room < GRANT_MIN && used < TAIL_CREDIT_LOW && m->reserved + GRANT_MIN <= m->cfg.max_buffered_bytes)
        room = GRANT_MIN;
    if (allowed > room)
        allowed = room;
    if (allowed > h->tokens + m->tokens)
        allowed = h->tokens + m->tokens;
    if (allowed < GRANT_MIN)
        return;
    h->credit += allowed;
    m->reserved += allowed;
    uint64_t own = allowed < h->tokens ? allowed : h->tokens;
    h->tokens -= own;
    m->tokens -= allowed - own;
    tail_put(payload, 4, allowed);
    send_frame(h, TAIL_FRAME_CREDIT, 0, payload, sizeof(payload));
}

/* Data */

static void queue(struct tail_watch *w, uint64_t offset, const uint8_t *data, size_t len,
                  uint64_t dropped)
{
    struct chunk *c = malloc(sizeof(*c) + len);

    if (!c) {
        w->dropped += len;
        return;
    }
    *c = (struct chunk) { .offset = offset, .dropped = dropped, .len = len };
    memcpy(c->data, data, len);
    *w->last = c;
    w->last = &c->next;
    w->helper->queued += len;
    w->helper->m->queued += len;
    w->helper->m->reserved += len;
}

static void drop_chunk(struct tail_watch *w)
{
    struct chunk *c = w->first;

    w->first = c->next;
    if (!w->first)
        w->last = &w->first;
    w->helper->queued -= c->len;
    w->helper->m->queued -= c->len;
    w->helper->m->reserved -= c->len;
    free(c);
}

/* To the end of the list: others come first next time. */
static void last_in_turn(struct tail_manager *m, struct helper *h, struct tail_watch *w)
{
    struct helper **ph = &m->helpers;
    struct tail_watch **pw = &h->watches;

    for (struct helper **p = ph; *p; p = ph)
        if (*p == h)
            *p = h->next;
        else
            ph = &(*p)->next;
    h->next = NULL;
    *ph = h;
    if (!w)
        return;
    for (struct tail_watch **p = pw; *p; p = pw)
        if (*p == w)
            *p = w->next;
        else
            pw = &(*p)->next;
    w->next = NULL;
    *pw = w;
}

static bool deliver_one(struct tail_manager *m)
{
    for (struct helper *h = m->helpers; h; h = h->next)
        for (struct tail_watch *w = h->watches; w; w = w->next)
            if (w->first) {
                struct chunk *c = w->first;
                uint64_t end = c->offset + c->len;
                w->first = c->next;
                if (!w->first)
                    w->last = &w->first;
                if (!m->ops->on_data(m->ctx, w, c->offset, c->data, c->len, c->dropped)) {
                    c->next = w->first;
                    w->first = c;
                    if (!c->next)
                        w->last = &c->next;
                    return false;
                }
                w->delivered = end;
                h->queued -= c->len;
                m->queued -= c->len;
                m->reserved -= c->len;
                free(c);
                last_in_turn(m, h, w);
                return true;
            }
    return false;
}

void tail_manager_resume(struct tail_manager *m)
{
    if (m->delivering || m->closing)
        return;
    m->delivering = true;
    while (!m->closing && deliver_one(m))
        ;
    m->delivering = false;
    for (struct helper *h = m->helpers; h && !m->closing; h = h->next)
        grant(h);
}

static struct tail_watch *find_watch(struct helper *h, uint32_t id)
{
    for (struct tail_watch *w = h->watches; w; w = w->next)
        if (w->id == id)
            return w;
    return NULL;
}

/* Returns false if the process broke the rules. */
static bool handle_data(struct helper *h, struct tail_watch *w, const struct tail_frame *in)
{
    uint64_t offset = tail_get(in->payload, 8), dropped = 0, known;
    size_t len = in->len - 8;

    if (len > h->credit)
        return false;
    h->credit -= len;
    h->m->reserved -= len;
    if (!w)
        return true; /* closed meanwhile */
    if (offset + len < offset || offset < w->offset || !w->opened_once)
        return false;
    dropped = offset - w->offset;
    known = w->offset > w->counted ? w->offset : w->counted; /* after a rewind the same gap may come again */
    w->offset = offset + len;
    if (w->offset > w->counted)
        w->counted = w->offset;
    if (offset > known) {
        w->dropped += offset - known;
        judge(w);
        w->changed = true;
    }
    if (h->m->queued == 0 && !h->m->delivering &&
        h->m->ops->on_data(h->m->ctx, w, offset, in->payload + 8, len, dropped)) {
        w->delivered = w->offset;
        return true;
    }
    queue(w, offset, in->payload + 8, len, dropped);
    return true;
}

static bool handle(struct helper *h, const struct tail_frame *in)
{
    struct tail_manager *m = h->m;
    struct tail_watch *w = find_watch(h, in->id);

    switch (in->type) {
    case TAIL_FRAME_TICK:
        h->proc->ticked = true;
        break;
    case TAIL_FRAME_DATA:
        return handle_data(h, w, in);
    case TAIL_FRAME_OPENED:
        if (!w)
            break;
        if (w->born_after_s && w->offset == 0 && tail_get(in->payload + 24, 8) > 0) {
            w->start_known = false;
            w->start_reason = "the file is older than the attempt";
        }
        w->born_after_s = 0;
        w->offset = tail_get(in->payload + 24, 8);
        w->opened_once = true;
        w->error[0] = '\0';
        judge(w);
        if (m->ops->on_opened)
            m->ops->on_opened(m->ctx, w, tail_get(in->payload, 8), tail_get(in->payload + 8, 8),
                              tail_get(in->payload + 16, 8), w->offset);
        break;
    case TAIL_FRAME_TRUNCATED:
    case TAIL_FRAME_ROTATED:
        if (!w)
            break;
        /* Bytes still queued here belong to the old content; they are kept in order. */
        w->offset = w->counted = 0;
        if (m->ops->on_restart)
            m->ops->on_restart(m->ctx, w, in->type == TAIL_FRAME_ROTATED);
        break;
    case TAIL_FRAME_BEHIND:
    case TAIL_FRAME_CAUGHT_UP:
        if (!w)
            break;
        w->behind = in->type == TAIL_FRAME_BEHIND;
        judge(w);
        break;
    case TAIL_FRAME_ERROR:
        if (!w)
            break;
        for (size_t i = 0, n = in->len < REASON_MAX - 1 ? in->len : REASON_MAX - 1; i < n; i++) {
            uint8_t c = in->payload[i];
            w->error[i] = c >= 0x20 && c < 0x7f ? (char) c : '?';
            w->error[i + 1] = '\0';
        }
        judge(w);
        break;
    default:
        return false; /* not for this direction */
    }
    return true;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct proc *p = handle->data;
    size_t room = 2 * (TAIL_FRAME_HEAD + TAIL_PAYLOAD_MAX) - p->rx.len;

    buf->base = adv_buf_reserve(&p->rx, room);
    buf->len = buf->base ? room : 0;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct proc *p = stream->data;
    size_t done = 0;

    if (n <= 0) {
        if (n < 0 && p->helper) /* the exit callback tells the rest */
            (void) uv_read_stop(stream);
        return;
    }
    adv_buf_commit(&p->rx, (size_t) n);
    p->heard_ms = now_ms();
    while (p->helper) {
        struct tail_frame in;
        long used = tail_frame_parse((const uint8_t *) p->rx.data + done, p->rx.len - done, &in);
        if (used == 0)
            break;
        if (used < 0 || !handle(p->helper, &in)) {
            struct helper *h = p->helper;
            if (h) { /* else a callback ended it */
                cut_off(p, true);
                failed(h, "broke the protocol");
            }
            break;
        }
        done += (size_t) used;
    }
    adv_buf_consume(&p->rx, done);
    if (p->rx.len == 0)
        adv_buf_done(&p->rx);
    if (p->helper) {
        grant(p->helper);
        tell_changes(p->helper->m);
    }
}

static void start(struct helper *h)
{
    struct tail_manager *m = h->m;
    adv_auto_close int memfd = -1;
    char uid[24], min_uid[24];
    const char *argv[] = { m->helper_path, "--uid", uid, "--min-uid", min_uid, NULL };
    struct proc *p, **more;
    struct adv_err err;
    int in = -1, out = -1;

    if (h->abandoned >= ABANDONED_MAX) {
        failed(h, "too many processes are stuck");
        return;
    }
    (void) snprintf(uid, sizeof(uid), "%u", h->uid);
    (void) snprintf(min_uid, sizeof(min_uid), "%u", m->cfg.min_uid);
    p = calloc(1, sizeof(*p));
    more = realloc(m->procs, (m->n_procs + 1) * sizeof(*more));
    if (more)
        m->procs = more;
    memfd = memfd_create("advisor-tail", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (!p || !more || memfd < 0 || ftruncate(memfd, (off_t) sizeof(*p->page)) < 0 ||
        fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        free(p);
        failed(h, "no memory");
        return;
    }
    adv_buf_init(&p->rx, 4 * TAIL_PAYLOAD_MAX);
    p->m = m;
    p->page = mmap(NULL, sizeof(*p->page), PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (p->page == MAP_FAILED) {
        free(p);
        failed(h, "no memory");
        return;
    }
    struct adv_spawn_opts opts = {
        .argv = argv,
        .stderr_max = 1024,
        .extra_fds = &memfd,
        .n_extra_fds = 1,
        .cb = on_proc_exit,
        .user = p,
    };
    if (adv_spawn_pipe(m->loop, &opts, &in, &out, &p->spawn, &err) < 0) {
        (void) munmap(p->page, sizeof(*p->page));
        free(p);
        failed(h, err.msg);
        return;
    }
    m->procs[m->n_procs++] = p;
    p->open_handles = 2;
    (void) uv_pipe_init(m->loop, &p->in, 0);
    (void) uv_pipe_init(m->loop, &p->out, 0);
    p->in.data = p->out.data = p;
    p->helper = h;
    p->heard_ms = now_ms();
    h->proc = p;
    if (uv_pipe_open(&p->in, in) < 0 || uv_pipe_open(&p->out, out) < 0 ||
        uv_read_start((uv_stream_t *) &p->out, on_alloc, on_read) < 0) {
        cut_off(p, true);
        failed(h, "no pipe");
        return;
    }
    for (struct tail_watch *w = h->watches; w; w = w->next)
        if (!w->hung)
            send_open(w);
}

static void helper_free(struct helper *h)
{
    struct tail_manager *m = h->m;

    if (h->proc)
        cut_off(h->proc, false); /* ends when its stdin closes */
    for (struct helper **pp = &m->helpers; *pp; pp = &(*pp)->next)
        if (*pp == h) {
            *pp = h->next;
            break;
        }
    free(h);
}

/* No sign of life: the page tells which file it is. */
static void hang(struct helper *h)
{
    struct proc *p = h->proc;
    uint32_t id = __atomic_load_n(&p->page->current_id, __ATOMIC_SEQ_CST);
    struct tail_watch *w = find_watch(h, id);

    if (w) {
        w->hung = true;
        w->retry_ms = now_ms() + (int64_t) h->m->cfg.hung_retry_ms;
        judge(w);
    }
    cut_off(p, true);
    if (w)
        h->start_ms = now_ms();
    else
        failed(h, "no sign of life");
}

static void count_abandoned(struct tail_manager *m)
{
    for (struct helper *h = m->helpers; h; h = h->next)
        h->abandoned = 0;
    /* Cut-off processes no longer know their helper; all of them count for everybody, which errs on
     * the safe side and needs no bookkeeping. */
    unsigned stuck = 0;
    for (size_t i = 0; i < m->n_procs; i++)
        stuck += !m->procs[i]->helper && !m->procs[i]->exited;
    for (struct helper *h = m->helpers; h; h = h->next)
        h->abandoned = stuck;
}

/* Equal shares of the fresh rate; what a helper has no use for goes to whoever asks. */
static void deal(struct tail_manager *m, int64_t now)
{
    uint64_t fresh = (uint64_t) (now - m->tokens_ms) * m->cfg.rate_bytes_per_s / 1000, n = 0;

    m->tokens_ms = now;
    for (struct helper *h = m->helpers; h; h = h->next)
        n++;
    for (struct helper *h = m->helpers; h; h = h->next) {
        uint64_t share = fresh / n, most = m->cfg.burst_bytes / n > GRANT_MIN ? m->cfg.burst_bytes / n : GRANT_MIN;
        if (h->tokens + share > most)
            share = h->tokens < most ? most - h->tokens : 0;
        h->tokens += share;
        m->tokens += fresh / n - share;
    }
    m->tokens += n ? fresh % n : fresh;
    if (m->tokens > m->cfg.burst_bytes)
        m->tokens = m->cfg.burst_bytes;
    if (m->helpers)
        last_in_turn(m, m->helpers, NULL);
    if (m->queued)
        tail_manager_resume(m);
}

static void on_timer(uv_timer_t *timer)
{
    struct tail_manager *m = timer->data;
    int64_t now = now_ms();

    deal(m, now);
    count_abandoned(m);
    for (struct helper *h = m->helpers, *next; h; h = next) {
        next = h->next;
        if (!h->watches) {
            helper_free(h);
            continue;
        }
        if (h->proc && now - h->proc->heard_ms > (int64_t) m->cfg.hang_timeout_ms)
            hang(h);
        for (struct tail_watch *w = h->watches; w; w = w->next)
            if (w->hung && now >= w->retry_ms) {
                w->hung = false;
                judge(w);
                send_open(w);
            }
        if (!h->proc && now >= h->start_ms)
            start(h);
        grant(h);
    }
    tell_changes(m);
    if (!m->closing && !m->helpers)
        (void) uv_timer_stop(&m->timer);
}

static void ensure_timer(struct tail_manager *m)
{
    if (!uv_is_active((uv_handle_t *) &m->timer)) {
        m->tokens_ms = now_ms();
        (void) uv_timer_start(&m->timer, on_timer, 0, TIMER_MS);
    }
}

int tail_manager_new(uv_loop_t *loop, const struct tail_config *cfg, const struct tail_ops *ops,
                     void *ctx, struct tail_manager **ret, struct adv_err *err)
{
    struct tail_manager *m = calloc(1, sizeof(*m));

    if (!m || !(m->helper_path = strdup(cfg->helper_path)) || uv_timer_init(loop, &m->timer) < 0) {
        if (m)
            free(m->helper_path);
        free(m);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for tails");
    }
    m->loop = loop;
    m->cfg = *cfg;
    m->ops = ops;
    m->ctx = ctx;
    m->timer.data = m;
    m->next_id = 1;
#define DEFAULT(field, value) (m->cfg.field = m->cfg.field ? m->cfg.field : (value))
    DEFAULT(max_buffered_bytes, 2u << 20);
    DEFAULT(max_buffered_user_bytes, 256u << 10);
    DEFAULT(rate_bytes_per_s, 1u << 20);
    DEFAULT(burst_bytes, 4u << 20);
    DEFAULT(max_lag_bytes, 64u << 20);
    DEFAULT(hang_timeout_ms, 10000);
    DEFAULT(hung_retry_ms, 600000);
    DEFAULT(max_files, TAIL_FILES_MAX);
#undef DEFAULT
    m->tokens = m->cfg.burst_bytes;
    *ret = m;
    return 0;
}

static void on_manager_closed(uv_handle_t *handle)
{
    struct tail_manager *m = handle->data;

    free(m->procs);
    free(m->helper_path);
    free(m);
}

struct tail_manager *tail_manager_free(struct tail_manager *m)
{
    if (!m || m->closing)
        return NULL;
    m->closing = true;
    while (m->helpers) {
        struct helper *h = m->helpers;
        while (h->watches)
            (void) tail_unwatch(h->watches);
        helper_free(h);
    }
    for (size_t i = 0; i < m->n_procs; i++) {
        m->procs[i]->m = NULL;
        if (!m->procs[i]->exited)
            adv_spawn_cancel(m->procs[i]->spawn);
    }
    m->n_procs = 0;
    uv_close((uv_handle_t *) &m->timer, on_manager_closed);
    return NULL;
}

int tail_watch(struct tail_manager *m, const struct tail_watch_args *args, struct tail_watch **ret,
               struct adv_err *err)
{
    struct helper *h = find_helper(m, args->uid);
    struct tail_watch *w;

    if (args->path_len < 2 || args->path_len > TAIL_PATH_MAX ||
        ((const char *) args->path)[0] != '/' || memchr(args->path, '\0', args->path_len))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "output path is not absolute");
    if (args->uid == 0 || args->uid < m->cfg.min_uid)
        return adv_err_set(err, ADV_PERMISSION_DENIED, "files of uid %u are not read", args->uid);
    if (m->n_files >= m->cfg.max_files)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "too many files are followed (%zu)",
                           m->n_files);
    w = calloc(1, sizeof(*w));
    if (!w || !(w->path = malloc(args->path_len)) || (!h && !(h = calloc(1, sizeof(*h))))) {
        if (w)
            free(w->path);
        free(w);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a tail");
    }
    if (!h->m) {
        h->m = m;
        h->uid = args->uid;
        h->next = m->helpers;
        m->helpers = h;
    }
    memcpy(w->path, args->path, args->path_len);
    w->path_len = args->path_len;
    w->id = m->next_id++;
    if (m->next_id == 0)
        m->next_id = 1;
    w->offset = args->start_offset;
    w->start_known = args->start_known;
    w->start_reason = "where the attempt begins in its file is not known";
    w->born_after_s = args->born_after_s > 0 ? (uint64_t) args->born_after_s : 0;
    w->user = args->user;
    w->last = &w->first;
    w->helper = h;
    w->next = h->watches;
    h->watches = w;
    m->n_files++;
    send_open(w);
    ensure_timer(m);
    *ret = w;
    return 0;
}

struct tail_watch *tail_unwatch(struct tail_watch *w)
{
    struct helper *h;

    if (!w)
        return NULL;
    h = w->helper;
    for (struct tail_watch **pp = &h->watches; *pp; pp = &(*pp)->next)
        if (*pp == w) {
            *pp = w->next;
            break;
        }
    while (w->first)
        drop_chunk(w);
    h->m->n_files--;
    send_frame(h, TAIL_FRAME_CLOSE, w->id, NULL, 0);
    free(w->path);
    free(w);
    return NULL;
}

void tail_watch_rewind(struct tail_watch *w, uint64_t offset)
{
    struct tail_manager *m = w->helper->m;

    if (offset >= w->delivered)
        return;
    while (w->first)
        drop_chunk(w);
    /* Under another number, so that what is on its way from the helper finds nobody. */
    send_frame(w->helper, TAIL_FRAME_CLOSE, w->id, NULL, 0);
    w->id = m->next_id++;
    if (m->next_id == 0)
        m->next_id = 1;
    w->offset = w->delivered = offset;
    if (!w->hung)
        send_open(w);
}

bool tail_watch_behind(const struct tail_watch *w)
{
    return w->behind || w->first;
}

void *tail_watch_user(const struct tail_watch *w)
{
    return w->user;
}

uint64_t tail_watch_offset(const struct tail_watch *w)
{
    return w->delivered;
}

int tail_helper_pid(const struct tail_manager *m, uint32_t uid)
{
    const struct helper *h = find_helper(m, uid);

    return h && h->proc && h->proc->spawn ? (int) adv_spawn_pid(h->proc->spawn) : 0;
}
