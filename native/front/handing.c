/* Hands a call over to a keeper, and stands for it until it has ended.
 *
 *   connect, look who answers -> "accepted" -> descriptors, words, variables -> "ready" -> "go" -> signals there, the end back
 *
 * Up to "go" nothing has run, and any failure leaves the plain way open; the keeper's child begins only when it has
 * read "go", so that a keeper that is too late finds nobody. After it, what reaches us as a signal is passed on, and how the
 * child stops and ends is how we do. We are what the caller's shell and terminal know: the foreground, the job, Ctrl-C.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "front.h"

enum {
    ACCEPT_MS = 5000, /* a keeper that has not accepted by then is stopped or hangs */
    READY_MS = 60000, /* one that has is busy: the plain way would take longer still */
    MOST_DESCRIPTORS = 64,
    OWN_DESCRIPTORS = 3, /* the line to the child, words and variables, the directory */
    LOST = 125,
};

struct request {
    int32_t numbers[MOST_DESCRIPTORS];
    int descriptors[OWN_DESCRIPTORS + MOST_DESCRIPTORS];
    size_t count; /* of `numbers` */
    uint64_t kind;
};

static bool is_mine(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

static int connect_to(const struct place *place, bool *absent)
{
    char name[32];
    struct stat found;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(name, sizeof name, "%s.sock", place->name);
    if (fstatat(place->directory, name, &found, AT_SYMLINK_NOFOLLOW) != 0) {
        *absent = errno == ENOENT;
        return -1;
    }
    if (!S_ISSOCK(found.st_mode) || found.st_uid != getuid())
        return -1;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", place->directory, name);
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0)
        return -1;
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0 && is_mine(connection))
        return connection;
    *absent = errno == ECONNREFUSED; /* its keeper is gone */
    close(connection);
    return -1;
}

/* Whatever the caller has opened for us, by its number: 0, 1 and 2, and `--policy <(...)`. */
static bool list_descriptors(struct request *request, const int *ours, size_t how_many)
{
    DIR *listing = opendir("/proc/self/fd");
    if (listing == NULL)
        return false;
    bool fits = true;
    for (struct dirent *entry; fits && (entry = readdir(listing)) != NULL;) {
        int number = atoi(entry->d_name);
        bool own = entry->d_name[0] == '.' || number == dirfd(listing);
        for (size_t i = 0; i < how_many; i++)
            own = own || number == ours[i];
        if (own)
            continue;
        fits = request->count < MOST_DESCRIPTORS;
        if (fits) {
            request->descriptors[OWN_DESCRIPTORS + request->count] = number;
            request->numbers[request->count++] = number;
        }
    }
    closedir(listing);
    return fits;
}

static uint64_t as_mask(const sigset_t *set)
{
    uint64_t mask = 0;
    for (int number = 1; number <= 64; number++)
        if (sigismember(set, number) == 1)
            mask |= (uint64_t)1 << (number - 1);
    return mask;
}

static void ignored_signals(sigset_t *ignored)
{
    sigemptyset(ignored);
    for (int number = 1; number <= 64; number++) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            sigaddset(ignored, number);
    }
}

static bool write_words(int file, int argc, char **argv, uint64_t ignored, uint64_t blocked)
{
    FILE *out = fdopen(dup(file), "w");
    if (out == NULL)
        return false;
    mode_t mask = umask(0);
    umask(mask);
    fprintf(out, "%o %llx %llx %d\n", (unsigned)mask, (unsigned long long)ignored,
            (unsigned long long)blocked, argc);
    for (int i = 0; i < argc; i++)
        fwrite(argv[i], 1, strlen(argv[i]) + 1, out);
    for (char **entry = environ; *entry != NULL; entry++)
        fwrite(*entry, 1, strlen(*entry) + 1, out);
    bool done = fflush(out) == 0 && !ferror(out);
    fclose(out);
    return done;
}

static bool send_request(int connection, struct request *request)
{
    static const char magic[8] = "RFCALL2";
    struct iovec parts[] = {{(void *)magic, sizeof magic},
                            {&request->kind, sizeof request->kind},
                            {request->numbers, request->count * sizeof(int32_t)}};
    size_t size = (OWN_DESCRIPTORS + request->count) * sizeof(int);
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int) * (OWN_DESCRIPTORS + MOST_DESCRIPTORS))];
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = 3, .msg_control = control.space, .msg_controllen = CMSG_SPACE(size)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(header), request->descriptors, size);
    return sendmsg(connection, &message, MSG_NOSIGNAL) >= 0;
}

/* Whether the answer begins so. */
static bool is_told(int from, char what, int patience)
{
    char answer[512];
    struct pollfd waiting = {.fd = from, .events = POLLIN};
    return poll(&waiting, 1, patience) == 1 && recv(from, answer, sizeof answer, MSG_DONTWAIT) > 0 && answer[0] == what;
}

/* Ends, or stops, as the child did. */
static void do_as_it_did(int number)
{
    struct rlimit none = {0, 0};
    sigset_t one;
    signal(number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, number);
    setrlimit(RLIMIT_CORE, &none); /* the core is the child's */
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
}

