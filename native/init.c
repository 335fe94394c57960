/* Inside the wall: PID 1 of the box.
 *
 * Confines itself (limits, Landlock; bubblewrap has already applied seccomp and no_new_privs), says READY, then starts
 * commands as it is told, several side by side if need be. When a command's first process ends, all that it left behind is
 * killed and reaped before the end is reported, so a report means: nothing of it is left. What it used is summed over all of
 * it.
 *
 * What belongs to which command is the kernel's word, twice. The first process of each is a subreaper, so that orphans stay below
 * it, and become our children only when it has ended. And every process of a command carries its number (tag.c), so that what one
 * command leaves running, if it may, is not taken for what another has left over.
 * Each command has a Landlock domain of its own: it cannot look into, or write into, the processes of another one, such as an
 * interpreter that waits for the next call.
 *
 * It cannot be stopped or killed from inside (the kernel shields PID 1 of a pid namespace from its own), cannot be read
 * (undumpable), and its only descriptor besides /dev/null is the control socket, which no child inherits. When that socket
 * closes, it exits, and the kernel ends whatever is left.
 *
 * In the wall without a pid namespace it is a subreaper instead, and kills by walking its children.
 */
#include "box.h"
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#define RULE_PATH_BENEATH 1
#define MODE_FILTER 2
#define SET_MODE_FILTER 1
#define NEW_LISTENER 8u
#define WAIT_KILLABLE_RECV 32u
#define FILTER_MAX 4096 /* instructions that the kernel takes */
#define EXTRA_FD 9                  /* where a command finds a fourth descriptor; a fifth is at the number below */
#define KEPT_FD 64                  /* from here on, what is ours: out of the way of the numbers that commands are given */
#define FDS_MAX 6                   /* five, and a long body */
#define STRAYS_MAX 4096
#define PATIENCE_MS 200             /* how long left-overs may go on forking before they are stopped before they are killed */
#define DESPAIR_MS 2000             /* how long before everything is killed */
#define STUCK_MS 20                 /* how long nothing has to end before somebody is thought to hold it */

static int control, configured, domain = -1, handed = -1, unseen, watched;
static rlim_t cpu_seconds = RLIM_INFINITY;
static sigset_t children;

/* As the kernel defines them; its headers are not there for every libc. */
struct instruction {
    uint16_t code;
    uint8_t yes, no;
    uint32_t operand;
};
struct program {
    unsigned short length;
    struct instruction *instructions;
};
struct ruleset {
    uint64_t fs, net, scoped;
};
struct beneath {
    uint64_t access;
    int32_t parent;
} __attribute__((packed));

static uint64_t micros(struct timeval t) { return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_usec; }

static void send_numbers(uint32_t kind, uint32_t id, const uint64_t *n, size_t count) {
    struct {
        struct header h;
        uint64_t n[8];
    } out = {.h = {PROTOCOL_VERSION, kind, id, (uint32_t)(count * sizeof *n)}};
    if (count) memcpy(out.n, n, count * sizeof *n);
    while (send(control, &out, sizeof out.h + count * sizeof *n, MSG_NOSIGNAL) < 0)
        if (errno != EINTR) _exit(0); /* nobody listens any more */
}

static void send_descriptor(uint32_t kind, uint32_t id, int fd) {
    struct header h = {PROTOCOL_VERSION, kind, id, 0};
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec io = {&h, sizeof h};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    while (sendmsg(control, &m, MSG_NOSIGNAL) < 0)
        if (errno != EINTR) _exit(0);
}

/* A connection to a server in the box. It may still be on its way: nobody waits for it here, where everybody else waits. */
static int dial(uint32_t port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    errno = EINVAL;
    int fd = port && port < 65536 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd < 0 || !connect(fd, (struct sockaddr *)&to, sizeof to) || errno == EINPROGRESS) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* A socket of the box's network for the manager, in a container: elsewhere a socket maker outside makes them (capture.c). No copy is kept. */
static void send_socket(uint32_t kind, uint32_t id, uint32_t which) {
    int fd = kind == DIAL ? dial(which) : make_socket(kind, which);
    struct {
        struct header h;
        uint64_t error;
    } out = {{PROTOCOL_VERSION, MADE, id, sizeof(uint64_t)}, fd < 0 ? (uint64_t)errno : 0};
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec io = {&out, sizeof out};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = space, m.msg_controllen = sizeof space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    while (sendmsg(control, &m, MSG_NOSIGNAL) < 0) {
        if (errno == ETOOMANYREFS && m.msg_control) out.error = ETOOMANYREFS, m.msg_control = NULL, m.msg_controllen = 0;
        else if (errno != EINTR) _exit(0);
    }
    if (fd >= 0) close(fd);
}

