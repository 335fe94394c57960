/* A small language for JSON: paths, pipes, commas, lists, objects, comparisons, and the functions that people use most. */
#include "tools.h"

#include <ctype.h>
#include <getopt.h>
#include <math.h>

/* --- values --------------------------------------------------------------------------------------------------------- */

enum kind { NUL, NO, YES, NUMBER, STRING, ARRAY, OBJECT };

struct value {
    enum kind kind;
    double number;
    const char *text; /* of a string; of a number, as it was written */
    size_t size;      /* of a string, a list, an object */
    struct value **items, **keys;
};

struct list {
    struct value **all;
    size_t count;
};

static void push(struct list *list, struct value *value)
{
    if (!(list->count & (list->count + 1))) list->all = retake(list->all, (2 * list->count + 2) * sizeof *list->all);
    list->all[list->count++] = value;
}

static struct value *make(enum kind kind)
{
    struct value *value = take(sizeof *value);
    memset(value, 0, sizeof *value);
    value->kind = kind;
    return value;
}

static struct value *make_number(double number)
{
    struct value *value = make(NUMBER);
    value->number = number;
    return value;
}

static struct value *make_string(const char *text, size_t size)
{
    struct value *value = make(STRING);
    char *data = take(size + 1);
    memcpy(data, text, size);
    data[size] = 0;
    value->text = data, value->size = size;
    return value;
}

static struct value *make_list(enum kind kind, struct list items)
{
    struct value *value = make(kind);
    value->items = items.all, value->size = items.count;
    return value;
}

static const char *fault;
static int depth;
#define FAIL(what) return fault = (what), NULL

/* --- reading -------------------------------------------------------------------------------------------------------- */

static const char *at;

static void blanks(void) { while (isspace((unsigned char)*at)) at++; }

static void add_code(struct text *text, unsigned code)
{
    if (code < 0x80) add_char(text, (char)code);
    else if (code < 0x800) add_char(text, (char)(0xC0 | code >> 6)), add_char(text, (char)(0x80 | (code & 63)));
    else if (code < 0x10000) add_char(text, (char)(0xE0 | code >> 12)), add_char(text, (char)(0x80 | (code >> 6 & 63))), add_char(text, (char)(0x80 | (code & 63)));
    else add_char(text, (char)(0xF0 | code >> 18)), add_char(text, (char)(0x80 | (code >> 12 & 63))), add_char(text, (char)(0x80 | (code >> 6 & 63))), add_char(text, (char)(0x80 | (code & 63)));
}

static unsigned hex4(void)
{
    char digits[5] = {0};
    for (int i = 0; i < 4 && isxdigit((unsigned char)*at); i++) digits[i] = *at++;
    return (unsigned)strtoul(digits, NULL, 16);
}

static struct value *read_string(void)
{
    struct text text = {0};
    add(&text, "", 0);
    for (at++; *at && *at != '"';) {
        if (*at != '\\') {
            add_char(&text, *at++);
            continue;
        }
        at++;
        static const char LETTERS[] = "\"\\/bfnrt", SIGNS[] = "\"\\/\b\f\n\r\t";
        const char *found = *at ? strchr(LETTERS, *at) : NULL;
        if (found) add_char(&text, SIGNS[found - LETTERS]), at++;
        else if (*at == 'u') {
            at++;
            unsigned code = hex4();
            if (code >= 0xD800 && code < 0xDC00 && at[0] == '\\' && at[1] == 'u') at += 2, code = 0x10000 + ((code - 0xD800) << 10) + (hex4() - 0xDC00);
            add_code(&text, code);
        } else FAIL("an escape that is none");
    }
    if (*at != '"') FAIL("a text without an end");
    at++;
    return make_string(text.data, text.size);
}

