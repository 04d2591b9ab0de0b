/* Makes a disk fail for one process, or the process end at a call: LD_PRELOAD this, and put rules into the file that
   VEDETTE_FAULTS names.

   A rule is a line "CALL NUMBER PART": CALL is write, sync, truncate, open (for writing), all of these, or slow; the
   rule holds for files whose path contains PART. NUMBER is the errno to fail with; for slow, the milliseconds by which
   each sync takes longer. The file is read at every call, so rules can be changed while the process runs.

   A rule "before-CALL NUMBER PART" or "after-CALL NUMBER PART" is SIGKILL at the NUMBERth such call since the rule is
   there, before or after the kernel has done it. CALL is here write, sync, open (for writing), read (an open for
   reading), rename (PART is of the new name), say (only before: a write to standard error; PART is of its text), or commit: a write
   into the first two pages of a file, which is how LMDB puts a transaction in force. There is at most one such rule at
   a time. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int rules(char *text, size_t room)
{
    const char *control = getenv("VEDETTE_FAULTS");
    int fd = control ? (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0)
        return 0;
    long size = syscall(SYS_read, fd, text, room - 1);
    syscall(SYS_close, fd);
    text[size > 0 ? size : 0] = 0;
    return size > 0;
}

static int rule(const char *call, const char *path)
{
    char text[2048], name[32], part[1024];
    int number, used;
    if (!rules(text, sizeof text))
        return 0;
    for (char *at = text; sscanf(at, "%31s %d %1023s%n", name, &number, part, &used) == 3; at += used)
        if (strstr(path, part) && (!strcmp(name, call) || (!strcmp(name, "all") && strcmp(call, "slow"))))
            return number;
    return 0;
}

/* SIGKILL when a rule says so: WHEN is "before" or "after". */
static void point(const char *when, const char *call, const char *path)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char last[1200];
    static int count;
    char text[2048], wanted[32], name[32], part[1024], seen[1200];
    int number, used, due = 0, saved = errno;
    snprintf(wanted, sizeof wanted, "%s-%s", when, call);
    if (rules(text, sizeof text))
        for (char *at = text; sscanf(at, "%31s %d %1023s%n", name, &number, part, &used) == 3; at += used)
            if (!strcmp(name, wanted) && strstr(path, part)) {
                snprintf(seen, sizeof seen, "%s %d %s", name, number, part);
                pthread_mutex_lock(&lock);
                if (strcmp(seen, last)) {
                    strcpy(last, seen);
                    count = 0;
                }
                due = ++count >= number;
                pthread_mutex_unlock(&lock);
            }
    if (due) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    errno = saved;
}

/* The path of an open file; 0 for what is none. */
static int named(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size <= 0 || path[0] != '/')
        return 0;
    path[size] = 0;
    return 1;
}

static int failing(const char *call, int fd)
{
    char path[PATH_MAX];
    if (!named(fd, path))
        return 0;
    if (!strcmp(call, "sync")) {
        int wait = rule("slow", path);
        struct timespec pause = {wait / 1000, wait % 1000 * 1000000L};
        if (wait)
            nanosleep(&pause, NULL);
    }
    int number = rule(call, path);
    if (number)
        errno = number;
    return number;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void around(const char *when, const char *call, int fd)
{
    char path[PATH_MAX];
    if (named(fd, path))
        point(when, call, path);
}

/* One call on an open file: fails by a rule, or is done between two points. */
#define CALL(call, fd, type, done)                  \
    if (failing(call, fd))                          \
        return -1;                                  \
    around("before", call, fd);                     \
    type result = (type)(done);                     \
    around("after", call, fd);                      \
    return result;

/* The same at a place in it: a write at the very beginning is also a commit. */
#define CALL_AT(fd, at, done)                       \
    int commit = (at) < 2 * 4096;                   \
    if (commit)                                     \
        around("before", "commit", fd);             \
    if (failing("write", fd))                       \
        return -1;                                  \
    around("before", "write", fd);                  \
    ssize_t result = (done);                        \
    around("after", "write", fd);                   \
    if (commit)                                     \
        around("after", "commit", fd);              \
    return result;

static void saying(int fd, const void *data, size_t size)
{
    char text[4096];
    if (fd != STDERR_FILENO)
        return;
    size = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, size);
    text[size] = 0;
    point("before", "say", text);
}

ssize_t write(int fd, const void *data, size_t size)
{
    saying(fd, data, size);
    CALL("write", fd, ssize_t, REAL(write)(fd, data, size))
}
ssize_t writev(int fd, const struct iovec *parts, int count)
{
    CALL("write", fd, ssize_t, REAL(writev)(fd, parts, count))
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { CALL_AT(fd, at, REAL(pwrite)(fd, data, size, at)) }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    CALL_AT(fd, at, REAL(pwrite64)(fd, data, size, at))
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    CALL_AT(fd, at, REAL(pwritev)(fd, parts, count, at))
}
int fsync(int fd) { CALL("sync", fd, int, REAL(fsync)(fd)) }
int fdatasync(int fd) { CALL("sync", fd, int, REAL(fdatasync)(fd)) }
int ftruncate(int fd, off_t size) { return failing("truncate", fd) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return failing("truncate", fd) ? -1 : REAL(ftruncate64)(fd, size); }

static int refused(const char *path, int flags)
{
    int number = (flags & (O_WRONLY | O_RDWR | O_CREAT)) ? rule("open", path) : 0;
    if (number)
        errno = number;
    return number;
}
static int opened(const char *path, int flags, int (*real)(const char *, int, ...), mode_t mode)
{
    const char *call = (flags & (O_WRONLY | O_RDWR | O_CREAT)) ? "open" : "read";
    if (refused(path, flags))
        return -1;
    point("before", call, path);
    int fd = real(path, flags, mode);
    point("after", call, path);
    return fd;
}
int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened(path, flags, REAL(open), mode);
}
int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return opened(path, flags, REAL(open64), mode);
}
int rename(const char *from, const char *to)
{
    point("before", "rename", to);
    int result = REAL(rename)(from, to);
    point("after", "rename", to);
    return result;
}
