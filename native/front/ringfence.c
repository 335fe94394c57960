/* `ringfence`: the way to Python, or to a keeper that has it ready. Nothing is decided here.
 *
 *   find ourselves -> find the keeper's place -> hand the call over -> exit as it exits
 *                                            \-> (no keeper, or it cannot take this call) -> exec ringfence-python
 *
 * `ringfence-python` is the console script that the installer has written beside us: its first line names the
 * interpreter of this environment. Neither PATH nor a variable is asked which one that is. A keeper
 * (src/ringfence/keeper/) is a process of the same user with the command line imported; it runs the very same code in
 * a child of its own, on our descriptors. Whatever fails before the call has begun leads to the plain way.
 *
 * What this does not protect against: other programs of the same user, who could replace this file as well.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "front.h"

enum { CANNOT_RUN = 125 };

static bool is_no(const char *word)
{
    static const char *const words[] = {"off", "0", "no", "false"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(word, words[i]) == 0)
            return true;
    return false;
}

/* By itself a keeper comes where a person works: not on a machine that builds, which is gone after the next command. */
static bool is_keeper_wanted(int argc, char **argv)
{
    const char *said = getenv("RINGFENCE_KEEPER");
    if (said != NULL && is_no(said))
        return false;
    if (getauxval(AT_SECURE) || getuid() != geteuid() || getgid() != getegid())
        return false;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0) /* a keeper could not tell who of its callers is walled in */
        return false;
    for (int number = 0; number < 3; number++)
        if (fcntl(number, F_GETFD) < 0) /* what we open would take its number */
            return false;
    if (argc < 1 || (argc >= 2 && strcmp(argv[1], "keeper") == 0)) /* looks at keepers, and starts none */
        return false;
    const char *building = getenv("CI");
    return (said != NULL && *said) || building == NULL || !*building || is_no(building);
}

/* By the name `ringfence-shell` it is `ringfence hook run`, for settings that take one program: SHELL and the like. */
static char **as_shell(int *argc, char **argv)
{
    char **words = calloc((size_t)*argc + 4, sizeof *words);
    if (words == NULL)
        return NULL;
    int count = 0;
    words[count++] = *argc > 0 ? argv[0] : "ringfence-shell";
    words[count++] = "hook";
    words[count++] = "run";
    for (int i = 1; i < *argc; i++)
        words[count++] = argv[i];
    *argc = count;
    return words;
}

int main(int argc, char **argv)
{
    char self[PATH_MAX], script[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        fprintf(stderr, "ringfence: error: /proc is not mounted; it is needed to find the installation\n");
        return CANNOT_RUN;
    }
    self[length] = '\0';
    if (strcmp(strrchr(self, '/'), "/ringfence-shell") == 0 && (argv = as_shell(&argc, argv)) == NULL) {
        fprintf(stderr, "ringfence: error: no memory\n");
        return CANNOT_RUN;
    }
    *strrchr(self, '/') = '\0';
    snprintf(script, sizeof script, "%s/ringfence-python", self);

    struct place place;
    if (is_keeper_wanted(argc, argv) && find_place(&place, script)) {
        bool absent = false;
        int code = hand_over(&place, argc, argv, &absent);
        if (code >= 0)
            return code;
        if (absent)
            start_keeper(&place, script);
        close(place.directory);
    }
    char *none[] = {script, NULL};
    char **words = argc < 1 ? none : argv;
    words[0] = script;
    execv(script, words);
    fprintf(stderr, "ringfence: error: cannot start %s: %s; install ringfence anew\n", script, strerror(errno));
    return CANNOT_RUN;
}
