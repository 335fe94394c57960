/* What reads text and writes it again, in another order or less of it. */
#include "tools.h"

#include <ctype.h>
#include <getopt.h>

/* --- cat, head, tail, tac, wc --------------------------------------------------------------------------------------- */

static int cat_one(FILE *file, const char *name, void *with)
{
    long *number = with;
    if (*number < 0) {
        char piece[65536];
        size_t count;
        while ((count = fread(piece, 1, sizeof piece, file)) > 0)
            if (fwrite(piece, 1, count, stdout) != count) return 1;
        return ferror(file) ? complain(name) : 0;
    }
    struct line line;
    while (read_line(file, &line)) {
        printf("%6ld\t", ++*number);
        fwrite(line.data, 1, line.size, stdout);
        if (line.ended) putchar('\n');
        free(line.data);
    }
    return 0;
}

TOOL(cat)
{
    int option;
    long number = -1;
    while ((option = getopt(argc, argv, "nuv")) != -1) {
        if (option == '?') return 2;
        if (option == 'n') number = 0;
    }
    return each_input(argc, argv, optind, cat_one, &number);
}

struct share {
    long count;
    bool bytes, from_start, titled;
    int shown;
};

static void title(struct share *share, const char *name)
{
    if (share->titled) printf("%s==> %s <==\n", share->shown++ ? "\n" : "", name);
}

static int head_one(FILE *file, const char *name, void *with)
{
    struct share *share = with;
    title(share, name);
    int sign;
    for (long left = share->count; left > 0 && (sign = getc(file)) != EOF;) {
        putchar(sign);
        if (share->bytes || sign == '\n') left--;
    }
    return 0;
}

static int tail_one(FILE *file, const char *name, void *with)
{
    struct share *share = with;
    struct text all = {0};
    title(share, name);
    if (!read_all(file, &all)) return complain(name);
    size_t at = 0;
    if (share->from_start) {
        for (long left = share->count - 1; left > 0 && at < all.size; at++)
            if (share->bytes || all.data[at] == '\n') left--;
    } else if (share->bytes) {
        at = all.size > (size_t)share->count ? all.size - (size_t)share->count : 0;
    } else {
        long left = share->count;
        at = all.size && all.data[all.size - 1] == '\n' ? all.size - 1 : all.size;
        if (!left) at = all.size;
        while (left > 0 && at > 0 && !(all.data[at - 1] == '\n' && --left == 0)) at--;
    }
    fwrite(all.data + at, 1, all.size - at, stdout);
    free(all.data);
    return 0;
}

static int share_of(int argc, char **argv, int (*work)(FILE *, const char *, void *))
{
    struct share share = {.count = 10};
    int option;
    if (argc > 1 && argv[1][0] == '-' && isdigit((unsigned char)argv[1][1])) {
        share.count = strtol(argv[1] + 1, NULL, 10);
        argv++, argc--;
    }
    while ((option = getopt(argc, argv, "n:c:qf")) != -1) {
        if (option != 'n' && option != 'c') return wrong("is not known here", argv[optind - 1]);
        char *end;
        share.bytes = option == 'c';
        share.from_start = *optarg == '+';
        share.count = labs(strtol(optarg, &end, 10));
        if (*end) return wrong("is no number", optarg);
    }
    share.titled = argc - optind > 1;
    return each_input(argc, argv, optind, work, &share);
}

TOOL(head) { return share_of(argc, argv, head_one); }
TOOL(tail) { return share_of(argc, argv, tail_one); }

struct lines {
    struct line *all;
    size_t count;
};

static int collect(FILE *file, const char *name, void *with)
{
    struct lines *lines = with;
    struct line line;
    while (read_line(file, &line)) {
        if (!(lines->count & (lines->count + 1))) lines->all = retake(lines->all, (2 * lines->count + 2) * sizeof line);
        lines->all[lines->count++] = line;
    }
    return ferror(file) ? complain(name) : 0;
}

