// Two programs, on one host or two, that meet at a TCP port of the first one's address. Every
// failure ends the program with a sentence.
#pragma once

#include <cstddef>

#include "tests/bench/device.h"

namespace vrdma::bench {

class Listener {
 public:
  // Prints "ready" when the other one may come.
  explicit Listener(const char* address);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();
  [[nodiscard]] int accept() const;  // the connection

 private:
  int fd_;
};
[[nodiscard]] int meet(const char* address);  // the connection

void put(int fd, const void* bytes, size_t size);
void take(int fd, void* bytes, size_t size);

// Between the vdevice and the other program's, by the GIDs that are the addresses of the
// connection.
[[nodiscard]] Way way_over(int fd);

}  // namespace vrdma::bench
