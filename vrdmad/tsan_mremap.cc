// mremap(2) for ThreadSanitizer, which does not know it: where the pages have been moved it still
// sees what stood there before, as the stack of a thread that has ended, and takes the first use of
// them for a race with that. It does know mmap(2): a place that was mapped so is new. Compiled into
// vrdmad of the tsan preset only.
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
