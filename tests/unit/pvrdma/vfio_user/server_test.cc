// Each message: what it asks of the function, and its answer.
#include "pvrdma/vfio_user/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "tests/unit/pvrdma/vfio_user/served.h"

namespace vrdma::pvrdma {
namespace {

using namespace vfio;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kInvalid = EINVAL, kUnsupported = ENOTSUP;
// Near the ends of 32 and 64 bits.
constexpr uint64_t kExtremes[] = {
    INT32_MAX, uint64_t{1} << 31, UINT32_MAX - 1,    UINT32_MAX,     uint64_t{1} << 32,
    INT64_MAX, uint64_t{1} << 63, UINT64_MAX - 4095, UINT64_MAX - 1, UINT64_MAX};

class ServerTest : public ::testing::Test, protected Served {};

TEST_F(ServerTest, TheVersionComesFirst) {
  EXPECT_EQ(Vmm::kNoAnswer, ask(Message::kDeviceInfo, DeviceInfo{16, 0, 0, 0}).error());
  EXPECT_TRUE(ended);
  EXPECT_EQ("the VMM begins with DEVICE_GET_INFO instead of VERSION", reason);
}

TEST_F(ServerTest, TheVersion) {
  EXPECT_EQ(kUnsupported, error_of(Message::kVersion, Version{1, 0}));
  EXPECT_EQ(kInvalid, error_of(Message::kVersion, uint16_t{0}));
  EXPECT_EQ(kInvalid, error_of(Message::kVersion, Version{0, 0}, '{'));  // it does not end with NUL
  // As QEMU proposes it; QEMU has room for what it proposes.
  const Vmm::Bytes proposal = Vmm::with_text({0, 3}, Vmm::kProposal);
  const auto answer = vmm.ask(Message::kVersion, proposal);
  EXPECT_EQ(kReplyType, answer.header.flags);
  EXPECT_EQ(0u, answer.as<uint32_t>());  // 0.0
  EXPECT_EQ(R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":256,"write_multiple":true}})",
            std::string(reinterpret_cast<const char*>(answer.body.data()) + 4));
  EXPECT_LE(answer.body.size(), proposal.size());
  EXPECT_EQ(0, answer.body.back());
  EXPECT_EQ(kInvalid, error_of(Message::kVersion, Version{0, 0}));  // once
  EXPECT_FALSE(ended);
}

TEST_F(ServerTest, AVersionWithoutTextGetsNone) {
  EXPECT_THAT(ask(Message::kVersion, Version{0, 0}).body, ElementsAre(0, 0, 0, 0));
}

TEST_F(ServerTest, TheAnswerIsNotLongerThanTheProposal) {
  const auto answer = vmm.ask(Message::kVersion, Vmm::with_text({0, 0}, "{}"));
  EXPECT_THAT(answer.body, ElementsAre(0, 0, 0, 0));
}

TEST_F(ServerTest, Device) {
  negotiate();
  const auto device = ask(Message::kDeviceInfo, DeviceInfo{16, 0, 0, 0}).as<DeviceInfo>();
  EXPECT_EQ(16u, device.argsz);
  EXPECT_EQ(kCanReset | kIsPci, device.flags);
  EXPECT_EQ(9u, device.regions);
  EXPECT_EQ(5u, device.irqs);
  EXPECT_EQ(kInvalid, error_of(Message::kDeviceInfo, DeviceInfo{15, 0, 0, 0}));
  EXPECT_EQ(kInvalid, error_of(Message::kDeviceInfo, uint64_t{16}));
}

TEST_F(ServerTest, Regions) {
  negotiate();
  // QEMU asks with too little room first, and refuses a capability outside of argsz.
  for (const uint32_t room : {32u, 63u, 64u, UINT32_MAX}) {
    const auto answer = ask(Message::kRegionInfo, RegionInfo{room, 0, 0, 0, 0, 0});
    EXPECT_THAT(answer.body, SizeIs(room < 64 ? 32 : 64));
    const auto info = answer.as<RegionInfo>();
    EXPECT_EQ(64u, info.argsz);
    EXPECT_EQ(kCanRead | kCanWrite | kCanMap | kHasCapability, info.flags);
    EXPECT_EQ(32u, info.capability);
    EXPECT_EQ(0x4000u, info.size);
    struct stat ours {
    }, theirs{};
    EXPECT_EQ(0, ::fstat(function.page.get(), &ours));
    EXPECT_EQ(0, ::fstat(answer.file.get(), &theirs));
    EXPECT_EQ(ours.st_ino, theirs.st_ino);
    if (room < 64) continue;
    const auto map = answer.as<SparseMap>(32);
    EXPECT_EQ(1, map.id);
    EXPECT_EQ(1, map.version);
    EXPECT_EQ(0u, map.next);
    EXPECT_EQ(1u, map.areas);
    EXPECT_EQ(0x3000u, map.offset);
    EXPECT_EQ(0x1000u, map.size);
  }
  for (uint32_t i = 1; i < kRegions; ++i) {
    const auto answer = ask(Message::kRegionInfo, RegionInfo{64, 0, i, 0, 0, 0});
    EXPECT_EQ(32u, answer.as<RegionInfo>().argsz);
    EXPECT_EQ(i, answer.as<RegionInfo>().index);
    EXPECT_EQ(Model::kSizes[i], answer.as<RegionInfo>().size);
    EXPECT_EQ(Model::kSizes[i] != 0 ? kCanRead | kCanWrite : 0, answer.as<RegionInfo>().flags);
    EXPECT_FALSE(answer.file.valid());
  }
  for (const uint32_t index : {9u, 0x80000000u, UINT32_MAX})
    EXPECT_EQ(kInvalid, error_of(Message::kRegionInfo, RegionInfo{32, 0, index, 0, 0, 0}));
  EXPECT_EQ(kInvalid, error_of(Message::kRegionInfo, RegionInfo{31, 0, 0, 0, 0, 0}));
  EXPECT_EQ(kInvalid, error_of(Message::kRegionInfo, DeviceInfo{32, 0, 0, 0}));
}

TEST_F(ServerTest, InterruptTypes) {
  negotiate();
  for (uint32_t i = 0; i < kInterruptTypes; ++i) {
    const auto info = ask(Message::kIrqInfo, IrqInfo{16, 0, i, 0}).as<IrqInfo>();
    EXPECT_EQ(16u, info.argsz);
    EXPECT_EQ(i, info.index);
    EXPECT_EQ(i == kMsix ? Model::kVectors : 0, info.count);
    EXPECT_EQ(i == kMsix ? kEventfds | kFixedCount : 0, info.flags);
  }
  for (const uint32_t index : {5u, UINT32_MAX})
    EXPECT_EQ(kInvalid, error_of(Message::kIrqInfo, IrqInfo{16, 0, index, 0}));
  EXPECT_EQ(kInvalid, error_of(Message::kIrqInfo, IrqInfo{15, 0, 2, 0}));
}

TEST_F(ServerTest, WhatIsNotSupported) {
  negotiate();
  for (const auto message :
       {Message::kFeature, Message::kRegionIoFds, Message::kMigrationRead, Message::kMigrationWrite,
        Message::kDmaRead, Message::kDmaWrite, Message{0}, Message{14}, Message{19},
        Message{0x8000}, Message{UINT16_MAX}}) {
    EXPECT_EQ(kUnsupported, error_of(message)) << name_of(static_cast<uint16_t>(message));
    EXPECT_EQ(kUnsupported, error_of(message, uint64_t{16}, uint64_t{0}));
  }
  EXPECT_THAT(function.calls, IsEmpty());
  EXPECT_FALSE(ended);
}

TEST_F(ServerTest, Reads) {
  negotiate();
  const auto answer = ask(Message::kRegionRead, RegionAccess{16, 7, 4});
  EXPECT_EQ(16u, answer.as<RegionAccess>().offset);
  EXPECT_EQ(7u, answer.as<RegionAccess>().region);
  EXPECT_EQ(4u, answer.as<RegionAccess>().count);
  EXPECT_THAT(std::vector(answer.body.begin() + 16, answer.body.end()),
              ElementsAre(55, 58, 61, 64));
  EXPECT_EQ(1u, function.answers);
  EXPECT_THAT(ask(Message::kRegionRead, RegionAccess{0, 7, 256}).body, SizeIs(272));
  EXPECT_EQ(Model::byte_at(1, 0xfff), vmm.read<uint8_t>(1, 0xfff));
  EXPECT_THAT(take_calls(), ElementsAre("read 7 16 4", "read 7 0 256", "read 1 4095 1"));
}

TEST_F(ServerTest, Writes) {
  negotiate();
  EXPECT_EQ(0u, vmm.write<uint32_t>(1, 8, 0x01020309));
  const auto answer = ask(Message::kRegionWrite, RegionAccess{0xffc, 1, 4}, uint32_t{7});
  EXPECT_THAT(answer.body, SizeIs(16));
  EXPECT_EQ(0xffcu, answer.as<RegionAccess>().offset);
  EXPECT_EQ(2u, function.answers);
  EXPECT_TRUE(vmm.post<uint16_t>(0, 0, 0x102));
  EXPECT_EQ(Vmm::kNoAnswer, vmm.receive().error());
  EXPECT_EQ(3u, function.answers);
  EXPECT_THAT(take_calls(),
              ElementsAre("write 1 8 9 3 2 1", "write 1 4092 7 0 0 0", "write 0 0 2 1"));
  // A wrong one that is posted is not answered either.
  EXPECT_TRUE(vmm.post<uint16_t>(0, 0x3fff, 0));
  EXPECT_EQ(Vmm::kNoAnswer, vmm.receive().error());
  EXPECT_EQ(3u, function.answers);
  // Not as many bytes as it says.
  EXPECT_EQ(kInvalid, error_of(Message::kRegionWrite, RegionAccess{8, 1, 4}, uint16_t{0}));
  EXPECT_EQ(kInvalid, error_of(Message::kRegionWrite, RegionAccess{8, 1, 4}, uint64_t{0}));
  EXPECT_EQ(kInvalid, error_of(Message::kRegionWrite, RegionAccess{8, 1, 4}));
  EXPECT_THAT(function.calls, IsEmpty());
  EXPECT_FALSE(ended);
}

TEST_F(ServerTest, AccessesOutsideOfRegions) {
  negotiate();
  std::vector<RegionAccess> wrong{{0, 7, 0}, {0, 7, 257}, {253, 7, 4},   {256, 7, 1},
                                  {0, 2, 4}, {0, 9, 4},   {0x4000, 0, 1}};
  for (const uint64_t extreme : kExtremes) {
    wrong.push_back({extreme, 7, 4});
    wrong.push_back({0 - extreme, 1, 4});
    wrong.push_back({0, static_cast<uint32_t>(extreme), 4});
    wrong.push_back({0, 7, static_cast<uint32_t>(extreme)});
    wrong.push_back({extreme, 7, static_cast<uint32_t>(0 - extreme)});
  }
  size_t refused = 0;
  for (const RegionAccess& access : wrong) {
    // Some extremes are cut to 32 bits, and then name what exists.
    if (access.region < kRegions && access.count != 0 && access.count <= 256 &&
        access.offset < Model::kSizes[access.region] &&
        access.count <= Model::kSizes[access.region] - access.offset)
      continue;
    ++refused;
    EXPECT_EQ(kInvalid, error_of(Message::kRegionRead, access));
    std::vector<uint8_t> write = Vmm::bytes_of(access);
    write.resize(write.size() + std::min(access.count, 300u));
    EXPECT_EQ(kInvalid, vmm.ask(Message::kRegionWrite, write).error());
    EXPECT_EQ(kInvalid, error_of(Message::kRegionWriteMulti, uint64_t{1},
                                 PostedWrite{access.offset, access.region, access.count, {}}));
  }
  EXPECT_GT(refused, 40u);
  EXPECT_EQ(kInvalid, error_of(Message::kRegionRead, uint64_t{0}));
  EXPECT_THAT(function.calls, IsEmpty());
  EXPECT_EQ(0u, function.answers);
  EXPECT_FALSE(ended);
}

TEST_F(ServerTest, ManyWrites) {
  negotiate();
  const PostedWrite first{4, 1, 4, {1, 2, 3, 4, 5}}, second{8, 1, 2, {6, 7}};
  EXPECT_EQ(0u, error_of(Message::kRegionWriteMulti, uint64_t{2}, first, second));
  EXPECT_THAT(take_calls(), ElementsAre("write 1 4 1 2 3 4", "write 1 8 6 7"));
  EXPECT_EQ(1u, function.answers);
  // QEMU sends it at its full length.
  EXPECT_EQ(0u, error_of(Message::kRegionWriteMulti, uint64_t{1}, second, first));
  EXPECT_THAT(take_calls(), ElementsAre("write 1 8 6 7"));
  // All or none.
  EXPECT_EQ(kInvalid,
            error_of(Message::kRegionWriteMulti, uint64_t{2}, first, PostedWrite{0, 9, 1, {}}));
  // It has no more than eight bytes.
  EXPECT_EQ(0u, error_of(Message::kRegionWriteMulti, uint64_t{1}, PostedWrite{0, 1, 8, {}}));
  EXPECT_THAT(take_calls(), ElementsAre("write 1 0 0 0 0 0 0 0 0 0"));
  for (const uint32_t count : {9u, 256u, UINT32_MAX})
    EXPECT_EQ(kInvalid,
              error_of(Message::kRegionWriteMulti, uint64_t{1}, PostedWrite{0, 1, count, {}}));
  for (const uint64_t count : {uint64_t{3}, uint64_t{1} << 61, uint64_t{768614336404564651}})
    EXPECT_EQ(kInvalid, error_of(Message::kRegionWriteMulti, count, first, second));
  for (const uint64_t count : kExtremes)
    EXPECT_EQ(kInvalid, error_of(Message::kRegionWriteMulti, count, first, second));
  EXPECT_EQ(kInvalid, error_of(Message::kRegionWriteMulti, uint32_t{0}));
  EXPECT_THAT(function.calls, IsEmpty());
}

TEST_F(ServerTest, Memory) {
  negotiate();
  const base::Fd ram = base::make_memfd("ram", 1 << 20).value();
  struct stat status {};
  ASSERT_EQ(0, ::fstat(ram.get(), &status));
  const std::string file = std::to_string(status.st_ino);
  const size_t before = open_descriptors();
  EXPECT_EQ(0u, vmm.map(0x1000, 0x2000, ram.get(), 0x5000));
  EXPECT_EQ(0u, vmm.map(0x9000, 0x1000, -1, 0, kMayRead));  // firmware
  EXPECT_EQ(uint32_t{EEXIST}, vmm.map(0x2000, 0x1000, ram.get()));
  EXPECT_THAT(take_calls(),
              ElementsAre("map 4096 8192 20480 1 1 " + file, "map 36864 4096 0 1 0 0"));
  const auto gone = ask(Message::kDmaUnmap, DmaUnmap{24, 0, 0x1000, 0x2000});
  EXPECT_THAT(gone.body, SizeIs(24));
  EXPECT_EQ(0x1000u, gone.as<DmaUnmap>().address);
  EXPECT_EQ(0x2000u, gone.as<DmaUnmap>().size);
  EXPECT_EQ(uint32_t{ENOENT}, vmm.unmap(0x1000, 0x2000));
  EXPECT_EQ(0u, vmm.unmap(0, 0, kUnmapAll));
  EXPECT_THAT(take_calls(), ElementsAre("unmap 4096 8192", "unmap_all"));
  EXPECT_EQ(before, open_descriptors());
}

TEST_F(ServerTest, MemoryThatCannotBe) {
  negotiate();
  const base::Fd ram = base::make_memfd("ram", 1 << 20).value();
  const size_t before = open_descriptors();
  constexpr uint64_t kLast = UINT64_MAX - 4095;
  for (const auto& [address, length, offset] : {std::array<uint64_t, 3>{0, 0, 0},
                                                {1, 4096, 0},
                                                {0, 4097, 0},
                                                {0, 4096, 7},
                                                {kLast, 4096, 0},
                                                {kLast, 8192, 0},
                                                {4096, kLast, 0},
                                                {0, 8192, kLast},
                                                {0, 4096, uint64_t{1} << 63},
                                                {0, 4096, (uint64_t{1} << 63) - 4096},
                                                {0, uint64_t{1} << 63, 0},
                                                {0, kLast, 0}}) {
    EXPECT_EQ(kInvalid, vmm.map(address, length, ram.get(), offset));
  }
  for (const auto& [address, length] :
       {std::pair<uint64_t, uint64_t>{0, 0}, {1, 4096}, {0, 4097}, {kLast, 4096}, {4096, kLast}})
    EXPECT_EQ(kInvalid, vmm.unmap(address, length));
  for (const uint32_t flags : {4u, 7u, UINT32_MAX})
    EXPECT_EQ(kInvalid, vmm.map(0, 4096, ram.get(), 0, flags));
  for (const uint32_t flags : {1u, 3u, 4u, UINT32_MAX})
    EXPECT_EQ(kInvalid, vmm.unmap(0, 4096, flags));
  EXPECT_EQ(kInvalid, vmm.unmap(0, 4096, kUnmapAll));  // of what, then?
  EXPECT_EQ(kInvalid, vmm.ask(Message::kDmaMap, Vmm::bytes_of(DmaMap{32, 3, 0, 0, 4096}),
                              {ram.get(), ram.get()})
                          .error());
  EXPECT_EQ(kInvalid, error_of(Message::kDmaMap, DmaMap{31, 3, 0, 0, 4096}));
  EXPECT_EQ(kInvalid, error_of(Message::kDmaUnmap, DmaUnmap{23, 0, 0, 4096}));
  EXPECT_EQ(kInvalid, error_of(Message::kDmaMap, DmaUnmap{32, 3, 0, 0}));
  EXPECT_EQ(kInvalid, error_of(Message::kDmaUnmap, DeviceInfo{24, 0, 0, 0}));
  EXPECT_THAT(function.calls, IsEmpty());
  EXPECT_EQ(before, open_descriptors());
}

TEST_F(ServerTest, Vectors) {
  negotiate();
  const base::Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const size_t before = open_descriptors();
  EXPECT_EQ(0u, vmm.assign(1, 2, {event.get(), event.get()}));
  EXPECT_EQ(before + 2, open_descriptors());
  EXPECT_THAT(take_calls(), ElementsAre("set_vector 1 1", "set_vector 2 1"));
  const uint64_t number = 5;
  EXPECT_EQ(ssize_t{8}, ::write(function.eventfds[2].get(), &number, sizeof number));
  uint64_t arrived = 0;
  EXPECT_EQ(ssize_t{8}, ::read(event.get(), &arrived, sizeof arrived));
  EXPECT_EQ(number, arrived);
  EXPECT_EQ(0u, vmm.assign(2, 1, {event.get()}));  // again, as QEMU does
  EXPECT_EQ(0u, vmm.assign(2, 1, {}));
  EXPECT_THAT(take_calls(), ElementsAre("set_vector 2 1", "set_vector 2 0"));
  EXPECT_EQ(0u, vmm.assign(3, 0, {}));
  EXPECT_THAT(function.calls, IsEmpty());
  EXPECT_EQ(0u, vmm.disable_vectors());
  EXPECT_THAT(take_calls(), ElementsAre("set_vector 0 0", "set_vector 1 0", "set_vector 2 0"));
  EXPECT_EQ(before, open_descriptors());
}

TEST_F(ServerTest, VectorsThatCannotBe) {
  negotiate();
  const base::Fd event(::eventfd(0, EFD_CLOEXEC));
  const size_t before = open_descriptors();
  const auto set = [&](uint32_t flags, uint32_t index, uint32_t start, uint32_t count) {
    return error_of(Message::kSetIrqs, SetIrqs{20, flags, index, start, count});
  };
  constexpr uint32_t kAssign = kDataEventfd | kTrigger;
  for (const uint32_t index : {0u, 1u, 3u, 4u})  // QEMU does so
    EXPECT_EQ(0u, set(kDataNone | kTrigger, index, 0, 0));
  EXPECT_EQ(kInvalid, vmm.assign(0, 2, {event.get()}));
  EXPECT_EQ(kInvalid, vmm.assign(0, 1, {event.get(), event.get()}));
  EXPECT_EQ(kInvalid, set(kAssign, 0, 0, 1));
  EXPECT_EQ(kInvalid, set(kAssign, 5, 0, 0));
  EXPECT_EQ(kInvalid, set(kAssign, UINT32_MAX, 0, 0));
  for (const auto& [start, count] : {std::pair{2u, 2u},
                                     {4u, 0u},
                                     {3u, 1u},
                                     {0u, 4u},
                                     {UINT32_MAX, 2u},
                                     {2u, UINT32_MAX},
                                     {UINT32_MAX, UINT32_MAX},
                                     {0x80000000u, 0x80000000u},
                                     {UINT32_MAX, 0u}}) {
    EXPECT_EQ(kInvalid, vmm.assign(start, count, {event.get()}));
    EXPECT_EQ(kInvalid, set(kAssign, kMsix, start, count));
  }
  // One kind of data, one action.
  for (const uint32_t flags : {0u, kDataNone, kTrigger, kDataNone | kAssign, kAssign | kMask,
                               kAssign | 64u, kAssign | 0x80000000u, UINT32_MAX})
    EXPECT_EQ(kInvalid, set(flags, kMsix, 0, 0)) << flags;
  // They are not announced as maskable, and the VMM triggers them itself.
  for (const uint32_t flags : {kDataNone | kMask, kDataNone | kUnmask, kDataEventfd | kUnmask,
                               kDataBool | kMask, kDataBool | kTrigger, kDataNone | kTrigger})
    EXPECT_EQ(kUnsupported, set(flags, kMsix, 0, 1)) << flags;
  EXPECT_EQ(kInvalid, error_of(Message::kSetIrqs, SetIrqs{19, kAssign, kMsix, 0, 0}));
  EXPECT_EQ(kInvalid, error_of(Message::kSetIrqs, IrqInfo{20, kAssign, kMsix, 0}));
  EXPECT_THAT(function.calls, IsEmpty());
  EXPECT_EQ(before, open_descriptors());
}

TEST_F(ServerTest, Reset) {
  negotiate();
  EXPECT_EQ(0u, vmm.reset());
  EXPECT_THAT(take_calls(), ElementsAre("reset"));
  EXPECT_EQ(0u, function.answers);
}

}  // namespace
}  // namespace vrdma::pvrdma
