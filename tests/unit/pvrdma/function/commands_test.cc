// Attaching, commands, and their refusals.
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>

#include "core/base/log.h"
#include "tests/unit/pvrdma/guest.h"

namespace vrdma::pvrdma {
namespace {

class Commands : public ::testing::Test, protected Guest {};

TEST_F(Commands, TheDriverLearnsWhatThereIs) {
  EXPECT_EQ(kInterfaceVersion, read(kRegisterBar, kRegVersion));
  attach();
  EXPECT_FALSE(has_failed());
  const Capabilities& can = at<SharedRegion>(shared_region)->capabilities;
  EXPECT_EQ(kRoceV2, can.gid_types);
  EXPECT_EQ(0, can.mode);
  EXPECT_EQ(1000u, can.max_qp);
  EXPECT_EQ(kDoorbellPages, can.max_uar);
  ASSERT_TRUE(execute(Command::kQueryPort, QueryPort{1}));
  EXPECT_EQ(uint32_t{IBV_PORT_ACTIVE}, answer().port.state);
  EXPECT_EQ(can.gid_tbl_len, answer().port.gid_tbl_len);
  EXPECT_EQ(kAnswered | 0u, answer().header.answer);
  EXPECT_EQ(0x1234u, answer().header.key);
  EXPECT_EQ(1u, interrupts(kResponseVector));
}

TEST_F(Commands, OperatorsSeeWhatTheGuestDid) {
  EXPECT_FALSE(verbs.export_state.read()) << "nobody has exported it";
  verbs.export_state.begin("/run/vm0.sock", ipc::DoorbellMode::kTrap);
  const auto seen = [&] { return verbs.export_state.read().value(); };
  const uint64_t before = function->counts().registers;
  write(kRegisterBar, kRegRegionHigh, UINT32_MAX);
  doorbell(kQpDoorbell, 1 | kQpSend);  // nobody's
  EXPECT_EQ(1u, seen().counts.attaches_refused);
  EXPECT_EQ(before + 2, seen().counts.registers);
  EXPECT_EQ(std::nullopt, seen().driver);
  attach();
  EXPECT_EQ(20u, seen().driver);
  ipc::ExportCounts all = seen().counts;
  ASSERT_TRUE(execute(Command::kQueryPort, QueryPort{1}));
  ASSERT_FALSE(execute(static_cast<Command>(99), QueryPort{1}));
  doorbell(kQpDoorbell, 7 | kQpSend);  // there is no such queue pair
  all.registers += 4;                  // a request and a look at the error, each
  all.commands += 2;
  all.commands_refused += 1;
  all.interrupts += 1;
  all.doorbells += 1;
  all.doorbells_refused += 1;
  EXPECT_EQ(all, seen().counts);
  // The next process goes on.
  verbs.export_state.set_counts({});
  die();
  EXPECT_EQ(all.commands, seen().counts.commands);
  EXPECT_EQ(20u, seen().driver);
  function->clear();
  EXPECT_EQ(std::nullopt, seen().driver);
  EXPECT_EQ(all.commands, seen().counts.commands);
}

TEST_F(Commands, WithoutADriverNothingHappens) {
  write(kRegisterBar, kRegRequest, 0);
  EXPECT_TRUE(has_failed());
  write(kRegisterBar, kRegControl, kActivate);
  EXPECT_TRUE(has_failed());
  doorbell(kQpDoorbell, 1 | kQpSend);
  // A region that is none.
  for (const uint64_t address : {kRam / 2, kHigh + kRam / 2 - 8, kPageSize + 4, ~uint64_t{7}}) {
    write(kRegisterBar, kRegRegionLow, static_cast<uint32_t>(address));
    write(kRegisterBar, kRegRegionHigh, static_cast<uint32_t>(address >> 32));
    EXPECT_TRUE(has_failed());
  }
}

// It would use the number of a queue pair as its handle, and nothing would work.
TEST_F(Commands, AnOldDriverIsRefused) {
  std::vector<std::string> told;
  base::set_log([&](base::LogLevel, const std::string& sentence) { told.push_back(sentence); });
  for (const uint32_t version : {0, 17, 19}) {
    attach(version);
    EXPECT_TRUE(has_failed());
    EXPECT_EQ(0, at<SharedRegion>(shared_region)->capabilities.gid_types);  // it ends its probe
    EXPECT_FALSE(execute(Command::kQueryPort, QueryPort{1}));
  }
  base::set_log(nullptr);
  ASSERT_EQ(3u, told.size());
  EXPECT_NE(std::string::npos, told[1].find("of version 17")) << told[1];
  for (const uint32_t version : {20, 21}) {
    attach(version);
    EXPECT_FALSE(has_failed());
    EXPECT_TRUE(execute(Command::kQueryPort, QueryPort{1}));
  }
}

TEST_F(Commands, AResetTakesAll) {
  attach();
  bind(0, gid_of(1));
  const uint32_t pd = create_pd();
  const CompletionQueue cq = create_cq(16);
  (void)create_qp(pd, cq, 8);
  (void)create_mr(pd, 10'000);
  EXPECT_EQ(4u, verbs.objects());
  write(kRegisterBar, kRegControl, kReset);
  EXPECT_FALSE(has_failed());
  EXPECT_EQ(0u, verbs.objects());
  write(kRegisterBar, kRegRequest, 0);
  EXPECT_TRUE(has_failed());
  // And another driver, which does not reset (kexec).
  attach();
  (void)create_pd();
  attach();
  EXPECT_EQ(0u, verbs.objects());
  function->reset();
  EXPECT_EQ(0u, verbs.objects());
}

TEST_F(Commands, OnlyGidsOfTheVdevice) {
  attach();
  CreateBind wish{};
  wish.gid[0] = 0x20;
  EXPECT_FALSE(execute(Command::kCreateBind, wish));
  EXPECT_EQ(0u, interrupts(kResponseVector));  // the driver does not wait for it
  wish.index = kGidTable;
  std::memcpy(wish.gid, gid_of(1).raw, 16);
  EXPECT_FALSE(execute(Command::kCreateBind, wish));
  bind(63, gid_of(2));
  const uint32_t pd = create_pd();
  const CompletionQueue cq = create_cq(16);
  const QueuePair qp = create_qp(pd, cq, 8);
  QpAttributes with{};
  with.address.sgid_index = 63;
  EXPECT_TRUE(modify(qp, IBV_QPS_INIT));
  EXPECT_TRUE(modify(qp, IBV_QPS_RTR, IBV_QP_AV, with));
  EXPECT_EQ(1, verbs.find(qp.qpn)->attr.ah_attr.grh.sgid_index);
  ASSERT_TRUE(execute(Command::kQueryQp, QueryQp{qp.handle, 0}));
  EXPECT_EQ(63, answer().attributes.address.sgid_index);
  ASSERT_TRUE(execute(Command::kDestroyBind, DestroyBind{63, {}}));
  const QueuePair other = create_qp(pd, cq, 8);
  EXPECT_TRUE(modify(other, IBV_QPS_INIT));
  EXPECT_FALSE(modify(other, IBV_QPS_RTR, IBV_QP_AV, with));
}

TEST_F(Commands, AProgramsDoorbellsAreItsOwn) {
  attach();
  bind(0, gid_of(1));
  EXPECT_FALSE(execute(Command::kCreateUc, CreateUc{kDoorbells / kPageSize}));  // the kernel's
  EXPECT_FALSE(execute(Command::kCreateUc, CreateUc{kDoorbells / kPageSize + kDoorbellPages}));
  EXPECT_FALSE(execute(Command::kCreateUc, CreateUc{0}));
  ASSERT_TRUE(execute(Command::kCreateUc, CreateUc{kDoorbells / kPageSize + 3}));
  const uint32_t context = answer().made.handle;
  EXPECT_FALSE(execute(Command::kCreatePd, CreatePd{context + 1}));
  const uint32_t pd = create_pd(context);
  const CompletionQueue cq = create_cq(16, context);
  QueuePair a = create_qp(pd, cq, 8), b = create_qp(pd, cq, 8);
  connect(a, b.qpn);
  const Memory mr = create_mr(pd, 100);
  SendEntry entry{};
  entry.opcode = 0;
  entry.flags = kSignaled;
  entry.rdma = {mr.start, mr.key};
  ASSERT_TRUE(put_send(a, entry, {{mr.start, 8, mr.key}}));
  for (const uint64_t page : {0, 2, 4}) {
    a.doorbell_page = page;
    ring_sends(a);
  }
  go_on();
  EXPECT_FALSE(poll(cq));
  EXPECT_EQ(3u, function->counts().doorbells_refused);
  a.doorbell_page = 3;
  ring_sends(a);
  go_on();
  EXPECT_TRUE(poll(cq));
  // A program has neither all of the memory nor queue pair 1.
  EXPECT_FALSE(execute(Command::kCreateMr, CreateMr{0, 0, 0, pd, 1, kMrOfAllMemory, 0}));
  CreateQp gsi{};
  gsi.pd = pd;
  gsi.send_cq = gsi.recv_cq = cq.handle;
  gsi.qp_type = 1;
  EXPECT_FALSE(execute(Command::kCreateQp, gsi));
}

TEST_F(Commands, WhatDoesNotFitIsRefused) {
  attach();
  const uint32_t pd = create_pd();
  const uint64_t pages = directory(take_pages(4));
  for (const CreateMr& wish : {
           CreateMr{0x1000, 0, pages, pd, 1, 0, 0},           // of nothing
           CreateMr{0x1000, 4096, pages, pd, 1, 0, 2},        // of too many pages
           CreateMr{0x1fff, 4096, pages, pd, 1, 0, 1},        // of too few
           CreateMr{0x1000, UINT64_MAX, pages, pd, 1, 0, 0},  // that wraps
           CreateMr{~uint64_t{0} - 4095, 4097, pages, pd, 1, 0, 2},
           CreateMr{0x1000, kMostMrBytes + 1, pages, pd, 1, 0, 262145},
           CreateMr{0x1000, 4096, kRam / 2, pd, 1, 0, 1},   // in the hole
           CreateMr{0x1000, 4096, pages, pd + 1, 1, 0, 1},  // no PD
           CreateMr{0x1000, 4096, pages, pd, 1, kMrOfFastRegistration, 1},
           CreateMr{0, 0, 0, pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, kMrOfAllMemory,
                    0},
       })
    EXPECT_FALSE(execute(Command::kCreateMr, wish));
  for (const CreateCq& wish :
       {CreateCq{pages, 0, 0, 2}, CreateCq{pages, 0, 3, 2}, CreateCq{pages, 0, 128, 2},
        CreateCq{pages, 0, 1u << 31, 4}, CreateCq{pages, 0, 16, 0}, CreateCq{pages, 0, 16, 1},
        CreateCq{pages, 7, 16, 2}, CreateCq{pages, 0, 16, UINT32_MAX}})
    EXPECT_FALSE(execute(Command::kCreateCq, wish));
  const CompletionQueue cq = create_cq(16);
  CreateQp good{};
  good.directory = pages;
  good.pd = pd;
  good.send_cq = good.recv_cq = cq.handle;
  good.max_send_wr = good.max_recv_wr = 16;
  good.max_send_sge = good.max_recv_sge = 2;
  good.pages = 3;
  good.send_pages = 1;
  good.qp_type = IBV_QPT_RC;
  ASSERT_TRUE(execute(Command::kCreateQp, good));
  const uint32_t qp = answer().qp.handle;
  const auto refused = [&](auto change) {
    CreateQp wish = good;
    change(wish);
    return !execute(Command::kCreateQp, wish);
  };
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.max_send_wr = 64; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.max_send_wr = 0; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.max_recv_wr = 15; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.max_recv_wr = 256; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.max_send_sge = UINT32_MAX; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.max_recv_sge = 0x10000000; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.send_pages = 3; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.send_pages = 0xffff; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.pages = 0; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.pages = 0xffff; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.qp_type = IBV_QPT_UC; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.qp_type = 255; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.is_srq = 1; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.recv_cq = 99; }));
  EXPECT_TRUE(refused([](CreateQp& wish) { wish.pd = UINT32_MAX; }));
  const size_t objects = verbs.objects();
  verbs.fail_after = 0;
  EXPECT_TRUE(refused([](CreateQp&) {}));
  EXPECT_FALSE(execute(Command::kCreatePd, CreatePd{0}));
  verbs.fail_after = UINT32_MAX;
  EXPECT_EQ(objects, verbs.objects());
  // In use.
  EXPECT_FALSE(execute(Command::kDestroyPd, Handle{pd}));
  EXPECT_FALSE(execute(Command::kDestroyCq, Handle{cq.handle}));
  for (const Command command : {Command::kDestroyPd, Command::kDestroyCq, Command::kDestroyQp,
                                Command::kDestroyMr, Command::kDestroySrq, Command::kDestroyUc,
                                Command::kQuerySrq, Command::kQueryQp, Command::kResizeCq})
    EXPECT_FALSE(execute(command, Handle{12345})) << static_cast<uint32_t>(command);
  for (const uint32_t command : {21u, 255u, UINT32_MAX})
    EXPECT_FALSE(execute(static_cast<Command>(command), Handle{0}));
  ASSERT_TRUE(execute(Command::kDestroyQp, Handle{qp}));
  ASSERT_TRUE(execute(Command::kDestroyCq, Handle{cq.handle}));
  ASSERT_TRUE(execute(Command::kDestroyPd, Handle{pd}));
  EXPECT_EQ(0u, verbs.objects());
}

