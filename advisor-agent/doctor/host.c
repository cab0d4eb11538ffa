/* SPDX-License-Identifier: Apache-2.0 */

/* A path that somebody else chose (a job's output) is touched by the helper alone, which may hang and be killed; what kind of
 * file system is under it is read from the list of mounts, by the device of the file that the helper opened. The state folder,
 * the ceiling and the certificates are touched here: they are the agent's own, and an agent whose folder hangs does not run
 * either; doctor.c ends a doctor that hangs. */

#include "advisor-agent/doctor/host.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>

#include "advisor-agent/ceiling.h"
#include "advisor-agent/doctor/read.h"
#include "advisor-agent/journal.h"
#include "advisor-agent/pki.h"
#include "advisor-agent/tail/tail.h"
#include "advisor-agent/wire/wire.h"
#include "common/buf.h"
#include "common/clock.h"

#define HELPER_MS    5000
#define PROCESSES    65536 /* looked at for other agents */
#define CMDLINE_MAX  16384
#define FLAGS_MAX    64
#define TAIL_RATE    65536

static void user_name(uid_t uid, char *ret, size_t cap)
{
    struct passwd pw, *found = NULL;
    char buf[4096];

    if (getpwuid_r(uid, &pw, buf, sizeof(buf), &found) == 0 && found)
        (void) snprintf(ret, cap, "%s", pw.pw_name);
    else
        (void) snprintf(ret, cap, "%u", (unsigned) uid);
}

void doctor_user_name(char *ret, size_t cap)
{
    user_name(geteuid(), ret, cap);
}

/* ---- state folder ---- */

static void look_at_journal(const char *dir, struct doctor_host *h)
{
    ADV_AUTO(journal_view) v = NULL;
    struct adv_err err = { 0 };
    bool changed;
    size_t pos = 0;
    const struct journal_step *step;
    int fd = -1;
    int r = journal_folder_lock(dir, &fd, &err);

    h->agent_runs = r == 0 || r == -ADV_NOT_FOUND ? DOCTOR_NO : r == -ADV_ALREADY_EXISTS ? DOCTOR_YES : DOCTOR_UNKNOWN;
    if (fd >= 0)
        (void) close(fd);
    r = journal_view_new(dir, JOURNAL_VIEW_STEPS, &v, &err);
    if (r == 0)
        r = journal_view_refresh(v, &changed, &err);
    h->journal_code = r;
    if (r < 0) {
        doctor_clean(h->journal_said, sizeof(h->journal_said), err.msg, strlen(err.msg));
        return;
    }
    while ((step = journal_view_next_step(v, &pos))) {
        int64_t ahead_s = step->wall_us / 1000000 - h->wall_s;

        h->open_steps += !step->done;
        if (ahead_s > h->journal_ahead_s)
            h->journal_ahead_s = ahead_s;
    }
    for (pos = 0; journal_view_next_hold(v, &pos);)
        h->holds++;
}

