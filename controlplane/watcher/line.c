/* SPDX-License-Identifier: Apache-2.0 */

/* Launchers mark lines in their own ways, and several of them nest: pdsh around torchrun around srun. The prefix is taken
 * off in turns, at most MAX_LABELS of them, each with at most one blank, because more blanks belong to the message (a
 * line of source in a traceback is indented).
 *
 * A level such as "ERROR - " is no label: what a logger writes was caught by somebody.
 *
 * '\r' ends a line because progress bars overwrite themselves with it; NUL does because a file that was truncated under
 * a writer has a hole of them before the next text. */

#include "controlplane/watcher/line.h"

#define MAX_LABELS    5
#define MAX_NODE_NAME 63
#define MAX_ESCAPE    256 /* a longer sequence is not one */

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool word(char c)
{
    return digit(c) || lower(c) || (c >= 'A' && c <= 'Z') || c == '_';
}

static size_t count_digits(const char *p, const char *end, size_t max)
{
    size_t n = 0;

    while (p + n < end && n < max && digit(p[n]))
        n++;
    return n;
}

/* A number of 1..6 digits at @p; returns its length or 0. */
static size_t small_number(const char *p, const char *end, int *ret)
{
    size_t n = count_digits(p, end, 7);
    int v = 0;

    if (n == 0 || n > 6)
        return 0;
    for (size_t i = 0; i < n; i++)
        v = v * 10 + (p[i] - '0');
    *ret = v;
    return n;
}

static bool has(const char *p, const char *end, const char *text)
{
    size_t n = strlen(text);

    return (size_t) (end - p) >= n && memcmp(p, text, n) == 0;
}

/* 2024-01-31T10:00:00.123+01:00, then " ", ": " or " | ". */
static size_t match_timestamp(const char *p, const char *end)
{
    static const char shape[] = "dddd-dd-dd?dd:dd:dd";
    const char *q = p;

    if ((size_t) (end - p) < sizeof(shape))
        return 0;
    for (size_t i = 0; shape[i]; i++, q++) {
        if (shape[i] == 'd'   ? !digit(*q)
            : shape[i] == '?' ? *q != 'T' && *q != ' '
                              : *q != shape[i])
            return 0;
    }
    if (q < end && (*q == '.' || *q == ','))
        q += 1 + count_digits(q + 1, end, 9);
    if (q < end && *q == 'Z')
        q++;
    else if (q + 5 < end && (*q == '+' || *q == '-') && digit(q[1]))
        q += q[3] == ':' ? 6 : 5;
    if (has(q, end, ": "))
        q++;
    if (q >= end || *q != ' ')
        return 0;
    q++;
    if (has(q, end, "| "))
        q += 2;
    return (size_t) (q - p);
}

/* [rank3]: [default7]: [3]: [1,0]<stderr>: "[3] " */
static size_t match_bracket(const char *p, const char *end, struct line_prefix *f)
{
    int *where = &f->local_rank;
    bool launched = false;
    int value = -1;
    const char *q = p + 1;
    size_t n;

    if (p >= end || *p != '[')
        return 0;
    if (has(q, end, "rank")) {
        q += 4;
        where = &f->rank;
    } else if (has(q, end, "default")) {
        q += 7;
    }
    n = small_number(q, end, &value);
    if (n == 0)
        return 0;
    q += n;
    if (q < end && *q == ',' && where == &f->local_rank) {
        n = small_number(q + 1, end, &value);
        if (n == 0)
            return 0;
        q += 1 + n;
        if (!has(q, end, "]<stdout>:") && !has(q, end, "]<stderr>:"))
            return 0;
        q += 10;
        where = &f->rank;
        launched = true;
    } else if (has(q, end, "]:")) {
        q += 2;
    } else if (q[-1] != '[' && digit(p[1]) && has(q, end, "] ")) {
        q += 1; /* Hydra's -prepend-rank */
        where = &f->rank;
        launched = true;
    } else {
        return 0;
    }
    if (q < end && *q == ' ')
        q++;
    *where = value;
    if (launched)
        f->task = value; /* what the launcher calls it when it ends */
    return (size_t) (q - p);
}

