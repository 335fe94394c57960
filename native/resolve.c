/* In the guardian: what a path means to the process that named it.
 *
 * Most paths are found by one call from where the caller stands, below its root. The kernel does not follow for us what is different for
 * everybody (/proc/self) or leads anywhere (/proc/PID/fd/N, cwd, root, exe), nor links that leave the directory where it began; there the
 * path is walked one name at a time, on descriptors, as the kernel walks it for the caller. So a directory that was moved, a
 * descriptor's other name and a link in the workspace that leads to one all end at the file's own path.
 *
 * What cannot be found out is said to be UNKNOWN, and the record of the command then calls itself incomplete: nothing passes unseen
 * because it is hard to see.
 */
#include "supervise.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Not in every libc's headers. Numbers are the same on all architectures that have them. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define THREAD O_EXCL             /* PIDFD_THREAD */
#define REST_SIZE (8 * PATH_SIZE) /* a link's text takes the place of its name; who needs more is not followed */
#define LINKS_MAX 40              /* the kernel's own */
#define PROC_MAGIC 0x9fa0
#define PROC_TOP 1                /* its inode number */
#define MOUNTS_MAX 4096
#define STATX_MOUNT 0x1000u

/* --- the caller's memory ----------------------------------------------------------------------------------------------- */

ssize_t peek(pid_t pid, uint64_t address, void *into, size_t size) {
    struct iovec ours = {into, size}, theirs = {(void *)(uintptr_t)address, size};
    return process_vm_readv(pid, &ours, 1, &theirs, 1, 0);
}

/* A string, page by page: it may end just before one that is not there. 0 or an errno. */
int peek_text(pid_t pid, uint64_t address, char *into) {
    size_t got = 0;
    while (got < PATH_SIZE) {
        size_t room = 4096 - ((address + got) & 4095);
        if (room > PATH_SIZE - got) room = PATH_SIZE - got;
        ssize_t n = peek(pid, address + got, into + got, room);
        if (n <= 0) return EFAULT;
        if (memchr(into + got, 0, (size_t)n)) return 0;
        got += (size_t)n;
    }
    return ENAMETOOLONG;
}

/* --- the caller -------------------------------------------------------------------------------------------------------- */

/* The last number of a line of /proc/PID/status: what the process itself sees. */
static long own_number(const char *status, const char *key, int base) {
    const char *line = strstr(status, key);
    if (!line) return -1;
    const char *end = strchr(line + strlen(key), '\n'), *at = end ? end : line + strlen(line);
    while (at > line && !isspace((unsigned char)at[-1])) at--;
    return strtol(at, NULL, base);
}

int look_at(struct caller *c) {
    static char status[64 * 1024]; /* a line of it names all groups */
    char name[64];
    if (c->own > 0) return 0;
    snprintf(name, sizeof name, "/proc/%d/status", c->pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, status, sizeof status - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return -1;
    status[n] = 0;
    c->own = (pid_t)own_number(status, "\nNStgid:", 10);
    c->thread = (pid_t)own_number(status, "\nNSpid:", 10);
    c->leader = (pid_t)own_number(status, "\nTgid:", 10);
    c->parent = (pid_t)own_number(status, "\nPPid:", 10);
    c->mask = (mode_t)own_number(status, "\nUmask:", 8);
    return c->own > 0 && c->thread > 0 ? 0 : -1;
}

/* Everybody in the box comes from it, so it is found once. */
int is_init(pid_t pid) {
    static pid_t init;
    for (struct caller c = {.pid = pid}; !init && !look_at(&c); c = (struct caller){.pid = c.parent})
        if (c.own == 1 || !c.parent) init = c.own == 1 ? c.pid : -1;
    return pid == init;
}

int link_of(const char *path, char *into) {
    ssize_t n = readlink(path, into, PATH_SIZE - 1);
    if (n >= PATH_SIZE - 1) errno = ENAMETOOLONG;
    if (n <= 0 || n >= PATH_SIZE - 1) return -1;
    into[n] = 0;
    return 0;
}

int path_of(int fd, char *into) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return link_of(name, into);
}

/* The root of the box, opened once: nobody in it may change its root, the filter sees to that. */
int root_of(pid_t pid) {
    static int root = -1;
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/root", pid);
    if (root < 0) root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root;
}

