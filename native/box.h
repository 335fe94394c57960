/* Shared by the parts of ringfence-box. The wire format is docs/box-protocol.md; change both together. */
#ifndef RINGFENCE_BOX_H
#define RINGFENCE_BOX_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

#define PROTOCOL_VERSION 4u
#define INLINE_MAX (48u * 1024u)        /* larger bodies come in a memfd: a SEQPACKET message is bounded by the socket's buffer */
#define BODY_MAX (16u * 1024u * 1024u)

enum kind {                             /* manager to box */
    CONFIGURE = 1,
    SPAWN = 2,
    KILL = 3,
    SIGNAL = 4,
    MEASURE = 5,
    /* box to manager */
    READY = 16,
    FAILED = 17,
    ENDED = 18,
    TERMINAL = 19,
    WINDOW = 20,
    LEFT = 21,
    MEASURED = 22,
    /* manager to guardian, over the lifeline */
    ATTACH = 32,
    ANSWER = 33,
    FORGET = 34,
    ENTRUST = 35,
    /* guardian to manager */
    ASKED = 48,
    /* manager to the socket maker of a box, over a socket of its own */
    LISTEN = 64,                        /* TCP, on a port of every address */
    DATAGRAM = 65,                      /* UDP, the same; knows where each packet was sent to */
    UNCONNECTED = 66,                   /* TCP of family 4 or 6, for connections into the box */
    /* manager to PID 1 of a container, which makes the first two as well */
    DIAL = 67,                          /* TCP, connected to a port of its loopback */
    /* and back */
    MADE = 80,
};

enum manner {                           /* flags of SPAWN */
    ON_TERMINAL = 1,                    /* a terminal of its own instead of the three descriptors */
    LONG_LIVED = 2,                     /* an interpreter that serves many calls: no limit on its CPU time */
    SERVES_FILES = 4,                   /* no program: a child of ours that reads and changes files (files.c); takes its socket */
    KEEPS = 8,                          /* what it leaves running lives on until it is killed, or the box ends */
    RESUMES = 16,                       /* no program: the interpreter that this process was forked from (zygote.c) */
};

enum step {                             /* what FAILED is about */
    STARTING = 0,                       /* the program */
    ENTERING = 1,                       /* its directory */
};

#define SWEPT 0x10000u                  /* in a wait status: it was ended because another command could not be ended otherwise */

struct header {
    uint32_t version, kind, id, length; /* length of the body, inline or in the memfd */
};

/* A body is a list of NUL-terminated words. */
struct words {
    char *at, *end;
};

noreturn void die(const char *what);           /* says what and errno on stderr, exits 125 */
noreturn void die_because(const char *what);   /* says what */
char *word(struct words *w);                   /* the next word; dies when there is none */
int more(const struct words *w);
uint64_t number(struct words *w);
struct words slurp(int fd);                    /* the whole file as words */
void wipe(char *at, size_t size);              /* zeroes, also where nobody reads it again */
void write_text(const char *path, const char *text);
void own_users(uid_t inside_uid, gid_t inside_gid); /* a user namespace with us alone in it; what exec keeps of its capabilities is nothing */
void kill_children(void);                      /* all direct children of ours; all other processes if we are PID 1 */

noreturn void launch(int plan, pid_t owner);   /* outside: guardian, then the way into the wall */
noreturn void carry(int control, int description, const char *directory, char **argv); /* outside: the wall is a kernel of its own */
noreturn void ferry(int control, int stream);  /* the same, and a container engine has made the wall */
noreturn void carried(void);                   /* the other end of both, inside */
noreturn void serve_files(int socket);         /* inside: a child of PID 1 */
noreturn void init(int control, int memory);   /* inside: PID 1; what holds a shadow's changes, or -1 */
int can_resume(void);                          /* whether this program is in an interpreter that stands ready */
noreturn void resume(struct words w);          /* in a child of PID 1: be that interpreter, started with these words */

void capture(int manager, uid_t uid, gid_t gid);        /* outside: fill the new network namespace, and start its socket maker with these ids */
uint64_t network_number(void);                          /* of the network namespace that we are in */
void check_captured(uint64_t outside);                  /* dies if that is this one, or there is more in it than a loopback */
int make_socket(uint32_t kind, uint32_t which);         /* for LISTEN, DATAGRAM and UNCONNECTED; -1 and errno if it cannot be made */

void supervise(int listener, int rules, int ring, int manager); /* in the guardian: from now on, answer what the filter stops */
int supervised(void);                                   /* the listener, -1 if there is none */
int supervise_one(void);                                /* answer one call; 0 when nobody is left to be supervised */
void supervisor_answered(uint32_t question, uint32_t error);
void supervisor_forgets(void);                          /* a new command: what was told is told again */

#endif