static struct value *read_value(void)
{
    blanks();
    if (depth > 500) FAIL("nested too deep");
    if (*at == '"') return read_string();
    if (*at == '{' || *at == '[') {
        char end = *at == '{' ? '}' : ']';
        struct list items = {0}, keys = {0};
        at++, depth++, blanks();
        while (*at != end) {
            if (end == '}') {
                blanks();
                if (*at != '"') FAIL("a key that is no text");
                struct value *key = read_string();
                if (!key) return NULL;
                blanks();
                if (*at++ != ':') FAIL("a key without a colon");
                push(&keys, key);
            }
            struct value *item = read_value();
            if (!item) return NULL;
            size_t same = keys.count;
            for (size_t i = 0; end == '}' && i + 1 < keys.count; i++)
                if (!strcmp(keys.all[i]->text, keys.all[keys.count - 1]->text)) same = i;
            if (end == '}' && same < keys.count) items.all[same] = item, keys.count--;
            else push(&items, item);
            blanks();
            if (*at == ',') at++, blanks();
            else if (*at != end) FAIL("a comma is missing");
        }
        at++, depth--;
        struct value *made = make_list(end == '}' ? OBJECT : ARRAY, items);
        made->keys = keys.all;
        return made;
    }
    static const struct { const char *word; enum kind kind; } WORDS[] = {{"null", NUL}, {"true", YES}, {"false", NO}};
    for (size_t i = 0; i < 3; i++)
        if (!strncmp(at, WORDS[i].word, strlen(WORDS[i].word))) return at += strlen(WORDS[i].word), make(WORDS[i].kind);
    char *end;
    double number = strtod(at, &end);
    if (end == at || !(*at == '-' || isdigit((unsigned char)*at))) FAIL("what is no JSON");
    struct value *value = make_number(number);
    value->text = make_string(at, (size_t)(end - at))->text;
    at = end;
    return value;
}

/* --- writing -------------------------------------------------------------------------------------------------------- */

static struct { bool raw, compact, slurp, null, exit_status, sorted; } options;

static void show_text(const struct value *value)
{
    putchar('"');
    for (size_t i = 0; i < value->size; i++) {
        unsigned char sign = (unsigned char)value->text[i];
        static const char SIGNS[] = "\"\\\b\f\n\r\t", LETTERS[] = "\"\\bfnrt";
        const char *found = sign ? strchr(SIGNS, sign) : NULL;
        if (found) printf("\\%c", LETTERS[found - SIGNS]);
        else if (sign < 0x20) printf("\\u%04x", sign);
        else putchar(sign);
    }
    putchar('"');
}

static void show(const struct value *value, int indent)
{
    switch (value->kind) {
    case NUL: fputs("null", stdout); break;
    case NO: fputs("false", stdout); break;
    case YES: fputs("true", stdout); break;
    case STRING: show_text(value); break;
    case NUMBER:
        if (value->text) fputs(value->text, stdout);
        else if (isnan(value->number)) fputs("null", stdout);
        else if (value->number == floor(value->number) && fabs(value->number) < 1e17) printf("%.0f", value->number);
        else printf("%.17g", value->number);
        break;
    default: {
        bool is_list = value->kind == ARRAY;
        putchar(is_list ? '[' : '{');
        for (size_t i = 0; i < value->size; i++) {
            if (i) putchar(',');
            if (!options.compact) printf("\n%*s", indent + 2, "");
            if (!is_list) show_text(value->keys[i]), fputs(options.compact ? ":" : ": ", stdout);
            show(value->items[i], indent + 2);
        }
        if (value->size && !options.compact) printf("\n%*s", indent, "");
        putchar(is_list ? ']' : '}');
    }
    }
}

/* --- order ---------------------------------------------------------------------------------------------------------- */

static int compare(const struct value *a, const struct value *b)
{
    if (a->kind != b->kind) return (int)a->kind - (int)b->kind;
    if (a->kind == NUMBER) return (a->number > b->number) - (a->number < b->number);
    if (a->kind == STRING) return strcmp(a->text, b->text);
    if (a->kind < NUMBER) return 0;
    for (size_t i = 0; i < a->size && i < b->size; i++) {
        int found = a->kind == OBJECT ? strcmp(a->keys[i]->text, b->keys[i]->text) : 0;
        if (!found) found = compare(a->items[i], b->items[i]);
        if (found) return found;
    }
    return (a->size > b->size) - (a->size < b->size);
}

static bool is_true(const struct value *value) { return value->kind != NUL && value->kind != NO; }

/* --- filters -------------------------------------------------------------------------------------------------------- */

struct filter {
    enum { SELF, FIELD, INDEX, SLICE, EACH, PIPE, COMMA, LITERAL, LIST, DICT, BINARY, CALL, OPTIONAL, EVERY, IF } kind;
    struct filter *a, *b, *c;
    const char *name;
    struct value *value;
    struct list parts; /* of DICT: filters of keys and values in turn, as values of no meaning */
    struct filter **filters;
    size_t count;
};

static struct filter *node(int kind, struct filter *a, struct filter *b)
{
    struct filter *made = take(sizeof *made);
    memset(made, 0, sizeof *made);
    made->kind = kind, made->a = a, made->b = b;
    return made;
}

