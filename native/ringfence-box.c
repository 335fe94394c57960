/* ringfence-box: the two small programs on either side of a wall.
 *
 *   ringfence-box launch PLAN_FD OWNER_PID   outside: prepares and starts bubblewrap, cleans up when it or its owner ends
 *   ringfence-box init CONTROL_FD            inside: PID 1; starts, reaps and kills what it is told to
 *   ringfence-box connect SOCKET             the same in a container, where nobody could pass a descriptor along
 *   ringfence-box connect SOCKET UID GID     the same in a user namespace of its own, in which it has these ids
 *   ringfence-box carry CONTROL_FD DESCRIPTION_FD DIRECTORY RUNTIME...
 *                                            outside, before a kernel of its own: carries messages over the runtime's stdio
 *   ringfence-box ferry CONTROL_FD STREAM_FD
 *                                            the same over a connection to a container engine, which has made the wall
 *   ringfence-box carried                    inside either: the other end, with init as its child
 *   ringfence-box kernel                     prints which kernel it runs on: the number of its boot, and its release
 *   ringfence-box version                    prints the protocol's version
 *
 * Python decides; this obeys. It takes no decision, reads no configuration and trusts nothing from inside.
 */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

noreturn void die_because(const char *what) {
    dprintf(2, "ringfence-box: %s\n", what);
    _exit(125);
}

noreturn void die(const char *what) {
    dprintf(2, "ringfence-box: %s: %s\n", what, strerror(errno));
    _exit(125);
}

int more(const struct words *w) { return w->at < w->end; }

char *word(struct words *w) {
    if (!more(w)) die_because("a plan ends too soon");
    char *begin = w->at;
    char *stop = memchr(begin, 0, (size_t)(w->end - begin));
    if (!stop) die_because("a word of a plan has no end");
    w->at = stop + 1;
    return begin;
}

uint64_t number(struct words *w) {
    char *text = word(w), *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || end == text || *end) die_because("a plan holds a word where a number belongs");
    return value;
}

struct words slurp(int fd) {
    struct stat info;
    if (fstat(fd, &info)) die("plan");
    if (info.st_size < 0 || info.st_size > (off_t)BODY_MAX) die_because("a plan is too large");
    size_t size = (size_t)info.st_size, got = 0;
    char *text = malloc(size + 1);
    if (!text) die("memory");
    while (got < size) {
        ssize_t n = pread(fd, text + got, size - got, (off_t)got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("plan");
        got += (size_t)n;
    }
    return (struct words){text, text + size};
}

void wipe(char *at, size_t size) {
    for (volatile char *text = at; size; size--) *text++ = 0;
}

void write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) die(path);
    size_t size = strlen(text);
    if (write(fd, text, size) != (ssize_t)size) die(path);
    close(fd);
}

void kill_children(void) {
    if (getpid() == 1) {
        kill(-1, SIGKILL);
        return;
    }
    char path[64];
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    FILE *list = fopen(path, "re");
    if (!list) die(path);
    while (fscanf(list, "%d", &pid) == 1) kill(pid, SIGKILL);
    fclose(list);
}

void own_users(uid_t inside_uid, gid_t inside_gid) {
    unsigned uid = getuid(), gid = getgid();
    char line[64];
    if (unshare(CLONE_NEWUSER)) die("user namespace");
    write_text("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%u %u 1", inside_uid, uid);
    write_text("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%u %u 1", inside_gid, gid);
    write_text("/proc/self/gid_map", line);
    int capability = 0;
    while (!prctl(PR_CAPBSET_DROP, capability)) capability++;
    if (errno != EINVAL || !capability) die("capabilities"); /* past the last one */
}

static int connected(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) die_because("the control socket's path is too long");
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die(path);
    return fd;
}

noreturn static void tell_kernel(void) {
    char boot[64] = "";
    struct utsname name;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, boot, sizeof boot - 1) <= 0) die("boot_id");
    if (uname(&name)) die("uname");
    boot[strcspn(boot, "\n")] = 0;
    dprintf(1, "%s %s\n", boot, name.release);
    _exit(0);
}

/* By way of exec, with which whoever is not uid 0 loses all capabilities: those over the new namespace, too. */
noreturn static void connect_as(const char *path, uid_t uid, gid_t gid) {
    if (!uid || !gid) die_because("nobody is to be root inside");
    own_users(uid, gid);
    execl("/proc/self/exe", "ringfence-box", "connect", path, (char *)NULL);
    die("/proc/self/exe");
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "launch")) launch(atoi(argv[2]), atoi(argv[3]));
    if ((argc == 3 || argc == 4) && !strcmp(argv[1], "init")) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL)) die("parent-death signal");
        init(atoi(argv[2]), argc == 4 ? atoi(argv[3]) : -1);
    }
    if (argc >= 6 && !strcmp(argv[1], "carry")) carry(atoi(argv[2]), atoi(argv[3]), argv[4], argv + 5);
    if (argc == 4 && !strcmp(argv[1], "ferry")) ferry(atoi(argv[2]), atoi(argv[3]));
    if (argc == 2 && !strcmp(argv[1], "carried")) carried();
    if (argc == 2 && !strcmp(argv[1], "kernel")) tell_kernel();
    /* No parent-death signal: a container's parent is a thread of somebody else's program, which may end at any time. */
    if (argc == 3 && !strcmp(argv[1], "connect")) init(connected(argv[2]), -1);
    if (argc == 5 && !strcmp(argv[1], "connect")) connect_as(argv[2], (uid_t)atoi(argv[3]), (gid_t)atoi(argv[4]));
    if (argc == 2 && !strcmp(argv[1], "version")) {
        printf("%u\n", PROTOCOL_VERSION);
        return 0;
    }
    die_because("usage: ringfence-box launch PLAN_FD OWNER_PID | init CONTROL_FD [MEMORY_FD] | connect SOCKET [UID GID] | "
                "carry CONTROL_FD DESCRIPTION_FD DIRECTORY RUNTIME... | ferry CONTROL_FD STREAM_FD | carried | kernel | version");
}
