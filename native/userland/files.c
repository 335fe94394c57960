/* What makes, moves, lists and removes files. */
#include "tools.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names in a directory, in order; NULL and errno if it cannot be read. */
static char **names_in(const char *path, size_t *count)
{
    DIR *directory = opendir(path);
    if (!directory) return NULL;
    char **names = take(sizeof *names);
    struct dirent *entry;
    *count = 0;
    while ((entry = readdir(directory))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        names = retake(names, (*count + 1) * sizeof *names);
        names[(*count)++] = copy(entry->d_name);
    }
    closedir(directory);
    qsort(names, *count, sizeof *names, by_name);
    return names;
}

static struct {
    bool all, longer, one, classify, recursive, directory;
} ls;

static void show_entry(const char *path, const char *name)
{
    struct stat status;
    bool known = !lstat(path, &status);
    char kind = !known ? '?' : S_ISDIR(status.st_mode) ? 'd' : S_ISLNK(status.st_mode) ? 'l' : '-';
    if (ls.longer) {
        char when[32] = "";
        if (known) strftime(when, sizeof when, "%Y-%m-%d %H:%M", gmtime(&status.st_mtime));
        printf("%c %10lld %s ", kind, known ? (long long)status.st_size : 0, when);
    }
    fputs(name, stdout);
    if (ls.classify && kind == 'd') putchar('/');
    if (ls.longer && kind == 'l') {
        char target[4096];
        ssize_t size = readlink(path, target, sizeof target - 1);
        if (size >= 0) printf(" -> %.*s", (int)size, target);
    }
    putchar('\n');
}

static int list(const char *path, bool titled)
{
    size_t count;
    int code = 0;
    if (ls.directory || !is_directory(path)) {
        struct stat status;
        if (lstat(path, &status)) return complain(path), 2;
        show_entry(path, path);
        return 0;
    }
    char **names = names_in(path, &count);
    if (!names) return complain(path), 2;
    if (titled) printf("%s:\n", path);
    for (size_t at = 0; at < count; at++)
        if (ls.all || names[at][0] != '.') show_entry(joined(path, names[at]), names[at]);
    for (size_t at = 0; ls.recursive && at < count; at++) {
        char *inner = joined(path, names[at]);
        struct stat status;
        if ((ls.all || names[at][0] != '.') && !lstat(inner, &status) && S_ISDIR(status.st_mode)) {
            putchar('\n');
            int done = list(inner, true);
            if (done) code = done;
        }
    }
    return code;
}

TOOL(ls)
{
    int option, code = 0;
    while ((option = getopt(argc, argv, "aAl1FRdhtrS")) != -1) switch (option) {
        case 'a': case 'A': ls.all = true; break;
        case 'l': ls.longer = true; break;
        case 'F': ls.classify = true; break;
        case 'R': ls.recursive = true; break;
        case 'd': ls.directory = true; break;
        case '1': case 'h': break;
        default: return wrong("this option is not known, or not here", argv[optind - 1]);
        }
    if (optind >= argc) return list(".", ls.recursive);
    for (int at = optind; at < argc; at++) {
        int done = list(argv[at], argc - optind > 1 || ls.recursive);
        if (done) code = done;
        if (at < argc - 1 && is_directory(argv[at])) putchar('\n');
    }
    return code;
}

TOOL(mkdir)
{
    int option, code = 0;
    bool parents = false;
    while ((option = getopt(argc, argv, "pm:v")) != -1) {
        if (option == '?') return 2;
        if (option == 'p') parents = true;
    }
    for (int at = optind; at < argc; at++) {
        char *path = copy(argv[at]);
        for (char *slash = path + 1; parents && (slash = strchr(slash, '/')); slash++) {
            *slash = 0;
            mkdir(path, 0777);
            *slash = '/';
        }
        if (mkdir(path, 0777) && !(parents && errno == EEXIST && is_directory(path))) code = complain(argv[at]);
    }
    return optind < argc ? code : wrong("missing", "a name");
}

