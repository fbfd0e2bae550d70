// The ports of rdma_cm, bound by the rules of Linux for them (which are those of sockets, except
// for the error of a wildcard).
//
// A network namespace has separate ports in each port space, independent of those of TCP and UDP.
// Two ids may hold the same port at different addresses. A wildcard covers all addresses; that of
// IPv6 also covers IPv4 unless both sides are restricted to their family. Ids with `reuse` may
// share a port with each other until one of them listens.
//
// The port determines a service ID (wire::service_id), for which the holder listens or from which
// it connects. Threads: only the Mux's.
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
  uint64_t netns = 0;  // the namespace's cookie
  wire::PortSpace space = wire::PortSpace::kTcp;
  verbs::Gid address;        // ::ffff:0.0.0.0 and :: are the wildcards
  uint16_t port = 0;         // 0: any free port
  bool reuse = false;        // RDMA_OPTION_ID_REUSEADDR
  bool family_only = false;  // RDMA_OPTION_ID_AFONLY
  bool privileged = false;   // may bind a port below 1024
};

class PortTable {
 public:
  // A bound port. Move-only; the destructor frees it. Must not outlive the table.
  class Binding {
   public:
    Binding() = default;
    void reset() { holder_.reset(); }

    [[nodiscard]] bool active() const { return holder_ != nullptr; }
    [[nodiscard]] uint16_t port() const;
    [[nodiscard]] const PortRequest& request() const;  // as bound

    // Makes the binding exclusive. EADDRINUSE or EADDRNOTAVAIL, as for bind(), if another id shares
    // it.
    base::Result<void> listen();

   private:
    friend class PortTable;
    struct Holder;
    struct Free {  // removes it from the table first
      void operator()(Holder* holder) const;
    };
    explicit Binding(Holder* holder) : holder_(holder) {}
    std::unique_ptr<Holder, Free> holder_;
  };

  // bind() to port 0 searches first .. last from a random port (net.ipv4.ip_local_port_range).
  explicit PortTable(uint16_t first = 32768, uint16_t last = 60999);
  PortTable(const PortTable&) = delete;
  PortTable& operator=(const PortTable&) = delete;

  // EADDRINUSE (the address is in use), EADDRNOTAVAIL (a wildcard is in the way, or no port is
  // free), EACCES (a port below 1024 without the privilege).
  [[nodiscard]] base::Result<Binding> bind(const PortRequest& request);

  // Why bind() would refuse the address. The port must not be 0.
  [[nodiscard]] base::Result<void> may_bind(const PortRequest& request) const {
    return check(request, nullptr);
  }

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