static struct program read_program(int fd) {
    struct words bytes = slurp(fd);
    size_t size = (size_t)(bytes.end - bytes.at);
    if (size % sizeof(struct instruction) || size / sizeof(struct instruction) > FILTER_MAX) die_because("no filter has that size");
    return (struct program){(unsigned short)(size / sizeof(struct instruction)), (void *)bytes.at};
}

/* Only the wall without bubblewrap leaves the filter to us. */
static void apply_filter(int fd) {
    struct program program = read_program(fd);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
    if (prctl(PR_SET_SECCOMP, MODE_FILTER, &program)) die("seccomp");
    free(program.instructions);
}

/* A filter that stops some calls until somebody outside has looked at them; returns where they are looked at. */
static int apply_notification(int fd) {
    struct program program = read_program(fd);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
    /* A call that is being looked at is interrupted by fatal signals only, or it might be looked at twice; since Linux 5.19. */
    long listener = syscall(SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER | WAIT_KILLABLE_RECV, &program);
    if (listener < 0 && errno == EINVAL) listener = syscall(SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, &program);
    if (listener < 0) die("seccomp notification");
    free(program.instructions);
    return (int)listener;
}

static void add_rule(int rules, uint64_t access, const char *path) {
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) die(path);
    struct beneath b = {access, fd};
    if (syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &b, 0)) die(path);
    close(fd);
}

static void set_limit(int resource, rlim_t value) {
    struct rlimit have, want = {value, value};
    if (getrlimit(resource, &have)) die("getrlimit");
    if (have.rlim_max < value) want.rlim_cur = want.rlim_max = have.rlim_max; /* never raise what the host set */
    if (have.rlim_cur <= value && have.rlim_max <= value) return; /* as low already; gVisor lets some not be set at all */
    if (setrlimit(resource, &want)) die("setrlimit");
}

/* Words: umask N | rlimit RESOURCE VALUE | cpu SECONDS | landlock SIZE FS NET SCOPED | beneath ACCESS PATH | restrict |
 * apart ACCESS | window PATH | hand | reaper | captured NUMBER | complain | filter | notify; the last three take a descriptor each, in their order. Returns the
 * listener of `notify`. */
static int configure(struct words w, const int *fds, int count_fds) {
    int rules = -1, used = 0, listener = -1;
    while (more(&w)) {
        const char *verb = word(&w);
        if (!strcmp(verb, "umask")) {
            umask((mode_t)number(&w));
        } else if (!strcmp(verb, "rlimit")) {
            int resource = (int)number(&w);
            set_limit(resource, number(&w));
        } else if (!strcmp(verb, "cpu")) {
            struct rlimit have;
            cpu_seconds = number(&w);
            if (getrlimit(RLIMIT_CPU, &have)) die("getrlimit");
            if (have.rlim_max < cpu_seconds) cpu_seconds = have.rlim_max;
        } else if (!strcmp(verb, "landlock")) {
            size_t size = number(&w);
            struct ruleset r;
            r.fs = number(&w), r.net = number(&w), r.scoped = number(&w);
            rules = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
            if (rules < 0) die("landlock");
        } else if (!strcmp(verb, "beneath")) {
            uint64_t access = number(&w);
            add_rule(rules, access, word(&w));
        } else if (!strcmp(verb, "restrict")) {
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
            if (syscall(SYS_landlock_restrict_self, rules, 0)) die("landlock");
            close(rules);
        } else if (!strcmp(verb, "apart")) {
            /* Takes nothing away; what counts is that each command that enters it is in a domain of its own. */
            struct ruleset r = {.fs = number(&w)};
            int made = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof r.fs, 0);
            domain = made < 0 ? -1 : fcntl(made, F_DUPFD_CLOEXEC, EXTRA_FD + 1); /* the limit on numbers may be low by now */
            if (domain < 0) die("landlock");
            close(made);
            add_rule(domain, r.fs, "/");
        } else if (!strcmp(verb, "complain")) {
            /* A container's stderr goes to its engine: until we are ready, faults are told to the manager instead. */
            if (used >= count_fds || dup2(fds[used++], 2) < 0) die_because("nobody listens to complaints");
        } else if (!strcmp(verb, "filter")) {
            if (used >= count_fds) die_because("no filter came with the configuration");
            apply_filter(fds[used++]);
        } else if (!strcmp(verb, "notify")) {
            if (used >= count_fds) die_because("no filter came with the configuration");
            listener = apply_notification(fds[used++]);
            watched = 1;
        } else if (!strcmp(verb, "window")) {
            const char *path = word(&w);
            int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (fd < 0) die(path);
            send_descriptor(WINDOW, 0, fd);
            close(fd);
        } else if (!strcmp(verb, "hand")) {
            send_descriptor(WINDOW, 1, handed);
            close(handed);
        } else if (!strcmp(verb, "captured")) {
            /* The launcher has looked, too: with the host's network nothing of ours would stand between. */
            check_captured(number(&w));
        } else if (!strcmp(verb, "reaper")) {
            if (prctl(PR_SET_CHILD_SUBREAPER, 1)) die("subreaper");
        } else {
            die_because("a configuration holds an unknown verb");
        }
    }
    return listener;
}

