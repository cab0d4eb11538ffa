/* SPDX-License-Identifier: Apache-2.0 */

#include "advisor-agent/doctor/report.h"

#include <stdio.h>

#include "common/json.h"
#include "common/utf8.h"

static const char *privilege_name(const struct doctor_facts *f)
{
    if (f->slurm.superuser)
        return "superuser";
    switch (f->slurm.privilege) {
    case ADAPTER_PRIVILEGE_NONE:
        return "none";
    case ADAPTER_PRIVILEGE_OPERATOR:
        return "operator";
    case ADAPTER_PRIVILEGE_ADMIN:
        return "administrator";
    default:
        return f->slurm.user_unknown ? "none" : "unknown";
    }
}

static const char *tri_name(enum doctor_tri t)
{
    return t == DOCTOR_YES ? "yes" : t == DOCTOR_NO ? "no" : "unknown";
}

/* ---- for people ---- */

/* Letters, not bytes: close enough to columns for what stands here. */
static size_t letters(const char *s, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += ((unsigned char) s[i] & 0xc0) != 0x80;
    return n;
}

/* "  HEAD    text", wrapped and indented behind the head. */
static void paragraph(struct adv_buf *out, const char *head, const char *text, size_t columns)
{
    const size_t indent = 11;
    size_t room = columns > indent + 20 ? columns - indent : 0, used = 0;

    (void) adv_buf_appendf(out, "  %-9s", head);
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " "), w = letters(p, n);

        if (used && room && used + 1 + w > room) {
            (void) adv_buf_appendf(out, "\n%*s", (int) indent, "");
            used = 0;
        }
        if (used) {
            (void) adv_buf_append_byte(out, ' ');
            used++;
        }
        (void) adv_buf_append(out, p, n);
        used += w;
        p += n;
        p += strspn(p, " ");
    }
    (void) adv_buf_append_byte(out, '\n');
}

int doctor_report_text(const struct doctor_facts *f, const struct doctor_findings *found, size_t columns, struct adv_buf *out)
{
    const struct doctor_slurm *s = &f->slurm;
    size_t count[3] = { 0 };
    size_t widest = 4;

    for (size_t i = 0; i < found->n; i++) {
        count[found->list[i].kind->severity]++;
        if (strlen(found->list[i].kind->code) > widest)
            widest = strlen(found->list[i].kind->code);
    }
    if (s->set.known)
        (void) adv_buf_appendf(out, "cluster %s, Slurm %s, asked %s %s (rights in Slurm: %s)\n", s->set.cluster, s->set.version[0] ? s->set.version : "?",
                               f->host.other_user ? "for" : "as", f->slurm_user_name, privilege_name(f));
    if (found->n) {
        (void) adv_buf_appendf(out, "\n%-9s%-*s  %s\n", "SEVERITY", (int) widest, "CODE", "SURE");
        for (size_t i = 0; i < found->n; i++)
            (void) adv_buf_appendf(out, "%-9s%-*s  %s\n", doctor_severity_name(found->list[i].kind->severity), (int) widest, found->list[i].kind->code,
                                   doctor_sure_name(found->list[i].sure));
    }
    for (size_t i = 0; i < found->n; i++) {
        const struct doctor_finding *x = &found->list[i];

        (void) adv_buf_appendf(out, "\n%s\n", x->kind->code);
        paragraph(out, x->kind->severity == DOCTOR_NOTE ? "seen" : "wrong", x->what, columns);
        paragraph(out, "means", x->kind->means, columns);
        paragraph(out, "cure", x->cure, columns);
    }
    if (found->n_unchecked)
        (void) adv_buf_append_str(out, "\nnot looked at\n");
    for (size_t i = 0; i < found->n_unchecked; i++)
        (void) adv_buf_appendf(out, "  %s: %s\n", found->unchecked[i].check, found->unchecked[i].why);
    (void) adv_buf_appendf(out, "%s%zu fault%s, %zu warning%s, %zu note%s%s\n", found->n || found->n_unchecked || s->set.known ? "\n" : "",
                           count[DOCTOR_FAULT], count[DOCTOR_FAULT] == 1 ? "" : "s", count[DOCTOR_WARNING], count[DOCTOR_WARNING] == 1 ? "" : "s",
                           count[DOCTOR_NOTE], count[DOCTOR_NOTE] == 1 ? "" : "s", found->n_unchecked ? "; not all could be looked at" : "");
    return adv_buf_error(out);
}

