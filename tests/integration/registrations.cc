// registrations DEVICE: registers a page repeatedly for a second and prints the number of
// registrations and the elapsed milliseconds.
#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "tests/integration/open_device.h"

int main(int argc, char** argv) {
  ibv_context* const context = argc == 2 ? open_device(argv[1]) : nullptr;
  ibv_pd* const pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
  if (pd == nullptr) return 1;
  static std::array<char, 4096> page;
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration passed{};
  long done = 0;
  while (passed < std::chrono::seconds(1)) {
    ibv_mr* const mr = ibv_reg_mr(pd, page.data(), page.size(), IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr || ibv_dereg_mr(mr) != 0) return 1;
    ++done;
    passed = std::chrono::steady_clock::now() - begin;
  }
  std::printf(
      "%ld %ld\n", done,
      static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(passed).count()));
  return 0;
}
