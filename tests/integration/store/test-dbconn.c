/* SPDX-License-Identifier: Apache-2.0 */
/* dbconn against a real server: see mariadb-lab for the environment. A second client, where one is needed, is another
 * dbconn, or the server's own command line as root. */

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "controlplane/store/dbconn.h"

#define PATIENCE_MS 30000 /* no single thing here takes that long, even on a busy machine */

static uv_loop_t loop;
static struct dbconn_config cfg;
static int closed_count, opened_count;
static bool must_thaw;

/* ---- the lab ---------------------------------------------------------------------------------------------------- */

static const char *lab_env(const char *name)
{
    const char *v = getenv(name);

    cr_assert(v, "%s is not set: run this by mariadb-lab", name);
    return v;
}

static void lab(const char *what)
{
    char cmd[1024];

    (void) snprintf(cmd, sizeof(cmd), "%s --dir %s %s", lab_env("ADVISOR_MARIADB_LAB"), lab_env("ADVISOR_MARIADB_DIR"), what);
    cr_assert_eq(system(cmd), 0, "%s", cmd);
}

static void freeze(void)
{
    must_thaw = true;
    lab("freeze");
}

static void thaw(void)
{
    lab("thaw");
    must_thaw = false;
}

struct proxy {
    pid_t pid;
    int in;
    uint16_t port;
};

static struct proxy start_proxy(const char *how, unsigned after)
{
    struct proxy p;
    char number[16], line[32] = "";
    int in[2], out[2];
    ssize_t n;

    (void) snprintf(number, sizeof(number), "%u", after);
    cr_assert_eq(pipe(in), 0);
    cr_assert_eq(pipe(out), 0);
    p.pid = fork();
    cr_assert_geq(p.pid, 0);
    if (p.pid == 0) {
        (void) dup2(in[0], 0);
        (void) dup2(out[1], 1);
        (void) close(in[1]);
        (void) execl(lab_env("ADVISOR_MARIADB_LAB"), "mariadb-lab", "--dir", lab_env("ADVISOR_MARIADB_DIR"), "proxy", how, number,
                     (char *) NULL);
        _exit(127);
    }
    (void) close(in[0]);
    (void) close(out[1]);
    n = read(out[0], line, sizeof(line) - 1);
    cr_assert_gt(n, 0);
    (void) close(out[0]);
    p.in = in[1];
    p.port = (uint16_t) strtoul(line, NULL, 10);
    cr_assert_gt(p.port, 0);
    return p;
}

static void end_proxy(struct proxy *p)
{
    (void) close(p->in);
    (void) waitpid(p->pid, NULL, 0);
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

struct ask {
    struct dbquery q;
    bool done;
    int code; /* 0 or negative */
    struct adv_err err;
    unsigned rows;
    uint64_t affected[8];
    char first[8][128]; /* first column of the last row of each statement */
    size_t longest;
    void (*on_row)(struct ask *a);
    void (*on_done)(struct ask *a);
};

static void on_row(struct dbquery *q, const struct dbrow *row)
{
    struct ask *a = ADV_CONTAINER_OF(q, struct ask, q);

    a->rows++;
    if (row->statement < 8 && row->n)
        (void) snprintf(a->first[row->statement], sizeof(a->first[0]), "%s", row->column[0] ? row->column[0] : "NULL");
    for (unsigned i = 0; i < row->n; i++)
        if (row->len[i] > a->longest)
            a->longest = row->len[i];
    if (a->on_row)
        a->on_row(a);
}

static void on_statement(struct dbquery *q, unsigned statement, uint64_t affected)
{
    struct ask *a = ADV_CONTAINER_OF(q, struct ask, q);

    if (statement < 8)
        a->affected[statement] = affected;
}

static void on_done(struct dbquery *q, const struct adv_err *err)
{
    struct ask *a = ADV_CONTAINER_OF(q, struct ask, q);

    cr_assert_not(a->done, "done twice");
    a->done = true;
    if (err) {
        a->err = *err;
        a->code = -(int) err->code;
    }
    cr_assert_eq(q->outcome == DB_DONE, !err);
    if (a->on_done)
        a->on_done(a);
}

static struct ask ask(const char *sql)
{
    return (struct ask) { .q = { .sql = sql, .len = strlen(sql), .timeout_ms = PATIENCE_MS / 2, .row = on_row,
                                 .statement = on_statement, .done = on_done } };
}

static void nothing(uv_timer_t *h)
{
    (void) h;
}

static void wait_until(const bool *what)
{
    int64_t end_us = adv_mono_us() + PATIENCE_MS * 1000LL;
    uv_timer_t wake;

    (void) uv_timer_init(&loop, &wake);
    (void) uv_timer_start(&wake, nothing, 20, 20);
    while (!*what && adv_mono_us() < end_us)
        (void) uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *) &wake, NULL);
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert(*what, "timed out");
}