static struct filter *read_pipe(void);

static char *read_name(void)
{
    const char *begin = at;
    while (isalnum((unsigned char)*at) || *at == '_') at++;
    return (char *)make_string(begin, (size_t)(at - begin))->text;
}

static struct filter *read_suffix(struct filter *filter)
{
    for (;;) {
        if (*at == '?') {
            at++;
            filter = node(OPTIONAL, filter, NULL);
        } else if (*at == '[') {
            at++, blanks();
            struct filter *made;
            if (*at == ']') {
                made = node(EACH, filter, NULL);
            } else if (*at == ':') {
                at++;
                made = node(SLICE, filter, NULL);
                if (!(made->c = read_pipe())) return NULL;
            } else {
                made = node(INDEX, filter, read_pipe());
                if (!made->b) return NULL;
                blanks();
                if (*at == ':') {
                    at++, blanks();
                    made->kind = SLICE;
                    if (*at != ']' && !(made->c = read_pipe())) return NULL;
                }
            }
            blanks();
            if (*at++ != ']') FAIL("a bracket without an end");
            filter = made;
        } else if (*at == '.' && (isalpha((unsigned char)at[1]) || at[1] == '_' || at[1] == '"')) {
            at++;
            filter = node(FIELD, filter, NULL);
            filter->name = *at == '"' ? read_string()->text : read_name();
        } else if (*at == '.' && at[1] == '[') {
            at++;
        } else {
            return filter;
        }
    }
}

static struct filter *read_term(void)
{
    blanks();
    struct filter *made;
    if (depth > 200) FAIL("nested too deep");
    if (*at == '.') {
        if (at[1] == '.') return at += 2, read_suffix(node(EVERY, NULL, NULL));
        at++;
        made = node(SELF, NULL, NULL);
        if (isalpha((unsigned char)*at) || *at == '_' || *at == '"') {
            made = node(FIELD, made, NULL);
            made->name = *at == '"' ? read_string()->text : read_name();
        }
        return read_suffix(made);
    }
    if (*at == '(') {
        at++, depth++;
        if (!(made = read_pipe())) return NULL;
        blanks(), depth--;
        if (*at++ != ')') FAIL("a parenthesis without an end");
        return read_suffix(made);
    }
    if (*at == '[') {
        at++, blanks(), depth++;
        made = node(LIST, NULL, NULL);
        if (*at != ']' && !(made->a = read_pipe())) return NULL;
        blanks(), depth--;
        if (*at++ != ']') FAIL("a list without an end");
        return read_suffix(made);
    }
    if (*at == '{') {
        made = node(DICT, NULL, NULL);
        at++, blanks(), depth++;
        while (*at != '}') {
            struct filter *key = node(LITERAL, NULL, NULL), *value = NULL;
            if (*at == '"') key->value = read_string();
            else if (*at == '(') {
                if (!(key = read_term())) return NULL;
            } else {
                char *name = read_name();
                if (!*name) FAIL("a key that is none");
                key->value = make_string(name, strlen(name));
            }
            blanks();
            if (*at == ':') {
                at++;
                int before = depth;
                value = read_term();
                depth = before;
                if (!value) return NULL;
                blanks();
                if (*at == '|') FAIL("a pipe in an object needs parentheses");
            } else {
                value = node(FIELD, node(SELF, NULL, NULL), NULL);
                value->name = key->value ? key->value->text : "";
            }
            made->filters = retake(made->filters, (made->count + 2) * sizeof *made->filters);
            made->filters[made->count++] = key, made->filters[made->count++] = value;
            blanks();
            if (*at == ',') at++, blanks();
            else if (*at != '}') FAIL("an object without an end");
        }
        at++, depth--;
        return read_suffix(made);
    }
    if (*at == '"' || *at == '-' || isdigit((unsigned char)*at)) {
        made = node(LITERAL, NULL, NULL);
        return (made->value = read_value()) ? made : NULL;
    }
    if (isalpha((unsigned char)*at)) {
        char *name = read_name();
        static const struct { const char *word; enum kind kind; } WORDS[] = {{"null", NUL}, {"true", YES}, {"false", NO}};
        for (size_t i = 0; i < 3; i++)
            if (!strcmp(name, WORDS[i].word)) return made = node(LITERAL, NULL, NULL), made->value = make(WORDS[i].kind), made;
        if (!strcmp(name, "if")) {
            made = node(IF, read_pipe(), NULL);
            blanks();
            if (!made->a || strncmp(at, "then", 4)) FAIL("`if` without `then`");
            at += 4;
            made->b = read_pipe();
            blanks();
            if (made->b && !strncmp(at, "else", 4)) at += 4, made->c = read_pipe();
            else made->c = node(SELF, NULL, NULL);
            blanks();
            if (!made->b || !made->c || strncmp(at, "end", 3)) FAIL("`if` without `end`");
            at += 3;
            return read_suffix(made);
        }
        made = node(CALL, NULL, NULL);
        made->name = name;
        if (*at == '(') {
            at++, depth++;
            for (;;) {
                struct filter *argument = read_pipe();
                if (!argument) return NULL;
                made->filters = retake(made->filters, (made->count + 1) * sizeof *made->filters);
                made->filters[made->count++] = argument;
                blanks();
                if (*at == ';') { at++; continue; }
                if (*at++ != ')') FAIL("arguments without an end");
                break;
            }
            depth--;
        }
        return read_suffix(made);
    }
    FAIL("a filter that is not known here");
}

