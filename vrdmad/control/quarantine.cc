#include "vrdmad/control/quarantine.h"

namespace vrdma::vrdmad {

void Quarantine::crashed(const std::string& domain, uint32_t session, base::TimePoint now) {
  if (session != 0) ++in_hand_[session];
  std::erase_if(crashes_, [now](const auto& one) { return now - one.second.back() > kWithin; });
  auto& its = crashes_[domain];
  its.push_back(now);
  if (its.size() > kOfADomain) its.pop_front();
}

std::string Quarantine::reason_to_end(const std::string& domain, uint32_t session,
                                      base::TimePoint now) const {
  const auto in_hand = in_hand_.find(session);
  if (in_hand != in_hand_.end() && in_hand->second >= kInHand)
    return "its worker crashed twice while it served this session";
  const auto its = crashes_.find(domain);
  if (its != crashes_.end() && its->second.size() >= kOfADomain &&
      now - its->second.front() <= kWithin)
    return "its worker crashed three times within a minute";
  return {};
}

}  // namespace vrdma::vrdmad
