/* In the guardian: makes names for the box, where the box may make none itself.
 *
 * In a workspace that is the host's own directory some names must not be made, because a program of the host would run what they say:
 * `.git/hooks`, `.vscode`, `.bashrc`. They are not there, so no mount can cover them. Landlock refuses the box to make any name
 * there (confinement/linux/inside.py), and every call that makes one comes here: the guardian has resolved its path, asked the rules
 * about the name in that very directory, and makes the call itself, on the directory's descriptor, with the box's rights.
 *
 * So there is nothing to race for. A call that goes on because it was about another place when it was looked at, and whose path a second
 * thread has changed since, makes nothing: the kernel refuses it. What was looked at is what is used, and only the guardian renames
 * anything there, one call after the other. Elsewhere (/tmp, /dev) the box makes names itself.
 *
 * The kernel neither removes nor renames a mount point, but looks for mounts in the namespace of who calls: what is covered is held
 * here instead, and answers EBUSY as it would to the box.
 *
 * Sockets are left to the box, since `bind` remembers the path that it was called with. A socket that two threads put under a protected
 * name is read by nobody.
 */
#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PLAIN_MODES 01777u
#define SET_ID_BITS 06000u
#define EXCHANGE 2u      /* of renameat2 */
#define MASKS_SIZE 256   /* a power of two */
#define MASK_SECONDS 1   /* so long a number stays with one process: no machine gives all of them away in that time */
#define CHANGING_MAX 16
#define OWN_MASK 022     /* ours, as launch.c has set it */

/* --- with which umask -------------------------------------------------------------------------------------------------- */

/* Only /proc/PID/status says it, and takes longer than what is done with it. It is remembered until anybody in the box changes one;
 * while a call that does so is on its way, nothing is. */
static struct {
    pid_t pid;
    time_t since;
    mode_t mask;
} masks[MASKS_SIZE];
static pid_t changing[CHANGING_MAX];
static size_t changing_count;

void forget_masks(void) { memset(masks, 0, sizeof masks); }

void mask_changes(pid_t pid) {
    forget_masks();
    if (changing_count < CHANGING_MAX) changing[changing_count++] = pid; /* who is not noted keeps the list full */
}

void mask_seen(pid_t pid) {
    for (size_t i = 0; i < changing_count && changing_count < CHANGING_MAX; i++)
        if (changing[i] == pid) changing[i--] = changing[--changing_count];
}

static int mask_of(pid_t pid, mode_t *mask) {
    size_t i = (size_t)pid & (MASKS_SIZE - 1);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!changing_count && masks[i].pid == pid && now.tv_sec - masks[i].since <= MASK_SECONDS) return *mask = masks[i].mask, 0;
    struct caller c = {.pid = pid};
    if (look_at(&c)) return -1;
    *mask = c.mask;
    masks[i].pid = pid, masks[i].since = now.tv_sec, masks[i].mask = c.mask;
    return 0;
}

static void put_mask_on(mode_t mask) {
    if (mask != OWN_MASK) umask(mask);
}

static void take_mask_off(mode_t mask) {
    int kept = errno;
    if (mask != OWN_MASK) umask(OWN_MASK);
    errno = kept;
}

/* --- where ------------------------------------------------------------------------------------------------------------- */

/* Called with the box's rights: the directory of a path that was resolved already. It stays open in the place. 0 or an errno. */
static int find_parent(pid_t pid, struct place *p) {
    char path[PATH_SIZE];
    if (p->parent >= 0 && (p->is_direct || !rights_differ())) return 0;
    if (p->how == UNKNOWN) return EACCES; /* too long a path to be walked with other rights */
    const char *last = strrchr(p->path, '/');
    if (!last || !last[1] || strlen(last + 1) >= sizeof p->name) return EACCES;
    snprintf(p->name, sizeof p->name, "%s", last + 1);
    snprintf(path, sizeof path, "%.*s", last > p->path ? (int)(last - p->path) : 1, p->path);
    struct how how = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, root_of(pid), path, &how, sizeof how);
    if (fd < 0) return errno;
    if (p->parent >= 0) close(p->parent);
    p->parent = fd;
    return 0;
}

