/* SPDX-License-Identifier: Apache-2.0 */

/* Includes are read in, not pointed to: AuthInfo may stand in an included file, and relative names count from the
 * folder of the main file. An include that cannot be read stays as a line with an absolute name, so that the tool
 * complains as it would with the site's own file. A file is taken as unchanged while inode, size and time stay. */

#include "adapters/slurm/conf.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define CONF_MAX     (64u << 20)
#define DEPTH_MAX    8
#define SOURCES_MAX  64

struct source {
    char *path;
    struct stat st;
};

struct slurm_conf {
    char *given;
    char *copy;
    int ttl_s;
    bool fresh;
    struct source sources[SOURCES_MAX];
    size_t n_sources;
};

int slurm_conf_new(const char *source, const char *state_dir, int ttl_s, struct slurm_conf **ret, struct adv_err *err)
{
    struct slurm_conf *c = calloc(1, sizeof(*c));

    if (!c || asprintf(&c->copy, "%s/slurm.conf", state_dir) < 0 || (source && !(c->given = strdup(source)))) {
        if (c)
            c->copy = NULL;
        free(c);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "slurm.conf: no memory");
    }
    c->ttl_s = ttl_s;
    *ret = c;
    return 0;
}

static void forget_sources(struct slurm_conf *c)
{
    for (size_t i = 0; i < c->n_sources; i++)
        free(c->sources[i].path);
    c->n_sources = 0;
}

struct slurm_conf *slurm_conf_free(struct slurm_conf *c)
{
    if (c) {
        forget_sources(c);
        free(c->given);
        free(c->copy);
        free(c);
    }
    return NULL;
}

const char *slurm_conf_path(const struct slurm_conf *c)
{
    return c->copy;
}

const char *slurm_conf_source(const struct slurm_conf *c)
{
    const char *const places[] = { c->given ? c->given : getenv("SLURM_CONF"), "/etc/slurm/slurm.conf",
                                   "/run/slurm/conf/slurm.conf" };

    if (places[0] && *places[0])
        return places[0]; /* named: no guessing beside it */
    for (size_t i = 1; i < ADV_ARRAY_LEN(places); i++)
        if (access(places[i], F_OK) == 0)
            return places[i];
    return NULL;
}

static bool unchanged(const struct slurm_conf *c)
{
    struct stat st;

    for (size_t i = 0; i < c->n_sources; i++) {
        const struct stat *was = &c->sources[i].st;
        if (stat(c->sources[i].path, &st) < 0 || st.st_ino != was->st_ino || st.st_size != was->st_size ||
            st.st_mtim.tv_sec != was->st_mtim.tv_sec || st.st_mtim.tv_nsec != was->st_mtim.tv_nsec)
            return false;
    }
    return c->n_sources > 0 && access(c->copy, R_OK) == 0;
}

/* True when @line sets @key; @ret_value points behind the '='. */
static bool sets_key(const char *line, const char *key, const char **ret_value)
{
    size_t n = strlen(key);

    while (isspace((unsigned char) *line))
        line++;
    if (strncasecmp(line, key, n) != 0)
        return false;
    line += n;
    while (*line == ' ' || *line == '\t')
        line++;
    if (*line != '=')
        return false;
    line++;
    while (*line == ' ' || *line == '\t')
        line++;
    *ret_value = line;
    return true;
}

/* "socket=/x,ttl=300" -> "socket=/x,ttl=10" */
static void put_auth_info(struct adv_buf *out, const char *value, int ttl_s)
{
    adv_auto_free char *copy = strdup(value);
    char *save = NULL;

    (void) adv_buf_append_str(out, "AuthInfo=");
    if (copy) {
        copy[strcspn(copy, " \t\r\n#")] = '\0';
        for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save))
            if (strncasecmp(w, "ttl=", 4) != 0)
                (void) adv_buf_appendf(out, "%s,", w);
    }
    (void) adv_buf_appendf(out, "ttl=%d\n", ttl_s);
}