/* srun --label: "  3: text" */
static size_t match_task(const char *p, const char *end, struct line_prefix *f)
{
    const char *q = p;
    int value = -1;
    size_t n;

    while (q < end && *q == ' ' && q - p < 5)
        q++;
    n = small_number(q, end, &value);
    if (n == 0 || q + n >= end || q[n] != ':')
        return 0;
    q += n + 1;
    if (q < end && *q != ' ')
        return 0;
    if (q < end)
        q++;
    f->task = value;
    return (size_t) (q - p);
}

/* (name pid=4112, ip=10.0.0.1) */
static size_t match_actor(const char *p, const char *end, struct line_prefix *f)
{
    const char *close, *q, *ip = NULL, *ip_end = NULL;
    bool pid = false;

    if (p >= end || *p != '(')
        return 0;
    close = memchr(p, ')', (size_t) (end - p) < 160 ? (size_t) (end - p) : 160);
    if (!close || close + 1 >= end || close[1] != ' ')
        return 0;
    for (q = p + 1; q < close; q++) {
        if (!pid && has(q, close, "pid=") && digit(q[4]))
            pid = true;
        if (!ip && has(q, close, "ip=")) {
            ip = q + 3;
            for (ip_end = ip; ip_end < close && (word(*ip_end) || *ip_end == '.' ||
                                                 *ip_end == ':' || *ip_end == '-');)
                ip_end++;
        }
    }
    if (!pid)
        return 0;
    if (ip && ip_end > ip && ip_end - ip <= MAX_NODE_NAME) {
        f->node = ip;
        f->node_len = (size_t) (ip_end - ip);
    }
    return (size_t) (close + 2 - p);
}

/* "node17: text" and "pod.node17 [stderr] text": lower case with a digit, so that no name of an exception is one. */
static size_t match_host(const char *p, const char *end, struct line_prefix *f)
{
    const char *q = p, *name = p;
    bool number = false;
    size_t n;

    if (p >= end || !lower(*p))
        return 0;
    for (; q < end && (lower(*q) || digit(*q) || *q == '-' || *q == '.'); q++)
        number |= digit(*q);
    if (!number || q - p > 2 * MAX_NODE_NAME)
        return 0;
    if (has(q, end, ": ") || (q + 1 == end && *q == ':')) {
        n = (size_t) (q - p) + (q + 1 == end ? 1 : 2);
    } else if (has(q, end, " [stderr] ") || has(q, end, " [stdout] ")) {
        n = (size_t) (q - p) + 10;
        for (const char *d = p; d < q; d++) {
            if (*d == '.')
                name = d + 1;
        }
    } else {
        return 0;
    }
    if (q - name < 1 || q - name > MAX_NODE_NAME)
        return 0;
    f->node = name;
    f->node_len = (size_t) (q - name);
    return n;
}

static void set_node(struct line_prefix *f, const char *name, size_t len)
{
    if (len >= 1 && len <= MAX_NODE_NAME) {
        f->node = name;
        f->node_len = len;
    }
}

/* A host's name at @p: letters, digits, '-', '.', '_', beginning with a letter. */
static size_t host_name(const char *p, const char *end)
{
    const char *q = p;

    if (p >= end || !word(*p) || digit(*p) || *p == '_')
        return 0;
    while (q < end && (word(*q) || *q == '-' || *q == '.'))
        q++;
    return (size_t) (q - p);
}

/* ":123" */
static size_t colon_number(const char *p, const char *end)
{
    size_t n = p < end && *p == ':' ? count_digits(p + 1, end, 20) : 0;

    return n ? n + 1 : 0;
}

/* NCCL: "node17:4000:4100 [3] text" */
static size_t match_nccl(const char *p, const char *end, struct line_prefix *f)
{
    size_t name = host_name(p, end), n, digits;
    const char *q = p + name;

    if (name == 0 || (n = colon_number(q, end)) == 0)
        return 0;
    q += n;
    if ((n = colon_number(q, end)) == 0)
        return 0;
    q += n;
    if (!has(q, end, " ["))
        return 0;
    q += 2;
    digits = count_digits(q, end, 6);
    if (digits == 0 || !has(q + digits, end, "] "))
        return 0;
    q += digits + 2;
    set_node(f, p, name);
    return (size_t) (q - p);
}

