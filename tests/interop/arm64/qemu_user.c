/* What QEMU 7.2 does not do for a program of another architecture, preloaded into that program: two
 * kernel calls, and a program that executes itself, which would be QEMU.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int epoll_pwait2(int epoll, struct epoll_event* events, int count, const struct timespec* limit,
                 const sigset_t* signals) {
  int milliseconds = -1;
  if (limit != NULL)
    milliseconds = (int)(limit->tv_sec * 1000 + (limit->tv_nsec + 999999) / 1000000);
  return epoll_pwait(epoll, events, count, milliseconds, signals);
}

/* The cookie of a network namespace: another number that stays the same. */
int getsockopt(int socket, int level, int name, void* value, socklen_t* size) {
  if (level == SOL_SOCKET && name == 71) {
    struct stat namespace;
    if (stat("/proc/self/ns/net", &namespace) != 0) return -1;
    memcpy(value, &(uint64_t){namespace.st_ino}, sizeof(uint64_t));
    return 0;
  }
  int (*real)(int, int, int, void*, socklen_t*) = dlsym(RTLD_NEXT, "getsockopt");
  return real(socket, level, name, value, size);
}

int execl(const char* path, const char* argument, ...) {
  char own[4096] = "";
  const char* words[32] = {"qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", path};
  int count = 4;
  if (strcmp(path, "/proc/self/exe") == 0) {
    if (readlink(path, own, sizeof own - 1) < 0) return -1;
    words[3] = own;
  }
  va_list rest;
  va_start(rest, argument);
  while (count < 31 && (words[count] = va_arg(rest, const char*)) != NULL) ++count;
  va_end(rest);
  return execvp(words[0], (char* const*)words);
}
