/* Outside the wall, in the guardian: answers the calls that the notification filter stops.
 *
 * The filter (confinement/linux/notify.py) stops calls that change something: opens for writing, exec, connect, renames and
 * their like; in full mode every open. Here the call's arguments are read from the caller's memory and its path is resolved as the
 * caller would resolve it. What is plainly fine goes on at once. What is not is put to the manager, which knows the rules; its answer
 * is an errno or to go on. So a refusal is known to be one, with its exact path, and no word of the command is believed.
 *
 * Going on means that the kernel reads the arguments again: a second thread may have changed them by then. That can hide
 * something from the record, and nothing else, because namespaces, mounts and Landlock hold whether or not anybody looks. An
 * answer with an errno is final.
 *
 * If the guardian dies, the kernel answers ENOSYS for it. Nothing here waits for the manager or for the box.
 */
#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define PENDING_MAX 256
#define APPROVED_MAX 512 /* a directory that is renamed takes as many questions as there are names in it that a rule may be about */
#define SEEN_SIZE 4096 /* a power of two */

/* How each kind of call names what it is about. The numbers of calls come with the rules, since they differ by machine. */
enum shape {
    OPEN,        /* PATH FLAGS */
    OPENAT,      /* DIR PATH FLAGS */
    OPENAT2,     /* DIR PATH HOW */
    EXEC,        /* PATH */
    EXECAT,      /* DIR PATH */
    PATH,        /* PATH: the name itself, such as unlink */
    PATHAT,      /* DIR PATH */
    FOLLOWED,    /* PATH: what it leads to, such as chmod */
    FOLLOWEDAT,  /* DIR PATH */
    PAIR,        /* OLD NEW */
    PAIRAT,      /* DIR OLD DIR NEW */
    SYMLINK,     /* TARGET NEW */
    SYMLINKAT,   /* TARGET DIR NEW */
    ADDRESS,     /* SOCKET ADDRESS LENGTH */
    SENDTO,      /* SOCKET BUFFER LENGTH FLAGS ADDRESS LENGTH */
    SHAPES
};

struct call {
    int nr;
    enum shape shape;
    char name[16]; /* what the manager is told */
};

/* A call that the manager has been asked about, and what it has said yes to already. */
struct pending {
    struct notification call;
    uint64_t asked, approved[APPROVED_MAX];
    size_t approvals;
};

/* What was touched, told without a packet each: the manager reads it when a command ends. One writer, one reader. */
struct ring {
    uint64_t written, consumed, dropped, size;
    char bytes[];
};

struct list {
    char **items;
    size_t count;
};

static struct {
    int manager, full, strict;
    struct call *calls;
    size_t call_count;
    struct list write, read, cover, name, fixed;
    uint64_t key[2], seen[SEEN_SIZE];
    struct pending pending[PENDING_MAX], *again; /* the one whose answer has come, while its call is looked at once more */
    struct ring *ring;
} self;
static int listening = -1; /* where stopped calls are looked at; apart from the rest, which is large and starts as zeros */

static void append(struct list *l, char *item) {
    char **grown = realloc(l->items, (l->count + 1) * sizeof *grown);
    if (!grown) die("memory");
    l->items = grown;
    l->items[l->count++] = item;
}

/* Words: full | strict | as UID GID | call NUMBER SHAPE NAME | write PATH | read PATH | cover PATH | name PATTERN |
 * fixed PATH | inode DEVICE NUMBER PATH */
static void read_rules(struct words w) {
    while (more(&w)) {
        const char *verb = word(&w);
        if (!strcmp(verb, "full")) {
            self.full = 1;
        } else if (!strcmp(verb, "strict")) {
            self.strict = 1;
        } else if (!strcmp(verb, "as")) {
            uid_t uid = (uid_t)number(&w);
            broker_as(uid, (gid_t)number(&w));
        } else if (!strcmp(verb, "inode")) {
            uint64_t device = number(&w), inode = number(&w);
            broker_denies(device, inode, word(&w));
        } else if (!strcmp(verb, "call")) {
            struct call *grown = realloc(self.calls, (self.call_count + 1) * sizeof *grown);
            if (!grown) die("memory");
            self.calls = grown;
            struct call *c = &self.calls[self.call_count++];
            c->nr = (int)number(&w);
            uint64_t shape = number(&w);
            if (shape >= SHAPES) die_because("a rule names a shape that is not there");
            c->shape = (enum shape)shape;
            snprintf(c->name, sizeof c->name, "%s", word(&w));
        } else if (!strcmp(verb, "write")) {
            append(&self.write, word(&w));
        } else if (!strcmp(verb, "read")) {
            append(&self.read, word(&w));
        } else if (!strcmp(verb, "cover")) {
            append(&self.cover, word(&w));
        } else if (!strcmp(verb, "name")) {
            append(&self.name, word(&w));
        } else if (!strcmp(verb, "fixed")) {
            append(&self.fixed, word(&w));
        } else {
            die_because("the rules hold an unknown verb");
        }
    }
}