/* By how closely operators bind. */
static const char *const LEVELS[][7] = {{"//", NULL}, {"or", NULL}, {"and", NULL}, {"==", "!=", "<=", ">=", "<", ">", NULL}, {"+", "-", NULL}, {"*", "/", "%", NULL}};

static struct filter *read_binary(size_t level)
{
    if (level == sizeof LEVELS / sizeof *LEVELS) return read_term();
    struct filter *left = read_binary(level + 1);
    while (left) {
        blanks();
        const char *found = NULL;
        for (size_t i = 0; LEVELS[level][i] && !found; i++) {
            const char *word = LEVELS[level][i];
            if (!strncmp(at, word, strlen(word)) && !(!strcmp(word, "/") && at[1] == '/')) found = word;
        }
        if (!found) return left;
        at += strlen(found);
        struct filter *right = read_binary(level + 1);
        if (!right) return NULL;
        left = node(BINARY, left, right);
        left->name = found;
    }
    return NULL;
}

static struct filter *read_pipe(void)
{
    struct filter *left = read_binary(0);
    while (left) {
        blanks();
        if (*at == ',') {
            at++;
            struct filter *right = read_binary(0);
            left = right ? node(COMMA, left, right) : NULL;
        } else if (*at == '|') {
            at++;
            struct filter *right = read_pipe();
            return right ? node(PIPE, left, right) : NULL;
        } else {
            return left;
        }
    }
    return NULL;
}

/* --- evaluation ----------------------------------------------------------------------------------------------------- */

static bool run(const struct filter *filter, struct value *input, struct list *out);

#define BAD(what) return fault = (what), false

static struct value *field(const struct value *object, const char *name)
{
    for (size_t i = 0; i < object->size; i++)
        if (!strcmp(object->keys[i]->text, name)) return object->items[i];
    return make(NUL);
}

static bool index_of(struct value *base, const struct value *key, struct list *out)
{
    if (base->kind == NUL) return push(out, make(NUL)), true;
    if (base->kind == OBJECT && key->kind == STRING) return push(out, field(base, key->text)), true;
    if (base->kind != ARRAY || key->kind != NUMBER) BAD("this cannot be indexed so");
    double place = key->number < 0 ? key->number + (double)base->size : key->number;
    push(out, place >= 0 && place < (double)base->size ? base->items[(size_t)place] : make(NUL));
    return true;
}

static struct value *slice(const struct value *base, double from, double to)
{
    double size = (double)base->size;
    from = from < 0 ? from + size : from, to = to < 0 ? to + size : to;
    from = from < 0 ? 0 : from > size ? size : from, to = to < from ? from : to > size ? size : to;
    if (base->kind == STRING) return make_string(base->text + (size_t)from, (size_t)(to - from));
    struct list items = {0};
    for (size_t i = (size_t)from; i < (size_t)to; i++) push(&items, base->items[i]);
    return make_list(ARRAY, items);
}

static struct value *merged(const struct value *a, const struct value *b)
{
    struct list keys = {0}, items = {0};
    for (size_t i = 0; i < a->size; i++) push(&keys, a->keys[i]), push(&items, a->items[i]);
    for (size_t i = 0; i < b->size; i++) {
        size_t place = 0;
        while (place < keys.count && strcmp(keys.all[place]->text, b->keys[i]->text)) place++;
        if (place < keys.count) items.all[place] = b->items[i];
        else push(&keys, b->keys[i]), push(&items, b->items[i]);
    }
    struct value *made = make_list(OBJECT, items);
    made->keys = keys.all;
    return made;
}