/* ---- for programs ---- */

static bool put(json_t *o, const char *key, json_t *v)
{
    return json_object_set_new(o, key, v) == 0; /* takes v, also when it fails */
}

static json_t *text(const char *s)
{
    char clean[1024];

    (void) adv_utf8_lossy_buf(clean, sizeof(clean), s, strlen(s));
    return json_string(clean);
}

int doctor_report_json(const struct doctor_facts *f, const struct doctor_findings *found, struct adv_buf *out)
{
    ADV_JSON_AUTO json_t *root = json_object();
    json_t *list = json_array(), *open = json_array(), *site = json_object(), *verbs = json_object();
    const struct doctor_slurm *s = &f->slurm;
    bool ok = root && put(root, "findings", list) && put(root, "notChecked", open) && put(root, "site", site) && put(root, "verbs", verbs);

    for (size_t i = 0; ok && i < found->n; i++) {
        const struct doctor_finding *x = &found->list[i];
        json_t *o = json_object();

        ok = json_array_append_new(list, o) == 0 && put(o, "code", text(x->kind->code)) &&
             put(o, "severity", text(doctor_severity_name(x->kind->severity))) && put(o, "sure", text(doctor_sure_name(x->sure))) &&
             put(o, "what", text(x->what)) && put(o, "means", text(x->kind->means)) && put(o, "cure", text(x->cure));
    }
    for (size_t i = 0; ok && i < found->n_unchecked; i++) {
        json_t *o = json_object();

        ok = json_array_append_new(open, o) == 0 && put(o, "check", text(found->unchecked[i].check)) && put(o, "why", text(found->unchecked[i].why));
    }
    ok = ok && put(site, "cluster", text(s->set.cluster)) && put(site, "slurmVersion", text(s->set.version)) &&
         put(site, "toolsVersion", text(s->client_version)) && put(site, "user", text(f->slurm_user_name)) &&
         put(site, "rights", text(privilege_name(f)));
    for (int v = 0; ok && v < ADAPTER_VERB_MAX_; v++)
        ok = put(verbs, adapter_verb_name((enum adapter_verb) v), text(tri_name(doctor_may(f, (enum adapter_verb) v))));
    if (!ok)
        return -ADV_RESOURCE_EXHAUSTED;
    int r = adv_json_dump(root, out, NULL);
    return r < 0 ? r : adv_buf_append_byte(out, '\n');
}

/* ---- the manual ---- */

static void put_cell(struct adv_buf *out, const char *s)
{
    for (; *s; s++)
        if (*s == '|')
            (void) adv_buf_append_str(out, "\\|");
        else
            (void) adv_buf_append_byte(out, (uint8_t) *s);
}

int doctor_report_docs(struct adv_buf *out)
{
    size_t n;
    const struct doctor_kind *k = doctor_kinds(&n);

    (void) adv_buf_append_str(out, "| code | severity | what is found | what it means for Advisor | cure |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        (void) adv_buf_appendf(out, "| `%s` | %s | ", k[i].code, doctor_severity_name(k[i].severity));
        put_cell(out, k[i].what);
        (void) adv_buf_append_str(out, " | ");
        put_cell(out, k[i].means);
        (void) adv_buf_append_str(out, " | ");
        put_cell(out, k[i].cure);
        (void) adv_buf_append_str(out, " |\n");
    }
    return adv_buf_error(out);
}
