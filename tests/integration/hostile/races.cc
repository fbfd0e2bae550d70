// Concurrent changes: memory that is unmapped, objects that end, words that change under the
// worker.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {

namespace {

using base::Fd;
using ipc::Call;
using verbs::Opcode;
using verbs::QpState;

constexpr auto kWhile = std::chrono::milliseconds(300);

// Runs `other` repeatedly on a separate thread while `it` runs here.
void beside(const std::function<void()>& other, const std::function<void()>& it) {
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    while (!stop) other();
  });
  const auto end = std::chrono::steady_clock::now() + kWhile;
  while (std::chrono::steady_clock::now() < end) it();
  stop = true;
  thread.join();
}

// Page-aligned memory that the daemon reaches by /proc/PID/mem.
struct Reached {
  static constexpr size_t kSize = 1u << 20;
  explicit Reached(Looped& it) : mr(it.client.reg_mr(it.pd, addr(), kSize, ipc::Way::kReached)) {}
  [[nodiscard]] uint64_t addr() const { return reinterpret_cast<uint64_t>(at); }
  void* at = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ipc::RegMrReply mr;
};

// Posts work on `reached` while `change` spoils it; the session must survive.
void work_on(Looped& it, const Reached& reached, Opcode opcode,
             const std::function<void()>& change) {
  beside(change, [&] {
    ipc::SendWqe wqe = it.wqe(opcode);
    wqe.rdma.remote_addr = reached.addr() + 4096;
    wqe.rdma.rkey = reached.mr.key;
    const bool atomic = verbs::is_atomic(opcode);
    it.client.post(it.qp, wqe, {{Looped::kAddr, atomic ? 8 : 65536u, it.mr.key}});
    expect(it.client.executed(it.qp, 20'000), "work on memory that changes stands still");
    if (it.client.last_result(it.qp).status != 0) it.again();
  });
  it.still_works();
}

void remap(void* at, size_t size) {
  ::munmap(at, size);
  (void)::mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void unmapped_under_the_worker(const Target& target) {
  Looped it(target);
  const Reached reached(it);
  for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead})
    work_on(it, reached, opcode, [&] { remap(reached.at, Reached::kSize); });
}

void protected_under_the_worker(const Target& target) {
  Looped it(target);
  const Reached reached(it);
  for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead})
    work_on(it, reached, opcode, [&] {
      ::mprotect(reached.at, Reached::kSize, PROT_NONE);
      ::mprotect(reached.at, Reached::kSize, PROT_READ);
      ::mprotect(reached.at, Reached::kSize, PROT_READ | PROT_WRITE);
    });
}

void atomics_on_what_goes(const Target& target) {
  Looped it(target);
  const Reached reached(it);
  for (const Opcode opcode : {Opcode::kFetchAdd, Opcode::kCompareSwap})
    work_on(it, reached, opcode, [&] { remap(reached.at, Reached::kSize); });
}

// An access beyond the end of a file raises SIGBUS.
void a_file_cut_off_under_the_worker(const Target& target) {
  Looped it(target);
  const Reached reached(it);
  const Fd file(static_cast<int>(::memfd_create("cut", MFD_CLOEXEC)));
  expect(::ftruncate(file.get(), Reached::kSize) == 0, "ftruncate");
  expect(::mmap(reached.at, Reached::kSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                file.get(), 0) == reached.at,
         "mmap");
  for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead})
    work_on(it, reached, opcode, [&] {
      (void)::ftruncate(file.get(), 0);
      (void)::ftruncate(file.get(), Reached::kSize);
    });
}

