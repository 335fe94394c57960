/* grep and sed, on the C library's regular expressions. */
#include "tools.h"

#include <ctype.h>
#include <dirent.h>
#include <getopt.h>
#include <regex.h>
#include <sys/stat.h>

/* --- grep ----------------------------------------------------------------------------------------------------------- */

static struct {
    regex_t *patterns;
    size_t count;
    bool invert, number, names, no_names, count_only, list, list_without, quiet, recursive, only, whole, silent;
    int flags;
    long after, before, most;
    const char *include;
} grep;

static int add_pattern(const char *text, bool fixed, bool word)
{
    struct text made = {0};
    bool extended = grep.flags & REG_EXTENDED;
    if (word) add(&made, extended || fixed ? "\\b(" : "\\b\\(", extended || fixed ? 3 : 4);
    for (; *text; text++) {
        if (fixed && strchr("\\.[]*^$+?(){}|", *text) && (grep.flags & REG_EXTENDED || strchr("\\.[]*^$", *text))) add_char(&made, '\\');
        add_char(&made, *text);
    }
    if (word) add(&made, extended || fixed ? ")\\b" : "\\)\\b", extended || fixed ? 3 : 4);
    grep.patterns = retake(grep.patterns, (grep.count + 1) * sizeof *grep.patterns);
    int number = regcomp(&grep.patterns[grep.count], made.data ? made.data : "", grep.flags);
    if (number) {
        char why[200];
        regerror(number, &grep.patterns[grep.count], why, sizeof why);
        return wrong("is no pattern", why);
    }
    grep.count++;
    return 0;
}

static bool match(const char *text, regmatch_t *found, int flags)
{
    bool any = false;
    for (size_t at = 0; at < grep.count; at++) {
        regmatch_t one;
        if (regexec(&grep.patterns[at], text, 1, &one, flags)) continue;
        if (grep.whole && (one.rm_so || text[one.rm_eo])) continue;
        if (!any || one.rm_so < found->rm_so) *found = one;
        any = true;
    }
    return any;
}

static void show_line(const char *name, long number, char sign, const char *text, size_t size)
{
    if (grep.names) printf("%s%c", name, sign);
    if (grep.number) printf("%ld%c", number, sign);
    fwrite(text, 1, size, stdout);
    putchar('\n');
}

/* 0 if something was found, as grep exits. */
static int grep_one(FILE *file, const char *name, void *with)
{
    struct text all = {0};
    (void)with;
    if (!read_all(file, &all)) return complain(name), 2;
    bool is_binary = memchr(all.data, 0, all.size) != NULL;
    long number = 0, hits = 0, last_shown = 0, until = 0;
    for (size_t at = 0; at < all.size;) {
        char *end = memchr(all.data + at, '\n', all.size - at);
        size_t size = end ? (size_t)(end - all.data) - at : all.size - at;
        char *line = all.data + at;
        if (end) *end = 0;
        number++;
        regmatch_t found;
        if (match(line, &found, 0) != grep.invert) {
            hits++;
            if (grep.quiet) return 0;
            if (grep.count_only || grep.list || grep.list_without) {
            } else if (is_binary) {
                printf("%s: binary file matches\n", name);
                free(all.data);
                return 0;
            } else if (grep.only && !grep.invert) {
                for (char *rest = line; *rest && match(rest, &found, rest == line ? 0 : REG_NOTBOL);) {
                    if (found.rm_eo > found.rm_so)
                        show_line(name, number, ':', rest + found.rm_so, (size_t)(found.rm_eo - found.rm_so));
                    rest += found.rm_eo > found.rm_so ? found.rm_eo : found.rm_eo + 1;
                }
            } else {
                if (grep.before || grep.after) {
                    /* Walk back over lines that were ended with a zero already. */
                    char *starts[64];
                    long from = number - grep.before > last_shown ? number - grep.before : last_shown + 1, many = 0;
                    char *back = line;
                    while (many < number - from && many < 64 && back > all.data) {
                        char *stop = back - 1;
                        while (stop > all.data && stop[-1]) stop--;
                        starts[many++] = back = stop;
                    }
                    if (last_shown && number - many > last_shown + 1) puts("--");
                    while (many-- > 0) show_line(name, number - many - 1, '-', starts[many], strlen(starts[many]));
                }
                show_line(name, number, ':', line, size);
                last_shown = number;
                until = number + grep.after;
            }
            if (grep.most && hits >= grep.most) break;
        } else if (number <= until) {
            show_line(name, number, '-', line, size);
            last_shown = number;
        }
        at += size + 1;
    }
    if (grep.list && hits) puts(name);
    if (grep.list_without && !hits) puts(name);
    if (grep.count_only) {
        if (grep.names) printf("%s:", name);
        printf("%ld\n", hits);
    }
    free(all.data);
    return hits ? 0 : 1;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool fits(const char *name)
{
    if (!grep.include) return true;
    size_t size = strlen(grep.include), length = strlen(name);
    if (grep.include[0] == '*') return length >= size - 1 && !strcmp(name + length - (size - 1), grep.include + 1);
    return !strcmp(grep.include, name);
}

static int grep_path(const char *path)
{
    if (!is_directory(path)) {
        FILE *file = fopen(path, "rb");
        if (!file) return grep.silent ? 2 : (complain(path), 2);
        int code = grep_one(file, path, NULL);
        fclose(file);
        return code;
    }
    DIR *directory = opendir(path);
    if (!directory) return complain(path), 2;
    char **names = take(sizeof *names);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            names = retake(names, (count + 1) * sizeof *names);
            names[count++] = copy(entry->d_name);
        }
    closedir(directory);
    qsort(names, count, sizeof *names, by_name);
    int code = 1;
    for (size_t at = 0; at < count; at++) {
        char *inner = strcmp(path, ".") ? joined(path, names[at]) : names[at];
        struct stat status;
        if (lstat(inner, &status) || S_ISLNK(status.st_mode) || (!S_ISDIR(status.st_mode) && !fits(names[at]))) continue;
        int done = grep_path(inner);
        if (done != 1 && code != 2) code = done;
    }
    return code;
}