void supervise(int listener, int rules, int ring, int manager) {
    read_rules(slurp(rules));
    struct stat info;
    if (fstat(ring, &info) || info.st_size <= (off_t)sizeof *self.ring) die_because("no ring came with the rules");
    self.ring = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    if (self.ring == MAP_FAILED) die("ring");
    self.ring->size = (uint64_t)info.st_size - sizeof *self.ring;
    if (getrandom(self.key, sizeof self.key, 0) != sizeof self.key) die("random");
    broker_ready();
    listening = listener;
    self.manager = manager;
    ioctl(listener, NOTIF_SET_FLAGS, SYNC_WAKE_UP); /* older kernels wake us a little later */
}

int supervised(void) { return listening; }

void answer(uint64_t id, int error) {
    struct response r = {.id = id, .error = -error, .flags = error ? 0 : GO_ON};
    ioctl(listening, NOTIF_SEND, &r); /* who asked may be gone */
}

void answer_done(uint64_t id) {
    struct response r = {.id = id};
    ioctl(listening, NOTIF_SEND, &r);
}

void answer_descriptor(uint64_t id, int fd, int flags) {
    struct added a = {.id = id, .flags = ADD_AND_SEND, .source = (uint32_t)fd, .number_flags = (uint32_t)(flags & O_CLOEXEC)};
    int failed = ioctl(listening, NOTIF_ADDFD, &a) < 0 ? errno : 0;
    close(fd);
    if (failed) answer(id, failed);
}

int is_asked(uint64_t id) { return !ioctl(listening, NOTIF_ID_VALID, &id); }

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

/* --- paths ------------------------------------------------------------------------------------------------------------- */

int link_of(const char *path, char *into) {
    ssize_t n = readlink(path, into, PATH_SIZE - 1);
    if (n >= PATH_SIZE - 1) errno = ENAMETOOLONG;
    if (n <= 0 || n >= PATH_SIZE - 1) return -1;
    into[n] = 0;
    return 0;
}

/* The root of the box, opened once: nobody in it may change its root, the filter sees to that. */
int root_of(pid_t pid) {
    static int root = -1;
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/root", pid);
    if (root < 0) root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root;
}

/* Where `text` leads the caller, links followed; a last name that is not there is kept. Returns 1 if nothing is there. */
static int resolve(pid_t pid, int dirfd, const char *text, int follow, char *into) {
    char name[64], whole[2 * PATH_SIZE];
    if (*text == '/') {
        snprintf(whole, sizeof whole, "%s", text);
    } else {
        char base[PATH_SIZE];
        if (dirfd == HERE) snprintf(name, sizeof name, "/proc/%d/cwd", pid);
        else snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, dirfd);
        if (link_of(name, base) || *base != '/') return -1;
        if (*text) snprintf(whole, sizeof whole, "%s/%s", base, text);
        else snprintf(whole, sizeof whole, "%s", base);
    }
    int root = root_of(pid);
    if (root < 0) return -1;
    struct how how = {O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW), 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, root, whole, &how, sizeof how);
    char *last = NULL;
    if (fd < 0 && (errno == ENOENT || errno == EACCES)) {
        size_t end = strlen(whole);
        while (end > 1 && whole[end - 1] == '/') whole[--end] = 0;
        last = strrchr(whole, '/');
        if (last && strcmp(last + 1, "..")) {
            *last++ = 0;
            how.flags = O_PATH | O_CLOEXEC;
            fd = (int)syscall(SYS_openat2, root, *whole ? whole : "/", &how, sizeof how);
            last[-1] = '/';
        }
    }
    if (fd < 0) { /* not there, or not to be reached: as it was written */
        snprintf(into, PATH_SIZE, "%.*s", PATH_SIZE - 1, whole);
        return 1;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int bad = link_of(name, into);
    close(fd);
    if (bad || *into != '/') return -1;
    if (last) {
        size_t have = strlen(into);
        if (have + strlen(last) + 2 > PATH_SIZE) return -1;
        snprintf(into + have, PATH_SIZE - have, "%s%s", have > 1 ? "/" : "", last);
    }
    return !!last;
}

