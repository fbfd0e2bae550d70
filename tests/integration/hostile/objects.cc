// Objects and their lifetimes: created without limit, destroyed in the wrong order, used after
// their end.
#include <cstring>
#include <string>

#include "tests/integration/hostile/attack.h"
#include "tests/integration/hostile/client.h"
#include "tests/integration/hostile/looped.h"

namespace vrdma::hostile {

namespace {

using ipc::Call;

// One object of each kind, most of them in use by another.
struct Household {
  explicit Household(Client& of) : client(of) {
    pd = client.alloc_pd();
    channel = client.call(Call::kCreateChannel).reply.create_channel.handle;
    cq = client.create_cq(channel);
    srq = client.create_srq(pd).handle;
    qp = client.create_qp(pd, cq, srq).handle;
    mr = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace).handle;
    ipc::Request request = request_of(Call::kAllocMw);
    request.alloc_mw = {pd, 2};
    mw = client.call(request).reply.alloc_mw.handle;
    request = request_of(Call::kCreateAh);
    request.create_ah.is_global = request.create_ah.port_num = 1;
    ah = client.call(request).reply.handle.handle;
    request = request_of(Call::kOpenXrcd);
    xrcd = client.call(request).reply.handle.handle;
    request = request_of(Call::kCreateSrq);
    request.create_srq = {pd, 64, 1, xrcd, cq};
    const Answer answer = client.call(request);
    expect(answer.came && answer.error == 0, "an XRC SRQ");
    xrc_srq = answer.reply.create_srq.handle;
    expect(channel != 0 && mw != 0 && ah != 0 && xrcd != 0, "an object cannot be made");
  }
  // In an order in which each is free when it is destroyed.
  [[nodiscard]] std::vector<std::pair<Call, uint32_t>> ends() const {
    return {{Call::kDestroyQp, qp},   {Call::kDestroySrq, srq}, {Call::kDestroySrq, xrc_srq},
            {Call::kCloseXrcd, xrcd}, {Call::kDestroyCq, cq},   {Call::kDestroyChannel, channel},
            {Call::kDeallocMw, mw},   {Call::kDeregMr, mr},     {Call::kDestroyAh, ah},
            {Call::kDeallocPd, pd}};
  }
  Client& client;
  uint32_t pd = 0, channel = 0, cq = 0, srq = 0, qp = 0, mr = 0, mw = 0, ah = 0, xrcd = 0,
           xrc_srq = 0;
};

void households(const Target& target) {
  Client client(target.socket);
  client.open();
  for (int i = 0; i < 300; ++i)
    for (const auto& [call, handle] : Household(client).ends())
      expect(client.call(call, handle).error == 0, "an object that is free cannot be destroyed");
}

void destroyed_and_used(const Target& target) {
  Client client(target.socket);
  client.open();
  const Household house(client);
  for (const auto& [call, handle] : house.ends()) {
    expect(client.call(call, handle).error == 0, "an object that is free cannot be destroyed");
    expect(client.call(call, handle).error == EINVAL, "an object is destroyed twice");
  }
  const auto refused = [&](const ipc::Request& made, const char* what) {
    ipc::Request request = made;
    expect(client.call(request).error == EINVAL, std::string(what) + " of what was destroyed");
  };
  ipc::Request request = request_of(Call::kCreateQp);
  request.create_qp = {house.pd, house.cq, house.cq, house.srq, 0, 2, 1, 1, 1, 1, 0, 0, {}};
  refused(request, "a queue pair");
  request = request_of(Call::kCreateCq);
  request.create_cq = {house.channel, 16};
  refused(request, "a completion queue");
  request = request_of(Call::kAllocMw);
  request.alloc_mw = {house.pd, 2};
  refused(request, "a window");
  request = request_of(Call::kReregMr);
  request.rereg_mr = {house.mr, 0, {4096, 4096, 4096, house.pd, 1, 1, 0}};
  refused(request, "a region");
  request = request_of(Call::kModifySrq);
  request.modify_srq = {house.srq, verbs::kSrqLimit, 0, 1};
  refused(request, "a limit");
  request = request_of(Call::kOpenQp);
  request.open_qp = {house.xrcd, 5};
  refused(request, "a target");
}

void destroyed_in_the_wrong_order(const Target& target) {
  Client client(target.socket);
  client.open();
  const Household house(client);
  for (const auto& [call, handle] : {std::pair{Call::kDeallocPd, house.pd},
                                     {Call::kDestroyCq, house.cq},
                                     {Call::kDestroyChannel, house.channel},
                                     {Call::kDestroySrq, house.srq},
                                     {Call::kCloseXrcd, house.xrcd}})
    expect(client.call(call, handle).error == EBUSY, "an object in use is destroyed");
  for (const auto& [call, handle] : house.ends())
    expect(client.call(call, handle).error == 0, "an object that is free cannot be destroyed");
}

// As many of each kind as allowed; the next session can have them all again.
void all_of_each_kind(const Target& target) {
  constexpr int kEnough = 3000;
  for (int round = 0; round < 2; ++round) {
    Client client(target.socket);
    client.open();
    const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
    const auto exhaust = [&](Call call, const auto& fill) {
      int error = 0;
      for (int i = 0; i < kEnough && error == 0; ++i) {
        ipc::Request request = request_of(call);
        fill(&request);
        error = client.call(request).error;
      }
      expect(error == 0 || error == ENOMEM || error == EMFILE, "refused otherwise than by a limit");
    };
    exhaust(Call::kCreateCq, [](ipc::Request* it) { it->create_cq = {0, 16}; });
    exhaust(Call::kCreateSrq, [&](ipc::Request* it) { it->create_srq = {pd, 16, 1, 0, 0}; });
    exhaust(Call::kCreateQp, [&](ipc::Request* it) {
      it->create_qp = {pd, cq, cq, 0, 0, 2, 16, 16, 1, 1, 0, 0, {}};
    });
    exhaust(Call::kRegMr,
            [&](ipc::Request* it) { it->reg_mr = {1u << 20, 1u << 30, 1u << 20, pd, 15, 1, 0}; });
    exhaust(Call::kAllocMw, [&](ipc::Request* it) { it->alloc_mw = {pd, 1}; });
    exhaust(Call::kOpenXrcd, [](ipc::Request*) {});
    exhaust(Call::kCreateAh,
            [](ipc::Request* it) { it->create_ah.is_global = it->create_ah.port_num = 1; });
  }
}

// All transitions, valid and invalid, with random attributes. The state in the daemon's reply is
// that in the block.
void random_transitions(const Target& target) {
  Random random(target.seed);
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  for (const auto type : {verbs::QpType::kRc, verbs::QpType::kUd}) {
    const auto qp = client.create_qp(pd, cq, ipc::kNoObject, type);
    for (int i = 0; i < 1500; ++i) {
      ipc::Request request = request_of(Call::kModifyQp);
      for (size_t at = 0; at < sizeof request.modify_qp; at += 4) {
        const uint32_t value = random() % 2 == 0 ? random() % 8 : random();
        std::memcpy(request.bytes + at, &value, sizeof value);
      }
      request.modify_qp.handle = qp.handle;
      if (random() % 2 == 0) request.modify_qp.mask = verbs::kQpState;
      request.modify_qp.attributes.state = random() % 9;
      if (i % 20 == 0) client.loop(qp, type);
      expect(client.call(request).came, "a transition ends the session");
      const Answer answer = client.call(Call::kQueryQp, qp.handle);
      expect(answer.came && answer.reply.query_qp.attributes.state == client.block(qp)->state,
             "two states of one queue pair");
      if (answer.reply.query_qp.attributes.state != 0)
        (void)client.modify(qp.handle, verbs::QpState::kReset, 0, {});
    }
  }
}

void sizes_of_queues(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd(), cq = client.create_cq();
  const auto srq = client.create_srq(pd);
  for (const uint32_t size : {0u, 1u << 24, 1u << 31, ~0u}) {
    ipc::Request request = request_of(Call::kResizeCq);
    request.resize_cq = {cq, size};
    expect(client.call(request).error == EINVAL, "a completion queue of no size");
    request = request_of(Call::kModifySrq);
    request.modify_srq = {srq.handle, verbs::kSrqMaxWr, size, 0};
    expect(client.call(request).error != 0, "a shared receive queue of no size");
    request.modify_srq = {srq.handle, verbs::kSrqLimit, 0, size};
    expect(size == 0 || client.call(request).error == EINVAL, "a limit beyond the queue");
    request.modify_srq = {srq.handle, ~3u, 1, 1};
    expect(client.call(request).error != 0, "attributes that are none");
  }
}

void handles_of_targets(const Target& target) {
  Client client(target.socket);
  client.open();
  for (uint32_t call = static_cast<uint32_t>(Call::kQueryDevice);
       call <= static_cast<uint32_t>(ipc::kLastCall); ++call)
    for (const uint32_t handle : {ipc::kTargetHandle, ipc::kTargetHandle | 1, ~0u}) {
      if (static_cast<Call>(call) == Call::kGoodbye) continue;
      expect(client.call(static_cast<Call>(call), handle).came, "a handle ends the session");
    }
}

void goodbye_and_more(const Target& target) {
  Client client(target.socket);
  client.open();
  ipc::Request request = request_of(Call::kGoodbye);
  client.send(request);
  for (int i = 0; i < 10; ++i) {
    request = request_of(Call::kAllocPd);
    client.send(request);
  }
  expect(client.ended(), "a session goes on after kGoodbye");
}

// Several requests at a time; the replies are read only afterwards.
void requests_in_advance(const Target& target) {
  for (int round = 0; round < 50; ++round) {
    Client client(target.socket);
    client.open();
    const uint32_t pd = client.alloc_pd();
    const auto mr = client.reg_mr(pd, 1u << 20, 4096, ipc::Way::kInPlace);
    for (const Call call : {Call::kQueryDevice, Call::kDeregMr, Call::kDeregMr, Call::kAllocPd}) {
      ipc::Request request = request_of(call);
      request.handle.handle = mr.handle;
      client.send(request);
    }
    for (int i = 0; i < 4; ++i)
      if (!client.receive(1000).came) break;
  }
}

// Overlapping regions without limit: keys of destroyed regions are reused.
void regions_without_end(const Target& target) {
  Client client(target.socket);
  client.open();
  const uint32_t pd = client.alloc_pd();
  constexpr uint64_t kLength = 1u << 20;
  const std::vector<uint8_t> memory(2 * kLength);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t offset = 4096u * static_cast<uint32_t>(i % 7);
    const auto mr = i % 2 == 0
                        ? client.reg_mr(pd, offset, kLength, ipc::Way::kInPlace)
                        : client.reg_mr(pd, reinterpret_cast<uint64_t>(memory.data()) + offset,
                                        kLength, ipc::Way::kReached);
    if (i % 3 == 0) continue;
    expect(client.call(Call::kDeregMr, mr.handle).error == 0, "kDeregMr");
    expect(client.keys()[ipc::slot_of(mr.key)].key != mr.key, "a key is valid after its end");
  }
}

}  // namespace

std::vector<Attack> object_attacks() {
  return {{"households", households},
          {"destroyed_and_used", destroyed_and_used},
          {"destroyed_in_the_wrong_order", destroyed_in_the_wrong_order},
          {"all_of_each_kind", all_of_each_kind},
          {"random_transitions", random_transitions},
          {"sizes_of_queues", sizes_of_queues},
          {"handles_of_targets", handles_of_targets},
          {"goodbye_and_more", goodbye_and_more},
          {"requests_in_advance", requests_in_advance},
          {"regions_without_end", regions_without_end}};
}

}  // namespace vrdma::hostile
