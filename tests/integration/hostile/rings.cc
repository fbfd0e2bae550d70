// Shared memory: indices, work requests, receives, tokens.
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {

namespace {

using ipc::Call;
using verbs::Opcode;

void send_indices(const Target& target) {
  for (const uint32_t head : {65u, 1000u, 1u << 31, ~0u}) {
    Looped it(target);
    it.client.block(it.qp)->sq_head = head - 1;
    it.client.post(it.qp, it.wqe(Opcode::kRdmaWrite), {it.data()});
    expect(it.client.ended(), "sq_head " + std::to_string(head) + " does not end the session");
  }
  Looped it(target);
  it.client.block(it.qp)->sq_tail = 5;
  it.client.post(it.qp, it.wqe(Opcode::kRdmaWrite), {it.data()});
  expect(it.client.ended(), "a tail beyond the head does not end the session");
}

void work_requests(const Target& target) {
  const std::vector<std::function<void(ipc::SendWqe*)>> spoils{
      [](ipc::SendWqe* wqe) { wqe->opcode = verbs::kOpcodeCount; },
      [](ipc::SendWqe* wqe) { wqe->opcode = 255; },
      [](ipc::SendWqe* wqe) { wqe->num_sge = 5; },
      [](ipc::SendWqe* wqe) { wqe->num_sge = 65535; },
      [](ipc::SendWqe* wqe) {
        wqe->flags |= ipc::kInline;
        wqe->inline_length = 65;
      },
      [](ipc::SendWqe* wqe) {
        wqe->flags |= ipc::kInline;
        wqe->inline_length = ~0u;
      }};
  for (const auto& spoil : spoils) {
    Looped it(target);
    ipc::SendWqe wqe = it.wqe(Opcode::kRdmaWrite);
    spoil(&wqe);
    it.client.post(it.qp, wqe, {it.data()});
    expect(it.client.ended(), "an impossible work request does not end the session");
  }
}

void keys_in_work_requests(const Target& target) {
  const auto status_of = [&](const ipc::SendWqe& wqe, const verbs::Sge& sge) {
    Looped it(target);
    ipc::SendWqe own = wqe;
    if (own.rdma.rkey == 0) own.rdma.rkey = it.mr.key;
    own.rdma.remote_addr += Looped::kAddr;
    verbs::Sge data = sge;
    if (data.lkey == 0) data.lkey = it.mr.key;
    it.client.post_receive(it.qp, {it.data()});
    it.client.post(it.qp, own, {data});
    expect(it.client.executed(it.qp), "a queue stands still");
    return static_cast<verbs::WcStatus>(it.client.last_result(it.qp).status);
  };
  ipc::SendWqe wqe{};
  wqe.num_sge = 1;
  const verbs::Sge good{Looped::kAddr, 8, 0};
  for (uint8_t opcode = 0; opcode < verbs::kOpcodeCount; ++opcode) {
    using verbs::WcStatus;
    wqe.opcode = opcode;
    if (is_local(static_cast<Opcode>(opcode)) ||
        static_cast<Opcode>(opcode) == Opcode::kSendWithInvalidate)
      continue;
    wqe.rdma.rkey = 0;
    wqe.rdma.remote_addr = 0;
    expect(status_of(wqe, good) == WcStatus::kSuccess, "what is lawful fails");
    const bool local = static_cast<Opcode>(opcode) != Opcode::kAtomicWrite;  // its data is inline
    for (const uint32_t lkey : {1u, 0xffu, 0x100u, ~0u, 0xfffff00u})
      expect(!local || status_of(wqe, {Looped::kAddr, 8, lkey}) == WcStatus::kLocalProtectionError,
             "an lkey that is none");
    for (const uint64_t addr : {uint64_t{0}, Looped::kAddr - 1, Looped::kAddr + Looped::kLength - 7,
                                ~uint64_t{0}, ~uint64_t{7}, uint64_t{1} << 47})
      expect(!local || status_of(wqe, {addr, 8, 0}) == WcStatus::kLocalProtectionError,
             "an address outside of the lkey's");
    if (is_send(static_cast<Opcode>(opcode))) continue;
    wqe.rdma.rkey = 0x1234;
    expect(status_of(wqe, good) == WcStatus::kRemoteAccessError, "an rkey that is none");
    wqe.rdma.rkey = 0;
    wqe.rdma.remote_addr = Looped::kLength;
    expect(status_of(wqe, good) == WcStatus::kRemoteAccessError,
           "an address outside of the rkey's");
  }
  // Keys and handles that do not exist, or are of another kind.
  for (const uint32_t none : {0u, 1u, 2u, 0xffffu, 0x12345600u, ~0u}) {
    using verbs::WcStatus;
    wqe = {};
    wqe.num_sge = 1;
    wqe.imm = none;
    wqe.opcode = static_cast<uint8_t>(Opcode::kLocalInvalidate);
    expect(status_of(wqe, good) == WcStatus::kLocalQpOperationError, "a key that is no window's");
    wqe.opcode = static_cast<uint8_t>(Opcode::kSendWithInvalidate);
    expect(status_of(wqe, good) == WcStatus::kRemoteAccessError, "a key that is no window's");
    wqe.opcode = static_cast<uint8_t>(Opcode::kBindWindow);
    wqe.bind = {Looped::kAddr, 8, none, none, none, none};
    expect(status_of(wqe, good) == WcStatus::kWindowBindError, "a window that is none");
  }
}

void receives(const Target& target) {
  for (int what = 0; what < 3; ++what) {
    Looped it(target);
    it.client.post_receive(it.qp, {it.data()});
    auto* wqe = it.client.arena.at<ipc::RecvWqe>(it.qp.rq);
    if (what == 0) it.client.block(it.qp)->rq_head = 65;
    if (what == 1) it.client.block(it.qp)->rq_head = ~0u;
    if (what == 2) wqe->num_sge = ~0u;
    it.client.post(it.qp, it.wqe(Opcode::kSend), {it.data()});
    expect(it.client.ended(), "an impossible receive does not end the session");
  }
}

void shared_slots(const Target& target) {
  for (const uint32_t slot : {0u, 1u << 16, 1u << 31, ~0u}) {
    Looped it(target, true);
    it.client.arena.at<uint32_t>(it.srq.block + sizeof(ipc::SrqBlock))[0] =
        slot != 0 ? slot : it.srq.depth;
    it.client.arena.at<ipc::SrqBlock>(it.srq.block)->head.store(1);
    it.client.post(it.qp, it.wqe(Opcode::kSend), {it.data()});
    expect(it.client.ended(), "an impossible slot does not end the session");
  }
  // Impossible indices and hints: the one posted receive is found nevertheless.
  for (const uint32_t nonsense : {1u << 20, 1u << 31, ~0u}) {
    Looped it(target, true);
    auto* claims = it.client.bells.at<ipc::SrqClaims>(it.srq.claims);
    claims->hint.store(nonsense);
    claims->returned_hint.store(~nonsense);
    claims->words()[0].store(1);
    it.client.arena.at<ipc::SrqBlock>(it.srq.block)->head.store(nonsense / 2 + 1);
    it.client.post(it.qp, it.wqe(Opcode::kSend), {it.data()});
    expect(it.client.executed(it.qp), "a receive behind a wrong hint is not found");
  }
}

// Random changes of the token while a worker executes.
void scribbled_token(const Target& target) {
  Looped it(target);
  std::atomic<bool> stop = false;
  std::thread scribbler([&] {
    Random random(target.seed | 1);
    while (!stop) it.client.block(it.qp)->token.store(static_cast<uint32_t>(random() % 6));
  });
  for (int i = 0; i < 20'000; ++i) {
    if (it.client.block(it.qp)->sq_head - it.client.block(it.qp)->sq_tail >= 64) {
      it.client.arena.at<std::atomic<uint64_t>>(ipc::kKickOffset)[0].fetch_or(1);
      it.client.ring();
      continue;
    }
    it.client.post(it.qp, it.wqe(Opcode::kRdmaWrite), {it.data(4096)});
  }
  stop = true;
  scribbler.join();
  it.client.block(it.qp)->token.store(static_cast<uint32_t>(ipc::Token::kWorker));
  it.client.arena.at<std::atomic<uint64_t>>(ipc::kKickOffset)[0].fetch_or(1);
  it.client.ring();
  expect(it.client.executed(it.qp), "a queue stands still after its token was scribbled on");
  expect(it.client.call(Call::kQueryDevice).came, "a session ends because of its token");
}

// Random writes to everything that a session maps while a worker executes.
void scribbled_everything(const Target& target) {
  Random random(target.seed);
  for (int round = 0; round < 30; ++round) {
    Looped it(target, round % 2 == 1);
    std::atomic<bool> stop = false;
    const uint64_t begin = it.qp.block, end = it.qp.rq + 64 * 80;
    std::thread scribbler([&, seed = random()] {
      Random own(seed | 1);
      while (!stop) {
        uint64_t at = begin + own() % (end - begin) / 4 * 4;
        if (own() % 4 == 0) at = ipc::kKeyOffset + own() % 256;
        if (own() % 4 == 0 && it.srq.block != 0) at = it.srq.block + own() % 1024 / 4 * 4;
        const auto value = static_cast<uint32_t>(own() % 3 == 0 ? own() : own() % 100);
        __atomic_store_n(it.client.arena.at<uint32_t>(at), value, __ATOMIC_RELAXED);
        if (own() % 100 == 0) it.client.ring();
      }
    });
    for (int i = 0; i < 500; ++i)
      it.client.post(it.qp, it.wqe(static_cast<Opcode>(random() % verbs::kOpcodeCount)),
                     {it.data(random() % 5000)});
    stop = true;
    scribbler.join();
    (void)it.client.call(Call::kDestroyQp, it.qp.handle);
  }
}

void random_datagrams(const Target& target) {
  Random random(target.seed);
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto mr = client.reg_mr(pd, 1u << 20, 1u << 20, ipc::Way::kInPlace);
  const Answer gids = client.call(Call::kQueryGids);
  for (int round = 0; round < 40; ++round) {
    const auto qp = client.create_qp(pd, cq, ipc::kNoObject, verbs::QpType::kUd);
    client.loop(qp, verbs::QpType::kUd);
    for (int i = 0; i < 50; ++i) {
      ipc::SendWqe wqe{};
      wqe.opcode = static_cast<uint8_t>(random() % 4 == 0 ? random() % verbs::kOpcodeCount : 2);
      wqe.num_sge = 1;
      std::memcpy(wqe.ud.dgid, gids.reply.gids.gids[0], 16);
      if (random() % 4 == 0) wqe.ud.dgid[random() % 16] ^= 0xff;
      if (random() % 4 == 0) wqe.ud.dgid[0] = 0xff;
      wqe.ud.qpn = random() % 2 == 0 ? qp.qpn : random();
      wqe.ud.qkey = random() % 2 == 0 ? 0 : random();
      wqe.ud.sgid_index = static_cast<uint8_t>(random() % 8 == 0 ? random() : 0);
      client.post_receive(qp, {{1u << 20, static_cast<uint32_t>(random() % 5000), mr.key}});
      client.post(qp, wqe, {{1u << 20, static_cast<uint32_t>(random() % 4300), mr.key}});
    }
    (void)client.executed(qp, 20);  // after an error the client itself must flush the queue
    (void)client.call(Call::kDestroyQp, qp.handle);
  }
  expect(client.call(Call::kQueryDevice).came, "a session ends because of its datagrams");
}

// Guesses any key; only a key of the same domain is valid.
void guessed_keys(const Target& target) {
  Random random(target.seed);
  Looped it(target);
  const uint32_t other = it.client.alloc_pd();
  std::vector<uint32_t> wanted;
  for (int i = 0; i < 50; ++i)
    wanted.push_back(it.client.reg_mr(other, 1u << 22, 4096, ipc::Way::kInPlace).key);
  for (int i = 0; i < 300; ++i) {
    ipc::SendWqe wqe = it.wqe(i % 2 == 0 ? Opcode::kRdmaRead : Opcode::kRdmaWrite);
    wqe.rdma.rkey = i < 50 ? wanted[static_cast<size_t>(i)] : it.mr.key + random() % 20'000 + 1;
    wqe.rdma.remote_addr = 1u << 22;
    it.client.post(it.qp, wqe, {it.data()});
    expect(it.client.executed(it.qp), "a queue stands still");
    expect(it.client.last_result(it.qp).status ==
               static_cast<uint32_t>(verbs::WcStatus::kRemoteAccessError),
           "a guessed key is of use");
    it.again();
  }
}

// Dies repeatedly while its queues are full.
void sudden_deaths(const Target& target) {
  for (int round = 0; round < 15; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      Looped it(target, round % 2 == 0);
      const auto silent = it.client.create_qp(it.pd, it.cq);
      for (int i = 0; i < 60; ++i) {
        it.client.post(it.qp, it.wqe(Opcode::kRdmaWrite), {it.data(Looped::kLength)});
        it.client.post(silent, it.wqe(Opcode::kSend), {it.data(Looped::kLength)});
      }
      ::kill(::getpid(), SIGKILL);
    }
    ::usleep(20'000);
  }
}

}  // namespace

std::vector<Attack> ring_attacks() {
  return {{"send_indices", send_indices},
          {"work_requests", work_requests},
          {"keys_in_work_requests", keys_in_work_requests},
          {"receives", receives},
          {"shared_slots", shared_slots},
          {"scribbled_token", scribbled_token},
          {"scribbled_everything", scribbled_everything},
          {"random_datagrams", random_datagrams},
          {"guessed_keys", guessed_keys},
          {"sudden_deaths", sudden_deaths}};
}

}  // namespace vrdma::hostile
