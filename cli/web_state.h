// The picture that the page of `vrdmactl web` draws, from readings of the daemon's state.
//
// JSON, for the page alone; it may change with the page. Sizes and rates are numbers, in bytes per
// second; quotas have texts besides, as `quota show` prints them. Bounded: of many vdevices and
// tenants, those that the operator would miss most, and how many are left out.
#pragma once

#include <vrdma/v1/admin.pb.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "api/client.h"

namespace vrdma::cli {

struct WebBounds {
  size_t vdevices = 120, links = 400, tenants = 60;
  uint32_t events = 100;
};

// What one reading tells.
struct WebReading {
  using Clock = std::chrono::steady_clock;
  Clock::time_point time{};           // of the activity and the queue pairs; 0: there is none
  v1::ListActivityResponse activity;  // also says of when `vdevs` and `events` are
  std::vector<v1::QueuePair> queue_pairs;
  std::vector<v1::Budget> tenants;
  std::vector<v1::Vdev> vdevs;    // without use: that is in `activity`
  std::vector<v1::Event> events;  // the newest
};
// Asks for vdevices and events only if there are others than in `before`, of which they are taken.
// If it fails, `before` is good for rates alone, and the next reading needs an empty one.
[[nodiscard]] base::Result<WebReading> read_for_web(api::Client& client, WebReading* before);

// Queue pairs between the same two ends, by the same transport.
struct WebLink {
  uint64_t from = 0, to = 0;      // vdevices; to 0: on another host, or unknown
  std::string peer;               // the address of `to`
  std::string transport;          // as v1::QueuePair.transport
  uint32_t queue_pairs = 0;       // of both ends
  double sent = 0, returned = 0;  // bytes per second of the work requests of `from`, of `to`
};
// One for each pair of ends, the busiest first. Addresses are those of vdevices of the same fabric.
[[nodiscard]] std::vector<WebLink> web_links(const WebReading& before, const WebReading& now);

// `before`: without a time, all rates are 0.
[[nodiscard]] std::string web_state(const WebReading& before, const WebReading& now,
                                    const WebBounds& bounds = {});
// There is none, for this reason.
[[nodiscard]] std::string web_state(const base::Error& why);

}  // namespace vrdma::cli
