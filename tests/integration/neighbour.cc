// neighbour DEVICE GID_INDEX ADDRESS [COUNT]: resolves the Ethernet address of a peer COUNT times
// and prints it with the median time, or the error's number.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/integration/open_device.h"

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  ibv_context* const context = open_device(argv[1]);
  if (context == nullptr) return 2;
  ibv_ah_attr path{};
  path.is_global = 1;
  path.port_num = 1;
  path.grh.sgid_index = static_cast<uint8_t>(std::atoi(argv[2]));
  path.grh.dgid.raw[10] = path.grh.dgid.raw[11] = 0xff;
  if (::inet_pton(AF_INET, argv[3], path.grh.dgid.raw + 12) != 1 &&
      ::inet_pton(AF_INET6, argv[3], path.grh.dgid.raw) != 1)
    return 2;
  const int count = argc > 4 ? std::atoi(argv[4]) : 1;
  std::vector<double> times;
  uint8_t mac[6]{};
  for (int i = 0; i < count; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    uint16_t vlan = 0;
    if (const int error = ibv_resolve_eth_l2_from_gid(context, &path, mac, &vlan); error != 0) {
      std::printf("error %d\n", error);
      return 1;
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + count / 2, times.end());
  std::printf("%02x:%02x:%02x:%02x:%02x:%02x %.1f us\n", mac[0], mac[1], mac[2], mac[3], mac[4],
              mac[5], times[static_cast<size_t>(count / 2)]);
  return 0;
}
