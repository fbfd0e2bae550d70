// The simulated broker: finds namespaces, and accepts connections of programs that do nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "tests/sim/host.h"
#include "vrdmad/broker/broker.h"

namespace vrdma::sim {

class SimBroker final : public vrdmad::Broker {
 public:
  explicit SimBroker(Host& host) : host_(host) {}

  [[nodiscard]] Answer serve(const Request& request, Beside* beside) override;

  // The paths of session sockets that exist.
  [[nodiscard]] std::vector<std::string> session_sockets() const;
  [[nodiscard]] size_t listeners() const { return listeners_.size(); }
  // A program connects to one of these.
  void connect(const std::string& path);

  // Worker processes that live: Recipient names them.
  [[nodiscard]] uint32_t add_worker();
  void remove_worker(uint32_t entry) { workers_.erase(entry); }

 private:
  struct Listener {
    std::string path;
    uint64_t netns = 0;
    base::Fd ready;  // an eventfd
    uint64_t waiting = 0;
  };
  Answer accept(Listener& listener, uint32_t worker, Beside* beside);

  Host& host_;
  uint32_t last_ = 0;
  std::map<uint32_t, Listener> listeners_;
  std::set<uint32_t> workers_;
};

}  // namespace vrdma::sim
