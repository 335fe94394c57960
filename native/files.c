/* Inside the wall: reads and changes files for whoever owns the box, as the box's own user.
 *
 * A child of PID 1 that never becomes another program. It stands behind the same mounts, Landlock, filter and supervisor as
 * every command, so a path means to it what it means to a command, and the kernel refuses it what a command is refused. The
 * manager never follows a path that a command could have changed.
 *
 * One operation at a time, over a stream socket that nobody else has (undumpable, in a Landlock domain of its own). What changes
 * something has two steps: first the path is resolved to a directory that is held open, and the manager is told where that really
 * lies; only when it says GO, the change is made, relative to that directory and without following another link. A link that is
 * swapped in between changes nothing.
 *
 * It never waits for a file: what is no plain file is refused before it is opened and again afterwards, and opens do not block.
 */
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define SOCKET 3
#define CHUNK (64u * 1024u)
#define REQUEST_MAX (4u * PATH_MAX)
#define LINKS_MAX 40                    /* the kernel's own limit */
#define DEPTH_MAX 200                   /* levels of a tree that is removed: each is a descriptor, of which there may be few */

enum { REQUEST = 1, GO, DATA, END, STOP };                /* manager to us; the frames' kinds */
enum { PLACE = 16, CONTENT, ENTRIES, DONE, ERROR };       /* us to manager */
enum { FOLLOW = 1, APPEND = 2, PARENTS = 4, EXIST_OK = 8, RECURSIVE = 16, WITH_MODE = 32, MISSING_OK = 64, PART = 128 };

struct frame {
    uint32_t kind, call, length;
};
struct entry {                          /* followed by a name and a link's target, each ended by a NUL byte */
    uint64_t mode, size, mtime, uid, gid, links, inode;
};
struct spot {                           /* a name in a directory that is open; both may lie below directories that are missing */
    int dir;
    char rest[PATH_MAX];
};

static uint32_t call;
static char out[CHUNK + sizeof(struct frame)], in[CHUNK];
static size_t have;                     /* bytes that wait in `out` */

static void flush(void) {
    for (size_t sent = 0; sent < have;) {
        ssize_t n = send(SOCKET, out + sent, have - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0); /* nobody listens any more */
        sent += (size_t)n;
    }
    have = 0;
}

static void tell(uint32_t kind, const void *bytes, size_t count) {
    struct frame f = {kind, call, (uint32_t)count};
    if (have + sizeof f + count > sizeof out) flush();
    memcpy(out + have, &f, sizeof f);
    if (count) memcpy(out + have + sizeof f, bytes, count);
    have += sizeof f + count;
}

static void receive(void *into, size_t count) {
    for (size_t got = 0; got < count;) {
        ssize_t n = recv(SOCKET, (char *)into + got, count - got, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0);
        got += (size_t)n;
    }
}

/* The next frame's body is in `in`. */
static struct frame next(void) {
    struct frame f;
    flush();
    receive(&f, sizeof f);
    if (f.length > sizeof in) _exit(125);
    receive(in, f.length);
    return f;
}

/* After something went wrong in the middle: what was still to come is let pass. Returns the fault. */
static int skip(int fault) {
    uint32_t number = (uint32_t)fault;
    tell(ERROR, &number, sizeof number);
    for (uint32_t kind = DATA; kind == DATA;) kind = next().kind;
    return -1; /* it has been told */
}

static int path_of(int fd, char *into) {
    char link[64];
    struct stat info;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, into, PATH_MAX - 1);
    if (n <= 0) return n ? errno : ENOENT;
    into[n] = 0;
    if (fstat(fd, &info)) return errno;
    return info.st_nlink ? 0 : ENOENT; /* removed since: the name that the kernel gives is no name any more */
}

static int tell_place(int fd) {
    char path[PATH_MAX];
    int fault = path_of(fd, path);
    if (!fault) tell(PLACE, path, strlen(path) + 1);
    return fault;
}

