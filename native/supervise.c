/* Outside the wall, in the guardian: answers the calls that the notification filter stops.
 *
 * The filter (confinement/linux/notify.py) stops calls that change something: opens for writing, exec, connect, renames and
 * their like; in full mode every open. Here the call's arguments are read from the caller's memory and its path is resolved as the
 * caller would resolve it. What is plainly fine goes on at once. What is not is put to the manager, which knows the rules; its answer
 * is an errno or to go on. So a refusal is known to be one, with its exact path, and no word of the command is believed.
 *
 * Going on means that the kernel reads the arguments again: a second thread may have changed them by then. That can hide
 * something from the record, and nothing else, because namespaces, mounts and Landlock hold whether or not anybody looks. An
 * answer with an errno is final. Where Landlock lets the box make no names, the guardian makes them (make.c).
 *
 * If the guardian dies, the kernel answers ENOSYS for it. Nothing here waits for the manager or for the box.
 */
#include "job.h"
#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define PENDING_MAX 256
#define APPROVED_MAX 512 /* a directory that is renamed takes as many questions as there are names in it that a rule may be about */
#define SEEN_SIZE 4096 /* a power of two */
#define FIRSTS_MAX 512 /* twice as many as there are commands at once */

/* How each kind of call names what it is about. The numbers of calls come with the rules, since they differ by machine. */
enum shape {
    OPEN,        /* PATH FLAGS MODE */
    OPENAT,      /* DIR PATH FLAGS MODE */
    CREAT,       /* PATH MODE */
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
    DESCRIPTOR,  /* NUMBER */
    MASK,        /* no path: the umask changes */
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
    int changes;
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

/* A name that must not be made in a directory, whatever path leads there. */
struct unmade {
    uint64_t device, inode;
    const char *name, *path;
};

/* The process that a command began with. */
struct first {
    pid_t pid;
    uint64_t start; /* numbers are given again */
    uint32_t job;
};

static struct {
    int manager, full, strict, quiet;
    uint8_t ports[65536 / 8]; /* of any address: connections to them are the proxy's to judge */
    struct call *calls;
    size_t call_count;
    struct list write, read, system, cover, name, fixed, made;
    struct unmade *unmade;
    size_t unmade_count;
    uint64_t key[2], seen[SEEN_SIZE], settled[SEEN_SIZE]; /* told; and asked in this command, with the wall to decide */
    struct first firsts[FIRSTS_MAX];
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

/* Words: full | quiet | strict | as UID GID | port NUMBER | root PATH | call NUMBER SHAPE NAME | write PATH | read PATH | system PATH | cover PATH | name PATTERN |
 * fixed PATH | inode DEVICE NUMBER PATH | made PATH | unmade DEVICE NUMBER NAME PATH */
static void read_rules(struct words w) {
    while (more(&w)) {
        const char *verb = word(&w);
        if (!strcmp(verb, "full")) {
            self.full = 1;
        } else if (!strcmp(verb, "quiet")) {
            self.quiet = 1;
        } else if (!strcmp(verb, "port")) {
            uint64_t port = number(&w) & 0xffff;
            self.ports[port / 8] |= (uint8_t)(1u << port % 8);
        } else if (!strcmp(verb, "root")) {
            links_within(word(&w));
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
        } else if (!strcmp(verb, "system")) {
            append(&self.system, word(&w));
        } else if (!strcmp(verb, "cover")) {
            append(&self.cover, word(&w));
        } else if (!strcmp(verb, "name")) {
            append(&self.name, word(&w));
        } else if (!strcmp(verb, "fixed")) {
            append(&self.fixed, word(&w));
        } else if (!strcmp(verb, "made")) {
            append(&self.made, word(&w));
        } else if (!strcmp(verb, "unmade")) {
            struct unmade *grown = realloc(self.unmade, (self.unmade_count + 1) * sizeof *grown);
            if (!grown) die("memory");
            self.unmade = grown;
            struct unmade *u = &self.unmade[self.unmade_count++];
            u->device = number(&w), u->inode = number(&w);
            u->name = word(&w), u->path = word(&w);
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
    if (syscall(SYS_getrandom, self.key, sizeof self.key, 0) != (long)sizeof self.key) die("random");
    find_tags();
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

/* --- paths ------------------------------------------------------------------------------------------------------------- */

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
static uint64_t hashed(uint32_t job, const char *name, const char *one, const char *two) {
    uint64_t v[4] = {self.key[0] ^ 0x736f6d6570736575u, self.key[1] ^ 0x646f72616e646f6du, self.key[0] ^ 0x6c7967656e657261u,
                     self.key[1] ^ 0x7465646279746573u};
    uint64_t block = job, count = 4;
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

static int was_seen(uint32_t job, const char *name, const char *path, const char *second) {
    uint64_t hash = hashed(job, name, path, second), *place = &self.seen[hash & (SEEN_SIZE - 1)];
    if (*place == hash) return 1;
    *place = hash; /* what it held is told again if it comes again */
    return 0;
}

/* When a process was started, and by whom. 0, or -1 if it is gone. */
static int origin_of(pid_t pid, pid_t *parent, uint64_t *start) {
    char path[64], text[1024];
    unsigned long long ticks;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = 0;
    char *at = strrchr(text, ')'); /* the name before it may hold anything */
    if (!at || sscanf(at + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", parent, &ticks) != 2) return -1;
    *start = ticks;
    return 0;
}

/* A command's first process has no ancestor that could be asked if it spoils its own number. It was seen with it, when it became
 * its program. */
static void remember_first(pid_t pid) {
    struct first *place = NULL, f = {.pid = pid};
    pid_t parent;
    if (origin_of(pid, &parent, &f.start) || !is_init(parent) || !(f.job = tag_of(pid))) return;
    struct caller c = {.pid = pid};
    if (look_at(&c) || c.leader != pid) return; /* a thread would take a place for nothing */
    for (struct first *each = self.firsts; each < self.firsts + FIRSTS_MAX && (!place || place->pid != pid); each++)
        if (each->pid == pid || (!place && !each->pid)) place = each;
    for (struct first *each = self.firsts; !place && each < self.firsts + FIRSTS_MAX; each++)
        if (kill(each->pid, 0) && errno == ESRCH) place = each;
    if (place) *place = f;
}

static uint32_t job_of_first(pid_t pid, uint64_t start) {
    for (const struct first *each = self.firsts; each < self.firsts + FIRSTS_MAX; each++)
        if (each->pid == pid && each->start == start) return each->job;
    return 0;
}

/* The command that a caller is of. One that has spoilt its own number is of the command that it was started by. */
static uint32_t job_of_caller(pid_t pid) {
    uint32_t job = tag_of(pid);
    struct caller c = {.pid = pid};
    if (job || look_at(&c)) return job;
    pid = c.leader;
    for (int depth = 0; depth < 64 && pid > 1; depth++) {
        pid_t parent;
        uint64_t start;
        if ((job = tag_of(pid)) || origin_of(pid, &parent, &start) || (job = job_of_first(pid, start)) || is_init(pid)) return job;
        pid = parent;
    }
    return 0;
}

/* Something was done that is not in the record. */
static void put_unknown(void) { self.ring->dropped++; }

/* Who floods us loses words, not time. */
static void put_touched(uint32_t job, const struct deed *d) {
    struct ring *r = self.ring;
    char words[2 * PATH_SIZE + 2 * STATE_SIZE + 80];
    uint64_t at = r->written % r->size, room = r->size - (r->written - __atomic_load_n(&r->consumed, __ATOMIC_ACQUIRE));
    size_t size = (size_t)snprintf(words, sizeof words, "%u%c%s%c%s%c%s%c%s%c%s", job, 0, d->operation, 0, d->path, 0, d->second ? d->second : "", 0, d->before, 0,
                                   d->second ? d->second_before : "") + 1;
    if (size > sizeof words || size > room) {
        put_unknown();
        return;
    }
    size_t first = size < r->size - at ? size : r->size - at;
    memcpy(r->bytes + at, words, first);
    memcpy(r->bytes, words + first, size - first);
    __atomic_store_n(&r->written, r->written + size, __ATOMIC_RELEASE);
}

/* A question is one packet: kind, its number, the command that asks, then the words. Never waits. */
static int put_question(uint32_t question, uint32_t job, const struct deed *d) {
    char packet[16 + 2 * PATH_SIZE + 2 * STATE_SIZE + 64];
    uint32_t head[4] = {PROTOCOL_VERSION, ASKED, question, job};
    memcpy(packet, head, sizeof head);
    size_t at = sizeof head;
    const char *words[] = {d->operation, d->path, d->second ? d->second : d->note, d->is_vain ? "vain" : "", d->before, d->second ? d->second_before : ""};
    for (int i = 0; i < 6; i++) {
        size_t n = strlen(words[i]) + 1;
        memcpy(packet + at, words[i], n);
        at += n;
    }
    return send(self.manager, packet, at, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)at ? 0 : -1;
}

/* Returns 1 if the manager has said yes to just this already. */
static int ask(const struct notification *n, const struct deed *d) {
    uint32_t job = job_of_caller((pid_t)n->pid);
    uint64_t hash = hashed(job, d->operation, d->path, d->second ? d->second : d->note);
    struct pending *p = self.again;
    for (size_t i = 0; p && i < p->approvals; i++)
        if (p->approved[i] == hash) return 1;
    if (!d->changes && self.settled[hash & (SEEN_SIZE - 1)] == hash) return 1;
    if (!p) {
        for (p = self.pending; p < self.pending + PENDING_MAX && p->call.id; p++) {}
        if (p < self.pending + PENDING_MAX) *p = (struct pending){.call = *n};
        else p = NULL;
    }
    if (p) {
        p->asked = hash;
        p->changes = d->changes;
        if (p->approvals < APPROVED_MAX && !put_question((uint32_t)(p - self.pending), job, d)) return 0;
        p->call.id = p->asked = 0;
    }
    put_unknown();
    int is_ours = self.strict || !strcmp(d->operation, "through");
    answer(n->id, is_ours ? EACCES : 0); /* nobody can be asked: the wall decides alone, if it can */
    return 0;
}

static void on_notification(const struct notification *n);

void supervisor_answered(uint32_t question, uint32_t error) {
    if (question >= PENDING_MAX || !self.pending[question].asked || error > 4095) return;
    struct pending *p = &self.pending[question];
    uint64_t asked = p->asked;
    p->asked = 0;
    if (!error && !self.strict && !p->changes) self.settled[asked & (SEEN_SIZE - 1)] = asked;
    if (error || !(self.strict || p->changes)) {
        answer(p->call.id, (int)error);
    } else { /* what it is about may have changed, and something may have to be done for it: it is looked at again */
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
    memset(self.settled, 0, sizeof self.settled);
    broker_forgets();
    forget_masks();
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

int permitted(const struct notification *n, const struct deed *d) {
    if (self.quiet && !self.strict && !self.made.count) return 1; /* nobody wants to know */
    int fine = is_fine(d->path, d->changes) || (!d->changes && (self.strict || !*d->note) && is_fine(d->path, 1));
    if (d->is_moot || (fine && (!d->second || is_fine(d->second, 1)) && (!*d->note || !strcmp(d->note, MISSING)))) {
        int told = !d->is_vain && (d->changes || self.full || !strcmp(d->operation, "exec"));
        uint32_t job = told ? job_of_caller((pid_t)n->pid) : 0;
        if (told && !was_seen(job, d->operation, d->path, d->second ? d->second : "")) put_touched(job, d);
        return 1;
    }
    return ask(n, d);
}

int stays_linked(const struct notification *n, const char *path) {
    return ask(n, &(struct deed){.operation = "through", .path = path, .before = "?", .note = "", .changes = 1});
}

/* Not to be found out: the wall decides, and the record says that it lacks something. */
static void pass_unseen(const struct notification *n, int changes) {
    if (changes) put_unknown();
    answer(n->id, 0);
}

/* What is known of a call from what it is about: whether it can come to anything. What can, and fails all the same, is found by comparing. */
static int comes_to_nothing(const struct call *c, const struct place *one, const struct place *two, uint64_t flags) {
    if (one->how == NOWHERE || (two && two->how == NOWHERE)) return 1;
    switch (c->shape) {
    case OPEN:
    case OPENAT:
    case CREAT:
    case OPENAT2: return one->how == ABSENT ? !(flags & O_CREAT) : flags & CHANGING && S_ISCHR(one->info.st_mode); /* a device keeps nothing */
    case EXEC:
    case EXECAT: return one->how == ABSENT || !S_ISREG(one->info.st_mode) || !(one->info.st_mode & 0111);
    default: return 0;
    }
}

/* Whether a call makes a name where there is none. */
static int makes_name(const struct call *c, uint64_t flags, const struct place *two) {
    return two || !strcmp(c->name, "create") || (c->shape <= OPENAT2 && flags & O_CREAT);
}

static int is_unmade(const char *path) {
    for (size_t i = 0; i < self.unmade_count; i++)
        if (!strcmp(self.unmade[i].path, path)) return 1;
    return 0;
}

static int is_moot(const char *operation, int makes, const struct place *one, const struct place *two) {
    const struct place *made = !strcmp(operation, "link") ? two : !strcmp(operation, "create") ? one : NULL;
    if ((made && made->how == THERE) || ((two || !strcmp(operation, "delete")) && one->how == ABSENT)) return 1;
    return one->how == ABSENT && !makes && is_unmade(one->path);
}

/* What must not be made under that name in a directory, whatever path led there; NULL if it may. */
static const struct unmade *unmade_in(int directory, const char *name) {
    struct stat info;
    for (size_t i = 0; *name && directory >= 0 && i < self.unmade_count; i++) {
        const struct unmade *u = &self.unmade[i];
        if (!strcmp(u->name, name) && !fstat(directory, &info) && info.st_dev == u->device && info.st_ino == u->inode) return u;
    }
    return NULL;
}

int is_never_made(int directory, const char *name) { return unmade_in(directory, name) != NULL; }

/* A place by the name that the rules know, if it is one that must not be made. */
static void know(struct place *p) {
    const char *name = p->how == ABSENT || p->how == UNKNOWN ? p->name : p->how == THERE && strrchr(p->path, '/') ? strrchr(p->path, '/') + 1 : "";
    const struct unmade *u = unmade_in(p->parent, name);
    if (!u) return;
    snprintf(p->path, sizeof p->path, "%s", u->path);
    if (p->how == UNKNOWN) p->how = ABSENT;
}

/* Whether the box may not make that name itself, because Landlock is against it, and we have to. */
static int is_ours_to_make(const struct place *p) {
    if (p->how == UNKNOWN) return self.made.count && p->parent >= 0; /* too long a path, below a directory of the box */
    return (p->how == ABSENT || p->how == THERE) && below_any(p->path, &self.made);
}

/* The rules have nothing against it. */
static void proceed(const struct notification *n, const struct call *c, const struct asked *asked, struct place *one, struct place *two) {
    const uint64_t *a = n->data.args;
    struct place *target = two ? two : one;
    if (!makes_name(c, asked->flags, two) || c->shape == ADDRESS || target->is_odd || !is_ours_to_make(target)) {
        answer(n->id, 0);
        return;
    }
    switch (n->data.nr) {
#ifdef SYS_open /* machines younger than these calls have only their successors */
    case SYS_mkdir: make_directory(n, one, (mode_t)a[1]); break;
    case SYS_mknod: make_node(n, one, (mode_t)a[1]); break;
    case SYS_symlink: make_symlink(n, one, a[0]); break;
    case SYS_link: make_link(n, one, two); break;
    case SYS_rename: make_rename(n, one, two, 0); break;
#endif
#ifdef SYS_renameat
    case SYS_renameat: make_rename(n, one, two, 0); break;
#endif
    case SYS_renameat2: make_rename(n, one, two, (unsigned)a[4]); break;
    case SYS_mkdirat: make_directory(n, one, (mode_t)a[2]); break;
    case SYS_mknodat: make_node(n, one, (mode_t)a[2]); break;
    case SYS_symlinkat: make_symlink(n, one, a[0]); break;
    case SYS_linkat: make_link(n, one, two); break;
    default: make_file(n, one, asked);
    }
}

/* Whether a call changes the file itself, and not only its name. */
static int changes_file(const struct notification *n, const struct call *c, uint64_t flags, const struct place *p) {
    const uint64_t *a = n->data.args;
    if (c->shape <= OPENAT2) return opens_to_write(flags);
    if (!strcmp(c->name, "chmod")) return ((c->shape == FOLLOWEDAT ? a[2] : a[1]) & 07777) != (p->info.st_mode & 07777u);
    return !strcmp(c->name, "write") || !strcmp(c->name, "chown") || !strcmp(c->name, "utime");
}

/* Whether a name that a rule may be about is made too deep to have a path: it could be moved to where it has one, and nobody would ask
 * about it then. */
static int is_hidden_name(const struct call *c, uint64_t flags, const struct place *target, const struct place *two) {
    return target->how == UNKNOWN && makes_name(c, flags, two) && is_ours_to_make(target) && has_named_part(target->name);
}

/* Whether a mode is set that it has already, on what is covered: a read-only cover takes no mode, and there is nothing to refuse. */
static int is_no_change(const struct notification *n, const struct call *c, const struct place *p) {
    return !strcmp(c->name, "chmod") && p->how == THERE && !S_ISLNK(p->info.st_mode) && !changes_file(n, c, 0, p) && below_any(p->path, &self.cover);
}

/* Whether it would write to a file that is somebody else's, too, and cannot be made a file of its own: then that is the answer. Only what
 * the rules have let pass comes here, since parting changes something itself. */
static int stays_foreign(const struct notification *n, const struct call *c, const struct asked *asked, const struct place *p) {
    int is_open = c->shape <= OPENAT2, empty = is_open && !asked->resolve && opens_to_empty(asked->flags);
    if ((p->info.st_nlink < 2 && !p->is_held) || !changes_file(n, c, asked->flags, p)) return 0;
    if (part_links((pid_t)n->pid, p, empty, is_open) != STAYS_LINKED) return 0;
    if (stays_linked(n, *p->path ? p->path : asked->text ? asked->text : "a file")) answer(n->id, EACCES);
    return 1;
}

/* One path, or two if `two` is given. */
static void on_places(const struct notification *n, const struct call *c, const struct asked *asked, int changes, struct place *one, struct place *two) {
    char before[STATE_SIZE], second_before[STATE_SIZE];
    uint64_t flags = asked->flags;
    const char *name = c->shape > OPENAT2 ? c->name : changes ? "write" : "read";
    struct place *subject = one, *second = two;
    know(one);
    if (two) know(two);
    /* What is not known of one path must not keep the rules from the other. */
    if (two && (one->how == UNNAMED || one->how == UNKNOWN)) subject = two, second = NULL, name = "create"; /* a file without a name gets one */
    else if (two && two->how == UNKNOWN) second = NULL;
    if (changes && (one->how == UNKNOWN || (two && two->how == UNKNOWN))) put_unknown(); /* the record says that it lacks something */
    if (is_hidden_name(c, flags, two ? two : one, two)) {
        answer(n->id, EACCES);
    } else if (subject->how == UNKNOWN) {
        if (!(changes && !two && stays_foreign(n, c, asked, one))) proceed(n, c, asked, one, two); /* the wall decides */
    } else if ((subject->how == UNNAMED && (*subject->path != '/' || (c->shape != EXEC && c->shape != EXECAT))) || (second && second->how == UNNAMED)) {
        answer(n->id, 0); /* there is no name that a rule could be about; a program in memory is for the record */
    } else if (!second && is_no_change(n, c, subject)) {
        answer_done(n->id);
    } else {
        struct deed d = {.operation = name, .path = subject->path, .second = second ? second->path : NULL, .changes = changes,
                         .before = changes ? state_of(subject, before) : "?", .second_before = second ? state_of(second, second_before) : "",
                         .note = (subject->how == ABSENT || subject->how == NOWHERE) && !changes ? MISSING : "",
                         .is_vain = comes_to_nothing(c, subject, second, flags), .is_moot = is_moot(name, makes_name(c, flags, two), subject, second)};
        if (permitted(n, &d) && !(changes && !second && stays_foreign(n, c, asked, subject))) proceed(n, c, asked, one, two);
    }
}

/* What has to stay open until it is made. */
static int kept(const struct call *c, uint64_t flags, int changes, int is_pair) {
    return self.made.count && changes && (is_pair || !strcmp(c->name, "create") || (c->shape <= OPENAT2 && flags & O_CREAT)) ? KEEP : 0;
}

static void on_asked(const struct notification *n, const struct call *c, const struct asked *asked, int changes, int dirfd, uint64_t address, int follow) {
    static struct place place;
    char text[PATH_SIZE];
    if (!address && (c->shape == FOLLOWEDAT || c->shape == PATHAT)) *text = 0; /* utimensat takes a descriptor alone so */
    else if (peek_text((pid_t)n->pid, address, text)) {
        pass_unseen(n, changes);
        return;
    }
    struct asked whole = *asked;
    whole.base = dirfd, whole.text = text;
    resolve((pid_t)n->pid, dirfd, text, (follow ? FOLLOW : 0) | kept(c, asked->flags, changes, 0), &place);
    on_places(n, c, &whole, changes, &place, NULL);
    leave_place(&place);
}

static void on_path(const struct notification *n, const struct call *c, int changes, int dirfd, uint64_t address, int follow) {
    on_asked(n, c, &(struct asked){0}, changes, dirfd, address, follow);
}

/* A file of the system's, as it is written: loaders and runtimes read little else, and nothing of it is refused. */
static int is_plainly_readable(const char *text) {
    return below_any(text, &self.system) && !strstr(text, "/..") && !is_suspect(text);
}

static void on_open(const struct notification *n, const struct call *c, int dirfd, uint64_t address, const struct asked *asked) {
    char text[PATH_SIZE];
    uint64_t flags = asked->flags;
    if (!(flags & CHANGING) && !self.full && (peek_text((pid_t)n->pid, address, text) || is_plainly_readable(text))) {
        answer(n->id, 0);
        return;
    }
    int makes = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    on_asked(n, c, asked, !!(flags & CHANGING), dirfd, address, !(flags & O_NOFOLLOW) && !makes);
}

static void on_descriptor(const struct notification *n, const struct call *c, int number) {
    static struct place place;
    place.keeps = 0;
    find_descriptor_of((pid_t)n->pid, number, &place);
    on_places(n, c, &(struct asked){0}, 1, &place, NULL);
}

static void on_pair(const struct notification *n, const struct call *c, int from, uint64_t old, int follow, int to, uint64_t new) {
    static struct place one, two;
    char text[PATH_SIZE];
    pid_t pid = (pid_t)n->pid;
    if (peek_text(pid, old, text)) {
        pass_unseen(n, 1);
        return;
    }
    resolve(pid, from, text, (follow ? FOLLOW : 0) | kept(c, 0, 1, 1), &one);
    if (peek_text(pid, new, text)) {
        pass_unseen(n, 1);
    } else {
        resolve(pid, to, text, kept(c, 0, 1, 1), &two);
        on_places(n, c, &(struct asked){0}, 1, &one, &two);
        leave_place(&two);
    }
    leave_place(&one);
}

static void on_local(const struct notification *n, const struct call *c, const char *path) {
    static struct place place;
    static char text[PATH_SIZE + 8];
    int makes = !strcmp(c->name, "bind");
    resolve((pid_t)n->pid, HERE, path, makes ? 0 : FOLLOW, &place);
    if (makes) {
        struct call create = {c->nr, ADDRESS, "create"};
        on_places(n, &create, &(struct asked){0}, 1, &place, NULL);
    } else if (place.how == UNNAMED || place.how == UNKNOWN || (place.how == THERE && !is_suspect(place.path))) {
        answer(n->id, 0);
    } else {
        snprintf(text, sizeof text, "unix:%s", place.path);
        if (ask(n, &(struct deed){.operation = c->name, .path = text, .before = "?", .note = place.how == THERE ? "" : MISSING})) answer(n->id, 0);
    }
}

static void on_address(const struct notification *n, const struct call *c, uint64_t address, uint64_t length) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
        char bytes[128];
    } a;
    char text[PATH_SIZE];
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
        a.bytes[sizeof a - 1] = 0;
        if (size > sizeof(sa_family_t) && a.local.sun_path[0]) on_local(n, c, a.local.sun_path);
        else answer(n->id, 0); /* a name that is no path lives in the box's own network */
        return;
    default: answer(n->id, 0); return;
    }
    uint16_t port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    int led_out = self.ports[port / 8] >> port % 8 & 1 && !strcmp(c->name, "connect");
    if (led_out || ask(n, &(struct deed){.operation = c->name, .path = text, .before = "?", .note = ""})) answer(n->id, 0);
}

static void on_call(const struct notification *n, const struct call *c) {
    const uint64_t *a = n->data.args;
    int here = HERE;
    switch (c->shape) {
    case OPEN: on_open(n, c, here, a[0], &(struct asked){.flags = a[1], .mode = a[1] & O_CREAT ? a[2] : 0}); break;
    case OPENAT: on_open(n, c, (int)a[0], a[1], &(struct asked){.flags = a[2], .mode = a[2] & O_CREAT ? a[3] : 0}); break;
    case CREAT: on_open(n, c, here, a[0], &(struct asked){.flags = O_CREAT | O_WRONLY | O_TRUNC, .mode = a[1]}); break;
    case OPENAT2: {
        struct how how = {0};
        if (peek((pid_t)n->pid, a[2], &how, sizeof how) != sizeof how) pass_unseen(n, 1);
        else if (how.flags & CHANGING || self.full) on_open(n, c, (int)a[0], a[1], &(struct asked){how.flags, how.mode, how.resolve, 0, NULL});
        else answer(n->id, 0);
        break;
    }
    case MASK:
        mask_changes((pid_t)n->pid);
        answer(n->id, 0);
        break;
    case EXEC: on_path(n, c, 0, here, a[0], 1); break;
    case EXECAT: on_path(n, c, 0, (int)a[0], a[1], 1); break;
    case PATH: on_path(n, c, 1, here, a[0], 0); break;
    case PATHAT: on_path(n, c, 1, (int)a[0], a[1], 0); break;
    case FOLLOWED: on_path(n, c, 1, here, a[0], 1); break;
    case FOLLOWEDAT: on_path(n, c, 1, (int)a[0], a[1], 1); break;
    case PAIR: on_pair(n, c, here, a[0], 0, here, a[1]); break;
    case PAIRAT: on_pair(n, c, (int)a[0], a[1], !strcmp(c->name, "link") && a[4] & AT_SYMLINK_FOLLOW, (int)a[2], a[3]); break;
    case SYMLINK: on_path(n, c, 1, here, a[1], 0); break;
    case SYMLINKAT: on_path(n, c, 1, (int)a[1], a[2], 0); break;
    case ADDRESS: on_address(n, c, a[1], a[2]); break;
    case SENDTO:
        if (a[4]) on_address(n, c, a[4], a[5]);
        else answer(n->id, 0);
        break;
    case DESCRIPTOR: on_descriptor(n, c, (int)a[0]); break;
    case SHAPES: answer(n->id, 0);
    }
}

static void on_notification(const struct notification *n) {
    mask_seen((pid_t)n->pid);
    if (n->data.nr == SYS_execve || n->data.nr == SYS_execveat) remember_first((pid_t)n->pid);
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