TOOL(tac)
{
    struct lines lines = {0};
    int code = each_input(argc, argv, 1, collect, &lines);
    for (size_t at = lines.count; at-- > 0;) {
        fwrite(lines.all[at].data, 1, lines.all[at].size, stdout);
        putchar('\n');
    }
    return code;
}

struct counts {
    long long lines, words, bytes, chars;
    bool l, w, c, m;
};

static void show_counts(const struct counts *now, const struct counts *what, const char *name)
{
    const char *gap = "";
    const struct { bool is; long long n; } rows[] = {
        {what->l, now->lines}, {what->w, now->words}, {what->m, now->chars}, {what->c, now->bytes}};
    bool alone = what->l + what->w + what->c + what->m == 1;
    for (size_t at = 0; at < 4; at++)
        if (rows[at].is) printf(alone ? "%s%lld" : "%s%7lld", gap, rows[at].n), gap = " ";
    if (strcmp(name, "-")) printf(" %s", name);
    putchar('\n');
}

static int wc_one(FILE *file, const char *name, void *with)
{
    struct counts *total = with, now = {0};
    bool in_word = false;
    int sign;
    while ((sign = getc(file)) != EOF) {
        now.bytes++;
        now.chars += (sign & 0xC0) != 0x80;
        now.lines += sign == '\n';
        if (isspace(sign)) in_word = false;
        else if (!in_word) in_word = true, now.words++;
    }
    show_counts(&now, total, name);
    total->lines += now.lines, total->words += now.words, total->bytes += now.bytes, total->chars += now.chars;
    return ferror(file) ? complain(name) : 0;
}

TOOL(wc)
{
    struct counts total = {0};
    int option;
    while ((option = getopt(argc, argv, "lwcm")) != -1) switch (option) {
        case 'l': total.l = true; break;
        case 'w': total.w = true; break;
        case 'c': total.c = true; break;
        case 'm': total.m = true; break;
        default: return 2;
        }
    if (!total.l && !total.w && !total.c && !total.m) total.l = total.w = total.c = true;
    int code = each_input(argc, argv, optind, wc_one, &total);
    if (argc - optind > 1) show_counts(&total, &total, "total");
    return code;
}

/* --- sort, uniq ----------------------------------------------------------------------------------------------------- */

static struct {
    bool reverse, numeric, fold, unique, ignore_blanks;
    long field, last;
    char between;
} order;

static void key_of(const struct line *line, const char **begin, const char **end)
{
    const char *at = line->data, *stop = at + line->size;
    *end = stop;
    for (long field = 1; field < order.field && at < stop; field++) {
        if (order.between) {
            while (at < stop && *at != order.between) at++;
            if (at < stop) at++;
        } else {
            while (at < stop && isblank((unsigned char)*at)) at++;
            while (at < stop && !isblank((unsigned char)*at)) at++;
        }
    }
    *begin = at;
    for (long field = order.field; order.last && field <= order.last && at < stop; field++) {
        if (order.between) {
            if (field > order.field) at++;
            while (at < stop && *at != order.between) at++;
        } else {
            while (at < stop && isblank((unsigned char)*at)) at++;
            while (at < stop && !isblank((unsigned char)*at)) at++;
        }
        *end = at;
    }
    if (order.ignore_blanks || order.numeric)
        while (*begin < *end && isblank((unsigned char)**begin)) (*begin)++;
}

static int compare_bytes(const char *a, size_t m, const char *b, size_t n, bool fold)
{
    for (size_t at = 0; at < m && at < n; at++) {
        int x = (unsigned char)a[at], y = (unsigned char)b[at];
        if (fold) x = tolower(x), y = tolower(y);
        if (x != y) return x - y;
    }
    return (m > n) - (m < n);
}