struct job jobs[JOBS_MAX];

static struct job *job_of(pid_t first) {
    for (struct job *j = jobs; j < jobs + JOBS_MAX; j++)
        if (j->first == first) return j;
    return NULL;
}

struct job *job_called(uint32_t id) {
    for (struct job *j = jobs; j < jobs + JOBS_MAX; j++)
        if (j->first && j->id == id) return j;
    return NULL;
}

static int others(const struct job *than) {
    for (struct job *j = jobs; j < jobs + JOBS_MAX; j++)
        if (j->first && j != than) return 1;
    return 0;
}

static int keeps_any(void) {
    for (struct job *j = jobs; j < jobs + JOBS_MAX; j++)
        if (j->first == KEPT) return 1;
    return 0;
}

static void count(struct job *j, const struct rusage *used) {
    j->user += micros(used->ru_utime);
    j->system += micros(used->ru_stime);
    if ((uint64_t)used->ru_maxrss > j->peak) j->peak = (uint64_t)used->ru_maxrss;
}

static void report(struct job *j, uint32_t kind) {
    uint64_t n[] = {(uint64_t)(uint32_t)(j->status & 0xffff) | (j->swept ? SWEPT : 0u), j->user, j->system, j->peak};
    send_numbers(kind, j->id, n, 4);
}

static void report_end(struct job *j) {
    j->first = 0;
    report(j, ENDED);
}

/* Until a child of ours may have ended. What it tells of is looked at again by the main loop, whose signal this takes. */
static void await_child(void) {
    struct timespec longest = {.tv_nsec = 5000000};
    sigtimedwait(&children, NULL, &longest);
    unseen = 1;
}

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* Whether what a wait told of was an end. A child that asks to be traced by its parent makes us its tracer, and the kernel tells
 * a tracer of every stop: it goes on, untraced. */
static int has_ended(pid_t pid, int status) {
    if (!WIFSTOPPED(status)) return 1;
    int which = WSTOPSIG(status) & 0x7f;
    ptrace(PTRACE_DETACH, pid, NULL, (void *)(intptr_t)(which == SIGTRAP ? 0 : which));
    return 0;
}

/* Kills and reaps everything; what it used counts for `blamed`, and the others are said to have ended on its account. */
static void end_all(struct job *blamed) {
    struct rusage used;
    for (struct job *j = jobs; j < jobs + JOBS_MAX; j++)
        if (j->first && blamed && j != blamed) j->swept = 1;
    for (;;) {
        kill_children();
        int status;
        pid_t pid = wait4(-1, &status, 0, &used);
        if (pid < 0 && errno == ECHILD) break;
        if (pid <= 0 || !has_ended(pid, status)) continue;
        struct job *j = job_of(pid);
        if (j || blamed) count(j ? j : blamed, &used);
        if (j) j->status = status;
    }
    for (struct job *j = jobs; j < jobs + JOBS_MAX; j++)
        if (j->first) report_end(j);
}

