/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_RUNNER_SCRIPTED_H
#define ADV_ADAPTERS_RUNNER_SCRIPTED_H

/* A runner that runs nothing: it plays a script of expected commands and their answers, in virtual time.
 *
 *     # comment
 *     > squeue -h -r -t all -O *     words are compared one by one with shell patterns; a last word ** takes the rest
 *     < 123|FAILED|                  a line of stdout; <~ TEXT the same without its newline
 *     ! slurm_load error: ...        a line of stderr
 *     = 1                            exit code (0); "= timeout" when it never answers, "= lost" when it cannot start
 *     @ 250                          it takes 250 ms (1)
 *     ? any                          may come at any time and any number of times (default: in this order, once)
 *
 * In answers ${nonce} stands for the separator the adapter drew: the text of the last word before its first % or after
 * its first colon up to the next comma.
 * A command that is not expected fails the script: runner_scripted_error() then says which. */

#include "adapters/adapter.h"

/* Owner: caller, runner->ops->free(). @text need not outlive the call.
 * Errors: -ADV_INVALID_ARGUMENT (with the line); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int runner_scripted_new(const char *text, struct adapter_runner **ret, struct adv_err *err);
/* Runs due callbacks, moving virtual time on, until nothing is left or @until_ms of virtual time have passed. */
void runner_scripted_spin(struct adapter_runner *r, int64_t until_ms);
/* NULL, or what went wrong: an unexpected command, or an ordered step that was not asked for. */
const char *runner_scripted_error(struct adapter_runner *r);
/* Number of commands run whose first two words are @tool and @word (NULL: any second word). */
unsigned runner_scripted_count(struct adapter_runner *r, const char *tool, const char *word);

#endif