/* An entry into a buffer that takes one; returns its length. */
static size_t put_entry(char *into, const struct stat *s, const char *name, int dir, const char *path) {
    struct entry e = {s->st_mode, (uint64_t)s->st_size, (uint64_t)s->st_mtim.tv_sec * 1000000000u + (uint64_t)s->st_mtim.tv_nsec,
                      s->st_uid, s->st_gid, s->st_nlink, s->st_ino};
    size_t size = sizeof e, length = strlen(name) + 1;
    memcpy(into, &e, sizeof e);
    memcpy(into + size, name, length);
    size += length;
    ssize_t n = S_ISLNK(s->st_mode) ? readlinkat(dir, path, into + size, PATH_MAX - 1) : 0;
    size += n > 0 ? (size_t)n : 0;
    into[size++] = 0;
    return size;
}
#define ENTRY_MAX (sizeof(struct entry) + NAME_MAX + 1 + PATH_MAX)

/* --- looking ------------------------------------------------------------------------------------------------------- */

static int plain(const struct stat *s) { return S_ISREG(s->st_mode) ? 0 : S_ISDIR(s->st_mode) ? EISDIR : EOPNOTSUPP; }

static int look(const char *path, unsigned flags, int with_entry) {
    char bytes[ENTRY_MAX];
    struct stat info;
    int fd = open(path, O_PATH | O_CLOEXEC | (flags & FOLLOW ? 0 : O_NOFOLLOW)), fault;
    if (fd < 0) return errno;
    fault = fstat(fd, &info) ? errno : tell_place(fd);
    if (!fault && with_entry) tell(ENTRIES, bytes, put_entry(bytes, &info, "", AT_FDCWD, path));
    close(fd);
    return fault;
}

/* Where an absolute path leads, name by name. What is missing is taken as it is written, and `..` after it climbs from there. */
static int find_real(const char *path) {
    char real[PATH_MAX] = "", rest[PATH_MAX], target[PATH_MAX], joined[PATH_MAX];
    int links = 0, n = snprintf(rest, sizeof rest, "%s", path);
    if (n < 0 || (size_t)n >= sizeof rest) return ENAMETOOLONG;
    for (;;) {
        const char *name = rest + strspn(rest, "/"), *after = name + strcspn(name, "/");
        size_t length = (size_t)(after - name), above = strlen(real);
        if (!length) break;
        if (length == 2 && !strncmp(name, "..", 2)) {
            char *slash = strrchr(real, '/');
            if (slash) *slash = 0;
        } else if (length != 1 || *name != '.') {
            if (above + 1 + length >= sizeof real) return ENAMETOOLONG;
            real[above] = '/';
            memcpy(real + above + 1, name, length);
            real[above + 1 + length] = 0;
            ssize_t read = readlink(real, target, sizeof target - 1);
            if (read < 0 && errno != EINVAL && errno != ENOENT && errno != ENOTDIR) return errno;
            if (read >= 0) {
                if (++links > LINKS_MAX) return ELOOP;
                target[read] = 0;
                n = snprintf(joined, sizeof joined, "%s%s", target, after);
                if (n < 0 || (size_t)n >= sizeof joined) return ENAMETOOLONG;
                real[*target == '/' ? 0 : above] = 0;
                after = joined;
            }
        }
        memmove(rest, after, strlen(after) + 1);
    }
    if (!*real) strcpy(real, "/");
    tell(PLACE, real, strlen(real) + 1);
    return 0;
}

