#include "vrdmad/worker/vdevice.h"

#include "transport/shm/connected.h"
#include "vrdmad/worker/raw_gsi.h"

namespace vrdma::vrdmad {

using provisioning::Kind;

Vdevice::Vdevice(transport::Runner& runner, const std::string& tenant, provisioning::Ledger limits,
                 const Rates& rates, std::shared_ptr<VdevicePage> shown)
    : page(std::move(shown)),
      device(part(page, &VdevicePage::device)),
      ledger(std::move(limits)),
      pacer(std::make_unique<Pacer>(runner.loop(), rates, part(page, &VdevicePage::paced))),
      buffers(runner.loop(), part(page, &VdevicePage::buffers)),
      requests(runner.loop(), part(page, &VdevicePage::requests)),
      counters(page->sessions),
      cpu(std::make_shared<CpuPace>(rates, part(page, &VdevicePage::cpu))),
      reach_threads(std::make_shared<rdma::ReachThreads>(cpu, rdma::ReachThreads::kMost,
                                                         part(page, &VdevicePage::reaches))),
      lane(runner, tenant) {
  lane.set_meter(cpu.get());
  device.meter = cpu;
  device.buffers = &buffers;
  transports.shm = [this](rdma::Qp& qp) {
    return std::make_unique<transport::ConnectedSender>(qp, lane);
  };
  device.choose_sender = [this](rdma::Qp& qp) { return transports.choose(qp); };
}
Vdevice::~Vdevice() = default;

size_t Vdevice::descriptors() const {
  size_t sum = 0;
  for (const rdma::Context* context : device.contexts)
    sum += kSessionDescriptors + context->channels.count();
  return sum;
}

void Vdevice::apply_limits(bool limited) {
  const uint64_t mr_rate = provisioning::bound(ledger, Kind::kMrRate);
  registrations.change(lane.loop().now(), mr_rate, mr_rate);
  requests.set(provisioning::bound(ledger, Kind::kReqRate));
  pacer->set(ledger.limits());
  buffers.set_limit(ledger.limit(Kind::kWorkerMemory));
  cpu->set(ledger.limit(Kind::kCpu));
  device.pace = limited ? pacer.get() : nullptr;
  device.fabric->mediate(&device, rdma::Mediated::kRate, limited);
  if (!limited) pacer->dismiss();
}

void Vdevice::reach_network(const std::vector<gid::Prefix>& with,
                            std::shared_ptr<transport::roce::Incoming> incoming,
                            transport::roce::Network::Host host) {
  reaches_network = true;
  peers = with;
  if (network == nullptr) {
    network = std::make_unique<transport::roce::Network>(device, lane, std::move(incoming),
                                                         page->network, std::move(host));
    transports.network = [this](rdma::Qp& qp) {
      return is_peer(qp.dgid()) ? network->make_sender(qp) : nullptr;
    };
  }
  device.on_group = [this](const verbs::Gid& group, bool joined) {
    if (joined && is_peer(group))
      network->join(group);
    else
      network->leave(group);
  };
  for (const auto& [group, queue_pairs] : device.groups) device.on_group(group, true);
  for (rdma::Context* context : device.contexts)
    context->qps.each([this](rdma::Qp& qp) {
      if (qp.link.remote && !is_peer(qp.dgid())) qp.fail();
      receive_datagrams(qp);
    });
}

void Vdevice::receive_datagrams(const rdma::Qp& qp) {
  if (reaches_network && qp.type == verbs::QpType::kUd && qp.can_receive())
    network->receive_datagrams();
}

void Vdevice::leave_network() {
  reaches_network = false;
  if (network == nullptr) return;
  device.on_group = nullptr;
  network->leave_groups();
  network->release();
  for (rdma::Context* context : device.contexts)
    context->qps.each([](rdma::Qp& qp) {
      if (qp.link.remote) qp.fail();
    });
}

bool Vdevice::is_peer(const verbs::Gid& address) const {
  return reaches_network &&
         (gid::permits(peers, address) || device.fabric->find(address) != nullptr);
}

bool Vdevice::is_beyond(const rdma::Qp& qp) const {
  return verbs::is_connected(qp.type) && device.fabric->near(device, qp.dgid()) == nullptr &&
         is_peer(qp.dgid());
}

std::shared_ptr<provisioning::Pool> Vdevice::cgroup(const std::string& path) {
  std::erase_if(cgroups, [](const auto& entry) { return entry.second.expired(); });
  auto& known = cgroups[path];
  auto pool = known.lock();
  if (pool == nullptr) known = pool = std::make_shared<provisioning::Pool>("cgroup " + path);
  return pool;
}

}  // namespace vrdma::vrdmad
