// Lets one file operation of a process fail, or ends the process before it. Preloaded; armed by `arm`.
//
// Counted are the operations on files below one folder, of all threads, in their order. A failing one is not carried out.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define KILL (-1)     // `error` of a process that is to end
#define ALLOCATES 1   // the operation may need room on the disk
#define READS 0

static char folder[PATH_MAX];  // empty: nothing is counted
static atomic_long operations;
static long first = -1, last = -1;  // numbers of the operations that fail, from 0
static int failure, only_needing_room, journal = -1;

// Count operations below `of` from 0, and fail those from `from` to `to` with `error`, or end the process before the first.
// only_room: count operations that need room only. lines: a descriptor that gets a line for each counted one, or -1.
void arm(const char *of, long from, long to, int error, int only_room, int lines) {
    folder[0] = 0;
    operations = 0;
    first = from, last = to, failure = error, only_needing_room = only_room, journal = lines;
    strncpy(folder, of, sizeof folder - 1);
}

static int is_below(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

// Whether the operation on this absolute path fails now; sets errno.
static int fails_at(const char *name, const char *path, int allocates) {
    if (!folder[0] || !is_below(path) || (only_needing_room && !allocates)) return 0;
    long number = operations++;
    int hit = first <= number && number <= last;
    if (journal >= 0) {
        char line[PATH_MAX + 64];
        int length = snprintf(line, sizeof line, "%s\t%s\t%d\n", name, path, allocates);
        syscall(SYS_write, journal, line, length < (int)sizeof line ? length : (int)sizeof line);
    }
    if (!hit) return 0;
    if (failure == KILL) syscall(SYS_kill, getpid(), SIGKILL), pause();
    errno = failure;
    return 1;
}

static int fails_fd(const char *name, int fd, int allocates) {
    if (!folder[0]) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails_at(name, path, allocates);
}

static int fails_path(const char *name, int at, const char *given, int allocates) {
    if (!folder[0] || !given) return 0;
    if (given[0] == '/') return fails_at(name, given, allocates);
    char link[64], path[PATH_MAX * 2];
    snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    snprintf(path + length, PATH_MAX, "/%s", given);
    return fails_at(name, path, allocates);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
#define OF_FD(type, name, shown, allocates, parameters, ...) \
    type name parameters { \
        static type(*real) parameters; \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails_fd(shown, fd, allocates) ? -1 : real(__VA_ARGS__); \
    }
#define OF_PATH(type, failed, name, shown, at, allocates, parameters, ...) \
    type name parameters { \
        static type(*real) parameters; \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails_path(shown, at, path, allocates) ? failed : real(__VA_ARGS__); \
    }

OF_FD(ssize_t, write, "write", ALLOCATES, (int fd, const void *data, size_t n), fd, data, n)
OF_FD(ssize_t, pwrite, "write", ALLOCATES, (int fd, const void *data, size_t n, off_t o), fd, data, n, o)
OF_FD(ssize_t, pwrite64, "write", ALLOCATES, (int fd, const void *data, size_t n, off64_t o), fd, data, n, o)
OF_FD(ssize_t, writev, "write", ALLOCATES, (int fd, const struct iovec *v, int n), fd, v, n)
OF_FD(ssize_t, read, "read", READS, (int fd, void *data, size_t n), fd, data, n)
OF_FD(ssize_t, pread, "read", READS, (int fd, void *data, size_t n, off_t o), fd, data, n, o)
OF_FD(ssize_t, pread64, "read", READS, (int fd, void *data, size_t n, off64_t o), fd, data, n, o)
OF_FD(ssize_t, readv, "read", READS, (int fd, const struct iovec *v, int n), fd, v, n)
OF_FD(int, fsync, "fsync", ALLOCATES, (int fd), fd)
OF_FD(int, fdatasync, "fsync", ALLOCATES, (int fd), fd)
OF_FD(int, ftruncate, "truncate", ALLOCATES, (int fd, off_t n), fd, n)
OF_FD(int, ftruncate64, "truncate", ALLOCATES, (int fd, off64_t n), fd, n)
OF_FD(ssize_t, sendfile, "copy", ALLOCATES, (int fd, int in, off_t *o, size_t n), fd, in, o, n)
OF_FD(ssize_t, sendfile64, "copy", ALLOCATES, (int fd, int in, off64_t *o, size_t n), fd, in, o, n)
OF_FD(int, fstat, "stat", READS, (int fd, struct stat *s), fd, s)
OF_FD(int, fstat64, "stat", READS, (int fd, struct stat64 *s), fd, s)

int close(int fd) {  // the descriptor is closed in any case
    REAL(int, close, int);
    int fails = fails_fd("close", fd, READS), error = errno, code = real(fd);
    if (fails) errno = error;
    return fails ? -1 : code;
}

OF_PATH(int, -1, stat, "stat", AT_FDCWD, READS, (const char *path, struct stat *s), path, s)
OF_PATH(int, -1, stat64, "stat", AT_FDCWD, READS, (const char *path, struct stat64 *s), path, s)
OF_PATH(int, -1, lstat, "stat", AT_FDCWD, READS, (const char *path, struct stat *s), path, s)
OF_PATH(int, -1, lstat64, "stat", AT_FDCWD, READS, (const char *path, struct stat64 *s), path, s)
OF_PATH(int, -1, fstatat, "stat", at, READS, (int at, const char *path, struct stat *s, int f), at, path, s, f)
OF_PATH(int, -1, fstatat64, "stat", at, READS, (int at, const char *path, struct stat64 *s, int f), at, path, s, f)
OF_PATH(int, -1, mkdir, "mkdir", AT_FDCWD, ALLOCATES, (const char *path, mode_t m), path, m)
OF_PATH(int, -1, mkdirat, "mkdir", at, ALLOCATES, (int at, const char *path, mode_t m), at, path, m)
OF_PATH(int, -1, rmdir, "rmdir", AT_FDCWD, READS, (const char *path), path)
OF_PATH(int, -1, unlink, "unlink", AT_FDCWD, READS, (const char *path), path)
OF_PATH(int, -1, unlinkat, "unlink", at, READS, (int at, const char *path, int f), at, path, f)
OF_PATH(int, -1, rename, "rename", AT_FDCWD, ALLOCATES, (const char *path, const char *to), path, to)
OF_PATH(int, -1, renameat, "rename", at, ALLOCATES, (int at, const char *path, int b, const char *to), at, path, b, to)
OF_PATH(DIR *, NULL, opendir, "list", AT_FDCWD, READS, (const char *path), path)
OF_PATH(FILE *, NULL, fopen, "open", AT_FDCWD, READS, (const char *path, const char *m), path, m)
OF_PATH(FILE *, NULL, fopen64, "open", AT_FDCWD, READS, (const char *path, const char *m), path, m)

static mode_t mode_of(int flags, va_list arguments) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = mode_of(flags, arguments); \
        va_end(arguments); \
        REAL(int, name, const char *, int, mode_t); \
        int allocates = flags & O_CREAT ? ALLOCATES : READS; \
        return fails_path(allocates ? "create" : "open", AT_FDCWD, path, allocates) ? -1 : real(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = mode_of(flags, arguments); \
        va_end(arguments); \
        REAL(int, name, int, const char *, int, mode_t); \
        int allocates = flags & O_CREAT ? ALLOCATES : READS; \
        return fails_path(allocates ? "create" : "open", at, path, allocates) ? -1 : real(at, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
