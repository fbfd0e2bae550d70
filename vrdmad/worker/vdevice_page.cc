#include "vrdmad/worker/vdevice_page.h"

namespace vrdma::vrdmad {

using provisioning::Kind;

VdeviceUse use_of(const VdevicePage& page, const rdma::FabricCounters& fabric,
                  base::TimePoint now) {
  VdeviceUse use;
  use.device = page.device;
  use.counters = page.sessions;
  use.fabric = fabric;
  use.network = page.network;
  for (const Kind kind : provisioning::all_kinds()) {
    const provisioning::Use& its = page.quota[static_cast<size_t>(kind)];
    use.quota.push_back({kind, its.used, its.limit, its.refused});
  }
  const auto tell = [&](Kind kind, uint64_t used, uint64_t refused) {
    provisioning::Row& row = use.quota[static_cast<size_t>(kind)];
    row.used = used;
    row.refused = refused;
  };
  const provisioning::RateUse bytes(page.paced.bytes), messages(page.paced.messages);
  tell(Kind::kBandwidth, bytes.rate(now), bytes.waits);
  tell(Kind::kMsgRate, messages.rate(now), messages.waits);
  use.paced_bytes = bytes.spent;
  use.paced_messages = messages.spent;
  tell(Kind::kCpu, page.cpu.percent(now), page.cpu.rate.waits);
  use.reach_turns = page.reaches.turns.load(std::memory_order_relaxed);
  use.cpu = base::Duration(page.cpu.total.load(std::memory_order_relaxed));
  const uint64_t req_rate = use.quota[static_cast<size_t>(Kind::kReqRate)].limit;
  const bool limited = req_rate != provisioning::traits(Kind::kReqRate).ceiling;
  tell(Kind::kReqRate, page.requests.used(now, limited ? req_rate : 0), page.requests.waited);
  tell(Kind::kWorkerMemory, page.buffers.held.load(std::memory_order_relaxed),
       page.buffers.refused);
  return use;
}

void forget_use(VdevicePage& page) {
  for (provisioning::Use& use : page.quota) use.used = 0;
  page.device.contexts = 0;
  for (base::Counter& qps : page.device.qps) qps = 0;
  page.device.links_direct = page.device.links_mediated = 0;
  page.buffers.held = 0;
  page.intake_unfinished = 0;
}

}  // namespace vrdma::vrdmad
