// Hosts, each with a Mux, on a simulated network with a simulated clock.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/wire/rdma_cm.h"
#include "qp1mux/mux.h"

namespace vrdma::qp1mux {

using std::chrono::milliseconds;
using wire::CmAttribute;
using wire::RejectReason;

inline verbs::Gid gid(const std::string& text) {
  verbs::Gid value;
  const std::string full = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  EXPECT_EQ(::inet_pton(AF_INET6, full.c_str(), value.bytes.data()), 1);
  return value;
}

// A Packet that owns its data.
struct Letter {
  std::string fabric;
  verbs::Gid source, destination;
  RoceVersion roce;
  wire::Mad mad;
  bool from_network = false;

  explicit Letter(const Packet& packet)
      : fabric(packet.fabric),
        source(packet.source),
        destination(packet.destination),
        roce(packet.roce),
        mad(packet.mad) {}
  [[nodiscard]] Packet packet() const {
    return {fabric, source, destination, roce, 0, 64, 0, mad, from_network};
  }
  [[nodiscard]] CmAttribute attribute() const { return wire::cm_attribute(mad.header).value(); }
};

class Rig;

struct Host final : Clock {
  Rig& rig;
  std::optional<base::TimePoint> wake;
  Mux mux;

  Host(Rig& rig_of, uint64_t seed, base::Duration patience);
  [[nodiscard]] base::TimePoint now() const override;
  void wake_at(base::TimePoint when) override { wake = when; }
};

class Rig : public Wire {
 public:
  // For each MAD sent: the delays after which it arrives (none: lost, two: twice).
  using Fate = std::function<std::vector<base::Duration>(const Letter&)>;

  base::TimePoint time{std::chrono::hours(1)};
  std::vector<Letter> letters;  // all that was sent
  Fate fate = [](const Letter&) { return std::vector<base::Duration>{{}}; };

  Host& host(base::Duration patience = {}) {
    return *hosts_.emplace_back(std::make_unique<Host>(*this, hosts_.size() + 1, patience));
  }

  void send(const Packet& packet) override {
    letters.emplace_back(packet);
    for (const auto after : fate(letters.back())) mail_.emplace(time + after, letters.back());
  }
  void inject(const Letter& letter) {
    for (const auto& host : hosts_)
      if (host->mux.are_near(letter.fabric, letter.destination, letter.destination))
        host->mux.receive(letter.packet());
  }

  // Processes everything that happens within `span`.
  void run(base::Duration span = {}) {
    const base::TimePoint end = time + span;
    for (;;) {
      Host* next = nullptr;
      for (const auto& host : hosts_)
        if (host->wake && (next == nullptr || *host->wake < *next->wake)) next = host.get();
      if (!mail_.empty() && mail_.begin()->first <= end &&
          (next == nullptr || mail_.begin()->first <= *next->wake)) {
        time = std::max(time, mail_.begin()->first);
        const Letter letter = mail_.begin()->second;
        mail_.erase(mail_.begin());
        inject(letter);
      } else if (next != nullptr && *next->wake <= end) {
        time = std::max(time, *next->wake);
        next->wake.reset();
        next->mux.advance();
      } else {
        time = end;
        return;
      }
    }
  }

  [[nodiscard]] size_t sent(CmAttribute attribute) const {
    return static_cast<size_t>(
        std::count_if(letters.begin(), letters.end(),
                      [&](const Letter& letter) { return letter.attribute() == attribute; }));
  }
  [[nodiscard]] const Letter& last(CmAttribute attribute) const {
    return *std::find_if(letters.rbegin(), letters.rend(),
                         [&](const Letter& letter) { return letter.attribute() == attribute; });
  }
  // Loses all MADs in flight.
  void lose_all() { mail_.clear(); }
  // Loses the first `count` of these and delivers all others.
  void lose(CmAttribute attribute, int count) {
    fate = [attribute, left = count](const Letter& letter) mutable -> std::vector<base::Duration> {
      if (letter.attribute() == attribute && left > 0 && left-- > 0) return {};
      return {{}};
    };
  }

 private:
  std::vector<std::unique_ptr<Host>> hosts_;
  std::multimap<base::TimePoint, Letter> mail_;
};

inline Host::Host(Rig& rig_of, uint64_t seed, base::Duration patience)
    : rig(rig_of),
      mux(Config{.random = std::mt19937_64(seed), .patience = patience}, *this, rig_of) {}
inline base::TimePoint Host::now() const { return rig.time; }

// One side of a connection: records its events.
struct Side : ConnectionHandler {
  Connection connection;
  std::vector<EventKind> events;
  RejectReason reason{};
  std::vector<uint8_t> ari;
  Rep rep;
  SidrRep sidr;
  std::vector<uint8_t> data;
  std::function<void(const Event&)> then;