/* Open MPI, PMIx, UCX: "[node17:4000] text", "[node17:4000:0] text", "[1700000000.100000] [node17:4000:0]   text" */
static size_t match_mpi(const char *p, const char *end, struct line_prefix *f)
{
    const char *q = p;
    size_t name, n, fields = 0;

    if (p >= end || *p != '[')
        return 0;
    n = count_digits(p + 1, end, 12);
    if (n > 0 && p + 1 + n < end && p[1 + n] == '.') {
        q = p + 2 + n;
        q += count_digits(q, end, 9);
        if (!has(q, end, "] ["))
            return 0;
        q += 2;
    }
    const char *host = q + 1;
    name = host_name(host, end);
    if (name == 0)
        return 0;
    for (q = host + name; (n = colon_number(q, end)) > 0; fields++)
        q += n;
    if (fields == 0 || fields > 4 || !has(q, end, "] "))
        return 0;
    set_node(f, host, name);
    return (size_t) (q + 2 - p);
}

/* The mark of a kernel or daemon line behind its host: "kernel: ", "nv-fabricmanager[812]: ". The mark stays. */
static bool is_program(const char *p, const char *end)
{
    const char *q = p;

    if (has(p, end, "kernel: "))
        return true;
    while (q < end && (word(*q) || *q == '-' || *q == '.'))
        q++;
    if (q == p || q >= end || *q != '[')
        return false;
    q++;
    q += count_digits(q, end, 9);
    return has(q, end, "]: ");
}

/* syslog: "Jan  2 10:00:00 node17 kernel: text" */
static size_t match_syslog(const char *p, const char *end, struct line_prefix *f)
{
    static const char shape[] = "Aaa ?d dd:dd:dd ";
    size_t name;

    if ((size_t) (end - p) < sizeof(shape))
        return 0;
    for (size_t i = 0; shape[i]; i++) {
        char c = p[i];
        if (shape[i] == 'A'   ? c < 'A' || c > 'Z'
            : shape[i] == 'a' ? !lower(c)
            : shape[i] == 'd' ? !digit(c)
            : shape[i] == '?' ? !digit(c) && c != ' '
                              : c != shape[i])
            return 0;
    }
    p += sizeof(shape) - 1;
    name = host_name(p, end);
    if (name == 0 || p + name >= end || p[name] != ' ' || !is_program(p + name + 1, end))
        return 0;
    set_node(f, p, name);
    return sizeof(shape) + name;
}

/* The same behind an ISO time stamp, which is off already: "node17 kernel: text" */
static size_t match_host_program(const char *p, const char *end, struct line_prefix *f)
{
    size_t name = host_name(p, end);

    if (name == 0 || p + name >= end || p[name] != ' ' || !is_program(p + name + 1, end))
        return 0;
    set_node(f, p, name);
    return name + 1;
}

/* PRRTE: "[prterun-node17-4000@1,3]<stderr>: text"; kubectl logs --prefix: "[pod/worker-3/train] text" */
static size_t match_tagged(const char *p, const char *end, struct line_prefix *f)
{
    const char *close = NULL, *q;
    int value = -1;

    if (has(p, end, "[pod/")) {
        close = memchr(p, ']', (size_t) (end - p) < 256 ? (size_t) (end - p) : 256);
        return close && has(close, end, "] ") ? (size_t) (close + 2 - p) : 0;
    }
    if (!has(p, end, "[prterun-") && !has(p, end, "[prte-"))
        return 0;
    close = memchr(p, ']', (size_t) (end - p) < 256 ? (size_t) (end - p) : 256);
    q = close ? memrchr(p, ',', (size_t) (close - p)) : NULL;
    if (!q || small_number(q + 1, end, &value) != (size_t) (close - q - 1) ||
        (!has(close, end, "]<stdout>:") && !has(close, end, "]<stderr>:")))
        return 0;
    f->rank = f->task = value;
    close += 10;
    if (close < end && *close == ' ')
        close++;
    return (size_t) (close - p);
}

