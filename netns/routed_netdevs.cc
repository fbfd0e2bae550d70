#include "netns/routed_netdevs.h"

#include <fcntl.h>
#include <unistd.h>

#include <limits>
#include <sstream>

#include "core/base/fd.h"
#include "core/base/out_of_files.h"

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

struct Content {
  std::string text;  // whole lines
  bool cut = false;
};

base::Result<Content> content_of(const std::string& path) {
  const base::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() && base::out_of_files(errno))
    return base::fail(errno, "vrdmad has too many open files to read " + path);
  if (!file.valid()) return base::fail(ESRCH, "read " + path + ": the process has ended");
  Content content;
  content.text.resize(kMostOfRoutes);
  size_t had = 0;
  while (had < content.text.size()) {
    const ssize_t got = ::read(file.get(), content.text.data() + had, content.text.size() - had);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    had += static_cast<size_t>(got);
  }
  content.cut = had == content.text.size();
  // The last line may lack its end.
  if (content.cut) had = content.text.rfind('\n') + 1;
  content.text.resize(had);
  return content;
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
  if (!ipv6 && ipv6.error().code() != ESRCH) return base::pass(std::move(ipv6.error()));
  RoutedNetdevs found = parse_routes(ipv4->text, ipv6 ? ipv6->text : std::string());
  found.cut = ipv4->cut || (ipv6 && ipv6->cut);
  return found;
}

base::Result<std::string> RoutedNetdevs::choose(const std::string& wanted) const {
  constexpr size_t kMostNamed = 8;
  if (wanted == kLoopback || all.contains(wanted)) return wanted;
  if (cut && (!wanted.empty() || of_default.empty()))
    return base::fail(E2BIG,
                      "its namespace has too many routes: vrdmad reads " +
                          std::to_string(kMostOfRoutes >> 10) +
                          " KiB of them, about 2,000, and finds no " +
                          (wanted.empty() ? "default route" : "route of netdev '" + wanted + "'") +
                          " there: remove routes");
  if (!wanted.empty())
    return base::fail(ENODEV, "its netdev '" + wanted + "' does not exist or has no address yet");
  if (!of_default.empty()) return of_default;
  if (all.empty()) return base::fail(ENODEV, "its namespace has no netdev with an address yet");
  if (all.size() == 1) return *all.begin();
  std::string names;
  size_t named = 0;
  for (const auto& name : all) {
    if (named++ == kMostNamed) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + name;
  }
  return base::fail(ENOTUNIQ, "its namespace has several netdevs (" + names +
                                  ") and no default route: name one in its class or annotation");
}

}  // namespace vrdma::netns
