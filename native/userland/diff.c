/* What differs between two files, line by line: the longest common sequence, as a table. */
#include "tools.h"

#include <getopt.h>

#define CELLS_MAX (16 * 1024 * 1024) /* beyond this, what lies between the common ends counts as replaced whole */

struct side {
    struct line *lines;
    size_t count;
    const char *name;
    bool *kept; /* of both */
};

static bool read_side(const char *name, struct side *side, bool fold_blanks)
{
    FILE *file = open_input(name);
    struct line line;
    side->name = name;
    if (!file) return false;
    while (read_line(file, &line)) {
        if (fold_blanks) {
            size_t to = 0;
            for (size_t at = 0; at < line.size; at++)
                if (line.data[at] != ' ' && line.data[at] != '\t') line.data[to++] = line.data[at];
            line.size = to;
        }
        side->lines = retake(side->lines, (side->count + 1) * sizeof line);
        side->lines[side->count++] = line;
    }
    if (file != stdin) fclose(file);
    side->kept = calloc(side->count + 1, 1);
    return side->kept != NULL;
}

static bool same(const struct line *a, const struct line *b)
{
    return a->size == b->size && a->ended == b->ended && !memcmp(a->data, b->data, a->size);
}

static void compare(struct side *a, struct side *b)
{
    size_t begin = 0, m = a->count, n = b->count;
    while (begin < m && begin < n && same(&a->lines[begin], &b->lines[begin])) a->kept[begin] = b->kept[begin] = true, begin++;
    while (m > begin && n > begin && same(&a->lines[m - 1], &b->lines[n - 1])) a->kept[--m] = b->kept[--n] = true;
    size_t rows = m - begin, columns = n - begin;
    if (!rows || !columns || rows * columns > CELLS_MAX) return;
    unsigned *table = calloc((rows + 1) * (columns + 1), sizeof *table);
    if (!table) return;
#define AT(x, y) table[(x) * (columns + 1) + (y)]
    for (size_t x = rows; x-- > 0;)
        for (size_t y = columns; y-- > 0;) {
            unsigned down = AT(x + 1, y), right = AT(x, y + 1);
            AT(x, y) = same(&a->lines[begin + x], &b->lines[begin + y]) ? AT(x + 1, y + 1) + 1 : down > right ? down : right;
        }
    for (size_t x = 0, y = 0; x < rows && y < columns;) {
        if (same(&a->lines[begin + x], &b->lines[begin + y])) a->kept[begin + x++] = b->kept[begin + y++] = true;
        else if (AT(x + 1, y) >= AT(x, y + 1)) x++;
        else y++;
    }
    free(table);
}

static void show(const char *sign, const struct line *line)
{
    fputs(sign, stdout);
    fwrite(line->data, 1, line->size, stdout);
    putchar('\n');
    if (!line->ended) puts("\\ No newline at end of file");
}

static void range(size_t from, size_t to)
{
    if (from >= to) printf("%zu", from);
    else if (from + 1 == to) printf("%zu", from + 1);
    else printf("%zu,%zu", from + 1, to);
}

static void show_plain(struct side *a, struct side *b)
{
    for (size_t x = 0, y = 0; x < a->count || y < b->count;) {
        if (x < a->count && a->kept[x]) {
            x++, y++;
            continue;
        }
        size_t i = x, j = y;
        while (i < a->count && !a->kept[i]) i++;
        while (j < b->count && !b->kept[j]) j++;
        range(x, i);
        putchar(i == x ? 'a' : j == y ? 'd' : 'c');
        range(y, j);
        putchar('\n');
        for (size_t at = x; at < i; at++) show("< ", &a->lines[at]);
        if (i > x && j > y) puts("---");
        for (size_t at = y; at < j; at++) show("> ", &b->lines[at]);
        x = i, y = j;
    }
}

static void extent(size_t from, size_t to)
{
    if (to - from == 1) printf("%zu", from + 1);
    else printf("%zu,%zu", to > from ? from + 1 : from, to - from);
}

static void show_unified(struct side *a, struct side *b, size_t context)
{
    printf("--- %s\n+++ %s\n", a->name, b->name);
    for (size_t x = 0, y = 0; x < a->count || y < b->count;) {
        if (x < a->count && a->kept[x]) {
            x++, y++;
            continue;
        }
        size_t back = x < context ? x : context, i = x, j = y, end_i, end_j;
        for (;;) {
            while (i < a->count && !a->kept[i]) i++;
            while (j < b->count && !b->kept[j]) j++;
            size_t equal = 0;
            while (i + equal < a->count && a->kept[i + equal] && equal <= 2 * context) equal++;
            bool over = i + equal >= a->count && j + equal >= b->count;
            if (over || equal > 2 * context) {
                end_i = i + (equal < context ? equal : context), end_j = j + (equal < context ? equal : context);
                break;
            }
            i += equal, j += equal;
        }
        printf("@@ -");
        extent(x - back, end_i);
        printf(" +");
        extent(y - back, end_j);
        puts(" @@");
        for (x -= back, y -= back; x < end_i || y < end_j;) {
            if (x < end_i && a->kept[x]) show(" ", &a->lines[x]), x++, y++;
            else if (x < end_i) show("-", &a->lines[x++]);
            else show("+", &b->lines[y++]);
            while (y < end_j && !b->kept[y] && (x >= end_i || a->kept[x])) show("+", &b->lines[y++]);
        }
    }
}

TOOL(diff)
{
    int option;
    bool unified = false, quiet = false, fold = false;
    size_t context = 3;
    while ((option = getopt(argc, argv, "uqwbU:")) != -1) switch (option) {
        case 'U': context = (size_t)strtol(optarg, NULL, 10); /* fall through */
        case 'u': unified = true; break;
        case 'q': quiet = true; break;
        case 'w': case 'b': fold = true; break;
        default: return wrong("is not known here", argv[optind - 1]);
        }
    if (argc - optind != 2) return wrong("takes", "two files");
    const char *names[2] = {argv[optind], argv[optind + 1]};
    if (is_directory(names[0]) && is_directory(names[1])) return wrong("two directories are not compared here", names[0]);
    if (is_directory(names[0])) names[0] = joined(names[0], last_part(names[1]));
    if (is_directory(names[1])) names[1] = joined(names[1], last_part(names[0]));
    struct side a = {0}, b = {0};
    if (!read_side(names[0], &a, fold) || !read_side(names[1], &b, fold)) return 2;
    compare(&a, &b);
    bool differ = a.count != b.count;
    for (size_t at = 0; !differ && at < a.count; at++) differ = !a.kept[at];
    if (!differ) return 0;
    if (quiet) printf("Files %s and %s differ\n", a.name, b.name);
    else if (unified) show_unified(&a, &b, context);
    else show_plain(&a, &b);
    return 1;
}
