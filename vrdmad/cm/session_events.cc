// Event channels of a CmSession and their unread events.
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/ipc/socket.h"
#include "vrdmad/cm/cm.h"
#include "vrdmad/cm/session.h"

namespace vrdma::vrdmad {

using base::Fd;
using qp1mux::CmEventType;

namespace {

uint64_t inode_of(const Fd& socket) {
  struct stat status {};
  return ::fstat(socket.get(), &status) == 0 ? status.st_ino : 0;
}

// Whether the event carries private data in rdma_cm.
bool has_private_data(CmEventType type) {
  return type == CmEventType::kConnectRequest || type == CmEventType::kConnectResponse ||
         type == CmEventType::kRejected || type == CmEventType::kEstablished;
}

ipc::CmParam param_of(CmEventType type, const qp1mux::ConnParam& from) {
  ipc::CmParam param{};
  param.responder_resources = from.responder_resources;
  param.initiator_depth = from.initiator_depth;
  param.retry_count = from.retry_count;
  param.rnr_retry_count = from.rnr_retry_count;
  param.flow_control = from.flow_control ? 1 : 0;
  param.srq = from.srq ? 1 : 0;
  param.qpn = from.qpn;
  param.qkey = from.qkey;
  if (!has_private_data(type)) return param;
  const size_t length = std::min<size_t>(from.private_data.size(), ipc::kCmPrivateData);
  std::copy_n(from.private_data.begin(), length, param.data);
  param.length = static_cast<uint8_t>(length);
  return param;
}

}  // namespace

int CmSession::create_channel(const ipc::CmRequest& request, ipc::CmReply* reply, Fd* beside) {
  if (channels_.contains(request.handle)) return open_channel(request.handle, reply, beside);
  if (request.handle != 0) return EINVAL;
  if (!space_->channels.has_room()) {
    ++cm_.counters().crowded;
    return EMFILE;
  }
  // A file begun later would lack the earlier channels.
  if (!file_.active() && channels_.empty()) begin_file();
  const uint32_t handle = new_handle();
  channels_.try_emplace(handle);
  space_->channels.add();
  const int error = open_channel(handle, reply, beside);
  if (error != 0) remove_channel(handle);
  return error;
}

// A socket pair for a new channel, or for a channel of an adopted session.
int CmSession::open_channel(uint32_t handle, ipc::CmReply* reply, Fd* beside) {
  if (!channels_.contains(handle)) return EINVAL;
  auto ends = ipc::make_socket_pair();
  if (!ends) return ENFILE;
  // Programs cannot send to the daemon's end, so it never holds a tenant's descriptors.
  ::shutdown(ends->first.get(), SHUT_RD);
  Channel& channel = channels_.at(handle);
  channel.watch.reset();
  channel.socket = std::move(ends->first);
  channel.its_end = inode_of(ends->second);
  channel.full = false;
  file_.put_channel(handle, channel.its_end);
  *beside = std::move(ends->second);
  watch_channel(handle, channel, 0);
  touched_.push_back(handle);
  reply->handle = handle;
  reply->grace_ms = file_.active() ? cm_.settings().grace_ms : 0;
  std::copy(who_.secret.begin(), who_.secret.end(), reply->guids);
  return 0;
}

int CmSession::nudge(uint32_t handle) {
  if (!channels_.contains(handle)) return EINVAL;
  ipc::CmEventMessage message;
  message.type = ipc::kCmNudge;
  message.handle = handle;
  push(handle, message);
  return 0;
}

int CmSession::migrate(Id& id, uint32_t handle) {
  if (!channels_.contains(handle)) return EINVAL;
  if (id.channel != handle) events_.move_about(id.handle, handle);
  id.channel = handle;
  touched_.push_back(handle);
  return 0;
}

void CmSession::remove_channel(uint32_t handle) {
  for (const auto& event : events_.take_all(handle)) heard(event);
  channels_.erase(handle);
  file_.erase_channel(handle);
  space_->channels.remove();
}

void CmSession::Id::on_event(qp1mux::CmId&, qp1mux::CmEvent& event) { session.tell(*this, event); }

void CmSession::tell(Id& id, qp1mux::CmEvent& event) {
  const auto it = channels_.find(id.channel);
  if (over_ || it == channels_.end()) return;
  if (event.type == CmEventType::kUnreachable)
    spdlog::debug("netns {}: {} port {} does not answer, see vrdmactl doctor --to", netns(),
                  id.cm->remote().gid.text(), id.cm->remote().port);
  ipc::CmEventMessage message;
  message.type = static_cast<uint32_t>(event.type);
  message.status = event.status;
  message.handle = id.handle;
  message.param = param_of(event.type, event.param);
  const qp1mux::CmId* about = id.cm.get();
  if (event.request) {
    if (id.unheard >= id.backlog) return;  // dropping it rejects the request
    Id* request = add_id(id.channel);
    if (request == nullptr) return;
    request->cm = std::move(event.request);
    request->cm->set_handler(request);
    about = request->cm.get();
    message.request = request->handle;
    ++id.unheard;
  }
  if (!serving_) keep(id);
  if (about != id.cm.get()) keep(*ids_.at(message.request));
  message.where = where(*about);
  if (event.type == CmEventType::kConnectRequest || event.type == CmEventType::kConnectResponse)
    message.attributes = attributes(*about, message.where);
  if (event.type == CmEventType::kMulticastJoin) {
    message.token = event.token;
    message.where.remote = address_of({event.group, 0});
  }
  push(id.channel, message);
  if (!serving_) settle();
}

void CmSession::push(uint32_t channel, ipc::CmEventMessage message) {
  message.sequence = ++file_.numbers().event;
  events_.push(channel, charged(message));
  file_.put_event(message);
  touched_.push_back(channel);
}

// A program cannot do without any event, so none is dropped: the session with the most unread
// events is evicted after the current callback.
CmEvents::Unread CmSession::charged(const ipc::CmEventMessage& message) {
  const auto id = ids_.find(message.handle);
  CmDevice* const device =
      id != ids_.end() && id->second->cm ? cm_.device(id->second->cm->endpoint()) : nullptr;
  if (device != nullptr) {
    if (auto charge = device->charge_event()) return {message, std::move(*charge)};
    cm_.end_the_unread(space_, device);
  }
  if (++space_->events > CmNamespace::kMaxEvents) cm_.end_the_unread(space_, nullptr);
  return {message, {}};
}

size_t CmSession::unread_of(const CmDevice& device) const {
  size_t count = 0;
  for (const auto& [handle, id] : ids_)
    if (cm_.device(id->cm->endpoint()) == &device) count += events_.about(handle);
  return count;
}

void CmSession::settle() {
  file_.commit();
  for (const uint32_t channel : std::exchange(touched_, {}))
    if (channels_.contains(channel)) flush(channel);
}

void CmSession::heard(const CmEvents::Unread& event) {
  if (event.charge.amount() == 0) --space_->events;
  file_.erase_event(event.message.sequence);
  const auto it = ids_.find(event.message.handle);
  if (event.message.request != 0 && it != ids_.end()) --it->second->unheard;
}

// `events`: in addition to a hang-up of the program's end.
void CmSession::watch_channel(uint32_t handle, Channel& channel, uint32_t events) {
  channel.watch.reset();
  auto watch = cm_.loop().watch(channel.socket.get(), events, [this, handle](uint32_t happened) {
    if ((happened & (EPOLLHUP | EPOLLERR)) != 0)
      remove_channel(handle);
    else
      flush(handle);
    file_.commit();
  });
  if (watch) channel.watch = std::move(*watch);
}

void CmSession::flush(uint32_t handle) {
  Channel& channel = channels_.at(handle);
  if (!channel.socket.valid() || parked_ != Parked::kNot) return;
  while (const CmEvents::Unread* const next = events_.front(handle)) {
    const auto sent = ::send(channel.socket.get(), &next->message, sizeof next->message,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      if (!std::exchange(channel.full, true)) watch_channel(handle, channel, EPOLLOUT);
      return;
    }
    heard(events_.pop(handle));  // also if the program has closed its end
    file_.commit();              // so that at most one event is sent twice
  }
  if (std::exchange(channel.full, false)) watch_channel(handle, channel, 0);
}

}  // namespace vrdma::vrdmad
