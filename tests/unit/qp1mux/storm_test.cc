// Storms: thousands of connections over a network that loses, repeats, delays and reorders. Each
// ends established, or refused with the right reason, on both sides, and leaves no state behind.
#include <set>

#include "tests/unit/qp1mux/rig.h"

namespace vrdma::qp1mux {
namespace {

struct Weather {
  const char* name;
  uint64_t seed;
  uint32_t loss;     // percent
  uint32_t repeat;   // percent
  int64_t delay_ms;  // maximum
};

class Storm : public TwoHosts, public testing::WithParamInterface<Weather> {
 public:
  std::mt19937_64 random{GetParam().seed};

  Storm() {
    rig.fate = [this](const Letter&) {
      const Weather& weather = GetParam();
      std::vector<base::Duration> arrivals;
      do {
        if (random() % 100 >= weather.loss)
          arrivals.emplace_back(
              milliseconds(random() % static_cast<uint64_t>(weather.delay_ms + 1)));
      } while (random() % 100 < weather.repeat);
      return arrivals;
    };
    listener.set_backlog(64);
  }
};

enum class Wish : uint8_t { kAccept, kRefuse, kNobody, kDrop };

TEST_P(Storm, EveryConnectionEndsAsItShould) {
  constexpr int kConnections = 2000;
  // What the server does with a request, by the active side's queue pair.
  std::map<uint32_t, Wish> wishes;
  std::map<uint32_t, Side*> accepted;
  server.answer = [&](Side& side) {
    switch (wishes.at(server.req.qpn)) {
      case Wish::kAccept:
        accepted[server.req.qpn] = &side;
        ASSERT_TRUE(side.connection.send_rep(rep()));
        return;
      case Wish::kRefuse:
        ASSERT_TRUE(side.connection.send_rej({.reason = RejectReason::kNoResources}));
        return;
      case Wish::kDrop:
        return side.connection.reset();
      case Wish::kNobody:
        FAIL() << "a request for a service without a listener";
    }
  };
  std::vector<std::unique_ptr<Side>> clients;
  std::vector<uint32_t> qpns;
  std::set<uint32_t> ids;
  for (int i = 0; i < kConnections; ++i) {
    Req asked = req();
    const Wish wish = static_cast<Wish>(random() % 8 < 5 ? 0 : random() % 4);
    wishes[asked.qpn] = wish;
    if (wish == Wish::kNobody) asked.service_id = kService + 1;
    auto& side = *clients.emplace_back(std::make_unique<Side>());
    confirm(side);
    ask(side, asked);
    qpns.push_back(asked.qpn);
    ASSERT_TRUE(ids.insert(side.connection.local_id()).second);
    if (i % 10 == 0) rig.run(milliseconds(1));
  }
  rig.run(std::chrono::minutes(3));
  for (int i = 0; i < kConnections; ++i) {
    Side& client_side = *clients[static_cast<size_t>(i)];
    const uint32_t qpn = qpns[static_cast<size_t>(i)];
    switch (wishes[qpn]) {
      case Wish::kAccept:
        ASSERT_EQ(client_side.state(), State::kEstablished) << i;
        ASSERT_EQ(accepted.at(qpn)->state(), State::kEstablished) << i;
        break;
      case Wish::kRefuse:
        ASSERT_EQ(client_side.reason, RejectReason::kNoResources) << i;
        break;
      case Wish::kDrop:
        ASSERT_EQ(client_side.reason, RejectReason::kConsumer) << i;
        break;
      case Wish::kNobody:
        ASSERT_EQ(client_side.reason, RejectReason::kInvalidServiceId) << i;
        break;
    }
    if (wishes[qpn] != Wish::kAccept) {
      ASSERT_EQ(client_side.events.size(), 1u) << i;
    }
  }
  // Now both sides disconnect, some at the same time.
  for (const auto& each : server.sides)
    each->then = [side = each.get()](const Event& event) {
      if (event.kind == EventKind::kDreqReceived) {
        ASSERT_TRUE(side->connection.send_drep());
      }
    };
  for (size_t i = 0; i < clients.size(); ++i) {
    Side& client_side = *clients[i];
    client_side.then = [&client_side](const Event& event) {
      if (event.kind == EventKind::kDreqReceived) {
        ASSERT_TRUE(client_side.connection.send_drep());
      }
    };
    if (client_side.state() == State::kEstablished && random() % 3 != 0) {
      ASSERT_TRUE(client_side.connection.send_dreq());
    }
    if (const auto it = accepted.find(qpns[i]);
        it != accepted.end() && it->second->state() == State::kEstablished && random() % 2 == 0) {
      ASSERT_TRUE(it->second->connection.send_dreq());
    }
  }
  rig.run(std::chrono::minutes(3));
  for (auto& [qpn, side] : accepted) {
    if (side->state() == State::kEstablished) {
      ASSERT_TRUE(side->connection.send_dreq());
    }
  }
  rig.run(std::chrono::minutes(3));
  for (auto& [qpn, side] : accepted) {
    ASSERT_EQ(side->state(), State::kClosed);
    ASSERT_EQ(side->events.back(), EventKind::kTimewaitExit);
  }
  EXPECT_TRUE(host_a.mux.connections().empty());
  EXPECT_TRUE(host_b.mux.connections().empty());
}

INSTANTIATE_TEST_SUITE_P(Weathers, Storm,
                         testing::Values(Weather{"calm", 1, 0, 0, 0},
                                         Weather{"reordering", 2, 0, 0, 30},
                                         Weather{"repeating", 3, 0, 40, 30},
                                         Weather{"losing", 4, 15, 0, 2},
                                         Weather{"all", 5, 15, 40, 60}),
                         [](const auto& weather) { return std::string(weather.param.name); });

// An id is reused only after TIMEWAIT, on a host where ids are scarce.
TEST(CommunicationIds, AreUsedAgainOnlyAfterTimewait) {
  Rig rig;
  Host& host = rig.host();
  Endpoint a = TwoHosts::attach(host, setup("a", 0xa), gid("10.0.0.1"));
  std::map<uint32_t, base::TimePoint> busy_until;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    Side side;
    side.connection = a.connection(&side);
    const uint32_t id = side.connection.local_id();
    ASSERT_TRUE(busy_until.find(id) == busy_until.end() || busy_until[id] <= rig.time);
    Req asked;
    asked.path.local = gid("10.0.0.1");
    asked.path.remote = gid("10.0.0.2");
    asked.qpn = 1;
    ASSERT_TRUE(side.connection.send_req(asked));
    side.connection.reset();
    busy_until[id] = rig.time + time_of(asked.ack_timeout);
    if (i % 100 == 0) rig.run(milliseconds(random() % 100));
  }
  rig.run(std::chrono::minutes(1));
  EXPECT_TRUE(host.mux.connections().empty());
}

}  // namespace
}  // namespace vrdma::qp1mux
