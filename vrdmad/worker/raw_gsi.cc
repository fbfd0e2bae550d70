#include "vrdmad/worker/raw_gsi.h"

#include <utility>

namespace vrdma::vrdmad {

using transport::AddressedMad;

class RawGsi::Desk final : public transport::MadDesk {
 public:
  explicit Desk(RawGsi& gsi) : gsi_(gsi) {}
  ~Desk() override {
    gsi_.receiver_ = nullptr;
    gsi_.opening_ = 0;
    (void)gsi_.tell();
  }
  void send(const AddressedMad& mad) override { gsi_.send(mad); }

 private:
  RawGsi& gsi_;
};

RawGsi::RawGsi(base::EventLoop& loop, base::Fd socket, base::Counter& lost)
    : lost_(lost), socket_(loop, *this) {
  (void)socket_.begin(std::move(socket));
}

std::unique_ptr<transport::MadDesk> RawGsi::open(Receiver receiver) {
  if (receiver_) return nullptr;
  receiver_ = std::move(receiver);
  opening_ = ++openings_;
  (void)tell();
  return std::make_unique<Desk>(*this);
}

// Tells control the current state only: an opening that ended before control heard of it is not
// news. False: there is no room, and control is told later.
bool RawGsi::tell() {
  if (told_opening_ == opening_) return true;
  RawGsiMessage message;
  message.kind = opening_ != 0 ? RawGsiMessage::Kind::kOpened : RawGsiMessage::Kind::kClosed;
  message.opening = opening_ != 0 ? opening_ : told_opening_;
  if (!socket_.send(message)) {
    socket_.await_room();
    return false;
  }
  told_opening_ = opening_;
  return true;
}

void RawGsi::send(const AddressedMad& mad) {
  if (!tell() || !socket_.send(RawGsiMessage::of(opening_, mad))) ++lost_;
}

bool RawGsi::on_message(const RawGsiMessage& message) {
  if (message.kind != RawGsiMessage::Kind::kMad) return false;
  if (receiver_ && message.opening == opening_) receiver_(message.addressed_mad());
  return true;
}

}  // namespace vrdma::vrdmad
