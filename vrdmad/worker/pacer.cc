#include "vrdmad/worker/pacer.h"

#include <algorithm>

namespace vrdma::vrdmad {

using provisioning::Kind;

Pacer::Pacer(base::EventLoop& loop, const Rates& rates, const std::shared_ptr<Shown>& shown)
    : loop_(loop),
      bytes_({shown, &shown->bytes}),
      messages_({shown, &shown->messages}),
      line_(loop, [this] {
        const auto now = loop_.now();
        return std::max(bytes_.wait(now), messages_.wait(now));
      }) {
  for (const auto& shares : rates.bandwidth) bytes_.join(*shares);
  for (const auto& shares : rates.messages) messages_.join(*shares);
}

void Pacer::set(const provisioning::Limits& limits) {
  const auto most = [&](Kind kind) {
    const uint64_t limit = of(limits, kind);
    return limit == provisioning::traits(kind).ceiling ? provisioning::kUnbounded : limit;
  };
  const auto now = loop_.now();
  bytes_.set(now, of(limits, Kind::kBandwidthMin), most(Kind::kBandwidth));
  messages_.set(now, 0, most(Kind::kMsgRate));
  line_.look_again();
}

void Pacer::spend(uint64_t bytes, uint64_t messages) {
  const auto now = loop_.now();
  if (bytes > 0) bytes_.spend(now, bytes);
  if (messages > 0) messages_.spend(now, messages);
}

}  // namespace vrdma::vrdmad