static int is_below(const char *path, const char *top) {
    size_t n = strlen(top);
    return !strncmp(path, top, n) && (!path[n] || path[n] == '/' || (n && top[n - 1] == '/'));
}

static int below_any(const char *path, const struct list *tops) {
    for (size_t i = 0; i < tops->count; i++)
        if (is_below(path, tops->items[i])) return 1;
    return 0;
}

/* Whether a name on the way is one that a rule may be about. */
static int has_named_part(const char *path) {
    char part[256];
    for (const char *at = path; *at;) {
        while (*at == '/') at++;
        size_t n = strcspn(at, "/");
        if (!n) break;
        if (n >= sizeof part) return 1;
        memcpy(part, at, n);
        part[n] = 0;
        for (size_t i = 0; i < self.name.count; i++) {
            const char *name = self.name.items[i];
            if (strchr(name, '*') ? !fnmatch(name, part, FNM_NOESCAPE) : !strcmp(name, part)) return 1;
        }
        at += n;
    }
    return 0;
}

static int is_fine(const char *path, int changes) {
    return below_any(path, changes ? &self.write : &self.read) && !below_any(path, &self.cover) && !has_named_part(path);
}

/* A descriptor that the caller has already, by another name. */
static int is_own_descriptor(const char *text) {
    return !strncmp(text, "/dev/std", 8) || !strncmp(text, "/dev/fd/", 8) || !strncmp(text, "/proc/self/fd/", 14) || !strcmp(text, "/dev/tty");
}

/* --- telling the manager ----------------------------------------------------------------------------------------------- */

static uint64_t turned(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void stir(uint64_t v[4], int rounds) {
    while (rounds--) {
        v[0] += v[1], v[2] += v[3];
        v[1] = turned(v[1], 13) ^ v[0], v[3] = turned(v[3], 16) ^ v[2];
        v[0] = turned(v[0], 32);
        v[2] += v[1], v[0] += v[3];
        v[1] = turned(v[1], 17) ^ v[2], v[3] = turned(v[3], 21) ^ v[0];
        v[2] = turned(v[2], 32);
    }
}

/* Stands for a question where it is compared. The command chooses the names, so it must not be able to find two that are alike: one
 * would be allowed in the other's place. Hence SipHash-2-4, with a key that nobody in the box knows. */
static uint64_t hashed(const char *name, const char *one, const char *two) {
    uint64_t v[4] = {self.key[0] ^ 0x736f6d6570736575u, self.key[1] ^ 0x646f72616e646f6du, self.key[0] ^ 0x6c7967656e657261u,
                     self.key[1] ^ 0x7465646279746573u};
    uint64_t block = 0, count = 0;
    const char *words[] = {name, one, two};
    for (int i = 0; i < 3; i++)
        for (const char *p = words[i];; p++) {
            block |= (uint64_t)(uint8_t)*p << 8 * (count++ & 7);
            if (!(count & 7)) v[3] ^= block, stir(v, 2), v[0] ^= block, block = 0;
            if (!*p) break; /* its end counts, too: it keeps the words apart */
        }
    block |= count << 56;
    v[3] ^= block, stir(v, 2), v[0] ^= block;
    v[2] ^= 0xff;
    stir(v, 4);
    return (v[0] ^ v[1] ^ v[2] ^ v[3]) | 1; /* 0 stands for none */
}

static int was_seen(const char *name, const char *path) {
    uint64_t hash = hashed(name, path, ""), *place = &self.seen[hash & (SEEN_SIZE - 1)];
    if (*place == hash) return 1;
    *place = hash; /* what it held is told again if it comes again */
    return 0;
}

/* Who floods us loses words, not time. */
static void put_touched(const char *name, const char *one, const char *two) {
    struct ring *r = self.ring;
    char words[2 * PATH_SIZE + 64];
    uint64_t at = r->written % r->size, room = r->size - (r->written - __atomic_load_n(&r->consumed, __ATOMIC_ACQUIRE));
    size_t size = (size_t)snprintf(words, sizeof words, "%s%c%s%c%s", name, 0, one, 0, two) + 1;
    if (size > sizeof words || size > room) {
        r->dropped++;
        return;
    }
    size_t first = size < r->size - at ? size : r->size - at;
    memcpy(r->bytes + at, words, first);
    memcpy(r->bytes, words + first, size - first);
    __atomic_store_n(&r->written, r->written + size, __ATOMIC_RELEASE);
}

/* A question is one packet: kind, its number, pid, then the words. Never waits. */
static int put_question(uint32_t question, uint32_t pid, const char *name, const char *one, const char *two) {
    char packet[16 + 2 * PATH_SIZE + 64];
    uint32_t head[4] = {PROTOCOL_VERSION, ASKED, question, pid};
    memcpy(packet, head, sizeof head);
    size_t at = sizeof head;
    const char *words[] = {name, one, two};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]) + 1;
        memcpy(packet + at, words[i], n);
        at += n;
    }
    return send(self.manager, packet, at, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)at ? 0 : -1;
}