static uint32_t mix(uint32_t key, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        key = (key ^ (unsigned char) p[i]) * 16777619u; /* FNV-1a */
    return key;
}

void line_parse_prefix(const char *line, size_t len, struct line_prefix *ret)
{
    const char *p = line, *end = line + len;

    *ret = (struct line_prefix){ .rank = -1, .local_rank = -1, .task = -1, .key = 2166136261u };
    for (int i = 0; i < MAX_LABELS; i++) {
        size_t n = match_timestamp(p, end);

        if (n > 0) {
            p += n;
            n = match_host_program(p, end, ret);
        } else {
            n = match_bracket(p, end, ret);
            if (n == 0)
                n = match_task(p, end, ret);
            if (n == 0)
                n = match_actor(p, end, ret);
            if (n == 0)
                n = match_nccl(p, end, ret);
            if (n == 0)
                n = match_host(p, end, ret);
            if (n == 0)
                n = match_mpi(p, end, ret);
            if (n == 0)
                n = match_syslog(p, end, ret);
            if (n == 0)
                n = match_tagged(p, end, ret);
            if (n == 0)
                break;
            ret->key = mix(ret->key, p, n);
        }
        p += n;
    }
    ret->body = (size_t) (p - line);
    if (has(p, end, "slurmstepd-")) { /* the mark stays: rules know it */
        size_t n = host_name(p + 11, end);
        if (n > 0 && has(p + 11 + n, end, ": "))
            set_node(ret, p + 11, n);
    }
}

bool line_needs_clean(const char *text, size_t len)
{
    return memchr(text, '\033', len) || memchr(text, '\r', len) || memchr(text, '\0', len);
}

/* Length of the escape sequence at @p (which is ESC), at least 1. An unfinished one ends with its line. */
static size_t escape_length(const char *p, const char *end)
{
    const char *q = p + 1;
    const char *stop = (size_t) (end - p) > MAX_ESCAPE ? p + MAX_ESCAPE : end;

    if (q >= stop)
        return 1;
    if (*q == '[') {
        for (q++; q < stop && *q >= 0x20 && *q <= 0x3f; q++)
            ;
        return q < stop && *q >= 0x40 && *q <= 0x7e ? (size_t) (q + 1 - p) : (size_t) (q - p);
    }
    if (*q == ']') {
        for (q++; q < stop; q++) {
            if (*q == '\a')
                return (size_t) (q + 1 - p);
            if (*q == '\033')
                return q + 1 < stop && q[1] == '\\' ? (size_t) (q + 2 - p) : (size_t) (q - p);
            if (*q == '\n' || *q == '\r' || *q == '\0')
                break;
        }
        return (size_t) (q - p);
    }
    return *q >= 0x30 && *q <= 0x7e ? 2 : 1;
}

void line_clean(const char *text, size_t len, char *dst)
{
    const char *p = text, *end = text + len;
    size_t owed = 0;

    while (p < end) {
        if (*p == '\033') {
            size_t n = escape_length(p, end);
            owed += n;
            p += n;
        } else if (*p == '\n' || *p == '\r' || *p == '\0') {
            memset(dst, '\n', owed + 1);
            dst += owed + 1;
            owed = 0;
            p++;
        } else {
            *dst++ = *p++;
        }
    }
    memset(dst, '\n', owed);
}

const char *line_first_end(const char *text, size_t len)
{
    static const char ends[] = { '\n', '\r', '\0' };
    const char *first = NULL;

    for (size_t i = 0; i < sizeof(ends); i++) {
        const char *p = memchr(text, ends[i], first ? (size_t) (first - text) : len);
        if (p)
            first = p;
    }
    return first;
}

const char *line_last_end(const char *text, size_t len)
{
    static const char ends[] = { '\n', '\r', '\0' };
    const char *last = NULL;

    for (size_t i = 0; i < sizeof(ends); i++) {
        size_t from = last ? (size_t) (last - text) + 1 : 0;
        const char *p = memrchr(text + from, ends[i], len - from);
        if (p)
            last = p;
    }
    return last;
}