static void look_at_folder(const struct agent_config *c, struct doctor_host *h)
{
    const char *dir = c->state_dir;
    struct statvfs fs;
    struct stat st;

    doctor_clean(h->state_dir, sizeof(h->state_dir), dir, strlen(dir));
    h->free_bytes = -1;
    h->journal_code = -ADV_NOT_FOUND;
    if (stat(dir, &st) < 0) {
        char parent[512];
        char *slash;

        if (errno != ENOENT && errno != ENOTDIR)
            return;
        h->dir_exists = DOCTOR_NO;
        (void) snprintf(parent, sizeof(parent), "%.500s", dir);
        if ((slash = strrchr(parent, '/')))
            slash[slash == parent] = '\0';
        h->dir_creatable = access(slash ? parent : ".", W_OK | X_OK) == 0 ? DOCTOR_YES : DOCTOR_NO;
        return;
    }
    h->dir_exists = DOCTOR_YES;
    if (!S_ISDIR(st.st_mode)) {
        h->dir_writable = DOCTOR_NO;
        return;
    }
    h->dir_mode = st.st_mode & 0777;
    h->dir_open = (st.st_mode & 022) != 0;
    user_name(st.st_uid, h->state_owner, sizeof(h->state_owner));
    h->state_uid = st.st_uid;
    h->other_user = st.st_uid != geteuid();
    h->dir_writable = access(dir, R_OK | W_OK | X_OK) == 0 ? DOCTOR_YES : DOCTOR_NO;
    if (c->allow_volatile)
        h->dir_lasting = DOCTOR_YES;
    else
        h->dir_lasting = journal_folder_lasting(dir) ? DOCTOR_YES : DOCTOR_NO;
    if (statvfs(dir, &fs) == 0)
        h->free_bytes = (int64_t) (fs.f_bavail < (fsblkcnt_t) INT64_MAX / (fs.f_frsize ? fs.f_frsize : 1) ? fs.f_bavail * fs.f_frsize : INT64_MAX);
    if (h->dir_writable == DOCTOR_YES)
        look_at_journal(dir, h);
}

/* ---- other agents ---- */

/* Anybody can call a process advisor-agent. What its command line names is opened only for those who run agents here: root,
 * ourselves, and whose the state folder is. /proc's owners do not tell: what is not dumpable is shown as root's. */
static bool is_trusted(const char *pid, const struct doctor_host *h)
{
    char path[64], text[4096];
    uid_t real, effective;
    ssize_t n;

    (void) snprintf(path, sizeof(path), "/proc/%.10s/status", pid);
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (n = read(fd, text, sizeof(text) - 1)) <= 0)
        return false;
    text[n] = '\0';
    if (!doctor_read_uids(text, (size_t) n, &real, &effective))
        return false;
    const uid_t theirs[] = { real, effective };
    for (size_t i = 0; i < 2; i++)
        if (theirs[i] != 0 && theirs[i] != geteuid() && !(h->dir_exists == DOCTOR_YES && h->state_owner[0] && theirs[i] == h->state_uid))
            return false;
    return true;
}

/* Its file of settings, by a path that cannot come to mean another file, nor hang; false if it is none. */
static bool open_settings(const char *config, int *ret_fd, char *ret, size_t cap)
{
    struct stat st;
    int fd = config[0] == '/' ? open(config, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;

    if (fd < 0)
        return false;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        (void) close(fd);
        return false;
    }
    *ret_fd = fd;
    (void) snprintf(ret, cap, "/proc/self/fd/%d", fd);
    return true;
}

static void look_at_agent(const char *pid, const struct agent_config *c, struct doctor_host *h)
{
    char path[64], text[CMDLINE_MAX], comm[32] = "", *flags[FLAGS_MAX];
    adv_auto_close int fd = -1;
    adv_auto_close int settings = -1;
    ADV_AUTO(adv_config) cfg = NULL;
    struct adv_config_table table = agent_config_table;
    const char *config;
    ssize_t n;

    (void) snprintf(path, sizeof(path), "/proc/%.10s/comm", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (n = read(fd, comm, sizeof(comm) - 1)) <= 0)
        return;
    comm[n] = '\0';
    if (!adv_streq(comm, "advisor-agent\n") || !is_trusted(pid, h))
        return;
    (void) close(fd);
    (void) snprintf(path, sizeof(path), "/proc/%.10s/cmdline", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (n = read(fd, text, sizeof(text))) <= 0)
        return;
    int n_flags = doctor_read_cmdline(text, (size_t) n, flags, FLAGS_MAX, &config);

    table.check = NULL;
    table.env_prefix = "="; /* our environment is not its */
    if (config[0]) {
        if (!open_settings(config, &settings, path, sizeof(path)))
            return;
        config = path;
    }
    if (adv_config_load(&table, config[0] ? config : NULL, n_flags, flags, &cfg, NULL) < 0)
        return; /* a doctor like us, or settings that are not ours to read */
    const struct agent_config *its = adv_config_values(cfg);
    if (c->cluster[0] && adv_streq(its->cluster, c->cluster) && !adv_streq(its->state_dir, c->state_dir)) {
        char line[DOCTOR_SAID_SIZE + 400];

        (void) snprintf(line, sizeof(line), "Process %.10s is an agent of cluster %s with state folder %s; this one's is %s.", pid, c->cluster,
                        its->state_dir, c->state_dir);
        doctor_clean(h->other_agent, sizeof(h->other_agent), line, strlen(line));
    }
}

