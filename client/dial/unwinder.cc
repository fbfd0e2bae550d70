// Lets threads be cancelled (pthread_cancel(3)) inside the library.
//
// glibc unwinds a cancelled thread by libgcc_s.so.1. In each frame that needs cleanup, it enters
// the copy of libgcc that is linked into this library. That copy must be initialized, normally by
// the library's first exception; otherwise it aborts the program.
#include <unwind.h>

namespace {

[[gnu::constructor]] void begin_unwinder() {
  (void)_Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
}

}  // namespace
