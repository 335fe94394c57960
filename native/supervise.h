/* Shared by supervise.c, which looks at calls, and broker.c, which makes them for the caller where a box is strict. */
#ifndef RINGFENCE_SUPERVISE_H
#define RINGFENCE_SUPERVISE_H

#include "box.h"

#include <sys/ioctl.h>
#include <sys/stat.h>

/* As the kernel defines them; its headers are not there for every libc. */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
struct data {
    int nr;
    uint32_t arch;
    uint64_t instruction_pointer, args[6];
};
struct notification {
    uint64_t id;
    uint32_t pid, flags;
    struct data data;
};
struct response {
    uint64_t id;
    int64_t value;
    int32_t error;
    uint32_t flags;
};
struct added {
    uint64_t id;
    uint32_t flags, source, number, number_flags;
};
struct how {
    uint64_t flags, mode, resolve;
};
#define NOTIF_RECV _IOWR('!', 0, struct notification)
#define NOTIF_SEND _IOWR('!', 1, struct response)
#define NOTIF_ID_VALID _IOW('!', 2, uint64_t)
#define NOTIF_ADDFD _IOW('!', 3, struct added)
#define NOTIF_SET_FLAGS _IOW('!', 4, uint64_t)
#define SYNC_WAKE_UP 1ul
#define GO_ON 1u
#define ADD_AND_SEND 2u
#define RESOLVE_NO_XDEV 1u
#define RESOLVE_NO_MAGICLINKS 2u
#define RESOLVE_NO_SYMLINKS 4u
#define RESOLVE_BENEATH 8u
#define RESOLVE_IN_ROOT 0x10u
#define PATH_SIZE 4096
#define NAME_SIZE 256
#define STATE_SIZE 160
#define HERE (-100) /* AT_FDCWD */
#define CHANGING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define MISSING "missing" /* what the caller would not find: the view hides it, or it is not there */

void answer(uint64_t id, int error);                      /* an errno, or 0 to go on */
void answer_done(uint64_t id);                            /* it was done for the caller */
void answer_descriptor(uint64_t id, int fd, int flags);   /* it was opened for the caller; closes fd */
int is_asked(uint64_t id);                                /* whether the caller still waits */

/* --- resolve.c --- */

struct caller {
    pid_t pid;         /* as we see it: of the thread */
    pid_t own, thread; /* as it sees itself; 0 until somebody asks */
    pid_t leader;      /* the first of its threads, as we see it */
    pid_t parent;      /* as we see it */
    mode_t mask;
};

enum there {
    THERE,
    ABSENT,  /* nothing has that name in a directory that is there */
    NOWHERE, /* not even that, or the caller cannot get there: the path is as it was written */
    UNNAMED, /* the file has no path: a pipe, a memory file, one that was removed */
    UNKNOWN, /* it could not be found out */
};

struct place { /* what a path means to a caller */
    enum there how;
    int strayed; /* it did not begin at the root: it may lie in a mount of somebody else's */
    int is_held; /* it was reached by a descriptor that the caller has, not by its name */
    int keeps;   /* whether the next two stay open, until `leave_place` */
    int object;  /* what is there, or -1 */
    int parent;  /* where nothing has that name, or -1; also if the path is too long to be said */
    int is_direct; /* the parent is where the caller stands, or a directory that it has open: there is no way to go */
    int slash;   /* it was written as a directory's */
    int is_odd;  /* its last name is `.` or `..`, or a link that is written as a directory: what such a call does is the kernel's to say */
    char name[NAME_SIZE]; /* in the parent */
    struct stat info;
    char path[PATH_SIZE];
};

enum finding { /* how a path is followed; bits */
    FOLLOW = 1, /* also where its last name is a link */
    KEEP = 2,
};

ssize_t peek(pid_t pid, uint64_t address, void *into, size_t size);
int peek_text(pid_t pid, uint64_t address, char *into);
int look_at(struct caller *c); /* fills in what is known of it; takes longer than most of what is done for it, so only where it is needed */
int is_init(pid_t pid);        /* whether it is PID 1 of the box, which is ours */
int link_of(const char *path, char *into);
int path_of(int fd, char *into);
int root_of(pid_t pid);                                   /* stays open */
enum there resolve(pid_t pid, int dirfd, const char *text, int finding, struct place *p);
void leave_place(struct place *p);
int base_of(pid_t pid, int dirfd);                        /* where a relative path of the caller's begins; to be closed */
enum there find_descriptor_of(pid_t pid, int number, struct place *p);
const char *state_of(const struct place *p, char *into);  /* STATE_SIZE; "-" if nothing is there, "?" if that is not known */

/* --- links.c --- */

enum parted {
    NOT_LINKED,   /* nobody else has it, or nothing can be written to it */
    PARTED,       /* it has become a file of its own: the path leads to that now */
    STAYS_LINKED, /* writing to it would write to somebody else's file */
};

int opens_to_write(uint64_t flags);                       /* whether a file that is there may be changed by an open with these flags */
int opens_to_empty(uint64_t flags);                       /* whether it is emptied, unless its mode is against it */
void links_within(const char *root);                      /* one of the directories in which links may be written through */
/* Before a file is written to. `empty`: all that is in it will go; `is_open`: it is about to be opened, so the kernel looks at its mode. */
enum parted part_links(pid_t pid, const struct place *p, int empty, int is_open);

/* --- make.c --- */

/* What a call asks for besides its paths. */
struct asked {
    uint64_t flags, mode, resolve;
    int base;        /* where the path begins, for openat2 */
    const char *text;
};

void make_file(const struct notification *n, struct place *p, const struct asked *a);
void make_directory(const struct notification *n, struct place *p, mode_t mode);
void make_node(const struct notification *n, struct place *p, mode_t mode);
void make_symlink(const struct notification *n, struct place *p, uint64_t target);
void make_link(const struct notification *n, struct place *from, struct place *to);
void make_rename(const struct notification *n, struct place *from, struct place *to, unsigned flags);
void mask_changes(pid_t pid);                             /* a process is about to change its umask */
void mask_seen(pid_t pid);                                /* it makes another call, so it has */
void forget_masks(void);

/* --- supervise.c --- */

/* A call, as rules and record see it. */
struct deed {
    const char *operation, *path;
    const char *second; /* NULL if it is about one path */
    const char *before, *second_before; /* states */
    const char *note;   /* a word for the manager about the path: MISSING, or which file it is by another name */
    int changes;
    int is_vain;        /* it comes to nothing: not for the record */
    int is_moot;        /* what it would make is there already, what it would remove is not: no rule has to refuse that */
};

/* Whether a call may be made now. If not, the manager has been asked, and the call comes again if its answer is to go on. */
int permitted(const struct notification *n, const struct deed *d);
int stays_linked(const struct notification *n, const char *path); /* asks; 1 if the answer is to go on */
int is_suspect(const char *path);                         /* whether a rule may be about a path that a call moves along */
int is_never_made(int directory, const char *name);       /* whether nobody may have that name in the directory, whatever was judged before */
int is_fixed(const char *path);                           /* whether a name has to stay, because the box's view hangs on it */

int brokered(const struct notification *n);               /* answers, or returns 0 for calls that go the usual way */
void broker_as(uid_t uid, gid_t gid);                     /* run by root: whose rights count */
void as_box(void);                                        /* from here on with these rights */
void as_before(void);
int rights_differ(void);                                  /* whether that is less than we have ourselves */
void broker_denies(uint64_t device, uint64_t inode, const char *path);
void broker_ready(void);                                  /* all of them have been named */
void broker_forgets(void);                                /* a new command: nobody waits for the last one any more */

#endif
