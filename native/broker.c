/* Strict deny, in the guardian: makes calls for the caller, on what it has looked at itself.
 *
 * Going on means that the kernel reads a path once more, and a second thread may have changed it by then. Where a box is strict, no
 * call that opens a file or changes a name goes on. The guardian finds the object in the caller's own root, asks the rules
 * about where it really lies and which file it is, does the call on that very object with the box's rights, and hands the descriptor in.
 * So a blacklisted file stays closed whatever it is called: by a hard link, after a rename, saved anew by the host, made during the run.
 *
 * Three kinds of call go on, since they give no content away whatever the path has become: opening a directory (the kernel insists that
 * it is one), opening with O_PATH (what reads comes here again), and starting a program (a script is opened by its interpreter).
 *
 * The guardian is not in the box's process namespace, so /proc is shown to it with care: a process's own files and what everybody
 * may see of the others. Nothing below /proc is opened for writing: Landlock, which the guardian is not under, allows none of it.
 *
 * What this does not protect against: modes, owners and times of a blacklisted file, which go on; a blacklisted program that a race of two
 * threads or a script's first line starts; what the command read before the host gave it a blacklisted name; names that
 * differ in the size of letters, where the file system does not care.
 */
#include "supervise.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINKS_MAX 40
#define SCAN_MAX 50000  /* names below a directory that is renamed */
#define DEPTH_MAX 64
#define WAITING_MAX 64  /* opens that wait for the other end of a fifo */
#define TMPFILE_ALONE 020000000
#define TMPFILE (TMPFILE_ALONE | O_DIRECTORY)
#define MODES 07777u
#define PLAIN_MODES 01777u
#define NO_FILE (-1)
#define SIZE_LINE "Max file size"
#define DELETED " (deleted)"
#define MEMORY_FILE "/memfd:"
#define EXCHANGE 2u     /* of renameat2 */

static struct denied {
    uint64_t device, inode;
    const char *path;
} *denied;
static size_t denied_count;
static uid_t box_uid = (uid_t)-1;
static gid_t box_gid;
static struct waiter {
    pid_t pid;
    uint64_t id; /* of the call that it opens for */
} waiting[WAITING_MAX];

/* --- with the box's rights --------------------------------------------------------------------------------------------- */

/* As the kernel defines them; its headers are not there for every libc. */
static struct {
    uint32_t version;
    int pid;
} ourselves = {0x20080522, 0};
static struct capabilities {
    uint32_t effective, permitted, inheritable;
} some[2], none[2];
static int are_some; /* of an ordinary user, as a service manager gives them */
#define NO_FIXUP 4   /* a secure bit: uid 0 can be left without its capabilities */

static void look_at_capabilities(void) {
    if (syscall(SYS_capget, &ourselves, some)) die("capabilities");
    for (int i = 0; i < 2; i++) none[i] = (struct capabilities){0, some[i].permitted, some[i].inheritable};
    are_some = box_uid == (uid_t)-1 && memcmp(some, none, sizeof some);
    if (box_uid != (uid_t)-1 && prctl(PR_GET_SECUREBITS) & NO_FIXUP) die_because("capabilities stay when uid 0 is left");
}

/* Run by root, the guardian owns everything; for what it does in the box's name it must own as little as the box. Leaving uid 0 for a
 * while leaves its capabilities too. */
void as_box(void) {
    if (are_some && syscall(SYS_capset, &ourselves, none)) die("cannot leave capabilities");
    if (box_uid == (uid_t)-1) return;
    if (syscall(SYS_setresgid, -1, box_gid, -1) || syscall(SYS_setresuid, -1, box_uid, -1)) die("cannot leave uid 0");
}

void as_before(void) {
    int kept = errno;
    if (are_some && syscall(SYS_capset, &ourselves, some)) die("cannot take capabilities back");
    if (box_uid != (uid_t)-1 && (syscall(SYS_setresuid, -1, 0, -1) || syscall(SYS_setresgid, -1, 0, -1))) die("cannot come back to uid 0");
    errno = kept;
}

int rights_differ(void) { return are_some || box_uid != (uid_t)-1; }

/* --- which files are denied -------------------------------------------------------------------------------------------- */

void broker_as(uid_t uid, gid_t gid) {
    box_uid = uid, box_gid = gid;
    if (setgroups(0, NULL)) die("groups"); /* a group of root's must open nothing for the box */
}

void broker_denies(uint64_t device, uint64_t inode, const char *path) {
    struct denied *grown = realloc(denied, (denied_count + 1) * sizeof *grown);
    if (!grown) die("memory");
    denied = grown;
    denied[denied_count++] = (struct denied){device, inode, path};
}

static int by_inode(const void *one, const void *two) {
    const struct denied *a = one, *b = two;
    if (a->inode != b->inode) return a->inode < b->inode ? -1 : 1;
    return a->device < b->device ? -1 : a->device > b->device;
}

void broker_ready(void) {
    if (denied_count) qsort(denied, denied_count, sizeof *denied, by_inode);
    look_at_capabilities();
    signal(SIGXFSZ, SIG_IGN); /* a file that is too large for our own limit must not end us */
}

