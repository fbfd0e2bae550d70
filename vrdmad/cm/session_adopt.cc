// The files of rdma_cm sessions, and the adoption by the next daemon.
#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <bit>

#include "vrdmad/cm/cm.h"
#include "vrdmad/cm/session.h"

namespace vrdma::vrdmad {

using base::Fd;
using base::pass;
using base::Result;

// Without a file the session ends with this daemon.
void CmSession::begin_file() {
  if (cm_.settings().state_dir.empty()) return;
  cm_.end_left_by(netns(), who_.process);
  auto made = CmSessionFile::create(cm_.new_file(), who_);
  if (!made) {
    if (std::has_single_bit(cm_.count_without_file()))
      spdlog::warn(
          "netns {}: an rdma_cm session has no file, so no other daemon can take it over: {}",
          netns(), made.error().message());
    return;
  }
  made->numbers() = file_.numbers();
  file_ = std::move(*made);
  for (uint32_t number = 0; const auto& [guid, known] : known_as_)  // it asked for devices first
    file_.put_vdevice(++number, {known, guid});
}

void CmSession::keep(const Id& id) {
  if (!file_.active()) return;
  const CmDevice* device = cm_.device(id.cm->endpoint());
  file_.put_id(id.handle, {id.channel, id.backlog, device != nullptr ? device->node_guid() : 0,
                           id.cm->record()});
}

Result<std::unique_ptr<CmSession>> CmSession::adopt(Cm& cm, CmSessionFile&& file,
                                                    std::function<void(CmSession*)> ended) {
  auto who = file.who();
  if (!who) return pass(std::move(who).error());
  auto process = cm.settings().broker->find(who->process, cm.socket_path(who->netns), {}, {});
  if (!process) {
    // If the broker has ended, this daemon ends, and the next one adopts the session.
    if (process.error().code() == EPIPE) file.leave();
    return pass(std::move(process).error());
  }
  auto session = import(cm, std::move(file), std::move(process->opened.pidfd), std::move(ended));
  if (session)
    spdlog::info("netns {}: took over the rdma_cm session of process {}, with {} ids", who->netns,
                 who->process.pid, (*session)->ids_.size());
  return session;
}

Result<std::unique_ptr<CmSession>> CmSession::import(Cm& cm, CmSessionFile&& file, Fd pidfd,
                                                     std::function<void(CmSession*)> ended) {
  auto who = file.who();
  if (!who) return pass(std::move(who).error());
  std::unique_ptr<CmSession> session(
      new CmSession(cm, cm.space(who->netns), *who, Fd(), nullptr, std::move(ended)));
  session->file_ = std::move(file);
  if (auto watched = session->await_process(std::move(pidfd)); !watched)
    return pass(std::move(watched).error());
  session->take_over();
  return session;
}

// Without a connection only the end of the process ends the session.
Result<void> CmSession::await_process(Fd pidfd) {
  death_watch_.reset();
  pidfd_ = std::move(pidfd);
  auto death = cm_.loop().watch(pidfd_.get(), EPOLLIN, [this](uint32_t) { end(); });
  if (!death) return pass(std::move(death).error());
  death_watch_ = std::move(*death);
  return {};
}

void CmSession::take_over() {
  for (const auto& vdevice : file_.vdevices())
    known_as_.try_emplace(vdevice.node_guid, vdevice.known_as);
  for (const auto& [handle, socket] : file_.channels()) {
    channels_[handle].its_end = socket;
    space_->channels.add();
  }
  std::vector<Id*> gone;
  for (const auto& [handle, record] : file_.ids()) {
    Id& id =
        *ids_.emplace(handle, std::make_unique<Id>(*this, handle, record.channel)).first->second;
    space_->ids.add();
    id.backlog = record.backlog;
    CmDevice* device = cm_.device(netns(), record.node_guid);
    id.cm = qp1mux::CmId::restore(cm_.host(), netns(), record.id,
                                  device != nullptr ? &device->endpoint() : nullptr, &id);
    if (id.cm->state() == qp1mux::CmIdState::kGone && record.id.state != id.cm->state())
      gone.push_back(&id);
  }
  for (const auto& message : file_.events()) {
    const auto id = ids_.find(message.handle);
    const uint32_t handle = message.type == ipc::kCmNudge ? message.handle
                            : id != ids_.end()            ? id->second->channel
                                                          : 0;
    const auto channel = channels_.find(handle);
    if (channel == channels_.end()) continue;
    if (message.request != 0) {  // of a listener, with the id of the request
      if (id == ids_.end() || !ids_.contains(message.request)) continue;
      ++id->second->unheard;
    }
    events_.push(handle, charged(message));
  }
  for (const auto& [handle, id] : ids_) id->cm->go_on();
  for (Id* id : gone) {
    qp1mux::CmEvent event;
    event.type = qp1mux::CmEventType::kDeviceRemoval;
    tell(*id, event);
  }
}

void CmSession::leave() {
  if (over_) return;
  for (const auto& [handle, id] : ids_) id->cm->leave(false);
  file_.leave();
}

bool CmSession::is_left_by(const rdma::Peer& process) const {
  return pidfd_.valid() && who_.process.pid == process.pid &&
         who_.process.start_time == process.start_time;
}

// Sent on a new connection, which then replaces that of the named session.
int CmSession::resume(const ipc::CmRequest& request) {
  if (cm_.awaits_others(netns())) return EAGAIN;
  CmSession* other = cm_.session(netns(), request.param.data);
  if (other == nullptr || other == this || !other->file_.active() ||
      other->who_.process != who_.process)
    return ESTALE;
  if (other->parked_ == Parked::kDetached) return EAGAIN;
  other->go_on_at(&talk_);
  end();
  return 0;
}

void CmSession::go_on_at(Talk* fresh) {
  death_watch_.reset();
  pidfd_.reset();
  parked_watch_.reset();
  set_counted(true);
  if (!talk_.go_on_at(fresh)) return end();
  last_ = file_.answer();
  ipc::CmReply reply;
  reply.count = last_.sequence;
  reply.grace_ms = cm_.settings().grace_ms;
  answer(&reply, Fd());
  if (parked_ != Parked::kNot && !over_) watch_end();
}

}  // namespace vrdma::vrdmad
