/* SPDX-License-Identifier: Apache-2.0 */

/* The tools' texts are for people and change from release to release, so each reader looks for the one thing it needs, at the
 * start of a line where it can, and takes everything else for not there. Settings' names and values were seen alike in 22.05,
 * 24.11 and 26.05; a setting that a release does not print stays unknown. */

#include "advisor-agent/doctor/read.h"

#include <ctype.h>
#include <stdio.h>

#include "common/num.h"
#include "common/utf8.h"

#define CODES 256

void doctor_clean(char *dst, size_t cap, const void *bytes, size_t len)
{
    (void) adv_utf8_lossy_buf(dst, cap, bytes, len);
    for (char *p = dst; *p; p++)
        if ((unsigned char) *p < ' ' || *p == 0x7f)
            *p = ' ';
    /* C1 controls are two bytes in UTF-8; some terminals obey them */
    for (char *p = dst; *p; p++)
        if ((unsigned char) p[0] == 0xc2 && (unsigned char) p[1] >= 0x80 && (unsigned char) p[1] < 0xa0)
            p[0] = p[1] = ' ';
}

/* ---- lines ---- */

/* The next line of [*p, end); false at the end. */
static bool next_line(const char **p, const char *end, const char **ret, size_t *ret_len)
{
    if (*p >= end)
        return false;
    const char *nl = memchr(*p, '\n', (size_t) (end - *p));
    if (!nl)
        nl = end;
    *ret = *p;
    *ret_len = (size_t) (nl - *p);
    *p = nl + 1;
    return true;
}

