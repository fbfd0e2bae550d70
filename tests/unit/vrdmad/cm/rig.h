// Clients of the rdma_cm socket that send arbitrary requests: two vdevices of one fabric, each in
// its own namespace, and a Cm on the test's thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/ipc/cm_messages.h"
#include "core/ipc/socket.h"
#include "vrdmad/broker/local_broker.h"
#include "vrdmad/cm/cm.h"
#include "vrdmad/cm/gsi_relay.h"
#include "vrdmad/worker/raw_gsi.h"

namespace vrdma::vrdmad {

constexpr uint16_t kPort = 7471;
constexpr uint32_t kTcpSpace = 0x106, kUdpSpace = 0x111;
constexpr uint32_t kRc = static_cast<uint32_t>(verbs::QpType::kRc);
constexpr uint32_t kUd = static_cast<uint32_t>(verbs::QpType::kUd);

struct CmRig {
  std::shared_ptr<LocalBroker> broker = std::make_shared<LocalBroker>();
  std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
  CmNetwork* const network;
  std::optional<Cm> daemon{std::in_place, *loop, settings_of(broker), network};
  Cm& cm = *daemon;
  std::array<std::shared_ptr<CmNamespace>, 2> spaces;
  std::array<std::shared_ptr<GsiRelay>, 2> relays;
  // What a worker has of each vdevice.
  std::array<std::shared_ptr<VdevicePage>, 2> pages;
  std::array<std::unique_ptr<RawGsi>, 2> gsis;
  std::array<std::unique_ptr<CmDevice>, 2> devices;
  // Of both.
  std::shared_ptr<rdma::QpNumberTable> qp_numbers = std::make_shared<rdma::QpNumberTable>();

  static constexpr uint32_t kFirstNumber = 3;  // of their session sockets

  explicit CmRig(CmNetwork* to_others = nullptr) : network(to_others) {
    for (uint32_t qpn = 2; qpn < 64; ++qpn) qp_numbers->slot(qpn - 2) = qpn;
    qp_numbers->end() = 62;
    attach();
  }
  void attach(const std::vector<provisioning::Setting>& limits = {}) {
    for (uint64_t i = 0; i < 2; ++i) {
      devices[i].reset();
      CmDeviceSetup setup;
      setup.id = i + 7;
      setup.name = i == 0 ? "va" : "vb";
      setup.tenant = setup.fabric = "red";
      setup.netns = i + 1;
      setup.node_guid = i + 100;
      setup.number = kFirstNumber + static_cast<uint32_t>(i);
      setup.qp_numbers = rdma::QpNumberReader(qp_numbers);
      pages[i] = std::make_shared<VdevicePage>();
      setup.gsi = relays[i] = std::make_shared<GsiRelay>(*loop, setup.name, pages[i]);
      gsis[i] = std::make_unique<RawGsi>(*loop, relays[i]->connect().value(),
                                         pages[i]->sessions.qp1_lost);
      if (!setup.ledger.set_limits(limits)) std::abort();
      devices[i] = std::move(*cm.attach(std::move(setup)));
      devices[i]->update({gid(i)}, 4096);
      spaces[i] = cm.space(i + 1);
    }
  }
  // Replaces the Cm as a killed daemon is replaced.
  static SessionSettings settings_of(std::shared_ptr<Broker> broker) {
    SessionSettings settings;
    settings.broker = std::move(broker);
    return settings;
  }
  void new_daemon(std::shared_ptr<Broker> its = nullptr) {
    daemon.emplace(*loop, settings_of(its != nullptr ? std::move(its) : broker), network);
  }
  void replace_daemon(const std::string& state_dir, const std::set<uint64_t>& later = {},
                      std::shared_ptr<Broker> its = nullptr) {
    cm.leave_sessions();
    spaces = {};
    devices = {};
    new_daemon(std::move(its));
    attach();
    cm.keep_sessions(state_dir);
    cm.adopt_sessions(later);
  }
  static verbs::Gid gid(uint64_t vdevice) {
    verbs::Gid gid;
    gid.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    gid.bytes[15] = static_cast<uint8_t>(gid.bytes[15] + vdevice);
    return gid;
  }
  static ipc::CmAddress address(uint64_t vdevice, uint16_t port) {
    ipc::CmAddress address{};
    std::memcpy(address.gid, gid(vdevice).bytes.data(), 16);
    address.port = port;
    return address;
  }
  // Lets the control thread do all work that is pending.
  void settle(int passes = 12) {
    while (passes-- > 0) {
      loop->post([this] { loop->stop(); });
      loop->run();
    }
  }
};

class CmClient {
 public:
  CmClient(CmRig& rig, size_t vdevice) : rig_(rig), vdevice_(vdevice) { connect(); }
  void connect() {
    auto [own, daemons] = ipc::make_socket_pair(SOCK_NONBLOCK).value();
    socket_ = std::move(own);
    rig_.cm.accept(rig_.spaces[vdevice_], *rig_.broker->admit(std::move(daemons)));
  }
  // Returns the errno; `reply` has the sequence of the last completed request.
  int resume() {
    const base::Fd before = std::move(socket_);
    connect();
    ipc::CmRequest request;
    request.call = ipc::CmCall::kResume;
    std::memcpy(request.param.data, secret.data(), sizeof secret);
    send(&request, sizeof request);
    return receive();
  }
  // Sends a request with that sequence.
  int say_again(ipc::CmRequest request, uint32_t sequence) {
    request.sequence = sequence;
    send(&request, sizeof request);
    return receive();
  }

