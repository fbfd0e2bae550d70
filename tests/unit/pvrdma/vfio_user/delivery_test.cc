// How messages arrive and answers leave: in pieces, with descriptors, too many of them, not at all.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <set>
#include <thread>

#include "tests/unit/pvrdma/vfio_user/requests.h"
#include "tests/unit/pvrdma/vfio_user/served.h"

namespace vrdma::pvrdma {
namespace {

using namespace vfio;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DeliveryTest : public ::testing::Test, protected Served {
 protected:
  Vmm::Bytes map_at(uint64_t address) {
    return vmm.message(Message::kDmaMap, Vmm::bytes_of(DmaMap{32, 3, 0, address, 0x1000}));
  }
  const base::Fd ram = base::make_memfd("ram", 1 << 20).value();
};

std::string map_call(uint64_t address, const base::Fd& file) {
  struct stat status {};
  EXPECT_EQ(file.valid(), ::fstat(file.get(), &status) == 0);
  return "map " + std::to_string(address) + " 4096 0 1 1 " + std::to_string(status.st_ino);
}

TEST_F(DeliveryTest, ByteByByte) {
  negotiate();
  for (uint64_t address = 0; address < 0x3000; address += 0x1000) {
    const Vmm::Bytes bytes = map_at(address);
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_THAT(function.calls, IsEmpty());
      EXPECT_TRUE(vmm.send({&bytes[i], 1}, i == 0 ? std::vector{ram.get()} : std::vector<int>{}));
      go_on();
    }
    EXPECT_EQ(0u, vmm.receive().error());
    EXPECT_THAT(take_calls(), ElementsAre(map_call(address, ram)));
  }
}

TEST_F(DeliveryTest, DescriptorsStayWithTheirMessage) {
  negotiate();
  const base::Fd other = base::make_memfd("other", 1 << 20).value(), none;
  EXPECT_TRUE(vmm.send(map_at(0)));
  EXPECT_TRUE(vmm.send(map_at(0x1000), {ram.get()}));
  EXPECT_TRUE(vmm.send(map_at(0x2000), {other.get()}));
  EXPECT_TRUE(vmm.send(map_at(0x3000)));
  go_on();
  EXPECT_THAT(take_calls(), ElementsAre(map_call(0, none), map_call(0x1000, ram),
                                        map_call(0x2000, other), map_call(0x3000, none)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(0u, vmm.receive().error());
}

// Neither a write to it nor its end waits for the VMM.
TEST_F(DeliveryTest, ADescriptorDoesNotWait) {
  negotiate();
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  linger wait{1, 30'000};
  ASSERT_EQ(0, ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait));
  EXPECT_TRUE(vmm.send(vmm.message(Message::kReset, {}, kNoReply), {socket.get()}));
  go_on();
  socklen_t length = sizeof wait;
  ASSERT_EQ(0, ::getsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &wait, &length));
  EXPECT_EQ(0, wait.l_onoff);
  EXPECT_NE(0, ::fcntl(socket.get(), F_GETFL) & O_NONBLOCK);
}

TEST_F(DeliveryTest, SurplusDescriptorsAreClosed) {
  negotiate();
  const size_t before = open_descriptors();
  const std::vector<int> most(kMostFds, ram.get());
  EXPECT_EQ(0u, vmm.ask(Message::kReset, {}, most).error());
  EXPECT_EQ(uint32_t{ENOTSUP}, vmm.ask(Message::kFeature, {}, most).error());
  EXPECT_EQ(uint32_t{EINVAL}, vmm.ask(Message::kRegionRead, {}, most).error());
  EXPECT_TRUE(vmm.send(vmm.message(Message::kReset, {}, kNoReply), most));
  go_on();
  EXPECT_EQ(before, open_descriptors());
  EXPECT_FALSE(ended);
}

TEST_F(DeliveryTest, TooManyDescriptorsEndTheConnection) {
  negotiate();
  const size_t before = open_descriptors();
  EXPECT_TRUE(vmm.send(vmm.message(Message::kReset, {}), std::vector(kMostFds + 1, ram.get())));
  go_on();
  EXPECT_TRUE(ended);
  EXPECT_EQ(
      "the VMM sends more descriptors with a DEVICE_RESET than the protocol or this process may "
      "have",
      reason);
  EXPECT_EQ(before, open_descriptors());
  EXPECT_THAT(function.calls, IsEmpty());
}

TEST_F(DeliveryTest, TooManyDescriptorsInPiecesEndTheConnection) {
  negotiate();
  const size_t before = open_descriptors();
  const Vmm::Bytes bytes = map_at(0);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(vmm.send({&bytes[20 * i], 20}, std::vector(kMostFds - 2, ram.get())));
  go_on();
  EXPECT_TRUE(ended);
  EXPECT_EQ("the VMM sends more than 8 descriptors with a DMA_MAP", reason);
  EXPECT_EQ(before, open_descriptors());
}

TEST_F(DeliveryTest, NoRoomForADescriptorEndsTheConnection) {
  negotiate();
  EXPECT_TRUE(vmm.send(map_at(0), {ram.get()}));
  rlimit limit{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &limit));
  const int free = ::dup(0);
  ASSERT_EQ(0, ::close(free));
  const rlimit none{static_cast<rlim_t>(free), limit.rlim_max};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &none));
  go_on();
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &limit));
  EXPECT_TRUE(ended);  // the memory would be missing without a word otherwise
  EXPECT_THAT(reason, ::testing::HasSubstr("more descriptors with a DMA_MAP"));
  EXPECT_THAT(function.calls, IsEmpty());
}