static int read_source(struct slurm_conf *c, const char *path, const char *folder, int depth, struct adv_buf *out,
                       bool *seen_auth, struct adv_err *err)
{
    adv_auto_free char *line = NULL;
    size_t cap = 0;
    struct stat st;
    FILE *f;
    int r = 0;

    if (c->n_sources == SOURCES_MAX || depth > DEPTH_MAX)
        return adv_err_set(err, ADV_UNAVAILABLE, "%s: too many included files", path);
    f = fopen(path, "re");
    if (!f || fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode)) {
        r = adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "cannot read %s", path);
        if (f)
            (void) fclose(f);
        return r;
    }
    char *kept = strdup(path);
    if (!kept) {
        (void) fclose(f);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%s: no memory", path);
    }
    c->sources[c->n_sources++] = (struct source) { kept, st };
    while (r == 0 && getline(&line, &cap, f) >= 0) {
        const char *value, *p = line;

        while (isspace((unsigned char) *p))
            p++;
        if (strncasecmp(p, "include", 7) == 0 && isspace((unsigned char) p[7])) {
            char name[4096], full[8300];

            for (p += 7; isspace((unsigned char) *p); p++)
                ;
            size_t n = strcspn(p, " \t\r\n#");
            if (n >= sizeof(name))
                n = sizeof(name) - 1;
            memcpy(name, p, n);
            name[n] = '\0';
            (void) snprintf(full, sizeof(full), "%s%s%s", name[0] == '/' ? "" : folder, name[0] == '/' ? "" : "/",
                            name);
            if (access(full, R_OK) == 0)
                r = read_source(c, full, folder, depth + 1, out, seen_auth, err);
            else
                (void) adv_buf_appendf(out, "Include %s\n", full);
        } else if (sets_key(line, "AuthInfo", &value)) {
            *seen_auth = true;
            put_auth_info(out, value, c->ttl_s);
        } else {
            size_t n = strlen(line);
            (void) adv_buf_append(out, line, n);
            if (n && line[n - 1] != '\n')
                (void) adv_buf_append_byte(out, '\n');
        }
    }
    if (r == 0 && ferror(f))
        r = adv_err_set(err, ADV_UNAVAILABLE, "cannot read %s", path);
    (void) fclose(f);
    return r;
}

static int write_copy(const struct slurm_conf *c, const struct adv_buf *text, struct adv_err *err)
{
    adv_auto_free char *tmp = NULL;
    adv_auto_close int fd = -1;
    size_t done = 0;

    if (asprintf(&tmp, "%s.new", c->copy) < 0) {
        tmp = NULL;
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "slurm.conf: no memory");
    }
    (void) unlink(tmp);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "cannot write %s", tmp);
    while (done < text->len) {
        ssize_t n = write(fd, text->data + done, text->len - done);
        if (n < 0 && errno != EINTR)
            return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "cannot write %s", tmp);
        done += n > 0 ? (size_t) n : 0;
    }
    if (rename(tmp, c->copy) < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "cannot write %s", c->copy);
    return 0;
}

int slurm_conf_refresh(struct slurm_conf *c, struct adv_err *err)
{
    ADV_AUTO_DONE(adv_buf) text = { 0 };
    const char *source, *slash;
    bool seen_auth = false;

    if (c->fresh && unchanged(c))
        return 0;
    c->fresh = false;
    if (!(source = slurm_conf_source(c)))
        return adv_err_set_reason(err, ADV_UNAVAILABLE, "NO_SLURM_CONF",
                                  "no slurm.conf: set SLURM_CONF or put it at /etc/slurm/slurm.conf");
    adv_buf_init(&text, CONF_MAX);
    (void) adv_buf_appendf(&text, "# Made from %s; changes here are lost.\n", source);
    slash = strrchr(source, '/');
    adv_auto_free char *folder = slash ? strndup(source, (size_t) (slash - source)) : strdup(".");
    forget_sources(c);
    if (!folder || read_source(c, source, folder, 0, &text, &seen_auth, err) < 0) {
        if (!folder)
            (void) adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "slurm.conf: no memory");
        return -ADV_UNAVAILABLE;
    }
    if (!seen_auth)
        put_auth_info(&text, "", c->ttl_s);
    if (adv_buf_error(&text))
        return adv_err_set(err, ADV_UNAVAILABLE, "slurm.conf: too long");
    int r = write_copy(c, &text, err);
    c->fresh = r == 0;
    return r;
}
