#include "qp1mux/port_table.h"

#include <algorithm>
#include <string>

#include "core/base/random.h"

namespace vrdma::qp1mux {
namespace {

constexpr uint16_t kFirstUnprivileged = 1024;

std::string text(const PortRequest& request) {
  return "port " + std::to_string(request.port) + " at " + request.address.text();
}

}  // namespace

struct PortTable::Binding::Holder {
  PortTable* table;
  PortRequest request;
};

void PortTable::Binding::Free::operator()(Holder* holder) const {
  const PortRequest& request = holder->request;
  const auto it = holder->table->holders_.find({request.netns, request.space, request.port});
  std::erase(it->second, holder);
  if (it->second.empty()) holder->table->holders_.erase(it);
  --holder->table->count_;
  delete holder;
}

uint16_t PortTable::Binding::port() const { return holder_->request.port; }
const PortRequest& PortTable::Binding::request() const { return holder_->request; }

base::Result<void> PortTable::Binding::listen() {
  PortRequest alone = holder_->request;
  alone.reuse = false;
  if (auto ok = holder_->table->check(alone, holder_.get()); !ok) return ok;
  holder_->request.reuse = false;
  return {};
}

PortTable::PortTable(uint16_t first, uint16_t last) : first_(first), last_(last) {}

base::Result<void> PortTable::check(const PortRequest& request, const Binding::Holder* but) const {
  const auto it = holders_.find({request.netns, request.space, request.port});
  if (it == holders_.end()) return {};
  for (const auto* other : it->second) {
    const PortRequest& held = other->request;
    if (other == but || (request.reuse && held.reuse)) continue;
    if (request.family_only && held.family_only &&
        request.address.is_ipv4_mapped() != held.address.is_ipv4_mapped())
      continue;
    if (request.address.is_unspecified() || held.address.is_unspecified())
      return base::fail(EADDRNOTAVAIL, text(request) + " is covered by " + text(held));
    if (request.address == held.address) return base::fail(EADDRINUSE, text(request) + " is bound");
  }
  return {};
}

base::Result<PortTable::Binding> PortTable::bind(const PortRequest& request) {
  PortRequest wanted = request;
  if (wanted.port == 0) {
    // Chooses a port that is free at all addresses, so that a listener may still take all of them.
    const uint32_t count = uint32_t{last_} - first_ + 1;
    const auto from = base::random_below(count);
    for (uint32_t i = 0; i < count && wanted.port == 0; ++i) {
      const auto port = static_cast<uint16_t>(first_ + (from + i) % count);
      if (!holders_.contains({wanted.netns, wanted.space, port})) wanted.port = port;
    }
    if (wanted.port == 0) return base::fail(EADDRNOTAVAIL, "no port is free");
  } else if (wanted.port < kFirstUnprivileged && !wanted.privileged) {
    return base::fail(EACCES, text(wanted) + " needs privileges");
  }
  if (auto ok = check(wanted, nullptr); !ok) return tl::unexpected(ok.error());
  auto* holder = new Binding::Holder{this, wanted};
  holders_[{wanted.netns, wanted.space, wanted.port}].push_back(holder);
  ++count_;
  return Binding(holder);
}

}  // namespace vrdma::qp1mux