static struct value *calculate(const char *sign, struct value *a, struct value *b)
{
    int found = compare(a, b);
    if (!strcmp(sign, "==")) return make(found ? NO : YES);
    if (!strcmp(sign, "!=")) return make(found ? YES : NO);
    if (!strcmp(sign, "<")) return make(found < 0 ? YES : NO);
    if (!strcmp(sign, ">")) return make(found > 0 ? YES : NO);
    if (!strcmp(sign, "<=")) return make(found <= 0 ? YES : NO);
    if (!strcmp(sign, ">=")) return make(found >= 0 ? YES : NO);
    if (*sign == '+' && a->kind == NUL) return b;
    if (*sign == '+' && b->kind == NUL) return a;
    if (a->kind == NUMBER && b->kind == NUMBER) {
        if ((*sign == '/' || *sign == '%') && b->number == 0) FAIL("a division by zero");
        if (*sign == '%') return make_number(fmod(trunc(a->number), trunc(b->number)));
        return make_number(*sign == '+' ? a->number + b->number : *sign == '-' ? a->number - b->number
                           : *sign == '*' ? a->number * b->number : a->number / b->number);
    }
    if (*sign == '+' && a->kind == b->kind && a->kind == STRING) {
        struct text text = {0};
        add(&text, a->text, a->size), add(&text, b->text, b->size);
        return make_string(text.data, text.size);
    }
    if (*sign == '+' && a->kind == b->kind && a->kind == ARRAY) {
        struct list items = {0};
        for (size_t i = 0; i < a->size; i++) push(&items, a->items[i]);
        for (size_t i = 0; i < b->size; i++) push(&items, b->items[i]);
        return make_list(ARRAY, items);
    }
    if (*sign == '+' && a->kind == b->kind && a->kind == OBJECT) return merged(a, b);
    if (*sign == '-' && a->kind == b->kind && a->kind == ARRAY) {
        struct list items = {0};
        for (size_t i = 0; i < a->size; i++) {
            bool is_in = false;
            for (size_t j = 0; j < b->size; j++) is_in |= !compare(a->items[i], b->items[j]);
            if (!is_in) push(&items, a->items[i]);
        }
        return make_list(ARRAY, items);
    }
    FAIL("these two cannot be calculated with");
}

static int by_value(const void *a, const void *b) { return compare(*(struct value *const *)a, *(struct value *const *)b); }

/* Items with the keys that a filter gives, sorted by them; each a list of key and item. */
static bool keyed(const struct filter *by, struct value *input, struct list *pairs)
{
    if (input->kind != ARRAY) BAD("only a list can be sorted or grouped");
    for (size_t i = 0; i < input->size; i++) {
        struct list key = {0}, pair = {0};
        if (by ? !run(by, input->items[i], &key) : false) return false;
        push(&pair, by ? make_list(ARRAY, key) : input->items[i]);
        push(&pair, make_number((double)i)); /* keeps the order of equals */
        push(&pair, input->items[i]);
        push(pairs, make_list(ARRAY, pair));
    }
    if (pairs->count) qsort(pairs->all, pairs->count, sizeof *pairs->all, by_value);
    return true;
}

static bool contains(const struct value *a, const struct value *b)
{
    if (a->kind == STRING && b->kind == STRING) return strstr(a->text, b->text) != NULL;
    if (a->kind != b->kind || a->kind < ARRAY) return !compare(a, b);
    for (size_t i = 0; i < b->size; i++) {
        bool is_in = false;
        for (size_t j = 0; j < a->size && !is_in; j++)
            is_in = (a->kind == ARRAY || !strcmp(a->keys[j]->text, b->keys[i]->text)) && contains(a->items[j], b->items[i]);
        if (!is_in) return false;
    }
    return true;
}

static const char *const KINDS[] = {"null", "boolean", "boolean", "number", "string", "array", "object"};

