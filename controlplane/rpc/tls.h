/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_TLS_H
#define ADV_CONTROLPLANE_RPC_TLS_H

/* The server's certificate, key and client CA, reloaded from files without a restart. Private to
 * rpc/.
 * Thread: loop thread; the fetcher that core calls for each handshake takes a lock. */

#include <grpc/grpc_security.h>
#include <openssl/x509.h>

#include "common/err.h"
#include "controlplane/rpc/rpc.h"

struct rpc_tls;

/* Reads and checks the files.
 * Errors: -ADV_NOT_FOUND, -ADV_PERMISSION_DENIED, -ADV_INVALID_ARGUMENT (not PEM, key does not
 *         fit), -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int rpc_tls_new(const struct rpc_config *cfg, struct rpc_tls **ret,
                               struct adv_err *err);
/* After grpc_shutdown only: core may still call the fetcher before. */
struct rpc_tls *rpc_tls_free(struct rpc_tls *tls);

/* Reads again; the next handshake uses what was read. On an error the old files stay in use.
 * With @only_if_changed nothing is read while times and sizes are the same. */
adv_must_check int rpc_tls_reload(struct rpc_tls *tls, bool only_if_changed, struct adv_err *err);

/* The subject of the second authority, by whose name its certificates are told; NULL: there is none. Loop thread. */
const X509_NAME *rpc_tls_second_ca(const struct rpc_tls *tls);

/* Rises with each set of files that was taken into use. Loop thread. */
uint64_t rpc_tls_generation(const struct rpc_tls *tls);

/* One for each listen address; the caller releases it with grpc_server_credentials_release(). NULL:
 * no memory. */
adv_must_check grpc_server_credentials *rpc_tls_credentials(struct rpc_tls *tls);

#endif
