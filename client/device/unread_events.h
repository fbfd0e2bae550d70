// What nobody has read yet of the events of an object that is destroyed.
//
// It goes with the object, as ib_uverbs_release_uevent() and ib_uverbs_release_ucq() have it: the
// next object may get its number, and whoever has seen that there is something to read would wait.
#pragma once

#include <vector>

#include "core/ipc/event_ends.h"

namespace vrdma::client {

// Takes the messages that are `gone` out of what core/ipc/event_ends.h carries. `read`, as read(2),
// does not block. What comes meanwhile may come before what was there.
template <class Message, class Read, class Gone>
void drop_unread(Read read, int write_end, Gone gone) {
  std::vector<Message> others;
  Message message;
  while (read(&message) == sizeof message)
    if (!gone(message)) others.push_back(message);
  for (const Message& other : others) (void)ipc::put_event(write_end, &other, sizeof other);
}

}  // namespace vrdma::client
