/* SPDX-License-Identifier: Apache-2.0 */
#include "common/yamlread.h"

#include <stdio.h>

int adv_yaml_at(struct adv_yaml *y, yaml_mark_t m, const char *fmt, ...)
{
    char what[200];
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return adv_err_set(y->err, ADV_INVALID_ARGUMENT, "%.80s:%zu:%zu: %s", y->name, m.line + 1, m.column + 1, what);
}

int adv_yaml_no_memory(struct adv_yaml *y)
{
    return adv_err_set(y->err, ADV_RESOURCE_EXHAUSTED, "%.80s: no memory", y->name);
}

int adv_yaml_init(struct adv_yaml *y, const char *name, const void *text, size_t len, struct adv_err *err)
{
    *y = (struct adv_yaml) { .name = name, .err = err };
    if (!yaml_parser_initialize(&y->parser_))
        return adv_yaml_no_memory(y);
    yaml_parser_set_input_string(&y->parser_, text, len);
    return 0;
}

void adv_yaml_done(struct adv_yaml *y)
{
    if (y->have_)
        yaml_event_delete(&y->ev);
    yaml_parser_delete(&y->parser_);
}

int adv_yaml_next(struct adv_yaml *y)
{
    const yaml_char_t *anchor = NULL;

    if (y->have_)
        yaml_event_delete(&y->ev);
    y->have_ = false;
    if (!yaml_parser_parse(&y->parser_, &y->ev)) {
        if (y->parser_.error == YAML_MEMORY_ERROR)
            return adv_yaml_no_memory(y);
        return adv_yaml_at(y, y->parser_.problem_mark, "%s", y->parser_.problem ? y->parser_.problem : "not YAML");
    }
    y->have_ = true;
    if (y->ev.type == YAML_SCALAR_EVENT)
        anchor = y->ev.data.scalar.anchor;
    else if (y->ev.type == YAML_SEQUENCE_START_EVENT)
        anchor = y->ev.data.sequence_start.anchor;
    else if (y->ev.type == YAML_MAPPING_START_EVENT)
        anchor = y->ev.data.mapping_start.anchor;
    if (y->ev.type == YAML_ALIAS_EVENT || anchor)
        return adv_yaml_at(y, y->ev.start_mark, "an anchor or alias, expected the value itself");
    return 0;
}

int adv_yaml_next_is(struct adv_yaml *y, yaml_event_type_t type, const char *expected)
{
    int r = adv_yaml_next(y);

    return r < 0 ? r : y->ev.type == type ? 0 : adv_yaml_at(y, y->ev.start_mark, "expected %s", expected);
}

int adv_yaml_mappings(struct adv_yaml *y, const char *what, int (*take)(void *arg), void *arg)
{
    int r = adv_yaml_next_is(y, YAML_SEQUENCE_START_EVENT, what);

    while (r == 0 && (r = adv_yaml_next(y)) == 0 && y->ev.type != YAML_SEQUENCE_END_EVENT)
        r = y->ev.type == YAML_MAPPING_START_EVENT ? take(arg) : adv_yaml_at(y, y->ev.start_mark, "expected a mapping");
    return r;
}