TOOL(grep)
{
    static const struct option LONG[] = {{"include", required_argument, NULL, 1000}, {"color", optional_argument, NULL, 1001}, {0}};
    int option, code = 1;
    bool fixed = false, word = false, has_pattern = false;
    char *given[64];
    int many = 0;
    while ((option = getopt_long(argc, argv, "ivnclLqrRhHEFGwxose:A:B:C:m:", LONG, NULL)) != -1) switch (option) {
        case 'i': grep.flags |= REG_ICASE; break;
        case 'v': grep.invert = true; break;
        case 'n': grep.number = true; break;
        case 'c': grep.count_only = true; break;
        case 'l': grep.list = true; break;
        case 'L': grep.list_without = true; break;
        case 'q': grep.quiet = true; break;
        case 'r': case 'R': grep.recursive = true; break;
        case 'h': grep.no_names = true; break;
        case 'H': grep.names = true; break;
        case 'E': grep.flags |= REG_EXTENDED; break;
        case 'F': fixed = true; break;
        case 'G': break;
        case 'w': word = true; break;
        case 'x': grep.whole = true; break;
        case 'o': grep.only = true; break;
        case 's': grep.silent = true; break;
        case 'A': grep.after = strtol(optarg, NULL, 10); break;
        case 'B': grep.before = strtol(optarg, NULL, 10); break;
        case 'C': grep.before = grep.after = strtol(optarg, NULL, 10); break;
        case 'm': grep.most = strtol(optarg, NULL, 10); break;
        case 'e': has_pattern = true; if (many < 64) given[many++] = optarg; break;
        case 1000: grep.include = optarg; break;
        case 1001: break;
        default: return 2;
        }
    if (!has_pattern) {
        if (optind >= argc) return wrong("missing", "a pattern");
        given[many++] = argv[optind++];
    }
    if (word) grep.flags |= REG_EXTENDED;
    for (int at = 0; at < many; at++)
        for (char *next = copy(given[at]), *text; (text = next);) {
            next = strchr(text, '\n');
            if (next) *next++ = 0;
            int bad = add_pattern(text, fixed, word);
            if (bad) return bad;
        }
    if (!grep.no_names && (grep.recursive || argc - optind > 1)) grep.names = true;
    if (grep.recursive && optind >= argc) return grep_path(".");
    if (optind >= argc) return grep_one(stdin, "(standard input)", NULL);
    for (int at = optind; at < argc; at++) {
        int done;
        if (grep.recursive) {
            done = grep_path(argv[at]);
        } else {
            FILE *file = open_input(argv[at]);
            done = file ? grep_one(file, argv[at], NULL) : 2;
            if (file && file != stdin) fclose(file);
        }
        if (done == 0 && code == 1) code = 0;
        if (done == 2) code = 2;
        if (!done && grep.quiet) return 0;
    }
    return code;
}

/* --- sed ------------------------------------------------------------------------------------------------------------ */

struct address {
    enum { NONE, NUMBER, LAST, PATTERN } kind;
    long number;
    regex_t pattern;
};

struct command {
    struct address first, second;
    bool negated, in_range, global, print, to_end;
    long which;
    char verb;
    regex_t pattern;
    char *text;
};

