#include "vrdmad/admin/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstring>

#include "core/base/printable.h"

namespace vrdma::vrdmad {

namespace {

constexpr size_t kMaxRequest = 8192;
constexpr size_t kMaxClients = 16;
constexpr auto kPatience = std::chrono::seconds(5);

// The help text of each family. The names of the other "cm_" families are those of the CM's
// messages and reasons.
const std::map<std::string, std::string>& helps() {
  static const std::map<std::string, std::string> texts{
      {"vdevices", "number of vdevices"},
      {"vdevices_lost", "vdevices that could not be restored yet"},
      {"store_commits", "transactions committed to disk"},
      {"vdevice_info", "1 for each vdevice: what it is, and of which container"},
      {"sessions", "processes that have the vdevice open"},
      {"sessions_opened", "sessions ever opened"},
      {"sessions_malformed", "sessions ended for a violation of the protocol"},
      {"sessions_unproven",
       "attempts to open the vdevice by processes that did not prove their identity"},
      {"connections_foreign", "connections refused because they came from another namespace"},
      {"requests", "requests of sessions"},
      {"addresses_ignored", "addresses of the netdev that became no GID"},
      {"requests_refused", "requests of sessions answered with an error"},
      {"holds", "requests to hold a program's other threads"},
      {"mr_reached", "memory regions registered that are reached instead of in place"},
      {"work_requests", "work requests executed; direct ones as programs count them"},
      {"work_bytes", "bytes that work requests moved; direct ones as programs count them"},
      {"paced_bytes", "bytes that a limited vdevice paid for"},
      {"paced_messages", "work requests that a limited vdevice paid for"},
      {"cpu_microseconds", "processor time that the daemon used for the vdevice"},
      {"work_failed", "work requests that a worker completed with an error"},
      {"qps", "queue pairs by state"},
      {"links", "queue pairs that can send, by the mode of their link"},
      {"fabric_datagrams_dropped", "datagrams dropped in the vdevice's fabric"},
      {"fabric_rings_corrupt", "impossible ring indices in the vdevice's fabric"},
      {"fabric_requests_in_doubt",
       "requests that failed because a vrdmad ended while executing them"},
      {"quota_used", "use of a quota"},
      {"quota_limit", "the limit of a quota"},
      {"quota_refused", "refusals and delays because of a quota"},
      {"gids_refused", "addresses refused because another vdevice of the fabric has them"},
      {"worker_longest_pass",
       "longest time in microseconds between two polls of a worker's sockets"},
      {"admin_clients", "connections to the admin socket"},
      {"admin_clients_refused", "refused connections to the admin socket"},
      {"admin_grpc_starts", "starts of the admin API's gRPC server"},
  };
  return texts;
}

bool is_tenant(const CounterRow& row) { return row.scope.rfind("tenant/", 0) == 0; }

// vrdma_work_bytes_total, vrdma_tenant_work_bytes_total, vrdma_daemon_gids_refused_total
std::string family_of(const CounterRow& row) {
  std::string name = "vrdma_";
  if (is_tenant(row)) name += "tenant_";
  if (row.scope == "daemon" && row.name.rfind("vdevices", 0) != 0) name += "daemon_";
  return name + row.name + (row.gauge ? "" : "_total");
}

std::string response(const char* status, const char* type, const std::string& body,
                     bool without_body = false) {
  return "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n" + (without_body ? "" : body);
}

base::Result<base::Fd> listen_on(int family, const sockaddr* address, socklen_t size,
                                 const std::string& name) {
  base::Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return base::fail_errno("make a socket for " + name);
  const int one = 1;
  // A restarted daemon can bind the port at once.
  if (family != AF_UNIX) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (family == AF_UNIX && ::fchmod(fd.get(), 0600) != 0)
    return base::fail_errno("set the mode of " + name);
  if (::bind(fd.get(), address, size) != 0) return base::fail_errno("bind " + name);
  if (::listen(fd.get(), kMaxClients) != 0) return base::fail_errno("listen on " + name);
  return fd;
}

constexpr std::string_view kUnix = "unix:";

base::Result<void> check_path(const std::string& path) {
  if (!path.empty() && path.size() < sizeof sockaddr_un{}.sun_path) return {};
  return base::fail(EINVAL, "'" + path + "' is not a valid socket path");
}

base::Result<base::Fd> listen_on_path(const std::string& path) {
  if (auto valid = check_path(path); !valid) return base::pass(std::move(valid).error());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  // Remove only what a killed daemon left: a socket without a listener.
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
    const base::Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(probe.get(), generic, sizeof address) != 0 && errno == ECONNREFUSED)
      ::unlink(path.c_str());
  }
  return listen_on(AF_UNIX, generic, sizeof address, path);
}