/* Descriptors travel over sockets. The path of what lies in a mount of another box says nothing in this one. Nobody in a box mounts
 * anything, so its mounts are read once. */
static int is_of_the_box(pid_t pid, int object) {
    static uint64_t mounts[MOUNTS_MAX];
    static size_t count;
    uint64_t info[32] = {0}; /* struct statx: its mask is the first 32 bits, the mount's number is at byte 144 */
    if (!count) {
        char name[64], *line = NULL;
        size_t room = 0;
        snprintf(name, sizeof name, "/proc/%d/mountinfo", pid);
        FILE *lines = fopen(name, "re");
        while (lines && count < MOUNTS_MAX && getline(&line, &room, lines) >= 0) mounts[count++] = strtoull(line, NULL, 10);
        free(line);
        if (lines) fclose(lines);
    }
    if (syscall(SYS_statx, object, "", AT_EMPTY_PATH, STATX_MOUNT, info) || !(info[0] & STATX_MOUNT)) return 0;
    for (size_t i = 0; i < count; i++)
        if (mounts[i] == info[18]) return 1;
    return 0;
}

/* --- finding ----------------------------------------------------------------------------------------------------------- */

static int open_below(int base, const char *path, uint64_t flags, uint64_t scope) {
    struct how how = {O_PATH | O_CLOEXEC | flags, 0, scope | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, base, path, &how, sizeof how);
}

void leave_place(struct place *p) {
    if (p->object >= 0) close(p->object);
    if (p->parent >= 0) close(p->parent);
    p->object = p->parent = -1;
}

/* It stands where `object` is; the descriptor is kept or closed. */
static enum there found(pid_t pid, int object, struct place *p) {
    enum there how = THERE;
    int is_long = 0; /* too long a path to be said; it lies in the box or not all the same */
    if (fstat(object, &p->info) || path_of(object, p->path)) is_long = errno == ENAMETOOLONG, how = is_long ? UNKNOWN : UNNAMED;
    else if (*p->path != '/' || !p->info.st_nlink) how = UNNAMED; /* a pipe, a socket, a memory file; a file whose name is gone */
    else if (p->strayed && !is_of_the_box(pid, object)) how = UNKNOWN;
    if (p->keeps && (how != UNKNOWN || (is_long && is_of_the_box(pid, object)))) p->object = object;
    else close(object);
    return how;
}

/* Nothing has that name in the directory; the descriptor is kept or closed. */
static enum there absent(pid_t pid, int directory, const char *name, struct place *p) {
    struct place parent = {.strayed = p->strayed, .keeps = p->keeps, .object = -1, .parent = -1};
    enum there how = found(pid, directory, &parent);
    p->parent = parent.object;
    if (p->parent >= 0) snprintf(p->name, sizeof p->name, "%s", name); /* of NAME_SIZE at most, as all names that are looked for */
    size_t have = strlen(parent.path);
    if (how != THERE) return how == UNNAMED ? NOWHERE : how;
    if (have + strlen(name) + 2 > PATH_SIZE) return UNKNOWN;
    memcpy(p->path, parent.path, have);
    if (have > 1) p->path[have++] = '/';
    memcpy(p->path + have, name, strlen(name) + 1);
    return ABSENT;
}

/* As it was written, from the root. */
static enum there nowhere(pid_t pid, int dirfd, const char *text, struct place *p) {
    char name[64];
    size_t have = 0;
    if (dirfd == HERE) snprintf(name, sizeof name, "/proc/%d/cwd", pid);
    else snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, dirfd);
    if (*text != '/') {
        if (link_of(name, p->path) || *p->path != '/') return UNNAMED;
        have = strlen(p->path);
        if (have > 1) p->path[have++] = '/';
    }
    snprintf(p->path + have, PATH_SIZE - have, "%.*s", (int)(PATH_SIZE - 1 - have), text);
    return NOWHERE;
}