static struct {
    struct command all[200];
    size_t count;
    bool quiet, extended;
} sed;

static char *until(const char **from, char end)
{
    struct text made = {0};
    const char *at = *from;
    add(&made, "", 0);
    for (; *at && *at != end; at++) {
        if (*at == '\\' && at[1] == end) at++;
        else if (*at == '\\' && at[1]) add_char(&made, *at++);
        else if (*at == '[') {
            do add_char(&made, *at++);
            while (*at && *at != ']' && *at != end);
            if (*at != ']') { at--; continue; }
        }
        if (*at) add_char(&made, *at);
    }
    *from = *at ? at + 1 : NULL;
    return made.data;
}

static bool compile(regex_t *pattern, const char *text, int flags)
{
    struct text made = {0};
    add(&made, "", 0);
    for (; *text; text++) {
        if (*text == '\\' && text[1] == 'n') add_char(&made, '\n'), text++;
        else if (*text == '\\' && text[1] == 't') add_char(&made, '\t'), text++;
        else if (*text == '\\' && text[1]) add(&made, text, 2), text++;
        else add_char(&made, *text);
    }
    return !regcomp(pattern, made.data, flags | (sed.extended ? REG_EXTENDED : 0));
}

static const char *read_address(const char *at, struct address *address)
{
    if (isdigit((unsigned char)*at)) {
        char *end;
        address->kind = NUMBER, address->number = strtol(at, &end, 10);
        return end;
    }
    if (*at == '$') {
        address->kind = LAST;
        return at + 1;
    }
    if (*at == '/') {
        at++;
        char *text = until(&at, '/');
        if (!at || !compile(&address->pattern, text, 0)) return NULL;
        address->kind = PATTERN;
    }
    return at;
}

static int read_script(const char *script)
{
    for (const char *at = script; *at;) {
        while (*at && strchr(" \t\n;", *at)) at++;
        if (!*at || *at == '#') {
            while (*at && *at != '\n') at++;
            continue;
        }
        if (sed.count == sizeof sed.all / sizeof *sed.all) return wrong("more commands than are taken", script);
        struct command *command = &sed.all[sed.count];
        const char *begin = at;
        at = read_address(at, &command->first);
        if (at && *at == ',') at = read_address(at + 1, &command->second);
        if (!at) return wrong("an address that cannot be read", begin);
        while (*at == ' ') at++;
        if (*at == '!') command->negated = true, at++;
        command->verb = *at;
        if (!*at || !strchr("spdqaicy=n", *at)) return wrong("a command that is not known here", begin);
        at++;
        if (strchr("aic", command->verb)) {
            if (*at == '\\') at++;
            while (*at == ' ' || *at == '\n') at++;
            const char *end = strchr(at, '\n');
            size_t size = end ? (size_t)(end - at) : strlen(at);
            command->text = copy(at);
            command->text[size] = 0;
            at += size;
        } else if (command->verb == 's' || command->verb == 'y') {
            char end = *at++;
            char *pattern = end ? until(&at, end) : NULL;
            command->text = at && pattern ? until(&at, end) : NULL;
            if (!at || !command->text) return wrong("a command without its end", begin);
            int flags = 0;
            for (; *at && !strchr(" ;\n", *at); at++) {
                if (*at == 'g') command->global = true;
                else if (*at == 'p') command->print = true;
                else if (*at == 'i' || *at == 'I') flags = REG_ICASE;
                else if (isdigit((unsigned char)*at)) command->which = command->which * 10 + (*at - '0');
                else return wrong("a flag that is not known here", begin);
            }
            if (command->verb == 'y') {
                if (strlen(pattern) != strlen(command->text)) return wrong("two lists of other lengths", begin);
                struct text both = {0};
                add(&both, pattern, strlen(pattern));
                add(&both, command->text, strlen(command->text));
                command->text = both.data;
            } else if (!compile(&command->pattern, pattern, flags)) {
                return wrong("is no pattern", pattern);
            }
        }
        sed.count++;
    }
    return 0;
}

static bool is_at(const struct address *address, const char *line, long number, bool last)
{
    switch (address->kind) {
    case NUMBER: return number == address->number;
    case LAST: return last;
    case PATTERN: return !regexec(&address->pattern, line, 0, NULL, 0);
    default: return true;
    }
}

static bool applies(struct command *command, const char *line, long number, bool last)
{
    bool is_in;
    if (command->second.kind == NONE) {
        is_in = is_at(&command->first, line, number, last);
    } else if (command->in_range) {
        is_in = true;
        if (command->second.kind == NUMBER ? number >= command->second.number : is_at(&command->second, line, number, last))
            command->in_range = false;
    } else {
        is_in = is_at(&command->first, line, number, last);
        command->in_range = is_in && !(command->second.kind == NUMBER && command->second.number <= number);
    }
    return is_in != command->negated;
}

