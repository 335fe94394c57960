/* In the guardian: a file of the workspace that is also somebody else's is not written through.
 *
 * Stores of packages and objects (pnpm, uv, Bazel, ccache) put one file into many projects by hard links. Whoever writes to it in one
 * of them writes to all, and to the store. So before a file with several links is opened for writing, or its mode, owner or times are
 * changed, its links inside of what is granted are counted. If there are others, it is made a file of its own first: a copy takes its
 * name, and the call goes on to the copy. Where that cannot be done the call is refused. A name that is protected counts as one
 * outside: a link of it that an earlier run made is no way to write to it.
 *
 * A file with one link costs nothing, and most have one. The links are counted in one walk through the granted directories, which is
 * done when the first file with several links is written to, and again when a number of links has changed.
 *
 * What this does not protect against: two threads that race (the kernel reads a path once more, unless the box is strict); a link
 * that the host makes to a file while a box has it open.
 */
#include "supervise.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define COPY_MAX (256ll << 20) /* larger files are not copied while everybody waits */
#define NAMES_MAX 400000       /* of one walk; beyond, what was not found is taken to lie outside */
#define DEPTH_MAX 128
#define REST_FACTOR 20         /* a walk is done again when it is that many times as old as it took, */
#define QUICK 20000            /* or at any time if it takes no more microseconds than these */
#define CLONE_FILE _IOW(0x94, 9, int)

struct seen { /* a file with several links, or a directory that was walked through */
    uint64_t device, inode;
    uint32_t links, found; /* 0 links: the place is free */
};

static const char **roots;
static size_t root_count, table_size, table_used;
static struct seen *table;
static uint64_t walked_at, walk_took;

int opens_to_write(uint64_t flags) {
    int makes = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL); /* what is there stays as it is */
    return ((flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC) && !makes && !(flags & (O_PATH | O_DIRECTORY));
}

int opens_to_empty(uint64_t flags) {
    const uint64_t plain = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_LARGEFILE;
    return flags & O_TRUNC && opens_to_write(flags) && !(flags & ~plain); /* others may let it fail, and then nothing may be lost */
}

void links_within(const char *root) {
    const char **grown = realloc(roots, (root_count + 1) * sizeof *grown);
    if (!grown) die("memory");
    roots = grown;
    roots[root_count++] = root;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static struct seen *place_of(uint64_t device, uint64_t inode) {
    size_t i = (size_t)((inode * 0x9e3779b97f4a7c15u) ^ device) & (table_size - 1);
    while (table[i].links && (table[i].inode != inode || table[i].device != device)) i = (i + 1) & (table_size - 1);
    return &table[i];
}

static void make_room(void) {
    if (2 * (table_used + 1) < table_size) return;
    struct seen *old = table;
    size_t size = table_size;
    table_size = size ? 2 * size : 1024;
    table = calloc(table_size, sizeof *table);
    if (!table) die("memory");
    for (size_t i = 0; i < size; i++)
        if (old[i].links) *place_of(old[i].device, old[i].inode) = old[i];
    free(old);
}

/* Returns how often it has been found now. */
static uint32_t note(const struct stat *info) {
    make_room();
    struct seen *s = place_of(info->st_dev, info->st_ino);
    if (!s->links) {
        *s = (struct seen){info->st_dev, info->st_ino, (uint32_t)info->st_nlink, 0};
        table_used++;
    }
    return ++s->found;
}

/* Whether something is mounted on a name: a file that is protected has itself there, read-only. */
static int is_covered(int directory, const char *name) {
    struct how how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_XDEV};
    int fd = (int)syscall(SYS_openat2, directory, name, &how, sizeof how);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static void count_below(int directory, int depth, int *left) { /* closes it */
    struct stat info;
    DIR *list = fdopendir(directory);
    if (!list) {
        close(directory);
        return;
    }
    /* What is read-only in there is protected, and a link of it is no name that the box may write to. A directory that is reached
     * twice, by a mount, must not count twice. */
    struct statvfs mounted;
    int is_frozen = depth && !fstatvfs(directory, &mounted) && mounted.f_flag & ST_RDONLY;
    if (!is_frozen && !fstat(directory, &info) && info.st_nlink && note(&info) == 1)
        for (struct dirent *entry; *left > 0 && (entry = readdir(list));) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            --*left;
            if (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN) {
                int below = depth < DEPTH_MAX ? openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
                if (below >= 0) count_below(below, depth + 1, left);
                if (below >= 0 || entry->d_type == DT_DIR) continue;
            }
            if (!fstatat(directory, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) && S_ISREG(info.st_mode) && info.st_nlink > 1 &&
                !is_covered(directory, entry->d_name))
                note(&info);
        }
    closedir(list);
}