/* What a link that is not as others leads the caller to: its text, or (1) the place itself, in place of the link. -1: not to be found. */
static int special(struct caller *c, int directory, const char *name, int *link, char *text) {
    struct statfs file_system;
    struct stat top;
    if (fstatfs(*link, &file_system)) return -1;
    if (file_system.f_type == PROC_MAGIC && !fstat(directory, &top)) {
        int is_self = !strcmp(name, "self");
        if (top.st_ino == PROC_TOP && (is_self || !strcmp(name, "thread-self"))) {
            if (look_at(c)) return -1;
            if (is_self) snprintf(text, PATH_SIZE, "%d", c->own);
            else snprintf(text, PATH_SIZE, "%d/task/%d", c->own, c->thread);
            return 0;
        }
        int plain = top.st_ino == PROC_TOP ? 0 : open_below(directory, name, 0, 0);
        if (plain > 0) close(plain);
        if (plain < 0 && errno == ELOOP) { /* it leads to a place, whatever its text says */
            int object = openat(directory, name, O_PATH | O_CLOEXEC);
            if (object < 0) return -1;
            close(*link);
            *link = object;
            return 1;
        }
    }
    ssize_t n = readlinkat(*link, "", text, PATH_SIZE - 1);
    if (n <= 0 || n >= PATH_SIZE - 1) return -1;
    text[n] = 0;
    return 0;
}

/* One name after the other, from a directory whose descriptor is ours to close. */
static enum there walk(pid_t pid, int at, const char *text, int follow, struct place *p) {
    static char rest[REST_SIZE], target[PATH_SIZE];
    char name[NAME_SIZE];
    struct caller c = {.pid = pid};
    struct stat info;
    int links = 0;
    snprintf(rest, sizeof rest, "%s", text);
    for (;;) {
        char *begin = rest + strspn(rest, "/");
        size_t size = strcspn(begin, "/");
        if (!size) return found(pid, at, p);
        if (size >= sizeof name) break;
        memcpy(name, begin, size);
        name[size] = 0;
        int is_written_as_directory = begin[size] == '/', is_last = !begin[size + strspn(begin + size, "/")];
        memmove(rest, begin + size, strlen(begin + size) + 1);
        int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT && errno != EACCES && errno != ENOTDIR) {
            close(at);
            return UNKNOWN;
        }
        if (fd < 0 && is_last && errno != ENOTDIR) return absent(pid, at, name, p);
        if (fd < 0) { /* the rest of the way, from where it ends */
            size_t have = absent(pid, at, name, p) == ABSENT ? strlen(p->path) : 0;
            leave_place(p);
            if (have) snprintf(p->path + have, PATH_SIZE - have, "%s", rest);
            return NOWHERE;
        }
        if (fstat(fd, &info)) info.st_mode = 0;
        if (S_ISLNK(info.st_mode) && (follow || !is_last || is_written_as_directory)) {
            int how = ++links > LINKS_MAX ? -1 : special(&c, at, name, &fd, target);
            if (how < 0 || (!how && strlen(target) + strlen(rest) + 2 > sizeof rest)) {
                close(fd);
                close(at);
                return links > LINKS_MAX ? NOWHERE : UNKNOWN;
            }
            if (how) {
                p->strayed = 1;
                p->is_held = is_last;
            } else {
                close(fd);
                size_t length = strlen(target);
                memmove(rest + length, rest, strlen(rest) + 1);
                memcpy(rest, target, length);
                fd = *target == '/' ? fcntl(root_of(pid), F_DUPFD_CLOEXEC, 3) : at;
                if (fd < 0) break;
                if (fd == at) continue;
            }
        }
        close(at);
        at = fd;
    }
    close(at);
    return NOWHERE;
}

/* The list of descriptors of a process that cannot be looked into, such as the one that serves files, is closed to an ordinary user;
 * its descriptors are not, since the box's user namespace is ours. */
static int take_descriptor(pid_t pid, int number) {
    int process = (int)syscall(SYS_pidfd_open, pid, THREAD);
    if (process < 0 && errno == EINVAL) process = (int)syscall(SYS_pidfd_open, pid, 0); /* before Linux 6.9, of first threads only */
    int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, number, 0);
    if (process >= 0) close(process);
    return fd;
}

int base_of(pid_t pid, int dirfd) {
    char name[64];
    if (dirfd == HERE) snprintf(name, sizeof name, "/proc/%d/cwd", pid);
    else snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, dirfd);
    int fd = open(name, O_PATH | O_CLOEXEC);
    return fd < 0 && errno == EACCES && dirfd != HERE ? take_descriptor(pid, dirfd) : fd;
}

