/* A wall clock some seconds off: for LD_PRELOAD, built by weather.py.

   TOPICS_FAKE_CLOCK names a file of eight bytes, the number of seconds to add. It is mapped, so a
   jump is seen at once by every process that has it. Monotonic time and timeouts stay true. */

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("TOPICS_FAKE_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) ahead_s = map;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && ahead_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return (time_t)-1;
    if (where) *where = exact.tv_sec;
    return exact.tv_sec;
}