struct Place {
  bool is_ipv4 = true;
  uint16_t port = 0;
};
base::Result<Place> parse_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  uint16_t port = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] =
      std::from_chars(text.data() + (colon == std::string::npos ? 0 : colon + 1), last, port);
  if (error != std::errc() || end != last || port == 0 || (host != "127.0.0.1" && host != "[::1]"))
    return base::fail(EINVAL, "metrics are for this host: '" + text +
                                  "' is not unix:PATH, 127.0.0.1:PORT or [::1]:PORT");
  return Place{host == "127.0.0.1", port};
}

base::Result<base::Fd> listen_on_port(const std::string& text) {
  const auto place = parse_port(text);
  if (!place) return base::pass(place.error());
  const uint16_t port = place->port;
  if (place->is_ipv4) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return listen_on(AF_INET, reinterpret_cast<const sockaddr*>(&address), sizeof address, text);
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  return listen_on(AF_INET6, reinterpret_cast<const sockaddr*>(&address), sizeof address, text);
}

}  // namespace

std::string metrics_text(const std::vector<CounterRow>& rows) {
  std::map<std::string, prometheus::MetricFamily> families;
  for (const auto& row : rows) {
    const std::string name = family_of(row);
    auto& family = families[name];
    if (family.name.empty()) {
      const auto help = helps().find(row.name);
      family.name = name;
      family.help = help != helps().end() ? help->second : "see vrdmactl conn stats";
      if (is_tenant(row)) family.help += ", summed over the tenant's present and past vdevices";
      family.type = row.gauge ? prometheus::MetricType::Gauge : prometheus::MetricType::Counter;
    }
    prometheus::ClientMetric metric;
    if (is_tenant(row)) {
      metric.label.push_back({"tenant", row.tenant});
    } else if (row.scope != "daemon") {
      metric.label.push_back({"vdevice", row.scope});
      metric.label.push_back({"netns", base::printable(row.netns)});
      metric.label.push_back({"id", std::to_string(row.vdev_id)});
      metric.label.push_back({"tenant", row.tenant});
    }
    for (const auto& [key, value] : row.facts)
      metric.label.push_back({key, base::printable(value)});
    if (!row.label.first.empty()) metric.label.push_back({row.label.first, row.label.second});
    (row.gauge ? metric.gauge.value : metric.counter.value) = static_cast<double>(row.value);
    family.metric.push_back(std::move(metric));
  }
  std::vector<prometheus::MetricFamily> sorted;
  for (auto& [name, family] : families) sorted.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(sorted);
}

base::Result<void> MetricsServer::check(const std::string& address) {
  if (address.empty()) return {};
  if (address.starts_with(kUnix)) {
    auto valid = check_path(address.substr(kUnix.size()));
    return valid ? std::move(valid) : base::pass(std::move(valid).error(), "metrics");
  }
  const auto place = parse_port(address);
  if (!place) return base::pass(place.error(), "metrics");
  return {};
}

