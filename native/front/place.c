/* Where the keeper of a caller like this one is, if there is one.
 *
 * A child of a keeper takes over what a process can take over: descriptors, directory, environment, umask. What it
 * cannot (namespaces, cgroup, privileges, limits, and what an interpreter reads once) must be the same for both, so it
 * makes the name: callers who differ in it have different keepers. The keeper looks at its caller too, by itself; the
 * name only leads each to the right one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "front.h"

/* One for each of these is read when an interpreter or one of its modules is loaded. src/ringfence/keeper/image.py has
 * the same list; a test compares them. */
static const char *const IMAGE[] = {
    /* begin image */
    "PYTHON*", "LC_*", "LANG=", "LANGUAGE=", "LD_*", "GLIBC_TUNABLES=", "MALLOC_*", "OPENSSL_*", "SSL_*", "TYPER_*",
    "_TYPER_*", "TERMINAL_WIDTH=", "GITHUB_ACTIONS=", "FORCE_COLOR=", "PY_COLORS=", "NO_COLOR=", "RINGFENCE_KEEPER_*",
    /* end image */
};

bool is_of_the_image(const char *entry)
{
    for (size_t i = 0; i < sizeof IMAGE / sizeof *IMAGE; i++) {
        size_t length = strcspn(IMAGE[i], "*");
        if (strncmp(entry, IMAGE[i], length) == 0)
            return true;
    }
    return false;
}

/* FNV-1a; whoever finds two that are alike gets a keeper that says no. */
static uint64_t mix(uint64_t sum, const void *data, size_t size)
{
    for (const unsigned char *at = data, *end = at + size; at < end; at++)
        sum = (sum ^ *at) * 0x100000001b3u;
    return sum;
}

static uint64_t mix_file(uint64_t sum, const char *path, const char *until)
{
    char text[4096];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[size > 0 ? size : 0] = '\0';
    const char *end = until ? strstr(text, until) : NULL;
    return mix(sum, text, end ? (size_t)(end - text) : strlen(text));
}

static uint64_t mix_status(uint64_t sum)
{
    static const char *const lines[] = {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:",
                                        "CapAmb:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:", "Cpus_allowed:",
                                        "Mems_allowed:"};
    char text[4096];
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(text, sizeof text, file) != NULL)
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            if (strncmp(text, lines[i], strlen(lines[i])) == 0)
                sum = mix(sum, text, strlen(text));
    if (file != NULL)
        fclose(file);
    return sum;
}

static uint64_t mix_stat(uint64_t sum, const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return sum;
    uint64_t fields[] = {found.st_dev, found.st_ino, (uint64_t)found.st_mtim.tv_sec, (uint64_t)found.st_mtim.tv_nsec};
    return mix(sum, fields, sizeof fields);
}

static uint64_t surroundings(const char *script)
{
    static const char *const spaces[] = {"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time",
                                         "time_for_children", "user", "uts"};
    uint64_t sum = 0xcbf29ce484222325u;
    sum = mix(sum, script, strlen(script));
    sum = mix_stat(mix_stat(sum, script), "/proc/self/exe");
    struct stat root;
    if (stat("/", &root) == 0) {
        uint64_t fields[] = {root.st_dev, root.st_ino};
        sum = mix(sum, fields, sizeof fields);
    }
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        char path[64], value[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", spaces[i]);
        ssize_t size = readlink(path, value, sizeof value);
        sum = mix(sum, value, size > 0 ? (size_t)size : 0);
    }
    sum = mix_status(sum);
    sum = mix_file(sum, "/proc/self/cgroup", NULL);
    sum = mix_file(sum, "/proc/self/oom_score_adj", NULL);
    sum = mix_file(sum, "/proc/self/loginuid", NULL);
    sum = mix_file(sum, "/proc/self/sessionid", NULL);
    sum = mix_file(sum, "/proc/self/attr/current", NULL);
    sum = mix_file(sum, "/proc/self/personality", NULL);
    for (int which = 0; which < RLIM_NLIMITS; which++) {
        struct rlimit limit = {0, 0};
        getrlimit(which, &limit);
        uint64_t fields[] = {limit.rlim_cur, limit.rlim_max};
        sum = mix(sum, fields, sizeof fields);
    }
    int schedule[] = {getpriority(PRIO_PROCESS, 0), sched_getscheduler(0)};
    sum = mix(sum, schedule, sizeof schedule);
    for (char **entry = environ; *entry != NULL; entry++)
        if (is_of_the_image(*entry))
            sum = mix(sum, *entry, strlen(*entry) + 1);
    return sum;
}

/* Words up to `--`, or as long as they begin with a dash. Which of them take a value is not known here: two calls that
 * differ in one are told apart later. */
static uint64_t mix_options(uint64_t sum, int argc, char **argv)
{
    int end = 2;
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    if (end >= argc)
        for (end = 2; end < argc && argv[end][0] == '-';)
            end++;
    for (int i = 1; i < end && i < argc; i++)
        sum = mix(sum, argv[i], strlen(argv[i]) + 1);
    return sum;
}

uint64_t kind_of_call(int argc, char **argv, uint64_t ignored, uint64_t blocked)
{
    struct stat here;
    mode_t mask = umask(0);
    umask(mask);
    if (argc < 2 || strcmp(argv[1], "run") != 0 || stat(".", &here) != 0)
        return 0; /* no box waits for it */
    uint64_t fields[] = {here.st_dev, here.st_ino, mask, ignored, blocked};
    uint64_t sum = mix_options(mix(0xcbf29ce484222325u, fields, sizeof fields), argc, argv);
    for (char **entry = environ; *entry != NULL; entry++)
        sum = mix(sum, *entry, strlen(*entry) + 1);
    return sum ? sum : 1;
}

/* A directory, no link, of our own, that nobody else may enter. */
static int open_private(int at, const char *name, int flags)
{
    struct stat found;
    int directory = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
    if (directory < 0)
        return -1;
    if (fstat(directory, &found) == 0 && found.st_uid == getuid() && (found.st_mode & 077) == 0)
        return directory;
    close(directory);
    return -1;
}

bool find_place(struct place *place, const char *script)
{
    char usual[64];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    snprintf(usual, sizeof usual, "/run/user/%u", (unsigned)getuid());
    int top = open_private(AT_FDCWD, runtime != NULL && *runtime == '/' ? runtime : usual, 0);
    if (top < 0)
        return false;
    mkdirat(top, "ringfence", 0700);
    place->directory = open_private(top, "ringfence", O_NOFOLLOW);
    close(top);
    if (place->directory < 0)
        return false;
    snprintf(place->name, sizeof place->name, "%016llx", (unsigned long long)surroundings(script));
    return true;
}
