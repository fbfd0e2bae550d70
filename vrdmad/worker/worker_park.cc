// A worker's part in parking: finds the session, and answers control.
#include <utility>

#include "vrdmad/worker/worker.h"

namespace vrdma::vrdmad {

Session* Worker::find_session(uint64_t connection) const {
  for (const auto& [vdevice, its] : sessions_)
    for (const auto& session : its)
      if (session->number() == connection) return session.get();
  return nullptr;
}

// The session that this one continues, whose vdevice has gone.
void Worker::end_predecessor(const Furnisher::Adopted& of) {
  for (const auto& [vdevice, its] : sessions_)
    for (const auto& session : its)
      if (vdevice->gone && session->is_detached() &&
          session->objects()->context().id == of.kit.session) {
        session->give_way();
        return forget(session.get());
      }
}

// No new work of it is executed from now on. Detached sessions stay, and their peers wait.
void Worker::take_out(uint64_t id) {
  const auto it = vdevices_.find(id);
  if (it == vdevices_.end()) return;
  const std::shared_ptr<Vdevice> vdevice = it->second;
  vdevices_.erase(it);
  vdevice->gone = true;
  const auto its = sessions_.find(vdevice.get());
  bool is_awaited = false;
  if (its != sessions_.end()) {
    for (auto& session : its->second) {
      session->vdevice_gone();
      is_awaited = is_awaited || session->is_detached();
    }
    if (its->second.empty()) sessions_.erase(its);
  }
  rdma::Fabric& fabric = *vdevice->device.fabric;
  if (is_awaited) return fabric.remove_parked(&vdevice->device);
  fabric.remove(&vdevice->device);
  vdevice->device.gids.clear();
}

void Worker::on(const ParkSession& message, Beside) {
  Session* const session = find_session(message.connection);
  if (session == nullptr)
    return answer(message.ticket, base::fail(ENOENT, "its session has ended"));
  session->park(message.step, [this, ticket = message.ticket](const base::Result<void>& done) {
    answer(ticket, done);
  });
}

void Worker::on(const AttachSession& message, Beside beside) {
  auto from = session_of(message.session, *settings_.broker, std::move(beside));
  auto channels = channels_.extract(message.session.number);
  Session* const session = find_session(message.session.number);
  if (!from) return answer(message.ticket, pass(std::move(from).error()));
  if (session == nullptr)
    return answer(message.ticket, base::fail(ENOENT, "its session has ended"));
  if (!channels.empty()) from->kit.channels = std::move(channels.mapped());
  answer(message.ticket, session->attach(message, std::move(*from)));
}

}  // namespace vrdma::vrdmad
