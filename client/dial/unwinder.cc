// Lets threads be cancelled (pthread_cancel(3)) while they are inside of the library.
//
// glibc unwinds them by libgcc_s.so.1. What is linked into the library helps at each frame that has
// something to undo, and that part of libgcc must have been begun by its own first use, which is
// otherwise the library's first exception. Without that it aborts the program.
#include <unwind.h>

namespace {

[[gnu::constructor]] void begin_unwinder() {
  (void)_Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
}

}  // namespace
