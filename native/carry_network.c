/* The network of a box through a wall that no descriptor passes: connections to its listeners, and its look-ups, over the carrier.
 *
 *   program --connect--> listener, inside [carried] ==ACCEPTED, DATA==> [ferry] --SEQPACKET: where to, one end--> proxy
 *
 * A listener that PID 1 has made stays inside. Outside, a pair of sockets stands for it: each connection is a pair, too, of which one
 * end comes out there, with the address and port that it was meant for. So the proxy has of each what it would have of a connection that
 * it had accepted itself. What it was meant for is the box's word, and need be no more: the box could have connected to that as well.
 *
 * Who does not read holds up nobody else. A connection is a channel with a window, like all others. A listener has room for some
 * connections that nobody has taken yet, and then accepts no more: they wait in its queue inside, where the kernel keeps them. Packets of UDP
 * are dropped where there is no room, as packets of UDP are. When the proxy is gone, so is the listener, and who connects is refused.
 *
 * Outside, what comes is hostile: more connections than there is room for, numbers that are taken, frames of the wrong size or for another
 * kind of channel end the box; a connection that no descriptor is left for is ended, and the others go on.
 */
#include "carry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024            /* the other half of the channels is for commands, which a network must not keep from starting */
#define UNTAKEN_MAX 64u                 /* connections of a listener that the proxy has not taken */
#define ACCEPTS_AT_ONCE 16              /* before others have their turn */
#define DATAGRAM_MAX (8u * 1024u)

struct accepted {
    uint32_t id;
    struct place asked;
};

struct datagram {                       /* the same both ways: who asked stays who asked */
    struct place asker, asked;
    char bytes[DATAGRAM_MAX];
};
#define DATAGRAM_HEAD offsetof(struct datagram, bytes)

uint32_t first_credit(int kind) { return kind == LISTENERS ? UNTAKEN_MAX : ROOM; }

int kind_of_socket(int fd) {
    int domain = 0, type = 0, listens = 0;
    socklen_t size = sizeof(int);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size)) die("socket");
    if (domain != AF_INET && domain != AF_INET6) return BOTH;
    if (type == SOCK_DGRAM) return DATAGRAMS;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size)) die("socket");
    return listens ? LISTENERS : CONNECTIONS;
}

static uint32_t count_connections(void) {
    uint32_t have = 0;
    for (struct channel *c = channels; c < channels + used; c++) have += c->id && c->kind == CONNECTIONS;
    return have;
}

static int has_connection_room(void) { return count_connections() < CONNECTIONS_MAX && has_room(1); }

static void end_both(uint32_t id) {
    queue_frame(STOP, id, NULL, 0);
    queue_frame(END, id, NULL, 0);
}

static void drop(struct channel *c) {
    end_both(c->id);
    c->writes = 0;
    stop_reading(c);
}

/* --- inside --------------------------------------------------------------------------------------------------------- */

static struct place place_of(const struct sockaddr_storage *from) {
    struct place p = {.address = {[10] = 0xff, [11] = 0xff}};
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        memcpy(p.address + 12, &v4->sin_addr, 4);
        p.port = v4->sin_port;
    } else {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
        memcpy(p.address, &v6->sin6_addr, 16);
        p.port = v6->sin6_port;
    }
    return p;
}

/* A descriptor in reserve: with it, a connection that none is left for can be ended, and does not wait for ever. */
static int turn_away(int listener) {
    static int reserve = -1;
    if (reserve >= 0) close(reserve);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

/* What it has said already goes over at once: whoever made the connection may be gone, and its end is told next. */
static int accept_one(struct channel *l) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return errno == EMFILE || errno == ENFILE ? turn_away(l->fd) : errno == ECONNABORTED;
    if (getsockname(fd, (struct sockaddr *)&name, &size)) {
        close(fd);
        return 1;
    }
    struct accepted a = {new_id(), place_of(&name)};
    l->credit--;
    queue_frame(ACCEPTED, l->id, &a, sizeof a);
    read_channel(open_channel(a.id, fd, CONNECTIONS, 1, 1));
    return 1;
}

