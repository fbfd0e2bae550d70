// Work requests on memory in place of which no page is there: the worker makes none, its owner
// does.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

#include "tests/unit/transport/rig.h"
#include "transport/hole_guard.h"

namespace vrdma::transport {
namespace {

using test::Party;
using test::rdma_wqe;
using test::World;
using test::wqe_of;
using verbs::Opcode;
using verbs::WcStatus;

constexpr uint64_t kOwnersPage = 4096;

// a has all of its pages, b none. Both are of this process, so only b's can be where they belong.
struct HolesOfAParty : Rig {
  HolesOfAParty() {
    EXPECT_TRUE(HoleGuard::start());
    for (Party* party : {&a, &b}) {
      auto arena = arena_of(*party).duplicate();
      party->context.process->set_space(
          *rdma::AddressSpace::of_arena(std::move(*arena), {.watch = HoleGuard::watch}));
    }
    std::memset(a.memory(), 0x77, Party::kBytes);
  }
  void SetUp() override {
    home = ::mmap(reinterpret_cast<void*>(kBase), Party::kBytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED_NOREPLACE, arena_of(b).get(), kBase);
    if (home == MAP_FAILED)
      GTEST_SKIP()
          << "the place of the pages is taken, as by the shadow memory of AddressSanitizer";
    EXPECT_EQ(home, reinterpret_cast<void*>(kBase));
  }
  ~HolesOfAParty() override { leave_home(); }
  void leave_home() {
    if (home != MAP_FAILED) ::munmap(home, Party::kBytes);
    home = MAP_FAILED;
  }
  static const base::Fd& arena_of(Party& party) { return party.context.process->space()->arena(); }
  // Pages that b's arena has.
  uint64_t pages() {
    struct stat status {};
    EXPECT_EQ(::fstat(arena_of(b).get(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512 / kOwnersPage;
  }
  WcStatus run(const ipc::SendWqe& wqe, uint32_t length) {
    const size_t before = pair.a->block->sq_tail;
    EXPECT_TRUE(a.post_send(*pair.a, wqe, {{kBase, length, a_key}}));
    return statuses(*pair.a, before + 1).back();
  }
  World::Pair pair = world.connected();
  void* home = MAP_FAILED;
};

TEST_F(HolesOfAParty, AreFilledByTheirOwnerAndThenWritten) {
  for (const uint32_t length : {8u, 5000u, 3u << 20}) {
    EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, kBase + 100, b_key), length), WcStatus::kSuccess);
    EXPECT_EQ(std::memcmp(b.memory(kBase + 100), a.memory(), length), 0);
    EXPECT_EQ(b.memory()[100 + length], 0);
  }
}

TEST_F(HolesOfAParty, AreReadAsZeroes) {
  for (const uint32_t length : {8u, 5000u, 3u << 20}) {
    EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaRead, kBase + (4u << 20), b_key), length),
              WcStatus::kSuccess);
    EXPECT_EQ(a.memory()[0], 0);
    EXPECT_EQ(a.memory()[length - 1], 0);
    EXPECT_EQ(a.memory()[length], 0x77);
  }
}

TEST_F(HolesOfAParty, TakeAtomicsAndReceives) {
  ipc::SendWqe add = rdma_wqe(Opcode::kFetchAdd, kBase + kOwnersPage, b_key);
  add.rdma.compare_add = 5;
  EXPECT_EQ(run(add, 8), WcStatus::kSuccess);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(b.memory(kBase + kOwnersPage)), 5u);
  ASSERT_TRUE(b.post_receive(*pair.b, 1, {{kBase + 9 * kOwnersPage, 100, b_key}}));
  ring(*pair.b);
  EXPECT_EQ(run(wqe_of(Opcode::kSend), 100), WcStatus::kSuccess);
  EXPECT_EQ(b.memory(kBase + 9 * kOwnersPage)[99], 0x77);
  EXPECT_EQ(b.received(*pair.b).size(), 1u);
}

TEST_F(HolesOfAParty, OfTheInitiatorAreItsOwnFault) {
  ipc::SendWqe read = rdma_wqe(Opcode::kRdmaRead, kBase, a_key);
  const auto begin = [&] {
    const size_t before = pair.b->block->sq_tail;
    EXPECT_TRUE(b.post_send(*pair.b, read, {{kBase, 100, b_key}}));
    return statuses(*pair.b, before + 1).back();
  };
  EXPECT_EQ(begin(), WcStatus::kSuccess);
  EXPECT_EQ(b.memory()[99], 0x77);
  leave_home();
  ASSERT_EQ(::fallocate(arena_of(b).get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        static_cast<off_t>(kBase), static_cast<off_t>(Party::kBytes)),
            0);
  EXPECT_EQ(begin(), WcStatus::kLocalProtectionError);
}

// An owner without these pages in its address space does not get them from the worker.
TEST_F(HolesOfAParty, ThatNobodyFillsStayHoles) {
  leave_home();
  for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead, Opcode::kFetchAdd}) {
    World::Pair each = world.connected();
    EXPECT_TRUE(a.post_send(*each.a, rdma_wqe(opcode, kBase, b_key), {{kBase, 8, a_key}}));
    EXPECT_EQ(statuses(*each.a, 1).back(), WcStatus::kRemoteAccessError);
  }
  EXPECT_EQ(run(rdma_wqe(Opcode::kRdmaWrite, kBase, b_key), 4u << 20),
            WcStatus::kRemoteAccessError);
  EXPECT_EQ(pages(), 0u);
}

TEST_F(HolesOfAParty, TakeDatagrams) {
  Party::QpOptions options;
  options.type = verbs::QpType::kUd;
  rdma::Qp* from = world.add_qp(b, options);
  rdma::Qp* to = world.add_qp(b, options);
  for (rdma::Qp* qp : {from, to}) {
    qp->attributes.qkey = 7;
    qp->set_state(verbs::QpState::kRts);
  }
  ASSERT_TRUE(b.post_receive(*to, 1, {{kBase + kOwnersPage, kOwnersPage, b_key}}));
  ipc::SendWqe wqe = wqe_of(Opcode::kSend);
  const auto gid = b.context.device->gids[0];
  std::memcpy(wqe.ud.dgid, gid.bytes.data(), gid.bytes.size());
  wqe.ud.qpn = to->qpn;
  wqe.ud.qkey = 7;
  ASSERT_TRUE(b.post_send(*from, wqe, {{kBase + 5 * kOwnersPage, 100, b_key}}));
  ASSERT_TRUE(wait_for([&] { return !b.received(*to).empty(); }));
  EXPECT_EQ(b.received(*to)[0].status, static_cast<uint8_t>(WcStatus::kSuccess));
  EXPECT_EQ(b.received(*to)[0].byte_len, 140u);
  EXPECT_EQ(b.memory(kBase + kOwnersPage)[140], 0);
}

}  // namespace
}  // namespace vrdma::transport