/* With PART, up to so many bytes from `offset` on, however large it is; else all of it, if that is no more. */
static int read_file(const char *path, unsigned flags, uint64_t offset, uint64_t limit) {
    struct stat info;
    int fault, fd;
    if (stat(path, &info)) return errno;
    if ((fault = plain(&info))) { /* a fifo would have its writer woken by us */
        look(path, FOLLOW, 0); /* what hides a file is no plain file: a rule may say why */
        return fault;
    }
    fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return errno;
    fault = fstat(fd, &info) ? errno : plain(&info);
    if (!fault) fault = tell_place(fd);
    if (!fault && !(flags & PART) && (uint64_t)info.st_size > limit) fault = EFBIG;
    if (!fault && flags & PART && (offset > INT64_MAX || lseek(fd, (off_t)offset, SEEK_SET) < 0)) fault = EINVAL;
    for (uint64_t got = 0; !fault && !(flags & PART && got == limit);) {
        uint64_t wanted = flags & PART && limit - got < sizeof in ? limit - got : sizeof in;
        ssize_t n = read(fd, in, (size_t)wanted);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fault = errno;
        if (n <= 0) break;
        got += (uint64_t)n;
        if (got > limit) fault = EFBIG;
        else tell(CONTENT, in, (size_t)n);
    }
    close(fd);
    return fault;
}

static int list(const char *path, uint64_t limit) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC), fault;
    if (fd < 0) return errno;
    DIR *dir = fdopendir(fd);
    if (!dir) return close(fd), ENOMEM;
    fault = tell_place(fd);
    size_t size = 0;
    while (!fault) {
        errno = 0;
        struct dirent *d = readdir(dir);
        if (!d) {
            fault = errno;
            break;
        }
        struct stat info;
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        if (!limit--) return closedir(dir), EOVERFLOW;
        if (fstatat(fd, d->d_name, &info, AT_SYMLINK_NOFOLLOW)) {
            if (errno == ENOENT) continue; /* it has gone meanwhile */
            info = (struct stat){.st_mode = DTTOIF(d->d_type), .st_ino = d->d_ino}; /* its name may be read, nothing else */
        }
        if (size + ENTRY_MAX > sizeof in) tell(ENTRIES, in, size), size = 0;
        size += put_entry(in + size, &info, d->d_name, fd, d->d_name);
    }
    if (!fault && size) tell(ENTRIES, in, size);
    closedir(dir);
    return fault;
}

/* --- finding where something is to be changed ---------------------------------------------------------------------- */