static void stop_as_it_did(int connection, int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    if (number == SIGSTOP) {
        raise(SIGSTOP);
    } else {
        raise(number);
        sigprocmask(SIG_UNBLOCK, &one, NULL); /* here it stops, and here it goes on */
        sigprocmask(SIG_BLOCK, &one, NULL);
    }
    unsigned char go_on[] = {'S', SIGCONT};
    send(connection, go_on, sizeof go_on, MSG_NOSIGNAL);
}

static int lose(const struct termios *before)
{
    if (before != NULL)
        tcsetattr(0, TCSANOW, before);
    fprintf(stderr, "ringfence: error: the keeper that ran this command was killed, and the command with it; "
                    "`ringfence audit tail` has what is known; RINGFENCE_KEEPER=off does without one\n");
    return LOST;
}

/* The child says itself how it ended, if it then still has a box to take down; else its keeper does. */
static int stand_for_it(int connection, int line, int signals, const struct termios *before)
{
    struct pollfd waiting[] = {{.fd = connection, .events = POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = line, .events = POLLIN}};
    for (;;) {
        if (poll(waiting, 3, -1) < 0 && errno != EINTR)
            return lose(before);
        unsigned char last[2];
        if (waiting[2].revents) {
            if (recv(line, last, sizeof last, MSG_DONTWAIT) == sizeof last && last[0] == 'E')
                return last[1];
            waiting[2].fd = -1;
        }
        struct signalfd_siginfo came;
        if (waiting[1].revents & POLLIN && read(signals, &came, sizeof came) == sizeof came) {
            unsigned char passed[] = {'S', (unsigned char)came.ssi_signo};
            send(connection, passed, sizeof passed, MSG_NOSIGNAL);
        }
        if (!(waiting[0].revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        struct {
            char kind;
            unsigned char number;
        } told;
        ssize_t size = recv(connection, &told, sizeof told, MSG_DONTWAIT);
        if (size < 0 && errno == ECONNRESET) /* it was closed before it had read our last word; its own is still there */
            size = recv(connection, &told, sizeof told, MSG_DONTWAIT);
        if (size < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (size != sizeof told)
            return lose(before);
        if (told.kind == 'E')
            return told.number;
        if (told.kind == 'T')
            stop_as_it_did(connection, told.number);
        if (told.kind == 'K') {
            do_as_it_did(told.number);
            return 128 + told.number;
        }
    }
}

/* Everything that can be caught, unless the caller had it blocked: that is the child's to know. */
static int catch_signals(const sigset_t *blocked)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGCHLD};
    sigset_t caught;
    sigfillset(&caught);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&caught, faults[i]);
    for (int number = 1; number <= 64; number++)
        if (sigismember(blocked, number) == 1)
            sigdelset(&caught, number);
    int signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals >= 0)
        sigprocmask(SIG_BLOCK, &caught, NULL);
    return signals;
}

/* Who is in the background must not read the terminal; the kernel stops only members of its session. */
static bool is_in_background(void)
{
    pid_t foreground = tcgetpgrp(0);
    return foreground >= 0 && foreground != getpgrp();
}

int hand_over(const struct place *place, int argc, char **argv, bool *absent)
{
    int pair[2] = {-1, -1}, words = -1, here = -1, signals = -1, code = -1;
    if (is_in_background())
        return -1;
    int connection = connect_to(place, absent);
    if (connection < 0)
        return -1;
    struct request request = {.count = 0};
    struct termios before;
    bool terminal = tcgetattr(0, &before) == 0;
    sigset_t ignored, blocked;
    ignored_signals(&ignored);
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    request.kind = kind_of_call(argc, argv, as_mask(&ignored), as_mask(&blocked));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 ||
        (words = memfd_create("ringfence-call", MFD_CLOEXEC)) < 0 ||
        (here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        goto plain;
    int own[] = {connection, pair[0], pair[1], words, here, place->directory};
    /* Descriptors that wait in a stopped keeper's queue would keep the caller's pipes open. */
    if (!is_told(connection, 'A', ACCEPT_MS))
        goto plain;
    request.descriptors[0] = pair[1];
    request.descriptors[1] = words;
    request.descriptors[2] = here;
    if (!list_descriptors(&request, own, sizeof own / sizeof *own) ||
        !write_words(words, argc, argv, as_mask(&ignored), as_mask(&blocked)) || !send_request(connection, &request))
        goto plain;
    close(pair[1]);
    pair[1] = -1;
    if (!is_told(pair[0], 'R', READY_MS) || (signals = catch_signals(&blocked)) < 0)
        goto plain;
    if (send(pair[0], "G", 1, MSG_NOSIGNAL) != 1) {
        sigprocmask(SIG_SETMASK, &blocked, NULL);
        goto plain;
    }
    code = stand_for_it(connection, pair[0], signals, terminal ? &before : NULL);
plain:
    for (int *each = (int[]){connection, pair[0], pair[1], words, here, signals, -2}; *each != -2; each++)
        if (*each >= 0)
            close(*each);
    return code;
}