static void look_at_processes(const struct agent_config *c, struct doctor_host *h)
{
    DIR *d = opendir("/proc");
    const struct dirent *e;

    for (unsigned n = 0; d && n < PROCESSES && (e = readdir(d)); n++)
        if (isdigit((unsigned char) e->d_name[0]) && !h->other_agent[0])
            look_at_agent(e->d_name, c, h);
    if (d)
        (void) closedir(d);
}

/* ---- ceiling ---- */

static void look_at_ceiling(const struct agent_config *c, struct doctor_host *h)
{
    ADV_AUTO(ceiling) ceiling = NULL;
    struct adv_err err = { 0 };
    uid_t owner = 0;

    h->ceiling_set = c->ceiling_path[0] != '\0';
    if (!h->ceiling_set)
        return;
    if (ceiling_owner_uid(c->ceiling_owner, &owner, &err) < 0 || ceiling_new(c->ceiling_path, owner, &ceiling, &err) < 0) {
        doctor_clean(h->ceiling_said, sizeof(h->ceiling_said), err.msg, strlen(err.msg));
        return;
    }
    h->ceiling_known = ceiling_known(ceiling);
    h->ceiling_off = h->ceiling_known && ceiling_mode(ceiling) == CEILING_OFF;
    doctor_clean(h->ceiling_said, sizeof(h->ceiling_said), ceiling_reason(ceiling), strlen(ceiling_reason(ceiling)));
}

/* ---- the helper ---- */

static void look_at_helper(const struct doctor_asking *a, const struct agent_config *c, struct doctor_host *h)
{
    char uid[24], min_uid[24];
    int64_t low = c->tail_min_uid < 1000 && getuid() != 0 ? 1000 : c->tail_min_uid;
    const char *const argv[] = { c->tail_helper, "--uid", uid, "--min-uid", min_uid, NULL };
    struct doctor_answer r;
    struct stat st;

    h->tail_on = c->tail;
    if (!c->tail)
        return;
    if (stat(c->tail_helper, &st) < 0 || !S_ISREG(st.st_mode)) {
        h->helper = errno == EACCES ? DOCTOR_HELPER_NOT_OURS : DOCTOR_HELPER_MISSING;
        return;
    }
    h->helper_for_all = (st.st_mode & S_ISUID) && st.st_uid == 0 && (st.st_mode & S_IXOTH);
    if (access(c->tail_helper, X_OK) < 0) {
        h->helper = DOCTOR_HELPER_NOT_OURS;
        return;
    }
    /* Without the page that it shares with the agent it ends after it has become the user, and says so: a trial without a file */
    (void) snprintf(uid, sizeof(uid), "%lld", (long long) low);
    (void) snprintf(min_uid, sizeof(min_uid), "%lld", (long long) low);
    doctor_ask(a, "/dev/null", argv, HELPER_MS, &r, NULL, NULL);
    doctor_clean(h->helper_said, sizeof(h->helper_said), r.said, strlen(r.said));
    if (r.end == DOCTOR_NOT_ASKED)
        return;
    if (r.end == DOCTOR_REFUSED && strstr(r.said, "no shared page")) {
        h->helper = DOCTOR_HELPER_WORKS;
    } else if (r.end == DOCTOR_REFUSED && r.exit_code == 77 && (strstr(r.said, "cannot set groups") || strstr(r.said, "cannot become the user"))) {
        h->helper = DOCTOR_HELPER_NO_RIGHTS;
    } else {
        h->helper = DOCTOR_HELPER_ODD;
        if (!r.said[0])
            (void) snprintf(h->helper_said, sizeof(h->helper_said), "it %s", r.end == DOCTOR_SILENT ? "does not end" : "says nothing");
    }
}

