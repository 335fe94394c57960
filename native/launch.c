/* Outside the wall. Two processes:
 *
 *   guardian   stays as it was started (root stays root). Waits for the wall to end or for its owner to let go or die,
 *              ends the wall, then removes what a mount cannot: placeholders in the workspace and cgroups. So nothing is left
 *              behind even when the owner was killed with SIGKILL.
 *   the child  joins its cgroups and a fresh keyring, builds the box's file system in a mount namespace of its own, and becomes
 *              bubblewrap, which makes the other namespaces around it; or, without bubblewrap, it is in all of them from its
 *              beginning, and PID 1. Run by root, it becomes a uid that owns nothing before it starts anything.
 *
 * The file system is built here and not by bubblewrap's own options because bubblewrap reads the whole mount table again
 * for every bind: a view of fifty small mounts takes it ten times as long.
 */
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Not in every libc's headers. Numbers are the same on all architectures that have them. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define TREE_CLONE 1u
#define TREE_RECURSIVE 0x8000u
#define EMPTY_PATH 0x1000u
#define MOVE_FROM_EMPTY_PATH 4u
#define MOVE_TO_EMPTY_PATH 0x40u
#define ATTR_RDONLY 1u
#define ATTR_NOSUID 2u
#define ATTR_NODEV 4u
#define ATTR_IDMAP 0x00100000u
#define RESOLVE_NO_SYMLINKS 4u
#define RESOLVE_BENEATH 8u
#define STAGES_MAX 512
#define JOIN_SESSION_KEYRING 1
#define GRACE_MS 2000
#define PINS "/run/pins"
#define NOBODY 65534u
#define LOWER "/run/lower"
#define STORE "/run/store"
#define MEMORY "/run/memory"
#define QUEUES "/dev/mqueue"
#define PLACEHOLDER_TIME 86400 /* the same number is in confinement/linux/masks.py */

struct attributes {
    uint64_t set, clear, propagation, userns;
};
struct how {
    uint64_t flags, mode, resolve;
};

/* One id of the file system is another of the mount. Overlayfs also works with the ids of whoever mounts it, so there root has to
 * be somebody: nobody, where the owner is root itself. */
static void write_map(const char *holder, const char *which, unsigned id, unsigned dedicated, int and_root) {
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%s/%s", holder, which);
    int n = snprintf(line, sizeof line, "%u %u 1", id, dedicated);
    if (and_root) snprintf(line + n, sizeof line - (size_t)n, "\n%u 0 1", id ? 0 : NOBODY);
    write_text(path, line);
}

/* A user namespace in which `uid` of the file system is `dedicated` of the mount; only its descriptor is kept. */
static int mapping(unsigned uid, unsigned gid, unsigned dedicated_uid, unsigned dedicated_gid, int and_root) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC)) die("pipe");
    pid_t holder = fork();
    if (holder < 0) die("fork");
    if (!holder) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* else a failure below would leave it, with all descriptors, for ever */
        char self[16];
        ssize_t size = readlink("/proc/self", self, sizeof self); /* its name there: we may be in another pid namespace than /proc */
        if (size > 0 && !unshare(CLONE_NEWUSER) && write(ready[1], self, (size_t)size) == size) pause();
        _exit(0);
    }
    char name[17] = "", path[64];
    close(ready[1]);
    if (read(ready[0], name, sizeof name - 1) <= 0) die_because("no user namespace for the workspace's owner");
    close(ready[0]);
    write_map(name, "uid_map", uid, dedicated_uid, and_root);
    write_map(name, "gid_map", gid, dedicated_gid, and_root);
    snprintf(path, sizeof path, "/proc/%s/ns/user", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(path);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    return fd;
}

static char area[] = "/sys"; /* where the new root is built, in our own mount namespace: no file of anybody lies there */

/* The path of NAME in the new root, its parents made. */
static char area_path[4096 + sizeof area];
static const char *at(const char *name) {
    char *const path = area_path;
    size_t size = strlen(name);
    if (*name != '/' || size > 4000 || strstr(name, "/../") || (size > 2 && !strcmp(name + size - 3, "/..")))
        die_because("a plan holds a path that cannot be");
    snprintf(path, sizeof area_path, "%s%s", area, strcmp(name, "/") ? name : "");
    for (char *slash = strchr(path + sizeof area, '/'); slash; slash = strchr(slash + 1, '/')) {
        struct stat there;
        *slash = 0;
        if (mkdir(path, 0755) && errno != EEXIST) die(path);
        if (lstat(path, &there)) die(path);
        if (S_ISLNK(there.st_mode)) die_because("a plan goes through a link that it made itself, and would leave the new root");
        *slash = '/';
    }
    return path;
}

