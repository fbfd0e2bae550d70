// Random mixes of operations over several queue pairs at once, in both directions and within one
// process; every byte is checked. `--seed` repeats a run, except for its timing.
#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "tests/conformance/stress_flow.h"

namespace conformance {

namespace {

struct Plan {
  bool events = false;
  bool shared_receives = false;
  bool mixed_memory = false;
  int threads = 1;
  uint64_t count = 400;  // operations of each end
};

// A completion queue and the ends that complete on it.
struct Station {
  explicit Station(const Side& side, bool events) : cq(side, events, 4096) {}
  Cq cq;
  std::mutex mutex;
  std::vector<std::unique_ptr<Flow>> flows;
  std::map<uint32_t, Flow*> by_qpn;

  Flow& add(const Side& side, const FlowOptions& options) {
    flows.push_back(make_flow(side, cq, options));
    by_qpn[flows.back()->qp.qp->qp_num] = flows.back().get();
    return *flows.back();
  }
  // Polls once and posts; true if something happened.
  bool step() {
    for (const auto& flow : flows) flow->pump();
    ibv_wc wcs[16];
    const int count = ibv_poll_cq(cq.cq, 16, wcs);
    CHECK(count >= 0);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& wc = wcs[i];
      if (wc.status != IBV_WC_SUCCESS)
        fail(__FILE__, __LINE__,
             std::string("a request ends with ") + ibv_wc_status_str(wc.status));
      Flow& flow = *by_qpn.at(wc.qp_num);
      if ((wc.opcode & IBV_WC_RECV) != 0)
        flow.received(wc);
      else
        flow.sent(wc);
    }
    return count > 0;
  }
  [[nodiscard]] bool finished() const {
    for (const auto& flow : flows)
      if (!flow->finished()) return false;
    return true;
  }
};

using Stations = std::vector<std::unique_ptr<Station>>;

// Runs until all ends have sent and received everything, one thread per station.
void go_round(const Stations& stations) {
  auto last = std::chrono::steady_clock::now();
  for (;;) {
    size_t finished = 0;
    bool moved = false;
    for (const auto& station : stations) {
      const std::unique_lock lock(station->mutex, std::try_to_lock);
      if (!lock.owns_lock()) continue;
      moved |= station->step();
      finished += station->finished() ? 1 : 0;
    }
    if (finished == stations.size()) return;
    const auto now = std::chrono::steady_clock::now();
    if (moved) last = now;
    if (!moved) std::this_thread::yield();
    if (now - last > std::chrono::milliseconds(kPatience))
      fail(__FILE__, __LINE__, "nothing happens any more");
  }
}

// Sleeps on the channel while there is nothing to do.
void sleep_and_wake(Station& station) {
  for (;;) {
    while (station.step()) {
    }
    if (station.finished()) return;
    station.cq.arm();
    if (station.step()) continue;
    if (station.finished()) return;
    if (!station.cq.has_event(kPatience)) fail(__FILE__, __LINE__, "no event comes");
    station.cq.await_event();
  }
}

// One side at a time, because neither reads while it writes.
void check_memory(const Side& side, const Flow& mine) {
  const std::vector<uint8_t>* shadow = mine.shadow();
  if (shadow == nullptr) return;
  for (const bool turn : {true, false}) {
    if (side.is_a() == turn) {
      side.send(shadow->data(), shadow->size());
    } else {
      std::vector<uint8_t> wanted(kRemoteSize);
      side.receive(wanted.data(), wanted.size());
      CHECK(std::memcmp(wanted.data(), mine.memory.data, kRemoteSize) == 0);
    }
  }
}

void run(const Side& side, const Plan& plan) {
  std::unique_ptr<SharedReceives> shared;
  if (plan.shared_receives) shared = std::make_unique<SharedReceives>(side);
  Stations stations;
  const size_t station_count = plan.events ? 1 : 3;
  for (size_t i = 0; i < station_count; ++i)
    stations.push_back(std::make_unique<Station>(side, plan.events));

  // Connections between the sides, then one within this process.
  std::vector<Flow*> across, within;
  uint64_t number = 0;
  const auto options = [&](ibv_qp_type type, uint64_t mine, uint64_t theirs) {
    const uint64_t base = side.seed() * 1000 + number * 10;
    FlowOptions one{type, base + mine, base + theirs, plan.count, nullptr, plan.mixed_memory};
    if (type == IBV_QPT_RC) one.shared = shared.get();
    if (type != IBV_QPT_RC) one.count /= 2;
    return one;
  };
  const auto next_station = [&]() -> Station& { return *stations[number % station_count]; };
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RC}) {
    ++number;
    across.push_back(
        &next_station().add(side, options(type, side.is_a() ? 0 : 1, side.is_a() ? 1 : 0)));
  }
  const uint64_t own = side.is_a() ? 2 : 4;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD}) {
    ++number;
    Station& station = next_station();
    within.push_back(&station.add(side, options(type, own, own + 1)));
    within.push_back(&station.add(side, options(type, own + 1, own)));
  }

  for (Flow* flow : across) flow->connect(side.exchange(flow->address()));
  for (size_t i = 0; i < within.size(); i += 2) {
    within[i]->connect(within[i + 1]->address());
    within[i + 1]->connect(within[i]->address());
  }
  for (const auto* list : {&across, &within})
    for (Flow* flow : *list) flow->post_receives();
  side.meet(1);

  if (plan.events) {
    sleep_and_wake(*stations[0]);
  } else {
    std::vector<std::thread> threads;
    for (int i = 1; i < plan.threads; ++i) threads.emplace_back([&] { go_round(stations); });
    go_round(stations);
    for (auto& thread : threads) thread.join();
  }
  side.meet(2);
  // Unreliable messages that are still in flight.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < end)
    for (const auto& station : stations) (void)station->step();
  for (const auto* list : {&across, &within})
    for (Flow* flow : *list) flow->check_messages();
  for (const Flow* flow : across) check_memory(side, *flow);
  for (size_t i = 0; i < within.size(); ++i)
    if (const auto* shadow = within[i]->shadow(); shadow != nullptr)
      CHECK(std::memcmp(shadow->data(), within[i ^ 1]->memory.data, kRemoteSize) == 0);
  side.meet(3);
}

}  // namespace

CONFORMANCE_TEST(stress, polling) { run(side, {}); }

CONFORMANCE_TEST(stress, events) {
  Plan plan;
  plan.events = true;
  run(side, plan);
}

CONFORMANCE_TEST(stress, shared_receives) {
  Plan plan;
  plan.shared_receives = true;
  run(side, plan);
}

CONFORMANCE_TEST(stress, shared_receives_and_events) {
  Plan plan;
  plan.shared_receives = plan.events = true;
  run(side, plan);
}

CONFORMANCE_TEST(stress, two_threads) {
  Plan plan;
  plan.threads = 2;
  run(side, plan);
}

CONFORMANCE_TEST(stress, two_threads_and_shared_receives) {
  Plan plan;
  plan.threads = 2;
  plan.shared_receives = true;
  run(side, plan);
}

CONFORMANCE_TEST(stress, shared_mappings) {
  Plan plan;
  plan.mixed_memory = true;
  run(side, plan);
}

CONFORMANCE_TEST(stress, shared_mappings_and_events) {
  Plan plan;
  plan.mixed_memory = plan.events = plan.shared_receives = true;
  run(side, plan);
}

}  // namespace conformance
