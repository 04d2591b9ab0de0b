/* Makes a disk fail for one process: LD_PRELOAD this, and put rules into the file that VEDETTE_FAULTS names.

   A rule is a line "CALL NUMBER PART": CALL is write, sync, truncate, open (for writing), all of these, or slow; the
   rule holds for files whose path contains PART. NUMBER is the errno to fail with; for slow, the milliseconds by which
   each sync takes longer. The file is read at every call, so rules can be changed while the process runs. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int rule(const char *call, const char *path)
{
    const char *control = getenv("VEDETTE_FAULTS");
    char text[2048], name[32], part[1024];
    int number, used;
    if (!control)
        return 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    long size = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (size <= 0)
        return 0;
    text[size] = 0;
    for (char *at = text; sscanf(at, "%31s %d %1023s%n", name, &number, part, &used) == 3; at += used)
        if (strstr(path, part) && (!strcmp(name, call) || (!strcmp(name, "all") && strcmp(call, "slow"))))
            return number;
    return 0;
}

static int failing(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0 || path[0] != '/')
        return 0;
    path[size] = 0;
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

ssize_t write(int fd, const void *data, size_t size) { return failing("write", fd) ? -1 : REAL(write)(fd, data, size); }
ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return failing("write", fd) ? -1 : REAL(writev)(fd, parts, count);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    return failing("write", fd) ? -1 : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    return failing("write", fd) ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    return failing("write", fd) ? -1 : REAL(pwritev)(fd, parts, count, at);
}
int fsync(int fd) { return failing("sync", fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return failing("sync", fd) ? -1 : REAL(fdatasync)(fd); }
int ftruncate(int fd, off_t size) { return failing("truncate", fd) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return failing("truncate", fd) ? -1 : REAL(ftruncate64)(fd, size); }

static int refused(const char *path, int flags)
{
    int number = (flags & (O_WRONLY | O_RDWR | O_CREAT)) ? rule("open", path) : 0;
    if (number)
        errno = number;
    return number;
}
int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return refused(path, flags) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return refused(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}
