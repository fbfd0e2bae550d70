#include "vrdmad/control/quarantine.h"

namespace vrdma::vrdmad {

void Quarantine::crashed(const std::string& domain, uint32_t session, base::TimePoint now) {
  if (session != 0) sessions_.add(session, now);
  domains_.add(domain, now);
}

std::string Quarantine::reason_to_end(uint32_t session, base::TimePoint now) const {
  if (!sessions_.has_most(session, now)) return {};
  return "its worker crashed twice while it served this session";
}

std::string Quarantine::reason_to_end(const std::string& domain, base::TimePoint now) const {
  if (domains_.has_most(domain, now)) return "its worker crashed three times within a minute";
  return {};
}

}  // namespace vrdma::vrdmad