static bool call(const struct filter *filter, struct value *input, struct list *out)
{
    const char *name = filter->name;
    struct list given = {0};
    struct list made = {0};
#define IS(word) (!strcmp(name, word))
    if (IS("select")) {
        if (filter->count != 1) BAD("select takes one filter");
        if (!run(filter->filters[0], input, &given)) return false;
        for (size_t i = 0; i < given.count; i++)
            if (is_true(given.all[i])) push(out, input);
        return true;
    }
    if (IS("empty")) return true;
    if (IS("not")) return push(out, make(is_true(input) ? NO : YES)), true;
    if (IS("type")) return push(out, make_string(KINDS[input->kind], strlen(KINDS[input->kind]))), true;
    if (IS("length")) {
        double size = input->kind == NUMBER ? fabs(input->number) : (double)input->size;
        if (input->kind == STRING)
            for (size_t i = 0; i < input->size; i++) size -= (input->text[i] & 0xC0) == 0x80;
        return push(out, make_number(size)), true;
    }
    if (IS("keys") || IS("to_entries") || IS("keys_unsorted")) {
        if (input->kind == ARRAY && IS("keys")) for (size_t i = 0; i < input->size; i++) push(&made, make_number((double)i));
        else if (input->kind != OBJECT) BAD("only an object has keys");
        for (size_t i = 0; input->kind == OBJECT && i < input->size; i++) {
            if (*name == 'k') { push(&made, input->keys[i]); continue; }
            struct list keys = {0}, items = {0};
            push(&keys, make_string("key", 3)), push(&items, input->keys[i]);
            push(&keys, make_string("value", 5)), push(&items, input->items[i]);
            struct value *entry = make_list(OBJECT, items);
            entry->keys = keys.all;
            push(&made, entry);
        }
        if (IS("keys") && made.count) qsort(made.all, made.count, sizeof *made.all, by_value);
        return push(out, make_list(ARRAY, made)), true;
    }
    if (IS("from_entries")) {
        struct list keys = {0};
        for (size_t i = 0; i < input->size; i++) {
            struct value *entry = input->items[i], *key = entry->kind == OBJECT ? field(entry, "key") : make(NUL);
            if (key->kind != STRING) BAD("an entry whose key is no text");
            push(&keys, key), push(&made, field(entry, "value"));
        }
        struct value *object = make_list(OBJECT, made);
        object->keys = keys.all;
        return push(out, object), true;
    }
    if (IS("map") && filter->count == 1) {
        if (input->kind < ARRAY) BAD("only a list can be mapped");
        for (size_t i = 0; i < input->size; i++)
            if (!run(filter->filters[0], input->items[i], &made)) return false;
        return push(out, make_list(ARRAY, made)), true;
    }
    if (IS("add") || IS("min") || IS("max") || IS("first") || IS("last") || IS("reverse") || IS("any") || IS("all")) {
        if (input->kind < ARRAY) BAD("only a list can be taken so");
        struct value *total = make(NUL);
        bool truth = IS("all");
        for (size_t i = 0; i < input->size; i++) {
            struct value *item = input->items[i];
            if (IS("add")) { if (!(total = calculate("+", total, item))) return false; }
            else if (IS("any")) truth |= is_true(item);
            else if (IS("all")) truth &= is_true(item);
            else if (IS("reverse")) push(&made, input->items[input->size - 1 - i]);
            else if (IS("last") || !i || (IS("min") && compare(item, total) < 0) || (IS("max") && compare(item, total) > 0)) total = item;
        }
        return push(out, IS("reverse") ? make_list(ARRAY, made) : IS("any") || IS("all") ? make(truth ? YES : NO) : total), true;
    }
    if (IS("sort") || IS("sort_by") || IS("unique") || IS("unique_by") || IS("group_by")) {
        struct list pairs = {0}, group = {0};
        if (!keyed(filter->count ? filter->filters[0] : NULL, input, &pairs)) return false;
        for (size_t i = 0; i < pairs.count; i++) {
            bool is_new = !i || compare(pairs.all[i - 1]->items[0], pairs.all[i]->items[0]);
            if (*name == 'g') {
                if (is_new && i) push(&made, make_list(ARRAY, group)), group = (struct list){0};
                push(&group, pairs.all[i]->items[2]);
            } else if (*name == 's' || is_new) {
                push(&made, pairs.all[i]->items[2]);
            }
        }
        if (*name == 'g' && group.count) push(&made, make_list(ARRAY, group));
        return push(out, make_list(ARRAY, made)), true;
    }
    if (IS("tostring") || IS("tojson")) {
        if (input->kind == STRING && IS("tostring")) return push(out, input), true;
        BAD("tostring of what is no text is not here; print it with -c");
    }
    if (IS("tonumber")) {
        char *end = NULL;
        double number = input->kind == NUMBER ? input->number : input->kind == STRING ? strtod(input->text, &end) : NAN;
        if (isnan(number) || (end && (*end || end == input->text))) BAD("this is no number");
        return push(out, make_number(number)), true;
    }
    if (IS("floor")) return push(out, make_number(floor(input->number))), true;
    if (IS("ascii_downcase") || IS("ascii_upcase")) {
        if (input->kind != STRING) BAD("only a text has letters");
        struct value *copied = make_string(input->text, input->size);
        for (char *sign = (char *)copied->text; *sign; sign++) *sign = (char)(IS("ascii_upcase") ? toupper((unsigned char)*sign) : tolower((unsigned char)*sign));
        return push(out, copied), true;
    }
    for (size_t i = 0; i < filter->count; i++) {
        if (!run(filter->filters[i], input, &given)) return false;
    }
    if (given.count == 1 && IS("has")) {
        bool is_in = false;
        if (input->kind == ARRAY) is_in = given.all[0]->kind == NUMBER && given.all[0]->number < (double)input->size;
        for (size_t i = 0; input->kind == OBJECT && given.all[0]->kind == STRING && i < input->size; i++) is_in |= !strcmp(input->keys[i]->text, given.all[0]->text);
        return push(out, make(is_in ? YES : NO)), true;
    }
    if (given.count == 1 && IS("contains")) return push(out, make(contains(input, given.all[0]) ? YES : NO)), true;
    bool texts = given.count == 1 && given.all[0]->kind == STRING;
    if (texts && (IS("startswith") || IS("endswith") || IS("test")) && input->kind == STRING) {
        const struct value *part = given.all[0];
        bool fits = input->size >= part->size && (IS("startswith") ? !memcmp(input->text, part->text, part->size)
                    : IS("endswith") ? !memcmp(input->text + input->size - part->size, part->text, part->size) : strstr(input->text, part->text) != NULL);
        return push(out, make(fits ? YES : NO)), true;
    }
    if (texts && IS("join") && input->kind == ARRAY) {
        struct text text = {0};
        add(&text, "", 0);
        for (size_t i = 0; i < input->size; i++) {
            const struct value *item = input->items[i];
            if (i) add(&text, given.all[0]->text, given.all[0]->size);
            char number[40];
            if (item->kind == NUMBER) sprintf(number, "%.17g", item->number), add(&text, number, strlen(number));
            else if (item->kind == STRING) add(&text, item->text, item->size);
            else if (item->kind != NUL) BAD("only texts and numbers can be joined");
        }
        return push(out, make_string(text.data, text.size)), true;
    }
    if (texts && IS("split") && input->kind == STRING && given.all[0]->size) {
        const char *from = input->text, *next;
        while ((next = strstr(from, given.all[0]->text))) push(&made, make_string(from, (size_t)(next - from))), from = next + given.all[0]->size;
        push(&made, make_string(from, strlen(from)));
        return push(out, make_list(ARRAY, made)), true;
    }
    if (IS("range") && given.count && given.all[0]->kind == NUMBER) {
        double from = given.count > 1 ? given.all[0]->number : 0, to = given.all[given.count - 1]->number;
        for (double i = from; i < to; i++) push(out, make_number(i));
        return true;
    }
    BAD("a function that is not known here, or not for this");
}

