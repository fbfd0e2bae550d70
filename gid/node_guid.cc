#include "gid/node_guid.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace vrdma::gid {

NodeGuid make_node_guid() {
  NodeGuid guid;
  // getrandom(2): never short up to 256 bytes; EINTR only before the pool is initialized.
  ssize_t got = 0;
  do {
    got = ::getrandom(guid.bytes.data(), guid.bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(guid.bytes.size())) std::abort();
  guid.bytes[0] = static_cast<uint8_t>((guid.bytes[0] & 0xfc) | 0x02);
  return guid;
}

std::string NodeGuid::text() const {
  std::array<char, 20> out{};
  std::snprintf(out.data(), out.size(), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", bytes[0], bytes[1],
                bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]);
  return out.data();
}

}  // namespace vrdma::gid