  void on_event(const Event& event) override {
    events.push_back(event.kind);
    PrivateData from = event.private_data;
    if (event.rej != nullptr) {
      reason = event.rej->reason;
      ari.assign(event.rej->ari.begin(), event.rej->ari.end());
      from = event.rej->private_data;
    }
    if (event.rep != nullptr) {
      rep = *event.rep;
      from = event.rep->private_data;
    }
    if (event.sidr != nullptr) {
      sidr = *event.sidr;
      from = event.sidr->private_data;
    }
    data.assign(from.begin(), from.end());
    if (then) then(event);
  }
  [[nodiscard]] State state() const { return connection.state(); }
  [[nodiscard]] bool saw(EventKind kind) const {
    return std::find(events.begin(), events.end(), kind) != events.end();
  }
};

// Records requests, and answers them if told how.
struct Server : ListenHandler {
  std::vector<std::unique_ptr<Side>> sides;
  Req req;
  SidrReq sidr_req;
  std::vector<uint8_t> data;
  std::function<void(Side&)> answer;

  void on_request(Connection connection, const Req& request) override {
    req = request;
    data.assign(req.private_data.begin(), req.private_data.end());
    take(std::move(connection));
  }
  void on_sidr_request(Connection connection, const SidrReq& request) override {
    sidr_req = request;
    data.assign(request.private_data.begin(), request.private_data.end());
    take(std::move(connection));
  }
  [[nodiscard]] Side& last() { return *sides.back(); }

 private:
  void take(Connection connection) {
    auto& side = *sides.emplace_back(std::make_unique<Side>());
    side.connection = std::move(connection);
    side.connection.set_handler(&side);
    if (answer) answer(side);
  }
};

constexpr uint32_t kForeignQpn = 0xf00bad;  // not of a vdevice here
constexpr auto kMinute = std::chrono::minutes(1);
constexpr uint64_t kService = 0x01061234;
constexpr uint64_t kDatagramService = 0x01111234;

inline EndpointSetup setup(const std::string& name, uint64_t guid,
                           const std::string& fabric = "red") {
  EndpointSetup value;
  value.vdevice = name;
  value.tenant = "tenant-of-" + name;
  value.fabric = fabric;
  value.node_guid = guid;
  value.owns_qpn = [](uint32_t qpn) { return qpn != kForeignQpn; };
  return value;
}

// Two vdevices on two hosts; b listens.
struct TwoHosts : testing::Test {
  Rig rig;
  Host& host_a = rig.host();
  Host& host_b = rig.host();
  verbs::Gid gid_a = gid("10.0.0.1"), gid_b = gid("10.0.0.2");
  Endpoint a = attach(host_a, setup("a", 0xa), gid_a);
  Endpoint b = attach(host_b, setup("b", 0xb), gid_b);
  Server server;
  Listener listener = std::move(b.listen(kService, std::nullopt, 8, &server).value());
  Side client = {};
  uint32_t next_qpn = 0x100;

  static Endpoint attach(Host& host, EndpointSetup with, const verbs::Gid& at) {
    return attach_to(host.mux, std::move(with), at);
  }
  static Endpoint attach_to(Mux& mux, EndpointSetup with, const verbs::Gid& at) {
    Endpoint endpoint = std::move(mux.attach(std::move(with)).value());
    EXPECT_TRUE(endpoint.set_gids({at}));
    return endpoint;
  }

  Req req() {
    Req value;
    value.path.local = gid_a;
    value.path.remote = gid_b;
    value.service_id = kService;
    value.qpn = next_qpn++;
    value.starting_psn = 0x111111;
    value.responder_resources = 4;
    value.initiator_depth = 2;
    return value;
  }
  Rep rep() {
    Rep value;
    value.qpn = next_qpn++;
    value.starting_psn = 0x222222;
    value.responder_resources = 6;
    value.initiator_depth = 3;
    return value;
  }
  void ask(Side& side, const Req& with) {
    side.connection = a.connection(&side);
    const auto sent = side.connection.send_req(with);
    EXPECT_TRUE(sent) << (sent ? "" : sent.error().message());
  }
  void ask() { ask(client, req()); }
  // The server accepts, the client confirms.
  void agree() {
    server.answer = [this](Side& side) { EXPECT_TRUE(side.connection.send_rep(rep())); };
    confirm(client);
  }
  static void confirm(Side& side) {
    side.then = [&side](const Event& event) {
      if (event.kind == EventKind::kRepReceived) {
        EXPECT_TRUE(side.connection.send_rtu());
      }
    };
  }
  void establish() {
    agree();
    ask();
    rig.run(milliseconds(1));
    ASSERT_EQ(client.state(), State::kEstablished);
    ASSERT_EQ(server.last().state(), State::kEstablished);
  }
  static std::vector<State> states(const Mux& mux) {
    std::vector<State> list;
    for (const auto& info : mux.connections()) list.push_back(info.state);
    return list;
  }
};

}  // namespace vrdma::qp1mux
