/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_JOURNAL_H
#define ADVISOR_AGENT_JOURNAL_H

/* What the agent must not forget, at the cluster itself: which writes to the scheduler it has begun
 * and how they ended, which jobs it holds, when jobs were first submitted, and the highest epoch it
 * has seen. An intent is on the disk before its command starts.
 *
 * A last record cut by a crash is removed at open. Damage anywhere else makes the journal read-only:
 * it still tells what it can, but no intent can be appended, so the agent never acts.
 *
 * Thread: loop thread.  Blocks: an append is one write and one fdatasync. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

#define JOURNAL_JOB_SIZE    40
#define JOURNAL_ADVICE_SIZE 256
#define JOURNAL_HASH_SIZE   33

struct journal;

struct journal_epoch {
    uint64_t term, counter;
};
int journal_epoch_cmp(struct journal_epoch a, struct journal_epoch b);

struct journal_intent {
    struct journal_epoch epoch;
    char advice[JOURNAL_ADVICE_SIZE];
    uint64_t generation;
    char job[JOURNAL_JOB_SIZE];
    uint32_t restarts; /* of the attempt that the advice speaks of */
    int64_t submit_s;
    char verb[24];
    char read_before[256]; /* one line for people */
    char *adds; /* CONSTRAIN: host list that is ours in the job if it lands; NULL: none. As borrowed as the step. */
};

struct journal_outcome {
    char command[16];  /* "accepted", … as the adapter names them */
    char observed[16];
    char reason[32];
    char *excluded; /* CONSTRAIN: host list that is ours now; NULL: none */
};

/* One step as the journal knows it. Borrowed, valid until the next append or compaction. */
struct journal_step {
    uint64_t seq;
    int64_t wall_us;
    struct journal_intent intent;
    bool done;
    struct journal_outcome outcome; /* valid if done */
};

enum journal_on_expiry { JOURNAL_RELEASE, JOURNAL_CANCEL, JOURNAL_LEAVE };

/* What the agent knew last of the advice for which a job is held. */
enum journal_want {
    JOURNAL_WANT_UNKNOWN, /* written by an older version */
    JOURNAL_WANTED,       /* in force */
    JOURNAL_AWAITING,     /* a person's approval, or held back: not to be released */
    JOURNAL_OVER,         /* nobody wants it any more: expired, rejected, done, withdrawn */
    JOURNAL_ELSEWHERE,    /* another agent of the cluster has the lease: what is to be done is its to know */
};

/* The cluster's mode as it was told last. */
enum journal_mode { JOURNAL_MODE_UNKNOWN, JOURNAL_MODE_OFF, JOURNAL_MODE_OBSERVE, JOURNAL_MODE_APPROVE, JOURNAL_MODE_ACT };

struct journal_hold {
    char job[JOURNAL_JOB_SIZE];
    char advice[JOURNAL_ADVICE_SIZE];
    uint32_t restarts; /* of the waiting successor */
    int64_t first_submit_s; /* of the job; 0: written by an older version */
    int64_t expires_wall_us; /* 0: never */
    enum journal_on_expiry on_expiry;
    bool kept; /* until it is decided, or a person has said yes: CANCEL means when that is over, and not at once */
    char comment[JOURNAL_HASH_SIZE]; /* hash of the job's comment then; "": not known */
    enum journal_want want;
    enum journal_mode mode;
};

/* One submission that an id means, and how far it was followed. */
struct journal_life {
    int64_t first_submit_s;
    uint32_t uid;
    uint32_t restarts; /* of the newest attempt seen */
    int64_t submit_s;  /* of that attempt; 0: written by an older version */
    int64_t ended_s;   /* 0: it had not ended */
    /* A look at which the job surely had not ended. Not worth a record of their own: written with the rest. */
    int64_t seen_wall_us;
    int64_t seen_boot_us; /* 0: seen by an earlier run */
};

/* System calls, replaceable by tests. */
struct journal_io {
    ssize_t (*write)(int fd, const void *data, size_t len);
    int (*fdatasync)(int fd);
};

/* Opens @dir/journal, creating both; takes the folder's lock, for which it waits two seconds: a watchdog may just be looking
 * whether it is taken.
 * Errors: -ADV_ALREADY_EXISTS (another agent has the folder); -ADV_PERMISSION_DENIED, -ADV_UNAVAILABLE
 *         (file system); damage is no error here, see journal_may_act(). */
adv_must_check int journal_open(const char *dir, bool allow_volatile, const struct journal_io *io,
                                struct journal **ret, struct adv_err *err);
struct journal *journal_free(struct journal *j);

/* Bytes of a record that was half written when the agent or the host went, cut off when the journal was opened; @ret_anew:
 * there was nothing else, so that it begins again, with another id. */
size_t journal_torn(const struct journal *j, bool *ret_anew);

const char *journal_id(const struct journal *j);
/* False on tmpfs and the like, unless allowed. */
bool journal_persistent(const struct journal *j);
/* 0, or why no intent can be written: -ADV_DATA_LOSS (damaged), -ADV_FAILED_PRECONDITION (not
 * persistent), -ADV_UNAVAILABLE (a sync failed; reopen). */
adv_must_check int journal_may_act(const struct journal *j, struct adv_err *err);

/* All appends: durable when they return 0; nothing is changed otherwise.
 * Errors: as journal_may_act(); -ADV_RESOURCE_EXHAUSTED (disk full: may be tried again); -ADV_INVALID_ARGUMENT (a list
 * makes the record longer than 64 KiB: it never fits). */
