// registrations DEVICE: registers a page repeatedly for a second and prints the number of
// registrations and the elapsed milliseconds.
#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace {

ibv_context* open_device(const char* name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i)
    if (std::strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  return context;
}

}  // namespace

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
