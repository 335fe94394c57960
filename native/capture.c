/* The network of a box that may reach something: a namespace in which every address is the box itself, and its socket maker.
 *
 *   capture   makes the namespace, before the wall: its loopback, an address of each family that counts as one of the machine's, and
 *             a local route for everything. So a connection to any address ends at a socket of this namespace, which knows where it was
 *             meant to go; one to a port that nobody listens on is refused at once. There is no other interface: nothing leaves.
 *   maker     a process in that namespace, outside all others of the box. It makes listeners and sockets there on request and passes them
 *             out; it keeps no copy, so that a proxy that dies leaves nobody who accepts and never answers. It may bind low
 *             ports, and nothing else: no file, no process, no program.
 *
 * The box is in a user namespace below the one that owns this network: it has no capability over it, and changes none of it.
 * Any error but a missing IPv6 ends the launcher: with half of the routes something else would answer.
 */
#include "box.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif
#define LOOPBACK 1 /* its number in every new network namespace */
#define BACKLOG 4096
#define BIND_LOW_PORTS 10u /* CAP_NET_BIND_SERVICE */
#define CAPABILITIES_V3 0x20080522u

/* The same addresses are in confinement/base.py. The first is of a network for tests of devices, which no host is in; names are given
 * others of it. */
static const uint8_t own_v4[] = {198, 18, 0, 1};
static const uint8_t own_v6[] = {0xfd, 0x72, 0x69, 0x6e, 0x67, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

struct request {
    struct nlmsghdr head;
    char rest[128];
};

static void add_body(struct request *r, const void *body, size_t size) {
    memcpy((char *)r + NLMSG_ALIGN(r->head.nlmsg_len), body, size);
    r->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->head.nlmsg_len) + size);
}

static void add_attribute(struct request *r, unsigned short type, const void *value, size_t size) {
    struct rtattr head = {.rta_len = (unsigned short)RTA_LENGTH(size), .rta_type = type};
    add_body(r, &head, sizeof head);
    add_body(r, value, size);
}

/* Asks the kernel for one change and waits for its word; an errno, 0 if it is done. */
static int ask(int route, struct request *r) {
    struct {
        struct nlmsghdr head;
        struct nlmsgerr said;
        char rest[256];
    } answer;
    r->head.nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
    if (send(route, r, r->head.nlmsg_len, 0) != (ssize_t)r->head.nlmsg_len) die("network: request");
    ssize_t got = recv(route, &answer, sizeof answer, 0);
    if (got < (ssize_t)(sizeof answer.head + sizeof answer.said.error) || answer.head.nlmsg_type != NLMSG_ERROR)
        die_because("network: the kernel's answer makes no sense");
    return -answer.said.error;
}

static struct request begin(uint16_t type, uint16_t flags) {
    return (struct request){.head = {.nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = type, .nlmsg_flags = flags}};
}

static void loopback_up(int route) {
    struct request r = begin(RTM_NEWLINK, 0);
    struct ifinfomsg link = {.ifi_index = LOOPBACK, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    add_body(&r, &link, sizeof link);
    errno = ask(route, &r);
    if (errno) die("network: loopback");
}

static int add_address(int route, uint8_t family, const uint8_t *address, uint8_t size) {
    struct request r = begin(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
    struct ifaddrmsg body = {.ifa_family = family, .ifa_prefixlen = (uint8_t)(size * 8), .ifa_flags = IFA_F_NODAD, .ifa_index = LOOPBACK};
    add_body(&r, &body, sizeof body);
    add_attribute(&r, IFA_LOCAL, address, size);
    add_attribute(&r, IFA_ADDRESS, address, size);
    return ask(route, &r);
}

/* Everything is local. The source is named: else it would be the destination itself, and a connection to a port that nobody has could
 * meet its own other end. */
static int add_route(int route, uint8_t family, const uint8_t *source, uint8_t size) {
    struct request r = begin(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
    struct rtmsg body = {.rtm_family = family, .rtm_table = RT_TABLE_LOCAL, .rtm_protocol = RTPROT_STATIC, .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL};
    uint32_t interface = LOOPBACK;
    add_body(&r, &body, sizeof body);
    add_attribute(&r, RTA_OIF, &interface, sizeof interface);
    add_attribute(&r, RTA_PREFSRC, source, size);
    return ask(route, &r);
}

/* A machine without IPv6, or where it is switched off, refuses both steps: then there is no way by it at all. */
static int lacks_v6(int error) { return error == EACCES || error == EAFNOSUPPORT || error == EOPNOTSUPP; }

static void route_everything(void) {
    int route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (route < 0) die("network");
    loopback_up(route);
    errno = add_address(route, AF_INET, own_v4, sizeof own_v4);
    if (errno) die("network: address");
    errno = add_route(route, AF_INET, own_v4, sizeof own_v4);
    if (errno) die("network: route");
    errno = add_address(route, AF_INET6, own_v6, sizeof own_v6);
    if (errno && !lacks_v6(errno)) die("network: address of IPv6");
    if (!errno) {
        errno = add_route(route, AF_INET6, own_v6, sizeof own_v6);
        if (errno && !lacks_v6(errno)) die("network: route of IPv6");
    }
    close(route);
}

uint64_t network_number(void) {
    struct stat info;
    if (stat("/proc/self/ns/net", &info)) die("/proc/self/ns/net");
    return (uint64_t)info.st_ino;
}

void check_captured(uint64_t outside) {
    if (network_number() == outside) die_because("the box would have the host's network");
    struct if_nameindex *links = if_nameindex();
    if (!links) die("network: interfaces");
    int alone = links[0].if_index == LOOPBACK && !strcmp(links[0].if_name, "lo") && !links[1].if_index;
    if_freenameindex(links);
    if (!alone) die_because("the box would have an interface besides its loopback");
}

/* --- the socket maker ------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define OWN_ARCH 0xC000003Eu /* linux/audit.h: ELF machine | 64 bit | little endian */
#elif defined(__aarch64__)
#define OWN_ARCH 0xC00000B7u
#else
#define OWN_ARCH 0u
#endif

static const unsigned own_calls[] = {
    SYS_recvmsg, SYS_sendmsg, SYS_socket, SYS_setsockopt, SYS_bind, SYS_listen, SYS_close, SYS_rt_sigreturn, SYS_exit, SYS_exit_group,
};
#define OWN_CALLS (sizeof own_calls / sizeof *own_calls)

static void lock_up(void) {
    struct sock_filter program[OWN_CALLS + 6], *at = program;
    if (!OWN_ARCH) _exit(125);
    *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < OWN_CALLS; i++)
        *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own_calls[i], (uint8_t)(OWN_CALLS - i), 0);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = (unsigned short)(at - program), .filter = program};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(125);
}

