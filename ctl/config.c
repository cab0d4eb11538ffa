/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/config.h"

#include "advisor-agent/wire/codec.h"

static const char *const outputs[] = { "table", "json", NULL };

#define S struct ctl_config
static const struct adv_config_row rows[] = {
    ADV_CONFIG_STRING(S, server, "server", "127.0.0.1:16443", NEXT, "The control plane: HOST:PORT or unix:PATH."),
    ADV_CONFIG_PATH(S, cert, "cert", "", NEXT, "Your certificate, PEM."),
    ADV_CONFIG_PATH(S, key, "key", "", NEXT, "Its private key, PEM."),
    ADV_CONFIG_PATH(S, token_file, "token_file", "", NEXT,
                    "File with a bearer token (JSON web token) that says who you are, in place of a certificate."),
    ADV_CONFIG_PATH(S, ca, "ca", "", NEXT, "Authority that signs the server's certificate, PEM; none: the system's."),
    ADV_CONFIG_STRING(S, server_name, "server_name", "", NEXT,
                      "Name that the server's certificate must carry; none: the host of server."),
    ADV_CONFIG_BOOL(S, insecure, "insecure", "false", NEXT, "No TLS; only for loopback and unix sockets."),
    ADV_CONFIG_DURATION(S, timeout_ms, "timeout", 1, 86400000, "20s", NEXT, "How long a command may take."),
    ADV_CONFIG_ENUM(S, output, "output", outputs, "table", NEXT, "How answers are printed: table or json."),
};
#undef S

static int check(const void *values, struct adv_err *err)
{
    const struct ctl_config *c = values;
    adv_auto_free char *servers = strdup(c->server);
    struct wire_target target;
    char *save = NULL;
    int r = servers ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");

    /* as wire_conn_new() takes them */
    for (char *one = servers ? strtok_r(servers, ",", &save) : NULL; one && r == 0; one = strtok_r(NULL, ",", &save))
        r = wire_target_parse(one + strspn(one, " "), &target, err);
    if (r == 0 && !*c->server)
        r = wire_target_parse("", &target, err);
    if (r < 0) {
        adv_err_wrap(err, "server");
        return adv_err_field(err, "server");
    }
    if (!*c->cert != !*c->key) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "cert and key come together: %s is missing", *c->cert ? "key" : "cert");
        return adv_err_field(err, *c->cert ? "key" : "cert");
    }
    if (c->insecure && *c->token_file) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "token_file: a token is sent over TLS only");
        return adv_err_field(err, "token_file");
    }
    if (c->insecure && *c->cert) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "insecure: expected no certificate beside it");
        return adv_err_field(err, "insecure");
    }
    return 0;
}

const struct adv_config_table ctl_config_table = {
    .program = "advisorctl",
    .about = "Looks at Advisor and tells it how far it may go.",
    .env_prefix = "ADVISORCTL",
    .rows = rows,
    .n_rows = ADV_ARRAY_LEN(rows),
    .struct_size = sizeof(struct ctl_config),
    .check = check,
};