/* ---- certificate ---- */

static void look_at_cert(const struct agent_config *c, struct doctor_host *h)
{
    static const char prefix[] = "advisor:agent:";
    struct adv_err err = { 0 };
    struct pki_cert cert = { 0 };
    unsigned mode = 0;

    h->insecure = c->insecure;
    if (c->insecure)
        return;
    h->cert_code = pki_look(c->tls_cert, &cert, &err);
    if (h->cert_code == -ADV_NOT_FOUND && err.sys_errno != ENOENT && err.sys_errno != ENOTDIR)
        h->cert_code = -ADV_PERMISSION_DENIED; /* it may be there */
    if (h->cert_code == 0) {
        h->cert_from_s = cert.not_before_s;
        h->cert_until_s = cert.not_after_s;
        h->cert_named = true;
        if (adv_startswith(cert.name, prefix))
            doctor_clean(h->cert_cluster, sizeof(h->cert_cluster), cert.name + strlen(prefix), strlen(cert.name) - strlen(prefix));
    }
    if (pki_key_exposed(c->tls_key, &mode))
        h->key_mode = mode;
    h->renewable = pki_writable(c->tls_cert, c->tls_key, &err) == 0 ? DOCTOR_YES : DOCTOR_NO;
    if (h->renewable == DOCTOR_NO)
        doctor_clean(h->renew_said, sizeof(h->renew_said), err.msg, strlen(err.msg));
}

void doctor_look(const struct doctor_asking *a, const struct agent_config *c, struct doctor_facts *f)
{
    struct doctor_host *h = &f->host;
    struct timex tx = { 0 };

    h->wall_s = adv_wall_us() / 1000000;
    h->uid = (uint32_t) geteuid();
    user_name(geteuid(), h->me, sizeof(h->me));
    look_at_folder(c, h);
    look_at_processes(c, h);
    look_at_ceiling(c, h);
    look_at_helper(a, c, h);
    if (c->target[0])
        look_at_cert(c, h);
    int clock = adjtimex(&tx);
    h->clock_synced = clock < 0 ? DOCTOR_UNKNOWN : clock == TIME_ERROR || (tx.status & STA_UNSYNC) ? DOCTOR_NO : DOCTOR_YES;
}

/* ---- the control plane ---- */

struct linking {
    struct doctor_host *h;
    struct wire_conn *conn;
    struct wire_call *call;
    int wait_ms;
    bool done;
};

static void on_answer(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
}

/* Renew without a session: who is no agent is refused for that, before the session is missed. Nothing is changed by it. */
static void on_answered(void *ctx, struct wire_call *call, const struct wire_status *st)
{
    struct linking *l = ctx;
    struct doctor_host *h = l->h;

    l->call = NULL;
    l->done = true;
    if (st->code == ADV_FAILED_PRECONDITION) {
        h->link = DOCTOR_LINK_WORKS;
        return;
    }
    h->link = st->code == ADV_UNAUTHENTICATED || st->code == ADV_PERMISSION_DENIED || st->code == ADV_UNIMPLEMENTED ? DOCTOR_LINK_REFUSED
                                                                                                                     : DOCTOR_LINK_UNREACHABLE;
    doctor_clean(h->link_said, sizeof(h->link_said), st->message ? st->message : "", st->message ? strlen(st->message) : 0);
    if (!h->link_said[0])
        (void) snprintf(h->link_said, sizeof(h->link_said), "%s", adv_code_name((int) st->code));
}