static void count_all(pid_t pid) {
    int left = NAMES_MAX;
    uint64_t begin = now();
    free(table);
    table = NULL;
    table_size = table_used = 0;
    make_room();
    for (size_t i = 0; i < root_count; i++) {
        struct how how = {O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        int top = (int)syscall(SYS_openat2, root_of(pid), roots[i], &how, sizeof how);
        if (top >= 0) count_below(top, 0, &left);
    }
    walked_at = now();
    walk_took = walked_at - begin;
}

/* Whether all of its links are in the granted directories. */
static int is_all_ours(pid_t pid, const struct stat *info) {
    for (int again = 0; again < 2; again++) {
        if (table) {
            const struct seen *s = place_of(info->st_dev, info->st_ino);
            if (s->links == info->st_nlink) return s->found >= s->links;
            if (walk_took > QUICK && now() - walked_at < REST_FACTOR * walk_took) return 0;
        }
        if (!again) count_all(pid);
    }
    return 0;
}

static int copy(int from, int to, const struct stat *info) {
    static char buffer[1 << 16];
    if (!ioctl(to, CLONE_FILE, from)) return 0;
    for (off_t done = 0; done < info->st_size;) {
        ssize_t n = read(from, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (!n) break;
        for (ssize_t at = 0; at < n;) {
            ssize_t put = write(to, buffer + at, (size_t)(n - at));
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return -1;
            at += put;
        }
        done += n;
    }
    return 0;
}

/* With the box's rights: a copy of the file, or an empty one if it is about to be emptied, in its place. 0, or -1. */
static int put_copy(int parent, const char *name, int object, const struct stat *info, int empty) {
    char temporary[48], path[64];
    uint64_t random;
    struct stat there;
    if (syscall(SYS_getrandom, &random, sizeof random, 0) != sizeof random) return -1;
    snprintf(temporary, sizeof temporary, ".ringfence-%016llx", (unsigned long long)random);
    snprintf(path, sizeof path, "/proc/self/fd/%d", object);
    int from = empty ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int to = empty || from >= 0 ? openat(parent, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    struct timespec times[2] = {info->st_atim, info->st_mtim};
    int failed = to < 0 || (!empty && copy(from, to, info)) || fchmod(to, info->st_mode & 0777) || futimens(to, times);
    /* Somebody may have put something else there meanwhile. */
    failed = failed || fstatat(parent, name, &there, AT_SYMLINK_NOFOLLOW) || there.st_ino != info->st_ino || there.st_dev != info->st_dev;
    failed = failed || renameat(parent, temporary, parent, name);
    if (failed && to >= 0) unlinkat(parent, temporary, 0);
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return failed ? -1 : 0;
}

static int is_in_a_root(const char *path) {
    for (size_t i = 0; i < root_count; i++) {
        size_t n = strlen(roots[i]);
        if (!strncmp(path, roots[i], n) && path[n] == '/') return 1;
    }
    return 0;
}

/* Whether a file still has the name that the kernel gives it. Of one that is held by a descriptor it may be gone, and then its last link is
 * somebody else's. */
static int has_its_name(pid_t pid, const struct place *p) {
    struct how how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    struct stat info;
    int fd = (int)syscall(SYS_openat2, root_of(pid), p->path, &how, sizeof how);
    int has = fd >= 0 && !fstat(fd, &info) && info.st_ino == p->info.st_ino && info.st_dev == p->info.st_dev;
    if (fd >= 0) close(fd);
    return has;
}

enum parted part_links(pid_t pid, const struct place *p, int empty, int is_open) {
    char directory[PATH_SIZE], link[64];
    if ((p->how != THERE && p->how != UNKNOWN) || !S_ISREG(p->info.st_mode) || !p->info.st_nlink) return NOT_LINKED;
    if (p->info.st_nlink < 2 && (!p->is_held || (p->how == THERE && has_its_name(pid, p)))) return NOT_LINKED;
    if (p->how == THERE && !is_in_a_root(p->path)) return NOT_LINKED;
    if (is_all_ours(pid, &p->info)) return NOT_LINKED;
    if (p->is_held || p->how == UNKNOWN) return STAYS_LINKED; /* it was not reached by its name, or has too long a path for one */
    const char *name = strrchr(p->path, '/') + 1;
    snprintf(directory, sizeof directory, "%.*s", (int)(name - p->path), p->path);
    struct how way = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS}, here = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_XDEV};
    int parent = (int)syscall(SYS_openat2, root_of(pid), directory, &way, sizeof way);
    int object = parent < 0 ? -1 : (int)syscall(SYS_openat2, parent, name, &here, sizeof here);
    enum parted how = STAYS_LINKED;
    struct stat info;
    if (object < 0 && errno == EXDEV) how = NOT_LINKED; /* it is covered: the wall refuses */
    if (object >= 0 && !fstat(object, &info) && info.st_ino == p->info.st_ino && info.st_dev == p->info.st_dev) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", object);
        as_box();
        if (is_open && faccessat(AT_FDCWD, link, W_OK, AT_EACCESS)) how = NOT_LINKED; /* the box may not write to it anyway */
        else if ((empty || info.st_size <= COPY_MAX) && !put_copy(parent, name, object, &info, empty)) how = PARTED;
        as_before();
    }
    if (object >= 0) close(object);
    if (parent >= 0) close(parent);
    return how;
}