TEST_F(DeliveryTest, WhatIsNoMessageEndsTheConnection) {
  const size_t before = open_descriptors();
  const auto sends = [&](uint16_t message, uint32_t size, uint32_t flags) {
    Vmm other(connect());
    EXPECT_TRUE(other.send(Vmm::bytes_of(Header{1, message, size, flags, 0}), {ram.get()}));
    go_on();
    EXPECT_TRUE(ended);
    server.reset();
    EXPECT_TRUE(other.is_over());
    return std::exchange(reason, {});
  };
  for (const uint32_t size :
       {0u, 1u, 15u, kMostBytes + 1, 0x80000000u, UINT32_MAX - 15, UINT32_MAX})
    EXPECT_EQ("the VMM sends a VERSION of " + std::to_string(size) +
                  " bytes, and a message has 16 to 65536",
              sends(1, size, 0));
  EXPECT_EQ("the VMM answers a DMA_READ that it was not asked", sends(11, 32, kReplyType));
  EXPECT_EQ("the VMM answers a message 99 that it was not asked", sends(99, 32, 0xf));
  EXPECT_EQ("the VMM begins with message 0 instead of VERSION", sends(0, 16, 0));
  EXPECT_EQ("the VMM begins with MIG_DATA_WRITE instead of VERSION", sends(18, 16, 0));
  vmm.hang_up();
  EXPECT_EQ(before - 2, open_descriptors());  // the fixture's own pair
}

TEST_F(DeliveryTest, TheLongestMessage) {
  negotiate();
  const Vmm::Bytes body(kMostBytes - sizeof(Header));
  EXPECT_EQ(0u, vmm.ask(Message::kReset, body).error());
}

TEST_F(DeliveryTest, TheVmmGoes) {
  negotiate();
  vmm.hang_up();
  go_on();
  EXPECT_TRUE(ended);
  EXPECT_EQ("", reason);
}

TEST_F(DeliveryTest, TheVmmGoesWithoutReading) {
  negotiate();
  EXPECT_TRUE(vmm.send(vmm.message(Message::kReset, {})));
  go_on();
  vmm.hang_up();
  go_on();
  EXPECT_TRUE(ended);
  EXPECT_EQ("", reason);
}

TEST_F(DeliveryTest, TheVmmGoesBeforeItsAnswer) {
  negotiate();
  EXPECT_TRUE(vmm.send(vmm.message(Message::kReset, {})));
  vmm.hang_up();
  go_on();
  EXPECT_TRUE(ended);
  EXPECT_EQ("", reason);
}

TEST_F(DeliveryTest, TheVmmGoesWithinAMessage) {
  const size_t before = open_descriptors();
  for (const size_t length : {1u, 15u, 16u, 47u}) {
    Vmm other(connect(), [this] { go_on(); });
    ASSERT_EQ(0u, other.negotiate());
    const Vmm::Bytes bytes = map_at(0);
    EXPECT_TRUE(other.send({bytes.data(), length}, {ram.get()}));
    go_on();
    EXPECT_FALSE(ended);
    other.hang_up();
    go_on();
    EXPECT_TRUE(ended);
    EXPECT_EQ("the VMM has gone within a message", reason);
    server.reset();
  }
  vmm.hang_up();
  EXPECT_EQ(before - 2, open_descriptors());
  EXPECT_THAT(function.calls, IsEmpty());
}