static void every(struct value *value, struct list *out)
{
    push(out, value);
    for (size_t i = 0; value->kind >= ARRAY && i < value->size; i++) every(value->items[i], out);
}

static bool run(const struct filter *filter, struct value *input, struct list *out)
{
    struct list left = {0}, right = {0};
    switch (filter->kind) {
    case SELF: return push(out, input), true;
    case EVERY: return every(input, out), true;
    case LITERAL: return push(out, filter->value), true;
    case COMMA: return run(filter->a, input, out) && run(filter->b, input, out);
    case CALL: return call(filter, input, out);
    case OPTIONAL:
        if (!run(filter->a, input, &left)) return fault = NULL, true;
        for (size_t i = 0; i < left.count; i++) push(out, left.all[i]);
        return true;
    case LIST:
        if (filter->a && !run(filter->a, input, &left)) return false;
        return push(out, make_list(ARRAY, left)), true;
    case DICT: {
        struct list keys = {0}, items = {0};
        for (size_t i = 0; i < filter->count; i += 2) {
            struct list key = {0}, value = {0};
            if (!run(filter->filters[i], input, &key) || !run(filter->filters[i + 1], input, &value)) return false;
            if (key.count != 1 || value.count != 1 || key.all[0]->kind != STRING) BAD("an object takes one text and one value each");
            push(&keys, key.all[0]), push(&items, value.all[0]);
        }
        struct value *made = make_list(OBJECT, items);
        made->keys = keys.all;
        return push(out, made), true;
    }
    case IF:
        if (!run(filter->a, input, &left)) return false;
        for (size_t i = 0; i < left.count; i++)
            if (!run(is_true(left.all[i]) ? filter->b : filter->c, input, out)) return false;
        return true;
    case BINARY:
        if (!strcmp(filter->name, "//")) {
            if (!run(filter->a, input, &left)) fault = NULL, left.count = 0;
            for (size_t i = 0; i < left.count; i++)
                if (is_true(left.all[i])) push(&right, left.all[i]);
            for (size_t i = 0; i < right.count; i++) push(out, right.all[i]);
            return right.count || run(filter->b, input, out);
        }
        if (!run(filter->a, input, &left) || !run(filter->b, input, &right)) return false;
        for (size_t i = 0; i < left.count; i++)
            for (size_t j = 0; j < right.count; j++) {
                bool x = is_true(left.all[i]), y = is_true(right.all[j]);
                struct value *made = !strcmp(filter->name, "and") ? make(x && y ? YES : NO)
                                     : !strcmp(filter->name, "or") ? make(x || y ? YES : NO) : calculate(filter->name, left.all[i], right.all[j]);
                if (!made) return false;
                push(out, made);
            }
        return true;
    default: break;
    }
    if (!run(filter->a, input, &left)) return false;
    for (size_t i = 0; i < left.count; i++) {
        struct value *base = left.all[i];
        if (filter->kind == PIPE) {
            if (!run(filter->b, base, out)) return false;
        } else if (filter->kind == FIELD) {
            if (base->kind != OBJECT && base->kind != NUL) BAD("this has no fields");
            push(out, base->kind == NUL ? base : field(base, filter->name));
        } else if (filter->kind == EACH) {
            if (base->kind < ARRAY) BAD("this cannot be walked through");
            for (size_t j = 0; j < base->size; j++) push(out, base->items[j]);
        } else {
            struct list from = {0}, to = {0};
            if (filter->b && !run(filter->b, input, &from)) return false;
            if (filter->c && !run(filter->c, input, &to)) return false;
            if (filter->kind == INDEX) {
                for (size_t j = 0; j < from.count; j++)
                    if (!index_of(base, from.all[j], out)) return false;
            } else {
                if (base->kind != ARRAY && base->kind != STRING) BAD("this has no parts");
                push(out, slice(base, from.count ? from.all[0]->number : 0, to.count ? to.all[0]->number : (double)base->size));
            }
        }
    }
    return true;
}

