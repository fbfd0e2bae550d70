// The bytes of a VMM, to the server of vfio-user: the function is only called as function.h says,
// and no descriptor is left.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "core/base/mapping.h"
#include "pvrdma/vfio_user/server.h"
#include "tests/fuzz/input.h"

namespace {

using namespace vrdma;          // NOLINT(google-build-using-namespace): a fuzz target
using namespace vrdma::pvrdma;  // NOLINT(google-build-using-namespace)

void must(bool holds) {
  if (!holds) std::abort();
}

class Checked final : public Function {
 public:
  [[nodiscard]] RegionShape region(uint32_t index) const override {
    must(index < kRegions);
    RegionShape shape{index == 7 ? 256u : index < 3 ? 0x4000u : 0u, {}};
    if (index == 0) shape.mappable = {0x3000, 0x1000, &page_};
    return shape;
  }
  [[nodiscard]] uint32_t vectors() const override { return 3; }
  void read(uint32_t index, uint64_t offset, std::span<uint8_t> bytes) override {
    check(index, offset, bytes.size());
    std::memset(bytes.data(), 1, bytes.size());
  }
  void write(uint32_t index, uint64_t offset, std::span<const uint8_t> bytes) override {
    check(index, offset, bytes.size());
  }
  void answered() override {}
  int map(const DmaRange& range, base::Fd) override {
    must(range.length != 0 && range.address + range.length >= range.address &&
         (range.address | range.length | range.offset) % 4096 == 0);
    return 0;
  }
  int unmap(uint64_t, uint64_t) override { return 0; }
  void unmap_all() override {}
  void set_vector(uint32_t vector, base::Fd) override { must(vector < 3); }
  void reset() override {}

 private:
  void check(uint32_t index, uint64_t offset, uint64_t count) const {
    const uint64_t size = region(index).size;
    must(count != 0 && count <= kMostAccess && count <= size && offset <= size - count);
  }
  base::Fd page_ = base::make_memfd("bar", 0x4000).value();
};

}  // namespace

// Each message: its kind, flags, and so many bytes; now and then bytes that are none.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int first = ::dup(0);
  ::close(first);
  {
    auto loop = base::EventLoop::create().value();
    Checked function;
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    bool ended = false;
    const auto server =
        VfioServer::serve(*loop, base::Fd(ends[0]), function, [&](const std::string&) {
          ended = true;
        }).value();
    const base::Fd vmm(ends[1]);
    const auto send = [&](const void* bytes, size_t count) {
      (void)!::send(vmm.get(), bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    };
    fuzz::Input input(data, size);
    const vfio::Header version{1, 1, 20, 0, 0};
    const vfio::Version zero{0, 0};
    send(&version, sizeof version);
    send(&zero, sizeof zero);
    while (!input.empty() && !ended) {
      const uint8_t kind = input.take();
      if (kind >= 240) {
        const auto noise = input.take<uint64_t>();
        send(&noise, sizeof noise);
      } else {
        uint8_t body[64] = {};
        const size_t count = input.take() % sizeof body;
        for (size_t i = 0; i < count; ++i) body[i] = input.take();
        const vfio::Header header{2, static_cast<uint16_t>(kind % 17),
                                  static_cast<uint32_t>(sizeof header + count),
                                  input.take() % 4 == 0 ? vfio::kNoReply : 0, 0};
        send(&header, sizeof header);
        send(body, count);
      }
      while (loop->step()) {
      }
      char answers[4096];
      while (::recv(vmm.get(), answers, sizeof answers, MSG_DONTWAIT) > 0) {
      }
    }
  }
  const int last = ::dup(0);
  ::close(last);
  must(first == last);
  return 0;
}