// QEMU does not wait for each answer when its memory changes.
TEST_F(DeliveryTest, AnswersWaitForASlowVmm) {
  Vmm slow(connect(4096), [this] { go_on(); });
  ASSERT_EQ(0u, slow.negotiate());
  const uint16_t first = static_cast<uint16_t>(slow.last_id() + 1);
  constexpr int kRequests = 100;
  for (int i = 0; i < kRequests; ++i) {
    if (i % 10 == 0)
      EXPECT_TRUE(slow.send(
          slow.message(Message::kRegionInfo, Vmm::bytes_of(RegionInfo{64, 0, 0, 0, 0, 0}))));
    else
      EXPECT_TRUE(
          slow.send(slow.message(Message::kRegionRead, Vmm::bytes_of(RegionAccess{0, 7, 256}))));
    go_on();
  }
  // As long as an answer waits, the next request does.
  const size_t before = function.count("read");
  EXPECT_LT(before, size_t{kRequests} / 2);
  go_on();
  EXPECT_EQ(before, function.count("read"));
  for (int i = 0; i < kRequests; ++i) {
    const auto answer = slow.receive();
    ASSERT_EQ(0u, answer.error()) << i;
    EXPECT_EQ(static_cast<uint16_t>(first + i), answer.header.id);
    EXPECT_EQ(i % 10 == 0 ? 64u : 272u, answer.body.size());
    EXPECT_EQ(i % 10 == 0, answer.file.valid());
  }
  EXPECT_FALSE(ended);
  // The loop sleeps again: there is nothing left for which room in the socket is needed.
  EXPECT_FALSE(loop->step());
  EXPECT_EQ(0u, slow.reset());
}

TEST_F(DeliveryTest, AFloodLeavesTimeForOthers) {
  negotiate();
  const base::Fd event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  int passes = 0;
  size_t longest = 0, before = function.calls.size();
  auto other = loop->watch(event.get(), EPOLLIN, [&](uint32_t) {
    longest = std::max(longest, function.calls.size() - before);
    before = function.calls.size();
    ++passes;
  });
  ASSERT_TRUE(other);
  constexpr size_t kWrites = 500;
  Vmm::Bytes all;
  for (size_t i = 0; i < kWrites; ++i) {
    const Vmm::Bytes one = vmm.message(Message::kRegionWrite,
                                       Vmm::bytes_of(RegionAccess{0, 1, 4}, uint32_t{0}), kNoReply);
    all.insert(all.end(), one.begin(), one.end());
  }
  ASSERT_TRUE(vmm.send(all));
  while (function.calls.size() < kWrites && passes < 1000) (void)loop->step();
  EXPECT_EQ(kWrites, function.calls.size());
  EXPECT_GE(passes, 7);
  EXPECT_LE(longest, 64u);
}