static int last_status;

static int apply(const struct filter *filter, struct value *input)
{
    struct list out = {0};
    bool well = run(filter, input, &out);
    for (size_t i = 0; i < out.count; i++) {
        if (options.raw && out.all[i]->kind == STRING) fwrite(out.all[i]->text, 1, out.all[i]->size, stdout);
        else show(out.all[i], 0);
        putchar('\n');
        last_status = is_true(out.all[i]) ? 0 : 1;
    }
    return well ? 0 : (wrong("error", fault), 5);
}

static int jq_one(FILE *file, const char *name, void *with)
{
    struct text text = {0};
    struct list all = {0};
    int code = 0;
    if (!read_all(file, &text)) return complain(name), 2;
    for (at = text.data, blanks(); *at && !code; blanks()) {
        depth = 0;
        struct value *value = read_value();
        if (!value) return wrong(name, fault), 2;
        if (options.slurp) push(&all, value);
        else code = apply(with, value);
    }
    return options.slurp ? apply(with, make_list(ARRAY, all)) : code;
}

TOOL(jq)
{
    int option;
    while ((option = getopt(argc, argv, "rcsneSM")) != -1) switch (option) {
        case 'r': options.raw = true; break;
        case 'c': options.compact = true; break;
        case 's': options.slurp = true; break;
        case 'n': options.null = true; break;
        case 'e': options.exit_status = true; break;
        case 'M': break;
        default: return wrong("is not known here", argv[optind - 1]);
        }
    at = optind < argc ? argv[optind] : ".";
    struct filter *filter = read_pipe();
    if (filter) blanks();
    if (!filter || *at) return wrong("the filter cannot be read", fault ? fault : at), 3;
    if (options.null) return apply(filter, make(NUL));
    int code = each_input(argc, argv, optind + 1, jq_one, filter);
    return code || !options.exit_status ? code : last_status;
}
