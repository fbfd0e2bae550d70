// The list of checked processes, for the next broker.
#include "vrdmad/broker/known_peers.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/vrdmad/admin/fixture.h"

namespace vrdma::vrdmad {
namespace {

rdma::Peer peer_as(uint64_t program, uint64_t started = 1) {
  rdma::Peer peer;
  peer.pid = ::getpid();
  peer.start_time = started;
  peer.program = program;
  return peer;
}

TEST(KnownPeers, AreKnownToTheNextBroker) {
  const TempDir temp;
  const ListenerName here{}, there{.number = 7};
  KnownPeers(temp.path()).add(peer_as(1), here);
  KnownPeers next(temp.path());
  EXPECT_TRUE(next.find(peer_as(1), here));
  EXPECT_EQ(next.find(peer_as(1), there).error().code(), EPERM);
  EXPECT_EQ(next.find(peer_as(2), here).error().code(), EPERM);
}

// A process that executes programs, or changes its ids, all the time.
TEST(KnownPeers, AreNoMoreThanAProcessNeeds) {
  const TempDir temp;
  KnownPeers known(temp.path());
  constexpr uint64_t kTimes = 10'000;
  for (uint64_t i = 1; i <= kTimes; ++i) known.add(peer_as(i), {});
  EXPECT_TRUE(known.find(peer_as(kTimes), {}));
  EXPECT_FALSE(known.find(peer_as(1), {}));
  struct stat file {};
  ASSERT_EQ(::stat((temp.path() + "/broker/peers").c_str(), &file), 0);
  EXPECT_LT(file.st_size, 64 * 1024);
  EXPECT_TRUE(KnownPeers(temp.path()).find(peer_as(kTimes), {}));
  known.add(peer_as(1, 2), {});
  EXPECT_FALSE(known.find(peer_as(kTimes), {})) << "another process has its number";
}

}  // namespace
}  // namespace vrdma::vrdmad