/* Whether a mount of the box's is on that name. */
static int is_mounted(const struct place *p) {
    struct how how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_XDEV};
    int fd = (int)syscall(SYS_openat2, p->parent, p->name, &how, sizeof how);
    if (fd >= 0) close(fd);
    return (fd < 0 && errno == EXDEV) || is_fixed(p->path);
}

/* Everything is ready: what was read is still what the caller waits for, and from here on the box's rights count. Answers if not. */
static int is_ready(const struct notification *n, struct place *one, struct place *two) {
    int error = root_of((pid_t)n->pid) < 0 ? EACCES : is_asked(n->id) ? 0 : EINTR;
    as_box();
    if (!error) error = find_parent((pid_t)n->pid, one);
    if (!error && two) error = find_parent((pid_t)n->pid, two);
    /* The rules have refused it by now. Should there be a way around them, it ends here. */
    if (!error && (is_never_made(one->parent, one->name) || (two && is_never_made(two->parent, two->name)))) error = EACCES;
    if (!error) return 1;
    as_before();
    answer(n->id, error);
    return 0;
}

static void finish(const struct notification *n, int failed) {
    as_before();
    if (failed) answer(n->id, errno);
    else answer_done(n->id);
}

/* --- what -------------------------------------------------------------------------------------------------------------- */

/* openat2 may restrict the walk: the directory has to be the one that such a walk finds. 0 or an errno. */
static int check_walk(const struct notification *n, const struct place *p, const struct asked *a) {
    struct stat one, two;
    char parent[PATH_SIZE];
    const char *last = strrchr(a->text, '/');
    if (!a->resolve) return 0;
    if (strcmp(last ? last + 1 : a->text, p->name)) return ENOSYS; /* a link led there; programs do without the call */
    snprintf(parent, sizeof parent, "%.*s", last ? (int)(last - a->text) + 1 : 1, last ? a->text : ".");
    int base = *a->text == '/' && !(a->resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT)) ? root_of((pid_t)n->pid) : base_of((pid_t)n->pid, a->base);
    struct how how = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, a->resolve | RESOLVE_NO_MAGICLINKS};
    if (base == root_of((pid_t)n->pid)) how.resolve |= RESOLVE_IN_ROOT;
    int fd = base < 0 ? -1 : (int)syscall(SYS_openat2, base, parent, &how, sizeof how), error = fd < 0 ? errno : 0;
    if (!error && (fstat(fd, &one) || fstat(p->parent, &two) || one.st_ino != two.st_ino || one.st_dev != two.st_dev)) error = ENOSYS;
    if (fd >= 0) close(fd);
    if (base >= 0 && base != root_of((pid_t)n->pid)) close(base);
    return error;
}

/* It is there: opened here all the same, because the box could not make it again if somebody removed it meanwhile. */
static void open_file(const struct notification *n, struct place *p, const struct asked *a) {
    int flags = (int)a->flags, error = is_asked(n->id) ? 0 : EINTR;
    struct how how = {(uint64_t)((flags & ~(O_CREAT | O_EXCL)) | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC), 0,
                      RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS};
    as_box();
    int fd = error ? -1 : (int)syscall(SYS_openat2, root_of((pid_t)n->pid), p->path, &how, sizeof how);
    if (fd < 0 && !error) error = errno;
    as_before();
    if (fd >= 0) {
        if (!(flags & O_NONBLOCK)) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        answer_descriptor(n->id, fd, flags);
    } else if (error == ENOENT) {
        p->how = ABSENT;
        make_file(n, p, a);
    } else {
        answer(n->id, error == EWOULDBLOCK || error == EINVAL ? 0 : error); /* a lease, or a flag that is the kernel's to judge */
    }
}