/* Returns 1 if the manager has said yes to just this already. */
static int ask(const struct notification *n, const char *name, const char *one, const char *two) {
    uint64_t hash = hashed(name, one, two);
    struct pending *p = self.again;
    for (size_t i = 0; p && i < p->approvals; i++)
        if (p->approved[i] == hash) return 1;
    if (!p) {
        for (p = self.pending; p < self.pending + PENDING_MAX && p->call.id; p++) {}
        if (p < self.pending + PENDING_MAX) *p = (struct pending){.call = *n};
        else p = NULL;
    }
    if (p) {
        p->asked = hash;
        if (p->approvals < APPROVED_MAX && !put_question((uint32_t)(p - self.pending), n->pid, name, one, two)) return 0;
        p->call.id = p->asked = 0;
    }
    answer(n->id, self.strict ? EACCES : 0); /* nobody can be asked: the wall decides alone, if it can */
    return 0;
}

static void on_notification(const struct notification *n);

void supervisor_answered(uint32_t question, uint32_t error) {
    if (question >= PENDING_MAX || !self.pending[question].asked || error > 4095) return;
    struct pending *p = &self.pending[question];
    uint64_t asked = p->asked;
    p->asked = 0;
    if (error || !self.strict) {
        answer(p->call.id, (int)error);
    } else { /* what it is about may have changed: it is looked at again */
        struct notification call = p->call; /* the place may be given up before the call is answered */
        p->approved[p->approvals++] = asked;
        self.again = p;
        on_notification(&call);
        self.again = NULL;
    }
    if (!p->asked) p->call.id = 0;
}

void supervisor_forgets(void) {
    memset(self.seen, 0, sizeof self.seen);
    broker_forgets();
}

/* --- one call ---------------------------------------------------------------------------------------------------------- */

int is_suspect(const char *path) {
    return below_any(path, &self.cover) || has_named_part(path);
}

int is_fixed(const char *path) {
    for (size_t i = 0; i < self.fixed.count; i++)
        if (!strcmp(path, self.fixed.items[i])) return 1;
    return 0;
}

int permitted(const struct notification *n, const char *operation, const char *path, const char *second, int changes, const char *note) {
    int fine = is_fine(path, changes) || (self.strict && !changes && is_fine(path, 1));
    if (fine && (!second || is_fine(second, 1)) && (!*note || !strcmp(note, MISSING))) {
        int told = changes || self.full || !strcmp(operation, "exec");
        if (told && !was_seen(operation, path)) put_touched(operation, path, second ? second : "");
        return 1;
    }
    return ask(n, operation, path, second ? second : note);
}

static void on_path(const struct notification *n, const struct call *c, int changes, int dirfd, uint64_t address, int follow,
                    const char *second) {
    char text[PATH_SIZE], path[PATH_SIZE];
    const char *name = c->shape > OPENAT2 ? c->name : changes ? "write" : "read";
    int missing = -1;
    if (!peek_text((pid_t)n->pid, address, text) && !is_own_descriptor(text)) missing = resolve((pid_t)n->pid, dirfd, text, follow, path);
    if (missing < 0 || permitted(n, name, path, second, changes, missing && !changes ? MISSING : "")) answer(n->id, 0);
}

