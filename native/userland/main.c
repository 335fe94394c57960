/* Chooses the tool, and what all of them share. */
#include "tools.h"

#include <sys/stat.h>
#include <unistd.h>

const char *self = "tool";

static const struct {
    const char *name;
    tool run;
} TOOLS[] = {
    {":", tool_true}, {"[", tool_test}, {"basename", tool_basename}, {"cat", tool_cat}, {"cp", tool_cp}, {"cut", tool_cut},
    {"diff", tool_diff}, {"dirname", tool_dirname}, {"echo", tool_echo}, {"env", tool_env}, {"false", tool_false},
    {"find", tool_find}, {"grep", tool_grep}, {"head", tool_head}, {"jq", tool_jq}, {"ls", tool_ls},
    {"mkdir", tool_mkdir}, {"mv", tool_mv}, {"printenv", tool_printenv}, {"printf", tool_printf}, {"pwd", tool_pwd}, {"rm", tool_rm},
    {"rmdir", tool_rmdir}, {"sed", tool_sed}, {"seq", tool_seq}, {"sleep", tool_sleep}, {"sort", tool_sort},
    {"tac", tool_tac}, {"tail", tool_tail}, {"tar", tool_tar}, {"tee", tool_tee}, {"test", tool_test},
    {"touch", tool_touch}, {"tr", tool_tr}, {"true", tool_true}, {"uniq", tool_uniq}, {"wc", tool_wc},
    {"yes", tool_yes},
};

int main(int argc, char **argv)
{
    if (argc < 1) return 127;
    self = last_part(argv[0]);
    /* A module starts at the root; where the caller is, is said by a variable. */
    const char *place = getenv("PWD");
    if (place) chdir(place);
    for (size_t at = 0; at < sizeof TOOLS / sizeof *TOOLS; at++)
        if (!strcmp(TOOLS[at].name, self)) return close_output(TOOLS[at].run(argc, argv));
    fprintf(stderr, "%s: there is no such tool\n", self);
    return 127;
}

void *retake(void *old, size_t size)
{
    void *made = realloc(old, size ? size : 1);
    if (!made) {
        fprintf(stderr, "%s: out of memory\n", self);
        exit(3);
    }
    return made;
}

void *take(size_t size) { return retake(NULL, size); }

char *copy(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(take(size), text, size);
}

void add(struct text *text, const char *data, size_t size)
{
    if (text->size + size + 1 > text->room) {
        text->room = (text->size + size + 1) * 2;
        text->data = retake(text->data, text->room);
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = 0;
}

void add_char(struct text *text, char sign) { add(text, &sign, 1); }

char *joined(const char *directory, const char *name)
{
    size_t size = strlen(directory);
    char *made = take(size + strlen(name) + 2);
    sprintf(made, "%s%s%s", directory, size && directory[size - 1] == '/' ? "" : "/", name);
    return made;
}

const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int complain(const char *about)
{
    int number = errno;
    fflush(stdout);
    fprintf(stderr, "%s: %s: %s\n", self, about, strerror(number));
    return 1;
}

int wrong(const char *what, const char *value)
{
    fflush(stdout);
    fprintf(stderr, "%s: %s: %s\n", self, what, value);
    return 2;
}

bool read_line(FILE *file, struct line *line)
{
    struct text text = {0};
    int sign;
    add(&text, "", 0);
    while ((sign = getc(file)) != EOF && sign != '\n') add_char(&text, (char)sign);
    line->data = text.data, line->size = text.size, line->ended = sign == '\n';
    if (sign == EOF && !text.size) {
        free(text.data);
        return false;
    }
    return true;
}

bool read_all(FILE *file, struct text *text)
{
    char piece[65536];
    size_t count;
    add(text, "", 0);
    while ((count = fread(piece, 1, sizeof piece, file)) > 0) add(text, piece, count);
    return !ferror(file);
}

FILE *open_input(const char *name)
{
    if (!strcmp(name, "-")) return stdin;
    if (is_directory(name)) {
        errno = EISDIR;
        complain(name);
        return NULL;
    }
    FILE *file = fopen(name, "rb");
    if (!file) complain(name);
    return file;
}

int close_output(int code)
{
    if (fflush(stdout) || ferror(stdout)) {
        if (errno != EPIPE) complain("write error");
        return code ? code : 1;
    }
    return code;
}

bool is_directory(const char *path)
{
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

int each_input(int argc, char **argv, int first, int (*work)(FILE *, const char *, void *), void *with)
{
    int code = 0;
    if (first >= argc) return work(stdin, "-", with);
    for (int at = first; at < argc; at++) {
        FILE *file = open_input(argv[at]);
        if (!file) {
            code = 1;
            continue;
        }
        int done = work(file, argv[at], with);
        if (done) code = done;
        if (file != stdin) fclose(file);
    }
    return code;
}
