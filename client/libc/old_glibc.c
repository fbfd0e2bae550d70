/* Symbols newer than glibc 2.27 that our objects, libstdc++.a or libgcc_eh.a refer to. The linker
 * resolves the references to these hidden definitions instead of libc's. See README.md. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* `own`: the C name, because the compiler has built-in knowledge of some of the real names. */
#define REPLACES(name) __asm__(#name) __attribute__((visibility("hidden"), used))

/* 2.36; used by std::random_device. */
uint32_t own_arc4random(void) REPLACES(arc4random);
uint32_t own_arc4random(void) {
  uint32_t number;
  ssize_t got;
  do got = getrandom(&number, sizeof number, 0);
  while (got < 0 && errno == EINTR);
  if (got != sizeof number) abort(); /* kernel before 3.17 */
  return number;
}

/* 2.32; used by libstdc++'s reference counts, which are atomic if it is 0.
 * core/base/single_thread.h finds the real variable. */
char own_single_threaded REPLACES(__libc_single_threaded) = 0;

/* 2.33; before, functions of libc_nonshared.a. On 64 bits the kernel's struct stat is libc's. */
int own_stat(const char* path, struct stat* to) REPLACES(stat);
int own_stat(const char* path, struct stat* to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, 0);
}
int own_fstat(int fd, struct stat* to) REPLACES(fstat);
int own_fstat(int fd, struct stat* to) { return (int)syscall(SYS_fstat, fd, to); }

/* 2.35; used by the unwinder. Finds the loaded object that contains this code, and its frame table.
 * Calls libc's function if it exists, because it takes no lock; otherwise iterates over the loaded
 * objects, as the unwinder did before 2.35. */
typedef int find_object(void* pc, struct dl_find_object* result);
static find_object* libc_find_object;
__attribute__((constructor(101))) static void find_find_object(void) {
  libc_find_object = (find_object*)dlsym(RTLD_DEFAULT, "_dl_find_object");
}

struct search {
  uintptr_t pc;
  struct dl_find_object* result;
};

static int look(struct dl_phdr_info* info, size_t size, void* closure) {
  const struct search* search = closure;
  const ElfW(Phdr)* code = NULL;
  const ElfW(Phdr)* frames = NULL;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* each = &info->dlpi_phdr[i];
    if (each->p_type == PT_GNU_EH_FRAME) frames = each;
    if (each->p_type == PT_LOAD && search->pc - (info->dlpi_addr + each->p_vaddr) < each->p_memsz)
      code = each;
  }
  if (code == NULL) return 0;
  if (frames == NULL) return -1;
  struct dl_find_object* result = search->result;
  result->dlfo_flags = 0;
  result->dlfo_map_start = (void*)(info->dlpi_addr + code->p_vaddr);
  result->dlfo_map_end = (void*)(info->dlpi_addr + code->p_vaddr + code->p_memsz);
  result->dlfo_link_map = NULL;
  result->dlfo_eh_frame = (void*)(info->dlpi_addr + frames->p_vaddr);
  return 1;
}

int own_find_object(void* pc, struct dl_find_object* result) REPLACES(_dl_find_object);
int own_find_object(void* pc, struct dl_find_object* result) {
  if (libc_find_object != NULL) return libc_find_object(pc, result);
  struct search search = {(uintptr_t)pc, result};
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
