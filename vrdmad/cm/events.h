// The events of one rdma_cm session that its program has not read.
//
// Each channel has a queue. Two indices find the events about an id, and the event that announces a
// connection request, so that no operation looks at events of other ids: all take constant time for
// each event that they concern.
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
    provisioning::Charge charge;  // empty: the id is bound to no vdevice
  };

  void push(uint32_t channel, Unread event);
  // The oldest of the channel; nullptr: there is none.
  [[nodiscard]] const Unread* front(uint32_t channel) const;
  Unread pop(uint32_t channel);  // that has one

  // Each removes what it returns, in the order of the queues.
  [[nodiscard]] std::vector<Unread> take_all(uint32_t channel);
  [[nodiscard]] std::vector<Unread> take_about(uint32_t handle);
  [[nodiscard]] std::optional<Unread> take_announcement(uint32_t request);
  // Appends the events about an id to the queue of another channel, in their order.
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

  // Without empty queues.
  std::unordered_map<uint32_t, Queue> queues_;               // by channel
  std::unordered_map<uint32_t, Index> about_;                // by the id's handle
  std::unordered_map<uint32_t, Queue::iterator> announced_;  // by the request's handle
  uint32_t size_ = 0;
};

}  // namespace vrdma::vrdmad