TOOL(rmdir)
{
    int code = 0;
    for (int at = 1; at < argc; at++)
        if (rmdir(argv[at])) code = complain(argv[at]);
    return code;
}

int remove_tree(const char *path)
{
    struct stat status;
    if (lstat(path, &status)) return complain(path);
    if (!S_ISDIR(status.st_mode)) return unlink(path) ? complain(path) : 0;
    size_t count;
    int code = 0;
    char **names = names_in(path, &count);
    if (!names) return complain(path);
    for (size_t at = 0; at < count; at++) code |= remove_tree(joined(path, names[at]));
    return rmdir(path) ? complain(path) : code;
}

TOOL(rm)
{
    int option, code = 0;
    bool recursive = false, force = false;
    while ((option = getopt(argc, argv, "rRfdiv")) != -1) {
        if (option == '?') return 2;
        recursive |= option == 'r' || option == 'R';
        force |= option == 'f';
    }
    for (int at = optind; at < argc; at++) {
        struct stat status;
        const char *name = last_part(argv[at]);
        if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(argv[at], "/")) {
            code = wrong("is not removed", argv[at]);
        } else if (lstat(argv[at], &status)) {
            if (!force || errno != ENOENT) code = complain(argv[at]);
        } else if (S_ISDIR(status.st_mode) && !recursive) {
            errno = EISDIR;
            code = complain(argv[at]);
        } else if (remove_tree(argv[at])) {
            code = 1;
        }
    }
    return code;
}

int copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    if (!in || !out) {
        complain(in ? to : from);
        if (in) fclose(in);
        return 1;
    }
    char piece[65536];
    size_t count;
    int code = 0;
    while ((count = fread(piece, 1, sizeof piece, in)) > 0)
        if (fwrite(piece, 1, count, out) != count) code = complain(to);
    if (ferror(in)) code = complain(from);
    fclose(in);
    return fclose(out) ? complain(to) : code;
}

static int copy_tree(const char *from, const char *to, bool recursive)
{
    if (!is_directory(from)) return copy_file(from, to);
    if (!recursive) return wrong("is a directory, and -r is not given", from), 1;
    size_t count, size = strlen(from);
    if (!strncmp(from, to, size) && to[size] == '/') return wrong("would be copied into itself", from), 1;
    if (mkdir(to, 0777) && errno != EEXIST) return complain(to);
    char **names = names_in(from, &count);
    if (!names) return complain(from);
    int code = 0;
    for (size_t at = 0; at < count; at++) code |= copy_tree(joined(from, names[at]), joined(to, names[at]), true);
    return code;
}

/* For cp and mv: each of the names but the last, into or onto the last. */
static int onto_last(int argc, char **argv, int (*work)(const char *from, const char *to, bool flag), bool flag)
{
    if (argc - optind < 2) return wrong("missing", "what, and where to");
    const char *last = argv[argc - 1];
    bool into = is_directory(last);
    int code = 0;
    if (argc - optind > 2 && !into) return wrong("is no directory", last), 1;
    for (int at = optind; at < argc - 1; at++) {
        char *from = copy(argv[at]);
        size_t size = strlen(from);
        while (size > 1 && from[size - 1] == '/') from[--size] = 0;
        code |= work(from, into ? joined(last, last_part(from)) : last, flag);
    }
    return code;
}

TOOL(cp)
{
    int option;
    bool recursive = false;
    while ((option = getopt(argc, argv, "rRafpv")) != -1) {
        if (option == '?') return 2;
        recursive |= strchr("rRa", option) != NULL;
    }
    return onto_last(argc, argv, copy_tree, recursive);
}

static int move(const char *from, const char *to, bool keep)
{
    struct stat status;
    if (keep && !lstat(to, &status)) return 0;
    return rename(from, to) ? complain(from) : 0;
}