void make_file(const struct notification *n, struct place *p, const struct asked *a) {
    int flags = (int)a->flags, is_new = p->how != THERE, error = EACCES;
    mode_t mask = 0;
    if (is_new && p->slash) {
        answer(n->id, EISDIR);
    } else if (!is_new && flags & O_EXCL) {
        answer(n->id, EEXIST);
    } else if (!is_new && (p->is_held || a->resolve || !S_ISREG(p->info.st_mode))) {
        answer(n->id, 0); /* the kernel opens it, and makes nothing */
    } else if (!is_new) {
        open_file(n, p, a);
    } else if (a->mode & 07777 & ~PLAIN_MODES) {
        answer(n->id, EPERM);
    } else if (mask_of((pid_t)n->pid, &mask) || (error = check_walk(n, p, a))) {
        answer(n->id, error);
    } else if (is_ready(n, p, NULL)) {
        put_mask_on(mask);
        int fd = openat(p->parent, p->name, flags | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, (mode_t)a->mode & PLAIN_MODES);
        take_mask_off(mask);
        as_before();
        if (fd >= 0) answer_descriptor(n->id, fd, flags);
        else answer(n->id, errno == EEXIST && !(flags & O_EXCL) ? 0 : errno); /* the host was quicker: now it is there */
    }
}

/* A directory or a node: `kind` is S_IFDIR or what mknod is given. */
static void make_one(const struct notification *n, struct place *p, mode_t kind, mode_t mode) {
    mode_t mask;
    if (p->how == THERE) answer(n->id, EEXIST);
    else if (mode & 07777 & ~PLAIN_MODES) answer(n->id, EPERM);
    else if (kind != S_IFDIR && kind != S_IFREG && kind != S_IFIFO && kind != S_IFSOCK) answer(n->id, EPERM);
    else if (kind != S_IFDIR && p->slash) answer(n->id, ENOENT);
    else if (mask_of((pid_t)n->pid, &mask)) answer(n->id, EACCES);
    else if (is_ready(n, p, NULL)) {
        put_mask_on(mask);
        int failed = kind == S_IFDIR ? mkdirat(p->parent, p->name, mode & PLAIN_MODES) : mknodat(p->parent, p->name, kind | (mode & PLAIN_MODES), 0);
        take_mask_off(mask);
        finish(n, failed);
    }
}

void make_directory(const struct notification *n, struct place *p, mode_t mode) { make_one(n, p, S_IFDIR, mode & 07777); }

void make_node(const struct notification *n, struct place *p, mode_t mode) { make_one(n, p, mode & S_IFMT ? mode & S_IFMT : S_IFREG, mode & 07777); }

void make_symlink(const struct notification *n, struct place *p, uint64_t target) {
    char text[PATH_SIZE];
    int error = p->how == THERE ? EEXIST : p->slash ? ENOENT : peek_text((pid_t)n->pid, target, text);
    if (error) answer(n->id, error);
    else if (is_ready(n, p, NULL)) finish(n, symlinkat(text, p->parent, p->name));
}

void make_link(const struct notification *n, struct place *from, struct place *to) {
    char name[64];
    int by_descriptor = from->how == UNNAMED || from->is_held;
    if (to->how == THERE) answer(n->id, EEXIST);
    else if (to->slash || (by_descriptor && from->object < 0)) answer(n->id, ENOENT);
    else if (S_ISREG(from->info.st_mode) && from->info.st_mode & SET_ID_BITS) answer(n->id, EPERM); /* openat2 makes one without a name */
    else if (is_ready(n, to, by_descriptor ? NULL : from)) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", from->object);
        finish(n, by_descriptor ? linkat(AT_FDCWD, name, to->parent, to->name, AT_SYMLINK_FOLLOW)
                                : linkat(from->parent, from->name, to->parent, to->name, 0));
    }
}

void make_rename(const struct notification *n, struct place *from, struct place *to, unsigned flags) {
    if (from->how != THERE || from->is_odd || (to->how != THERE && flags & EXCHANGE)) {
        answer(n->id, 0); /* it comes to nothing, which is the kernel's to say */
    } else if ((from->slash || to->slash) && !S_ISDIR(from->info.st_mode)) {
        answer(n->id, ENOTDIR);
    } else if (is_ready(n, from, to)) {
        int is_held = is_mounted(from) || (to->how == THERE && is_mounted(to));
        if (is_held) errno = EBUSY;
        finish(n, is_held || syscall(SYS_renameat2, from->parent, from->name, to->parent, to->name, flags) != 0);
    }
}
