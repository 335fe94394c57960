/* The tools that are a few lines each. */
#include "tools.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

TOOL(true) { (void)argc, (void)argv; return 0; }
TOOL(false) { (void)argc, (void)argv; return 1; }

TOOL(pwd)
{
    char place[4096];
    (void)argc, (void)argv;
    if (!getcwd(place, sizeof place)) return complain("where we are");
    puts(place);
    return 0;
}

/* The escapes of printf and of echo -e; false at \c, which ends all output. */
static bool escaped(const char **from, struct text *out)
{
    const char *at = *from + 1;
    static const char LETTERS[] = "abefnrtv\\", SIGNS[] = "\a\b\033\f\n\r\t\v\\";
    const char *letter = *at ? strchr(LETTERS, *at) : NULL;
    if (*at == 'c') return false;
    if (letter) {
        add_char(out, SIGNS[letter - LETTERS]);
        at++;
    } else if (*at == 'x' || (*at >= '0' && *at <= '7')) {
        char digits[4] = {0};
        int base = *at == 'x' ? 16 : 8, count = 0;
        at += base == 16;
        while (count < (base == 16 ? 2 : 3) && *at && strchr(base == 16 ? "0123456789abcdefABCDEF" : "01234567", *at))
            digits[count++] = *at++;
        add_char(out, (char)strtol(digits, NULL, base));
    } else {
        add_char(out, '\\');
        if (*at) add_char(out, *at++);
    }
    *from = at;
    return true;
}

TOOL(echo)
{
    bool newline = true, escapes = false;
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] && !argv[at][strspn(argv[at] + 1, "neE") + 1]; at++)
        for (const char *sign = argv[at] + 1; *sign; sign++) {
            if (*sign == 'n') newline = false;
            else escapes = *sign == 'e';
        }
    struct text out = {0};
    for (int first = at; at < argc; at++) {
        if (at > first) add_char(&out, ' ');
        if (!escapes) {
            add(&out, argv[at], strlen(argv[at]));
            continue;
        }
        for (const char *sign = argv[at]; *sign;) {
            if (*sign != '\\') add_char(&out, *sign++);
            else if (!escaped(&sign, &out)) return fwrite(out.data, 1, out.size, stdout) != out.size;
        }
    }
    if (newline) add_char(&out, '\n');
    return out.size && fwrite(out.data, 1, out.size, stdout) != out.size;
}

TOOL(printf)
{
    if (argc < 2) return wrong("missing", "a format");
    int next = 2;
    do {
        int before = next;
        for (const char *at = argv[1]; *at;) {
            struct text out = {0};
            if (*at == '\\') {
                bool goes_on = escaped(&at, &out);
                if (out.size) fwrite(out.data, 1, out.size, stdout);
                if (!goes_on) return 0;
                continue;
            }
            if (*at != '%' || at[1] == '%') {
                putchar(*at);
                at += *at == '%' ? 2 : 1;
                continue;
            }
            size_t size = strspn(at + 1, "-+ #0123456789.") + 1;
            char kind = at[size], form[64];
            if (size > 50) return wrong("a format that is too long", at);
            memcpy(form, at, size);
            const char *value = next < argc ? argv[next++] : "";
            if (kind == 's') {
                strcpy(form + size, "s");
                printf(form, value);
            } else if (kind && strchr("dixXou", kind)) {
                sprintf(form + size, "ll%c", kind);
                printf(form, strtoll(value, NULL, 0));
            } else if (kind && strchr("feEgG", kind)) {
                sprintf(form + size, "%c", kind);
                printf(form, strtod(value, NULL));
            } else if (kind == 'c') {
                if (*value) putchar(*value);
            } else if (kind == 'b') {
                for (const char *sign = value; *sign;) {
                    if (*sign != '\\') add_char(&out, *sign++);
                    else if (!escaped(&sign, &out)) break;
                }
                fwrite(out.data, 1, out.size, stdout);
            } else {
                return wrong("a format that is not known", at);
            }
            at += size + 1;
        }
        if (next == before) break;
    } while (next < argc);
    return 0;
}

TOOL(env)
{
    if (argc > 1) return wrong("no program is started from here", argv[1]);
    for (char **each = environ; *each; each++)
        if (strncmp(*each, "PWD=", 4)) puts(*each);
    return 0;
}

TOOL(printenv)
{
    int code = 0;
    if (argc < 2) return tool_env(argc, argv);
    for (int at = 1; at < argc; at++) {
        const char *value = getenv(argv[at]);
        if (value) puts(value);
        else code = 1;
    }
    return code;
}

