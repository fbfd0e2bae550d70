// Extended reliable connections (IBTA annex A14).
//
// A domain is shared by the processes of one device that name the same file, or is one process's
// own. Two things live in it: SRQs, each of one process, and target queue pairs, which belong to
// all processes that have them open and end with the last of these. A request names the SRQ that
// takes its message; the SRQ also says in whose memory, and under which protection domain, WRITE,
// READ and atomics act. Its receives complete on the SRQ's own completion queue, by way of an
// inbox that the SRQ has. All of it is executed by workers.
#pragma once

#include <memory>
#include <unordered_map>

#include "core/rdma/device.h"

namespace vrdma::rdma {

struct XrcDomain {
  std::unordered_map<uint32_t, Srq*> srqs;                    // by SRQ number
  std::unordered_map<uint32_t, std::unique_ptr<Qp>> targets;  // by QPN

  XrcDomain() = default;
  XrcDomain(const XrcDomain&) = delete;
  XrcDomain& operator=(const XrcDomain&) = delete;

  // nullptr if no SRQ of the domain has this number.
  [[nodiscard]] Srq* find(uint32_t srqn) const {
    const auto it = srqs.find(srqn);
    return it == srqs.end() ? nullptr : it->second;
  }
  [[nodiscard]] Qp* find_target(uint32_t qpn) const;

  // Gives the SRQ a number in the domain, or the number `wanted`, which must be free; and takes it
  // out again: what initiators have begun or wait for at it is begun anew, and then finds that it
  // is gone.
  void add(Srq& srq, uint32_t wanted = 0);
  void remove(Srq& srq);
};

// A target as a dead daemon had it in a context.
struct WantedTarget {
  uint32_t handle = 0, qpn = 0;  // 0: any
};
// Makes a target queue pair in RESET, open in `context`. nullptr: another has the wanted number.
[[nodiscard]] Target* make_target(Context& context, Xrcd& xrcd, WantedTarget wanted = {});
// Opens one that is there.
[[nodiscard]] Target* open_target(Context& context, Xrcd& xrcd, Qp& qp, uint32_t wanted = 0);
void close_target(Context& context, Target& target);

}  // namespace vrdma::rdma