// The worker maps the memory arena; it cannot be truncated, but its pages can be punched out.
void holes_under_the_worker(const Target& target) {
  Looped it(target);
  void* const home =
      ::mmap(reinterpret_cast<void*>(Looped::kAddr), Looped::kLength, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED_NOREPLACE, it.client.memory_fd.get(), Looped::kAddr);
  expect(home == reinterpret_cast<void*>(Looped::kAddr), "map memory where it belongs");
  beside(
      [&] {
        ::fallocate(it.client.memory_fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    Looped::kAddr, Looped::kLength);
      },
      [&] {
        it.write(Looped::kLength);
        expect(it.client.executed(it.qp, 20'000), "work on a file of holes stands still");
        if (it.client.last_result(it.qp).status != 0) it.again();
      });
  it.still_works();
  ::munmap(home, Looped::kLength);
}

void queues_of_holes_under_the_worker(const Target& target) {
  Looped it(target);
  beside(
      [&] {
        ::fallocate(it.client.arena_fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(it.qp.block / 4096 * 4096), 1u << 20);
      },
      [&] {
        it.client.post(it.qp, it.wqe(Opcode::kSend), {it.data()});
        it.client.post_receive(it.qp, {it.data()});
      });
  Looped(target).still_works();
}

// Keys are registered and deregistered while they are used: each message finds them or does not.
void keys_that_come_and_go(const Target& target) {
  Looped it(target);
  std::atomic<uint32_t> key = it.mr.key;
  beside(
      [&] {
        key = key + 1 + static_cast<uint32_t>(key % 3);
        ::usleep(10);
      },
      [&] {
        const auto mr = it.client.reg_mr(it.pd, 1u << 22, 4096, ipc::Way::kInPlace);
        it.write(4096, 1u << 22, mr.key);
        it.write(4096, 1u << 22, key);
        expect(it.client.call(Call::kDeregMr, mr.handle).error == 0, "kDeregMr");
        expect(it.client.settled(it.qp), "a queue stands still");
        it.again();
      });
  it.still_works();
}

// A region that changes each time the worker reads it.
void regions_that_move(const Target& target) {
  Looped it(target);
  const auto mr = it.client.reg_mr(it.pd, 1u << 22, 1u << 20, ipc::Way::kInPlace);
  for (int i = 0; i < 400; ++i) {
    it.write(1u << 20, 1u << 22, mr.key);
    ipc::Request request = request_of(Call::kReregMr);
    const uint64_t to = (1ull << 22) + 4096ull * static_cast<uint64_t>(i % 100);
    request.rereg_mr = {mr.handle, 0, {to, 1u << 20, 1u << 22, it.pd, 15, 1, 0}};
    expect(it.client.call(request).error == 0, "kReregMr");
    if (it.client.block(it.qp)->state == static_cast<uint32_t>(QpState::kErr)) it.again();
  }
  it.still_works();
}

void windows_that_open_and_close(const Target& target) {
  Looped it(target);
  ipc::Request request = request_of(Call::kRegMr);
  request.reg_mr = {1u << 22, 1u << 20, 1u << 22, it.pd, 31, 1, 0};
  const auto mr = it.client.call(request).reply.reg_mr;
  request = request_of(Call::kAllocMw);
  request.alloc_mw = {it.pd, 1};
  const auto mw = it.client.call(request).reply.alloc_mw;
  for (uint32_t i = 0; i < 300; ++i) {
    ipc::SendWqe bind{};
    bind.opcode = static_cast<uint8_t>(Opcode::kBindWindow);
    bind.bind = {1u << 22,
                 i % 3 == 0 ? 0u : 65536u,
                 i % 3 == 0 ? 0 : mr.handle,
                 i % 3 == 0 ? 0u : 2u,
                 mw.handle,
                 (mw.key & ~0xffu) | ((mw.key + i) & 0xff)};
    it.client.post(it.qp, bind, {});
    it.write(65536, 1u << 22, (mw.key & ~0xffu) | ((mw.key + i) & 0xff));
    expect(it.client.executed(it.qp), "a queue stands still");
    if (it.client.last_result(it.qp).status != 0)
      it.again();
    else
      expect(it.client.call(Call::kDeregMr, mr.handle).error == EBUSY, "a window loses its region");
  }
  (void)it.client.call(Call::kDeallocMw, mw.handle);
  it.still_works();
}

void destroyed_while_it_runs(const Target& target) {
  Looped it(target);
  for (int round = 0; round < 60; ++round) {
    const auto mr = it.client.reg_mr(it.pd, 1u << 24, 1u << 20, ipc::Way::kInPlace);
    const auto cq = it.client.create_cq();
    const auto qp = it.client.create_qp(it.pd, cq);
    it.client.loop(qp);
    ipc::SendWqe wqe = it.wqe(Opcode::kRdmaWrite);
    wqe.rdma.remote_addr = 1u << 24;
    wqe.rdma.rkey = mr.key;
    for (int i = 0; i < 30; ++i) it.client.post(qp, wqe, {it.data(Looped::kLength)});
    if (round % 3 == 0) (void)it.client.call(Call::kDeregMr, mr.handle);
    if (round % 3 == 1) (void)it.client.modify(qp.handle, QpState::kErr, 0, {});
    expect(it.client.call(Call::kDestroyQp, qp.handle).error == 0, "kDestroyQp");
    expect(it.client.call(Call::kDestroyCq, cq).error == 0, "kDestroyCq");
    if (round % 3 != 0) (void)it.client.call(Call::kDeregMr, mr.handle);
  }
  it.still_works();
}

void reset_while_it_runs(const Target& target) {
  Looped it(target);
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 20; ++i) it.write(Looped::kLength);
    (void)it.client.modify(it.qp.handle, round % 2 == 0 ? QpState::kErr : QpState::kReset, 0, {});
    it.again();
  }
  it.still_works();
}

