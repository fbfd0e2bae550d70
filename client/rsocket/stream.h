// A stream socket over RDMA.
#pragma once

#include <list>
#include <vector>

#include "client/rsocket/completions.h"
#include "client/rsocket/protocol.h"
#include "client/rsocket/rsocket.h"

namespace vrdma::client {

class RStream final : public RSocket {
 public:
  explicit RStream(int domain) : RSocket(domain, SOCK_STREAM) {}
  ~RStream() override;

  // connection.cc
  int bind(const sockaddr* address) override;
  int listen(int backlog) override;
  int connect(const sockaddr* address) override;
  int accept(std::shared_ptr<RSocket>* made) override;
  int shutdown(int how) override;
  void close() override;
  [[nodiscard]] int name(bool of_peer, sockaddr* address, socklen_t* length) override;

  // stream.cc
  ssize_t receive(const iovec* to, size_t count, int flags, RsOrigin* origin) override;
  ssize_t send(const iovec* from, size_t count, int flags, const sockaddr* to) override;

  // iomap.cc
  off_t map(void* buffer, size_t length, int protection, off_t offset) override;
  int unmap(void* buffer, size_t length) override;
  ssize_t write_mapped(const void* from, size_t count, off_t offset, int flags) override;

 private:
  enum class Phase { kIdle, kListening, kConnecting, kConnected, kFailed };
  struct Mapping {
    ibv_mr* region = nullptr;
    uint64_t offset = 0;
    uint32_t index = 0;
    bool remote = false;
    bool told = false;
  };

  // Creates the channel, and an id on it unless the connection is being accepted.
  int prepare_id();
  int take_request(const RStream& listener, const rdma_cm_event& event);
  void release();
  int create_endpoint();
  [[nodiscard]] RsHello hello() const;
  bool meet(const rdma_conn_param& told);
  void on_event(const rdma_cm_event& event);
  void fail_connect(int error);
  void take_events() override;

  // stream.cc
  void process() override;  // also sends owed credits
  void on_received(uint32_t message);
  void on_control(RsControl control);
  void give_credits();
  int send_control(RsControl control);
  int post_write(const void* local, uint32_t lkey, uint32_t length, uint64_t remote, uint32_t rkey,
                 const uint32_t* message, uint64_t wr_id);
  int post_receives(uint32_t count);
  [[nodiscard]] bool connected() const { return phase_ == Phase::kConnected; }
  [[nodiscard]] bool usable() const { return connected() && established_ && end_ == 0 && !gone_; }
  [[nodiscard]] bool can_send();
  void take_areas();
  [[nodiscard]] bool all_sent() const;
  [[nodiscard]] size_t send_piece(const uint8_t* from, size_t length);
  [[nodiscard]] int send_refused() const;
  int tell_mappings(Lock& lock, bool nonblocking, const timeval& limit);

  void arm() override;
  void disarm() override;
  [[nodiscard]] bool is_busy() const override { return connected(); }
  [[nodiscard]] short events_now(short events) override;

  // options.cc
  int apply_option(int level, int name, int value) override;
  [[nodiscard]] bool is_sized() const override { return completions_.queue() != nullptr; }
  [[nodiscard]] bool is_listening() const override { return phase_ == Phase::kListening; }
  int apply_options();

  rdma_cm_id* id_ = nullptr;
  RsCompletions completions_;

  Phase phase_ = Phase::kIdle;
  bool bound_ = false;
  bool established_ = false;  // the peer's answer has arrived
  bool reads_ = false;        // data may still arrive
  bool writes_ = false;       // data may still be sent
  bool shut_ = false;         // the peer knows that no more data comes
  bool gone_ = false;         // the peer has closed in both directions

  // Memory that the peer writes to: the list of its areas, then its iomaps; and the receive buffer.
  std::vector<uint8_t> told_, received_, sent_;
  ibv_mr *told_region_ = nullptr, *received_region_ = nullptr, *sent_region_ = nullptr;
  ReceiveRing in_;
  SendRing out_;
  SendCredits credits_;
  RsArea areas_[kRsAreas];           // areas of the peer's buffer, taken from told_
  uint32_t target_ = 0, taken_ = 0;  // the area that is being filled; the next to take
  RsArea peer_list_;
  uint32_t peer_entry_ = 1;  // the next to write
  uint32_t peer_iomaps_ = 0;
  uint32_t slots_ = 0;     // free slots of the send queue, for data
  uint32_t controls_ = 0;  // the same for control messages

  std::list<Mapping> mappings_;
};

}  // namespace vrdma::client
