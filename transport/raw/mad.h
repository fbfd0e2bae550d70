// The sender of a queue pair 1: management datagrams, one a message, to the queue pairs 1 of
// others.
//
// What carries them is the shared queue pair 1 of the host, behind a MadDesk: it looks at what a
// MAD says of its sender and refuses what is not his. As with all datagrams the sender does not
// learn what became of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/wire/mad.h"
#include "transport/message.h"
#include "transport/network_header.h"

namespace vrdma::transport {

struct AddressedMad {
  NetworkHeader header;
  wire::Mad mad;
};

// The way to the shared queue pair 1, while it is open. Nothing arrives any more when it has gone.
class MadDesk {
 public:
  virtual ~MadDesk() = default;
  virtual void send(const AddressedMad& mad) = 0;
};

class MadSender final : public MessageSender {
 public:
  MadSender(rdma::Qp& qp, Lane& lane, std::unique_ptr<MadDesk> desk)
      : MessageSender(qp, lane, 0), desk_(std::move(desk)) {}
  ~MadSender() override { abandon(); }

 private:
  [[nodiscard]] bool admit(const rdma::WorkRequest& request) override;
  [[nodiscard]] uint64_t max_length() const override { return wire::kMadBytes; }
  [[nodiscard]] Progress send(const rdma::WorkRequest& request, const Message& message) override;

  std::unique_ptr<MadDesk> desk_;
  verbs::Gid source_{};
};

// Puts one that arrived into the next receive of `qp`. False: it is lost.
[[nodiscard]] bool receive_mad(rdma::Qp& qp, const AddressedMad& mad);

}  // namespace vrdma::transport
