// The Prometheus endpoint: GET /metrics on a unix socket or on a loopback port.
//
// It is opt-in, and only for this host: what it shows are names of tenants and what they do. A
// listening socket on the control loop costs nothing until somebody asks; then the rows of the
// admin API's counters are turned into the text format by prometheus-cpp. One request a connection,
// at most 8 KiB of it and 5 s for it, at most 16 connections at a time: who connects is not
// trusted.
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

// The text format 0.0.4 of `rows`: docs/metrics.md describes the names and labels.
[[nodiscard]] std::string metrics_text(const std::vector<CounterRow>& rows);

class MetricsServer {
 public:
  using Source = std::function<std::vector<CounterRow>()>;

  // `address`: "unix:PATH", where the socket gets the mode 0600 and a socket that nobody listens on
  // is replaced, or "127.0.0.1:PORT" or "[::1]:PORT". EINVAL: anything else. `loop` outlives it.
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
  bool receive(Client& client);
  bool send(uint64_t id, Client& client);

  base::EventLoop& loop_;
  const Source source_;
  const std::string path_;  // of a unix socket; else empty
  std::unique_ptr<Acceptor> acceptor_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;
};

}  // namespace vrdma::vrdmad
