/* Inside the wall: PID 1 of the box.
 *
 * Confines itself (limits, Landlock; bubblewrap has already applied seccomp and no_new_privs), says READY, then starts one
 * command after the other. When a command's first process ends, everything else in the box is killed and reaped before the
 * end is reported, so a report means: nothing of it is left. What it uses is summed over all that was reaped.
 *
 * It cannot be stopped or killed from inside (the kernel shields PID 1 of a pid namespace from its own), cannot be read
 * (undumpable), and its only descriptor besides /dev/null is the control socket, which no child inherits. When that socket
 * closes, it exits, and the kernel ends whatever is left.
 *
 * In the wall without a pid namespace it is a subreaper instead, and kills by walking its children.
 */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
#define FILTER_MAX 4096 /* instructions that the kernel takes */
#define SCRIPT_FD 9
#define FDS_MAX 5

static int control, configured;
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

/* Only the wall without bubblewrap leaves the filter to us. */
static void apply_filter(int fd) {
    struct words bytes = slurp(fd);
    size_t size = (size_t)(bytes.end - bytes.at);
    if (size % sizeof(struct instruction) || size / sizeof(struct instruction) > FILTER_MAX) die_because("no filter has that size");
    struct program program = {(unsigned short)((size_t)(bytes.end - bytes.at) / sizeof(struct instruction)), (void *)bytes.at};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
    if (prctl(PR_SET_SECCOMP, MODE_FILTER, &program)) die("seccomp");
    free(bytes.at);
}

/* Words: umask N | rlimit RESOURCE VALUE | landlock SIZE FS NET SCOPED | beneath ACCESS PATH | restrict | reaper | filter */
static void configure(struct words w, const int *fds, int count_fds) {
    int rules = -1;
    while (more(&w)) {
        const char *verb = word(&w);
        if (!strcmp(verb, "umask")) {
            umask((mode_t)number(&w));
        } else if (!strcmp(verb, "rlimit")) {
            int resource = (int)number(&w);
            rlim_t value = number(&w);
            struct rlimit have, want = {value, value};
            if (getrlimit(resource, &have)) die("getrlimit");
            if (have.rlim_max < value) want.rlim_cur = want.rlim_max = have.rlim_max; /* never raise what the host set */
            if (setrlimit(resource, &want)) die("setrlimit");
        } else if (!strcmp(verb, "landlock")) {
            size_t size = number(&w);
            struct ruleset r;
            r.fs = number(&w), r.net = number(&w), r.scoped = number(&w);
            rules = (int)syscall(SYS_landlock_create_ruleset, &r, size, 0);
            if (rules < 0) die("landlock");
        } else if (!strcmp(verb, "beneath")) {
            uint64_t access = number(&w);
            const char *path = word(&w);
            int fd = open(path, O_PATH | O_CLOEXEC);
            if (fd < 0) die(path);
            struct beneath b = {access, fd};
            if (syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &b, 0)) die(path);
            close(fd);
        } else if (!strcmp(verb, "restrict")) {
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("no_new_privs");
            if (syscall(SYS_landlock_restrict_self, rules, 0)) die("landlock");
            close(rules);
        } else if (!strcmp(verb, "filter")) {
            if (!count_fds) die_because("no filter came with the configuration");
            apply_filter(fds[0]);
        } else if (!strcmp(verb, "reaper")) {
            if (prctl(PR_SET_CHILD_SUBREAPER, 1)) die("subreaper");
        } else {
            die_because("a configuration holds an unknown verb");
        }
    }
}

static struct {
    pid_t first;
    uint32_t id;
    int status;
    uint64_t user, system, peak;
} job;

static void count(const struct rusage *used) {
    job.user += micros(used->ru_utime);
    job.system += micros(used->ru_stime);
    if ((uint64_t)used->ru_maxrss > job.peak) job.peak = (uint64_t)used->ru_maxrss;
}

static void end_job(void) {
    struct rusage used;
    for (;;) {
        kill_children();
        int status;
        pid_t pid = wait4(-1, &status, 0, &used);
        if (pid < 0 && errno == ECHILD) break;
        if (pid > 0) count(&used);
        if (pid > 0 && pid == job.first) job.status = status;
    }
    job.first = 0;
    uint64_t n[] = {(uint64_t)(uint32_t)job.status, job.user, job.system, job.peak};
    send_numbers(ENDED, job.id, n, 4);
}

static void reap(void) {
    struct rusage used;
    int status;
    for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) {
        if (!job.first) continue;
        count(&used);
        if (pid == job.first) {
            job.status = status;
            end_job();
        }
    }
}

/* Words: CWD ARGC ENVC then the arguments and the variables. Descriptors: stdin, stdout, stderr, perhaps a script for SCRIPT_FD. */
static void spawn(uint32_t id, struct words w, int *fds, int count_fds) {
    if (job.first || count_fds < 3) {
        uint64_t n[] = {EBUSY};
        send_numbers(FAILED, id, n, 1);
        return;
    }
    const char *cwd = word(&w);
    size_t argc = number(&w), envc = number(&w);
    if (!argc || argc > BODY_MAX || envc > BODY_MAX) die_because("a command has no arguments");
    char **argv = calloc(argc + 1, sizeof *argv), **env = calloc(envc + 1, sizeof *env);
    if (!argv || !env) die("memory");
    for (size_t i = 0; i < argc; i++) argv[i] = word(&w);
    for (size_t i = 0; i < envc; i++) env[i] = word(&w);

    volatile int problem = 0; /* the child shares our memory until it has become the program */
    char **own = environ;
    pid_t pid = vfork();
    if (!pid) {
        sigset_t none;
        sigemptyset(&none);
        setsid();
        for (int i = 0; i < 3; i++)
            if (dup2(fds[i], i) < 0) goto failed;
        if (count_fds > 3 && dup2(fds[3], SCRIPT_FD) < 0) goto failed;
        if (chdir(cwd)) goto failed;
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
    if (failure) {
        if (pid > 0) waitpid(pid, NULL, 0);
        uint64_t n[] = {(uint64_t)failure};
        send_numbers(FAILED, id, n, 1);
        return;
    }
    memset(&job, 0, sizeof job);
    job.first = pid;
    job.id = id;
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
        configure(w, fds, n);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3; i++) dup2(null, i);
        close(null);
        send_numbers(READY, h.id, NULL, 0);
        break;
    }
    case SPAWN:
        if (!configured) die_because("a command came before the configuration");
        spawn(h.id, w, fds, n);
        break;
    case KILL_ALL:
        if (job.first && h.id == job.id) end_job();
        break;
    default: die_because("a message of unknown kind");
    }
    for (int i = 0; i < n; i++) close(fds[i]);
    free(large);
    return 1;
}

noreturn void init(int fd) {
    if (prctl(PR_SET_DUMPABLE, 0)) die("undumpable");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) die("parent-death signal");
    /* Only the control socket comes along. It moves out of the way of the descriptors that commands are given. */
    control = fcntl(fd, F_DUPFD_CLOEXEC, 64);
    if (control < 0) die("control socket");
    syscall(SYS_close_range, 3, (unsigned)control - 1, 0);
    syscall(SYS_close_range, (unsigned)control + 1, ~0u, 0);
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
    }
}
