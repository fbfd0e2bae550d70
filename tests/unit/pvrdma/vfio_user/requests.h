// Requests from a seed. Their fields are right, near to right or extreme, so that each check of the
// server is passed and failed many times.
#pragma once

#include <random>

#include "tests/unit/pvrdma/vmm.h"

namespace vrdma::pvrdma {

class Requests {
 public:
  struct Request {
    Vmm::Bytes bytes;  // the whole message
    size_t descriptors = 0;
    bool answered = true;
  };

  explicit Requests(uint64_t seed) : random_(seed) {}

  [[nodiscard]] Request next(Vmm& vmm) {
    using vfio::Message;
    static constexpr Message kKinds[] = {
        Message::kDmaMap,     Message::kDmaMap,          Message::kDmaUnmap,
        Message::kDeviceInfo, Message::kRegionInfo,      Message::kIrqInfo,
        Message::kSetIrqs,    Message::kSetIrqs,         Message::kRegionRead,
        Message::kRegionRead, Message::kRegionWrite,     Message::kRegionWrite,
        Message::kReset,      Message::kRegionWriteMulti};
    const auto kind = one_in(30) ? static_cast<Message>(number()) : pick(kKinds);
    Request request;
    Vmm::Bytes body = body_of(kind, request.descriptors);
    if (one_in(12)) body.resize(random_() % (body.size() + 4));
    if (one_in(30)) request.descriptors = random_() % 9;
    request.answered = !one_in(6);
    request.bytes = vmm.message(kind, body, request.answered ? 0 : vfio::kNoReply);
    return request;
  }
  [[nodiscard]] uint64_t below(uint64_t end) { return random_() % end; }

 private:
  template <class Value, size_t kCount>
  [[nodiscard]] Value pick(const Value (&values)[kCount]) {
    return values[random_() % kCount];
  }
  [[nodiscard]] bool one_in(uint64_t count) { return random_() % count == 0; }
  [[nodiscard]] uint64_t number() {
    static constexpr uint64_t kNumbers[] = {0,
                                            1,
                                            2,
                                            3,
                                            4,
                                            7,
                                            8,
                                            9,
                                            16,
                                            252,
                                            255,
                                            256,
                                            257,
                                            0xffc,
                                            0xfff,
                                            0x1000,
                                            0x3fff,
                                            0x4000,
                                            4097,
                                            0x2000,
                                            0x3000,
                                            UINT32_MAX,
                                            0x80000000,
                                            uint64_t{1} << 32,
                                            INT64_MAX,
                                            uint64_t{1} << 63,
                                            UINT64_MAX - 4095,
                                            UINT64_MAX};
    return one_in(4) ? random_() : pick(kNumbers);
  }
  [[nodiscard]] uint32_t small(uint32_t end) {  // mostly
    return static_cast<uint32_t>(one_in(8) ? number() : random_() % end);
  }
  [[nodiscard]] uint64_t page() { return one_in(6) ? number() : (random_() % 8) << 12; }
  [[nodiscard]] uint32_t argsz(uint32_t right) { return one_in(8) ? small(80) : right; }

  [[nodiscard]] Vmm::Bytes body_of(vfio::Message kind, size_t& descriptors) {
    using vfio::Message;
    switch (kind) {
      case Message::kDmaMap:
        descriptors = random_() % 8 == 0 ? 2 : random_() % 2;
        return Vmm::bytes_of(vfio::DmaMap{argsz(32), small(4), page(), page(), page()});
      case Message::kDmaUnmap:
        if (one_in(16)) return Vmm::bytes_of(vfio::DmaUnmap{24, vfio::kUnmapAll, 0, 0});
        return Vmm::bytes_of(vfio::DmaUnmap{argsz(24), one_in(8) ? small(4) : 0, page(), page()});
      case Message::kDeviceInfo:
        return Vmm::bytes_of(vfio::DeviceInfo{argsz(16), 0, 0, 0});
      case Message::kRegionInfo:
        return Vmm::bytes_of(vfio::RegionInfo{argsz(one_in(2) ? 32 : 64), 0, small(9), 0, 0, 0});
      case Message::kIrqInfo:
        return Vmm::bytes_of(vfio::IrqInfo{argsz(16), 0, small(5), 0});
      case Message::kSetIrqs: {
        static constexpr uint32_t kFlags[] = {
            vfio::kDataEventfd | vfio::kTrigger, vfio::kDataEventfd | vfio::kTrigger,
            vfio::kDataNone | vfio::kTrigger, vfio::kDataNone | vfio::kMask};
        const uint32_t count = small(4);
        descriptors = one_in(4) ? random_() % 4 : count < 8 ? count : 0;
        return Vmm::bytes_of(vfio::SetIrqs{argsz(20), one_in(8) ? small(64) : pick(kFlags),
                                           one_in(8) ? small(6) : kMsix, small(4), count});
      }
      case Message::kRegionRead:
        return Vmm::bytes_of(access());
      case Message::kRegionWrite: {
        const vfio::RegionAccess where = access();
        Vmm::Bytes body = Vmm::bytes_of(where);
        for (uint32_t i = 0; i < where.count % 512; ++i)
          body.push_back(static_cast<uint8_t>(random_()));
        return body;
      }
      case Message::kRegionWriteMulti: {
        const uint64_t count = random_() % 4;
        Vmm::Bytes body = Vmm::bytes_of(one_in(8) ? number() : count);
        for (uint64_t i = 0; i < count; ++i) {
          const vfio::RegionAccess where = access();
          const uint32_t length = one_in(8) ? where.count : where.count % 9;
          Vmm::append(body, vfio::PostedWrite{where.offset, where.region, length, {1, 2, 3}});
        }
        return body;
      }
      default:
        return Vmm::Bytes(random_() % 40);
    }
  }
  [[nodiscard]] vfio::RegionAccess access() {
    static constexpr uint32_t kRegionsThere[] = {0, 1, 7};
    return {number() & (one_in(4) ? UINT64_MAX : 0xfff),
            one_in(8) ? small(10) : pick(kRegionsThere), one_in(4) ? small(300) : small(9)};
  }

  std::mt19937_64 random_;
};

}  // namespace vrdma::pvrdma