static bool substitute(struct command *command, struct text *line)
{
    struct text made = {0};
    const char *at = line->data;
    long nth = 0;
    bool any = false;
    regmatch_t found[10];
    add(&made, "", 0);
    while (!regexec(&command->pattern, at, 10, found, at == line->data ? 0 : REG_NOTBOL)) {
        nth++;
        add(&made, at, (size_t)found[0].rm_so);
        if (command->which && nth < command->which) {
            add(&made, at + found[0].rm_so, (size_t)(found[0].rm_eo - found[0].rm_so));
        } else {
            any = true;
            for (const char *sign = command->text; *sign; sign++) {
                int group = *sign == '&' ? 0 : *sign == '\\' && isdigit((unsigned char)sign[1]) ? sign[1] - '0' : -1;
                if (*sign == '\\' && sign[1]) {
                    sign++;
                    if (group < 0) add_char(&made, *sign == 'n' ? '\n' : *sign == 't' ? '\t' : *sign);
                } else if (group < 0) {
                    add_char(&made, *sign);
                }
                if (group >= 0 && found[group].rm_so >= 0)
                    add(&made, at + found[group].rm_so, (size_t)(found[group].rm_eo - found[group].rm_so));
            }
        }
        bool empty = found[0].rm_eo == found[0].rm_so;
        at += found[0].rm_eo;
        if (empty && *at) add_char(&made, *at++);
        if (!*at && (empty || found[0].rm_eo)) {
            if (empty || !command->global || !*at) break;
        }
        if (any && !command->global) break;
    }
    add(&made, at, strlen(at));
    free(line->data);
    *line = made;
    return any;
}

static int edit(FILE *in, FILE *out)
{
    struct line now, next;
    long number = 0;
    bool has = read_line(in, &now);
    while (has) {
        bool more = read_line(in, &next), dropped = false, ends = false;
        struct text line = {now.data, now.size, now.size + 1}, after = {0};
        number++;
        for (size_t at = 0; at < sed.count && !dropped && !ends; at++) {
            struct command *command = &sed.all[at];
            if (!applies(command, line.data, number, !more)) continue;
            switch (command->verb) {
            case 's':
                if (substitute(command, &line) && command->print) fprintf(out, "%s\n", line.data);
                break;
            case 'y': {
                size_t half = strlen(command->text) / 2;
                for (size_t sign = 0; sign < line.size; sign++) {
                    char *where = memchr(command->text, line.data[sign], half);
                    if (where) line.data[sign] = where[half];
                }
                break;
            }
            case 'p': fwrite(line.data, 1, line.size, out), putc('\n', out); break;
            case '=': fprintf(out, "%ld\n", number); break;
            case 'd': dropped = true; break;
            case 'q': ends = true; break;
            case 'i': fprintf(out, "%s\n", command->text); break;
            case 'c':
                if (!command->in_range) fprintf(out, "%s\n", command->text);
                dropped = true;
                break;
            case 'a': add(&after, command->text, strlen(command->text)), add_char(&after, '\n'); break;
            default: break;
            }
        }
        if (!dropped && !sed.quiet) {
            fwrite(line.data, 1, line.size, out);
            if (now.ended || more) putc('\n', out);
        }
        if (after.size) fwrite(after.data, 1, after.size, out);
        free(line.data);
        if (ends) break;
        now = next, has = more;
    }
    return 0;
}

TOOL(sed)
{
    int option, code = 0;
    bool in_place = false, has_script = false;
    while ((option = getopt(argc, argv, "nEre:if:s")) != -1) switch (option) {
        case 'n': sed.quiet = true; break;
        case 'E': case 'r': sed.extended = true; break;
        case 'i': in_place = true; break;
        case 'e': has_script = true; if ((code = read_script(optarg))) return code; break;
        case 's': break;
        default: return wrong("is not known here", argv[optind - 1]);
        }
    if (!has_script) {
        if (optind >= argc) return wrong("missing", "a script");
        if ((code = read_script(argv[optind++]))) return code;
    }
    if (optind >= argc) return edit(stdin, stdout);
    for (int at = optind; at < argc; at++) {
        FILE *in = open_input(argv[at]), *out = stdout;
        char *scratch = joined(".", ".sed-new");
        if (!in) {
            code = 1;
            continue;
        }
        if (in_place && !(out = fopen(scratch, "wb"))) return complain(argv[at]);
        edit(in, out);
        if (in != stdin) fclose(in);
        if (in_place && (fclose(out) || rename(scratch, argv[at]))) code = complain(argv[at]);
    }
    return code;
}
