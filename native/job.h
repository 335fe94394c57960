/* Shared by init.c, which starts and ends commands, and job.c, which tells them apart and measures them. */
#ifndef RINGFENCE_JOB_H
#define RINGFENCE_JOB_H

#include "box.h"

#define JOBS_MAX 256
#define ENDING (-1) /* in the place of a pid: neither free nor anybody's */
#define KEPT (-2)   /* the first process has ended, and what it left lives on */

struct job {
    pid_t first; /* 0: the place is free */
    uint32_t id;
    int status;
    uint64_t user, system, peak;
    int keeps;   /* what it leaves running is not ended with it */
    int swept;   /* it is being ended on another's account */
};
extern struct job jobs[JOBS_MAX];

struct job *job_called(uint32_t id);
size_t members(const struct job *j, pid_t *found, size_t most);

void find_tags(void);            /* which limits can carry a number here */
int has_tags(void);
void tag_self(uint32_t id);      /* this process and all that it starts are of this command */
uint32_t tag_of(pid_t pid);      /* the command that a process is of; 0 if that is not known */
void measure(const struct job *j, uint64_t *n); /* CPU microseconds, resident KiB, KiB written, of all that lives and was reaped by it */

#endif
