// What the files of LocalBroker share.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "vrdmad/broker/local_broker.h"

namespace vrdma::vrdmad {

struct LocalBroker::Process {
  Process(rdma::PeerHandle identified, const ListenerName& connected_to, const Recipient& whose,
          Seats::Seat its_seat)
      : handle(std::move(identified)),
        listener(connected_to),
        recipient(whose),
        seat(std::move(its_seat)) {}
  const rdma::PeerHandle handle;
  const ListenerName listener;
  const Recipient recipient;
  const Seats::Seat seat;
  // Entries of one process may share it.
  struct Search {
    std::mutex mutex;               // guards all below
    std::optional<HeldFiles> held;  // when the process has been searched
  };
  std::shared_ptr<Search> search = std::make_shared<Search>();
  std::mutex mutex;    // guards all below
  bool noted = false;  // as known
};

template <class T>
base::Result<std::shared_ptr<T>> LocalBroker::at(uint32_t entry) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(entry);
  const auto* found = it != entries_.end() ? std::get_if<std::shared_ptr<T>>(&it->second) : nullptr;
  if (found == nullptr || *found == nullptr) return no_such_entry();
  return *found;
}

}  // namespace vrdma::vrdmad
