// The descriptors and mappings of a process that CRIU cannot write to disk, because vrdmad made
// them or peers share them: what takes their place meanwhile, and how they are made again.
//
//   descriptor               meanwhile                    afterwards
//   memory arena             an eventfd                   an empty arena: all memory is reached
//   its mappings             private copies               the same
//   userfaultfd of memory    an eventfd; its thread ends  the same: nothing is put in place again
//   event ends, channels     eventfds; what was unread    a new pair, with what was unread
//                            is in the image
//   session sockets, and     the end of a pipe that       the same: the library sees a hang-up, and
//   those of rdma_cm         nobody writes to             connects as after the end of a daemon
//   channels of rdma_cm      eventfds; what was unread    a socket with what was unread, which
//                            is in the image              then ends, as after the end of a daemon
//
// All of it is done by system calls in the held process; nothing of its program is executed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/criu/held.h"
#include "cli/criu/image.h"
#include "core/base/error.h"

namespace vrdma::cli::criu {

// A session as vrdmad tells of it when its process is parked: see v1::ParkedSession.
struct Shared {
  uint32_t number = 0;
  std::string socket;
  uint64_t arena = 0, bells = 0, memory = 0, doorbell = 0, events = 0;
  std::map<uint32_t, uint64_t> channels;
  // The process that has them, and whether its program is away.
  pid_t pid = 0;
  bool away = false;
  std::string portable = {};  // Image::Session
};

// Its use of rdma_cm in a network namespace: see v1::ParkedConnections.
struct Connections {
  std::string socket;
  std::vector<uint64_t> channels;
  std::string portable = {};  // Image::carried
};

// Whether a process has a vdevice open, or uses rdma_cm.
[[nodiscard]] bool has_vdevice(pid_t pid);
// Why its descriptors cannot be replaced, as the end of a sentence about it; empty: they can.
[[nodiscard]] std::string obstacle(pid_t pid);

// A process as vrdmad tells of it when it is parked.
struct ParkedProgram {
  std::string token;
  std::vector<Shared> sessions;
  std::vector<Connections> connections;
  std::vector<Shared> peers;  // sessions of others with which it may have direct links
};
// Notes in `image` which descriptors the sessions share with vrdmad.
[[nodiscard]] base::Result<void> note_sessions(pid_t pid, const ParkedProgram& program,
                                               Image* image);
// Makes all memory private, and ends what watches it. EAGAIN: the watching thread works; try again.
[[nodiscard]] base::Result<void> revert_memory(Held& held, uint64_t arena);
// Takes what is left out of the process, and notes in `image` how to make it again. An error leaves
// a part of it done; make_again() undoes that.
[[nodiscard]] base::Result<void> take_out(Held& held, const ParkedProgram& program, Image* image);
// Makes it again. The result identifies what the process shares now, by session, for vrdmad; 0:
// that was not taken out.
[[nodiscard]] base::Result<std::vector<Shared>> make_again(Held& held, const Image& image);
// Connects the process to a socket of vrdmad. The result is a number of a descriptor in it.
[[nodiscard]] base::Result<int> connect(Held& held, const std::string& path);
[[nodiscard]] base::Result<void> close(Held& held, int number);
// Puts `from`, a descriptor of the process, in the place of each number; `from` is closed.
[[nodiscard]] base::Result<void> put(Held& held, uint64_t from, const std::vector<int>& numbers);
// The same with a new eventfd, which nobody uses.
[[nodiscard]] base::Result<void> put_eventfd(Held& held, const std::vector<int>& numbers);

}  // namespace vrdma::cli::criu