enum there find_descriptor_of(pid_t pid, int number, struct place *p) {
    *p = (struct place){.strayed = 1, .is_held = 1, .keeps = p->keeps, .object = -1, .parent = -1};
    int object = base_of(pid, number);
    return p->how = object < 0 ? UNNAMED : found(pid, object, p);
}

static int ends_in_dots(const char *text, size_t end) {
    size_t begin = end;
    while (begin && text[begin - 1] != '/') begin--;
    return end - begin <= 2 && end > begin && text[begin] == '.' && text[end - 1] == '.';
}

static int is_link(int base, const char *text, size_t end, uint64_t scope) {
    char plain[PATH_SIZE];
    struct stat info;
    snprintf(plain, sizeof plain, "%.*s", (int)end, text);
    int fd = open_below(base, plain, O_NOFOLLOW, scope), is = fd >= 0 && !fstat(fd, &info) && S_ISLNK(info.st_mode);
    if (fd >= 0) close(fd);
    return is;
}

enum there resolve(pid_t pid, int dirfd, const char *text, int finding, struct place *p) {
    char parent[PATH_SIZE];
    int root = root_of(pid), is_absolute = *text == '/', follow = finding & FOLLOW;
    *p = (struct place){.how = UNKNOWN, .strayed = !is_absolute, .keeps = !!(finding & KEEP), .object = -1, .parent = -1};
    if (root < 0) return UNKNOWN;
    if (!*text && dirfd != HERE) return find_descriptor_of(pid, dirfd, p);
    if (!*text) return p->how = nowhere(pid, dirfd, text, p);
    int base = is_absolute ? fcntl(root, F_DUPFD_CLOEXEC, 3) : base_of(pid, dirfd);
    if (base < 0) return p->how = errno == ENOENT ? UNNAMED : UNKNOWN;
    size_t end = strlen(text);
    p->slash = end > 1 && text[end - 1] == '/';
    while (end > 1 && text[end - 1] == '/') end--;
    uint64_t scope = is_absolute ? RESOLVE_IN_ROOT : RESOLVE_BENEATH;
    p->is_odd = ends_in_dots(text, end) || (p->slash && p->keeps && is_link(base, text, end, scope));
    int object = open_below(base, text, follow ? 0 : O_NOFOLLOW, scope);
    if (object >= 0) {
        close(base);
        return p->how = found(pid, object, p);
    }
    size_t begin = end;
    while (begin && text[begin - 1] != '/') begin--;
    if (errno == ENOENT && end - begin < NAME_SIZE) { /* most often only the last name is not there */
        struct stat info;
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "%.*s", (int)(end - begin), text + begin);
        snprintf(parent, sizeof parent, "%.*s", begin ? (int)begin : 1, begin ? text : ".");
        int directory = open_below(base, parent, O_DIRECTORY, scope);
        if (directory >= 0 && fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) && errno == ENOENT) {
            close(base);
            p->how = absent(pid, directory, name, p);
            p->is_direct = !begin && !is_absolute;
            if (p->how == NOWHERE) leave_place(p);
            return p->how == NOWHERE ? p->how = nowhere(pid, dirfd, text, p) : p->how;
        }
        if (directory >= 0) close(directory); /* a link that leads to nothing is followed by those who would make what it leads to */
    }
    p->how = walk(pid, base, text, follow, p);
    return p->how == NOWHERE && !*p->path ? p->how = nowhere(pid, dirfd, text, p) : p->how;
}

/* How it is now, in words for the manager: device, inode, mode, size, and when it was changed. */
const char *state_of(const struct place *p, char *into) {
    const struct stat *s = &p->info;
    if (p->how == ABSENT || p->how == NOWHERE) return "-";
    if (p->how != THERE) return "?";
    snprintf(into, STATE_SIZE, "%llu %llu %u %lld %lld %lld", (unsigned long long)s->st_dev, (unsigned long long)s->st_ino, (unsigned)s->st_mode,
             (long long)s->st_size, (long long)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec,
             (long long)s->st_ctim.tv_sec * 1000000000 + s->st_ctim.tv_nsec);
    return into;
}