static int by_key(const struct line *a, const struct line *b)
{
    const char *p, *p_end, *q, *q_end;
    key_of(a, &p, &p_end), key_of(b, &q, &q_end);
    if (order.numeric) {
        double x = strtod(p, NULL), y = strtod(q, NULL);
        return (x > y) - (x < y);
    }
    return compare_bytes(p, (size_t)(p_end - p), q, (size_t)(q_end - q), order.fold);
}

static int by_order(const void *x, const void *y)
{
    const struct line *a = x, *b = y;
    int found = by_key(a, b);
    if (!found && !order.unique) found = compare_bytes(a->data, a->size, b->data, b->size, false);
    return order.reverse ? -found : found;
}

TOOL(sort)
{
    int option;
    const char *output = NULL;
    order.field = 1;
    while ((option = getopt(argc, argv, "rnfubk:t:o:s")) != -1) switch (option) {
        case 'r': order.reverse = true; break;
        case 'n': order.numeric = true; break;
        case 'f': order.fold = true; break;
        case 'u': order.unique = true; break;
        case 'b': order.ignore_blanks = true; break;
        case 't': order.between = *optarg; break;
        case 'o': output = optarg; break;
        case 's': break;
        case 'k': {
            char *end;
            order.field = strtol(optarg, &end, 10);
            for (; *end && *end != ','; end++) {
                order.numeric |= *end == 'n';
                order.reverse |= *end == 'r';
            }
            if (*end == ',') order.last = strtol(end + 1, NULL, 10);
            if (order.field < 1) return wrong("is no field", optarg);
            break;
        }
        default: return 2;
        }
    struct lines lines = {0};
    int code = each_input(argc, argv, optind, collect, &lines);
    if (lines.count) qsort(lines.all, lines.count, sizeof *lines.all, by_order);
    FILE *out = output ? fopen(output, "wb") : stdout;
    if (!out) return complain(output);
    for (size_t at = 0; at < lines.count; at++) {
        if (order.unique && at && !by_key(&lines.all[at - 1], &lines.all[at])) continue;
        fwrite(lines.all[at].data, 1, lines.all[at].size, out);
        putc('\n', out);
    }
    return output && fclose(out) ? complain(output) : code;
}

TOOL(uniq)
{
    int option;
    bool count = false, repeated = false, single = false, fold = false;
    while ((option = getopt(argc, argv, "cdui")) != -1) switch (option) {
        case 'c': count = true; break;
        case 'd': repeated = true; break;
        case 'u': single = true; break;
        case 'i': fold = true; break;
        default: return 2;
        }
    struct lines lines = {0};
    int code = each_input(argc < optind + 1 ? argc : optind + 1, argv, optind, collect, &lines);
    for (size_t at = 0, next; at < lines.count; at = next) {
        struct line *line = &lines.all[at];
        for (next = at + 1; next < lines.count; next++)
            if (compare_bytes(line->data, line->size, lines.all[next].data, lines.all[next].size, fold)) break;
        if ((repeated && next - at < 2) || (single && next - at > 1)) continue;
        if (count) printf("%7zu ", next - at);
        fwrite(line->data, 1, line->size, stdout);
        putchar('\n');
    }
    return code;
}

/* --- cut, tr -------------------------------------------------------------------------------------------------------- */

static struct {
    bool fields, only;
    char between;
    const char *list;
} part;

