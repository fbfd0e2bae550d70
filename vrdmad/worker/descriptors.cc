#include "vrdmad/worker/descriptors.h"

#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/socket.h"

namespace vrdma::vrdmad {

// No call tells how many are free, so it makes them.
bool has_descriptors_for(size_t count) {
  const auto pair = ipc::make_socket_pair();
  if (!pair) return false;
  std::vector<base::Fd> copies;
  while (copies.size() + 2 < count + kSpareDescriptors) {
    auto copy = pair->first.duplicate();
    if (!copy) return false;
    copies.push_back(std::move(*copy));
  }
  return true;
}

}  // namespace vrdma::vrdmad
