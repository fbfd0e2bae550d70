#include "core/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace vrdma::base {

namespace {

// getrandom(2) fills up to 256 bytes without interruption.
struct Buffer {
  uint8_t bytes[256];
  size_t used = sizeof bytes;
};

uint32_t take() {
  thread_local Buffer buffer;
  if (buffer.used == sizeof buffer.bytes) {
    ssize_t got = -1;
    do got = ::getrandom(buffer.bytes, sizeof buffer.bytes, 0);
    while (got < 0 && errno == EINTR);
    if (got != sizeof buffer.bytes) std::abort();  // no supported kernel refuses
    buffer.used = 0;
  }
  uint32_t value;
  std::memcpy(&value, buffer.bytes + buffer.used, sizeof value);
  std::memset(buffer.bytes + buffer.used, 0, sizeof value);  // do not keep what was returned
  buffer.used += sizeof value;
  return value;
}

}  // namespace

uint32_t random32() { return take(); }

uint64_t random64() { return uint64_t{random32()} << 32 | random32(); }

uint32_t random_below(uint32_t bound) {
  // Numbers from `even` on would favour small remainders.
  const uint64_t even = (uint64_t{1} << 32) / bound * bound;
  for (;;) {
    const uint32_t random = random32();
    if (random < even) return random % bound;
  }
}

}  // namespace vrdma::base
