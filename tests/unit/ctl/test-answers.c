/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of the server's answers: words, merged pages, error details. */
#include <criterion/criterion.h>

#include "ctl/commands.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

static char *mutable(const char *s)
{
    return (char *) (uintptr_t) s;
}

Test(answers, words)
{
    char w[SHOW_WORD_SIZE];
    int v;

    cr_assert_str_eq(show_word(&advisor__v1__job_state__descriptor, 3, w), "running");
    cr_assert_str_eq(show_word(&advisor__v1__job_state__descriptor, 9, w), "out of memory");
    cr_assert_str_eq(show_word(&advisor__v1__job_state__descriptor, 0, w), "-");
    cr_assert_str_eq(show_word(&advisor__v1__job_state__descriptor, 99, w), "99");
    for (size_t i = 0; i < 2; i++) {
        const char *word = i ? "Out-Of-Memory" : "out_of_memory";

        cr_assert_eq(show_parse_word(&advisor__v1__job_state__descriptor, word, strlen(word), &v), 0);
        cr_assert_eq(v, 9);
    }
    cr_assert_eq(show_parse_word(&advisor__v1__mode__descriptor, "ac", 2, &v), -1);
    cr_assert_eq(show_parse_word(&advisor__v1__mode__descriptor, "unspecified", 11, &v), -1);
}

static ProtobufCMessage *page(const char *const *names)
{
    Advisor__V1__ListClustersResponse m = ADVISOR__V1__LIST_CLUSTERS_RESPONSE__INIT;
    Advisor__V1__Cluster cluster[4], *v[4];
    uint8_t bytes[1024];
    size_t len;

    for (; names[m.n_clusters]; m.n_clusters++) {
        advisor__v1__cluster__init(&cluster[m.n_clusters]);
        cluster[m.n_clusters].name = mutable(names[m.n_clusters]);
        v[m.n_clusters] = &cluster[m.n_clusters];
    }
    m.clusters = v;
    len = protobuf_c_message_pack(&m.base, bytes);
    return protobuf_c_message_unpack(m.base.descriptor, NULL, len, bytes);
}

Test(answers, pages_are_merged)
{
    static const char *const one[] = { "a", "b", NULL }, *const two[] = { "c", NULL }, *const none[] = { NULL };
    ProtobufCMessage *all = page(none), *p1 = page(one), *p2 = page(two), *p3 = page(none);
    Advisor__V1__ListClustersResponse *m = (void *) all;

    cr_assert_eq(command_merge_page(all, p1), 0);
    cr_assert_eq(command_merge_page(all, p2), 0);
    cr_assert_eq(command_merge_page(all, p3), 0);
    protobuf_c_message_free_unpacked(p1, NULL);
    protobuf_c_message_free_unpacked(p2, NULL);
    protobuf_c_message_free_unpacked(p3, NULL);
    cr_assert_eq(m->n_clusters, 3);
    cr_assert_str_eq(m->clusters[2]->name, "c");
    protobuf_c_message_free_unpacked(all, NULL);
}

static void add(Google__Rpc__Status *s, Google__Protobuf__Any *any, const char *type, const ProtobufCMessage *m)
{
    google__protobuf__any__init(any);
    any->type_url = mutable(type);
    any->value.data = malloc(protobuf_c_message_get_packed_size(m) + 1);
    any->value.len = protobuf_c_message_pack(m, any->value.data);
    s->details[s->n_details++] = any;
}

Test(answers, error_details)
{
    Google__Rpc__Status s = GOOGLE__RPC__STATUS__INIT;
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Protobuf__Any any[3], *details[3];
    struct ctl_config cfg = { .server = mutable("h:1"), .cert = mutable(""), .ca = mutable(""), .server_name = mutable("") };
    struct failure f = { .exit_code = CTL_EXIT_REFUSED, .code = ADV_NOT_FOUND, .message = "no \033such thing" };
    uint8_t bytes[512];
    char *text = NULL;
    size_t len;
    FILE *out;

    s.details = details;
    info.reason = mutable("JOB_NOT_FOUND");
    delay.seconds = 2;
    delay.nanos = 500000000;
    retry.retry_delay = &delay;
    add(&s, &any[0], "type.googleapis.com/google.rpc.ErrorInfo", &info.base);
    add(&s, &any[1], "type.googleapis.com/google.rpc.RetryInfo", &retry.base);
    add(&s, &any[2], "type.googleapis.com/unknown.Thing", &info.base);
    len = google__rpc__status__pack(&s, bytes);
    failure_details(&f, bytes, len);
    cr_assert_str_eq(f.reason, "JOB_NOT_FOUND");
    cr_assert_eq(f.retry_after_ms, 2500);
    for (size_t cut = 0; cut < len; cut++) { /* whatever arrives */
        struct failure g = { 0 };

        failure_details(&g, bytes, cut);
    }
    out = open_memstream(&text, &len);
    failure_print(out, &f, &cfg);
    (void) fclose(out);
    cr_assert_str_eq(text, "advisorctl: NOT_FOUND (JOB_NOT_FOUND): no \\x1bsuch thing\n  try again in 2.5s\n");
    free(text);
    for (size_t i = 0; i < 3; i++)
        free(any[i].value.data);
}

Test(answers, likely_causes)
{
    cr_assert_not_null(strstr(failure_cause("connect to x: connection refused"), "advisord running"));
    cr_assert_not_null(strstr(failure_cause("TLS: server certificate refused: hostname mismatch"), "--server-name"));
    cr_assert_null(failure_cause("something else"));
}