/* The address that a packet was sent to; where the kernel does not tell, none. */
static struct place sent_to(struct msghdr *m) {
    struct place p = {.address = {[10] = 0xff, [11] = 0xff}};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            memcpy(p.address, &info.ipi6_addr, 16);
            break;
        }
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            memcpy(p.address + 12, &info.ipi_addr, 4);
        }
    }
    return p;
}

static void read_packet(struct channel *c) {
    struct datagram d;
    struct sockaddr_storage from;
    char space[256];
    struct iovec io = {d.bytes, sizeof d.bytes};
    struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 || m.msg_flags & MSG_TRUNC) return;
    d.asker = place_of(&from);
    d.asked = sent_to(&m);
    queue_frame(UDP, c->id, &d, DATAGRAM_HEAD + (size_t)n);
}

/* From the address that was asked: clients drop answers of others. */
static void answer_packet(const struct channel *c, struct datagram *d, size_t count) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = d->asker.port};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } from = {.space = {0}};
    struct iovec io = {d->bytes, count};
    struct msghdr m = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &io, .msg_iovlen = 1, .msg_control = from.space};
    memcpy(&to.sin6_addr, d->asker.address, 16);
    if (!memcmp(d->asked.address, mapped, sizeof mapped)) {
        struct in_pktinfo info = {0};
        memcpy(&info.ipi_spec_dst, d->asked.address + 12, 4);
        from.head.cmsg_level = IPPROTO_IP, from.head.cmsg_type = IP_PKTINFO, from.head.cmsg_len = CMSG_LEN(sizeof info);
        memcpy(CMSG_DATA(&from.head), &info, sizeof info);
        m.msg_controllen = CMSG_SPACE(sizeof info);
    } else {
        struct in6_pktinfo info = {0};
        memcpy(&info.ipi6_addr, d->asked.address, 16);
        from.head.cmsg_level = IPPROTO_IPV6, from.head.cmsg_type = IPV6_PKTINFO, from.head.cmsg_len = CMSG_LEN(sizeof info);
        memcpy(CMSG_DATA(&from.head), &info, sizeof info);
        m.msg_controllen = CMSG_SPACE(sizeof info);
    }
    if (sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return; /* a packet of UDP may be lost */
}

/* --- outside -------------------------------------------------------------------------------------------------------- */