static void make_dir(const char *path) {
    if (mkdir(path, 0755) && errno != EEXIST) die(path);
}

static int is_dir(int fd) {
    struct stat info;
    if (fstat(fd, &info)) die("stat");
    return S_ISDIR(info.st_mode);
}

static void set_attributes(int tree, uint64_t set, int userns, const char *what) {
    /* Private: what the host mounts later must not appear in the box, where nobody has made it harmless. */
    struct attributes a = {.set = set | (userns >= 0 ? ATTR_IDMAP : 0), .propagation = MS_PRIVATE,
                           .userns = userns >= 0 ? (uint64_t)userns : 0};
    if (!syscall(SYS_mount_setattr, tree, "", EMPTY_PATH | TREE_RECURSIVE, &a, sizeof a)) return;
    dprintf(2, "ringfence-box: cannot %s %s: %s\n", userns >= 0 ? "map the owner of" : "confine", what, strerror(errno));
    _exit(125);
}

/* A copy of the mounts at PATH, not attached anywhere yet. PATH was resolved when it was granted: a link on the way has been
 * put there since, perhaps by another box that shares the directory. */
static int take(const char *path) {
    struct how how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS};
    int source = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (source < 0) die(path);
    int tree = (int)syscall(SYS_open_tree, source, "", TREE_CLONE | TREE_RECURSIVE | EMPTY_PATH | O_CLOEXEC);
    if (tree < 0) die(path);
    close(source);
    return tree;
}

static void put(int tree, const char *name) {
    const char *path = at(name);
    if (is_dir(tree)) make_dir(path);
    else if (mknod(path, S_IFREG | 0644, 0) && errno != EEXIST) die(path);
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, path, MOVE_FROM_EMPTY_PATH)) die(path);
    close(tree);
}

static void put_tmpfs(const char *name, const char *size, const char *mode, const char *uid, const char *gid) {
    char options[128];
    const char *path = at(name);
    make_dir(path);
    snprintf(options, sizeof options, "size=%s,mode=%s,uid=%s,gid=%s", size, mode, uid, gid);
    if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options)) die(path);
}

/* Memory of SIZE for what is changed, like the upper directory that it covers; the descriptor leads to it when nothing else does any more. */
static void put_memory(const char *size, int kept) {
    char path[64], uid[16], gid[16];
    struct stat like;
    snprintf(path, sizeof path, "%s%s/upper", area, STORE);
    if (stat(path, &like)) die(path);
    snprintf(uid, sizeof uid, "%u", getuid());
    snprintf(gid, sizeof gid, "%u", getgid());
    put_tmpfs(MEMORY, size, "0700", uid, gid);
    const char *const made[] = {MEMORY "/upper", MEMORY "/work"};
    for (int i = 0; i < 2; i++) make_dir(at(made[i]));
    if (chown(at(made[0]), like.st_uid, like.st_gid) || chmod(at(made[0]), like.st_mode & 07777)) die("memory");
    int fd = open(at(MEMORY), O_RDONLY | O_DIRECTORY);
    if (fd < 0 || dup2(fd, kept) < 0) die("memory");
    close(fd);
}

/* A shadow: what is below LOWER stays as it is, what is changed lies in the store, or in memory of a size above what the store has. These
 * are put aside for the time of one mount. */
static void put_overlay(int lower, int store, const char *name, const char *size, int kept) {
    char options[512], changed[64], below[64] = "";
    int in_memory = strcmp(size, "0");
    put(lower, LOWER);
    put(store, STORE);
    if (in_memory) put_memory(size, kept);
    snprintf(changed, sizeof changed, "%s%s", area, in_memory ? MEMORY : STORE);
    if (in_memory) snprintf(below, sizeof below, "%s%s/upper:", area, STORE);
    snprintf(options, sizeof options, "userxattr,lowerdir=%s%s%s,upperdir=%s/upper,workdir=%s/work", below, area, LOWER, changed, changed);
    const char *path = at(name);
    make_dir(path);
    if (mount("overlay", path, "overlay", MS_NOSUID | MS_NODEV, options)) die("cannot mount the shadow");
    const char *const aside[] = {LOWER, STORE, MEMORY};
    for (int i = 0; i < 2 + !!in_memory; i++)
        if (umount2(at(aside[i]), MNT_DETACH) || rmdir(at(aside[i]))) die(aside[i]);
}