static void on_address(const struct notification *n, const struct call *c, uint64_t address, uint64_t length) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
        char bytes[128];
    } a;
    char text[PATH_SIZE], path[PATH_SIZE];
    int missing = 0;
    memset(&a, 0, sizeof a);
    size_t size = length < sizeof a ? (size_t)length : sizeof a;
    if (size < sizeof(sa_family_t) || peek((pid_t)n->pid, address, &a, size) < 2) {
        answer(n->id, 0);
        return;
    }
    const uint8_t *b;
    switch (a.any.sa_family) {
    case AF_INET:
        b = (const uint8_t *)&a.v4.sin_addr;
        snprintf(text, sizeof text, "%u.%u.%u.%u:%u", b[0], b[1], b[2], b[3], ntohs(a.v4.sin_port));
        break;
    case AF_INET6: {
        b = (const uint8_t *)&a.v6.sin6_addr;
        size_t at = (size_t)snprintf(text, sizeof text, "[");
        for (int i = 0; i < 16; i += 2) at += (size_t)snprintf(text + at, sizeof text - at, "%s%x", i ? ":" : "", b[i] << 8 | b[i + 1]);
        snprintf(text + at, sizeof text - at, "]:%u", ntohs(a.v6.sin6_port));
        break;
    }
    case AF_UNIX:
        if (size <= sizeof(sa_family_t)) {
            answer(n->id, 0);
            return;
        }
        a.bytes[sizeof a - 1] = 0;
        if (!a.local.sun_path[0]) {
            snprintf(text, sizeof text, "unix:@%s", a.local.sun_path + 1);
            break;
        }
        missing = resolve((pid_t)n->pid, HERE, a.local.sun_path, 1, path);
        if (missing < 0) {
            answer(n->id, 0);
            return;
        }
        snprintf(text, sizeof text, "unix:%.*s", PATH_SIZE - 8, path);
        break;
    default: answer(n->id, 0); return;
    }
    if (ask(n, c->name, text, missing ? MISSING : "")) answer(n->id, 0);
}

static void on_call(const struct notification *n, const struct call *c) {
    const uint64_t *a = n->data.args;
    char second[PATH_SIZE], text[PATH_SIZE];
    int here = HERE;
    switch (c->shape) {
    case OPEN: on_path(n, c, !!(a[1] & CHANGING), here, a[0], !(a[1] & O_NOFOLLOW), NULL); break;
    case OPENAT: on_path(n, c, !!(a[2] & CHANGING), (int)a[0], a[1], !(a[2] & O_NOFOLLOW), NULL); break;
    case OPENAT2: {
        struct how how = {0};
        if (peek((pid_t)n->pid, a[2], &how, sizeof how.flags) < 0) {
            answer(n->id, 0);
            break;
        }
        int changes = !!(how.flags & CHANGING);
        if (changes || self.full) on_path(n, c, changes, (int)a[0], a[1], !(how.flags & O_NOFOLLOW), NULL);
        else answer(n->id, 0);
        break;
    }
    case EXEC: on_path(n, c, 0, here, a[0], 1, NULL); break;
    case EXECAT: on_path(n, c, 0, (int)a[0], a[1], 1, NULL); break;
    case PATH: on_path(n, c, 1, here, a[0], 0, NULL); break;
    case PATHAT: on_path(n, c, 1, (int)a[0], a[1], 0, NULL); break;
    case FOLLOWED: on_path(n, c, 1, here, a[0], 1, NULL); break;
    case FOLLOWEDAT: on_path(n, c, 1, (int)a[0], a[1], 1, NULL); break;
    case PAIR:
        if (peek_text((pid_t)n->pid, a[1], text) || resolve((pid_t)n->pid, here, text, 0, second) < 0) answer(n->id, 0);
        else on_path(n, c, 1, here, a[0], 0, second);
        break;
    case PAIRAT:
        if (peek_text((pid_t)n->pid, a[3], text) || resolve((pid_t)n->pid, (int)a[2], text, 0, second) < 0) answer(n->id, 0);
        else on_path(n, c, 1, (int)a[0], a[1], 0, second);
        break;
    case SYMLINK: on_path(n, c, 1, here, a[1], 0, NULL); break;
    case SYMLINKAT: on_path(n, c, 1, (int)a[1], a[2], 0, NULL); break;
    case ADDRESS: on_address(n, c, a[1], a[2]); break;
    case SENDTO:
        if (a[4]) on_address(n, c, a[4], a[5]);
        else answer(n->id, 0);
        break;
    case SHAPES: answer(n->id, 0);
    }
}

static void on_notification(const struct notification *n) {
    if (self.strict && brokered(n)) return;
    for (size_t i = 0; i < self.call_count; i++)
        if (self.calls[i].nr == n->data.nr) {
            on_call(n, &self.calls[i]);
            return;
        }
    answer(n->id, 0);
}

/* Called when the listener is readable. Returns 0 when nobody is left to be supervised. */
int supervise_one(void) {
    struct notification n;
    memset(&n, 0, sizeof n);
    if (ioctl(listening, NOTIF_RECV, &n)) return errno == ENOENT || errno == EINTR || errno == EAGAIN;
    on_notification(&n);
    return 1;
}