// The driver, and each program's library, remove an object from a table of their own after its
// command has been executed. By then another processor may have made one, and a handle that was
// free for a moment only would be removed with it.
TEST_F(Commands, AHandleRests) {
  attach();
  const uint32_t pd = create_pd();
  const CompletionQueue cq = create_cq(16);
  const QueuePair qp = create_qp(pd, cq, 8);
  const uint64_t pages = directory(cq.pages);
  const CreateSrq shared{pages, pd, 2, {8, 2, 0, 0}, 0};
  CreateQp wish{};
  wish.directory = directory(qp.pages);
  wish.pd = pd;
  wish.send_cq = wish.recv_cq = cq.handle;
  wish.max_send_wr = wish.max_recv_wr = 8;
  wish.max_send_sge = wish.max_recv_sge = 2;
  wish.pages = static_cast<uint16_t>(qp.pages.size());
  wish.send_pages = static_cast<uint16_t>(qp.send_pages);
  wish.qp_type = IBV_QPT_RC;
  const auto made = [&](Command make, Command destroy, const auto& body) {
    EXPECT_TRUE(execute(make, body));
    const uint32_t handle = make == Command::kCreateQp ? answer().qp.handle : answer().made.handle;
    EXPECT_TRUE(execute(destroy, Handle{handle}));
    return handle;
  };
  for (const auto& make : std::initializer_list<std::function<uint32_t()>>{
           [&] {
             return made(Command::kCreateCq, Command::kDestroyCq, CreateCq{pages, 0, 16, 2});
           },
           [&] { return made(Command::kCreateQp, Command::kDestroyQp, wish); },
           [&] { return made(Command::kCreateSrq, Command::kDestroySrq, shared); }}) {
    // All of them in turn, also in the next process, and then again.
    std::map<uint32_t, int> last;
    for (int i = 0; i < 1100; ++i) {
      if (i == 10 || i == 990) die();
      const uint32_t handle = make();
      EXPECT_TRUE(handle > 0 && handle < 1000);
      EXPECT_TRUE(!last.contains(handle) || i - last[handle] > 900) << handle;
      last[handle] = i;
    }
    EXPECT_GT(last.size(), 990u);
  }
}