TOOL(mv)
{
    int option;
    bool keep = false;
    while ((option = getopt(argc, argv, "fnv")) != -1) {
        if (option == '?') return 2;
        keep |= option == 'n';
    }
    return onto_last(argc, argv, move, keep);
}

TOOL(touch)
{
    int option, code = 0;
    bool make = true;
    while ((option = getopt(argc, argv, "cam")) != -1) {
        if (option == '?') return 2;
        make &= option != 'c';
    }
    for (int at = optind; at < argc; at++) {
        int descriptor = open(argv[at], O_WRONLY | (make ? O_CREAT : 0), 0666);
        if (descriptor >= 0) {
            futimens(descriptor, NULL);
            close(descriptor);
        } else if (errno == EISDIR) {
            utimensat(AT_FDCWD, argv[at], NULL, 0);
        } else if (make) {
            code = complain(argv[at]);
        }
    }
    return code;
}

/* --- find ----------------------------------------------------------------------------------------------------------- */

static struct {
    const char *name, *iname, *path;
    char kind;
    long deepest, least;
    bool remove, zero, empty;
} wanted;

static bool is_empty(const char *path, const struct stat *status)
{
    size_t count;
    if (!S_ISDIR(status->st_mode)) return S_ISREG(status->st_mode) && !status->st_size;
    return names_in(path, &count) && !count;
}

static int find(const char *path, long depth)
{
    struct stat status;
    int code = 0;
    if (lstat(path, &status)) return complain(path);
    char kind = S_ISDIR(status.st_mode) ? 'd' : S_ISLNK(status.st_mode) ? 'l' : 'f';
    const char *name = last_part(path);
    bool fits = depth >= wanted.least && (!wanted.kind || kind == wanted.kind) &&
                (!wanted.name || !fnmatch(wanted.name, name, 0)) &&
                (!wanted.iname || !fnmatch(wanted.iname, name, FNM_CASEFOLD)) &&
                (!wanted.path || !fnmatch(wanted.path, path, 0)) && (!wanted.empty || is_empty(path, &status));
    if (fits && !wanted.remove) printf("%s%c", path, wanted.zero ? 0 : '\n');
    if (kind == 'd' && depth < wanted.deepest) {
        size_t count;
        char **names = names_in(path, &count);
        if (!names) code = complain(path);
        for (size_t at = 0; names && at < count; at++) code |= find(joined(path, names[at]), depth + 1);
    }
    if (fits && wanted.remove && strcmp(path, ".") && (kind == 'd' ? rmdir(path) : unlink(path))) code = complain(path);
    return code;
}

TOOL(find)
{
    int first = 1, places, code = 0;
    while (first < argc && argv[first][0] != '-') first++;
    places = first;
    wanted.deepest = 1000;
    for (int at = first; at < argc; at++) {
        const char *word = argv[at], *value = at + 1 < argc ? argv[at + 1] : NULL;
        if (!strcmp(word, "-print")) continue;
        if (!strcmp(word, "-print0")) { wanted.zero = true; continue; }
        if (!strcmp(word, "-delete")) { wanted.remove = true; continue; }
        if (!strcmp(word, "-empty")) { wanted.empty = true; continue; }
        if (!value) return wrong("is not known, or lacks its value", word);
        at++;
        if (!strcmp(word, "-name")) wanted.name = value;
        else if (!strcmp(word, "-iname")) wanted.iname = value;
        else if (!strcmp(word, "-path")) wanted.path = value;
        else if (!strcmp(word, "-type")) wanted.kind = *value;
        else if (!strcmp(word, "-maxdepth")) wanted.deepest = strtol(value, NULL, 10);
        else if (!strcmp(word, "-mindepth")) wanted.least = strtol(value, NULL, 10);
        else return wrong("is not known here", word);
    }
    if (places == 1) return find(".", 0);
    for (int at = 1; at < places; at++) code |= find(argv[at], 0);
    return code;
}
