/* SPDX-License-Identifier: Apache-2.0 */

/* grpc.reflection, v1 and v1alpha (same wire), from the embedded FileDescriptorSet. The set is
 * walked once: each file is kept as the bytes it has in the set, so a reply copies nothing but the
 * response; names are an index sorted by strcmp. The same walk checks the method table:
 * protobuf-c's own service descriptors do not know what streams. */

#include <stdio.h>

#include "controlplane/rpc/internal.h"
#include "google/protobuf/descriptor.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;
typedef Google__Protobuf__DescriptorProto message_t;

#define MAX_MESSAGE_NESTING 32

struct file {
    const uint8_t *bytes;
    size_t len;
    char *name;
};

struct symbol {
    char *name;
    size_t file;
};

struct rpc_reflection {
    struct file *files;
    size_t n_files;
    struct symbol *symbols;
    size_t n_symbols, cap_symbols;
    char **services; /* those the table has */
    size_t n_services;
};

static int no_memory(struct adv_err *err)
{
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "reflection: no memory");
}

/* ---- index ---- */

static int add_symbol(struct rpc_reflection *r, const char *scope, const char *name, size_t file,
                      char **ret_full, struct adv_err *err)
{
    char *full = NULL;

    if (r->n_symbols == r->cap_symbols) {
        size_t cap = r->cap_symbols ? r->cap_symbols * 2 : 256;
        struct symbol *mem = realloc(r->symbols, cap * sizeof(*mem));

        if (!mem)
            return no_memory(err);
        r->symbols = mem;
        r->cap_symbols = cap;
    }
    if (asprintf(&full, "%s%s%s", scope, *scope ? "." : "", name) < 0)
        return no_memory(err);
    r->symbols[r->n_symbols++] = (struct symbol){ full, file };
    if (ret_full)
        *ret_full = full;
    return 0;
}

static int add_message(struct rpc_reflection *r, const char *scope, const message_t *m, size_t file,
                       int depth, struct adv_err *err)
{
    char *full = NULL;
    int e = add_symbol(r, scope, m->name, file, &full, err);

    for (size_t i = 0; e == 0 && i < m->n_nested_type && depth < MAX_MESSAGE_NESTING; i++)
        e = add_message(r, full, m->nested_type[i], file, depth + 1, err);
    for (size_t i = 0; e == 0 && i < m->n_enum_type; i++)
        e = add_symbol(r, full, m->enum_type[i]->name, file, NULL, err);
    for (size_t i = 0; e == 0 && i < m->n_field; i++)
        e = add_symbol(r, full, m->field[i]->name, file, NULL, err);
    return e;
}

static bool type_is(const char *dotted, const ProtobufCMessageDescriptor *desc)
{
    return dotted && dotted[0] == '.' && strcmp(dotted + 1, desc->name) == 0;
}

/* Is @m what the row says? */
static bool agrees(const Google__Protobuf__MethodDescriptorProto *m, const struct rpc_method *row)
{
    bool in = row->kind == RPC_CLIENT_STREAM || row->kind == RPC_BIDI;
    bool out = row->kind == RPC_SERVER_STREAM || row->kind == RPC_BIDI;

    return !m->client_streaming == !in && !m->server_streaming == !out &&
           type_is(m->input_type, row->request) && type_is(m->output_type, row->response);
}

static int add_service(struct rpc_reflection *r, const char *package,
                       const Google__Protobuf__ServiceDescriptorProto *s, size_t file,
                       const struct rpc_method *table, bool *found, size_t n_table,
                       struct adv_err *err)
{
    char *full = NULL;
    int e = add_symbol(r, package, s->name, file, &full, err);
    bool served = e == 0 && (adv_streq(full, "grpc.health.v1.Health") ||
                             adv_startswith(full, "grpc.reflection."));