/* Our children that are nobody's first process, and that `of` has left: those of another command that is still there are that one's. */
static size_t find_strays(const struct job *of, pid_t *found) {
    static char text[STRAYS_MAX * 8];
    static int list = -1;
    if (list < 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
        list = open(path, O_RDONLY | O_CLOEXEC);
        if (list < 0) die(path);
    }
    ssize_t got = pread(list, text, sizeof text - 1, 0);
    if (got < 0) die("children");
    if (got == (ssize_t)sizeof text - 1)
        while (got && text[got - 1] != ' ') got--; /* half a number would be somebody else's */
    text[got] = 0;
    size_t n = 0;
    for (char *at = text, *end; n < STRAYS_MAX; at = end) {
        pid_t pid = (pid_t)strtol(at, &end, 10);
        if (end == at) break;
        if (job_of(pid)) continue;
        uint32_t whose = tag_of(pid);
        if (whose != of->id && whose && job_called(whose)) continue;
        found[n++] = pid;
    }
    return n;
}

/* A command and all that it started, as far as it is seen; the one before the other, so that a child comes after its parent. */
size_t members(const struct job *j, pid_t *found, size_t most) {
    static pid_t strays[STRAYS_MAX];
    size_t n = 0;
    if (j->first > 0) {
        found[n++] = j->first;
    } else {
        size_t left = find_strays(j, strays);
        for (; n < left && n < most; n++) found[n] = strays[n];
    }
    for (size_t i = 0; i < n && n < most; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/task", found[i]);
        DIR *threads = opendir(path);
        for (struct dirent *e; threads && (e = readdir(threads));) {
            if (*e->d_name == '.') continue;
            snprintf(path, sizeof path, "/proc/%d/task/%.16s/children", found[i], e->d_name);
            FILE *list = fopen(path, "re");
            for (int pid; list && n < most && fscanf(list, "%d", &pid) == 1;) found[n++] = pid;
            if (list) fclose(list);
        }
        if (threads) closedir(threads);
    }
    return n;
}

/* Who forks faster than we kill is stopped first: a stopped process keeps its place, so that the limit on processes holds the others. */
static void stop_members(const struct job *j) {
    static pid_t found[STRAYS_MAX];
    size_t before = 0;
    for (int i = 0; i < 20; i++) {
        size_t n = members(j, found, STRAYS_MAX);
        for (size_t k = 0; k < n; k++) kill(found[k], SIGSTOP);
        if (n == before) return;
        before = n;
    }
}

/* Kills what is left over and reaps it; what it used counts for `j`. Never waits for one of them alone: who is traced by a process
 * of the same command is not ours to reap before that one has ended, which becomes a left-over only when its own parent has. So
 * this returns when all have gone, or when none has gone for a while. */
static void end_strays(struct job *j, pid_t *strays, size_t n) {
    for (size_t i = 0; i < n; i++) kill(strays[i], SIGKILL);
    for (uint64_t since = now_ms(); n && now_ms() - since < STUCK_MS;) {
        size_t left = 0;
        for (size_t i = 0; i < n; i++) {
            struct rusage used;
            int status;
            pid_t got = wait4(strays[i], &status, WNOHANG, &used);
            if (got == 0 || (got > 0 && !has_ended(got, status))) strays[left++] = strays[i];
            else if (got > 0) count(j, &used);
        }
        if (left < n) since = now_ms();
        n = left;
        if (n) await_child();
    }
}

/* Kills all that `j` has left. Each of these leaves its own children to us when it dies, hence again until there is none. Who forks
 * faster than we kill, and than we stop, takes the whole box with it. */
static void end_left(struct job *j) {
    static pid_t strays[STRAYS_MAX];
    uint64_t begin = 0;
    for (size_t n; (n = find_strays(j, strays));) {
        end_strays(j, strays, n);
        if (!begin) begin = now_ms();
        if (now_ms() - begin > DESPAIR_MS) {
            end_all(j);
            return;
        }
        if (now_ms() - begin > PATIENCE_MS) stop_members(j);
    }
    report_end(j);
}

/* The first process has been reaped, and what it left behind is ours now. */
static void end_job(struct job *j) {
    static pid_t strays[STRAYS_MAX];
    if (!others(j) && !j->keeps) {
        end_all(j);
        return;
    }
    j->first = ENDING;
    if (j->keeps && find_strays(j, strays)) {
        j->first = KEPT;
        report(j, LEFT);
    } else {
        end_left(j);
    }
}

