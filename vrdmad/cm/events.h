// The unread events of one rdma_cm session.
//
// Each channel has a queue. Two indices find the events of an id, and the event that announces a
// connection request, so that each operation takes constant time per event that it concerns,
// whatever other ids have queued.
//
// Belongs to the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/ipc/cm_messages.h"
#include "provisioning/ledger.h"

namespace vrdma::vrdmad {

class CmEvents {
 public:
  struct Unread {
    ipc::CmEventMessage message;
    provisioning::Charge charge;  // empty: the id is not bound to a vdevice
  };

  void push(uint32_t channel, Unread event);
  // The oldest event of the channel, or nullptr.
  [[nodiscard]] const Unread* front(uint32_t channel) const;
  Unread pop(uint32_t channel);  // the channel must have an event

  // Each removes the events that it returns, in the order of the queues.
  [[nodiscard]] std::vector<Unread> take_all(uint32_t channel);
  [[nodiscard]] std::vector<Unread> take_about(uint32_t handle);
  [[nodiscard]] std::optional<Unread> take_announcement(uint32_t request);
  // Appends the events of an id to another channel's queue, in order.
  void move_about(uint32_t handle, uint32_t channel);

  [[nodiscard]] uint32_t size() const { return size_; }
  [[nodiscard]] size_t about(uint32_t handle) const;

 private:
  struct Entry;
  using Queue = std::list<Entry>;
  using Index = std::list<Queue::iterator>;
  struct Entry {
    Unread event;
    uint32_t channel = 0;
    Index::iterator place{};  // in about_
  };

  Unread take(Queue::iterator entry);

  // No empty queues are kept.
  std::unordered_map<uint32_t, Queue> queues_;               // by channel
  std::unordered_map<uint32_t, Index> about_;                // by the id's handle
  std::unordered_map<uint32_t, Queue::iterator> announced_;  // by the request's handle
  uint32_t size_ = 0;
};

}  // namespace vrdma::vrdmad