base::Result<std::unique_ptr<MetricsServer>> MetricsServer::start(base::EventLoop& loop,
                                                                  const std::string& address,
                                                                  Source source) {
  const bool is_unix = address.starts_with(kUnix);
  const std::string path = is_unix ? address.substr(kUnix.size()) : std::string();
  auto listener = is_unix ? listen_on_path(path) : listen_on_port(address);
  if (!listener) return base::pass(std::move(listener).error(), "metrics");
  std::unique_ptr<MetricsServer> server(new MetricsServer(loop, std::move(source), path));
  auto acceptor = Acceptor::start(
      loop, std::move(*listener),
      Acceptor::accept([raw = server.get()](base::Fd client) { raw->admit(std::move(client)); }));
  if (!acceptor) return base::pass(std::move(acceptor).error(), "metrics");
  server->acceptor_ = std::move(*acceptor);
  return server;
}

MetricsServer::~MetricsServer() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void MetricsServer::admit(base::Fd fd) {
  if (clients_.size() >= kMaxClients) return;
  const uint64_t id = next_id_++;
  Client& client = clients_[id];
  client.fd = std::move(fd);
  auto watch =
      loop_.watch(client.fd.get(), EPOLLIN, [this, id](uint32_t events) { on_client(id, events); });
  if (!watch) {
    clients_.erase(id);
    return;
  }
  client.watch = std::move(*watch);
  client.deadline = loop_.after(kPatience, [this, id] { clients_.erase(id); });
}

void MetricsServer::on_client(uint64_t id, uint32_t) {
  const auto it = clients_.find(id);
  if (it == clients_.end()) return;
  Client& client = it->second;
  const bool goes_on = client.answer.empty() ? receive(id, client) : send(id, client);
  if (!goes_on) clients_.erase(id);
}

void MetricsServer::answer(uint64_t id, std::string text) {
  const auto it = clients_.find(id);
  if (it == clients_.end()) return;
  it->second.answer = std::move(text);
  if (!send(id, it->second)) clients_.erase(it);
}

// False: the connection has ended. True: `client` may have gone.
bool MetricsServer::receive(uint64_t id, Client& client) {
  char buffer[4096];
  const ssize_t got = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  client.request.append(buffer, static_cast<size_t>(got));
  if (client.request.find("\r\n\r\n") == std::string::npos) {
    if (client.request.size() <= kMaxRequest) return true;
    client.answer = response("431 Request Header Fields Too Large", "text/plain", "too long\n");
    return send(id, client);
  }
  const std::string line = client.request.substr(0, client.request.find("\r\n"));
  const bool head = line.rfind("HEAD ", 0) == 0;
  const std::string target = line.substr(std::min(line.size(), line.find(' ') + 1));
  if (line.rfind("GET ", 0) != 0 && !head)
    client.answer = response("405 Method Not Allowed", "text/plain", "only GET\n");
  else if (target.rfind("/metrics ", 0) != 0 && target.rfind("/metrics?", 0) != 0)
    client.answer = response("404 Not Found", "text/plain", "only /metrics\n", head);
  if (!client.answer.empty()) return send(id, client);
  client.watch.reset();  // what else it sends is not read
  source_([this, id, head, alive = std::weak_ptr(alive_)](const std::vector<CounterRow>& rows) {
    if (!alive.expired())
      answer(id, response("200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics_text(rows),
                          head));
  });
  return true;
}

bool MetricsServer::send(uint64_t id, Client& client) {
  while (client.sent < client.answer.size()) {
    const ssize_t sent = ::send(client.fd.get(), client.answer.data() + client.sent,
                                client.answer.size() - client.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      client.watch.reset();
      auto watch = loop_.watch(client.fd.get(), EPOLLOUT,
                               [this, id](uint32_t events) { on_client(id, events); });
      if (!watch) return false;
      client.watch = std::move(*watch);
      return true;
    }
    if (sent < 0) return false;
    client.sent += static_cast<size_t>(sent);
  }
  return false;
}

}  // namespace vrdma::vrdmad
