// mremap(2) for ThreadSanitizer, which does not intercept it. Where pages have been moved, TSan
// still has the history of the earlier mapping there, such as the stack of an ended thread, and
// reports the first access as a race with it. TSan does intercept mmap(2), which resets a place.
// Compiled into vrdmad of the tsan preset only.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" void* mremap(void* old, size_t old_size, size_t size, int /*flags*/, ...) noexcept {
  void* const place = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return MAP_FAILED;
  const long moved =
      ::syscall(SYS_mremap, old, old_size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  if (moved == -1) ::munmap(place, size);
  return reinterpret_cast<void*>(moved);
}
