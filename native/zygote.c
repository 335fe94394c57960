/* A process with an interpreter that stands ready, from which boxes are forked.
 *
 * Built as a shared object (hatch_build.py) and loaded into an interpreter that the manager has started: the one that it runs on
 * itself, so that nothing runs outside of a wall that did not before. For each box the manager sends a plan; a fork of this process
 * carries it out exactly as `ringfence-box launch` does, and PID 1 stays in this program instead of starting the same code from a
 * file. Nothing of the interpreter runs until PID 1 has confined itself and is told to start one (RESUMES): then a fork of PID 1,
 * confined like any command, returns from `ringfence_zygote` as if nothing had been.
 *
 * The zygote has one thread, no secrets, and no descriptors but its socket and /dev/null; it reads nothing that a box wrote. It ends
 * when the socket closes.
 *
 * What this does not protect against: boxes of one zygote have the same addresses, stack canary and seed of hashes. The manager takes a
 * new zygote every so many boxes.
 */
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define FDS_MAX 64
#define FIRST_FD 10 /* the same number is in engines/native/zygote.py */

static jmp_buf interpreter;
static int stands_ready;
static struct words given;

PUBLIC int ringfence_zygote(int fd);
PUBLIC const char *ringfence_word(void);

int can_resume(void) { return stands_ready; }

noreturn void resume(struct words w) {
    given = w;
    longjmp(interpreter, 1);
}

/* In an interpreter: what it was started with, word by word; NULL after the last. */
const char *ringfence_word(void) { return more(&given) ? word(&given) : NULL; }

/* What the plan calls its descriptors: FIRST_FD and those after it, in their order. By way of numbers that none of them has. */
static void place(const int *fds, int count) {
    int aside[FDS_MAX];
    for (int i = 0; i < count; i++)
        if ((aside[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FD + count)) < 0) die("descriptors");
    for (int i = 0; i < count; i++) close(fds[i]);
    for (int i = 0; i < count; i++)
        if (dup2(aside[i], FIRST_FD + i) < 0) die("descriptors");
    for (int i = 0; i < count; i++) close(aside[i]);
}

/* A request: the owner's pid, with the complaints' pipe, the plan and what the plan names. The launcher becomes the owner's child, as
 * if it had started it. Returns its pid, or an errno below zero. */
static int32_t fork_launcher(int fd, uint32_t owner, int *fds, int count) {
    pid_t child = count >= 2 ? (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL) : -1;
    if (count < 2) return -EINVAL;
    if (child) return child < 0 ? -errno : child;
    close(fd);
    if (dup2(fds[0], 2) < 0) _exit(125);
    close(fds[0]);
    prctl(PR_SET_NAME, "ringfence-box");
    for (int i = 1; i < 32; i++) signal(i, SIG_DFL); /* the interpreter's handlers are not ours */
    place(fds + 1, count - 1);
    launch(FIRST_FD, (pid_t)owner);
}

/* Serves until the socket closes. Returns 1, and only in an interpreter inside a box. */
int ringfence_zygote(int fd) {
    int32_t made = 0;
    if (setjmp(interpreter)) return 1;
    stands_ready = 1;
    if (send(fd, &made, sizeof made, MSG_NOSIGNAL) != sizeof made) _exit(0); /* it serves from now on */
    for (;;) {
        uint32_t owner;
        char space[CMSG_SPACE(sizeof(int) * FDS_MAX)];
        struct iovec io = {&owner, sizeof owner};
        struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        ssize_t got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR) continue;
        if (got != sizeof owner || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) _exit(0);
        int fds[FDS_MAX], count = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
                count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
                memcpy(fds, CMSG_DATA(c), sizeof(int) * (size_t)count);
            }
        made = fork_launcher(fd, owner, fds, count);
        for (int i = 0; i < count; i++) close(fds[i]);
        if (send(fd, &made, sizeof made, MSG_NOSIGNAL) != sizeof made) _exit(0);
    }
}