static void put_text(const char *name, const char *text) {
    const char *path = at(name);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) die(path);
    close(fd);
    write_text(path, text);
}

static void put_terminals(const char *name) {
    const char *path = at(name);
    make_dir(path);
    if (mount("devpts", path, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")) die(path);
}

/* A path below a staged directory. The workspace's content is hostile, so no link is followed on the way. */
static int beneath(const char *name, const char *below) {
    struct how how = {O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS};
    int root = (int)syscall(SYS_openat2, AT_FDCWD, at(name), &how, sizeof how);
    if (root < 0) die(name);
    how.resolve |= RESOLVE_BENEATH;
    int target = (int)syscall(SYS_openat2, root, below, &how, sizeof how);
    if (target < 0) die(below);
    close(root);
    return target;
}

/* Keeps a directory where it is: the kernel neither renames nor removes what is a mount point anywhere in the namespace. A
 * mount on the directory itself would also forbid to move files in and out of it, so the mount is made in a second copy of
 * the tree, which `seal` covers. */
static int pinned_trees;
static void pin(const char *name, const char *below) {
    static const char *copied;
    static char copy[64];
    if (!copied || strcmp(copied, name)) {
        int tree = (int)syscall(SYS_open_tree, AT_FDCWD, at(name), TREE_CLONE | TREE_RECURSIVE | O_CLOEXEC);
        if (tree < 0) die(name);
        set_attributes(tree, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, -1, name);
        snprintf(copy, sizeof copy, "%s/%d", PINS, pinned_trees++);
        put(tree, copy);
        copied = name;
    }
    int target = beneath(copy, below);
    int tree = (int)syscall(SYS_open_tree, target, "", TREE_CLONE | EMPTY_PATH | O_CLOEXEC);
    if (tree < 0 || syscall(SYS_move_mount, tree, "", target, "", MOVE_FROM_EMPTY_PATH | MOVE_TO_EMPTY_PATH)) die(below);
    close(tree);
    close(target);
}

/* Mounts over one path below a staged directory. */
static void cover(const char *name, const char *below, const char *how) {
    int target = beneath(name, below);
    int hide = !strcmp(how, "hide");
    int tree = hide ? (int)syscall(SYS_open_tree, AT_FDCWD, "/dev/null", TREE_CLONE | O_CLOEXEC)
                    : (int)syscall(SYS_open_tree, target, "", TREE_CLONE | TREE_RECURSIVE | EMPTY_PATH | O_CLOEXEC);
    if (tree < 0) die(below);
    set_attributes(tree, ATTR_NOSUID | ATTR_NODEV | (strcmp(how, "anchor") ? ATTR_RDONLY : 0), -1, below);
    if (hide && is_dir(target)) {
        /* A file cannot cover a directory: an empty read-only tmpfs can. */
        close(tree);
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", target);
        if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=0000,size=4k")) die(below);
    } else {
        if (syscall(SYS_move_mount, tree, "", target, "", MOVE_FROM_EMPTY_PATH | MOVE_TO_EMPTY_PATH)) die(below);
        close(tree);
    }
    close(target);
}

/* A file with what a descriptor holds: a word can hold no NUL byte. */
static void put_file(const char *name, int source) {
    char bytes[65536];
    const char *path = at(name);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) die(path);
    ssize_t got;
    for (off_t done = 0; (got = pread(source, bytes, sizeof bytes, done)) > 0; done += got)
        if (write(fd, bytes, (size_t)got) != got) die(path);
    if (got < 0) die(path);
    close(fd);
}

/* Another content for one file below a staged directory. */
static void replace(const char *name, const char *below, const char *from) {
    int target = beneath(name, below);
    if (is_dir(target)) die_because("a plan replaces a directory by a file");
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, at(from), TREE_CLONE | O_CLOEXEC);
    if (tree < 0) die(from);
    set_attributes(tree, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, -1, from);
    if (syscall(SYS_move_mount, tree, "", target, "", MOVE_FROM_EMPTY_PATH | MOVE_TO_EMPTY_PATH)) die(below);
    close(tree);
    close(target);
}

static int has_users, has_network, is_first;

/* In a new user namespace, in which the ids stay what they are. */
static void keep_ids(unsigned uid, unsigned gid) {
    char line[64];
    has_users = 1;
    write_text("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%u %u 1", uid, uid);
    write_text("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%u %u 1", gid, gid);
    write_text("/proc/self/gid_map", line);
}

/* A namespace of our own. An ordinary user needs a user namespace for that. */
static void unshare_own(int kind) {
    unsigned uid = getuid(), gid = getgid();
    int with_users = uid && !has_users;
    if (unshare((with_users ? CLONE_NEWUSER : 0) | kind)) die("unshare");
    if (with_users) keep_ids(uid, gid);
}

