// Moves ids and their unread events to another channel, and removes the unread events of destroyed
// ids.
//
// The daemon moves the events that it has not sent yet. This code takes those that have arrived
// from the old channel's socket, and keeps them at the channels in order. While a channel has kept
// events, a nudge, an event without an id, is in its socket so that it is readable.
#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "client/rdmacm/objects.h"

namespace vrdma::client {

namespace {

int move_in_daemon(CmLink& link, uint32_t id, uint32_t channel) {
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kMigrateId;
  request.handle = id;
  request.channel = channel;
  return link.call(request, &reply);
}

// Under objects_mutex(): keeps everything that can be read from the socket.
void keep_all(EventSource& source) {
  ipc::CmEventMessage message;
  while (receive(source, &message) == sizeof message)
    if (message.type == ipc::kCmNudge)
      source.nudged = false;
    else
      source.kept.push_back(message);
}

bool is_one_of(const std::vector<uint32_t>& ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Moves the events of the ids, and of the ids that their connection requests create.
void move_events(Channel& from, Channel& to, std::vector<uint32_t> ids) {
  for (size_t moved = 0; moved < ids.size();) {
    const size_t known = ids.size();
    {
      const std::lock_guard lock(objects_mutex());
      keep_all(*from.source);
      for (const auto& message : std::exchange(from.source->kept, {})) {
        const bool goes = is_one_of(ids, message.handle);
        (goes ? to : from).source->kept.push_back(message);
        if (goes && message.request != 0) ids.push_back(message.request);
      }
    }
    // Until the daemon has moved these ids too, more events of them may have arrived.
    for (size_t i = known; i < ids.size(); ++i)
      (void)move_in_daemon(*to.source->link, ids[i], to.source->handle);
    moved = known;
  }
  nudge(*from.source);
  nudge(*to.source);
}

// Moves an id of the parent process to this one, on a device that this process opens. The parent's
// copy of the id becomes invalid. The id keeps the events that the parent has not read.
int take_from_parent(Id& id, Channel& to) {
  const auto link = to.source->link;
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kTakeId;
  request.handle = id.handle;
  request.channel = to.source->handle;
  const auto secret = id.link->secret();
  std::copy(secret.begin(), secret.end(), request.param.data);
  if (const int error = link->call(request, &reply); error != 0) return error;
  {
    const std::lock_guard lock(objects_mutex());
    id.link->ids.erase(id.handle);
    link->ids.emplace(reply.handle, &id);
    id.reported = id.acknowledged = 0;  // unacknowledged events remain the parent's
    id.last_event = 0;
  }
  id.link = link;
  id.handle = reply.handle;
  if (id.device == nullptr) return 0;
  id.device = nullptr;
  id.base.qp = nullptr;
  return settle(&id, reply.where);
}

}  // namespace

void nudge(EventSource& source) {
  {
    const std::lock_guard lock(objects_mutex());
    if (source.kept.empty() || source.nudged) return;
    source.nudged = true;
  }
  ipc::CmRequest request;
  ipc::CmReply reply;
  request.call = ipc::CmCall::kNudge;
  request.channel = source.handle;
  (void)source.link->call(request, &reply);
}

void drop_events(EventSource& source, uint32_t id) {
  std::vector<uint32_t> gone{id};
  for (size_t destroyed = 1;;) {
    {
      const std::lock_guard lock(objects_mutex());
      keep_all(source);
      std::erase_if(source.kept, [&](const ipc::CmEventMessage& message) {
        const bool goes = is_one_of(gone, message.handle);
        if (goes && message.request != 0) gone.push_back(message.request);
        return goes;
      });
    }
    if (destroyed == gone.size()) break;
    for (; destroyed < gone.size(); ++destroyed)
      (void)source.link->call(ipc::CmCall::kDestroyId, gone[destroyed]);
  }
  nudge(source);
}

int migrate(Id* id, rdma_event_channel* given) {
  rdma_event_channel* channel = given != nullptr ? given : create_channel();
  if (channel == nullptr) return -1;
  Channel& from = *Channel::of(id->base.channel);
  Channel& to = *Channel::of(channel);
  const bool inherited = !id->link->is_own();
  if (!inherited && to.source->link != id->link) {  // a daemon died and the id was lost
    if (given == nullptr) destroy_channel(channel);
    return answer(EIO);
  }
  int error = 0;
  if (inherited)
    error = take_from_parent(*id, to);
  else
    error = move_in_daemon(*id->link, id->handle, to.source->handle);
  if (error != 0) {
    if (given == nullptr) destroy_channel(channel);
    return answer(error);
  }
  if (&from != &to && !inherited) move_events(from, to, {id->handle});
  if (id->sync && !inherited) {
    if (id->base.event != nullptr) acknowledge(std::exchange(id->base.event, nullptr));
    destroy_channel(id->base.channel);
  }
  id->sync = given == nullptr;
  id->base.channel = channel;
  return 0;
}

}  // namespace vrdma::client
