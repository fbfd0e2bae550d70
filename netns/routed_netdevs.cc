#include "netns/routed_netdevs.h"

#include <fstream>
#include <limits>
#include <sstream>

namespace vrdma::netns {

namespace {

constexpr const char* kLoopback = "lo";
constexpr const char* kAnyV4 = "00000000";
constexpr const char* kAnyV6 = "00000000000000000000000000000000";

// Adds routes, of which the metric is written in `base`.
class Collector {
 public:
  explicit Collector(RoutedNetdevs* into) : into_(into) {}
  void add(const std::string& netdev, bool is_default, const std::string& metric, int base) {
    if (netdev.empty() || netdev == kLoopback) return;
    into_->all.insert(netdev);
    const unsigned long value = std::strtoul(metric.c_str(), nullptr, base);
    if (!is_default || value >= lowest_) return;
    lowest_ = value;
    into_->of_default = netdev;
  }
  [[nodiscard]] bool has_default() const { return !into_->of_default.empty(); }

 private:
  RoutedNetdevs* into_;
  unsigned long lowest_ = std::numeric_limits<unsigned long>::max();
};

// fe80::/10 and ff00::/8, which every netdev that is up has.
bool is_of_every_netdev(const std::string& destination) {
  return destination.rfind("fe8", 0) == 0 || destination.rfind("ff", 0) == 0;
}

base::Result<std::string> content_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.is_open()) return base::fail(ESRCH, "read " + path + ": the process has ended");
  return text.str();
}

}  // namespace

RoutedNetdevs parse_routes(std::string_view ipv4, std::string_view ipv6) {
  RoutedNetdevs found;
  {
    // Iface Destination Gateway Flags RefCnt Use Metric Mask ..., after a line of titles
    Collector routes(&found);
    std::istringstream lines{std::string(ipv4)};
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string netdev, destination, skipped, metric, mask;
      words >> netdev >> destination >> skipped >> skipped >> skipped >> skipped >> metric >> mask;
      if (words) routes.add(netdev, destination == kAnyV4 && mask == kAnyV4, metric, 10);
    }
    if (routes.has_default()) ipv6 = {};
  }
  // destination length source length gateway metric references use flags Iface
  Collector routes(&found);
  std::istringstream lines{std::string(ipv6)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string destination, length, skipped, metric, netdev;
    words >> destination >> length >> skipped >> skipped >> skipped >> metric >> skipped >>
        skipped >> skipped >> netdev;
    if (words && !is_of_every_netdev(destination))
      routes.add(netdev, destination == kAnyV6 && length == "00", metric, 16);
  }
  return found;
}

base::Result<RoutedNetdevs> routed_netdevs(pid_t pid) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/net/";
  auto ipv4 = content_of(directory + "route");
  if (!ipv4) return base::pass(std::move(ipv4.error()));
  auto ipv6 = content_of(directory + "ipv6_route");  // missing in a kernel without IPv6
  return parse_routes(*ipv4, ipv6 ? *ipv6 : std::string());
}

base::Result<std::string> RoutedNetdevs::choose(const std::string& wanted) const {
  if (wanted == kLoopback || all.contains(wanted)) return wanted;
  if (!wanted.empty())
    return base::fail(ENODEV, "its netdev '" + wanted + "' does not exist or has no address yet");
  if (!of_default.empty()) return of_default;
  if (all.empty()) return base::fail(ENODEV, "its namespace has no netdev with an address yet");
  if (all.size() == 1) return *all.begin();
  std::string names;
  for (const auto& name : all) names += (names.empty() ? "" : ", ") + name;
  return base::fail(ENOTUNIQ, "its namespace has several netdevs (" + names +
                                  ") and no default route: name one in its class or annotation");
}

}  // namespace vrdma::netns