int make_network_end(uint32_t kind, uint32_t id) {
    int ends[2];
    if (kind == CONNECTIONS && !has_connection_room()) {
        errno = EMFILE;
        return -1;
    }
    if (socketpair(AF_UNIX, (kind == CONNECTIONS ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_CLOEXEC, 0, ends)) return -1;
    open_channel(id, ends[0], (int)kind, kind != LISTENERS, 1);
    return ends[1];
}

static void give_back(const struct channel *l) {
    const uint32_t one = 1;
    queue_frame(CREDIT, l->id, &one, sizeof one);
}

/* Nobody takes connections any more: those that were not taken end, and inside there is no listener from now on. */
static void close_listener(struct channel *l) {
    for (struct channel *c = channels; c < channels + used; c++)
        if (c->id && c->passed && c->listener == l->id) {
            close(c->passed);
            c->passed = 0;
            drop(c);
        }
    queue_frame(STOP, l->id, NULL, 0);
    stop_writing(l);
}

/* Hands a connection to whoever has the listener; 0 if they have no room for it now. */
static int hand_over(struct channel *l, struct channel *c) {
    char space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec io = {&c->asked, sizeof c->asked};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *with = CMSG_FIRSTHDR(&m);
    with->cmsg_level = SOL_SOCKET, with->cmsg_type = SCM_RIGHTS, with->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(with), &c->passed, sizeof(int));
    ssize_t sent = sendmsg(l->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (sent < 0 && errno != ETOOMANYREFS) {
        close_listener(l);
        return 1;
    }
    close(c->passed);
    c->passed = 0;
    l->have--;
    give_back(l);
    if (sent < 0) drop(c); /* too many descriptors are on their way: this one ends, others go on */
    return 1;
}

static void hand_over_waiting(struct channel *l) {
    for (struct channel *c = channels; c < channels + used && l->id; c++)
        if (c->id && c->passed && c->listener == l->id && !hand_over(l, c)) return;
}

void forget_untaken(struct channel *c) {
    struct channel *l = find(c->listener);
    close(c->passed);
    c->passed = 0;
    if (!l) return;
    l->have--;
    give_back(l);
}

void take_accepted(struct channel *l, const char *bytes, uint32_t count) {
    struct accepted a;
    int ends[2];
    if (!outside || count != sizeof a) die_because("a connection came that is none");
    memcpy(&a, bytes, sizeof a);
    if (is_own_id(a.id)) die_because("a channel has a number of ours");
    if (l && l->kind != LISTENERS) die_because("a connection came to what is no listener");
    if (l && l->have >= UNTAKEN_MAX) die_because("more connections came than there is room for");
    int is_refused = !l || !has_connection_room();
    if (!is_refused && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        if (errno != EMFILE && errno != ENFILE) die("a connection");
        is_refused = 1;
    }
    if (is_refused) {
        end_both(a.id);
        if (l) give_back(l);
        return;
    }
    struct channel *c = open_channel(a.id, ends[0], CONNECTIONS, 1, 1);
    c->passed = ends[1], c->listener = l->id, c->asked = a.asked;
    l->have++;
    hand_over(l, c);
}

static void forward_answer(struct channel *c) {
    struct datagram d;
    ssize_t n = recv(c->fd, &d, sizeof d, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < (ssize_t)DATAGRAM_HEAD) drop(c); /* nobody answers any more */
    else queue_frame(UDP, c->id, &d, (size_t)n);
}

/* --- both ----------------------------------------------------------------------------------------------------------- */

void take_udp(struct channel *c, const char *bytes, uint32_t count) {
    struct datagram d;
    if (count < DATAGRAM_HEAD || count > sizeof d || (c && c->kind != DATAGRAMS)) die_because("a packet came that is none");
    if (!c) return;
    memcpy(&d, bytes, count);
    if (!outside) answer_packet(c, &d, count - DATAGRAM_HEAD);
    else if (send(c->fd, &d, count, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return; /* it is full, and the packet lost; or gone, as we will see */
}

/* Who has ended both halves of a connection reads no more either. Nothing else would tell: nobody waits for what it says. */
static int may_be_left(const struct channel *c) { return outside && c->kind == CONNECTIONS && !c->reads && c->writes; }

short network_events(const struct channel *c) {
    if (outside && c->kind == LISTENERS) return c->have ? POLLOUT : 0; /* and whether the proxy is gone */
    if (c->kind == LISTENERS) return c->credit && has_connection_room() ? POLLIN : -1;
    if (c->kind == DATAGRAMS) return POLLIN;
    return may_be_left(c) ? 0 : -1;
}

void serve_network(struct channel *c, short happened) {
    if (c->kind == LISTENERS && outside) {
        if (happened & POLLOUT) hand_over_waiting(c);
        if (c->id && happened & (POLLHUP | POLLERR)) close_listener(c);
    } else if (c->kind == LISTENERS) {
        for (int i = 0; i < ACCEPTS_AT_ONCE && c->credit && has_connection_room() && accept_one(c); i++) {}
    } else if (c->kind == DATAGRAMS) {
        outside ? forward_answer(c) : read_packet(c);
    } else if (may_be_left(c) && happened & (POLLHUP | POLLERR)) {
        drop(c);
    }
}
