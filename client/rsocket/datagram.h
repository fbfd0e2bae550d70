// A datagram socket whose data goes by RDMA, by the protocol of rsocket_datagram_protocol.h.
//
// It has one socket of UDP, whose port and whose peer are its own, and an endpoint for each of its
// addresses that is in use. There is no thread beside the program's: service messages are answered
// by whoever is in a call, at least once a millisecond while there are messages, and wait in the
// UDP socket meanwhile.
//
// Peers end, and others take their ports: of whom nothing was heard for a second the next message
// goes by UDP once more. So nobody is sent to in vain for longer, and a connected socket is told
// that nobody is there (ECONNREFUSED).
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

  // rsocket_datagram.cc
  int open() override;
  int bind(const sockaddr* address) override;
  int connect(const sockaddr* address) override;
  int shutdown(int how) override;
  void close() override;
  [[nodiscard]] int name(bool of_peer, sockaddr* address, socklen_t* length) override;

  // rsocket_messages.cc
  ssize_t receive(const iovec* to, size_t count, int flags, RsOrigin* origin) override;
  ssize_t send(const iovec* from, size_t count, int flags, const sockaddr* to) override;

 private:
  struct Destination {
    std::shared_ptr<RsEndpoint> endpoint;
    RsHandle handle;  // made when the program sends, and anew after a second: GIDs change places
    uint32_t qpn = 0;
    Clock::time_point heard{}, asked{}, made{};
    // Its queue pair can be sent to without asking.
    [[nodiscard]] bool is_current(Clock::time_point now) const;
  };
  struct Message {
    RsAddress source;
    std::shared_ptr<RsEndpoint> endpoint;  // whose slot it is in; nullptr: it came by UDP
    uint32_t slot = 0;
    std::vector<uint8_t> copy;
    std::span<const uint8_t> bytes;
  };

  // rsocket_datagram.cc
  int open_channel();  // of the vdevices' daemon: -ENETUNREACH if there is none
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

  // rsocket_messages.cc
  [[nodiscard]] int refusal();
  [[nodiscard]] bool can_send() const;
  int to_peer(const sockaddr* to, RsAddress* peer) const;
  void on_arrival(const std::shared_ptr<RsEndpoint>& endpoint, const RsEndpoint::Arrival& arrival,
                  Clock::time_point now);
  Destination* find(const RsAddress& peer);

  // rsocket_service.cc
  void look();
  void on_service(const RsAddress& source, const RsAddress& local, std::span<const uint8_t> bytes);
  void hold(const RsAddress& source, std::span<const uint8_t> bytes);
  int tell(const RsAddress& peer, const RsEndpoint& from, RsService::Kind kind, const iovec* what,
           size_t count);

  static constexpr std::chrono::seconds kTrust{1};  // how long what is known of a peer is good
  static constexpr size_t kMostPeers = 1024, kMostStrangers = 256;
  static constexpr uint32_t kMostHeld = 256;
  static constexpr int kLookAtOnce = 64;
  static constexpr std::chrono::milliseconds kLookEvery{1};

  base::Fd udp_;
  uint16_t port_ = 0;
  std::optional<RsAddress> peer_;
  bool reads_ = true, writes_ = true;
  std::vector<std::shared_ptr<RsEndpoint>> endpoints_;
  // To whom the program has sent; who has sent to it. Whoever makes up addresses can only crowd out
  // the latter.
  RsPeers<Destination> peers_{kMostPeers}, strangers_{kMostStrangers};
  std::deque<Message> arrived_;
  uint32_t held_ = 0;  // of these, that came by UDP
  RsAddress refused_;  // of ours, for which there was no endpoint
  Clock::time_point looked_{}, mended_{}, refused_at_{};
};

}  // namespace vrdma::client