void receives_taken_back(const Target& target) {
  for (int round = 0; round < 20; ++round) {
    Looped it(target);
    for (int i = 0; i < 60; ++i) it.client.post_receive(it.qp, {it.data()});
    for (int i = 0; i < 30; ++i) it.client.post(it.qp, it.wqe(Opcode::kSend), {it.data()});
    it.client.block(it.qp)->rq_head.fetch_sub(static_cast<uint32_t>(round * 3));
    (void)it.client.executed(it.qp, 50);
  }
}

void claims_of_everything(const Target& target) {
  Random random(target.seed);
  for (int round = 0; round < 10; ++round) {
    Looped it(target, true);
    auto* claims = it.client.bells.at<ipc::SrqClaims>(it.srq.claims);
    for (int i = 0; i < 200; ++i) {
      auto& word = claims->words()[random() % it.srq.depth];
      switch (random() % 4) {
        case 0:
          word = ipc::kClaimedByWorker;
          break;
        case 1:
          word = ipc::claimed_by(random() % 100, random());
          break;
        case 2:
          word = uint64_t{random()} << 32 | random();
          break;
        default:
          word = random();
      }
      it.client.arena.at<uint32_t>(it.srq.block + sizeof(ipc::SrqBlock))[i % 64] =
          random() % it.srq.depth;
      it.client.arena.at<ipc::SrqBlock>(it.srq.block)->head.fetch_add(1);
      it.client.block(it.qp)->claiming = random();
      if (i % 8 == 0) it.client.post(it.qp, it.wqe(Opcode::kSend), {it.data()});
    }
    (void)it.client.executed(it.qp, 20);
  }
}

// Overwrites at once what the daemon writes.
void answers_rewritten(const Target& target) {
  Random random(target.seed);
  for (int round = 0; round < 10; ++round) {
    Looped it(target);
    auto* inbox = it.client.arena.at<ipc::RecvRing>(it.qp.inbox);
    auto* results = it.client.arena.at<ipc::SendResult>(it.qp.results);
    ipc::QpBlock* block = it.client.block(it.qp);
    for (int i = 0; i < 60; ++i) {
      it.client.post_receive(it.qp, {it.data()});
      it.client.post(it.qp, it.wqe(Opcode::kSend), {it.data()});
      inbox->head = random();
      inbox->entries()[i].number = random();
      results[i].status = random();
      block->state = random() % 9;
      block->access = random();
      block->link = random() % 4;
      block->inbox_direct = random() % 2;
      block->blocked = random() % 2;
      block->busy = random();
    }
    (void)it.client.executed(it.qp, 50);
    (void)it.client.call(Call::kDestroyQp, it.qp.handle);
  }
}

void kicks_for_nobody(const Target& target) {
  Looped it(target);
  auto* kicks = it.client.arena.at<std::atomic<uint64_t>>(ipc::kKickOffset);
  beside(
      [&] {
        for (uint32_t word = 0; word < ipc::kMaxQpSlots / 64; ++word) kicks[word].store(~0ull);
        it.client.ring();
      },
      [&] {
        const auto qp = it.client.create_qp(it.pd, it.cq);
        (void)it.client.call(Call::kDestroyQp, qp.handle);
      });
  it.still_works();
}

