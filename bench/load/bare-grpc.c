/* SPDX-License-Identifier: Apache-2.0 */
/* bare-grpc [CERT KEY CA]: gRPC core with nothing on it: one thread, one queue; any method echoes its request, so that the
 * control plane has something to be compared with. /bench.Echo/Hold keeps its stream open after that. Prints its port. */

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum step { ACCEPTED, READ, ANSWERED };

struct call {
    enum step step;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *msg;
    int cancelled;
};

static grpc_server *server;
static grpc_completion_queue *cq;

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "re");
    char *s = calloc(1, 1 << 16);

    if (!f || !s || fread(s, 1, (1 << 16) - 1, f) == 0) {
        perror(path);
        exit(1);
    }
    (void) fclose(f);
    return s;
}

static void arm(void)
{
    struct call *c = calloc(1, sizeof(*c));

    if (!c)
        exit(1);
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    if (grpc_server_request_call(server, &c->call, &c->details, &c->metadata, cq, cq, c) != GRPC_CALL_OK)
        exit(1);
}

static void start(struct call *c, const grpc_op *ops, size_t n, enum step next)
{
    c->step = next;
    if (grpc_call_start_batch(c->call, ops, n, c, NULL) != GRPC_CALL_OK)
        exit(1);
}

static void drop(struct call *c)
{
    grpc_call_unref(c->call);
    grpc_byte_buffer_destroy(c->msg);
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->metadata);
    free(c);
}

static void run(struct call *c, int ok)
{
    grpc_op ops[4] = { 0 };
    size_t n = 2;

    switch (c->step) {
    case ACCEPTED:
        arm();
        ops[0].op = GRPC_OP_RECV_MESSAGE;
        ops[0].data.recv_message.recv_message = &c->msg;
        start(c, ops, 1, READ);
        return;
    case READ:
        ops[0].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
        ops[0].data.recv_close_on_server.cancelled = &c->cancelled;
        ops[1].op = GRPC_OP_SEND_INITIAL_METADATA;
        if (c->msg && ok) {
            ops[n].op = GRPC_OP_SEND_MESSAGE;
            ops[n++].data.send_message.send_message = c->msg;
        }
        if (grpc_slice_str_cmp(c->details.method, "/bench.Echo/Hold") != 0)
            ops[n++].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        start(c, ops, n, ANSWERED);
        return;
    case ANSWERED:
        drop(c);
        return;
    }
}

int main(int argc, char **argv)
{
    grpc_arg args[2] = { 0 };
    grpc_channel_args list = { 2, args };
    grpc_server_credentials *creds;
    struct rlimit rl;
    int port;

    (void) signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
        rl.rlim_cur = rl.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &rl);
    }
    grpc_init();
    args[0] = (grpc_arg) { .type = GRPC_ARG_INTEGER, .key = (char *) (uintptr_t) GRPC_ARG_ALLOW_REUSEPORT };
    args[1] = (grpc_arg) { .type = GRPC_ARG_INTEGER, .key = (char *) (uintptr_t) GRPC_ARG_ENABLE_CHANNELZ };
    cq = grpc_completion_queue_create_for_next(NULL);
    server = grpc_server_create(&list, NULL);
    grpc_server_register_completion_queue(server, cq, NULL);
    if (argc == 4) {
        grpc_ssl_pem_key_cert_pair pair = { slurp(argv[2]), slurp(argv[1]) };
        creds = grpc_ssl_server_credentials_create_ex(
            slurp(argv[3]), &pair, 1, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, NULL);
    } else {
        creds = grpc_insecure_server_credentials_create();
    }
    port = grpc_server_add_http2_port(server, "127.0.0.1:0", creds);
    if (!port)
        return 1;
    grpc_server_start(server);
    for (int i = 0; i < 8; i++)
        arm();
    (void) printf("%d\n", port);
    (void) fflush(stdout);
    for (;;) {
        grpc_event ev = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (ev.type == GRPC_OP_COMPLETE) {
            struct call *c = ev.tag;
            if (c->step == ACCEPTED && !ev.success)
                return 0;
            run(c, ev.success);
        }
    }
}