/* What a command was allowed to leave running may have ended by itself. */
static void look_at_kept(void) {
    static pid_t strays[STRAYS_MAX];
    for (struct job *j = jobs; j < jobs + JOBS_MAX; j++)
        if (j->first == KEPT && !find_strays(j, strays)) report_end(j);
}

static void reap(void) {
    struct rusage used;
    int status;
    unseen = 0;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) {
        struct job *j = has_ended(pid, status) ? job_of(pid) : NULL;
        if (!j) continue;
        count(j, &used);
        j->status = status;
        end_job(j);
    }
    if (keeps_any()) look_at_kept();
}

static void kill_job(struct job *j) {
    static pid_t strays[STRAYS_MAX];
    struct rusage used;
    uint64_t since = now_ms();
    j->keeps = 0;
    if (j->first == KEPT) {
        end_left(j);
        return;
    }
    kill(j->first, SIGKILL);
    for (;;) {
        pid_t got = wait4(j->first, &j->status, WNOHANG, &used);
        if (got > 0 && WIFSTOPPED(j->status)) continue; /* from before the signal */
        if (got > 0) count(j, &used);
        if (got) break;
        await_child();
        if (now_ms() - since > STUCK_MS) end_strays(j, strays, find_strays(j, strays)); /* one of them may trace it */
    }
    end_job(j);
}

static void failed(uint32_t id, int why, enum step step) {
    uint64_t n[] = {(uint64_t)why, (uint64_t)step};
    send_numbers(FAILED, id, n, 2);
}

/* A terminal of the box's own. Its other end goes to the manager, its name stays good inside. */
static int open_terminal(int *master) {
    char name[64];
    int unlocked = 0, number;
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*master < 0) return -1;
    if (ioctl(*master, TIOCSPTLCK, &unlocked) || ioctl(*master, TIOCGPTN, &number)) return -1;
    snprintf(name, sizeof name, "/dev/pts/%d", number);
    return open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

/* A child that goes on in this program: nothing of the box's own is needed for it, and no program of the box's can stand in for it. */
static void start_files(struct job *j, uint32_t id, int socket) {
    pid_t pid = fork();
    if (!pid) {
        sigset_t none;
        sigemptyset(&none);
        setsid();
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        tag_self(id);
        if (chdir("/") || (domain >= 0 && syscall(SYS_landlock_restrict_self, domain, 0))) _exit(125);
        /* Whoever looks at its calls from outside has to see its descriptors, and may be no more than an ordinary user. To those
         * inside, its domain closes it, and the filter takes the calls away. */
        if (watched) prctl(PR_SET_DUMPABLE, 1);
        sigprocmask(SIG_SETMASK, &none, NULL);
        serve_files(socket);
    }
    if (pid < 0) failed(id, errno, STARTING);
    else *j = (struct job){.first = pid, .id = id};
}

/* A child that goes on as the interpreter in this program: all that a command is given and confined by, and no exec. What exec would
 * close is closed here. Words: ARGC ENVC, the arguments and the variables. */
static void start_resumed(struct job *j, uint32_t id, struct words w, const int *fds, int count_fds) {
    const char *cwd = word(&w);
    pid_t pid = can_resume() ? fork() : -1;
    if (!pid) {
        sigset_t none;
        sigemptyset(&none);
        setsid();
        for (int i = 0; i < 3; i++)
            if (dup2(fds[i], i) < 0) _exit(127);
        if (count_fds > 3 && dup2(fds[3], EXTRA_FD) < 0) _exit(127);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        tag_self(id);
        if (chdir(cwd) || (domain >= 0 && syscall(SYS_landlock_restrict_self, domain, 0))) _exit(127);
        if (syscall(SYS_close_range, 3u, EXTRA_FD - 1u, 0u) || syscall(SYS_close_range, EXTRA_FD + 1u, ~0u, 0u)) _exit(127);
        if (prctl(PR_SET_DUMPABLE, 1)) _exit(127); /* as after exec */
        prctl(PR_SET_NAME, "python3");
        sigprocmask(SIG_SETMASK, &none, NULL);
        resume(w);
    }
    if (pid < 0) failed(id, can_resume() ? errno : ENOSYS, STARTING);
    else *j = (struct job){.first = pid, .id = id};
}

