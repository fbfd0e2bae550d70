// A worker's part in parking: finds the session, and answers control.
#include <utility>

#include "vrdmad/worker/worker.h"

namespace vrdma::vrdmad {

Session* Worker::find(uint64_t vdevice, uint64_t connection) const {
  const auto its = sessions_.find(find(vdevice));
  if (its == sessions_.end()) return nullptr;
  for (const auto& session : its->second)
    if (session->number() == connection) return session.get();
  return nullptr;
}

void Worker::on(const ParkSession& message, Beside) {
  Session* const session = find(message.vdevice, message.connection);
  if (session == nullptr)
    return answer(message.ticket, base::fail(ENOENT, "its session has ended"));
  session->park(message.step, [this, ticket = message.ticket](const base::Result<void>& done) {
    answer(ticket, done);
  });
}

void Worker::on(const AttachSession& message, Beside beside) {
  auto from = session_of(message.session, *settings_.broker, std::move(beside));
  auto channels = channels_.extract(message.session.number);
  Session* const session = find(message.session.vdevice, message.session.number);
  if (!from) return answer(message.ticket, pass(std::move(from).error()));
  if (session == nullptr)
    return answer(message.ticket, base::fail(ENOENT, "its session has ended"));
  if (!channels.empty()) from->kit.channels = std::move(channels.mapped());
  answer(message.ticket, session->attach(message, std::move(*from)));
}

}  // namespace vrdma::vrdmad
