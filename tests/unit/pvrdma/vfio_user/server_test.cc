#include "pvrdma/vfio_user/server.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <random>
#include <string>
#include <string_view>

#include "core/base/mapping.h"
#include "tests/unit/pvrdma/vfio_user/vmm.h"

namespace vrdma::pvrdma {
namespace {

using namespace vfio;
using ::testing::ElementsAre;

// Checks that each call has the form that function.h promises, and notes it.
class Model final : public Function {
 public:
  static constexpr uint64_t kSizes[] = {0x4000, 0x1000, 0, 0, 0, 0, 0, 256, 0};

  [[nodiscard]] RegionShape region(uint32_t index) const override {
    EXPECT_LT(index, kRegions);
    RegionShape shape{kSizes[index], {}};
    if (index == 0) shape.mappable = {0x3000, 0x1000, &page};
    return shape;
  }
  [[nodiscard]] uint32_t vectors() const override { return 3; }
  void read(uint32_t region, uint64_t offset, std::span<uint8_t> bytes) override {
    check(region, offset, bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(offset + i);
  }
  void write(uint32_t region, uint64_t offset, std::span<const uint8_t> bytes) override {
    check(region, offset, bytes.size());
    written += std::to_string(region) + "@" + std::to_string(offset) + "=" +
               std::to_string(bytes[0]) + "/" + std::to_string(bytes.size()) + " ";
  }
  void answered() override { ++answers; }
  int map(const DmaRange& range, base::Fd file) override {
    EXPECT_NE(0u, range.length);
    EXPECT_EQ(0u, (range.address | range.length | range.offset) % 4096);
    EXPECT_GE(range.address + range.length, range.address);
    if (range.address == 0x66000) return EEXIST;
    ranges.push_back(range.address);
    files.push_back(std::move(file));
    return 0;
  }
  int unmap(uint64_t address, uint64_t) override {
    return std::erase(ranges, address) == 1 ? 0 : ENOENT;
  }
  void unmap_all() override { ranges.clear(); }
  void set_vector(uint32_t vector, base::Fd eventfd) override {
    EXPECT_LT(vector, 3u);
    eventfds[vector] = std::move(eventfd);
  }
  void reset() override { ++resets; }

  base::Fd page = base::make_memfd("bar", 0x4000).value();
  std::string written;
  std::vector<uint64_t> ranges;
  std::vector<base::Fd> files;
  base::Fd eventfds[3];
  int answers = 0, resets = 0;

 private:
  static void check(uint32_t region, uint64_t offset, uint64_t count) {
    EXPECT_LT(region, kRegions);
    EXPECT_GE(count, 1u);
    EXPECT_LE(count, kMostAccess);
    EXPECT_LE(count, kSizes[region]);
    EXPECT_LE(offset, kSizes[region] - count);
  }
};

size_t open_descriptors() {
  size_t count = 0;
  DIR* const all = ::opendir("/proc/self/fd");
  while (::readdir(all) != nullptr) ++count;
  ::closedir(all);
  return count;
}

constexpr std::string_view kQemu =
    R"({"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, )"
    R"("max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, )"
    R"("write_multiple": true}})";

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() : vmm(connect()) {}
  base::Fd connect() {
    int ends[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    server = VfioServer::serve(*loop, base::Fd(ends[0]), function, [this](const std::string& why) {
               ended = true;
               reason = why;
             }).value();
    return base::Fd(ends[1]);
  }
  void go_on() {
    while (loop->step()) {
    }
  }
  Vmm::Answer ask(Message message, std::vector<uint8_t> body, const std::vector<int>& fds = {}) {
    vmm.send(vmm.message(message, std::move(body)), fds);
    go_on();
    Vmm::Answer answer = vmm.receive();
    if (answer.header.size != 0) {
      EXPECT_EQ(vmm.last_id(), answer.header.id);
      EXPECT_EQ(static_cast<uint16_t>(message), answer.header.message);
    }
    return answer;
  }
  template <class Body>
  Vmm::Answer ask(Message message, const Body& body, const std::vector<int>& fds = {}) {
    return ask(message, Vmm::bytes_of(body), fds);
  }
  void negotiate() {
    std::vector<uint8_t> body = Vmm::bytes_of(Version{0, 0});
    body.insert(body.end(), kQemu.begin(), kQemu.end());
    body.push_back(0);
    const auto answer = ask(Message::kVersion, body);
    ASSERT_EQ(kReplyType, answer.header.flags);
    ASSERT_LE(answer.body.size(), body.size());  // QEMU has no more room
    ASSERT_EQ(0, answer.body.back());
  }

  std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
  Model function;
  std::unique_ptr<VfioServer> server;
  Vmm vmm;
  bool ended = false;
  std::string reason;
};

TEST_F(ServerTest, TheVersionComesFirst) {
  (void)ask(Message::kDeviceInfo, DeviceInfo{});
  EXPECT_TRUE(ended);
  EXPECT_EQ("the VMM does not begin with its version", reason);
}

TEST_F(ServerTest, OtherVersionsAreRefused) {
  EXPECT_EQ(uint32_t{ENOTSUP}, ask(Message::kVersion, Version{1, 0}).header.error);
  EXPECT_EQ(uint32_t{EINVAL}, ask(Message::kVersion, uint16_t{0}).header.error);
  negotiate();
  EXPECT_FALSE(ended);
}

TEST_F(ServerTest, WhatThereIs) {
  negotiate();
  const auto device = ask(Message::kDeviceInfo, DeviceInfo{16, 0, 0, 0}).as<DeviceInfo>();
  EXPECT_EQ(kCanReset | kIsPci, device.flags);
  EXPECT_EQ(9u, device.regions);
  // QEMU asks with too little room first.
  auto answer = ask(Message::kRegionInfo, RegionInfo{32, 0, 0, 0, 0, 0});
  auto info = answer.as<RegionInfo>();
  EXPECT_EQ(32u, answer.body.size());
  EXPECT_EQ(64u, info.argsz);
  EXPECT_TRUE(answer.file.valid());
  answer = ask(Message::kRegionInfo, RegionInfo{info.argsz, 0, 0, 0, 0, 0});
  EXPECT_EQ(64u, answer.body.size());
  EXPECT_EQ(0xfu, answer.as<RegionInfo>().flags);
  EXPECT_EQ(0x3000u, answer.as<SparseMap>(32).offset);
  EXPECT_TRUE(answer.file.valid());
  answer = ask(Message::kRegionInfo, RegionInfo{32, 0, 7, 0, 0, 0});
  EXPECT_EQ(256u, answer.as<RegionInfo>().size);
  EXPECT_EQ(3u, answer.as<RegionInfo>().flags);
  EXPECT_FALSE(answer.file.valid());
  EXPECT_EQ(0u, ask(Message::kRegionInfo, RegionInfo{32, 0, 5, 0, 0, 0}).as<RegionInfo>().flags);
  EXPECT_EQ(uint32_t{EINVAL},
            ask(Message::kRegionInfo, RegionInfo{32, 0, 9, 0, 0, 0}).header.error);
  EXPECT_EQ(3u, ask(Message::kIrqInfo, IrqInfo{16, 0, 2, 0}).as<IrqInfo>().count);
  EXPECT_EQ(0u, ask(Message::kIrqInfo, IrqInfo{16, 0, 0, 0}).as<IrqInfo>().count);
  EXPECT_EQ(uint32_t{EINVAL}, ask(Message::kIrqInfo, IrqInfo{16, 0, 5, 0}).header.error);
  EXPECT_EQ(uint32_t{ENOTSUP}, ask(Message::kFeature, uint64_t{0}).header.error);
  EXPECT_EQ(uint32_t{ENOTSUP}, ask(Message::kRegionIoFds, uint64_t{0}).header.error);
}

TEST_F(ServerTest, Accesses) {
  negotiate();
  auto answer = ask(Message::kRegionRead, RegionAccess{16, 7, 4});
  EXPECT_THAT(std::vector(answer.body.begin() + 16, answer.body.end()),
              ElementsAre(16, 17, 18, 19));
  EXPECT_EQ(272u, ask(Message::kRegionRead, RegionAccess{0, 7, 256}).body.size());
  std::vector<uint8_t> write = Vmm::bytes_of(RegionAccess{8, 1, 4});
  write.insert(write.end(), {9, 0, 0, 0});
  EXPECT_EQ(0u, ask(Message::kRegionWrite, write).header.error);
  EXPECT_EQ("1@8=9/4 ", function.written);
  // Posted: no answer.
  vmm.send(vmm.message(Message::kRegionWrite, write, kNoReply));
  go_on();
  EXPECT_EQ(0u, vmm.receive().header.size);
  EXPECT_EQ("1@8=9/4 1@8=9/4 ", function.written);
  write.pop_back();
  EXPECT_EQ(uint32_t{EINVAL}, ask(Message::kRegionWrite, write).header.error);
  for (const RegionAccess& access :
       {RegionAccess{0, 7, 0}, RegionAccess{0, 7, 257}, RegionAccess{253, 7, 4},
        RegionAccess{UINT64_MAX, 7, 4}, RegionAccess{UINT64_MAX - 2, 1, 4}, RegionAccess{0, 2, 4},
        RegionAccess{0, 9, 4}, RegionAccess{0, UINT32_MAX, 4}, RegionAccess{0, 7, UINT32_MAX}})
    EXPECT_EQ(uint32_t{EINVAL}, ask(Message::kRegionRead, access).header.error);
  std::vector<uint8_t> many = Vmm::bytes_of(uint64_t{2});
  for (const PostedWrite& one : {PostedWrite{4, 1, 4, {1}}, PostedWrite{8, 1, 2, {2}}}) {
    const auto bytes = Vmm::bytes_of(one);
    many.insert(many.end(), bytes.begin(), bytes.end());
  }
  function.written.clear();
  EXPECT_EQ(0u, ask(Message::kRegionWriteMulti, many).header.error);
  EXPECT_EQ("1@4=1/4 1@8=2/2 ", function.written);
  for (const uint64_t count : {uint64_t{3}, uint64_t{1} << 61, UINT64_MAX}) {
    std::memcpy(many.data(), &count, sizeof count);
    EXPECT_EQ(uint32_t{EINVAL}, ask(Message::kRegionWriteMulti, many).header.error);
  }
  EXPECT_FALSE(ended);
}

TEST_F(ServerTest, Memory) {
  negotiate();
  const base::Fd ram = base::make_memfd("ram", 1 << 20).value();
  const size_t before = open_descriptors();
  EXPECT_EQ(0u, ask(Message::kDmaMap, DmaMap{32, 3, 0, 0x1000, 0x2000}, {ram.get()}).header.error);
  EXPECT_EQ(0u, ask(Message::kDmaMap, DmaMap{32, 1, 0, 0x9000, 0x1000}).header.error);
  EXPECT_EQ(before + 1, open_descriptors());
  EXPECT_TRUE(function.files[0].valid() && !function.files[1].valid());
  EXPECT_EQ(uint32_t{EEXIST},
            ask(Message::kDmaMap, DmaMap{32, 3, 0, 0x66000, 0x1000}, {ram.get()}).header.error);
  for (const DmaMap& wish :
       {DmaMap{32, 3, 0, 0, 0}, DmaMap{32, 3, 0, 1, 4096}, DmaMap{32, 3, 0, 0, 4097},
        DmaMap{32, 3, 7, 0, 4096}, DmaMap{32, 3, 0, ~uint64_t{4095}, 8192},
        DmaMap{32, 3, ~uint64_t{4095}, 0, 8192}, DmaMap{32, 3, uint64_t{1} << 63, 0, 4096}})
    EXPECT_EQ(uint32_t{EINVAL}, ask(Message::kDmaMap, wish, {ram.get()}).header.error);
  EXPECT_EQ(uint32_t{EINVAL},
            ask(Message::kDmaMap, DmaMap{32, 3, 0, 0x20000, 0x1000}, {ram.get(), ram.get()})
                .header.error);
  const auto gone = ask(Message::kDmaUnmap, DmaUnmap{24, 0, 0x1000, 0x2000});
  EXPECT_EQ(0x1000u, gone.as<DmaUnmap>().address);
  EXPECT_EQ(uint32_t{ENOENT},
            ask(Message::kDmaUnmap, DmaUnmap{24, 0, 0x1000, 0x2000}).header.error);
  EXPECT_EQ(0u, ask(Message::kDmaUnmap, DmaUnmap{24, kUnmapAll, 0, 0}).header.error);
  EXPECT_TRUE(function.ranges.empty());
  function.files.clear();
  EXPECT_EQ(before, open_descriptors());
}

TEST_F(ServerTest, Vectors) {
  negotiate();
  const base::Fd event(::eventfd(0, EFD_CLOEXEC));
  const auto set = [&](uint32_t flags, uint32_t index, uint32_t start, uint32_t count,
                       std::vector<int> fds = {}) {
    return ask(Message::kSetIrqs, SetIrqs{20, flags, index, start, count}, fds).header.error;
  };
  EXPECT_EQ(0u, set(kDataEventfd | kTrigger, kMsix, 1, 2, {event.get(), event.get()}));
  EXPECT_TRUE(!function.eventfds[0].valid() && function.eventfds[1].valid() &&
              function.eventfds[2].valid());
  EXPECT_EQ(0u, set(kDataEventfd | kTrigger, kMsix, 2, 1));
  EXPECT_FALSE(function.eventfds[2].valid());
  EXPECT_EQ(0u, set(kDataNone | kTrigger, kMsix, 0, 0));
  EXPECT_FALSE(function.eventfds[1].valid());
  EXPECT_EQ(uint32_t{EINVAL}, set(kDataEventfd | kTrigger, kMsix, 0, 2, {event.get()}));
  EXPECT_EQ(uint32_t{EINVAL}, set(kDataEventfd | kTrigger, kMsix, 2, 2));
  EXPECT_EQ(uint32_t{EINVAL}, set(kDataEventfd | kTrigger, kMsix, UINT32_MAX, 2));
  EXPECT_EQ(uint32_t{EINVAL}, set(kDataEventfd | kTrigger, 0, 0, 1, {event.get()}));
  EXPECT_EQ(uint32_t{EINVAL}, set(kDataEventfd | kTrigger, 77, 0, 0));
  EXPECT_EQ(0u, set(kDataNone | kTrigger, 3, 0, 0));  // QEMU does so to types without vectors
  EXPECT_EQ(0u, ask(Message::kReset, std::vector<uint8_t>{}).header.error);
  EXPECT_EQ(1, function.resets);
}

TEST_F(ServerTest, ByteByByte) {
  negotiate();
  const base::Fd ram = base::make_memfd("ram", 1 << 20).value();
  for (int round = 0; round < 3; ++round) {
    const auto bytes =
        vmm.message(Message::kDmaMap,
                    Vmm::bytes_of(DmaMap{32, 3, 0, static_cast<uint64_t>(round) << 12, 0x1000}));
    for (size_t i = 0; i < bytes.size(); ++i) {
      vmm.send({&bytes[i], 1}, i == 0 ? std::vector<int>{ram.get()} : std::vector<int>{});
      go_on();
    }
    EXPECT_EQ(0u, vmm.receive().header.error);
  }
  ASSERT_EQ(3u, function.files.size());
  for (const base::Fd& file : function.files) EXPECT_TRUE(file.valid());
  // Two at once: each descriptor stays with its message.
  const auto without =
      vmm.message(Message::kDmaMap, Vmm::bytes_of(DmaMap{32, 3, 0, 0x50000, 0x1000}));
  const auto with = vmm.message(Message::kDmaMap, Vmm::bytes_of(DmaMap{32, 3, 0, 0x51000, 0x1000}));
  vmm.send(without);
  vmm.send(with, {ram.get()});
  go_on();
  EXPECT_FALSE(function.files[3].valid());
  EXPECT_TRUE(function.files[4].valid());
}

TEST_F(ServerTest, WhatIsNoMessageEndsTheConnection) {
  const auto header = [](uint16_t message, uint32_t size, uint32_t flags) {
    return Vmm::bytes_of(Header{1, message, size, flags, 0});
  };
  const size_t before = open_descriptors();
  for (const auto& bytes : {header(4, 15, 0), header(4, 0, 0), header(4, UINT32_MAX, 0),
                            header(4, kMostBytes + 1, 0), header(4, 32, kReplyType),
                            header(0, 16, 0), header(17, 16, 0), header(UINT16_MAX, 16, 0)}) {
    ended = false;
    Vmm other(connect());
    other.send(bytes);
    go_on();
    EXPECT_TRUE(ended);
    EXPECT_EQ("the VMM sends what is no message of vfio-user", reason);
    server.reset();
    EXPECT_TRUE(other.is_over());
  }
  vmm.hang_up();
  EXPECT_EQ(before - 2, open_descriptors());  // the fixture's own pair
}

TEST_F(ServerTest, TooManyDescriptorsEndTheConnection) {
  negotiate();
  const size_t before = open_descriptors();
  vmm.send(vmm.message(Message::kReset, {}), std::vector<int>(kMostFds + 1, 0));
  go_on();
  EXPECT_TRUE(ended);
  server.reset();
  EXPECT_EQ(before - 1, open_descriptors());
}

TEST_F(ServerTest, AVmmThatDoesNotReadIsCutOff) {
  negotiate();
  const auto bytes = vmm.message(Message::kRegionRead, Vmm::bytes_of(RegionAccess{0, 7, 256}));
  for (int i = 0; i < 20'000 && !ended; ++i) {
    vmm.send(bytes);
    go_on();
  }
  EXPECT_TRUE(ended);
}

TEST_F(ServerTest, TheEndOfAVmm) {
  negotiate();
  vmm.hang_up();
  go_on();
  EXPECT_TRUE(ended);
  EXPECT_EQ("", reason);
}

// Messages of every kind with random fields: the function sees only what it is promised.
TEST_F(ServerTest, RandomMessages) {
  negotiate();
  std::mt19937_64 random(11);
  const base::Fd ram = base::make_memfd("ram", 1 << 20).value();
  for (int i = 0; i < 30'000; ++i) {
    std::vector<uint8_t> body(random() % 80);
    for (uint8_t& byte : body) byte = static_cast<uint8_t>(random() % 3 == 0 ? random() : 0);
    const auto kind = static_cast<Message>(2 + random() % 15);
    vmm.send(vmm.message(kind, body, random() % 8 == 0 ? kNoReply : 0),
             std::vector<int>(random() % 4 == 0 ? random() % 3 : 0, ram.get()));
    go_on();
    while (vmm.receive().header.size != 0) {
    }
    ASSERT_FALSE(ended) << reason;
    function.files.clear();
  }
  EXPECT_GT(function.resets, 0);
}

}  // namespace
}  // namespace vrdma::pvrdma