    for (size_t i = 0; e == 0 && i < s->n_method; i++) {
        size_t len = strlen(full);

        e = add_symbol(r, full, s->method[i]->name, file, NULL, err);
        for (size_t k = 0; e == 0 && k < n_table; k++) {
            const char *p = table[k].path;

            if (strncmp(p + 1, full, len) != 0 || p[len + 1] != '/' ||
                strcmp(p + len + 2, s->method[i]->name) != 0)
                continue;
            if (!agrees(s->method[i], &table[k]))
                return adv_err_set(err, ADV_INVALID_ARGUMENT,
                                   "%s: table and descriptor set disagree", p);
            found[k] = served = true;
        }
    }
    if (e == 0 && served) {
        r->services[r->n_services] = strdup(full);
        if (!r->services[r->n_services++])
            e = no_memory(err);
    }
    return e;
}

/* Reads one varint of the set's outer layer. */
static bool varint(const uint8_t **p, const uint8_t *end, size_t *ret)
{
    size_t v = 0;

    for (unsigned int shift = 0; shift < 35 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;

        v |= (size_t) (b & 0x7F) << shift;
        if (!(b & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct symbol *) a)->name, ((const struct symbol *) b)->name);
}

static int add_file(struct rpc_reflection *r, const uint8_t *bytes, size_t len,
                    const struct rpc_method *table, bool *found, size_t n_table,
                    struct adv_err *err)
{
    Google__Protobuf__FileDescriptorProto *f =
        google__protobuf__file_descriptor_proto__unpack(NULL, len, bytes);
    struct file *files = realloc(r->files, (r->n_files + 1) * sizeof(*files));
    size_t n = r->n_files;
    int e = 0;

    if (files)
        r->files = files;
    if (!f || !files) {
        e = f ? no_memory(err)
              : adv_err_set(err, ADV_INVALID_ARGUMENT, "descriptor set: broken file");
        goto out;
    }
    files[n] = (struct file){ bytes, len, strdup(f->name) };
    if (!files[n].name) {
        e = no_memory(err);
        goto out;
    }
    r->n_files++;
    const char *package = f->package ? f->package : "";
    for (size_t i = 0; e == 0 && i < f->n_message_type; i++)
        e = add_message(r, package, f->message_type[i], n, 0, err);
    for (size_t i = 0; e == 0 && i < f->n_enum_type; i++)
        e = add_symbol(r, package, f->enum_type[i]->name, n, NULL, err);
    if (e == 0 && f->n_service > 0) {
        char **services = realloc(r->services, (r->n_services + f->n_service) * sizeof(*services));

        if (!services) {
            e = no_memory(err);
            goto out;
        }
        r->services = services;
        for (size_t i = 0; e == 0 && i < f->n_service; i++)
            e = add_service(r, package, f->service[i], n, table, found, n_table, err);
    }
out:
    if (f)
        google__protobuf__file_descriptor_proto__free_unpacked(f, NULL);
    return e;
}

void rpc_reflection_free(struct rpc_server *srv)
{
    struct rpc_reflection *r = srv->reflection;

    if (!r)
        return;
    for (size_t i = 0; i < r->n_files; i++)
        free(r->files[i].name);
    for (size_t i = 0; i < r->n_symbols; i++)
        free(r->symbols[i].name);
    for (size_t i = 0; i < r->n_services; i++)
        free(r->services[i]);
    free(r->files);
    free(r->symbols);
    free(r->services);
    free(r);
    srv->reflection = NULL;
}

int rpc_reflection_new(struct rpc_server *srv, const struct rpc_method *table, size_t n_table,
                       struct adv_err *err)
{
    const uint8_t *p = srv->cfg.descriptor_set, *end = p + srv->cfg.descriptor_set_len;
    struct rpc_reflection *r = srv->reflection = calloc(1, sizeof(*r));
    adv_auto_free bool *found = calloc(n_table + 1, sizeof(*found));
    int e = r && found ? 0 : no_memory(err);