/* Opens the directory of what a path names, beginning at `base`, which it closes. With PARENTS, the deepest that is there. */
static int open_parent(int base, const char *path, unsigned flags, struct spot *s) {
    char head[PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    if (!length || length >= sizeof head) return length ? ENAMETOOLONG : ENOENT;
    memcpy(head, path, length);
    head[length] = 0;
    s->rest[0] = 0;
    for (;;) {
        char *slash = strrchr(head, '/'), *name = slash ? slash + 1 : head, tail[PATH_MAX];
        int is_none = !*name || !strcmp(name, ".");
        if (!strcmp(name, "..") || (is_none && (!slash || slash == head))) return s->rest[0] ? ENOENT : EBUSY;
        if (!is_none) {
            int n = snprintf(tail, sizeof tail, s->rest[0] ? "%s/%s" : "%s%s", name, s->rest);
            if (n < 0 || (size_t)n >= sizeof tail) return ENAMETOOLONG;
            memcpy(s->rest, tail, (size_t)n + 1);
        }
        if (slash) {
            while (slash > head && slash[-1] == '/') slash--;
            slash[slash == head] = 0; /* the root keeps its slash */
        } else {
            strcpy(head, ".");
        }
        if (is_none) continue;
        s->dir = openat(base, head, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (s->dir >= 0) break;
        if (errno != ENOENT || !(flags & PARENTS) || !strcmp(head, "/") || !strcmp(head, ".")) return errno;
    }
    return 0;
}

/* The same; with FOLLOW, a link at the end leads on, also to what is not there yet. */
static int find_spot(const char *path, unsigned flags, struct spot *s) {
    char target[PATH_MAX];
    int fault = open_parent(AT_FDCWD, path, flags, s);
    for (int links = 0; !fault && flags & FOLLOW && !strchr(s->rest, '/'); links++) {
        ssize_t n = readlinkat(s->dir, s->rest, target, sizeof target - 1);
        if (n < 0) break; /* no link, or nothing */
        target[n] = 0;
        int from = s->dir;
        fault = links < LINKS_MAX ? open_parent(from, target, flags, s) : ELOOP;
        close(from);
        if (fault) s->dir = -1;
    }
    return fault;
}

static int put_spot(const struct spot *s, char *into) {
    char path[PATH_MAX];
    int fault = path_of(s->dir, path), n = 0;
    if (!fault) n = snprintf(into, PATH_MAX, "%s/%s", strcmp(path, "/") ? path : "", s->rest);
    return fault ? fault : n >= PATH_MAX ? ENAMETOOLONG : 0;
}

/* Where it would be done; returns when the manager has said that it may. */
static int agreed(const struct spot *first, const struct spot *second) {
    char places[2 * PATH_MAX];
    int fault = put_spot(first, places);
    if (fault) return fault;
    size_t size = strlen(places) + 1;
    if (second && (fault = put_spot(second, places + size))) return fault;
    if (second) size += strlen(places + size) + 1;
    tell(PLACE, places, size);
    return next().kind == GO ? 0 : ECANCELED;
}

/* Makes the directories that are missing; afterwards `rest` is one name. */
static int make_parents(struct spot *s) {
    for (char *slash; (slash = strchr(s->rest, '/'));) {
        *slash = 0;
        if (mkdirat(s->dir, s->rest, 0777) && errno != EEXIST) return errno;
        int deeper = openat(s->dir, s->rest, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (deeper < 0) return errno;
        close(s->dir);
        s->dir = deeper;
        memmove(s->rest, slash + 1, strlen(slash + 1) + 1);
    }
    return 0;
}

/* --- changing ------------------------------------------------------------------------------------------------------ */

static int open_for_writing(struct spot *s, unsigned flags, mode_t mode) {
    struct stat info;
    int fault = make_parents(s);
    if (!fault && !fstatat(s->dir, s->rest, &info, AT_SYMLINK_NOFOLLOW)) fault = plain(&info);
    if (!fault) {
        int fd = openat(s->dir, s->rest, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC |
                        (flags & APPEND ? O_APPEND : 0), flags & WITH_MODE ? mode & 0777 : 0666);
        if (fd < 0) return -errno;
        fault = fstat(fd, &info) ? errno : plain(&info);
        if (!fault && flags & WITH_MODE && fchmod(fd, mode)) fault = errno; /* the umask took some of it away */
        if (!fault && !(flags & APPEND) && ftruncate(fd, 0)) fault = errno;
        if (!fault) return fd;
        close(fd);
    }
    return -fault;
}

/* Content comes as DATA until END. A fault is told at once, so that no more is sent. */
static int write_file(struct spot *s, unsigned flags, mode_t mode) {
    int fd = open_for_writing(s, flags, mode), fault = 0;
    if (fd < 0) return skip(-fd);
    for (;;) {
        struct frame f = next();
        if (f.kind == END) break;
        if (f.kind != DATA) {
            fault = ECANCELED;
            break;
        }
        for (size_t at = 0; at < f.length && !fault;) {
            ssize_t n = write(fd, in + at, f.length - at);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) fault = errno;
            else at += (size_t)n;
        }
        if (fault) {
            close(fd);
            return skip(fault);
        }
    }
    if (close(fd) && !fault) fault = errno;
    return fault;
}

static int make_directory(struct spot *s, unsigned flags, mode_t mode) {
    struct stat info;
    int fault = make_parents(s);
    if (fault) return fault;
    if (!mkdirat(s->dir, s->rest, flags & WITH_MODE ? mode : 0777)) return 0;
    fault = errno;
    if (fault == EEXIST && flags & EXIST_OK && !fstatat(s->dir, s->rest, &info, 0) && S_ISDIR(info.st_mode)) return 0;
    return fault;
}

static int remove_tree(int above, const char *name, int depth) {
    if (!unlinkat(above, name, 0)) return 0;
    if (errno != EISDIR && errno != EPERM) return errno; /* EPERM: what POSIX says of directories */
    int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), fault = 0;
    if (fd < 0) return errno == ENOTDIR || errno == ELOOP ? EPERM : errno;
    if (depth >= DEPTH_MAX) return close(fd), EMLINK;
    DIR *dir = fdopendir(fd);
    if (!dir) return close(fd), ENOMEM;
    while (!fault) {
        errno = 0;
        struct dirent *d = readdir(dir);
        if (!d) {
            fault = errno;
            break;
        }
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        fault = remove_tree(fd, d->d_name, depth + 1);
        if (fault == ENOENT) fault = 0; /* somebody else was faster */
    }
    closedir(dir);
    return fault ? fault : unlinkat(above, name, AT_REMOVEDIR) ? errno : 0;
}

static int remove_it(const struct spot *s, unsigned flags) {
    struct stat info;
    if (flags & RECURSIVE) return remove_tree(s->dir, s->rest, 0);
    if (fstatat(s->dir, s->rest, &info, AT_SYMLINK_NOFOLLOW)) return errno;
    return unlinkat(s->dir, s->rest, S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0) ? errno : 0;
}

static int change(const char *what, const char *path, const char *second, unsigned flags, mode_t mode) {
    struct spot s = {.dir = -1}, to = {.dir = -1};
    int fault = find_spot(path, flags, &s);
    if (fault == EBUSY && !strcmp(what, "mkdir")) return flags & EXIST_OK ? 0 : EEXIST; /* the root, or `..`: it is there */
    if (fault == EBUSY && !strcmp(what, "write")) return EISDIR;
    if (!fault && *second) fault = find_spot(second, 0, &to);
    if (!fault) fault = agreed(&s, *second ? &to : NULL);
    if (fault) {}
    else if (!strcmp(what, "write")) fault = write_file(&s, flags, mode);
    else if (!strcmp(what, "mkdir")) fault = make_directory(&s, flags, mode);
    else if (!strcmp(what, "remove")) fault = remove_it(&s, flags);
    else fault = renameat(s.dir, s.rest, to.dir, to.rest) ? errno : 0;
    if (s.dir >= 0) close(s.dir);
    if (to.dir >= 0) close(to.dir);
    return fault;
}

/* --- the loop ------------------------------------------------------------------------------------------------------ */

/* Words: OPERATION FLAGS MODE LIMIT PATH SECOND; the last is empty where there is one path. Of a part, MODE is where it
   begins. */
static int perform(struct words w) {
    const char *what = word(&w);
    unsigned flags = (unsigned)number(&w);
    uint64_t offset = number(&w), limit = number(&w);
    mode_t mode = (mode_t)offset;
    const char *path = word(&w), *second = word(&w);
    if (!strcmp(what, "read")) return read_file(path, flags, offset, limit);
    if (!strcmp(what, "stat")) return look(path, flags, 1);
    if (!strcmp(what, "realpath")) return flags & MISSING_OK ? find_real(path) : look(path, FOLLOW, 0);
    if (!strcmp(what, "list")) return list(path, limit);
    if (!strcmp(what, "write") || !strcmp(what, "mkdir") || !strcmp(what, "remove") || !strcmp(what, "rename"))
        return change(what, path, second, flags, mode);
    return ENOSYS;
}

noreturn void serve_files(int fd) {
    static char request[REQUEST_MAX];
    if (fd != SOCKET && dup2(fd, SOCKET) < 0) _exit(125);
    syscall(SYS_close_range, SOCKET + 1, ~0u, 0);
    prctl(PR_SET_NAME, "ringfence-files"); /* for whoever lists the box's processes */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error of that write */
    for (;;) {
        struct frame f = next();
        if (f.kind != REQUEST || !f.length || f.length > sizeof request) _exit(125);
        memcpy(request, in, f.length);
        call = f.call;
        int fault = perform((struct words){request, request + f.length});
        uint32_t number = (uint32_t)fault;
        if (fault >= 0) tell(fault ? ERROR : DONE, &number, fault ? sizeof number : 0);
    }
}