/* Bound to every address of both families, or of IPv4 where there is no other. */
static int bound(int type, uint16_t port) {
    int yes = 1, no = 0;
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0), is_v6 = fd >= 0;
    if (fd < 0) fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    int failed = is_v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    /* For TCP alone: connections of a proxy that has died may linger. With UDP it would let somebody else bind the same port. */
    if (type == SOCK_STREAM) failed |= setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (type == SOCK_DGRAM) {
        failed |= setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes);
        if (is_v6) failed |= setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &yes, sizeof yes);
        if (is_v6) failed |= setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &yes, sizeof yes); /* to answer from any address */
    }
    if (!failed) failed = is_v6 ? bind(fd, (struct sockaddr *)&v6, sizeof v6) : bind(fd, (struct sockaddr *)&v4, sizeof v4);
    if (!failed && type == SOCK_STREAM) failed = listen(fd, BACKLOG);
    if (!failed) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int make_socket(uint32_t kind, uint32_t which) {
    errno = EINVAL;
    if (kind == LISTEN && which && which < 65536) return bound(SOCK_STREAM, (uint16_t)which);
    if (kind == DATAGRAM && which && which < 65536) return bound(SOCK_DGRAM, (uint16_t)which);
    if (kind == UNCONNECTED && (which == 4 || which == 6)) return socket(which == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return -1;
}

/* One request: version, kind, its number, port or family. The answer carries the same number, an errno and, if that is 0, the socket. */
static int serve_one(int manager) {
    uint32_t head[4];
    char space[CMSG_SPACE(sizeof(int))];
    memset(space, 0, sizeof space);
    struct iovec io = {head, sizeof head};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    ssize_t got = recvmsg(manager, &m, 0);
    if (got < 0 && errno == EINTR) return 1;
    if (got != sizeof head || head[0] != PROTOCOL_VERSION) return 0;
    int made = make_socket(head[1], head[3]);
    head[1] = MADE;
    head[3] = made < 0 ? (uint32_t)errno : 0;
    if (made >= 0) {
        m.msg_control = space, m.msg_controllen = sizeof space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &made, sizeof made);
    }
    for (;;) {
        if (sendmsg(manager, &m, MSG_NOSIGNAL) >= 0) break;
        if (errno == ETOOMANYREFS && made >= 0) { /* too many descriptors on their way: the manager may ask again */
            head[3] = ETOOMANYREFS;
            m.msg_control = NULL, m.msg_controllen = 0;
        } else if (errno != EINTR) {
            return 0;
        }
    }
    if (made >= 0) close(made);
    return 1;
}

/* Whom it becomes is somebody who owns nothing, if we are root; the one capability that stays is over this network alone, else. */
static void become_maker(uid_t uid, gid_t gid) {
    struct {
        uint32_t version;
        int pid;
    } head = {CAPABILITIES_V3, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } kept[2] = {{1u << BIND_LOW_PORTS, 1u << BIND_LOW_PORTS, 0}, {0, 0, 0}};
    if (uid != getuid() && (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))) _exit(125);
    if (syscall(SYS_capset, &head, kept)) _exit(125);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0)) _exit(125);
}

noreturn static void keep(int manager, uid_t uid, gid_t gid, pid_t guardian) {
    if (dup2(manager, 0) < 0 || syscall(SYS_close_range, 1u, ~0u, 0u)) _exit(125);
    become_maker(uid, gid);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != guardian) _exit(125);
    lock_up();
    while (serve_one(0)) {}
    _exit(0);
}

void capture(int manager, uid_t uid, gid_t gid) {
    route_everything();
    pid_t guardian = getppid();
    /* A child of the guardian's and not of ours: whatever we become waits for its own children, and the guardian ends its. */
    long maker = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (maker < 0) die("network: socket maker");
    if (!maker) keep(manager, uid, gid, guardian);
    close(manager);
}
