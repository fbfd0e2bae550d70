//
// fair writes SOCKET QUEUES SECONDS: 1 MiB WRITEs to itself on QUEUES queue pairs, always more than
//   the worker can execute; prints the number of bytes written.
// fair rings SOCKET QUEUES SECONDS: the same, and rings the doorbell continuously.
// fair groups SOCKET MEMBERS SECONDS: 4 KiB datagrams to a group of MEMBERS own queue pairs; prints
//   the number of bytes that its members received.
// fair reach SOCKET SESSIONS SECONDS: WRITEs from and to memory that is not in place, in SESSIONS
//   sessions; prints the number of completed requests.
// fair requests SOCKET SESSIONS SECONDS: consecutive requests in each of SESSIONS sessions; prints
//   the number of replies.
// fair pings SOCKET SECONDS: consecutive 8-byte WRITEs; prints the number of completed ones.
//
// Prints "begins" when the setup is complete.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/hostile/client.h"

namespace {

using namespace vrdma;           // NOLINT: a program of the tests
using namespace vrdma::hostile;  // NOLINT
using std::chrono::steady_clock;

constexpr uint64_t kFrom = 4u << 20, kTo = 6u << 20;  // in the memory arena
constexpr uint32_t kLarge = 1u << 20;

struct Writer {
  explicit Writer(const std::string& socket) : client(std::make_unique<Client>(socket)) {
    client->open();
    pd = client->alloc_pd();
    cq = client->create_cq();
  }
  void add_queue() {
    queues.push_back(client->create_qp(pd, cq));
    client->loop(queues.back());
  }
  // Keeps `depth` requests in each queue; returns the number completed so far.
  uint64_t fill(uint32_t key, uint64_t from, uint64_t to, uint32_t length, uint32_t depth) const {
    uint64_t done = 0;
    for (const auto& qp : queues) {
      auto* block = client->block(qp);
      while (block->sq_head.load() - block->sq_tail.load() < depth) {
        ipc::SendWqe wqe{};
        wqe.opcode = static_cast<uint8_t>(verbs::Opcode::kRdmaWrite);
        wqe.num_sge = 1;
        wqe.rdma.remote_addr = to;
        wqe.rdma.rkey = key;
        client->post(qp, wqe, {{from, length, key}});
      }
      done += block->sq_tail.load();
    }
    return done;
  }
  std::unique_ptr<Client> client;
  uint32_t pd = 0, cq = 0;
  std::vector<ipc::CreateQpReply> queues;
};

// Calls `work` repeatedly.
template <class Work>
void last(int seconds, useconds_t pause, Work work) {
  std::cout << "begins" << std::endl;
  const auto end = steady_clock::now() + std::chrono::seconds(seconds);
  while (steady_clock::now() < end) {
    work();
    if (pause > 0) ::usleep(pause);
  }
}

void writes(const std::string& socket, int queues, int seconds, bool rings) {
  Writer writer(socket);
  const auto mr = writer.client->reg_mr(writer.pd, kFrom, 4u << 20, ipc::Way::kInPlace);
  for (int i = 0; i < queues; ++i) writer.add_queue();
  uint64_t done = 0;
  last(seconds, rings ? 0 : 2000, [&] {
    done = writer.fill(mr.key, kFrom, kTo, kLarge, 64);
    for (int i = 0; rings && i < 100; ++i) writer.client->ring();
  });
  std::cout << done * kLarge << std::endl;
}

void groups(const std::string& socket, int members, int seconds) {
  constexpr uint32_t kBytes = 4096, kGrh = 40, kDepth = 64;
  Writer all(socket);
  Client& client = *all.client;
  const auto mr = client.reg_mr(all.pd, kFrom, 4u << 20, ipc::Way::kInPlace);
  uint8_t group[16] = {0xff, 0x0e};
  const pid_t own = ::getpid();  // so that groups of other processes differ
  std::memcpy(group + 8, &own, sizeof own);
  for (int i = 0; i <= members; ++i) {
    all.queues.push_back(client.create_qp(all.pd, all.cq, ipc::kNoObject, verbs::QpType::kUd));
    const auto& qp = all.queues.back();
    verbs::QpAttributes attributes{};
    attributes.port_num = 1;
    client.to_rts(qp, verbs::QpType::kUd, attributes);
    if (i == 0) continue;
    ipc::Request attach = request_of(ipc::Call::kAttachMcast);
    attach.mcast.qp = qp.handle;
    std::memcpy(attach.mcast.gid, group, sizeof group);
    expect(client.call(attach).error == 0, "kAttachMcast");
    for (uint32_t k = 0; k < kDepth; ++k) client.post_receive(qp, {{kTo, kBytes + kGrh, mr.key}});
  }
  uint64_t received = 0;
  std::vector<uint32_t> seen(all.queues.size());
  last(seconds, 200, [&] {
    const auto* block = client.block(all.queues[0]);
    while (block->sq_head.load() - block->sq_tail.load() < kDepth) {
      ipc::SendWqe wqe{};
      wqe.opcode = static_cast<uint8_t>(verbs::Opcode::kSend);
      wqe.num_sge = 1;
      std::memcpy(wqe.ud.dgid, group, sizeof group);
      wqe.ud.qpn = 0xffffff;
      client.post(all.queues[0], wqe, {{kFrom, kBytes, mr.key}});
    }
    for (size_t i = 1; i < all.queues.size(); ++i) {  // the requests are in the rings already
      const auto& qp = all.queues[i];
      const uint32_t head = client.arena.at<ipc::RecvRing>(qp.inbox)->head.load();
      received += head - seen[i];
      seen[i] = head;
      client.block(qp)->rq_head.store(head + kDepth, std::memory_order_release);
    }
  });
  expect(received > 0, "nobody of the group receives anything");
  std::cout << received * kBytes << std::endl;
}

void reach(const std::string& socket, int sessions, int seconds) {
  static std::vector<char> memory(4u << 20, 'x');
  const auto at = reinterpret_cast<uint64_t>(memory.data());
  std::vector<std::pair<Writer, uint32_t>> all;
  for (int i = 0; i < sessions; ++i) {
    Writer writer(socket);
    const auto mr = writer.client->reg_mr(writer.pd, at, memory.size(), ipc::Way::kReached);
    writer.add_queue();
    all.emplace_back(std::move(writer), mr.key);
  }
  uint64_t done = 0;
  last(seconds, 5000, [&] {
    done = 0;
    for (const auto& [writer, key] : all)
      done += writer.fill(key, at, at + (2u << 20), 2u << 20, 8);
  });
  std::cout << done << std::endl;
}

void requests(const std::string& socket, int sessions, int seconds) {
  std::vector<std::unique_ptr<Client>> all;
  for (int i = 0; i < sessions; ++i) {
    all.push_back(std::make_unique<Client>(socket));
    all.back()->open();
  }
  uint64_t answered = 0;
  last(seconds, 0, [&] {
    for (const auto& client : all) {
      ipc::Request request = request_of(ipc::Call::kQueryDevice);
      client->send(request);
    }
    for (const auto& client : all) answered += client->receive().came ? 1 : 0;
  });
  std::cout << answered << std::endl;
}

void pings(const std::string& socket, int seconds) {
  Writer writer(socket);
  const auto mr = writer.client->reg_mr(writer.pd, kFrom, 4096, ipc::Way::kInPlace);
  writer.add_queue();
  const auto* block = writer.client->block(writer.queues[0]);
  uint64_t done = 0;
  last(seconds, 500, [&] {
    (void)writer.fill(mr.key, kFrom, kFrom + 64, 8, 1);
    for (int looks = 0; block->sq_tail.load() != block->sq_head.load(); ++looks)
      if (looks > 1000) ::usleep(50);
    ++done;
  });
  std::cout << done << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 3 ? argv[1] : "";
  const int first = argc > 3 ? std::atoi(argv[3]) : 0, second = argc > 4 ? std::atoi(argv[4]) : 0;
  if ((what == "writes" || what == "rings") && argc == 5)
    writes(argv[2], first, second, what == "rings");
  else if (what == "groups" && argc == 5)
    groups(argv[2], first, second);
  else if (what == "reach" && argc == 5)
    reach(argv[2], first, second);
  else if (what == "requests" && argc == 5)
    requests(argv[2], first, second);
  else if (what == "pings" && argc == 4)
    pings(argv[2], first);
  else
    std::cerr << "usage: see the head of fair.cc\n";
  return what.empty() ? 2 : 0;
}
