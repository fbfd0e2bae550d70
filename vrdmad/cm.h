// Connections of all vdevices: the multiplexer of queue pair 1 with what it needs of the daemon.
//
// A vdevice takes part by a CmDevice, which is one Endpoint; programs come over the rdma_cm socket
// of their namespace (core/ipc/cm_messages.h), one CmSession each. Which way a connection goes: to
// the vdevice of the namespace whose fabric has the peer's address, from the address of its that is
// most like it (the longest common prefix). Loopback addresses mean the namespace's own vdevices.
//
// Belongs to the control thread. Only QpNumbers are shared with the workers.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/event_loop.h"
#include "core/rdma/qp_numbers.h"
#include "qp1mux/cm_id.h"
#include "qp1mux/loopback.h"
#include "qp1mux/mux.h"
#include "vrdmad/session_socket.h"

namespace vrdma::vrdmad {

class Cm;
class CmSession;

struct CmDeviceSetup {
  std::string name, tenant, fabric;
  uint64_t netns = 0;      // its inode
  uint64_t node_guid = 0;  // big-endian
  std::shared_ptr<rdma::QpNumbers> qp_numbers;
};

// A vdevice's part. The destructor tells the ids of the vdevice that it has gone.
class CmDevice {
 public:
  ~CmDevice();
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;

  // `gids` as its table has them.
  void update(const std::vector<verbs::Gid>& gids, uint32_t roce_mtu);

  [[nodiscard]] const std::string& fabric() const { return setup_.fabric; }
  [[nodiscard]] uint64_t netns() const { return setup_.netns; }
  [[nodiscard]] uint64_t node_guid() const { return setup_.node_guid; }
  [[nodiscard]] const std::vector<verbs::Gid>& gids() const { return gids_; }
  [[nodiscard]] uint8_t sgid_index(const verbs::Gid& gid) const;
  [[nodiscard]] uint8_t path_mtu() const { return path_mtu_; }  // ibv_mtu
  [[nodiscard]] qp1mux::Endpoint& endpoint() { return endpoint_; }

 private:
  friend class Cm;
  CmDevice(Cm& cm, CmDeviceSetup setup, qp1mux::Endpoint endpoint);

  Cm& cm_;
  CmDeviceSetup setup_;
  qp1mux::Endpoint endpoint_;
  std::vector<verbs::Gid> gids_;
  uint8_t path_mtu_ = 3;
};

class Cm final : qp1mux::Clock, qp1mux::Routes {
 public:
  explicit Cm(base::EventLoop& loop);
  ~Cm() override;
  Cm(const Cm&) = delete;
  Cm& operator=(const Cm&) = delete;

  [[nodiscard]] base::Result<std::unique_ptr<CmDevice>> attach(CmDeviceSetup setup);
  // The socket of the namespace whose directory is given: made for the first who asks, gone with
  // the last who lets go.
  [[nodiscard]] base::Result<std::shared_ptr<SessionSocket>> socket(uint64_t netns,
                                                                    const std::string& directory);

  [[nodiscard]] const qp1mux::Mux& mux() const { return mux_; }

  // For CmSession.
  [[nodiscard]] base::EventLoop& loop() { return loop_; }
  [[nodiscard]] qp1mux::CmHost& host() { return host_; }
  [[nodiscard]] const CmDevice* device(const qp1mux::Endpoint* endpoint) const;
  [[nodiscard]] std::vector<uint64_t> guids(uint64_t netns) const;
  // 127.0.0.0/8 and ::1 become an address of a vdevice of the namespace, if it has one.
  [[nodiscard]] verbs::Gid meant(uint64_t netns, const verbs::Gid& gid) const;

 private:
  friend class CmDevice;
  [[nodiscard]] base::TimePoint now() const override { return base::EventLoop::now(); }
  void wake_at(base::TimePoint when) override;
  base::Result<qp1mux::Route> find(uint64_t netns, const verbs::Gid& local,
                                   const verbs::Gid& remote) override;
  base::Result<qp1mux::Endpoint*> owner(uint64_t netns, const verbs::Gid& local) override;
  std::vector<qp1mux::Endpoint*> all(uint64_t netns) override;
  void accept(uint64_t netns, base::Fd client);
  void gone(CmDevice& device);

  base::EventLoop& loop_;
  base::EventLoop::Timer timer_;
  qp1mux::Loopback loopback_;
  qp1mux::Mux mux_;
  qp1mux::PortTable ports_;
  qp1mux::CmHost host_;
  std::vector<CmDevice*> devices_;
  std::map<uint64_t, std::weak_ptr<SessionSocket>> sockets_;
  std::list<std::unique_ptr<CmSession>> sessions_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace vrdma::vrdmad
