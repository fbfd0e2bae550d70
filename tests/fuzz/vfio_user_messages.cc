// The bytes of a VMM, to the server of vfio-user: the function is only called as function.h says,
// and no descriptor is left.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "pvrdma/vfio_user/server.h"
#include "tests/fuzz/input.h"
#include "tests/unit/pvrdma/vfio_user/model.h"
#include "tests/unit/pvrdma/vmm.h"

namespace {

using namespace vrdma;          // NOLINT(google-build-using-namespace): a fuzz target
using namespace vrdma::pvrdma;  // NOLINT(google-build-using-namespace)

void must(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

// Each message: its kind, so many bytes, and whether it is answered and how many descriptors come
// with it; now and then bytes that are none.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int first = ::dup(0);
  ::close(first);
  {
    auto loop = base::EventLoop::create().value();
    Model function;
    vfio::Progress progress;
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    bool ended = false;
    const auto server =
        VfioServer::serve(*loop, base::Fd(ends[0]), function, progress, [&](const std::string&) {
          must(!ended);
          ended = true;
        }).value();
    Vmm vmm(base::Fd(ends[1]), [&] {
      while (loop->step()) {
      }
    });
    fuzz::Input input(data, size);
    must(vmm.negotiate() == 0);
    while (!input.empty() && !ended) {
      const uint8_t kind = input.take();
      if (kind >= 240) {
        (void)vmm.send(Vmm::bytes_of(input.take<uint64_t>()));
      } else {
        Vmm::Bytes body(input.take() % 64);
        for (uint8_t& byte : body) byte = input.take();
        const uint8_t rest = input.take();
        (void)vmm.send(vmm.message(static_cast<vfio::Message>(kind % 20), body,
                                   rest % 4 == 0 ? vfio::kNoReply : 0),
                       std::vector<int>(rest / 4 % 12, function.page.get()));
      }
      while (vmm.receive().header.size != 0) {
      }
      function.calls.clear();
    }
  }
  const int last = ::dup(0);
  ::close(last);
  must(first == last);
  return 0;
}