static void private_mounts(void) {
    if (!is_first) unshare_own(CLONE_NEWNS);
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL)) die("mount");
}

static void become(uid_t uid, gid_t gid) {
    if (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid)) die("cannot leave uid 0");
    prctl(PR_SET_DUMPABLE, 1);        /* /proc/self/uid_map is ours to write again */
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of uid clears it */
}

/* One more address of the loopback interface, by the route protocol's RTM_NEWADDR. Without it there is less, and no hole. */
static void add_address(int route, uint8_t family, const uint8_t *address, uint16_t size) {
    struct message {
        uint32_t length;
        uint16_t type, flags;
        uint32_t sequence, sender;
        uint8_t family, prefix, kind, scope;
        uint32_t interface;
        uint8_t attributes[2 * (4 + 16)];
    } m = {.type = 20, .flags = 0x601, .family = family, .prefix = (uint8_t)(size * 8), .kind = 2, .scope = 254, .interface = 1};
    uint16_t head[2] = {(uint16_t)(4 + size), 0};
    size_t at = 0;
    for (head[1] = 1; head[1] <= 2; head[1]++) { /* IFA_ADDRESS, IFA_LOCAL */
        memcpy(m.attributes + at, head, sizeof head);
        memcpy(m.attributes + at + sizeof head, address, size);
        at += head[0];
    }
    m.length = (uint32_t)(offsetof(struct message, attributes) + at);
    (void)!send(route, &m, m.length, 0);
}

/* A network namespace's only interface. It gets a second address of each family: asked for addresses of a family "that this
 * machine has" (AI_ADDRCONFIG), the C library takes no notice of 127.0.0.1 and ::1, and says that there are none. Nothing is
 * reached by them but the box itself. The same addresses are in confinement/base.py. */
static void loopback_up(void) {
    static const uint8_t v4[] = {127, 82, 70, 1};
    static const uint8_t v6[] = {0xfd, 0x72, 0x69, 0x6e, 0x67, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request)) die("loopback");
    close(fd);
    int route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (route < 0) return;
    add_address(route, AF_INET, v4, sizeof v4);
    add_address(route, AF_INET6, v6, sizeof v6);
    close(route);
}

/* What of /proc is the machine's and no process's, whatever its modes say: commands may write their own files there. For
 * bubblewrap the list is in confinement/linux/bwrap.py. */
static void freeze_machine(void) {
    static const char *const parts[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/pressure"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!access(at(parts[i]), F_OK)) cover("/proc", parts[i] + sizeof "/proc", "freeze");
}

/* Not one user namespace more than the next, whatever the filter would let pass: below each lie system calls that are root's otherwise.
 * The limit is of the user namespace that we are in, which must be one of ours. */
static void last_users(int proc) {
    int fd = openat(proc, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "1", 1) != 1) die("user namespaces");
    close(fd);
}

/* Where nobody has to be in the network, or in the user namespace, of the box but outside of its pid namespace, PID 1 builds the
 * file system itself, and no process stands between it and the guardian. */
static pid_t fork_first(unsigned uid, unsigned gid) {
    unsigned long namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | (uid ? CLONE_NEWUSER : 0);
    pid_t child = (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child < 0) die("namespaces");
    if (child) return child;
    is_first = 1;
    if (uid) keep_ids(uid, gid);
    return 0;
}

