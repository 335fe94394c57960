/* Shared by supervise.c, which looks at calls, and broker.c, which makes them for the caller where a box is strict. */
#ifndef RINGFENCE_SUPERVISE_H
#define RINGFENCE_SUPERVISE_H

#include "box.h"

#include <sys/ioctl.h>

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
#define RESOLVE_BENEATH 8u
#define RESOLVE_IN_ROOT 0x10u
#define PATH_SIZE 4096
#define HERE (-100) /* AT_FDCWD */
#define CHANGING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define MISSING "missing" /* what the caller would not find: the view hides it, or it is not there */

void answer(uint64_t id, int error);                      /* an errno, or 0 to go on */
void answer_done(uint64_t id);                            /* it was done for the caller */
void answer_descriptor(uint64_t id, int fd, int flags);   /* it was opened for the caller; closes fd */
int is_asked(uint64_t id);                                /* whether the caller still waits */

ssize_t peek(pid_t pid, uint64_t address, void *into, size_t size);
int peek_text(pid_t pid, uint64_t address, char *into);
int link_of(const char *path, char *into);
int root_of(pid_t pid);                                   /* stays open */

/* Whether a call may be made now. If not, the manager has been asked, and the call comes again if its answer is to go on.
 * `note` is a word for the manager about a path: MISSING, or which file it is by another name. */
int permitted(const struct notification *n, const char *operation, const char *path, const char *second, int changes, const char *note);
int is_suspect(const char *path);                         /* whether a rule may be about a path that a call moves along */
int is_fixed(const char *path);                           /* whether a name has to stay, because the box's view hangs on it */

int brokered(const struct notification *n);               /* answers, or returns 0 for calls that go the usual way */
void broker_as(uid_t uid, gid_t gid);                     /* run by root: whose rights count */
void broker_denies(uint64_t device, uint64_t inode, const char *path);
void broker_ready(void);                                  /* all of them have been named */
void broker_forgets(void);                                /* a new command: nobody waits for the last one any more */

#endif
