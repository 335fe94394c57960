/* What the parts of `ringfence`, the native front of the command line, know of each other. */
#ifndef RINGFENCE_FRONT_H
#define RINGFENCE_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern char **environ;

/* Where the keeper of this caller is to be found: a directory of ours that nobody else may enter, and a name in it. */
struct place {
    int directory;
    char name[17];
};

/* place.c: false if there is no such directory that is safe, or no keeper is wanted. */
bool find_place(struct place *place, const char *script);
/* What makes calls alike, so that a box may wait for the next: variables, directory, signals, and the words that are no
 * command. It only leads to a box; whether that is the right one is found out by whoever has it. */
uint64_t kind_of_call(int argc, char **argv, uint64_t ignored, uint64_t blocked);
/* Whether the modules of a running interpreter depend on this variable ("NAME=value"). */
bool is_of_the_image(const char *entry);

/* start.c: a keeper at `place`, run by `script`, unless somebody else is just starting one or has. */
void start_keeper(const struct place *place, const char *script);

/* handing.c: the exit code; or -1 if nothing was started, so that the plain way is open. May end by a signal. */
int hand_over(const struct place *place, int argc, char **argv, bool *absent);

#endif
