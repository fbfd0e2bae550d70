#include "cli/web_state.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "cli/size_text.h"
#include "cli/top_rows.h"
#include "cli/who.h"

namespace vrdma::cli {

namespace {

using nlohmann::json;

constexpr double kLittle = 0.01;
constexpr size_t kMostBars = 4;  // of a vdevice or a tenant: the fullest quotas

// {"kind", "used", "limit": texts, "part": of 1}
json bar(const std::string& kind, uint64_t used, uint64_t limit) {
  const double part = limit == 0 ? 1 : static_cast<double>(used) / static_cast<double>(limit);
  return {{"kind", kind},
          {"used", amount_text(kind, used, false)},
          {"limit", amount_text(kind, limit, false)},
          {"part", std::min(part, 1.0)}};
}

json fullest(std::vector<json> bars) {
  std::stable_sort(bars.begin(), bars.end(),
                   [](const json& one, const json& other) { return one["part"] > other["part"]; });
  if (bars.size() > kMostBars) bars.resize(kMostBars);
  return bars;
}

json bars_of(const v1::Activity& vdev) {
  std::vector<json> bars;
  for (const auto& its : vdev.usage())
    if (json one = bar(its.kind(), its.used(), its.limit()); one["part"] >= kLittle)
      bars.push_back(std::move(one));
  return fullest(std::move(bars));
}

json bars_of(const v1::Budget& tenant) {
  std::vector<json> bars;
  for (const auto& row : tenant.rows())
    if (row.has_ceiling()) bars.push_back(bar(row.kind(), row.used(), row.ceiling()));
  return fullest(std::move(bars));
}

double per_second(uint64_t before, uint64_t now, double seconds) {
  if (now < before) before = 0;  // another worker counts
  return seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

double seconds_between(const WebReading& before, const WebReading& now) {
  if (before.time == WebReading::Clock::time_point()) return 0;
  return std::chrono::duration<double>(now.time - before.time).count();
}

// Of a vdevice without a tenant.
bool is_alone(const std::string& tenant) { return tenant.starts_with("vdev/"); }

json picture_of(const WebLink& link) {
  return {{"from", link.from},
          {"to", link.to},
          {"peer", link.peer},
          {"transport", link.transport},
          {"queue_pairs", link.queue_pairs},
          {"sent", link.sent},
          {"returned", link.returned}};
}

json picture_of(const v1::Event& event) {
  return {{"number", event.number()},   {"type", event.type()},       {"first", event.first_ms()},
          {"last", event.last_ms()},    {"count", event.count()},     {"vdevice", event.vdev()},
          {"namespace", event.netns()}, {"tenant", event.tenant()},   {"who", event.who()},
          {"process", event.pid()},     {"program", event.program()}, {"reason", event.reason()}};
}

json picture_of(const v1::Vdev& vdev, const v1::Activity& activity, const TopRow& row,
                double by_peers) {
  return {{"id", vdev.id()},
          {"name", vdev.name()},
          {"tenant", is_alone(vdev.tenant()) ? "" : vdev.tenant()},
          {"fabric", vdev.fabric()},
          {"reach", vdev.reach()},
          {"namespace", vdev.netns()},
          {"netdev", vdev.netdev()},
          {"who", who_of(vdev)},
          {"state", vdev.port_state()},
          {"why", vdev.lost()},
          {"address", vdev.gids().empty() ? "" : vdev.gids(0).gid()},
          {"programs", row.sessions},
          {"queue_pairs", row.qps},
          {"bytes", row.bytes()},
          {"by_peers", by_peers},
          {"requests", row.direct.requests + row.worker.requests},
          {"refused", row.refused},
          {"quota", bars_of(activity)}};
}

}  // namespace

base::Result<WebReading> read_for_web(api::Client& client, WebReading* before) {
  WebReading reading;
  const auto read = [](auto result, auto* into) -> base::Result<void> {
    if (!result) return base::pass(std::move(result).error());
    *into = std::move(*result);
    return {};
  };
  if (auto done = read(client.list_activity(), &reading.activity); !done)
    return base::pass(done.error());
  if (auto done = read(client.list_queue_pairs(""), &reading.queue_pairs); !done)
    return base::pass(done.error());
  reading.time = WebReading::Clock::now();
  if (auto done = read(client.list_budgets(v1::TENANT), &reading.tenants); !done)
    return base::pass(done.error());
  // Asked for after `activity`, so no change is missed.
  if (reading.activity.vdevs_revision() == before->activity.vdevs_revision()) {
    reading.vdevs = std::move(before->vdevs);
  } else if (auto done = read(client.list_vdevs(), &reading.vdevs); !done) {
    return base::pass(done.error());
  }
  if (reading.activity.last_event() == before->activity.last_event()) {
    reading.events = std::move(before->events);
  } else if (auto done = read(client.list_events(0, WebBounds().events), &reading.events); !done) {
    return base::pass(done.error());
  }
  return reading;
}

std::vector<WebLink> web_links(const WebReading& before, const WebReading& now) {
  const double seconds = seconds_between(before, now);
  std::map<std::pair<std::string, std::string>, uint64_t> owners;  // of a fabric's address
  std::map<uint64_t, std::string> fabrics;
  for (const auto& vdev : now.vdevs) {
    fabrics[vdev.id()] = vdev.fabric();
    for (const auto& gid : vdev.gids()) owners[{vdev.fabric(), gid.gid()}] = vdev.id();
  }
  const auto key_of = [](const v1::QueuePair& one) {
    return std::tuple(one.vdev_id(), one.qpn(), one.pid());
  };
  std::map<std::tuple<uint64_t, uint32_t, int32_t>, const v1::QueuePair*> then;
  for (const auto& one : before.queue_pairs) then[key_of(one)] = &one;

  std::map<std::tuple<uint64_t, uint64_t, std::string, std::string>, WebLink> links;
  for (const auto& one : now.queue_pairs) {
    const auto fabric = fabrics.find(one.vdev_id());
    if (one.remote().empty() || fabric == fabrics.end()) continue;
    const auto owner = owners.find({fabric->second, one.remote()});
    uint64_t from = one.vdev_id();
    uint64_t to = owner != owners.end() ? owner->second : 0;
    const bool returns = to != 0 && to < from;
    if (returns) std::swap(from, to);
    WebLink& link = links[{from, to, to != 0 ? "" : one.remote(), one.transport()}];
    link.from = from;
    link.to = to;
    if (!returns) link.peer = one.remote();
    link.transport = one.transport();
    ++link.queue_pairs;
    const auto old = then.find(key_of(one));
    // A new queue pair counts from its beginning; without an earlier reading nothing is known.
    const uint64_t moved = one.direct_bytes() + one.worker_bytes();
    const uint64_t earlier =
        old != then.end() ? old->second->direct_bytes() + old->second->worker_bytes() : 0;
    (returns ? link.returned : link.sent) += per_second(earlier, moved, seconds);
  }
  std::vector<WebLink> all;
  for (auto& [key, link] : links) all.push_back(std::move(link));
  std::stable_sort(all.begin(), all.end(), [](const WebLink& one, const WebLink& other) {
    return one.sent + one.returned > other.sent + other.returned;
  });
  return all;
}

std::string web_state(const WebReading& before, const WebReading& now, const WebBounds& bounds) {
  const double seconds = seconds_between(before, now);
  std::map<uint64_t, TopRow> rows;
  for (auto& row : top_rows(before.activity, now.activity, seconds)) rows[row.id] = std::move(row);
  std::map<uint64_t, const v1::Activity*> activity;
  for (const auto& vdev : now.activity.vdevs()) activity[vdev.vdev_id()] = &vdev;

  const std::vector<WebLink> all_links = web_links(before, now);
  std::map<uint64_t, double> by_peers;  // bytes per second that requests of its peers move
  for (const auto& link : all_links) {
    by_peers[link.from] += link.returned;
    by_peers[link.to] += link.sent;
  }

  // What is wrong, then what works, then what could.
  std::vector<const v1::Vdev*> vdevs;
  for (const auto& vdev : now.vdevs) vdevs.push_back(&vdev);
  const auto rank = [&](const v1::Vdev* vdev) {
    const TopRow& row = rows[vdev->id()];
    return std::tuple(vdev->port_state() != "ACTIVE", row.refused,
                      row.bytes() + by_peers[vdev->id()], row.qps);
  };
  std::stable_sort(vdevs.begin(), vdevs.end(), [&](const v1::Vdev* one, const v1::Vdev* other) {
    return rank(one) > rank(other);
  });
  std::map<std::string, double> moved, peers_moved;  // by tenant
  double bytes = 0;
  uint64_t queue_pairs = 0;
  for (const auto* vdev : vdevs) {
    const TopRow& row = rows[vdev->id()];
    moved[vdev->tenant()] += row.bytes();
    peers_moved[vdev->tenant()] += by_peers[vdev->id()];
    bytes += row.bytes();
    queue_pairs += row.qps;
  }

  std::array<char, HOST_NAME_MAX + 1> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  json state{{"error", ""},
             {"host", host.data()},
             {"seconds", seconds},
             {"bytes", bytes},
             {"all_queue_pairs", queue_pairs},
             {"all_vdevices", vdevs.size()}};
  std::set<uint64_t> shown;
  if (vdevs.size() > bounds.vdevices) vdevs.resize(bounds.vdevices);
  // What is drawn stays where it is.
  std::sort(vdevs.begin(), vdevs.end(), [](const v1::Vdev* one, const v1::Vdev* other) {
    return std::tie(one->name(), one->netns()) < std::tie(other->name(), other->netns());
  });
  json& shown_vdevs = state["vdevices"] = json::array();
  for (const auto* vdev : vdevs) {
    shown.insert(vdev->id());
    const auto its = activity.find(vdev->id());
    shown_vdevs.push_back(
        picture_of(*vdev, its != activity.end() ? *its->second : v1::Activity::default_instance(),
                   rows[vdev->id()], by_peers[vdev->id()]));
  }
  json& links = state["links"] = json::array();
  for (const auto& link : all_links)
    if (links.size() < bounds.links && shown.contains(link.from) &&
        (link.to == 0 || shown.contains(link.to)))
      links.push_back(picture_of(link));

  std::vector<const v1::Budget*> tenants;
  for (const auto& tenant : now.tenants)
    if (tenant.vdevices() > 0 && !is_alone(tenant.name())) tenants.push_back(&tenant);
  std::stable_sort(tenants.begin(), tenants.end(),
                   [&](const v1::Budget* one, const v1::Budget* other) {
                     return moved[one->name()] > moved[other->name()];
                   });
  state["all_tenants"] = tenants.size();
  if (tenants.size() > bounds.tenants) tenants.resize(bounds.tenants);
  std::sort(tenants.begin(), tenants.end(), [](const v1::Budget* one, const v1::Budget* other) {
    return one->name() < other->name();
  });
  json& shown_tenants = state["tenants"] = json::array();
  for (const auto* tenant : tenants)
    shown_tenants.push_back({{"name", tenant->name()},
                             {"vdevices", tenant->vdevices()},
                             {"bytes", moved[tenant->name()]},
                             {"by_peers", peers_moved[tenant->name()]},
                             {"quota", bars_of(*tenant)}});
  json& events = state["events"] = json::array();
  const size_t skipped = now.events.size() - std::min<size_t>(now.events.size(), bounds.events);
  for (size_t i = skipped; i < now.events.size(); ++i) events.push_back(picture_of(now.events[i]));
  return state.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string web_state(const base::Error& why) {
  return json{{"error", why.message()}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace vrdma::cli