    while (e == 0 && p < end) {
        size_t key, len;

        if (!varint(&p, end, &key) || key != 10 || !varint(&p, end, &len) ||
            len > (size_t) (end - p))
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "descriptor set: malformed");
        e = add_file(r, p, len, table, found, n_table, err);
        p += len;
    }
    for (size_t i = 0; e == 0 && i < n_table; i++) {
        if (!found[i])
            e = adv_err_set(err, ADV_INVALID_ARGUMENT, "%s: not in the descriptor set",
                            table[i].path);
    }
    if (e == 0)
        qsort(r->symbols, r->n_symbols, sizeof(*r->symbols), compare);
    return e;
}

/* ---- service ---- */

static void reply(struct rpc_call *call, response_t *res, const request_t *req)
{
    struct adv_err err;

    res->valid_host = req->host;
    res->original_request = (request_t *) (uintptr_t) req;
    if (rpc_stream_send(call, &res->base) == -ADV_RESOURCE_EXHAUSTED) {
        (void) adv_err_set_reason(&err, ADV_RESOURCE_EXHAUSTED, "SLOW_READER", "does not read");
        rpc_call_fail(call, &err);
        return;
    }
    (void) rpc_stream_read_next(call);
}

static void reply_file(struct rpc_call *call, const request_t *req, const struct file *f)
{
    response_t res = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__FileDescriptorResponse body =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    ProtobufCBinaryData bytes;
    char text[] = "not found";

    if (f) {
        bytes = (ProtobufCBinaryData){ .len = f->len, .data = (uint8_t *) (uintptr_t) f->bytes };
        body.n_file_descriptor_proto = 1;
        body.file_descriptor_proto = &bytes;
        res.message_response_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
        res.file_descriptor_response = &body;
    } else {
        error.error_code = ADV_NOT_FOUND;
        error.error_message = text;
        res.message_response_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
        res.error_response = &error;
    }
    reply(call, &res, req);
}

static void reply_services(struct rpc_call *call, const struct rpc_reflection *r,
                           const request_t *req)
{
    response_t res = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__ListServiceResponse body =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    adv_auto_free Grpc__Reflection__V1__ServiceResponse *mem =
        calloc(r->n_services + 1, sizeof(*mem));
    adv_auto_free Grpc__Reflection__V1__ServiceResponse **list =
        calloc(r->n_services + 1, sizeof(void *));

    for (size_t i = 0; mem && list && i < r->n_services; i++) {
        grpc__reflection__v1__service_response__init(&mem[i]);
        mem[i].name = r->services[i];
        list[i] = &mem[i];
        body.n_service++;
    }
    body.service = list;
    res.message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    res.list_services_response = &body;
    reply(call, &res, req);
}

static void info(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const request_t *req = (const request_t *) msg;
    const struct rpc_reflection *r = rpc_call_server(call)->reflection;
    const struct file *f = NULL;

    switch (req->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        reply_services(call, r, req);
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        for (size_t i = 0; i < r->n_files && !f; i++) {
            if (strcmp(r->files[i].name, req->file_by_filename) == 0)
                f = &r->files[i];
        }
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL: {
        const struct symbol key = { .name = req->file_containing_symbol };
        const struct symbol *s = bsearch(&key, r->symbols, r->n_symbols, sizeof(key), compare);

        f = s ? &r->files[s->file] : NULL;
        break;
    }
    default: /* extensions do not exist in proto3 */
        break;
    }
    reply_file(call, req, f);
}

static void half_close(struct rpc_call *call)
{
    rpc_stream_finish(call);
}

/* Both versions have the same fields, so v1's code serves v1alpha. */
#define ROW(version)                                                                               \
    {                                                                                              \
        .path = "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo",              \
        .kind = RPC_BIDI, .request = &grpc__reflection__v1__server_reflection_request__descriptor, \
        .response = &grpc__reflection__v1__server_reflection_response__descriptor,                 \
        .on_message = info, .on_half_close = half_close, .max_request_bytes = 1024,                \
        .send_queue_messages = 16                                                                  \
    }
const struct rpc_method rpc_reflection_methods[] = { ROW("v1"), ROW("v1alpha") };
const size_t rpc_n_reflection_methods = ADV_ARRAY_LEN(rpc_reflection_methods);
