// For LD_PRELOAD: as long as the file that VRDMA_SLOW_DISK names is there, the disk stands still.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void stand_still(void) {
  const char* const path = getenv("VRDMA_SLOW_DISK");
  const struct timespec moment = {0, 10 * 1000 * 1000};
  struct stat status;
  while (path != NULL && stat(path, &status) == 0) nanosleep(&moment, NULL);
}

int fsync(int fd) {
  stand_still();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  stand_still();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