static void ask_who_we_are(struct linking *l)
{
    static const struct wire_call_ops ops = { .on_message = on_answer, .on_closed = on_answered };
    struct adv_err err = { 0 };

    if (l->call || wire_call_start(l->conn, "/advisor.v1.AgentService/Renew", NULL, 0, (uint64_t) l->wait_ms, 0, &ops, l, &l->call, &err) < 0)
        return;
    if (wire_call_send(l->call, "", 0, &err) < 0)
        l->call = wire_call_cancel(l->call);
    else
        wire_call_half_close(l->call);
}

static void on_link(void *ctx, enum wire_state state, const struct adv_err *err)
{
    struct linking *l = ctx;
    struct doctor_host *h = l->h;

    if (l->done)
        return;
    if (state == WIRE_STATE_READY) {
        ask_who_we_are(l);
    } else if (err && err->code != ADV_OK) {
        /* of several targets the next one is tried; what is told is the last */
        h->link = err->code == ADV_UNAUTHENTICATED       ? DOCTOR_LINK_TLS
                  : err->code == ADV_FAILED_PRECONDITION ? DOCTOR_LINK_FILES
                                                         : DOCTOR_LINK_UNREACHABLE;
        doctor_clean(h->link_said, sizeof(h->link_said), err->msg, strlen(err->msg));
        l->done = state == WIRE_STATE_BACKOFF;
    }
}

static void on_late(uv_timer_t *t)
{
    *(bool *) t->data = true;
}

/* Runs the loop until @done is set, @wait_ms at most. */
static void run_until(uv_loop_t *loop, const bool *done, int wait_ms)
{
    bool late = false;
    uv_timer_t timer;

    (void) uv_timer_init(loop, &timer);
    timer.data = &late;
    uv_update_time(loop);
    (void) uv_timer_start(&timer, on_late, (uint64_t) wait_ms, 0);
    while (!*done && !late)
        (void) uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *) &timer, NULL);
    (void) uv_run(loop, UV_RUN_NOWAIT); /* lets it go before it leaves the stack */
}

void doctor_link(uv_loop_t *loop, const struct agent_config *c, int wait_ms, struct doctor_facts *f)
{
    static const struct wire_conn_ops ops = { on_link };
    struct doctor_host *h = &f->host;
    struct linking l = { .h = h, .wait_ms = wait_ms };
    struct adv_err err = { 0 };
    const struct wire_config wc = {
        .target = c->target,
        .server_name = c->server_name[0] ? c->server_name : NULL,
        .ca_path = c->insecure ? NULL : c->tls_ca,
        .cert_path = c->insecure ? NULL : c->tls_cert,
        .key_path = c->insecure ? NULL : c->tls_key,
        .insecure = c->insecure,
        .user_agent = "advisor-agent-doctor/" ADVISOR_VERSION,
        .connect_timeout_ms = (uint64_t) wait_ms,
    };

    if (!c->target[0])
        return;
    if (h->cert_code && !c->insecure) {
        (void) snprintf(h->link_said, sizeof(h->link_said), "there is no certificate to try it with");
        return;
    }
    if (wait_ms <= 0) {
        (void) snprintf(h->link_said, sizeof(h->link_said), "the doctor's own time was over");
        return;
    }
    if (wire_conn_new(loop, &wc, &ops, &l, &l.conn, &err) < 0) {
        h->link = DOCTOR_LINK_UNREACHABLE;
        doctor_clean(h->link_said, sizeof(h->link_said), err.msg, strlen(err.msg));
        return;
    }
    run_until(loop, &l.done, wait_ms);
    if (!l.done && h->link == DOCTOR_LINK_NOT_TRIED) {
        h->link = DOCTOR_LINK_UNREACHABLE;
        (void) snprintf(h->link_said, sizeof(h->link_said), "no answer within %d s", wait_ms / 1000);
    }
    l.done = true;
    l.call = wire_call_cancel(l.call);
    (void) wire_conn_free(l.conn);
}

