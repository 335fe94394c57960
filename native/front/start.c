/* Starts a keeper: a process that outlives us, with nothing of ours but what makes the name of its place.
 *
 * Whoever holds the lock beside the socket is the keeper, or becomes it: the lock is taken here and inherited, so that
 * of many first callers one starts a keeper, and it stays taken until that one has ended, however it ended.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "front.h"

enum { LOCK = 3, DIRECTORY = 4, FIRST_FREE = 5, MOST_KEEPERS = 8 };

/* Each kind of caller has one; who calls from ever new ones (containers, sessions) must not fill the memory. */
static bool is_room(const struct place *place)
{
    int copy = openat(place->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), taken = 0;
    DIR *listing = copy < 0 ? NULL : fdopendir(copy);
    if (listing == NULL)
        return false;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".lock") != 0)
            continue;
        int lock = openat(place->directory, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) != 0)
            taken++;
        if (lock >= 0)
            close(lock);
    }
    closedir(listing);
    return taken < MOST_KEEPERS;
}

static int take_lock(const struct place *place)
{
    char name[32];
    snprintf(name, sizeof name, "%s.lock", place->name);
    int lock = openat(place->directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0) {
        close(lock);
        return -1;
    }
    return lock;
}

static void be_nobodys(void)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &usual, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(077);
    if (chdir("/") != 0)
        _exit(1);
}

static void only_these(int lock, int directory)
{
    /* First out of the way of the numbers that they get. */
    lock = fcntl(lock, F_DUPFD, FIRST_FREE + 2);
    directory = fcntl(directory, F_DUPFD, FIRST_FREE + 2);
    int nothing = open("/dev/null", O_RDWR);
    nothing = nothing < 0 ? -1 : fcntl(nothing, F_DUPFD, FIRST_FREE + 2);
    if (lock < 0 || directory < 0 || nothing < 0)
        _exit(1);
    for (int number = 0; number < 3; number++)
        dup2(nothing, number);
    if (dup2(lock, LOCK) < 0 || dup2(directory, DIRECTORY) < 0 || syscall(SYS_close_range, FIRST_FREE, ~0u, 0) != 0)
        _exit(1);
}

static char **image_variables(void)
{
    size_t count = 0, at = 0;
    while (environ[count] != NULL)
        count++;
    char **kept = calloc(count + 1, sizeof *kept);
    for (char **entry = environ; kept != NULL && *entry != NULL; entry++)
        if (is_of_the_image(*entry))
            kept[at++] = *entry;
    return kept;
}

void start_keeper(const struct place *place, const char *script)
{
    pid_t child = fork();
    if (child < 0)
        return;
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        return;
    }
    int lock = is_room(place) ? take_lock(place) : -1;
    char **variables = image_variables();
    if (lock < 0 || variables == NULL || setsid() < 0 || fork() != 0)
        _exit(0);
    char name[sizeof place->name];
    snprintf(name, sizeof name, "%s", place->name);
    be_nobodys();
    only_these(lock, place->directory);
    char *words[] = {(char *)script, "keeper", "serve", name, NULL};
    execve(script, words, variables);
    _exit(1);
}
