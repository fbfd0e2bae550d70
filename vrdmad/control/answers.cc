#include "vrdmad/control/answers.h"

#include <utility>

namespace vrdma::vrdmad {

uint64_t Answers::expect(base::Duration limit, Then then) {
  const uint64_t ticket = ++last_;
  expected_[ticket] = {std::move(then),
                       loop_.after(limit, [this, ticket] { end(ticket, nullptr); })};
  return ticket;
}

void Answers::came(const ToControl& answer) { end(ticket_of(answer), &answer); }

void Answers::end(uint64_t ticket, const ToControl* answer) {
  auto found = expected_.extract(ticket);
  if (!found.empty()) found.mapped().then(answer);
}

}  // namespace vrdma::vrdmad