TOOL(basename)
{
    if (argc < 2) return wrong("missing", "a name");
    char *name = copy(argv[1]);
    size_t size = strlen(name);
    while (size > 1 && name[size - 1] == '/') name[--size] = 0;
    name = copy(last_part(name));
    size = strlen(name);
    size_t end = argc > 2 ? strlen(argv[2]) : 0;
    if (end && end < size && !strcmp(name + size - end, argv[2])) name[size - end] = 0;
    puts(name);
    return 0;
}

TOOL(dirname)
{
    if (argc < 2) return wrong("missing", "a name");
    char *name = copy(argv[1]);
    size_t size = strlen(name);
    while (size > 1 && name[size - 1] == '/') name[--size] = 0;
    char *slash = strrchr(name, '/');
    if (slash == name) slash[1] = 0;
    else if (slash) *slash = 0;
    puts(slash ? name : ".");
    return 0;
}

TOOL(sleep)
{
    for (int at = 1; at < argc; at++) {
        char *unit;
        double seconds = strtod(argv[at], &unit);
        seconds *= *unit == 'm' ? 60 : *unit == 'h' ? 3600 : 1;
        if (unit == argv[at] || seconds < 0) return wrong("is no time", argv[at]);
        struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        nanosleep(&time, NULL);
    }
    return 0;
}

TOOL(yes)
{
    const char *word = argc > 1 ? argv[1] : "y";
    while (puts(word) >= 0) {}
    return 1;
}

TOOL(seq)
{
    double first = 1, step = 1, last;
    if (argc < 2 || argc > 4) return wrong("takes", "LAST, FIRST LAST or FIRST STEP LAST");
    last = strtod(argv[argc - 1], NULL);
    if (argc > 2) first = strtod(argv[1], NULL);
    if (argc > 3) step = strtod(argv[2], NULL);
    if (step == 0) return wrong("is no step", argv[2]);
    for (long count = 0;; count++) {
        double now = first + (double)count * step;
        if (step > 0 ? now > last : now < last) return 0;
        if (printf("%.10g\n", now) < 0) return 1;
    }
}

TOOL(tee)
{
    bool append = argc > 1 && !strcmp(argv[1], "-a");
    int code = 0, first = append ? 2 : 1, count = 0;
    FILE **files = take(sizeof *files * (size_t)argc);
    for (int at = first; at < argc; at++) {
        FILE *file = fopen(argv[at], append ? "ab" : "wb");
        if (file) files[count++] = file;
        else code = complain(argv[at]);
    }
    char piece[65536];
    size_t size;
    while ((size = fread(piece, 1, sizeof piece, stdin)) > 0) {
        if (fwrite(piece, 1, size, stdout) != size) code = 1;
        for (int at = 0; at < count; at++)
            if (fwrite(piece, 1, size, files[at]) != size) code = complain("write error");
    }
    for (int at = 0; at < count; at++)
        if (fclose(files[at])) code = complain("write error");
    return code;
}

/* --- test ----------------------------------------------------------------------------------------------------------- */

static int test_one(const char *word, const char *value)
{
    struct stat status;
    bool is_there = !stat(value, &status);
    switch (word[1]) {
    case 'z': return !*value;
    case 'n': return *value != 0;
    case 'e': return is_there;
    case 'f': return is_there && S_ISREG(status.st_mode);
    case 'd': return is_there && S_ISDIR(status.st_mode);
    case 's': return is_there && status.st_size > 0;
    case 'L': case 'h': return !lstat(value, &status) && S_ISLNK(status.st_mode);
    case 'r': case 'w': case 'x': return is_there;
    default: return -1;
    }
}

static int test_two(const char *a, const char *word, const char *b)
{
    long long left = strtoll(a, NULL, 10), right = strtoll(b, NULL, 10);
    if (!strcmp(word, "=") || !strcmp(word, "==")) return !strcmp(a, b);
    if (!strcmp(word, "!=")) return strcmp(a, b) != 0;
    if (!strcmp(word, "-eq")) return left == right;
    if (!strcmp(word, "-ne")) return left != right;
    if (!strcmp(word, "-lt")) return left < right;
    if (!strcmp(word, "-le")) return left <= right;
    if (!strcmp(word, "-gt")) return left > right;
    if (!strcmp(word, "-ge")) return left >= right;
    return -1;
}

TOOL(test)
{
    bool negated = false;
    if (!strcmp(self, "[")) {
        if (strcmp(argv[argc - 1], "]")) return wrong("missing", "]");
        argc--;
    }
    argv++, argc--;
    if (argc && !strcmp(argv[0], "!")) negated = true, argv++, argc--;
    int truth = argc == 0 ? 0 : argc == 1 ? *argv[0] != 0 : argc == 2 ? test_one(argv[0], argv[1])
                : argc == 3 ? test_two(argv[0], argv[1], argv[2]) : -1;
    if (truth < 0) return wrong("is not known here", argc > 1 ? argv[argc == 2 ? 0 : 1] : "");
    return truth != negated ? 0 : 1;
}
