// rdma_cm ids of programs in two namespaces, and a network between them.
#pragma once

#include "qp1mux/cm_id.h"
#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {

constexpr uint64_t kNetnsA = 1, kNetnsB = 2;

// A program with one id, and the ids of requests that it receives.
struct Program : CmIdHandler {
  std::unique_ptr<CmId> id;
  std::vector<std::unique_ptr<CmId>> requests;
  std::vector<CmEventType> events;
  int status = 0;
  ConnParam param;
  std::vector<uint8_t> data;
  verbs::Gid group;
  uint32_t token = 0;
  bool take = true;

  void on_event(CmId&, CmEvent& event) override {
    events.push_back(event.type);
    status = event.status;
    group = event.group;
    token = event.token;
    param = event.param;
    data.assign(param.private_data.begin(), param.private_data.end());
    if (event.request && take) {
      event.request->set_handler(this);
      requests.push_back(std::move(event.request));
    }
  }
  [[nodiscard]] CmId& last() { return *requests.back(); }
};

struct Ids : TwoHosts, Routes {
  PortTable ports;
  CmHost host{ports, *this};
  Program one, two;
  std::vector<Endpoint*> of_b{&b};

  base::Result<Found> find(uint64_t netns, const verbs::Gid& local,
                           const verbs::Gid& remote) override {
    if (remote == gid("10.9.9.9")) return base::fail(EHOSTUNREACH, "no route");
    Route route;
    route.endpoint = netns == kNetnsA ? &a : &b;
    route.local = !local.is_unspecified() ? local : netns == kNetnsA ? gid_a : gid_b;
    return Found{route, !far};
  }
  // Looks for peers that are `far`, and answers when the test does.
  std::shared_ptr<void> look_up(const Route& route, const verbs::Gid& remote,
                                Answer answer) override {
    asked.push_back({route, remote, answer});
    if (answers_at_once) answer(route);
    return std::shared_ptr<void>(nullptr, [this](void*) { ++ended; });
  }
  struct Asked {
    Route route;
    verbs::Gid remote;
    Answer answer;
  };
  bool far = false, answers_at_once = false;
  std::vector<Asked> asked;
  int ended = 0;
  base::Result<Endpoint*> owner(uint64_t netns, const verbs::Gid& local) override {
    Endpoint* endpoint = netns == kNetnsA ? &a : &b;
    if (!endpoint->owns(local)) return base::fail(EADDRNOTAVAIL, "no such address");
    return endpoint;
  }
  std::vector<Endpoint*> all(uint64_t netns) override {
    return netns == kNetnsA ? std::vector{&a} : of_b;
  }

  base::Result<std::shared_ptr<void>> charge(const Endpoint&) override {
    if (ids_left == 0) return base::fail(ENOMEM, "limit reached");
    --ids_left;
    return std::shared_ptr<void>(nullptr, [this](void*) { ++ids_left; });
  }
  int ids_left = 100;

  CmId& make(Program& program, uint64_t netns, CmService service = CmService::kRc) {
    program.id = std::make_unique<CmId>(
        host, netns, service == CmService::kUd ? wire::PortSpace::kUdp : wire::PortSpace::kTcp,
        service, netns == kNetnsA ? 0xaaaaaa : 0xbbbbbb, &program);
    return *program.id;
  }
  void serve(CmService service = CmService::kRc, const char* at = "0.0.0.0") {
    CmId& id = make(two, kNetnsB, service);
    ASSERT_TRUE(id.bind({gid(at), 7471}));
    ASSERT_TRUE(id.listen(16));
  }
  ConnParam with(uint32_t qpn, PrivateData data = {}) {
    ConnParam param;
    param.qpn = qpn;
    param.responder_resources = 3;
    param.initiator_depth = 5;
    param.private_data = data;
    return param;
  }
  void call(CmService service = CmService::kRc, PrivateData data = {}) {
    CmId& id = make(one, kNetnsA, service);
    ASSERT_TRUE(id.resolve_addr(std::nullopt, {gid_b, 7471}));
    ASSERT_TRUE(id.resolve_route());
    ASSERT_TRUE(id.connect(with(0x11, data)));
    rig.run();
  }
  void establish_ids() {
    serve();
    call();
    ASSERT_TRUE(two.last().accept(with(0x22)));
    rig.run();
    ASSERT_TRUE(one.id->confirm());
    rig.run();
  }
};

}  // namespace vrdma::qp1mux
