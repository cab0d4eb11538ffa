/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_TELEMETRY_H
#define ADV_COMMON_TELEMETRY_H

/* Why a log is PARTIAL, where the control plane goes by the words: nothing but what was shed is missing, and all is read
 * now. Some time after the last byte was shed, silence counts again. Part of the protocol: an older end says or knows it
 * not, and stays more careful. */
#define ADV_TELEMETRY_WHOLE_SINCE "read in full since bytes were shed"

#endif
