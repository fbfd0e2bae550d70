// The Prometheus endpoint: GET /metrics on a unix socket or on a loopback port.
//
// It is opt-in and for this host only, because it shows names and activity of tenants. A listening
// socket on the control loop costs nothing until a client connects; then prometheus-cpp renders the
// rows of the admin API's counters as text. Clients are not trusted: one request per connection, of
// at most 8 KiB in at most 5 s, and at most 16 connections at a time.
//
// Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/base/fd.h"
#include "vrdmad/admin/backend.h"
#include "vrdmad/broker/acceptor.h"

namespace vrdma::vrdmad {

// `rows` in text format 0.0.4; docs/metrics.md describes the names and labels.
[[nodiscard]] std::string metrics_text(const std::vector<CounterRow>& rows);

class MetricsServer {
 public:
  // To call its argument once with the rows, now or later, on the loop.
  using Source = std::function<void(std::function<void(std::vector<CounterRow>)>)>;

  // EINVAL: start() would refuse this address. An empty one is none.
  [[nodiscard]] static base::Result<void> check(const std::string& address);
  // `address`: "unix:PATH" (the socket gets mode 0600; a stale socket is replaced),
  // "127.0.0.1:PORT" or "[::1]:PORT". EINVAL: anything else. `loop` must outlive the server.
  [[nodiscard]] static base::Result<std::unique_ptr<MetricsServer>> start(
      base::EventLoop& loop, const std::string& address, Source source);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();  // removes the socket's path

 private:
  struct Client {
    base::Fd fd;
    std::string request, answer;
    size_t sent = 0;
    base::EventLoop::Watch watch;
    base::EventLoop::Timer deadline;
  };

  MetricsServer(base::EventLoop& loop, Source source, std::string path)
      : loop_(loop), source_(std::move(source)), path_(std::move(path)) {}
  void admit(base::Fd fd);
  void on_client(uint64_t id, uint32_t events);
  bool receive(uint64_t id, Client& client);
  void answer(uint64_t id, std::string text);
  bool send(uint64_t id, Client& client);

  base::EventLoop& loop_;
  const Source source_;
  const std::string path_;  // of a unix socket; otherwise empty
  std::unique_ptr<Acceptor> acceptor_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
