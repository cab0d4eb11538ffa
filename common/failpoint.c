/* SPDX-License-Identifier: Apache-2.0 */

/* Counters live in shared anonymous memory because some points are passed only by forked children,
 * where each child would otherwise start from zero and "@2" would never come. */

#include "common/failpoint.h"

#ifdef ADV_FAILPOINTS

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "common/err.h"
#include "common/num.h"

#define MAX_POINTS 16

struct point {
    char name[64];
    char action; /* first letter of kill, stop, pause, exit, arm */
    int status;
    char file[256]; /* or the point to arm */
    uint64_t count;
};

static struct point points[MAX_POINTS];
static size_t n_points;
static uint64_t *hits;  /* shared with forked children; one for each point */
static uint64_t *asleep; /* as well; until armed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void malformed(const char *spec)
{
    (void) fprintf(stderr, "ADVISOR_FAILPOINT: malformed entry \"%s\"\n", spec);
    _exit(2);
}

static void parse_one(char *spec)
{
    struct point *p = &points[n_points];
    char *eq = strchr(spec, '='), *at = strrchr(spec, '@');
    int64_t v;

    if (n_points == MAX_POINTS || !eq || eq == spec || (size_t) (eq - spec) >= sizeof(p->name))
        malformed(spec);
    p->count = 1;
    if (at && adv_parse_u64(at + 1, 1, UINT32_MAX, &p->count, NULL) < 0)
        malformed(spec);
    if (at)
        *at = '\0';
    *eq = '\0';
    (void) snprintf(p->name, sizeof(p->name), "%s", spec);
    const char *act = eq + 1;
    if (adv_streq(act, "kill") || adv_streq(act, "stop")) {
        p->action = act[0];
    } else if (adv_startswith(act, "pause:") && act[6] && strlen(act + 6) < sizeof(p->file)) {
        p->action = 'p';
        (void) snprintf(p->file, sizeof(p->file), "%s", act + 6);
    } else if (adv_startswith(act, "arm:") && act[4] && strlen(act + 4) < sizeof(p->name)) {
        p->action = 'a';
        (void) snprintf(p->file, sizeof(p->file), "%s", act + 4);
    } else if (adv_startswith(act, "exit:") && adv_parse_i64(act + 5, 0, 255, &v, NULL) == 0) {
        p->action = 'e';
        p->status = (int) v;
    } else {
        malformed(act);
    }
    n_points++;
}

static void init(void)
{
    const char *env = getenv("ADVISOR_FAILPOINT");

    if (!env || !*env)
        return;
    adv_auto_free char *copy = strdup(env);
    void *mem = mmap(NULL, 2 * MAX_POINTS * sizeof(*hits), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!copy || mem == MAP_FAILED)
        malformed("(no memory)");
    hits = mem;
    asleep = hits + MAX_POINTS;
    char *save = NULL;
    for (char *s = strtok_r(copy, ";", &save); s; s = strtok_r(NULL, ";", &save))
        parse_one(s);
    for (size_t i = 0; i < n_points; i++) {
        bool found = points[i].action != 'a';

        for (size_t k = 0; points[i].action == 'a' && k < n_points; k++) {
            if (strcmp(points[k].name, points[i].file) == 0) {
                asleep[k] = 1;
                found = true;
            }
        }
        if (!found)
            malformed(points[i].file);
    }
}

void adv_failpoint_init(void)
{
    (void) pthread_once(&once, init);
}

static void say(const char *name)
{
    char line[128];
    size_t n = 0;

    /* no stdio: this may run between fork and exec */
    for (const char *s = "failpoint "; *s; s++)
        line[n++] = *s;
    for (const char *s = name; *s && n < sizeof(line) - 6; s++)
        line[n++] = *s;
    for (const char *s = " hit\n"; *s; s++)
        line[n++] = *s;
    ssize_t w = write(STDERR_FILENO, line, n);
    (void) w;
}

void adv_failpoint_hit(const char *name)
{
    adv_failpoint_init();
    for (size_t i = 0; i < n_points; i++) {
        const struct point *p = &points[i];
        const struct timespec tick = { .tv_nsec = 10 * 1000 * 1000 };

        if (strcmp(p->name, name) != 0 || __atomic_load_n(&asleep[i], __ATOMIC_RELAXED) ||
            __atomic_add_fetch(&hits[i], 1, __ATOMIC_RELAXED) != p->count)
            continue;
        say(name);
        switch (p->action) {
        case 'k':
            (void) kill(getpid(), SIGKILL);
            break;
        case 's':
            (void) kill(getpid(), SIGSTOP);
            break;
        case 'e':
            _exit(p->status);
        case 'a':
            for (size_t k = 0; k < n_points; k++)
                if (strcmp(points[k].name, p->file) == 0)
                    __atomic_store_n(&asleep[k], 0, __ATOMIC_RELAXED);
            break;
        default:
            while (access(p->file, F_OK) != 0)
                (void) nanosleep(&tick, NULL);
        }
    }
}

#else

void adv_failpoint_hit(const char *name)
{
    (void) name;
}

void adv_failpoint_init(void)
{
}

#endif