adv_must_check int journal_append_intent(struct journal *j, const struct journal_intent *in,
                                         int64_t wall_us, uint64_t *ret_seq, struct adv_err *err);
/* -ADV_NOT_FOUND: no such open intent. */
adv_must_check int journal_append_outcome(struct journal *j, uint64_t seq,
                                          const struct journal_outcome *out, struct adv_err *err);
adv_must_check int journal_append_hold(struct journal *j, const struct journal_hold *h,
                                       struct adv_err *err);
adv_must_check int journal_append_hold_end(struct journal *j, const char *job, struct adv_err *err);
/* What is known of a job; one in which no more than the times of the look differ is kept in memory alone.
 * Not persistent is fine, damaged is not. */
adv_must_check int journal_append_life(struct journal *j, const char *job, const struct journal_life *l,
                                       struct adv_err *err);
/* Between the two, incarnations are gathered and become durable together with commit; other
 * appends are not allowed. A crash before commit loses them, which is safe: they are learned anew
 * or their jobs stay observe-only. */
void journal_batch_begin(struct journal *j);
adv_must_check int journal_batch_commit(struct journal *j, struct adv_err *err);
/* Does nothing unless higher than all before. */
adv_must_check int journal_note_epoch(struct journal *j, struct journal_epoch e,
                                      struct adv_err *err);
/* The scheduler no longer knows the job: its incarnation goes at the next compaction. */
void journal_forget_job(struct journal *j, const char *job);
/* The same for all jobs that are not @there: those that went while nobody looked. */
void journal_forget_unless(struct journal *j, bool (*there)(void *ctx, const char *job), void *ctx);

struct journal_epoch journal_highest_epoch(const struct journal *j);
/* Borrowed until the next append or compaction. NULL: not known, or forgotten. */
const struct journal_life *journal_life(const struct journal *j, const char *job);
/* The newest step of that verb; @advice or @job NULL: any. NULL: none. */
const struct journal_step *journal_find_step(const struct journal *j, const char *advice,
                                             const char *job, const char *verb);
const struct journal_hold *journal_find_hold(const struct journal *j, const char *job);
/* Steps begun at or after @wall_us. */
unsigned journal_count_since(const struct journal *j, int64_t wall_us);
/* Iterators: start with *pos = 0; NULL at the end. */
const struct journal_step *journal_next_step(const struct journal *j, size_t *pos);
const struct journal_step *journal_next_open(const struct journal *j, size_t *pos);
const struct journal_hold *journal_next_hold(const struct journal *j, size_t *pos);

/* Rewrites the file with what still matters: open steps, holds, incarnations not forgotten, and
 * steps younger than @keep_since_wall_us. Appends do this by themselves when the file is large. */
adv_must_check int journal_compact(struct journal *j, int64_t keep_since_wall_us,
                                   struct adv_err *err);

/* The same with the usual time that steps are kept. */
adv_must_check int journal_compact_now(struct journal *j, struct adv_err *err);

ADV_DEFINE_CLEANUP(journal, journal_free);

/* Looking at a journal that another process writes: no lock, nothing is changed or cut. It may grow, be compacted or be cut
 * back between two looks, and end in the middle of a record, which counts as not there. Memory is that of the holds and of
 * what is open, whatever the file's size; a look costs what was added since the last one. */
struct journal_view;

enum journal_view_of {
    JOURNAL_VIEW_HOLDS, /* holds alone */
    JOURNAL_VIEW_STEPS, /* holds, and of each job the open steps and the newest of each verb */
};

/* @dir need not exist. Owner: caller, journal_view_free(). Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int journal_view_new(const char *dir, enum journal_view_of what, struct journal_view **ret,
                                    struct adv_err *err);
struct journal_view *journal_view_free(struct journal_view *v);
/* Looks again. @ret_changed: something may be another than at the last look.
 * Errors: -ADV_NOT_FOUND (no journal); -ADV_DATA_LOSS (damaged: it shows nothing then); -ADV_PERMISSION_DENIED (another
 *         user's); -ADV_RESOURCE_EXHAUSTED; -ADV_UNAVAILABLE.
 * Blocks: reads what is new. */
adv_must_check int journal_view_refresh(struct journal_view *v, bool *ret_changed, struct adv_err *err);
/* As the iterators above; borrowed until the next look. Nothing after an error. */
const struct journal_hold *journal_view_next_hold(const struct journal_view *v, size_t *pos);
const struct journal_step *journal_view_next_step(const struct journal_view *v, size_t *pos);

/* What the journal tells of one job. */
struct journal_story {
    bool life_known;
    struct journal_life life;
    struct journal_step requeue; /* the newest PRESERVE or INTERRUPT, without its texts; seq 0: none */
};
/* Errors: as journal_view_refresh(). Blocks: reads all of the file. */
adv_must_check int journal_view_job(const struct journal_view *v, const char *job, struct journal_story *ret,
                                    struct adv_err *err);

/* Does what is in the folder survive a crash of the host? False, too, when that cannot be told. */
bool journal_folder_lasting(const char *dir);

/* Takes the lock of an agent's folder if it is free; closing @ret_fd gives it back. With it no agent of the folder runs.
 * Errors: -ADV_NOT_FOUND (no agent has ever been there); -ADV_ALREADY_EXISTS (an agent has it); -ADV_UNAVAILABLE. */
adv_must_check int journal_folder_lock(const char *dir, int *ret_fd, struct adv_err *err);

ADV_DEFINE_CLEANUP(journal_view, journal_view_free);

#endif
