#include "vrdmad/worker/silence.h"

#include <algorithm>

namespace vrdma::vrdmad {

base::Result<provisioning::Charge> make_room(Vdevice& vdevice, Sessions& sessions) {
  const auto is_silent = [](const auto& session) { return session->is_silent(); };
  for (;;) {
    const bool fits = sessions.size() < vdevice.device.contexts.size() + kMaxSilent ||
                      static_cast<size_t>(
                          std::count_if(sessions.begin(), sessions.end(), is_silent)) < kMaxSilent;
    if (!fits) vdevice.ledger.count_refusal(provisioning::Kind::kConns);
    auto charge = fits ? vdevice.ledger.charge(provisioning::Kind::kConns, 1)
                       : base::fail(ENOMEM, "too many say nothing");
    if (charge) return charge;
    const auto oldest = std::find_if(sessions.begin(), sessions.end(), is_silent);
    if (oldest == sessions.end()) return charge;
    sessions.erase(oldest);
  }
}

bool end_silent(Sessions& sessions) {
  bool others = false;
  std::erase_if(sessions, [&](const std::unique_ptr<Session>& session) {
    if (session->objects() != nullptr) return false;
    const bool ends = session->is_silent_for(kMaxSilence);
    others = others || !ends;
    return ends;
  });
  return others;
}

}  // namespace vrdma::vrdmad