static bool is_listed(long number)
{
    for (const char *at = part.list; *at;) {
        char *end;
        long first = *at == '-' ? 1 : strtol(at, &end, 10), last = first;
        if (*at == '-') end = (char *)at;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (end == at) last = 1L << 30;
        }
        if (number >= first && number <= last) return true;
        if (end == at && *end != ',') return false;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

static int cut_one(FILE *file, const char *name, void *with)
{
    struct line line;
    (void)with;
    while (read_line(file, &line)) {
        if (!part.fields) {
            for (size_t at = 0; at < line.size; at++)
                if (is_listed((long)at + 1)) putchar(line.data[at]);
        } else if (!memchr(line.data, part.between, line.size)) {
            if (part.only) continue;
            fwrite(line.data, 1, line.size, stdout);
        } else {
            long number = 1;
            bool any = false;
            for (char *at = line.data, *end = line.data + line.size; at <= end; number++) {
                char *stop = memchr(at, part.between, (size_t)(end - at));
                if (!stop) stop = end;
                if (is_listed(number)) {
                    if (any) putchar(part.between);
                    fwrite(at, 1, (size_t)(stop - at), stdout);
                    any = true;
                }
                at = stop + 1;
            }
        }
        putchar('\n');
        free(line.data);
    }
    return ferror(file) ? complain(name) : 0;
}

TOOL(cut)
{
    int option;
    part.between = '\t';
    while ((option = getopt(argc, argv, "f:c:b:d:s")) != -1) switch (option) {
        case 'f': part.fields = true; /* fall through */
        case 'c': case 'b': part.list = optarg; break;
        case 'd': part.between = *optarg; break;
        case 's': part.only = true; break;
        default: return 2;
        }
    if (!part.list) return wrong("missing", "-f or -c");
    return each_input(argc, argv, optind, cut_one, NULL);
}

static size_t set_of(const char *text, unsigned char *set)
{
    static const struct { const char *name; int (*is)(int); } CLASSES[] = {
        {"[:lower:]", islower}, {"[:upper:]", isupper}, {"[:digit:]", isdigit}, {"[:alpha:]", isalpha},
        {"[:alnum:]", isalnum}, {"[:space:]", isspace}, {"[:punct:]", ispunct}};
    size_t count = 0;
    while (*text && count < 4096) {
        bool is_class = false;
        for (size_t at = 0; at < sizeof CLASSES / sizeof *CLASSES; at++)
            if (!strncmp(text, CLASSES[at].name, 9)) {
                for (int sign = 0; sign < 256; sign++)
                    if (CLASSES[at].is(sign)) set[count++] = (unsigned char)sign;
                text += 9;
                is_class = true;
                break;
            }
        if (is_class) continue;
        unsigned char sign = (unsigned char)*text++;
        if (sign == '\\' && *text) {
            const char *letters = "nrt\\", *found = strchr(letters, *text);
            sign = found ? (unsigned char)"\n\r\t\\"[found - letters] : (unsigned char)*text;
            text++;
        }
        if (*text == '-' && text[1]) {
            for (int each = sign; each <= (unsigned char)text[1] && count < 4096; each++) set[count++] = (unsigned char)each;
            text += 2;
        } else {
            set[count++] = sign;
        }
    }
    return count;
}

TOOL(tr)
{
    int option, sign, before = -1;
    bool remove = false, squeeze = false, others = false;
    while ((option = getopt(argc, argv, "dscC")) != -1) switch (option) {
        case 'd': remove = true; break;
        case 's': squeeze = true; break;
        case 'c': case 'C': others = true; break;
        default: return 2;
        }
    if (optind >= argc) return wrong("missing", "a set");
    unsigned char from[4400], to[4400];
    size_t m = set_of(argv[optind], from), n = optind + 1 < argc ? set_of(argv[optind + 1], to) : 0;
    short map[256], is_in[256] = {0};
    for (int at = 0; at < 256; at++) map[at] = (short)at;
    for (size_t at = 0; at < m; at++) is_in[from[at]] = 1;
    for (int at = 0; others && at < 256; at++) is_in[at] = !is_in[at];
    for (size_t at = 0; !others && n && at < m; at++) map[from[at]] = to[at < n ? at : n - 1];
    for (int at = 0; others && n && at < 256; at++)
        if (is_in[at]) map[at] = to[n - 1];
    while ((sign = getchar()) != EOF) {
        bool listed = is_in[sign];
        if (remove && listed) continue;
        sign = map[sign];
        if (squeeze && listed && sign == before) continue;
        putchar(sign);
        before = sign;
    }
    return 0;
}