static const char *denied_as(const struct stat *info) {
    struct denied wanted = {info->st_dev, info->st_ino, NULL};
    const struct denied *hit = denied_count ? bsearch(&wanted, denied, denied_count, sizeof *denied, by_inode) : NULL;
    return hit ? hit->path : NULL;
}

/* --- finding what a path means to the caller --------------------------------------------------------------------------- */

struct spot {
    int object, parent;   /* -1 if it is not there */
    int error;            /* why not */
    int slash;            /* the name was written as a directory's */
    int mounted;          /* something of the box's view is mounted there */
    char name[NAME_SIZE]; /* in the parent */
    char path[PATH_SIZE];
    struct stat info;
};

static void leave(struct spot *s) {
    if (s->object >= 0) close(s->object);
    if (s->parent >= 0) close(s->parent);
    s->object = s->parent = NO_FILE;
}

static int open_in(int root, const char *path, uint64_t flags) {
    struct how how = {O_PATH | O_CLOEXEC | flags, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

static int belongs_to_another(struct caller *c, const char *path) {
    char *end;
    if (strncmp(path, "/proc/", 6) || !isdigit((unsigned char)path[6])) return 0;
    if (look_at(c)) return 1;
    return strtol(path + 6, &end, 10) != c->own || *end != '/';
}

/* Follows links by hand, for what the kernel would follow differently for us: /proc/self and the like. 0 or an errno. */
static int walk(struct caller *c, int root, char *whole, int follow) {
    static char rest[2 * PATH_SIZE], text[PATH_SIZE];
    char done[PATH_SIZE] = "";
    snprintf(rest, sizeof rest, "%s", whole);
    for (int links = 0; *rest;) {
        char *at = rest + strspn(rest, "/"), part[NAME_SIZE];
        size_t size = strcspn(at, "/");
        if (!size) break;
        if (size >= sizeof part) return ENAMETOOLONG;
        memcpy(part, at, size);
        part[size] = 0;
        memmove(rest, at + size, strlen(at + size) + 1);
        if (!strcmp(part, ".")) continue;
        size_t have = strlen(done);
        if (!strcmp(part, "..")) {
            while (have && done[have - 1] != '/') have--;
            done[have ? have - 1 : 0] = 0;
            continue;
        }
        if (have + size + 2 > PATH_SIZE) return ENAMETOOLONG;
        snprintf(done + have, sizeof done - have, "/%s", part);
        ssize_t n;
        if (!strncmp(done, "/proc/", 6) && look_at(c)) return EACCES;
        if (!strcmp(done, "/proc/self")) {
            n = snprintf(text, PATH_SIZE, "%d", c->own);
        } else if (!strcmp(done, "/proc/thread-self")) {
            n = snprintf(text, PATH_SIZE, "%d/task/%d", c->own, c->thread);
        } else if (!rest[strspn(rest, "/")] && !follow) {
            break;
        } else {
            int fd = open_in(root, done, O_NOFOLLOW);
            if (fd < 0 && errno == ENOENT && !rest[strspn(rest, "/")]) break; /* where it would be made */
            if (fd < 0) return errno;
            n = readlinkat(fd, "", text, PATH_SIZE - 1);
            close(fd);
            if (n < 0) continue; /* not a link */
            if (belongs_to_another(c, done)) return EACCES;
        }
        if (++links > LINKS_MAX || n >= PATH_SIZE - 1) return ELOOP;
        done[*text == '/' ? 0 : have] = 0;
        if ((size_t)n + strlen(rest) + 2 > sizeof rest) return ENAMETOOLONG;
        text[n] = 0;
        memmove(rest + n + 1, rest, strlen(rest) + 1);
        memcpy(rest, text, (size_t)n);
        rest[n] = '/';
    }
    snprintf(whole, 2 * PATH_SIZE, "%s", *done ? done : "/");
    return 0;
}

/* The number of a descriptor that the caller has already, by another name; -1 if it is none. */
static int own_descriptor(struct caller *c, const char *text) {
    static const char *const standard[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    char mine[32];
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, standard[i])) return i;
    if (*text != '/' || (text[1] != 'd' && text[1] != 'p')) return -1;
    *mine = 0;
    if (!strncmp(text, "/proc/", 6) && isdigit((unsigned char)text[6]) && !look_at(c)) snprintf(mine, sizeof mine, "/proc/%d/fd/", c->own);
    const char *const tops[] = {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/", mine};
    for (int i = 0; i < 4 && *tops[i]; i++) {
        size_t n = strlen(tops[i]);
        char *end;
        if (strncmp(text, tops[i], n) || !isdigit((unsigned char)text[n])) continue;
        long number = strtol(text + n, &end, 10);
        if (!*end && number < 1 << 20) return (int)number;
    }
    return -1;
}

/* Whoever holds a file can still open it when its name is gone. The rules are about the name that it had, and the kernel adds a word to it
 * then; a file may also be called so. */
static void forget_deletion(int root, struct spot *s) {
    struct stat named;
    size_t size = strlen(s->path), tail = strlen(DELETED);
    if (size <= tail || strcmp(s->path + size - tail, DELETED)) return;
    int fd = open_in(root, s->path, O_NOFOLLOW);
    int is_called_so = fd >= 0 && !fstat(fd, &named) && named.st_dev == s->info.st_dev && named.st_ino == s->info.st_ino;
    if (fd >= 0) close(fd);
    if (!is_called_so) s->path[size - tail] = 0;
}

static int found(int root, struct spot *s) {
    if (fstat(s->object, &s->info) || path_of(s->object, s->path)) return errno;
    forget_deletion(root, s);
    if (!strncmp(s->path, MEMORY_FILE, strlen(MEMORY_FILE)) && !s->info.st_nlink) *s->path = ' '; /* it never was a path */
    return 0;
}

/* The number after a word that a line of a file begins with: the wanted one, or the first if any will do; -1 if there is none. */
static long number_in(const char *file, const char *begin, long wanted) {
    FILE *lines = fopen(file, "re");
    char *line = NULL;
    size_t room = 0;
    long got = -1;
    while (lines && got < 0 && getline(&line, &room, lines) >= 0) {
        if (strncmp(line, begin, strlen(begin))) continue;
        long number = strtol(line + strlen(begin), NULL, 10);
        if (wanted < 0 || number == wanted) got = number;
    }
    free(line);
    if (lines) fclose(lines);
    return got;
}

/* Descriptors travel over sockets. What lies in a mount of another box, which may be gone by now, has a path that says nothing to the rules
 * of this one. */
static int is_foreign(struct caller *c, int object) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", object);
    long mount = number_in(name, "mnt_id:", -1);
    snprintf(name, sizeof name, "/proc/%d/mountinfo", c->pid);
    return mount < 0 || number_in(name, "", mount) < 0;
}

static int find_descriptor(struct caller *c, int number, struct spot *s) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/fd/%d", c->pid, number);
    s->object = open(name, O_PATH | O_CLOEXEC);
    int error = s->object < 0 ? errno : found(root_of(c->pid), s);
    return !error && *s->path == '/' && is_foreign(c, s->object) ? EACCES : error;
}

