// A datagram socket over RDMA, by the protocol of datagram_protocol.h.
//
// It has one UDP socket, which determines its port and its peer, and an endpoint for each local
// address in use. There is no extra thread: service messages wait in the UDP socket until a thread
// is in a call, which reads them at least once a millisecond while messages arrive.
//
// Peers end, and other sockets take their ports. If nothing was heard from a peer for a second, the
// next message to it goes by UDP again. So a stale destination is used for at most a second, and a
// connected socket learns that its peer has gone (ECONNREFUSED).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "client/rsocket/datagram_protocol.h"
#include "client/rsocket/endpoint.h"
#include "client/rsocket/rsocket.h"

namespace vrdma::client {

class RDatagram final : public RSocket {
 public:
  explicit RDatagram(int domain) : RSocket(domain, SOCK_DGRAM) {}
  ~RDatagram() override;

  // datagram.cc
  int open() override;
  int bind(const sockaddr* address) override;
  int connect(const sockaddr* address) override;
  int shutdown(int how) override;
  void close() override;
  [[nodiscard]] int name(bool of_peer, sockaddr* address, socklen_t* length) override;

  // messages.cc
  ssize_t receive(const iovec* to, size_t count, int flags, RsOrigin* origin) override;
  ssize_t send(const iovec* from, size_t count, int flags, const sockaddr* to) override;

 private:
  struct Destination {
    std::shared_ptr<RsEndpoint> endpoint;
    RsHandle handle;  // created at a send, renewed after a second because GID indices change
    uint32_t qpn = 0;
    Clock::time_point heard{}, asked{}, made{};
    // The queue pair is known, and messages need not go by UDP.
    [[nodiscard]] bool is_current(Clock::time_point now) const;
  };
  struct Message {
    RsAddress source;
    std::shared_ptr<RsEndpoint> endpoint;  // that owns the slot; nullptr: arrived by UDP
    uint32_t slot = 0;
    std::vector<uint8_t> copy;
    std::span<const uint8_t> bytes;
  };

  // datagram.cc
  int open_channel();  // to the vdevices' daemon; -ENETUNREACH: there is none
  int disconnect();
  int take_port();
  [[nodiscard]] RsAddress own_address() const;
  int local_for(const RsAddress& peer, RsAddress* local) const;
  int endpoint_at(const RsAddress& local, std::shared_ptr<RsEndpoint>* found);
  int reach(const RsAddress& peer, Destination** found);
  void forget_peers();
  void mend();
  [[nodiscard]] RsEndpoint::Sizes sizes() const;
  void process() override;
  void take_events() override;
  void arm() override;
  void disarm() override;
  [[nodiscard]] bool is_busy() const override { return !endpoints_.empty(); }
  [[nodiscard]] short events_now(short events) override;
  int apply_option(int level, int name, int value) override;
  [[nodiscard]] bool is_sized() const override { return !endpoints_.empty(); }

  // messages.cc
  [[nodiscard]] int refusal();
  [[nodiscard]] bool can_send() const;
  int to_peer(const sockaddr* to, RsAddress* peer) const;
  void on_arrival(const std::shared_ptr<RsEndpoint>& endpoint, const RsEndpoint::Arrival& arrival,
                  Clock::time_point now);
  Destination* find(const RsAddress& peer);

  // service.cc
  void look();
  void on_service(const RsAddress& source, const RsAddress& local, std::span<const uint8_t> bytes);
  void hold(const RsAddress& source, std::span<const uint8_t> bytes);
  int tell(const RsAddress& peer, const RsEndpoint& from, RsService::Kind kind, const iovec* what,
           size_t count);

  static constexpr std::chrono::seconds kTrust{1};  // how long knowledge of a peer is valid
  static constexpr size_t kMostPeers = 1024, kMostStrangers = 256;
  static constexpr uint32_t kMostHeld = 256;
  static constexpr int kLookAtOnce = 64;
  static constexpr std::chrono::milliseconds kLookEvery{1};

  base::Fd udp_;
  uint16_t port_ = 0;
  std::optional<RsAddress> peer_;
  bool reads_ = true, writes_ = true;
  std::vector<std::shared_ptr<RsEndpoint>> endpoints_;
  // Destinations of the program, and senders. Forged source addresses can evict only the latter.
  RsPeers<Destination> peers_{kMostPeers}, strangers_{kMostStrangers};
  std::deque<Message> arrived_;
  uint32_t held_ = 0;  // messages in arrived_ that came by UDP
  RsAddress refused_;  // a local address without an endpoint
  Clock::time_point looked_{}, mended_{}, refused_at_{};
};

}  // namespace vrdma::client
