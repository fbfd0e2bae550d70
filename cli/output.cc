#include "cli/output.h"

#include <array>
#include <ctime>
#include <utility>

#include "cli/json.h"
#include "cli/quota_argument.h"
#include "cli/table.h"

namespace vrdma::cli {

namespace {

constexpr auto kRight = Table::Align::kRight;

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%H:%M:%S", &parts)};
}

template <class Words>
std::string joined(const Words& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : ", ") + word;
  return line;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

}  // namespace

void Output::created(const v1::Vdev& vdev) {
  if (format_ == Format::kJson) out_ << json_of(vdev) << '\n';
}

void Output::list(const std::vector<v1::Vdev>& vdevs) {
  if (format_ == Format::kJson) {
    out_ << json_of(vdevs) << '\n';
    return;
  }
  Table table({{"NAME"},
               {"STATE"},
               {"NETNS"},
               {"NETDEV"},
               {"PARENT"},
               {"TENANT"},
               {"FABRIC"},
               {"MTU", kRight},
               {"GIDS", kRight},
               {"SESSIONS", kRight}});
  for (const auto& vdev : vdevs)
    table.add({vdev.name(), vdev.port_state(), vdev.netns(), vdev.netdev(), vdev.parent(),
               vdev.tenant(), vdev.fabric(), std::to_string(vdev.active_mtu()),
               std::to_string(vdev.gids_size()), std::to_string(vdev.sessions())});
  table.print(out_);
}

void Output::show(const std::vector<v1::Vdev>& vdevs) {
  if (format_ == Format::kJson) {
    out_ << json_of(vdevs) << '\n';
    return;
  }
  const auto line = [&](const std::string& key, const std::string& value) {
    out_ << "    " << padded(key, 12) << value << '\n';
  };
  for (const auto& vdev : vdevs) {
    out_ << vdev.name() << '\n';
    line("parent", vdev.parent());
    line("tenant", vdev.tenant());
    line("fabric", vdev.fabric());
    line("netns", vdev.netns() + " (inode " + std::to_string(vdev.netns_inode()) + ")");
    line("netdev", vdev.netdev() + " (index " + std::to_string(vdev.ifindex()) + ")");
    line("node guid", vdev.node_guid());
    line("port", vdev.port_state() + ", mtu " + std::to_string(vdev.active_mtu()));
    line("socket", vdev.socket());
    line("sessions", std::to_string(vdev.sessions()));
    if (vdev.allowed_size() > 0) line("allowed", joined(vdev.allowed()));
    for (const auto& gid : vdev.gids())
      line("gid " + std::to_string(gid.index()), gid.gid() + " (" + gid.type() + ")");
    for (const auto& row : vdev.quota())
      line(row.kind(), std::to_string(row.used()) + " of " + limit_text(row.limit()));
  }
}

void Output::quota(const std::vector<v1::Vdev>& vdevs) {
  if (format_ == Format::kJson) {
    out_ << json_of_quota(vdevs) << '\n';
    return;
  }
  Table table({{"VDEVICE"}, {"KIND"}, {"USED", kRight}, {"LIMIT", kRight}});
  for (const auto& vdev : vdevs)
    for (const auto& row : vdev.quota())
      table.add({vdev.name(), row.kind(), std::to_string(row.used()), limit_text(row.limit())});
  table.print(out_);
}

void Output::gids(const std::vector<v1::Vdev>& vdevs) {
  if (format_ == Format::kJson) {
    out_ << json_of_gids(vdevs) << '\n';
    return;
  }
  Table table({{"VDEVICE"}, {"INDEX", kRight}, {"GID"}, {"TYPE"}});
  for (const auto& vdev : vdevs)
    for (const auto& gid : vdev.gids())
      table.add({vdev.name(), std::to_string(gid.index()), gid.gid(), gid.type()});
  table.print(out_);
}

void Output::parents(const std::vector<v1::Parent>& parents) {
  if (format_ == Format::kJson) {
    out_ << json_of(parents) << '\n';
    return;
  }
  Table table({{"NAME"}, {"KIND"}, {"VDEVICES", kRight}, {"DETAIL"}});
  for (const auto& parent : parents)
    table.add({parent.name(), parent.kind(), std::to_string(parent.vdevices()), parent.detail()});
  table.print(out_);
}

void Output::counters(const std::vector<v1::Counter>& counters) {
  if (format_ == Format::kJson) {
    out_ << json_of(counters) << '\n';
    return;
  }
  Table table({{"SCOPE"}, {"COUNTER"}, {"VALUE", kRight}});
  for (const auto& counter : counters)
    table.add({counter.scope(), counter.name(), std::to_string(counter.value())});
  table.print(out_);
}

void Output::event(const v1::WatchEvent& event) {
  if (format_ == Format::kJson) {
    out_ << json_of(event) << std::endl;
    return;
  }
  const auto& vdev = event.vdev();
  out_ << time_of_day() << "  " << padded(event_name(event.type()), 7) << "  "
       << padded(vdev.name(), 12) << "  " << padded(vdev.port_state(), 6) << "  " << vdev.netns()
       << " " << vdev.netdev() << ", " << vdev.gids_size() << " gids: " << event.reason()
       << std::endl;
}

void Output::version(const std::string& own, const v1::VersionResponse& daemon) {
  if (format_ == Format::kJson) {
    out_ << json_of(own, daemon) << '\n';
    return;
  }
  out_ << "vrdmactl " << own << '\n'
       << "vrdmad   " << daemon.version() << " (pid " << daemon.pid() << ")\n";
}

}  // namespace vrdma::cli