  void send(const void* data, size_t size, const std::vector<int>& fds = {}) {
    (void)ipc::send_message(socket_.get(), data, size, fds);
  }
  // Returns the errno, or -1 if there is no reply.
  int call(ipc::CmRequest request) {
    request.sequence = ++sequence_;
    send(&request, sizeof request);
    return receive();
  }
  int receive() {
    std::vector<base::Fd> fds;
    reply = {};
    for (int i = 0; i < 4; ++i) {
      if (ipc::receive(socket_.get(), &reply, &fds)) {
        if (!fds.empty()) beside = std::move(fds[0]);
        return reply.error;
      }
      if (i < 3) rig_.settle(i + 1);
    }
    return -1;
  }
  int call(ipc::CmCall call, uint32_t handle = 0, uint32_t value = 0) {
    ipc::CmRequest request;
    request.call = call;
    request.handle = handle;
    request.value = value;
    return this->call(request);
  }
  [[nodiscard]] bool ended() {
    rig_.settle();
    pollfd state{socket_.get(), POLLIN, 0};
    return ::poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
  }
  void hang_up() { socket_.reset(); }

  // A client's usual calls; each must succeed.
  uint32_t channel() {
    must(call(ipc::CmCall::kCreateChannel));
    std::memcpy(secret.data(), reply.guids, sizeof secret);
    channels.emplace_back(reply.handle, std::move(beside));
    return reply.handle;
  }
  uint32_t id(uint32_t channel, uint32_t space = kTcpSpace, uint32_t type = kRc) {
    must(try_id(channel, space, type));
    return reply.handle;
  }
  int try_id(uint32_t channel, uint32_t space = kTcpSpace, uint32_t type = kRc) {
    ipc::CmRequest request;
    request.call = ipc::CmCall::kCreateId;
    request.channel = channel;
    request.handle = ++last_id_ | ipc::kCmOwnHandle;
    request.space = space;
    request.qp_type = type;
    return call(request);
  }
  int bind(uint32_t id, const ipc::CmAddress& local) {
    ipc::CmRequest request;
    request.call = ipc::CmCall::kBind;
    request.handle = id;
    request.local = local;
    return call(request);
  }
  int resolve(uint32_t id, const ipc::CmAddress& remote, uint32_t timeout_ms = 0) {
    ipc::CmRequest request;
    request.value = timeout_ms;
    request.call = ipc::CmCall::kResolveAddr;
    request.handle = id;
    request.remote = remote;
    return call(request);
  }
  int with_qp(ipc::CmCall which, uint32_t id, uint32_t qpn) {
    ipc::CmRequest request;
    request.call = which;
    request.handle = id;
    request.param.qpn = qpn;
    return call(request);
  }
  // The next event of the first channel; none if it is empty.
  std::optional<ipc::CmEventMessage> event() {
    rig_.settle();
    ipc::CmEventMessage message;
    const int fd = channels.front().second.get();
    if (::recv(fd, &message, sizeof message, MSG_DONTWAIT) != sizeof message) return std::nullopt;
    return message;
  }
  // A listener at a port of its vdevice.
  uint32_t listener(size_t vdevice, uint16_t port, uint32_t backlog = 16) {
    const uint32_t made = id(channels.empty() ? channel() : channels.front().first);
    must(bind(made, CmRig::address(vdevice, port)));
    must(call(ipc::CmCall::kListen, made, backlog));
    return made;
  }
  // An id that has sent a request to the other vdevice.
  uint32_t caller(size_t other, uint16_t port, uint32_t qpn) {
    const uint32_t made = id(channels.empty() ? channel() : channels.front().first);
    must(resolve(made, CmRig::address(other, port)));
    must(call(ipc::CmCall::kResolveRoute, made));
    must(with_qp(ipc::CmCall::kConnect, made, qpn));
    return made;
  }

  [[nodiscard]] uint32_t sequence() const { return sequence_; }

  ipc::CmReply reply;
  base::Fd beside;
  std::array<uint8_t, ipc::kCmSecret> secret{};
  std::deque<std::pair<uint32_t, base::Fd>> channels;

 private:
  static void must(int error) {
    if (error != 0) std::abort();
  }
  CmRig& rig_;
  size_t vdevice_;
  base::Fd socket_;
  uint32_t sequence_ = 0;
  uint32_t last_id_ = 0;
};

}  // namespace vrdma::vrdmad
