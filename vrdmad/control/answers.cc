#include "vrdmad/control/answers.h"

#include <utility>
#include <vector>

namespace vrdma::vrdmad {

uint64_t Answers::expect(const std::string& domain, base::Duration limit, Then then) {
  const uint64_t ticket = ++last_;
  expected_[ticket] = {domain, std::move(then),
                       loop_.after(limit, [this, ticket] { end(ticket, nullptr); })};
  return ticket;
}

void Answers::came(const std::string& domain, const ToControl& answer) {
  const auto found = expected_.find(ticket_of(answer));
  if (found != expected_.end() && found->second.domain == domain) end(found->first, &answer);
}

void Answers::ended(const std::string& domain, const ToControl* answer) {
  std::vector<uint64_t> tickets;
  for (const auto& [ticket, expected] : expected_)
    if (expected.domain == domain) tickets.push_back(ticket);
  for (const uint64_t ticket : tickets) end(ticket, answer);
}

void Answers::end(uint64_t ticket, const ToControl* answer) {
  auto found = expected_.extract(ticket);
  if (!found.empty()) found.mapped().then(answer);
}

}  // namespace vrdma::vrdmad
