/* What the two parts of the carrier share: channels and frames (carry.c), and the connections of a box's network (carry_network.c). */
#ifndef RINGFENCE_CARRY_H
#define RINGFENCE_CARRY_H

#include "box.h"

#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>

#define CHANNELS_MAX 2048
#define ROOM (64u * 1024u)              /* the window of a channel, in each direction */
#define CHUNK (16u * 1024u)

enum { PACKET = 1, DATA, END, STOP, CREDIT, BLOB, SIZE, ACCEPTED, UDP };
enum { READING, WRITING, BOTH, FILED, TERMINALS, LISTENERS, DATAGRAMS, CONNECTIONS }; /* what the end can do that is passed on */

struct place {                          /* of the box's network; an IPv4 address as ::ffff:a.b.c.d, numbers as on the wire */
    uint8_t address[16];
    uint16_t port, unused;
};

struct channel {
    uint32_t id;                        /* 0: free */
    uint32_t job;                       /* the command that it belongs to; 0: none, it is of the network */
    int fd, kind;
    int reads, writes;                  /* what this side still does with it: read and send, or receive and write */
    int ended;                          /* nothing more comes; what came is still to be written */
    uint32_t credit;                    /* how much may be sent; of a listener, how many connections */
    int owed;                           /* how much has to be read before what the same command said elsewhere */
    enum { NOT_ASKED, WAITS, ITS_TURN } turn; /* of that elsewhere */
    char *came;
    uint32_t have, written;
    struct winsize size;
    int passed;                         /* outside, of a connection: the end that its listener has not taken yet; 0: it has */
    uint32_t listener;
    struct place asked;
};

extern struct channel channels[CHANNELS_MAX];
extern size_t used;                     /* no channel lies beyond */
extern int outside;

void queue_frame(uint32_t type, uint32_t channel, const void *bytes, size_t count);
struct channel *find(uint32_t id);
int has_room(uint32_t more);
uint32_t new_id(void);
int is_own_id(uint32_t id);
struct channel *open_channel(uint32_t id, int fd, int kind, int reads, int writes);
void stop_reading(struct channel *c);
void stop_writing(struct channel *c);
void read_channel(struct channel *c);

uint32_t first_credit(int kind);                /* of a new channel */
int kind_of_socket(int fd);                     /* inside: what a socket of the box's network is */
int make_network_end(uint32_t kind, uint32_t id); /* outside: what stands for such a socket; -1: no descriptor is left */
short network_events(const struct channel *c);  /* what is waited for at a channel of the network; -1: nothing, not even its end */
void serve_network(struct channel *c, short happened);
void forget_untaken(struct channel *c);          /* a connection ends before anybody took it */
void take_accepted(struct channel *listener, const char *bytes, uint32_t count);
void take_udp(struct channel *c, const char *bytes, uint32_t count);

#endif
