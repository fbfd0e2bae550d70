/* Stands for the real library in real_test.cc: it tells what arrives. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__asm__(".symver old_alloc_pd, ibv_alloc_pd@IBVERBS_1.0");

/* More arguments than there are registers. */
int execute_ioctl(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
                  uint64_t g, uint64_t h) {
  return a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && h == 8 ? 4321 : 0;
}

/* Variadic, with floating point: `context` is where the text goes. */
void __verbs_log(void* context, uint32_t level, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf((char*)context, level, format, arguments);
  va_end(arguments);
}

void* old_alloc_pd(void* context) { return (char*)context + 10; }
