// What the broker takes from the heap: nothing to read a request and to send its answer, and
// nothing that stays when a process has been inspected. This program counts what operator new
// gives.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <new>

#include "core/ipc/socket.h"
#include "vrdmad/broker/broker_serve.h"
#include "vrdmad/broker/local_broker.h"

namespace {

std::atomic<uint64_t> allocations{0};  // of all threads
std::atomic<int64_t> held{0};          // bytes
std::atomic<int64_t> most{0};          // that were held at a time

void* allocate(size_t size) {
  void* const block = std::malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  ++allocations;
  const int64_t now = held += static_cast<int64_t>(::malloc_usable_size(block));
  for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
  }
  return block;
}

void release(void* block) {
  if (block != nullptr) held -= static_cast<int64_t>(::malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(size_t size) { return allocate(size); }
void* operator new[](size_t size) { return allocate(size); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, size_t) noexcept { release(block); }
void operator delete[](void* block, size_t) noexcept { release(block); }

namespace vrdma::vrdmad {
namespace {

using broker::Answer;
using broker::Beside;
using broker::Request;

struct BrokerHeap : testing::Test {
  // What serve_request() allocates.
  uint64_t allocated(const Request& request, const broker::AnswerTo& answer_to) {
    EXPECT_TRUE(ipc::send_message(client.get(), &request, sizeof request));
    const uint64_t before = allocations;
    EXPECT_TRUE(broker::serve_request(channel, answer_to));
    const uint64_t after = allocations;
    beside.clear();
    EXPECT_TRUE(ipc::receive_message(client.get(), &answer, sizeof answer, &beside));
    return after - before;
  }

  base::Fd client, channel;
  Answer answer;
  std::vector<base::Fd> beside;
  std::shared_ptr<LocalBroker> local = std::make_shared<LocalBroker>();

  BrokerHeap() { std::tie(client, channel) = ipc::make_socket_pair().value(); }
};

TEST_F(BrokerHeap, IsNotUsedToReadARequestAndToAnswerIt) {
  const broker::AnswerTo give = [](const Request& request, Beside* with) {
    for (base::Fd& fd : *with) fd = base::Fd(::dup(STDERR_FILENO));
    Answer given;
    given.number = request.number;
    return given;
  };
  Request request;
  request.number = 7;
  EXPECT_EQ(allocated(request, give), 0u);
  EXPECT_EQ(answer.number, 7u);
  EXPECT_EQ(beside.size(), std::tuple_size_v<Beside>);
}

TEST_F(BrokerHeap, IsNotUsedToForgetAnEntry) {
  const broker::AnswerTo serve = [this](const Request& request, Beside* with) {
    return local->serve(request, with);
  };
  auto [program, daemons] = ipc::make_socket_pair().value();
  Request request;
  request.op = Request::Op::kForget;
  {
    const auto arrival = local->admit(std::move(daemons));
    ASSERT_TRUE(arrival);
    request.entry = arrival->caller->entry();
    EXPECT_EQ(allocated(request, serve), 0u);
  }
  EXPECT_EQ(allocated(request, serve), 0u) << "one that is not there";
  request.op = Request::Op::kCheck;
  EXPECT_GT(allocated(request, serve), 0u) << "nothing is counted";
}

TEST_F(BrokerHeap, KeepsNothingOfWhatWasInspected) {
  auto [program, daemons] = ipc::make_socket_pair().value();
  const auto arrival = local->admit(std::move(daemons));
  ASSERT_TRUE(arrival);
  const auto look = [&] { EXPECT_TRUE(arrival->caller->open(false)); };
  for (int i = 0; i < 10; ++i) look();
  const int64_t before = held;
  most = before;
  for (int i = 0; i < 100; ++i) look();
  EXPECT_LE(held, before + 16 * 1024) << "it grows with each request";
  std::cout << "bytes held to inspect a process: " << most - before << "\n";
  EXPECT_LT(most - before, 64 * 1024);
}

}  // namespace
}  // namespace vrdma::vrdmad
