#include "vrdmad/vdevice.h"

#include "vrdmad/session.h"

namespace vrdma::vrdmad {

using provisioning::Kind;

Vdevice::Vdevice(transport::Runner& runner, const std::string& tenant, provisioning::Ledger limits,
                 const Rates& rates)
    : ledger(std::move(limits)),
      pacer(std::make_unique<Pacer>(runner.loop(), rates)),
      lane(runner, tenant) {}
Vdevice::~Vdevice() = default;

void Vdevice::apply_limits(bool limited) {
  const uint64_t mr_rate = ledger.limit(Kind::kMrRate);
  registrations.change(base::EventLoop::now(),
                       mr_rate == provisioning::traits(Kind::kMrRate).ceiling ? 0 : mr_rate,
                       mr_rate);
  pacer->set(ledger.limits());
  device.pace = limited ? pacer.get() : nullptr;
  device.fabric->set_limited(&device, limited || no_direct);
  if (!limited) pacer->dismiss();
}

std::shared_ptr<provisioning::Pool> Vdevice::cgroup(const std::string& path) {
  std::erase_if(cgroups, [](const auto& entry) { return entry.second.expired(); });
  auto& known = cgroups[path];
  auto pool = known.lock();
  if (pool == nullptr) known = pool = std::make_shared<provisioning::Pool>("cgroup " + path);
  return pool;
}

}  // namespace vrdma::vrdmad