/* Words: MANNER [ROWS COLUMNS] CWD ARGC ENVC then the arguments and the variables. Descriptors: stdin, stdout, stderr, perhaps two more. */
static void spawn(uint32_t id, struct words w, int *fds, int count_fds) {
    struct job *j = job_of(0);
    uint64_t manner = number(&w);
    int wanted = manner & ON_TERMINAL ? 0 : manner & SERVES_FILES ? 1 : 3, master = -1, terminal = -1;
    if (!j || job_called(id) || count_fds < wanted) {
        failed(id, EAGAIN, STARTING);
        return;
    }
    if (manner & SERVES_FILES) {
        start_files(j, id, fds[0]);
        return;
    }
    if (manner & RESUMES) {
        start_resumed(j, id, w, fds, count_fds);
        return;
    }
    if (manner & KEEPS && !has_tags()) { /* what it leaves could not be told from what another leaves */
        failed(id, EOPNOTSUPP, STARTING);
        return;
    }
    if (manner & ON_TERMINAL) {
        struct winsize size = {.ws_row = (unsigned short)number(&w)};
        size.ws_col = (unsigned short)number(&w);
        terminal = open_terminal(&master);
        if (terminal >= 0) ioctl(master, TIOCSWINSZ, &size);
        if (terminal < 0) {
            failed(id, errno, STARTING);
            if (master >= 0) close(master);
            return;
        }
    }
    const char *cwd = word(&w);
    size_t argc = number(&w), envc = number(&w);
    if (!argc || argc > BODY_MAX || envc > BODY_MAX) die_because("a command has no arguments");
    char **argv = calloc(argc + 1, sizeof *argv), **env = calloc(envc + 1, sizeof *env);
    if (!argv || !env) die("memory");
    for (size_t i = 0; i < argc; i++) argv[i] = word(&w);
    for (size_t i = 0; i < envc; i++) env[i] = word(&w);

    volatile int problem = 0; /* the child shares our memory until it has become the program */
    volatile enum step step = STARTING;
    char **own = environ;
    pid_t pid = vfork();
    if (!pid) {
        sigset_t none;
        sigemptyset(&none);
        setsid();
        if (terminal >= 0 && ioctl(terminal, TIOCSCTTY, 0)) goto failed;
        for (int i = 0; i < 3; i++)
            if (dup2(terminal >= 0 ? terminal : fds[i], i) < 0) goto failed;
        for (int i = wanted; i < count_fds; i++)
            if (dup2(fds[i], EXTRA_FD - (i - wanted)) < 0) goto failed;
        step = ENTERING;
        if (chdir(cwd)) goto failed;
        step = STARTING;
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        tag_self(id);
        if (!(manner & LONG_LIVED) && cpu_seconds != RLIM_INFINITY) {
            struct rlimit r = {cpu_seconds, cpu_seconds};
            if (setrlimit(RLIMIT_CPU, &r)) goto failed;
        }
        if (domain >= 0 && syscall(SYS_landlock_restrict_self, domain, 0)) goto failed;
        sigprocmask(SIG_SETMASK, &none, NULL);
        environ = env; /* where execvpe looks for PATH */
        execvpe(argv[0], argv, env);
    failed:
        problem = errno;
        _exit(127);
    }
    int failure = pid < 0 ? errno : problem;
    environ = own;
    free(argv);
    free(env);
    if (terminal >= 0) close(terminal);
    if (failure) {
        if (pid > 0) waitpid(pid, NULL, 0);
        failed(id, failure, step);
    } else {
        *j = (struct job){.first = pid, .id = id, .keeps = !!(manner & KEEPS)};
        if (master >= 0) send_descriptor(TERMINAL, id, master);
    }
    if (master >= 0) close(master);
}

