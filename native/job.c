/* Which command a process is of, and what a command uses.
 *
 * A command's number is written into two resource limits that every process inherits, whatever it becomes and wherever it hangs:
 * the number itself above a base into one, and what is missing to a fixed sum into the other. A hard limit can be lowered and
 * never raised, so that whoever changes one of them no longer fits the sum, and is nobody's; nobody can become another's.
 *
 * The limits are two that bound nothing here: the number of file locks, which the kernel has ignored since 2.4, and the time of
 * real-time processes, which a box has none of. gVisor does not let these be set; there, address space and data segment get
 * limits larger than any machine.
 */
#include "job.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BASE ((uint64_t)1 << 60)
#define SPAN ((uint64_t)1 << 32)
#define MEMBERS_MAX 4096

struct limit64 {
    uint64_t soft, hard;
};
static const int pairs[][2] = {{10, 15}, {9, 2}}; /* RLIMIT_LOCKS and RLIMIT_RTTIME; RLIMIT_AS and RLIMIT_DATA */
static const char *const first_names[] = {"Max file locks", "Max realtime timeout"}, *const second_names[] = {"Max address space", "Max data size"};
static const int *tags;

static int limit(pid_t pid, int which, const struct limit64 *new, struct limit64 *old) {
    return (int)syscall(SYS_prlimit64, pid, which, new, old);
}

/* Whether a limit can be set is tried on ourselves, with what it is now lowered by nothing that anybody would notice. */
void find_tags(void) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct limit64 all = {BASE + SPAN, BASE + SPAN}, have;
        int can = 1;
        for (int k = 0; k < 2 && can; k++) can = !limit(0, pairs[i][k], NULL, &have) && have.hard >= all.hard && !limit(0, pairs[i][k], &all, NULL);
        if (!can) continue;
        tags = pairs[i];
        return;
    }
}

int has_tags(void) { return tags != NULL; }

void tag_self(uint32_t id) {
    if (!tags) return;
    struct limit64 one = {BASE + id, BASE + id}, two = {BASE + SPAN - id, BASE + SPAN - id};
    limit(0, tags[0], &one, NULL);
    limit(0, tags[1], &two, NULL);
}

static size_t slurp_proc(pid_t pid, const char *name, char *into, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, into, size - 1);
    if (fd >= 0) close(fd);
    into[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

/* The same for whoever has another uid, and not the capability for it: /proc tells everybody. */
static int hard_limit_of(const char *text, const char *name, struct limit64 *found) {
    const char *at = strstr(text, name);
    return at && sscanf(at + strlen(name), "%*s %" SCNu64, &found->hard) == 1 ? 0 : -1;
}

uint32_t tag_of(pid_t pid) {
    struct limit64 one, two;
    char text[2048];
    if (!tags) return 0;
    if (limit(pid, tags[0], NULL, &one) || limit(pid, tags[1], NULL, &two)) {
        const char *const *names = tags == pairs[0] ? first_names : second_names;
        if (!slurp_proc(pid, "limits", text, sizeof text) || hard_limit_of(text, names[0], &one) || hard_limit_of(text, names[1], &two)) return 0;
    }
    return one.hard + two.hard == 2 * BASE + SPAN && one.hard > BASE ? (uint32_t)(one.hard - BASE) : 0;
}

static uint64_t field(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

void measure(const struct job *j, uint64_t *n) {
    static pid_t found[MEMBERS_MAX];
    const uint64_t tick = (uint64_t)sysconf(_SC_CLK_TCK), page = (uint64_t)sysconf(_SC_PAGESIZE) / 1024u;
    char text[2048];
    uint64_t ticks = 0, resident = 0, written = 0;
    for (size_t i = 0, count = members(j, found, MEMBERS_MAX); i < count; i++) {
        slurp_proc(found[i], "stat", text, sizeof text);
        char *at = strrchr(text, ')'); /* the name before it may hold anything */
        uint64_t spent[4] = {0};
        if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &spent[0], &spent[1], &spent[2], &spent[3]) == 4)
            for (int k = 0; k < 4; k++) ticks += spent[k];
        slurp_proc(found[i], "statm", text, sizeof text);
        uint64_t pages = 0;
        if (sscanf(text, "%*u %" SCNu64, &pages) == 1) resident += pages * page;
        slurp_proc(found[i], "io", text, sizeof text);
        uint64_t stored = field(text, "\nwrite_bytes: "), said = field(text, "wchar: ");
        written += (stored ? stored : said) / 1024u;
    }
    n[0] = ticks * (1000000u / (tick ? tick : 100u)) + j->user + j->system;
    n[1] = resident;
    n[2] = written;
}