// A second reader of the doorbell's counter: only this session loses wake-ups.
void swallowed_doorbells(const Target& target) {
  Looped it(target);
  ::fcntl(it.client.doorbell.get(), F_SETFL, O_NONBLOCK);
  beside(
      [&] {
        eventfd_t value = 0;
        ::eventfd_read(it.client.doorbell.get(), &value);
      },
      [&] { it.write(64); });
  it.client.ring();
  it.client.arena.at<std::atomic<uint64_t>>(ipc::kKickOffset)[it.qp.slot / 64] = ~0ull;
  it.client.ring();
  expect(it.client.executed(it.qp), "a queue stands still");
}

// Sixty senders without a receive, each told to retry at once.
void senders_without_receives(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto srq = client.create_srq(pd);
  const auto mr = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
  for (int i = 0; i < 60; ++i) {
    const auto qp = client.create_qp(pd, cq, srq.handle);
    client.loop(qp);
    ipc::SendWqe wqe{};
    wqe.opcode = static_cast<uint8_t>(Opcode::kSend);
    wqe.num_sge = 1;
    for (int k = 0; k < 60; ++k) client.post(qp, wqe, {{1u << 20, 64, mr.key}});
  }
  auto* head = &client.arena.at<ipc::SrqBlock>(srq.block)->head;
  for (int i = 0; i < 200; ++i) {
    head->fetch_add(1);  // claims a receive that was not posted
    client.ring();
    ::usleep(2000);
  }
}

// As many requests as possible at once: other sessions get their turn.
void as_much_as_can_be(const Target& target) {
  Looped it(target);
  std::vector<ipc::CreateQpReply> qps;
  for (int i = 0; i < 30; ++i) {
    qps.push_back(it.client.create_qp(it.pd, it.cq));
    it.client.loop(qps.back());
    for (int k = 0; k < 60; ++k)
      it.client.post(qps.back(), it.wqe(k % 2 == 0 ? Opcode::kRdmaWrite : Opcode::kRdmaRead),
                     {it.data(Looped::kLength)});
  }
  for (const auto& qp : qps)
    expect(it.client.executed(qp, 30'000), "one of many queues stands still");
}

// Lengths whose sum exceeds the longest message.
void lengths_that_add_up(const Target& target) {
  Looped it(target);
  const auto all = it.client.reg_mr(it.pd, 0, 1ull << 33, ipc::Way::kInPlace);
  for (const uint32_t length : {1u << 31, (1u << 31) + 1, ~0u, 1u << 30}) {
    for (const Opcode opcode : {Opcode::kRdmaWrite, Opcode::kRdmaRead, Opcode::kSend,
                                Opcode::kFetchAdd, Opcode::kAtomicWrite}) {
      ipc::SendWqe wqe = it.wqe(opcode);
      wqe.num_sge = 4;
      wqe.rdma.remote_addr = ~0ull - 4096;
      it.client.post_receive(it.qp, {{0, length, all.key}, {0, length, all.key}});
      const verbs::Sge sge{1u << 20, length, all.key};
      it.client.post(it.qp, wqe, {sge, sge, sge, sge});
      expect(it.client.executed(it.qp, 20'000), "a message of no length stands still");
      expect(it.client.last_result(it.qp).status != 0, "a message is longer than one may be");
      it.again();
    }
  }
  it.still_works();
}

}  // namespace

std::vector<Attack> race_attacks() {
  return {{"unmapped_under_the_worker", unmapped_under_the_worker},
          {"protected_under_the_worker", protected_under_the_worker},
          {"atomics_on_what_goes", atomics_on_what_goes},
          {"a_file_cut_off_under_the_worker", a_file_cut_off_under_the_worker},
          {"holes_under_the_worker", holes_under_the_worker},
          {"queues_of_holes_under_the_worker", queues_of_holes_under_the_worker},
          {"keys_that_come_and_go", keys_that_come_and_go},
          {"regions_that_move", regions_that_move},
          {"windows_that_open_and_close", windows_that_open_and_close},
          {"destroyed_while_it_runs", destroyed_while_it_runs},
          {"reset_while_it_runs", reset_while_it_runs},
          {"receives_taken_back", receives_taken_back},
          {"claims_of_everything", claims_of_everything},
          {"answers_rewritten", answers_rewritten},
          {"kicks_for_nobody", kicks_for_nobody},
          {"swallowed_doorbells", swallowed_doorbells},
          {"senders_without_receives", senders_without_receives},
          {"as_much_as_can_be", as_much_as_can_be},
          {"lengths_that_add_up", lengths_that_add_up}};
}

}  // namespace vrdma::hostile