/* The same for a process that is not PID 1 yet. */
static void become_first(void) {
    if (unshare(CLONE_NEWPID | (has_network ? 0 : CLONE_NEWNET) | CLONE_NEWIPC | CLONE_NEWUTS)) die("unshare");
    pid_t first = fork();
    if (first < 0) die("fork");
    if (first) {
        int status;
        syscall(SYS_close_range, 3u, ~0u, 0u); /* the control socket must close when PID 1 does */
        while (waitpid(first, &status, 0) < 0 && errno == EINTR) {}
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* What bubblewrap does otherwise: the other namespaces, the new root, and a user namespace in which we own nothing. */
static void enter(uid_t uid, gid_t gid, uid_t inside_uid, gid_t inside_gid) {
    if (!is_first) become_first();
    if (unshare(CLONE_NEWCGROUP)) die("unshare"); /* now: what we have joined is its root */
    setsid();
    if (!has_network) loopback_up();
    if (sethostname("sandbox", 7)) die("hostname");
    if (mount("proc", at("/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL)) die("proc");
    /* It lists the keys that the caller's uid may see; keyrings are not namespaced. */
    if (!access(at("/proc/keys"), F_OK)) cover("/proc", "keys", "hide");
    int proc = (int)syscall(SYS_open_tree, AT_FDCWD, at("/proc"), TREE_CLONE | O_CLOEXEC); /* as it is before it is frozen */
    if (proc < 0) die("proc");
    freeze_machine();
    /* Also so that Landlock has something to say yes to: queues belong to a file system that is not in the view otherwise. */
    if (mount("mqueue", at(QUEUES), "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) && errno != ENODEV) die(QUEUES);
    if (chdir(area) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/")) die("new root");
    if (getuid() != uid) become(uid, gid);
    if (!has_users) own_users(inside_uid, inside_gid);
    last_users(proc);
    close(proc);
    own_users(inside_uid, inside_gid);
    if (!unshare(CLONE_NEWUSER)) die_because("a user namespace could be made that must not be");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
}

static struct words whole; /* the plan */

/* What exec takes away besides: capabilities, and what is in memory. A plan tells of paths outside, and an interpreter may be forked
 * from us later. */
noreturn static void stay(int control, int memory) {
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    uint32_t none[6] = {0};
    if (syscall(SYS_capset, &head, none)) die("capabilities");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) die("parent-death signal");
    wipe(whole.at, (size_t)(whole.end - whole.at));
    wipe(area_path, sizeof area_path);
    init(control, memory);
}

/* The way into the wall, one verb after the other:
 *
 *   join FILE                     write ourselves into a cgroup
 *   capture FD UID GID            a network namespace of our own in which every address is local, and a socket maker with these ids that makes sockets
 *                                 there for whoever has the other end of FD; before `join`, because the socket maker is no process of the box's
 *   captured                      end here if the network is still the one that we were started in, or has an interface besides its loopback
 *   private                       a mount namespace of our own
 *   network                       a network namespace of our own, its loopback up; bubblewrap's has no second addresses
 *   map UID GID UID GID           from here on, the owner of a mapped directory and the ids that stand for it (root only)
 *   layers UID GID UID GID        the same, for what an overlay is made of
 *   take PATH | mapped PATH       copy the mounts at PATH; they are numbered from 0
 *   area                          start the new root; what it covers has to be taken before
 *   show|share|device NUMBER NAME put a copy at NAME of the new root: read-only, writable, or as a device
 *   overlay NUMBER NUMBER NAME SIZE FD  put at NAME what the first copy shows, changes kept in `upper` of the second; or, if SIZE is not 0,
 *                                 in memory of that size, to which FD leads from then on
 *   text NAME TEXT | link NAME TARGET | dir NAME | terminals NAME | tmpfs NAME SIZE MODE UID GID
 *   pin NAME BELOW                keep a directory below a directory of the new root where it is
 *   hide|freeze|anchor NAME BELOW cover a path of a directory of the new root: unreadable, read-only, or only unmovable
 *   file NAME FD                  a file with what FD holds
 *   replace NAME BELOW FROM       cover a file below a directory of the new root by the file FROM of the new root
 *   seal                          make the new root itself read-only
 *   become UID GID                leave uid 0 for good
 *   enter UID GID UID GID         for the wall without bubblewrap: our ids, and what they look like inside
 *   exec ARGV...
 *   stay FD FD                    be PID 1 without exec: the control socket, and what holds a shadow's changes, or 0
 *   attach NUMBER PATH            for a container engine: put a writable copy at PATH of the host, from where it is mounted
 *   built                         the wall is the container engine's business; the guardian stays
 */
noreturn static void prepare(struct words w) {
    static int trees[STAGES_MAX];
    size_t count = 0;
    int userns = -1;
    uint64_t outside = 0;
    while (more(&w)) {
        const char *verb = word(&w);
        if (!strcmp(verb, "join")) {
            write_text(word(&w), "0");
        } else if (!strcmp(verb, "capture")) {
            int manager = (int)number(&w);
            uid_t uid = (uid_t)number(&w);
            outside = network_number();
            unshare_own(CLONE_NEWNET);
            has_network = 1;
            capture(manager, uid, (gid_t)number(&w));
        } else if (!strcmp(verb, "captured")) {
            if (!has_network) die_because("a plan has captured no network");
            check_captured(outside);
        } else if (!strcmp(verb, "private")) {
            private_mounts();
        } else if (!strcmp(verb, "network")) {
            if (unshare(CLONE_NEWNET)) die("network namespace");
            loopback_up();
        } else if (!strcmp(verb, "map") || !strcmp(verb, "layers")) {
            unsigned n[4];
            for (int i = 0; i < 4; i++) n[i] = (unsigned)number(&w);
            if (userns >= 0) close(userns);
            userns = mapping(n[0], n[1], n[2], n[3], *verb == 'l');
        } else if (!strcmp(verb, "take") || !strcmp(verb, "mapped")) {
            if (count == STAGES_MAX) die_because("too many directories to show");
            const char *path = word(&w);
            trees[count] = take(path);
            if (*verb == 'm' && userns < 0) die_because("a plan maps an owner that it did not name");
            if (*verb == 'm') set_attributes(trees[count], 0, userns, path);
            count++;
        } else if (!strcmp(verb, "area")) {
            if (mount("tmpfs", area, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m")) die(area);
        } else if (!strcmp(verb, "show") || !strcmp(verb, "share") || !strcmp(verb, "device")) {
            uint64_t which = number(&w);
            const char *name = word(&w);
            if (which >= count) die_because("a plan puts what it did not take");
            set_attributes(trees[which],
                           ATTR_NOSUID | (!strcmp(verb, "show") ? ATTR_RDONLY | ATTR_NODEV : !strcmp(verb, "share") ? ATTR_NODEV : 0),
                           -1, name);
            put(trees[which], name);
        } else if (!strcmp(verb, "overlay")) {
            uint64_t lower = number(&w), store = number(&w);
            if (lower >= count || store >= count) die_because("a plan puts what it did not take");
            const char *name = word(&w), *size = word(&w);
            put_overlay(trees[lower], trees[store], name, size, (int)number(&w));
        } else if (!strcmp(verb, "text")) {
            const char *name = word(&w);
            put_text(name, word(&w));
        } else if (!strcmp(verb, "file")) {
            const char *name = word(&w);
            put_file(name, (int)number(&w));
        } else if (!strcmp(verb, "replace")) {
            const char *name = word(&w), *below = word(&w);
            replace(name, below, word(&w));
        } else if (!strcmp(verb, "link")) {
            const char *name = word(&w), *target = word(&w);
            if (symlink(target, at(name))) die(name);
        } else if (!strcmp(verb, "dir")) {
            make_dir(at(word(&w)));
        } else if (!strcmp(verb, "terminals")) {
            put_terminals(word(&w));
        } else if (!strcmp(verb, "tmpfs")) {
            const char *n[5];
            for (int i = 0; i < 5; i++) n[i] = word(&w);
            put_tmpfs(n[0], n[1], n[2], n[3], n[4]);
        } else if (!strcmp(verb, "hide") || !strcmp(verb, "freeze") || !strcmp(verb, "anchor")) {
            const char *name = word(&w);
            cover(name, word(&w), verb);
        } else if (!strcmp(verb, "pin")) {
            const char *name = word(&w);
            pin(name, word(&w));
        } else if (!strcmp(verb, "seal")) {
            if (pinned_trees && mount("tmpfs", at(PINS), "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=0000,size=4k")) die(PINS);
            struct attributes a = {.set = ATTR_RDONLY};
            if (syscall(SYS_mount_setattr, AT_FDCWD, area, 0, &a, sizeof a)) die("seal");
        } else if (!strcmp(verb, "become")) {
            uid_t uid = (uid_t)number(&w);
            become(uid, (gid_t)number(&w));
        } else if (!strcmp(verb, "enter")) {
            unsigned n[4];
            for (int i = 0; i < 4; i++) n[i] = (unsigned)number(&w);
            enter(n[0], n[1], n[2], n[3]);
        } else if (!strcmp(verb, "attach")) {
            uint64_t which = number(&w);
            const char *path = word(&w);
            if (which >= count) die_because("a plan attaches what it did not take");
            set_attributes(trees[which], ATTR_NOSUID | ATTR_NODEV, -1, path);
            if (syscall(SYS_move_mount, trees[which], "", AT_FDCWD, path, MOVE_FROM_EMPTY_PATH)) die(path);
        } else if (!strcmp(verb, "stay")) {
            int control = (int)number(&w), memory = (int)number(&w);
            stay(control, memory ? memory : -1);
        } else if (!strcmp(verb, "built")) {
            _exit(0);
        } else if (!strcmp(verb, "exec")) {
            static char *argv[64], *none[] = {NULL};
            size_t n = 0;
            while (more(&w) && n + 1 < sizeof argv / sizeof *argv) argv[n++] = word(&w);
            if (!n) die_because("nothing to start");
            execve(argv[0], argv, none);
            die(argv[0]);
        } else {
            die_because("a plan holds an unknown verb");
        }
    }
    die_because("a plan starts nothing");
}

static void remove_cgroup(const char *path) {
    /* A cgroup can be removed once its last process is reaped, which may be a moment after we saw it die. */
    for (int tries = 0; tries < 1000 && rmdir(path) && errno == EBUSY; tries++) {
        char procs[4096];
        snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
        FILE *list = fopen(procs, "re");
        int pid;
        while (list && fscanf(list, "%d", &pid) == 1) kill(pid, SIGKILL);
        if (list) fclose(list);
        usleep(5000);
    }
}

/* A placeholder is a socket that nobody listens on, which most programs skip, or a file of at most two bytes; it is marked by a
 * time that no clock shows. */
static int is_placeholder(const struct stat *info) {
    int kind = S_ISSOCK(info->st_mode) || (S_ISREG(info->st_mode) && info->st_size <= 2);
    return kind && info->st_mtim.tv_sec == PLACEHOLDER_TIME;
}

/* Removes BELOW of TOP without following a link that the box may have put on the way. */
static void remove_below(int top, char *below) {
    struct stat there;
    char *name = strrchr(below, '/');
    const char *parent = ".";
    if (name) *name++ = 0, parent = below;
    else name = below;
    struct how how = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    int dir = (int)syscall(SYS_openat2, top, parent, &how, sizeof how);
    if (dir >= 0 && !fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) && is_placeholder(&there))
        unlinkat(dir, name, 0);
    if (dir >= 0) close(dir);
}

/* The guardian's part of the plan comes first, ended by `wall`:
 *
 *   lifeline FD             the owner's end of it closes when the owner lets go
 *   first                   the child is PID 1 of the box from its beginning
 *   lock FD                 a directory that boxes share: what follows is removed by the last of them only
 *   placeholder BELOW       remove it, wherever the directory of the last lock is by then
 *   cgroup PATH
 *   detach PATH             unmount what was attached there; done as soon as the box stands
 *   remove PATH             a file or an empty directory of ours
 */
struct duty {
    const char *verb, *path;
    char *below;
    int fd;
};

static int next_duty(struct words *w, struct duty *d) {
    *d = (struct duty){.verb = word(w), .fd = -1};
    if (!strcmp(d->verb, "wall")) return 0;
    if (!strcmp(d->verb, "first")) return 1;
    if (!strcmp(d->verb, "lifeline") || !strcmp(d->verb, "lock")) d->fd = (int)number(w);
    else if (!strcmp(d->verb, "placeholder")) d->below = word(w);
    else if (!strcmp(d->verb, "cgroup") || !strcmp(d->verb, "detach") || !strcmp(d->verb, "remove")) d->path = word(w);
    else die_because("a plan holds an unknown duty");
    return 1;
}

static void detach_all(struct words w) {
    struct duty d;
    while (next_duty(&w, &d))
        if (!strcmp(d.verb, "detach")) umount2(d.path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

static void do_duties(struct words w) {
    struct duty d;
    int shared = -1, last = 0;
    detach_all(w);
    while (next_duty(&w, &d)) {
        if (!strcmp(d.verb, "remove") && unlink(d.path)) rmdir(d.path);
        if (!strcmp(d.verb, "lock")) shared = d.fd, last = !flock(d.fd, LOCK_EX | LOCK_NB);
        if (!strcmp(d.verb, "placeholder") && last) remove_below(shared, d.below);
        if (!strcmp(d.verb, "cgroup")) remove_cgroup(d.path);
    }
}

/* Keep nothing that belongs to the child: its control socket must close when it dies. */
static void close_inherited(void) {
    DIR *list = opendir("/proc/self/fd");
    if (!list) die("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(list));) {
        int fd = atoi(entry->d_name);
        if (fd > 2 && fd != dirfd(list) && !(fcntl(fd, F_GETFD) & FD_CLOEXEC)) close(fd);
    }
    closedir(list);
}

/* The first process of a box in a container, which is no child of ours: the duties wait for its end. */
static int entrusted = -1;

static void end_entrusted(void) {
    struct pollfd wait = {.fd = entrusted, .events = POLLIN};
    if (entrusted < 0) return;
    /* It goes by itself when its control socket closes. One that its engine has frozen goes when it is thawed: until then it
     * could still be let loose on what we are about to uncover. */
    while (poll(&wait, 1, GRACE_MS) <= 0) syscall(SYS_pidfd_send_signal, entrusted, SIGKILL, NULL, 0);
}

/* What the owner says over the lifeline: whom to supervise and by which rules, answers to what it was asked, and whose end to
 * wait for. 0 at its end. */
static int hear(int lifeline, struct words duties) {
    uint32_t head[4];
    char space[CMSG_SPACE(3 * sizeof(int))];
    struct iovec io = {head, sizeof head};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t got = recvmsg(lifeline, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
    if (got <= 0) return 0;
    if (got != sizeof head || head[0] != PROTOCOL_VERSION) die_because("the owner speaks another version");
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (head[1] == ATTACH && c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(3 * sizeof(int)) && supervised() < 0) {
        int fds[3];
        memcpy(fds, CMSG_DATA(c), sizeof fds);
        supervise(fds[0], fds[1], fds[2], lifeline);
        close(fds[1]);
        close(fds[2]);
    } else if (head[1] == ENTRUST && c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)) && entrusted < 0) {
        memcpy(&entrusted, CMSG_DATA(c), sizeof entrusted);
        detach_all(duties);
    } else if (head[1] == ANSWER) {
        supervisor_answered(head[2], head[3]);
    } else if (head[1] == FORGET) {
        supervisor_forgets();
    } else {
        die_because("the owner says what makes no sense");
    }
    return 1;
}

noreturn void launch(int plan, pid_t owner) {
    setsid(); /* the caller's Ctrl-C is the caller's to handle */
    umask(022); /* what is built is for the box's user to enter, who may be another; PID 1 is told its own */
    struct words w = slurp(plan), cleanup = w;
    whole = w;
    int lifeline = -1, first = 0;
    fcntl(plan, F_SETFD, FD_CLOEXEC);
    struct duty d;
    while (next_duty(&w, &d)) {
        if (d.fd >= 0) fcntl(d.fd, F_SETFD, FD_CLOEXEC);
        if (!strcmp(d.verb, "lifeline")) lifeline = d.fd;
        if (!strcmp(d.verb, "first")) first = 1;
    }
    if (lifeline < 0) die_because("a plan has no lifeline");
    int watched = (int)syscall(SYS_pidfd_open, owner, 0);
    if (watched < 0) die("owner");
    fcntl(watched, F_SETFD, FD_CLOEXEC);
    if (getppid() != owner) _exit(125); /* it died before we could watch it */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, 0);

    struct pollfd guardian = {.fd = (int)syscall(SYS_pidfd_open, getpid(), 0), .events = POLLIN};
    if (guardian.fd < 0) die("guardian");
    pid_t child = first ? fork_first(getuid(), getgid()) : fork();
    if (child < 0) die("fork");
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (poll(&guardian, 1, 0)) _exit(125); /* it died before that held */
        close(guardian.fd);
        /* Keys are not namespaced: without this the caller's session keyring would come along. No keyring support: nothing to hide. */
        syscall(SYS_keyctl, JOIN_SESSION_KEYRING, NULL);
        prepare(w);
    }
    close(guardian.fd);
    int ended = (int)syscall(SYS_pidfd_open, child, 0), status = 0;
    if (ended < 0) die("child");
    fcntl(ended, F_SETFD, FD_CLOEXEC);
    close_inherited();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 2);

    struct pollfd wait[] = {{.fd = ended, .events = POLLIN}, {.fd = lifeline, .events = POLLIN}, {.fd = watched, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    for (int gone = 0, released = 0; !gone || !released;) {
        int ready = poll(wait, 4, released ? GRACE_MS : -1);
        if (ready < 0 && errno == EINTR) continue;
        if (wait[3].revents && (!(wait[3].revents & POLLIN) || !supervise_one())) wait[3].fd = -1;
        if (wait[1].revents & POLLIN && hear(lifeline, cleanup)) {
            wait[1].revents = 0;
            wait[3].fd = supervised();
            if (!wait[2].revents && !wait[0].revents) continue;
        }
        if (wait[1].revents || wait[2].revents) {
            released = 1;
            if (wait[2].revents && !gone) kill(child, SIGKILL);
            wait[1].fd = wait[2].fd = -1;
            wait[1].revents = wait[2].revents = 0;
        }
        if (wait[0].revents) {
            waitpid(child, &status, 0);
            gone = 1;
            wait[0].fd = -1;
            wait[0].revents = 0;
        }
        if (!ready && released && !gone) kill(child, SIGKILL); /* it had its grace */
    }
    /* A killed bubblewrap leaves its PID 1 to us, the subreaper; where there is no pid namespace, all that PID 1 had. */
    do kill_children();
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
    end_entrusted();

    do_duties(cleanup);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