// Of kModifyQp the driver reads the error in the answer, and of nothing else.
TEST_F(Commands, AChangeThatIsRefusedIsAnswered) {
  attach();
  const uint32_t pd = create_pd();
  const CompletionQueue cq = create_cq(16);
  const QueuePair qp = create_qp(pd, cq, 8);
  EXPECT_TRUE(execute(Command::kModifyQp, change(qp.handle, IBV_QPS_RTS)));
  EXPECT_EQ(EINVAL, answer().header.error);
  EXPECT_TRUE(execute(Command::kModifyQp, change(99, IBV_QPS_INIT)));
  EXPECT_NE(0, answer().header.error);
  EXPECT_TRUE(execute(Command::kModifyQp, change(qp.handle, IBV_QPS_INIT, IBV_QP_ALT_PATH)));
  EXPECT_NE(0, answer().header.error);
}

// Programs read it once; QEMU, the guest's firmware and its kernel write to it.
TEST_F(Commands, TheConfigurationSpace) {
  EXPECT_EQ(0x082015adu, read(kConfigRegion, 0));
  EXPECT_EQ(0x028000u, read(kConfigRegion, 8) >> 8);
  write(kConfigRegion, 0, 0);
  EXPECT_EQ(0x082015adu, read(kConfigRegion, 0));
  for (const uint32_t bar : {0x10, 0x14, 0x18, 0x1c}) write(kConfigRegion, bar, UINT32_MAX);
  EXPECT_EQ(~(kMsixBarSize - 1) & UINT32_MAX, read(kConfigRegion, 0x10));
  EXPECT_EQ(~(kDoorbellBarSize - 1) & UINT32_MAX, read(kConfigRegion, 0x18));
  EXPECT_EQ(0u, read(kConfigRegion, 0x1c));
  EXPECT_EQ(0x11u, read(kConfigRegion, 0x40) & 0xff);
}

}  // namespace
}  // namespace vrdma::pvrdma