/* One message with its descriptors; a body too long for a packet lies in the last descriptor. Returns 0 at the end. */
static int serve(void) {
    static char packet[sizeof(struct header) + INLINE_MAX];
    char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    struct iovec io = {packet, sizeof packet};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t got = recvmsg(control, &m, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 1;
    if (got <= 0) return 0;
    struct header h;
    if ((size_t)got < sizeof h || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) die_because("a message is too short");
    memcpy(&h, packet, sizeof h);
    int fds[FDS_MAX], n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            if (n > FDS_MAX) die_because("a message has too many descriptors"); /* padding leaves room for one more */
            memcpy(fds, CMSG_DATA(c), sizeof(int) * (size_t)n);
        }
    if (h.version != PROTOCOL_VERSION) die_because("the manager speaks another version");
    struct words w = {packet + sizeof h, packet + got};
    char *large = NULL;
    if (h.length > INLINE_MAX) {
        if (!n) die_because("a long message has no body");
        w = slurp(fds[n - 1]);
        large = w.at;
        if ((size_t)(w.end - w.at) != h.length) die_because("a long message has the wrong length");
        close(fds[--n]);
    } else if (h.length != (size_t)got - sizeof h) {
        die_because("a message has the wrong length");
    }
    switch (h.kind) {
    case CONFIGURE: {
        if (configured || w.at == w.end) die_because("a configuration is empty, or not the first");
        configured = 1;
        int null = open("/dev/null", O_RDWR | O_CLOEXEC); /* before anybody has to be asked */
        int listener = configure(w, fds, n);
        find_tags();
        for (int i = 0; i < 3; i++) dup2(null, i);
        /* The numbers that commands are given stay taken, so that no descriptor that comes later has one of them: dup2 onto
         * itself would leave it close-on-exec. */
        while (null >= 0 && null <= EXTRA_FD) null = fcntl(null, F_DUPFD_CLOEXEC, 3);
        close(null);
        if (listener < 0) send_numbers(READY, h.id, NULL, 0);
        else send_descriptor(READY, h.id, listener);
        if (listener >= 0) close(listener); /* only those outside look */
        break;
    }
    case SPAWN:
        if (!configured) die_because("a command came before the configuration");
        spawn(h.id, w, fds, n);
        break;
    case KILL: {
        struct job *j = job_called(h.id);
        if (!h.id) end_all(NULL);
        else if (j) kill_job(j);
        break;
    }
    case LISTEN:
    case DATAGRAM:
    case DIAL:
        if (!configured) die_because("a socket was asked for before the configuration");
        send_socket(h.kind, h.id, (uint32_t)number(&w));
        break;
    case MEASURE: {
        struct job *j = job_called(h.id);
        uint64_t used[3] = {0};
        if (j) measure(j, used);
        send_numbers(MEASURED, h.id, used, 3);
        break;
    }
    case SIGNAL: {
        struct job *j = job_called(h.id);
        int which = (int)number(&w);
        if (j && j->first > 0) kill(-j->first, which); /* it leads a session and a group of its own */
        if (j && j->first == KEPT) {
            static pid_t found[STRAYS_MAX];
            for (size_t i = members(j, found, STRAYS_MAX); i; i--) kill(found[i - 1], which);
        }
        break;
    }
    default: die_because("a message of unknown kind");
    }
    for (int i = 0; i < n; i++) close(fds[i]);
    /* Words and variables of one command are not the next one's to know, and an interpreter may be forked from us. */
    wipe(packet, (size_t)got);
    if (large) wipe(large, h.length);
    free(large);
    return 1;
}

noreturn void init(int fd, int memory) {
    if (prctl(PR_SET_DUMPABLE, 0)) die("undumpable");
    for (int i = 1; i < 32; i++) signal(i, SIG_DFL); /* what the caller ignores is not the command's business */
    /* Only the control socket comes along, and what is handed out. They move out of the way of the descriptors that commands are given. */
    control = fcntl(fd, F_DUPFD_CLOEXEC, KEPT_FD);
    if (control < 0) die("control socket");
    if (memory >= 0) handed = fcntl(memory, F_DUPFD_CLOEXEC, control + 1);
    unsigned last = (unsigned)(handed > control ? handed : control);
    syscall(SYS_close_range, 3, (unsigned)control - 1, 0);
    if (handed > control + 1) syscall(SYS_close_range, (unsigned)control + 1, last - 1, 0);
    syscall(SYS_close_range, last + 1, ~0u, 0);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    int ended = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (ended < 0) die("signalfd");
    struct pollfd wait[] = {{.fd = control, .events = POLLIN}, {.fd = ended, .events = POLLIN}};
    for (;;) {
        if (poll(wait, 2, -1) < 0 && errno != EINTR) die("poll");
        if (wait[1].revents) {
            struct signalfd_siginfo told[16];
            while (read(ended, told, sizeof told) > 0) {}
            reap();
        }
        if (wait[0].revents && !serve()) _exit(0);
        if (unseen) reap();
    }
}