static struct ask run_q(struct dbconn *c, struct ask a)
{
    dbconn_query(c, &a.q);
    cr_assert_not(a.done, "called back from within");
    wait_until(&a.done);
    return a;
}

static struct ask run(struct dbconn *c, const char *sql)
{
    return run_q(c, ask(sql));
}

static struct ask must(struct dbconn *c, const char *sql)
{
    struct ask a = run(c, sql);

    cr_assert_eq(a.code, 0, "%s: %s", sql, a.err.msg);
    return a;
}

static void is_error(const struct ask *a, enum dboutcome outcome, enum adv_code code, const char *reason)
{
    cr_assert_eq(a->code, -(int) code, "%s: %s", adv_code_name(a->code), a->err.msg);
    cr_assert(adv_streq(a->err.reason, reason), "%s: %s", a->err.reason ? a->err.reason : "-", a->err.msg);
    cr_assert_eq(a->q.outcome, outcome, "outcome %d: %s", a->q.outcome, a->err.msg);
}

static struct dbconn *conn(void)
{
    struct dbconn *c = NULL;

    cr_assert_eq(dbconn_new(&loop, &cfg, &c, NULL), 0);
    opened_count++;
    return c;
}

static void on_closed(void *arg)
{
    closed_count++;
    if (arg)
        *(bool *) arg = true;
}

static void end(struct dbconn *c)
{
    dbconn_close(c, on_closed, NULL);
}

static void by_tcp(const char *host, uint16_t port)
{
    cfg.url.socket[0] = '\0';
    (void) snprintf(cfg.url.host, sizeof(cfg.url.host), "%s", host);
    cfg.url.port = port ? port : (uint16_t) strtoul(lab_env("ADVISOR_MARIADB_PORT"), NULL, 10);
}

static void usual_config(void)
{
    cfg = (struct dbconn_config) { .connect_timeout_ms = 3000, .purpose = "test" };
    (void) snprintf(cfg.url.user, sizeof(cfg.url.user), "advisor");
    (void) snprintf(cfg.url.database, sizeof(cfg.url.database), "advisor");
    (void) snprintf(cfg.url.socket, sizeof(cfg.url.socket), "%s", lab_env("ADVISOR_MARIADB_SOCKET"));
    cfg.password_file = (char *) (uintptr_t) lab_env("ADVISOR_MARIADB_PASSWORD_FILE");
}

static void setup(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    usual_config();
    lab("start"); /* a test before may have died with it down */
    lab("thaw");
    lab("sql 'SET GLOBAL read_only = 0, innodb_flush_log_at_trx_commit = 1; DROP TABLE IF EXISTS t, u'");
}

