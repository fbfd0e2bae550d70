#include "vrdmad/cm/events.h"

#include <iterator>
#include <utility>

namespace vrdma::vrdmad {

void CmEvents::push(uint32_t channel, Unread event) {
  const uint32_t handle = event.message.handle, request = event.message.request;
  Queue& queue = queues_[channel];
  const auto entry = queue.insert(queue.end(), Entry{std::move(event), channel});
  Index& index = about_[handle];
  entry->place = index.insert(index.end(), entry);
  if (request != 0) announced_.insert_or_assign(request, entry);
  ++size_;
}

CmEvents::Unread CmEvents::take(Queue::iterator entry) {
  const ipc::CmEventMessage& message = entry->event.message;
  const auto index = about_.find(message.handle);
  index->second.erase(entry->place);
  if (index->second.empty()) about_.erase(index);
  if (const auto it = announced_.find(message.request);
      it != announced_.end() && it->second == entry)
    announced_.erase(it);
  Unread event = std::move(entry->event);
  const auto queue = queues_.find(entry->channel);
  queue->second.erase(entry);
  if (queue->second.empty()) queues_.erase(queue);
  --size_;
  return event;
}

const CmEvents::Unread* CmEvents::front(uint32_t channel) const {
  const auto queue = queues_.find(channel);
  return queue == queues_.end() ? nullptr : &queue->second.front().event;
}

CmEvents::Unread CmEvents::pop(uint32_t channel) { return take(queues_.at(channel).begin()); }

std::vector<CmEvents::Unread> CmEvents::take_all(uint32_t channel) {
  std::vector<Unread> taken;
  while (front(channel) != nullptr) taken.push_back(pop(channel));
  return taken;
}

std::vector<CmEvents::Unread> CmEvents::take_about(uint32_t handle) {
  std::vector<Unread> taken;
  for (auto it = about_.find(handle); it != about_.end(); it = about_.find(handle))
    taken.push_back(take(it->second.front()));
  return taken;
}

std::optional<CmEvents::Unread> CmEvents::take_announcement(uint32_t request) {
  const auto it = announced_.find(request);
  if (it == announced_.end()) return std::nullopt;
  return take(it->second);
}

void CmEvents::move_about(uint32_t handle, uint32_t channel) {
  const auto index = about_.find(handle);
  if (index == about_.end()) return;
  Queue& to = queues_[channel];
  for (const Queue::iterator entry : index->second) {
    const auto from = queues_.find(entry->channel);
    to.splice(to.end(), from->second, entry);
    if (from->second.empty()) queues_.erase(from);
    entry->channel = channel;
  }
}

size_t CmEvents::about(uint32_t handle) const {
  const auto it = about_.find(handle);
  return it == about_.end() ? 0 : it->second.size();
}

}  // namespace vrdma::vrdmad