static bool holds(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

/* A string that may hold NULs ends at the first. */
static void copy_text(char *dst, size_t cap, const char *src, size_t len)
{
    len = strnlen(src, len);
    doctor_clean(dst, cap, src, len);
}

/* ---- complaints ---- */

enum doctor_complaint doctor_read_complaint(const char *text, size_t len)
{
    /* the first that fits: what is wrong in the end is often said in several ways */
    static const struct {
        const char *word;
        enum doctor_complaint means;
    } words[] = {
        { "Unable to process configuration file", DOCTOR_BAD_CONF },
        { "Unable to process slurm.conf", DOCTOR_BAD_CONF },
        { "Parse error in file", DOCTOR_BAD_CONF },
        { "Parsing error at unrecognized key", DOCTOR_BAD_CONF },
        { "ClusterName needs to be specified", DOCTOR_BAD_CONF },
        { "Could not establish a configuration source", DOCTOR_BAD_CONF },
        { "Munge encode failed", DOCTOR_NO_MUNGE },
        { "Did you start munged", DOCTOR_NO_MUNGE },
        { "If munged is up", DOCTOR_NO_MUNGE },
        { "Munge decode failed", DOCTOR_BAD_CREDENTIAL },
        { "Invalid authentication credential", DOCTOR_BAD_CREDENTIAL },
        { "Rewound credential", DOCTOR_BAD_CREDENTIAL },
        { "Expired credential", DOCTOR_BAD_CREDENTIAL },
        { "Protocol authentication error", DOCTOR_BAD_CREDENTIAL },
        { "authentication error", DOCTOR_BAD_CREDENTIAL },
        { "slurm_persist_conn_open", DOCTOR_NO_DBD },
        { "slurmdbd", DOCTOR_NO_DBD },
        { "Problem talking to the database", DOCTOR_NO_DBD },
        { "Access/permission denied", DOCTOR_DENIED },
        { "Invalid user id", DOCTOR_DENIED },
        { "Unable to contact slurm controller", DOCTOR_NO_CONTACT },
        { "Socket timed out", DOCTOR_NO_CONTACT },
        { "Connection refused", DOCTOR_NO_CONTACT },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(words); i++)
        if (holds(text, len, words[i].word))
            return words[i].means;
    return DOCTOR_COMPLAINT_NONE;
}

void doctor_read_said(const char *text, size_t len, char ret[DOCTOR_SAID_SIZE])
{
    const char *p = text, *line, *best = "";
    size_t n, best_len = 0;
    int best_rank = -1;

    while (next_line(&p, text + len, &line, &n)) {
        bool telling = doctor_read_complaint(line, n) != DOCTOR_COMPLAINT_NONE && !holds(line, n, "If munged is up");
        int rank = telling ? 2 : holds(line, n, "rror") ? 1 : 0;

        if (strnlen(line, n) == 0 || rank <= best_rank)
            continue;
        best = line;
        best_len = n;
        best_rank = rank;
    }
    copy_text(ret, DOCTOR_SAID_SIZE, best, best_len);
}

/* ---- versions ---- */

void doctor_read_version(const char *text, size_t len, char ret[32])
{
    const char *p = memchr(text, ' ', len);
    size_t n = 0, left;

    ret[0] = '\0';
    if (!p || len < 5 || memcmp(text, "slurm", 5) != 0)
        return;
    p++;
    left = (size_t) (text + len - p);
    while (n < left && n < 31 && (isalnum((unsigned char) p[n]) || p[n] == '.' || p[n] == '-'))
        n++;
    memcpy(ret, p, n);
    ret[n] = '\0';
    if (!doctor_release(ret))
        ret[0] = '\0';
}

unsigned doctor_release(const char *v)
{
    unsigned part[2] = { 0, 0 };

    for (unsigned i = 0; i < 2; i++) {
        unsigned digits = 0;

        for (; isdigit((unsigned char) *v) && digits < 2; v++, digits++)
            part[i] = part[i] * 10 + (unsigned) (*v - '0');
        if (!digits || (i == 0 ? *v != '.' : isdigit((unsigned char) *v)))
            return 0;
        if (i == 0)
            v++;
    }
    return part[0] * 100 + part[1];
}

/* ---- scontrol ping ---- */

enum doctor_tri doctor_read_ping(const char *text, size_t len, char *ret_down, size_t cap)
{
    const char *p = text, *line;
    bool up = false, down = false;
    size_t n, used = 0;

    ret_down[0] = '\0';
    while (next_line(&p, text + len, &line, &n)) {
        static const char head[] = "Slurmctld(";
        char name[128];

        while (n && isspace((unsigned char) line[n - 1]))
            n--;
        if (n < sizeof(head) || memcmp(line, head, sizeof(head) - 1) != 0)
            continue;
        if (n > 6 && memcmp(line + n - 6, " is UP", 6) == 0) {
            up = true;
        } else if (n > 8 && memcmp(line + n - 8, " is DOWN", 8) == 0) {
            down = true;
            copy_text(name, sizeof(name), line, n - 8);
            if (used + strlen(name) + 3 < cap)
                used += (size_t) snprintf(ret_down + used, cap - used, "%s%s", used ? ", " : "", name);
        }
    }
    if (!up)
        ret_down[0] = '\0'; /* not beside another */
    return up ? DOCTOR_YES : down ? DOCTOR_NO : DOCTOR_UNKNOWN;
}

/* ---- scontrol show config ---- */

/* The value of "Key   = value"; false if there is no such line. "(null)" is the empty value. */
static bool setting(const char *text, size_t len, const char *key, char *ret, size_t cap)
{
    const char *p = text, *line;
    size_t n, kn = strlen(key);

    while (next_line(&p, text + len, &line, &n)) {
        if (n <= kn || strncasecmp(line, key, kn) != 0 || (line[kn] != ' ' && line[kn] != '='))
            continue;
        const char *v = memchr(line, '=', n);
        if (!v)
            continue;
        for (v++; v < line + n && *v == ' '; v++)
            ;
        size_t vn = (size_t) (line + n - v);
        while (vn && isspace((unsigned char) v[vn - 1]))
            vn--;
        copy_text(ret, cap, v, vn);
        if (adv_streq(ret, "(null)"))
            ret[0] = '\0';
        return true;
    }
    return false;
}

static int64_t seconds(const char *text, size_t len, const char *key)
{
    char v[64];
    int64_t s;

    if (!setting(text, len, key, v, sizeof(v)))
        return -1;
    v[strcspn(v, " ")] = '\0';
    return adv_parse_i64(v, 0, INT32_MAX, &s, NULL) < 0 ? -1 : s;
}

static enum doctor_tri flag(const char *text, size_t len, const char *key)
{
    char v[32];

    if (!setting(text, len, key, v, sizeof(v)))
        return DOCTOR_UNKNOWN;
    return adv_streq(v, "1") || strcasecmp(v, "yes") == 0  ? DOCTOR_YES
           : adv_streq(v, "0") || strcasecmp(v, "no") == 0 ? DOCTOR_NO
                                                           : DOCTOR_UNKNOWN;
}

/* Is anything set there? */
static enum doctor_tri any(const char *text, size_t len, const char *key)
{
    char v[1024];

    if (!setting(text, len, key, v, sizeof(v)))
        return DOCTOR_UNKNOWN;
    return v[0] ? DOCTOR_YES : DOCTOR_NO;
}

/* Is @word one of the comma separated values there, alone or with "=..."? */
static enum doctor_tri among(const char *text, size_t len, const char *key, const char *word)
{
    char v[2048], *save = NULL;

    if (!setting(text, len, key, v, sizeof(v)))
        return DOCTOR_UNKNOWN;
    for (char *w = strtok_r(v, ", ", &save); w; w = strtok_r(NULL, ", ", &save))
        if (strncasecmp(w, word, strlen(word)) == 0 && (w[strlen(word)] == '\0' || w[strlen(word)] == '='))
            return DOCTOR_YES;
    return DOCTOR_NO;
}

/* "1-3,7" into bits; what is not a code is left out. */
static void codes_of(const char *list, bool bits[CODES])
{
    memset(bits, 0, CODES * sizeof(*bits));
    for (const char *p = list; *p; p++) {
        unsigned from = 0, to, digits = 0;

        for (; isdigit((unsigned char) *p) && digits < 4; p++, digits++)
            from = from * 10 + (unsigned) (*p - '0');
        to = from;
        if (digits && *p == '-') {
            unsigned more = 0;

            for (p++, to = 0; isdigit((unsigned char) *p) && more < 4; p++, more++)
                to = to * 10 + (unsigned) (*p - '0');
            digits = more;
        }
        if (digits && (*p == ',' || *p == '\0'))
            for (unsigned c = from; c <= to && c < CODES; c++)
                bits[c] = true;
        p += strcspn(p, ",");
        if (!*p)
            return;
    }
}

void doctor_common_codes(const char *a, const char *b, char *ret, size_t cap)
{
    bool x[CODES], y[CODES];
    size_t used = 0;

    codes_of(a, x);
    codes_of(b, y);
    ret[0] = '\0';
    for (unsigned c = 0; c < CODES; c++) {
        unsigned last = c;

        if (!x[c] || !y[c])
            continue;
        while (last + 1 < CODES && x[last + 1] && y[last + 1])
            last++;
        if (cap - used < 12)
            return;
        used += (size_t) snprintf(ret + used, cap - used, last > c ? "%s%u-%u" : "%s%u", used ? "," : "", c, last);
        c = last;
    }
}

void doctor_read_settings(const char *text, size_t len, struct doctor_settings *ret)
{
    struct doctor_settings s = { 0 };
    char v[256];

    *ret = s;
    ret->min_job_age_s = ret->kill_wait_s = ret->complete_wait_s = ret->inactive_limit_s = ret->message_timeout_s = -1;
    if (!setting(text, len, "ClusterName", s.cluster, sizeof(s.cluster)) || !s.cluster[0])
        return;
    s.known = true;
    (void) setting(text, len, "SLURM_VERSION", s.version, sizeof(s.version));
    if (setting(text, len, "SlurmUser", s.slurm_user, sizeof(s.slurm_user)))
        s.slurm_user[strcspn(s.slurm_user, "(")] = '\0';
    (void) setting(text, len, "AuthType", s.auth_type, sizeof(s.auth_type));
    (void) setting(text, len, "AccountingStorageType", s.accounting_type, sizeof(s.accounting_type));
    if (setting(text, len, "PrivateData", v, sizeof(v)))
        s.private_jobs = strstr(v, "jobs") || strstr(v, "all") ? DOCTOR_YES : DOCTOR_NO;
    s.store_comment = among(text, len, "AccountingStoreFlags", "job_comment");
    s.job_requeue = flag(text, len, "JobRequeue");
    s.file_append = flag(text, len, "JobFileAppend");
    s.node_epilog = any(text, len, "Epilog");
    if (s.node_epilog != DOCTOR_YES && any(text, len, "Epilog[0]") == DOCTOR_YES)
        s.node_epilog = DOCTOR_YES;
    s.ctld_epilog = any(text, len, "EpilogSlurmctld");
    if (any(text, len, "EpilogSlurmctld[0]") == DOCTOR_YES)
        s.ctld_epilog = DOCTOR_YES;
    /* releases after 22.05 number them, and print none where there is none */
    if (s.ctld_epilog == DOCTOR_UNKNOWN && doctor_release(s.version) >= 2411)
        s.ctld_epilog = DOCTOR_NO;
    s.rate_limit = among(text, len, "SlurmctldParameters", "rl_enable");
    s.min_job_age_s = seconds(text, len, "MinJobAge");
    s.kill_wait_s = seconds(text, len, "KillWait");
    s.complete_wait_s = seconds(text, len, "CompleteWait");
    s.inactive_limit_s = seconds(text, len, "InactiveLimit");
    s.message_timeout_s = seconds(text, len, "MessageTimeout");
    (void) setting(text, len, "RequeueExit", s.requeue_exit, sizeof(s.requeue_exit));
    (void) setting(text, len, "RequeueExitHold", s.requeue_exit_hold, sizeof(s.requeue_exit_hold));
    doctor_common_codes(s.requeue_exit, s.requeue_exit_hold, s.requeue_both, sizeof(s.requeue_both));
    *ret = s;
}

/* ---- clocks ---- */

/* A whole number of seconds in [p, end) up to @stop; 0 if it is none. */
static int64_t unix_s(const char *p, const char *end, char stop)
{
    char digits[20];
    size_t n = 0;
    int64_t s = 0;

    while (p + n < end && n < sizeof(digits) - 1 && isdigit((unsigned char) p[n])) {
        digits[n] = p[n];
        n++;
    }
    digits[n] = '\0';
    if (!n || p + n >= end || p[n] != stop || adv_parse_i64(digits, 1, INT64_C(1) << 40, &s, NULL) < 0)
        return 0;
    return s;
}

int64_t doctor_read_ctld_clock(const char *text, size_t len)
{
    static const char head[] = "sdiag output at ";
    const char *p = text, *line;
    size_t n;

    while (next_line(&p, text + len, &line, &n)) {
        if (n < sizeof(head) || memcmp(line, head, sizeof(head) - 1) != 0)
            continue;
        const char *open = memrchr(line, '(', n);
        return open ? unix_s(open + 1, line + n, ')') : 0;
    }
    return 0;
}

/* The value of " KEY=" up to the next blank. */
static bool field(const char *line, size_t n, const char *key, char *ret, size_t cap)
{
    const char *at = memmem(line, n, key, strlen(key));

    if (!at)
        return false;
    at += strlen(key);
    size_t vn = 0, left = (size_t) (line + n - at);
    while (vn < left && at[vn] != ' ')
        vn++;
    copy_text(ret, cap, at, vn);
    return true;
}

void doctor_read_nodes(const char *text, size_t len, doctor_node_fn fn, void *arg)
{
    static const char head[] = "NodeName=";
    const char *p = text, *line;
    size_t n;

    while (next_line(&p, text + len, &line, &n)) {
        char name[256], host[256] = "", when[32];
        int64_t start = 0;

        if (n < sizeof(head) || memcmp(line, head, sizeof(head) - 1) != 0)
            continue;
        /* people's texts come behind these */
        const char *people = memmem(line, n, " Reason=", 8);
        if (people)
            n = (size_t) (people - line);
        if (!field(line, n, head, name, sizeof(name)) || !name[0])
            continue;
        (void) field(line, n, " NodeHostName=", host, sizeof(host));
        if (field(line, n, " SlurmdStartTime=", when, sizeof(when)))
            if (adv_parse_i64(when, 1, INT64_C(1) << 40, &start, NULL) < 0)
                start = 0;
        fn(arg, name, host, start);
    }
}

/* ---- comments ---- */

bool doctor_read_comments(char *text, size_t len, const char *sep, doctor_comment_fn fn, void *arg)
{
    size_t sn = strlen(sep);

    for (char *p = text, *end = text + len; p < end;) {
        char *id_end = memmem(p, (size_t) (end - p), sep, sn);
        char *comment = id_end ? id_end + sn : NULL;
        char *comment_end = comment ? memmem(comment, (size_t) (end - comment), sep, sn) : NULL;

        if (!comment_end || (comment_end + sn < end && comment_end[sn] != '\n'))
            return false;
        *id_end = *comment_end = '\0';
        for (const char *d = p; *d; d++)
            if (!isdigit((unsigned char) *d))
                return false;
        if (id_end == p || id_end - p > 10)
            return false;
        if (!adv_streq(comment, "(null)") && !adv_streq(comment, ""))
            fn(arg, p, comment);
        p = comment_end + sn + 1;
    }
    return true;
}

/* ---- clusters ---- */

void doctor_read_federation(const char *text, size_t len, char *ret, size_t cap)
{
    static const char head[] = "Federation:";
    const char *p = text, *line;
    size_t n;

    ret[0] = '\0';
    while (next_line(&p, text + len, &line, &n)) {
        if (n <= sizeof(head) - 1 || memcmp(line, head, sizeof(head) - 1) != 0)
            continue;
        const char *v = line + sizeof(head) - 1;
        n -= sizeof(head) - 1;
        for (; n && *v == ' '; v++, n--)
            ;
        copy_text(ret, cap, v, n);
        return;
    }
}

size_t doctor_read_clusters(const char *text, size_t len)
{
    const char *p = text, *line;
    size_t n, count = 0;

    while (next_line(&p, text + len, &line, &n))
        count += strnlen(line, n) > 0;
    return count;
}

/* ---- this host ---- */

void doctor_mount_type(const char *mounts, size_t len, unsigned dev_major, unsigned dev_minor, char *ret, size_t cap)
{
    const char *p = mounts, *line;
    char want[32];
    size_t n;

    ret[0] = '\0';
    (void) snprintf(want, sizeof(want), "%u:%u", dev_major, dev_minor);
    while (next_line(&p, mounts + len, &line, &n)) {
        /* ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS [TAG...] - TYPE SOURCE OPTIONS, blanks within are \040 */
        const char *at = memchr(line, ' ', n), *end = line + n;

        at = at ? memchr(at + 1, ' ', (size_t) (end - at - 1)) : NULL;
        if (!at || (size_t) (end - at - 1) <= strlen(want) || memcmp(at + 1, want, strlen(want)) != 0 || at[1 + strlen(want)] != ' ')
            continue;
        const char *type = memmem(at, (size_t) (end - at), " - ", 3);
        if (!type)
            continue;
        type += 3;
        const char *type_end = memchr(type, ' ', (size_t) (end - type));
        if (!type_end)
            continue;
        doctor_clean(ret, cap, type, (size_t) (type_end - type));
        return;
    }
}

bool doctor_read_uids(const char *text, size_t len, uid_t *ret_real, uid_t *ret_effective)
{
    static const char head[] = "Uid:\t";
    const char *p = text, *line;
    size_t n;

    while (next_line(&p, text + len, &line, &n)) {
        unsigned long id[2];
        size_t at = sizeof(head) - 1;

        if (n < sizeof(head) || memcmp(line, head, at) != 0)
            continue;
        for (unsigned i = 0; i < 2; i++) {
            size_t digits = 0;

            for (id[i] = 0; at < n && digits < 10 && isdigit((unsigned char) line[at]); at++, digits++)
                id[i] = id[i] * 10 + (unsigned) (line[at] - '0');
            if (!digits || at >= n || line[at++] != '\t' || id[i] > UINT32_MAX)
                return false;
        }
        *ret_real = (uid_t) id[0];
        *ret_effective = (uid_t) id[1];
        return true;
    }
    return false;
}

enum doctor_tri doctor_is_network(const char *type)
{
    static const char *const shared[] = { "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "smbfs", "9p", "pvfs2", "panfs", "ibrix",
                                          "afs", "orangefs", "wekafs", "virtiofs", "ocfs2", "gfs2", "glusterfs", NULL };
    static const char *const local[] = { "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "ramfs", "overlay", "f2fs", "jfs", "reiserfs", "vfat", NULL };

    for (size_t i = 0; shared[i]; i++)
        if (adv_streq(type, shared[i]))
            return DOCTOR_YES;
    for (size_t i = 0; local[i]; i++)
        if (adv_streq(type, local[i]))
            return DOCTOR_NO;
    return DOCTOR_UNKNOWN;
}

int doctor_read_cmdline(char *text, size_t len, char **ret_flags, int max, const char **ret_config)
{
    int n = 0;
    bool first = true, config = false;

    *ret_config = "";
    if (!len || text[len - 1] != '\0')
        return 0; /* cut */
    for (char *p = text; p < text + len; p += strlen(p) + 1) {
        if (first) {
            first = false;
        } else if (config) {
            *ret_config = p;
            config = false;
        } else if (adv_streq(p, "--config")) {
            config = true;
        } else if (adv_startswith(p, "--config=")) {
            *ret_config = p + strlen("--config=");
        } else if (n < max) {
            ret_flags[n++] = p;
        }
    }
    return n;
}