// The answers of the server are short; these leave in several pieces.
TEST(ConnectionTest, AnswersLeaveInTheirOrderAndWithOneDescriptor) {
  int ends[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
  Connection connection{base::Fd(ends[0])};
  const base::Fd peer(ends[1]), file = base::make_memfd("file", 4096).value();
  const size_t before = open_descriptors();
  constexpr size_t kLength = 1 << 20;
  const auto send = [&](uint8_t byte, const base::Fd* with) {
    std::vector<uint8_t> bytes(kLength, byte);
    EXPECT_TRUE(connection.send(bytes, with));
  };
  std::vector<uint8_t> arrived;
  std::vector<base::Fd> files;
  const auto receive = [&] {  // of one answer
    std::vector<uint8_t> bytes(std::min<size_t>(4096, kLength - arrived.size() % kLength));
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t count = ::recvmsg(peer.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count <= 0) return false;
    if (const cmsghdr* const rights = CMSG_FIRSTHDR(&message); rights != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      files.emplace_back(fd);
      EXPECT_EQ(kLength, arrived.size());
    }
    arrived.insert(arrived.end(), bytes.begin(), bytes.begin() + count);
    return true;
  };
  const auto arrive = [&] {
    EXPECT_TRUE(connection.has_unsent());
    while (connection.has_unsent()) {
      ASSERT_TRUE(connection.flush());
      ASSERT_TRUE(receive());
    }
  };
  send(1, nullptr);
  arrive();
  while (receive()) {
  }
  send(2, &file);
  arrive();
  send(3, nullptr);
  arrive();
  while (receive()) {
  }
  std::vector<uint8_t> expected;
  for (const uint8_t byte : std::array<uint8_t, 3>{1, 2, 3})
    expected.insert(expected.end(), kLength, byte);
  EXPECT_EQ(expected, arrived);
  EXPECT_EQ(1u, files.size());
  EXPECT_EQ(before + 1, open_descriptors());
}

// A VMM that waits for its answers, as a program does whose server is another one.
TEST(WaitingVmmTest, MakesItsRequests) {
  Served served;
  Vmm vmm(served.connect());
  std::thread server([&] { served.loop->run(); });
  const base::Fd ram = base::make_memfd("ram", 1 << 20).value();
  const base::Fd event(::eventfd(0, EFD_CLOEXEC));
  EXPECT_EQ(0u, vmm.negotiate());
  EXPECT_EQ(0u, vmm.map(0, 1 << 20, ram.get()));
  EXPECT_EQ(0u, vmm.assign(1, 1, {event.get()}));
  EXPECT_EQ(0u, vmm.write<uint32_t>(1, 4, 1));
  EXPECT_EQ(Model::byte_at(7, 0x34), vmm.read<uint8_t>(7, 0x34));
  EXPECT_EQ(std::nullopt, vmm.read<uint32_t>(2, 0));
  EXPECT_TRUE(vmm.post<uint32_t>(1, 4, 2));
  EXPECT_EQ(0u, vmm.reset());
  EXPECT_EQ(0u, vmm.unmap(0, 1 << 20));
  EXPECT_TRUE(vmm.send(Vmm::bytes_of(Header{1, 4, 8, 0, 0})));  // of 8 bytes, which no message has
  served.loop->stop();
  server.join();
  served.go_on();
  EXPECT_TRUE(served.ended);
  served.server.reset();
  EXPECT_EQ(Vmm::kNoAnswer, vmm.reset());
  std::vector<std::string> calls = served.take_calls();
  for (std::string& call : calls) call.resize(std::min(call.find(' '), call.size()));
  EXPECT_THAT(calls, ElementsAre("map", "set_vector", "write", "read", "write", "reset", "unmap"));
}

// What the server does does not depend on how the bytes arrive.
TEST_F(DeliveryTest, InWhateverPieces) {
  std::vector<std::string> calls;
  Vmm::Bytes answers;
  for (int round = 0; round < 6; ++round) {
    Served other;
    ASSERT_EQ(0u, other.vmm.negotiate());
    Requests requests(5);
    std::mt19937_64 pieces(static_cast<uint64_t>(round));
    Vmm::Bytes answered;
    for (int i = 0; i < 2000; ++i) {
      const auto request = requests.next(other.vmm);
      for (size_t at = 0; at < request.bytes.size();) {
        const size_t left = request.bytes.size() - at;
        const size_t length = round == 0 ? left : std::min<size_t>(left, 1 + pieces() % 24);
        ASSERT_TRUE(other.vmm.send(
            std::span(request.bytes).subspan(at, length),
            at == 0 ? std::vector(request.descriptors, ram.get()) : std::vector<int>{}));
        at += length;
        if (round == 0 || pieces() % 3 == 0) other.go_on();
      }
      for (auto answer = other.vmm.receive(); answer.header.size != 0;
           answer = other.vmm.receive()) {
        Vmm::append(answered, answer.header);
        answered.insert(answered.end(), answer.body.begin(), answer.body.end());
      }
      ASSERT_FALSE(other.ended) << other.reason;
    }
    if (round == 0) {
      calls = other.function.calls;
      answers = answered;
    }
    EXPECT_EQ(calls, other.function.calls);
    EXPECT_EQ(answers, answered);
  }
  EXPECT_GT(calls.size(), 300u);
}

// The model sees to it that the function is called as it was promised.
TEST_F(DeliveryTest, RandomRequests) {
  negotiate();
  Requests requests(11);
  const size_t before = open_descriptors();
  std::set<uint32_t> errors;
  size_t successes = 0;
  for (int i = 0; i < 50'000; ++i) {
    const auto request = requests.next(vmm);
    ASSERT_TRUE(vmm.send(request.bytes, std::vector(request.descriptors, ram.get())));
    const auto answer = vmm.receive();
    ASSERT_FALSE(ended) << reason;
    ASSERT_EQ(request.answered, answer.header.size != 0);
    if (!request.answered) continue;
    ASSERT_EQ(vmm.last_id(), answer.header.id);
    ASSERT_EQ(answer.error() == 0 ? kReplyType : kReplyType | kError, answer.header.flags);
    errors.insert(answer.error());
    if (answer.error() != 0) {
      ASSERT_TRUE(answer.body.empty() && !answer.file.valid());
      continue;
    }
    ++successes;
    if (answer.header.message != static_cast<uint16_t>(Message::kRegionRead)) continue;
    const auto access = answer.as<RegionAccess>();
    ASSERT_EQ(sizeof access + access.count, answer.body.size());
    for (size_t at = 0; at < access.count; ++at)
      ASSERT_EQ(Model::byte_at(access.region, access.offset + at), answer.body[sizeof access + at]);
  }
  EXPECT_EQ((std::set<uint32_t>{0, ENOENT, EEXIST, EINVAL, ENOTSUP}), errors);
  EXPECT_GT(successes, 10'000u);
  for (const char* const call :
       {"read", "write", "map", "unmap", "unmap_all", "set_vector", "reset"})
    EXPECT_GT(function.count(call), 50u) << call;
  EXPECT_EQ(0u, vmm.disable_vectors());
  EXPECT_EQ(before, open_descriptors());
}

}  // namespace
}  // namespace vrdma::pvrdma
