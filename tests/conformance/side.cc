#include "tests/conformance/side.h"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace conformance {

namespace {

bool is_ipv4(const ibv_gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

}  // namespace

Side::Side(const SideOptions& options) : options_(options) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  CHECK(devices != nullptr);
  CHECK_EQ(count, 1);
  context = ibv_open_device(devices[0]);
  CHECK(context != nullptr);
  ibv_free_device_list(devices);
  ibv_port_attr port{};
  CHECK_EQ(ibv_query_port(context, 1, &port), 0);
  CHECK_EQ(static_cast<int>(port.state), static_cast<int>(IBV_PORT_ACTIVE));
  mtu = port.active_mtu;
  bool found = false;
  for (int i = 0; i < port.gid_tbl_len && !found; ++i) {
    CHECK_EQ(ibv_query_gid(context, 1, i, &gid), 0);
    found = is_ipv4(gid);
    gid_index = static_cast<uint8_t>(i);
  }
  CHECK(found);
  pd = ibv_alloc_pd(context);
  CHECK(pd != nullptr);
}

void Side::close() {
  if (context == nullptr) return;
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  CHECK_EQ(ibv_close_device(context), 0);
  context = nullptr;
  pd = nullptr;
}

Side::~Side() { close(); }

void Side::send(const void* data, size_t size) const {
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(options_.channel, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(__FILE__, __LINE__, "the other side has gone");
    bytes += count;
    size -= static_cast<size_t>(count);
  }
}

void Side::receive(void* data, size_t size) const {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = ::read(options_.channel, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(__FILE__, __LINE__, "the other side has gone");
    bytes += count;
    size -= static_cast<size_t>(count);
  }
}

void Side::await_end_of_peer() const {
  char nothing;
  CHECK(::read(options_.channel, &nothing, 1) <= 0);
}

void Side::errand(const std::string& words) const {
  const std::string line = words + "\n";
  CHECK_EQ(::write(options_.errands, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  char answer = 0;
  CHECK_EQ(::read(options_.errands, &answer, 1), 1);
  CHECK_EQ(answer, '0');
}

}  // namespace conformance
