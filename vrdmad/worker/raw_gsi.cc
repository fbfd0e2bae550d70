#include "vrdmad/worker/raw_gsi.h"

namespace vrdma::vrdmad {

using transport::AddressedMad;

// The worker's end.
class RawGsi::Desk final : public transport::MadDesk {
 public:
  explicit Desk(std::shared_ptr<RawGsi> gsi) : gsi_(std::move(gsi)) {}
  ~Desk() override {
    gsi_->receiver_ = nullptr;
    gsi_->control_.post([gsi = gsi_] { gsi->change(nullptr); });
  }
  void send(const AddressedMad& mad) override {
    if (!gsi_->take(gsi_->leaving_)) return;
    gsi_->control_.post([gsi = gsi_, mad] {
      --gsi->leaving_;
      gsi->send(mad);
    });
  }

 private:
  std::shared_ptr<RawGsi> gsi_;
};

std::unique_ptr<transport::MadDesk> RawGsi::open(base::EventLoop& loop, Receiver receiver) {
  if (receiver_) return nullptr;
  receiver_ = std::move(receiver);
  ++opened_;
  auto self = shared_from_this();
  control_.post([self, &loop] { self->change(&loop); });
  return std::make_unique<Desk>(std::move(self));
}

bool RawGsi::take(std::atomic<uint32_t>& under_way) {
  if (under_way.fetch_add(1) < kInFlight) return true;
  --under_way;
  ++lost_;
  return false;
}

void RawGsi::attach(qp1mux::Endpoint* endpoint) {
  endpoint_ = endpoint;
  if (endpoint == nullptr) port_.reset();
}

// Opened there, or closed; in the order of open() and ~Desk.
void RawGsi::change(base::EventLoop* worker) {
  worker_ = worker;
  port_.reset();
  if (worker == nullptr) return;
  ++open_;
  if (endpoint_ == nullptr) return;
  if (auto port = endpoint_->open_raw(this)) port_ = std::move(*port);
}

// What is refused is counted there.
void RawGsi::send(const AddressedMad& all) {
  qp1mux::Path path;
  path.local = all.header.source;
  path.remote = all.header.destination;
  path.traffic_class = all.header.traffic_class;
  if (all.header.hop_limit != 0) path.hop_limit = all.header.hop_limit;
  path.flow_label = all.header.flow_label;
  (void)port_.send(path, all.mad);
}

void RawGsi::on_mad(const qp1mux::Packet& packet) {
  if (worker_ == nullptr || !take(arriving_)) return;
  AddressedMad all;
  all.header = {packet.source, packet.destination, packet.traffic_class, packet.hop_limit,
                packet.flow_label};
  all.mad = packet.mad;
  worker_->post([self = shared_from_this(), which = open_, all] {
    --self->arriving_;
    if (self->receiver_ && self->opened_ == which) self->receiver_(all);
  });
}

}  // namespace vrdma::vrdmad
