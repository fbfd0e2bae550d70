// One end of a vfio-user connection: whole messages with their descriptors arrive, answers leave.
//
// A SOCK_STREAM socket. Nothing here waits for the VMM: a message may arrive in pieces, and an
// answer that the socket does not take is kept. Descriptors belong to the message whose bytes they
// came with. A message stays in the socket until it is taken, so that another process can receive
// it again (progress.h). Hence the socket stays readable, and its watcher must ask for edges
// (EPOLLET).
//
// One thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/fd.h"
#include "pvrdma/vfio_user/messages.h"

namespace vrdma::pvrdma::vfio {

class Connection {
 public:
  struct Request {
    Header header{};
    std::vector<uint8_t> payload;       // header.size - 16 bytes
    std::vector<base::Fd> descriptors;  // at most kMostFds
  };

  explicit Connection(base::Fd socket);
  [[nodiscard]] int fd() const { return socket_.get(); }

  // Whether a request is complete; false: what it lacks has not arrived. An error means that the
  // connection is of no use any more; the sentence is empty if the VMM has closed it between two
  // messages.
  // `reads` bounds the system calls, and is counted down. None left: false.
  [[nodiscard]] base::Result<bool> receive(int& reads);
  // The request, from receive() until the next one.
  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] uint8_t last_byte() const;
  // Its descriptors, which may be taken out.
  [[nodiscard]] std::vector<base::Fd>& descriptors() { return request_.descriptors; }

  // Whether the message at the head of the socket, which has arrived, has this header.
  [[nodiscard]] bool begins_with(const Header& header);
  // The first `size` bytes leave the socket, which has them. The last of them is stored in `last`
  // by the system call that does it.
  [[nodiscard]] base::Result<void> take(uint32_t size, uint8_t* last);

  // `bytes`: a whole answer; used up. `file`: goes with it, unless nullptr, and must outlive the
  // connection. Not while has_unsent().
  [[nodiscard]] base::Result<void> send(std::vector<uint8_t>& bytes, const base::Fd* file);
  // Sends what waits. To be called when the socket takes more.
  [[nodiscard]] base::Result<void> flush();
  [[nodiscard]] bool has_unsent() const { return unsent_.has_value(); }

 private:
  struct Answer {
    std::vector<uint8_t> bytes;
    const base::Fd* file = nullptr;
    size_t sent = 0;
  };
  // Looks at bytes of the request from the `at`th on, and advances `at`. 0: there are none.
  [[nodiscard]] base::Result<size_t> look(std::span<iovec> parts, msghdr* message, size_t* at);
  void look_from(int offset);
  // Empty: the header is that of a request.
  [[nodiscard]] std::string objection() const;
  // As much of it as the socket takes.
  [[nodiscard]] base::Result<void> send_some(const std::vector<uint8_t>& bytes,
                                             const base::Fd* file, size_t& sent);

  base::Fd socket_;
  Request request_;
  // Bytes of its header; and of all of it, once the header is known.
  size_t header_seen_ = 0, seen_ = 0;
  int offset_ = -1;  // where the kernel looks next (SO_PEEK_OFF); -1: at the head, always
  std::vector<uint8_t> taken_;
  std::optional<Answer> unsent_;
};

}  // namespace vrdma::pvrdma::vfio