/* /dev/tty is another terminal for everybody: the caller's own, on one of the box's. */
static int find_terminal(struct caller *c, int root, struct spot *s) {
    char name[64], line[1024];
    snprintf(name, sizeof name, "/proc/%d/stat", c->pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return ENXIO;
    line[n] = 0;
    char *end = strrchr(line, ')');
    int number;
    if (!end || sscanf(end + 1, " %*c %*d %*d %*d %d", &number) != 1 || number <= 0) return ENXIO;
    snprintf(name, sizeof name, "/dev/pts/%d", (number & 0xff) | (number >> 12 & 0xfff00));
    s->object = open_in(root, name, O_NOFOLLOW);
    return s->object < 0 ? ENXIO : found(root, s);
}

/* The path as the caller wrote it, from its root. */
static int spell(struct caller *c, int dirfd, const char *text, char *whole) {
    char name[64], base[PATH_SIZE];
    if (*text == '/') return snprintf(whole, 2 * PATH_SIZE, "%s", text) > 0 ? 0 : EINVAL;
    if (dirfd == HERE) snprintf(name, sizeof name, "/proc/%d/cwd", c->pid);
    else snprintf(name, sizeof name, "/proc/%d/fd/%d", c->pid, dirfd);
    if (link_of(name, base)) return EBADF;
    if (*base != '/') return ENOTDIR;
    snprintf(whole, 2 * PATH_SIZE, "%s/%s", base, text);
    return 0;
}

/* What the kernel would follow differently for us, or does not follow while somebody renames something (`..` below a root). */
static int needs_walk(int error) { return error == ENOENT || error == ELOOP || error == EAGAIN; }

static int find_parent(struct caller *c, int root, char *whole, struct spot *s) {
    size_t end = strlen(whole);
    while (end > 1 && whole[end - 1] == '/') whole[--end] = 0;
    char *last = strrchr(whole, '/');
    if (!last || !last[1]) return EEXIST;
    if (!strcmp(last + 1, ".") || !strcmp(last + 1, "..")) return EINVAL;
    if (strlen(last + 1) >= NAME_SIZE) return ENAMETOOLONG;
    snprintf(s->name, sizeof s->name, "%s", last + 1);
    *last = 0;
    s->parent = open_in(root, *whole ? whole : "/", O_DIRECTORY);
    int error = s->parent < 0 ? errno : 0;
    if (needs_walk(error) && !(error = walk(c, root, whole, 1))) {
        s->parent = open_in(root, whole, O_DIRECTORY);
        if (s->parent < 0) error = errno;
    }
    size_t size = strlen(whole);
    snprintf(whole + size, 2 * PATH_SIZE - size, "%s%s", size > 1 ? "/" : "", s->name);
    if (error) return error;
    if (path_of(s->parent, s->path)) return errno;
    size_t have = strlen(s->path);
    if (have + strlen(s->name) + 2 > PATH_SIZE) return ENAMETOOLONG;
    snprintf(s->path + have, PATH_SIZE - have, "%s%s", have > 1 ? "/" : "", s->name);
    return 0;
}

/* It cannot be reached: the rules may still say why. */
static int nowhere(struct spot *s, const char *whole, int error) {
    if (error != ENOENT && error != EACCES) return error;
    snprintf(s->path, sizeof s->path, "%.*s", PATH_SIZE - 1, whole);
    s->error = error;
    return 0;
}

/* What a path leads to; if nothing is there, where it would be, or why it cannot be reached. 0 or an errno. */
static int find(struct caller *c, int dirfd, const char *text, int follow, struct spot *s) {
    static char whole[2 * PATH_SIZE];
    *s = (struct spot){.object = NO_FILE, .parent = NO_FILE};
    if (!*text) return ENOENT;
    int number = follow ? own_descriptor(c, text) : -1;
    if (number >= 0) return find_descriptor(c, number, s);
    int root = root_of(c->pid), error = root < 0 ? EACCES : 0;
    if (!error && !strcmp(text, "/dev/tty")) {
        return find_terminal(c, root, s);
    }
    if (!error) error = spell(c, dirfd, text, whole);
    if (!error) {
        as_box();
        uint64_t flags = follow ? 0 : O_NOFOLLOW;
        s->object = open_in(root, whole, flags);
        if (s->object < 0) error = errno;
        if (needs_walk(error)) error = walk(c, root, whole, follow);
        if (!error && s->object < 0) {
            s->object = open_in(root, whole, flags);
            if (s->object < 0) error = errno;
        }
        if (!error) error = found(root, s);
        else if (error == ENOENT && !find_parent(c, root, whole, s)) error = 0, s->error = ENOENT;
        else error = nowhere(s, whole, error);
        as_before();
    }
    return error;
}

/* What has a name in a directory. The kernel neither removes nor renames what is a mount point, but it looks for mounts in the namespace
 * of who calls, and ours is not the box's: covers would go along with their files, or fall off. */
static void find_child(struct spot *s) {
    struct how how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_XDEV};
    s->object = (int)syscall(SYS_openat2, s->parent, s->name, &how, sizeof how);
    s->mounted = (s->object < 0 && errno == EXDEV) || is_fixed(s->path);
    if (s->object < 0 && s->mounted) s->object = openat(s->parent, s->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/* A name itself, as unlink and rename mean it: never what it leads to. */
static int find_name(struct caller *c, int dirfd, const char *text, struct spot *s) {
    static char whole[2 * PATH_SIZE];
    *s = (struct spot){.object = NO_FILE, .parent = NO_FILE, .error = ENOENT};
    if (!*text) return ENOENT;
    int root = root_of(c->pid), error = root < 0 ? EACCES : spell(c, dirfd, text, whole);
    if (!error) {
        as_box();
        error = find_parent(c, root, whole, s);
        if (!error) find_child(s);
        else error = nowhere(s, whole, error);
        as_before();
        if (!error && s->object >= 0 && fstat(s->object, &s->info)) error = errno;
    }
    s->slash = text[strlen(text) - 1] == '/';
    return error;
}

static int is_wrongly_slashed(const struct spot *s) { return s->slash && s->object >= 0 && !S_ISDIR(s->info.st_mode); }

/* What a path leads to, or a descriptor alone if the path is empty and the call takes that. */
static int find_given(struct caller *c, int dirfd, const char *text, int flags, int follow, struct spot *s) {
    if (*text || !(flags & AT_EMPTY_PATH)) return find(c, dirfd, text, follow, s);
    *s = (struct spot){.object = NO_FILE, .parent = NO_FILE};
    return find_descriptor(c, dirfd, s);
}

/* How it is before the call. One place for each of the two paths of a call. */
static const char *was(const struct spot *s, int second) {
    static char text[2][STATE_SIZE];
    struct place p = {.how = s->object >= 0 ? THERE : ABSENT, .info = s->info};
    return state_of(&p, text[second]);
}

/* Which file it really is, for the manager; empty if no rule knows it. */
static const char *known_as(const struct spot *s) {
    static char note[PATH_SIZE + 8];
    const char *path = s->object >= 0 && !S_ISDIR(s->info.st_mode) ? denied_as(&s->info) : NULL;
    if (!path || !strcmp(path, s->path)) return "";
    snprintf(note, sizeof note, "same %.*s", PATH_SIZE, path);
    return note;
}

/* --- /proc ------------------------------------------------------------------------------------------------------------- */

static int is_one_of(const char *name, const char *const *names) {
    while (*names && strcmp(*names, name)) names++;
    return !!*names;
}

/* Files that show the namespaces of who opens them: ours are the host's. */
static int shows_ours(const char *path) {
    return !strncmp(path, "/proc/sys/net/", 14) || !strncmp(path, "/proc/sysvipc/", 14);
}

/* Descriptors travel over sockets: one may lead to a process of the same number in another box. */
static int is_of_another_box(struct caller *c, const struct spot *s) {
    struct stat top;
    int root = root_of(c->pid);
    return root < 0 || fstatat(root, "proc", &top, 0) || top.st_dev != s->info.st_dev;
}

static int proc_allows(struct caller *c, const struct spot *s, int writes) {
    static const char *const seen[] = {"stat", "statm", "status", "cmdline", "comm", "cgroup", "limits", "oom_score", "oom_score_adj", "loginuid", "sessionid", NULL};
    if (strncmp(s->path, "/proc/", 6)) return 1;
    if (writes) return 0;
    if (!isdigit((unsigned char)s->path[6])) return !shows_ours(s->path);
    if (is_of_another_box(c, s)) return 0;
    return !belongs_to_another(c, s->path) || is_one_of(strrchr(s->path, '/') + 1, seen);
}

/* --- opening ----------------------------------------------------------------------------------------------------------- */

static int reopen(int object, int flags, mode_t mode) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", object);
    return open(name, flags | O_CLOEXEC, mode);
}

/* Nobody waits for what was asked by a process that is gone: else a fifo would have a reader that there is not. Returns a free place. */
static struct waiter *end_waiters(void) {
    struct waiter *place = NULL;
    for (struct waiter *w = waiting; w < waiting + WAITING_MAX; w++) {
        int over = w->pid && !is_asked(w->id);
        if (over) kill(w->pid, SIGKILL);
        if (w->pid && waitpid(w->pid, NULL, over ? 0 : WNOHANG)) w->pid = 0;
        if (!w->pid) place = w;
    }
    return place;
}

void broker_forgets(void) { end_waiters(); }

/* A process of its own for what would keep us from everybody else: the other end of a fifo, the end of a lease. */
static void open_later(const struct notification *n, int object, int flags) {
    struct waiter *place = end_waiters();
    pid_t ours = getpid(), child = place ? fork() : -1;
    if (child < 0) answer(n->id, EMFILE);
    if (child > 0) *place = (struct waiter){child, n->id};
    if (child) return;
    as_box();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of uid clears it */
    if (getppid() != ours) _exit(0);
    int fd = reopen(object, flags, 0);
    if (fd < 0) answer(n->id, errno);
    else answer_descriptor(n->id, fd, flags);
    _exit(0);
}

static void open_object(const struct notification *n, const struct spot *s, int flags, mode_t mode) {
    int kept = flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW), later = S_ISFIFO(s->info.st_mode) && (flags & O_ACCMODE) != O_RDWR && !(flags & O_NONBLOCK);
    if (later) {
        open_later(n, s->object, kept | O_NOCTTY);
        return;
    }
    as_box();
    mode_t before = umask(0); /* the caller's is in the mode already */
    int fd = reopen(s->object, kept | O_NOCTTY | O_NONBLOCK, mode), error = errno;
    umask(before);
    as_before();
    if (fd < 0 && error == EWOULDBLOCK && !(flags & O_NONBLOCK)) {
        open_later(n, s->object, kept | O_NOCTTY);
    } else if (fd < 0) {
        answer(n->id, error);
    } else {
        if (!(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        answer_descriptor(n->id, fd, flags);
    }
}

/* Returns EEXIST if somebody was quicker. */
static int create_object(const struct notification *n, struct caller *c, const struct spot *s, int flags, mode_t mode) {
    if (look_at(c)) return answer(n->id, EACCES), 0;
    as_box();
    mode_t before = umask(c->mask);
    int fd = openat(s->parent, s->name, flags | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, mode & PLAIN_MODES), error = errno;
    umask(before);
    as_before();
    if (fd >= 0) answer_descriptor(n->id, fd, flags);
    else if (error != EEXIST || flags & O_EXCL) answer(n->id, error);
    else return EEXIST;
    return 0;
}

static enum parted part_spot(pid_t pid, const struct spot *s, int is_held, int empty) {
    static struct place p;
    p = (struct place){.how = THERE, .is_held = is_held, .info = s->info};
    memcpy(p.path, s->path, sizeof p.path);
    return part_links(pid, &p, empty, 1);
}

/* Returns EEXIST if it has to be looked at again. */
static int open_for(const struct notification *n, struct caller *c, int dirfd, const char *text, int flags, mode_t mode) {
    struct spot s;
    int temporary = (flags & TMPFILE) == TMPFILE, changes = !!(flags & CHANGING), again = 0;
    int error = find(c, dirfd, text, !(flags & O_NOFOLLOW) && !(flags & O_CREAT && flags & O_EXCL), &s);
    if (!error && s.object >= 0) {
        if (flags & O_CREAT && flags & O_EXCL && !temporary) error = EEXIST;
        else if (flags & O_CREAT && S_ISDIR(s.info.st_mode) && !temporary) error = EISDIR;
        else if (S_ISLNK(s.info.st_mode) && !(flags & O_PATH)) error = ELOOP;
        else if (!proc_allows(c, &s, changes)) error = EACCES;
    }
    if (!error && flags & O_CREAT && text[strlen(text) - 1] == '/') error = EISDIR;
    if (!error && !is_asked(n->id)) error = EINTR;
    if (error) {
        answer(n->id, error);
    } else if (s.object >= 0 && *s.path != '/') {
        open_object(n, &s, flags, 0); /* a pipe, a socket or a memory file that the caller has already */
    } else if (temporary && look_at(c)) {
        answer(n->id, EACCES);
    } else if (permitted(n, &(struct deed){.operation = changes ? "write" : "read", .path = s.path, .before = was(&s, 0), .changes = changes || temporary,
                                            .note = s.object < 0 && !changes ? MISSING : known_as(&s),
                                            .is_vain = s.object < 0 && !(s.parent >= 0 && flags & O_CREAT)})) {
        enum parted links = NOT_LINKED;
        if (s.object >= 0 && opens_to_write((uint64_t)flags)) links = part_spot(c->pid, &s, own_descriptor(c, text) >= 0, opens_to_empty((uint64_t)flags));
        if (links == PARTED) again = EEXIST;
        else if (links == STAYS_LINKED && !stays_linked(n, s.path)) again = 0; /* the manager is asked */
        else if (s.object >= 0) open_object(n, &s, flags, temporary ? mode & ~c->mask & PLAIN_MODES : 0);
        else if (s.parent >= 0 && flags & O_CREAT) again = create_object(n, c, &s, flags, mode);
        else answer(n->id, s.error);
    }
    leave(&s);
    return again;
}

static int on_open(const struct notification *n, int dirfd, uint64_t address, uint64_t asked, uint64_t mode, int in_memory) {
    struct caller c = {.pid = (pid_t)n->pid};
    char text[PATH_SIZE];
    int flags = (int)asked, tries = 8;
    /* Flags in registers are what the kernel goes on with. */
    if (!in_memory && !(flags & (CHANGING | TMPFILE_ALONE)) && flags & (O_PATH | O_DIRECTORY)) return 0;
    if (is_init(c.pid)) return answer(n->id, 0), 1;
    int error = peek_text((pid_t)n->pid, address, text);
    if (error) return answer(n->id, error), 1;
    if (mode & MODES & ~PLAIN_MODES) return answer(n->id, EPERM), 1;
    while (tries && open_for(n, &c, dirfd, text, flags, (mode_t)mode)) tries--;
    if (!tries) answer(n->id, EBUSY);
    return 1;
}

static int on_openat2(const struct notification *n) {
    const uint64_t *a = n->data.args;
    struct how how = {0};
    if (a[3] != sizeof how) return answer(n->id, a[3] < sizeof how ? EINVAL : E2BIG), 1;
    if (peek((pid_t)n->pid, a[2], &how, sizeof how) != sizeof how) return answer(n->id, EFAULT), 1;
    /* Callers that ask for more than a walk from their root ask for what we cannot show them to be so. */
    if (how.resolve) return answer(n->id, ENOSYS), 1;
    return on_open(n, (int)a[0], a[1], how.flags, how.mode, 1);
}

static int on_exec(const struct notification *n, int dirfd, uint64_t address, uint64_t flags) {
    struct caller c = {.pid = (pid_t)n->pid};
    struct spot s;
    char text[PATH_SIZE];
    if (peek_text((pid_t)n->pid, address, text)) return answer(n->id, 0), 1;
    int error = find_given(&c, dirfd, text, (int)flags, 1, &s);
    if (error || *s.path != '/') answer(n->id, 0); /* the kernel will say so itself */
    else if (permitted(n, &(struct deed){.operation = "exec", .path = s.path, .before = was(&s, 0), .note = s.object < 0 ? MISSING : known_as(&s),
                                              .is_vain = s.object < 0 || !S_ISREG(s.info.st_mode) || !(s.info.st_mode & 0111)})) answer(n->id, 0);
    leave(&s);
    return 1;
}

/* --- changing ---------------------------------------------------------------------------------------------------------- */

static void finish(const struct notification *n, int failed) {
    as_before();
    if (failed) answer(n->id, errno);
    else answer_done(n->id);
}

/* How large a file the caller may make. Read, because prlimit(2) answers root only if it has one capability more. */
static uint64_t size_limit(pid_t pid) {
    char name[64], text[4096];
    snprintf(name, sizeof name, "/proc/%d/limits", pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *line = strstr(text, SIZE_LINE);
    if (!line) return 0;
    line += strlen(SIZE_LINE) + strspn(line + strlen(SIZE_LINE), " ");
    return *line == 'u' ? UINT64_MAX : strtoull(line, NULL, 10); /* a number or `unlimited` */
}

static int on_truncate(const struct notification *n) {
    struct caller c = {.pid = (pid_t)n->pid};
    struct spot s;
    char text[PATH_SIZE];
    int error = peek_text((pid_t)n->pid, n->data.args[0], text);
    if (error) return answer(n->id, error), 1;
    if ((int64_t)n->data.args[1] < 0) return answer(n->id, EINVAL), 1;
    error = find(&c, HERE, text, 1, &s);
    if (!error && s.object < 0) error = s.error;
    if (!error && !S_ISREG(s.info.st_mode)) error = S_ISDIR(s.info.st_mode) ? EISDIR : EINVAL;
    if (!error && !proc_allows(&c, &s, 1)) error = EACCES;
    if (!error && n->data.args[1] > size_limit(c.pid)) error = EFBIG;
    if (error) {
        answer(n->id, error);
    } else if (permitted(n, &(struct deed){.operation = "write", .path = s.path, .before = was(&s, 0), .changes = 1, .note = known_as(&s)})) {
        enum parted links = part_spot(c.pid, &s, own_descriptor(&c, text) >= 0, 0);
        if (links == PARTED) {
            leave(&s);
            return on_truncate(n); /* the path leads to the copy now */
        }
        if (links != STAYS_LINKED || stays_linked(n, s.path)) {
            as_box();
            int fd = reopen(s.object, O_WRONLY | O_NONBLOCK, 0), failed = fd < 0 || ftruncate(fd, (off_t)n->data.args[1]);
            finish(n, failed);
            if (fd >= 0) close(fd);
        }
    }
    leave(&s);
    return 1;
}

enum change { REMOVE, MAKE_DIRECTORY, MAKE_NODE, MAKE_LINK };

static int change_one(const struct notification *n, enum change what, int dirfd, uint64_t address, uint64_t detail) {
    struct caller c = {.pid = (pid_t)n->pid};
    struct spot s;
    static char text[PATH_SIZE], target[PATH_SIZE];
    int error = peek_text((pid_t)n->pid, address, text);
    if (!error && what == MAKE_LINK) error = peek_text((pid_t)n->pid, detail, target);
    if (error) return answer(n->id, error), 1;
    error = find_name(&c, dirfd, text, &s);
    if (error == EINVAL && !(what == REMOVE && detail)) error = what == REMOVE ? EISDIR : EEXIST; /* `.` and `..` */
    if (!error && what == REMOVE && is_wrongly_slashed(&s)) error = ENOTDIR;
    if (!error && s.slash && s.object < 0 && (what == MAKE_NODE || what == MAKE_LINK)) error = ENOENT;
    if (!error && (what == MAKE_DIRECTORY || what == MAKE_NODE) && look_at(&c)) error = EACCES;
    mode_t kind = (mode_t)detail & S_IFMT, mode = (mode_t)detail & ~c.mask;
    if (!error && (what == MAKE_DIRECTORY || what == MAKE_NODE) && detail & MODES & ~PLAIN_MODES) error = EPERM;
    if (!error && what == MAKE_NODE && kind && kind != S_IFREG && kind != S_IFIFO && kind != S_IFSOCK) error = EPERM;
    if (error) {
        answer(n->id, error);
    } else if (!permitted(n, &(struct deed){.operation = what == REMOVE ? "delete" : "create", .path = s.path, .before = was(&s, 0), .changes = 1, .note = "",
                                               .is_moot = (what == REMOVE) == (s.object < 0)})) {
        /* the manager is asked */
    } else if (s.parent < 0) {
        answer(n->id, s.error);
    } else if (what == REMOVE && s.mounted) {
        answer(n->id, EBUSY);
    } else {
        mode_t before = umask(0);
        as_box();
        int failed = what == REMOVE ? unlinkat(s.parent, s.name, (int)detail)
                     : what == MAKE_DIRECTORY ? mkdirat(s.parent, s.name, mode & PLAIN_MODES)
                     : what == MAKE_NODE ? mknodat(s.parent, s.name, kind | (mode & PLAIN_MODES), 0)
                                         : symlinkat(target, s.parent, s.name);
        finish(n, failed);
        umask(before);
    }
    leave(&s);
    return 1;
}

/* A directory that is moved takes names along: 0 if no rule is about one of them, or the call was answered otherwise. */
static int moves_denied(const struct notification *n, int directory, const char *top, int depth, int *left) {
    int fd = reopen(directory, O_RDONLY | O_DIRECTORY, 0), stop = 0;
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        if (fd >= 0) close(fd);
        return answer(n->id, EACCES), 1;
    }
    for (struct dirent *entry; !stop && (entry = readdir(list));) {
        char path[PATH_SIZE];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (!--*left || depth == DEPTH_MAX || snprintf(path, sizeof path, "%s/%s", top, entry->d_name) >= PATH_SIZE) {
            answer(n->id, EACCES);
            stop = 1;
        } else if (is_suspect(path)) {
            stop = !permitted(n, &(struct deed){.operation = "rename", .path = path, .before = "?", .changes = 1, .note = ""});
        }
        if (!stop && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN)) { /* not every file system says what it lists */
            int below = openat(fd, entry->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (below >= 0) {
                stop = moves_denied(n, below, path, depth + 1, left);
                close(below);
            } else if (errno != ENOTDIR && errno != ENOENT) { /* the command may have closed it just for us */
                answer(n->id, EACCES);
                stop = 1;
            }
        }
    }
    closedir(list);
    return stop;
}

static int moves_freely(const struct notification *n, const struct spot *s) {
    int left = SCAN_MAX;
    if (s->object < 0 || !S_ISDIR(s->info.st_mode)) return 1;
    as_box();
    int stop = moves_denied(n, s->object, s->path, 0, &left);
    as_before();
    return !stop;
}

static int on_rename(const struct notification *n, int from_dir, uint64_t from, int to_dir, uint64_t to, unsigned flags) {
    struct caller c = {.pid = (pid_t)n->pid};
    struct spot s, t;
    char text[PATH_SIZE];
    int error = peek_text((pid_t)n->pid, from, text);
    if (error) return answer(n->id, error), 1;
    error = find_name(&c, from_dir, text, &s);
    t = (struct spot){.object = NO_FILE, .parent = NO_FILE};
    if (!error) error = peek_text((pid_t)n->pid, to, text);
    if (!error) error = find_name(&c, to_dir, text, &t);
    if (error == EINVAL) error = EBUSY; /* `.` and `..` */
    s.slash |= t.slash; /* what is called a directory has to be one, and to become one */
    if (!error && (is_wrongly_slashed(&s) || is_wrongly_slashed(&t))) error = ENOTDIR;
    if (error) {
        answer(n->id, error);
    } else if (!permitted(n, &(struct deed){.operation = "rename", .path = s.path, .second = t.path, .before = was(&s, 0), .second_before = was(&t, 1),
                                               .changes = 1, .note = "", .is_moot = s.object < 0 && s.parent >= 0})) {
        /* the manager is asked */
    } else if (s.object < 0 || t.parent < 0) {
        answer(n->id, s.object < 0 ? s.error : t.error);
    } else if (s.mounted || t.mounted) {
        answer(n->id, EBUSY);
    } else if (moves_freely(n, &s) && (!(flags & EXCHANGE) || moves_freely(n, &t))) {
        as_box();
        finish(n, syscall(SYS_renameat2, s.parent, s.name, t.parent, t.name, flags) != 0);
    }
    leave(&s);
    leave(&t);
    return 1;
}

static int on_link(const struct notification *n, int from_dir, uint64_t from, int to_dir, uint64_t to, int flags) {
    struct caller c = {.pid = (pid_t)n->pid};
    struct spot s, t;
    char text[PATH_SIZE], name[64];
    int error = peek_text((pid_t)n->pid, from, text);
    if (error) return answer(n->id, error), 1;
    t = (struct spot){.object = NO_FILE, .parent = NO_FILE};
    error = find_given(&c, from_dir, text, flags, flags & AT_SYMLINK_FOLLOW, &s);
    if (!error && *s.path != '/') error = EXDEV;
    if (!error) error = peek_text((pid_t)n->pid, to, text);
    if (!error) error = find_name(&c, to_dir, text, &t);
    if (error == EINVAL) error = EEXIST; /* `.` and `..` */
    if (!error && t.slash && t.object < 0) error = ENOENT;
    if (error) {
        answer(n->id, error);
    } else if ((*known_as(&s) && !permitted(n, &(struct deed){.operation = "link", .path = s.path, .before = was(&s, 0), .changes = 1, .note = known_as(&s)})) ||
               !permitted(n, &(struct deed){.operation = "link", .path = s.path, .second = t.path, .before = was(&s, 0), .second_before = was(&t, 1),
                                            .changes = 1, .note = "", .is_moot = (s.object < 0 && s.parent >= 0) || t.object >= 0})) {
        /* the manager is asked */
    } else if (s.object < 0 || t.parent < 0) {
        answer(n->id, s.object < 0 ? s.error : t.error);
    } else {
        snprintf(name, sizeof name, "/proc/self/fd/%d", s.object);
        as_box();
        finish(n, linkat(AT_FDCWD, name, t.parent, t.name, AT_SYMLINK_FOLLOW));
    }
    leave(&s);
    leave(&t);
    return 1;
}

int brokered(const struct notification *n) {
    const uint64_t *a = n->data.args;
    switch (n->data.nr) {
#ifdef SYS_open /* machines younger than these calls have only their successors */
    case SYS_open: return on_open(n, HERE, a[0], a[1], a[1] & (O_CREAT | TMPFILE_ALONE) ? a[2] : 0, 0);
    case SYS_creat: return on_open(n, HERE, a[0], O_CREAT | O_WRONLY | O_TRUNC, a[1], 0);
    case SYS_unlink: return change_one(n, REMOVE, HERE, a[0], 0);
    case SYS_rmdir: return change_one(n, REMOVE, HERE, a[0], AT_REMOVEDIR);
    case SYS_mkdir: return change_one(n, MAKE_DIRECTORY, HERE, a[0], a[1]);
    case SYS_mknod: return change_one(n, MAKE_NODE, HERE, a[0], a[1]);
    case SYS_symlink: return change_one(n, MAKE_LINK, HERE, a[1], a[0]);
    case SYS_rename: return on_rename(n, HERE, a[0], HERE, a[1], 0);
    case SYS_link: return on_link(n, HERE, a[0], HERE, a[1], 0);
#endif
#ifdef SYS_renameat
    case SYS_renameat: return on_rename(n, (int)a[0], a[1], (int)a[2], a[3], 0);
#endif
    case SYS_openat: return on_open(n, (int)a[0], a[1], a[2], a[2] & (O_CREAT | TMPFILE_ALONE) ? a[3] : 0, 0);
    case SYS_openat2: return on_openat2(n);
    case SYS_truncate: return on_truncate(n);
    case SYS_unlinkat: return change_one(n, REMOVE, (int)a[0], a[1], a[2] & AT_REMOVEDIR);
    case SYS_mkdirat: return change_one(n, MAKE_DIRECTORY, (int)a[0], a[1], a[2]);
    case SYS_mknodat: return change_one(n, MAKE_NODE, (int)a[0], a[1], a[2]);
    case SYS_symlinkat: return change_one(n, MAKE_LINK, (int)a[1], a[2], a[0]);
    case SYS_renameat2: return on_rename(n, (int)a[0], a[1], (int)a[2], a[3], (unsigned)a[4]);
    case SYS_linkat: return on_link(n, (int)a[0], a[1], (int)a[2], a[3], (int)a[4]);
    case SYS_execve: return on_exec(n, HERE, a[0], 0);
    case SYS_execveat: return on_exec(n, (int)a[0], a[1], a[4]);
    default: return 0;
    }
}
