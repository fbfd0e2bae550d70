#include "core/rdma/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <tuple>

#include "core/ipc/socket.h"
#include "tests/unit/core/rdma/world.h"

namespace vrdma::rdma {
namespace {

struct Processes : testing::Test {
  base::Fd here, there;
  uint64_t challenge = 0x1122334455667788;

  Processes() { std::tie(here, there) = ipc::make_socket_pair().value(); }
  std::shared_ptr<Process> identified() {
    auto handle = identify_peer(here.get()).value();
    auto memory = open_memory(handle, false).value();
    return Process::make(handle.peer, std::move(handle.pidfd), std::move(memory));
  }
  // Whether a process is confirmed by `value` at `address`.
  bool confirmed(uint64_t address, uint64_t value) {
    auto loop = base::EventLoop::create().value();
    auto process = identified();
    process->start_reach(*loop, std::make_shared<ReachThreads>());
    int answer = -1;
    process->confirm(address, value, [&](bool ok) { answer = ok ? 1 : 0; });
    EXPECT_EQ(answer, -1);  // not at once: the page may take its time
    EXPECT_TRUE(test::run_until(*loop, [&] { return answer >= 0; }));
    return answer == 1;
  }
};

TEST_F(Processes, AreConfirmedByAChallenge) {
  const auto address = reinterpret_cast<uint64_t>(&challenge);
  EXPECT_TRUE(confirmed(address, challenge));
  EXPECT_FALSE(confirmed(address, challenge + 1));
  EXPECT_FALSE(confirmed(0, challenge));
  EXPECT_FALSE(confirmed(~uint64_t{0}, challenge));
  EXPECT_FALSE(confirmed(1ull << 63, challenge));
}

TEST_F(Processes, ShareMemoryWithTheirLike) {
  Peer like = identified()->peer();
  like.dumpable = 1;
  Peer another_user = like, in_another_namespace = like, closed = like;
  ++another_user.uids[1];
  ++in_another_namespace.user_namespace.inode;
  closed.dumpable = 0;
  const auto process = [](const Peer& peer) { return Process::make(peer, base::Fd(), {}); };
  const auto it = process(like);
  for (const auto& [peer, why] :
       {std::pair{like, NotDirect::kNone}, std::pair{another_user, NotDirect::kUser},
        std::pair{in_another_namespace, NotDirect::kUserNamespace},
        std::pair{closed, NotDirect::kNotDumpable}}) {
    EXPECT_EQ(it->why_not_shared_with(*process(peer)), why);
    EXPECT_EQ(process(peer)->why_not_shared_with(*it), why);
    EXPECT_EQ(it->may_share_with(*process(peer)), why == NotDirect::kNone);
  }
}

// However often it is met.
TEST_F(Processes, HaveOneMemoryToChange) {
  auto loop = base::EventLoop::create().value();
  const auto once = identified(), again = identified();
  once->start_reach(*loop, std::make_shared<ReachThreads>());
  again->start_reach(*loop, std::make_shared<ReachThreads>());
  EXPECT_EQ(once->reach()->memory()->changes, again->reach()->memory()->changes);
}

}  // namespace
}  // namespace vrdma::rdma
