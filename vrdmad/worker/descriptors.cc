#include "vrdmad/worker/descriptors.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/fd.h"
#include "core/ipc/socket.h"

namespace vrdma::vrdmad {

namespace {

// Whether the last `count` numbers below the limit are free, as they are unless there were nearly
// as many descriptors as there may be: the kernel gives the lowest free number. One system call.
bool are_last_free(size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < count) return false;
  std::vector<pollfd> last(count);
  for (size_t i = 0; i < count; ++i) last[i].fd = static_cast<int>(limit.rlim_cur - count + i);
  return ::poll(last.data(), last.size(), 0) == static_cast<int>(count) &&
         std::all_of(last.begin(), last.end(),
                     [](const pollfd& one) { return one.revents == POLLNVAL; });
}

}  // namespace

bool has_descriptors_for(size_t count) {
  const size_t all = count + kSpareDescriptors;
  if (are_last_free(all)) return true;
  // No call tells how many are free, so it makes them.
  const auto pair = ipc::make_socket_pair();
  if (!pair) return false;
  std::vector<base::Fd> copies;
  while (copies.size() + 2 < all) {
    auto copy = pair->first.duplicate();
    if (!copy) return false;
    copies.push_back(std::move(*copy));
  }
  return true;
}

bool is_within_share(size_t taken, size_t its, size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return taken + count <= limit.rlim_cur / 2 || its + count <= limit.rlim_cur / 8;
}

}  // namespace vrdma::vrdmad