static void teardown(void)
{
    if (must_thaw)
        thaw();
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(closed_count, opened_count);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

TestSuite(dbconn, .init = setup, .fini = teardown, .timeout = 120);

/* ---- connecting ------------------------------------------------------------------------------------------------- */

static void use_tls(char *path, size_t size, const char *ca)
{
    (void) snprintf(path, size, "%s/tls/%s", lab_env("ADVISOR_MARIADB_DIR"), ca);
    cfg.tls_ca = path;
}

Test(dbconn, by_socket_by_port_and_by_tls)
{
    char path[256];
    struct ask a;

    for (int i = 0; i < 3; i++) {
        if (i >= 1)
            by_tcp("localhost", 0);
        if (i == 2)
            use_tls(path, sizeof(path), "ca.crt");
        struct dbconn *c = conn();
        cr_assert_null(dbconn_server(c));
        a = must(c, "SHOW SESSION STATUS LIKE 'Ssl_cipher'; SELECT variable_value FROM information_schema.session_status"
                    " WHERE variable_name = 'Ssl_cipher'");
        cr_assert_eq(a.first[1][0] != '\0', i == 2, "cipher %s", a.first[1]);
        cr_assert(dbconn_server(c)->mariadb);
        cr_assert_not(dbconn_server(c)->read_only);
        cr_assert_geq(dbconn_server(c)->max_allowed_packet, 1u << 20);
        end(c);
    }
}

Test(dbconn, certificates_that_do_not_fit)
{
    char path[256];
    struct dbconn *c;
    struct ask a;

    by_tcp("localhost", 0);
    use_tls(path, sizeof(path), "other-ca.crt");
    c = conn();
    a = run(c, "SELECT 1");
    is_error(&a, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    end(c);
    by_tcp("127.0.0.1", 0); /* the certificate is for the name alone */
    use_tls(path, sizeof(path), "ca.crt");
    c = conn();
    a = run(c, "SELECT 1");
    is_error(&a, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    cr_assert(strstr(a.err.msg, "TLS"), "%s", a.err.msg);
    end(c);
}

Test(dbconn, who_may_not)
{
    static const struct {
        const char *user, *database, *password_file;
        enum adv_code code;
        const char *reason;
    } v[] = {
        { "nobody-we-know", "advisor", NULL, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
        { "advisor", "advisor", "", ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
        { "advisor", "mysql", NULL, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
        { "advisor", "advisor", "/no/such/file", ADV_UNAVAILABLE, NULL },
        { "root", "nothere", "", ADV_FAILED_PRECONDITION, "STORE_NO_DATABASE" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(v); i++) {
        struct dbconn *c;
        struct ask a;
        (void) snprintf(cfg.url.user, sizeof(cfg.url.user), "%s", v[i].user);
        (void) snprintf(cfg.url.database, sizeof(cfg.url.database), "%s", v[i].database);
        cfg.password_file = (char *) (uintptr_t) (v[i].password_file ? v[i].password_file :
                                                                       lab_env("ADVISOR_MARIADB_PASSWORD_FILE"));
        c = conn();
        a = run(c, "SELECT 1");
        is_error(&a, DB_NOT_SENT, v[i].code, v[i].reason);
        cr_assert_null(strstr(a.err.msg, "secret"));
        end(c);
    }
}

Test(dbconn, nobody_there)
{
    struct dbconn *c;
    struct ask a;

    by_tcp("127.0.0.1", 1);
    c = conn();
    a = run(c, "SELECT 1");
    is_error(&a, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    end(c);
    (void) snprintf(cfg.url.socket, sizeof(cfg.url.socket), "/no/such/socket");
    cfg.url.host[0] = '\0';
    c = conn();
    a = run(c, "SELECT 1");
    is_error(&a, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    end(c);
}

/* The pause between attempts grows, jittered, and ends; a query fails with the attempt it waited for. */
Test(dbconn, attempts_are_spaced)
{
    int64_t began_us = adv_mono_us(), took_us;
    struct dbconn *c;

    lab("stop");
    c = conn();
    for (int i = 0; i < 5; i++) {
        struct ask a = run(c, "SELECT 1");
        is_error(&a, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    }
    took_us = adv_mono_us() - began_us; /* pauses of 50..100, 100..200, 200..400, 400..800 ms */
    cr_assert_geq(took_us, 750000);
    /* a deadline within the pause is kept */
    struct ask a = ask("SELECT 1");
    a.q.timeout_ms = 50;
    began_us = adv_mono_us();
    a = run_q(c, a);
    is_error(&a, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    lab("start");
    (void) must(c, "SELECT 1");
    end(c);
}

Test(dbconn, a_server_that_may_lose_commits_is_refused)
{
    struct dbconn *c;
    struct ask a;

    lab("sql 'SET GLOBAL innodb_flush_log_at_trx_commit = 2'");
    c = conn();
    a = run(c, "SELECT 1");
    is_error(&a, DB_NOT_SENT, ADV_FAILED_PRECONDITION, "STORE_NOT_DURABLE");
    cr_assert(strstr(a.err.msg, "innodb_flush_log_at_trx_commit is 2"), "%s", a.err.msg);
    lab("sql 'SET GLOBAL innodb_flush_log_at_trx_commit = 1'");
    (void) must(c, "SELECT 1");
    end(c);
    lab("sql 'SET GLOBAL innodb_flush_log_at_trx_commit = 0'");
    cfg.accept_not_durable = true;
    c = conn();
    (void) must(c, "SELECT 1");
    end(c);
}

Test(dbconn, the_session_is_as_promised)
{
    struct dbconn *c = conn();
    struct ask a = must(c, "SELECT @@time_zone; SELECT @@autocommit; SELECT @@sql_mode LIKE '%STRICT_ALL%'; SELECT @@tx_isolation;"
                           "SELECT 'a' = 'A', 'a' = 'a '; SELECT @@character_set_client; SELECT 'a' = 'a '");

    cr_assert_str_eq(a.first[0], "+00:00");
    cr_assert_str_eq(a.first[1], "1");
    cr_assert_str_eq(a.first[2], "1");
    cr_assert_str_eq(a.first[3], "READ-COMMITTED");
    cr_assert_str_eq(a.first[4], "0");
    cr_assert_str_eq(a.first[5], "binary");
    cr_assert_str_eq(a.first[6], "0", "trailing blanks count");
    a = run(c, "LOAD DATA LOCAL INFILE '/etc/hostname' INTO TABLE t");
    cr_assert_lt(a.code, 0);
    end(c);
}

/* ---- asking and being answered ---------------------------------------------------------------------------------- */

Test(dbconn, many_statements_in_one)
{
    struct dbconn *c = conn();
    struct ask a = must(c, "CREATE TABLE t(k INT PRIMARY KEY, v VARBINARY(40)); INSERT INTO t VALUES(1, 'x'), (2, 'y'), (3, 'z');"
                           "SELECT v FROM t ORDER BY k; UPDATE t SET v = 'w' WHERE k > 1; DELETE FROM t WHERE k = 9;"
                           "SELECT NULL; SELECT v FROM t WHERE k = 77");

    cr_assert_eq(a.q.statements, 7);
    cr_assert_eq(a.rows, 4);
    cr_assert_eq(a.affected[1], 3);
    cr_assert_str_eq(a.first[2], "z");
    cr_assert_eq(a.affected[3], 2);
    cr_assert_eq(a.affected[4], 0);
    cr_assert_str_eq(a.first[5], "NULL");
    cr_assert_str_eq(a.first[6], "");
    end(c);
}

Test(dbconn, an_error_stops_the_rest_and_the_session_goes_on)
{
    struct dbconn *c = conn();
    struct ask a;

    (void) must(c, "CREATE TABLE t(k INT PRIMARY KEY, v TINYINT, s VARBINARY(4))");
    a = run(c, "START TRANSACTION; INSERT INTO t VALUES(1, 1, ''); INSERT INTO t VALUES(1, 2, ''); COMMIT");
    is_error(&a, DB_REFUSED, ADV_ALREADY_EXISTS, "STORE_DUPLICATE");
    cr_assert_eq(a.q.statements, 2);
    cr_assert_eq(a.q.server_errno, 1062);
    /* the transaction is still open, in the same session */
    struct ask b = ask("ROLLBACK; SELECT count(*) FROM t");
    b.q.session = a.q.ran_in;
    b = run_q(c, b);
    cr_assert_eq(b.code, 0, "%s", b.err.msg);
    cr_assert_str_eq(b.first[1], "0");
    a = run(c, "INSERT INTO t VALUES(1, 1000, '')");
    is_error(&a, DB_REFUSED, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE");
    a = run(c, "INSERT INTO t VALUES(1, 1, 'abcde')");
    is_error(&a, DB_REFUSED, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE");
    a = run(c, "SELECT 1; SELEC 2");
    is_error(&a, DB_REFUSED, ADV_INTERNAL, "STORE_SQL");
    cr_assert_eq(a.q.statements, 1);
    a = run(c, "SELECT nothing FROM t");
    is_error(&a, DB_REFUSED, ADV_INTERNAL, "STORE_SQL");
    a = run(c, "SELECT v FROM mysql.user");
    is_error(&a, DB_REFUSED, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED");
    a = must(c, "SELECT count(*) FROM t");
    cr_assert_eq(a.q.ran_in, b.q.ran_in, "one session all along");
    end(c);
}

Test(dbconn, bytes_come_back_as_they_went)
{
    struct dbconn *c = conn();
    ADV_AUTO_DONE(adv_buf) b;
    char all[512];
    struct ask a;

    for (int i = 0; i < 256; i++) {
        all[i] = (char) i;
        all[511 - i] = (char) i;
    }
    adv_buf_init(&b, 1u << 20);
    (void) adv_buf_append_str(&b, "CREATE TABLE t(v VARBINARY(600)); INSERT INTO t VALUES(");
    db_quote(&b, all, sizeof(all));
    (void) adv_buf_append_str(&b, "); SELECT sha2(v, 256) FROM t; SELECT length(v) FROM t; SELECT v = ");
    db_quote(&b, all, sizeof(all));
    (void) adv_buf_append_str(&b, " FROM t; SELECT v FROM t");
    a = must(c, b.data);
    cr_assert_str_eq(a.first[3], "512");
    cr_assert_str_eq(a.first[4], "1");
    cr_assert_eq(a.longest, 512);
    end(c);
}

static uint64_t loop_rounds;

static void count_round(uv_prepare_t *h)
{
    (void) h;
    loop_rounds++;
}

/* A large result comes in pieces between which the loop does other things, and none of it is kept. */
Test(dbconn, a_large_result_leaves_the_loop_free)
{
    static uv_prepare_t prepare;
    struct dbconn *c = conn();
    struct ask a;

    (void) must(c, "SELECT 1");
    (void) uv_prepare_init(&loop, &prepare);
    (void) uv_prepare_start(&prepare, count_round);
    a = must(c, "SELECT seq, repeat('x', 50) FROM seq_1_to_100000; SELECT repeat('y', 9000000)");
    cr_assert_eq(a.rows, 100001);
    cr_assert_str_eq(a.first[0], "100000");
    cr_assert_eq(a.longest, 9000000);
    cr_assert_geq(loop_rounds, 400);
    uv_close((uv_handle_t *) &prepare, NULL);
    end(c);
}

Test(dbconn, in_order_each_with_its_deadline)
{
    struct dbconn *c = conn();
    struct ask a[4] = { ask("SELECT sleep(1)"), ask("SELECT 2"), ask("SELECT 3"), ask("SELECT 4") };

    a[2].q.timeout_ms = 200; /* passes while the first still runs */
    (void) must(c, "SELECT 0");
    for (int i = 0; i < 4; i++)
        dbconn_query(c, &a[i].q);
    wait_until(&a[2].done);
    is_error(&a[2], DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    cr_assert_not(a[0].done);
    wait_until(&a[3].done);
    cr_assert(a[0].done && a[1].done);
    cr_assert_eq(a[3].code, 0);
    cr_assert_eq(a[3].q.ran_in, a[0].q.ran_in);
    end(c);
}

/* ---- losing it -------------------------------------------------------------------------------------------------- */

static int64_t worst_gap_us, last_tick_us;

static void tick(uv_timer_t *h)
{
    int64_t now = adv_mono_us();

    (void) h;
    if (last_tick_us && now - last_tick_us > worst_gap_us)
        worst_gap_us = now - last_tick_us;
    last_tick_us = now;
}

/* A stopped server: the deadline holds, the loop goes on meanwhile, however much was to be sent and by which way. */
Test(dbconn, a_hung_server_costs_a_deadline_and_no_more)
{
    static char large[24u << 20];
    char path[256];

    (void) memset(large, 'x', sizeof(large));
    memcpy(large, "SELECT length('", 15);
    memcpy(large + sizeof(large) - 3, "')", 3);
    for (int i = 0; i < 6; i++) {
        static uv_timer_t ticks;
        struct dbconn *c;
        struct ask a = ask(i % 2 ? large : "SELECT 1");
        int64_t began_us, took_us;
        if (i == 2)
            by_tcp("localhost", 0);
        if (i == 4)
            use_tls(path, sizeof(path), "ca.crt");
        c = conn();
        (void) must(c, "SELECT 1");
        freeze();
        (void) uv_timer_init(&loop, &ticks);
        worst_gap_us = last_tick_us = 0;
        (void) uv_timer_start(&ticks, tick, 10, 10);
        a.q.timeout_ms = 700;
        began_us = adv_mono_us();
        a = run_q(c, a);
        took_us = adv_mono_us() - began_us;
        is_error(&a, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
        cr_assert_geq(took_us, 690000);
        cr_assert_lt(took_us, 3000000);
        cr_assert_lt(worst_gap_us, 400000, "the loop stood still for %lld us in round %d", (long long) worst_gap_us, i);
        uv_close((uv_handle_t *) &ticks, NULL);
        thaw();
        a = must(c, "SELECT 5");
        cr_assert_eq(a.q.ran_in, 2, "a new session");
        end(c);
    }
}

/* It hangs before there is a session: the same, and a query that cannot be sent says so. */
Test(dbconn, a_server_that_hangs_while_we_connect)
{
    char path[256];

    for (int tls = 0; tls < 2; tls++) {
        static uv_timer_t ticks;
        struct dbconn *c;
        struct ask a = ask("SELECT 1");
        by_tcp("localhost", 0);
        if (tls)
            use_tls(path, sizeof(path), "ca.crt");
        c = conn();
        freeze();
        (void) uv_timer_init(&loop, &ticks);
        worst_gap_us = last_tick_us = 0;
        (void) uv_timer_start(&ticks, tick, 10, 10);
        a.q.timeout_ms = 500;
        a = run_q(c, a);
        is_error(&a, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
        cr_assert_lt(worst_gap_us, 400000);
        uv_close((uv_handle_t *) &ticks, NULL);
        thaw();
        (void) must(c, "SELECT 1");
        end(c);
    }
}

static void kill_server(struct ask *a)
{
    if (a->rows == 1000)
        lab("kill");
}

Test(dbconn, the_server_is_killed_in_the_middle_of_a_result)
{
    struct dbconn *c = conn();
    struct ask a = ask("SELECT seq, repeat('x', 1000) FROM seq_1_to_1000000");

    a.on_row = kill_server;
    a = run_q(c, a);
    is_error(&a, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    cr_assert_lt(a.rows, 1000000);
    lab("start");
    a = must(c, "SELECT 1");
    cr_assert_eq(a.q.ran_in, 2);
    end(c);
}

Test(dbconn, the_connection_is_cut_in_the_middle_of_a_result)
{
    static const char *const how[] = { "close", "reset", "stall" };
    char path[256];

    for (int i = 0; i < 6; i++) {
        struct proxy p = start_proxy(how[i % 3], 100000);
        struct dbconn *c;
        struct ask a = ask("SELECT seq, repeat('x', 1000) FROM seq_1_to_10000");
        by_tcp("localhost", p.port);
        if (i >= 3)
            use_tls(path, sizeof(path), "ca.crt");
        c = conn();
        a.q.timeout_ms = i % 3 == 2 ? 500 : a.q.timeout_ms;
        a = run_q(c, a);
        is_error(&a, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
        if (i % 3 != 1) /* a reset takes with it what was not read yet */
            cr_assert_gt(a.rows, 10);
        cr_assert_lt(a.rows, 10000);
        a = must(c, "SELECT 1");
        cr_assert_eq(a.q.ran_in, 2);
        end(c);
        end_proxy(&p);
    }
}

/* The answer of a COMMIT is lost: the outcome is unknown, though it was carried out. */
Test(dbconn, a_lost_commit_is_unknown)
{
    struct dbconn *c = conn(), *through;
    struct proxy p;
    struct ask a;

    (void) must(c, "CREATE TABLE t(k INT PRIMARY KEY)");
    p = start_proxy("stall", 3000); /* the talk of connecting is less, and what follows the pages of rows is not answered */
    by_tcp("127.0.0.1", p.port);
    through = conn();
    a = ask("START TRANSACTION; SELECT repeat('x', 3000); INSERT INTO t VALUES(1); COMMIT");
    a.q.timeout_ms = 1000;
    a = run_q(through, a);
    is_error(&a, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    a = must(c, "SELECT count(*) FROM t");
    cr_assert_str_eq(a.first[0], "1");
    end(through);
    end(c);
    end_proxy(&p);
}

Test(dbconn, a_session_that_ended_takes_its_queries_with_it)
{
    struct dbconn *c = conn();
    struct ask a = must(c, "SELECT connection_id()"), b;
    char cmd[64];

    (void) snprintf(cmd, sizeof(cmd), "sql 'KILL %.20s'", a.first[0]);
    lab(cmd);
    /* whether the end was noticed yet or not: what belongs to that session does not run in another */
    b = ask("SELECT 2");
    b.q.session = a.q.ran_in;
    b = run_q(c, b);
    cr_assert_eq(b.code, -ADV_UNAVAILABLE, "%s", b.err.msg);
    a = must(c, "SELECT 1");
    cr_assert_eq(a.q.ran_in, 2);
    b = ask("SELECT 2");
    b.q.session = 1;
    b = run_q(c, b);
    is_error(&b, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    end(c);
}

static void wait_gone(const char *thread)
{
    struct dbconn *other = conn();
    char sql[128];
    struct ask a;

    (void) snprintf(sql, sizeof(sql), "SELECT count(*) FROM information_schema.processlist WHERE id = %.20s", thread);
    for (int i = 0; i < 200; i++) {
        a = must(other, sql);
        if (adv_streq(a.first[0], "0"))
            break;
        (void) must(other, "SELECT sleep(0.05)");
    }
    cr_assert_str_eq(a.first[0], "0");
    end(other);
}

/* An idle connection that the server closes is noticed at once, so the next query does not run into it. */
Test(dbconn, an_idle_connection_that_ends)
{
    for (int i = 0; i < 2; i++) {
        struct dbconn *c = conn();
        struct ask a = must(c, "SELECT connection_id()");
        int64_t end_us = adv_mono_us() + 10000000;
        char cmd[64];
        (void) snprintf(cmd, sizeof(cmd), "sql 'KILL %.20s'", a.first[0]);
        lab(i ? "restart" : cmd);
        if (i == 0)
            wait_gone(a.first[0]);
        a = must(c, "SELECT 1");
        cr_assert_eq(a.q.ran_in, 2);
        cr_assert_lt(adv_mono_us(), end_us);
        end(c);
    }
}

/* ---- locks, modes, space ---------------------------------------------------------------------------------------- */

Test(dbconn, deadlock)
{
    struct dbconn *one = conn(), *two = conn();
    struct ask a, b;
    int lost;

    (void) must(one, "CREATE TABLE t(k INT PRIMARY KEY, v INT); INSERT INTO t VALUES(1, 0), (2, 0)");
    (void) must(one, "START TRANSACTION; UPDATE t SET v = 1 WHERE k = 1");
    (void) must(two, "START TRANSACTION; UPDATE t SET v = 2 WHERE k = 2");
    a = ask("UPDATE t SET v = 1 WHERE k = 2; COMMIT");
    b = ask("UPDATE t SET v = 2 WHERE k = 1; COMMIT");
    dbconn_query(one, &a.q);
    dbconn_query(two, &b.q);
    wait_until(&a.done);
    wait_until(&b.done);
    lost = (a.code < 0) + (b.code < 0);
    cr_assert_eq(lost, 1);
    is_error(a.code < 0 ? &a : &b, DB_REFUSED, ADV_ABORTED, "STORE_DEADLOCK");
    end(one);
    end(two);
}

Test(dbconn, lock_wait)
{
    struct dbconn *one = conn(), *two = conn();
    struct ask a;

    (void) must(one, "CREATE TABLE t(k INT PRIMARY KEY, v INT); INSERT INTO t VALUES(1, 0)");
    (void) must(one, "START TRANSACTION; UPDATE t SET v = 1 WHERE k = 1");
    (void) must(two, "SET SESSION innodb_lock_wait_timeout = 1");
    a = run(two, "UPDATE t SET v = 2 WHERE k = 1");
    is_error(&a, DB_REFUSED, ADV_ABORTED, "STORE_LOCK_WAIT");
    (void) must(one, "COMMIT");
    (void) must(two, "UPDATE t SET v = 2 WHERE k = 1");
    end(one);
    end(two);
}

Test(dbconn, read_only)
{
    struct dbconn *c = conn(), *later;
    struct ask a;

    (void) must(c, "CREATE TABLE t(k INT PRIMARY KEY)");
    lab("sql 'SET GLOBAL read_only = 1'");
    a = run(c, "INSERT INTO t VALUES(1)");
    is_error(&a, DB_REFUSED, ADV_UNAVAILABLE, "STORE_READ_ONLY");
    later = conn();
    (void) must(later, "SELECT 1");
    cr_assert(dbconn_server(later)->read_only);
    lab("sql 'SET GLOBAL read_only = 0'");
    (void) must(c, "INSERT INTO t VALUES(1)");
    a = run(c, "START TRANSACTION READ ONLY; INSERT INTO t VALUES(2)");
    is_error(&a, DB_REFUSED, ADV_UNAVAILABLE, "STORE_READ_ONLY");
    end(c);
    end(later);
}

Test(dbconn, what_errors_mean)
{
    static const struct {
        unsigned number;
        const char *message;
        enum adv_code code;
        const char *reason;
    } v[] = {
        { 1021, "Disk full (/tmp); waiting", ADV_UNAVAILABLE, "STORE_FULL" },
        { 1114, "The table 't' is full", ADV_UNAVAILABLE, "STORE_FULL" },
        { 1030, "Got error 28 \"No space left on device\" from storage engine InnoDB", ADV_UNAVAILABLE, "STORE_FULL" },
        { 1030, "Got error 5 \"Input/output error\" from storage engine InnoDB", ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
        { 1026, "Error writing file 'x' (Errcode: 28 \"No space left on device\")", ADV_UNAVAILABLE, "STORE_FULL" },
        { 1005, "Can't create table `a`.`b` (errno: 135 \"No more room in record file\")", ADV_UNAVAILABLE, "STORE_FULL" },
        { 3675, "Create table/tablespace failed, as disk is full", ADV_UNAVAILABLE, "STORE_FULL" },
        { 1290, "running with the --read-only option", ADV_UNAVAILABLE, "STORE_READ_ONLY" },
        { 1836, "Running in read-only mode", ADV_UNAVAILABLE, "STORE_READ_ONLY" },
        { 1040, "Too many connections", ADV_UNAVAILABLE, "STORE_BUSY" },
        { 1213, "Deadlock found", ADV_ABORTED, "STORE_DEADLOCK" },
        { 1020, "Record has changed since last read", ADV_ABORTED, "STORE_DEADLOCK" },
        { 1205, "Lock wait timeout exceeded", ADV_ABORTED, "STORE_LOCK_WAIT" },
        { 1712, "Index t is corrupted", ADV_DATA_LOSS, "STORE_CORRUPT" },
        { 2013, "Lost connection", ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
        { 1064, "You have an error in your SQL syntax", ADV_INTERNAL, "STORE_SQL" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(v); i++) {
        struct adv_err err = { 0 };
        cr_assert_eq(db_error(&err, v[i].number, v[i].message), -(int) v[i].code, "%u", v[i].number);
        cr_assert_str_eq(err.reason, v[i].reason);
        cr_assert(strstr(err.msg, v[i].message));
    }
}

/* ---- the fence -------------------------------------------------------------------------------------------------- */

/* What was sent to a server that stood still does not happen after the next session has begun. */
Test(dbconn, nothing_of_a_lost_session_lands_behind_the_fence)
{
    static char fence[64];
    struct dbconn *c, *plain;
    struct ask a;
    char before[128];
    int undone = 0, landed = 0;

    (void) snprintf(fence, sizeof(fence), "advisor.test.%d", (int) getpid());
    plain = conn();
    (void) must(plain, "CREATE TABLE t(k INT PRIMARY KEY AUTO_INCREMENT, v INT)");
    cfg.fence = fence;
    c = conn();
    for (int i = 0; i < 10; i++) {
        (void) must(c, "SELECT 1");
        freeze();
        a = ask("START TRANSACTION; INSERT INTO t(v) VALUES(1); SELECT sleep(0.3); INSERT INTO t(v) VALUES(2); COMMIT");
        a.q.timeout_ms = 100;
        a = run_q(c, a);
        is_error(&a, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
        thaw();
        a = must(c, "SELECT count(*) FROM t");
        (void) snprintf(before, sizeof(before), "%s", a.first[0]);
        landed += !adv_streq(before, "0");
        (void) must(plain, "SELECT sleep(0.4)");
        a = must(plain, "SELECT count(*) FROM t; SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%VALUES(2)%'"
                        " AND info NOT LIKE '%processlist%'; DELETE FROM t");
        cr_assert_str_eq(a.first[0], before, "it changed afterwards");
        cr_assert_str_eq(a.first[1], "0");
        undone += adv_streq(before, "0");
    }
    cr_assert_eq(undone + landed, 10);
    end(c);
    end(plain);
}

Test(dbconn, the_fence_waits_for_a_session_that_does_not_end)
{
    static char fence[64];
    struct dbconn *holder = conn(), *c;
    struct ask a;
    char sql[128];

    (void) snprintf(fence, sizeof(fence), "advisor.test.%d", (int) getpid());
    /* somebody else's session, which we may not end */
    (void) snprintf(cfg.url.user, sizeof(cfg.url.user), "root");
    cfg.password_file = NULL;
    struct dbconn *root = conn();
    (void) snprintf(sql, sizeof(sql), "SELECT get_lock('%s', 0)", fence);
    (void) must(root, sql);
    usual_config();
    cfg.connect_timeout_ms = 2000;
    cfg.fence = fence;
    c = conn();
    a = run(c, "SELECT 1");
    cr_assert_eq(a.q.outcome, DB_NOT_SENT);
    cr_assert_lt(a.code, 0);
    end(root);
    (void) must(c, "SELECT 1");
    end(c);
    end(holder);
}

/* ---- ending it -------------------------------------------------------------------------------------------------- */

Test(dbconn, close_at_any_time)
{
    struct ask idle = ask("SELECT 1"), waiting = ask("SELECT 2"), busy = ask("SELECT sleep(20)"), dialling = ask("SELECT 3");
    struct dbconn *c;

    end(conn()); /* never used */
    c = conn();
    idle = run_q(c, idle);
    end(c);
    c = conn(); /* with one running and one waiting */
    (void) must(c, "SELECT 1");
    dbconn_query(c, &busy.q);
    dbconn_query(c, &waiting.q);
    for (int i = 0; i < 5; i++)
        (void) uv_run(&loop, UV_RUN_NOWAIT);
    end(c);
    is_error(&busy, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    is_error(&waiting, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    c = conn(); /* while a worker connects */
    dbconn_query(c, &dialling.q);
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    end(c);
    is_error(&dialling, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
}

static struct dbconn *acting;
static struct ask again;

static void close_it(struct ask *a)
{
    if (a->rows == 3 || !a->on_row)
        end(acting);
}

static void drop_it(struct ask *a)
{
    if (a->rows == 3 || !a->on_row)
        dbconn_drop(acting);
}

static void ask_again(struct ask *a)
{
    (void) a;
    again = ask("SELECT 42");
    dbconn_query(acting, &again.q);
}

Test(dbconn, callbacks_may_do_anything)
{
    struct ask a = ask("SELECT seq FROM seq_1_to_1000");

    a.on_row = close_it;
    acting = conn();
    a = run_q(acting, a);
    cr_assert_eq(a.rows, 3);
    is_error(&a, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");

    a = ask("SELECT 1");
    a.on_done = close_it;
    acting = conn();
    (void) run_q(acting, a);

    a = ask("SELECT seq FROM seq_1_to_1000");
    a.on_row = drop_it;
    acting = conn();
    a = run_q(acting, a);
    cr_assert_eq(a.rows, 3);
    is_error(&a, DB_UNKNOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    a = ask("SELECT 1");
    a.on_done = drop_it;
    a = run_q(acting, a);
    cr_assert_eq(a.code, 0);
    cr_assert_eq(a.q.ran_in, 2);
    a = ask("SELECT 1");
    a.on_done = ask_again;
    a = run_q(acting, a);
    wait_until(&again.done);
    cr_assert_eq(again.code, 0);
    cr_assert_str_eq(again.first[0], "42");
    cr_assert_eq(again.q.ran_in, 3);
    end(acting);

    /* and from the callback of a connection that cannot be made */
    by_tcp("127.0.0.1", 1);
    acting = conn();
    a = ask("SELECT 1");
    a.on_done = ask_again;
    a = run_q(acting, a);
    cr_assert_lt(a.code, 0);
    wait_until(&again.done);
    is_error(&again, DB_NOT_SENT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE");
    a = ask("SELECT 1");
    a.on_done = close_it;
    (void) run_q(acting, a);
}
