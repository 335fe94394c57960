/* The small tools of WASI boxes, in one module: which one is meant is said by the first argument. */
#ifndef TOOLS_H
#define TOOLS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*tool)(int argc, char **argv);

struct text {
    char *data;
    size_t size, room;
};

struct line {
    char *data;
    size_t size;
    bool ended; /* by a newline */
};

void add(struct text *text, const char *data, size_t size);
void add_char(struct text *text, char sign);
void *take(size_t size);
void *retake(void *old, size_t size);
char *copy(const char *text);
char *joined(const char *directory, const char *name);
const char *last_part(const char *path);
/* Says what went wrong with a name, by errno; returns 1, the exit code of most. */
int complain(const char *about);
int wrong(const char *what, const char *value);
bool read_line(FILE *file, struct line *line);
bool read_all(FILE *file, struct text *text);
FILE *open_input(const char *name);
int close_output(int code);
bool is_directory(const char *path);
int each_input(int argc, char **argv, int first, int (*work)(FILE *file, const char *name, void *with), void *with);
int copy_file(const char *from, const char *to);
int remove_tree(const char *path);

extern const char *self;

#define TOOL(name) int tool_##name(int argc, char **argv)
TOOL(basename); TOOL(cat); TOOL(cp); TOOL(cut); TOOL(diff); TOOL(dirname); TOOL(echo); TOOL(env); TOOL(false);
TOOL(find); TOOL(grep); TOOL(head); TOOL(jq); TOOL(ls); TOOL(mkdir); TOOL(mv); TOOL(printenv); TOOL(printf); TOOL(pwd); TOOL(rm);
TOOL(rmdir); TOOL(sed); TOOL(seq); TOOL(sleep); TOOL(sort); TOOL(tac); TOOL(tail); TOOL(tar); TOOL(tee); TOOL(test);
TOOL(touch); TOOL(tr); TOOL(true); TOOL(uniq); TOOL(wc); TOOL(yes);

#endif
