// finds [LIBRARY]: prints which libibverbs this program has, and how many devices that lists. The
// library is that which the program is linked with, or else loaded by dlopen(3).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#ifdef LINKED
void** ibv_get_device_list(int* count);
#endif

int main(int argc, char** argv) {
#ifdef LINKED
  (void)argc;
  (void)argv;
  void** (*list)(int*) = ibv_get_device_list;
  void* symbol = dlsym(RTLD_DEFAULT, "ibv_get_device_list");
#else
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (library == NULL) {
    printf("%s\n", argc == 2 ? dlerror() : "usage: finds LIBRARY");
    return 1;
  }
  void* symbol = dlsym(library, "ibv_get_device_list");
  void** (*list)(int*) = (void** (*)(int*))symbol;
#endif
  Dl_info info;
  if (symbol == NULL || dladdr(symbol, &info) == 0) return 1;
  int count = -1;
  list(&count);
  printf("%s has %d devices\n", info.dli_fname, count);
  return count == 1 ? 0 : 1;
}