/* ---- output files ---- */

struct trying {
    struct adv_buf *mounts;
    size_t open; /* not told yet */
    bool done;
};

static void settle(struct trying *t, struct doctor_output *o, enum doctor_output_state state, const char *said)
{
    if (o->state != DOCTOR_OUTPUT_NOT_TRIED)
        return;
    o->state = state;
    doctor_clean(o->said, sizeof(o->said), said ? said : "", said ? strlen(said) : 0);
    if (--t->open == 0)
        t->done = true;
}

static bool on_data(void *ctx, struct tail_watch *w, uint64_t offset, const uint8_t *data, size_t len, uint64_t dropped)
{
    return true; /* thrown away; what comes after the open is none of ours */
}

static void on_state(void *ctx, struct tail_watch *w, enum tail_state state, const char *reason, uint64_t dropped)
{
    struct doctor_output *o = tail_watch_user(w);

    if (state != TAIL_STATE_LOST)
        return;
    if (!reason)
        reason = "";
    /* -o /dev/null, or a file of somebody else: its owner's wish, and no fault of the site */
    bool no_log = strstr(reason, "not a regular file") || strstr(reason, "not owned by the job's user");
    settle(ctx, o,
           strstr(reason, "no such file") ? DOCTOR_OUTPUT_ABSENT : no_log ? DOCTOR_OUTPUT_NO_LOG : adv_streq(reason, "hung") ? DOCTOR_OUTPUT_HUNG : DOCTOR_OUTPUT_DENIED,
           reason);
}

static void on_opened(void *ctx, struct tail_watch *w, uint64_t dev, uint64_t ino, uint64_t size, uint64_t offset)
{
    struct doctor_output *o = tail_watch_user(w);
    struct trying *t = ctx;
    char type[64];

    doctor_mount_type(t->mounts->data ? t->mounts->data : "", t->mounts->len, major(dev), minor(dev), type, sizeof(type));
    o->network = doctor_is_network(type);
    settle(t, o, DOCTOR_OUTPUT_READABLE, NULL);
}

void doctor_outputs(uv_loop_t *loop, const struct agent_config *c, int wait_ms, struct doctor_facts *f)
{
    static const struct tail_ops ops = { .on_data = on_data, .on_state = on_state, .on_opened = on_opened };
    const struct tail_config tc = {
        .helper_path = c->tail_helper,
        .min_uid = (uint32_t) c->tail_min_uid,
        .rate_bytes_per_s = TAIL_RATE,
        .hang_timeout_ms = wait_ms > 2000 ? (uint64_t) wait_ms - 1000 : 1000,
    };
    struct doctor_slurm *s = &f->slurm;
    struct tail_manager *m = NULL;
    ADV_AUTO_DONE(adv_buf) mounts;
    struct trying t = { .mounts = &mounts };
    adv_auto_close int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);

    adv_buf_init(&mounts, 1 << 20);
    if (fd >= 0)
        (void) adv_buf_read(&mounts, fd);
    if (!c->tail || f->host.helper != DOCTOR_HELPER_WORKS || wait_ms <= 0 || tail_manager_new(loop, &tc, &ops, &t, &m, NULL) < 0)
        return;
    for (size_t i = 0; i < s->n_outputs; i++) {
        struct doctor_output *o = &s->outputs[i];
        const struct tail_watch_args args = {
            .uid = o->uid, .path = o->path, .path_len = strlen(o->path), .start_offset = TAIL_START_AT_END, .start_known = true, .user = o,
        };
        struct tail_watch *w;

        if (o->path[0] == '/' && o->uid >= c->tail_min_uid && tail_watch(m, &args, &w, NULL) == 0)
            t.open++;
    }
    t.done = t.open == 0;
    run_until(loop, &t.done, wait_ms);
    (void) tail_manager_free(m);
}
