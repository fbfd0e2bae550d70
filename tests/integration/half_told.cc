// Waits for an event of a CQ whose daemon seems to have died when it had taken the request for the
// event and not told of it, and whose completions have all been polled.
//
//   vrdma_half_told DEVICE
//
// Prints "waits" when the daemon may be killed. Exits with 0 when there is an event; otherwise
// prints what failed.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/ipc/layout.h"

using namespace vrdma;

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(what);
  return object;
}

ibv_context* open_device(const char* name) {
  ibv_device** const all = made(ibv_get_device_list(nullptr), "list the devices");
  for (ibv_device** each = all; *each != nullptr; ++each)
    if (std::strcmp(ibv_get_device_name(*each), name) == 0)
      return made(ibv_open_device(*each), "open the device");
  fail("find the device");
}

// The bells of this process, of which there are those of one context.
ipc::CqBell* bells() {
  std::FILE* const maps = made(std::fopen("/proc/self/maps", "re"), "read /proc/self/maps");
  uint64_t begin = 0, end = 0;
  char rights[5];
  for (char line[512]; std::fgets(line, sizeof line, maps) != nullptr;) {
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) != 3) continue;
    if (end - begin == ipc::kBellFileSize && std::strcmp(rights, "rw-s") == 0) {
      std::fclose(maps);
      return reinterpret_cast<ipc::CqBell*>(begin);
    }
  }
  fail("find the bells");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ibv_context* const context = open_device(argv[1]);
  ibv_comp_channel* const channel = made(ibv_create_comp_channel(context), "make a channel");
  ibv_cq* const cq = made(ibv_create_cq(context, 4, nullptr, channel, 0), "make a CQ");
  if (ibv_req_notify_cq(cq, 0) != 0) fail("ask for an event");
  constexpr uint32_t kDead = 0x7ffff;  // the epoch of no daemon
  bool found = false;
  for (ipc::CqBell *each = bells(), *end = each + ipc::kMaxCqSlots; each != end && !found; ++each) {
    uint32_t armed = ipc::arm_word(ipc::Arm::kNext);
    found = each->arm.compare_exchange_strong(armed, ipc::arm_word(ipc::Arm::kTelling, kDead));
  }
  if (!found) fail("find the bell of the CQ");
  std::puts("waits");
  std::fflush(stdout);
  ibv_cq* of = nullptr;
  void* with = nullptr;
  if (ibv_get_cq_event(channel, &of, &with) != 0 || of != cq) fail("wait for an event");
  ibv_ack_cq_events(cq, 1);
  ibv_wc wc{};
  if (ibv_poll_cq(cq, 1, &wc) != 0) fail("poll");
  return 0;
}
