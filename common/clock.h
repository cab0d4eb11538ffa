/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_CLOCK_H
#define ADV_COMMON_CLOCK_H

/* Clocks and RFC 3339 text. All times are microseconds in an int64_t. Names carry the clock:
 * deadline_mono_us, lease_boot_us, created_wall_us. Any thread, never blocks. */

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

int64_t adv_mono_us(void); /* CLOCK_MONOTONIC: waiting; stands still in suspend */
int64_t adv_boot_us(void); /* CLOCK_BOOTTIME: leases; goes on in suspend */
int64_t adv_wall_us(void); /* CLOCK_REALTIME since 1970: records */

/* Whether the wall clock has gone along with CLOCK_BOOTTIME, give or take an hour, since the call before. @distance_us keeps
 * what lies between them. False: it was set to another time, and whoever goes by age had better wait. */
bool adv_wall_held(int64_t *distance_us, int64_t wall_us, int64_t boot_us);

#define ADV_RFC3339_SIZE 32 /* "2026-01-02T03:04:05.123456Z" and its NUL */

/* Writes UTC with six digits of fraction. Years outside 0001..9999 are clamped to them. Returns
 * @out. */
const char *adv_rfc3339_format(int64_t wall_us, char out[ADV_RFC3339_SIZE]);

/* Reads "2026-01-02T03:04:05[.fraction](Z|±hh:mm)"; 't', 'z' and a space for 'T' are taken too,
 * digits beyond the microsecond are cut, second 60 counts as 59.999999.
 * Errors: -ADV_INVALID_ARGUMENT. */
adv_must_check int adv_rfc3339_parse(const char *text, int64_t *ret_wall_us, struct adv_err *err);

#endif
