// The ports of rdma_cm: which are bound, by the rules that Linux has for them (and, but for the
// error of a wildcard, for sockets).
//
// A network namespace has ports of its own in each port space, apart from those of TCP and UDP. Two
// may hold the same port at different addresses; a wildcard is at all addresses, that of IPv6 also
// at those of IPv4 unless both sides are for their family alone. Who says so (`reuse`) may share
// with others who say so, until one of them listens.
//
// The port names a service ID (wire::service_id), for which the holder listens or from which it
// connects. Threads: that of the Mux.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/verbs/gid.h"
#include "core/wire/rdma_cm.h"

namespace vrdma::qp1mux {

struct PortRequest {
  uint64_t netns = 0;  // its cookie
  wire::PortSpace space = wire::PortSpace::kTcp;
  verbs::Gid address;        // ::ffff:0.0.0.0 and :: are the wildcards
  uint16_t port = 0;         // 0: any that is free
  bool reuse = false;        // RDMA_OPTION_ID_REUSEADDR
  bool family_only = false;  // RDMA_OPTION_ID_AFONLY
  bool privileged = false;   // may bind a port below 1024
};

class PortTable {
 public:
  // What is held. Move-only; the destructor frees the port. Must not outlive the table.
  class Binding {
   public:
    Binding() = default;
    void reset() { holder_.reset(); }

    [[nodiscard]] bool active() const { return holder_ != nullptr; }
    [[nodiscard]] uint16_t port() const;
    [[nodiscard]] const PortRequest& request() const;  // as it is held

    // From now on nobody shares with it. EADDRINUSE or EADDRNOTAVAIL, as for bind(), if somebody
    // does already.
    base::Result<void> listen();

   private:
    friend class PortTable;
    struct Holder;
    struct Free {  // takes it out of the table first
      void operator()(Holder* holder) const;
    };
    explicit Binding(Holder* holder) : holder_(holder) {}
    std::unique_ptr<Holder, Free> holder_;
  };

  // Free ports are sought in first .. last, from a random one on (net.ipv4.ip_local_port_range).
  explicit PortTable(uint16_t first = 32768, uint16_t last = 60999);
  PortTable(const PortTable&) = delete;
  PortTable& operator=(const PortTable&) = delete;

  // EADDRINUSE (somebody is at that address), EADDRNOTAVAIL (a wildcard is in the way, or no port
  // is free), EACCES (a port below 1024 without the privilege).
  [[nodiscard]] base::Result<Binding> bind(const PortRequest& request);

  [[nodiscard]] size_t bound() const { return count_; }

 private:
  using Key = std::tuple<uint64_t, wire::PortSpace, uint16_t>;
  [[nodiscard]] base::Result<void> check(const PortRequest& request,
                                         const Binding::Holder* but) const;

  uint16_t first_, last_;
  std::map<Key, std::vector<Binding::Holder*>> holders_;
  size_t count_ = 0;
};

}  // namespace vrdma::qp1mux
