// Drops the unread events of an object that is destroyed.
//
// The kernel does the same in ib_uverbs_release_uevent() and ib_uverbs_release_ucq(). Otherwise the
// next object with that number might get them, and a program that saw a readable descriptor might
// block.
#pragma once

#include <vector>

#include "core/ipc/event_ends.h"

namespace vrdma::client {

// Removes the messages for which `gone` is true from the channel of core/ipc/event_ends.h. `read`,
// as read(2), must not block. Messages that arrive meanwhile may precede the earlier ones. The
// result: those for which there was no room any more.
template <class Message, class Read, class Gone>
std::vector<Message> drop_unread(Read read, int write_end, Gone gone) {
  std::vector<Message> others;
  Message message;
  while (read(&message) == sizeof message)
    if (!gone(message)) others.push_back(message);
  std::erase_if(others, [write_end](const Message& other) {
    return ipc::put_event(write_end, &other, sizeof other);
  });
  return others;
}

}  // namespace vrdma::client
